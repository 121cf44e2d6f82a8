//! Nested teams: the place of each thread of each team, for every runtime that forks teams.
//!
//! The interfaces to the runtimes ([`gomp`](crate::gomp), [`ompt`](crate::ompt)) report three
//! events: a thread opens a team, a thread joins a team under a number, a team ends. This module
//! acts on them. [`state`] holds the launcher's request and the order in force, [`order`] one text
//! with its maps, [`team`] the threads, [`report`] the report at exit,
//! [`standard_error`](crate::standard_error) the target of a line that the user did not ask for.
//!
//! In a program without requested teams, none of this code runs.

mod order;
mod report;
mod state;
mod team;

pub(crate) use state::{NestRefusal, begin, is_active, set, stand_down};
pub(crate) use team::{
    NestTeam, born_as, forget_in_child, is_narrowed, join_unknown, open, relax, widen_until_next_team,
};

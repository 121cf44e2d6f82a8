//! Nested teams: the place of each thread of each team, whatever runtime forks the team.
//!
//! The interfaces to the runtimes ([`gomp`](crate::gomp), [`ompt`](crate::ompt)) report three
//! events: a thread opens a team, a thread joins a team under a number, a team ends. The
//! consequences are drawn here. [`state`] holds the launcher's request and the order in force,
//! [`order`] one text with its maps, [`team`] the threads, [`report`] the report at exit,
//! [`standard_error`](crate::standard_error) the target of a line that the user did not ask for.
//!
//! A program for which no teams were asked runs nothing of this.

mod order;
mod report;
mod state;
mod team;

pub(crate) use state::{NestRefusal, begin, is_active, set, stand_down};
pub(crate) use team::{
    NestTeam, born_as, forget_in_child, is_narrowed, join_unknown, open, relax, widen_until_next_team,
};

//! Nested teams: which thread of which team goes where, whatever runtime forks the team.
//!
//! The runtimes' own edges ([`gomp`](crate::gomp), [`ompt`](crate::ompt)) say three things: a thread opens a team, a thread
//! joins a team under a number, a team is over. What follows from that is here. [`state`] is what the launcher said and
//! the order in force, [`order`] one text with its maps, [`team`] the threads, [`report`] what is told at
//! exit, [`standard_error`](crate::standard_error) where a line that was not asked for goes.
//!
//! Nothing here is on the way of a program for which no teams were asked.

mod order;
mod report;
mod state;
mod team;

pub(crate) use state::{Refusal, begin, is_active, set, stand_down};
pub(crate) use team::{
    Team, born_as, forget_in_child, is_narrowed, join_unknown, open, relax, widen_until_next_team,
};

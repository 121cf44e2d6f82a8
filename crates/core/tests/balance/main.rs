//! Policies over a machine without noise, against the bounds that arithmetic gives.

#![allow(clippy::unwrap_used)]

mod bounds;
mod contest;
mod fluid;
mod laws;
mod nodes;
mod penalty;
mod run;
mod script;
mod traps;
mod trials;

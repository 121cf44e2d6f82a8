//! The simulated machine as policies and people see it.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

mod measured;
mod memory;
mod run;

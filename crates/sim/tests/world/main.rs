//! The simulated machine as policies and people see it.

mod measured;
mod run;

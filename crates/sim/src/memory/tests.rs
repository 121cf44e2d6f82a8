//! Whole machines of a few threads, run without a scheduler: each test puts threads on CPUs and lets epochs pass.

mod published;
mod state;

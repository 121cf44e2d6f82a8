//! The laboratory's commands: benchmarks of the live machine, and the simulator's front end. Every number shown is computed
//! elsewhere.

#![forbid(unsafe_code)]

pub mod args;
pub mod bench;
pub mod generate;
pub mod sim;
mod usable;

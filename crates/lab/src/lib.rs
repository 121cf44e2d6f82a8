//! Commands of the laboratory: benchmarks of the live machine, the front end of the simulator, and the tuning of teams.
//! All numbers shown are computed in other crates.

#![forbid(unsafe_code)]

pub mod args;
pub mod bench;
pub mod generate;
pub mod sim;
pub mod tune_team;
mod usable;

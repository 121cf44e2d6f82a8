//! Commands of the laboratory: benchmarks of the live machine, the front end of the simulator, the
//! tuning of programs and teams, replays, and pages made of records. All numbers shown are computed
//! in other crates.

#![forbid(unsafe_code)]

pub mod args;
pub mod bench;
pub mod generate;
#[cfg(test)]
mod kept_pictures;
pub mod replay;
pub mod report;
pub mod sim;
pub mod tune;
pub mod tune_team;
mod usable;

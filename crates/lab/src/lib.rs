//! Commands of the laboratory: benchmarks of the live machine, and the front end of the simulator.
//! All numbers shown are computed in other crates.

#![forbid(unsafe_code)]

pub mod args;
pub mod bench;
pub mod generate;
pub mod sim;
mod usable;

//! `trimtab bench`: programs measured with and without placement.
//!
//! Every benchmark is a series: `matrix` defines its runs, `records` the lines of its record,
//! `report` and `chart` present the results. `harness` controls the course of all benchmarks.
//! Medians, intervals and verdicts come from `trimtab_core::stats` and `trimtab_core::ideal_ratio`.

mod balance;
mod cost;
mod harness;
mod misses;
mod nested;
mod nodes;
mod oversub;
mod team;
mod uncore;

pub(crate) use harness::read_text;

use crate::args::{BenchArgs, BenchCommand};
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;

/// Runs a benchmark.
///
/// # Errors
/// [`exit::FAILED`] if the programs are missing, one of them failed, or a file cannot be written.
pub fn run(world: &World, args: &BenchArgs) -> Result<u8, Exit> {
    let measured = match &args.what {
        BenchCommand::Nested(args) => nested::run(world, args),
        BenchCommand::Balance(args) => balance::run(world, args),
        BenchCommand::Uncore(args) => uncore::run(world, args),
        BenchCommand::Nodes(args) => nodes::run(world, args),
        BenchCommand::Cost(args) => cost::run(world, args),
        BenchCommand::Team(args) => team::run(world, args),
        BenchCommand::Oversub(args) => oversub::run(world, args),
        BenchCommand::Misses(args) => misses::run(world, args),
        BenchCommand::TeamCell(args) => return team::cell(args),
        BenchCommand::OversubCell(args) => return oversub::cell(args),
    };
    measured.map_err(|cause| Exit::new(exit::FAILED, cause))
}

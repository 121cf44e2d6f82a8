//! `trimtab bench`: programs measured with and without placement.
//!
//! `series` is the order of events of all of them, Ctrl-C is `commands::interrupt`'s; `programs` finds and runs programs, `talk` speaks with one that listens,
//! `record` writes samples as they come. `nested` is one, with `cases` for what is run, `published` for what others measured, `tables` and `chart` to show it
//! all; `balance`, `uncore`, `cost`, `team` and `oversub` are others, with cases and pages of their own.
//! Medians, intervals and verdicts are `trimtab_core::stats`' and `trimtab_core::ideal_ratio`'s.

mod balance;
mod cases;
mod chart;
mod cost;
mod nested;
pub(in crate::commands) mod oversub;
mod programs;
mod published;
mod record;
mod series;
mod tables;
mod talk;
mod team;
mod uncore;

use crate::args::{BenchArgs, BenchCommand};
use crate::exit::Exit;
use crate::world::World;

/// Measures.
///
/// # Errors
/// [`crate::exit::FAILED`] when the programs are not there, one of them failed, or a file cannot be written.
pub fn run(world: &World, args: &BenchArgs) -> Result<u8, Exit> {
    match &args.what {
        BenchCommand::Nested(args) => nested::run(world, args),
        BenchCommand::Balance(args) => balance::run(world, args),
        BenchCommand::Uncore(args) => uncore::run(world, args),
        BenchCommand::Cost(args) => cost::run(world, args),
        BenchCommand::Team(args) => team::run(world, args),
        BenchCommand::TeamCell(args) => team::cell(args),
        BenchCommand::Oversub(args) => oversub::run(world, args),
        BenchCommand::OversubCell(args) => oversub::cell(args),
    }
}

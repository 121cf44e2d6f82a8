//! `trimtab bench`: programs measured with and without placement.
//!
//! `nested` is the order of events; `cases` says what is run, `programs` finds and runs it, Ctrl-C is `commands::interrupt`'s,
//! `record` writes samples as they come, `published` holds what others measured, `tables` and `chart` show it all.
//! `balance` is another order of events with the same helpers, and cases and a page of its own; so is `uncore`.
//! Medians, intervals and verdicts are `trimtab_core::stats`' and `trimtab_core::yardstick`'s.

mod balance;
mod cases;
mod chart;
mod nested;
mod programs;
mod published;
mod record;
mod tables;
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
    }
}

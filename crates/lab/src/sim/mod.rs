//! `trimtab sim`: programs on simulated machines.
//!
//! `scenario` runs scenario files (`pool` on all cores, `traces` records them) and shows the
//! results (`tables`, `chart`) or the broken invariants (`check`). `machines` shows the machines
//! that come with trimtab, `from` makes the scenario of a recorded run, `figures` reproduces
//! published figures, `swarm` searches for faults. Every number shown is computed by `trimtab_sim`.

mod chart;
mod check;
mod figures;
mod from;
mod machines;
mod pool;
mod scenario;
mod swarm;
mod tables;
mod traces;

use crate::args::{SimArgs, SimCommand};
use std::path::Path;
use trimtab_front::exit::Exit;

/// Position of a run.
#[derive(Clone, Copy, Debug)]
struct RunPosition {
    /// Index of the scenario file.
    file: usize,
    /// Index in the file's sweep.
    run: usize,
}

/// Returns whether an output path stands for standard output.
fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Runs a command of the simulator.
///
/// # Errors
/// [`trimtab_front::exit::FAILED`] if a file cannot be read or written.
pub fn run(args: &SimArgs) -> Result<u8, Exit> {
    match &args.what {
        None if !args.scenarios.from.is_empty() => from::run(&args.scenarios),
        None if args.scenarios.check => check::run(&args.scenarios),
        None => scenario::run(&args.scenarios),
        Some(SimCommand::Figures(args)) => figures::run(args),
        Some(SimCommand::Swarm(args)) => swarm::run(args),
        Some(SimCommand::Machines(args)) => machines::run(args),
    }
}

//! `trimtab sim`: programs on simulated machines.
//!
//! `scenario` runs scenario files and shows what came of them, `machines` shows the machines that come with trimtab, `figures` makes the
//! published figures again, `swarm` looks for faults. Every number shown is `trimtab_sim`'s.

mod figures;
mod machines;
mod scenario;
mod swarm;

use crate::args::{SimArgs, SimCommand};
use crate::exit::Exit;

/// Simulates.
///
/// # Errors
/// [`crate::exit::FAILED`] when something cannot be read or written.
pub fn run(args: &SimArgs) -> Result<u8, Exit> {
    match &args.what {
        None => scenario::run(&args.scenarios),
        Some(SimCommand::Figures(args)) => figures::run(args),
        Some(SimCommand::Swarm(args)) => swarm::run(args),
        Some(SimCommand::Machines(args)) => machines::run(args),
    }
}

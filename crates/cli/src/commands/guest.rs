//! `trimtab guest`: inside a guest, tells the host which CPUs run tasks that somebody bound.

use crate::args::GuestArgs;
use crate::exit::{self, Exit};
use crate::say::Volume;
use crate::world::World;
use trimtab_agent::guest::{GuestOptions, report};

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: there is no such port, or tasks cannot be looked at.
pub fn run(world: &World, args: &GuestArgs) -> Result<u8, Exit> {
    let options = GuestOptions { port: args.port.clone(), interval: args.interval, scans: args.looks };
    report(&world.paths(), &options, &Volume::of(false, args.verbose))
        .map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

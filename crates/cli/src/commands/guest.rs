//! `trimtab guest-agent`: inside a virtual machine, reports to the host which vCPUs run bound
//! tasks.

use crate::args::GuestAgentArgs;
use crate::exit::{self, Exit};
use crate::say::Volume;
use crate::world::World;
use trimtab_agent::guest::{GuestOptions, report};

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: the port does not exist, or tasks cannot be read.
pub fn run(world: &World, args: &GuestAgentArgs) -> Result<u8, Exit> {
    let options = GuestOptions { port: args.port.clone(), interval: args.interval, scans: args.scans };
    report(&world.paths(), &options, &Volume::of(false, args.verbose))
        .map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

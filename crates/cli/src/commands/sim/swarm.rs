//! `trimtab sim swarm`.

use crate::args::SwarmArgs;
use crate::exit::{self, Exit};
use anyhow::anyhow;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`].
pub(super) fn run(_args: &SwarmArgs) -> Result<u8, Exit> {
    Err(Exit::new(exit::FAILED, anyhow!("sim swarm: not built yet")))
}

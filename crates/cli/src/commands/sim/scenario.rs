//! `trimtab sim SCENARIO.toml`.

use crate::args::ScenarioArgs;
use crate::exit::{self, Exit};
use anyhow::anyhow;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`].
pub(super) fn run(_args: &ScenarioArgs) -> Result<u8, Exit> {
    Err(Exit::new(exit::FAILED, anyhow!("sim: not built yet")))
}

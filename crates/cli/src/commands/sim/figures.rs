//! `trimtab sim figures`.

use crate::args::FiguresArgs;
use crate::exit::{self, Exit};
use anyhow::anyhow;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`].
pub(super) fn run(_args: &FiguresArgs) -> Result<u8, Exit> {
    Err(Exit::new(exit::FAILED, anyhow!("sim figures: not built yet")))
}

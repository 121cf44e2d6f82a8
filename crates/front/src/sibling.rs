//! The other programs of this installation.

use anyhow::{Context, Result, anyhow};
use std::path::PathBuf;

/// The program for daily use.
pub const TRIMTAB: &str = "trimtab";
/// The laboratory: benchmarks and the simulator.
pub const LAB: &str = "trimtab-lab";

/// Finds a program of this installation: beside the running one, else in `PATH`.
///
/// # Errors
/// It is in neither place; the message says how to install it.
pub fn find(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = own.with_file_name(name);
    let candidates =
        std::iter::once(beside).chain(std::env::split_paths(&path).map(|folder| folder.join(name)));
    candidates.into_iter().find(|file| file.is_file()).ok_or_else(|| {
        let folder = own.parent().unwrap_or(&own).display();
        anyhow!(
            "{name} is neither in {folder} nor in PATH: install it there (make install, or cargo install {name})"
        )
    })
}

//! `trimtab run --teams`: `trimtab-teams`, which prepares the library for the program's MPI, and
//! then starts the same command line again.

use crate::exit::{self, Exit};
use anyhow::{Context, Result, anyhow};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that finds the MPI and compiles the library.
const PREPARES: &str = "trimtab-teams";
/// Variable of a command line that it has started.
const STARTED: &str = "TRIMTAB_TEAMS";

/// Replaces this process by the program that prepares the library, and returns only if that fails.
/// Returns `None` if it was done before, also by a run around this one.
pub(super) fn start(strict: bool) -> Option<Exit> {
    if std::env::var_os(STARTED).is_some() {
        return None;
    }
    let Err(cause) = become_program(strict);
    Some(Exit::new(exit::FAILED, cause))
}

fn become_program(strict: bool) -> Result<std::convert::Infallible> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    let program = place(&own).context("--teams is carried out by a program of its own")?;
    let mut command = Command::new(&program);
    if strict {
        command.arg("--strict");
    }
    let error = command.arg("--").arg(&own).args(std::env::args_os().skip(1)).env(STARTED, "started").exec();
    Err(anyhow::Error::new(error).context(format!("cannot start {}", program.display())))
}

fn place(own: &Path) -> Result<PathBuf> {
    let installed = own.with_file_name("..").join("lib/trimtab/mpi");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(installed.clone()).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(PREPARES)).find(|file| file.is_file()).ok_or_else(|| {
        anyhow!(
            "{PREPARES} is neither in {} nor in PATH: packages, wheels and make install bring it, cargo does not",
            installed.display()
        )
    })
}

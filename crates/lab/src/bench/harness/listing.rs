//! The runs of a series before any is made: their list, and the errors where there are none.

use anyhow::{Error, Result, anyhow};
use std::ffi::OsString;
use trimtab_front::{exit, print};

/// Prints the runs, a line each, and what cannot be run here.
///
/// # Errors
/// Stdout cannot be written.
pub(in crate::bench) fn list(runs: impl IntoIterator<Item = String>, left_out: &[String]) -> Result<u8> {
    let left_out = left_out.iter().map(|reason| format!("# {reason}"));
    let lines: Vec<String> = runs.into_iter().chain(left_out).collect();
    print(&lines.join("\n"))?;
    Ok(exit::DONE)
}

/// The error where no case has a name that was asked for.
pub(in crate::bench) fn no_such_case(bench: &str, only: &[String]) -> Error {
    anyhow!("no case is named like {}: trimtab bench {bench} --list shows all", only.join(" or "))
}

/// The words of a command, as they are shown and recorded.
pub(in crate::bench) fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

//! Listing of the runs of a series, and the error for an unknown name.

use anyhow::{Error, Result, anyhow};
use std::ffi::OsString;
use trimtab_front::{exit, print};

/// Prints the runs, one per line, and the runs that this machine does not support.
///
/// # Errors
/// Stdout cannot be written.
pub(in crate::bench) fn list(runs: impl IntoIterator<Item = String>, left_out: &[String]) -> Result<u8> {
    let left_out = left_out.iter().map(|reason| format!("# {reason}"));
    let lines: Vec<String> = runs.into_iter().chain(left_out).collect();
    print(&lines.join("\n"))?;
    Ok(exit::DONE)
}

/// Returns the error for patterns that no case matches.
pub(in crate::bench) fn no_such_case(bench: &str, only: &[String]) -> Error {
    anyhow!("no case's name contains {}: trimtab bench {bench} --list shows all cases", only.join(" or "))
}

/// Returns the words of a command as shown and recorded.
pub(in crate::bench) fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

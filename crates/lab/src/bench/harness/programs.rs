//! Location of the benchmark programs, and the run of one program.

use anyhow::{Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use trimtab_front::interrupt::Interrupt;

/// Longest part of a failing program's standard error that is kept, in characters.
const STDERR_CHARS_MAX: usize = 2_000;
/// A terminal's Ctrl-C reaches the program and trimtab together; trimtab has certainly noticed it
/// after this time.
const INTERRUPT_DELAY_MAX: Duration = Duration::from_millis(200);

/// Returns the folder with all of these programs: the one that was named, else the one beside an
/// installed trimtab, else the one that `make -C bench` fills in the source tree of this trimtab.
///
/// # Errors
/// There is no such folder; the message says how to build the programs.
pub(in crate::bench) fn folder(named: Option<&Path>, trimtab: &Path, wanted: &[&str]) -> Result<PathBuf> {
    let missing = |folder: &Path| wanted.iter().find(|file| !folder.join(file).is_file());
    if let Some(folder) = named {
        if let Some(file) = missing(folder) {
            bail!("{file} is not in {}: build it with make -C bench", folder.display());
        }
        // A bare name would be searched in PATH.
        return Ok(std::path::absolute(folder)?);
    }
    let installed = trimtab.ancestors().nth(2).map(|prefix| prefix.join("libexec/trimtab/bench"));
    let built = trimtab.ancestors().skip(1).map(|folder| folder.join("bench/build/gcc"));
    let mut candidates = installed.into_iter().chain(built);
    candidates.find(|folder| missing(folder).is_none()).ok_or_else(|| {
        anyhow::anyhow!(
            "the benchmark programs are neither installed beside {} nor built in its source tree: \
             build them with make -C bench, or name their folder with --programs DIR",
            trimtab.display()
        )
    })
}

/// Result of running a program.
#[derive(Debug)]
pub(in crate::bench) enum ProgramOutcome {
    /// The program's report, verified by the program.
    Well { report: Value, stderr: String },
    /// The error in one line, and the program's standard error.
    Badly { error: String, stderr: String },
    /// The run was stopped by a signal.
    Stopped,
}

/// Runs one program to its end. `variables` are set or, with `None`, removed; `check` returns the
/// fault of a report.
pub(in crate::bench) fn run(
    words: &[OsString],
    variables: &[(&str, Option<String>)],
    check: &dyn Fn(&Value) -> Option<String>,
    interrupt: &Interrupt,
) -> ProgramOutcome {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let error = format!("cannot start {}: {error}", words[0].display());
            return ProgramOutcome::Badly { error, stderr: String::new() };
        }
    };
    interrupt.runs(&child);
    let output = child.wait_with_output();
    interrupt.ended();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            return ProgramOutcome::Badly {
                error: format!("cannot read its output: {error}"),
                stderr: String::new(),
            };
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The end of the text is more useful than its beginning.
    let said: Vec<char> = stderr.trim().chars().collect();
    let stderr = said[said.len().saturating_sub(STDERR_CHARS_MAX)..].iter().collect();
    match judge(output.status, &output.stdout, check) {
        Ok(report) => ProgramOutcome::Well { report, stderr },
        Err(error) => {
            let killed = output.status.signal().is_some();
            if interrupt.came().is_some() || (killed && interrupt.comes_within(INTERRUPT_DELAY_MAX)) {
                ProgramOutcome::Stopped
            } else {
                ProgramOutcome::Badly { error, stderr }
            }
        }
    }
}

/// Returns the report of a successful run, or the error.
fn judge(
    status: ExitStatus,
    stdout: &[u8],
    check: &dyn Fn(&Value) -> Option<String>,
) -> Result<Value, String> {
    if status.code() == Some(1) {
        return Err("exit status: 1, its result is wrong".to_owned());
    }
    if !status.success() {
        return Err(status.to_string());
    }
    let report: Value =
        serde_json::from_slice(stdout).map_err(|error| format!("its report is not JSON: {error}"))?;
    let fault = match (check(&report), report["verified"] == true) {
        (Some(fault), _) => fault,
        (None, false) => "its result is not verified".to_owned(),
        (None, true) => return Ok(report),
    };
    Err(fault)
}

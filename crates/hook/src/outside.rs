//! Programs of engines, which are run with a limit of time and of output.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;
use trimtab_linux::capture::{CaptureLimits, capture};
use trimtab_linux::text::printable;

/// Longest message of a program that fails.
const MESSAGE_MAX: usize = 2_000;

/// Runs a program, and returns its standard output.
///
/// # Errors
/// It cannot be started, fails, takes longer, or prints more.
pub(crate) fn output<W: AsRef<OsStr>>(
    program: &OsStr,
    words: &[W],
    limit: Duration,
    most: u64,
) -> Result<String> {
    let shown = printable(program.as_encoded_bytes());
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    // A byte more shows that there is too much.
    let limits = CaptureLimits { time: Some(limit), output: most.saturating_add(1), errors: MESSAGE_MAX };
    let ended = capture(Command::new(program).args(words), limits);
    let Some(ended) = ended.with_context(|| format!("cannot start {shown}"))? else {
        bail!("{shown} gave no answer in {} s", limit.as_secs_f32());
    };
    if ended.output.len() > most {
        bail!("{shown} printed more than {most} bytes");
    }
    if !ended.status.success() {
        let message = String::from_utf8_lossy(&ended.errors).trim().to_owned();
        bail!("{shown} failed ({}): {}", ended.status, printable(message.as_bytes()));
    }
    String::from_utf8(ended.output).with_context(|| format!("{shown} printed no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, limit: Duration) -> Result<String, String> {
        output(OsStr::new("sh"), &["-c", line], limit, 100).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn answers_failures_and_floods_are_told_apart() {
        let long = Duration::from_secs(60);
        assert_eq!(shell("echo yes", long).unwrap(), "yes\n");
        let said = shell("echo no >&2; exit 3", long).unwrap_err();
        assert!(said.contains("exit status: 3"), "{said}");
        assert!(shell("yes", long).unwrap_err().contains("more than 100 bytes"));
        assert!(shell(r"printf '\377'", long).unwrap_err().contains("no text"));
        assert!(output(OsStr::new("/nowhere/program"), &["x"], long, 1).is_err());
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        for line in ["exec sleep 600", "exec >&-; exec sleep 600"] {
            let said = shell(line, Duration::from_millis(100)).unwrap_err();
            assert!(said.contains("no answer"), "{said}");
        }
    }
}

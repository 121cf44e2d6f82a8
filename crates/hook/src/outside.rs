//! Programs of engines, which are run with a limit of time and of output.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use trimtab_linux::text::printable;

/// Longest message of a program that fails.
const MESSAGE_MAX: u64 = 2_000;
/// Interval at which the end of a program that has closed its output is looked for.
const POLL: Duration = Duration::from_millis(5);

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
    let until = Instant::now() + limit;
    let command = &mut Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
    let (out, err) = (read(child.stdout.take(), most + 1), read(child.stderr.take(), MESSAGE_MAX));
    let text = out.recv_timeout(limit);
    let status = text.is_ok().then(|| wait(&mut child, until)).flatten();
    let Some(status) = status else {
        // An error means that it has just ended.
        let _ = child.kill();
        let _ = child.wait();
        bail!("{shown} gave no answer in {} s", limit.as_secs_f32());
    };
    let text = text.unwrap_or_default();
    if !status.success() {
        let message = err.recv_timeout(POLL).unwrap_or_default();
        let message = String::from_utf8_lossy(&message).trim().to_owned();
        bail!("{shown} failed ({status}): {}", printable(message.as_bytes()));
    }
    if text.len() as u64 > most {
        bail!("{shown} printed more than {most} bytes");
    }
    String::from_utf8(text).with_context(|| format!("{shown} printed no text"))
}

/// Waits for the end of a program.
fn wait(child: &mut Child, until: Instant) -> Option<std::process::ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(POLL),
            _ => return None,
        }
    }
}

/// Reads a stream in a thread of its own.
fn read(stream: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<Vec<u8>> {
    let (done, result) = mpsc::channel();
    let work = move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // The bytes before an error are the answer.
            let _ = stream.take(most).read_to_end(&mut bytes);
        }
        // The receiver may have given up.
        let _ = done.send(bytes);
    };
    // Without a thread the receiver is told at once, as if the program had answered nothing.
    drop(thread::Builder::new().spawn(work));
    result
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
        assert!(shell("yes", long).is_err());
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

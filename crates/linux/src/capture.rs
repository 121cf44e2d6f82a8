//! The output of another program, within limits of time and of bytes.
//!
//! **Properties.** A program that takes longer is killed, one that prints more finds its output
//! closed, and processes that it leaves behind are not waited for, if time is limited: the caller
//! always goes on. One thread reads both outputs, so that neither can block the other.

use crate::sys::signals::keep_children;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the end of a program that has closed its output is looked for.
const POLL: Duration = Duration::from_millis(5);
/// Bytes that are read at once: a pipe's usual size.
const PIECE: usize = 64 << 10;

/// How long a program may take, and how much it may print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureLimits {
    /// Its longest time; `None` is as long as it likes.
    pub time: Option<Duration>,
    /// Most bytes of its standard output. Whatever would follow is not read.
    pub output: usize,
    /// Most bytes of its standard error.
    pub errors: usize,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Captured {
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub errors: Vec<u8>,
    /// How it ended.
    pub status: ExitStatus,
}

/// Runs a program without input to its end. `None` if it took longer than permitted; it is killed
/// then.
///
/// # Errors
/// It cannot be started, or its output not be waited for.
///
/// # Examples
/// ```
/// use std::process::Command;
/// use trimtab_linux::capture::{CaptureLimits, capture};
///
/// let limits = CaptureLimits { time: None, output: 100, errors: 100 };
/// let ended = capture(Command::new("echo").arg("yes"), limits)?.expect("it may take any time");
/// assert!(ended.status.success());
/// assert_eq!(ended.output, b"yes\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn capture(command: &mut Command, limits: CaptureLimits) -> io::Result<Option<Captured>> {
    let _kept = keep_children()?;
    let until = limits.time.and_then(|time| Instant::now().checked_add(time));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (output, errors) = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
    let mut streams = [Stream::new(output, limits.output), Stream::new(errors, limits.errors)];
    let status = follow(&mut child, &mut streams, until);
    if !matches!(status, Ok(Some(_))) {
        // An error means that it has just ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    let [output, errors] = streams.map(|stream| stream.bytes);
    Ok(status?.map(|status| Captured { output, errors, status }))
}

/// Reads what a program prints, and waits for its end; `None` when the time is over.
fn follow(
    child: &mut Child,
    streams: &mut [Stream; 2],
    until: Option<Instant>,
) -> io::Result<Option<ExitStatus>> {
    let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
    // Without a limit of time its messages are read to their end too.
    while streams[0].is_open() || (until.is_none() && streams[1].is_open()) {
        if left().is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        read_ready(streams, left())?;
    }
    loop {
        if let Some(status) = child.try_wait()? {
            // What it printed before its end is there already.
            while read_ready(streams, Some(Duration::ZERO))? {}
            return Ok(Some(status));
        }
        match left() {
            None => {
                child.wait()?;
            }
            Some(left) if left.is_zero() => return Ok(None),
            Some(left) if streams[1].is_open() => {
                read_ready(streams, Some(left.min(POLL)))?;
            }
            Some(left) => thread::sleep(left.min(POLL)),
        }
    }
}

/// Waits until one of the streams can be read, and reads once. Returns whether anything was ready.
fn read_ready(streams: &mut [Stream; 2], wait: Option<Duration>) -> io::Result<bool> {
    let mut open: Vec<&mut Stream> = streams.iter_mut().filter(|stream| stream.is_open()).collect();
    let pipes = open.iter().filter_map(|stream| stream.pipe.as_ref());
    let mut set: Vec<PollFd<'_>> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
    if set.is_empty() {
        return Ok(false);
    }
    // A time that the kernel cannot count is one without end.
    let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
    match poll(&mut set, wait.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let ready: Vec<bool> = set.iter().map(|one| !one.revents().is_empty()).collect();
    for (stream, _) in open.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
        stream.read_once();
    }
    Ok(ready.contains(&true))
}

/// One of a program's outputs.
struct Stream {
    /// `None` when it has been closed, by the program or here.
    pipe: Option<File>,
    bytes: Vec<u8>,
    most: usize,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>, most: usize) -> Self {
        Self { pipe: pipe.map(File::from), bytes: Vec::new(), most }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads the available output; closes the stream at its end, at the limit, after an error.
    fn read_once(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut piece = vec![0; PIECE];
        match pipe.read(&mut piece) {
            Ok(read) if read > 0 => {
                let room = self.most - self.bytes.len();
                self.bytes.extend(&piece[..read.min(room)]);
                if self.bytes.len() == self.most {
                    self.pipe = None;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The bytes before an error are the answer.
            Ok(_) | Err(_) => self.pipe = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    fn shell(line: &str, time: Option<Duration>) -> Option<Captured> {
        let limits = CaptureLimits { time, output: 200_000, errors: 400_000 };
        capture(Command::new("sh").args(["-c", line]), limits).unwrap()
    }

    #[test]
    fn both_outputs_and_the_end_are_returned() {
        for time in [LONG, None, Some(Duration::MAX)] {
            let ended = shell("echo yes; echo no >&2; exit 3", time).unwrap();
            assert_eq!((&*ended.output, &*ended.errors), (&b"yes\n"[..], &b"no\n"[..]));
            assert_eq!(ended.status.code(), Some(3));
        }
        let limits = CaptureLimits { time: None, output: 1, errors: 1 };
        assert!(capture(&mut Command::new("/nowhere/program"), limits).is_err());
    }

    #[test]
    fn more_than_a_pipe_holds_is_read_from_both_at_once() {
        for time in [LONG, None] {
            let line = "head -c 150000 /dev/zero >&2; head -c 150000 /dev/zero; head -c 150000 /dev/zero >&2";
            let ended = shell(line, time).unwrap();
            assert_eq!((ended.output.len(), ended.errors.len()), (150_000, 300_000));
        }
    }

    #[test]
    fn a_flood_is_ended() {
        for time in [LONG, None] {
            let ended = shell("exec yes", time).unwrap();
            assert_eq!(ended.output.len(), 200_000);
            assert!(!ended.status.success());
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        for line in ["exec sleep 600", "exec >&-; exec sleep 600", "exec >&- 2>&-; exec sleep 600"] {
            assert!(shell(line, Some(Duration::from_millis(100))).is_none(), "{line}");
        }
    }

    #[test]
    fn a_process_that_keeps_the_errors_open_is_not_waited_for() {
        let ended = shell("sleep 600 >&- & echo $!", LONG).unwrap();
        let pid = String::from_utf8(ended.output).unwrap();
        assert!(Command::new("kill").arg(pid.trim()).status().unwrap().success(), "it still runs");
    }
}

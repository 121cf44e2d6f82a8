//! One trial: a start of the program in one of the compared ways, timed, bounded in time, and ended
//! with all its processes.
//!
//! All trials have the same input (the user's file, else none) and no output, so that they differ
//! only in the way in which the program is started.

use super::command_line::CommandLine;
use super::tree;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, MemfdFlags, fstat, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, set_child_subreaper};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use trimtab_core::advise::race::Outcome;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::progress::quoted;
use trimtab_linux::process::Pid as Process;

/// Time between two checks for a request to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of the messages of a program that ends in another way, from their end.
const MESSAGE_BYTES_MAX: u64 = 300;

/// Conditions that all trials share.
#[derive(Debug)]
pub(crate) struct Trials {
    /// The program `trimtab`.
    pub trimtab: PathBuf,
    pub proc: PathBuf,
    /// The user's command.
    pub command: Vec<OsString>,
    /// Processes that this process had before the trials: a shell may have replaced itself by this
    /// program.
    spared: Vec<Process>,
}

impl Trials {
    /// Prepares trials: this process adopts processes that lose their parents, so that none of a
    /// trial survives it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn begin(trimtab: PathBuf, proc: PathBuf, command: Vec<OsString>) -> Result<Self> {
        set_child_subreaper(Some(getpid())).context("cannot adopt the processes of trials")?;
        let spared = tree::below(&proc, Process::own());
        Ok(Self { trimtab, proc, command, spared })
    }

    /// Runs the program once, in the way that `line` says; `None` if the user stopped it.
    ///
    /// # Errors
    /// No process or no memory is available.
    pub(super) fn run(
        &self,
        line: &CommandLine,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Outcome>> {
        let messages = memfd_create("messages", MemfdFlags::CLOEXEC).context("no memory for messages")?;
        let messages = File::from(messages);
        let mut command = self.start(line);
        command.stdin(input()).stdout(Stdio::null()).stderr(messages.try_clone()?).process_group(0);
        let begin = Instant::now();
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let why = format!("it cannot be started: {error}");
                return Ok(Some(Outcome::Rejected { why, took: begin.elapsed().into() }));
            }
        };
        let ended = attend(child, begin, limit, interrupt);
        tree::end_all(&self.proc, &self.spared);
        let (status, took) = ended?;
        Ok(match status {
            TrialEnd::Interrupted => None,
            TrialEnd::Late => Some(Outcome::Stopped { after: took.into() }),
            TrialEnd::By(status) if status.success() => Some(Outcome::Ended { took: took.into() }),
            TrialEnd::By(status) => {
                let why = format!("{}; {}", ended_words(status), quoted(&tail(&messages)));
                Some(Outcome::Rejected { why, took: took.into() })
            }
        })
    }

    /// Returns the command of a trial.
    fn start(&self, line: &CommandLine) -> Command {
        let words = line.words(&self.command);
        let mut command = if line.is_bare() {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        } else {
            let mut command = Command::new(&self.trimtab);
            command.arg("run").arg("--quiet").args(line.options()).arg("--").args(&words);
            command
        };
        for (name, value) in line.variables() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// Returns the words for the end of a program.
fn ended_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => format!("it ended with {status}"),
    }
}

/// Returns the input of a run: the user's input file from its beginning, else none.
pub(super) fn input() -> Stdio {
    let stdin = rustix::stdio::stdin();
    let is_file =
        fstat(stdin).is_ok_and(|data| FileType::from_raw_mode(data.st_mode) == FileType::RegularFile);
    let again = if is_file { File::open("/proc/self/fd/0").ok() } else { None };
    again.map_or_else(Stdio::null, Stdio::from)
}

enum TrialEnd {
    By(ExitStatus),
    Late,
    Interrupted,
}

/// Waits for the end of a program, or ends it.
fn attend(
    mut child: Child,
    begin: Instant,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<(TrialEnd, Duration)> {
    let group = Pid::from_child(&child);
    let handle = pidfd_open(group, PidfdFlags::empty());
    let (end, took) = loop {
        let left = limit.saturating_sub(begin.elapsed()).min(STOP_POLL_INTERVAL);
        let over = match &handle {
            Ok(handle) => ends_within(handle, left),
            // This container has no process descriptors.
            Err(_) => {
                std::thread::sleep(left.min(Duration::from_millis(1)));
                child.try_wait()?.is_some()
            }
        };
        let took = begin.elapsed();
        if over {
            break (None, took);
        }
        if interrupt.came().is_some() {
            break (Some(TrialEnd::Interrupted), took);
        }
        if took >= limit {
            break (Some(TrialEnd::Late), took);
        }
    };
    if end.is_some() {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok((end.unwrap_or(TrialEnd::By(status)), took))
}

/// Returns whether a process ends within a time.
fn ends_within(handle: &OwnedFd, time: Duration) -> bool {
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut handles = [PollFd::new(handle, PollFlags::IN)];
    matches!(poll(&mut handles, Some(&time)), Ok(1..))
}

fn tail(mut file: &File) -> String {
    let len = file.metadata().map_or(0, |data| data.len());
    let mut bytes = Vec::new();
    let read = file
        .seek(SeekFrom::Start(len.saturating_sub(MESSAGE_BYTES_MAX)))
        .and_then(|_| file.read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

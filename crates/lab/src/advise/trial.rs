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
    pub(super) spared: Vec<Process>,
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
        let mut running = [TrialProcess::of(child)];
        let attended = attend(&mut running, begin, limit, interrupt);
        tree::end_all(&self.proc, &self.spared);
        let stopped = attended?;
        let took = begin.elapsed();
        let [TrialProcess { ended, .. }] = running;
        Ok(match (stopped, ended) {
            (Some(Stop::Interrupted), _) => None,
            (Some(Stop::Late), _) | (None, None) => Some(Outcome::Stopped { after: took.into() }),
            (None, Some((status, took))) if status.success() => Some(Outcome::Ended { took: took.into() }),
            (None, Some((status, took))) => {
                let why = format!("{}; {}", ended_words(status), quoted(&tail(&messages)));
                Some(Outcome::Rejected { why, took: took.into() })
            }
        })
    }

    /// Returns the command of a trial.
    fn start(&self, line: &CommandLine) -> Command {
        self.start_of(line, &self.command)
    }

    /// Returns a trial's command for another program.
    pub(super) fn start_of(&self, line: &CommandLine, program: &[OsString]) -> Command {
        let words = line.words(program);
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
pub(super) fn ended_words(status: ExitStatus) -> String {
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

/// Cause for which running programs were ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The limit was reached.
    Late,
    /// The user stopped the trials.
    Interrupted,
}

/// A program that was started, in a process group of its own.
#[derive(Debug)]
pub(super) struct TrialProcess {
    child: Child,
    group: Pid,
    /// Shows the end; `None` if this container has no process descriptors.
    handle: Option<OwnedFd>,
    /// Its status, and the time from the beginning of the trial to its end.
    pub(super) ended: Option<(ExitStatus, Duration)>,
}

impl TrialProcess {
    /// Takes a child that leads its process group.
    pub(super) fn of(child: Child) -> Self {
        let group = Pid::from_child(&child);
        let handle = pidfd_open(group, PidfdFlags::empty()).ok();
        Self { child, group, handle, ended: None }
    }

    /// Notes the end, if the program has ended.
    fn look(&mut self, begin: Instant) -> Result<()> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?.map(|status| (status, begin.elapsed()));
        }
        Ok(())
    }

    /// Ends the program by force.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.ended.is_none() {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.kill();
            self.child.wait()?;
        }
        Ok(())
    }
}

/// Waits until all programs have ended, or ends those that are left.
///
/// # Errors
/// The end of a program cannot be seen.
pub(super) fn attend(
    running: &mut [TrialProcess],
    begin: Instant,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<Option<Stop>> {
    let stop = loop {
        for one in &mut *running {
            one.look(begin)?;
        }
        if running.iter().all(|one| one.ended.is_some()) {
            return Ok(None);
        }
        if interrupt.came().is_some() {
            break Stop::Interrupted;
        }
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            break Stop::Late;
        }
        wait_for_any(running, left.min(STOP_POLL_INTERVAL));
    };
    running.iter_mut().try_for_each(TrialProcess::end)?;
    Ok(Some(stop))
}

/// Waits until one of the programs ends, for this time at most.
fn wait_for_any(running: &[TrialProcess], time: Duration) {
    let left = running.iter().filter(|one| one.ended.is_none());
    let handles: Option<Vec<&OwnedFd>> = left.map(|one| one.handle.as_ref()).collect();
    let Some(handles) = handles else { return std::thread::sleep(time.min(Duration::from_millis(1))) };
    let mut handles: Vec<PollFd<'_>> =
        handles.into_iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let _ = poll(&mut handles, Some(&time));
}

/// Returns the end of what a program wrote to a file.
pub(super) fn tail(mut file: &File) -> String {
    let len = file.metadata().map_or(0, |data| data.len());
    let mut bytes = Vec::new();
    let read = file
        .seek(SeekFrom::Start(len.saturating_sub(MESSAGE_BYTES_MAX)))
        .and_then(|_| file.read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

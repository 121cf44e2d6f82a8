//! Pool of running jobs: starts them through `trimtab run`, collects their output, and ends them.
//!
//! Each job is the leader of a process group, so that all its processes get a signal. The group is
//! known until the job is collected, which only this thread does; the watchers merely wait.

use super::job_log::EndedJob;
use super::template::Template;
use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};
use trimtab_agent::spawn::spawn;

/// A job that is to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    /// Its number, from 1.
    pub(super) number: usize,
    /// Its value.
    pub(super) value: OsString,
}

/// A job that has ended, with its output.
pub(super) struct FinishedJob {
    pub(super) ended: EndedJob,
    /// Standard output and standard error; empty if they were not collected.
    pub(super) output: [Option<File>; 2],
}

/// How jobs are started.
pub(super) struct Starter {
    /// The program `trimtab`.
    pub(super) trimtab: PathBuf,
    /// The options of `trimtab run`.
    pub(super) options: Vec<OsString>,
    /// The command.
    pub(super) template: Template,
    /// Whether jobs write where this process writes.
    pub(super) live: bool,
}

struct RunningJob {
    job: Job,
    child: Child,
    begin: Instant,
    output: [Option<File>; 2],
}

enum PoolEvent {
    /// The job with this number has ended and is not collected yet.
    Ended(usize),
    Signal(i32),
}

/// The running jobs.
pub(super) struct Pool<'a> {
    starter: &'a Starter,
    running: BTreeMap<usize, RunningJob>,
    events: Receiver<PoolEvent>,
    sender: Sender<PoolEvent>,
    /// Whether a job was started.
    has_started: bool,
    /// The first signal that arrived.
    stopped: Option<i32>,
}

impl<'a> Pool<'a> {
    /// Makes a pool that listens for signals.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub(super) fn new(starter: &'a Starter) -> Result<Self> {
        let (sender, events) = channel();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
        let of_signals = sender.clone();
        spawn("signals", move || {
            for signal in signals.forever() {
                if of_signals.send(PoolEvent::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { starter, running: BTreeMap::new(), events, sender, has_started: false, stopped: None })
    }

    /// Returns the number of running jobs.
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Returns the signal that stopped the pool.
    pub(super) fn stopped(&self) -> Option<i32> {
        self.stopped
    }

    /// Starts a job.
    ///
    /// # Errors
    /// It cannot be started: not the job's own failure, which is a status.
    pub(super) fn start(&mut self, job: Job) -> Result<()> {
        let Starter { trimtab, options, template, live } = self.starter;
        let mut command = Command::new(trimtab);
        command.arg("run").args(options);
        if self.has_started && *live {
            // The first job's messages are those of all jobs.
            command.arg("--quiet");
        }
        command.arg("--").args(template.fill(job.number, &job.value));
        command.stdin(Stdio::null()).process_group(0);
        let mut output = [None, None];
        if !live {
            let (out, err) = (scratch()?, scratch()?);
            command.stdout(out.try_clone()?).stderr(err.try_clone()?);
            output = [Some(out), Some(err)];
        }
        let begin = Instant::now();
        let child = command.spawn().context("cannot start trimtab itself")?;
        let (number, pid, ended) = (job.number, Pid::from_child(&child), self.sender.clone());
        self.has_started = true;
        self.running.insert(number, RunningJob { job, child, begin, output });
        spawn("job", move || {
            let ended_only = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), ended_only) {}
            let _ = ended.send(PoolEvent::Ended(number));
        })
    }

    /// Waits until a job has ended, and returns it; `None` after a signal, which the jobs get too,
    /// and after `patience`.
    ///
    /// # Errors
    /// The job cannot be collected.
    pub(super) fn next(&mut self, patience: Duration) -> Result<Option<FinishedJob>> {
        match self.events.recv_timeout(patience) {
            Ok(PoolEvent::Ended(number)) => match self.running.remove(&number) {
                Some(running) => collect(running).map(Some),
                None => Ok(None),
            },
            Ok(PoolEvent::Signal(signal)) => {
                // The second one is meant seriously.
                let passed = if self.stopped.is_some() { Signal::KILL } else { Signal::TERM };
                self.stopped = self.stopped.or(Some(signal));
                self.signal(passed);
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    fn signal(&self, signal: Signal) {
        for running in self.running.values() {
            let _ = kill_process_group(Pid::from_child(&running.child), signal);
        }
    }
}

impl Drop for Pool<'_> {
    /// No job is left behind when an error ends the command.
    fn drop(&mut self) {
        self.signal(Signal::TERM);
    }
}

/// Collects a job that has ended.
fn collect(mut running: RunningJob) -> Result<FinishedJob> {
    let status: ExitStatus = running.child.wait().context("cannot collect a job")?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let Job { number, value } = running.job;
    let ended = EndedJob {
        job: number,
        value: value.to_string_lossy().into_owned(),
        status: status.code(),
        signal: status.signal(),
        seconds: running.begin.elapsed().as_secs_f64(),
        ended: now.as_secs(),
    };
    Ok(FinishedJob { ended, output: running.output })
}

/// Returns a file without a name for a job's output: on the disk, or in memory where the folder for
/// temporary files cannot have such a file.
fn scratch() -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR);
    let file = file.or_else(|_| memfd_create("output", MemfdFlags::CLOEXEC));
    Ok(File::from(file.context("no room for a job's output")?))
}

//! One run of the program in a setting: started by `trimtab run`, timed, bounded in time, checked.
//!
//! The program gets no input and no terminal, and leads its own process group, so that all its
//! processes can be ended together: when it takes too long, on Ctrl-C, and those that it leaves
//! running. Its output goes into memory, or is discarded if it is not needed.

use anyhow::{Context, Result};
use regex::bytes::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use trimtab_core::hash::fnv1a_hex;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_core::tuning::Ran;
use trimtab_front::exit;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::progress::quoted;
use trimtab_launch::options::words;
use trimtab_linux::process::{Pid as Number, State, stat};

/// Bytes of a program's output that are read, from its end.
const OUTPUT_READ_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a failing program's output that are shown.
const OUTPUT_SHOWN_BYTES_MAX: usize = 300;
/// Time between two checks for a request to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a program has to end after it was asked to.
const KILL_DELAY: Duration = Duration::from_secs(2);

/// Conditions of a run.
#[derive(Debug)]
pub(super) struct TrialRunner {
    pub trimtab: PathBuf,
    /// Options of `trimtab run` besides the setting, without the cores.
    pub options: Vec<String>,
    /// The option for cores, if the setting does not choose them.
    pub cores: Option<String>,
    pub command: Vec<OsString>,
    pub metric: Option<Regex>,
    pub same: bool,
    pub check: Option<String>,
    pub timeout: Option<Span>,
    pub proc: PathBuf,
}

/// The result of a run.
pub(super) struct Tried {
    pub ran: Ran,
    /// Hash of its output, if outputs must be equal.
    pub output: Option<String>,
}

/// How the process ended.
enum ProcessEnd {
    By(ExitStatus),
    /// It was ended because it reached its time limit.
    Late,
    /// It was stopped because it waits for a terminal.
    Halted,
    Interrupted,
}

impl TrialRunner {
    /// Returns the options of all runs that are not of a setting.
    pub(super) fn common(&self) -> Vec<String> {
        self.options.iter().chain(&self.cores).cloned().collect()
    }

    /// Returns the command line of a run.
    pub(super) fn words(&self, setting: &Setting) -> Vec<OsString> {
        let mut all: Vec<OsString> =
            ["run", "--no-tuning", "--quiet", "--with-parent", "--survey", "none"].map(OsString::from).into();
        all.extend(self.options.iter().map(OsString::from));
        if let Some(cores) = self.cores.as_ref().filter(|_| setting.get(Knob::Cores).is_none()) {
            all.push(cores.into());
        }
        all.extend(words(setting).into_iter().map(OsString::from));
        all.push("--".into());
        all.extend(self.command.iter().cloned());
        all
    }

    /// Runs the program once; `None` if the tuning was interrupted.
    ///
    /// # Errors
    /// `trimtab` cannot be started, or memory for its output is missing.
    pub(super) fn run(
        &self,
        setting: &Setting,
        limit: Option<Span>,
        reference: Option<&str>,
        interrupt: &Interrupt,
    ) -> Result<Option<Tried>> {
        let out = if self.metric.is_some() || self.same || self.check.is_some() {
            Some(memory("output")?)
        } else {
            None
        };
        let err = memory("errors")?;
        let mut command = Command::new(&self.trimtab);
        command.args(self.words(setting)).stdin(Stdio::null()).process_group(0);
        command.stderr(err.try_clone()?);
        command.stdout(match &out {
            Some(out) => Stdio::from(out.try_clone()?),
            None => Stdio::null(),
        });
        let shortest = [limit, self.timeout].into_iter().flatten().min();
        let begin = Instant::now();
        let child = command.spawn().context("cannot start trimtab itself")?;
        let ended = self.attend(child, begin, shortest.map(Duration::from), interrupt);
        let took = Span::from(begin.elapsed());
        let failed = |why: String| Ok(Some(Tried { ran: Ran::Failed { why, took }, output: None }));
        let said = || quoted(&tail(&err));
        match ended? {
            ProcessEnd::Interrupted => return Ok(None),
            ProcessEnd::Late if self.timeout == shortest => {
                return failed(format!("it took longer than --timeout, {}", shortest.unwrap_or_default()));
            }
            ProcessEnd::Late => return Ok(Some(Tried { ran: Ran::Slow { took }, output: None })),
            ProcessEnd::Halted => {
                return failed(
                    "it was stopped, probably because it needs a terminal: it gets none here".to_owned(),
                );
            }
            // The terminal's Ctrl-C does not reach the program, so the signal is its own.
            ProcessEnd::By(status) if !status.success() => {
                let what = match (status.code().and_then(|code| u8::try_from(code).ok()), status.signal()) {
                    (Some(exit::RUN_FAILED), _) => "trimtab run cannot start it in this setting".to_owned(),
                    (Some(exit::NO_CORES), _) => {
                        "not enough cores were free, or it ended with status 124".to_owned()
                    }
                    (Some(code), _) => format!("it ended with status {code}"),
                    (None, Some(signal)) => format!("it was killed by signal {signal}"),
                    (None, None) => status.to_string(),
                };
                return failed(format!("{what}; {}", said()));
            }
            ProcessEnd::By(_) => {}
        }
        let printed = out.as_ref().map(read).transpose()?.unwrap_or_default();
        let mut value = took.seconds();
        if let Some(metric) = &self.metric {
            // Standard error is searched if standard output has no match.
            let found = number(metric, &printed).or_else(|| number(metric, &read(&err).ok()?));
            match found {
                Some(Ok(number)) => value = number,
                Some(Err(text)) => {
                    return failed(format!("the metric is {text:?}, which is not a number above 0"));
                }
                None => return failed("nothing in its output matches the metric's expression".to_owned()),
            }
        }
        let output = self.same.then(|| self.mark(&printed));
        if let (Some(reference), Some(output)) = (reference, &output)
            && reference != output
        {
            return failed("its output differs from that of the first run (--verify)".to_owned());
        }
        if let Some(check) = &self.check
            && let Some(why) = wrong(check, &printed)?
        {
            return failed(why);
        }
        Ok(Some(Tried { ran: Ran::Well { value, took }, output }))
    }

    /// Waits for its end, or ends it.
    fn attend(
        &self,
        mut child: Child,
        begin: Instant,
        limit: Option<Duration>,
        interrupt: &Interrupt,
    ) -> Result<ProcessEnd> {
        let group = Pid::from_child(&child);
        let handle = pidfd_open(group, PidfdFlags::empty());
        let mut why = None;
        let mut asked: Option<Instant> = None;
        loop {
            let left = limit.map_or(STOP_POLL_INTERVAL, |limit| {
                limit.saturating_sub(begin.elapsed()).min(STOP_POLL_INTERVAL)
            });
            let over = match &handle {
                Ok(handle) => waits(handle, left),
                // This container has no process descriptors.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(1));
                    // The process is collected here, so its group cannot be identified any more and
                    // is left alone.
                    child.try_wait()?.is_some()
                }
            };
            if over {
                break;
            }
            if why.is_none() {
                let state = stat(&self.proc, Number(child.id())).map(|stat| stat.state).ok();
                if interrupt.came().is_some() {
                    why = Some(ProcessEnd::Interrupted);
                } else if limit.is_some_and(|limit| begin.elapsed() >= limit) {
                    why = Some(ProcessEnd::Late);
                } else if state == Some(State::Stopped) {
                    why = Some(ProcessEnd::Halted);
                }
                if why.is_some() {
                    asked = Some(Instant::now());
                    let _ = kill_process_group(group, Signal::TERM);
                    let _ = kill_process_group(group, Signal::CONT);
                }
            } else if asked.is_some_and(|asked| asked.elapsed() > KILL_DELAY) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        // The leader of the group is not collected yet, so its number cannot belong to another
        // process. Its remaining processes are ended now.
        if handle.is_ok() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = child.wait()?;
        // A signal from outside may have been meant for both processes.
        if why.is_none() && status.signal().is_some() && interrupt.comes_within(STOP_POLL_INTERVAL) {
            why = Some(ProcessEnd::Interrupted);
        }
        Ok(why.unwrap_or(ProcessEnd::By(status)))
    }

    /// Returns a hash of an output without the lines that hold the metric.
    fn mark(&self, printed: &[u8]) -> String {
        let lines = printed.split(|byte| *byte == b'\n');
        let kept: Vec<&[u8]> =
            lines.filter(|line| self.metric.as_ref().is_none_or(|metric| !metric.is_match(line))).collect();
        fnv1a_hex(&kept.join(&b'\n'))
    }
}

/// Returns whether a process ends within a time.
fn waits(handle: &impl std::os::fd::AsFd, time: Duration) -> bool {
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut handles = [PollFd::new(handle, PollFlags::IN)];
    matches!(poll(&mut handles, Some(&time)), Ok(1..))
}

/// Returns a file in memory.
fn memory(name: &str) -> Result<File> {
    let descriptor = memfd_create(name, MemfdFlags::CLOEXEC).context("no memory for the program's output")?;
    Ok(File::from(descriptor))
}

/// Returns the end of an output.
fn read(mut file: &File) -> Result<Vec<u8>> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(OUTPUT_READ_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn tail(file: &File) -> String {
    let text = read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let letters: Vec<char> = text.trim().chars().collect();
    letters[letters.len().saturating_sub(OUTPUT_SHOWN_BYTES_MAX)..].iter().collect()
}

/// Returns the last number that the expression finds, or the text that is not a number.
fn number(metric: &Regex, printed: &[u8]) -> Option<Result<f64, String>> {
    let found = metric.captures_iter(printed).last()?;
    let text = found.get(1).or_else(|| found.get(0))?.as_bytes();
    let text = String::from_utf8_lossy(text).trim().to_owned();
    Some(match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(text),
    })
}

/// Returns why the user's check rejects an output.
fn wrong(check: &str, printed: &[u8]) -> Result<Option<String>> {
    let mut command = Command::new("/bin/sh");
    let mut child = command
        .args(["-c", check])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the shell for --verify-command")?;
    if let Some(mut input) = child.stdin.take() {
        // The check need not read everything.
        let _ = input.write_all(printed);
    }
    let status = child.wait()?;
    Ok((!status.success()).then(|| format!("--verify-command rejects its output ({status})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_counts() {
        let metric = Regex::new("rate: ([0-9.e+-]+)").unwrap();
        assert_eq!(number(&metric, b"rate: 1\nrate: 2.5\n"), Some(Ok(2.5)));
        assert_eq!(number(&metric, b"nothing"), None);
        assert_eq!(number(&metric, b"rate: 0"), Some(Err("0".to_owned())));
        assert_eq!(number(&Regex::new("[0-9]+").unwrap(), b"a 7 b"), Some(Ok(7.0)));
        assert!(matches!(number(&metric, b"rate: -"), Some(Err(_))));
    }
}

//! One run of the program in a setting: started by `trimtab run`, timed, ended in time, checked.
//!
//! The program gets no input and no terminal, and is the head of a process group of its own, so that all of it is ended together: when it takes too long,
//! on Ctrl-C, and what it leaves running behind itself. What it prints goes into memory, or nowhere where nobody asks for it.

use crate::commands::interrupt::Interrupt;
use crate::commands::progress::quoted;
use crate::exit;
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
use trimtab_launch::options::words;
use trimtab_linux::process::{Pid as Number, State, stat};

/// So much of what a program prints is looked at, from its end.
const READ_MAX: u64 = 16 << 20;
/// So much of what a failing program said is shown.
const SAID_MAX: usize = 300;
/// It is looked so often whether somebody wants the end.
const GLANCE: Duration = Duration::from_millis(50);
/// A program that was asked to end has so long for it.
const GRACE: Duration = Duration::from_secs(2);

/// How the program is run.
#[derive(Debug)]
pub(super) struct Trial {
    pub trimtab: PathBuf,
    /// What `trimtab run` is asked for, beside the setting; cores apart.
    pub options: Vec<String>,
    /// The cores that are asked for where the setting names none.
    pub cores: Option<String>,
    pub command: Vec<OsString>,
    pub metric: Option<Regex>,
    pub same: bool,
    pub check: Option<String>,
    pub timeout: Option<Span>,
    pub proc: PathBuf,
}

/// What came of it.
pub(super) struct Tried {
    pub ran: Ran,
    /// A mark of what it printed, where that is to be the same.
    pub output: Option<String>,
}

/// How the process ended.
enum Ended {
    By(ExitStatus),
    /// It was ended, since it took as long as it may.
    Late,
    /// It waits for a terminal.
    Halted,
    Interrupted,
}

impl Trial {
    /// The command line of a run.
    pub(super) fn words(&self, setting: &Setting) -> Vec<OsString> {
        let mut all: Vec<OsString> = ["run", "--no-profile", "--quiet", "--with-parent", "--survey", "none"]
            .map(OsString::from)
            .into();
        all.extend(self.options.iter().map(OsString::from));
        if let Some(cores) = self.cores.as_ref().filter(|_| setting.get(Knob::Cores).is_none()) {
            all.push(cores.into());
        }
        all.extend(words(setting).into_iter().map(OsString::from));
        all.push("--".into());
        all.extend(self.command.iter().cloned());
        all
    }

    /// Runs it once; `None` when somebody stopped it.
    ///
    /// # Errors
    /// `trimtab` cannot be started, or memory for its output not be had.
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
            Ended::Interrupted => return Ok(None),
            Ended::Late if self.timeout == shortest => {
                return failed(format!("it took longer than --timeout, {}", shortest.unwrap_or_default()));
            }
            Ended::Late => return Ok(Some(Tried { ran: Ran::Slow { took }, output: None })),
            Ended::Halted => {
                return failed(
                    "it was stopped, as programs are that want a terminal: it gets none here".to_owned(),
                );
            }
            // A terminal's Ctrl-C does not reach it, so this is its own.
            Ended::By(status) if !status.success() => {
                let what = match (status.code().and_then(|code| u8::try_from(code).ok()), status.signal()) {
                    (Some(exit::RUN_FAILED), _) => "trimtab run cannot start it so".to_owned(),
                    (Some(exit::NO_CORES), _) => {
                        "not enough cores were free (or it ended with status 124)".to_owned()
                    }
                    (Some(code), _) => format!("it ended with status {code}"),
                    (None, Some(signal)) => format!("it was killed by signal {signal}"),
                    (None, None) => status.to_string(),
                };
                return failed(format!("{what}; {}", said()));
            }
            Ended::By(_) => {}
        }
        let printed = out.as_ref().map(read).transpose()?.unwrap_or_default();
        let mut value = took.seconds();
        if let Some(metric) = &self.metric {
            // What is printed on standard error counts where standard output has nothing.
            let found = number(metric, &printed).or_else(|| number(metric, &read(&err).ok()?));
            match found {
                Some(Ok(number)) => value = number,
                Some(Err(text)) => {
                    return failed(format!("the metric is {text:?}, which is no number above 0"));
                }
                None => return failed("it printed nothing that the metric's expression finds".to_owned()),
            }
        }
        let output = self.same.then(|| self.mark(&printed));
        if let (Some(reference), Some(output)) = (reference, &output)
            && reference != output
        {
            return failed("its output is not that of the first run (--verify)".to_owned());
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
    ) -> Result<Ended> {
        let group = Pid::from_child(&child);
        let handle = pidfd_open(group, PidfdFlags::empty());
        let mut why = None;
        let mut asked: Option<Instant> = None;
        loop {
            let left = limit.map_or(GLANCE, |limit| limit.saturating_sub(begin.elapsed()).min(GLANCE));
            let over = match &handle {
                Ok(handle) => waits(handle, left),
                // No such descriptors in this container.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(1));
                    // Collected here at once: its group cannot be told apart then, and is left.
                    child.try_wait()?.is_some()
                }
            };
            if over {
                break;
            }
            if why.is_none() {
                let state = stat(&self.proc, Number(child.id())).map(|stat| stat.state).ok();
                if interrupt.came().is_some() {
                    why = Some(Ended::Interrupted);
                } else if limit.is_some_and(|limit| begin.elapsed() >= limit) {
                    why = Some(Ended::Late);
                } else if state == Some(State::Stopped) {
                    why = Some(Ended::Halted);
                }
                if why.is_some() {
                    asked = Some(Instant::now());
                    let _ = kill_process_group(group, Signal::TERM);
                    let _ = kill_process_group(group, Signal::CONT);
                }
            } else if asked.is_some_and(|asked| asked.elapsed() > GRACE) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        // The head of the group is not collected yet, so that its number is no other's: what it left running goes now.
        if handle.is_ok() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = child.wait()?;
        // A signal from elsewhere may have been meant for both.
        if why.is_none() && status.signal().is_some() && interrupt.comes_within(GLANCE) {
            why = Some(Ended::Interrupted);
        }
        Ok(why.unwrap_or(Ended::By(status)))
    }

    /// A mark of an output, without the lines on which the metric is.
    fn mark(&self, printed: &[u8]) -> String {
        let lines = printed.split(|byte| *byte == b'\n');
        let kept: Vec<&[u8]> =
            lines.filter(|line| self.metric.as_ref().is_none_or(|metric| !metric.is_match(line))).collect();
        fnv1a_hex(&kept.join(&b'\n'))
    }
}

/// Whether a process ends within a time.
fn waits(handle: &impl std::os::fd::AsFd, time: Duration) -> bool {
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut handles = [PollFd::new(handle, PollFlags::IN)];
    matches!(poll(&mut handles, Some(&time)), Ok(1..))
}

/// A file that is nowhere.
fn memory(name: &str) -> Result<File> {
    let descriptor = memfd_create(name, MemfdFlags::CLOEXEC)
        .context("no memory can be had for what the program prints")?;
    Ok(File::from(descriptor))
}

/// The end of what was printed.
fn read(mut file: &File) -> Result<Vec<u8>> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(READ_MAX)))?;
    let mut bytes = Vec::new();
    file.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn tail(file: &File) -> String {
    let text = read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let letters: Vec<char> = text.trim().chars().collect();
    letters[letters.len().saturating_sub(SAID_MAX)..].iter().collect()
}

/// The last number that the expression finds, or what is none.
fn number(metric: &Regex, printed: &[u8]) -> Option<Result<f64, String>> {
    let found = metric.captures_iter(printed).last()?;
    let text = found.get(1).or_else(|| found.get(0))?.as_bytes();
    let text = String::from_utf8_lossy(text).trim().to_owned();
    Some(match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(text),
    })
}

/// Why the user's check says that an output is wrong.
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
        // It need not read everything.
        let _ = input.write_all(printed);
    }
    let status = child.wait()?;
    Ok((!status.success()).then(|| format!("--verify-command says that its output is wrong ({status})")))
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

//! Trials of two programs: both started in one arrangement, timed together, and ended with all
//! their processes.

use super::super::command_line::{CommandLine, quoted};
use super::super::tree;
use super::super::trial::{Stop, TrialProcess, Trials, attend, ended_words, input, tail};
use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use trimtab_core::advise::StartChange;
use trimtab_core::advise::pair::{Arrangement, Ends};
use trimtab_core::advise::race::Outcome;
use trimtab_core::time::Span;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::progress;

/// Trials of two programs.
#[derive(Debug)]
pub(super) struct PairTrials {
    trials: Trials,
    programs: [Vec<OsString>; 2],
}

/// One trial that was not stopped by the user.
#[derive(Debug)]
pub(super) struct PairTrial {
    /// Time until both programs have ended.
    pub(super) outcome: Outcome,
    /// The end of each, if both ended by themselves.
    pub(super) ends: Option<Ends>,
}

impl PairTrial {
    /// Returns the time of the trial.
    pub(super) fn took(&self) -> Span {
        match self.outcome {
            Outcome::Ended { took } | Outcome::Rejected { took, .. } => took,
            Outcome::Stopped { after } => after,
        }
    }
}

/// Programs of a trial, with what they wrote to standard error.
struct Started {
    running: Vec<TrialProcess>,
    messages: Vec<File>,
}

impl PairTrials {
    /// Prepares the trials.
    ///
    /// # Errors
    /// As [`Trials::begin`].
    pub(super) fn begin(trimtab: PathBuf, proc: PathBuf, programs: [Vec<OsString>; 2]) -> Result<Self> {
        Ok(Self { trials: Trials::begin(trimtab, proc, Vec::new())?, programs })
    }

    /// Returns the words of both programs.
    pub(super) fn words(&self) -> [Vec<String>; 2] {
        [0, 1].map(|place| {
            self.programs[place].iter().map(|word| word.to_string_lossy().into_owned()).collect()
        })
    }

    /// Formats the command of an arrangement for a shell.
    pub(super) fn line(&self, arrangement: Arrangement) -> String {
        let words = self.words();
        let [one, other] = [0, 1].map(|place| line(arrangement, place).line(&words[place]));
        match arrangement {
            Arrangement::InTurn => format!("{one}; {other}"),
            _ => format!("{one} & {other} & wait"),
        }
    }

    /// Runs both programs once; `None` if the user stopped it.
    ///
    /// # Errors
    /// No process or no memory is available.
    pub(super) fn run(
        &self,
        arrangement: Arrangement,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<PairTrial>> {
        let begin = Instant::now();
        let mut started = Started { running: Vec::new(), messages: Vec::new() };
        let attended = self.attended(arrangement, begin, limit, interrupt, &mut started);
        tree::end_all(&self.trials.proc, &self.trials.spared);
        let took = Span::from(begin.elapsed());
        Ok(match attended? {
            Attended::Stopped(Stop::Interrupted) => None,
            Attended::Stopped(Stop::Late) => {
                Some(PairTrial { outcome: Outcome::Stopped { after: took }, ends: None })
            }
            Attended::Unstartable(why) => {
                Some(PairTrial { outcome: Outcome::Rejected { why, took }, ends: None })
            }
            Attended::Ended => Some(self.judged(&started, took)),
        })
    }

    /// Starts the programs, and waits for their ends.
    fn attended(
        &self,
        arrangement: Arrangement,
        begin: Instant,
        limit: Duration,
        interrupt: &Interrupt,
        started: &mut Started,
    ) -> Result<Attended> {
        for place in [0, 1] {
            if let Err(why) = self.start(arrangement, place, started)? {
                for one in &mut started.running {
                    one.end()?;
                }
                return Ok(Attended::Unstartable(why));
            }
            if arrangement == Arrangement::InTurn
                && let Some(stop) = attend(&mut started.running, begin, limit, interrupt)?
            {
                return Ok(Attended::Stopped(stop));
            }
        }
        let stop = attend(&mut started.running, begin, limit, interrupt)?;
        Ok(stop.map_or(Attended::Ended, Attended::Stopped))
    }

    /// Starts one program. The inner error says why the user's program cannot be started.
    fn start(
        &self,
        arrangement: Arrangement,
        place: usize,
        started: &mut Started,
    ) -> Result<Result<(), String>> {
        let messages = memfd_create("messages", MemfdFlags::CLOEXEC).context("no memory for messages")?;
        let messages = File::from(messages);
        let mut command = self.trials.start_of(&line(arrangement, place), &self.programs[place]);
        command.stdin(input()).stdout(Stdio::null()).stderr(messages.try_clone()?).process_group(0);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("{}: it cannot be started: {error}", self.name(place)))),
        };
        started.running.push(TrialProcess::of(child));
        started.messages.push(messages);
        Ok(Ok(()))
    }

    /// Judges programs that have ended.
    fn judged(&self, started: &Started, took: Span) -> PairTrial {
        let mut ends = Vec::new();
        for (place, (one, messages)) in started.running.iter().zip(&started.messages).enumerate() {
            match one.ended {
                Some((status, end)) if status.success() => ends.push(end.as_secs_f64()),
                Some((status, _)) => {
                    let said = progress::quoted(&tail(messages));
                    let why = format!("{}: {}; {said}", self.name(place), ended_words(status));
                    return PairTrial { outcome: Outcome::Rejected { why, took }, ends: None };
                }
                None => {}
            }
        }
        match ends[..] {
            [one, other] => {
                let took = Span::from(Duration::from_secs_f64(one.max(other)));
                PairTrial { outcome: Outcome::Ended { took }, ends: Some([one, other]) }
            }
            _ => PairTrial { outcome: Outcome::Stopped { after: took }, ends: None },
        }
    }

    fn name(&self, place: usize) -> String {
        quoted(&self.words()[place])
    }
}

/// How the waiting for both programs ended.
enum Attended {
    Ended,
    Stopped(Stop),
    Unstartable(String),
}

/// Returns how an arrangement starts the program of this place.
fn line(arrangement: Arrangement, place: usize) -> CommandLine {
    let options = match arrangement {
        Arrangement::AtOnce => return CommandLine::plain(),
        Arrangement::InTurn => Vec::new(),
        Arrangement::Split { first, second } => vec!["-c".to_owned(), [first, second][place].to_string()],
        Arrangement::Shared => vec!["--share".to_owned()],
    };
    CommandLine::with(options, &StartChange::default())
}

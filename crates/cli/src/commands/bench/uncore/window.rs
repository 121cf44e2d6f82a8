//! One run: the program, its competitor, and counters that are on for exactly its windows.
//!
//! The program says which threads it has, and sleeps until a line opens a window; so counters can be opened and switched on
//! before, and switched off and read after, while all its threads still live. Each group of counters has a window of its own,
//! since groups that run together would have to share the hardware.

use super::cases::Setup;
use crate::commands::interrupt::Interrupt;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use trimtab_core::contrast::{Reading, together};
use trimtab_core::counts::Counts;
use trimtab_linux::perf::{Group, Recipe};
use trimtab_linux::process::Tid;

/// A terminal's Ctrl-C reaches program and trimtab together; this much later trimtab has certainly noticed.
const MOMENT: Duration = Duration::from_millis(200);
/// So long the kernel, and the caches, have to get used to a competitor.
const SETTLE: Duration = Duration::from_millis(20);

/// What a run was.
#[derive(Debug)]
pub(super) enum Ran {
    Well(Measured),
    /// What went wrong, in one line, and what the program said of it.
    Badly {
        error: String,
        stderr: String,
    },
    /// A signal to stop came.
    Stopped,
}

/// What came of its windows.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) reading: Reading,
    /// The program's reports, one for each window.
    pub(super) reports: Vec<Value>,
    /// Why threads were not counted, if they were not.
    pub(super) uncounted: Option<Errno>,
}

/// The program, spoken with through its standard input and output. Gone when it is dropped.
#[derive(Debug)]
struct Talk {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Talk {
    fn start(words: &[OsString]) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", words[0].display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("cannot speak with {}", words[0].display());
        };
        Ok(Self { child, to: Some(to), from: BufReader::new(from) })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line).context("cannot read what it says")?;
        if !line.ends_with('\n') {
            bail!("it ended too early");
        }
        Ok(line)
    }

    /// Its threads, as soon as all are ready.
    fn threads(&mut self) -> Result<Vec<Tid>> {
        let line = self.line()?;
        let mut words = line.split_whitespace();
        let tids: Option<Vec<Tid>> = words
            .next()
            .filter(|word| *word == "threads")
            .and_then(|_| words.map(|word| word.parse().ok().map(Tid)).collect());
        match tids {
            Some(tids) if !tids.is_empty() => Ok(tids),
            _ => bail!("it does not say which threads it has: {:?}", line.trim_end()),
        }
    }

    /// Opens a window, or lets it end.
    fn open(&mut self) -> Result<()> {
        let to = self.to.as_mut().context("it is not listening")?;
        to.write_all(b"\n").and_then(|()| to.flush()).context("it does not listen")
    }

    /// The report of a window: the line about all threads.
    fn report(&mut self) -> Result<Value> {
        loop {
            let line = self.line()?;
            let report: Value = serde_json::from_str(&line)
                .with_context(|| format!("its report is not JSON: {:?}", line.trim_end()))?;
            match &report["verified"] {
                Value::Null => {}
                Value::Bool(true) => return Ok(report),
                _ => bail!("its result is wrong"),
            }
        }
    }

    /// Lets it end.
    fn end(mut self) -> Result<()> {
        drop(self.to.take());
        let status = self.child.wait().context("cannot wait for it")?;
        if !status.success() {
            bail!("{status}");
        }
        Ok(())
    }

    /// Stops it; what it said on standard error.
    fn stop(&mut self) -> String {
        drop(self.to.take());
        let _ = self.child.kill();
        let mut said = String::new();
        if let Some(mut from) = self.child.stderr.take() {
            let _ = from.read_to_string(&mut said);
        }
        let _ = self.child.wait();
        said
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do about it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs one way of a case.
pub(super) fn run(
    setup: &Setup,
    folder: &Path,
    seconds: f64,
    groups: &[Recipe],
    interrupt: &Interrupt,
) -> Ran {
    let windows = groups.len().max(1);
    let mut talk = match Talk::start(&setup.command(folder, seconds, windows)) {
        Ok(talk) => talk,
        Err(error) => return Ran::Badly { error: format!("{error:#}"), stderr: String::new() },
    };
    interrupt.runs(&talk.child);
    let measured = rival(setup, folder).and_then(|rival| {
        let measured = windows_of(&mut talk, windows, groups);
        drop(rival);
        measured
    });
    let ended = match measured {
        Ok(measured) => talk.end().map(|()| measured).map_err(|error| (error, String::new())),
        Err(error) => Err((error, talk.stop())),
    };
    interrupt.ended();
    match ended {
        Ok(measured) => Ran::Well(measured),
        Err(_) if interrupt.came().is_some() || interrupt.comes_within(MOMENT) => Ran::Stopped,
        Err((error, stderr)) => Ran::Badly { error: format!("{error:#}"), stderr },
    }
}

/// Starts the competitor, if there is one, and waits until it walks.
fn rival(setup: &Setup, folder: &Path) -> Result<Option<Talk>> {
    let Some(rival) = &setup.rival else { return Ok(None) };
    let mut talk = Talk::start(&rival.command(folder))?;
    talk.threads().context("the competitor")?;
    std::thread::sleep(SETTLE);
    Ok(Some(talk))
}

fn windows_of(talk: &mut Talk, windows: usize, groups: &[Recipe]) -> Result<Measured> {
    let threads = talk.threads()?;
    let mut counts = Vec::new();
    let mut reports = Vec::new();
    let mut uncounted = None;
    for window in 0..windows {
        let group = groups.get(window);
        let counters = group.map(|recipe| Counters::open(recipe, &threads));
        let counters = match counters.transpose() {
            Ok(counters) => counters,
            Err(errno) => {
                uncounted = Some(errno);
                None
            }
        };
        talk.open()?;
        reports.push(talk.report()?);
        match counters.map(Counters::read).transpose() {
            Ok(counted) => counts.extend(counted.flatten()),
            Err(errno) => uncounted = Some(errno),
        }
    }
    // Time and the indices that matter most are of the same window, the first; the others are for what did not fit into it.
    let first = reports.first().context("it has no window")?;
    let accesses = first["steps"].as_u64().zip(first["adds"].as_u64()).map(|(steps, adds)| steps + adds);
    let reading = accesses
        .zip(first["cpu_seconds"].as_f64())
        .and_then(|(accesses, seconds)| Reading::of(accesses, seconds, counts))
        .context("its report lacks steps, adds or cpu_seconds")?;
    Ok(Measured { reading, reports, uncounted })
}

/// One group of counters for each thread, switched on.
struct Counters<'a> {
    recipe: &'a Recipe,
    groups: Vec<Group>,
}

impl<'a> Counters<'a> {
    fn open(recipe: &'a Recipe, threads: &[Tid]) -> Result<Self, Errno> {
        let groups: Result<Vec<Group>, Errno> =
            threads.iter().map(|tid| Group::open(recipe, Some(*tid))).collect();
        let groups = groups?;
        groups.iter().try_for_each(Group::on)?;
        Ok(Self { recipe, groups })
    }

    /// Switches them off; what all threads did together, unless one of them was never counted.
    fn read(self) -> Result<Option<Counts>, Errno> {
        self.groups.iter().try_for_each(Group::off)?;
        let read: Result<Vec<Option<Counts>>, Errno> =
            self.groups.iter().map(|group| group.read(self.recipe)).collect();
        Ok(together(read?))
    }
}

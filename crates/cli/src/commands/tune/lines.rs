//! The record of a tuning, `trimtab.tune/1`: what was to be tried, each run, and what came of it, a line of JSON each.
//!
//! The same lines are printed by `--json` and written, run by run, into a file of the user's data folder, from which `--resume` goes on. A file of a tuning
//! that came to its end is removed.

use crate::kept::{Conditions, Kept};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_core::tuning::{Choice, Found, Ran, Stage};

/// The version of these lines.
pub(super) const SCHEMA: &str = "trimtab.tune/1";

/// A knob that is not tried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LeftOut {
    pub knob: Knob,
    pub why: String,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub schema: String,
    pub command: Vec<String>,
    pub conditions: Conditions,
    /// The setting it begins with.
    pub from: Setting,
    /// `time`, or a regular expression.
    pub metric: String,
    pub higher: bool,
    pub gain_min: f64,
    pub seed: u64,
    /// How outputs are checked: `no`, `same`, or the command.
    pub verify: String,
    pub timeout: Option<Span>,
    pub choices: Vec<Choice>,
    pub left_out: Vec<LeftOut>,
    /// Settings in the full grid.
    pub grid: f64,
}

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub number: usize,
    pub stage: Stage,
    pub setting: Setting,
    #[serde(flatten)]
    pub ran: Ran,
    /// A mark of its output, where outputs are to be the same.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<String>,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Ended {
    #[serde(flatten)]
    pub found: Found,
    /// The name of the profile that was kept.
    pub kept: Option<String>,
    pub profile: Option<Kept>,
}

/// Any line.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    Start(&'a Start),
    Run(&'a Run),
    End(&'a Ended),
}

/// A line that is read again.
#[derive(Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum Old {
    Start(Box<Start>),
    Run(Box<Run>),
}

impl Line<'_> {
    pub(super) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// The file in which a tuning is kept while it goes on.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Begins one, in the place of what was there.
    pub(super) fn begin(path: &Path, start: &Start, runs: &[Run]) -> Result<Self> {
        let cannot = || format!("cannot write {}, where runs are kept while they are made", path.display());
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).with_context(cannot)?;
        let mut options = std::fs::OpenOptions::new();
        let file =
            options.write(true).create(true).truncate(true).mode(0o600).open(path).with_context(cannot)?;
        let mut journal = Self { path: path.to_owned(), file };
        journal.add(&Line::Start(start))?;
        for run in runs {
            journal.add(&Line::Run(run))?;
        }
        Ok(journal)
    }

    /// One more line, all at once.
    pub(super) fn add(&mut self, line: &Line<'_>) -> Result<()> {
        let text = line.text()?;
        self.file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// It is over.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The runs of an earlier tuning of the same kind. A last line that is cut off, as a sudden end leaves it, counts as none.
pub(super) fn earlier(path: &Path, start: &Start) -> Result<Vec<Run>> {
    let anew = "begin anew without --resume";
    let file = match File::open(path) {
        Ok(file) => file,
        Err(_) => bail!("there is no tuning of this program and machine to go on with: {anew}"),
    };
    let mut runs = Vec::new();
    for (at, line) in BufReader::new(file).lines().enumerate() {
        let parsed = line.ok().and_then(|line| serde_json::from_str::<Old>(&line).ok());
        match (at, parsed) {
            (0, Some(Old::Start(old))) if *old == *start => {}
            (0, Some(Old::Start(_))) => {
                bail!("what was stopped was another tuning (other options, values or program file): {anew}")
            }
            (_, Some(Old::Run(run))) if at > 0 && run.number == runs.len() => runs.push(*run),
            (0, _) => bail!("{} is damaged: {anew}", path.display()),
            _ => break,
        }
    }
    Ok(runs)
}

//! Record of a tuning, `trimtab.tune/1`: the plan, each run, and the result, one line of JSON each.
//!
//! `--json` prints the same lines. They are also appended, run by run, to a file of the user's data
//! folder, from which `--resume` continues. The file of a completed tuning is removed.

use crate::advise::compare::Tested;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trimtab_cli::tuning_store::{Conditions, Kept};
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_core::tuning::{Choice, Found, Ran, Stage};

/// Schema of these lines.
pub(crate) const SCHEMA: &str = "trimtab.tune/1";

/// A knob that is not tried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub knob: Knob,
    pub why: String,
}

/// The first line: the plan of the tuning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct TuningStart {
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
pub(crate) struct TuningRun {
    pub number: usize,
    pub stage: Stage,
    pub setting: Setting,
    #[serde(flatten)]
    pub ran: Ran,
    /// Hash of its output, if outputs must be equal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<String>,
}

/// The last line: the result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Ended {
    #[serde(flatten)]
    pub found: Found,
    /// Name of the tuning that was stored.
    pub kept: Option<String>,
    pub profile: Option<Kept>,
    /// Command with other values of the user's variables that is faster for certain.
    pub own: Option<String>,
}

/// Any line.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    Start(&'a TuningStart),
    /// The user's own settings, compared before the search.
    Own(&'a Tested),
    Run(&'a TuningRun),
    End(&'a Ended),
}

/// A line that is read back.
#[derive(Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum Old {
    Start(Box<TuningStart>),
    Run(Box<TuningRun>),
}

impl Line<'_> {
    pub(super) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// The file that holds a tuning in progress.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Starts a file, replacing an earlier one.
    pub(super) fn begin(path: &Path, start: &TuningStart, runs: &[TuningRun]) -> Result<Self> {
        let cannot = || format!("cannot write {}, the record of the tuning in progress", path.display());
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

    /// Appends a line in one write.
    pub(super) fn add(&mut self, line: &Line<'_>) -> Result<()> {
        let text = line.text()?;
        self.file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Removes the file.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A tuning that is read back to be shown.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Record {
    pub start: TuningStart,
    pub runs: Vec<TuningRun>,
    /// The result, if the tuning was completed.
    pub profile: Option<Kept>,
    pub is_over: bool,
}

/// Reads the lines of `--json`, or a file of runs. An incomplete last line is ignored.
///
/// # Errors
/// The text is not a tuning.
pub(crate) fn read(text: &str) -> Result<Record> {
    let mut record: Option<Record> = None;
    for (at, line) in text.split_inclusive('\n').enumerate().filter(|(_, line)| line.ends_with('\n')) {
        let no_line = || format!("line {} is not of trimtab tune", at + 1);
        let value: serde_json::Value = serde_json::from_str(line).with_context(no_line)?;
        match (value["record"].as_str(), &mut record) {
            (Some("start"), None) if value["schema"] == SCHEMA => {
                let start = serde_json::from_value(value).with_context(no_line)?;
                record = Some(Record { start, runs: Vec::new(), profile: None, is_over: false });
            }
            (Some("start"), None) => bail!("its schema is not {SCHEMA}"),
            (Some("run"), Some(record)) => {
                record.runs.push(serde_json::from_value(value).with_context(no_line)?);
            }
            (Some("own"), Some(_)) => {}
            (Some("end"), Some(record)) => {
                record.is_over = true;
                record.profile = serde_json::from_value(value["profile"].clone()).with_context(no_line)?;
            }
            _ => bail!(no_line()),
        }
    }
    record.context("it does not begin with a start record")
}

/// Returns the runs of an earlier tuning of the same kind. An incomplete last line, as after a
/// crash, is ignored.
pub(super) fn earlier(path: &Path, start: &TuningStart) -> Result<Vec<TuningRun>> {
    let anew = "start again without --resume";
    let file = match File::open(path) {
        Ok(file) => file,
        Err(_) => bail!("there is no tuning of this program and machine to continue: {anew}"),
    };
    let mut runs = Vec::new();
    for (at, line) in BufReader::new(file).lines().enumerate() {
        let parsed = line.ok().and_then(|line| serde_json::from_str::<Old>(&line).ok());
        match (at, parsed) {
            (0, Some(Old::Start(old))) if *old == *start => {}
            (0, Some(Old::Start(_))) => {
                bail!("the stopped run is of another tuning (other options, values or program file): {anew}")
            }
            (_, Some(Old::Run(run))) if at > 0 && run.number == runs.len() => runs.push(*run),
            (0, _) => bail!("{} is damaged: {anew}", path.display()),
            _ => break,
        }
    }
    Ok(runs)
}

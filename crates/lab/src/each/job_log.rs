//! Log of the jobs that have ended, `trimtab.each/1`: a line of JSON for the command and one for
//! each job.
//!
//! A line is written at once when its job ends, so a log that a crash cut off lacks at most the
//! jobs that were running. `--resume` reads it.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Schema of the lines.
const SCHEMA: &str = "trimtab.each/1";

/// The first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct LogStart {
    schema: String,
    /// The words of the command, with placeholders.
    command: Vec<String>,
}

/// A job that has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct EndedJob {
    /// Number of the job, from 1.
    pub(super) job: usize,
    /// Its value; bytes that are no UTF-8 are replaced.
    pub(super) value: String,
    /// Its exit status; null if a signal ended it.
    pub(super) status: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
    /// Time from its start to its end, waiting for cores included.
    pub(super) seconds: f64,
    /// Time of its end, in seconds since 1970.
    pub(super) ended: u64,
}

impl EndedJob {
    /// Returns whether the job succeeded.
    pub(super) fn succeeded(&self) -> bool {
        self.status == Some(0)
    }
}

/// An open log.
#[derive(Debug)]
pub(super) struct JobLog {
    file: File,
}

impl JobLog {
    /// Begins a log; the file must not exist, or be empty.
    ///
    /// # Errors
    /// It has contents, or cannot be written.
    pub(super) fn begin(path: &Path, command: &[OsString]) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.with_context(|| format!("cannot write --log {}", path.display()))?;
        if file.metadata()?.len() > 0 {
            bail!("--log {} has contents: --resume goes on with it, or give another file", path.display());
        }
        let mut log = Self { file };
        log.line(&LogStart { schema: SCHEMA.to_owned(), command: texts(command) })?;
        Ok(log)
    }

    /// Opens a log to go on with it. Returns how often each value has succeeded.
    ///
    /// # Errors
    /// It belongs to another command or is no such log, or cannot be read or written.
    pub(super) fn resume(path: &Path, command: &[OsString]) -> Result<(Self, BTreeMap<String, usize>)> {
        if !path.exists() {
            return Ok((Self::begin(path, command)?, BTreeMap::new()));
        }
        let name = format!("--log {}", path.display());
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        if text.is_empty() {
            return Ok((Self::begin(path, command)?, BTreeMap::new()));
        }
        let done = succeeded(&text, command).with_context(|| name.clone())?;
        let file =
            OpenOptions::new().append(true).open(path).with_context(|| format!("cannot write {name}"))?;
        let mut log = Self { file };
        if !text.ends_with('\n') {
            // A crash cut off the last line.
            log.file.write_all(b"\n")?;
        }
        Ok((log, done))
    }

    /// Adds a job.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, job: &EndedJob) -> Result<()> {
        self.line(job)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(value)?);
        self.file.write_all(line.as_bytes()).context("cannot write the log of the jobs")
    }
}

/// Returns how often each value has succeeded according to a log of this command.
fn succeeded(text: &str, command: &[OsString]) -> Result<BTreeMap<String, usize>> {
    let mut lines = text.lines();
    let start: LogStart = serde_json::from_str(lines.next().unwrap_or_default())
        .context("its first line is none of a log of trimtab each")?;
    if start.schema != SCHEMA {
        bail!("its schema is {}; this version of trimtab reads {SCHEMA}", start.schema);
    }
    if start.command != texts(command) {
        bail!("it belongs to another command: {}", start.command.join(" "));
    }
    let mut done = BTreeMap::new();
    for line in lines {
        // A line that a crash cut off belongs to a job that runs again.
        if let Ok(job) = serde_json::from_str::<EndedJob>(line)
            && job.succeeded()
        {
            *done.entry(job.value).or_default() += 1;
        }
    }
    Ok(done)
}

/// Takes a value off those that have succeeded; returns whether it was among them. A value that is
/// no UTF-8 never is: its text in the log may belong to another one.
pub(super) fn take(done: &mut BTreeMap<String, usize>, value: &OsStr) -> bool {
    match value.to_str().and_then(|value| done.get_mut(value)) {
        Some(times) if *times > 0 => {
            *times -= 1;
            true
        }
        _ => false,
    }
}

fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(value: &str, status: Option<i32>) -> EndedJob {
        let signal = status.is_none().then_some(9);
        EndedJob { job: 1, value: value.to_owned(), status, signal, seconds: 0.5, ended: 7 }
    }

    #[test]
    fn a_log_goes_on_where_it_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let (path, command) = (folder.path().join("log"), [OsString::from("cmd")]);
        let mut log = JobLog::begin(&path, &command).unwrap();
        for (value, status) in [("a", Some(0)), ("a", Some(0)), ("b", Some(1)), ("c", None)] {
            log.add(&job(value, status)).unwrap();
        }
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + r#"{"job":5,"val"#).unwrap();
        let (mut log, mut done) = JobLog::resume(&path, &command).unwrap();
        log.add(&job("d", Some(0))).unwrap();
        let mut left: Vec<&str> = ["a", "a", "a", "b", "c", "e"].into();
        left.retain(|value| !take(&mut done, OsStr::new(value)));
        assert_eq!(left, ["a", "b", "c", "e"], "two of the three have succeeded");
        let (_, done) = JobLog::resume(&path, &command).unwrap();
        assert_eq!(done.get("d"), Some(&1), "the line after the cut is whole");
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, command) = (folder.path().join("log"), [OsString::from("cmd")]);
        for (text, words) in [
            ("something\n", "its first line"),
            (r#"{"schema":"trimtab.each/2","command":["cmd"]}"#, "trimtab.each/2"),
            (r#"{"schema":"trimtab.each/1","command":["other","{}"]}"#, "another command: other {}"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", JobLog::resume(&path, &command).unwrap_err());
            assert!(error.contains(words), "{error}");
            assert!(JobLog::begin(&path, &command).is_err(), "nothing is overwritten");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}

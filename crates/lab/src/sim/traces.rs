//! Traces of simulated runs, in the format of live ones.

use super::{RunPosition, is_stdout};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use trimtab_agent::recorder::Recorder;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::drive::Go;
use trimtab_core::trace::{Header, VERSION};
use trimtab_sim::outcome::Outcome;
use trimtab_sim::scenario::file::File;
use trimtab_sim::scenario::{self, Scenario};

/// Paths of the traces, by file and run.
pub(super) struct Traces {
    paths: Vec<Vec<PathBuf>>,
    /// Recorder of a single trace, opened before the first run.
    single: Mutex<Option<Recorder>>,
}

impl Traces {
    /// Opens a file for a single run, otherwise a folder, which is created.
    ///
    /// # Errors
    /// A path cannot be written, or two runs would be written to one file.
    pub(super) fn open(path: &Path, names: &[PathBuf], files: &[File]) -> Result<Self> {
        let runs: usize = files.iter().map(File::len).sum();
        if is_stdout(path) {
            if runs > 1 {
                bail!("--trace -: {runs} runs need a folder: standard output can take one trace only");
            }
            let single = Mutex::new(Some(Recorder::stdout()));
            return Ok(Self { paths: vec![vec![path.to_owned()]], single });
        }
        let folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if runs == 1 && !folder {
            let single = Mutex::new(Some(Recorder::open("--trace", path)?));
            return Ok(Self { paths: vec![vec![path.to_owned()]], single });
        }
        if path.exists() && !path.is_dir() {
            bail!("--trace {}: {runs} runs need a folder, but this is a file", path.display());
        }
        std::fs::create_dir_all(path)
            .with_context(|| format!("--trace {}: cannot create the folder", path.display()))?;
        let mut known = BTreeSet::new();
        let mut paths = Vec::new();
        for (name, file) in names.iter().zip(files) {
            let stem = name.file_stem().unwrap_or(name.as_os_str()).to_string_lossy().into_owned();
            if !known.insert(stem.clone()) {
                bail!(
                    "--trace: two scenarios are called {stem}, so their traces would be the same file: run them one by one"
                );
            }
            let digits = file.len().to_string().len();
            let path = |run: usize| match file.len() {
                1 => path.join(format!("{stem}.trace")),
                _ => path.join(format!("{stem}-{:0digits$}.trace", run + 1)),
            };
            paths.push((0..file.len()).map(path).collect());
        }
        Ok(Self { paths, single: Mutex::new(None) })
    }

    /// Runs a scenario and records it. A scenario without a policy is observed by `float`, which
    /// moves nothing.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub(super) fn run(&self, mut scenario: Scenario, cell: RunPosition) -> Result<Outcome> {
        let path = &self.paths[cell.file][cell.run];
        let opened = self.single.lock().ok().and_then(|mut single| single.take());
        let mut recorder = match opened {
            Some(recorder) => recorder,
            None => Recorder::open("--trace", path)?,
        };
        let (policy, settings) = scenario
            .policy
            .get_or_insert_with(|| (Kind::Float, Settings { seed: scenario.seed, ..Settings::default() }))
            .clone();
        let (machine, end) = (scenario.model.machine.clone(), scenario.end);
        let header = Header {
            version: VERSION,
            policy,
            settings,
            command: scenario.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
            began: None,
            usable: machine.cpus(),
            machine,
        };
        let mut written = recorder.begin(header);
        let outcome = scenario::run(&scenario, &mut |_| {}, &mut |step| {
            if written.is_ok() {
                written = recorder.step(step);
            }
            if written.is_ok() { Go::On } else { Go::Stop }
        });
        let over = outcome.complete && outcome.ended < end;
        let why = if over { "the programs have ended" } else { "the scenario's end" };
        written.and_then(|()| recorder.end(why, None)).map_err(|problem| anyhow!(problem))?;
        Ok(outcome)
    }
}

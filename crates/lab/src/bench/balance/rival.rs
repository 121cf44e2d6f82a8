//! Competitor of a scenario: a process beside the program, killed on drop.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Time for Linux to adapt to the competitor before the program starts: some rounds of its load
/// balancing.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// A running competitor.
#[derive(Debug)]
pub(super) struct RunningCompetitor(Child);

impl RunningCompetitor {
    /// Starts the competitor, and waits until it computes.
    ///
    /// # Errors
    /// The competitor cannot be started, or ended at once.
    pub(super) fn start(words: &[OsString]) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command.spawn().with_context(|| format!("cannot start {}", words[0].display()))?;
        let mut rival = Self(child);
        let mut line = String::new();
        if let Some(said) = rival.0.stdout.take() {
            BufReader::new(said).read_line(&mut line).context("cannot read the output of the competitor")?;
        }
        if line.trim_end() != "ready" {
            bail!("the competitor {} did not start", words[0].display());
        }
        std::thread::sleep(SETTLE_TIME);
        Ok(rival)
    }

    /// Process id of the competitor.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for RunningCompetitor {
    fn drop(&mut self) {
        // The competitor may have ended by itself; either way there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

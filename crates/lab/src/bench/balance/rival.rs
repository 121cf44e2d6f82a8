//! The competitor of a scenario: a process beside the program, gone when it is dropped.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// So long Linux has to get used to it before the program starts: some rounds of its own balancing.
const SETTLE: Duration = Duration::from_millis(100);

/// A running competitor.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    /// Starts it, and waits until it competes.
    ///
    /// # Errors
    /// It cannot be started, or ended at once.
    pub(super) fn start(words: &[OsString]) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command.spawn().with_context(|| format!("cannot start {}", words[0].display()))?;
        let mut rival = Self(child);
        let mut line = String::new();
        if let Some(said) = rival.0.stdout.take() {
            BufReader::new(said).read_line(&mut line).context("cannot hear the competitor")?;
        }
        if line.trim_end() != "ready" {
            bail!("the competitor {} did not begin", words[0].display());
        }
        std::thread::sleep(SETTLE);
        Ok(rival)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

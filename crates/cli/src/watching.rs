//! What `run` and `attach` do with each step of the loop: record it, count it, add it up, say what is found.

use crate::metrics::Figures;
use crate::recorder::Recorder;
use crate::say::{self, Volume};
use trimtab_core::audit::{Audit, Tally};
use trimtab_core::balance::{Policy, Settings, Wanted};
use trimtab_core::drive::{Go, Host, Step, drive};
use trimtab_core::observe::Observer;
use trimtab_core::set::CpuSet;
use trimtab_core::trace::Header;

/// Who is told.
#[derive(Debug)]
pub struct Watching {
    /// How speed is measured.
    settings: Settings,
    /// The trace, if one is wanted.
    recorder: Option<Recorder>,
    /// What is added up, if a report is wanted.
    pub audit: Option<Audit>,
    /// Figures for others, if they are wanted.
    figures: Option<Figures>,
    /// How much is said.
    volume: Volume,
    /// What was counted.
    tally: Tally,
}

impl Watching {
    /// Begins: the header is recorded.
    pub fn begin(
        header: Header,
        recorder: Option<Recorder>,
        figures: Option<Figures>,
        volume: Volume,
    ) -> Self {
        let settings = header.settings.clone();
        let mut watching = Self { settings, recorder, audit: None, figures, volume, tally: Tally::default() };
        watching.record(|recorder| recorder.begin(header));
        watching
    }

    /// Adds up for a report what is seen from now on.
    pub fn audited(mut self, wanted: bool) -> Self {
        self.audit = wanted.then(Audit::new);
        self
    }

    /// Runs the loop until the host says that it is over, or `each` says stop; then looks once more, if that is added up.
    ///
    /// # Errors
    /// The host's.
    pub fn watch<H: Host>(
        &mut self,
        host: &mut H,
        policy: &mut dyn Policy,
        usable: &CpuSet,
        each: &mut dyn FnMut(&Tally, Option<&Recorder>) -> Go,
    ) -> Result<(), H::Error> {
        let mut observer = Observer::new(usable.clone());
        drive(host, policy, &mut observer, &mut |step| {
            self.step(step);
            each(&self.tally, self.recorder.as_ref())
        })?;
        if let Some(audit) = &mut self.audit
            && let Ok(sample) = host.observe(&Wanted::all())
        {
            audit.take(&sample);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step<'_>) {
        if let Some(audit) = &mut self.audit {
            audit.take(step.sample);
        }
        if let Some(figures) = &mut self.figures {
            figures.take(step);
        }
        let found = self.tally.take(step, self.settings.metric);
        if found {
            for finding in &step.turn.findings {
                say::note(self.volume, &format!("  found: {finding}"));
            }
        }
        self.record(|recorder| recorder.step(step));
    }

    /// Why what was to be printed could not be.
    pub fn fault(&self) -> Option<&str> {
        self.recorder.as_ref().and_then(Recorder::fault)
    }

    /// Does something with the trace, and says it if that failed.
    pub fn record(&mut self, write: impl FnOnce(&mut Recorder) -> Result<(), String>) {
        if let Some(Err(why)) = self.recorder.as_mut().map(write) {
            say::warning(self.volume, &why);
        }
    }

    /// One line of what was done.
    pub fn summary(&self) -> String {
        let Tally { looks, applied, refused, vanished, threads, ref findings, .. } = self.tally;
        let count = |count: u64, noun: &str| {
            if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
        };
        let mut text =
            format!("{}, {}, {}", count(applied, "move"), count(looks, "look"), count(threads, "thread"));
        if refused > 0 {
            text.push_str(&format!(", {refused} refused"));
        }
        if vanished > 0 {
            text.push_str(&format!(", {vanished} too late"));
        }
        for finding in findings {
            text.push_str(&format!("; {finding}"));
        }
        text
    }
}

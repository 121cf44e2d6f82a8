//! Step sinks: all receivers of each step of the loop of host and policy. They are the trace, the
//! account for metrics, the audit for a report, cache misses for a profile, and the tally.

use crate::metrics::Figures;
use crate::narrator::Narrator;
use crate::recorder::Recorder;
use std::fmt::Debug;
use std::sync::Arc;
use trimtab_core::balance::{Finding, Policy, Settings, Wanted};
use trimtab_core::drive::{Go, Host, Step, drive};
use trimtab_core::observe::{Metric, Observer};
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::Accumulator;
use trimtab_core::telemetry::account::Tally;
use trimtab_core::trace::Header;
use trimtab_core::words::plural;

/// Receiver of the steps of one loop.
pub(crate) trait StepSink: Debug + Send {
    /// Takes a step.
    fn take(&mut self, step: &Step<'_>);
}

/// All sinks of one host's steps.
#[derive(Debug)]
pub struct StepSinks {
    /// Settings of the policy; they define how speed is measured.
    settings: Settings,
    /// The trace, if one is wanted.
    recorder: Option<Recorder>,
    /// Sums over all samples, if a report or a profile is wanted.
    pub totals: Option<Accumulator>,
    /// Metrics for other programs, if they are wanted.
    figures: Option<Figures>,
    /// Explanations of a service's tags.
    explaining: Option<Box<dyn StepSink>>,
    /// Gets findings, and the reason why a trace ended early.
    narrator: Arc<dyn Narrator>,
    /// Counts of moves, samples and threads.
    tally: Tally,
}

impl StepSinks {
    /// Begins with the header in the trace.
    pub fn begin(
        header: Header,
        recorder: Option<Recorder>,
        figures: Option<Figures>,
        narrator: Arc<dyn Narrator>,
    ) -> Self {
        let settings = header.settings.clone();
        let tally = Tally::default();
        let mut sinks = Self { settings, recorder, totals: None, figures, explaining: None, narrator, tally };
        sinks.record(|recorder| recorder.begin(header));
        sinks
    }

    /// Sums up the samples from now on, if `wanted`: for a report or a profile.
    pub fn accumulating(mut self, wanted: bool) -> Self {
        self.totals = wanted.then(Accumulator::default);
        self
    }

    /// Passes each step to this sink too.
    pub(crate) fn explaining(mut self, sink: Box<dyn StepSink>) -> Self {
        self.explaining = Some(sink);
        self
    }

    /// Runs the loop until the host ends it, or `each` says stop. Then takes one more sample, if
    /// samples are summed up.
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
        if let Some(totals) = &mut self.totals
            && let Ok(sample) = host.observe(&Wanted::all())
        {
            totals.add(&sample);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step<'_>) {
        if let Some(totals) = &mut self.totals {
            totals.add(step.sample);
        }
        if let Some(figures) = &mut self.figures {
            figures.take(step);
        }
        if let Some(explaining) = &mut self.explaining {
            explaining.take(step);
        }
        for finding in news(&mut self.tally, step, self.settings.metric) {
            self.narrator.detail(&format!("  found: {finding}"));
        }
        self.record(|recorder| recorder.step(step));
    }

    /// Returns why requested lines on standard output could not be written.
    pub fn fault(&self) -> Option<&str> {
        self.recorder.as_ref().and_then(Recorder::fault)
    }

    /// Runs `write` on the trace, if there is one, and reports its failure.
    pub fn record(&mut self, write: impl FnOnce(&mut Recorder) -> Result<(), String>) {
        if let Some(Err(why)) = self.recorder.as_mut().map(write) {
            self.narrator.warning(&why);
        }
    }

    /// Sums up the work in one line.
    pub fn summary(&self) -> String {
        let Tally { looks, applied, refused, withheld, vanished, threads, ref findings, .. } = self.tally;
        let mut text = format!(
            "{}, {}, {}",
            plural(applied, "move"),
            plural(looks, "sample"),
            plural(threads, "thread")
        );
        if refused > 0 {
            text.push_str(&format!(", {refused} refused"));
        }
        if withheld > 0 {
            text.push_str(&format!(", {withheld} only observed"));
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

/// Counts a step. Returns its findings, if they are of another kind than before: the same findings
/// with other numbers are not news.
fn news<'t>(tally: &mut Tally, step: &Step<'t>, metric: Metric) -> &'t [Finding] {
    let kinds = |findings: &[Finding]| findings.iter().map(Finding::word).collect::<Vec<_>>();
    let before = kinds(&tally.findings);
    if tally.take(step, metric) && kinds(&tally.findings) != before { &step.turn.findings } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::balance::Turn;
    use trimtab_core::observe::Sample;

    #[test]
    fn the_same_with_other_numbers_is_no_news() {
        let mut observer = Observer::new(CpuSet::new());
        let sample = Sample::default();
        observer.take(&sample, &[]);
        let seen = observer.observation();
        let mut tally = Tally::default();
        let mut heard = |findings: &[Finding]| {
            let turn = Turn { findings: findings.to_vec(), ..Turn::default() };
            let step = Step { sample: &sample, seen: &seen, turn: &turn, outcomes: &[] };
            news(&mut tally, &step, Metric::RunWait).len()
        };
        let rotates = |spread| Finding::KernelRotates { spread };
        assert_eq!(heard(&[rotates(0.1)]), 1);
        assert_eq!(heard(&[rotates(0.2)]), 0);
        assert_eq!(heard(&[]), 0);
        assert_eq!(heard(&[rotates(0.2), Finding::NoWaitTimes]), 2);
        assert_eq!(heard(&[rotates(0.3)]), 1);
        // The last numbers are those of the summary.
        assert_eq!(heard(&[rotates(0.4)]), 0);
        assert_eq!(tally.findings, [rotates(0.4)]);
    }
}

//! Monitor of a run: trimtab stays as the program's parent, without an effect on the program.
//!
//! Two processes exist from right before cores are reserved. The child does the same as any run (it
//! plans, reserves, sets masks, execs), so that the hold, the plan and every failure are those of a
//! run without a parent. The parent forwards signals, stops and the exit status
//! ([`trimtab_linux::child`]) in its first thread. In its second (`watcher`) it waits until the
//! program has begun ([`announcement`]), and watches it. The result is a [`RunRecord`], for
//! the front end to show.

pub mod announcement;
mod profile;
mod watcher;

use crate::metrics::{Figures, Offer};
use crate::monitored_host::CountingOptions;
use crate::narrator::Narrator;
use crate::paths::Paths;
use crate::recorder::Recorder;
use crate::restoration;
use crate::sync_report::{SyncPage, SyncReport};
use anyhow::{Context, Result};
use profile::{RunMeasurements, WORKED_SHARE, assemble};
use std::sync::Arc;
use std::time::Instant;
use trimtab_core::balance::{Kind, Policy, Settings, policy};
use trimtab_core::profile::Profile;
use trimtab_core::setting::Setting;
use trimtab_core::telemetry::run_summary::RunSummary;
use trimtab_core::telemetry::{ReportSampler, counter_totals};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_linux::child::{Child, End};
use trimtab_linux::program::Program;
use trimtab_linux::sys::usage::{self, Usage};
use watcher::{EndSignal, RunObservations, Watcher};

/// Tasks of the monitor while the program runs.
#[derive(Clone, Debug)]
pub struct MonitorOptions {
    /// The policy; [`Kind::Float`] only watches.
    pub kind: Kind,
    /// Settings of the policy.
    pub settings: Settings,
    /// Whether samples are only for a report or profile, and no policy determines their times.
    pub at_leisure: bool,
    /// Hardware counters to read.
    pub counting: CountingOptions,
    /// Whether threads are audited for a report.
    pub audits: bool,
    /// Run configuration of the program, if a profile is wanted.
    pub profile: Option<Setting>,
    /// Period in which the program's threads are preempted; `None`: they are not.
    pub preempt: Option<Span>,
}

impl MonitorOptions {
    fn policy(&self, machine: &Machine) -> Box<dyn Policy> {
        if self.at_leisure {
            Box::new(ReportSampler::default())
        } else {
            policy(self.kind, machine, &self.settings)
        }
    }
}

/// Outputs that are opened before the program begins, so that a failure is an error in time.
#[derive(Debug, Default)]
pub struct MonitorOutputs {
    /// The trace.
    pub recorder: Option<Recorder>,
    /// The address of the metrics for Prometheus.
    pub metrics: Option<Offer>,
    /// Page file in which the preload library counts synchronisation.
    pub sync: Option<SyncPage>,
}

/// Run, as seen from its parent.
#[derive(Debug)]
pub struct MonitoredRun {
    /// The machine.
    pub machine: Machine,
    /// The command line, printable.
    pub label: String,
    /// The program.
    pub program: Program,
    /// Reasons why the preload library cannot count in it; empty if it can.
    pub unreached: Vec<String>,
}

/// End of a monitored run, and its observations.
#[derive(Debug)]
pub struct Monitored {
    /// End of the program, or of its process before it became the program.
    pub end: End,
    /// The observations; `None` if the program did not begin, or the watcher's thread could not be
    /// started.
    pub record: Option<RunRecord>,
}

/// Observations of a run.
#[derive(Debug)]
pub struct RunRecord {
    /// One line that sums up the balancing.
    pub headline: String,
    /// Summary of its threads, if a report or a profile is wanted.
    pub summary: Option<RunSummary>,
    /// Statistics of synchronisation.
    pub sync: SyncReport,
    /// The profile, if one is wanted.
    pub profile: Option<Profile>,
}

/// Stays as the program's parent until the program has ended.
///
/// # Errors
/// The kernel does not let us wait for it.
pub fn stay(
    paths: &Paths,
    mut child: Child,
    options: MonitorOptions,
    outputs: MonitorOutputs,
    run: &MonitoredRun,
    narrator: &Arc<dyn Narrator>,
) -> Result<Monitored> {
    let before = usage::of_all_children().unwrap_or_default();
    let MonitorOutputs { recorder, metrics, sync } = outputs;
    let setting = options.profile.clone();
    // Collectors get an answer from now on, also while the program waits for its cores.
    let offered = metrics.map(|offer| Figures::on(offer, &run.machine, &options.settings, &**narrator));
    let figures =
        offered.and_then(|figures| figures.inspect_err(|error| narrator.warning(&format!("{error:#}"))).ok());
    let keeper = (options.kind != Kind::Float).then(|| restoration::keeper(paths, &**narrator)).flatten();
    let ends = Arc::new(EndSignal::default());
    let watcher = child.word().map(|word| {
        let watcher = Watcher {
            proc: paths.proc(),
            pid: child.pid(),
            options,
            recorder,
            figures,
            keeper,
            machine: run.machine.clone(),
            label: run.label.clone(),
            narrator: Arc::clone(narrator),
        };
        let ends = Arc::clone(&ends);
        std::thread::Builder::new().name("watcher".to_owned()).spawn(move || {
            let (usable, facts) = announcement::await_begin(word)?;
            Some(watcher.watch(usable, facts, &ends))
        })
    });
    let attended = child.attend(|| ends.tell());
    ends.tell();
    let ended = Instant::now();
    let seen = watcher.and_then(|watcher| match watcher {
        Ok(thread) => thread.join().unwrap_or_default(),
        Err(error) => {
            narrator.warning(&format!("the program was not watched: no thread could be started ({error})"));
            None
        }
    });
    let end = attended.and_then(|()| child.collect()).context("cannot wait for the program")?;
    let record = seen.map(|seen| conclude(seen, end, ended, before, sync.as_ref(), setting.as_ref(), run));
    Ok(Monitored { end, record })
}

/// Ends the trace, and sums up the observations of a program that has just ended.
fn conclude(
    mut seen: RunObservations,
    end: End,
    ended: Instant,
    before: Usage,
    page: Option<&SyncPage>,
    setting: Option<&Setting>,
    run: &MonitoredRun,
) -> RunRecord {
    let used = usage::of_all_children().ok().map(|used| used.since(before));
    let spent = used.map(|used| Span::from(used.user + used.system));
    let wall = ended.saturating_duration_since(seen.began);
    let wait = seen.facts.as_ref().map(|facts| facts.wait.clone());
    let sync = page.map(|page| page.read(&run.unreached, wait, wall.into())).unwrap_or_default();
    let why = match end {
        End::Exited(status) => format!("the program ended with status {status}"),
        End::Killed(signal) => format!("the program ended by signal {signal}"),
    };
    seen.sinks.record(|recorder| recorder.end(&why, Some(end.status())));
    let RunObservations { sinks, usable, close, facts, .. } = &seen;
    let totals = sinks.totals.as_ref();
    let summary = totals.map(|totals| RunSummary::of(totals, &run.machine, usable, spent, close));
    let measured = RunMeasurements {
        machine: &run.machine,
        usable,
        wall,
        used: used.unwrap_or_default(),
        facts: facts.as_ref(),
        sync: &sync,
        summary: summary.as_ref(),
        worked: totals.map_or(0, |totals| totals.at_once(WORKED_SHARE)),
        close,
        misses_per_kilo: totals.and_then(counter_totals::misses_per_kilo),
        program: &run.program,
    };
    let profile = setting.map(|setting| assemble(setting, &measured));
    RunRecord { headline: sinks.summary(), summary, sync, profile }
}

//! Watcher: the monitor's second thread, which samples and balances the program until it ends.

use super::MonitorOptions;
use super::announcement::ChildFacts;
use crate::metrics::Figures;
use crate::monitored_host::{CountingOptions, MonitoredHost};
use crate::narrator::{Narrator, Silent};
use crate::recorder::Recorder;
use crate::restoration;
use crate::step_sinks::StepSinks;
use crate::unix_seconds;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use trimtab_core::drive::Go;
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::run_summary::CloseSample;
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_core::trace::{Header, VERSION};
use trimtab_linux::host::{AffinityJournal, HostOptions, Live, LiveError, Root, Stopper};
use trimtab_linux::preemption::{Preemption, Right};
use trimtab_linux::process::Pid;

/// Signal that ends the watching when the program ends, in whatever order the two begin.
#[derive(Debug, Default)]
pub(super) struct EndSignal(Mutex<EndState>);

#[derive(Debug, Default)]
struct EndState {
    /// Whether the program has ended.
    ended: bool,
    /// Ends the loop, once there is one.
    stopper: Option<Stopper>,
}

impl EndSignal {
    /// Registers a stopper for the end; stops at once if the program has ended.
    fn stops(&self, stopper: Stopper) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            stopper.stop();
        }
        state.stopper = Some(stopper);
    }

    /// Signals the end.
    pub(super) fn tell(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = true;
        if let Some(stopper) = &state.stopper {
            stopper.stop();
        }
    }
}

/// Observations of a program that began.
pub(super) struct RunObservations {
    pub(super) sinks: StepSinks,
    pub(super) usable: CpuSet,
    pub(super) close: CloseSample,
    pub(super) facts: Option<ChildFacts>,
    pub(super) began: Instant,
}

/// Everything that the watcher's thread is given.
pub(super) struct Watcher {
    pub(super) proc: PathBuf,
    pub(super) pid: Pid,
    pub(super) options: MonitorOptions,
    pub(super) recorder: Option<Recorder>,
    pub(super) figures: Option<Figures>,
    pub(super) keeper: Option<AffinityJournal>,
    pub(super) machine: Machine,
    pub(super) label: String,
    pub(super) narrator: Arc<dyn Narrator>,
}

impl Watcher {
    /// Watches a program that has begun, until the signal arrives.
    pub(super) fn watch(self, usable: CpuSet, facts: Option<ChildFacts>, end: &EndSignal) -> RunObservations {
        let began = Instant::now();
        let Self { proc, pid, options, recorder, figures, keeper, machine, label, narrator } = self;
        let _preemption =
            options.preempt.and_then(|period| begin_preemption(&proc, &usable, period, &*narrator));
        let mut policy = options.policy(&machine);
        let profiles = options.profile.is_some();
        let samples_closely = options.audits || profiles;
        let header = Header {
            version: VERSION,
            policy: options.kind,
            settings: options.settings,
            command: label,
            began: unix_seconds(),
            usable: usable.clone(),
            machine: machine.clone(),
        };
        let mut sinks =
            StepSinks::begin(header, recorder, figures, Arc::clone(&narrator)).accumulating(samples_closely);
        let CountingOptions { choice, always } = options.counting;
        // The run bound its program on purpose: the binding stays also when a cpuset grows.
        let live = HostOptions { keep: keeper, counting: choice, bound: true, ..HostOptions::default() };
        let mut host = match Live::with(&proc, &[Root::Tree(pid)], &usable, live) {
            Ok(live) => {
                end.stops(live.stopper());
                // A profile itself reports the events that could not be counted.
                let hears = if profiles { Arc::new(Silent) } else { Arc::clone(&narrator) };
                MonitoredHost::new(live)
                    .closely(samples_closely)
                    .touching(profiles)
                    .counting(always || profiles, hears)
            }
            Err(error) => {
                // It may have ended before the first sample.
                if !matches!(error, LiveError::Ended(_) | LiveError::NoProcess(_)) {
                    narrator.warning(&format!("the program is not watched: {error}"));
                }
                return RunObservations { sinks, usable, close: CloseSample::default(), facts, began };
            }
        };
        if let Err(error) = sinks.watch(&mut host, &mut *policy, &usable, &mut |_, _| Go::On) {
            narrator.warning(&format!("the program is not watched any more: {error}"));
        }
        let (restored, fault) = host.restore();
        restoration::tell(restored, fault, &*narrator);
        RunObservations { sinks, usable, close: host.close(), facts, began }
    }
}

/// Starts to preempt the program's threads; `None`, with a warning, if that is not possible.
fn begin_preemption(
    proc: &Path,
    usable: &CpuSet,
    period: Span,
    narrator: &dyn Narrator,
) -> Option<Preemption> {
    let made = Preemption::start(proc, usable, period);
    let made =
        made.inspect_err(|error| narrator.warning(&format!("--preempt has no effect: {error}"))).ok()?;
    if made.right() == Right::ShortSlice {
        narrator.warning(
            "--preempt works less well without real-time scheduling: turns are longer than asked for. \
             Give trimtab CAP_SYS_NICE or a limit of real-time priorities (ulimit -r 1)",
        );
    }
    Some(made)
}

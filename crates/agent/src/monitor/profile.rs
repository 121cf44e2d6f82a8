//! Profile of a run, assembled from the counts inside the program, the samples from outside, and
//! the kernel's statistics of ended children.

use super::announcement::ChildFacts;
use crate::sync_report::SyncReport;
use std::collections::BTreeSet;
use std::time::Duration;
use trimtab_core::profile::Profile;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_core::telemetry::run_summary::{CloseSample, RunSummary};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_linux::program::Program;
use trimtab_linux::sys::usage::Usage;

/// A thread counts as a worker if it had at least this share of the CPU time of the busiest thread.
pub(super) const WORKED_SHARE: f64 = 0.05;

/// All data of a run when the program has ended.
#[derive(Debug)]
pub(super) struct RunMeasurements<'a> {
    /// The machine.
    pub(super) machine: &'a Machine,
    /// CPUs that the program might use.
    pub(super) usable: &'a CpuSet,
    /// Wall-clock time of the run.
    pub(super) wall: Duration,
    /// Resources used by its processes, including trimtab's own part before the exec.
    pub(super) used: Usage,
    /// Facts that its process announced.
    pub(super) facts: Option<&'a ChildFacts>,
    /// Statistics of synchronisation.
    pub(super) sync: &'a SyncReport,
    /// Summary of the samples.
    pub(super) summary: Option<&'a RunSummary>,
    /// The greatest number of threads that samples saw work at the same time.
    pub(super) worked: u64,
    /// Results of close samples.
    pub(super) close: &'a CloseSample,
    /// Misses of the last-level cache for 1,000 instructions.
    pub(super) misses_per_kilo: Option<f64>,
    /// The program.
    pub(super) program: &'a Program,
}

/// Assembles the profile of a program that ran in this configuration.
pub(super) fn assemble(setting: &Setting, measured: &RunMeasurements<'_>) -> Profile {
    let RunMeasurements { machine, usable, used, close, summary, sync, .. } = measured;
    let before = measured.facts.cloned().unwrap_or_default();
    let core = |cpu| machine.pu(cpu).map(|pu| machine.core_of(pu));
    let cores: BTreeSet<_> = usable.iter().filter_map(core).collect();
    let threads = summary.map_or(&[][..], |summary| &summary.threads);
    let program = &measured.program.path;
    Profile {
        program: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        setting: setting.clone(),
        cpus: u32::try_from(usable.len()).unwrap_or(u32::MAX),
        cores: u32::try_from(cores.len()).unwrap_or(u32::MAX),
        wall: measured.wall.into(),
        user: Span::from(used.user).less(before.user),
        system: Span::from(used.system).less(before.system),
        workers: u32::try_from(measured.worked.max(sync.workers.unwrap_or(0))).unwrap_or(u32::MAX),
        runtimes: sync.runtimes.clone(),
        intervals: sync.intervals,
        waiting: sync.waiting,
        wait: sync.wait.clone(),
        balance: summary.filter(|_| cores.len() > 1).and_then(|summary| summary.balance),
        kept_waiting: summary.and_then(|summary| summary.wait_share),
        misses_per_kilo: measured.misses_per_kilo,
        huge_share: close.huge,
        remote_share: summary.and_then(|summary| summary.remote_pages),
        resident: close.resident,
        working_set: close.touched.or(close.resident),
        faults: Some(used.faults.saturating_sub(before.faults)),
        switches: Some((
            used.voluntary.saturating_sub(before.voluntary),
            used.involuntary.saturating_sub(before.involuntary),
        )),
        yields: sync.yields,
        overhead: sync.overhead,
        unseen: unseen(measured, threads.is_empty()),
    }
}

/// Lists the missing data with reasons; `missed`: no sample found its threads.
fn unseen(measured: &RunMeasurements<'_>, missed: bool) -> Vec<String> {
    let RunMeasurements { close, sync, summary, .. } = measured;
    let mut unseen = sync.unseen.clone();
    if missed {
        unseen.push("its threads: it ended before a sample could find them".to_owned());
    }
    if measured.misses_per_kilo.is_none() {
        unseen.push("cache misses: hardware was not counted (trimtab counters says why)".to_owned());
    }
    if summary.is_none_or(|summary| summary.remote_pages.is_none()) {
        unseen.push("remote memory: the kernel did not say on which nodes its pages were".to_owned());
    }
    if close.touched.is_none() {
        unseen.push(
            "working set: it ended before touched pages could be sampled twice; the resident size is given"
                .to_owned(),
        );
    }
    unseen
}

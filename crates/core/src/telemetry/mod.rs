//! Telemetry: figures of the threads, programs and CPUs of a run.
//!
//! Problem: the screen, the report after a run, a profile, the counters and the metrics ask the
//! same questions of the same samples (where each thread ran, how long it waited, which other load
//! there was), and must not answer them in different ways. Idea: samples are added up in one place,
//! [`totals`], and every display is a view.
//!
//! - [`totals`] add up the readings of a thread, a program or a run. The accumulator and the
//!   account below keep such totals. They differ in the readings that they accept, and in the
//!   threads that they keep.
//! - [`Accumulator`] adds up the counters of whole samples, from the first to the last. Its views
//!   are the [`run_summary`] (the report after a run, profiles) and the [`counter_totals`]
//!   (hardware counters by thread, cache misses of the run).
//! - [`account`] follows the steps of the balancing loop while they happen: current speeds, a
//!   window of past readings, moves and findings. It counts a reading only if the loop used it. Its
//!   views are `top`, the metrics, the page of `report` ([`account::Timeline`]) and the status line
//!   ([`account::Tally`]).
//!
//! Terms, the same in all views. CPU time between two samples counts for the CPU on which the later
//! sample found the thread. *Balance* is the lowest over the highest CPU time of cores
//! ([`balance`]). Changes of CPU or core are changes between two samples, at most one per interval:
//! a lower bound.
//!
//! Properties: a value that was not read is missing, never zero; equal samples give equal figures.
//!
//! Source: balance as lowest over highest user time is from Iancu, Hofmeyr, Blagojević and Zheng,
//! "Oversubscription on Multicore Processors", IPDPS 2010. Here it is all time on a CPU, which the
//! kernel counts exactly.

pub mod account;
mod accumulator;
pub mod counter_totals;
pub mod run_summary;
mod sampler;
pub mod totals;

pub use accumulator::Accumulator;
pub use sampler::ReportSampler;

use crate::ids::{CoreId, OsNode};
use crate::time::Span;
use serde::Serialize;
use std::collections::BTreeMap;

/// Position of a CPU in the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CpuPosition {
    /// Core of the CPU, by its place in the model.
    pub core: CoreId,
    /// NUMA node of the CPU as the kernel numbers it, if the machine has nodes.
    pub node: Option<OsNode>,
}

/// Returns the balance: the lowest of these times over the highest, in [0, 1]; 1 is even. `None` if
/// nothing ran.
pub fn balance(times: impl IntoIterator<Item = Span>) -> Option<f64> {
    let extremes = times.into_iter().fold(None, |extremes: Option<(Span, Span)>, time| {
        Some(extremes.map_or((time, time), |(low, high)| (low.min(time), high.max(time))))
    });
    extremes.and_then(|(low, high)| low.share_of(high))
}

/// Adds CPU time to the sum of a CPU, core or node.
fn add_time<K: Ord>(times: &mut BTreeMap<K, Span>, at: K, span: Span) {
    let sum = times.entry(at).or_default();
    *sum = *sum + span;
}

/// Returns each of these times as a share of a whole.
fn shares<K: Copy>(times: &BTreeMap<K, Span>, whole: Span) -> Vec<(K, f64)> {
    times.iter().filter_map(|(&at, span)| Some((at, span.share_of(whole)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balance_is_the_lowest_over_the_highest_time() {
        assert_eq!(balance([Span(40), Span(80)]), Some(0.5));
        assert_eq!(balance([Span(3)]), Some(1.0));
        assert_eq!(balance([Span(0), Span(3)]), Some(0.0));
        assert_eq!((balance([Span(0)]), balance([])), (None, None), "nothing ran");
    }
}

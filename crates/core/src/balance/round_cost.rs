//! Cost of sampling and moving on this machine, which limits how often both are done.
//!
//! Unit: CPU time.
//!
//! Problem: the cost of a sample decides how often a policy may sample, and it differs between
//! machines. In an emulated machine, on a hardened kernel, or in a container with a tracer, the
//! same system calls take ten times as long. A constant would be wrong by that factor, and a
//! balancer that is on by default must not cost more than it gains.
//!
//! Idea: constants give the relative costs of the parts of a round, and the host reports the real
//! cost of each round. The smoothed ratio of the two scales the constants.
//!
//! Properties: if the host reports no costs, the constants hold. The ratio is the mean of the first
//! five rounds, without the very first, which opens all files. From then on, each round shifts the
//! ratio by a fifth of the difference. The ratio stays within [`RATIO_MIN`] and [`RATIO_MAX`].

use super::Wanted;
use crate::observe::Observation;
use crate::sampling_budget::SmoothedMean;
use crate::time::Span;

/// Fixed cost of a sample. Measured on two machines: 40 to 80 us.
const SAMPLE_COST: Span = Span::from_us(50);
/// Cost per thread of reading its counters. Measured on two machines: 1 to 2 us.
const COUNTERS_COST: Span = Span::from_us(1);
/// Cost per thread of reading its current CPU. Measured on two machines: 1 to 2 us.
const PLACE_COST: Span = Span(1_300);
/// Cost per thread of reading its number of sleeps. Measured on two machines: 4 to 6 us.
const SLEEPS_COST: Span = Span(6_500);

/// Cost of a move for the balancer that requests it.
const MOVE_COST: Span = Span::from_us(4);
/// Cost of a move for the moved thread: a context switch and cold caches.
const COLD_CACHE_COST: Span = Span::from_us(16);

/// Share of the difference by which a new round shifts the ratio, after the first rounds.
const RATIO_WEIGHT: f64 = 0.2;

/// Smallest ratio of measured to expected cost.
const RATIO_MIN: f64 = 0.25;
/// Largest ratio of measured to expected cost.
const RATIO_MAX: f64 = 64.0;

/// Estimator of the cost of rounds.
#[derive(Debug)]
pub(super) struct RoundCosts {
    ratio: SmoothedMean,
    rounds: u32,
    /// Number of threads at the last sample, the data requested for it, and its expected cost by
    /// the constants.
    threads: usize,
    wanted: Wanted,
    expected: Option<Span>,
}

impl RoundCosts {
    /// Creates an estimator without measurements; `wanted` is the first request.
    pub(super) fn new(wanted: Wanted) -> Self {
        let ratio = SmoothedMean::new(RATIO_WEIGHT).averaging_first().beginning_at(1.0);
        Self { ratio, rounds: 0, threads: 0, wanted, expected: None }
    }

    /// Processes the cost of the round before.
    pub(super) fn observe(&mut self, seen: &Observation<'_>) {
        self.threads = seen.threads.len();
        let Some((cost, expected)) = seen.cost.zip(self.expected) else { return };
        self.rounds += 1;
        // The first round opens all files.
        if self.rounds > 1 {
            let ratio = cost.share_of(expected).unwrap_or(1.0);
            self.ratio.add(ratio.clamp(RATIO_MIN, RATIO_MAX));
        }
    }

    /// Records the number of moves of this round and the request for the next sample.
    pub(super) fn decided(&mut self, moves: usize, wanted: &Wanted) {
        self.expected = Some(by_constants(self.threads, &self.wanted) + MOVE_COST.times(moves as f64));
        self.wanted = wanted.clone();
    }

    /// Returns the measured cost of rounds over the cost by the constants.
    fn ratio(&self) -> f64 {
        self.ratio.get().unwrap_or(1.0)
    }

    /// Returns the cost of a sample that reads only the counters of every thread, computing or not.
    pub(super) fn of_counter_sample(&self) -> Span {
        by_constants(self.threads, &Wanted { places: false, sleeps: false, ..self.wanted.clone() })
            .times(self.ratio())
    }

    /// Returns the cost of a sample that reads all data.
    pub(super) fn of_full_sample(&self) -> Span {
        by_constants(self.threads, &Wanted::all()).times(self.ratio())
    }

    /// Returns the cost of a number of moves.
    pub(super) fn of_moves(&self, moves: usize) -> Span {
        (MOVE_COST.times(self.ratio()) + COLD_CACHE_COST).times(moves as f64)
    }
}

fn by_constants(threads: usize, wanted: &Wanted) -> Span {
    let place = if wanted.places { PLACE_COST } else { Span::ZERO };
    let sleeps = if wanted.sleeps { SLEEPS_COST } else { Span::ZERO };
    SAMPLE_COST + (COUNTERS_COST + place + sleeps).times(threads as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::set::CpuSet;
    use crate::time::Moment;

    fn rounds(costs: &mut RoundCosts, cost: Option<Span>, count: usize) {
        let mut observer = Observer::new(CpuSet::default());
        for _ in 0..count {
            observer.take(&Sample { at: Moment(1), cost, ..Sample::default() }, &[]);
            costs.observe(&observer.observation());
            costs.decided(0, &Wanted::default());
        }
    }

    #[test]
    fn constants_hold_until_the_host_reports_costs() {
        let mut costs = RoundCosts::new(Wanted::default());
        rounds(&mut costs, None, 50);
        assert_eq!(costs.of_counter_sample(), SAMPLE_COST);
        // Ten times slower than the machine of the constants. The first reported round opened all
        // files.
        rounds(&mut costs, Some(SAMPLE_COST.times(1_000.0)), 1);
        assert_eq!(costs.of_counter_sample(), SAMPLE_COST);
        rounds(&mut costs, Some(SAMPLE_COST.times(10.0)), 3);
        let near =
            |span: Span, times: f64| (span.share_of(SAMPLE_COST.times(times)).unwrap() - 1.0).abs() < 0.01;
        assert!(near(costs.of_counter_sample(), 10.0), "{:?}", costs.of_counter_sample());
        assert_eq!(
            costs.of_moves(2).0 / 1_000,
            (MOVE_COST.times(10.0) + COLD_CACHE_COST).times(2.0).0 / 1_000
        );
        // Neither one long round nor a broken clock changes the ratio much.
        rounds(&mut costs, Some(SAMPLE_COST.times(1e9)), 1);
        assert!(costs.of_counter_sample() <= SAMPLE_COST.times(10.0 + 0.34 * RATIO_MAX));
        rounds(&mut costs, Some(Span::ZERO), 100);
        assert!(near(costs.of_counter_sample(), RATIO_MIN), "{:?}", costs.of_counter_sample());
    }

    #[test]
    fn the_expected_cost_follows_the_readings_and_moves() {
        let (mut dear, mut cheap) = (RoundCosts::new(Wanted::all()), RoundCosts::new(Wanted::default()));
        for costs in [&mut dear, &mut cheap] {
            costs.threads = 100;
            costs.decided(3, &Wanted::default());
        }
        assert_eq!(dear.expected, Some(SAMPLE_COST + Span(880_000) + MOVE_COST.times(3.0)));
        assert_eq!(cheap.expected, Some(SAMPLE_COST + Span(100_000) + MOVE_COST.times(3.0)));
        assert_eq!(dear.of_full_sample(), SAMPLE_COST + Span(880_000));
    }
}

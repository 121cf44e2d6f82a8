//! What looking and moving cost on this machine, and how often it can therefore be done.
//!
//! Unit: CPU time. Problem: how long a look may take decides how often one may look, and it differs: in an emulated machine, a
//! hardened kernel or a container with a tracer on it the same system calls take ten times as long. A constant is wrong there by as
//! much, and a balancer that is on by default must not take more than it gives. Idea: constants say how the parts of a
//! round compare with each other, and the host says what each round really took; the ratio of the two, smoothed, scales the constants.
//!
//! Properties: without a host that tells, the constants hold; the ratio is the mean of the first five rounds (but for the very first,
//! which opens everything), and from then on a round shifts it by a fifth of what it differs; it stays within [`RATIO_MIN`] and
//! [`RATIO_MAX`].

use super::Wanted;
use crate::observe::Observation;
use crate::sampling_budget::SmoothedMean;
use crate::time::Span;

/// What a look costs at all, and per thread: its counters, where it runs, how often it slept. Measured on two machines: 40 to 80 us, 1
/// to 2 us, as much again, 4 to 6 us.
const LOOK: Span = Span::from_us(50);
const COUNTERS: Span = Span::from_us(1);
const PLACE: Span = Span(1_300);
const SLEEPS: Span = Span(6_500);

/// What a move costs whoever asks for it, and whoever is moved: a switch, and caches that went cold.
const MOVE: Span = Span::from_us(4);
const COLD: Span = Span::from_us(16);

/// The part by which a new round shifts the ratio, once there were some.
const RATIO_WEIGHT: f64 = 0.2;

/// The ratio is believed within these.
const RATIO_MIN: f64 = 0.25;
const RATIO_MAX: f64 = 64.0;

/// Learns what rounds cost.
#[derive(Debug)]
pub(super) struct Costs {
    ratio: SmoothedMean,
    rounds: u32,
    /// Threads that were there at the last look, what was wanted of it, and what by the constants that round cost.
    threads: usize,
    wanted: Wanted,
    expected: Option<Span>,
}

impl Costs {
    /// Nothing is known; this is wanted first.
    pub(super) fn new(wanted: Wanted) -> Self {
        let ratio = SmoothedMean::new(RATIO_WEIGHT).averaging_first().beginning_at(1.0);
        Self { ratio, rounds: 0, threads: 0, wanted, expected: None }
    }

    /// Takes in what the round before cost.
    pub(super) fn look(&mut self, seen: &Observation<'_>) {
        self.threads = seen.threads.len();
        let Some((cost, expected)) = seen.cost.zip(self.expected) else { return };
        self.rounds += 1;
        // The first round opens everything.
        if self.rounds > 1 {
            let ratio = cost.share_of(expected).unwrap_or(1.0);
            self.ratio.add(ratio.clamp(RATIO_MIN, RATIO_MAX));
        }
    }

    /// This round moves so many threads and wants to see this next.
    pub(super) fn decided(&mut self, moves: usize, wanted: &Wanted) {
        self.expected = Some(by_constants(self.threads, &self.wanted) + MOVE.times(moves as f64));
        self.wanted = wanted.clone();
    }

    /// What rounds cost over what the constants say.
    fn ratio(&self) -> f64 {
        self.ratio.get().unwrap_or(1.0)
    }

    /// What a look costs that reads counters only: of every thread that is there, whether it computes or not.
    pub(super) fn of_look(&self) -> Span {
        by_constants(self.threads, &Wanted { places: false, sleeps: false, ..self.wanted.clone() })
            .times(self.ratio())
    }

    /// What a look costs that reads all.
    pub(super) fn of_full_look(&self) -> Span {
        by_constants(self.threads, &Wanted::all()).times(self.ratio())
    }

    /// What so many moves cost.
    pub(super) fn of_moves(&self, moves: usize) -> Span {
        (MOVE.times(self.ratio()) + COLD).times(moves as f64)
    }
}

fn by_constants(threads: usize, wanted: &Wanted) -> Span {
    let place = if wanted.places { PLACE } else { Span::ZERO };
    let sleeps = if wanted.sleeps { SLEEPS } else { Span::ZERO };
    LOOK + (COUNTERS + place + sleeps).times(threads as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::set::CpuSet;
    use crate::time::Moment;

    fn rounds(costs: &mut Costs, cost: Option<Span>, count: usize) {
        let mut observer = Observer::new(CpuSet::default());
        for _ in 0..count {
            observer.take(&Sample { at: Moment(1), cost, ..Sample::default() }, &[]);
            costs.look(&observer.observation());
            costs.decided(0, &Wanted::default());
        }
    }

    #[test]
    fn constants_hold_until_the_host_tells() {
        let mut costs = Costs::new(Wanted::default());
        rounds(&mut costs, None, 50);
        assert_eq!(costs.of_look(), LOOK);
        // Ten times slower than the machine of the constants; the first that is told opened everything.
        rounds(&mut costs, Some(LOOK.times(1_000.0)), 1);
        assert_eq!(costs.of_look(), LOOK);
        rounds(&mut costs, Some(LOOK.times(10.0)), 3);
        let near = |span: Span, times: f64| (span.share_of(LOOK.times(times)).unwrap() - 1.0).abs() < 0.01;
        assert!(near(costs.of_look(), 10.0), "{:?}", costs.of_look());
        assert_eq!(costs.of_moves(2).0 / 1_000, (MOVE.times(10.0) + COLD).times(2.0).0 / 1_000);
        // One long round does not turn it, and a clock that is no clock does not either.
        rounds(&mut costs, Some(LOOK.times(1e9)), 1);
        assert!(costs.of_look() <= LOOK.times(10.0 + 0.34 * RATIO_MAX));
        rounds(&mut costs, Some(Span::ZERO), 100);
        assert!(near(costs.of_look(), RATIO_MIN), "{:?}", costs.of_look());
    }

    #[test]
    fn what_was_read_and_moved_is_expected_to_cost() {
        let (mut dear, mut cheap) = (Costs::new(Wanted::all()), Costs::new(Wanted::default()));
        for costs in [&mut dear, &mut cheap] {
            costs.threads = 100;
            costs.decided(3, &Wanted::default());
        }
        assert_eq!(dear.expected, Some(LOOK + Span(880_000) + MOVE.times(3.0)));
        assert_eq!(cheap.expected, Some(LOOK + Span(100_000) + MOVE.times(3.0)));
        assert_eq!(dear.of_full_look(), LOOK + Span(880_000));
    }
}

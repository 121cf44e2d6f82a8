//! Limits of the penalty policies: the interval of samples, the rate of moves, and a test of the
//! benefit.
//!
//! Unit: CPU time of the balancer, moves per second, shares of the index.
//!
//! Problem: samples that read counters have a cost, which is higher in a virtual machine and grows
//! with the number of threads. Moves cost the moved threads time. And some programs gain from no
//! placement.
//!
//! Idea: the time between samples follows their real cost. Moves are taken from a bucket that fills
//! at a fixed rate. Once a minute the index of all threads is compared with that in the last second
//! before the first move, for threads that still do the same work. A minute without a kept move
//! counts as a failure without a comparison.
//!
//! Properties: if the host reports no costs, the tick is the settings' interval. The tick never
//! exceeds [`TICK_MAX`] and never falls below the settings' interval. Undoing a move is never
//! refused, but it is paid for.

use super::thread_stats::ThreadStats;
use crate::counts::Counts;
use crate::observe::Observation;
use crate::penalty::{Index, Mean, change};
use crate::sampling_budget::SmoothedMean;
use crate::time::{Moment, Span};

/// Longest time between samples because of their cost.
const TICK_MAX: Span = Span::from_ms(1_000);

/// Share of the difference by which a new sample shifts the mean cost.
const COST_WEIGHT: f64 = 0.1;

/// Growth of the tick that is reported.
const TICK_REPORT_FACTOR: f64 = 1.5;

/// Smallest budget: a budget of zero would never allow a sample.
const SHARE_MIN: f64 = 1e-6;

/// Time between two samples.
#[derive(Debug)]
pub(super) struct SampleInterval {
    interval: Span,
    budget: f64,
    /// CPU seconds of a sample.
    cost: SmoothedMean,
    samples: u32,
    reported: Span,
}

impl SampleInterval {
    pub(super) fn new(interval: Span, budget: f64) -> Self {
        // With an interval of zero, time would not advance.
        let interval = interval.max(Span::from_us(1));
        let cost = SmoothedMean::new(COST_WEIGHT).averaging_first();
        Self { interval, budget, cost, samples: 0, reported: interval }
    }

    /// Processes the cost of the last sample. Returns true when the tick is much longer than the
    /// last reported tick.
    pub(super) fn observe(&mut self, seen: &Observation<'_>) -> bool {
        let Some(cost) = seen.cost else { return false };
        self.samples = self.samples.saturating_add(1);
        // The first sample opens all files.
        if self.samples > 1 {
            self.cost.add(cost.seconds());
        }
        let longer =
            self.samples > 10 && self.tick().seconds() > TICK_REPORT_FACTOR * self.reported.seconds();
        if longer {
            self.reported = self.tick();
        }
        longer
    }

    /// Returns the time to the next sample.
    pub(super) fn tick(&self) -> Span {
        let needed = self.cost.get().map_or(0.0, |cost| cost / self.budget.max(SHARE_MIN));
        let needed = Span((needed * 1e9) as u64).min(TICK_MAX);
        needed.max(self.interval)
    }
}

/// Bucket of allowed moves.
#[derive(Debug)]
pub(super) struct MoveBudget {
    /// Requested moves per second; `None` for the number of threads that may be moved.
    asked: Option<f64>,
    rate: f64,
    left: f64,
    at: Moment,
}

impl MoveBudget {
    /// Smallest size of the bucket: room for an exchange and its undoing, unless all moves are
    /// forbidden.
    const BUCKET_SIZE_MIN: f64 = 4.0;

    /// Smallest rate without a request, in moves per second.
    const RATE_DEFAULT_MIN: f64 = 10.0;

    pub(super) fn new(asked: Option<f64>) -> Self {
        let rate = asked.unwrap_or(Self::RATE_DEFAULT_MIN).max(0.0);
        let mut moves = Self { asked, rate, left: 0.0, at: Moment::default() };
        moves.left = moves.most();
        moves
    }

    fn most(&self) -> f64 {
        if self.rate > 0.0 { self.rate.max(Self::BUCKET_SIZE_MIN) } else { 0.0 }
    }

    /// Fills the bucket up to a time, with the present number of threads that may be moved.
    pub(super) fn fill(&mut self, at: Moment, candidates: usize) {
        self.rate = self.asked.unwrap_or(Self::RATE_DEFAULT_MIN.max(candidates as f64)).max(0.0);
        self.left = (self.left + self.rate * at.since(self.at).seconds()).min(self.most());
        self.at = at;
    }

    /// Returns whether this number of moves can be made and undone.
    pub(super) fn allow(&self, moves: usize) -> bool {
        self.left >= 2.0 * moves as f64
    }

    /// Returns moves to the bucket that were paid for and not made.
    pub(super) fn give_back(&mut self, moves: usize) {
        self.left = (self.left + moves as f64).min(self.most());
    }

    /// Takes moves out of the bucket.
    pub(super) fn spend(&mut self, moves: usize) {
        self.left -= moves as f64;
    }
}

/// Time of moving after which the benefit is tested, and first pause after a failure. The pause
/// doubles with each failure.
const BENEFIT_PERIOD: Span = Span::from_ms(60_000);
/// Largest number of doublings of the pause.
const DOUBLINGS_MAX: u32 = 6;

/// Smallest gain, as a share, if all threads were moved: two seconds differ by this share without a
/// cause.
const GAIN_SHARE_MIN: f64 = 0.02;

/// Factor by which the requests per instruction of a thread must change before it counts as doing
/// other work. Placement does not change this ratio, since private caches are private.
const OTHER_WORK_FACTOR: f64 = 1.5;

/// Test of the benefit of moving.
#[derive(Debug, Default)]
pub(super) struct BenefitTest {
    since: Option<Moment>,
    rests: Option<Moment>,
    failures: u32,
    kept: bool,
}

impl BenefitTest {
    /// Records that a move was made.
    pub(super) fn moved(&mut self, at: Moment) {
        self.since.get_or_insert(at);
    }

    /// Records that a move was kept.
    pub(super) fn kept(&mut self) {
        self.kept = true;
    }

    /// Returns whether the policy pauses now, and whether the pause has just ended.
    pub(super) fn rests(&mut self, at: Moment) -> (bool, bool) {
        match self.rests {
            Some(until) if at < until => (true, false),
            Some(_) => {
                (self.rests, self.since, self.kept) = (None, None, false);
                (false, true)
            }
            None => (false, false),
        }
    }

    /// Returns whether a minute of moving brought nothing. The policy then pauses.
    pub(super) fn brought_nothing(
        &mut self,
        stats: &mut ThreadStats,
        index: Index,
        mean: Mean,
        touched: usize,
        at: Moment,
    ) -> bool {
        let Some(since) = self.since.filter(|since| at.since(*since) >= BENEFIT_PERIOD) else { return false };
        for history in stats.histories.values_mut() {
            // A thread that does other work now does not show the effect of moving.
            if history
                .first
                .as_ref()
                .zip(history.second.as_ref())
                .is_some_and(|(then, now)| another(then, now))
            {
                history.first = None;
            }
        }
        let both = stats
            .histories
            .values()
            .filter_map(|history| history.first.as_ref().zip(history.second.as_ref()));
        let known = both.clone().count();
        // Most of the present threads were not there at the start or do other work now: from now on
        // the comparison starts at the present.
        let changed = 2 * known < stats.histories.values().filter(|history| history.second.is_some()).count();
        let ratio = change(index, mean, both);
        stats
            .histories
            .values_mut()
            .filter(|history| history.first.is_none())
            .for_each(|history| history.first = history.second);
        self.since = Some(at.max(since));
        if self.kept && (changed || ratio.is_none()) {
            stats.histories.values_mut().for_each(|history| history.first = history.second);
            return false;
        }
        // A gain of one thread among many changes the index of all threads only a little.
        let touched = touched as f64 / (known as f64).max(1.0);
        if self.kept && ratio.is_some_and(|ratio| 1.0 - ratio > GAIN_SHARE_MIN * touched.min(1.0)) {
            self.failures = 0;
            return false;
        }
        self.rests = Some(at + BENEFIT_PERIOD.times(f64::from(1_u32 << self.failures.min(DOUBLINGS_MAX))));
        self.failures += 1;
        true
    }
}

/// Returns whether a thread does other work now.
fn another(then: &Counts, now: &Counts) -> bool {
    let often = |counts: &Counts| {
        let requests = counts.requests.or(counts.llc_lookups)? as f64;
        counts.instructions.filter(|instructions| *instructions > 0).map(|all| requests / all as f64)
    };
    often(then).zip(often(now)).is_some_and(|(then, now)| {
        let (least, most) = (then.min(now), then.max(now));
        most > OTHER_WORK_FACTOR * least
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::set::CpuSet;

    #[test]
    fn the_tick_follows_the_cost_of_samples() {
        let mut pace = SampleInterval::new(Span::from_ms(10), 0.01);
        let mut observer = Observer::new(CpuSet::default());
        let mut observe = |pace: &mut SampleInterval, cost: Option<Span>| {
            observer.take(&Sample { at: Moment(1), cost, ..Sample::default() }, &[]);
            pace.observe(&observer.observation())
        };
        assert!(!observe(&mut pace, None));
        assert_eq!(pace.tick(), Span::from_ms(10));
        observe(&mut pace, Some(Span::from_ms(500)));
        assert_eq!(pace.tick(), Span::from_ms(10), "the first opens everything");
        let told = (0..200).filter(|_| observe(&mut pace, Some(Span::from_us(400)))).count();
        let tick = pace.tick().seconds();
        assert!((tick - 0.04).abs() < 1e-4, "{tick}");
        assert_eq!(told, 1);
        (0..200).for_each(|_| {
            observe(&mut pace, Some(Span::from_us(10)));
        });
        assert_eq!(pace.tick(), Span::from_ms(10));
        (0..200).for_each(|_| {
            observe(&mut pace, Some(Span::from_ms(900)));
        });
        assert_eq!(pace.tick(), TICK_MAX);
    }

    #[test]
    fn a_thread_with_other_requests_does_other_work() {
        let counts = |requests, instructions| Counts {
            requests: Some(requests),
            instructions: Some(instructions),
            ..Counts::default()
        };
        let then = counts(1_000, 100_000);
        assert!(!another(&then, &counts(1_300, 100_000)) && !another(&then, &counts(2_000, 200_000)));
        assert!(another(&then, &counts(1_600, 100_000)) && another(&then, &counts(600, 100_000)));
        assert!(!another(&then, &Counts::default()), "what was not counted tells nothing");
    }

    #[test]
    fn moves_come_at_their_rate() {
        let mut moves = MoveBudget::new(Some(10.0));
        let mut made = 0;
        for ms in (0..10_000).step_by(10) {
            moves.fill(Moment(ms * 1_000_000), 500);
            if moves.allow(2) {
                moves.spend(4);
                made += 4;
            }
        }
        assert!((96..=112).contains(&made), "{made}");
        // Without a request, the rate is the number of threads.
        let mut usual = MoveBudget::new(None);
        usual.fill(Moment(1_000_000_000), 40);
        (0..10).for_each(|_| usual.spend(4));
        assert!(!usual.allow(1), "ten were saved up, and forty a second came");
        usual.fill(Moment(2_000_000_000), 40);
        assert!(usual.allow(1));
        // A rate of zero allows no moves, not even at the start.
        let mut none = MoveBudget::new(Some(0.0));
        assert!(!none.allow(1));
        none.fill(Moment(u64::MAX), 40);
        assert!(!none.allow(1));
    }
}

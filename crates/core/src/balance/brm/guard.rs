//! What keeps the policies of the penalty from doing harm: how often they look, how often they move, and whether it brought anything.
//!
//! Unit: CPU time of whoever looks, moves a second, parts of the index. Problem: looks that read counters cost, more in a virtual machine
//! and more with more threads; moves cost whoever is moved; and a program may be one that no placement helps. Idea: the time between
//! looks follows what a look really costs; moves are drawn from a bucket that fills at a fixed rate; and once a minute what
//! all suffer is compared with what they suffered in the last second before the first move, as far as they still do the same. A minute in
//! which no move was kept was in vain by itself.
//!
//! Properties: without a host that tells costs the tick is the settings'; the tick never exceeds [`TICK_MAX`] nor falls below the settings'; taking a
//! move back is never refused, but it is paid for.

use super::herd::Herd;
use crate::counts::Counts;
use crate::observe::Observation;
use crate::penalty::{Index, Mean, change};
use crate::sampling_budget::SmoothedMean;
use crate::time::{Moment, Span};

/// Looks are never further apart for their cost.
const TICK_MAX: Span = Span::from_ms(1_000);

/// The part by which a new look shifts the mean cost.
const COST_WEIGHT: f64 = 0.1;

/// The tick is told when it has grown by this factor.
const TOLD: f64 = 1.5;

/// The least budget: a share of nothing would ask for no look at all.
const SHARE_MIN: f64 = 1e-6;

/// The time between two looks.
#[derive(Debug)]
pub(super) struct SampleInterval {
    interval: Span,
    budget: f64,
    /// Seconds of CPU time of a look.
    cost: SmoothedMean,
    looks: u32,
    said: Span,
}

impl SampleInterval {
    pub(super) fn new(interval: Span, budget: f64) -> Self {
        // A clock that stands still is no way to look.
        let interval = interval.max(Span::from_us(1));
        let cost = SmoothedMean::new(COST_WEIGHT).averaging_first();
        Self { interval, budget, cost, looks: 0, said: interval }
    }

    /// Takes in what the look before cost. True when the tick is much longer than was last told.
    pub(super) fn look(&mut self, seen: &Observation<'_>) -> bool {
        let Some(cost) = seen.cost else { return false };
        self.looks = self.looks.saturating_add(1);
        // The first look opens everything.
        if self.looks > 1 {
            self.cost.add(cost.seconds());
        }
        let longer = self.looks > 10 && self.tick().seconds() > TOLD * self.said.seconds();
        if longer {
            self.said = self.tick();
        }
        longer
    }

    /// The time to the next look.
    pub(super) fn tick(&self) -> Span {
        let needed = self.cost.get().map_or(0.0, |cost| cost / self.budget.max(SHARE_MIN));
        let needed = Span((needed * 1e9) as u64).min(TICK_MAX);
        needed.max(self.interval)
    }
}

/// Moves that may be made.
#[derive(Debug)]
pub(super) struct Moves {
    /// As asked for; `None` for as many as there are threads to move.
    asked: Option<f64>,
    rate: f64,
    left: f64,
    at: Moment,
}

impl Moves {
    /// An exchange and its taking back always fit, where anybody may be moved at all.
    const LEAST: f64 = 4.0;

    /// So many are allowed at least where nothing was asked for.
    const USUAL: f64 = 10.0;

    pub(super) fn new(asked: Option<f64>) -> Self {
        let rate = asked.unwrap_or(Self::USUAL).max(0.0);
        let mut moves = Self { asked, rate, left: 0.0, at: Moment::default() };
        moves.left = moves.most();
        moves
    }

    fn most(&self) -> f64 {
        if self.rate > 0.0 { self.rate.max(Self::LEAST) } else { 0.0 }
    }

    /// Time passes. There are so many threads that may be moved.
    pub(super) fn fill(&mut self, at: Moment, candidates: usize) {
        self.rate = self.asked.unwrap_or(Self::USUAL.max(candidates as f64)).max(0.0);
        self.left = (self.left + self.rate * at.since(self.at).seconds()).min(self.most());
        self.at = at;
    }

    /// Whether so many moves may be made, and be taken back.
    pub(super) fn allow(&self, moves: usize) -> bool {
        self.left >= 2.0 * moves as f64
    }

    /// So many were paid for and not made.
    pub(super) fn give_back(&mut self, moves: usize) {
        self.left = (self.left + moves as f64).min(self.most());
    }

    /// So many were made.
    pub(super) fn spend(&mut self, moves: usize) {
        self.left -= moves as f64;
    }
}

/// For how long moving may bring nothing, and for how long it is then let be: that doubles each time.
const VAIN: Span = Span::from_ms(60_000);
const DOUBLINGS: u32 = 6;

/// Less than this part is no gain, if all were moved: what two seconds differ by without a cause.
const GAIN: f64 = 0.02;

/// By what factor the requests of an instruction must have changed for a thread to do something else than before: placement leaves them
/// as they are, since private caches are private.
const ANOTHER: f64 = 1.5;

/// Whether all of it brings anything.
#[derive(Debug, Default)]
pub(super) struct Gain {
    since: Option<Moment>,
    rests: Option<Moment>,
    failures: u32,
    kept: bool,
}

impl Gain {
    /// A move was made.
    pub(super) fn moved(&mut self, at: Moment) {
        self.since.get_or_insert(at);
    }

    /// A move was kept.
    pub(super) fn kept(&mut self) {
        self.kept = true;
    }

    /// Whether it is let be now. True in the second place when it just was long enough.
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

    /// Whether a minute of moving brought nothing: then it is let be.
    pub(super) fn vain(
        &mut self,
        herd: &mut Herd,
        index: Index,
        mean: Mean,
        touched: usize,
        at: Moment,
    ) -> bool {
        let Some(since) = self.since.filter(|since| at.since(*since) >= VAIN) else { return false };
        for book in herd.books.values_mut() {
            // Who does something else now is no measure for what moving did.
            if book.first.as_ref().zip(book.second.as_ref()).is_some_and(|(then, now)| another(then, now)) {
                book.first = None;
            }
        }
        let both = herd.books.values().filter_map(|book| book.first.as_ref().zip(book.second.as_ref()));
        let known = both.clone().count();
        // Most of those who are there now were not there then, or did something else: from now on it is compared with now.
        let changed = 2 * known < herd.books.values().filter(|book| book.second.is_some()).count();
        let ratio = change(index, mean, both);
        herd.books.values_mut().filter(|book| book.first.is_none()).for_each(|book| book.first = book.second);
        self.since = Some(at.max(since));
        if self.kept && (changed || ratio.is_none()) {
            herd.books.values_mut().for_each(|book| book.first = book.second);
            return false;
        }
        // One of many who is better off makes all better by little.
        let touched = touched as f64 / (known as f64).max(1.0);
        if self.kept && ratio.is_some_and(|ratio| 1.0 - ratio > GAIN * touched.min(1.0)) {
            self.failures = 0;
            return false;
        }
        self.rests = Some(at + VAIN.times(f64::from(1_u32 << self.failures.min(DOUBLINGS))));
        self.failures += 1;
        true
    }
}

/// Whether a thread does something else now.
fn another(then: &Counts, now: &Counts) -> bool {
    let often = |counts: &Counts| {
        let requests = counts.requests.or(counts.llc_lookups)? as f64;
        counts.instructions.filter(|instructions| *instructions > 0).map(|all| requests / all as f64)
    };
    often(then).zip(often(now)).is_some_and(|(then, now)| {
        let (least, most) = (then.min(now), then.max(now));
        most > ANOTHER * least
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::set::CpuSet;

    #[test]
    fn the_tick_follows_what_looks_cost() {
        let mut pace = SampleInterval::new(Span::from_ms(10), 0.01);
        let mut observer = Observer::new(CpuSet::default());
        let mut look = |pace: &mut SampleInterval, cost: Option<Span>| {
            observer.take(&Sample { at: Moment(1), cost, ..Sample::default() }, &[]);
            pace.look(&observer.observation())
        };
        assert!(!look(&mut pace, None));
        assert_eq!(pace.tick(), Span::from_ms(10));
        look(&mut pace, Some(Span::from_ms(500)));
        assert_eq!(pace.tick(), Span::from_ms(10), "the first opens everything");
        let told = (0..200).filter(|_| look(&mut pace, Some(Span::from_us(400)))).count();
        let tick = pace.tick().seconds();
        assert!((tick - 0.04).abs() < 1e-4, "{tick}");
        assert_eq!(told, 1);
        (0..200).for_each(|_| {
            look(&mut pace, Some(Span::from_us(10)));
        });
        assert_eq!(pace.tick(), Span::from_ms(10));
        (0..200).for_each(|_| {
            look(&mut pace, Some(Span::from_ms(900)));
        });
        assert_eq!(pace.tick(), TICK_MAX);
    }

    #[test]
    fn who_makes_other_requests_does_something_else() {
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
        let mut moves = Moves::new(Some(10.0));
        let mut made = 0;
        for ms in (0..10_000).step_by(10) {
            moves.fill(Moment(ms * 1_000_000), 500);
            if moves.allow(2) {
                moves.spend(4);
                made += 4;
            }
        }
        assert!((96..=112).contains(&made), "{made}");
        // As many as there are threads, where nothing else was asked for.
        let mut usual = Moves::new(None);
        usual.fill(Moment(1_000_000_000), 40);
        (0..10).for_each(|_| usual.spend(4));
        assert!(!usual.allow(1), "ten were saved up, and forty a second came");
        usual.fill(Moment(2_000_000_000), 40);
        assert!(usual.allow(1));
        // None at all is none, also to begin with.
        let mut none = Moves::new(Some(0.0));
        assert!(!none.allow(1));
        none.fill(Moment(u64::MAX), 40);
        assert!(!none.allow(1));
    }
}

//! What keeps the policies of the penalty from doing harm: how often they look, how often they move, and whether it brought anything.
//!
//! Unit: CPU time of whoever looks, moves a second, parts of the index. Problem: looks that read counters cost, more in a virtual machine
//! and more with more threads; moves cost whoever is moved; and a program may be one that no placement helps. Idea: the time between
//! looks follows what a look really costs; moves are drawn from a bucket that fills at a fixed rate; and once a minute what
//! all suffer is compared with what they suffered before the first move. A minute in which no move was kept was in vain by itself.
//!
//! Properties: without a host that tells costs the tick is the settings'; the tick never exceeds [`TICK_MAX`] nor falls below the settings'; taking a
//! move back is never refused, but it is paid for.

use super::herd::Herd;
use crate::observe::Observation;
use crate::penalty::{Index, Mean, change};
use crate::time::{Moment, Span};

/// Looks are never further apart for their cost.
const TICK_MAX: Span = Span::from_ms(1_000);

/// How much of its difference a new look shifts the cost.
const WEIGHT: f64 = 0.1;

/// The tick is told when it has grown by this factor.
const TOLD: f64 = 1.5;

/// The time between two looks.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Span,
    budget: f64,
    cost: Option<f64>,
    looks: u32,
    said: Span,
}

impl Pace {
    pub(super) fn new(interval: Span, budget: f64) -> Self {
        // A clock that stands still is no way to look.
        let interval = interval.max(Span::from_us(1));
        Self { interval, budget, cost: None, looks: 0, said: interval }
    }

    /// Takes in what the look before cost. True when the tick is much longer than was last told.
    pub(super) fn look(&mut self, seen: &Observation<'_>) -> bool {
        let Some(cost) = seen.cost else { return false };
        self.looks = self.looks.saturating_add(1);
        // The first look opens everything.
        if self.looks > 1 {
            let cost = cost.seconds();
            let weight = (1.0 / f64::from(self.looks - 1)).max(WEIGHT);
            self.cost = Some(self.cost.map_or(cost, |mean| mean + weight * (cost - mean)));
        }
        let longer = self.looks > 10 && self.tick().seconds() > TOLD * self.said.seconds();
        if longer {
            self.said = self.tick();
        }
        longer
    }

    /// The time to the next look.
    pub(super) fn tick(&self) -> Span {
        let needed = self.cost.map_or(0.0, |cost| cost / self.budget.max(1e-6));
        let needed = Span((needed * 1e9) as u64).min(TICK_MAX);
        needed.max(self.interval)
    }
}

/// Moves that may be made.
#[derive(Debug)]
pub(super) struct Moves {
    rate: f64,
    left: f64,
    at: Moment,
}

impl Moves {
    /// An exchange and its taking back always fit.
    const LEAST: f64 = 4.0;

    pub(super) fn new(rate: f64) -> Self {
        Self { rate: rate.max(0.0), left: rate.max(Self::LEAST), at: Moment::default() }
    }

    /// Time passes.
    pub(super) fn fill(&mut self, at: Moment) {
        let most = self.rate.max(Self::LEAST);
        self.left = (self.left + self.rate * at.since(self.at).seconds()).min(most);
        self.at = at;
    }

    /// Whether so many moves may be made, and be taken back.
    pub(super) fn allow(&self, moves: usize) -> bool {
        self.left >= 2.0 * moves as f64
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
    pub(super) fn vain(&mut self, herd: &mut Herd, index: Index, mean: Mean, at: Moment) -> bool {
        let Some(since) = self.since.filter(|since| at.since(*since) >= VAIN) else { return false };
        let both = herd.books.values().filter_map(|book| book.first.as_ref().zip(book.second.as_ref()));
        let known = both.clone().count();
        // Most of those who are there now were not there then: from now on it is compared with now.
        let changed = 2 * known < herd.books.values().filter(|book| book.second.is_some()).count();
        let ratio = change(index, mean, both);
        self.since = Some(at.max(since));
        if self.kept && (changed || ratio.is_none()) {
            herd.books.values_mut().for_each(|book| book.first = book.second);
            return false;
        }
        // One of many who is better off makes all better by little.
        let touched = herd.touched() as f64 / (known as f64).max(1.0);
        if self.kept && ratio.is_some_and(|ratio| 1.0 - ratio > GAIN * touched.min(1.0)) {
            self.failures = 0;
            return false;
        }
        self.rests = Some(at + VAIN.times(f64::from(1_u32 << self.failures.min(DOUBLINGS))));
        self.failures += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::set::CpuSet;

    #[test]
    fn the_tick_follows_what_looks_cost() {
        let mut pace = Pace::new(Span::from_ms(10), 0.01);
        let mut observer = Observer::new(CpuSet::default());
        let mut look = |pace: &mut Pace, cost: Option<Span>| {
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
    fn moves_come_at_their_rate() {
        let mut moves = Moves::new(10.0);
        let mut made = 0;
        for ms in (0..10_000).step_by(10) {
            moves.fill(Moment(ms * 1_000_000));
            if moves.allow(2) {
                moves.spend(4);
                made += 4;
            }
        }
        assert!((96..=112).contains(&made), "{made}");
        let mut none = Moves::new(0.0);
        none.fill(Moment(u64::MAX));
        none.spend(4);
        none.fill(Moment(u64::MAX));
        assert!(!none.allow(1));
    }
}

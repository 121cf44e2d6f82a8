//! Counter budget: how often hardware counters run, given their cost on this machine.
//!
//! Unit: time of a CPU. Problem: on bare hardware a counter costs a fraction of a microsecond each
//! time its thread is put on a CPU or taken off it. In a virtual machine with emulated counters
//! each of these costs some dozens of microseconds. The counted thread pays this, and no
//! measurement of the sampling process shows it. Idea: measure the cost of switching counters on
//! and off once, and compute from then on: number of switches times price, over time run, is the
//! slowdown of the counted threads. Counting that is too expensive is first reduced, then stopped.
//! If the counted threads pay too much, counters *rest*: they run during one tick in `one_in`, and
//! are switched off in between. If only the sampling process's reading is too expensive, counters
//! run on and are read less often: no counts are lost, and switching them would be two more calls
//! for each reading saved.
//!
//! Terms: a *tick* is the time between two readings of counters. Counters are *trapped* if a
//! hypervisor handles each access to them.
//!
//! Costs are judged over whole turns of counters that rest: a part of a turn contains the whole
//! cost or none of it.
//!
//! Properties: the module is pure. A thrift never asks for more than its price allows. Reducing
//! ends. A constant cost leads to one constant rate of counting, if any rate is cheap enough.
//!
//! Measured: emulated counters of a Zen 3 guest, disable and enable: 26 us with one counter, 92 us
//! with two, 313 us with four; a context switch with them 30, 72 and 232 us, against 3.5 us
//! without.

use crate::sampling_budget::{READING_COUNTERS, SLOWING_COUNTED};
use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};

/// Two counters that take longer than this to be switched off and on are trapped. Chosen: between
/// bare hardware and the guest above.
const TRAPPED_SWITCH_MIN: Span = Span::from_us(20);
/// Counters run during one tick in this number at the least; a thread that would need thinner
/// counting is not counted. Chosen: with ticks of 50 ms each thread is still seen every two
/// seconds.
const ONE_IN_MAX: u32 = 40;
/// Share of the allowed cost below which both costs must fall before counting becomes denser.
/// Chosen: less than half, so that the cost stays below the limit.
const DENSER_COST_SHARE: f64 = 0.25;
/// Shortest time over which costs are judged.
const JUDGED_SPAN_MIN: Span = Span::from_ms(1_000);

/// Cost of counting on this machine, as measured on a thread of the sampling process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Price {
    /// Time to read the counters of a running thread.
    pub read: Span,
    /// Time to switch one counter off and on.
    pub one: Span,
    /// Time to switch two counters off and on together.
    pub two: Span,
}

impl Price {
    /// Returns whether a hypervisor handles each access to the counters.
    pub fn is_trapped(&self) -> bool {
        self.two > TRAPPED_SWITCH_MIN
    }
}

/// Limits on counting that keep it cheap.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CounterThrottle {
    /// Number of counters together, at most; `None` for no limit.
    pub counters: Option<u32>,
    /// Shortest time between two readings of the counters.
    pub every: Span,
    /// Counters run during one tick in this number, or are read once in this number of ticks.
    pub one_in: u32,
    /// Whether counters are switched off in between; otherwise they are only read less often.
    pub rests: bool,
    /// Context switches per second above which a thread is not counted.
    pub switches_max: Option<f64>,
}

impl CounterThrottle {
    /// Limits for counters that cost next to nothing.
    pub const FREE: Self =
        Self { counters: None, every: Span::from_ms(10), one_in: 1, rests: false, switches_max: None };
    /// Limits for trapped counters.
    pub const TRAPPED: Self = Self {
        counters: Some(2),
        every: Span::from_ms(50),
        one_in: 5,
        rests: true,
        switches_max: Some(500.0),
    };

    /// Returns the limits for a price; without a price, those of the most expensive counters.
    pub fn of(price: Option<&Price>) -> Self {
        match price {
            Some(price) if !price.is_trapped() => Self::FREE,
            _ => Self::TRAPPED,
        }
    }

    /// Returns how long counters run before they are read.
    fn tick(&self) -> Span {
        if self.rests { self.every } else { Span(self.every.0.saturating_mul(u64::from(self.one_in))) }
    }

    /// Returns whether a thread with this number of context switches per second may be counted.
    pub fn counts(&self, switches: Option<f64>) -> bool {
        match (self.switches_max, switches) {
            (Some(most), Some(switches)) => switches <= most,
            _ => true,
        }
    }
}

/// State of counters that may rest: running or resting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterActivity {
    /// Counters run; they were switched on, or last read, at this moment.
    On(Moment),
    /// Counters rest; they are switched on at this moment or later.
    Off(Moment),
}

/// Actions on counters at one sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CounterActions {
    /// Counters are read.
    pub reads: bool,
    /// Counters are switched on.
    pub begins: bool,
    /// Counters are switched off, after they were read.
    pub ends: bool,
    /// Counters run after this sample.
    pub runs: bool,
}

impl CounterActivity {
    /// Returns the actions at this moment, and advances the state.
    pub fn beat(&mut self, at: Moment, thrift: &CounterThrottle) -> CounterActions {
        match *self {
            Self::On(since) if at.since(since) < thrift.tick() => {
                CounterActions { runs: true, ..CounterActions::default() }
            }
            Self::On(_) if !thrift.rests || thrift.one_in <= 1 => {
                *self = Self::On(at);
                CounterActions { reads: true, runs: true, ..CounterActions::default() }
            }
            Self::On(since) => {
                // Samples may be further apart than requested: the pause is in proportion to the
                // time that counters actually ran.
                let pause = at.since(since).0.saturating_mul(u64::from(thrift.one_in - 1));
                *self = Self::Off(at + Span(pause));
                CounterActions { reads: true, ends: true, ..CounterActions::default() }
            }
            Self::Off(until) if at < until => CounterActions::default(),
            Self::Off(_) => {
                *self = Self::On(at);
                CounterActions { begins: true, runs: true, ..CounterActions::default() }
            }
        }
    }
}

/// Cost of counting over some time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    /// Length of that time.
    pub span: Span,
    /// CPU time for opening, switching and reading counters.
    pub reading: Span,
    /// Number of times that the counted threads were put on a CPU while their counters ran.
    pub switches: u64,
    /// CPU time of these threads, counted or not.
    pub ran: Span,
}

impl Spent {
    /// Returns whether the cost can be judged after the actions of a sample: one or several whole
    /// turns have passed.
    pub fn is_due(&self, beat: &CounterActions, now: &CounterThrottle) -> bool {
        let turned = if now.rests { beat.begins } else { beat.reads };
        self.span >= JUDGED_SPAN_MIN && (now.one_in <= 1 || turned)
    }

    /// Returns the share of one CPU that the sampling process's own work took.
    pub fn reading_share(&self) -> Option<f64> {
        self.reading.share_of(self.span)
    }

    /// Returns the slowdown of the counted threads, computed from a price.
    pub fn slowing(&self, price: &Price) -> Option<f64> {
        (self.ran > Span::ZERO).then(|| self.switches as f64 * price.two.0 as f64 / self.ran.0 as f64)
    }
}

/// Change of counting after a judgement of its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountingChange {
    /// Counting stays as it is.
    Keep,
    /// Counting becomes thinner, or denser again.
    Thin {
        /// New value of [`CounterThrottle::one_in`].
        one_in: u32,
        /// New value of [`CounterThrottle::rests`].
        rests: bool,
    },
    /// Even the thinnest counting is too expensive: hardware is no longer counted.
    GiveUp,
}

/// Judges the cost; `None` while the time is too short for a judgement.
pub fn judge(spent: &Spent, price: &Price, now: &CounterThrottle) -> Option<CountingChange> {
    if spent.span < JUDGED_SPAN_MIN {
        return None;
    }
    // A missing cost counts as zero.
    let reading = READING_COUNTERS.times_spent(spent.reading_share().unwrap_or(0.0));
    let slowing = SLOWING_COUNTED.times_spent(spent.slowing(price).unwrap_or(0.0));
    let worst = reading.max(slowing);
    let least = CounterThrottle::of(Some(price)).one_in;
    // Reading less often saves the counted threads nothing.
    let rests = now.rests || slowing > 1.0;
    Some(if worst > 1.0 && now.one_in >= ONE_IN_MAX {
        CountingChange::GiveUp
    } else if worst > 1.0 {
        CountingChange::Thin { one_in: now.one_in.saturating_mul(2).min(ONE_IN_MAX), rests }
    } else if worst < DENSER_COST_SHARE && now.one_in > least {
        let one_in = (now.one_in / 2).max(least);
        CountingChange::Thin { one_in, rests: rests && one_in > 1 }
    } else {
        CountingChange::Keep
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BARE: Price = Price { read: Span(800), one: Span(900), two: Span(1_200) };
    const GUEST: Price = Price { read: Span(20_000), one: Span(26_000), two: Span(92_000) };

    fn second(reading: u64, switches: u64, ran: u64) -> Spent {
        Spent { span: JUDGED_SPAN_MIN, reading: Span::from_us(reading), switches, ran: Span::from_ms(ran) }
    }

    #[test]
    fn trapped_counters_are_used_two_at_a_time_slowly_and_now_and_then() {
        assert!(!BARE.is_trapped() && GUEST.is_trapped());
        assert_eq!(CounterThrottle::of(Some(&BARE)), CounterThrottle::FREE);
        assert_eq!(CounterThrottle::of(Some(&GUEST)), CounterThrottle::TRAPPED);
        assert_eq!(CounterThrottle::of(None), CounterThrottle::TRAPPED, "unknown is not cheap");
        assert!(
            CounterThrottle::TRAPPED.counts(Some(500.0)) && !CounterThrottle::TRAPPED.counts(Some(501.0))
        );
        assert!(CounterThrottle::FREE.counts(Some(1e6)) && CounterThrottle::TRAPPED.counts(None));
    }

    #[test]
    fn expensive_counting_is_reduced_and_then_stopped() {
        assert_eq!(judge(&Spent { span: Span(1), ..Spent::default() }, &BARE, &CounterThrottle::FREE), None);
        assert_eq!(
            judge(&second(1_000, 100, 1_000), &BARE, &CounterThrottle::FREE),
            Some(CountingChange::Keep)
        );
        // Six milliseconds of reading in a second.
        assert_eq!(
            judge(&second(6_000, 0, 1_000), &BARE, &CounterThrottle::FREE),
            Some(CountingChange::Thin { one_in: 2, rests: false })
        );
        // 200 switches at 92 us in a second of running: 1.8 %.
        let slow = second(0, 200, 1_000);
        assert!((slow.slowing(&GUEST).unwrap() - 0.0184).abs() < 1e-9);
        assert_eq!(
            judge(&slow, &GUEST, &CounterThrottle::TRAPPED),
            Some(CountingChange::Thin { one_in: 10, rests: true })
        );
        assert_eq!(
            judge(&slow, &GUEST, &CounterThrottle::FREE),
            Some(CountingChange::Thin { one_in: 2, rests: true })
        );
        let last = CounterThrottle { one_in: ONE_IN_MAX, ..CounterThrottle::TRAPPED };
        assert_eq!(judge(&slow, &GUEST, &last), Some(CountingChange::GiveUp));
        // No thread ran, so none was slowed.
        assert_eq!(judge(&second(0, 9, 0), &GUEST, &CounterThrottle::TRAPPED), Some(CountingChange::Keep));
    }

    #[test]
    fn counting_that_became_cheap_increases_up_to_its_price() {
        let calm = second(100, 1, 1_000);
        let at = |one_in| CounterThrottle { one_in, ..CounterThrottle::TRAPPED };
        let thin = |one_in, rests| Some(CountingChange::Thin { one_in, rests });
        assert_eq!(judge(&calm, &GUEST, &at(40)), thin(20, true));
        assert_eq!(judge(&calm, &GUEST, &at(6)), thin(5, true));
        assert_eq!(judge(&calm, &GUEST, &at(5)), Some(CountingChange::Keep));
        assert_eq!(
            judge(&calm, &BARE, &CounterThrottle { one_in: 2, ..CounterThrottle::FREE }),
            thin(1, false)
        );
        assert_eq!(
            judge(&calm, &BARE, &CounterThrottle { one_in: 2, rests: true, ..CounterThrottle::FREE }),
            thin(1, false)
        );
    }

    #[test]
    fn counters_that_do_not_rest_are_read_less_often_and_never_switched() {
        let (mut duty, thrift) =
            (CounterActivity::Off(Moment(0)), CounterThrottle { one_in: 8, ..CounterThrottle::FREE });
        let beats: Vec<CounterActions> =
            (0..161u64).map(|look| duty.beat(Moment(look * 10_000_000), &thrift)).collect();
        assert!(beats[0].begins && beats.iter().skip(1).all(|beat| beat.runs && !beat.ends && !beat.begins));
        assert_eq!(beats.iter().filter(|beat| beat.reads).count(), 20, "every eighth");
        // Whole turns are judged: from one reading to the next.
        let spent = second(0, 0, 1);
        let due = |at: usize| spent.is_due(&beats[at], &thrift);
        assert_eq!((due(15), due(16), due(17)), (false, true, false));
        // Counters that rested begin as soon as the moment has come.
        let mut duty = CounterActivity::Off(Moment(5));
        assert!(!duty.beat(Moment(4), &thrift).runs && duty.beat(Moment(5), &thrift).begins);
    }

    #[test]
    fn counters_that_are_always_on_are_read_as_often_as_asked() {
        let mut duty = CounterActivity::Off(Moment(0));
        let looks = (0..100u64).map(|look| duty.beat(Moment(look * 4_000_000), &CounterThrottle::FREE));
        let beats: Vec<CounterActions> = looks.collect();
        assert!(beats[0].begins && beats.iter().all(|beat| beat.runs && !beat.ends));
        assert_eq!(beats.iter().filter(|beat| beat.reads).count(), 33, "every third, 12 ms apart");
    }

    proptest! {
        #[test]
        fn counters_run_for_their_part_of_the_time_and_are_read_before_they_stop(
            gaps in prop::collection::vec(1u64..300, 200..400), one_in in 2u32..40,
        ) {
            let thrift = CounterThrottle { one_in, ..CounterThrottle::TRAPPED };
            let (mut duty, mut at, mut on, mut ran) = (CounterActivity::Off(Moment(0)), Moment(0), false, Span::ZERO);
            for gap in gaps {
                let beat = duty.beat(at, &thrift);
                prop_assert_eq!((beat.begins && on) || (beat.ends && !on), false);
                prop_assert!(beat.reads == beat.ends && (!beat.reads || on));
                on = beat.runs;
                ran = ran + if on { Span::from_ms(gap) } else { Span::ZERO };
                at = at + Span::from_ms(gap);
            }
            // Counters may run one stretch ahead of their part.
            let share = ran.less(Span::from_ms(600)).share_of(Span(at.0)).unwrap_or(0.0);
            prop_assert!(share <= 1.0 / f64::from(one_in) + 1e-9, "{} of one in {}", share, one_in);
        }

        #[test]
        fn a_cost_that_stays_the_same_is_borne_at_one_thinness_or_not_at_all(
            // Switches in a millisecond of running; at 92 us each, some forty of these are within
            // the last limit.
            rate in 0.0f64..8.0, looks in 10u64..120,
        ) {
            let mut thrift = CounterThrottle::TRAPPED;
            let (mut duty, mut on, mut spent, mut from) = (CounterActivity::Off(Moment(0)), false, Spent::default(), Moment(0));
            let (mut thinned, mut given_up) = (Vec::new(), false);
            for look in 1..40_000u64 {
                let (at, tick) = (Moment(look * looks * 1_000_000), Span::from_ms(looks));
                spent.ran = spent.ran + tick;
                spent.switches += if on { (rate * looks as f64) as u64 } else { 0 };
                let beat = duty.beat(at, &thrift);
                on = beat.runs;
                spent.span = at.since(from);
                if spent.is_due(&beat, &thrift) {
                    match judge(&spent, &GUEST, &thrift) {
                        Some(CountingChange::GiveUp) => { given_up = true; break }
                        Some(CountingChange::Thin { one_in, rests }) => {
                            thrift = CounterThrottle { one_in, rests, ..thrift };
                            thinned.push(one_in);
                        }
                        _ => {}
                    }
                    (spent, from) = (Spent::default(), at);
                }
            }
            let always = (rate * looks as f64).floor() / looks as f64 * 92_000.0 / 1e6 / SLOWING_COUNTED.as_share();
            let least = 1.0 / f64::from(ONE_IN_MAX);
            prop_assert!(thinned.is_sorted() && thinned.len() < 8, "{:?}", thinned);
            if always * least < 0.95 {
                prop_assert!(!given_up, "{} of what may be, one in forty: {:?}", always * least, thinned);
                prop_assert!(always / f64::from(thrift.one_in) <= 1.05, "{} one in {}", always, thrift.one_in);
            } else if always * least > 1.05 {
                prop_assert!(given_up, "{} of what may be, one in forty: {:?}", always * least, thinned);
            }
        }

        #[test]
        fn thinning_out_ends(reading in 0u64..1_000_000, switches in 0u64..1_000_000, ran in 0u64..10_000) {
            let spent = second(reading, switches, ran);
            let mut thrift = CounterThrottle::of(Some(&GUEST));
            let mut looks = 0;
            while let Some(CountingChange::Thin { one_in, .. }) = judge(&spent, &GUEST, &thrift) {
                prop_assert!((CounterThrottle::TRAPPED.one_in..=ONE_IN_MAX).contains(&one_in));
                thrift.one_in = one_in;
                looks += 1;
                prop_assert!(looks < 10);
            }
        }
    }
}

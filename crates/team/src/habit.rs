//! How long to spin before a wait gives its processor away: learnt from the waits that went past it.
//!
//! **Problem.** While everybody is in step a spin of a few microseconds is enough; where a rank has no processor every spin is in vain. And there
//! is a trap between: one rank slept once, is woken by the other, which by then sleeps itself, since a wake-up takes longer than its spin; so
//! they wake each other in turn for ever, a hundred times slower than they could. Wake-ups take 5 us on one machine and 200 us in a guest of a
//! busy host.
//!
//! **Idea.** A spin is usually as long as a usual wake-up. Waits that are over soon after the sleep began are signs of the trap with wake-ups that
//! are longer: every few of them one spins for twice as long as the last took, and both are in step again. Each such try makes the next half
//! as frequent; being in step makes them as frequent as at first. Waits that took longer than any wake-up, or whom tries did not help, make
//! spins short, since somebody works or has no processor.
//!
//! **Properties.** Pure: time is an argument. Who waits for somebody that works spins for a few hundredths of that time in the long run (tested).

use std::time::{Duration, Instant};

/// So many waits in a row that spinning did not help make it short.
const FUTILE: u32 = 4;
/// How short.
const SHORT: u32 = 16;
/// A wait that took longer was not for a wake-up.
const BRIEF: Duration = Duration::from_millis(1);
/// Every so many waits that slept, and were brief, one spins past a wake-up, at first, ...
const OFTEN: u32 = 4;
/// ... and at last, after many tries.
const SELDOM: u32 = 256;
/// Who was not heard of for so many brief waits was in step meanwhile.
const IN_STEP: u32 = 20;

/// How long the next waits spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spin {
    /// Each of them.
    pub each: Duration,
    /// And beyond that the next one that needs it.
    pub once: Duration,
}

/// What is known of waits.
#[derive(Debug, Clone)]
pub struct Habit {
    full: Duration,
    /// Sleeps in a row that were not for a wake-up.
    futile: u32,
    /// Brief waits until one spins past them.
    due: u32,
    every: u32,
    last: Option<Instant>,
}

impl Habit {
    /// Of a rank that spins for so long as long as all is well.
    pub fn new(full: Duration) -> Self {
        Self { full, futile: 0, due: OFTEN, every: OFTEN, last: None }
    }

    /// How long to spin after a wait that was longer than its spin: it took so long in all until now, and slept or not.
    pub fn after(&mut self, slept: bool, waited: Duration, now: Instant) -> Spin {
        let last = self.last.replace(now);
        let full = Spin { each: self.full, once: Duration::ZERO };
        if !slept {
            self.futile = 0;
            return full;
        }
        let mut once = Duration::ZERO;
        if waited <= BRIEF {
            if last.is_some_and(|last| now.saturating_duration_since(last) > waited * IN_STEP) {
                self.every = OFTEN;
                self.due = self.due.min(OFTEN);
            }
            self.due -= 1;
            if self.due == 0 {
                self.every = (self.every * 2).min(SELDOM);
                self.due = self.every;
                once = waited * 2;
            }
        }
        let tried = waited > BRIEF || self.every > 2 * OFTEN;
        self.futile = if tried { self.futile.saturating_add(1) } else { 0 };
        Spin { each: if self.futile >= FUTILE { self.full / SHORT } else { self.full }, once }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Duration = Duration::from_micros(60);

    fn micros(time: f64) -> Duration {
        Duration::from_secs_f64(time * 1e-6)
    }

    /// One rank in virtual time: its habit and how long it spins now.
    struct Rank {
        habit: Habit,
        spin: Spin,
        spun: Duration,
    }

    impl Rank {
        fn new() -> Self {
            Self {
                habit: Habit::new(FULL),
                spin: Spin { each: FULL, once: Duration::ZERO },
                spun: Duration::ZERO,
            }
        }

        /// Waits so long, until now. Answers whether it slept.
        fn waits(&mut self, took: Duration, now: Instant) -> bool {
            self.spun += took.min(self.spin.each);
            if took <= self.spin.each {
                return false;
            }
            let past = took - self.spin.each;
            self.spun += past.min(self.spin.once);
            let slept = past > self.spin.once;
            self.spin = self.habit.after(slept, took, now);
            slept
        }
    }

    /// Numbers between 0 and 1, from a seed.
    fn numbers(mut state: u64) -> impl FnMut() -> f64 {
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Two that answer each other in turn, each after some work, where who slept is there a wake-up later. One slept at first. Answers how many
    /// answers took a wake-up.
    fn answers(count: usize, work: f64, mut wake_up: impl FnMut() -> f64) -> usize {
        let mut ranks = [Rank::new(), Rank::new()];
        let (mut now, mut asleep, mut slow) = (Instant::now(), true, 0);
        for turn in 0..count {
            slow += usize::from(asleep);
            let took = micros(work + if asleep { wake_up() } else { 0.0 });
            now += took;
            asleep = ranks[turn % 2].waits(took, now);
        }
        slow
    }

    #[test]
    fn ranks_that_wake_each_other_come_into_step_again() {
        for work in [0.1, 2.0, 40.0] {
            for wake_up in [5.0, 25.0, 60.0, 150.0, 400.0, 900.0] {
                let slow = answers(100_000, work, || wake_up);
                assert!(slow <= 4 * OFTEN as usize, "{slow} of wake-ups of {wake_up} us, work of {work} us");
            }
        }
    }

    #[test]
    fn wake_ups_of_many_lengths_do_not_keep_them_apart() {
        for seed in 0..20 {
            let mut random = numbers(seed);
            let slow = answers(100_000, 0.1, || 30.0 + 200.0 * random());
            assert!(slow <= 4 * OFTEN as usize, "{slow}, seed {seed}");
        }
    }

    #[test]
    fn who_waits_for_somebody_that_works_spins_in_vain_for_little() {
        for works in [150.0, 300.0, 990.0, 2_000.0, 50_000.0] {
            for seed in 0..5 {
                let (mut rank, mut random) = (Rank::new(), numbers(seed));
                let (mut now, mut waited) = (Instant::now(), Duration::ZERO);
                for _ in 0..20_000 {
                    let took = micros(works * (0.7 + 2.0 * random()));
                    now += took;
                    waited += took;
                    rank.waits(took, now);
                }
                let share = rank.spun.as_secs_f64() / waited.as_secs_f64();
                assert!(share <= 0.05, "{share} of waits of {works} us, seed {seed}");
            }
        }
    }

    #[test]
    fn who_was_in_step_for_long_is_helped_as_soon_as_at_first() {
        let (mut habit, mut now, brief) = (Habit::new(FULL), Instant::now(), micros(200.0));
        for _ in 0..10_000 {
            now += brief;
            habit.after(true, brief, now);
        }
        now += brief * 2 * IN_STEP;
        let tries = (1..).find(|_| {
            now += brief;
            !habit.after(true, brief, now).once.is_zero()
        });
        assert!(tries.is_some_and(|tries| tries <= OFTEN), "{tries:?}");
    }

    #[test]
    fn a_wait_that_did_not_sleep_gives_the_full_spin_back() {
        let (mut habit, now) = (Habit::new(FULL), Instant::now());
        let long = Duration::from_millis(20);
        let spins: Vec<_> = (0..FUTILE).map(|_| habit.after(true, long, now).each).collect();
        assert_eq!(spins, [FULL, FULL, FULL, FULL / SHORT]);
        assert_eq!(habit.after(false, micros(70.0), now).each, FULL);
    }
}

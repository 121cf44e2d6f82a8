//! How long to spin before a wait gives its processor away: learnt from the waits that went past it.
//!
//! **Problem.** While everybody is in step a spin of a few microseconds is enough; where a rank has no processor every spin is in vain. And there
//! is a trap between: one rank slept once, is woken by the other, which by then sleeps itself, since a wake-up takes longer than its spin; so
//! they wake each other in turn for ever, a hundred times slower than they could. Wake-ups take 5 us on one machine and 200 us in a guest of a
//! busy host.
//!
//! A busy host makes the trap deeper: it may put the virtual processor that a wake-up is for behind the one that sent it, so that the woken one
//! runs only when the waker sleeps, too, or has worked for some milliseconds (seen under Firecracker: 55 us a call instead of 0.4, for seconds).
//!
//! **Idea.** A spin is usually longer than a wake-up. Waits that are over soon after the sleep began are signs of the trap: now and then one of
//! them is tried with a longer spin, at first twice the last wait's time, past the other's wake-up, then longer each time, up to what makes a host
//! give the other a processor of its own. Tries take a bounded share of the time, and become rare where the longest did not help either. Being in
//! step for long begins all this anew. Waits that took longer than any wake-up, or whom tries did not help, make spins short, since somebody
//! works or has no processor.
//!
//! **Properties.** Pure: time is an argument. Ranks come out of the trap within a tenth of a second, and who waits for somebody that works for longer
//! than a spin spins for a few hundredths of that time in the long run (tested).

use std::time::{Duration, Instant};

/// So many waits in a row that spinning did not help make it short.
const FUTILE: u32 = 4;
/// How short: some microseconds.
const SHORT: u32 = 512;
/// A wait that took longer was not for a wake-up.
const BRIEF: Duration = Duration::from_millis(1);
/// The longest try: some ticks of a host's kernel, after which it has seen that two work where one can.
const LONGEST: Duration = Duration::from_millis(10);
/// Each try is so many times as long as the one before.
const GROWTH: u32 = 4;
/// Between tries is so many times as much waiting as the next takes, ...
const BETWEEN: u32 = 2;
/// ... and at last, after many of the longest, so many times that.
const SELDOM: u32 = 256;
/// After so many tries waits that sleep are held for somebody's work.
const TRIED: u32 = 4;
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
    /// Tries since ranks were in step.
    tries: u32,
    /// What was granted last beyond each spin.
    once: Duration,
    /// Brief waits since then, in all.
    waited: Duration,
    last: Option<Instant>,
}

impl Habit {
    /// Of a rank that spins for so long as long as all is well.
    pub fn new(full: Duration) -> Self {
        Self { full, futile: 0, tries: 0, once: Duration::ZERO, waited: Duration::ZERO, last: None }
    }

    /// How long to spin after a wait that was longer than its spin: it took so long in all until now, and slept or not.
    pub fn after(&mut self, slept: bool, waited: Duration, now: Instant) -> Spin {
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.saturating_duration_since(last) > waited * IN_STEP) {
            self.tries = 0;
        }
        // A try that was in vain is part of the wait.
        let without = waited.saturating_sub(std::mem::take(&mut self.once));
        if !slept {
            self.futile = 0;
            return Spin { each: self.full, once: Duration::ZERO };
        }
        let brief = without <= BRIEF;
        if brief {
            self.waited += without;
            let (next, between) = self.next(without);
            if self.waited >= between {
                self.waited = Duration::ZERO;
                self.tries += 1;
                self.once = next;
            }
        }
        self.futile = if brief && self.tries < TRIED { 0 } else { self.futile.saturating_add(1) };
        let each = if self.futile >= FUTILE { self.full / SHORT } else { self.full };
        Spin { each, once: self.once }
    }

    /// How long the next try is, after waits like this, and how much is waited before it.
    fn next(&self, wait: Duration) -> (Duration, Duration) {
        let wished = wait.saturating_mul(2).saturating_mul(GROWTH.saturating_pow(self.tries));
        let next = wished.min(LONGEST);
        let beyond = (wished.as_secs_f64() / next.as_secs_f64().max(1e-9)).min(f64::from(SELDOM));
        (next, next.mul_f64(beyond) * BETWEEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A spin of a usual wake-up, and the one in use.
    const FULLS: [Duration; 2] = [Duration::from_micros(60), Duration::from_millis(2)];
    const FULL: Duration = FULLS[1];

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
        fn new(full: Duration) -> Self {
            Self {
                habit: Habit::new(full),
                spin: Spin { each: full, once: Duration::ZERO },
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

    /// Two that answer each other in turn, each after some work, where who slept is there a wake-up later; a host may keep whom it wakes from
    /// running until the waker sleeps or has worked for so long. One slept at first. Answers how long it takes until they wake each other no more.
    fn trapped(full: Duration, work: f64, mut wake_up: impl FnMut() -> f64, keeps: Option<f64>) -> Duration {
        let mut ranks = [Rank::new(full), Rank::new(full)];
        let (begin, mut asleep, mut kept) = (Instant::now(), true, keeps.map(micros));
        let (mut now, mut last) = (begin, begin);
        for turn in 0..200_000 {
            let rank = &mut ranks[turn % 2];
            let usual = micros(work + if asleep { wake_up() } else { 0.0 });
            let spins = rank.spin.each + if usual > rank.spin.each { rank.spin.once } else { Duration::ZERO };
            let took = match kept.filter(|_| asleep) {
                Some(keeps) if spins >= keeps => {
                    kept = None;
                    keeps
                }
                Some(_) => spins + usual,
                None => usual,
            };
            now += took;
            if asleep {
                last = now;
            }
            asleep = rank.waits(took, now);
        }
        last - begin
    }

    #[test]
    fn ranks_that_wake_each_other_come_into_step_again() {
        for full in FULLS {
            for work in [0.1, 2.0, 40.0] {
                for wake_up in [5.0, 25.0, 60.0, 150.0, 400.0, 900.0] {
                    let time = trapped(full, work, || wake_up, None);
                    assert!(
                        time <= micros(20.0 * (wake_up + work)),
                        "{time:?} of wake-ups of {wake_up} us, work of {work} us, {full:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn so_do_those_whose_host_keeps_the_woken_from_running() {
        for keeps in [200.0, 1_000.0, 4_000.0, 8_000.0] {
            for (full, most) in FULLS.into_iter().zip([40, 100]) {
                let time = trapped(full, 0.1, || 50.0, Some(keeps));
                assert!(time <= Duration::from_millis(most), "{time:?}, kept for {keeps} us, {full:?}");
            }
        }
    }

    #[test]
    fn wake_ups_of_many_lengths_do_not_keep_them_apart() {
        for seed in 0..20 {
            let mut random = numbers(seed);
            for full in FULLS {
                let time = trapped(full, 0.1, || 30.0 + 200.0 * random(), None);
                assert!(time <= Duration::from_millis(5), "{time:?}, seed {seed}, {full:?}");
            }
        }
    }

    #[test]
    fn who_waits_for_somebody_that_works_spins_in_vain_for_little() {
        let cases =
            FULLS.into_iter().zip([[150.0, 300.0, 990.0, 2_000.0], [3_000.0, 10_000.0, 50_000.0, 1e6]]);
        for (full, works) in cases.flat_map(|(full, works)| works.map(|works| (full, works))) {
            for seed in 0..5 {
                let (mut rank, mut random) = (Rank::new(full), numbers(seed));
                let (mut now, mut waited) = (Instant::now(), Duration::ZERO);
                for _ in 0..20_000 {
                    let took = micros(works * (0.7 + 2.0 * random()));
                    now += took;
                    waited += took;
                    rank.waits(took, now);
                }
                let share = rank.spun.as_secs_f64() / waited.as_secs_f64();
                assert!(share <= 0.05, "{share} of waits of {works} us, seed {seed}, {full:?}");
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
        assert!(tries.is_some_and(|tries| tries <= 2 * BETWEEN), "{tries:?}");
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

//! Adaptive length of the spin before a wait releases its CPU, derived from the waits that were
//! longer than the spin.
//!
//! **Problem.** While all ranks are in step, a spin of a few microseconds is enough; if a rank has
//! no CPU, every spin is wasted. Between the two there is a trap. One rank slept once. The other
//! rank wakes it and then sleeps itself, because the wake-up takes longer than its spin. From then
//! on they wake each other in turn, without end, and each exchange takes a hundred times as long as
//! necessary. Wake-ups take 5 us on one machine and 200 us in a guest of a busy host.
//!
//! A busy host makes the trap deeper: it may queue the vCPU that is to be woken behind the one that
//! sent the wake-up. The woken vCPU then runs only when the waking vCPU sleeps, too, or has run for
//! some milliseconds (seen under Firecracker: 55 us a call instead of 0.4, for seconds).
//!
//! **Idea.** A spin is usually longer than a wake-up. Waits that end soon after the sleep began
//! indicate the trap. At intervals one of them is tried with a longer spin: at first twice the last
//! wait's time, beyond the other rank's wake-up, then longer each time, up to a length that makes a
//! host give the other vCPU a CPU of its own. Tries take a bounded share of the time, and become
//! rare if the longest did not help either. A long time in step starts the tries again from the
//! shortest. Waits that took longer than any wake-up, or that tries did not shorten, make spins
//! short, since the other rank works or has no CPU.
//!
//! **Properties.** Pure: time is an argument. Ranks leave the trap within a tenth of a second. A
//! rank that waits for another's work of longer than a spin spends a few hundredths of that time
//! spinning in the long run (tested).

use std::time::{Duration, Instant};

/// Number of successive waits that spinning did not shorten, after which spins become short.
const FUTILE_WAITS: u32 = 4;
/// Divisor of a short spin: it leaves some microseconds.
const SHORT_DIVISOR: u32 = 512;
/// Longest wait that counts as a wake-up.
const BRIEF_WAIT: Duration = Duration::from_millis(1);
/// The longest try: some ticks of a host's kernel, after which the host has seen that two vCPUs
/// work where it had room for one.
const TRY_MAX: Duration = Duration::from_millis(10);
/// Factor between the lengths of two successive tries.
const TRY_GROWTH: u32 = 4;
/// Waiting between two tries, as a multiple of the next try's length.
const BETWEEN_FACTOR: u32 = 2;
/// Largest further factor on that waiting, reached after many of the longest tries.
const RARE_FACTOR: u32 = 256;
/// Tries after which waits that sleep are attributed to another rank's work.
const TRIES_MAX: u32 = 4;
/// A rank was in step with the others between two long waits if more than this many times the
/// length of the present wait has passed since the previous one. Its tries then begin again.
const IN_STEP_FACTOR: u32 = 20;

/// Length of the next spins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spin {
    /// Of each wait.
    pub each: Duration,
    /// In addition, of the next wait that needs it.
    pub once: Duration,
}

/// State derived from a rank's waits.
#[derive(Debug, Clone)]
pub struct AdaptiveSpin {
    full: Duration,
    /// Sleeps in a row that were not for a wake-up.
    futile: u32,
    /// Tries since the ranks were in step.
    tries: u32,
    /// Additional spin granted last.
    once: Duration,
    /// Total of brief waits since the last try.
    waited: Duration,
    last: Option<Instant>,
}

impl AdaptiveSpin {
    /// Returns the state of a rank that spins for `full` while all ranks are in step.
    pub fn new(full: Duration) -> Self {
        Self { full, futile: 0, tries: 0, once: Duration::ZERO, waited: Duration::ZERO, last: None }
    }

    /// Returns the next spin after a wait that was longer than its spin: it took `waited` in all
    /// until now, and slept or not.
    pub fn after(&mut self, slept: bool, waited: Duration, now: Instant) -> Spin {
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.saturating_duration_since(last) > waited * IN_STEP_FACTOR) {
            self.tries = 0;
        }
        // A try without success is part of the wait.
        let without = waited.saturating_sub(std::mem::take(&mut self.once));
        if !slept {
            self.futile = 0;
            return Spin { each: self.full, once: Duration::ZERO };
        }
        let brief = without <= BRIEF_WAIT;
        if brief {
            self.waited += without;
            let (next, between) = self.next(without);
            if self.waited >= between {
                self.waited = Duration::ZERO;
                self.tries += 1;
                self.once = next;
            }
        }
        self.futile = if brief && self.tries < TRIES_MAX { 0 } else { self.futile.saturating_add(1) };
        let each = if self.futile >= FUTILE_WAITS { self.full / SHORT_DIVISOR } else { self.full };
        Spin { each, once: self.once }
    }

    /// Returns the length of the next try after waits like this, and the waiting before it.
    fn next(&self, wait: Duration) -> (Duration, Duration) {
        let wanted = wait.saturating_mul(2).saturating_mul(TRY_GROWTH.saturating_pow(self.tries));
        let next = wanted.min(TRY_MAX);
        let beyond = (wanted.as_secs_f64() / next.as_secs_f64().max(1e-9)).min(f64::from(RARE_FACTOR));
        (next, next.mul_f64(beyond) * BETWEEN_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A spin of a usual wake-up, and the one in use.
    const FULL_SPINS: [Duration; 2] = [Duration::from_micros(60), Duration::from_millis(2)];
    const FULL_SPIN: Duration = FULL_SPINS[1];

    fn micros(time: f64) -> Duration {
        Duration::from_secs_f64(time * 1e-6)
    }

    /// One rank in virtual time: its state, its present spin, and the total time that it spun.
    struct Rank {
        adaptive: AdaptiveSpin,
        spin: Spin,
        spun: Duration,
    }

    impl Rank {
        fn new(full: Duration) -> Self {
            Self {
                adaptive: AdaptiveSpin::new(full),
                spin: Spin { each: full, once: Duration::ZERO },
                spun: Duration::ZERO,
            }
        }

        /// Waits for `took`, until now. Returns whether it slept.
        fn waits(&mut self, took: Duration, now: Instant) -> bool {
            self.spun += took.min(self.spin.each);
            if took <= self.spin.each {
                return false;
            }
            let past = took - self.spin.each;
            self.spun += past.min(self.spin.once);
            let slept = past > self.spin.once;
            self.spin = self.adaptive.after(slept, took, now);
            slept
        }
    }

    /// Returns numbers between 0 and 1, from a seed.
    fn numbers(mut state: u64) -> impl FnMut() -> f64 {
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Simulates two ranks that answer each other in turn, each after some work. A rank that slept
    /// continues one wake-up later. A host may keep a woken rank from running until the waker
    /// sleeps or has worked for `keeps` microseconds. One rank slept at first. Returns the time
    /// until they no longer wake each other.
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
        for full in FULL_SPINS {
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
    fn ranks_come_into_step_again_if_the_host_delays_woken_vcpus() {
        for keeps in [200.0, 1_000.0, 4_000.0, 8_000.0] {
            for (full, most) in FULL_SPINS.into_iter().zip([40, 100]) {
                let time = trapped(full, 0.1, || 50.0, Some(keeps));
                assert!(time <= Duration::from_millis(most), "{time:?}, kept for {keeps} us, {full:?}");
            }
        }
    }

    #[test]
    fn wake_ups_of_many_lengths_do_not_keep_them_apart() {
        for seed in 0..20 {
            let mut random = numbers(seed);
            for full in FULL_SPINS {
                let time = trapped(full, 0.1, || 30.0 + 200.0 * random(), None);
                assert!(time <= Duration::from_millis(5), "{time:?}, seed {seed}, {full:?}");
            }
        }
    }

    #[test]
    fn a_rank_that_waits_for_a_computing_rank_spends_little_time_spinning() {
        let cases =
            FULL_SPINS.into_iter().zip([[150.0, 300.0, 990.0, 2_000.0], [3_000.0, 10_000.0, 50_000.0, 1e6]]);
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
    fn a_rank_that_was_in_step_for_long_adapts_as_fast_as_a_new_one() {
        let (mut adaptive, mut now, brief) = (AdaptiveSpin::new(FULL_SPIN), Instant::now(), micros(200.0));
        for _ in 0..10_000 {
            now += brief;
            adaptive.after(true, brief, now);
        }
        now += brief * 2 * IN_STEP_FACTOR;
        let tries = (1..).find(|_| {
            now += brief;
            !adaptive.after(true, brief, now).once.is_zero()
        });
        assert!(tries.is_some_and(|tries| tries <= 2 * BETWEEN_FACTOR), "{tries:?}");
    }

    #[test]
    fn a_wait_that_did_not_sleep_gives_the_full_spin_back() {
        let (mut adaptive, now) = (AdaptiveSpin::new(FULL_SPIN), Instant::now());
        let long = Duration::from_millis(20);
        let spins: Vec<_> = (0..FUTILE_WAITS).map(|_| adaptive.after(true, long, now).each).collect();
        assert_eq!(spins, [FULL_SPIN, FULL_SPIN, FULL_SPIN, FULL_SPIN / SHORT_DIVISOR]);
        assert_eq!(adaptive.after(false, micros(70.0), now).each, FULL_SPIN);
    }
}

//! Waiting for a flag: spin, then yield, then sleep, and notice when it waits in vain.
//!
//! **Problem.** Spinning is 50 times faster than sleeping while everybody has a processor, and a thousand times slower when somebody
//! waits for ours. Nobody knows beforehand; a program's own threads, a quota or another program may change it at any time.
//!
//! **Idea.** A [`Patience`] begins with what occupancy says (nothing where there are more ranks than processors) and learns how long to spin
//! ([`crate::adaptive_spin`]). Long spins yield now and then: that costs nothing while nobody else wants the processor, and tells when somebody does.
//! Ranks that share processors give them to each other by yielding, several times as quick as to sleep and be woken. After some yields that came
//! back late ranks sleep at once for a multiple of that time. Who sleeps wakes up every few milliseconds to see whether those it waits for live.
//!
//! **Properties.** No rank waits longer than [`SLICE`] without looking for faults, in one wait or in many short ones of the same call; nothing
//! is asked of the clock before the first spins are over.

use crate::adaptive_spin::Habit;
use crate::flag::{Flag, Ticket, reached};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The longest sleep before faults are looked for. Longer than most kernels' ticks: a timer that is not the next to ring costs less to set.
pub const SLICE: Duration = Duration::from_millis(8);
/// How long a wait is for the flag alone where every rank has a processor: about a sleep and a wake-up.
const SPIN: Duration = Duration::from_micros(60);
/// How long it is awake in all: longer than the longest calls of some megabytes take, since a processor that has gone to sleep is 50 us away,
/// and in a guest whatever its host is busy with. OpenMP's own are awake for 3 to 200 ms, MPI for ever.
const AWAKE: Duration = Duration::from_millis(2);
/// So many spins until somebody else may have the processor, and a clock is looked at.
const UNWATCHED: u32 = 64;

/// Yields of a wait before it sleeps, where every rank has a processor, ...
const YIELDS: u32 = 4;
/// ... and where others of the team want it: some 50 us, if nobody does.
const YIELDS_CROWDED: u32 = 100;
/// A yield that takes longer went to somebody who works: ranks that wait give the processor on within microseconds, and those that work on a
/// long call mostly within less than this.
const LATE: Duration = Duration::from_millis(1);
/// So many late ones in a row, and it was not a rank that works for all.
const ROBBED: u32 = 3;
/// For so many times as long as late yields took nothing is yielded: that bounds what is lost to those who do not give it back.
const RESENT: u32 = 16;

/// How ranks wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// By occupancy, and then by what was learnt.
    #[default]
    Auto,
    /// Never sleep and never yield: for measurements, where nobody else wants the processor.
    Spin,
    /// Give the processor away, and never sleep.
    Yield,
    /// Sleep at once.
    Park,
}

/// What a rank knows of how long to spin.
#[derive(Debug)]
pub struct Patience {
    policy: Policy,
    now: Cell<u32>,
    /// What the next wait that is longer than that is awake beyond it.
    beyond: Cell<Duration>,
    /// None where nobody learns.
    habit: Option<RefCell<Habit>>,
    yields: u32,
    /// Late yields in a row, and what they took.
    late: Cell<(u32, Duration)>,
    /// Nothing is yielded before this.
    resents: Cell<Option<Instant>>,
}

impl Patience {
    /// For a policy, where `crowded` says that there are more ranks than processors for them.
    pub fn new(policy: Policy, crowded: bool) -> Self {
        let (spins, yields) = match policy {
            Policy::Auto if crowded => (0, YIELDS_CROWDED),
            Policy::Auto => (spins_in(SPIN), YIELDS),
            Policy::Spin => (u32::MAX, 0),
            Policy::Yield => (if crowded { 0 } else { spins_in(SPIN) }, u32::MAX),
            Policy::Park => (0, 0),
        };
        let learns = policy == Policy::Auto && !crowded;
        let habit = learns.then(|| RefCell::new(Habit::new(AWAKE)));
        let beyond = Cell::new(if learns { AWAKE - SPIN } else { Duration::ZERO });
        Self {
            policy,
            now: Cell::new(spins),
            beyond,
            habit,
            yields,
            late: Cell::default(),
            resents: Cell::new(None),
        }
    }

    /// The policy, for another team of the same rank.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How many looks before anything else is done.
    #[inline(always)]
    pub fn spins(&self) -> u32 {
        self.now.get()
    }

    /// For how long a wait that has gone past its first spins is awake, and how many yields come before it sleeps.
    fn awake(&self, now: Instant) -> (Duration, u32) {
        let beyond = self.beyond.take();
        if self.resents.get().is_some_and(|until| now < until) {
            return (Duration::ZERO, 0);
        }
        self.resents.set(None);
        (beyond, self.yields)
    }

    /// A yield took so long, until now. Answers whether enough were late.
    fn yielded(&self, took: Duration, now: Instant) -> bool {
        if self.policy != Policy::Auto || took <= LATE {
            self.late.take();
            return false;
        }
        let (many, lost) = self.late.take();
        let (many, lost) = (many + 1, lost + took);
        let robbed = many >= ROBBED;
        if robbed {
            self.resents.set(now.checked_add(lost * RESENT));
        } else {
            self.late.set((many, lost));
        }
        robbed
    }

    /// A wait went past its spinning, took so long in all until now, and slept or not.
    fn learn(&self, slept: bool, waited: Duration, now: Instant) {
        if let Some(habit) = &self.habit {
            let spin = habit.borrow_mut().after(slept, waited, now);
            self.now.set(spins_in(spin.each.min(SPIN)));
            self.beyond.set(spin.each.saturating_sub(SPIN) + spin.once);
        }
    }
}

/// So many pauses of this processor fill the time: they take 4 to 150 cycles, by model.
fn spins_in(time: Duration) -> u32 {
    static PAUSE: OnceLock<f64> = OnceLock::new();
    let pause = *PAUSE.get_or_init(|| {
        let batch = || {
            let begin = Instant::now();
            for _ in 0..100 {
                std::hint::spin_loop();
            }
            begin.elapsed().as_secs_f64() / 100.0
        };
        (0..5).map(|_| batch()).fold(f64::INFINITY, f64::min).max(1e-9)
    });
    (time.as_secs_f64() / pause) as u32
}

/// What goes on beyond the flag while a rank waits.
pub trait Faults {
    /// When faults were looked for last in the call that waits; if none were, this is `now`, and so is the moment at which the call began to
    /// wait in vain.
    fn looked(&self, now: Instant) -> Instant;
    /// Looks whether the wait is in vain. Asked every few milliseconds of a call's waiting.
    fn look(&self, now: Instant) -> Option<crate::Error>;
}

/// Waits beyond the first spins: in a model without a clock, since whoever is not woken has been forgotten.
#[cfg(trimtab_model)]
pub fn linger(
    flag: &Flag,
    wanted: Ticket,
    _patience: &Patience,
    private: bool,
    _faults: &dyn Faults,
) -> crate::Result<u64> {
    loop {
        let word = flag.look();
        if reached(word as Ticket, wanted) {
            return Ok(word);
        }
        sleep(flag, wanted, private);
    }
}

/// Waits beyond the first spins.
#[cfg(not(trimtab_model))]
#[cold]
#[inline(never)]
pub fn linger(
    flag: &Flag,
    wanted: Ticket,
    patience: &Patience,
    private: bool,
    faults: &dyn Faults,
) -> crate::Result<u64> {
    let begin = Instant::now();
    let mut now = begin;
    let (mut awake, mut yields) = patience.awake(now);
    let mut looked = faults.looked(now);
    let mut slept = false;
    loop {
        let word = flag.look();
        if reached(word as Ticket, wanted) {
            patience.learn(slept, now.duration_since(begin), now);
            return Ok(word);
        }
        if patience.policy == Policy::Spin {
            for _ in 0..1000 {
                if flag.is(wanted) {
                    break;
                }
                std::hint::spin_loop();
            }
            now = Instant::now();
        } else if now.duration_since(begin) < awake {
            if raised_soon(flag, wanted) {
                continue;
            }
            if gives_way(patience, &mut now) {
                (awake, yields) = (Duration::ZERO, 0);
            }
        } else if yields > 0 {
            yields -= 1;
            if gives_way(patience, &mut now) {
                yields = 0;
            }
        } else {
            slept = true;
            sleep(flag, wanted, private);
            now = Instant::now();
        }
        if now.saturating_duration_since(looked) >= SLICE / 2 {
            looked = now;
            if let Some(fault) = faults.look(now) {
                return Err(fault);
            }
        }
    }
}

/// Yields. Answers whether somebody took the processor for long.
#[cfg(not(trimtab_model))]
fn gives_way(patience: &Patience, now: &mut Instant) -> bool {
    let before = Instant::now();
    std::thread::yield_now();
    *now = Instant::now();
    patience.yielded(now.duration_since(before), *now)
}

/// Whether it is raised within some spins.
#[cfg(not(trimtab_model))]
fn raised_soon(flag: &Flag, wanted: Ticket) -> bool {
    (0..UNWATCHED).any(|_| {
        std::hint::spin_loop();
        flag.is(wanted)
    })
}

fn sleep(flag: &Flag, wanted: Ticket, private: bool) {
    flag.lie_down();
    let seen = flag.look_again() as Ticket;
    if !reached(seen, wanted) {
        kernel_wait(flag, seen, private);
    }
    flag.get_up();
}

/// Sleeps for a slice, unless the flag's word is no more what was seen.
#[cfg(not(any(trimtab_model, miri)))]
fn kernel_wait(flag: &Flag, seen: Ticket, private: bool) {
    let slice = libc::timespec { tv_sec: 0, tv_nsec: SLICE.subsec_nanos().into() };
    let operation = libc::FUTEX_WAIT | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: the word lives as long as the flag; the kernel reads it and the time, and writes nothing.
    unsafe {
        libc::syscall(libc::SYS_futex, flag.futex(), operation, seen, &raw const slice);
    }
}

/// The interpreter takes the kernel's look at half of a word for a fault of the program's.
#[cfg(miri)]
fn kernel_wait(_flag: &Flag, _seen: Ticket, _private: bool) {
    std::thread::yield_now();
}

#[cfg(trimtab_model)]
fn kernel_wait(flag: &Flag, seen: Ticket, _private: bool) {
    flag.sleep_while(seen);
}

/// Wakes all who sleep on a flag.
#[cfg(trimtab_model)]
pub fn wake(flag: &Flag, _private: bool) {
    flag.wake();
}

/// Wakes all who sleep on a flag.
#[cfg(not(trimtab_model))]
#[cold]
#[inline(never)]
pub fn wake(flag: &Flag, private: bool) {
    let operation = libc::FUTEX_WAKE | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: the kernel uses the word's address alone.
    unsafe {
        libc::syscall(libc::SYS_futex, flag.futex(), operation, i32::MAX);
    }
}

#[cfg(all(test, not(trimtab_model)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_robbed_of_yields_sleeps_for_a_multiple_of_that() {
        let patience = Patience::new(Policy::Auto, true);
        let begin = Instant::now();
        let after = |ms: u64| begin + Duration::from_millis(ms);
        let yields = |ms| patience.awake(after(ms)).1;
        let late = |took, ms| patience.yielded(Duration::from_micros(took), after(ms));
        assert_eq!(yields(0), YIELDS_CROWDED);
        // A rank of the team works for long between two that wait.
        for turn in 0..50 {
            assert!(!late(3_000, turn) && !late(3_000, turn) && !late(200, turn));
        }
        assert_eq!(yields(50), YIELDS_CROWDED);
        assert!(!late(3_000, 53) && !late(3_000, 56) && late(3_000, 59));
        assert_eq!([60, 59 + 143, 59 + 144].map(yields), [0, 0, YIELDS_CROWDED]);
    }

    #[test]
    fn who_was_told_to_yield_resents_nothing() {
        let patience = Patience::new(Policy::Yield, true);
        assert!((0..10).all(|_| !patience.yielded(Duration::from_secs(1), Instant::now())));
    }

    #[test]
    fn who_has_a_processor_is_awake_until_somebody_wants_it() {
        let patience = Patience::new(Policy::Auto, false);
        let begin = Instant::now();
        assert_eq!(patience.awake(begin), (AWAKE - SPIN, YIELDS));
        patience.learn(false, SPIN * 2, begin);
        let late = || patience.yielded(Duration::from_millis(3), begin);
        assert!(!late() && !late() && late());
        assert_eq!(patience.awake(begin), (Duration::ZERO, 0));
        patience.learn(false, SPIN * 2, begin);
        assert_eq!(patience.awake(begin + Duration::from_millis(144)), (AWAKE - SPIN, YIELDS));
    }

    #[test]
    fn who_waited_for_long_several_times_spins_for_little() {
        let (patience, now) = (Patience::new(Policy::Auto, false), Instant::now());
        let spins = patience.spins();
        for _ in 0..10 {
            patience.learn(true, AWAKE * 10, now);
        }
        assert!(patience.spins() <= spins / 8);
        assert_eq!(patience.awake(now).0, Duration::ZERO);
    }
}

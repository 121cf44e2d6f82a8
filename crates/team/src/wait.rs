//! Waiting for a flag: spin, then yield, then sleep, and detect waits that cannot end.
//!
//! **Problem.** Spinning is 50 times faster than sleeping while every rank has a CPU, and a
//! thousand times slower when another thread waits for this rank's CPU. This cannot be known
//! beforehand: the program's own threads, a quota or another program may change it at any time.
//!
//! **Idea.** A [`Patience`] begins with a spin that depends on occupancy (none if there are more
//! ranks than CPUs) and adapts the length of the spin ([`crate::adaptive_spin`]). Long spins yield
//! occasionally: a yield costs nothing while no other thread wants the CPU, and shows when one
//! does. Ranks that share CPUs give them to each other by yielding, which is several times as quick
//! as sleeping and waking. After some yields that returned late, ranks sleep at once, for a
//! multiple of the time lost. A sleeping rank wakes up every few milliseconds to check that the
//! ranks it waits for are alive.
//!
//! A program may set a hook (`Rank::set_progress`), which waiting ranks call every 20 to 100
//! microseconds, so that another library makes progress meanwhile. With a hook the first spin is
//! shorter and sleeps are cut into pieces; waits that end within the first spin never call it.
//!
//! **Properties.** No rank waits longer than [`SLEEP_MAX`] without a check for faults, in one wait
//! or in many short ones of the same call; in a team of more than 64 ranks the time grows with
//! their number, so that the checks of all ranks leave the CPUs free. The clock is not read before
//! the first spins are over.

use crate::adaptive_spin::AdaptiveSpin;
use crate::flag::{Flag, Ticket, reached};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest sleep before a check for faults in a team of up to 64 ranks. Longer than most kernels'
/// ticks: a timer that is not the next to expire costs less to set.
pub const SLEEP_MAX: Duration = Duration::from_millis(8);
/// Length of the first, uninterrupted spin if every rank has a CPU: about the time of a sleep and a
/// wake-up.
const FIRST_SPIN: Duration = Duration::from_micros(60);
/// Total time awake: longer than the longest calls of some megabytes take, since a CPU that has
/// gone to sleep is 50 us away, and in a guest as far away as the host's other work lasts. OpenMP's
/// own runtimes stay awake for 3 to 200 ms, MPI for the whole wait.
const AWAKE_MAX: Duration = Duration::from_millis(2);
/// The first spin if there is a hook: longer than the waits of ranks that are in step.
const FIRST_SPIN_HOOKED: Duration = Duration::from_micros(10);
/// Time between two calls of the hook by a rank that is awake, at first: ranks that share CPUs and
/// are in step wait for less than this, and a call of MPI's progress takes as long as a yield.
pub const PROGRESS_INTERVAL: Duration = Duration::from_micros(20);
/// Longest such time. It doubles with each call that has no work under way.
const PROGRESS_INTERVAL_MAX: Duration = Duration::from_micros(100);
/// Longest sleep between two calls of the hook: waking costs some microseconds.
pub const PROGRESS_SLEEP_MAX: Duration = Duration::from_micros(200);
/// Spins between two reads of the clock, after which another thread may have the CPU.
const SPINS_PER_YIELD: u32 = 64;

/// Yields of a wait before it sleeps, if every rank has a CPU.
const YIELDS_MAX: u32 = 4;
/// Yields of a wait before it sleeps, if other ranks of the team want the CPU: some 50 us, if none
/// does.
const YIELDS_MAX_CROWDED: u32 = 100;
/// A yield that takes longer gave the CPU to a thread that works. Waiting ranks pass the CPU on
/// within microseconds, and ranks that work on a long call mostly within less than this.
const LATE_YIELD: Duration = Duration::from_millis(1);
/// Late yields in a row after which the CPU is assumed to go to a thread outside of the team.
const LATE_YIELDS_MAX: u32 = 3;
/// Factor on the time lost to late yields: for that long nothing is yielded. This bounds the loss
/// to threads that do not give the CPU back.
const NO_YIELD_FACTOR: u32 = 16;

/// Wait policy of a rank. [`Team::set_wait`](crate::Team::set_wait) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// By occupancy, then by learning.
    #[default]
    Auto,
    /// Never sleep and never yield: for measurements in which no other thread wants the CPU.
    Spin,
    /// Yield the CPU, and never sleep.
    Yield,
    /// Sleep at once.
    Park,
}

/// A rank's state about how long to spin.
#[derive(Debug)]
pub struct Patience {
    policy: Policy,
    /// Length of the first spin of ranks that spin.
    first: Cell<Duration>,
    now: Cell<u32>,
    /// Time that the next wait stays awake beyond its first spins.
    beyond: Cell<Duration>,
    /// `None` if nothing is learnt.
    adaptive: RefCell<Option<AdaptiveSpin>>,
    yields: Cell<u32>,
    /// Number of late yields in a row, and the time lost to them.
    late: Cell<(u32, Duration)>,
    /// Nothing is yielded before this moment.
    no_yield_before: Cell<Option<Instant>>,
}

impl Patience {
    /// Returns the patience for a policy; `crowded`: whether there are more ranks than CPUs for
    /// them.
    pub fn new(policy: Policy, crowded: bool) -> Self {
        let patience = Self {
            policy,
            first: Cell::new(FIRST_SPIN),
            now: Cell::new(0),
            beyond: Cell::new(Duration::ZERO),
            adaptive: RefCell::new(None),
            yields: Cell::new(0),
            late: Cell::default(),
            no_yield_before: Cell::new(None),
        };
        patience.reset(crowded);
        patience
    }

    /// Begins again, with more ranks than CPUs or not.
    pub fn reset(&self, crowded: bool) {
        let first = self.first.get();
        let (spins, yields) = match self.policy {
            Policy::Auto if crowded => (0, YIELDS_MAX_CROWDED),
            Policy::Auto => (spins_in(first), YIELDS_MAX),
            Policy::Spin if first < FIRST_SPIN => (spins_in(first), 0),
            Policy::Spin => (u32::MAX, 0),
            Policy::Yield => (if crowded { 0 } else { spins_in(first) }, u32::MAX),
            Policy::Park => (0, 0),
        };
        let learns = self.policy == Policy::Auto && !crowded;
        self.now.set(spins);
        self.yields.set(yields);
        self.adaptive.replace(learns.then(|| AdaptiveSpin::new(AWAKE_MAX)));
        self.beyond.set(if learns { AWAKE_MAX - first } else { Duration::ZERO });
        self.late.take();
        self.no_yield_before.set(None);
    }

    /// Begins again, for waits that call a hook or do not.
    pub fn hook(&self, hooked: bool, crowded: bool) {
        self.first.set(if hooked { FIRST_SPIN_HOOKED } else { FIRST_SPIN });
        self.reset(crowded);
    }

    /// Returns the policy, for another team of the same rank.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the number of spins before anything else is done.
    #[inline(always)]
    pub fn spins(&self) -> u32 {
        self.now.get()
    }

    /// Returns how long a wait that has outlasted its first spins stays awake, and the number of
    /// yields before it sleeps.
    fn awake(&self, now: Instant) -> (Duration, u32) {
        let beyond = self.beyond.take();
        if self.no_yield_before.get().is_some_and(|until| now < until) {
            return (Duration::ZERO, 0);
        }
        self.no_yield_before.set(None);
        (beyond, self.yields.get())
    }

    /// Records a yield that took `took` and ended now. Returns whether enough yields were late.
    fn yielded(&self, took: Duration, now: Instant) -> bool {
        if self.policy != Policy::Auto || took <= LATE_YIELD {
            self.late.take();
            return false;
        }
        let (many, lost) = self.late.take();
        let (many, lost) = (many + 1, lost + took);
        let enough = many >= LATE_YIELDS_MAX;
        if enough {
            self.no_yield_before.set(now.checked_add(lost * NO_YIELD_FACTOR));
        } else {
            self.late.set((many, lost));
        }
        enough
    }

    /// Records a wait that outlasted its spinning, took `waited` in all until now, and slept or
    /// not.
    fn learn(&self, slept: bool, waited: Duration, now: Instant) {
        if let Some(adaptive) = self.adaptive.borrow_mut().as_mut() {
            let spin = adaptive.after(slept, waited, now);
            let first = self.first.get();
            self.now.set(spins_in(spin.each.min(first)));
            self.beyond.set(spin.each.saturating_sub(first) + spin.once);
        }
    }
}

/// Returns the number of pauses of this CPU that fill the time: a pause takes 4 to 150 cycles, by
/// model.
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

/// Checks beyond the flag while a rank waits.
pub trait Faults {
    /// Returns the time between two checks, and half of the longest sleep.
    fn interval(&self) -> Duration {
        SLEEP_MAX / 2
    }
    /// Returns when faults were last checked in the call that waits. If they were not, this is
    /// `now`, which also becomes the moment at which the call began to wait.
    fn last_checked(&self, now: Instant) -> Instant;
    /// Returns an error if the wait cannot end. Called every few milliseconds of a call's waiting.
    fn check(&self, now: Instant) -> Option<crate::Error>;
    /// Returns whether there is a hook for waits.
    fn hooked(&self) -> bool {
        false
    }
    /// Calls the hook. Returns whether it wants to be called again before the rank sleeps.
    fn progress(&self) -> bool {
        false
    }
}

/// Waits beyond the first spins. A model has no clock, since a rank that is not woken is an error.
#[cfg(trimtab_model)]
pub fn linger(
    flag: &Flag,
    wanted: Ticket,
    _patience: &Patience,
    private: bool,
    _faults: &dyn Faults,
) -> crate::Result<u64> {
    loop {
        let word = flag.load();
        if reached(word as Ticket, wanted) {
            return Ok(word);
        }
        sleep(flag, wanted, private, SLEEP_MAX);
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
    let mut checked = faults.last_checked(now);
    let mut slept = false;
    let hooked = faults.hooked();
    let (mut called, mut busy, mut pause) = (begin, false, PROGRESS_INTERVAL);
    let sleep_max = if hooked { PROGRESS_SLEEP_MAX } else { 2 * faults.interval() };
    loop {
        let word = flag.load();
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
            if yields_late(patience, &mut now) {
                (awake, yields) = (Duration::ZERO, 0);
            }
        } else if yields > 0 || busy {
            yields = yields.saturating_sub(1);
            if yields_late(patience, &mut now) {
                yields = 0;
            }
        } else {
            slept = true;
            sleep(flag, wanted, private, sleep_max);
            now = Instant::now();
        }
        if hooked && now.saturating_duration_since(called) >= pause {
            busy = faults.progress();
            pause = if busy { PROGRESS_INTERVAL } else { (2 * pause).min(PROGRESS_INTERVAL_MAX) };
            now = Instant::now();
            called = now;
        }
        if now.saturating_duration_since(checked) >= faults.interval() {
            checked = now;
            if let Some(fault) = faults.check(now) {
                return Err(fault);
            }
        }
    }
}

/// Yields. Returns whether another thread took the CPU for long.
#[cfg(not(trimtab_model))]
fn yields_late(patience: &Patience, now: &mut Instant) -> bool {
    let before = Instant::now();
    std::thread::yield_now();
    *now = Instant::now();
    patience.yielded(now.duration_since(before), *now)
}

/// Returns whether the flag is raised within some spins.
#[cfg(not(trimtab_model))]
fn raised_soon(flag: &Flag, wanted: Ticket) -> bool {
    (0..SPINS_PER_YIELD).any(|_| {
        std::hint::spin_loop();
        flag.is(wanted)
    })
}

fn sleep(flag: &Flag, wanted: Ticket, private: bool, most: Duration) {
    flag.add_sleeper();
    let seen = flag.reload() as Ticket;
    if !reached(seen, wanted) {
        kernel_wait(flag, seen, private, most);
    }
    flag.remove_sleeper();
}

/// Sleeps at most for `most`, which is below a second, unless the flag's word differs from `seen`.
#[cfg(not(any(trimtab_model, miri)))]
fn kernel_wait(flag: &Flag, seen: Ticket, private: bool, most: Duration) {
    let slice = libc::timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    let operation = libc::FUTEX_WAIT | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: the word lives as long as the flag; the kernel reads it and the time, and writes
    // nothing.
    unsafe {
        libc::syscall(libc::SYS_futex, flag.futex(), operation, seen, &raw const slice);
    }
}

/// Sleeps on a word that several processes share, at most for `nap`, unless it differs from `seen`.
#[cfg(not(any(trimtab_model, miri)))]
pub(crate) fn sleep_while(word: &std::sync::atomic::AtomicU32, seen: u32, nap: Duration) {
    let slice = libc::timespec { tv_sec: 0, tv_nsec: nap.subsec_nanos().into() };
    // SAFETY: the word lives as long as the reference; the kernel reads it and the time.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const slice);
    }
}

/// As in a model or an interpreter, which have no such sleep.
#[cfg(any(trimtab_model, miri))]
pub(crate) fn sleep_while(_word: &std::sync::atomic::AtomicU32, _seen: u32, _nap: Duration) {
    std::thread::yield_now();
}

/// Wakes all threads that sleep on such a word.
pub(crate) fn wake_all(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: the kernel uses the word's address alone.
    #[cfg(not(any(trimtab_model, miri)))]
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
    let _ = word;
}

/// Yields: the interpreter takes the kernel's read of half of a word for a fault of the program's.
#[cfg(miri)]
fn kernel_wait(_flag: &Flag, _seen: Ticket, _private: bool, _most: Duration) {
    std::thread::yield_now();
}

#[cfg(trimtab_model)]
fn kernel_wait(flag: &Flag, seen: Ticket, _private: bool, _most: Duration) {
    flag.sleep_while(seen);
}

/// Wakes all threads that sleep on a flag.
#[cfg(trimtab_model)]
pub fn wake(flag: &Flag, _private: bool) {
    flag.wake();
}

/// Wakes all threads that sleep on a flag.
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
    fn a_rank_that_loses_time_to_yields_sleeps_for_a_multiple_of_it() {
        let patience = Patience::new(Policy::Auto, true);
        let begin = Instant::now();
        let after = |ms: u64| begin + Duration::from_millis(ms);
        let yields = |ms| patience.awake(after(ms)).1;
        let late = |took, ms| patience.yielded(Duration::from_micros(took), after(ms));
        assert_eq!(yields(0), YIELDS_MAX_CROWDED);
        // A rank of the team works for long between two that wait.
        for turn in 0..50 {
            assert!(!late(3_000, turn) && !late(3_000, turn) && !late(200, turn));
        }
        assert_eq!(yields(50), YIELDS_MAX_CROWDED);
        assert!(!late(3_000, 53) && !late(3_000, 56) && late(3_000, 59));
        assert_eq!([60, 59 + 143, 59 + 144].map(yields), [0, 0, YIELDS_MAX_CROWDED]);
    }

    #[test]
    fn waits_with_a_hook_spin_for_a_shorter_time_before_the_first_call() {
        let (patience, begin) = (Patience::new(Policy::Auto, false), Instant::now());
        let spins = patience.spins();
        patience.hook(true, false);
        assert!(patience.spins() <= spins / 5 && patience.spins() > 0, "{} of {spins}", patience.spins());
        assert_eq!(patience.awake(begin), (AWAKE_MAX - FIRST_SPIN_HOOKED, YIELDS_MAX));
        patience.learn(false, AWAKE_MAX, begin);
        assert!(patience.spins() <= spins / 5);
        patience.hook(false, false);
        assert_eq!(patience.spins(), spins);
        // A rank that only spins comes to its hook, too.
        let patience = Patience::new(Policy::Spin, false);
        assert_eq!(patience.spins(), u32::MAX);
        patience.hook(true, false);
        assert!(patience.spins() <= spins / 5);
    }

    #[test]
    fn the_yield_policy_ignores_slow_yields() {
        let patience = Patience::new(Policy::Yield, true);
        assert!((0..10).all(|_| !patience.yielded(Duration::from_secs(1), Instant::now())));
    }

    #[test]
    fn a_rank_with_a_cpu_spins_until_another_thread_wants_the_cpu() {
        let patience = Patience::new(Policy::Auto, false);
        let begin = Instant::now();
        assert_eq!(patience.awake(begin), (AWAKE_MAX - FIRST_SPIN, YIELDS_MAX));
        patience.learn(false, FIRST_SPIN * 2, begin);
        let late = || patience.yielded(Duration::from_millis(3), begin);
        assert!(!late() && !late() && late());
        assert_eq!(patience.awake(begin), (Duration::ZERO, 0));
        patience.learn(false, FIRST_SPIN * 2, begin);
        assert_eq!(patience.awake(begin + Duration::from_millis(144)), (AWAKE_MAX - FIRST_SPIN, YIELDS_MAX));
    }

    #[test]
    fn a_rank_spins_briefly_after_several_long_waits() {
        let (patience, now) = (Patience::new(Policy::Auto, false), Instant::now());
        let spins = patience.spins();
        for _ in 0..10 {
            patience.learn(true, AWAKE_MAX * 10, now);
        }
        assert!(patience.spins() <= spins / 8);
        assert_eq!(patience.awake(now).0, Duration::ZERO);
    }
}

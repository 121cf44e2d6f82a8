//! Model of a phase: the time that equal threads take for their work and a barrier, on cores that
//! they may have to share.
//!
//! Unit: seconds. Problem: the cost of oversubscription depends on the rate of barriers, and on the
//! wait policy. Idea: three physical costs are added to the least time of a phase (all work over
//! all cores):
//!
//! - *Uneven queues.* Of L threads on M cores the longest queue has ceil(L/M), so a phase takes up
//!   to ceil(L/M)·M/L times the least. If the phase lasts long enough for threads to rotate, it
//!   takes less: the excess falls as R/(R + step), where R is the time of a round.
//! - *Wasted slices.* A thread that spins keeps its CPU to the end of its slice, which is a tick,
//!   while the threads that it waits for have no CPU. A thread that yields beside a foreign thread
//!   gives the slice to the foreign thread.
//! - *Waking.* A thread that sleeps must be woken and switched to, each time.
//!
//! Foreign threads that compute take their share of a core for whole ticks, so threads with more
//! frequent barriers wait for the core that has the foreign thread.
//!
//! Properties: a phase never takes less than the least; if every thread has a CPU, only waking
//! costs; longer steps never cost a larger share.
//!
//! Source: the bound ceil(N/M)·M/N follows from counting; the terms from Iancu, Hofmeyr, Blagojević
//! and Zheng, "Oversubscription on Multicore Processors", IPDPS 2010 (interval between barriers,
//! ways to wait, meaning of yield). Constants were set by hand on the calibration half of
//! `experiments/advise` and `experiments/simulator/live` (`docs/advise.md`), and say where they
//! come from.

use crate::place::waiting::How;

/// A tick in seconds, after which a computing thread is preempted: HZ = 250.
pub const TICK_S: f64 = 4e-3;
/// Seconds to wake a thread with a free CPU, if not measured: as in simulations of a guest with two
/// CPUs.
pub const WAKE_S: f64 = 6.5e-6;
/// Seconds to wake and switch if the CPU is not free, for each thread of a queue.
pub const SWITCH_S: f64 = 15e-6;
/// Seconds of a switch between threads that yield to each other.
pub const YIELD_S: f64 = 2e-6;
/// Seconds that runtimes spin before they sleep, by the setting of trimtab, if `trimtab run` finds
/// fewer CPUs than threads.
pub const SPIN_MOMENT_S: f64 = 50e-6;
/// Seconds that Linux takes to rotate spinning threads: it does not distinguish spinning from work.
const ROUND_SPIN_S: f64 = 0.2;
/// The same for threads that yield, and for threads on kernels with weak yields.
const ROUND_YIELD_S: f64 = 0.04;
const ROUND_WEAK_YIELD_S: f64 = 0.1;
/// The same for threads that sleep: an idle CPU pulls at once, but not always.
const ROUND_SLEEP_S: f64 = 0.015;
/// The same under `--balance auto`.
const ROUND_AUTO_S: f64 = 0.05;
/// Steps shorter than this many seconds are delayed by foreign threads.
const RIVAL_STEP_S: f64 = 2e-3;
/// Spinning threads in equal queues are nevertheless moved occasionally: this is the measured
/// slowdown, as a share.
const RESTLESS_SLOWDOWN: f64 = 0.04;

/// Upper bound on threads and CPUs in the model.
const COUNT_MAX: u32 = 1 << 20;

/// Behaviour of waiting threads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WaitMode {
    /// Threads spin.
    Spin,
    /// Threads give the CPU away and check again.
    Yield,
    /// Threads sleep at once.
    Sleep,
    /// Threads spin for a moment, then sleep: the effect of `--wait-policy auto` if there are fewer
    /// CPUs than threads.
    Moment,
}

impl WaitMode {
    /// Returns the behaviour for a runtime's way of waiting; a runtime without a setting spins.
    pub const fn of(how: How) -> Self {
        match how {
            How::Left | How::RanksYield | How::Spin => Self::Spin,
            How::Yield => Self::Yield,
            How::Brief => Self::Moment,
            How::Sleep => Self::Sleep,
        }
    }

    /// All behaviours.
    pub const ALL: [Self; 4] = [Self::Spin, Self::Yield, Self::Sleep, Self::Moment];
}

/// A program on cores, as the model sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PhaseLoad {
    /// Threads of the program.
    pub threads: u32,
    /// CPUs that the threads may use.
    pub cpus: u32,
    /// Threads of others that compute there all the time.
    pub rivals: u32,
    /// Work of each thread between two barriers, in seconds.
    pub step: f64,
    /// Behaviour of waiting threads.
    pub mode: WaitMode,
    /// Whether threads are bound, one CPU each, round the CPUs.
    pub bound: bool,
    /// Whether a yield gives the CPU away.
    pub posix: bool,
    /// Whether `--balance auto` balances the threads.
    pub auto: bool,
    /// Seconds to wake a thread with a free CPU.
    pub wake: f64,
}

impl PhaseLoad {
    /// Returns the seconds from one barrier to the next.
    pub fn phase(&self) -> f64 {
        // The bounds are larger than any machine.
        let Self { threads, cpus, rivals, .. } = *self;
        let load = Self {
            threads: threads.clamp(1, COUNT_MAX),
            cpus: cpus.clamp(1, COUNT_MAX),
            rivals: rivals.min(COUNT_MAX),
            ..*self
        };
        load.bounded()
    }

    fn bounded(&self) -> f64 {
        let Self { step, cpus: m, threads: n, rivals: h, .. } = *self;
        let all = n + h;
        if all <= m {
            return step + if self.mode == WaitMode::Sleep && n > 1 { self.wake } else { 0.0 };
        }
        let least = step * f64::from(all) / f64::from(m);
        least * (1.0 + self.uneven()) + self.wasted(least)
    }

    /// Returns the excess over the least time, as a share, due to unequal queues.
    fn uneven(&self) -> f64 {
        let Self { threads: n, cpus: m, rivals: h, step, mode, .. } = *self;
        let over = f64::from(m) / f64::from(n + h);
        let bound = f64::from((n + h).div_ceil(m)) * over - 1.0;
        let mut round = match mode {
            WaitMode::Spin => ROUND_SPIN_S,
            WaitMode::Yield if self.posix => ROUND_YIELD_S,
            WaitMode::Yield => ROUND_WEAK_YIELD_S,
            WaitMode::Sleep | WaitMode::Moment => ROUND_SLEEP_S,
        };
        if self.bound && h == 0 {
            round = f64::INFINITY;
        }
        if self.auto {
            round = round.min(ROUND_AUTO_S);
        }
        let left = if round.is_finite() { round / (round + step) } else { 1.0 };
        let mut uneven = bound * left;
        if mode == WaitMode::Spin && !self.bound {
            uneven = uneven.max(RESTLESS_SLOWDOWN);
        }
        if h > 0 {
            uneven = uneven.max(self.beside_rivals(over) * RIVAL_STEP_S / (RIVAL_STEP_S + step));
        }
        uneven
    }

    /// Returns the excess, as a share, on cores with foreign threads, which the threads use in turn
    /// with them: the mean of two cases, foreign threads on the shorter queues and on a longest
    /// queue.
    fn beside_rivals(&self, over: f64) -> f64 {
        let Self { threads: n, cpus: m, rivals: h, .. } = *self;
        let share = f64::from(1 + h.div_ceil(m));
        let (least, most) = (f64::from(n / m), f64::from(n.div_ceil(m)));
        let mean = ((least * share).max(most) + most * share) / 2.0 * over - 1.0;
        // For a thread that spins alone on its CPU, the kernel never sees that another CPU would be
        // better.
        if self.mode == WaitMode::Spin && n <= m && h < m { mean.max(0.6) } else { mean.max(0.0) }
    }

    /// Returns the seconds of each phase in which a CPU is held by a thread that makes no progress.
    fn wasted(&self, least: f64) -> f64 {
        let Self { threads: n, cpus: m, rivals: h, posix, .. } = *self;
        let queue = n.div_ceil(m);
        let turns = f64::from(if h == 0 { queue - 1 } else { (n + h).div_ceil(m) - 1 });
        // With weak yields, a woken thread goes before a foreign thread at once.
        let woken = f64::from(queue) * if h > 0 && !posix { SWITCH_S / 4.0 } else { SWITCH_S };
        match self.mode {
            WaitMode::Spin if queue == 1 => 0.0,
            // In short phases each of the other threads has a whole slice; in long phases, half of
            // its last.
            WaitMode::Spin => turns * TICK_S * (0.5 + 0.5 / (1.0 + least / TICK_S)),
            WaitMode::Yield if posix => f64::from(queue) * YIELD_S + self.given_away(least),
            WaitMode::Yield if h == 0 => 0.6 * TICK_S * least / (least + 2.0 * TICK_S),
            // Beside foreign threads, threads waste each other's slices if a queue has several of
            // them.
            WaitMode::Yield if queue > 1 && h < m => 0.03 * f64::from(queue) * TICK_S,
            WaitMode::Yield => f64::from(queue) * YIELD_S,
            WaitMode::Sleep => woken + 0.45 * self.waits_for_turn(least),
            WaitMode::Moment => {
                woken
                    + f64::from(queue - 1) * SPIN_MOMENT_S
                    + if queue > 1 { 0.2 } else { 0.0 } * self.waits_for_turn(least)
            }
        }
    }

    /// Returns the seconds lost by yields beside a foreign thread. The foreign thread gets a slice,
    /// unless there is a CPU without one to which the next woken thread can go.
    fn given_away(&self, least: f64) -> f64 {
        match (self.rivals, self.threads > self.cpus) {
            (0, _) => 0.0,
            (h, _) if h >= self.cpus => self.waits_for_turn(least),
            (_, true) => 0.45 * TICK_S / (1.0 + (least / (0.25 * TICK_S)).powi(2)),
            (_, false) => 0.04 * TICK_S,
        }
    }

    /// Returns the seconds that a thread waits for the end of a slice. With a foreign thread on
    /// every CPU, a thread that gave its CPU away waits; so does a bound thread. Kernels with weak
    /// yields let a woken thread go first.
    fn waits_for_turn(&self, least: f64) -> f64 {
        let elsewhere = self.rivals < self.cpus && !(self.bound && self.rivals > 0);
        if elsewhere || !self.posix { 0.0 } else { TICK_S / (1.0 + (least / TICK_S).powi(2)) }
    }
}

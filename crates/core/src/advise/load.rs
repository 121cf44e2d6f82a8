//! How long a phase takes: equal threads that work, and meet, on cores that they may have to share.
//!
//! Unit: seconds. Problem: what crowding costs depends on how often threads meet, and on what they do while they wait. Idea: three physical costs
//! are added to the least that a phase can take (all work over all cores):
//!
//! - *Uneven queues.* Of L threads on M cores the longest queue has ceil(L/M), so a phase takes up to ceil(L/M)·M/L times the least. If it lasts long
//!   enough for threads to go round, less: the excess falls as R/(R + step), where R is how long a round takes.
//! - *Turns wasted.* Who spins keeps its CPU to the end of its turn, which is a tick, while those wait for whom it waits. Who yields beside a
//!   stranger gives the turn to the stranger.
//! - *Waking.* Who sleeps must be woken and switched to, each time.
//!
//! Strangers that compute take their share of a core for whole ticks, so threads that meet more often than that wait for the core where a stranger is.
//!
//! Properties: never below the least; without crowding only waking costs; longer steps never cost a larger share.
//!
//! Source: the bound ceil(N/M)·M/N follows from counting; the terms from Iancu, Hofmeyr, Blagojević and Zheng, "Oversubscription on Multicore
//! Processors", IPDPS 2010 (interval between barriers, ways to wait, meaning of yield). Constants were set by hand on the calibration half of
//! `experiments/advise` and `experiments/simulator/live` (`docs/advise.md`), and say where they come from.

use crate::place::waiting::How;

/// A tick, after which a thread that computes is put off its CPU: HZ = 250.
pub const TICK: f64 = 4e-3;
/// Waking a thread whose CPU is free, where nobody measured it: as in simulations of a guest with two CPUs.
pub const WAKE: f64 = 6.5e-6;
/// Waking and switching where the CPU is not free, for each thread of a queue.
pub const SWITCH: f64 = 15e-6;
/// A switch between threads that yield to each other.
pub const YIELD: f64 = 2e-6;
/// For how long runtimes are told to spin before they sleep, where `trimtab run` finds CPUs short.
pub const MOMENT: f64 = 50e-6;
/// How long Linux takes to let threads go round that spin: it sees no difference between spinning and work.
const ROUND_SPIN: f64 = 0.2;
/// The same where they give the CPU away, and where yields are weak.
const ROUND_YIELD: f64 = 0.04;
const ROUND_WEAK: f64 = 0.1;
/// The same where they sleep: an idle CPU pulls at once, but not always.
const ROUND_SLEEP: f64 = 0.015;
/// The same under `--balance auto`.
const ROUND_AUTO: f64 = 0.05;
/// What strangers hold up is felt by steps shorter than this.
const STRANGER: f64 = 2e-3;
/// Spinning threads in equal queues are moved now and then all the same: by this much they are slower, measured.
const RESTLESS: f64 = 0.04;

/// More threads or CPUs than this are taken for as many.
const MOST: u32 = 1 << 20;

/// What waiting threads do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// They spin.
    Spin,
    /// They give the CPU away and look again.
    Yield,
    /// They sleep at once.
    Sleep,
    /// They spin for a moment, then sleep: what `--wait-policy auto` makes of it where CPUs are short.
    Moment,
}

impl Way {
    /// What threads do that wait so; a runtime that is left alone spins.
    pub const fn of(how: How) -> Self {
        match how {
            How::Left | How::Spin => Self::Spin,
            How::Yield => Self::Yield,
            How::Brief => Self::Moment,
            How::Sleep => Self::Sleep,
        }
    }

    /// All.
    pub const ALL: [Self; 4] = [Self::Spin, Self::Yield, Self::Sleep, Self::Moment];
}

/// A program on cores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Its threads.
    pub threads: u32,
    /// CPUs they may use.
    pub cpus: u32,
    /// Threads of others that compute there all the time.
    pub rivals: u32,
    /// Work of each thread between two meetings.
    pub step: f64,
    /// What waiting threads do.
    pub way: Way,
    /// Whether threads are bound, one CPU each, round the CPUs.
    pub bound: bool,
    /// Whether a yield gives the CPU away.
    pub posix: bool,
    /// Whether `--balance auto` looks after them.
    pub auto: bool,
    /// Waking a thread whose CPU is free.
    pub wake: f64,
}

impl Load {
    /// Seconds from one meeting to the next.
    pub fn phase(&self) -> f64 {
        // What is larger is larger than any machine.
        let Self { threads, cpus, rivals, .. } = *self;
        let load = Self {
            threads: threads.clamp(1, MOST),
            cpus: cpus.clamp(1, MOST),
            rivals: rivals.min(MOST),
            ..*self
        };
        load.bounded()
    }

    fn bounded(&self) -> f64 {
        let Self { step, cpus: m, threads: n, rivals: h, .. } = *self;
        let all = n + h;
        if all <= m {
            return step + if self.way == Way::Sleep && n > 1 { self.wake } else { 0.0 };
        }
        let least = step * f64::from(all) / f64::from(m);
        least * (1.0 + self.uneven()) + self.wasted(least)
    }

    /// Over the least, since queues are not alike.
    fn uneven(&self) -> f64 {
        let Self { threads: n, cpus: m, rivals: h, step, way, .. } = *self;
        let over = f64::from(m) / f64::from(n + h);
        let bound = f64::from((n + h).div_ceil(m)) * over - 1.0;
        let mut round = match way {
            Way::Spin => ROUND_SPIN,
            Way::Yield if self.posix => ROUND_YIELD,
            Way::Yield => ROUND_WEAK,
            Way::Sleep | Way::Moment => ROUND_SLEEP,
        };
        if self.bound && h == 0 {
            round = f64::INFINITY;
        }
        if self.auto {
            round = round.min(ROUND_AUTO);
        }
        let left = if round.is_finite() { round / (round + step) } else { 1.0 };
        let mut uneven = bound * left;
        if way == Way::Spin && !self.bound {
            uneven = uneven.max(RESTLESS);
        }
        if h > 0 {
            uneven = uneven.max(self.beside_strangers(over) * STRANGER / (STRANGER + step));
        }
        uneven
    }

    /// Where strangers are, threads have the core in turn with them: between the case that they keep to the shorter queues and that they are on a
    /// longest one.
    fn beside_strangers(&self, over: f64) -> f64 {
        let Self { threads: n, cpus: m, rivals: h, .. } = *self;
        let share = f64::from(1 + h.div_ceil(m));
        let (least, most) = (f64::from(n / m), f64::from(n.div_ceil(m)));
        let mean = ((least * share).max(most) + most * share) / 2.0 * over - 1.0;
        // A thread that spins alone on its CPU never lets the kernel see that another one would be better.
        if self.way == Way::Spin && n <= m && h < m { mean.max(0.6) } else { mean.max(0.0) }
    }

    /// Seconds of each phase in which a CPU is had by somebody who gets nothing done with it.
    fn wasted(&self, least: f64) -> f64 {
        let Self { threads: n, cpus: m, rivals: h, posix, .. } = *self;
        let queue = n.div_ceil(m);
        let turns = f64::from(if h == 0 { queue - 1 } else { (n + h).div_ceil(m) - 1 });
        // Where yields are weak who wakes goes before a stranger at once.
        let woken = f64::from(queue) * if h > 0 && !posix { SWITCH / 4.0 } else { SWITCH };
        match self.way {
            Way::Spin if queue == 1 => 0.0,
            // In short phases each of the others has a whole turn; in long ones, half of its last.
            Way::Spin => turns * TICK * (0.5 + 0.5 / (1.0 + least / TICK)),
            Way::Yield if posix => f64::from(queue) * YIELD + self.given_away(least),
            Way::Yield if h == 0 => 0.6 * TICK * least / (least + 2.0 * TICK),
            // Beside strangers it is each other's turns that they waste, where a queue has several of them.
            Way::Yield if queue > 1 && h < m => 0.03 * f64::from(queue) * TICK,
            Way::Yield => f64::from(queue) * YIELD,
            Way::Sleep => woken + 0.45 * self.waits_for_turn(least),
            Way::Moment => {
                woken
                    + f64::from(queue - 1) * MOMENT
                    + if queue > 1 { 0.2 } else { 0.0 } * self.waits_for_turn(least)
            }
        }
    }

    /// A yield beside a stranger gives the stranger a turn, unless there is a CPU without one, to which the next to wake up can go.
    fn given_away(&self, least: f64) -> f64 {
        match (self.rivals, self.threads > self.cpus) {
            (0, _) => 0.0,
            (h, _) if h >= self.cpus => self.waits_for_turn(least),
            (_, true) => 0.45 * TICK / (1.0 + (least / (0.25 * TICK)).powi(2)),
            (_, false) => 0.04 * TICK,
        }
    }

    /// Where a stranger is on every CPU, who gave it away waits for the end of a turn, and so does who may go to no other. Kernels on which yields are
    /// weak let who wakes go first.
    fn waits_for_turn(&self, least: f64) -> f64 {
        let elsewhere = self.rivals < self.cpus && !(self.bound && self.rivals > 0);
        if elsewhere || !self.posix { 0.0 } else { TICK / (1.0 + (least / TICK).powi(2)) }
    }
}

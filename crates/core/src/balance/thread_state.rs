//! State of one thread, as a policy keeps it: its CPU, its rates, its pending decision, and whether
//! it may be moved by this balancer.
//!
//! Problem: a thread is placed by another party only as long as the host reports that. A program
//! that binds its threads does so on purpose, but a loaded scheduler may be unloaded, another
//! balancer may end, and a move may be refused because two events coincided.
//!
//! Idea: the owner of a thread's placement is checked at each sample. A refusal is a reason to
//! wait, longer each time, not to give up.
//!
//! Properties: while another party places a thread, nothing is decided about it, and outcomes of
//! earlier decisions are ignored. When the thread may be moved again, its state starts from the
//! beginning. A thread that is always refused is asked at growing intervals, up to about once a
//! minute.

use super::cpu_table::{CpuIndex, NodeIndex};
use super::{Refusal, Settled};
use crate::ids::{ProgramId, ThreadId};
use crate::observe::{Metric, Rates};
use crate::time::{Moment, Span};

/// Share of time on a CPU or waiting for one, below which a thread is light and is not balanced:
/// timers, progress threads, a thread in a serial part. Chosen; waiters of a barrier want more than
/// twice this share.
pub(super) const LIGHT_MAX: f64 = 0.2;

/// Seconds over which the wanted share of a thread is averaged: several time slices of the kernel.
const AVERAGE_SECONDS: f64 = 0.1;

/// Seconds for which a thread must have been light before it is released from its CPU. They double
/// each time, so that a thread that is light at times does not move back and forth. Chosen.
const LIGHT_SECONDS: f64 = 1.0;

/// The same for the initial thread of a process. Shorter, because it may count CPUs as soon as the
/// others have ended. Chosen.
const INITIAL_LIGHT_SECONDS: f64 = 0.2;

/// Temporary refusals in a row before a thread is left alone for a while.
pub(super) const REFUSALS_MAX: u8 = 3;

/// First pause after these refusals; it doubles with each further refusal.
const PAUSE_FIRST: Span = Span::from_ms(1_000);

/// Largest number of doublings.
const DOUBLINGS_MAX: u8 = 6;

/// Samples for which a pending move is waited for.
pub(super) const PENDING_SAMPLES_MAX: u8 = 50;

/// Mask that the balancer gave to a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Binding {
    /// Its own mask.
    Own,
    /// Wider than its own mask: all CPUs of its program.
    Wide,
    /// One CPU.
    Held,
    /// The CPUs of one unit, by the unit's number.
    Within(u16),
}

/// A decision without a known outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PendingDecision {
    cpu: Option<CpuIndex>,
    binding: Binding,
    samples: u8,
    pending: bool,
}

/// State of one thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadState {
    /// The thread.
    pub(super) id: ThreadId,
    /// Its program.
    pub(super) program: ProgramId,
    /// Its process, by the number of the kernel.
    pub(super) process: u32,
    /// Whether it is the initial thread of its process.
    pub(super) initial: bool,
    /// CPU time that it was seen to use, in seconds.
    pub(super) computed: f64,
    /// CPU where it was put, else where it was last seen.
    pub(super) cpu: Option<CpuIndex>,
    /// Its mask.
    pub(super) binding: Binding,
    /// Number of times that it was moved.
    pub(super) moves: u32,
    /// Work that it has done, in seconds, on the scale of its program: newcomers start at the mean
    /// of the others.
    pub(super) work: f64,
    /// Part of the work that was done in the last step.
    pub(super) last_work: f64,
    /// Rates of the last step; `None` if the thread was not read.
    pub(super) rates: Option<Rates>,
    /// Share of the last tenth of a second in which it wanted a CPU; `None` before the first
    /// reading.
    pub(super) wanted: Option<f64>,
    /// Sums since the last window ended.
    pub(super) recent_rates: RecentRates,
    /// Whether a CPU was assigned to it.
    pub(super) placed: bool,
    /// Home node of a displaced thread, which was assigned a CPU on another node: the node on which
    /// it lost its CPU, or a node on which it may have started and that had no usable CPU when the
    /// thread was first seen. When CPUs come back, the thread may leave its present node, even if
    /// other threads must stay on theirs.
    pub(super) displaced: Option<NodeIndex>,
    /// Whether the usable CPUs changed since its mask was last set.
    pub(super) stale: bool,
    /// Whether it became movable again with this sample.
    pub(super) back: bool,
    /// Number of its home set.
    pub(super) home: usize,
    /// Number of the wider set that it was given.
    pub(super) widened: Option<usize>,
    /// Whether this sample is its first.
    pub(super) new: bool,
    /// Whether it was there at the policy's first sample.
    pub(super) early: bool,
    asked: Option<PendingDecision>,
    left: bool,
    forbidden: bool,
    meanwhile: bool,
    refusals: u8,
    rests: Moment,
    light: f64,
    light_releases: u8,
    at: Moment,
}

impl ThreadState {
    /// Creates the state of a new thread.
    pub(super) fn new(id: ThreadId, program: ProgramId, process: u32) -> Self {
        Self {
            id,
            program,
            process,
            initial: false,
            computed: 0.0,
            cpu: None,
            binding: Binding::Own,
            moves: 0,
            work: 0.0,
            last_work: 0.0,
            rates: None,
            wanted: None,
            recent_rates: RecentRates::default(),
            placed: false,
            displaced: None,
            stale: false,
            back: false,
            home: usize::MAX,
            widened: None,
            new: true,
            early: false,
            asked: None,
            left: false,
            forbidden: false,
            meanwhile: false,
            refusals: 0,
            rests: Moment::default(),
            light: 0.0,
            light_releases: 0,
            at: Moment::default(),
        }
    }

    /// Returns whether a decision about it may be made now.
    pub(super) fn free(&self) -> bool {
        !self.kept() && self.reachable()
    }

    /// Returns whether a necessary decision about it may be made, even after many refusals.
    pub(super) fn reachable(&self) -> bool {
        !self.taken() && !self.meanwhile && self.asked.is_none()
    }

    /// Returns whether the outcome of its last decision is unknown.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Returns whether another party places it.
    pub(super) fn taken(&self) -> bool {
        self.left || self.forbidden
    }

    /// Returns whether another party places it, or whether it pauses after refusals.
    pub(super) fn kept(&self) -> bool {
        self.taken() || self.refusals >= REFUSALS_MAX && self.rests > self.at
    }

    /// Returns whether it was light for so long that it should be released from its CPU.
    pub(super) fn light_for_long(&self) -> bool {
        let long = LIGHT_SECONDS * doubled(self.light_releases);
        self.binding == Binding::Held && self.free() && self.light >= long
    }

    /// The same for an initial thread, which waits for others before it goes on.
    pub(super) fn initial_light_for_long(&self) -> bool {
        self.light >= INITIAL_LIGHT_SECONDS * doubled(self.light_releases)
    }

    /// Records that it was released from its CPU because it was light.
    pub(super) fn release_light(&mut self) {
        self.light_releases = self.light_releases.saturating_add(1);
        self.light = 0.0;
        self.placed = false;
    }

    /// Updates whether it may be moved now, and its rates since the last reading.
    pub(super) fn observe(&mut self, at: Moment, movable: bool, rates: Option<Rates>) {
        self.at = at;
        self.meanwhile = false;
        self.back = self.left && movable;
        self.left = !movable;
        if self.left {
            // Its mask is not one that this balancer set.
            (self.binding, self.widened, self.placed) = (Binding::Own, None, false);
        }
        if self.back {
            (self.forbidden, self.refusals) = (false, 0);
        }
        self.rates = rates;
        let Some(rates) = &self.rates else { return };
        self.computed += rates.run * rates.span.seconds();
        self.recent_rates.add(rates);
        let now = rates.run + rates.wait.unwrap_or(0.0);
        // A wait is counted when it is over, so one short sample proves little. Only a thread that
        // neither ran nor waited certainly sleeps.
        let weight = if now > 0.0 { (rates.span.seconds() / AVERAGE_SECONDS).min(1.0) } else { 1.0 };
        let before = self.wanted.unwrap_or(now);
        self.wanted = Some(before + (now - before) * weight);
        self.light = if self.active() { 0.0 } else { self.light + rates.span.seconds() };
    }

    /// Records a decision about it.
    pub(super) fn ask(&mut self, cpu: Option<CpuIndex>, binding: Binding) {
        self.asked = Some(PendingDecision { cpu, binding, samples: 0, pending: false });
    }

    /// Processes the outcome of the decision.
    pub(super) fn settle(&mut self, end: Settled) {
        let Some(asked) = &mut self.asked else { return };
        match end {
            Settled::Pending => {
                asked.pending = true;
                return;
            }
            // Another party has taken over the thread, so the result of an earlier decision no
            // longer holds.
            _ if self.left => {}
            Settled::Applied => {
                if asked.cpu.is_some() {
                    self.cpu = asked.cpu;
                    self.moves += 1;
                }
                self.binding = asked.binding;
                self.stale = false;
                self.refusals = 0;
            }
            Settled::Refused(Refusal::Permission) | Settled::Vanished => self.forbidden = true,
            // A refusal to move memory does not concern the thread's mask.
            Settled::Refused(Refusal::Replayed | Refusal::Observed | Refusal::Memory) => {}
            Settled::Refused(refusal) => self.refused(refusal),
        }
        self.asked = None;
    }

    /// Records a temporary refusal. The next sample shows whether the program bound the thread on
    /// purpose.
    fn refused(&mut self, refusal: Refusal) {
        self.meanwhile = refusal == Refusal::MovedMeanwhile;
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= REFUSALS_MAX {
            self.rests = self.at + PAUSE_FIRST.times(doubled(self.refusals - REFUSALS_MAX));
        }
        // A thread that never got its first CPU is assigned one again.
        self.placed &= self.binding == Binding::Held;
    }

    /// Stops waiting for a decision that has no outcome.
    pub(super) fn wait(&mut self) {
        let over = |asked: &mut PendingDecision| {
            asked.samples += 1;
            !asked.pending || asked.samples > PENDING_SAMPLES_MAX
        };
        if self.asked.as_mut().is_some_and(over) {
            self.asked = None;
        }
    }

    /// Returns whether it computes, as far as known. A newcomer counts as computing.
    pub(super) fn active(&self) -> bool {
        self.wanted.is_none_or(|wanted| wanted >= LIGHT_MAX)
    }

    /// Returns whether it was there from the beginning, or was read since it was found: it has had
    /// time to set a mask of its own.
    pub(super) fn settled(&self) -> bool {
        self.early || self.wanted.is_some()
    }

    /// Returns its speed in the last step; a share of elapsed time where waiting is not counted.
    pub(super) fn speed(&self, metric: Metric) -> Option<f64> {
        let rates = self.rates.as_ref()?;
        match rates.wait {
            None => rates.speed(Metric::CpuShare),
            Some(_) => rates.speed(metric),
        }
    }
}

/// Returns 2 to the power of `times`, limited to [`DOUBLINGS_MAX`] doublings.
fn doubled(times: u8) -> f64 {
    f64::from(1_u32 << times.min(DOUBLINGS_MAX))
}

/// Sums over several samples of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentRates {
    /// Seconds that were sampled.
    pub(super) span: f64,
    /// Seconds of them in which it ran or waited; `None` if waiting is not counted.
    pub(super) wants: Option<f64>,
    /// Number of times that it went to sleep in them; `None` unless all samples counted that.
    pub(super) sleeps: Option<f64>,
}

impl RecentRates {
    /// Adds one sample.
    pub(super) fn add(&mut self, rates: &Rates) {
        let seconds = rates.span.seconds();
        let first = self.span == 0.0;
        let sum = |before: Option<f64>, now: Option<f64>| {
            let before = if first { Some(0.0) } else { before };
            before.zip(now).map(|(before, now)| before + now * seconds)
        };
        self.wants = sum(self.wants, rates.wait.map(|wait| rates.run + wait));
        self.sleeps = sum(self.sleeps, rates.sleeps);
        self.span += seconds;
    }
}

//! What a policy remembers of one thread: where it sits, what it did, what it was asked for, and whether it is ours to move.
//!
//! Problem: a thread that is somebody else's to place is so only while the host says it; a program that binds its threads means it, but a
//! loaded scheduler may be unloaded, another balancer may end, and a move may be refused because two things happened at once. Idea:
//! whose a thread is, is asked anew at each look; a refusal is a reason to wait, longer each time, not to give up.
//!
//! Properties: while somebody else places a thread nothing is asked of it and nothing is believed that was asked before; when
//! it is ours again it begins anew; a thread that is refused for ever is asked ever more seldom, once a minute in the end.

use super::ground::{Region, Seat};
use super::{Refusal, Settled};
use crate::ids::{ProgramId, ThreadId};
use crate::observe::{Metric, Rates};
use crate::time::{Moment, Span};

/// Below this share of the time on a CPU or waiting for one, a thread only looks after things (timers, progress
/// threads, a thread in a serial part) and is not balanced. Chosen; waiters of a barrier want more than twice as much.
pub(super) const LIGHT_MAX: f64 = 0.2;

/// Seconds over which it is told what a thread wants: several of the kernel's slices.
const STEADY: f64 = 0.1;

/// Seconds for which a thread must have been light before it is let off its seat; they double each time, so that one that is
/// now light and now not does not go to and fro. Chosen.
const LIGHT_LONG: f64 = 1.0;

/// So many refusals in a row that may pass are taken before a thread is let rest.
pub(super) const REFUSALS_MAX: u8 = 3;

/// How long it rests first; the time doubles with each further refusal.
const REST: Span = Span::from_ms(1_000);

/// What doubles does so this often at most.
const DOUBLINGS: u8 = 6;

/// So many looks a pending move is waited for.
pub(super) const PENDING_MAX: u8 = 50;

/// What a thread's mask is by our doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Its own.
    Own,
    /// Wider than its own: it may go anywhere in its program's CPUs.
    Wide,
    /// One CPU.
    Held,
    /// Those of its CPUs that belong to one unit, by the unit's number.
    Within(u16),
}

/// What was asked for and is not known to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    seat: Option<Seat>,
    standing: Standing,
    looks: u8,
    pending: bool,
}

/// What is remembered of a thread.
#[derive(Clone, Debug)]
pub(super) struct Sitter {
    /// Which.
    pub(super) id: ThreadId,
    /// Whose.
    pub(super) program: ProgramId,
    /// Its process, as the kernel numbers it.
    pub(super) process: u32,
    /// The CPU time that it was seen to use, in seconds.
    pub(super) computed: f64,
    /// Where it sits: where it was put, else where it was last seen.
    pub(super) seat: Option<Seat>,
    /// What its mask is.
    pub(super) standing: Standing,
    /// How often it was moved.
    pub(super) moves: u32,
    /// The work it has done, in seconds, on its program's scale: newcomers begin where the others are.
    pub(super) work: f64,
    /// The part of it that was done in the last step.
    pub(super) last_work: f64,
    /// What it did in the last step; `None` when it was not read.
    pub(super) rates: Option<Rates>,
    /// The share of the time it wanted a CPU, over the last tenth of a second; `None` before it was read.
    pub(super) wanted: Option<f64>,
    /// What it did since that was last summed up.
    pub(super) lately: Lately,
    /// Whether a seat was dealt to it.
    pub(super) dealt: bool,
    /// The node on which it lost its CPU, or one where it may have begun and that was shut when it was met, while it was dealt a CPU on another: it may leave that when CPUs come back, whatever keeps
    /// others on their node.
    pub(super) exiled: Option<Region>,
    /// Whether the CPUs that may be used changed since it was last told where it may go.
    pub(super) stale: bool,
    /// Whether it became ours again with this look.
    pub(super) back: bool,
    /// Its home's number.
    pub(super) home: usize,
    /// The number of the CPUs to which it was freed.
    pub(super) freed: Option<usize>,
    /// Whether it was met in this look.
    pub(super) new: bool,
    asked: Option<Asked>,
    left: bool,
    forbidden: bool,
    meanwhile: bool,
    refusals: u8,
    rests: Moment,
    light: f64,
    eased: u8,
    at: Moment,
}

impl Sitter {
    /// One that was just met.
    pub(super) fn new(id: ThreadId, program: ProgramId, process: u32) -> Self {
        Self {
            id,
            program,
            process,
            computed: 0.0,
            seat: None,
            standing: Standing::Own,
            moves: 0,
            work: 0.0,
            last_work: 0.0,
            rates: None,
            wanted: None,
            lately: Lately::default(),
            dealt: false,
            exiled: None,
            stale: false,
            back: false,
            home: usize::MAX,
            freed: None,
            new: true,
            asked: None,
            left: false,
            forbidden: false,
            meanwhile: false,
            refusals: 0,
            rests: Moment::default(),
            light: 0.0,
            eased: 0,
            at: Moment::default(),
        }
    }

    /// Whether it may be asked for something now.
    pub(super) fn free(&self) -> bool {
        !self.kept() && self.reachable()
    }

    /// Whether it may be asked for what must be, however often it was refused.
    pub(super) fn reachable(&self) -> bool {
        !self.taken() && !self.meanwhile && self.asked.is_none()
    }

    /// Whether it is not known yet what became of the last thing it was asked for.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether it is somebody else's to place.
    pub(super) fn taken(&self) -> bool {
        self.left || self.forbidden
    }

    /// Whether it is somebody else's to place, or was refused so often that it is let rest.
    pub(super) fn kept(&self) -> bool {
        self.taken() || self.refusals >= REFUSALS_MAX && self.rests > self.at
    }

    /// Whether it has been light for so long that it should not be held on a seat any more.
    pub(super) fn idles(&self) -> bool {
        let long = LIGHT_LONG * doubled(self.eased);
        self.standing == Standing::Held && self.free() && self.light >= long
    }

    /// Remembers that it was let off its seat for being light.
    pub(super) fn ease(&mut self) {
        self.eased = self.eased.saturating_add(1);
        self.light = 0.0;
        self.dealt = false;
    }

    /// Takes in whose it is now, and what it did since it was read last.
    pub(super) fn look(&mut self, at: Moment, movable: bool, rates: Option<Rates>) {
        self.at = at;
        self.meanwhile = false;
        self.back = self.left && movable;
        self.left = !movable;
        if self.left {
            // Whatever mask it has is not by our doing.
            (self.standing, self.freed, self.dealt) = (Standing::Own, None, false);
        }
        if self.back {
            (self.forbidden, self.refusals) = (false, 0);
        }
        self.rates = rates;
        let Some(rates) = &self.rates else { return };
        self.computed += rates.run * rates.span.seconds();
        self.lately.add(rates);
        let now = rates.run + rates.wait.unwrap_or(0.0);
        // A wait is counted when it is over: one short look says little. Only who neither ran nor waits sleeps for sure.
        let weight = if now > 0.0 { (rates.span.seconds() / STEADY).min(1.0) } else { 1.0 };
        let before = self.wanted.unwrap_or(now);
        self.wanted = Some(before + (now - before) * weight);
        self.light = if self.active() { 0.0 } else { self.light + rates.span.seconds() };
    }

    /// Remembers what it is asked for.
    pub(super) fn ask(&mut self, seat: Option<Seat>, standing: Standing) {
        self.asked = Some(Asked { seat, standing, looks: 0, pending: false });
    }

    /// Believes what became of it.
    pub(super) fn settle(&mut self, end: Settled) {
        let Some(asked) = &mut self.asked else { return };
        match end {
            Settled::Pending => {
                asked.pending = true;
                return;
            }
            // What was done to it before somebody else took it over holds no more.
            _ if self.left => {}
            Settled::Applied => {
                if asked.seat.is_some() {
                    self.seat = asked.seat;
                    self.moves += 1;
                }
                self.standing = asked.standing;
                self.stale = false;
                self.refusals = 0;
            }
            Settled::Refused(Refusal::Permission) | Settled::Vanished => self.forbidden = true,
            // That memory stays where it is says nothing about moving the thread.
            Settled::Refused(Refusal::Replayed | Refusal::Memory) => {}
            Settled::Refused(refusal) => self.refused(refusal),
        }
        self.asked = None;
    }

    /// A refusal that may pass. Whether its program bound it on purpose is for the host to say, at its next look.
    fn refused(&mut self, refusal: Refusal) {
        self.meanwhile = refusal == Refusal::MovedMeanwhile;
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= REFUSALS_MAX {
            self.rests = self.at + REST.times(doubled(self.refusals - REFUSALS_MAX));
        }
        // Who never got its first seat is dealt one again.
        self.dealt &= self.standing == Standing::Held;
    }

    /// Gives up waiting for what nobody says anything about.
    pub(super) fn wait(&mut self) {
        let over = |asked: &mut Asked| {
            asked.looks += 1;
            !asked.pending || asked.looks > PENDING_MAX
        };
        if self.asked.as_mut().is_some_and(over) {
            self.asked = None;
        }
    }

    /// Whether it computes, as far as known. A newcomer is taken to.
    pub(super) fn active(&self) -> bool {
        self.wanted.is_none_or(|wanted| wanted >= LIGHT_MAX)
    }

    /// Its speed in the last step; elapsed time serves where waiting is not counted.
    pub(super) fn speed(&self, metric: Metric) -> Option<f64> {
        let rates = self.rates.as_ref()?;
        match rates.wait {
            None => rates.speed(Metric::CpuShare),
            Some(_) => rates.speed(metric),
        }
    }
}

/// One, doubled so often.
fn doubled(times: u8) -> f64 {
    f64::from(1_u32 << times.min(DOUBLINGS))
}

/// What a thread did over several looks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lately {
    /// Seconds that were seen.
    pub(super) span: f64,
    /// Seconds of them in which it ran or waited; `None` where waiting is not counted.
    pub(super) wants: Option<f64>,
    /// How often it went to sleep in them; `None` unless that was read all along.
    pub(super) sleeps: Option<f64>,
}

impl Lately {
    /// Takes one look in.
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

//! A program as `auto` sees it: in which state it is, since when, and what was tried.

use super::Finding;
use super::diagnosis::{Sight, Window};
use super::rotation::Rotation;
use crate::time::{Moment, Span};

/// The shortest interval: below it the kernel's own ticks (4 ms on most) blur what is measured.
pub(super) const PERIOD_MIN: Span = Span::from_ms(10);

/// After a treatment that failed, the first time without another, and how often it doubles; the same after being watched anew.
const REST: Span = Span::from_ms(1_000);
const REST_DOUBLINGS: u32 = 6;

fn doubled(times: u32) -> f64 {
    f64::from(1_u32 << times.min(REST_DOUBLINGS))
}

/// What is being done about a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Everything is read, nothing is done.
    Watched,
    /// It is left alone, and looked at now and then.
    Still,
    /// Each thread has one core, and they exchange them.
    Turns,
}

/// A program.
#[derive(Debug)]
pub(super) struct Case {
    /// What is being done.
    pub(super) state: State,
    /// When it is looked at next.
    pub(super) next: Moment,
    /// What was seen since the state began.
    pub(super) window: Window,
    /// Looks since it was left alone.
    pub(super) calm: u32,
    /// What it was like before the treatment that is on trial.
    pub(super) before: Option<Sight>,
    /// For how long that was watched.
    pub(super) watched: Span,
    /// Whether the treatment has passed its trial.
    pub(super) passed: bool,
    /// Until when none is tried again.
    pub(super) rests: Moment,
    /// How many treatments failed.
    pub(super) failures: u32,
    /// The time between two exchanges.
    pub(super) period: Span,
    /// Its exchanges.
    pub(super) rotation: Rotation,
    /// The last findings.
    pub(super) said: Vec<Finding>,
    /// How many threads computed then.
    pub(super) threads: usize,
    /// How often it was watched again because it had changed, and until when it is not.
    stirs: u32,
    stirred: Moment,
}

impl Case {
    /// One that was just met.
    pub(super) fn new(at: Moment) -> Self {
        let mut window = Window::default();
        window.restart(at);
        Self {
            state: State::Watched,
            next: at,
            window,
            calm: 0,
            before: None,
            watched: Span::ZERO,
            passed: false,
            rests: Moment::default(),
            failures: 0,
            period: PERIOD_MIN,
            rotation: Rotation::default(),
            said: Vec::new(),
            threads: 0,
            stirs: 0,
            stirred: Moment::default(),
        }
    }

    /// Forgets everything but what was said last.
    pub(super) fn begin_again(&mut self, at: Moment) {
        let said = std::mem::take(&mut self.said);
        *self = Self { said, ..Self::new(at) };
    }

    /// Goes back to being watched, because it is not what it was. What was measured before is no measure any more.
    pub(super) fn watch_again(&mut self, at: Moment) {
        self.before = None;
        self.passed = false;
        self.enter(State::Watched, at);
    }

    /// Whether it may be watched again for having changed: the more often it changes, the more seldom.
    pub(super) fn stirs(&mut self, at: Moment) -> bool {
        if at < self.stirred {
            return false;
        }
        self.stirred = at + REST.times(doubled(self.stirs));
        self.stirs += 1;
        true
    }

    /// It was the same for a while.
    pub(super) fn settles(&mut self) {
        self.stirs = self.stirs.saturating_sub(1);
    }

    /// Goes over into another state.
    pub(super) fn enter(&mut self, state: State, at: Moment) {
        self.state = state;
        self.calm = 0;
        self.window.restart(at);
    }

    /// Remembers that a treatment did not help.
    pub(super) fn failed(&mut self, at: Moment) {
        self.rests = at + REST.times(doubled(self.failures));
        self.failures += 1;
    }
}

//! A program as `auto` sees it: in which state it is, since when, and what was tried.

use super::Finding;
use super::diagnosis::{Sight, Window};
use super::rotation::Rotation;
use crate::time::{Moment, Span};

/// The shortest interval: below it the kernel's own ticks (4 ms on most) blur what is measured.
pub(super) const PERIOD_MIN: Span = Span::from_ms(10);

/// After a treatment that failed, the first time without another, and how often it doubles.
const REST: Span = Span::from_ms(1_000);
const REST_DOUBLINGS: u32 = 6;

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
    /// How many threads it had then.
    pub(super) threads: usize,
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
            passed: false,
            rests: Moment::default(),
            failures: 0,
            period: PERIOD_MIN,
            rotation: Rotation::default(),
            said: Vec::new(),
            threads: 0,
        }
    }

    /// Goes over into another state.
    pub(super) fn enter(&mut self, state: State, at: Moment) {
        self.state = state;
        self.calm = 0;
        self.window.restart(at);
    }

    /// Remembers that a treatment did not help.
    pub(super) fn failed(&mut self, at: Moment) {
        self.rests = at + REST.times(f64::from(1_u32 << self.failures.min(REST_DOUBLINGS)));
        self.failures += 1;
    }
}

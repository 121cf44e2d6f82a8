//! State of one program under `auto`: its state, since when, and which treatments were tried.

use super::Finding;
use super::diagnosis::{ProgramSummary, ProgramWindow};
use super::rotation::Rotation;
use crate::time::{Moment, Span};

/// Shortest interval: below it the kernel's own ticks (4 ms on most kernels) blur the measurement.
pub(super) const PERIOD_MIN: Span = Span::from_ms(10);

/// First pause after a failed treatment, and after a program is watched again.
const PAUSE_FIRST: Span = Span::from_ms(1_000);
/// Largest number of times that the pause doubles.
const PAUSE_DOUBLINGS_MAX: u32 = 6;

fn doubled(times: u32) -> f64 {
    f64::from(1_u32 << times.min(PAUSE_DOUBLINGS_MAX))
}

/// Treatment of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// All data is read; nothing is done.
    Watched,
    /// The program is left alone and sampled occasionally.
    Still,
    /// Each thread has one core, and threads exchange cores.
    Turns,
}

/// One program.
#[derive(Debug)]
pub(super) struct ProgramState {
    /// Current state.
    pub(super) stage: Stage,
    /// Time of the next sample.
    pub(super) next: Moment,
    /// Measurements since the state began.
    pub(super) window: ProgramWindow,
    /// Samples since the program was left alone.
    pub(super) calm: u32,
    /// Measurements before the treatment that is on trial.
    pub(super) before: Option<ProgramSummary>,
    /// Length of the measurement before the treatment.
    pub(super) watched: Span,
    /// Whether the treatment has passed its trial.
    pub(super) passed: bool,
    /// Time before which no treatment is tried again.
    pub(super) rests: Moment,
    /// Number of failed treatments.
    pub(super) failures: u32,
    /// Time between two exchanges.
    pub(super) period: Span,
    /// Exchanges of its threads.
    pub(super) rotation: Rotation,
    /// Last findings.
    pub(super) reported: Vec<Finding>,
    /// Number of computing threads at the last findings.
    pub(super) threads: usize,
    /// Number of times that the program was watched again because it changed, and the time before
    /// which that does not happen again.
    may_watch_again: u32,
    watched_until: Moment,
}

impl ProgramState {
    /// Creates the state of a new program.
    pub(super) fn new(at: Moment) -> Self {
        let mut window = ProgramWindow::default();
        window.restart(at);
        Self {
            stage: Stage::Watched,
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
            reported: Vec::new(),
            threads: 0,
            may_watch_again: 0,
            watched_until: Moment::default(),
        }
    }

    /// Drops everything except the last findings.
    pub(super) fn begin_again(&mut self, at: Moment) {
        let reported = std::mem::take(&mut self.reported);
        *self = Self { reported, ..Self::new(at) };
    }

    /// Returns to being watched because the program changed. Earlier measurements are no longer
    /// comparable.
    pub(super) fn watch_again(&mut self, at: Moment) {
        self.before = None;
        self.passed = false;
        self.enter(Stage::Watched, at);
    }

    /// Returns whether a changed program may be watched again. Each time doubles the pause before
    /// the next.
    pub(super) fn may_watch_again(&mut self, at: Moment) -> bool {
        if at < self.watched_until {
            return false;
        }
        self.watched_until = at + PAUSE_FIRST.times(doubled(self.may_watch_again));
        self.may_watch_again += 1;
        true
    }

    /// Records that the program was unchanged for a while.
    pub(super) fn calms_down(&mut self) {
        self.may_watch_again = self.may_watch_again.saturating_sub(1);
    }

    /// Changes the state and restarts the measurement.
    pub(super) fn enter(&mut self, stage: Stage, at: Moment) {
        self.stage = stage;
        self.calm = 0;
        self.window.restart(at);
    }

    /// Records that a treatment did not help.
    pub(super) fn failed(&mut self, at: Moment) {
        self.rests = at + PAUSE_FIRST.times(doubled(self.failures));
        self.failures += 1;
    }
}

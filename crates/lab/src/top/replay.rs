//! Recorded run under the view: play, pause, step, seek.
//!
//! Going back restarts from a stored copy of the state. The number of copies is bounded, whatever
//! the length of the trace.

use super::event::Action;
use ratatui::crossterm::event::KeyCode;
use std::fmt;
use trimtab_core::telemetry::account::{Account, Keep, Playback};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;
use trimtab_core::trace::Trace;

/// Most copies that are stored for going back.
const COPIES_MAX: usize = 64;
/// Fewest steps between two copies.
const COPY_STEPS_MIN: usize = 50;
/// Slowest and fastest play.
const SPEEDS: (f64, f64) = (1.0 / 16.0, 256.0);

/// A recorded run, at one of its steps.
pub(super) struct Player {
    trace: Trace,
    now: Playback,
    /// Steps taken so far.
    at: usize,
    /// Copies, each after a multiple of `apart` steps.
    copies: Vec<Playback>,
    apart: usize,
    playing: bool,
    speed: f64,
    /// Position in the trace in time.
    clock: Span,
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("at", &self.at).field("of", &self.trace.steps.len()).finish()
    }
}

impl Player {
    /// Opens a trace at its first step.
    pub(super) fn new(trace: Trace) -> Self {
        let begin = Playback::new(&trace.header, Keep::default());
        let apart = (trace.steps.len() / COPIES_MAX).max(COPY_STEPS_MIN);
        let mut player = Self {
            now: begin.clone(),
            at: 0,
            copies: vec![begin],
            apart,
            playing: false,
            speed: 1.0,
            clock: Span::ZERO,
            trace,
        };
        player.seek(1);
        player
    }

    /// Returns the totals at this step.
    pub(super) fn account(&self) -> &Account {
        self.now.account()
    }

    /// Returns the machine of the recording.
    pub(super) fn machine(&self) -> &Machine {
        &self.trace.header.machine
    }

    /// Returns the sampling interval that was requested.
    pub(super) fn interval(&self) -> Span {
        self.trace.header.settings.interval
    }

    /// Returns the command and the policy of the recording.
    pub(super) fn title(&self) -> String {
        format!("{} ({})", self.trace.header.command, self.trace.header.policy)
    }

    /// Returns the number of this step, and of all steps.
    pub(super) fn position(&self) -> (usize, usize) {
        (self.at, self.trace.steps.len())
    }

    /// Returns whether the run plays, and the speed.
    pub(super) fn pace(&self) -> (bool, f64) {
        (self.playing, self.speed)
    }

    /// Returns whether the trace was cut off.
    pub(super) fn unfinished(&self) -> bool {
        self.trace.cut || self.trace.end.is_none()
    }

    /// Goes to the step with this number, from 1, clamped to the first and the last.
    pub(super) fn seek(&mut self, to: usize) {
        let to = to.clamp(self.trace.steps.len().min(1), self.trace.steps.len());
        if to < self.at {
            let copy = (to / self.apart).min(self.copies.len() - 1);
            self.now = self.copies[copy].clone();
            self.at = copy * self.apart;
        }
        while self.at < to {
            self.now.step(&self.trace.steps[self.at], &mut |_, _| ());
            self.at += 1;
            if self.at == self.copies.len() * self.apart {
                self.copies.push(self.now.clone());
            }
        }
        self.clock = self.moment(self.at).since(self.start());
    }

    fn start(&self) -> Moment {
        self.trace.steps.first().map(|step| step.sample.at).unwrap_or_default()
    }

    fn moment(&self, at: usize) -> Moment {
        self.trace.steps.get(at.saturating_sub(1)).map(|step| step.sample.at).unwrap_or_default()
    }

    /// Lets time pass. Returns whether the step changed.
    pub(super) fn advance(&mut self, span: Span) -> bool {
        if !self.playing {
            return false;
        }
        let (before, clock) = (self.at, self.clock + span.times(self.speed));
        let due = self.start() + clock;
        let new = self.trace.steps[self.at..].iter().take_while(|step| step.sample.at <= due).count();
        if new > 0 {
            self.seek(self.at + new);
        }
        self.clock = clock;
        self.playing = self.at < self.trace.steps.len();
        self.at != before || !self.playing
    }

    /// Handles a key of the replay.
    pub(super) fn key(&mut self, code: KeyCode) -> Action {
        let (at, steps) = self.position();
        let tenth = (steps / 10).max(1);
        match code {
            KeyCode::Char(' ' | 'p') => {
                if at >= steps {
                    self.seek(1);
                }
                self.playing = !self.playing;
            }
            KeyCode::Right => self.seek(at + 1),
            KeyCode::Left => self.seek(at.saturating_sub(1)),
            KeyCode::Char(']') => self.seek(at.saturating_add(tenth)),
            KeyCode::Char('[') => self.seek(at.saturating_sub(tenth)),
            KeyCode::Char('<') => self.speed = (self.speed / 2.0).max(SPEEDS.0),
            KeyCode::Char('>') => self.speed = (self.speed * 2.0).min(SPEEDS.1),
            KeyCode::Char(digit @ '0'..='9') => {
                let part = digit as usize - '0' as usize;
                self.seek(steps * part / 10);
            }
            _ => return Action::None,
        }
        if matches!(code, KeyCode::Left | KeyCode::Right) {
            self.playing = false;
        }
        Action::Draw
    }
}

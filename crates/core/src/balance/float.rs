//! `float`: threads are watched and never touched.
//!
//! The control that every other policy is compared with, and what `trimtab top` and a trace of an untouched program use.

use super::{Kind, Policy, Settings, Turn, Wanted};
use crate::observe::Observation;
use crate::time::Span;

/// Looks, and does nothing.
#[derive(Clone, Debug)]
pub(super) struct Float {
    interval: Span,
    looks: u64,
}

impl Float {
    /// One that looks at the settings' interval.
    pub(super) fn new(settings: &Settings) -> Self {
        Self { interval: settings.interval, looks: 0 }
    }
}

impl Policy for Float {
    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        self.looks += 1;
        let wanted = Wanted::watching(self.looks, self.interval);
        Turn { next: seen.at + self.interval, wanted, ..Turn::default() }
    }
}

//! `float`: threads are watched and never touched.
//!
//! This is the control to which every other policy is compared. `trimtab top` and a trace of an
//! untouched program use it.

use super::{Kind, Policy, Settings, Turn, Wanted};
use crate::observe::Observation;
use crate::time::Span;

/// Policy that samples and does nothing.
#[derive(Clone, Debug)]
pub(super) struct Float {
    interval: Span,
    samples: u64,
}

impl Float {
    /// Creates a policy that samples at the settings' interval.
    pub(super) fn new(settings: &Settings) -> Self {
        Self { interval: settings.interval, samples: 0 }
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
        self.samples += 1;
        let wanted = Wanted::watching(self.samples, self.interval);
        Turn { next: seen.at + self.interval, wanted, ..Turn::default() }
    }
}

//! `pinned`: each thread on one core, dealt out once, never moved.
//!
//! The control that shows what moving is worth: the makespan of N threads on M cores is ⌈N/M⌉ where N/M were possible, and
//! another program on one core doubles the time of all. Threads are dealt round robin when they are first seen, and
//! a thread is dealt anew only when its CPU may not be used any more.

use super::deal::{deal_out, newcomers};
use super::seating::Seating;
use super::shares::Shares;
use super::{Kind, Policy, Settings, Turn, Wanted};
use crate::observe::Observation;
use crate::time::Span;
use crate::topology::Machine;

/// Deals, and then only watches.
#[derive(Debug)]
pub(super) struct Pinned {
    interval: Span,
    seating: Seating,
    shares: Shares,
}

impl Pinned {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self { interval: settings.interval, seating: Seating::new(machine), shares: Shares::default() }
    }
}

impl Policy for Pinned {
    fn kind(&self) -> Kind {
        Kind::Pinned
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        self.seating.update(seen);
        self.shares.look(&self.seating, seen);
        let (new, lost) = (newcomers(&self.seating, |_| false), self.seating.lost());
        let decisions = deal_out(&mut self.seating, &mut self.shares, &new, &lost, false);
        Turn { decisions, next: seen.at + self.interval, wanted: Wanted::all(), ..Turn::default() }
    }
}

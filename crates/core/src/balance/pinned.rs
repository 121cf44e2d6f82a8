//! `pinned`: each thread on one core, dealt out once, never moved.
//!
//! The control that shows what moving is worth: the makespan of N threads on M cores is ⌈N/M⌉ where N/M were possible, and
//! another program on one core doubles the time of all. Threads are dealt round robin when they are first seen, and
//! a thread is dealt anew only when its CPU may not be used any more.

use super::base::Base;
use super::deal::{deal_out, newcomers};
use super::{Kind, Policy, Settings, Turn, Wanted};
use crate::observe::Observation;
use crate::topology::Machine;

/// Deals, and then only watches.
#[derive(Debug)]
pub(super) struct Pinned {
    base: Base,
    looks: u64,
}

impl Pinned {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self { base: Base::new(machine, settings), looks: 0 }
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
        let findings = self.base.look(seen);
        let (new, lost) = (newcomers(&self.base.seating, |_| false), self.base.seating.lost());
        let decisions = deal_out(&mut self.base.seating, &mut self.base.shares, &new, &lost, false);
        self.looks += 1;
        let interval = self.base.settings.interval;
        let wanted = Wanted::watching(self.looks, interval);
        Turn { decisions, findings, next: seen.at + interval, wanted }
    }
}

//! `pinned`: each thread is bound to one core once and never moved.
//!
//! This is the control that shows the value of moving: the makespan of N threads on M cores is
//! ⌈N/M⌉ where N/M is possible, and another program on one core doubles the time of all threads.
//! Threads are bound round robin when they are first seen, and bound again only when their CPU may
//! not be used any more. The initial thread of a process stays free while it waits for the others
//! or computes alone ([`lone`]).

use super::initial_placement::{assign_cpus, newcomers, release_initial};
use super::turn_context::TurnContext;
use super::{Kind, Policy, Settings, Turn, Wanted, lone};
use crate::observe::Observation;
use crate::topology::Machine;

/// Policy that binds threads once and then only watches.
#[derive(Debug)]
pub(super) struct Pinned {
    context: TurnContext,
    samples: u64,
}

impl Pinned {
    /// Creates the policy for a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self { context: TurnContext::new(machine, settings), samples: 0 }
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
        let findings = self.context.observe(seen);
        let TurnContext { table, shares, .. } = &mut self.context;
        let initial = lone::initial_threads(&table.threads);
        let mut decisions = release_initial(table, &initial);
        let (new, lost) = (newcomers(table, &initial, |_| false), table.lost());
        decisions.extend(assign_cpus(table, shares, &new, &lost, false));
        self.samples += 1;
        let interval = self.context.settings.interval;
        let wanted = Wanted::watching(self.samples, interval);
        Turn { decisions, findings, next: seen.at + interval, wanted }
    }
}

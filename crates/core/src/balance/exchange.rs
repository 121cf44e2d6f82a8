//! `exchange`: threads that are behind exchange places with threads that are ahead, once per
//! interval.
//!
//! Each thread is assigned a CPU, round robin. From then on [`Rotation`] exchanges threads between
//! the CPUs of each program; its module documents the rule, the properties and the source. The work
//! of a thread counts from the start of the policy; a newcomer starts with the mean work of the
//! others. A program with threads that sleep in barriers
//! ([`SleepDetector`](super::barrier_sleep::SleepDetector)) gets its own masks back and is left to
//! the kernel until it stops sleeping: an exchange needs threads that stay where they were put. The
//! initial thread of a process stays free while it waits for the others or computes alone
//! ([`lone`]).

use super::initial_placement::{assign_cpus, newcomers, release_initial};
use super::rotation::{Rotation, RotationTerms};
use super::thread_state::Binding;
use super::thread_table::ThreadTable;
use super::turn_context::TurnContext;
use super::{Kind, Policy, Settings, Turn, Wanted, lone};
use crate::ids::ProgramId;
use crate::observe::Observation;
use crate::topology::Machine;
use std::collections::BTreeMap;

/// Policy that places threads and then rotates them.
#[derive(Debug)]
pub(super) struct Exchange {
    context: TurnContext,
    rotations: BTreeMap<ProgramId, Rotation>,
}

impl Exchange {
    /// Creates the policy for a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self { context: TurnContext::new(machine, settings), rotations: BTreeMap::new() }
    }
}

impl Policy for Exchange {
    fn kind(&self) -> Kind {
        Kind::Exchange
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let mut findings = self.context.observe(seen);
        let TurnContext { settings, table, shares, sleep_detector, .. } = &mut self.context;
        findings.extend(sleep_detector.observe(table));
        let mut decisions = sleep_detector.release(table);
        let initial = lone::initial_threads(&table.threads);
        decisions.extend(release_initial(table, &initial));
        let mut new = newcomers(table, &initial, |program| sleep_detector.sleeps(program));
        // A thread that was released because it was light comes back when it computes.
        new.retain(|&i| table.threads[i].active());
        let idle: Vec<usize> =
            (0..table.threads.len()).filter(|&i| table.threads[i].light_for_long()).collect();
        decisions.extend(idle.into_iter().map(|i| table.release_light(i)));
        let lost = table.lost();
        decisions.extend(assign_cpus(table, shares, &new, &lost, false));
        let terms = RotationTerms { across_nodes: settings.across_nodes, interval: settings.interval };
        let members = members(table);
        self.rotations.retain(|program, _| members.contains_key(program));
        for (program, members) in members {
            if !sleep_detector.sleeps(program) {
                let rotation = self.rotations.entry(program).or_default();
                decisions.extend(rotation.turn(table, shares, &members, &terms));
            }
        }
        let places = table.threads.iter().any(|thread| thread.binding != Binding::Held);
        let cpus = table.cpu_table.open().any(|cpu| shares.ours(cpu) == 0);
        let wanted = Wanted { on: None, places, cpus, sleeps: sleep_detector.suspects(), counts: false };
        Turn { decisions, findings, next: seen.at + settings.interval, wanted }
    }
}

/// Returns the computing threads that we hold, by program, as indices into the thread table.
pub(super) fn members(table: &ThreadTable) -> BTreeMap<ProgramId, Vec<usize>> {
    let mut members: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
    for (i, thread) in table.threads.iter().enumerate() {
        let members = members.entry(thread.program).or_default();
        if thread.active() && thread.binding == Binding::Held {
            members.push(i);
        }
    }
    members
}

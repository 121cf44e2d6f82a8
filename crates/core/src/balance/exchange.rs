//! `exchange`: threads that are behind change places with threads that are ahead, once an interval.
//!
//! Each thread is dealt a CPU, round robin, and from then on [`Rotation`] takes turns among the seats of each program; what a
//! thread has done counts from when the policy began, and for a newcomer from where the others are. The rule, its
//! properties and its source are told there. A program whose threads sleep in barriers ([`Dozes`](super::doze::Dozes)) gets its own masks back and is
//! left to the kernel until it stops sleeping: an exchange needs threads that stay where they were put.

use super::base::Base;
use super::deal::{deal_out, newcomers};
use super::rotation::{Rotation, Terms};
use super::seating::Seating;
use super::sitter::Standing;
use super::{Kind, Policy, Settings, Turn, Wanted};
use crate::ids::ProgramId;
use crate::observe::Observation;
use crate::topology::Machine;
use std::collections::BTreeMap;

/// Deals, and then rotates.
#[derive(Debug)]
pub(super) struct Exchange {
    base: Base,
    rotations: BTreeMap<ProgramId, Rotation>,
}

impl Exchange {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self { base: Base::new(machine, settings), rotations: BTreeMap::new() }
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
        let mut findings = self.base.look(seen);
        let Base { settings, seating, shares, dozes, .. } = &mut self.base;
        findings.extend(dozes.look(seating));
        let mut decisions = dozes.release(seating);
        let mut new = newcomers(seating, |program| dozes.sleeps(program));
        // Who was let off its seat for being light comes back when it computes.
        new.retain(|&i| seating.sitters[i].active());
        let idle: Vec<usize> = (0..seating.sitters.len()).filter(|&i| seating.sitters[i].idles()).collect();
        decisions.extend(idle.into_iter().map(|i| seating.ease(i)));
        let lost = seating.lost();
        decisions.extend(deal_out(seating, shares, &new, &lost, false));
        let terms = Terms { across_nodes: settings.across_nodes, interval: settings.interval };
        let members = members(seating);
        self.rotations.retain(|program, _| members.contains_key(program));
        for (program, members) in members {
            if !dozes.sleeps(program) {
                let rotation = self.rotations.entry(program).or_default();
                decisions.extend(rotation.turn(seating, shares, &members, &terms));
            }
        }
        let places = seating.sitters.iter().any(|sitter| sitter.standing != Standing::Held);
        let cpus = seating.ground.open().any(|seat| shares.ours(seat) == 0);
        let wanted = Wanted { on: None, places, cpus, sleeps: dozes.suspects(), counts: false };
        Turn { decisions, findings, next: seen.at + settings.interval, wanted }
    }
}

/// The computing threads of each program that we hold, by their places in the seating.
pub(super) fn members(seating: &Seating) -> BTreeMap<ProgramId, Vec<usize>> {
    let mut members: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
    for (i, sitter) in seating.sitters.iter().enumerate() {
        let members = members.entry(sitter.program).or_default();
        if sitter.active() && sitter.standing == Standing::Held {
            members.push(i);
        }
    }
    members
}

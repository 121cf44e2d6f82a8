//! `exchange`: threads that are behind change places with threads that are ahead, once an interval.
//!
//! Each thread is dealt a CPU, round robin, and from then on [`Rotation`] takes turns among the seats of each program; what a
//! thread has done counts from when the policy began, and for a newcomer from where the others are. The rule, its
//! properties and its source are told there. A program whose threads sleep in barriers ([`Dozes`]) gets its own masks back and is
//! left to the kernel until it stops sleeping: an exchange needs threads that stay where they were put.

use super::deal::{deal_out, newcomers};
use super::doze::Dozes;
use super::rotation::{Rotation, Terms};
use super::seating::{Seating, Standing};
use super::shares::Shares;
use super::{Kind, Policy, Settings, Turn, Wanted};
use crate::ids::ProgramId;
use crate::observe::Observation;
use crate::topology::Machine;
use std::collections::BTreeMap;

/// Deals, and then rotates.
#[derive(Debug)]
pub(super) struct Exchange {
    settings: Settings,
    seating: Seating,
    shares: Shares,
    dozes: Dozes,
    rotations: BTreeMap<ProgramId, Rotation>,
}

impl Exchange {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            seating: Seating::new(machine),
            shares: Shares::default(),
            dozes: Dozes::default(),
            rotations: BTreeMap::new(),
        }
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
        self.seating.update(seen);
        self.shares.look(&self.seating, seen);
        let findings = self.dozes.look(&mut self.seating);
        let mut decisions = self.dozes.release(&mut self.seating);
        let new = newcomers(&self.seating, |program| self.dozes.sleeps(program));
        let lost = self.seating.lost();
        decisions.extend(deal_out(&mut self.seating, &mut self.shares, &new, &lost, false));
        let terms = Terms { across_nodes: self.settings.across_nodes, interval: self.settings.interval };
        let members = members(&self.seating);
        self.rotations.retain(|program, _| members.contains_key(program));
        for (program, members) in members {
            if !self.dozes.sleeps(program) {
                let rotation = self.rotations.entry(program).or_default();
                decisions.extend(rotation.turn(&mut self.seating, &mut self.shares, &members, &terms));
            }
        }
        let places = self.seating.sitters.iter().any(|sitter| sitter.standing != Standing::Held);
        let cpus = self.seating.ground.open().any(|seat| self.shares.ours(seat) == 0);
        let wanted = Wanted { on: None, places, cpus, sleeps: self.dozes.suspects() };
        Turn { decisions, findings, next: seen.at + self.settings.interval, wanted }
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

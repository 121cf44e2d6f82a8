//! Room around a hold: the CPUs that it could get.

use crate::facts::granted;
use crate::foreign_load::Surroundings;
use crate::queue::Line;
use crate::site_facts::{LedgerPosition, Situation};
use anyhow::{Context, Result};
use trimtab_core::place::BUSY_FROM;
use trimtab_core::queue::Applicant;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::process_env::World;
use trimtab_linux::ledger::{Hold, Ledger, Level, ProcessTable, QueuedRun};

/// A hold, and the places where its surroundings are known.
pub(crate) struct HoldRoom<'a> {
    pub(crate) world: &'a World,
    pub(crate) machine: &'a Machine,
    pub(crate) ledger: &'a Ledger,
    pub(crate) hold: &'a Hold,
}

impl HoldRoom<'_> {
    /// Returns the position of the hold.
    fn stand(&self) -> Result<LedgerPosition> {
        let hold = self.hold;
        let Some(outer) = hold.level.depth().checked_sub(1).and_then(Level::new) else {
            return Ok(LedgerPosition { level: Level::MACHINE, within: self.machine.cpus() });
        };
        let holders = self.ledger.holders(outer, &self.machine.cpus())?.known;
        let around = holders.into_iter().find(|around| hold.cpus.is_subset(&around.cpus));
        let around = around.context("the hold around this one has ended: it cannot grow")?;
        Ok(LedgerPosition { level: hold.level, within: around.cpus })
    }

    /// Returns the runs that wait for cores where the hold is.
    pub(crate) fn waiting(&self) -> Result<Vec<QueuedRun>> {
        let stand = self.stand()?;
        if self.ledger.waiting(stand.level, &stand.within)? == 0 {
            return Ok(Vec::new());
        }
        let processes = ProcessTable::at(&self.world.proc());
        Ok(self.ledger.queue(stand.level, &stand.within, &processes)?)
    }

    /// Returns the CPUs that the hold could get.
    pub(crate) fn free(&self, allowed: &CpuSet, situation: &Situation) -> Result<CpuSet> {
        let stand = self.stand()?;
        let held = self.ledger.map(stand.level, &stand.within)?.held();
        let rules = situation.policy.site.queue();
        let line = Line { world: self.world, machine: self.machine, stand: &stand, rules };
        let kept = line.precedence(self.ledger, &self.waiting()?, Applicant::Passing)?.kept;
        let free = allowed.intersection(&stand.within).difference(&held).difference(&kept);
        // A grant around the hold is that of the job in which it is.
        let others = granted(self.world, self.machine, &self.hold.cpus).grants;
        Ok(others.iter().fold(free, |free, grant| free.difference(&grant.cpus)))
    }

    /// Returns the CPUs of the machine outside of all its holds, and of grants to other jobs: those
    /// on which programs without a hold compute.
    pub(crate) fn outside(&self) -> Result<CpuSet> {
        let machine = self.machine.cpus();
        let free = machine.difference(&self.ledger.map(Level::MACHINE, &machine)?.held());
        let others = granted(self.world, self.machine, &self.hold.cpus).grants;
        Ok(others.iter().fold(free, |free, grant| free.difference(&grant.cpus)))
    }

    /// Returns the CPUs of the hold that runs inside it have.
    pub(crate) fn inside(&self) -> Result<CpuSet> {
        let Some(inner) = self.hold.level.inner() else { return Ok(CpuSet::new()) };
        Ok(self.ledger.map(inner, &self.hold.cpus)?.held())
    }

    /// Returns those of the free CPUs that other programs neither keep busy nor are bound to. A
    /// hold inside another one competes with programs of that hold only.
    pub(crate) fn quiet(&self, free: &CpuSet, seen: &Surroundings) -> CpuSet {
        if self.hold.level != Level::MACHINE {
            return free.clone();
        }
        let busy = |cpu: &_| seen.busy.get(cpu).is_some_and(|&load| load >= BUSY_FROM);
        free.difference(&seen.pinned).iter().filter(|cpu| !busy(cpu)).collect()
    }
}

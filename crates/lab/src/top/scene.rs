//! Content of the screen: the last sample of the programs, and the machine around them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trimtab_core::ids::{CoreId, Id, OsCpu, Pu};
use trimtab_core::place::{Binding, Taken, pinned_cpus};
use trimtab_core::set::{CpuSet, MAX_ID};
use trimtab_core::telemetry::account::Account;
use trimtab_core::topology::Machine;
use trimtab_hold::foreign_load::Surroundings;
use trimtab_hold::holds::{HoldRow, Holds};
use trimtab_linux::process::State;

/// The last sample of the programs.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) account: Arc<Account>,
}

/// The machine around them.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    /// CPUs that may be used, that are held, and to which foreign tasks are bound.
    pub(super) taken: Taken,
    /// Holders of cores.
    pub(super) holds: Vec<HoldRow>,
    /// Notes about values that could not be read.
    pub(super) notes: Vec<String>,
}

impl Around {
    /// Builds it from the readings. Tasks of watched programs, and of holders on their own CPUs,
    /// are not foreign.
    pub(super) fn of(
        machine: &Machine,
        allowed: &CpuSet,
        seen: Surroundings,
        ledger: Option<Holds>,
        watched: &BTreeSet<u32>,
    ) -> Self {
        let holders: BTreeSet<u32> = ledger.iter().flat_map(|of| &of.holds).map(|row| row.pid).collect();
        let foreign = |pid: u32| !watched.contains(&pid) && !holders.contains(&pid);
        let bindings = seen.pins.iter().filter(|pin| foreign(pin.pid.0));
        let bindings: Vec<Binding> = bindings
            .map(|pin| Binding { cpus: pin.cpus.clone(), running: pin.state == State::Running })
            .collect();
        let (holds, unknown) = ledger.map(|of| (of.holds, of.unknown)).unwrap_or_default();
        let held = holds.iter().fold(unknown, |sum, row| sum.union(&row.cpus));
        let taken = Taken {
            held,
            pinned: pinned_cpus(machine, &bindings),
            busy: seen.busy,
            ..Taken::nothing(allowed.clone())
        };
        Self { taken, holds, notes: seen.notes }
    }
}

/// Appearance of a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CoreStyle {
    /// Busy share of its busiest CPU; `None` when it was not read.
    pub(super) busy: Option<f64>,
    /// Whether watched threads were seen on it.
    pub(super) ours: bool,
    pub(super) held: bool,
    /// Whether a foreign task is bound to it.
    pub(super) pinned: bool,
    pub(super) allowed: bool,
}

/// Appearance of all CPUs, for code that draws cores.
#[derive(Debug)]
pub(super) struct CpuStyles<'a> {
    busy: BTreeMap<OsCpu, f64>,
    ours: CpuSet,
    taken: &'a Taken,
}

impl<'a> CpuStyles<'a> {
    pub(super) fn of(account: Option<&Account>, around: &'a Around) -> Self {
        let sampled = around.taken.busy.iter().map(|(&cpu, &permille)| (cpu, f64::from(permille) / 1e3));
        let read = account.iter().flat_map(|account| account.cpus());
        let threads = account.iter().flat_map(|account| account.threads());
        Self {
            busy: sampled.chain(read.filter_map(|read| Some((read.cpu, read.busy?)))).collect(),
            ours: threads
                .filter(|thread| thread.progress().is_some())
                .filter_map(|thread| thread.cpu)
                // A damaged trace may name CPUs that no set can hold.
                .filter(|cpu| cpu.index() <= MAX_ID)
                .collect(),
            taken: &around.taken,
        }
    }

    pub(super) fn core(&self, machine: &Machine, core: CoreId) -> CoreStyle {
        let cpus: Vec<OsCpu> = machine.core(core).pus.clone().map(|pu| machine.os(Pu(pu))).collect();
        let any = |set: &CpuSet| cpus.iter().any(|cpu| set.contains(*cpu));
        CoreStyle {
            busy: cpus.iter().filter_map(|cpu| self.busy.get(cpu).copied()).reduce(f64::max),
            ours: any(&self.ours),
            held: any(&self.taken.held),
            pinned: any(&self.taken.pinned),
            allowed: self.taken.allowed.is_empty() || any(&self.taken.allowed),
        }
    }
}

impl CoreStyle {
    /// Returns one character: how busy the core is.
    pub(super) fn glyph(self) -> char {
        match self.busy {
            _ if !self.allowed => '-',
            None => '?',
            Some(busy) if busy < 0.05 => '.',
            Some(busy) if busy >= 0.95 => '#',
            Some(busy) => char::from(b'0' + (busy * 10.0).round().clamp(1.0, 9.0) as u8),
        }
    }
}

/// Texts for a screen without programs: of the live machine, of a step of a recorded run, and of a
/// recorded run without steps.
pub(super) const NOBODY: &str = "no program is watched: no run holds cores, and no process of yours is busy";
pub(super) const NOBODY_THEN: &str =
    "no thread at this step of the trace: its programs have not started, or have ended";
pub(super) const NO_LOOK: &str =
    "the trace contains no sample: the program ended before the first one, or the trace is incomplete";

/// Legend of the characters.
pub(super) const LEGEND: &str = ". idle   1-9 tenths busy   # full   ? not read   - not allowed";

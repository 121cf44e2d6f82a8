//! Memory that other runs hold and do not use yet: the ledger's claims, and the memory that the
//! processes of each hold have.
//!
//! The kernel does not say on which nodes the pages of another user's process are, so the memory of
//! a hold's processes is taken together. A process that cannot be assigned to its hold leaves the
//! hold's memory unused, which makes a planner cautious.

use crate::escapes::{carried, processes, seen};
use crate::select::all_holds;
use crate::site_facts::LedgerPosition;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::escapes::belongs;
use trimtab_core::ids::OsNode;
use trimtab_core::place::{MemoryHold, held_by_others};
use trimtab_core::set::CpuSet;
use trimtab_linux::ledger::{Hold, LedgerError, LedgerView, ProcessTable};
use trimtab_linux::process::{self, Pid, ResidentMemory};

/// Share of the time that a waiting launch spends on [`MemoryUse::read`], as a divisor: 5 %.
const COST_DIVISOR: u32 = 20;

/// The memory that the processes of each hold used at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// Time of the reading.
    at: Instant,
    /// Duration of the reading.
    took: Duration,
    /// Bytes, by the number of the hold.
    of_holds: BTreeMap<u64, u64>,
}

impl MemoryUse {
    /// Examines the processes, if any hold has memory: this takes about 30 microseconds for each
    /// process, so that it does not belong under the planner's lock.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn read(proc: &Path, view: &LedgerView, machine: &CpuSet) -> Result<Self, LedgerError> {
        let at = Instant::now();
        let holds = all_holds(view, machine)?;
        let has_memory = holds.iter().any(|hold| !hold.holder.memory.is_empty());
        let used = if has_memory { used(proc, &holds, machine) } else { Vec::new() };
        let of_holds = holds.iter().map(|hold| hold.id.number()).zip(used).collect();
        Ok(Self { at, took: at.elapsed(), of_holds })
    }

    /// Returns whether a launch that only waits can go on with this reading. Memory that a hold has
    /// taken since counts twice, as used and as held, and a hold that was made since counts as
    /// unused: both make a planner cautious. Memory that a hold has returned since counts as used
    /// by it and as free, so a plan needs a newer reading.
    pub fn is_recent(&self) -> bool {
        self.at.elapsed() < self.took * COST_DIVISOR
    }
}

/// Returns the memory of each node that others than a launch at this position hold and do not use
/// yet. `used` was read before; the holds are read here, and may be others by now.
///
/// # Errors
/// The ledger cannot be read.
pub fn of_others(
    view: &LedgerView,
    position: &LedgerPosition,
    machine: &CpuSet,
    used: &MemoryUse,
) -> Result<BTreeMap<OsNode, u64>, LedgerError> {
    let holds = all_holds(view, machine)?;
    if holds.iter().all(|hold| hold.holder.memory.is_empty()) {
        return Ok(BTreeMap::new());
    }
    let of = |hold: &Hold| MemoryHold {
        level: hold.level.depth(),
        cpus: hold.cpus.clone(),
        memory: hold.holder.memory.clone(),
        used: used.of_holds.get(&hold.id.number()).copied().unwrap_or(0),
    };
    let all: Vec<MemoryHold> = holds.iter().map(of).collect();
    Ok(held_by_others(&all, position.level.depth(), &position.within))
}

/// Returns the bytes that the processes of each hold use.
fn used(proc: &Path, holds: &[Hold], machine: &CpuSet) -> Vec<u64> {
    let table = ProcessTable::at(proc);
    let held: Vec<_> = holds.iter().map(|hold| seen(hold, &table)).collect();
    let all = processes(proc);
    let parents: BTreeMap<u32, u32> = all.iter().map(|of| (of.id, of.parent.0)).collect();
    let mut sums = vec![ResidentMemory::default(); holds.len()];
    for stat in &all {
        let pid = Pid(stat.id);
        let named = belongs(&held, &parents, stat.id, || carried(proc, pid)).map(|its| its.id);
        let at = match named {
            Some(id) => holds.iter().position(|hold| hold.id.number() == id),
            None => bound_inside(proc, pid, holds, machine),
        };
        let (Some(at), Ok(has)) = (at, process::resident(proc, pid)) else { continue };
        sums[at].anonymous = sums[at].anonymous.saturating_add(has.anonymous);
        // Ranks share segments: the largest is counted once, since more may be the same pages.
        sums[at].shared = sums[at].shared.max(has.shared);
    }
    sums.into_iter().map(|sum| sum.anonymous.saturating_add(sum.shared)).collect()
}

/// Returns the innermost hold of the process's user that has all CPUs which it may use: the ranks
/// of another user's job, for instance: their environment cannot be read.
fn bound_inside(proc: &Path, pid: Pid, holds: &[Hold], machine: &CpuSet) -> Option<usize> {
    let status = process::status(proc, pid).ok()?;
    let around = |hold: &Hold| hold.holder.uid == status.uid && status.cpus.is_subset(&hold.cpus);
    // All processes of the user are inside a hold of the whole machine.
    holds.iter().rposition(|hold| around(hold) && !machine.is_subset(&hold.cpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_linux::ledger::{BootId, Holder, Ledger, Level, Location, Mode};

    /// Memory that this test's process surely has.
    const SOME: u64 = 256 << 20;

    #[test]
    fn memory_that_a_holder_has_touched_is_not_held_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let boot = BootId::parse("00000000-1111-2222-3333-444444444444").unwrap();
        let ledger = Ledger::open(&Location::named(folder.path(), boot)).unwrap();
        let proc = Path::new("/proc");
        let position = LedgerPosition { level: Level::MACHINE, within: "0-7".parse().unwrap() };
        // A hold of the whole machine says nothing about processes that merely run on it.
        let machine: CpuSet = "0-1".parse().unwrap();
        let of = |position: &LedgerPosition| {
            let used = MemoryUse::read(proc, &ledger, &machine).unwrap();
            of_others(&ledger, position, &machine, &used).unwrap()
        };
        let others = || of(&position);
        assert!(others().is_empty());

        let gib = 1u64 << 30;
        let own = ProcessTable::at(proc).this_process(0, std::time::Duration::from_secs(1), "x").unwrap();
        let memory = BTreeMap::from([(OsNode(0), 10 * gib)]);
        let holder = Holder { memory, ..own };
        let held = ledger.take(Level::MACHINE, &"0-1".parse().unwrap(), Mode::Exclusive, &holder).unwrap();
        let before = others()[&OsNode(0)];
        assert!(before > 9 * gib && before <= 10 * gib, "{before}");
        let touched = vec![1u8; usize::try_from(SOME).unwrap()];
        let after = others()[&OsNode(0)];
        assert!(touched.iter().all(|byte| *byte == 1));
        assert!(after <= before - SOME / 2, "{before} {after}");
        // From inside, the hold is the run's own.
        let inside = LedgerPosition { level: Level::new(1).unwrap(), within: "0-1".parse().unwrap() };
        assert!(of(&inside).is_empty());
        // Made after the reading: nothing is known to be used, so all of it is held.
        let before =
            MemoryUse { of_holds: BTreeMap::new(), ..MemoryUse::read(proc, &ledger, &machine).unwrap() };
        assert_eq!(of_others(&ledger, &position, &machine, &before).unwrap()[&OsNode(0)], 10 * gib);
        drop(held);
        assert!(others().is_empty(), "a hold that has ended holds nothing");
    }
}

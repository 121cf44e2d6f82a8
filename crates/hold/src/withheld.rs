//! CPUs that enforced holds keep from a launch. The kernel shows the launch a smaller machine, but
//! these CPUs are held as those of any other hold, and can be had later.

use trimtab_core::set::CpuSet;
use trimtab_front::process_env::World;
use trimtab_launch::LaunchFacts;
use trimtab_linux::ledger::{LedgerError, LedgerView, Level};
use trimtab_linux::partitions;
use trimtab_linux::sys::affinity;

use crate::site_facts::LedgerPosition;

/// Reads the CPUs that this process may use now, without those that the site keeps.
pub(crate) fn read_again(facts: &LaunchFacts) -> Option<CpuSet> {
    let mask = affinity::get(None).ok()?;
    Some(mask.intersection(&facts.machine.cpus()).difference(&facts.reserved))
}

/// Adds CPUs to those that a launch may use (`allowed`) which only enforced holds keep from it.
/// Returns those of them that nobody holds any more: the service gives them back within a moment.
///
/// # Errors
/// The ledger cannot be read.
pub(crate) fn include(
    world: &World,
    view: &LedgerView,
    stand: &LedgerPosition,
    allowed: &CpuSet,
    facts: &mut LaunchFacts,
) -> Result<CpuSet, LedgerError> {
    facts.bounds.allowed = allowed.clone();
    let wanted = facts.machine.cpus().difference(&facts.reserved);
    if stand.level != Level::MACHINE || wanted.is_subset(allowed) {
        return Ok(CpuSet::new());
    }
    let withheld = partitions::withheld(&world.root, allowed, &wanted);
    if withheld.is_empty() {
        return Ok(CpuSet::new());
    }
    let held = withheld.intersection(&view.map(stand.level, &withheld)?.held());
    let rest = withheld.difference(&held);
    // Searching the groups takes long on a machine with many; holds seldom leave a rest.
    let ending = match rest.is_empty() {
        true => rest,
        false => rest.intersection(&partitions::of_holds(&world.paths().cgroups())),
    };
    facts.bounds.allowed = allowed.union(&held).union(&ending);
    Ok(ending)
}

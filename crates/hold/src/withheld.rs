//! CPUs that enforced holds keep from a launch. The kernel shows the launch a smaller machine, but
//! these CPUs are held as those of any other hold, and can be had later.

use crate::site_facts::LedgerPosition;
use std::os::unix::fs::MetadataExt;
use trimtab_agent::paths::LEDGER;
use trimtab_core::set::CpuSet;
use trimtab_front::process_env::World;
use trimtab_launch::{LaunchFacts, LaunchRequest};
use trimtab_linux::ledger::{LedgerError, LedgerView, Level};
use trimtab_linux::partitions;
use trimtab_linux::sys::affinity;

/// Reads the CPUs that this process may use now, without those that the site keeps.
pub(crate) fn read_again(facts: &LaunchFacts) -> Option<CpuSet> {
    let mask = affinity::get(None).ok()?;
    Some(mask.intersection(&facts.machine.cpus()).difference(&facts.reserved))
}

/// CPUs that enforced holds keep from a launch, as it reads them before it has the right to plan:
/// the search takes long on a machine with many control groups.
pub(crate) struct Withheld {
    /// All that partitions keep from it.
    cpus: CpuSet,
    /// Those of them that nobody held in the ledger.
    unheld: CpuSet,
    /// Those of these that are in partitions of holds, which the service ends within a moment.
    ending: CpuSet,
}

impl Withheld {
    /// Looks for them, beside the CPUs `allowed` that the launch may use.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(crate) fn look(
        world: &World,
        request: &LaunchRequest,
        view: &LedgerView,
        stand: &LedgerPosition,
        allowed: &CpuSet,
        facts: &LaunchFacts,
    ) -> Result<Self, LedgerError> {
        let nothing = || Self { cpus: CpuSet::new(), unheld: CpuSet::new(), ending: CpuSet::new() };
        let wanted = facts.machine.cpus().difference(&facts.reserved);
        // The kernel refuses to share CPUs of an enforced hold.
        if request.place.share
            || stand.level != Level::MACHINE
            || wanted.is_subset(allowed)
            || !is_of_service(world, view)
        {
            return Ok(nothing());
        }
        let cpus = partitions::withheld(&world.root, allowed, &wanted);
        if cpus.is_empty() {
            return Ok(nothing());
        }
        let unheld = cpus.difference(&view.map(stand.level, &cpus)?.held());
        // Holds seldom leave any.
        let ending = match unheld.is_empty() || !partitions::is_enforced(&world.root) {
            true => CpuSet::new(),
            false => unheld.intersection(&partitions::of_holds(&world.paths().cgroups())),
        };
        Ok(Self { cpus, unheld, ending })
    }

    /// Adds CPUs to those that a launch may use (`allowed`): those of holds, and of holds that have
    /// ended. Returns the latter; `None` if another hold has ended since the look.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(crate) fn include(
        &self,
        view: &LedgerView,
        stand: &LedgerPosition,
        allowed: &CpuSet,
        facts: &mut LaunchFacts,
    ) -> Result<Option<CpuSet>, LedgerError> {
        facts.bounds.allowed = allowed.clone();
        if self.cpus.is_empty() {
            return Ok(Some(CpuSet::new()));
        }
        let held = self.cpus.intersection(&view.map(stand.level, &self.cpus)?.held());
        let unheld = self.cpus.difference(&held);
        if !unheld.is_subset(&self.unheld) {
            return Ok(None);
        }
        let ending = self.ending.intersection(&unheld);
        facts.bounds.allowed = allowed.union(&held).union(&ending);
        Ok(Some(ending))
    }
}

/// Returns whether the service that enforces holds may believe this ledger, which must be root's
/// for that. A user's own ledger does not have the holds that withhold CPUs here, and it may have
/// others on the same CPUs, so that a run would wait for the wrong ones.
fn is_of_service(world: &World, view: &LedgerView) -> bool {
    world.text(LEDGER).is_none() || std::fs::metadata(view.path()).is_ok_and(|file| file.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::chown;
    use std::path::Path;
    use std::time::Duration;
    use trimtab_core::topology::parse_synthetic;
    use trimtab_launch::Sources;
    use trimtab_linux::ledger::{BootId, Ledger, Location, Mode, ProcessTable};

    /// Makes a machine of eight CPUs of which partitions have 4 and 5.
    fn machine() -> (tempfile::TempDir, World) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/a\n");
        write("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/cpuset.cpus.effective", "0-3,6-7\n");
        write("sys/fs/cgroup/a/memory.max", "max\n");
        let mut world = World::default();
        world.root = root.path().to_owned();
        (root, world)
    }

    #[test]
    fn only_held_cpus_of_the_services_ledger_are_included() {
        let (root, world) = machine();
        let boot = BootId::parse("00000000-1111-2222-3333-444444444444").unwrap();
        let ledger = Ledger::open(&Location::named(root.path(), boot)).unwrap();
        let own = ProcessTable::at(Path::new("/proc")).this_process(0, Duration::from_secs(1), "x").unwrap();
        let four: CpuSet = "4".parse().unwrap();
        let held = ledger.take(Level::MACHINE, &four, Mode::Exclusive, &own).unwrap();
        let stand = LedgerPosition { level: Level::MACHINE, within: "0-7".parse().unwrap() };
        let allowed: CpuSet = "0-3,6-7".parse().unwrap();
        let mut facts = LaunchFacts::idle(parse_synthetic("core:8").unwrap());
        let mut request = LaunchRequest::merge(Sources::default()).unwrap();
        let look = |world: &World, request: &LaunchRequest, facts: &LaunchFacts| {
            Withheld::look(world, request, &ledger, &stand, &allowed, facts).unwrap()
        };
        let looked = look(&world, &request, &facts);
        // No service is here that would give CPU 5 back.
        assert_eq!(looked.include(&ledger, &stand, &allowed, &mut facts).unwrap(), Some(CpuSet::new()));
        assert_eq!(facts.bounds.allowed.to_string(), "0-4,6-7");
        // A ledger of the user's own is not the one by which the CPUs were taken away.
        let private = world.with_variable(LEDGER, &root.path().to_string_lossy());
        if rustix::process::geteuid().is_root() {
            assert_eq!(look(&private, &request, &facts).cpus.to_string(), "4-5");
            chown(ledger.path(), Some(1234), None).unwrap();
        }
        assert_eq!(look(&private, &request, &facts).cpus, CpuSet::new());
        request.place.share = true;
        assert_eq!(look(&world, &request, &facts).cpus, CpuSet::new());
        drop(held);
        assert_eq!(looked.include(&ledger, &stand, &allowed, &mut facts).unwrap(), None, "a hold has ended");
        assert_eq!(facts.bounds.allowed, allowed);
    }
}

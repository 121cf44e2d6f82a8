//! This machine, as the ground of the ladder.

use super::cpu::Cpu;
use super::event::{Event, EventError, Spec};
use super::group::{Group, Recipe};
use super::ladder::{CountingTrial, LadderMachine};
use super::price;
use super::walk::{Walk, compute};
use crate::process::Pid;
use crate::sys::residency;
use crate::text;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use trimtab_core::counter_budget::Price;
use trimtab_core::counts::Counts;
use trimtab_core::set::NodeSet;

/// This machine, by the mount points of its kernel's file systems.
#[derive(Debug)]
pub struct Here {
    proc: PathBuf,
    sys: PathBuf,
    walk: Option<Walk>,
}

impl Here {
    /// Makes the ground with the mount points of procfs and sysfs.
    pub fn new(proc: &Path, sys: &Path) -> Self {
        Self { proc: proc.to_owned(), sys: sys.to_owned(), walk: None }
    }

    fn setting(&self, name: &str) -> Option<i64> {
        text::number(&text::read(&self.proc.join("sys/kernel").join(name)).ok()?)
    }
}

impl LadderMachine for Here {
    fn cpu(&self) -> Option<Cpu> {
        Cpu::here(&self.proc, &self.sys)
    }

    fn paranoid(&self) -> Option<i64> {
        self.setting("perf_event_paranoid")
    }

    fn lends(&self) -> bool {
        // A parameter of Linux 7.0 and newer, chosen when the module is loaded.
        ["kvm_intel", "kvm_amd"].iter().any(|module| {
            let file = format!("module/{module}/parameters/enable_mediated_pmu");
            text::read(&self.sys.join(file)).is_ok_and(|answer| answer.starts_with(b"Y"))
        })
    }

    fn resolve(&self, spec: &Spec) -> Result<Event, EventError> {
        spec.resolve(&self.sys)
    }

    fn trial(&mut self, recipe: &Recipe) -> Result<CountingTrial, Errno> {
        let group = Group::open(recipe, None)?;
        // Made before counting, so that its making is not counted as a walk.
        let walk = self.walk.get_or_insert_with(Walk::new);
        // Read in between instead of switched off and on again: Linux 6.18 starts its software
        // clocks once between two context switches.
        group.on()?;
        let begin = group.read(recipe)?;
        let steps = walk.go();
        let walked = group.read(recipe)?;
        compute();
        let both = group.read(recipe)?;
        group.off()?;
        let between = |after: Option<Counts>, before: Option<Counts>| match (before, after) {
            (Some(before), Some(after)) => after.since(&before),
            (_, after) => after,
        };
        let (still, walked) = (between(both, walked), between(walked, begin));
        Ok(CountingTrial { steps, walk: walked, still })
    }

    fn price(&mut self, recipe: &Recipe) -> Option<Price> {
        price::measure(recipe)
    }

    fn nodes(&self) -> usize {
        let read = |name: &str| text::read(&self.sys.join("devices/system/node").join(name)).ok();
        let nodes: Option<NodeSet> =
            read("has_memory").or_else(|| read("online")).and_then(|text| text::list(&text));
        nodes.map_or(1, |nodes| nodes.len())
    }

    fn balancing(&self) -> Option<bool> {
        self.setting("numa_balancing").map(|mode| mode != 0)
    }

    fn residency(&self) -> Result<(), Errno> {
        let page = 0u8;
        residency::nodes(Pid::own(), &[(&raw const page).addr() as u64]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Role;
    use super::*;
    use crate::skip::skipped;

    #[test]
    fn opened_counters_distinguish_a_pointer_walk_from_computation() {
        let mut here = Here::new(Path::new("/proc"), Path::new("/sys"));
        let event = |role, name| (role, Event::generic(name).unwrap());
        let events = vec![event(Role::Cycles, "task-clock"), event(Role::Requests, "page-faults")];
        let recipe = Recipe { user_only: true, ..Recipe::of(events) };
        match here.trial(&recipe) {
            Ok(trial) => {
                let (walk, still) = (trial.walk.unwrap(), trial.still.unwrap());
                assert!(trial.steps > 0 && walk.cycles > Some(0) && still.cycles > Some(0), "{trial:?}");
                assert!(still.running <= still.enabled);
            }
            Err(errno) => skipped(format_args!("nothing may be counted here: {errno}")),
        }
        assert!(here.nodes() >= 1);
        let other = tempfile::tempdir().unwrap();
        let parameters = other.path().join("module/kvm_amd/parameters");
        std::fs::create_dir_all(&parameters).unwrap();
        for (answer, lends) in [("Y\n", true), ("N\n", false), ("", false)] {
            std::fs::write(parameters.join("enable_mediated_pmu"), answer).unwrap();
            assert_eq!(Here::new(other.path(), other.path()).lends(), lends, "{answer:?}");
        }
        let nowhere = Here::new(Path::new("/nowhere"), Path::new("/nowhere"));
        assert_eq!(
            (nowhere.nodes(), nowhere.balancing(), nowhere.paranoid(), nowhere.cpu(), nowhere.lends()),
            (1, None, None, None, false)
        );
    }
}

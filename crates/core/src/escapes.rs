//! Escapes: processes of a run that may run on CPUs which the run does not hold.
//!
//! Problem: a hold binds the processes of a run only by the mask that they inherit, and each
//! process may widen its own mask. Idea: a process belongs to the nearest hold among its ancestors.
//! If its ancestors have ended or a daemon started it, it belongs to the hold that its environment
//! names. A process has escaped if its mask has CPUs of the machine that this hold does not have.

use crate::set::CpuSet;
use std::collections::BTreeMap;

/// Maximum number of ancestors that are followed: process trees are shallow, and a wrong table may
/// contain a cycle.
const ANCESTORS_MAX: usize = 1_000;

/// CPUs of one hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Number of the hold, as in `TRIMTAB_HOLD`.
    pub id: u64,
    /// Process that took the hold; `None` if it has ended or cannot be seen.
    pub holder: Option<u32>,
    /// CPUs.
    pub cpus: CpuSet,
}

/// Returns the hold that a process belongs to. `parents` has the parent of every process. `carries`
/// returns the hold that the process's environment names, and is called only if no ancestor holds
/// anything.
pub fn belongs<'a>(
    holds: &'a [Held],
    parents: &BTreeMap<u32, u32>,
    pid: u32,
    carries: impl FnOnce() -> Option<u64>,
) -> Option<&'a Held> {
    let ancestors = std::iter::successors(Some(pid), |at| parents.get(at).copied()).take(ANCESTORS_MAX);
    for at in ancestors {
        // If a process has a hold inside its own hold, the inner one comes later in the list.
        if let Some(held) = holds.iter().rfind(|held| held.holder == Some(at)) {
            return Some(held);
        }
    }
    let id = carries()?;
    holds.iter().find(|held| held.id == id)
}

/// Returns the CPUs of the machine on which a member of a hold may run, and which the hold does not
/// have.
pub fn outside(held: &Held, cpus: &CpuSet, machine: &CpuSet) -> CpuSet {
    cpus.intersection(machine).difference(&held.cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(id: u64, holder: impl Into<Option<u32>>, cpus: &str) -> Held {
        Held { id, holder: holder.into(), cpus: cpus.parse().unwrap() }
    }

    #[test]
    fn a_process_belongs_to_the_nearest_hold_among_its_ancestors() {
        let holds = [held(7, 10, "0-3"), held(8, 12, "0-1")];
        let parents = BTreeMap::from([(10, 1), (11, 10), (12, 11), (13, 12), (20, 1), (1, 0)]);
        let of = |pid| belongs(&holds, &parents, pid, || None).map(|held| held.id);
        assert_eq!([10, 11, 12, 13, 20, 1].map(of), [Some(7), Some(7), Some(8), Some(8), None, None]);
    }

    #[test]
    fn a_process_without_ancestors_that_hold_belongs_to_the_hold_it_carries() {
        let holds = [held(7, 10, "0"), held(8, None, "1")];
        let parents = BTreeMap::from([(10, 1), (11, 10), (30, 1)]);
        let of = |pid, carried| belongs(&holds, &parents, pid, || carried).map(|held| held.id);
        assert_eq!(of(30, Some(8)), Some(8));
        assert_eq!(of(11, Some(8)), Some(7), "the process tree takes precedence over the environment");
        assert_eq!((of(30, Some(99)), of(30, None)), (None, None));
    }

    #[test]
    fn a_run_that_holds_inside_its_own_hold_is_the_inner_one() {
        let holds = [held(7, 10, "0-3"), held(8, 10, "0")];
        let found = belongs(&holds, &BTreeMap::from([(10, 1)]), 10, || None);
        assert_eq!(found.map(|held| held.id), Some(8));
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let parents = BTreeMap::from([(10, 11), (11, 10)]);
        assert_eq!(belongs(&[held(7, 12, "0")], &parents, 10, || None), None);
    }

    #[test]
    fn cpus_outside_a_hold_are_usable_ones_and_not_held() {
        let machine = "0-3".parse().unwrap();
        let of = |cpus: &str| outside(&held(7, 10, "1-2"), &cpus.parse().unwrap(), &machine).to_string();
        assert_eq!(
            (of("0-63").as_str(), of("1").as_str(), of("0").as_str(), of("64-70").as_str()),
            ("0,3", "", "0", "")
        );
    }
}

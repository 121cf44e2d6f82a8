//! Masks that were given to the threads of a process. A thread inherits the mask of its parent
//! thread, and the inherited mask may be one of ours, which must be replaced.

use crate::host::home::Home;
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;

/// Masks that were given to threads, each with the own masks of these threads. A mask is kept until
/// no unknown thread can have inherited it.
#[derive(Clone, Debug, Default)]
pub(super) struct Given(BTreeMap<CpuSet, MaskOrigin>);

/// Origin of a given mask.
#[derive(Clone, Debug, Default)]
struct MaskOrigin {
    homes: BTreeSet<Home>,
    /// Time at which the mask was first seen without a holder.
    free_since: Option<Moment>,
}

/// Maximal number of different masks stored for a process. Chosen: a mask for each CPU of a large
/// machine.
const GIVEN_MAX: usize = 1_024;
/// Maximal number of different own masks stored for each given mask. Chosen: a program with more
/// has bound each thread by itself.
const HOMES_MAX: usize = 64;

impl Given {
    /// Remembers that a thread with own mask `home` is given mask `held`.
    pub(super) fn add(&mut self, held: &CpuSet, home: &Home) {
        if *held == home.cpus || (self.0.len() >= GIVEN_MAX && !self.0.contains_key(held)) {
            return;
        }
        let was = self.0.entry(held.clone()).or_default();
        was.free_since = None;
        if was.homes.len() < HOMES_MAX {
            was.homes.insert(home.clone());
        }
    }

    /// Returns the own masks of the threads to which this mask was given.
    pub(super) fn homes(&self, mask: &CpuSet) -> Option<&BTreeSet<Home>> {
        self.0.get(mask).map(|was| &was.homes)
    }

    /// Drops masks that were free at the last complete search for threads and children, at
    /// `searched`: every thread that inherited such a mask is known. All threads were listed just
    /// now.
    pub(super) fn forget(&mut self, now: Moment, searched: Option<Moment>, held: &BTreeSet<&CpuSet>) {
        self.0.retain(|mask, was| {
            let free = !held.contains(mask);
            was.free_since = free.then(|| was.free_since.unwrap_or(now));
            was.free_since.is_none_or(|since| searched.is_none_or(|searched| searched <= since))
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::ids::OsCpu;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn given_masks_are_forgotten_when_no_new_thread_can_inherit_them() {
        let (one, home) = (set("1"), Home::own(set("0-3")));
        let held = BTreeSet::from([&one]);
        let mut given = Given::default();
        given.add(&home.cpus, &home);
        assert!(given.is_empty(), "its own is not given");
        given.add(&one, &home);
        given.forget(Moment(10), Some(Moment(9)), &held);
        assert_eq!(given.homes(&one), Some(&BTreeSet::from([home.clone()])));
        // Released; a child created before may not have been found yet.
        given.forget(Moment(20), Some(Moment(19)), &BTreeSet::new());
        given.forget(Moment(30), Some(Moment(19)), &BTreeSet::new());
        assert!(!given.is_empty(), "children were not looked for since");
        // If it is held again, the waiting starts from the beginning.
        given.forget(Moment(40), Some(Moment(39)), &held);
        given.forget(Moment(50), Some(Moment(49)), &BTreeSet::new());
        assert!(!given.is_empty());
        given.forget(Moment(60), Some(Moment(59)), &BTreeSet::new());
        assert!(given.is_empty());
        // Memory is bounded for any number of masks.
        for at in 0..u32::try_from(2 * GIVEN_MAX).unwrap() {
            given.add(&[OsCpu(at)].into_iter().collect(), &home);
            given.add(&one, &Home::own([OsCpu(at), OsCpu(9_000)].into_iter().collect()));
        }
        assert!(given.0.len() <= GIVEN_MAX && given.0.values().all(|was| was.homes.len() <= HOMES_MAX));
    }
}

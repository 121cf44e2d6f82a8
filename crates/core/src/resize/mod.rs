//! Change of a hold while its programs run: the cores to add or to give back, and the mask that
//! each thread gets.
//!
//! **Unit.** One core, as the set of its CPUs that belong to the hold or could be added.
//!
//! **Problem.** A hold must grow by cores that are near to it, and shrink by cores whose loss
//! separates the rest least. Threads must never have CPUs that the hold does not have, and a thread
//! that its program bound to a part of the hold should stay there.
//!
//! **Idea.** Cores are added and given back one at a time, by their nearness to the others: a
//! shared last-level cache counts more than a shared node, a shared node more than a shared
//! package. Masks follow from two pairs of sets, before and after: the CPUs of the hold, and the
//! CPUs on which its program may run (which may leave hardware threads of the cores idle).
//!
//! **Properties** (tests.rs):
//! - Growth takes free cores only, exactly as many as are missing, or fails.
//! - Shrinking keeps exactly the wanted number, and never gives back a core that is in use inside.
//! - The mask of a thread after a change is within the hold after it, if it was within it before.
//! - A thread whose mask still fits keeps it, unless it has all CPUs of its program, or the
//!   program has more threads than CPUs and the hold grows.

pub mod grow;
pub mod outsiders;
pub mod yields;

use crate::ids::{CoreId, Id};
use crate::set::CpuSet;
use crate::topology::{Level, Machine};
use thiserror::Error;

/// Why a hold cannot be changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ResizeError {
    /// No core would be left.
    #[error("a hold has at least 1 core; end it with trimtab release, or end its program")]
    Nothing,
    /// Not enough cores are free.
    #[error("{missing} more cores are needed, and {free} are free (CPUs {cpus})")]
    TooFew {
        /// Cores that are missing to the wanted number.
        missing: usize,
        /// Cores that are free.
        free: usize,
        /// Their CPUs.
        cpus: CpuSet,
    },
    /// Runs inside the hold have cores that would be given back.
    #[error(
        "{inside} of its cores are held by runs inside it (CPUs {cpus}), so it cannot shrink to {wanted}; resize or end these first"
    )]
    InUse {
        /// Cores that are held inside.
        inside: usize,
        /// Their CPUs.
        cpus: CpuSet,
        /// Cores that were wanted.
        wanted: usize,
    },
}

/// Returns the parts of a set by core, in logical order; CPUs that the machine does not know are
/// left out.
pub fn cores_of(machine: &Machine, cpus: &CpuSet) -> Vec<(CoreId, CpuSet)> {
    let part = |(index, core): (usize, &crate::topology::Core)| {
        let part = machine.cpus_of(&core.pus).intersection(cpus);
        (!part.is_empty()).then(|| (CoreId::from_index(index), part))
    };
    machine.cores().iter().enumerate().filter_map(part).collect()
}

/// Returns the CPUs of a hold of `wanted` cores that is made of `held`: cores of `free` are added,
/// or cores are given back that are not `inside` (held by runs inside the hold).
///
/// # Errors
/// There are not enough such cores, or none would be left.
pub fn resized(
    machine: &Machine,
    held: &CpuSet,
    free: &CpuSet,
    inside: &CpuSet,
    wanted: usize,
) -> Result<CpuSet, ResizeError> {
    let mut kept = cores_of(machine, held);
    if wanted == 0 {
        return Err(ResizeError::Nothing);
    }
    let mut after = held.clone();
    if wanted > kept.len() {
        let mut free = whole(machine, held, free);
        let missing = wanted - kept.len();
        if free.len() < missing {
            let cpus = free.iter().fold(CpuSet::new(), |sum, (_, part)| sum.union(part));
            return Err(ResizeError::TooFew { missing, free: free.len(), cpus });
        }
        for _ in 0..missing {
            let best = (0..free.len()).max_by_key(|&at| {
                (nearness(machine, free[at].0, &kept), nearness(machine, free[at].0, &free), usize::MAX - at)
            });
            let Some(best) = best else { break };
            let core = free.remove(best);
            after = after.union(&core.1);
            kept.push(core);
        }
        return Ok(after);
    }
    let used = kept.iter().filter(|(_, part)| part.intersects(inside)).count();
    if wanted < used {
        let cpus = held.intersection(inside);
        return Err(ResizeError::InUse { inside: used, cpus, wanted });
    }
    while kept.len() > wanted {
        let worst = (0..kept.len())
            .filter(|&at| !kept[at].1.intersects(inside))
            .min_by_key(|&at| (nearness(machine, kept[at].0, &kept), usize::MAX - at));
        let Some(worst) = worst else { break };
        after = after.difference(&kept.remove(worst).1);
    }
    Ok(after)
}

/// Returns the free cores that could be added: all their CPUs must be free or the hold's own.
fn whole(machine: &Machine, held: &CpuSet, free: &CpuSet) -> Vec<(CoreId, CpuSet)> {
    let all = |core: CoreId| machine.cpus_of(&machine.core(core).pus);
    let mut cores = cores_of(machine, free);
    cores.retain(|(core, part)| !all(*core).intersects(held) && *part == all(*core));
    cores
}

/// Returns the number of cores that a hold could get.
pub fn cores_to_get(machine: &Machine, held: &CpuSet, free: &CpuSet) -> usize {
    whole(machine, held, free).len()
}

/// Sum of the nearness of a core to others: 16 for one that shares its last-level cache, 4 for one
/// of its node, 1 for one of its package. Chosen: the order of the three matters, and a cache
/// shared with one core counts more than a node shared with three.
fn nearness(machine: &Machine, core: CoreId, others: &[(CoreId, CpuSet)]) -> u64 {
    let (own, package) = (machine.core(core), machine.enclosing(Level::Package, core));
    let near = |other: CoreId| {
        let its = machine.core(other);
        let llc = if own.llc == its.llc { 16 } else { 0 };
        let node = if own.node.is_some() && own.node == its.node { 4 } else { 0 };
        let same = package.is_some() && package == machine.enclosing(Level::Package, other);
        llc + node + u64::from(same)
    };
    others.iter().filter(|(other, _)| *other != core).map(|(other, _)| near(*other)).sum()
}

/// The CPUs of a hold, and those on which its program may run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// The CPUs of the hold.
    pub hold: CpuSet,
    /// The CPUs on which its program may run.
    pub mask: CpuSet,
}

impl Extent {
    /// Derives the mask of a program from the masks of its threads: all CPUs that one of them has
    /// within the hold; all of the hold if no thread is within it.
    pub fn of_threads<'a>(hold: CpuSet, masks: impl IntoIterator<Item = &'a CpuSet>) -> Self {
        let within = masks.into_iter().filter(|mask| mask.is_subset(&hold));
        let mask = within.fold(CpuSet::new(), |sum, mask| sum.union(mask));
        let mask = if mask.is_empty() { hold.clone() } else { mask };
        Self { hold, mask }
    }

    /// Returns the extent after the hold became `hold`. Of a core that was added, the program gets
    /// as many CPUs as it has on its other cores at most: all of them, or the first.
    #[must_use]
    pub fn changed_to(&self, machine: &Machine, hold: &CpuSet) -> Self {
        let widest = cores_of(machine, &self.mask).iter().map(|(_, part)| part.len()).max().unwrap_or(1);
        let mut mask = self.mask.intersection(hold);
        for (_, part) in cores_of(machine, &hold.difference(&self.hold)) {
            mask = part.iter().take(widest).fold(mask, |mut sum, cpu| {
                sum.insert(cpu);
                sum
            });
        }
        if mask.is_empty() {
            mask = hold.clone();
        }
        Self { hold: hold.clone(), mask }
    }

    /// Returns the mask that a thread gets when the extent becomes `after`; `None` if it keeps its
    /// own. `crowded` says that the program has more threads than CPUs.
    pub fn mask_of_thread(&self, after: &Self, own: &CpuSet, crowded: bool) -> Option<CpuSet> {
        if !own.is_subset(&self.hold) {
            return None; // not in the hold: its program or its user put it elsewhere
        }
        let grows = self.mask.is_subset(&after.mask);
        let whole = self.mask.is_subset(own);
        let left = own.intersection(&after.hold);
        let new = if whole || left.is_empty() || (crowded && grows) { after.mask.clone() } else { left };
        (new != *own).then_some(new)
    }
}

#[cfg(test)]
mod tests;

//! Cores of a hold that programs outside of all holds lack.
//!
//! **Unit.** One core, and one thread that wants to compute.
//!
//! **Problem.** A program that trimtab did not start asks for nothing: it shares the CPUs of holds
//! with their programs. A hold that has grown may give such programs cores back, but not more than
//! they can use: a core that their masks exclude helps none of them, and a core outside of holds
//! serves them as well.
//!
//! **Idea.** Let each thread have one core that its mask allows, cores outside of holds first: of
//! these, the ones that the hold could not take anyway before the ones that it could. Cores enter
//! one after the other by augmenting paths: a core that entered stays, and threads change places to
//! let others in. So the cores of the hold that enter after those outside are as few as possible,
//! and with them as many threads as possible have a core.
//!
//! Properties (tests below, against all subsets of small machines):
//! - Cores outside of holds serve as many threads as they can, and as few of those as possible that
//!   the hold could take.
//! - With the cores that are lacking as many threads have a core as with the whole hold, and with
//!   fewer cores of the hold they have not.
//! - Once these cores are outside of the hold, no more are lacking: a second hold, and the same one
//!   a second later, give nothing.

use super::cores_of;
use crate::ids::CoreId;
use crate::set::CpuSet;
use crate::topology::Machine;

/// Threads of programs outside of all holds that want to compute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outsider {
    /// CPUs on which they may run.
    pub mask: CpuSet,
    /// Their number.
    pub threads: usize,
}

/// Cores for the threads of outsiders.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutsiderCores {
    /// The CPUs of cores outside of holds that serve no thread.
    pub spare: CpuSet,
    /// Cores of the hold that threads lack.
    pub lacking: usize,
    /// The CPUs of these cores that the hold has.
    pub cpus: CpuSet,
}

/// Returns the cores for outsiders. `outside` is the CPUs outside of all holds, of which the hold
/// could take `quiet` ones. `hold` is those of the hold, and `kept` those that it cannot give back.
/// Only whole cores count.
///
/// # Examples
/// ```
/// use trimtab_core::resize::outsiders::{Outsider, outsider_cores};
/// use trimtab_core::topology::parse_synthetic;
///
/// let machine = parse_synthetic("core:4")?;
/// let set = |cpus: &str| cpus.parse().unwrap();
/// let two = Outsider { mask: set("0-3"), threads: 2 };
/// let found = outsider_cores(&machine, &set("3"), &set("3"), &set("0-2"), &set("0"), &[two]);
/// assert_eq!((found.lacking, found.cpus, found.spare), (1, set("2"), set("")), "one has core 3");
///
/// // The hold has no core that this thread may use.
/// let bound = Outsider { mask: set("3"), threads: 2 };
/// let found = outsider_cores(&machine, &set("3"), &set("3"), &set("0-2"), &set("0"), &[bound]);
/// assert_eq!(found.lacking, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn outsider_cores(
    machine: &Machine,
    outside: &CpuSet,
    quiet: &CpuSet,
    hold: &CpuSet,
    kept: &CpuSet,
    outsiders: &[Outsider],
) -> OutsiderCores {
    let whole = |(core, part): &(CoreId, CpuSet)| machine.cpus_of(&machine.core(*core).pus) == *part;
    let mut found = OutsiderCores::default();
    let mut seats = Seats::of(outsiders);
    let outside = cores_of(machine, outside).into_iter().filter(whole);
    let (last, first): (Vec<_>, Vec<_>) = outside.partition(|(_, part)| part.is_subset(quiet));
    for (_, part) in first.into_iter().chain(last) {
        if !seats.enter(part.clone()) {
            found.spare = found.spare.union(&part);
        }
    }
    // The last core first: the first ones are near to those of the start, more often than not. A
    // part of a core would not be a whole one outside of the hold.
    let ours = cores_of(machine, hold).into_iter().rev().filter(whole);
    for (_, part) in ours.filter(|(_, part)| !part.intersects(kept)) {
        if seats.enter(part.clone()) {
            found.lacking += 1;
            found.cpus = found.cpus.union(&part);
        }
    }
    found
}

/// Core with the outsiders to which it gives a thread its place.
struct Seat {
    part: CpuSet,
    of: usize,
}

/// Cores that serve threads.
struct Seats<'a> {
    outsiders: &'a [Outsider],
    /// Number of threads of each outsider that have no core.
    waiting: Vec<usize>,
    taken: Vec<Seat>,
}

impl<'a> Seats<'a> {
    fn of(outsiders: &'a [Outsider]) -> Self {
        let waiting = outsiders.iter().map(|outsider| outsider.threads).collect();
        Self { outsiders, waiting, taken: Vec::new() }
    }

    /// Lets a core serve a thread if one more thread can be served with it.
    fn enter(&mut self, part: CpuSet) -> bool {
        // The new core comes last.
        let new = self.taken.len();
        self.taken.push(Seat { part, of: usize::MAX });
        // The core by which each outsider was reached.
        let mut reached: Vec<Option<usize>> = vec![None; self.outsiders.len()];
        let mut next = vec![new];
        while let Some(seat) = next.pop() {
            for (at, outsider) in self.outsiders.iter().enumerate() {
                if reached[at].is_some() || !outsider.mask.intersects(&self.taken[seat].part) {
                    continue;
                }
                reached[at] = Some(seat);
                if self.waiting[at] > 0 {
                    self.waiting[at] -= 1;
                    self.pass_on(at, &reached);
                    return true;
                }
                next.extend((0..new).filter(|&other| self.taken[other].of == at));
            }
        }
        self.taken.pop();
        false
    }

    /// Gives a thread of an outsider the core by which that was reached, that core's former thread
    /// the one by which its outsider was reached, and so on up to the new core.
    fn pass_on(&mut self, mut to: usize, reached: &[Option<usize>]) {
        while let Some(seat) = reached.get(to).copied().flatten() {
            to = std::mem::replace(&mut self.taken[seat].of, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;
    use proptest::prelude::*;

    fn set(cpus: &str) -> CpuSet {
        cpus.parse().unwrap()
    }

    /// Returns the most threads that can have a core each, by trying all.
    fn served(masks: &[CpuSet], cores: &[CpuSet]) -> usize {
        let Some((mask, others)) = masks.split_first() else { return 0 };
        let with = |at: usize| {
            let rest = [&cores[..at], &cores[at + 1..]].concat();
            1 + served(others, &rest)
        };
        let usable = (0..cores.len()).filter(|&at| cores[at].intersects(mask));
        usable.map(with).max().unwrap_or(0).max(served(others, cores))
    }

    #[test]
    fn cores_that_serve_no_thread_are_not_lacking() {
        let machine = parse_synthetic("core:4 pu:2").unwrap();
        let of = |outside: &str, hold: &str, kept: &str, outsiders: &[(&str, usize)]| {
            let outsiders: Vec<Outsider> =
                outsiders.iter().map(|&(mask, threads)| Outsider { mask: set(mask), threads }).collect();
            let quiet = set(outside);
            let found = outsider_cores(&machine, &quiet, &quiet, &set(hold), &set(kept), &outsiders);
            (cores_of(&machine, &found.spare).len(), found.lacking, found.cpus.to_string())
        };
        assert_eq!(of("", "0-7", "", &[]), (0, 0, String::new()));
        assert_eq!(of("", "0-7", "", &[("0-7", 2)]), (0, 2, "4-7".to_owned()));
        assert_eq!(of("", "0-7", "", &[("0-7", 99)]), (0, 4, "0-7".to_owned()));
        assert_eq!(of("", "0-7", "0-1", &[("0-1", 1)]), (0, 0, String::new()), "held inside");
        assert_eq!(of("6-7", "0-5", "", &[("0-5", 1)]), (1, 1, "4-5".to_owned()), "not for its mask");
        assert_eq!(of("6-7", "0-5", "", &[("0-7", 1)]), (0, 0, String::new()), "there is one for it");
        assert_eq!(of("7", "0-5", "", &[("7", 1)]), (0, 0, String::new()), "half a core outside");
        assert_eq!(of("", "0-6", "", &[("0-7", 9)]), (0, 3, "0-5".to_owned()), "half a core of the hold");
        // The free one has the core that the bound one needs, and changes its place.
        assert_eq!(of("4-7", "0-3", "", &[("4-7", 1), ("4-5", 1)]), (0, 0, String::new()));
        assert_eq!(of("4-7", "0-3", "", &[("0-1,4-7", 2), ("4-5", 1)]), (0, 1, "0-1".to_owned()));
        // A bound thread lacks its own core and no other one.
        assert_eq!(of("6-7", "0-5", "", &[("2", 1)]), (1, 1, "2-3".to_owned()));
    }

    #[test]
    fn a_core_that_the_hold_cannot_take_serves_a_thread_first() {
        let machine = parse_synthetic("core:4").unwrap();
        let spare = |quiet: &str, mask: &str, threads: usize| {
            let outsider = Outsider { mask: set(mask), threads };
            let (outside, hold) = (set("1-3"), set("0"));
            outsider_cores(&machine, &outside, &set(quiet), &hold, &hold, &[outsider]).spare.to_string()
        };
        assert_eq!(spare("1-2", "0-3", 1), "1-2", "one computes on core 3");
        assert_eq!(spare("2-3", "0-3", 1), "2-3");
        assert_eq!(spare("1-2", "0-3", 2), "2");
        assert_eq!(spare("1-2", "1", 1), "2-3", "only a quiet one is within its mask");
    }

    proptest! {
        #[test]
        fn as_few_cores_are_lacking_as_serve_the_most_threads(
            owner in proptest::collection::vec(0..4u8, 1..6),
            quiet: u8,
            masks in proptest::collection::vec((1..64u8, 1..3usize), 0..4),
        ) {
            let machine = parse_synthetic(&format!("core:{}", owner.len())).unwrap();
            let all: Vec<CpuSet> = cores_of(&machine, &machine.cpus()).into_iter().map(|(_, part)| part).collect();
            let of = |owners: &[u8]| -> Vec<CpuSet> {
                all.iter().zip(&owner).filter(|(_, owner)| owners.contains(owner)).map(|(core, _)| core.clone()).collect()
            };
            let sum = |cores: &[CpuSet]| cores.iter().fold(CpuSet::new(), |sum, core| sum.union(core));
            let mask = |bits: u8| sum(&(0..all.len()).filter(|at| bits >> at & 1 == 1).map(|at| all[at].clone()).collect::<Vec<_>>());
            let outsiders: Vec<Outsider> =
                masks.iter().map(|&(bits, threads)| Outsider { mask: mask(bits), threads }).collect();
            let threads: Vec<CpuSet> =
                outsiders.iter().flat_map(|of| std::iter::repeat_n(of.mask.clone(), of.threads)).collect();
            // 0: outside; 1: the hold's; 2: held inside the hold; 3: another hold's.
            let (outside, ours, kept) = (of(&[0]), of(&[1, 2]), of(&[2]));
            let quiet = mask(quiet);
            let found = outsider_cores(&machine, &sum(&outside), &quiet, &sum(&ours), &sum(&kept), &outsiders);
            let spare = cores_of(&machine, &found.spare).len();
            let most = served(&threads, &of(&[0, 1]));
            prop_assert_eq!(outside.len() - spare, served(&threads, &outside));
            let loud: Vec<CpuSet> = outside.iter().filter(|core| !core.is_subset(&quiet)).cloned().collect();
            let unused = loud.iter().filter(|core| core.is_subset(&found.spare)).count();
            prop_assert_eq!(loud.len() - unused, served(&threads, &loud), "these first");
            prop_assert_eq!(found.lacking, most - served(&threads, &outside));
            let given: Vec<CpuSet> = of(&[1]).into_iter().filter(|core| core.is_subset(&found.cpus)).collect();
            prop_assert_eq!(given.len(), found.lacking);
            prop_assert_eq!(sum(&given), found.cpus.clone());
            let now = [outside, given].concat();
            prop_assert_eq!(served(&threads, &now), most);
            // After that nothing is lacking, and nothing can be taken.
            let after = outsider_cores(
                &machine, &sum(&now), &quiet, &sum(&ours).difference(&found.cpus), &sum(&kept), &outsiders,
            );
            prop_assert_eq!((after.lacking, cores_of(&machine, &after.spare).len()), (0, spare));
        }
    }
}

//! Core kinds: groups of cores of the same make, so that a program with barriers is not spread over
//! fast and slow cores.
//!
//! Problem: discovery reports one kind per distinct frequency or capacity. "Favoured" cores of one
//! make differ in both: a DGX Spark shows 5 kinds for 2 makes, a Core i7-1370P has turbo-3 cores
//! among its P-cores, many servers boost two cores higher. Idea: kinds are one make if both their
//! top frequencies and their capacities are within [`SAME_MAKE_PERCENT`], unless the manufacturer
//! names them differently (a Meteor Lake calls its E- and its slow LP-E-cores by one name).

use super::Parts;
use crate::ids::OsCpu;
use crate::set::CpuSet;
use serde::{Deserialize, Serialize};

/// Index of a core kind in the model: 0 is the fastest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KindId(pub u8);

/// Make of cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreKind {
    /// `P`, `E`, `LP-E` on machines with two or three kinds, `all` on uniform machines, else `K0`,
    /// `K1`, …
    pub name: String,
    /// CPUs of this kind.
    pub cpus: CpuSet,
}

/// Largest difference in percent between cores of one make. Turbo bins differ by up to 8 % in the
/// corpus (4,800 against 5,200 MHz), makes by at least 28 % (3,900 against 5,000; 2,808 against
/// 3,900).
const SAME_MAKE_PERCENT: u32 = 15;

/// Joins reported kinds into makes, fastest first. CPUs without a reported kind join the fastest.
pub(super) fn join(parts: &Parts) -> Vec<CoreKind> {
    let all: CpuSet = parts.pus.iter().copied().collect();
    let mut reported: Vec<_> = parts.kinds.iter().filter(|kind| kind.cpus.intersects(&all)).collect();
    reported.sort_by_key(|kind| std::cmp::Reverse((kind.efficiency, kind.capacity, kind.mhz_max)));
    let mut joined: Vec<(usize, CpuSet)> = Vec::new();
    let mut named = CpuSet::new();
    for (at, kind) in reported.iter().enumerate() {
        // A CPU that is reported twice belongs to the faster kind.
        let cpus = kind.cpus.intersection(&all).difference(&named);
        if cpus.is_empty() {
            continue;
        }
        named = named.union(&cpus);
        let like = |other: usize| {
            let other = reported[other];
            let makes_differ = matches!((&kind.make, &other.make), (Some(a), Some(b)) if a != b);
            !makes_differ && close(kind.mhz_max, other.mhz_max) && close(kind.capacity, other.capacity)
        };
        match joined.iter_mut().find(|(first, _)| like(*first)) {
            Some((_, set)) => *set = set.union(&cpus),
            None => joined.push((at, cpus)),
        }
    }
    if joined.is_empty() {
        joined.push((0, CpuSet::new()));
    }
    joined[0].1 = joined[0].1.union(&all.difference(&named));
    let names: &[&str] = match joined.len() {
        1 => &["all"],
        2 => &["P", "E"],
        3 => &["P", "E", "LP-E"],
        _ => &[],
    };
    let name = |at: usize| names.get(at).map_or_else(|| format!("K{at}"), |&name| name.to_owned());
    joined.into_iter().enumerate().map(|(at, (_, cpus))| CoreKind { name: name(at), cpus }).collect()
}

/// Returns the kind of a CPU.
pub(super) fn of(kinds: &[CoreKind], os: OsCpu) -> KindId {
    let at = kinds.iter().position(|kind| kind.cpus.contains(os)).unwrap_or(0);
    KindId(u8::try_from(at).unwrap_or(u8::MAX))
}

/// Returns whether two values are close enough for one make; an unknown value decides nothing.
fn close(a: Option<u32>, b: Option<u32>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            u64::from(a.abs_diff(b)) * 100 <= u64::from(a.max(b)) * u64::from(SAME_MAKE_PERCENT)
        }
        _ => true,
    }
}

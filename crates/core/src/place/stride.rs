//! Stride: leave something between the threads.
//!
//! Unit: cores. Problem: cores that share a floating-point unit, a second-level cache or a memory port slow each other;
//! a program bound by that resource runs as fast on half the cores. Idea: thin the candidates out first, then place what
//! is left compactly. A stride by unit keeps the unit's other cores idle and held, else a second run would land on them
//! and share after all; a stride by number only skips. Source: numaplace's roadmap (seed 003).

use super::pool::{Item, Pool};
use super::request::Stride;
use crate::topology::Level;
use std::ops::Range;

/// The ways to thin the candidates out. Every way is a list of items to choose from; the best answer over all ways wins.
pub(super) fn ways(pool: &Pool<'_>, stride: Stride, among: &Range<usize>) -> Vec<Vec<Item>> {
    match stride {
        Stride::Every(every) => {
            let of = |rest: u32| {
                let members = among.clone().filter(|&at| pool.candidates[at].core.0 % every == rest);
                members.map(|at| pool.item(at..at + 1)).collect()
            };
            (0..every.min(u32::try_from(pool.machine.cores().len()).unwrap_or(u32::MAX))).map(of).collect()
        }
        Stride::OnePer(level) => vec![representatives(pool, level, among)],
        Stride::OnePerFpu => vec![representatives(pool, fpu(pool), among)],
    }
}

/// The level whose units share a floating-point unit.
pub(super) fn fpu(pool: &Pool<'_>) -> Level {
    if pool.machine.cpu().shares_fpu_by_l2() { Level::L2 } else { Level::Core }
}

/// The cheapest core of every unit that no other run is in: such a unit is not ours to keep idle.
fn representatives(pool: &Pool<'_>, level: Level, among: &Range<usize>) -> Vec<Item> {
    let mut items = Vec::new();
    for unit in pool.machine.units(level) {
        let members = pool.within(&unit);
        if members.start < among.start || members.end > among.end {
            continue;
        }
        let cheapest = members.clone().min_by_key(|&at| (pool.candidates[at].cost, at));
        if !pool.holds_foreign(&unit) {
            items.extend(cheapest.map(|at| pool.item(at..at + 1)));
        }
    }
    items
}

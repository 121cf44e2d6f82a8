//! Stride strategies: unused cores between the threads.
//!
//! Unit: cores. Problem: cores that share a floating-point unit, a second-level cache or a memory
//! port slow each other down; a program bound by that resource runs as fast on half the cores.
//! Idea: thin out the candidates first, then place the rest compactly. A stride by unit keeps the
//! unit's other cores idle and held, since otherwise a second run would use them and share the
//! resource; a stride by number only skips cores. Source: numaplace's roadmap (seed 003).

use super::pool::{Item, Pool};
use super::strategy::Stride;
use crate::ids::Id;
use std::ops::Range;

/// Returns the alternatives of thinning out the candidates. Each alternative is a list of items to
/// choose from; the best answer over all alternatives wins.
pub(super) fn item_lists(pool: &Pool<'_>, stride: Stride, among: &Range<usize>) -> Vec<Vec<Item>> {
    match stride {
        Stride::Every(every) => {
            let every = (every as usize).min(pool.machine.cores().len());
            let mut lists = vec![Vec::new(); every];
            for at in among.clone().filter(|_| every > 0) {
                lists[pool.candidates[at].core.index() % every].push(pool.item(at..at + 1));
            }
            lists
        }
        Stride::OnePer(_) | Stride::OnePerFpu => vec![representatives(pool, among)],
    }
}

/// Returns the cheapest core of every unit without another run; a unit with another run cannot be
/// kept idle.
fn representatives(pool: &Pool<'_>, among: &Range<usize>) -> Vec<Item> {
    let mut items = Vec::new();
    let Some(last) = pool.candidates[among.clone()].last() else { return items };
    let first = pool.candidates[among.start].core.0;
    let begin = pool.strided.partition_point(|unit| unit.end <= first);
    for unit in pool.strided[begin..].iter().take_while(|unit| unit.start <= last.core.0) {
        let members = pool.within(unit);
        if members.start < among.start || members.end > among.end {
            continue;
        }
        let worth =
            |&at: &usize| (pool.candidates[at].cost, pool.candidates[at].far, pool.candidates[at].remote, at);
        let cheapest = members.clone().min_by_key(worth);
        if !pool.holds_foreign(unit) {
            items.extend(cheapest.map(|at| pool.item(at..at + 1)));
        }
    }
    items
}

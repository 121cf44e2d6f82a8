//! Shapes: whole units (`2xl3`), or a number of cores in each of some units (`8/node`).
//!
//! Unit: objects of one level. Problem: among the units that are free enough, choose some that are
//! located well together, then the cores inside each. Idea: a unit is an item like a core, so the
//! strategies first choose among units, then inside each unit. Properties: A whole unit never
//! contains a core of another run, and is never smaller than its siblings because of disallowed
//! cores. Every chosen unit gets the same number of cores.

use super::Reason;
use super::choice::{Chosen, cheapest, most, weighed};
use super::error::PlaceError;
use super::pool::{Item, Pool};
use super::request::{Request, Shape};
use super::strategy::Strategy;
use super::taken::BUSY_FROM;
use crate::ids::Id;
use crate::set::NodeSet;
use crate::topology::Level;
use std::ops::Range;

/// Chooses whole units, or a number of cores in each.
pub(super) fn choose(
    pool: &Pool<'_>,
    request: &Request,
    shape: Shape,
    or_fewer: bool,
) -> Result<Chosen, PlaceError> {
    let Shape { units, per, level } = shape;
    let all = pool.machine.outermost(level);
    if all.is_empty() {
        let known = Level::ALL.into_iter().filter(|&level| pool.machine.at(level).next().is_some()).collect();
        return Err(PlaceError::NoSuchUnit { level, known });
    }
    let allowed = |unit: &Range<u32>| !pool.within(unit).is_empty() || pool.holds_foreign(unit);
    let usable = |unit: &Range<u32>| match per {
        None => !pool.holds_foreign(unit) && most(pool, request.strategy, &pool.within(unit), u32::MAX) > 0,
        Some(per) => most(pool, request.strategy, &pool.within(unit), u32::MAX) >= per as usize,
    };
    let mut possible: Vec<_> = all.iter().filter(|unit| allowed(unit)).collect();
    let mut reasons = Vec::new();
    if units.is_none() && per.is_some() && level == Level::Node {
        reasons.extend(without_empty_nodes(pool, &mut possible));
    }
    let leaves_some = |unit: &&Range<u32>| most(pool, request.strategy, &pool.within(unit), u32::MAX) > 0;
    if matches!(request.strategy, Strategy::Stride(_))
        && !possible.iter().copied().any(|unit| leaves_some(&unit))
    {
        return Err(PlaceError::StrideTooWide { strategy: request.strategy, level });
    }
    // For whole units only the full-sized ones count: a unit with disallowed cores is not a whole
    // unit.
    let full = possible.iter().map(|unit| pool.within(unit).len()).max().unwrap_or(0);
    let free: Vec<_> = possible.iter().filter(|unit| usable(unit)).collect();
    let whole = free.iter().filter(|unit| per.is_some() || pool.within(unit).len() == full);
    let whole: Vec<Item> = whole.map(|unit| unit_item(pool, unit, per)).collect();
    let wanted = units.map_or_else(|| if per.is_some() { possible.len() } else { 1 }, |units| units as usize);
    let take = if or_fewer { wanted.min(whole.len()) } else { wanted };
    let asked = u32::try_from(wanted).unwrap_or(u32::MAX);
    if wanted > all.len() && !or_fewer {
        return Err(PlaceError::MoreUnitsThanExist { asked, exist: all.len(), level });
    }
    // Waiting for others to end does not help: units of other runs are not excluded here.
    if wanted > possible.len() && !or_fewer {
        return Err(PlaceError::UnitsNotAllowed { asked, allowed: possible.len(), level });
    }
    let gather =
        if matches!(request.strategy, Strategy::Stride(_)) { Strategy::Compact } else { request.strategy };
    let chosen = (take > 0).then(|| weighed(pool, gather, &whole, take)).flatten();
    let Some((_, mut chosen)) = chosen else {
        return Err(PlaceError::UnitsNotFree { asked, free: whole.len(), level, per });
    };
    chosen.sort_by_key(|item| item.members.start);
    let inside = |item: &Item| match (per, request.strategy) {
        (None, Strategy::Compact | Strategy::Balanced) => Some(item.members.clone().collect()),
        (per, strategy) => {
            let n = per.map_or_else(|| most(pool, strategy, &item.members, u32::MAX), |per| per as usize);
            cheapest(pool, strategy, item.members.clone(), n)
        }
    };
    let parts: Vec<Vec<usize>> = chosen.iter().filter_map(inside).collect();
    let members = match request.strategy {
        Strategy::Scatter => {
            let rounds = parts.iter().map(Vec::len).max().unwrap_or(0);
            (0..rounds)
                .flat_map(|round| parts.iter().filter_map(move |part| part.get(round).copied()))
                .collect()
        }
        _ => parts.concat(),
    };
    let cores = u32::try_from(members.len()).unwrap_or(u32::MAX);
    if let Some(max) = request.cores_max.filter(|&max| cores > max) {
        return Err(PlaceError::SiteMax { asked: cores, max });
    }
    if take < wanted {
        reasons.push(Reason::Note {
            text: format!("{take} instead of {wanted} {level}s: fewer were accepted (--or-fewer)"),
        });
    }
    Ok(Chosen { members, asked: None, reasons })
}

/// Returns a unit as an item. If only some of its cores are wanted, those with local memory come
/// first, and those near the requested device.
fn unit_item(pool: &Pool<'_>, unit: &Range<u32>, per: Option<u32>) -> Item {
    let mut item = pool.item(pool.within(unit));
    if let Some(per) = per {
        let candidates = &pool.candidates[item.members.clone()];
        let quiet = || candidates.iter().filter(|candidate| candidate.cost < BUSY_FROM.into());
        let beyond = |count: usize| (per as usize).saturating_sub(count);
        item.remote = item.remote.min(beyond(quiet().filter(|candidate| !candidate.remote).count()));
        item.far = item.far.min(beyond(quiet().filter(|candidate| !candidate.far).count()));
    }
    item
}

/// Removes nodes without memory from `units`, unless there are no others. A request for cores in
/// every node is also a request for the memory of every node.
fn without_empty_nodes(pool: &Pool<'_>, units: &mut Vec<&Range<u32>>) -> Option<Reason> {
    let remote = |unit: &&Range<u32>| {
        let item = pool.item(pool.within(unit));
        !item.members.is_empty() && item.remote == item.members.len()
    };
    let (empty, others): (Vec<_>, Vec<_>) = units.iter().copied().partition(remote);
    if empty.is_empty() || others.is_empty() {
        return None;
    }
    *units = others;
    let numbers = empty.iter().filter_map(|unit| {
        let node = pool.machine.cores().get(unit.start as usize)?.node?;
        Some(pool.machine.nodes().get(node.index())?.os)
    });
    let numbers: NodeSet = numbers.collect();
    Some(Reason::Note { text: format!("node {numbers} left out: no memory there that may be used") })
}

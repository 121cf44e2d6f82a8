//! Placement of new and woken threads on CPUs.
//!
//! New threads go down the domains to the emptiest group (find_idlest_group). Woken threads go back
//! to their last CPU, to an idle CPU of the same cache (select_idle_sibling: an idle core before an
//! idle hardware thread), or to the waker's CPU if that is less crowded (wake_affine).

use super::Seats;
use std::cmp::Ordering;
use trimtab_core::ids::Id;

/// Highest number of idle CPUs outside a thread's mask that are passed over before the search is
/// given up.
const IDLE_TRIES_MAX: usize = 16;

/// Returns the emptiest CPU for a new thread.
pub(crate) fn fork(seats: &Seats, task: usize) -> usize {
    if seats.tasks[task].mask.is_some() {
        return emptiest(seats, task);
    }
    let domains = &seats.domains.all;
    let mut at = seats.domains.root as usize;
    while !domains[at].groups.is_empty() {
        let usable = domains[at].groups.iter().map(|&group| group as usize);
        let fewer = |&a: &usize, &b: &usize| crowd(&domains[a], &domains[b]).then(a.cmp(&b));
        match usable.filter(|&group| domains[group].width > 0).min_by(fewer) {
            Some(group) => at = group,
            None => return emptiest(seats, task),
        }
    }
    if seats.allowed(task, at) { at } else { emptiest(seats, task) }
}

/// Compares threads per CPU, without a division.
fn crowd(a: &super::domains::Domain, b: &super::domains::Domain) -> Ordering {
    (u64::from(a.load) * u64::from(b.width)).cmp(&(u64::from(b.load) * u64::from(a.width)))
}

/// Returns the CPU with the fewest threads of those in a thread's mask, by a scan of the mask; the
/// thread's last CPU if there is none.
pub(crate) fn emptiest(seats: &Seats, task: usize) -> usize {
    let cpus: Box<dyn Iterator<Item = usize>> = match &seats.tasks[task].mask {
        Some(mask) => Box::new(mask.iter().map(Id::index).filter(|&cpu| cpu < seats.cpus.len())),
        None => Box::new(0..seats.cpus.len()),
    };
    let core = |cpu: usize| seats.domains.all[seats.domains.core[cpu] as usize].load;
    let usable = cpus.filter(|&cpu| seats.cpus[cpu].usable);
    usable
        .min_by_key(|&cpu| (seats.load(cpu), core(cpu), cpu))
        .or_else(|| (0..seats.cpus.len()).find(|&cpu| seats.cpus[cpu].usable))
        .unwrap_or(seats.tasks[task].cpu as usize)
}

/// Returns the CPU of a thread's number, round robin over the CPUs of its mask.
pub(crate) fn round_robin(seats: &Seats, task: usize) -> usize {
    let rank = seats.tasks[task].rank as usize;
    let cpus: Vec<usize> = (0..seats.cpus.len()).filter(|&cpu| seats.allowed(task, cpu)).collect();
    if cpus.is_empty() { emptiest(seats, task) } else { cpus[rank % cpus.len()] }
}

/// Returns a thread's last CPU if the thread may still run there.
pub(crate) fn stay(seats: &Seats, task: usize) -> usize {
    let cpu = seats.tasks[task].cpu as usize;
    if seats.allowed(task, cpu) { cpu } else { emptiest(seats, task) }
}

/// Returns the CPU for a woken thread.
pub(crate) fn wake(seats: &Seats, task: usize, waker: Option<usize>) -> usize {
    let before = seats.tasks[task].cpu as usize;
    if !seats.allowed(task, before) {
        return idle_near(seats, task, waker.unwrap_or(before)).unwrap_or_else(|| emptiest(seats, task));
    }
    if seats.load(before) == 0 {
        return before;
    }
    if seats.tasks[task].single {
        return before;
    }
    // wake_affine: near the waker, unless that is more crowded.
    let target = waker
        .filter(|&waker| seats.allowed(task, waker) && seats.load(waker) < seats.load(before))
        .unwrap_or(before);
    idle_near(seats, task, target).unwrap_or(target)
}

/// Returns an idle CPU that shares a cache with another one.
fn idle_near(seats: &Seats, task: usize, near: usize) -> Option<usize> {
    let cache = &seats.domains.all[seats.domains.cache[near] as usize].cpus;
    for tree in [&seats.cores, &seats.idle] {
        let (mut start, mut found) = (near, tree.around(cache, near, 1));
        for _ in 0..IDLE_TRIES_MAX {
            let Some(cpu) = found else { break };
            if seats.allowed(task, cpu) {
                return Some(cpu);
            }
            let next = tree.around(cache, cpu + 1, 1);
            // The search has gone around once.
            if next.is_none_or(|next| (next <= start && start < cpu) || next == cpu) {
                break;
            }
            start = start.min(cpu);
            found = next;
        }
    }
    None
}

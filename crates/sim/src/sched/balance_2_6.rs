//! Balancing rule of 2008 to 2010: it compares queue lengths and never corrects a difference of
//! one.
//!
//! Source: kernel/sched.c (find_busiest_group) and include/linux/topology.h (SD_SIBLING_INIT,
//! SD_CPU_INIT, SD_NODE_INIT) of 2.6.28.

use super::Seats;
use super::domains::Domain;
use super::imbalance::Excess;

/// Factor by which a group's load must exceed ours for the group to be busy: `imbalance_pct` 125.
const IMBALANCE_FACTOR: f64 = 1.25;

/// Returns the shortest balancing interval of a domain: 8 units between nodes (ms), 1 within.
pub(crate) fn shortest(domain: &Domain, unit: u64) -> u64 {
    if domain.numa { 8 * unit } else { unit }
}

/// Returns the factor by which the interval grows while the CPU is busy.
pub(crate) fn busy_factor(domain: &Domain) -> u64 {
    if domain.numa { 32 } else { 64 }
}

/// Returns the whole threads that another group has in excess; `None` if there is no such group.
pub(crate) fn excess(seats: &Seats, inner: u32, domain: u32) -> Option<Excess> {
    let all = &seats.domains.all;
    let (ours, around) = (&all[inner as usize], &all[domain as usize]);
    let mean = |of: &Domain| f64::from(of.load) / f64::from(of.width.max(1));
    let others = around.groups.iter().filter(|&&group| group != inner).map(|&group| &all[group as usize]);
    let busiest = others.filter(|group| group.width > 0).max_by(|a, b| mean(a).total_cmp(&mean(b)))?;
    let (most, own, average) = (mean(busiest), mean(ours), mean(around));
    if own >= average || most <= IMBALANCE_FACTOR * own {
        return None;
    }
    let away = (most - average) * f64::from(busiest.width);
    let here = (average - own) * f64::from(ours.width);
    Some(Excess { cpus: busiest.cpus.clone(), threads: away.min(here).floor() })
}

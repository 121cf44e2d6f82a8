//! Balancing rule since 5.10: it compares loads, and the odd thread rotates.
//!
//! A group that is ahead of the mean by less than a thread still loses a thread after some passes:
//! each pass that moves no thread halves the weight of a thread in the comparison, until a thread
//! fits (5a7f55590467). Loads are weights. If sessions share, the threads of one session weigh as
//! much as one thread together (task_h_load), so two of them on one CPU count no more than one
//! thread of another session; a thread that mostly sleeps then weighs little (its running average).
//! A domain of w CPUs is balanced every w ms while the CPU is idle, 16 times less often while it is
//! busy. If a whole core is idle and another runs two threads, one of the two is pushed over, after
//! some failed passes.
//!
//! Source: kernel/sched/fair.c (find_busiest_group, calculate_imbalance, detach_tasks,
//! need_active_balance), kernel/sched/topology.c (sd_init) of 6.1 to 6.18.

use super::domains::Domain;
use super::imbalance::{BalancingHistory, Excess};
use super::{Seats, TaskState};
use std::ops::Range;

/// Factor by which a group's load must exceed ours for the group to be busy: `imbalance_pct` 117.
const IMBALANCE_FACTOR: f64 = 1.17;

/// Number of failed passes before a running thread is pushed: `sd->cache_nice_tries + 2`.
const ACTIVE_AFTER: u32 = 3;

/// Returns the shortest balancing interval of a domain: a unit per CPU (`sd_weight` ms).
pub(crate) fn shortest(domain: &Domain, unit: u64) -> u64 {
    domain.cpus.len() as u64 * unit
}

/// Returns the load that another group has in excess, in threads; `None` if there is no such group.
pub(crate) fn excess(seats: &Seats, now: u64, inner: u32, domain: u32) -> Option<Excess> {
    let all = &seats.domains.all;
    let (ours, around) = (&all[inner as usize], &all[domain as usize]);
    let mean = |of: &Domain| seats.burden(of, now) / f64::from(of.width.max(1));
    let others = around.groups.iter().filter(|&&group| group != inner).map(|&group| &all[group as usize]);
    let means = others.filter(|group| group.width > 0).map(|group| (mean(group), group));
    let (most, busiest) = means.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (own, average) = (mean(ours), mean(around));
    // Not overloaded: no thread waits there for long.
    if busiest.load <= busiest.width || own >= average {
        return None;
    }
    // If every thread here has a CPU, a thread that waits there is helped, however small the
    // difference (2208cdaa56c9).
    if ours.load > ours.width && most <= IMBALANCE_FACTOR * own {
        return None;
    }
    let away = (most - average) * f64::from(busiest.width);
    let here = (average - own) * f64::from(ours.width);
    Some(Excess { cpus: busiest.cpus.clone(), threads: away.min(here) })
}

/// Returns a running thread of a core that runs several, for a CPU whose core is idle.
pub(crate) fn active(
    seats: &Seats,
    cpu: usize,
    cpus: &Range<usize>,
    memory: &mut BalancingHistory,
) -> Option<usize> {
    let own = &seats.domains.all[seats.domains.core[cpu] as usize];
    if own.load > 0 || seats.doubled.most(cpus) == 0 {
        return None;
    }
    memory.failed += 1;
    if memory.failed <= ACTIVE_AFTER {
        return None;
    }
    let first = seats.doubled.around(cpus, cpu, 1)?;
    let core = &seats.domains.all[seats.domains.core[first] as usize];
    let running = core.cpus.clone().rev().filter_map(|cpu| seats.current(cpu));
    let task = running.into_iter().find(|&task| {
        seats.tasks[task].state == TaskState::Running && !seats.tasks[task].single && seats.allowed(task, cpu)
    });
    if task.is_some() {
        memory.failed = 0;
    }
    task
}

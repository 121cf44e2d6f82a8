//! Estimate of the load of other programs, from evidence that costs no waiting.
//!
//! Problem: the load of a CPU is a share of time, so measuring it takes time. A launcher that
//! sleeps for 100 ms whenever anything else runs is slow on every shared machine. Idea: use
//! evidence that already exists. First, counters of the CPUs that an earlier launch kept: the
//! difference to now is the load since then. Second, the number of tasks that are runnable at this
//! instant: no more CPUs than that can be busy, so that the end of a program is seen at once.
//! Third, the runnable tasks themselves: a task that has computed for most of its life keeps its
//! CPU busy, a task that has just started, or that rarely runs, may be gone in a moment.
//!
//! Counters alone are wrong in one frequent case: a program has just ended, and at this instant a
//! daemon or a thread of the kernel runs for a moment. The counters then show a busy CPU, and the
//! number of tasks does not contradict them. So if counters show a busy CPU, the tasks are examined
//! too. An estimate that is too low costs as much as a start without trimtab: the kernel divides
//! the CPU. One that is too high takes a CPU from the program.
//!
//! Properties: pure; equal evidence gives equal estimates. At most `runnable` CPUs are busy; if all
//! runnable tasks were examined, at most as many as compute.

use super::taken::BUSY_FROM;
use crate::ids::OsCpu;
use crate::time::Span;
use std::collections::BTreeMap;
use std::fmt;

/// Shortest age of kept counters: ten timer ticks of the slowest common kernel, so that one tick is
/// at most 10 % of the load.
pub const AGE_MIN: Span = Span::from_ms(100);
/// Longest age of kept counters. Chosen: programs start and end in seconds, and the number of
/// runnable tasks corrects an average that is out of date in one direction only.
pub const AGE_MAX: Span = Span::from_ms(10_000);
/// Shortest life of a task whose use of CPU time is evidence: the age of a compiler in a build.
const LIFE_MIN: Span = Span::from_ms(100);
/// Share of its life that a task has computed, from which it keeps its CPU busy.
const COMPUTING_SHARE_MIN: f64 = 0.5;
/// Load of the CPU of a computing task, in permille.
const FULL_PERMILLE: u16 = 1000;

/// A task that is on a CPU or ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunnableTask {
    /// CPU on which it last ran.
    pub cpu: OsCpu,
    /// CPU time that it, or its process, has used.
    pub used: Span,
    /// Time since its start.
    pub life: Span,
}

/// Evidence for the load of each CPU.
#[derive(Clone, PartialEq, Debug)]
pub enum LoadEvidence {
    /// Counters that an earlier launch kept.
    Kept {
        /// Load since then, in permille.
        load: BTreeMap<OsCpu, u16>,
        /// Time since then.
        age: Span,
        /// The runnable tasks; `None` if they were not examined, because the counters show no busy
        /// CPU.
        tasks: Option<RunnableTasks>,
    },
    /// The runnable tasks.
    Tasks(RunnableTasks),
}

/// Runnable tasks, as far as a launch may take time to search for them. Threads of the kernel are
/// none of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunnableTasks {
    /// The tasks.
    pub found: Vec<RunnableTask>,
    /// Whether the search ended before all processes were examined.
    pub cut: bool,
}

impl RunnableTasks {
    /// Returns the number of tasks that have computed for most of their life.
    ///
    /// ```
    /// use trimtab_core::place::{RunnableTask, RunnableTasks};
    /// use trimtab_core::{ids::OsCpu, time::Span};
    ///
    /// let life = Span::from_ms(1000);
    /// let task = |used| RunnableTask { cpu: OsCpu(0), used: Span::from_ms(used), life };
    /// let tasks = RunnableTasks { found: vec![task(900), task(20)], cut: false };
    /// assert_eq!(tasks.computing(), 1);
    /// ```
    pub fn computing(&self) -> usize {
        self.found.iter().filter(|task| computes(task)).count()
    }

    /// Returns whether nothing is unknown, if `runnable` tasks are runnable: all processes were
    /// examined, or as many tasks as are runnable are known to compute.
    pub fn explain(&self, runnable: usize) -> bool {
        !self.cut || self.computing() >= runnable
    }

    /// Returns the number of CPUs that tasks can keep busy, if `runnable` tasks are runnable.
    fn busy_max(&self, runnable: usize) -> usize {
        if self.cut { runnable } else { self.computing().min(runnable) }
    }
}

/// Returns whether counters show a CPU that a plan would avoid.
pub fn is_any_busy(load: &BTreeMap<OsCpu, u16>) -> bool {
    load.values().any(|&busy| busy >= BUSY_FROM)
}

/// The estimate, with its origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadEstimate {
    /// Busy share of each CPU, in permille; a CPU without evidence is missing.
    pub busy: BTreeMap<OsCpu, u16>,
    /// Origin of the estimate.
    pub origin: LoadOrigin,
}

/// Origin of an estimate; its text is a reason of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadOrigin {
    /// Counters that an earlier launch kept this long ago.
    Kept(Span),
    /// Runnable tasks: the number that was examined, and the number that exists.
    Tasks {
        /// Tasks that were found.
        found: usize,
        /// Tasks that are runnable.
        runnable: usize,
    },
}

impl fmt::Display for LoadOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(age) => {
                write!(f, "load of the last {:.1} s, by counters of an earlier start", age.seconds())
            }
            Self::Tasks { found, runnable } => {
                write!(
                    f,
                    "load by {found} of {runnable} running tasks: no counters of the last 10 s are known"
                )
            }
        }
    }
}

/// Returns the estimate. `runnable` is the number of tasks of other programs that are on a CPU or
/// ready at this instant.
pub fn load_estimate(evidence: LoadEvidence, runnable: usize) -> LoadEstimate {
    match evidence {
        LoadEvidence::Kept { load, age, tasks } => {
            let most = tasks.map_or(runnable, |tasks| tasks.busy_max(runnable));
            LoadEstimate { busy: busiest(load, most), origin: LoadOrigin::Kept(age) }
        }
        LoadEvidence::Tasks(RunnableTasks { found, .. }) => {
            let computing = found.iter().filter(|task| computes(task));
            let load = computing.map(|task| (task.cpu, FULL_PERMILLE)).collect();
            let origin = LoadOrigin::Tasks { found: found.len(), runnable };
            LoadEstimate { busy: busiest(load, runnable), origin }
        }
    }
}

/// Returns whether a task has computed for most of its life.
fn computes(task: &RunnableTask) -> bool {
    task.life >= LIFE_MIN && task.used.share_of(task.life).is_some_and(|share| share >= COMPUTING_SHARE_MIN)
}

/// Leaves the load of the `count` busiest CPUs; the other CPUs are idle at this instant. Equal
/// loads are ordered by the number of the CPU.
fn busiest(load: BTreeMap<OsCpu, u16>, count: usize) -> BTreeMap<OsCpu, u16> {
    let mut order: Vec<(OsCpu, u16)> = load.iter().map(|(cpu, busy)| (*cpu, *busy)).collect();
    order.sort_by_key(|&(cpu, busy)| (std::cmp::Reverse(busy), cpu));
    let mut busy: BTreeMap<OsCpu, u16> = load.into_keys().map(|cpu| (cpu, 0)).collect();
    busy.extend(order.into_iter().take(count));
    busy
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(permille: &[u16]) -> BTreeMap<OsCpu, u16> {
        permille.iter().enumerate().map(|(cpu, &busy)| (OsCpu(cpu as u32), busy)).collect()
    }

    fn kept(permille: &[u16], runnable: usize) -> Vec<u16> {
        let evidence = LoadEvidence::Kept { load: load(permille), age: Span::from_ms(500), tasks: None };
        load_estimate(evidence, runnable).busy.into_values().collect()
    }

    fn task(cpu: u32, used_ms: u64, life_ms: u64) -> RunnableTask {
        RunnableTask { cpu: OsCpu(cpu), used: Span::from_ms(used_ms), life: Span::from_ms(life_ms) }
    }

    #[test]
    fn a_program_that_has_ended_is_not_counted_any_more() {
        assert_eq!(kept(&[900, 950, 20], 1), [0, 950, 0]);
        assert_eq!(kept(&[900, 950, 20], 0), [0, 0, 0]);
        assert_eq!(kept(&[900, 950, 20], 5), [900, 950, 20]);
    }

    #[test]
    fn a_task_counts_if_it_has_computed_for_most_of_its_life() {
        let found = vec![task(0, 900, 1000), task(1, 40, 60), task(2, 100, 5000), task(3, 51, 100)];
        let estimate = load_estimate(LoadEvidence::Tasks(RunnableTasks { found, cut: false }), 9);
        assert_eq!(estimate.busy, BTreeMap::from([(OsCpu(0), 1000), (OsCpu(3), 1000)]));
        assert!(estimate.origin.to_string().contains("4 of 9"), "{}", estimate.origin);
    }

    #[test]
    fn a_daemon_that_runs_for_a_moment_keeps_no_cpu_of_an_ended_program_busy() {
        let examined = |found: Vec<RunnableTask>, cut: bool| {
            let tasks = Some(RunnableTasks { found, cut });
            let evidence = LoadEvidence::Kept { load: load(&[20, 950]), age: Span::from_ms(500), tasks };
            load_estimate(evidence, 1).busy.into_values().collect::<Vec<_>>()
        };
        let daemon = task(0, 2_000, 60_000);
        assert_eq!(examined(vec![daemon], false), [0, 0]);
        assert_eq!(examined(vec![], false), [0, 0], "a thread of the kernel");
        assert_eq!(examined(vec![task(1, 900, 1_000)], false), [0, 950]);
        assert_eq!(examined(vec![daemon], true), [0, 950], "not all were examined");
    }

    #[test]
    fn tasks_explain_the_runnable_count_if_all_were_examined_or_enough_compute() {
        let tasks = |found: Vec<RunnableTask>, cut| RunnableTasks { found, cut };
        let (daemon, computing) = (task(0, 2_000, 60_000), task(1, 900, 1_000));
        assert!(tasks(vec![], false).explain(1));
        assert!(tasks(vec![computing], true).explain(1));
        assert!(!tasks(vec![computing], true).explain(2) && !tasks(vec![daemon], true).explain(1));
    }

    #[test]
    fn counters_show_a_busy_cpu_where_a_plan_avoids_one() {
        assert!(!is_any_busy(&load(&[0, BUSY_FROM - 1])) && is_any_busy(&load(&[0, BUSY_FROM])));
    }

    proptest! {
        #[test]
        fn no_more_cpus_are_busy_than_tasks_are_runnable(
            permille in prop::collection::vec(0u16..=1000, 1..20), runnable in 0usize..25,
        ) {
            let estimate = kept(&permille, runnable);
            prop_assert_eq!(estimate.len(), permille.len());
            let busy = estimate.iter().filter(|busy| **busy > 0).count();
            prop_assert!(busy <= runnable);
            // The load that is left out is never above a load that stays.
            let left_out = permille.iter().zip(&estimate).filter(|(was, is)| was != is).map(|(was, _)| *was).max();
            let stays = estimate.iter().copied().filter(|busy| *busy > 0).min();
            if let (Some(left_out), Some(stays)) = (left_out, stays) {
                prop_assert!(left_out <= stays);
            }
        }
    }
}

//! Scene: the world at a moment, as visible from outside.

use crate::progress::Progress;
use crate::world::{Activity, ProgramView, RunCounters, ThreadView, World};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// View of the world at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scene {
    /// Time of the scene.
    pub at: Moment,
    /// Threads, by their place in the world; places of short processes are reused.
    pub threads: Vec<ThreadView>,
    /// Busy time of each CPU, in the model's order.
    pub busy: Vec<(OsCpu, Span)>,
    /// Number of threads that want each CPU.
    pub loads: Vec<(OsCpu, usize)>,
    /// Usable CPUs.
    pub usable: CpuSet,
    /// Programs.
    pub programs: Vec<ProgramView>,
    /// Counts of the run so far.
    pub counters: RunCounters,
}

impl Scene {
    /// Takes the scene of a world.
    pub fn of<P: Progress>(world: &World<P>) -> Self {
        Self {
            at: world.now(),
            threads: world.threads().collect(),
            busy: world.busy().collect(),
            loads: world.loads().collect(),
            usable: world.usable(),
            programs: world.programs().collect(),
            counters: world.counters(),
        }
    }

    /// Returns the threads that were present in an earlier scene too, as then and now.
    pub(crate) fn since<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a ThreadView, &'a ThreadView)> {
        let same = |(then, now): &(&ThreadView, &ThreadView)| {
            (then.program, then.rank) == (now.program, now.rank) && then.activity != Activity::Over
        };
        before.threads.iter().zip(&self.threads).filter(same)
    }

    /// Returns the threads that have not ended.
    pub(crate) fn alive(&self) -> impl Iterator<Item = &ThreadView> {
        self.threads.iter().filter(|thread| thread.activity != Activity::Over)
    }

    /// Returns the usable CPUs that were idle at all times since an earlier scene, and are idle
    /// now.
    pub(crate) fn rested(&self, before: &Self) -> CpuSet {
        let pairs = before.busy.iter().zip(&self.busy).zip(before.loads.iter().zip(&self.loads));
        let rested = pairs.filter(|((then, now), loads)| then == now && loads.0.1 == 0 && loads.1.1 == 0);
        let cpus: CpuSet = rested.map(|((_, now), _)| now.0).collect();
        cpus.intersection(&self.usable).intersection(&before.usable)
    }
}

/// Returns whether a thread wants a CPU.
pub(crate) fn ready(thread: &ThreadView) -> bool {
    !matches!(thread.activity, Activity::Asleep | Activity::Over)
}

//! The world at a moment, as anybody outside can see it.

use crate::progress::Progress;
use crate::world::{Activity, Counters, ProgramSeen, ThreadSeen, World};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// The world, seen once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scene {
    /// When.
    pub at: Moment,
    /// The threads, by their place in the world: those of short processes are used again.
    pub threads: Vec<ThreadSeen>,
    /// How long each CPU was busy, in the model's order.
    pub busy: Vec<(OsCpu, Span)>,
    /// How many threads want each CPU.
    pub loads: Vec<(OsCpu, usize)>,
    /// The CPUs that may be used.
    pub usable: CpuSet,
    /// The programs.
    pub programs: Vec<ProgramSeen>,
    /// What it has come to.
    pub counters: Counters,
}

impl Scene {
    /// Of a world.
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

    /// The threads that were there already at an earlier scene, then and now.
    pub(crate) fn since<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a ThreadSeen, &'a ThreadSeen)> {
        let same = |(then, now): &(&ThreadSeen, &ThreadSeen)| {
            (then.program, then.rank) == (now.program, now.rank) && then.activity != Activity::Over
        };
        before.threads.iter().zip(&self.threads).filter(same)
    }

    /// The threads that have not ended.
    pub(crate) fn alive(&self) -> impl Iterator<Item = &ThreadSeen> {
        self.threads.iter().filter(|thread| thread.activity != Activity::Over)
    }

    /// The usable CPUs that were busy for no moment since an earlier scene, and are not now.
    pub(crate) fn rested(&self, before: &Self) -> CpuSet {
        let pairs = before.busy.iter().zip(&self.busy).zip(before.loads.iter().zip(&self.loads));
        let rested = pairs.filter(|((then, now), loads)| then == now && loads.0.1 == 0 && loads.1.1 == 0);
        let cpus: CpuSet = rested.map(|((_, now), _)| now.0).collect();
        cpus.intersection(&self.usable).intersection(&before.usable)
    }
}

/// Whether a thread wants a CPU.
pub(crate) fn ready(thread: &ThreadSeen) -> bool {
    !matches!(thread.activity, Activity::Asleep | Activity::Over)
}

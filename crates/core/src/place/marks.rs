//! Marks of an occupancy and of a plan, for pictures of the machine.

use super::{CpuState, Plan, Taken, state};
use crate::topology::{CpuMark, Machine, Marks};
use std::collections::BTreeMap;

impl From<CpuState> for CpuMark {
    fn from(state: CpuState) -> Self {
        match state {
            CpuState::Free => Self::Free,
            CpuState::Busy => Self::Busy,
            CpuState::Pinned => Self::Pinned,
            CpuState::Held => Self::Held,
            CpuState::Disallowed => Self::Disallowed,
        }
    }
}

impl Marks {
    /// Returns the marks for the occupancy of a machine, without a plan.
    pub fn around(machine: &Machine, taken: &Taken) -> Self {
        let mark = |cpu| (cpu, state(machine, taken, cpu).into());
        Self { of: machine.parts().pus.iter().copied().map(mark).collect(), threads: BTreeMap::new() }
    }

    /// Adds the marks of a plan: its chosen CPUs and those that it keeps idle.
    #[must_use]
    pub fn with_plan(mut self, plan: &Plan) -> Self {
        for cpu in plan.hold.difference(&plan.mask).iter() {
            self.of.insert(cpu, CpuMark::Idle);
        }
        for (thread, slot) in plan.slots.iter().enumerate() {
            let mark = match self.of(slot.cpu) {
                CpuMark::Free | CpuMark::Idle | CpuMark::Chosen => CpuMark::Chosen,
                _ => CpuMark::Contested,
            };
            self.of.insert(slot.cpu, mark);
            self.threads.insert(slot.cpu, thread);
        }
        self
    }
}

//! Tests on whole machines with a few threads and without a scheduler: each test puts threads on
//! CPUs and lets epochs pass.

mod published;
mod state;

use super::Memory;
use crate::model::{Model, shipped};
use crate::program::Footprint;
use trimtab_core::ids::{Id, Pu};
use trimtab_core::time::Moment;

/// Machine on which threads stay where they are put.
struct MemoryRig {
    memory: Memory,
    now: Moment,
    threads: usize,
}

impl MemoryRig {
    fn new(machine: &str) -> Self {
        Self::of(&shipped::find(machine).unwrap().unwrap())
    }

    fn of(model: &Model) -> Self {
        Self { memory: Memory::new(model), now: Moment(0), threads: 0 }
    }

    /// Starts a thread of a program on a hardware thread.
    fn run(&mut self, program: usize, footprint: &Footprint, pu: usize) -> usize {
        let thread = self.threads;
        self.threads += 1;
        self.memory.add(thread, program, footprint);
        self.memory.on_cpu(self.now, thread, Pu::from_index(pu));
        thread
    }

    /// Lets this many milliseconds pass. Returns the work of the thread, in milliseconds.
    fn pass(&mut self, ms: u64, thread: usize) -> f64 {
        let end = Moment(self.now.0 + ms * 1_000_000);
        let mut work = 0.0;
        let mut changed = Vec::new();
        while self.now < end {
            let to = self.memory.next().map_or(end, |due| due.max(self.now).min(end));
            work += self.memory.rate(thread) * to.since(self.now).0 as f64;
            let due = self.memory.next().is_some_and(|due| due <= to);
            self.now = to;
            if due {
                self.memory.epoch(self.now, &mut changed);
            }
        }
        work / 1e6
    }

    /// Returns the rate after everything has settled.
    fn settled(&mut self, thread: usize) -> f64 {
        self.pass(2_000, thread);
        self.pass(200, thread) / 200.0
    }
}

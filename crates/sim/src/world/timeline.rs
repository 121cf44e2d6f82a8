//! Timeline of a world: the present time, and the planned events.

use crate::queue::{PlannedEvent, Queue};

/// Thing that has at most one planned event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    /// A CPU: the end of its thread's phase, or a check by the scheduler.
    Cpu(usize),
    /// A CPU's balancing.
    Balance(usize),
    /// The start of the next program.
    Agenda,
    /// The next epoch of the memory model.
    Epoch,
    /// Work of a scheduler on all CPUs at once.
    Everywhere,
    /// A thread's own alarm.
    Alarm(usize),
}

/// Slots that belong to no CPU and no thread.
const COMMON_SLOTS: usize = 3;

/// Time and planned events.
#[derive(Debug)]
pub(super) struct Timeline {
    now: u64,
    queue: Queue,
    cpus: usize,
}

impl Timeline {
    /// Returns a timeline at 0, without events.
    pub(super) fn new(cpus: usize) -> Self {
        Self { now: 0, queue: Queue::new(2 * cpus + COMMON_SLOTS), cpus }
    }

    /// Returns the present time, in ns.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Lets time pass without an event.
    pub(super) fn pass(&mut self, until: u64) {
        self.now = self.now.max(until);
    }

    fn index(&self, slot: Slot) -> usize {
        match slot {
            Slot::Cpu(cpu) => cpu,
            Slot::Balance(cpu) => self.cpus + cpu,
            Slot::Agenda => 2 * self.cpus,
            Slot::Epoch => 2 * self.cpus + 1,
            Slot::Everywhere => 2 * self.cpus + 2,
            Slot::Alarm(thread) => 2 * self.cpus + COMMON_SLOTS + thread,
        }
    }

    fn slot(&self, index: usize) -> Slot {
        let (kind, cpu) = (index / self.cpus, index % self.cpus);
        match index.checked_sub(2 * self.cpus) {
            None if kind == 0 => Slot::Cpu(cpu),
            None => Slot::Balance(cpu),
            Some(0) => Slot::Agenda,
            Some(1) => Slot::Epoch,
            Some(2) => Slot::Everywhere,
            Some(thread) => Slot::Alarm(thread - COMMON_SLOTS),
        }
    }

    /// Makes room for the alarms of this many threads.
    pub(super) fn grow(&mut self, threads: usize) {
        self.queue.grow(self.index(Slot::Alarm(threads)));
    }

    /// Plans a slot's event, in place of the planned one.
    pub(super) fn plan(&mut self, slot: Slot, at: u64) {
        self.queue.plan(self.index(slot), at);
    }

    pub(super) fn cancel(&mut self, slot: Slot) {
        self.queue.cancel(self.index(slot));
    }

    /// Returns when a slot's event is planned, ns.
    pub(super) fn planned(&self, slot: Slot) -> Option<u64> {
        self.queue.planned(self.index(slot))
    }

    /// Returns when the next event is planned, ns.
    pub(super) fn next(&self) -> Option<u64> {
        self.queue.next()
    }

    /// Advances to the next event. [`Self::done`] must follow.
    pub(super) fn begin(&mut self) -> Option<(PlannedEvent, Slot)> {
        let event = self.queue.begin()?;
        self.now = event.at;
        let slot = self.slot(event.slot);
        Some((event, slot))
    }

    /// Finishes an event that was carried out.
    pub(super) fn done(&mut self, event: PlannedEvent) {
        self.queue.done(event);
    }
}

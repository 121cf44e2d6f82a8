//! Timeline of a world: what time it is, and the planned events.

use crate::queue::{Event, Queue};

/// Something that has at most one planned event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    /// A CPU: the end of its thread's phase, or a look of the scheduler.
    Cpu(usize),
    /// A CPU's balancing.
    Balance(usize),
    /// The start of the next program.
    Agenda,
    /// The next epoch of the memory model.
    Epoch,
    /// What a scheduler does on all CPUs at once.
    Everywhere,
    /// A thread's own alarm.
    Alarm(usize),
}

/// Slots that belong to no CPU and no thread.
const COMMON_SLOTS: usize = 3;

/// Time and events.
#[derive(Debug)]
pub(super) struct Timeline {
    now: u64,
    queue: Queue,
    cpus: usize,
}

impl Timeline {
    /// A timeline at 0, without events.
    pub(super) fn new(cpus: usize) -> Self {
        Self { now: 0, queue: Queue::new(2 * cpus + COMMON_SLOTS), cpus }
    }

    /// What time it is, in ns.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Time passes without an event.
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

    /// Plans a slot's event, in place of the one that was planned.
    pub(super) fn plan(&mut self, slot: Slot, at: u64) {
        self.queue.plan(self.index(slot), at);
    }

    pub(super) fn cancel(&mut self, slot: Slot) {
        self.queue.cancel(self.index(slot));
    }

    /// When a slot's event is planned.
    pub(super) fn planned(&self, slot: Slot) -> Option<u64> {
        self.queue.planned(self.index(slot))
    }

    /// When the next event is planned.
    pub(super) fn next(&self) -> Option<u64> {
        self.queue.next()
    }

    /// Goes on to the next event; [`Self::done`] is to follow.
    pub(super) fn begin(&mut self) -> Option<(Event, Slot)> {
        let event = self.queue.begin()?;
        self.now = event.at;
        let slot = self.slot(event.slot);
        Some((event, slot))
    }

    /// An event was carried out.
    pub(super) fn done(&mut self, event: Event) {
        self.queue.done(event);
    }
}

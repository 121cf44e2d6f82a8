//! Models of kernel schedulers, below the policies.
//!
//! Unit: nanoseconds. Idea: all models share the [`Seats`]: run queues of CPUs, threads as the scheduler sees them, and the domains of
//! the machine. A model is a [`Scheduler`]: who of one queue runs next and until when, where a new or woken thread goes,
//! and who is pulled from which CPU to which when. The world asks and carries out; a model never switches anybody itself.
//!
//! - [`fair`]: virtual time in one queue, by least or by deadline, and what yield does to it.
//! - [`wake_placement`]: where new and woken threads go.
//! - [`load_balance`]: what fair schedulers do between queues; `balance_2_6` and `balance_eevdf` are its rules of 2008 and of today.
//! - [`dwrr`], [`credit`]: whole schedulers of their own.

mod balance_2_6;
mod balance_eevdf;
mod credit;
mod domains;
mod dwrr;
mod fair;
mod imbalance;
mod load_balance;
mod seats;
mod tree;
mod wake_placement;

pub(crate) use seats::{Seats, State, Task};
pub(crate) use wake_placement::emptiest;

use crate::kernel::{Kernel, Kind};

/// Why a thread comes to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// It was born.
    New,
    /// It slept.
    Woken,
    /// It waited in, or ran on, another CPU.
    Moved,
}

/// A model of a scheduler. `now` is nanoseconds; the running thread's time is accounted (`ran`) before anything is asked.
pub(crate) trait Scheduler: std::fmt::Debug {
    /// Where a new thread goes.
    fn fork(&mut self, seats: &mut Seats, task: usize) -> usize {
        wake_placement::fork(seats, task)
    }

    /// Where a woken thread goes; `waker` is the CPU of whoever woke it.
    fn wake(&mut self, seats: &mut Seats, task: usize, waker: Option<usize>) -> usize {
        wake_placement::wake(seats, task, waker)
    }

    /// A thread is about to join a CPU's queue.
    fn joins(&mut self, seats: &mut Seats, task: usize, cpu: usize, why: Why);

    /// A thread, no longer in the queue or running, goes to sleep or to another CPU.
    fn leaves(&mut self, seats: &mut Seats, task: usize, cpu: usize);

    /// A thread ran for so long.
    fn ran(&mut self, seats: &mut Seats, task: usize, cpu: usize, span: u64);

    /// Who runs next on a CPU where nobody runs: a place in its queue.
    fn pick(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> Option<usize>;

    /// When the running thread must be looked at; `u64::MAX` if not at all.
    fn until(&self, seats: &Seats, now: u64, cpu: usize) -> u64;

    /// Looks at the running thread at that moment: whether another one runs now.
    fn expired(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> bool;

    /// Whether a thread that just joined runs at once instead of the running one.
    fn preempts(&mut self, seats: &mut Seats, task: usize, cpu: usize) -> bool;

    /// Whom a CPU without work pulls from another queue.
    fn pull(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> Option<usize>;

    /// Periodic balancing at a tick: whom this CPU pulls is added to `pulled`. The answer is when to look again.
    fn balance(&mut self, seats: &mut Seats, now: u64, cpu: usize, pulled: &mut Vec<usize>) -> u64;

    /// Whether an idle CPU is called at once where somebody waits, whichever it is, and not the nearest at the next tick.
    fn calls(&self) -> bool {
        false
    }

    /// Where the thread that runs on a CPU would rather be, asked at ticks.
    fn rather(&self, _seats: &Seats, _cpu: usize) -> Option<usize> {
        None
    }

    /// Somebody joined, left or got a CPU.
    fn changed(&mut self, _seats: &Seats, _cpu: usize) {}

    /// What happens to the whole machine, and when next; `u64::MAX` for never.
    fn everywhere(&mut self, _seats: &mut Seats, _now: u64) -> u64 {
        u64::MAX
    }
}

/// The model of a kernel on a machine.
pub(crate) fn scheduler(kernel: &Kernel, seats: &Seats) -> Box<dyn Scheduler> {
    let fair = |spread| Box::new(fair::Fair::new(kernel, seats, spread)) as Box<dyn Scheduler>;
    match kernel.kind {
        Kind::Load => fair(load_balance::Spread::Load),
        Kind::Eevdf => fair(load_balance::Spread::Modern),
        Kind::Pinned => fair(load_balance::Spread::Nothing),
        Kind::Dwrr => Box::new(dwrr::Dwrr::new(kernel, seats)),
        Kind::Credit => Box::new(credit::Credit::new(kernel, seats)),
    }
}

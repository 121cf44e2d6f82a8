//! Models of kernel schedulers, below the policies.
//!
//! Unit: nanoseconds. Idea: all models share the [`Seats`]: run queues of CPUs, threads as the
//! scheduler sees them, and the domains of the machine. A model is a [`Scheduler`]. It decides
//! which thread of one run queue runs next and until when, the CPU of a new or woken thread, and
//! which thread is pulled from which CPU to which, and when. The world calls the scheduler and
//! carries out its decisions; a model never switches threads itself.
//!
//! - [`fair`]: virtual time in one run queue, by least or by deadline, and the effect of yield on
//!   it.
//! - [`wake_placement`]: the CPU for new and woken threads.
//! - [`load_balance`]: balancing of fair schedulers between run queues; `balance_2_6` and
//!   `balance_eevdf` are its rules of 2008 and of today.
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

pub(crate) use seats::{Seats, Task, TaskState};
pub(crate) use wake_placement::emptiest;

use crate::kernel::{Kernel, SchedulerKind};

/// Reason why a thread joins a run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinReason {
    /// The thread was created.
    New,
    /// The thread slept.
    Woken,
    /// The thread waited in, or ran on, another CPU.
    Moved,
}

/// Model of a scheduler. `now` is nanoseconds; the running thread's time is accounted (`ran`)
/// before any decision is asked for.
pub(crate) trait Scheduler: std::fmt::Debug {
    /// Returns the CPU for a new thread.
    fn fork(&mut self, seats: &mut Seats, task: usize) -> usize {
        wake_placement::fork(seats, task)
    }

    /// Returns the CPU for a woken thread; `waker` is the CPU of the thread that woke it.
    fn wake(&mut self, seats: &mut Seats, task: usize, waker: Option<usize>) -> usize {
        wake_placement::wake(seats, task, waker)
    }

    /// Tells that a thread is about to join a CPU's queue.
    fn joins(&mut self, seats: &mut Seats, task: usize, cpu: usize, why: JoinReason);

    /// Tells that a thread, no longer in the queue or running, goes to sleep or to another CPU.
    fn leaves(&mut self, seats: &mut Seats, task: usize, cpu: usize);

    /// Tells that a thread ran for this time, ns.
    fn ran(&mut self, seats: &mut Seats, task: usize, cpu: usize, span: u64);

    /// Returns the place in the queue of the thread that runs next on a CPU where no thread runs.
    fn pick(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> Option<usize>;

    /// Returns when [`Self::expired`] must be called for the running thread; `u64::MAX` if not at
    /// all.
    fn until(&self, seats: &Seats, now: u64, cpu: usize) -> u64;

    /// Checks the running thread at that moment. Returns whether another thread runs now.
    fn expired(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> bool;

    /// Returns whether a thread that just joined runs at once instead of the running one.
    fn preempts(&mut self, seats: &mut Seats, task: usize, cpu: usize) -> bool;

    /// Returns the thread that a CPU without work pulls from another queue.
    fn pull(&mut self, seats: &mut Seats, now: u64, cpu: usize) -> Option<usize>;

    /// Balances at a tick. Adds the threads that this CPU pulls to `pulled`, and returns when to
    /// balance again.
    fn balance(&mut self, seats: &mut Seats, now: u64, cpu: usize, pulled: &mut Vec<usize>) -> u64;

    /// Returns whether an idle CPU, any of them, is called at once when a thread waits, instead of
    /// the nearest one at the next tick.
    fn calls(&self) -> bool {
        false
    }

    /// Returns a CPU that is better for the thread that runs on this CPU. Called at ticks.
    fn better_cpu(&self, _seats: &Seats, _cpu: usize) -> Option<usize> {
        None
    }

    /// Tells that a thread joined, left or got a CPU.
    fn changed(&mut self, _seats: &Seats, _cpu: usize) {}

    /// Does the work that is due on the whole machine. Returns when it is due next; `u64::MAX` for
    /// never.
    fn everywhere(&mut self, _seats: &mut Seats, _now: u64) -> u64 {
        u64::MAX
    }
}

/// Returns the model of a kernel on a machine.
pub(crate) fn scheduler(kernel: &Kernel, seats: &Seats) -> Box<dyn Scheduler> {
    let fair = |spread| Box::new(fair::Fair::new(kernel, seats, spread)) as Box<dyn Scheduler>;
    match kernel.kind {
        SchedulerKind::Load => fair(load_balance::BalanceRule::Load),
        SchedulerKind::Eevdf => fair(load_balance::BalanceRule::Modern),
        SchedulerKind::Pinned => fair(load_balance::BalanceRule::Nothing),
        SchedulerKind::Dwrr => Box::new(dwrr::Dwrr::new(kernel, seats)),
        SchedulerKind::Credit => Box::new(credit::Credit::new(kernel, seats)),
    }
}

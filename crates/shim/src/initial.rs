//! Move of the initial thread from the CPU on which a thread of its is created.
//!
//! The initial thread floats in the mask and may run on the CPU of any slot. A new thread that gets
//! this slot competes with it there: the initial thread goes on after a slice of time (3 ms), or
//! when the scheduler moves it at one of its next ticks, and a team that it is creating waits. So
//! the initial thread moves to slot 0 first, which other threads get last. Its mask does not
//! change, except for the moment of the move.
//!
//! A move takes some 20 us, more on a busy machine. A program that creates a thread, waits for it
//! and creates the next would pay that for each of them, and gain nothing, since its initial thread
//! waits anyway. So moves are rare.

use crate::cpus::Cpus;
use crate::fork;
use crate::plan::AppliedPlan;
use crate::slots::TURNS;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use trimtab_core::ids::OsCpu;

/// Slot of the initial thread.
const SLOT: usize = 0;

/// Least time between two moves, in ns. Chosen: a team is created in less, and a move takes less
/// than a thousandth of it.
const PAUSE_LEAST: u64 = 100_000_000;

/// Time of the last move, in ns of the monotonic clock; 0 before the first.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Makes the calling thread leave these CPUs of a slot, which a thread gets that it is about to
/// create. Does this only for the initial thread, while it has the whole mask of the plan, and no
/// other thread is on slot 0. Nothing changes if the kernel refuses.
pub(crate) fn leave(plan: &AppliedPlan, given: &Cpus) {
    // SAFETY: no preconditions.
    let here = unsafe { libc::sched_getcpu() };
    let competes = u32::try_from(here).is_ok_and(|here| given.contains(OsCpu(here)));
    if competes && fork::is_initial_thread() && is_due() {
        move_to_slot(plan, given);
    }
}

/// Returns whether no move was made, or tried, for [`PAUSE_LEAST`]. Only the initial thread asks.
fn is_due() -> bool {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    let now = (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64);
    let last = LAST.load(Relaxed);
    let due = last == 0 || now.saturating_sub(last) >= PAUSE_LEAST;
    if due {
        LAST.store(now, Relaxed);
    }
    due
}

/// Moves the calling thread. A function of its own, so that only the initial thread's stack holds
/// these sets.
#[cold]
#[inline(never)]
fn move_to_slot(plan: &AppliedPlan, given: &Cpus) {
    let last_turn = plan.slots().saturating_sub(1);
    if TURNS.is_taken(last_turn) {
        return; // another thread is on slot 0
    }
    let mut cpus = Cpus::new();
    if !cpus.read_this_thread() || cpus != *plan.mask() {
        return; // bound by a runtime or by the program
    }
    plan.read_slot(SLOT, &mut cpus);
    if cpus == *given {
        return;
    }
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // A handler that forks or starts a program would pass the narrow mask on. SAFETY: each set is
    // initialised by the call that gets it first; this thread's signals are put back.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        if libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) != 0 {
            return;
        }
        if cpus.confine_this_thread() {
            plan.mask().confine_this_thread();
        }
        libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
    }
}

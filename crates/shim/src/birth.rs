//! Creation of a thread: on its slot, in the mask, or as the program requests.
//!
//! The CPUs go into the thread's attribute. So the thread has them before its first instruction,
//! independent of its creator's own mask: an OpenMP runtime narrows the initial thread to one place
//! before `main`, a pinned thread has one slot, and both would pass that on. Pinning from inside
//! the new thread would come too late for the same reason: the thread would first have to run on
//! the CPU on which its creator computes.

use crate::attr::{Attr, names_cpus};
use crate::cpus::Cpus;
use crate::slots::{self, TURNS};
use crate::{initial, narrowed, nest, plan, plan::AppliedPlan, real, runtimes, spin};
use libc::{c_int, c_void, pthread_attr_t, pthread_t};

/// Start routine. It may unwind: `pthread_exit` and cancellation do.
type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Creates a thread by the plan; if the plan does not apply, or the system refuses it, as the
/// program requests.
///
/// # Safety
/// As `pthread_create(3)`.
pub(crate) unsafe fn create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    routine: *const c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { create_placed(thread, attr, routine, argument) };
    if result == 0 {
        spin::note_birth();
    }
    result
}

/// Creates a thread in its place, if it has one.
///
/// # Safety
/// As `pthread_create(3)`.
unsafe fn create_placed(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    routine: *const c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    if let Some(result) = quietly(|| unsafe { create_member(thread, attr, routine, argument) }) {
        return result;
    }
    // SAFETY: the attribute is null or initialised, by the caller's contract.
    quietly(|| plan::guarded(|| unsafe { note_set_cpus(attr) }));
    // SAFETY: as above.
    let birth = quietly(|| plan::guarded(|| unsafe { Birth::planned(attr, routine) }));
    if let Some(birth) = birth {
        // SAFETY: the caller's contract, and an attribute that differs only in the CPUs.
        if quietly(|| unsafe { birth.carry_out(thread, routine, argument) }) {
            return 0;
        }
    }
    // SAFETY: the caller's contract.
    unsafe { real::pthread_create(thread, attr, routine, argument) }
}

/// Records that the program sets the CPUs of the new thread, where masks are changed by a balancer.
///
/// # Safety
/// `attr` is null or initialised.
unsafe fn note_set_cpus(attr: *const pthread_attr_t) -> Option<()> {
    let balanced = plan::current().is_some_and(AppliedPlan::is_balanced);
    // SAFETY: the caller's promise.
    if balanced && !attr.is_null() && unsafe { names_cpus(attr) } {
        narrowed::note_set();
    }
    Some(())
}

/// Creates a member of a nested team in its place, whatever CPUs the runtime asked for. Returns
/// `None` if the thread is not such a member, or cannot be created there.
///
/// # Safety
/// As `pthread_create(3)`.
unsafe fn create_member(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    routine: *const c_void,
    argument: *mut c_void,
) -> Option<c_int> {
    let mut cpus = Cpus::new();
    let birth = plan::guarded(|| nest::born_as(routine, &mut cpus))?;
    // SAFETY: the attribute is null or initialised, by the caller's contract.
    let placed =
        unsafe { Attr::whatever_cpus(attr) }.and_then(|mut attr| attr.set_cpus(&cpus).map(|()| attr));
    // SAFETY: the caller's contract, and an attribute that differs only in the CPUs.
    let created =
        placed.map(|attr| unsafe { real::pthread_create(thread, attr.as_ptr(), routine, argument) });
    if created != Some(0) {
        birth.failed();
        return None;
    }
    created
}

/// Prepared creation: an attribute with CPUs, and the turn that the thread takes, if any.
struct Birth {
    attr: Attr,
    turn: Option<usize>,
}

impl Birth {
    /// Prepares a new thread by the plan; `None` if the plan does not apply to it.
    ///
    /// # Safety
    /// `attr` is null or initialised.
    unsafe fn planned(attr: *const pthread_attr_t, routine: *const c_void) -> Option<Self> {
        let plan = plan::current().filter(|plan| plan.governs_this_process())?;
        let mut cpus = Cpus::new();
        if !nest::is_narrowed() && cpus.read_this_thread() && plan.is_foreign(&cpus) {
            return None;
        }
        let floats = !plan.has_places_for_threads() || runtimes::own(routine, attr);
        // SAFETY: the caller's promise.
        let attr = unsafe { Attr::without_cpus(attr)? };
        let mut birth = Self { attr, turn: if floats { None } else { take_turn(plan) } };
        match birth.turn {
            Some(turn) => {
                plan.read_slot(slots::slot_of(turn, plan.slots()), &mut cpus);
                birth.attr.set_cpus(&cpus)?;
                initial::leave(plan, &cpus);
            }
            None => birth.attr.set_cpus(plan.mask())?,
        }
        Some(birth)
    }

    /// Creates the thread; false if that fails.
    ///
    /// # Safety
    /// As `pthread_create(3)`.
    unsafe fn carry_out(
        mut self,
        thread: *mut pthread_t,
        routine: *const c_void,
        argument: *mut c_void,
    ) -> bool {
        let Some(turn) = self.turn else {
            // SAFETY: the caller's contract.
            return unsafe { real::pthread_create(thread, self.attr.as_ptr(), routine, argument) } == 0;
        };
        TURNS.write(turn, routine, argument);
        let number = std::ptr::without_provenance_mut(turn);
        // SAFETY: the caller's contract; `begin` runs the routine that was stored for this turn.
        let created =
            unsafe { real::pthread_create(thread, self.attr.as_ptr(), begin as *const c_void, number) } == 0;
        if created {
            self.turn = None; // the thread owns it now
        }
        created
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        if let Some(turn) = self.turn {
            TURNS.give_back(turn);
        }
    }
}

fn take_turn(plan: &AppliedPlan) -> Option<usize> {
    slots::can_be_given_back().then(|| TURNS.take(plan.slots())).flatten()
}

/// Start routine of a thread on a slot.
///
/// `pthread_exit` and cancellation unwind through this frame, so it holds nothing that would have
/// to be dropped, and nothing is caught.
unsafe extern "C-unwind" fn begin(turn: *mut c_void) -> *mut c_void {
    let turn = turn.addr();
    slots::settle(turn);
    let Some((routine, argument)) = TURNS.read(turn) else { return std::ptr::null_mut() };
    // SAFETY: the creator stored the program's start routine there, which takes that argument.
    unsafe { std::mem::transmute::<*mut c_void, Routine>(routine)(argument) }
}

/// Runs `work` and leaves `errno` as it was.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the location is valid in the calling thread throughout.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

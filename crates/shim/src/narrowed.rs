//! The mask of an initial thread that an OpenMP runtime has bound to its first place.
//!
//! Problem: a runtime that was told the slots as its places binds the initial thread to one CPU, GNU's even
//! before `main`. Libraries that then count the affinity mask, as OpenBLAS and oneTBB do, would see one CPU, where
//! they see all CPUs of the run without the places. Idea: the thread is asked for its mask by calls of the C
//! library, so those answer with the mask of the plan while the thread is on a slot of it. Inside a parallel region
//! they answer with the place: a program that asks there wants to see it. System calls and `/proc` answer as the
//! kernel does.

use crate::cpus::Cpus;
use crate::plan::{self, Plan};
use crate::real::Symbol;
use libc::{c_int, cpu_set_t, pid_t, size_t};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const UNKNOWN: u8 = 0;
const BINDS: u8 = 1;
const LEAVES: u8 = 2;

/// Whether the runtime of the planned process was told places by the launcher.
static RUNTIME: AtomicU8 = AtomicU8::new(UNKNOWN);

static OMP_GET_LEVEL: Symbol = Symbol::new(c"omp_get_level");

/// Whether the calling thread is inside a parallel region.
fn in_region() -> bool {
    let Some(level) = OMP_GET_LEVEL.found().or_else(|| OMP_GET_LEVEL.look_up()) else { return false };
    // SAFETY: the symbol of that name has that type.
    let level = unsafe { transmute::<NonNull<libc::c_void>, extern "C-unwind" fn() -> c_int>(level) };
    level() > 0
}

fn runtime_binds(plan: &Plan) -> bool {
    let known = RUNTIME.load(Relaxed);
    if known != UNKNOWN {
        return known == BINDS;
    }
    let told = ["OMP_PLACES", "KMP_AFFINITY"].iter().any(|name| plan::variable(name).is_some());
    let binds = told && plan.floats();
    RUNTIME.store(if binds { BINDS } else { LEAVES }, Relaxed);
    binds
}

/// Replaces the mask that a call has answered, of `bytes` bytes, by the plan's, where the mask is the initial thread's
/// and a slot. `process` is the process or thread that was asked for, 0 for the calling thread.
///
/// # Safety
/// `mask` is valid for writes of `bytes` bytes and initialised.
pub(crate) unsafe fn widen(process: pid_t, bytes: size_t, mask: *mut cpu_set_t) {
    let Some(plan) = plan::current().filter(|plan| plan.is_of_this_process() && runtime_binds(plan)) else {
        return;
    };
    // SAFETY: neither call has preconditions.
    let (own, thread) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    let initial = process == own || (process == 0 && thread == i64::from(own));
    let whole = plan.mask().end().div_ceil(8);
    if !initial || bytes < whole || in_region() {
        return;
    }
    // SAFETY: the caller's contract.
    let answer = unsafe { std::slice::from_raw_parts_mut(mask.cast::<u8>(), bytes) };
    let mut seen = Cpus::new();
    seen.become_bytes(answer);
    if (0..plan.slots()).any(|slot| plan.is_slot(slot, &seen)) {
        plan.mask().write_bytes(answer);
    }
}

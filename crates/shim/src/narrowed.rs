//! Mask that the program sees for a thread which this run has narrowed to a slot.
//!
//! Problem: programs size their pools by the mask of the calling thread, as Rust's standard
//! library, OpenBLAS and oneTBB do. Two kinds of threads have one CPU here and would have the whole
//! hold without this library: a thread that was created on its slot ([`birth`](crate::birth)), and
//! the initial thread, if an OpenMP runtime that got the slots as its places binds it to the first,
//! GNU's even before `main`. Idea: programs read a thread's mask by calls of the C library, so
//! these calls return the mask of the plan while the thread is on its slot. System calls and
//! `/proc` give the kernel's answer, and so does every call for another thread that was created on
//! its slot.
//!
//! A balancer gives threads one CPU each while the program runs, from outside. In a balanced run
//! each call for the calling or the initial thread on one CPU returns the mask of the plan, too, as
//! long as the program has not set the mask of any thread by the C library. A program that is
//! executed with fewer CPUs than the plan has set them before. More CPUs than one are a cpuset or a
//! hold that shrank, or a memory node, and are returned.
//!
//! A mask that the program set by itself is returned unchanged:
//!
//! - A mask in a thread's attribute: such a thread takes no slot.
//! - A mask that a call of the C library set for a thread on a slot, even if it is exactly the slot
//!   ([`holders`](crate::holders)). GNU's runtime binds threads by such calls. A mask set by a
//!   system call is noticed if it differs from the slot.
//! - The mask of a thread on which an OpenMP runtime of LLVM's family starts, which counts CPUs and
//!   binds threads by system calls: it is widened then ([`ompt`](crate::ompt)), and left to the
//!   runtime.
//! - The place of the initial thread inside a parallel region: a program that reads there wants the
//!   real mask.
//!
//! A program that reads its mask, sets another and restores the first (hwloc, oneTBB, OpenBLAS)
//! sets the plan's mask. From then on the thread has that mask and floats in the hold, as without
//! this library. The thread is not put back on its slot: the program may as well have meant to
//! unbind it, and settings of the program are not contradicted.

use crate::cpus::Cpus;
use crate::holders::HOLDERS;
use crate::nest;
use crate::plan::{self, AppliedPlan};
use crate::real::Symbol;
use crate::slots::{self, TURNS};
use libc::{c_int, cpu_set_t, pid_t, pthread_t, size_t};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

const RUNTIME_UNKNOWN: u8 = 0;
const RUNTIME_BINDS: u8 = 1;
const RUNTIME_LEAVES: u8 = 2;

/// Whether the launcher gave places to the runtime of the planned process.
static RUNTIME: AtomicU8 = AtomicU8::new(RUNTIME_UNKNOWN);

/// Whether the program has set the mask of a thread by a call of the C library or an attribute.
static SETS_MASKS: AtomicBool = AtomicBool::new(false);

static OMP_GET_LEVEL: Symbol = Symbol::new(c"omp_get_level");

/// Returns whether the calling thread is inside a parallel region.
fn in_region() -> bool {
    let Some(level) = OMP_GET_LEVEL.found().or_else(|| OMP_GET_LEVEL.look_up()) else { return false };
    // SAFETY: the symbol of that name has that type.
    let level = unsafe { transmute::<NonNull<libc::c_void>, extern "C-unwind" fn() -> c_int>(level) };
    level() > 0
}

fn runtime_binds(plan: &AppliedPlan) -> bool {
    let known = RUNTIME.load(Relaxed);
    if known != RUNTIME_UNKNOWN {
        return known == RUNTIME_BINDS;
    }
    let has_places = ["OMP_PLACES", "KMP_AFFINITY"].iter().any(|name| plan::variable(name).is_some());
    let binds = has_places && plan.floats();
    RUNTIME.store(if binds { RUNTIME_BINDS } else { RUNTIME_LEAVES }, Relaxed);
    binds
}

/// Records that the program sets masks: from now on a balanced run tells it those of the kernel.
pub(crate) fn note_set() {
    SETS_MASKS.store(true, Relaxed);
}

/// Looks at the mask with which the program is executed, in a balanced run.
pub(crate) fn note_start(plan: &AppliedPlan) {
    let mut seen = Cpus::new();
    if plan.is_balanced()
        && plan.is_of_this_process()
        && seen.read_this_thread()
        && seen.is_within(plan.mask())
    {
        note_set();
    }
}

/// Records that the program has set the mask of a thread of this process, by the kernel's id; 0 is
/// the calling thread.
pub(crate) fn note_set_task(task: pid_t) {
    note_set();
    match slots::of_this_thread() {
        Some(turn) if task == 0 => HOLDERS.note_turn(turn),
        _ if task == 0 => {}
        _ => with_turns(|turns| HOLDERS.note_task(task, turns)),
    }
}

/// Records that the program has set the mask of a thread.
pub(crate) fn note_set_thread(thread: pthread_t) {
    note_set();
    with_turns(|turns| HOLDERS.note_thread(thread, turns, |turn| TURNS.is_taken(turn)));
}

/// Runs `work` with the number of turns, if this is the planned process and it has turns.
fn with_turns(work: impl FnOnce(usize)) {
    if let Some(plan) =
        plan::current().filter(|plan| plan.has_places_for_threads() && plan.is_of_this_process())
    {
        work(plan.slots());
    }
}

/// Replaces the mask of `bytes` bytes that a call has answered by the plan's mask, if this run made
/// it a slot. `process` is the process or thread that was asked for, 0 for the calling thread.
///
/// # Safety
/// `mask` is valid for writes of `bytes` bytes and initialised.
pub(crate) unsafe fn widen(process: pid_t, bytes: size_t, mask: *mut cpu_set_t) {
    let Some(plan) = plan::current().filter(|plan| plan.is_of_this_process()) else { return };
    if bytes < plan.mask().end().div_ceil(8) {
        return;
    }
    // SAFETY: the caller's contract.
    let answer = unsafe { std::slice::from_raw_parts_mut(mask.cast::<u8>(), bytes) };
    let mut seen = Cpus::new();
    seen.become_bytes(answer);
    if is_narrowed_by_runtime(plan, process, &seen)
        || is_narrowed_by_birth(plan, process, &seen)
        || is_narrowed_by_balancer(plan, process, &seen)
    {
        plan.mask().write_bytes(answer);
    }
}

/// Returns whether this is the initial thread, and the runtime has bound it to its slot of the
/// plan.
fn is_narrowed_by_runtime(plan: &AppliedPlan, process: pid_t, seen: &Cpus) -> bool {
    // SAFETY: no preconditions.
    let own = unsafe { libc::getpid() };
    let is_initial = process == own || (process == 0 && this_task() == own);
    is_initial
        && runtime_binds(plan)
        && !in_region()
        && (0..plan.slots()).any(|slot| plan.is_slot(slot, seen))
}

/// Returns whether this is the calling thread, created on its slot and not moved since.
fn is_narrowed_by_birth(plan: &AppliedPlan, process: pid_t, seen: &Cpus) -> bool {
    let Some(turn) = slots::of_this_thread() else { return false };
    (process == 0 || process == this_task())
        && plan.is_slot(slots::slot_of(turn, plan.slots()), seen)
        && !HOLDERS.is_set(turn)
        && !nest::is_narrowed()
}

/// Returns whether this is the calling or the initial thread, and a balancer gave it fewer CPUs.
fn is_narrowed_by_balancer(plan: &AppliedPlan, process: pid_t, seen: &Cpus) -> bool {
    // SAFETY: no preconditions.
    let is_of_process = || process == 0 || process == unsafe { libc::getpid() } || process == this_task();
    plan.is_balanced()
        && seen.len() == 1
        && seen.is_within(plan.mask())
        && !SETS_MASKS.load(Relaxed)
        && is_of_process()
}

fn this_task() -> pid_t {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as pid_t }
}

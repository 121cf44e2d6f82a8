//! Wait loops in the program's own code, which yield while the process has more threads than CPUs.
//!
//! The launcher asks for it by a variable ([`trimtab_core::spin`]). When a process gets more
//! threads than CPUs, a *helper*, a thread of this library, samples the instruction addresses of
//! the others, proves which of them are in wait loops, and leads the backward jumps of these loops
//! through instructions that yield ([`patch`]). It ends when the threads are no longer more than
//! the CPUs.
//!
//! The program's threads receive no signal, and none of its system calls is interrupted: the kernel
//! writes the samples into memory, and only samples that hit the program's own code
//! ([`sampler`]). The helper has a table of descriptors of its own, so that no descriptor of it
//! appears in the program. It blocks all signals, so that the program's handlers do not run in it.
//!
//! Whatever is not permitted or not understood leaves the loops as they are.

mod helper;
mod patch;
mod report;
mod sampler;
mod system;

use crate::cpus::Cpus;
use crate::{imports, plan, unwinder};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use trimtab_core::spin;

/// Whether the launcher asked for it. Each thread that is created costs one load of it.
static ON: AtomicBool = AtomicBool::new(false);
/// CPUs that the process may use.
static CPUS: AtomicU32 = AtomicU32::new(u32::MAX);
/// Threads that were created since the helper last counted them, and those that there were then.
static THREADS: AtomicU32 = AtomicU32::new(1);
/// Whether there is a helper.
static HELPED: AtomicBool = AtomicBool::new(false);

/// Whether this is possible on this architecture.
const OFFERED: bool = cfg!(target_arch = "x86_64");

/// Reads the variable. Called while the process has one thread.
pub(crate) fn begin() {
    let text = plan::variable(spin::VARIABLE).filter(|_| OFFERED && imports::is_home() && unwinder::find());
    let Some(told) = text.and_then(spin::read) else { return };
    let mut cpus = Cpus::new();
    let known = plan::current().map(|plan| plan.mask().len());
    let own = cpus.read_this_thread().then(|| cpus.len());
    let Some(count) = known.or(own).and_then(|count| u32::try_from(count).ok()) else { return };
    CPUS.store(count, Relaxed);
    patch::note_code();
    if told {
        report::at_exit();
    }
    // SAFETY: the handler lives as long as the process, the library being `nodelete`, and only
    // stores to static variables.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    ON.store(true, Release);
}

/// Records that a thread was created. Starts the helper if there are more threads than CPUs now.
pub(crate) fn note_birth() {
    if !ON.load(Relaxed) {
        return;
    }
    let threads = THREADS.fetch_add(1, Relaxed).saturating_add(1);
    if threads > CPUS.load(Relaxed) && !HELPED.swap(true, AcqRel) && !helper::start() {
        ON.store(false, Relaxed);
    }
}

/// Ends everything after a fault of the shim. Loops that go through a trampoline no longer yield.
pub(crate) fn stand_down() {
    ON.store(false, Relaxed);
    patch::set_yielding(false);
}

/// Runs in every forked child, on its only thread: it has no helper, and its loops do not yield.
extern "C" fn forked() {
    patch::set_yielding(false);
    THREADS.store(1, Relaxed);
    HELPED.store(false, Relaxed);
}

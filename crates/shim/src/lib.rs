//! `libtrimtab_shim.so`: the guest in other people's programs.
//!
//! The launcher decides where threads go, puts the plan into the environment ([`trimtab_core::handoff`]), names this
//! library in `LD_PRELOAD` and becomes the program. The library applies the plan from inside: threads are born on
//! their slots, and questions about the number of CPUs are answered from the plan. This file is the list of what it
//! exports; there is nothing else to see from outside.
//!
//! A guest does not hurt its host:
//!
//! - It discovers nothing and decides nothing. Without a plan, or with one it cannot read, every call passes through.
//! - It never aborts and never prints, and leaves `errno` alone. After a fault of its own it stands down: everything
//!   passes through from then on.
//! - What the program set itself stays: an affinity in a thread attribute, a mask a thread gave itself.
//! - It holds no lock while it calls anybody, keeps no descriptor, starts no thread, and keeps its state in static
//!   storage. The one allocation made on its behalf is the C library's, for the CPU set inside a thread attribute.
//!
//! The exports are `C-unwind`: a host that cancels its threads asynchronously may unwind through them, and a plain `C`
//! function would turn that into an abort.
//!
//! What it cannot reach: static programs; threads that the C library creates by internal calls (C11 `thrd_create`,
//! `SIGEV_THREAD`); libraries opened with `RTLD_DEEPBIND` or `dlmopen`; programs that change identity (the loader
//! ignores `LD_PRELOAD` there). Those threads live inside the mask, or inherit their creator's slot.
//!
//! The crate is also an rlib so that Cargo builds the library before the tests that load it. Do not link it into a
//! program: it would export `pthread_create` there.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code)]
#![warn(missing_docs)]

mod attr;
mod birth;
mod count;
mod cpus;
mod fork;
mod openmp;
mod plan;
mod real;
mod slots;

use libc::{c_int, c_long, c_void, pthread_attr_t, pthread_t};

/// Creates a thread; in the planned process, on the next free slot.
///
/// # Safety
/// As `pthread_create(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    routine: *const c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of pthread_create, which is what `create` asks for.
    unsafe { birth::create(thread, attr, routine, argument) }
}

/// A system limit or option; the number of CPUs from the plan.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn sysconf(name: c_int) -> c_long {
    let planned = match name {
        libc::_SC_NPROCESSORS_ONLN => count::usable(),
        libc::_SC_NPROCESSORS_CONF => count::numbered(),
        _ => None,
    };
    planned.map_or_else(|| real::sysconf(name), c_long::from)
}

/// The number of CPUs that can be used: the plan's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn get_nprocs() -> c_int {
    count::usable().unwrap_or_else(real::get_nprocs)
}

/// The number of CPUs there may be: enough to cover every CPU number of the plan.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn get_nprocs_conf() -> c_int {
    count::numbered().unwrap_or_else(real::get_nprocs_conf)
}

/// Runs when the library is loaded: before `main`, but after the constructors of the libraries the program links.
///
/// Reads the plan here, while there is one thread and the environment is as the launcher left it; a program may later
/// change its environment, or overwrite it to change its title. Every export also copes with being called before.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
#[cfg_attr(test, expect(dead_code, reason = "a test binary is not a guest"))]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    real::resolve();
    if let Some(plan) = plan::current() {
        // The standard library in here is our own copy, so this silences nobody else.
        std::panic::set_hook(Box::new(|_| {}));
        fork::watch(plan);
    }
}

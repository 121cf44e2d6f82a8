//! `libtrimtab_shim.so`: the preload library that applies a plan inside other people's programs.
//!
//! The launcher chooses the CPUs of threads, puts the plan into the environment
//! ([`trimtab_core::handoff`]), names this library in `LD_PRELOAD` and becomes the program. The
//! library applies the plan from inside. Threads are created on their slots. Threads of nested
//! teams are moved to their places. Programs that pinned threads start get the whole mask. Calls
//! for the number of CPUs return the number of the plan. Programs that cannot load the library are
//! started without it (`leave`). For `trimtab profile` and reports the library counts barriers
//! (`meter`). Its exports are here, in `gomp::calls`, `gomp::barriers`, `kmpc::calls`, `mpi`,
//! `team`, `waits` and `programs`; a test has the list. The crate `trimtab-shim-blas` makes a
//! second library of the same code, which exports functions of BLAS as well (`blas`).
//!
//! The shim does not harm the program that loads it:
//!
//! - It examines no machine, and decides only by the plan's own rules. Without a plan, or with a
//!   plan that it cannot read, every call passes through.
//! - It never aborts. It prints nothing except a report that the user asked for. It leaves `errno`
//!   alone. After an internal fault it disables itself: every later call passes through.
//! - It keeps the program's own settings: an affinity in a thread attribute, and a mask that a
//!   thread set for itself outside of parallel regions. A thread that this library bound to its
//!   slot gets the CPUs of the plan when it counts CPUs, as the other threads do (`narrowed`).
//! - It holds no lock while it calls foreign code and keeps no descriptor. Its state is in static
//!   storage. It allocates only for nested teams and for counting, in ordinary code of the thread
//!   that opens a team.
//! - It starts no thread, and changes no code of the program, unless the user asked for that
//!   (`spin`).
//! - It needs no symbol that musl or an older glibc lacks (`imports`, `unwinder`). Loaded by
//!   another C library than glibc, it has no plan.
//!
//! The exports are `C-unwind`: a host that cancels its threads asynchronously may unwind through
//! them, and a plain `C` function would turn that into an abort.
//!
//! The library does not reach: static programs; programs of another C library, processor or word
//! size; threads that the C library creates by internal calls (C11 `thrd_create`, `SIGEV_THREAD`);
//! libraries opened with `RTLD_DEEPBIND` or `dlmopen`; programs that change identity (the loader
//! ignores `LD_PRELOAD` there). Such threads run inside the mask, or inherit their creator's slot.
//!
//! The crate is also an rlib so that Cargo builds the library before the tests that load it. Do not
//! link it into a program: it would export `pthread_create` there.
//!
//! # Example
//!
//! The variables with which a launcher starts a program of three threads on three CPUs. The
//! launcher sets the mask, and becomes the program:
//!
//! ```
//! use trimtab_core::handoff::{Handoff, Pin, VARIABLE};
//!
//! let slots = ["0", "1", "2"].map(|slot| slot.parse().expect("a CPU list")).to_vec();
//! let plan = Handoff { pid: 4711, mask: "0-2".parse()?, slots, pin: Pin::Born, threads: None };
//! assert_eq!(VARIABLE, "TRIMTAB_PLAN");
//! assert_eq!(plan.to_string(), "1 pid=4711 mask=0-2 slots=0/1/2 pin=born");
//! // Beside it: LD_PRELOAD=/usr/lib/trimtab/libtrimtab_shim.so
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code)]
#![warn(missing_docs)]

mod attr;
mod birth;
#[doc(hidden)]
#[cfg_attr(test, allow(dead_code))]
pub mod blas;
#[cfg_attr(test, allow(dead_code))]
mod budget;
mod carry;
mod count;
mod cpus;
#[cfg_attr(test, allow(dead_code))]
mod ending;
mod errno;
#[cfg_attr(test, allow(dead_code))]
mod failure;
mod fork;
#[cfg_attr(test, allow(dead_code))]
mod hold;
mod holders;
mod imports;
mod initial;
mod leave;
mod linked;
#[cfg_attr(test, allow(dead_code))]
mod narrowed;
mod objects;
mod plan;
mod runtimes;
#[cfg_attr(test, allow(dead_code))]
mod shared_page;
mod slots;
#[cfg_attr(test, allow(dead_code))]
mod spin;
mod ticks;
mod unwinder;

// Modules behind exports. A test binary has no exports.
#[cfg_attr(test, allow(dead_code))]
mod gomp;
#[cfg_attr(test, allow(dead_code))]
mod kmpc;
#[cfg_attr(test, allow(dead_code))]
mod meter;
#[cfg_attr(test, allow(dead_code))]
mod mpi;
#[cfg_attr(test, allow(dead_code))]
mod nest;
#[cfg_attr(test, allow(dead_code))]
mod omp;
#[cfg_attr(test, allow(dead_code))]
mod ompt;
#[cfg_attr(test, allow(dead_code))]
mod programs;
#[cfg_attr(test, allow(dead_code))]
mod real;
#[cfg_attr(test, allow(dead_code))]
mod standard_error;
#[cfg_attr(test, allow(dead_code))]
mod team;
#[cfg_attr(test, allow(dead_code))]
mod waits;
#[cfg_attr(test, allow(dead_code))]
mod wide;

use crate::plan::AppliedPlan;
use libc::{c_char, c_int, c_long, c_uint, c_void, cpu_set_t, pid_t, pthread_attr_t, pthread_t, size_t};
use std::ffi::CStr;

/// Creates a thread. In the planned process the thread gets the next free slot.
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

/// Returns a system limit or option. CPU counts are at most the number that the plan gives.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn sysconf(name: c_int) -> c_long {
    let machine = || real::sysconf(name);
    match name {
        libc::_SC_NPROCESSORS_ONLN => count::online(machine),
        libc::_SC_NPROCESSORS_CONF => count::configured(machine),
        _ => machine(),
    }
}

/// Returns the number of usable CPUs, the same as [`sysconf`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn get_nprocs() -> c_int {
    count::online(|| real::get_nprocs().into()) as c_int
}

/// Returns the number of configured CPUs: enough to cover every CPU number of the plan.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn get_nprocs_conf() -> c_int {
    count::configured(|| real::get_nprocs_conf().into()) as c_int
}

/// Reads a thread's mask. For the calling thread this is its own mask, not the place of a region
/// that has ended, nor its slot.
///
/// # Safety
/// As `sched_getaffinity(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sched_getaffinity(
    process: pid_t,
    bytes: size_t,
    mask: *mut cpu_set_t,
) -> c_int {
    nest::relax();
    // SAFETY: the caller's contract.
    let result = unsafe { real::sched_getaffinity(process, bytes, mask) };
    if result == 0 {
        // SAFETY: the call has filled the mask.
        unsafe { narrowed::widen(process, bytes, mask) };
    }
    result
}

/// Reads a thread's mask. For the calling thread this is its own mask, not the place of a region
/// that has ended, nor its slot.
///
/// # Safety
/// As `pthread_getaffinity_np(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_getaffinity_np(
    thread: pthread_t,
    bytes: size_t,
    mask: *mut cpu_set_t,
) -> c_int {
    nest::relax();
    // SAFETY: the caller's contract.
    let result = unsafe { real::pthread_getaffinity_np(thread, bytes, mask) };
    // SAFETY: no preconditions.
    if result == 0 && thread == unsafe { libc::pthread_self() } {
        // SAFETY: the call has filled the mask.
        unsafe { narrowed::widen(0, bytes, mask) };
    }
    result
}

/// Sets a thread's mask. From then on the mask is the program's and no longer this library's.
///
/// # Safety
/// As `sched_setaffinity(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sched_setaffinity(
    process: pid_t,
    bytes: size_t,
    mask: *const cpu_set_t,
) -> c_int {
    nest::relax();
    // SAFETY: the caller's contract.
    let result = unsafe { real::sched_setaffinity(process, bytes, mask) };
    if result == 0 {
        narrowed::note_set_task(process);
    }
    result
}

/// Sets a thread's mask. From then on the mask is the program's and no longer this library's.
///
/// # Safety
/// As `pthread_setaffinity_np(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_setaffinity_np(
    thread: pthread_t,
    bytes: size_t,
    mask: *const cpu_set_t,
) -> c_int {
    nest::relax();
    // SAFETY: the caller's contract.
    let result = unsafe { real::pthread_setaffinity_np(thread, bytes, mask) };
    if result == 0 {
        narrowed::note_set_thread(thread);
    }
    result
}

/// Closes a library. Another library may be loaded at the same address later.
///
/// # Safety
/// As `dlclose(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real::dlclose(handle) };
    plan::guarded(|| {
        gomp::forget();
        kmpc::forget();
        blas::forget();
        mpi::forget();
        Some(())
    });
    result
}

/// Entry point at which an OpenMP runtime of LLVM's family looks for a tool.
///
/// # Safety
/// As the OpenMP standard's function of that name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ompt_start_tool(version: c_uint, name: *const c_char) -> *mut ompt::Tool {
    // SAFETY: the caller's contract.
    unsafe { ompt::start(version, name) }
}

/// Sets the teams of regions opened from now on: `"4,scatter,2,subcompact"`.
///
/// Returns 0 on success. Returns 1 if the text is not understood. Returns 2 if there is no plan to
/// place threads in: the program does not run under `trimtab run`, or is a child of the program
/// that does. On failure the earlier setting stays in force.
///
/// # Safety
/// `text` is null or a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn trimtab_set_nesting_info(text: *const c_char) -> c_int {
    if text.is_null() {
        return BAD_TEXT;
    }
    // SAFETY: a C string, by the caller's contract.
    set_nesting_info(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Does the same as [`trimtab_set_nesting_info`], under the name that programs call.
///
/// # Safety
/// `text` is null or a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn omp_set_nesting_info(text: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { trimtab_set_nesting_info(text) }
}

/// Does the same for Fortran without an interface: compilers pass the length after the arguments.
///
/// # Safety
/// `text` is null or `length` characters.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn omp_set_nesting_info_(text: *const c_char, length: size_t) -> c_int {
    if text.is_null() || length > TEXT_MAX {
        return BAD_TEXT;
    }
    // SAFETY: `length` characters, by the caller's contract.
    set_nesting_info(unsafe { std::slice::from_raw_parts(text.cast(), length) })
}

/// Longest text that is parsed, in bytes. The longest meaningful text is a tenth of it.
const TEXT_MAX: usize = 1 << 10;
const BAD_TEXT: c_int = 1;

fn set_nesting_info(text: &[u8]) -> c_int {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_MAX);
    let Some(text) = text else { return BAD_TEXT };
    match plan::guarded(|| Some(nest::set(text))) {
        Some(Ok(())) => 0,
        Some(Err(nest::NestRefusal::Text)) => BAD_TEXT,
        Some(Err(nest::NestRefusal::NoPlan)) | None => 2,
    }
}

/// Runs when the library is loaded: before `main`, but after the constructors of the libraries that
/// the program links.
///
/// Reads the plan here, while there is one thread and the environment is as the launcher left it; a
/// program may later change its environment, or overwrite it to change its title. Every export also
/// works when it is called before this function.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
#[cfg_attr(test, expect(dead_code, reason = "a test binary is not a guest"))]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    // Keeps the mark in the file, by which `trimtab doctor` recognises the library.
    std::hint::black_box(trimtab_core::part_mark!("libtrimtab_shim.so"));
    real::resolve();
    linked::note_start();
    leave::remember_process();
    meter::begin();
    budget::begin();
    spin::begin();
    // Without an unwinder, the library cannot catch its own faults, and no thread of the host can
    // unwind through its functions.
    if plan::current().is_some_and(AppliedPlan::is_of_this_process) && !unwinder::find() {
        plan::drop_it();
    }
    if let Some(plan) = plan::current() {
        // This library has its own copy of the standard library, so the hook affects only the shim.
        std::panic::set_hook(Box::new(|_| {}));
        if plan.is_of_this_process() {
            hold::keep();
            plan::guarded(|| {
                nest::begin();
                failure::watch();
                Some(())
            });
        }
        fork::watch(plan);
    }
}

//! The real functions behind the interposed ones.
//!
//! They are found by `dlsym(RTLD_NEXT)`, so that another library between the shim and the C library
//! still works. All are resolved once, when this library is loaded: `dlsym` takes the loader's
//! lock, which a thread may not be able to get later (its creator holds it while a library that it
//! opens starts up), and in older C libraries it allocates. In these, `dlsym` may be missing,
//! because it is in a library of its own: the shim then reads the loader's tables itself.

use crate::ompt::Tool;
use crate::{imports, objects, programs};
use libc::{
    c_char, c_int, c_long, c_uint, c_void, cpu_set_t, pid_t, pthread_attr_t, pthread_t, sigset_t, size_t,
};
use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::*};

unsafe extern "C-unwind" {
    // The C library's own second name for `sysconf`, bound by the loader and therefore usable at
    // any time. Returns -1 for a function that the C library does not have.
    safe fn __sysconf(name: c_int) -> c_long;
}

/// Function that is resolved by name, behind this library's own.
pub(crate) struct Symbol {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Returns the address, if the function has been looked up and exists.
    pub(crate) fn found(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.found.load(Relaxed))
    }

    pub(crate) fn look_up(&self) -> Option<NonNull<c_void>> {
        let found = if imports::can_look_up() {
            // SAFETY: the name is a C string, and RTLD_NEXT is meant for a library's own code.
            unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }
        } else {
            objects::next(self.name)
        };
        self.found.store(found, Relaxed);
        NonNull::new(found)
    }
}

static PTHREAD_CREATE: Symbol = Symbol::new(c"pthread_create");
static SYSCONF: Symbol = Symbol::new(c"sysconf");
static GET_NPROCS: Symbol = Symbol::new(c"get_nprocs");
static GET_NPROCS_CONF: Symbol = Symbol::new(c"get_nprocs_conf");
static OMPT_START_TOOL: Symbol = Symbol::new(c"ompt_start_tool");
static SCHED_GETAFFINITY: Symbol = Symbol::new(c"sched_getaffinity");
static PTHREAD_GETAFFINITY: Symbol = Symbol::new(c"pthread_getaffinity_np");
static SCHED_SETAFFINITY: Symbol = Symbol::new(c"sched_setaffinity");
static PTHREAD_SETAFFINITY: Symbol = Symbol::new(c"pthread_setaffinity_np");
static DLCLOSE: Symbol = Symbol::new(c"dlclose");
static PTHREAD_BARRIER_WAIT: Symbol = Symbol::new(c"pthread_barrier_wait");
static SCHED_YIELD: Symbol = Symbol::new(c"sched_yield");
static ATTR_GETSIGMASK: Symbol = Symbol::new(c"pthread_attr_getsigmask_np"); // since glibc 2.32
static ATTR_SETSIGMASK: Symbol = Symbol::new(c"pthread_attr_setsigmask_np");

/// Resolves all functions. The program has not started, so an error left in `dlerror` is ours to
/// clear.
pub(crate) fn resolve() {
    for symbol in [
        &PTHREAD_CREATE,
        &SYSCONF,
        &GET_NPROCS,
        &GET_NPROCS_CONF,
        &OMPT_START_TOOL,
        &SCHED_GETAFFINITY,
        &PTHREAD_GETAFFINITY,
        &SCHED_SETAFFINITY,
        &PTHREAD_SETAFFINITY,
        &DLCLOSE,
        &PTHREAD_BARRIER_WAIT,
        &SCHED_YIELD,
        &ATTR_GETSIGMASK,
        &ATTR_SETSIGMASK,
    ] {
        symbol.look_up();
    }
    programs::resolve();
    imports::resolve();
    // SAFETY: no preconditions.
    unsafe { libc::dlerror() };
}

/// Calls the real `pthread_create`; "no resources" if there is none.
///
/// # Safety
/// As `pthread_create(3)`.
pub(crate) unsafe fn pthread_create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    routine: *const c_void,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C-unwind" fn(
        *mut pthread_t,
        *const pthread_attr_t,
        *const c_void,
        *mut c_void,
    ) -> c_int;
    // A thread created before this library was loaded is created by the constructor of another
    // library: resolve now.
    let Some(create) = PTHREAD_CREATE.found().or_else(|| PTHREAD_CREATE.look_up()) else {
        return libc::EAGAIN;
    };
    // SAFETY: the symbol of that name has that type; a start routine is a pointer like any other to
    // it.
    let create = unsafe { transmute::<NonNull<c_void>, Create>(create) };
    // SAFETY: the caller keeps the contract.
    unsafe { create(thread, attr, routine, argument) }
}

/// Calls the real `sysconf`. Never resolves a symbol: allocators call it while they start.
pub(crate) fn sysconf(name: c_int) -> c_long {
    match SYSCONF.found() {
        Some(sysconf) => {
            // SAFETY: the symbol of that name has that type.
            let sysconf =
                unsafe { transmute::<NonNull<c_void>, extern "C-unwind" fn(c_int) -> c_long>(sysconf) };
            sysconf(name)
        }
        None => __sysconf(name),
    }
}

/// Calls the real `get_nprocs`.
pub(crate) fn get_nprocs() -> c_int {
    number(&GET_NPROCS, libc::_SC_NPROCESSORS_ONLN)
}

/// Calls the real `get_nprocs_conf`.
pub(crate) fn get_nprocs_conf() -> c_int {
    number(&GET_NPROCS_CONF, libc::_SC_NPROCESSORS_CONF)
}

fn number(symbol: &Symbol, name: c_int) -> c_int {
    match symbol.found() {
        Some(number) => {
            // SAFETY: both symbols passed in have that type.
            let number = unsafe { transmute::<NonNull<c_void>, extern "C-unwind" fn() -> c_int>(number) };
            number()
        }
        None => c_int::try_from(__sysconf(name)).unwrap_or(1),
    }
}

/// Calls another tool's `ompt_start_tool`; `None` if there is none or it declines.
///
/// # Safety
/// As `ompt_start_tool`.
pub(crate) unsafe fn ompt_start_tool(version: c_uint, name: *const c_char) -> Option<*mut Tool> {
    type StartTool = unsafe extern "C-unwind" fn(c_uint, *const c_char) -> *mut Tool;
    let start = OMPT_START_TOOL.found()?;
    // SAFETY: the symbol of that name has that type.
    let start = unsafe { transmute::<NonNull<c_void>, StartTool>(start) };
    // SAFETY: the caller keeps the contract.
    let tool = unsafe { start(version, name) };
    (!tool.is_null()).then_some(tool)
}

/// Calls the real `sched_getaffinity`; an error if there is none.
///
/// # Safety
/// As `sched_getaffinity(2)`.
pub(crate) unsafe fn sched_getaffinity(process: pid_t, bytes: size_t, mask: *mut cpu_set_t) -> c_int {
    type Get = unsafe extern "C-unwind" fn(pid_t, size_t, *mut cpu_set_t) -> c_int;
    match SCHED_GETAFFINITY.found().or_else(|| SCHED_GETAFFINITY.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(get) => unsafe { transmute::<NonNull<c_void>, Get>(get)(process, bytes, mask) },
        None => -1,
    }
}

/// Calls the real `pthread_getaffinity_np`; "not implemented" if there is none.
///
/// # Safety
/// As `pthread_getaffinity_np(3)`.
pub(crate) unsafe fn pthread_getaffinity_np(thread: pthread_t, bytes: size_t, mask: *mut cpu_set_t) -> c_int {
    type Get = unsafe extern "C-unwind" fn(pthread_t, size_t, *mut cpu_set_t) -> c_int;
    match PTHREAD_GETAFFINITY.found().or_else(|| PTHREAD_GETAFFINITY.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(get) => unsafe { transmute::<NonNull<c_void>, Get>(get)(thread, bytes, mask) },
        None => libc::ENOSYS,
    }
}

/// Calls the real `sched_setaffinity`; an error if there is none.
///
/// # Safety
/// As `sched_setaffinity(2)`.
pub(crate) unsafe fn sched_setaffinity(process: pid_t, bytes: size_t, mask: *const cpu_set_t) -> c_int {
    type SetAffinity = unsafe extern "C-unwind" fn(pid_t, size_t, *const cpu_set_t) -> c_int;
    match SCHED_SETAFFINITY.found().or_else(|| SCHED_SETAFFINITY.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(set) => unsafe { transmute::<NonNull<c_void>, SetAffinity>(set)(process, bytes, mask) },
        None => -1,
    }
}

/// Calls the real `pthread_setaffinity_np`; "not implemented" if there is none.
///
/// # Safety
/// As `pthread_setaffinity_np(3)`.
pub(crate) unsafe fn pthread_setaffinity_np(
    thread: pthread_t,
    bytes: size_t,
    mask: *const cpu_set_t,
) -> c_int {
    type SetAffinity = unsafe extern "C-unwind" fn(pthread_t, size_t, *const cpu_set_t) -> c_int;
    match PTHREAD_SETAFFINITY.found().or_else(|| PTHREAD_SETAFFINITY.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(set) => unsafe { transmute::<NonNull<c_void>, SetAffinity>(set)(thread, bytes, mask) },
        None => libc::ENOSYS,
    }
}

/// Calls the real `dlclose`; an error if there is none.
///
/// # Safety
/// As `dlclose(3)`.
pub(crate) unsafe fn dlclose(handle: *mut c_void) -> c_int {
    type Close = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
    match DLCLOSE.found().or_else(|| DLCLOSE.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(close) => unsafe { transmute::<NonNull<c_void>, Close>(close)(handle) },
        None => -1,
    }
}

/// Calls the real `pthread_barrier_wait`; "not implemented" if there is none.
///
/// # Safety
/// As `pthread_barrier_wait(3)`.
pub(crate) unsafe fn pthread_barrier_wait(barrier: *mut c_void) -> c_int {
    type BarrierWait = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
    match PTHREAD_BARRIER_WAIT.found().or_else(|| PTHREAD_BARRIER_WAIT.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(wait) => unsafe { transmute::<NonNull<c_void>, BarrierWait>(wait)(barrier) },
        None => libc::ENOSYS,
    }
}

/// Calls the real `sched_yield`.
pub(crate) fn sched_yield() -> c_int {
    match SCHED_YIELD.found() {
        Some(symbol) => {
            // SAFETY: the symbol of that name has that type.
            let symbol = unsafe { transmute::<NonNull<c_void>, extern "C-unwind" fn() -> c_int>(symbol) };
            symbol()
        }
        // Called before the symbols are resolved: does the same as the C library's function, which
        // cannot fail.
        // SAFETY: takes nothing.
        None => unsafe { libc::syscall(libc::SYS_sched_yield) as c_int },
    }
}

type GetSignals = unsafe extern "C" fn(*const pthread_attr_t, *mut sigset_t) -> c_int;
type SetSignals = unsafe extern "C" fn(*mut pthread_attr_t, *const sigset_t) -> c_int;

/// Functions that read and write the signal mask of a thread attribute.
pub(crate) struct AttrSignals {
    /// Returns 0 if there is a mask, which it has then written.
    pub(crate) get: GetSignals,
    pub(crate) set: SetSignals,
}

/// Returns both functions, if the C library has them.
pub(crate) fn attr_signals() -> Option<AttrSignals> {
    let get = ATTR_GETSIGMASK.found().or_else(|| ATTR_GETSIGMASK.look_up())?;
    let set = ATTR_SETSIGMASK.found().or_else(|| ATTR_SETSIGMASK.look_up())?;
    // SAFETY: the symbol of that name has that type.
    let get = unsafe { transmute::<NonNull<c_void>, GetSignals>(get) };
    // SAFETY: as above.
    let set = unsafe { transmute::<NonNull<c_void>, SetSignals>(set) };
    Some(AttrSignals { get, set })
}

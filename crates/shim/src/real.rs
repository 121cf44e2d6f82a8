//! The functions that ours stand in front of.
//!
//! Found by `dlsym(RTLD_NEXT)`, so that another library between us and the C library keeps its say. All are looked up
//! once, when this library is loaded: `dlsym` takes the loader's lock, which a thread may not be able to get later
//! (its creator holds it while a library it opens starts up), and in older C libraries it allocates.

use libc::{c_int, c_long, c_void, pthread_attr_t, pthread_t, sigset_t};
use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::*};

unsafe extern "C-unwind" {
    // The C library's own second name for `sysconf`, bound by the loader and therefore good at any time.
    safe fn __sysconf(name: c_int) -> c_long;
}

/// A function to be looked up by name, behind ours.
struct Symbol {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Where it is, if it has been looked up and is there.
    fn found(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.found.load(Relaxed))
    }

    fn look_up(&self) -> Option<NonNull<c_void>> {
        // SAFETY: the name is a C string, and RTLD_NEXT is meant for a library's own code.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Relaxed);
        NonNull::new(found)
    }
}

static PTHREAD_CREATE: Symbol = Symbol::new(c"pthread_create");
static SYSCONF: Symbol = Symbol::new(c"sysconf");
static GET_NPROCS: Symbol = Symbol::new(c"get_nprocs");
static GET_NPROCS_CONF: Symbol = Symbol::new(c"get_nprocs_conf");
static ATTR_GETSIGMASK: Symbol = Symbol::new(c"pthread_attr_getsigmask_np"); // from glibc 2.32 on
static ATTR_SETSIGMASK: Symbol = Symbol::new(c"pthread_attr_setsigmask_np");

/// Looks all functions up. The program has not started, so an error left in `dlerror` is ours to clear.
pub(crate) fn resolve() {
    for symbol in
        [&PTHREAD_CREATE, &SYSCONF, &GET_NPROCS, &GET_NPROCS_CONF, &ATTR_GETSIGMASK, &ATTR_SETSIGMASK]
    {
        symbol.look_up();
    }
    // SAFETY: no preconditions.
    unsafe { libc::dlerror() };
}

/// The real `pthread_create`; "no resources" where there is none.
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
    // A thread created before this library was loaded is created by the constructor of another: look up now.
    let Some(create) = PTHREAD_CREATE.found().or_else(|| PTHREAD_CREATE.look_up()) else {
        return libc::EAGAIN;
    };
    // SAFETY: the symbol of that name has that type; a start routine is a pointer like any other to it.
    let create = unsafe { transmute::<NonNull<c_void>, Create>(create) };
    // SAFETY: the caller keeps the contract.
    unsafe { create(thread, attr, routine, argument) }
}

/// The real `sysconf`. Never looks anything up: allocators call it while they start.
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

/// The real `get_nprocs`.
pub(crate) fn get_nprocs() -> c_int {
    number(&GET_NPROCS, libc::_SC_NPROCESSORS_ONLN)
}

/// The real `get_nprocs_conf`.
pub(crate) fn get_nprocs_conf() -> c_int {
    number(&GET_NPROCS_CONF, libc::_SC_NPROCESSORS_CONF)
}

fn number(symbol: &Symbol, name: c_int) -> c_int {
    match symbol.found() {
        Some(number) => {
            // SAFETY: both symbols asked for here have that type.
            let number = unsafe { transmute::<NonNull<c_void>, extern "C-unwind" fn() -> c_int>(number) };
            number()
        }
        None => c_int::try_from(__sysconf(name)).unwrap_or(1),
    }
}

type GetSignals = unsafe extern "C" fn(*const pthread_attr_t, *mut sigset_t) -> c_int;
type SetSignals = unsafe extern "C" fn(*mut pthread_attr_t, *const sigset_t) -> c_int;

/// Reading and writing the signal mask of a thread attribute.
pub(crate) struct AttrSignals {
    /// 0 when there is a mask, and it has been written.
    pub(crate) get: GetSignals,
    pub(crate) set: SetSignals,
}

/// The pair, where the C library has it.
pub(crate) fn attr_signals() -> Option<AttrSignals> {
    let get = ATTR_GETSIGMASK.found().or_else(|| ATTR_GETSIGMASK.look_up())?;
    let set = ATTR_SETSIGMASK.found().or_else(|| ATTR_SETSIGMASK.look_up())?;
    // SAFETY: the symbol of that name has that type.
    let get = unsafe { transmute::<NonNull<c_void>, GetSignals>(get) };
    // SAFETY: as above.
    let set = unsafe { transmute::<NonNull<c_void>, SetSignals>(set) };
    Some(AttrSignals { get, set })
}

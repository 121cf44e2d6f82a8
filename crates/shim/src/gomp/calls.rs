//! The calls that open a team.

use super::library::{self, Library, NAMES};
use crate::meter::{self, Region};
use crate::nest::{self, Team};
use libc::{c_long, c_uint, c_void};
use std::cell::Cell;
use std::ptr::null_mut;
use trimtab_core::place::runtimes::Runtime;

/// What a program runs in a team. May unwind: a cancelled thread does.
pub(crate) type Routine = unsafe extern "C-unwind" fn(*mut c_void);

/// What libgomp is handed instead of the program's data. Aligned, so that members fetch no cache line more than they must.
#[repr(C, align(64))]
struct Call {
    /// The first word of the program's data, where `GOMP_parallel_reductions` looks for its own.
    first: *mut c_void,
    routine: Routine,
    data: *mut c_void,
    library: &'static Library,
    team: Team,
    region: Region,
}

impl Call {
    /// Opens the team. `None` where the program's call is passed on as it is: nothing is to be placed, or another edge
    /// sees this runtime's teams.
    ///
    /// # Safety
    /// With `mirrors`, `data` is null or begins with a word.
    unsafe fn open(
        library: &'static Library,
        routine: Routine,
        data: *mut c_void,
        threads: c_uint,
        mirrors: bool,
    ) -> Option<Self> {
        if !(nest::is_active() || meter::is_on()) || !library.is_gnu {
            return None;
        }
        let threads = if threads == 0 { library.threads_most() } else { threads };
        let first = match mirrors && !data.is_null() {
            // SAFETY: what is handed over begins with the word that libgomp itself would read.
            true => unsafe { data.cast::<*mut c_void>().read_unaligned() },
            false => null_mut(),
        };
        let team = nest::open(threads, Runtime::Libgomp);
        Some(Self { first, routine, data, library, team, region: Region::open(Runtime::Libgomp) })
    }
}

/// What libgomp runs on every member: joins the team, and then does what the program wanted.
///
/// Holds nothing that would have to be dropped: `pthread_exit` and cancellation unwind through it.
unsafe extern "C-unwind" fn member(call: *mut c_void) {
    // SAFETY: libgomp hands over what it was given, and joins its members before that is gone.
    let call = unsafe { &*call.cast::<Call>() };
    let number = call.library.thread_number();
    call.team.join(number);
    call.region.join(number);
    // SAFETY: the program's own function with the program's own data.
    unsafe { (call.routine)(call.data) }
    call.region.arrive();
}

/// The position of a name in [`NAMES`], found while compiling.
pub(super) const fn position(name: &str) -> usize {
    let mut at = 0;
    while at < NAMES.len() {
        let (known, name) = (NAMES[at].to_bytes(), name.as_bytes());
        let mut same = known.len() == name.len();
        let mut byte = 0;
        while same && byte < name.len() {
            same = known[byte] == name[byte];
            byte += 1;
        }
        if same {
            return at;
        }
        at += 1;
    }
    panic!("not among the names")
}

/// Whether this is the function that reads the first word of what it hands on.
const fn is_reductions(name: &str) -> bool {
    position(name) == position("GOMP_parallel_reductions")
}

/// Entry points of GCC 4.9 and later: the call returns when the team is over.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        /// Opens a team that runs a function of the program.
        ///
        /// # Safety
        /// As libgomp's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, reason = "libgomp's names")]
        pub(crate) unsafe extern "C-unwind" fn $name(
            routine: Routine,
            data: *mut c_void,
            threads: c_uint,
            $($argument: $type),*
        ) $(-> $result)? {
            type Function = unsafe extern "C-unwind" fn(Routine, *mut c_void, c_uint, $($type),*) $(-> $result)?;
            let real = |library: &Library| {
                let function = library.function(const { position(stringify!($name)) });
                // SAFETY: the address of the function of that name and type, or 0, which is none.
                unsafe { std::mem::transmute::<usize, Option<Function>>(function) }
            };
            let found = library::of(routine);
            let Some((library, real)) = found.and_then(|library| Some((library, real(library)?))) else {
                // No libgomp at all, yet somebody calls it: a team of one.
                // SAFETY: the program's own function with the program's own data.
                unsafe { routine(data) };
                return $(<$result>::from(1u8))?;
            };
            // SAFETY: the caller's contract.
            match unsafe { Call::open(library, routine, data, threads, const { is_reductions(stringify!($name)) }) } {
                // SAFETY: the caller's contract.
                None => unsafe { real(routine, data, threads, $($argument),*) },
                Some(mut call) => {
                    call.team.will_bear(&library.own);
                    // SAFETY: the caller's contract; the call outlives its team, which is joined before this returns.
                    let result = unsafe { real(member, (&raw mut call).cast(), threads, $($argument),*) };
                    call.region.close();
                    call.team.close();
                    result
                }
            }
        }
    )*};
}

calls! {
    GOMP_parallel(flags: c_uint);
    GOMP_parallel_reductions(flags: c_uint) -> c_uint;
    GOMP_parallel_sections(count: c_uint, flags: c_uint);
    GOMP_parallel_loop_static(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_dynamic(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_guided(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_dynamic(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_guided(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_runtime(start: c_long, end: c_long, step: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_runtime(start: c_long, end: c_long, step: c_long, flags: c_uint);
    GOMP_parallel_loop_maybe_nonmonotonic_runtime(start: c_long, end: c_long, step: c_long, flags: c_uint);
}

/// A call between its `_start` and `GOMP_parallel_end`.
struct Started {
    call: Option<Call>,
    library: &'static Library,
    outer: *mut Started,
}

thread_local! {
    /// The innermost call that this thread has started and not ended.
    static STARTED: Cell<*mut Started> = const { Cell::new(null_mut()) };
}

/// Entry points of before GCC 4.9: the caller runs the function as thread 0, between this and `GOMP_parallel_end`.
macro_rules! starts {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Opens a team whose thread 0 goes on by itself.
        ///
        /// # Safety
        /// As libgomp's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, reason = "libgomp's names")]
        pub(crate) unsafe extern "C-unwind" fn $name(
            routine: Routine,
            data: *mut c_void,
            threads: c_uint,
            $($argument: $type),*
        ) {
            type Function = unsafe extern "C-unwind" fn(Routine, *mut c_void, c_uint, $($type),*);
            let Some(library) = library::of(routine) else { return };
            let function = library.function(const { position(stringify!($name)) });
            // SAFETY: the address of the function of that name and type, or 0, which is none.
            let Some(real) = (unsafe { std::mem::transmute::<usize, Option<Function>>(function) }) else { return };
            // SAFETY: the caller's contract.
            let call = unsafe { Call::open(library, routine, data, threads, false) };
            let started = Box::into_raw(Box::new(Started { call, library, outer: STARTED.get() }));
            STARTED.set(started);
            // SAFETY: just made; freed by `GOMP_parallel_end` on this thread, after the team has been joined.
            match unsafe { &mut (*started).call } {
                // SAFETY: the caller's contract.
                None => unsafe { real(routine, data, threads, $($argument),*) },
                Some(call) => {
                    call.team.will_bear(&library.own);
                    // SAFETY: the caller's contract; the call outlives its team.
                    unsafe { real(member, std::ptr::from_mut(call).cast(), threads, $($argument),*) };
                    call.team.join(0);
                    call.region.join(0);
                }
            }
        }
    )*};
}

starts! {
    GOMP_parallel_start();
    GOMP_parallel_sections_start(count: c_uint);
    GOMP_parallel_loop_static_start(start: c_long, end: c_long, step: c_long, chunk: c_long);
    GOMP_parallel_loop_dynamic_start(start: c_long, end: c_long, step: c_long, chunk: c_long);
    GOMP_parallel_loop_guided_start(start: c_long, end: c_long, step: c_long, chunk: c_long);
    GOMP_parallel_loop_runtime_start(start: c_long, end: c_long, step: c_long);
}

/// Ends the team that this thread started last.
///
/// # Safety
/// As libgomp's function of that name.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "libgomp's names")]
pub(crate) unsafe extern "C-unwind" fn GOMP_parallel_end() {
    let started = STARTED.get();
    // SAFETY: null, or made by a `_start` on this thread and not ended yet.
    let Some(record) = (unsafe { started.as_ref() }) else { return };
    let function = record.library.function(const { position("GOMP_parallel_end") });
    type End = unsafe extern "C-unwind" fn();
    // SAFETY: the address of the function of that name, which takes and gives nothing, or 0, which is none.
    let real = unsafe { std::mem::transmute::<usize, Option<End>>(function) };
    if let Some(call) = &record.call {
        call.region.arrive();
    }
    if let Some(real) = real {
        // SAFETY: the caller's contract.
        unsafe { real() };
    }
    if let Some(call) = &record.call {
        call.region.close();
        call.team.close();
    }
    STARTED.set(record.outer);
    // SAFETY: made by a box; the team has been joined, and nobody else knows of it.
    drop(unsafe { Box::from_raw(started) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_while_compiling() {
        assert_eq!(NAMES[position("GOMP_parallel")], c"GOMP_parallel");
        assert_eq!(NAMES[position("GOMP_parallel_end")], c"GOMP_parallel_end");
        assert_eq!(position("GOMP_parallel_loop_runtime_start"), 16);
    }
}

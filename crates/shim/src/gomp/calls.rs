//! Calls that open a team.

use super::Routine;
use super::library::{self, Library, NAMES};
use crate::blas;
use crate::budget;
use crate::meter::{self, Region};
use crate::nest::{self, NestTeam};
use libc::{c_long, c_uint, c_void};
use std::cell::Cell;
use std::ptr::null_mut;
use trimtab_core::place::runtimes::Runtime;

/// Record that libgomp gets instead of the program's data. Aligned, so that members fetch no cache
/// line more than they must.
#[repr(C, align(64))]
struct TeamCall {
    /// The first word of the program's data, where `GOMP_parallel_reductions` expects its own.
    first: *mut c_void,
    routine: Routine,
    data: *mut c_void,
    library: &'static Library,
    team: NestTeam,
    region: Region,
}

impl TeamCall {
    /// Opens the team. Returns `None` if the program's call is passed on as it is: nothing is to be
    /// placed or counted, or another interface reports this runtime's teams.
    ///
    /// # Safety
    /// If `mirrors`, `data` is null or begins with a word.
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
        let region = Region::open(Runtime::Libgomp);
        if region.is_skipped() && !nest::is_active() {
            return None;
        }
        let threads = if threads == 0 { library.queries.threads_most() } else { threads };
        let first = match mirrors && !data.is_null() {
            // SAFETY: the data begins with the word that libgomp itself would read.
            true => unsafe { data.cast::<*mut c_void>().read_unaligned() },
            false => null_mut(),
        };
        let team = nest::open(threads, Runtime::Libgomp);
        Some(Self { first, routine, data, library, team, region })
    }
}

/// Counts a team in the hold's budget. Returns the number of threads for the runtime: the
/// program's, or a smaller one.
fn budgeted(library: &Library, threads: c_uint) -> (budget::Team, c_uint) {
    // A region of BLAS is a part of the call that counts.
    if !budget::is_on() || blas::is_inside() {
        return (budget::Team::uncounted(), threads);
    }
    let team = budget::open(library.wanted(threads));
    (team, team.threads.unwrap_or(threads))
}

/// Function that libgomp runs on every member: joins the team, and then calls the program's
/// function.
///
/// Holds nothing that would have to be dropped: `pthread_exit` and cancellation unwind through it.
unsafe extern "C-unwind" fn member(call: *mut c_void) {
    // SAFETY: libgomp passes on the pointer it was given, and joins its members before that is
    // gone.
    let call = unsafe { &*call.cast::<TeamCall>() };
    let number = call.library.queries.thread_number();
    call.team.join(number);
    call.region.join(number);
    // SAFETY: the program's own function with the program's own data.
    unsafe { (call.routine)(call.data) }
    call.region.arrive();
}

/// Returns the position of a name in [`NAMES`], at compile time.
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

/// Returns whether this is the function that reads the first word of its data.
const fn is_reductions(name: &str) -> bool {
    position(name) == position("GOMP_parallel_reductions")
}

/// Defines entry points of GCC 4.9 and later: the call returns when the team has ended.
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
            type GompFunction = unsafe extern "C-unwind" fn(Routine, *mut c_void, c_uint, $($type),*) $(-> $result)?;
            let real = |library: &Library| {
                let function = library.function(const { position(stringify!($name)) });
                // SAFETY: the address of the function of that name and type, or 0, which is `None`.
                unsafe { std::mem::transmute::<usize, Option<GompFunction>>(function) }
            };
            let found = library::of(routine);
            let Some((library, real)) = found.and_then(|library| Some((library, real(library)?))) else {
                // The program calls libgomp, but none is loaded: a team of one thread. SAFETY: the
                // program's own function with the program's own data.
                unsafe { routine(data) };
                return $(<$result>::from(1u8))?;
            };
            let (counted, threads) = budgeted(library, threads);
            // SAFETY: the caller's contract.
            let result = match unsafe { TeamCall::open(library, routine, data, threads, const { is_reductions(stringify!($name)) }) } {
                // SAFETY: the caller's contract.
                None => unsafe { real(routine, data, threads, $($argument),*) },
                Some(mut call) => {
                    call.team.will_bear(&library.own);
                    // SAFETY: the caller's contract; the call outlives its team, which is joined
                    // before this returns.
                    let result = unsafe { real(member, (&raw mut call).cast(), threads, $($argument),*) };
                    call.region.close();
                    call.team.close();
                    result
                }
            };
            counted.close();
            result
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

/// Call between its `_start` and `GOMP_parallel_end`.
struct Started {
    call: Option<TeamCall>,
    counted: budget::Team,
    library: &'static Library,
    outer: *mut Started,
}

thread_local! {
    /// The innermost call that this thread has started and not ended.
    static STARTED: Cell<*mut Started> = const { Cell::new(null_mut()) };
}

/// Defines entry points from before GCC 4.9: the caller runs the function as thread 0, between this
/// call and `GOMP_parallel_end`.
macro_rules! starts {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Opens a team; the calling thread continues as thread 0.
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
            type GompFunction = unsafe extern "C-unwind" fn(Routine, *mut c_void, c_uint, $($type),*);
            let Some(library) = library::of(routine) else { return };
            let function = library.function(const { position(stringify!($name)) });
            // SAFETY: the address of the function of that name and type, or 0, which is `None`.
            let Some(real) = (unsafe { std::mem::transmute::<usize, Option<GompFunction>>(function) }) else { return };
            let (counted, threads) = budgeted(library, threads);
            // SAFETY: the caller's contract.
            let call = unsafe { TeamCall::open(library, routine, data, threads, false) };
            let started = Box::into_raw(Box::new(Started { call, counted, library, outer: STARTED.get() }));
            STARTED.set(started);
            // SAFETY: just made; freed by `GOMP_parallel_end` on this thread, after the team has
            // been joined.
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
    type ParallelEnd = unsafe extern "C-unwind" fn();
    // SAFETY: the address of the function of that name, which takes and gives nothing, or 0, which
    // is `None`.
    let real = unsafe { std::mem::transmute::<usize, Option<ParallelEnd>>(function) };
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
    record.counted.close();
    STARTED.set(record.outer);
    // SAFETY: made by a box; the team has been joined, and no other code knows of it.
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

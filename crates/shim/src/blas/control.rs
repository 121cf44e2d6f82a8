//! Number of threads of a BLAS library: how it is read and set.

use crate::linked;
use crate::objects;
use crate::omp::Queries;
use libc::c_int;
use std::ffi::CStr;
use std::hint::spin_loop;
use std::mem::transmute;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};

/// Names of OpenBLAS's functions in its builds: its kind of threads, its number, and how to set it.
const OPENBLAS: [[&CStr; 3]; 4] = [
    [c"openblas_get_parallel", c"openblas_get_num_threads", c"openblas_set_num_threads"],
    [c"openblas_get_parallel64_", c"openblas_get_num_threads64_", c"openblas_set_num_threads64_"],
    [c"scipy_openblas_get_parallel", c"scipy_openblas_get_num_threads", c"scipy_openblas_set_num_threads"],
    [
        c"scipy_openblas_get_parallel64_",
        c"scipy_openblas_get_num_threads64_",
        c"scipy_openblas_set_num_threads64_",
    ],
];
/// Answers of OpenBLAS about its kind of threads.
const OF_ITS_OWN: c_int = 1;
const OF_OPENMP: c_int = 2;
/// Names of MKL's functions: its number, and how to set that of the calling thread.
const MKL: [&CStr; 2] = [c"MKL_Get_Max_Threads", c"MKL_Set_Num_Threads_Local"];
/// Names of BLIS's functions: whether each thread has a number of its own, the number, and how to
/// set it. Versions without the first have one number for the process, or, as AMD's build, cannot
/// be told from these.
const BLIS: [&CStr; 3] =
    [c"bli_info_get_enable_tls", c"bli_thread_get_num_threads", c"bli_thread_set_num_threads"];

/// Number of tries to get the right to set a number. Chosen: some microseconds.
const TRIES: u32 = 1000;

type Get = unsafe extern "C" fn() -> c_int;
type Set = unsafe extern "C" fn(c_int);
type SetLocal = unsafe extern "C" fn(c_int) -> c_int;
/// BLIS's numbers have a word; the low half of an answer is the whole number.
type SetWord = unsafe extern "C" fn(isize);

/// Number of threads of one library. Leaked.
pub(super) struct Control {
    /// Address of the function that reads it, which identifies the library.
    reader: usize,
    scope: Scope,
    gone: AtomicBool,
    next: *mut Control,
}

enum Scope {
    Process(ProcessThreads),
    /// OpenBLAS with OpenMP.
    OpenMp(Queries),
    Thread {
        get: Get,
        set: SetLocal,
    },
    /// BLIS from 1.0 on: a number of the thread, and no other one below it.
    OwnThread {
        get: Get,
        set: SetWord,
    },
}

/// Number of a whole process. All words are written by the thread that has `busy`.
struct ProcessThreads {
    get: Get,
    set: Set,
    busy: AtomicBool,
    /// The number of the library or of the program, while another one is set.
    base: AtomicU32,
    /// The number that this library has set; 0 if none.
    ours: AtomicU32,
    /// Calls inside.
    calls: AtomicU32,
}

static CONTROLS: AtomicPtr<Control> = AtomicPtr::new(null_mut());

fn known() -> impl Iterator<Item = &'static Control> {
    // SAFETY: null, or leaked before it was published.
    let follow = |at: *mut Control| unsafe { at.as_ref() };
    std::iter::successors(follow(CONTROLS.load(Acquire)), move |control| follow(control.next))
}

/// Returns how to set the threads of the library that holds a function; null if that is not known.
pub(super) fn of(function: usize) -> *mut Control {
    let found = OPENBLAS.iter().find_map(|names| openblas(function, names));
    let found = found.or_else(|| mkl(function)).or_else(|| blis(function));
    let Some((reader, scope)) = found else { return null_mut() };
    let same = known().find(|control| control.reader == reader && !control.gone.load(Relaxed));
    if let Some(control) = same {
        return std::ptr::from_ref(control).cast_mut();
    }
    let made = Box::leak(Box::new(Control { reader, scope, gone: AtomicBool::new(false), next: null_mut() }));
    let mut head = CONTROLS.load(Acquire);
    loop {
        made.next = head;
        match CONTROLS.compare_exchange_weak(head, made, AcqRel, Acquire) {
            Ok(_) => return made,
            Err(other) => head = other,
        }
    }
}

fn openblas(function: usize, [kind, get, set]: &[&CStr; 3]) -> Option<(usize, Scope)> {
    let [kind, get, set] = [kind, get, set].map(|name| linked::beside(function, name));
    let (kind, reader, set) = (kind?, get?, set?);
    // SAFETY: the function of that name has that type.
    let kind = unsafe { transmute::<usize, Get>(kind)() };
    match kind {
        OF_ITS_OWN => {
            // SAFETY: the functions of these names have these types.
            let (get, set) = unsafe { (transmute::<usize, Get>(reader), transmute::<usize, Set>(set)) };
            let zero = || AtomicU32::new(0);
            let (busy, base, ours, calls) = (AtomicBool::new(false), zero(), zero(), zero());
            Some((reader, Scope::Process(ProcessThreads { get, set, busy, base, ours, calls })))
        }
        OF_OPENMP => {
            let runtime = linked::of(reader, c"omp_get_max_threads")?.function;
            let queries = objects::visit(|object| match object.holds(runtime) {
                true => ControlFlow::Break(Queries::of(object)),
                false => ControlFlow::Continue(()),
            })?;
            queries.are_whole().then_some((reader, Scope::OpenMp(queries)))
        }
        _ => None,
    }
}

fn mkl(function: usize) -> Option<(usize, Scope)> {
    let [get, set] = MKL.map(|name| linked::beside(function, name));
    let (reader, set) = (get?, set?);
    // SAFETY: the functions of these names have these types.
    let (get, set) = unsafe { (transmute::<usize, Get>(reader), transmute::<usize, SetLocal>(set)) };
    Some((reader, Scope::Thread { get, set }))
}

fn blis(function: usize) -> Option<(usize, Scope)> {
    let [own, get, set] = BLIS.map(|name| linked::beside(function, name));
    let (own, reader, set) = (own?, get?, set?);
    // SAFETY: the functions of these names have these types.
    let (own, get) = unsafe { (transmute::<usize, Get>(own), transmute::<usize, Get>(reader)) };
    // SAFETY: the same.
    let set = unsafe { transmute::<usize, SetWord>(set) };
    // SAFETY: takes nothing.
    (unsafe { own() } != 0).then_some((reader, Scope::OwnThread { get, set }))
}

/// Drops unloaded libraries.
pub(super) fn forget() {
    for control in known().filter(|control| !control.gone.load(Relaxed)) {
        let is_there = objects::visit(|object| match object.holds(control.reader) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        if is_there.is_none() {
            control.gone.store(true, Relaxed);
        }
    }
}

/// Drops the calls of the parent's other threads. Called in a forked child, on its only thread.
pub(crate) fn forked() {
    for control in known() {
        if let Scope::Process(process) = &control.scope {
            process.busy.store(false, Relaxed);
            process.calls.store(0, Relaxed);
        }
    }
}

impl Control {
    /// Returns the threads that a call of this thread would use without a budget.
    pub(super) fn threads(&self) -> u32 {
        match &self.scope {
            Scope::Process(process) => process.own_number(process.number()),
            Scope::OpenMp(queries) if queries.inside().is_some() => 1,
            Scope::OpenMp(queries) => queries.threads_most(),
            Scope::Thread { get, .. } | Scope::OwnThread { get, .. } => {
                // SAFETY: takes nothing.
                u32::try_from(unsafe { get() }).unwrap_or(0)
            }
        }
    }

    /// Sets the threads of a call that begins. Returns the value for [`leave`](Self::leave).
    pub(super) fn enter(&self, threads: u32, own: u32) -> u32 {
        match &self.scope {
            Scope::Process(process) => {
                process.calls.fetch_add(1, Relaxed);
                if process.number() != threads {
                    process.exclusively(|| process.put(threads));
                }
                0
            }
            _ if threads >= own => NOTHING_SET,
            Scope::OpenMp(queries) => {
                queries.set_threads(threads);
                own
            }
            Scope::OwnThread { set, .. } => {
                // SAFETY: takes a number.
                unsafe { set(threads as isize) };
                own
            }
            // SAFETY: takes a number.
            Scope::Thread { set, .. } => unsafe { set(threads as c_int) as u32 },
        }
    }

    /// Undoes the setting of a call that ends.
    pub(super) fn leave(&self, entered: u32) {
        match &self.scope {
            Scope::Process(process) => process.leave(),
            _ if entered == NOTHING_SET => {}
            Scope::OpenMp(queries) => queries.set_threads(entered),
            Scope::OwnThread { set, .. } => {
                // SAFETY: takes a number, which the thread had.
                unsafe { set(entered as isize) };
            }
            // SAFETY: takes a number.
            Scope::Thread { set, .. } => {
                // SAFETY: takes a number; 0 is the answer for a thread without a number of its own.
                unsafe { set(entered as c_int) };
            }
        }
    }
}

const NOTHING_SET: u32 = u32::MAX;

impl ProcessThreads {
    fn number(&self) -> u32 {
        // SAFETY: takes nothing.
        u32::try_from(unsafe { (self.get)() }).unwrap_or(0)
    }

    /// Returns the number of the library or of the program. `now` is the present number.
    fn own_number(&self, now: u32) -> u32 {
        if now == self.ours.load(Relaxed) { self.base.load(Relaxed) } else { now }
    }

    /// Sets a number; keeps the one that the library or the program had.
    fn put(&self, threads: u32) {
        let now = self.number();
        let base = self.own_number(now);
        self.base.store(base, Relaxed);
        if threads != now && threads <= base {
            self.ours.store(threads, Relaxed);
            // SAFETY: takes a number, not above that for which the library has threads.
            unsafe { (self.set)(threads as c_int) };
        }
    }

    fn leave(&self) {
        // A forked child begins at 0, in whichever call its parent was.
        let _ = self.calls.fetch_update(Relaxed, Relaxed, |calls| Some(calls.saturating_sub(1)));
        if self.calls.load(Relaxed) != 0 || self.ours.load(Relaxed) == 0 {
            return;
        }
        self.exclusively(|| {
            // A call that has begun since then sets its number after this.
            if self.calls.load(Relaxed) != 0 {
                return;
            }
            if self.number() == self.ours.load(Relaxed) {
                // SAFETY: takes a number, which the library had.
                unsafe { (self.set)(self.base.load(Relaxed) as c_int) };
            }
            self.ours.store(0, Relaxed);
        });
    }

    /// Runs `work` unless another thread keeps the right to it for long: that thread may have been
    /// stopped. Numbers are then as the other thread leaves them.
    fn exclusively(&self, work: impl FnOnce()) {
        for _ in 0..TRIES {
            if !self.busy.swap(true, Acquire) {
                work();
                return self.busy.store(false, Release);
            }
            spin_loop();
        }
    }
}

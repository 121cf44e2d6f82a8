//! MPI's collective calls and waits: counted if a reader of the counts exists, otherwise passed on.
//!
//! Problem: Open MPI and MPICH agree neither on the types of their handles nor on their values, and
//! nothing here may be linked to either. Idea: all arguments of these calls are integers and
//! pointers, which the calling conventions of Linux pass in whole words, so they are passed on as
//! words without being interpreted. The real functions are resolved with the first call: by
//! `RTLD_NEXT`, and if that finds none (a Python module opened without `RTLD_GLOBAL`) among all
//! objects.
//!
//! Collective calls count as barriers; rank 0 counts their intervals. Receiving and waiting for
//! messages counts as waiting. A call that is made within another (most Fortran bindings call the C
//! function) counts once. The modern Fortran module (`mpi_f08`) calls functions of its own, whose
//! names end in `_f08_`, or `_f08ts_` if MPICH passes buffers as descriptors: their arguments are
//! words as well.

use crate::meter::{self, Lead};
use crate::objects;
use libc::{c_int, c_void};
use std::ffi::CStr;
use std::mem::transmute;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::*};
use trimtab_core::place::runtimes::Runtime;

/// Error code "some other error" of both. Returned only to a program that calls MPI without an MPI.
const OTHER_ERROR: c_int = 15;

/// Function of MPI, with its address once it is resolved.
struct MpiSymbol {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl MpiSymbol {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if found.is_null() { self.look_up() } else { found }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name is a C string, and RTLD_NEXT is meant for a library's own code.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let own = Self::look_up as *const c_void as usize;
        let found = if next.is_null() {
            let other =
                objects::visit(|object| match object.defines(self.name).filter(|_| !object.holds(own)) {
                    Some(function) => ControlFlow::Break(function),
                    None => ControlFlow::Continue(()),
                });
            other.map_or(null_mut(), std::ptr::with_exposed_provenance_mut)
        } else {
            next
        };
        self.found.store(found, Relaxed);
        found
    }
}

/// MPI implementation of this process: 0 if not known yet, 1 for Open MPI, 2 for MPICH.
static KIND: AtomicU8 = AtomicU8::new(0);

fn kind() -> Runtime {
    match KIND.load(Relaxed) {
        1 => Runtime::OpenMpi,
        2 => Runtime::Mpich,
        _ => {
            let open = objects::visit(|object| match object.defines(c"ompi_mpi_comm_world") {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            });
            KIND.store(if open.is_some() { 1 } else { 2 }, Relaxed);
            if open.is_some() { Runtime::OpenMpi } else { Runtime::Mpich }
        }
    }
}

fn barrier<T>(work: impl FnOnce() -> T) -> T {
    meter::count_barrier(kind, work, |_, _| Lead::if_first(meter::is_first_rank()))
}

fn wait<T>(work: impl FnOnce() -> T) -> T {
    meter::count_wait(work)
}

macro_rules! calls {
    ($(#$way:ident: $($c:ident [$($fortran:ident)*] $arguments:tt;)*)*) => {
        /// Every function, for [`forget`].
        static ALL: &[&MpiSymbol] = &[$($(&functions::$c, $(&functions::$fortran),*),*),*];

        #[allow(non_upper_case_globals, reason = "the functions' names")]
        mod functions {
            use super::MpiSymbol;
            $($(
                pub(super) static $c: MpiSymbol = MpiSymbol::new(super::name(concat!(stringify!($c), "\0")));
                $(
                    pub(super) static $fortran: MpiSymbol =
                        MpiSymbol::new(super::name(concat!(stringify!($fortran), "\0")));
                )*
            )*)*
        }

        $($(
            calls! { @c $way $c $arguments }
            $( calls! { @fortran $way $fortran $arguments } )*
        )*)*
    };
    (@c $way:ident $c:ident ($($argument:ident)*)) => {
        /// Calls MPI and counts the call.
        ///
        /// # Safety
        /// As MPI's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "MPI's")]
        pub(crate) unsafe extern "C-unwind" fn $c($($argument: usize),*) -> c_int {
            type MpiCall = unsafe extern "C-unwind" fn($(calls!(@word $argument)),*) -> c_int;
            // SAFETY: the function of that name, with words as arguments; or null, which is
            // `None`.
            let real = unsafe { transmute::<*mut c_void, Option<MpiCall>>(functions::$c.address()) };
            let Some(real) = real else { return OTHER_ERROR };
            // SAFETY: the caller's contract.
            $way(|| unsafe { real($($argument),*) })
        }
    };
    (@fortran $way:ident $fortran:ident ($($argument:ident)*)) => {
        /// Does the same for Fortran, with the address for the error code: in the modern module
        /// null if the caller does not want it.
        ///
        /// # Safety
        /// As MPI's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::too_many_arguments, reason = "MPI's")]
        pub(crate) unsafe extern "C-unwind" fn $fortran($($argument: usize,)* error: usize) {
            type MpiCall = unsafe extern "C-unwind" fn($(calls!(@word $argument),)* usize);
            // SAFETY: the function of that name, with pointers as arguments; or null, which is
            // `None`.
            let real = unsafe { transmute::<*mut c_void, Option<MpiCall>>(functions::$fortran.address()) };
            let Some(real) = real else { return };
            // SAFETY: the caller's contract.
            $way(|| unsafe { real($($argument,)* error) });
        }
    };
    (@word $argument:ident) => { usize };
}

/// Returns a name in the form that the loader needs.
const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("ends with zero"),
    }
}

calls! {
    #barrier:
    MPI_Barrier [mpi_barrier_ mpi_barrier_f08_] (a);
    MPI_Bcast [mpi_bcast_ mpi_bcast_f08_ mpi_bcast_f08ts_] (a b c d e);
    MPI_Reduce [mpi_reduce_ mpi_reduce_f08_ mpi_reduce_f08ts_] (a b c d e f g);
    MPI_Allreduce [mpi_allreduce_ mpi_allreduce_f08_ mpi_allreduce_f08ts_] (a b c d e f);
    MPI_Gather [mpi_gather_ mpi_gather_f08_ mpi_gather_f08ts_] (a b c d e f g h);
    MPI_Gatherv [mpi_gatherv_ mpi_gatherv_f08_ mpi_gatherv_f08ts_] (a b c d e f g h i);
    MPI_Scatter [mpi_scatter_ mpi_scatter_f08_ mpi_scatter_f08ts_] (a b c d e f g h);
    MPI_Scatterv [mpi_scatterv_ mpi_scatterv_f08_ mpi_scatterv_f08ts_] (a b c d e f g h i);
    MPI_Allgather [mpi_allgather_ mpi_allgather_f08_ mpi_allgather_f08ts_] (a b c d e f g);
    MPI_Allgatherv [mpi_allgatherv_ mpi_allgatherv_f08_ mpi_allgatherv_f08ts_] (a b c d e f g h);
    MPI_Alltoall [mpi_alltoall_ mpi_alltoall_f08_ mpi_alltoall_f08ts_] (a b c d e f g);
    MPI_Alltoallv [mpi_alltoallv_ mpi_alltoallv_f08_ mpi_alltoallv_f08ts_] (a b c d e f g h i);
    MPI_Reduce_scatter [mpi_reduce_scatter_ mpi_reduce_scatter_f08_ mpi_reduce_scatter_f08ts_] (a b c d e f);
    MPI_Scan [mpi_scan_ mpi_scan_f08_ mpi_scan_f08ts_] (a b c d e f);
    #wait:
    MPI_Recv [mpi_recv_ mpi_recv_f08_ mpi_recv_f08ts_] (a b c d e f g);
    MPI_Sendrecv [mpi_sendrecv_ mpi_sendrecv_f08_ mpi_sendrecv_f08ts_] (a b c d e f g h i j k l);
    MPI_Wait [mpi_wait_ mpi_wait_f08_] (a b);
    MPI_Waitall [mpi_waitall_ mpi_waitall_f08_] (a b c);
    MPI_Waitany [mpi_waitany_ mpi_waitany_f08_] (a b c d);
    MPI_Probe [mpi_probe_ mpi_probe_f08_] (a b c d);
}

/// Drops the addresses of functions, because a library was closed.
pub(crate) fn forget() {
    for function in ALL {
        function.found.store(null_mut(), Relaxed);
    }
    KIND.store(0, Relaxed);
}

//! The collectives as methods of a rank, each blocking and started.
//!
//! **Problem.** Nine collectives in two forms are eighteen methods that differ in a name and in
//! their arguments.
//!
//! **Idea.** One line for each collective gives its name, its arguments, and their form in Python's
//! help. Only the arguments differ; all of them are checked in one place ([`crate::arguments`]),
//! whichever method they came through.

use crate::arguments::CallArguments;
use crate::rank::Rank;
use crate::request::Request;
use pyo3::prelude::*;
use trimtab_team::Kind;

/// An argument as it was passed, or not.
type Passed<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

macro_rules! collectives {
    ($($(#[doc = $words:literal])* $kind:ident: $name:ident, $start:ident ($($signature:tt)*) [$($argument:ident)*] $shown:tt;)*) => { $(
        #[pymethods]
        impl Rank {
            $(#[doc = $words])*
            #[pyo3(signature = ($($signature)*, *, sync = None, dtype = None), text_signature = $shown)]
            #[allow(clippy::too_many_arguments, reason = "as Python's keywords are")]
            fn $name<'py>(
                slf: &Bound<'py, Self>,
                $($argument: Passed<'_, 'py>,)*
                sync: Passed<'_, 'py>,
                dtype: Passed<'_, 'py>,
            ) -> PyResult<Py<PyAny>> {
                Self::go(slf, &CallArguments { $($argument,)* sync, dtype, ..CallArguments::of(Kind::$kind) })
            }

            #[doc = concat!("Starts ", stringify!($name), "(): it goes on while this rank tests it, waits for it or makes other calls.")]
            #[pyo3(signature = ($($signature)*, *, sync = None, dtype = None), text_signature = $shown)]
            #[allow(clippy::too_many_arguments, reason = "as Python's keywords are")]
            fn $start<'py>(
                slf: &Bound<'py, Self>,
                $($argument: Passed<'_, 'py>,)*
                sync: Passed<'_, 'py>,
                dtype: Passed<'_, 'py>,
            ) -> PyResult<Request> {
                Self::start(slf, &CallArguments { $($argument,)* sync, dtype, ..CallArguments::of(Kind::$kind) })
            }
        }
    )* };
}

collectives! {
    /// Copies the root's elements into a on all ranks; returns a.
    Broadcast: broadcast, start_broadcast (a, root = None) [a root]
        "($self, a, root=0, *, sync='mine', dtype=None)";
    /// Combines all ranks' elements at the root, which gets an array like a; others get None.
    Reduce: reduce, start_reduce (a, out = None, op = None, root = None) [a out op root]
        "($self, a, out=None, op='sum', root=0, *, sync='mine', dtype=None)";
    /// Combines all ranks' elements at all ranks. out may be a itself.
    Allreduce: allreduce, start_allreduce (a, out = None, op = None) [a out op]
        "($self, a, out=None, op='sum', *, sync='mine', dtype=None)";
    /// Combines all ranks' elements and splits the result along the first dimension, a part for
    /// each rank.
    ReduceScatter: reduce_scatter, start_reduce_scatter (a, out = None, op = None) [a out op]
        "($self, a, out=None, op='sum', *, sync='mine', dtype=None)";
    /// Stacks all ranks' arrays along a new first dimension at the root; others get None.
    Gather: gather, start_gather (a, out = None, root = None) [a out root]
        "($self, a, out=None, root=0, *, sync='mine', dtype=None)";
    /// Stacks all ranks' arrays along a new first dimension at all ranks.
    Allgather: allgather, start_allgather (a, out = None) [a out]
        "($self, a, out=None, *, sync='mine', dtype=None)";
    /// Copies parts of the root's a into out, in the order of ranks; the others' a is None. Returns
    /// out.
    Scatter: scatter, start_scatter (a, out, root = None) [a out root]
        "($self, a, out, root=0, *, sync='mine', dtype=None)";
    /// Sends part i of a to rank i, and puts the part from rank i into part i of the result.
    Alltoall: alltoall, start_alltoall (a, out = None) [a out]
        "($self, a, out=None, *, sync='mine', dtype=None)";
    /// Combines the elements of ranks 0 to this one.
    Scan: scan, start_scan (a, out = None, op = None) [a out op]
        "($self, a, out=None, op='sum', *, sync='mine', dtype=None)";
}

//! Barrier counts of trimtab's own teams.
//!
//! No function needs to be interposed: a team finds [`trimtab_meter`] by the loader and reports its
//! barriers there, in every program that it is linked into.

use crate::meter::{self, Lead};
use libc::c_int;
use trimtab_core::place::runtimes::Runtime;

/// Takes a barrier: begin and end by the monotonic clock in nanoseconds, and whether the thread
/// counts for all of its team.
type RecordBarrier = extern "C-unwind" fn(u64, u64, c_int);

extern "C-unwind" fn record_barrier(begin: u64, end: u64, first: c_int) {
    meter::record_reported(Runtime::Team, begin, end, Lead::if_first(first != 0));
}

/// Returns the function to which a team reports its barriers; null if nothing is counted.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C-unwind" fn trimtab_meter() -> Option<RecordBarrier> {
    meter::is_on().then_some(record_barrier)
}

//! The calls of trimtab's own teams, counted.
//!
//! They need no function in between: a team asks the loader for [`trimtab_meter`] and tells its meetings there, whatever it is linked into.

use crate::meter::{self, Lead};
use libc::c_int;
use trimtab_core::place::runtimes::Runtime;

/// Takes a meeting: beginning and end by the monotonic clock, and whether the thread counts for all of its team.
type Met = extern "C-unwind" fn(u64, u64, c_int);

extern "C-unwind" fn met(begin: u64, end: u64, first: c_int) {
    meter::told(Runtime::Team, begin, end, Lead::if_first(first != 0));
}

/// Where a team tells its meetings; null where nobody counts.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C-unwind" fn trimtab_meter() -> Option<Met> {
    meter::is_on().then_some(met)
}

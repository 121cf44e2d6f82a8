//! Recognition of libraries with teams that a budget bounds more than others, or not at all.

use crate::objects;
use std::ops::ControlFlow;
use trimtab_core::budget::count_use::{CountUse, count_use};

/// Returns the use that the object at an address makes of the number of threads of its teams.
pub(crate) fn count_use_at(address: usize) -> CountUse {
    objects::visit(|object| match object.holds(address) {
        true => ControlFlow::Break(count_use(object.path())),
        false => ControlFlow::Continue(()),
    })
    .unwrap_or(CountUse::Unknown)
}

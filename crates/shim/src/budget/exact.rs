//! Recognition of code that relies on the number of threads of its teams.

use crate::objects;
use std::ops::ControlFlow;
use trimtab_core::budget::relies_on_count;

/// Returns whether the object that holds an address is a library that fails with smaller teams.
pub(crate) fn is_caller(address: usize) -> bool {
    objects::visit(|object| match object.holds(address) {
        true => ControlFlow::Break(relies_on_count(object.file())),
        false => ControlFlow::Continue(()),
    })
    .unwrap_or(false)
}

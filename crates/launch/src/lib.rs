//! The launch storey of trimtab: what a start of a program needs to be decided, as values.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod family;
mod own_values;

pub use family::Family;
pub use own_values::{OwnValues, SET_BY_US};

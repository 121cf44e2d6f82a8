//! Tests of policies on a machine without noise, against the bounds of arithmetic.

#![allow(clippy::unwrap_used)]

mod bounds;
mod contest;
mod fluid;
mod laws;
mod masks;
mod nodes;
mod penalty;
mod run;
mod script;
mod traps;
mod trials;

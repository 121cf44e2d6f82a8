//! Policies over a machine without noise, against the bounds that arithmetic gives.

#![allow(clippy::unwrap_used)]

mod bounds;
mod fluid;
mod run;

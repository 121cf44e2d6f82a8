//! The atomics of the flags: the processor's, or a model's that tries all orders (`--cfg trimtab_model`).

#[cfg(trimtab_model)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(trimtab_model))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

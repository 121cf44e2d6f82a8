//! Placement: request + machine + what is taken -> plan with reasons.
//!
//! [`plan()`] is the one entry. One file per strategy (`compact`, `spread`, `stride`); `pool` gathers the candidates and
//! their costs, `local` tells cores without memory of their own, `make` joins the steps, `reasons` explains the result;
//! `environment`, `waiting` and `launchers` say what the program's runtimes and launchers are told; `runtimes` and
//! `programs` are tables, `fit` lowers counts. Nothing here reads or changes the machine.

mod compact;
mod environment;
mod error;
mod fit;
mod format;
pub mod launchers;
mod local;
mod make;
mod memory;
pub mod nesting;
mod plan;
mod pool;
mod programs;
mod ranks;
mod reasons;
mod request;
pub mod runtimes;
mod shape;
mod spread;
mod stride;
mod taken;
pub mod waiting;

pub use environment::{Action, Asked, Binder, Variable, effective, environment, fitted_lines};
pub use error::PlaceError;
pub use fit::{Fit, counts, fitted};
pub use format::{Format, format};
pub use make::{plan, state};
pub use memory::{HugePages, MemoryPlan, MemoryPolicy};
pub use plan::{Plan, Reason, Slot};
pub use programs::{Stated, pins_itself, stated};
pub use ranks::{LocalRank, local_rank, part};
pub use request::{
    Amount, AmountError, KindChoice, MemoryNodes, MemoryRequest, Request, Shape, Smt, Strategy, Stride,
};
pub use runtimes::{DefaultCount, OPENMP, THREAD_COUNTS, ThreadCount};
pub use taken::{BUSY_FROM, Binding, State, Taken, pinned_cpus};

#[cfg(test)]
mod tests;

//! Placement: request + machine + what is taken -> plan with reasons.
//!
//! [`plan()`] is the one entry. One file per strategy (`compact`, `spread`, `stride`); `pool` gathers the candidates and
//! their costs, `make` joins the steps, `reasons` explains the result; `environment`, `waiting` and `launchers` say what the
//! program's runtimes and launchers are told. Nothing here reads or changes the machine.

mod compact;
mod environment;
mod error;
mod format;
pub mod launchers;
mod make;
mod memory;
pub mod nesting;
mod plan;
mod pool;
mod ranks;
mod reasons;
mod request;
mod shape;
mod spread;
mod stride;
mod taken;
pub mod waiting;

pub use environment::{Action, Binder, OpenMp, Variable, environment};
pub use error::PlaceError;
pub use format::{Format, format};
pub use make::{plan, state};
pub use memory::{HugePages, MemoryPlan, MemoryPolicy};
pub use plan::{Plan, Reason, Slot};
pub use ranks::{LocalRank, local_rank, part};
pub use request::{
    Amount, AmountError, KindChoice, MemoryNodes, MemoryRequest, Request, Shape, Smt, Strategy, Stride,
};
pub use taken::{BUSY_FROM, Binding, State, Taken, pinned_cpus};

#[cfg(test)]
mod tests;

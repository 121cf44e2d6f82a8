//! Placement: request + machine + occupancy -> plan with reasons.
//!
//! [`plan()`] is the only entry point. Each strategy has a file (`compact`, `spread`, `stride`).
//! `pool` gathers the candidates and their costs, `local` finds cores without local memory, `make`
//! joins the steps, and `reasons` explains the result. `environment`, `waiting` and `launchers`
//! decide the settings for the program's runtimes and launchers; `runtimes` and `programs` are
//! tables; `fit` lowers counts, and `grant` reads what a workload manager granted. Nothing here
//! reads or changes the machine.

mod compact;
mod environment;
mod error;
mod fit;
mod format;
mod grant;
pub mod launchers;
pub mod load_estimate;
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

pub use environment::{Action, Binder, CountRequest, Variable, effective, environment, fitted_lines};
pub use error::PlaceError;
pub use fit::{Fit, counts, fitted};
pub use format::{Format, format};
pub use grant::{Grant, GrantedCores, grant};
pub use load_estimate::{LoadEstimate, LoadEvidence, LoadOrigin, RunnableTask, RunnableTasks, load_estimate};
pub use make::{plan, state};
pub use memory::{HugePages, MemoryPlan, MemoryPolicy};
pub use plan::{Plan, Reason, Slot};
pub use programs::{Stated, pins_itself, stated};
pub use ranks::{LocalRank, local_rank, part};
pub use request::{
    Amount, AmountError, KindChoice, MemoryNodes, MemoryRequest, Request, Shape, Smt, Strategy, Stride,
};
pub use runtimes::{DefaultCount, OPENMP, THREAD_COUNTS, ThreadCount};
pub use taken::{BUSY_FROM, Binding, CpuState, Taken, pinned_cpus};

#[cfg(test)]
mod tests;

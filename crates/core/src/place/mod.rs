//! Placement: request + machine + occupancy -> plan with reasons.
//!
//! [`plan()`] is the only entry point. Each strategy has a file (`compact`, `spread`, `stride`).
//! `pool` gathers the candidates and their costs, `local` finds cores without local memory and
//! their distance to some, `choice` asks the strategies, `make` joins the steps, and `reasons`
//! explains the result; `marks` shows it in pictures of the machine. `environment`, `waiting` and
//! `launchers` decide the settings for the program's runtimes and launchers; `runtimes` and
//! `programs` are tables; `fit` lowers counts, `grant` reads the number of CPUs that a workload
//! manager granted, and `exclusive` the CPUs that one granted to others; `held_memory` has the
//! memory that runs hold, and `deal` gives devices to ranks. Nothing here reads or changes the
//! machine.

mod choice;
mod compact;
pub mod deal;
mod environment;
mod error;
mod exclusive;
mod fit;
mod format;
mod grant;
mod held_memory;
pub mod launchers;
pub mod load_estimate;
mod local;
mod make;
mod marks;
mod memory;
mod memory_size;
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
mod strategy;
mod stride;
mod taken;
mod variable;
pub mod waiting;

pub use deal::DealtDevice;
pub use environment::{Binder, CountRequest, effective, environment, fitted_lines};
pub use error::PlaceError;
pub use exclusive::{ContainerCpus, ExclusiveGrant, Manager, foreign_grants, kubelet_record, vcpus_own};
pub use fit::{Fit, counts, fitted};
pub use format::{Format, format};
pub use grant::{Grant, GrantedCores, TASK_OF_HOLD, grant, task};
pub use held_memory::{MemoryHold, NodeMemory, held_by_others, listed};
pub use load_estimate::{LoadEstimate, LoadEvidence, LoadOrigin, RunnableTask, RunnableTasks, load_estimate};
pub use make::{plan, state};
pub use memory::{HugePages, MemoryNodes, MemoryPlan, MemoryPolicy, MemoryRequest};
pub use memory_size::MemorySize;
pub use plan::{Plan, Reason, Slot};
pub use programs::{Stated, lower_stated, pins_itself, shell_script, stated, stated_in_text, stated_within};
pub use ranks::{LocalRank, local_rank, part, rank_variables};
pub use request::{Amount, AmountError, KindChoice, NearDevice, Request, Shape, Smt};
pub use runtimes::{DefaultCount, OPENMP, THREAD_COUNTS, ThreadCount};
pub use strategy::{Strategy, Stride};
pub use taken::{BUSY_FROM, Binding, CpuState, FULL_BELOW_PERCENT, Taken, pinned_cpus};
pub use variable::{Action, Variable};

#[cfg(test)]
mod tests;

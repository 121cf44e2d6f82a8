//! Placement: request + machine + what is taken -> plan with reasons.

mod memory;

pub use memory::{HugePages, MemoryPlan, MemoryPolicy};

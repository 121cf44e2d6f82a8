//! Teams: ranks on one machine, each a thread of some process, that share memory and work together by collectives.
#![cfg_attr(test, allow(clippy::unwrap_used))]
#![cfg_attr(trimtab_model, allow(dead_code, unused_imports, reason = "a model has no clock and no kernel"))]
#![allow(unsafe_code, reason = "this crate is one of the named edges: memory that others write")]

pub mod area;
pub mod barrier;
pub mod call;
pub mod collectives;
pub mod error;
pub mod flag;
pub mod life;
pub mod rank;
pub mod reduce;
pub mod rounds;
pub mod segment;
pub mod shared;
pub mod station;
#[cfg(not(trimtab_model))]
mod sync;
#[cfg(trimtab_model)]
pub mod sync;
pub mod team;
pub mod wait;

pub use call::{Call, Kind, Sync, When};
pub use error::{Error, Result};
pub use rank::{Calls, Rank, Request};
pub use reduce::{BF16, Element, F16, Kernel, Operator, Type};
pub use shared::Shared;
pub use team::{Options, Team};
pub use wait::Policy;

//! Teams: ranks on one machine, each a thread of some process, that share memory and work together by collectives.
#![allow(unsafe_code, reason = "this crate is one of the named edges: memory that others write")]

pub mod error;
pub mod life;
pub mod reduce;
pub mod segment;

pub use error::{Error, Result};

//! Cores on call: free cores of a shared machine, reserved for a program as a value.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod escapes;
pub mod facts;
pub mod foreign_load;
pub mod holds;
pub mod queue;
pub mod reserve;
pub mod site;
pub mod site_facts;

//! The decision as a function, on machines, programs, quotas and holds other than those of this
//! machine.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

mod cores;
mod drawn;
mod library;
mod ranks;
mod settings;
mod util;

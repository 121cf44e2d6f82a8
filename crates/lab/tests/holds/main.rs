//! Holds for programs that run already, and changes of holds, from outside: real processes, real
//! users, kills at random moments. One test per claim.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[allow(dead_code, unused_imports, unused_macros, reason = "the tests of trimtab use the rest of it")]
#[path = "../../../cli/tests/program/util/mod.rs"]
mod util;

mod cgroup;
mod delegate;
mod grow;
mod hook;
mod kills;
mod ledger;
mod nri;
mod resize;

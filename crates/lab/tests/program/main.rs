//! Tests of the `trimtab-lab` program from outside, beside the `trimtab` that it measures. One test
//! per claim.
//!
//! `trimtab`, `trimtab-discover` and `libtrimtab_shim.so` have to be in the same folder. The first
//! test builds missing ones ([`util::lab`]), but not outdated ones: run `cargo build --workspace`
//! before `cargo test -p trimtab-lab`.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[allow(dead_code, unused_imports, unused_macros, reason = "the tests of trimtab use the rest of it")]
#[path = "../../../cli/tests/program/util/mod.rs"]
mod util;

mod balances;
mod bench;
mod cache_misses;
mod completions;
mod cost;
mod dist;
mod documents;
mod field;
mod figures;
mod hidden;
mod npb;
mod oversub;
mod sim;
mod started;
mod swarm;
mod team;
mod team_kernels;
mod uncore;

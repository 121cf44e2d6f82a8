//! The `trimtab` program on machines with several NUMA nodes: where its programs run, and where their pages really are.
//!
//! Few have such a machine at hand, so `make test-numa` boots some (`testbed/`) and runs these tests in them, those of
//! [`dies`], [`smt`], [`memory_only`] and [`misses`] where the machine is made for them. On a real one, `cargo test` runs what does
//! not change the machine's settings. What a machine is like is read from the kernel's files here ([`shape`]), and not
//! asked of trimtab.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[path = "../program/util/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the harness of the program's other tests, of which these use a part"
)]
mod util;

/// Goes on with what there is; why there is nothing has been said.
macro_rules! given {
    ($what:expr) => {
        match $what {
            Some(what) => what,
            None => return,
        }
    };
}

mod pages;
mod shape;

mod counters;
mod cpusets;
mod dies;
mod follows;
mod found;
mod ledger;
mod masks;
mod memory;
mod memory_only;
mod misses;
mod nested;
mod ranks;
mod smt;
mod vcpus;

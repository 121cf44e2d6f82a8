//! The `trimtab` program on machines with several NUMA nodes: the CPUs of its programs, and the
//! real location of their pages.
//!
//! Such machines are rare, so `make test-numa` boots virtual ones (`testbed/`) and runs these tests
//! in them; the tests of [`dies`], [`smt`], [`memory_only`] and [`misses`] run only on matching
//! machines. On a real one, `cargo test` runs the tests that do not change the machine's settings.
//! The tests read the shape of a machine from the kernel's files ([`shape`]), not from trimtab.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[path = "../program/util/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the harness of the program's other tests, of which these use a part"
)]
mod util;

/// Unwraps a value, or ends the test; the reason for its absence has already been printed.
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
mod enforce;
mod field;
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

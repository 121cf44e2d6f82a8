//! The `trimtab` program from outside: real programs, real users, real faults. One test per claim.
//!
//! `trimtab-lab`, `trimtab-discover` and `libtrimtab_shim.so` must lie beside the `trimtab` under
//! test. The first test builds missing files ([`util::trimtab`]), but does not rebuild old ones:
//! run `cargo build --workspace` before `cargo test -p trimtab`. Tests need no privilege; a test
//! that this machine or user cannot run is skipped with a message and counted.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[allow(dead_code, reason = "the laboratory's tests use the rest of it")]
mod util;

#[allow(dead_code, reason = "its own tests use more of it")]
#[path = "../../../linux/tests/vcpus/guest.rs"]
mod guest;

mod advise;
mod advise_pair;
mod advise_pools;
mod attach;
mod balance;
mod bounds;
mod carries;
mod counters;
mod descriptors;
mod doctor;
mod each;
mod environment;
mod fails;
mod guardian;
mod homes;
mod huge_pages;
mod installed;
mod jobserver;
mod launchers;
mod ledger;
mod masks;
mod meetings;
mod memory;
mod metrics;
mod nested;
mod nests;
mod nproc;
mod outputs;
mod pictures;
mod plans;
mod pools;
mod profile;
mod ps;
mod ranks;
mod recipes;
mod refusals;
mod replay;
mod report;
mod rules;
#[path = "../../../agent/tests/fixtures/recorded_runs.rs"]
mod runs;
mod runtimes;
mod serve;
mod serve_shows;
mod sheets;
mod start;
mod survey;
mod tagging;
mod team_ranks;
mod threads;
mod top;
mod transparent;
mod tune;
mod tune_team;
mod upgrade;
mod users;
mod vms;
mod waiting;
mod waits;
mod words;
mod wrapper;

//! The pure core of trimtab: the machine as data, placement as a function, plans as values with
//! reasons.
//!
//! The core has no I/O, no clock, no environment, no threads, no unsafe code and no unordered map.
//! Time, the environment and the machine are arguments; equal input gives equal output. Other
//! crates read the machine and carry plans out.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod advise;
pub mod balance;
pub mod budget;
pub mod check;
pub mod counter_budget;
pub mod counts;
pub mod drive;
pub mod escapes;
pub mod fingerprint;
pub mod handoff;
pub mod hash;
pub mod ideal_ratio;
pub mod ids;
pub mod index_validation;
pub mod observe;
pub mod penalty;
pub mod place;
pub mod profile;
pub mod queue;
pub mod replay;
pub mod sampling_budget;
pub mod sampling_overhead;
pub mod set;
pub mod setting;
pub mod stats;
pub mod study;
pub mod sync_stats;
pub mod tags;
pub mod telemetry;
pub mod time;
pub mod topology;
pub mod trace;
pub mod tuning;
pub mod words;

//! The pure core of trimtab: the machine as data, placement as a function, plans as values with
//! reasons.
//!
//! The core has no I/O, no clock, no environment, no threads, no unsafe code and no unordered map.
//! Time, the environment and the machine are arguments; equal input gives equal output. Other
//! crates read the machine and carry plans out.
//!
//! # Example
//!
//! ```
//! use trimtab_core::check::check;
//! use trimtab_core::place::{Request, Taken, plan};
//! use trimtab_core::topology::parse_synthetic;
//!
//! // Four cores of a machine with two packages. Another run holds the first two cores.
//! let machine = parse_synthetic("pack:2 core:4")?;
//! let request = Request { amount: "4".parse()?, ..Request::default() };
//! let taken = Taken { held: "0-1".parse()?, ..Taken::nothing(machine.cpus()) };
//!
//! let plan = plan(&machine, &request, &taken)?;
//! assert_eq!(plan.mask.to_string(), "4-7");
//! assert!(check(&machine, &request, &taken, &plan).is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`topology`] defines the machine ([`Machine`](topology::Machine)) and parses descriptions in
//!    one line.
//! 2. [`place::plan()`] chooses cores and memory for a request. [`check`] judges the plan and
//!    shares no code with the planner.
//! 3. [`observe`] computes rates from samples, [`balance`] decides from the rates which threads
//!    move, and [`drive`] is the loop that runs a policy on a host.
//! 4. [`advise`] derives advice from the profile of a run ([`profile`]); [`tuning`] names the next
//!    setting to try.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod advise;
pub mod balance;
pub mod budget;
pub mod check;
pub mod counter_budget;
pub mod counts;
pub mod drive;
pub mod enforce;
pub mod escapes;
pub mod fingerprint;
pub mod handoff;
pub mod hash;
pub mod hold_claim;
pub mod ideal_ratio;
pub mod ids;
pub mod index_validation;
pub mod jobserver;
pub mod observe;
pub mod outcome;
pub mod part;
pub mod penalty;
pub mod place;
pub mod profile;
pub mod queue;
pub mod region_sampling;
pub mod replay;
pub mod resize;
pub mod sampling_budget;
pub mod sampling_overhead;
pub mod set;
pub mod setting;
pub mod spin;
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

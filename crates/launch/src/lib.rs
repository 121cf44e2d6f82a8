//! Launch layer of trimtab: one pure function that decides every detail of starting a program.
//!
//! For programs that start parallel programs: `trimtab run` carries a decided launch out, `plan`
//! shows it, `advise` and `tune` calculate with it. A launch consists of many choices that depend
//! on each other (cores, threads, variables, wait policy, preload library, launchers). This crate
//! represents all of them as one value, [`LaunchPlan`].
//!
//! ```text
//! options, site, rule, tuning, environment --merge--> LaunchRequest --+
//!                                                                     +--decide--> LaunchPlan
//! machine, limits, load, ledger, program, answers --> LaunchFacts ----+
//! ```
//!
//! # Example
//!
//! ```
//! use trimtab_core::topology::parse_synthetic;
//! use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, decide};
//!
//! // Four cores of a machine with two packages, of which another run has the first.
//! let options = Options { cores: Some("4".parse()?), ..Options::default() };
//! let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
//! let mut facts = LaunchFacts::idle(parse_synthetic("pack:2 core:4")?);
//! facts.ledger.held = "0-3".parse()?;
//!
//! let plan = decide(&request, &facts)?;
//! assert_eq!(plan.placement.mask.to_string(), "4-7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! - [`LaunchRequest::merge`] is the only place that merges the sources of a request ([`Sources`],
//!   with the [`Options`] of a command line); each value keeps its [`ValueOrigin`].
//! - [`LaunchFacts`] are gathered by the caller; nothing here reads a clock, a file or a variable.
//! - [`decide()`] returns a [`LaunchPlan`], with all messages about it as reasons, or a
//!   [`Refusal`].
//!
//! Some facts depend on the decision itself. Three rules keep the decision a pure function of its
//! arguments:
//!
//! 1. *Cores.* The holds of others are known for certain only under the ledger's lock. While the
//!    caller has that lock, it calls [`place()`], the first half of the decision, takes the CPUs,
//!    and stores the state it saw in the facts. [`decide()`] then arrives at the same cores, since
//!    equal facts give equal plans.
//! 2. *Answers.* The effect of `sched_yield` and the file name of a restricted topology can be
//!    found out only on the CPUs of the plan, and cost milliseconds. A plan lists them as
//!    [`Questions`]; the caller answers, and decides again.
//! 3. *Tunings.* The thread settings of a saved tuning are valid only on the number of cores on
//!    which they were measured. The request carries both values ([`request::OnCores`]), so that no
//!    applied value has to be undone.
//!
//! Properties: Equal requests and facts give equal plans. A variable of the user is never replaced,
//! except where a count exceeds the CPUs ([`trimtab_core::place::Fit`]) or requested nested teams
//! need it. A plan without a program is the plan for a program about which nothing is known.
//!
//! # Limits
//!
//! The crate starts nothing, reserves nothing and reads nothing: `trimtab-linux` gathers most of
//! the facts and carries plans out. `trimtab_core::place` decides which cores are best.
//!
//! Dependencies: the crate uses `trimtab-core` alone; no clock, file, environment variable or
//! thread.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod asked_teams;
pub mod budget;
mod decide;
mod demand;
mod devices;
pub mod facts;
mod family;
pub mod jobserver;
mod launchers;
mod nesting;
pub mod options;
mod origin;
mod own_values;
mod place;
pub mod plan;
pub mod preempt;
pub mod preload;
mod ranks;
pub mod reason;
mod refusal;
pub mod request;
pub mod rules;
mod spin;
mod tell;
pub mod variables;

pub use asked_teams::{AskedTeams, NEST_VARIABLES};
pub use decide::{TUNABLES, TUNABLES_SINCE, decide};
pub use demand::demand;
pub use facts::LaunchFacts;
pub use family::Family;
pub use nesting::Nesting;
pub use options::{EnvMode, Options, PinMode, Thp};
pub use origin::ValueOrigin;
pub use own_values::{OwnValues, SET_BY_US};
pub use place::{Placed, cores, place};
pub use plan::{LaunchPlan, Questions};
pub use preload::Preload;
pub use ranks::Role;
pub use reason::{LaunchReason, Level};
pub use refusal::Refusal;
pub use request::{LaunchRequest, Sources, Tuning};
pub use tell::headline;
pub use variables::{Changes, Environment};

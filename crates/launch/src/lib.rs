//! The launch storey of trimtab: one pure function decides what a start of a program becomes.
//!
//! Problem: a launch is made of many choices that depend on each other (cores, threads, variables,
//! wait policy, preload library, launchers), and several commands need them: `run` carries them
//! out, `plan` shows them, `advise` and `tune` reckon with them. Idea: a launch is a value.
//!
//! ```text
//! options, site, rule, tuning, environment --merge--> LaunchRequest --+
//!                                                                     +--decide--> LaunchPlan
//! machine, limits, load, ledger, program, answers --> LaunchFacts ----+
//! ```
//!
//! - [`LaunchRequest::merge`] is the one place where what was asked for is merged; each value keeps
//!   its [`Origin`].
//! - [`LaunchFacts`] are gathered by the caller; nothing here reads a clock, a file or a variable.
//! - [`decide()`] returns a [`LaunchPlan`], whose reasons are all that is told about it, or a
//!   [`Refusal`].
//!
//! Some facts depend on the decision. Three rules keep it a function all the same:
//!
//! 1. *Cores.* What others hold is true only under the ledger's lock. The caller asks [`place()`],
//!    the first half of the decision, while it has that lock, takes the CPUs, and leaves in the
//!    facts what it saw. [`decide()`] comes to the same cores then, since equal facts give equal
//!    plans.
//! 2. *Answers.* What `sched_yield` does and what a picture of the CPUs is called can be found out
//!    only on the CPUs of the plan, and cost milliseconds. A plan lists them as [`Questions`]; the
//!    caller answers, and decides again.
//! 3. *Tunings.* What a kept tuning says of threads holds on as many cores as it was measured on.
//!    Both values travel in the request ([`request::OnCores`]), so that nothing applied has to be
//!    undone.
//!
//! Properties: equal requests and facts give equal plans; a variable of the user's is never
//! replaced but where a count exceeds the CPUs ([`trimtab_core::place::Fit`]) or nested teams that
//! were asked for need it; a plan without a program is one for a program of which nothing is known.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod decide;
pub mod facts;
mod family;
mod launchers;
mod nesting;
pub mod options;
mod own_values;
mod place;
pub mod plan;
pub mod preload;
mod ranks;
pub mod reason;
mod refusal;
pub mod request;
pub mod rules;
mod tell;
pub mod variables;

pub use decide::{TUNABLES, TUNABLES_SINCE, decide};
pub use facts::LaunchFacts;
pub use family::Family;
pub use nesting::{NEST_VARIABLES, Nesting};
pub use options::{EnvMode, Options, PinMode, Thp};
pub use own_values::{OwnValues, SET_BY_US};
pub use place::{Placed, cores, place};
pub use plan::{LaunchPlan, Questions};
pub use preload::Preload;
pub use ranks::Role;
pub use reason::{LaunchReason, Level};
pub use refusal::Refusal;
pub use request::{LaunchRequest, Origin, Sources, Tuning};
pub use tell::headline;
pub use variables::{Changes, Environment};

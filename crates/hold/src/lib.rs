//! Cores on call: free cores of a shared machine, reserved for a program as a value.
//!
//! For programs that start parallel work themselves: servers, queues, test runners. The decision
//! and the ledger are those of `trimtab run`: the cores exclude all other runs, and the kernel
//! gives them back when the process ends in any way.
//!
//! # Example
//!
//! ```
//! use trimtab_front::process_env::World;
//! use trimtab_hold::cores::{CoresRequest, list};
//!
//! let world = World::current();
//! // Nothing is reserved by a plan.
//! let plan = CoresRequest::cores("1")?.plan(&world)?;
//! assert_eq!(plan.threads.value as usize, plan.placement.mask.len());
//! for row in list(&world)?.holds {
//!     println!("CPUs {} are held by {} (PID {})", row.cpus, row.user, row.pid);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`cores`] has the whole of it for a caller: [`cores::CoresRequest`], [`cores::Cores`],
//!    [`cores::list`].
//!    [`mod@ranks`] reserves for a launcher, and decides for each of its ranks.
//! 2. [`mod@reserve`] takes the cores of a launch; [`queue`] is the order among waiting runs.
//! 3. [`facts`] and [`site_facts`] read what the decision needs, [`foreign_load`] looks at other
//!    programs, [`site`] reads the files of the site and the user, [`toml_text`] any such text.
//! 4. [`delegate`] holds cores for a process that runs already, [`mod@resize`] changes a hold while
//!    its programs run, [`grower`] does so for a run that grows, [`mod@release`] ends one;
//!    [`select`] finds it. [`container`] holds cores for containers, before they are started and
//!    until they end.
//! 5. [`mod@held_memory`] is the memory that others hold.
//! 6. [`holds`] and [`escapes`] describe the ledger: holders, and processes outside of their cores.
//!    [`budget_report`] is the budget of a run.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod budget_report;
pub mod container;
pub mod cores;
pub mod delegate;
pub mod escapes;
pub mod facts;
pub mod foreign_load;
pub mod grower;
pub mod held_memory;
pub mod holds;
pub mod masks;
pub mod membership;
pub mod outsiders;
pub mod queue;
pub mod ranks;
pub mod release;
pub mod reserve;
pub mod resize;
mod room;
pub mod select;
pub mod site;
pub mod site_facts;
pub mod toml_text;
mod withheld;

//! Teams: ranks on one machine, each a thread of some process, that share memory and work together
//! by collectives.
//!
//! **Unit.** A [`Team`] is a segment of memory without a name; each thread that joins it is a
//! [`Rank`]. Ranks may be threads of one process, processes of one thread each, or any mixture.
//!
//! **Problem.** What passes between processes of one machine still goes through TCP, or through
//! hand-written shared memory that leaks, hangs when a worker dies, and collapses when there are
//! more workers than processors.
//!
//! **Idea.** All data move under tickets ([`shared_layout`]), waited for at flags that know who
//! sleeps ([`flag`], [`wait`]); each algorithm is written once and serves blocking and started
//! calls ([`endpoint`]); which algorithm a call uses is a table ([`algorithm_table`]) that can be
//! measured ([`tune`]).
//!
//! **Properties.** The same bits at all ranks, whichever way a call goes. A rank that dies or
//! leaves is an error that names it at every other, in every wait. No names, so nothing is left
//! behind. The library never ends its process, prints nothing, starts no threads.
//!
//! **Source.** Nishtala and Yelick, *Optimizing collective communication on multicores* (HotPar
//! 2009); Blagojević, Hargrove, Iancu and Yelick, *Hybrid PGAS runtime support for multicore nodes*
//! (PGAS 2010).
//!
//! ```
//! use trimtab_team::{Operator, Options, Team};
//!
//! let team = Team::new(Options::new(3))?;
//! std::thread::scope(|scope| {
//!     for number in 0..3 {
//!         let team = team.clone();
//!         scope.spawn(move || -> trimtab_team::Result<()> {
//!             let rank = team.join(Some(number))?;
//!             let mut sums = [f64::from(number), 1.0];
//!             rank.mine().allreduce_in_place(&mut sums, Operator::Sum)?;
//!             assert_eq!(sums, [3.0, 3.0]);
//!             rank.barrier()
//!         });
//!     }
//! });
//! # Ok::<(), trimtab_team::Error>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]
#![cfg_attr(trimtab_model, allow(dead_code, unused_imports, reason = "a model has no clock and no kernel"))]
#![allow(unsafe_code, reason = "this crate is one of the named edges: memory that others write")]

pub mod adaptive_spin;
pub mod algorithm_table;
pub mod barrier;
pub mod cache_groups;
pub mod call;
pub mod cma;
pub mod collectives;
pub mod endpoint;
pub mod error;
pub mod flag;
pub mod in_process;
pub mod liveness;
pub mod membership;
pub mod meter;
pub mod publish;
pub mod rank;
pub mod reduce;
pub mod rounds;
pub mod segment;
pub mod shared;
pub mod shared_layout;
#[cfg(not(trimtab_model))]
mod sync;
#[cfg(trimtab_model)]
pub mod sync;
pub mod team;
pub mod tune;
pub mod wait;

pub use call::{Call, Kind, Sync, When};
pub use error::{Error, Result};
pub use publish::View;
pub use rank::{Calls, Rank, Request};
pub use reduce::{BF16, Element, F16, Kernel, Operator, Type};
pub use shared::Shared;
pub use team::{Options, Tables, Team};
pub use wait::Policy;

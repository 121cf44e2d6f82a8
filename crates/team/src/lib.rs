//! Teams of ranks on one machine: threads or processes that share memory and work together by
//! collectives, such as a barrier or an allreduce.
//!
//! For programs whose workers exchange data on one machine: solvers, data-parallel training,
//! servers of several processes. `team-c` offers the same to C and C++, `python/` to Python, and
//! `trimtab tune-team` tunes teams beforehand.
//!
//! **Unit.** A [`Team`] is a segment of memory without a name. Each thread that joins it is a
//! [`Rank`]. Ranks may be threads of one process, processes of one thread each, or any mixture.
//!
//! **Problem.** Data between processes of one machine still goes through TCP, or through
//! hand-written shared memory that leaks, hangs when a worker dies, and collapses when there are
//! more workers than CPUs.
//!
//! **Idea.** Each transfer of data has a ticket: a number that all ranks count in the same way
//! ([`shared_layout`]). A rank waits until a flag shows the ticket ([`wait`]); each flag counts the
//! ranks that sleep on it ([`flag`]). Each algorithm is written once and serves both blocking and
//! started calls ([`endpoint`]). A table, which can be tuned by measurement ([`mod@tune`]),
//! determines the algorithm of a call ([`algorithm_table`]).
//!
//! **Properties.** The results of a call are equal on all ranks to the last bit; this holds for
//! every algorithm. When a rank dies or leaves, every wait of every other rank ends with an error
//! that names that rank. Shared memory has no name, so that none is left when the last process has
//! ended. The library never ends its process, starts no threads, and prints nothing unless calls
//! are checked ([`Options::check`]).
//!
//! **Source.** Nishtala and Yelick, *Optimizing collective communication on multicores* (HotPar
//! 2009); Blagojević, Hargrove, Iancu and Yelick, *Hybrid PGAS runtime support for multicore nodes*
//! (PGAS 2010).
//!
//! # Example
//!
//! ```
//! use trimtab_team::{Operator, Options, Result, Team};
//!
//! let team = Team::new(Options::new(3))?;
//! let worker = &|number: u32| -> Result<[f64; 2]> {
//!     let rank = team.join(Some(number))?;
//!     let mut sums = [f64::from(number), 1.0];
//!     rank.mine().allreduce_in_place(&mut sums, Operator::Sum)?;
//!     Ok(sums)
//! };
//! std::thread::scope(|scope| -> Result<()> {
//!     for rank in [0, 1, 2].map(|number| scope.spawn(move || worker(number))) {
//!         assert_eq!(rank.join().expect("no panic")?, [3.0, 3.0]);
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), trimtab_team::Error>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`Options`] and [`Team::new`] make the segment; [`Team::join`] makes a thread a [`Rank`].
//!    Other processes get the team by [`Team::invitation`] and [`Team::inherited`], by
//!    [`Team::host`] and [`Team::meet`], or by [`Team::of_job`].
//! 2. [`Rank::barrier`] and [`Rank::mine`], whose [`Calls`] are the collectives, with the table of
//!    their buffers' lengths. [`Element`] lists the types of data, [`Operator`] the ways to combine
//!    them.
//! 3. [`Rank::alloc`] ([`Shared`] blocks in the segment) and [`Rank::publish`] (a [`View`] that one
//!    rank writes) save copies. [`Rank::start`] starts a collective and returns, so that the rank
//!    can do other work meanwhile.
//! 4. [`Rank::split`] makes parts of a team, [`Rank::shrink`] continues without ranks that were
//!    lost ([`Error`]).
//! 5. [`tune::tune`] measures which algorithms are quickest here; [`Rank::explain`] names those in
//!    use.
//!
//! # Limits
//!
//! A team works on one machine for one user, and its number of ranks is fixed when it is made. It
//! chooses no CPUs for its ranks: the program or `trimtab run` does. All ranks make the same calls
//! in the same order. Linux only.
//!
//! Dependencies: the crate uses `trimtab-core` and the kernel, and no other crate of trimtab.
#![cfg_attr(test, allow(clippy::unwrap_used))]
#![cfg_attr(trimtab_model, allow(dead_code, unused_imports, reason = "a model has no clock and no kernel"))]
#![allow(unsafe_code, reason = "this crate is one of the named edges: memory that others write")]

pub mod adaptive_spin;
pub mod algorithm_table;
pub mod barrier;
pub mod cache_groups;
pub mod call;
pub mod call_log;
pub mod cma;
pub mod collectives;
pub mod cpus;
pub mod endpoint;
pub mod error;
pub mod flag;
pub mod in_process;
pub mod liveness;
pub mod membership;
pub mod meter;
pub mod publish;
mod race_detector;
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
pub mod varied;
pub mod wait;

pub use call::{CollectiveCall, Kind, Sync, When};
pub use error::{Error, Result};
pub use publish::View;
pub use rank::{Calls, PendingCall, Rank};
pub use reduce::{BF16, Element, F16, Kernel, Operator, Type};
pub use shared::Shared;
pub use team::{Options, Tables, Team};
pub use varied::{Block, VariedCall};
pub use wait::Policy;

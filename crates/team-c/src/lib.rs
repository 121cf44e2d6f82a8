//! Teams for C and C++ (`include/trimtab/team.h`): a thin layer over `trimtab-team`, without
//! decisions of its own.
//!
//! **Idea.** Handles are numbers, not addresses. Handles of teams are known to the whole process,
//! those of ranks and their objects to the thread that joined. A handle that was freed, is of
//! another thread, or never was one, is therefore an error and not a crash.
//!
//! **Properties.** Every entry catches panics and returns a code; nothing here ends the process or
//! prints. A rank in whose call something panicked has given its team up and can only leave. The
//! last error of a thread is available as text. Structures contain their size: programs built with
//! earlier headers go on working. A child forked while another thread is in this library finds all
//! data consistent.
//!
//! # Example
//!
//! The calls of a C program that is a team of one rank; `team.h` has them with their C types, and
//! docs/teams-c.md a program in C:
//!
//! ```
//! use std::mem::{MaybeUninit, size_of};
//! use trimtab_team_c::*;
//!
//! let mut options = MaybeUninit::<OptionsOf>::uninit();
//! let (mut team, mut rank) = (0, 0);
//! // SAFETY: all addresses are of variables that live until the calls return.
//! unsafe {
//!     assert_eq!(trimtab_team_options_fill(options.as_mut_ptr(), size_of::<OptionsOf>(), 1), 0);
//!     assert_eq!(trimtab_team_new(options.as_ptr(), &mut team), 0);
//!     assert_eq!(trimtab_team_join(team, -1, &mut rank), 0);
//! }
//! assert_eq!(trimtab_barrier(rank), 0);
//! assert_eq!(trimtab_rank_leave(rank), 0);
//! assert_ne!(trimtab_barrier(rank), 0); // The handle was released.
//! assert_eq!(trimtab_team_free(team), 0);
//! ```
#![allow(unsafe_code, reason = "C's side of the house: addresses that callers promise")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod call;
mod code;
mod handles;
mod locked;
mod rank;
mod sized;
mod team;

pub use call::{CallOf, trimtab_call, trimtab_start, trimtab_test, trimtab_wait};
pub use code::{trimtab_error_text, trimtab_last_error};
pub use rank::*;
pub use team::*;

//! Teams for C and C++ (`include/trimtab/team.h`): a thin layer over `trimtab-team`, without
//! decisions of its own.
//!
//! **Idea.** Handles are numbers, not addresses. A team's handle is valid in the whole process. A
//! handle of a rank or of its objects is valid only in the thread that joined, unless the rank is
//! its process's (`trimtab_team_join_process`). A call with a freed
//! handle, a handle of another thread or an arbitrary number therefore returns an error and does
//! not crash.
//!
//! **Properties.** Every entry catches panics and returns a code; nothing here ends the process or
//! prints. After a panic inside a call, the calling rank has given its team up and can only leave
//! it. The last error of a thread is available as text. Structures contain their size: programs
//! built with earlier headers go on working. A child forked while another thread is in this library
//! finds all data consistent.
//!
//! # Example
//!
//! The calls that a C program makes for a team of one rank. `team.h` declares them with their C
//! types; docs/teams-c.md has a complete program in C:
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
#![allow(unsafe_code, reason = "the C interface: callers guarantee that addresses are valid")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod call;
mod code;
mod handles;
mod locked;
mod mine;
mod process_rank;
mod rank;
mod sized;
mod team;

pub use call::*;
pub use code::{trimtab_error_text, trimtab_last_error};
pub use rank::*;
pub use team::*;

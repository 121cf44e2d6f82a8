//! Teams for C and C++ (`include/trimtab/team.h`): a thin edge over `trimtab-team`, and nothing that decides.
//!
//! **Idea.** Handles are numbers, not addresses. Those of teams are known to the whole process, those of ranks and what belongs to them to the
//! thread that joined: so a handle that was given back, is of another thread, or never was one, is an error and not a crash.
//!
//! **Properties.** Every entry catches what panics and answers a code; nothing here ends the process or prints. A rank in whose call
//! something panicked has given its team up and can only leave. What went wrong last in a thread can be asked for in words. Structures say
//! their size: programs built with earlier headers go on working. A child forked while another thread is in here finds all in order.
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

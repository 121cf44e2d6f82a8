//! Entry points of LLVM's and Intel's OpenMP runtime through which a program opens a team.
//!
//! Problem: programs compiled by Clang, Flang and Intel's compilers open teams by
//! `__kmpc_fork_call`, which takes any number of arguments, and the standard's interface for tools
//! (`ompt`) cannot change the size of a team. Idea: interpose the call. If there is a budget, the
//! team is counted, its number of threads is set by the call that compilers use for a `num_threads`
//! clause (`__kmpc_push_num_threads`), the arguments are copied to the real call, and the end of
//! the team is counted when that returns. Without a budget the call is passed on with its
//! registers, stack and return address unchanged.
//!
//! - A number is pushed before the call that uses it, by the same thread. A region that an `if`
//!   clause makes serial uses up the number too. Numbers that are demanded strictly (OpenMP 6) are
//!   left as they are.
//! - The runtimes call the function themselves for some of their other entry points. These calls
//!   come from the runtime's own code, and are not counted again.
//! - The teams inside a league (`teams`) are counted when they start. The league itself computes
//!   with its initial threads only, and they are not counted.
//! - Programs compiled by GCC call the same runtime by GNU's functions ([`gomp`](crate::gomp)).

mod calls;
mod library;

pub(crate) use library::{forget, inside};

//! Calls of BLAS and LAPACK, each a team in the hold's budget.
//!
//! Problem: OpenBLAS and MKL use as many threads in each call as the machine has CPUs, and BLIS as
//! many as its variables state, whichever thread or process calls: members of an OpenMP team,
//! workers of a pool, workers of a test runner. Idea: interpose the functions that use several
//! threads (`names`). The calling thread opens a team: the budget grants its size, the library is
//! told that number, and gets its own number back after the call (`control`).
//!
//! The functions are exports of `libtrimtab_shim_blas.so`, which is loaded in place of this library
//! if there is a budget. A program asks for them by name, finds out whether it has a BLAS (a weak
//! reference that is null), and which: names in a library that every launch loads would be answers.
//!
//! - One thread of a hold that calls alone gets the library's own number: nothing is set.
//! - OpenBLAS with threads of its own has one number for the process. It is read at the beginning
//!   of each call, so that calls of several threads get the number of the last decision. The
//!   library's own number is restored when the last of the calls ends. A number that the program
//!   sets in between becomes the library's own.
//! - OpenBLAS built with OpenMP uses the number of the calling thread, and one thread in a team.
//! - MKL has a number for each thread. So has BLIS from 1.0 on, which says so by a function.
//! - Regions that the library opens inside such a call are part of it, and are not counted again.
//! - Left alone are BLIS without that function (older versions, AMD's build), libraries that are
//!   linked into the program, libraries without a function that sets the number, and functions that
//!   are not in the list.
//!
//! Without a budget a call costs the search for its library, some nanoseconds.

mod calls;
mod control;
mod library;
mod names;

pub use calls::common;
pub(crate) use calls::is_inside;
pub(crate) use control::forked;
pub(crate) use library::forget;
pub use names::BlasPosition;

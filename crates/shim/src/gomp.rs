//! Entry points of GNU's OpenMP runtime through which a program opens a team.
//!
//! Problem: libgomp has no interface that reports its teams to tools. Idea: interpose the functions
//! that compilers call, and hand libgomp a function of ours that joins the team and then calls the
//! program's function. Fewer than twenty functions run code in a team. Barriers, and the ends of
//! loops that are barriers, are interposed too (`barriers`): if barriers are being counted, they
//! are counted here; otherwise the call is passed on at once. All other functions (tasks, the loops
//! themselves) are not interposed.
//!
//! Several libgomps may be loaded. The call must reach the one that the loader would have chosen:
//! the libgomp that the program started with. If there was none, it is the libgomp that the caller
//! is linked to: the object that holds the function is found first, then the libgomp among those
//! that the object needs. Runtimes of LLVM's family define these names too, and report everything
//! to a tool ([`ompt`](crate::ompt)): their calls pass through.
//!
//! Two special cases were found by experiment. `GOMP_parallel_reductions` reads the first word of
//! the data for the function: our record mirrors it. Programs built before GCC 4.9 call
//! `GOMP_parallel_start`, run the function themselves, and then call `GOMP_parallel_end`: the
//! record of the call lives on the heap between the two.

mod barriers;
mod calls;
mod library;

use libc::c_void;

pub(crate) use library::{forget, inside};

/// Function of the program that runs in a team. It may unwind: a cancelled thread does.
pub(crate) type Routine = unsafe extern "C-unwind" fn(*mut c_void);

//! GNU's OpenMP runtime: the entry points through which a program opens a team.
//!
//! Problem: libgomp tells no tool what it does. Idea: stand in front of the functions that compilers call, and hand
//! libgomp a function of ours that joins the team and then does what the program wanted. Fewer than twenty functions run
//! something in a team. Barriers, and the ends of loops that are barriers, are stood in front of too (`barriers`): where meetings are
//! counted they are, and else the call goes on at once. Everything else (tasks, the loops themselves) needs nothing.
//!
//! Which libgomp? The one that the loader would have chosen: the one that the program started with, and where there was
//! none, the one that the caller is linked to: the object that holds the function is looked up, then the libgomp among
//! those it needs; several may be loaded. Runtimes of LLVM's family define these names too, and
//! tell a tool of everything ([`ompt`](crate::ompt)): their calls pass through.
//!
//! Two traps, both found by trying. `GOMP_parallel_reductions` reads the first word of what is to be handed to the
//! function: ours mirrors it. Programs of before GCC 4.9 call `GOMP_parallel_start`, run the function themselves, and then
//! `GOMP_parallel_end`: the record of the call lives on the heap between the two.

mod barriers;
mod calls;
mod library;

pub(crate) use library::{forget, note_start};

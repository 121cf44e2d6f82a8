//! Programs whose threads wait by spinning on flags in their own code, while they have more threads
//! than CPUs.
//!
//! Problem: a thread that spins keeps its CPU to the end of its slice, some milliseconds, while the
//! thread that would set the flag is ready and waits for that CPU. No system call shows this, and a
//! timer that interrupts threads is both too slow and too expensive.
//!
//! Idea: find the loop by a few samples of instruction addresses, prove from its machine code that
//! it only waits ([`wait_loop`]), and let its backward branch go through a few instructions that
//! yield ([`detour`]). Then the loop behaves as if the program called `sched_yield` in it: no
//! timer, no signal, no further samples.
//!
//! A *wait loop* is a loop whose iterations change nothing: it stores nothing, and each iteration
//! computes the same from the same registers and the memory that it reads. So it ends only when
//! another thread (or a handler of a signal) changes that memory. A loop that counts its
//! iterations, calls a function or takes a lock is none.
//!
//! [`Watch`] decides when to look for such loops, and whether they yield now.
//!
//! Only x86-64 is supported. Other architectures permit no change of a branch while other threads
//! execute it (Arm permits it for few instructions, to which compare-and-branch does not belong).

pub mod decode;
pub mod detour;
pub mod wait_loop;
mod watch;

#[cfg(test)]
mod tests;

pub use watch::{Seen, Step, Watch, tuning};

/// Environment variable that asks the preload library for this.
pub const VARIABLE: &str = "TRIMTAB_SPIN";

/// Words of the variable: without and with a line about the result at the end of the process.
const QUIET: &str = "1 yield";
const TOLD: &str = "1 yield told";

/// Returns the text of the variable.
pub const fn handoff(told: bool) -> &'static str {
    if told { TOLD } else { QUIET }
}

/// Reads the text of the variable: whether a line about the result is wanted; `None` for another
/// text.
pub fn read(text: &str) -> Option<bool> {
    match text {
        QUIET => Some(false),
        TOLD => Some(true),
        _ => None,
    }
}

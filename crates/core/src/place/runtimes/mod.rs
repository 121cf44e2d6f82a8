//! Runtimes: what runs the threads or ranks of a program.

mod thread_counts;

pub use thread_counts::{DefaultCount, OPENMP, THREAD_COUNTS, ThreadCount};

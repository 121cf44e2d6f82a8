//! How fast a thread that computes gets on, as far as memory decides it.
//!
//! The world knows CPUs, the memory model knows caches, nodes and links; this is all they say to each other.

use crate::program::Footprint;
use trimtab_core::ids::{NodeId, Pu};
use trimtab_core::time::{Moment, Span};

/// What a model of memory is told, and what it is asked. Threads are dense numbers, used again after [`Progress::ended`].
pub trait Progress {
    /// A thread of a program is born. Told of all threads, before anything else of them.
    fn born(&mut self, now: Moment, thread: usize, program: usize, footprint: &Footprint);

    /// A thread begins to compute on a PU. Not told of threads whose footprint is quiet (see [`quiet`]), nor of spinning.
    fn on_cpu(&mut self, now: Moment, thread: usize, pu: Pu);

    /// A thread stops computing where it did: it waits, sleeps, or another runs there.
    fn off_cpu(&mut self, now: Moment, thread: usize);

    /// A thread is over. Told of all.
    fn ended(&mut self, now: Moment, thread: usize);

    /// The part of the time that a thread computes and does not stall, in (0, 1].
    fn rate(&self, thread: usize) -> f64;

    /// When rates must be worked out next.
    fn next(&self) -> Option<Moment>;

    /// Works rates out; the threads on a CPU whose rate changed are added to `changed`.
    fn epoch(&mut self, now: Moment, changed: &mut Vec<usize>);

    /// What counters of a thread show now, since it was born.
    fn counts(&self, now: Moment, thread: usize) -> Counts;

    /// Brings a thread's pages to a node; how long the kernel works on it.
    fn fetch(&mut self, now: Moment, thread: usize, to: NodeId) -> Span;
}

/// What counters would show for a thread, since it was added.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Requests that left its core's private caches.
    pub requests: f64,
    /// Nanoseconds in which it waited for at least one of them.
    pub waited_ns: f64,
    /// Lines that came from its own node's memory ...
    pub local: f64,
    /// ... and from others'.
    pub remote: f64,
}

/// Whether memory never slows a thread with this footprint down.
pub fn quiet(footprint: &Footprint) -> bool {
    footprint.misses <= 0.0 && footprint.shared_writes <= 0.0
}

/// No stalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unhindered;

impl Progress for Unhindered {
    fn born(&mut self, _: Moment, _: usize, _: usize, _: &Footprint) {}
    fn on_cpu(&mut self, _: Moment, _: usize, _: Pu) {}
    fn off_cpu(&mut self, _: Moment, _: usize) {}
    fn ended(&mut self, _: Moment, _: usize) {}
    fn rate(&self, _: usize) -> f64 {
        1.0
    }
    fn next(&self) -> Option<Moment> {
        None
    }
    fn epoch(&mut self, _: Moment, _: &mut Vec<usize>) {}
    fn counts(&self, _: Moment, _: usize) -> Counts {
        Counts::default()
    }
    fn fetch(&mut self, _: Moment, _: usize, _: NodeId) -> Span {
        Span::ZERO
    }
}

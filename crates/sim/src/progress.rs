//! Interface to the memory model: the share of the speed of a computing thread that memory
//! determines.
//!
//! The world has CPUs; the memory model has caches, nodes and links. They exchange nothing except
//! through this interface.

use crate::program::Footprint;
use trimtab_core::ids::{NodeId, Pu};
use trimtab_core::time::{Moment, Span};

/// Model of memory, as the world sees it. Threads are dense numbers, which are reused after
/// [`Progress::ended`].
pub trait Progress {
    /// Adds a thread of a program. Called for every thread, before any other call for it.
    fn born(&mut self, now: Moment, thread: usize, program: usize, footprint: &Footprint);

    /// Tells that a thread begins to compute on a PU. Not called for threads with a quiet footprint
    /// (see [`quiet`]), nor for spinning.
    fn on_cpu(&mut self, now: Moment, thread: usize, pu: Pu);

    /// Tells that a thread stops computing where it did: it waits, it sleeps, or another thread
    /// runs there.
    fn off_cpu(&mut self, now: Moment, thread: usize);

    /// Tells that a thread has ended. Called for every thread.
    fn ended(&mut self, now: Moment, thread: usize);

    /// Returns the share of its time on the CPU in which a thread computes and does not stall, in
    /// (0, 1].
    fn rate(&self, thread: usize) -> f64;

    /// Returns the time at which rates must be computed next.
    fn next(&self) -> Option<Moment>;

    /// Computes the rates. Adds to `changed` the threads on a CPU that have another rate now.
    fn epoch(&mut self, now: Moment, changed: &mut Vec<usize>);

    /// Returns the present values of a thread's counters, counted since the thread was created.
    fn counts(&self, now: Moment, thread: usize) -> MemoryCounts;

    /// Migrates a thread's pages to a node. Returns how long the kernel works on it.
    fn fetch(&mut self, now: Moment, thread: usize, to: NodeId) -> Span;
}

/// Values that counters would show for a thread, since it was added.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MemoryCounts {
    /// Requests that left its core's private caches.
    pub requests: f64,
    /// Nanoseconds in which the thread waited for at least one of them.
    pub waited_ns: f64,
    /// Lines that came from the memory of the thread's own node.
    pub local: f64,
    /// Lines that came from the memory of other nodes.
    pub remote: f64,
}

/// Returns whether memory never slows down a thread with this footprint.
pub fn quiet(footprint: &Footprint) -> bool {
    footprint.misses <= 0.0 && footprint.shared_writes <= 0.0
}

/// Memory model without stalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoStalls;

impl Progress for NoStalls {
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
    fn counts(&self, _: Moment, _: usize) -> MemoryCounts {
        MemoryCounts::default()
    }
    fn fetch(&mut self, _: Moment, _: usize, _: NodeId) -> Span {
        Span::ZERO
    }
}

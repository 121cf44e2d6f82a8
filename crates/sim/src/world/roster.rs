//! Roster of a world's threads. Places of short processes that ended are reused.

use super::SimThread;
use std::ops::{Index, IndexMut};

/// Threads, and the numbers of those that policies balance.
#[derive(Debug, Default)]
pub(super) struct Roster {
    threads: Vec<SimThread>,
    /// Places that may be reused.
    free: Vec<u32>,
    /// By number of a balanced thread: its place, or `None` after its end.
    watched: Vec<Option<u32>>,
    /// Numbers of the balanced threads that ended, in the order of their ends.
    ended: Vec<u32>,
}

impl Roster {
    /// Returns the number of places.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Returns a place for a new thread, and whether the place is new.
    pub(super) fn place(&mut self) -> (usize, bool) {
        match self.free.pop() {
            Some(free) => (free as usize, false),
            None => {
                self.threads.push(SimThread::vacant());
                (self.threads.len() - 1, true)
            }
        }
    }

    /// Gives a thread a number, under which policies balance it.
    pub(super) fn watch(&mut self, at: usize) -> u32 {
        self.watched.push(Some(at as u32));
        (self.watched.len() - 1) as u32
    }

    /// Returns the number of balanced threads so far.
    pub(super) fn watched_count(&self) -> usize {
        self.watched.len()
    }

    /// Returns the thread with a number, while the thread lives.
    pub(super) fn watched(&self, id: usize) -> Option<usize> {
        self.watched.get(id).copied().flatten().map(|at| at as usize)
    }

    /// Returns the numbers of the threads that ended, in the order of their ends.
    pub(super) fn ended(&self) -> &[u32] {
        &self.ended
    }

    /// Notes that a thread is over; `again`: whether its place may be reused.
    pub(super) fn retire(&mut self, at: usize, again: bool) {
        if let Some(id) = self.threads[at].id {
            self.watched[id as usize] = None;
            self.ended.push(id);
        }
        if again {
            self.free.push(at as u32);
        }
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &SimThread> {
        self.threads.iter()
    }
}

impl Index<usize> for Roster {
    type Output = SimThread;

    fn index(&self, at: usize) -> &SimThread {
        &self.threads[at]
    }
}

impl IndexMut<usize> for Roster {
    fn index_mut(&mut self, at: usize) -> &mut SimThread {
        &mut self.threads[at]
    }
}

//! Roster of a world's threads. Places of short processes that ended are used again.

use super::Thread;
use std::ops::{Index, IndexMut};

/// The threads, and the numbers of those that policies look after.
#[derive(Debug, Default)]
pub(super) struct Roster {
    threads: Vec<Thread>,
    /// Places that may be used again.
    free: Vec<u32>,
    /// By number of those looked after: the thread, or none when it is over.
    watched: Vec<Option<u32>>,
    /// Numbers of those that ended, in the order of their ends.
    ended: Vec<u32>,
}

impl Roster {
    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    /// A place for a new thread, and whether it is one more than there were.
    pub(super) fn place(&mut self) -> (usize, bool) {
        match self.free.pop() {
            Some(free) => (free as usize, false),
            None => {
                self.threads.push(Thread::nobody());
                (self.threads.len() - 1, true)
            }
        }
    }

    /// Gives a thread a number, under which it is looked after.
    pub(super) fn watch(&mut self, at: usize) -> u32 {
        self.watched.push(Some(at as u32));
        (self.watched.len() - 1) as u32
    }

    /// How many threads that are looked after there have been.
    pub(super) fn watched_count(&self) -> usize {
        self.watched.len()
    }

    /// The thread with a number, while it lives.
    pub(super) fn watched(&self, id: usize) -> Option<usize> {
        self.watched.get(id).copied().flatten().map(|at| at as usize)
    }

    /// The numbers of those that ended, in the order of their ends.
    pub(super) fn ended(&self) -> &[u32] {
        &self.ended
    }

    /// A thread is over; `again` says that its place may be used again.
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
    pub(super) fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter()
    }
}

impl Index<usize> for Roster {
    type Output = Thread;

    fn index(&self, at: usize) -> &Thread {
        &self.threads[at]
    }
}

impl IndexMut<usize> for Roster {
    fn index_mut(&mut self, at: usize) -> &mut Thread {
        &mut self.threads[at]
    }
}

//! Call log: the last calls that a rank began, in shared memory, for reports of differences.
//!
//! **Problem.** A rank that only gives data does not check the other ranks. If two ranks act as the
//! root of one broadcast, both return, and their next calls are the same again.
//!
//! **Idea.** Every signature includes a hash of all earlier calls and of all earlier allocations
//! ([`mix`]). So the next call in which ranks read each other's state finds the difference, and the
//! logs identify the call.
//!
//! **Properties.** A log has one writer and is written without a lock. A reader ignores an entry
//! that is half of one call and half of another.

use crate::call::{Posted, signature};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Calls that a log keeps: those that a rank can begin before it must check another rank.
pub const CALLS_KEPT: usize = 8;
/// Changes of the heap that a log keeps.
pub const BLOCKS_KEPT: usize = 4;

/// Returns the hash of a sequence: `past` is the hash of the sequence without its last member, and
/// `last` the hash of the last member.
#[inline(always)]
pub fn mix(past: u32, last: u32) -> u32 {
    // Each step is a bijection of `past`: sequences that differ once do not become equal again by
    // equal members.
    (past ^ last).rotate_left(7).wrapping_mul(0x9e37_79b1)
}

/// One logged operation.
#[repr(C)]
#[derive(Debug, Default)]
struct LoggedCall {
    number: AtomicU64,
    what: AtomicU64,
    count: AtomicU64,
    root: AtomicU32,
    /// The operation's hash, combined with its number: false for a mixture of two entries.
    check: AtomicU32,
}

/// The last `KEPT` operations of a rank, by number.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CallLog<const KEPT: usize>([LoggedCall; KEPT]);

impl<const KEPT: usize> Default for CallLog<KEPT> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| LoggedCall::default()))
    }
}

impl<const KEPT: usize> CallLog<KEPT> {
    /// Adds an operation, in place of the oldest. `hash` is its [`signature`].
    #[inline(always)]
    pub fn add(&self, number: u64, what: u64, count: u64, root: u32, hash: u32) {
        let entry = &self.0[number as usize % KEPT];
        entry.check.store(hash ^ number as u32, Ordering::Relaxed);
        entry.what.store(what, Ordering::Relaxed);
        entry.count.store(count, Ordering::Relaxed);
        entry.root.store(root, Ordering::Relaxed);
        entry.number.store(number, Ordering::Release);
    }

    /// Returns an operation by its number, if it is still logged.
    pub fn get(&self, number: u64) -> Option<Posted> {
        let entry = &self.0[number as usize % KEPT];
        let said = Posted {
            number: entry.number.load(Ordering::Acquire),
            signature: 0,
            root: entry.root.load(Ordering::Relaxed),
            what: entry.what.load(Ordering::Relaxed),
            count: entry.count.load(Ordering::Relaxed),
            past: 0,
            blocks: 0,
        };
        let hash = signature(said.what, said.count, said.root);
        let whole = hash ^ number as u32 == entry.check.load(Ordering::Relaxed);
        (number > 0 && said.number == number && whole).then_some(Posted { signature: hash, ..said })
    }

    /// Returns the logged operations, the oldest first. Those that change meanwhile are left out.
    pub fn all(&self) -> Vec<Posted> {
        let newest = self.0.iter().map(|entry| entry.number.load(Ordering::Acquire)).max().unwrap_or(0);
        (newest.saturating_sub(KEPT as u64 - 1)..=newest).filter_map(|number| self.get(number)).collect()
    }

    /// Returns the first operation that is logged here and in `other` and differs, as logged here
    /// and there.
    pub fn first_difference(&self, other: &Self) -> Option<(Posted, Posted)> {
        let pair = |here: Posted| other.get(here.number).map(|there| (here, there));
        self.all().into_iter().filter_map(pair).find(|(here, there)| !here.is_same_call(there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add<const KEPT: usize>(log: &CallLog<KEPT>, number: u64, count: u64) {
        log.add(number, 0x0102, count, 0, signature(0x0102, count, 0));
    }

    #[test]
    fn the_oldest_operations_make_room_and_the_first_difference_is_found() {
        let (here, there) = (CallLog::<4>::default(), CallLog::<4>::default());
        assert_eq!(here.all(), []);
        for number in 1..=6 {
            add(&here, number, 10 * number);
            add(&there, number, if number == 4 { 7 } else { 10 * number });
        }
        let numbers: Vec<u64> = here.all().iter().map(|said| said.number).collect();
        assert_eq!(numbers, [3, 4, 5, 6]);
        assert_eq!(here.get(2), None);
        let (ours, theirs) = here.first_difference(&there).unwrap();
        assert_eq!((ours.number, ours.count, theirs.count), (4, 40, 7));
        add(&there, 7, 1);
        add(&there, 8, 1);
        // Number 4 is no longer logged there, and 7 and 8 are not logged here.
        assert!(here.first_difference(&there).is_none());
    }

    #[test]
    fn half_of_an_entry_is_ignored() {
        let log = CallLog::<4>::default();
        add(&log, 1, 5);
        log.0[1].count.store(6, Ordering::Relaxed);
        assert_eq!(log.get(1), None);
    }

    #[test]
    fn hashes_of_sequences_that_differ_once_never_become_equal() {
        let (mut here, mut there) = (mix(0, 1), mix(0, 2));
        for last in 0..100_000 {
            assert_ne!(here, there);
            (here, there) = (mix(here, last), mix(there, last));
        }
    }
}

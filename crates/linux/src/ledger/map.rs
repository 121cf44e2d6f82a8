//! Map of held CPUs, read from the locks.

use super::layout::cpu_of;
use crate::sys::lock::{ByteLock, LockKind, conflict};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use trimtab_core::set::CpuSet;

/// The CPUs that are held at one level.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockMap {
    /// CPUs held by a single hold.
    pub exclusive: CpuSet,
    /// CPUs held by one or several shared holds.
    pub shared: CpuSet,
    /// CPUs held through a ledger file that has been deleted. The kernel would let another process
    /// take them again; taking them through the ledger is refused.
    pub lost: CpuSet,
}

impl LockMap {
    /// Returns all held CPUs of every kind.
    pub fn held(&self) -> CpuSet {
        self.exclusive.union(&self.shared).union(&self.lost)
    }

    /// Returns the map of the CPUs in `within`, from locks on the CPU bytes of one level.
    pub(super) fn of(locks: &[ByteLock], within: &CpuSet) -> Self {
        let of_kind = |kind| {
            let locks = locks.iter().filter(|lock| lock.kind == kind);
            locks.flat_map(|lock| lock.bytes.clone().map(cpu_of)).collect::<CpuSet>().intersection(within)
        };
        Self { exclusive: of_kind(LockKind::Write), shared: of_kind(LockKind::Read), lost: CpuSet::new() }
    }
}

/// Source of locks.
#[derive(Clone, Copy, Debug)]
pub(super) enum LockTable<'a> {
    /// The kernel, about all descriptions of a file except this one.
    Queried(BorrowedFd<'a>),
    /// A list taken earlier.
    Listed(&'a [ByteLock]),
}

impl LockTable<'_> {
    /// Returns any lock that touches `bytes`, cut to them.
    pub(super) fn any(self, bytes: &Range<u64>) -> io::Result<Option<ByteLock>> {
        let touching = match self {
            Self::Queried(file) => conflict(file, bytes.clone())?,
            Self::Listed(locks) => locks
                .iter()
                .find(|lock| lock.bytes.start < bytes.end && bytes.start < lock.bytes.end)
                .cloned(),
        };
        let Some(ByteLock { bytes: whole, kind }) = touching else { return Ok(None) };
        let cut = whole.start.max(bytes.start)..whole.end.min(bytes.end);
        if cut.is_empty() {
            // Not observed so far; continuing with such an answer would query without end.
            return Err(io::Error::other(
                "the kernel named a lock outside of the range that was asked about",
            ));
        }
        Ok(Some(ByteLock { bytes: cut, kind }))
    }

    /// Returns all locks that touch `bytes`, cut to them, ascending and without overlap. Every
    /// answer splits off the parts left and right of it, so this takes one query per lock and gap.
    pub(super) fn all(self, bytes: Range<u64>) -> io::Result<Vec<ByteLock>> {
        let mut found = Vec::new();
        let mut open = vec![bytes];
        while let Some(bytes) = open.pop() {
            if bytes.is_empty() {
                continue;
            }
            if let Some(lock) = self.any(&bytes)? {
                open.push(bytes.start..lock.bytes.start);
                open.push(lock.bytes.end..bytes.end);
                found.push(lock);
            }
        }
        found.sort_by_key(|lock| lock.bytes.start);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::cpu_bytes;
    use super::super::level::Level;
    use super::*;
    use proptest::prelude::*;
    use trimtab_core::ids::OsCpu;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    proptest! {
        #[test]
        fn splitting_finds_every_lock_once(
            runs in prop::collection::vec((0u64..12, 1u64..9, any::<bool>()), 0..20),
            from in 0u64..100, length in 0u64..200, seed: u64,
        ) {
            // Locks that do not overlap, in shuffled order: the kernel names any of them.
            let mut at = 0;
            let mut locks: Vec<ByteLock> = runs.into_iter().map(|(gap, length, write)| {
                let start = at + gap;
                at = start + length;
                ByteLock { bytes: start..at, kind: if write { LockKind::Write } else { LockKind::Read } }
            }).collect();
            let middle = usize::try_from(seed).unwrap_or(0) % (locks.len() + 1);
            locks.rotate_left(middle);
            let found = LockTable::Listed(&locks).all(from..from + length).unwrap();
            for byte in from..from + length {
                let expected = locks.iter().find(|lock| lock.bytes.contains(&byte)).map(|lock| lock.kind);
                let named: Vec<_> = found.iter().filter(|lock| lock.bytes.contains(&byte)).collect();
                prop_assert!(named.len() <= 1);
                prop_assert_eq!(named.first().map(|lock| lock.kind), expected);
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].bytes.end <= pair[1].bytes.start));
        }
    }

    #[test]
    fn sets_are_cut_to_the_requested_cpus() {
        let level = Level::new(3).unwrap();
        let bytes = cpu_bytes(level, OsCpu(0), OsCpu(99)).unwrap();
        let locks = [
            ByteLock { bytes: 0..bytes.start + 4, kind: LockKind::Write },
            ByteLock { bytes: bytes.start + 6..u64::MAX, kind: LockKind::Read },
        ];
        let found = LockTable::Listed(&locks).all(bytes).unwrap();
        let map = LockMap::of(&found, &set("1-2,5-7,11"));
        assert_eq!((map.exclusive.clone(), map.shared.clone()), (set("1-2"), set("6-7,11")));
        assert_eq!(map.held(), set("1-2,6-7,11"));
        assert_eq!(LockMap::of(&found, &CpuSet::new()), LockMap::default());
    }
}

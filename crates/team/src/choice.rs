//! Which way an operation is carried out: a table that all ranks of a team have alike.
//!
//! **Idea.** What is best depends on how many ranks share how many processors and caches, and on the size. The table begins with what
//! measurements on small machines say ([`Table::usual`]) and can be replaced by what was measured here ([`crate::tune`]). It is plain
//! data: ranks that had different ones would wait for each other for ever, so one rank reads it and the others get it from that one.
//!
//! **Properties.** Pure. Whatever table is installed, every call gives the same bits: ways differ in time alone.

use crate::barrier::Barrier;
use crate::call::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sizes of messages in classes: 0 for nothing, then one for each power of two.
pub const CLASSES: usize = 40;

/// The class of a block of so many bytes.
#[inline(always)]
pub fn class(bytes: usize) -> usize {
    ((usize::BITS - bytes.leading_zeros()) as usize).min(CLASSES - 1)
}

/// A way of carrying out a call that moves data. Messages that fit beside a flag go there whatever is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Each round carries as much as fits into a cell.
    #[default]
    Whole,
    /// Rounds of at most 2^n bytes: the next is written while the last is read.
    Pieces(u8),
    /// Pieces of 2^n bytes, of which each rank combines its slice for all. Only for allreduce.
    Slices(u8),
    /// The same in pieces as large as all cells of a rank together hold, with nothing done ahead: fewer times to wait for each other. Only for
    /// allreduce.
    Wide,
    /// From rank to rank, each to up to 2^n others. Only for broadcast.
    Tree(u8),
    /// To one rank of each group that shares a cache, and from that to the others. Only for broadcast.
    Relayed,
}

impl Way {
    /// The ways among which to choose for a call of so many bytes, with cells of `cell` bytes; the usual one first.
    pub fn candidates(kind: Kind, bytes: usize, cell: usize, crowded: bool) -> Vec<Self> {
        let usual = Self::usual(kind, bytes, cell, crowded);
        let mut all = vec![usual];
        if bytes <= crate::flag::INLINE || kind == Kind::Barrier {
            return all;
        }
        let most = cell.ilog2() as u8;
        let sizes = (12..=most).filter(|log| bytes > 1 << log).collect::<Vec<_>>();
        all.push(Self::Whole);
        all.extend(sizes.iter().filter(|log| **log < most).map(|log| Self::Pieces(*log)));
        if kind == Kind::Allreduce {
            all.extend(sizes.iter().map(|log| Self::Slices(*log)));
            if bytes > cell {
                all.push(Self::Wide);
            }
        }
        if kind == Kind::Broadcast {
            all.extend([Self::Tree(1), Self::Tree(2), Self::Relayed]);
        }
        all.dedup();
        let mut seen = Vec::new();
        all.retain(|way| {
            !seen.contains(way) && {
                seen.push(*way);
                true
            }
        });
        all
    }

    /// What is done where nothing was measured.
    pub fn usual(kind: Kind, bytes: usize, cell: usize, crowded: bool) -> Self {
        let most = cell.ilog2() as u8;
        match kind {
            // Slices pay where each rank really works at the same time as the others; 16 KiB kept two cores that share a cache busiest.
            Kind::Allreduce if bytes > cell && !crowded => Self::Slices(most.min(14)),
            // Ranks that share processors have nobody to work ahead for.
            Kind::Allreduce if bytes > cell => Self::Wide,
            _ => Self::Whole,
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// How ranks meet.
    pub barrier: Barrier,
    /// What was chosen otherwise than usual, by kind and class of size.
    pub ways: BTreeMap<Kind, BTreeMap<usize, Way>>,
    /// The number of each rank's group of those that share a cache; empty where nothing is known.
    #[serde(default)]
    pub groups: Vec<u32>,
}

impl Table {
    /// Where nothing was measured.
    pub fn usual(crowded: bool) -> Self {
        let barrier = if crowded { Barrier::Central } else { Barrier::Dissemination };
        Self { barrier, ways: BTreeMap::new(), groups: Vec::new() }
    }

    /// The way of a call.
    pub fn way(&self, kind: Kind, bytes: usize, cell: usize, crowded: bool) -> Way {
        let measured = self.ways.get(&kind).and_then(|ways| ways.get(&class(bytes)));
        measured.copied().unwrap_or_else(|| Way::usual(kind, bytes, cell, crowded)).within(kind, cell)
    }
}

impl Way {
    /// As near to it as cells and the kind allow: tables may be of another version, or somebody's joke.
    fn within(self, kind: Kind, cell: usize) -> Self {
        let most = cell.ilog2() as u8;
        match self {
            Self::Whole => Self::Whole,
            Self::Pieces(log) => Self::Pieces(log.clamp(10, most)),
            Self::Slices(log) if kind == Kind::Allreduce => Self::Slices(log.clamp(10, most)),
            Self::Tree(log) if kind == Kind::Broadcast => Self::Tree(log.clamp(1, 8)),
            Self::Relayed if kind == Kind::Broadcast => Self::Relayed,
            Self::Wide if kind == Kind::Allreduce => Self::Wide,
            Self::Slices(_) | Self::Wide | Self::Tree(_) | Self::Relayed => Self::Whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 1023, 1024].map(class), [0, 1, 2, 2, 3, 10, 11]);
        assert_eq!(class(usize::MAX), CLASSES - 1);
    }

    #[test]
    fn candidates_are_different_and_begin_with_the_usual() {
        for kind in Kind::ALL {
            for bytes in [0, 8, 112, 113, 5000, 1 << 20] {
                for crowded in [false, true] {
                    let all = Way::candidates(kind, bytes, 32 << 10, crowded);
                    assert_eq!(all[0], Way::usual(kind, bytes, 32 << 10, crowded));
                    let mut unique = all.clone();
                    unique.sort();
                    unique.dedup();
                    assert_eq!(unique.len(), all.len(), "{kind:?} {bytes}: {all:?}");
                }
            }
        }
    }

    #[test]
    fn tables_of_others_do_no_harm() {
        let mut table = Table::usual(false);
        table.ways.insert(Kind::Broadcast, BTreeMap::from([(class(1 << 20), Way::Slices(60))]));
        table.ways.insert(Kind::Allreduce, BTreeMap::from([(class(1 << 20), Way::Slices(0))]));
        assert_eq!(table.way(Kind::Broadcast, 1 << 20, 32 << 10, false), Way::Whole);
        assert_eq!(table.way(Kind::Allreduce, 1 << 20, 32 << 10, false), Way::Slices(10));
        assert_eq!(table.way(Kind::Allreduce, 100, 32 << 10, false), Way::Whole);
    }
}

//! Table of the algorithms by which operations are carried out. All ranks of a team have the same
//! one.
//!
//! **Idea.** The best algorithm depends on the number of ranks, the CPUs and caches that they
//! share, and the size. The table begins with the results of measurements on small machines
//! ([`AlgorithmTable::usual`]) and can be replaced by measurements on this machine
//! ([`crate::tune`]). It is plain data. Ranks with different tables would deadlock, so one rank
//! reads the table and the others get it from that rank.
//!
//! **CallClass.** Two more properties can decide which algorithm is quickest. The first is the
//! synchronisation of a call, since loose calls overlap and strict ones do not. The second is the
//! work per element, since algorithms that divide the work gain more if it is expensive. Both are
//! read from the call itself ([`CallClass::of`]). A class that was not measured uses the nearest
//! one that was. Integers and floating point numbers of 32 and 64 bits are one kind of work: memory
//! bounds them all.
//!
//! **Properties.** Pure. With every table, a call gives the same bits: algorithms differ in time
//! alone.

use crate::barrier::Barrier;
use crate::call::{Kind, When};
use crate::reduce::Type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Size classes of messages: 0 for no bytes, then one for each power of two.
pub const SIZE_CLASSES: usize = 40;

/// Returns the class of a block of `bytes` bytes.
#[inline(always)]
pub fn class(bytes: usize) -> usize {
    ((usize::BITS - bytes.leading_zeros()) as usize).min(SIZE_CLASSES - 1)
}

/// An algorithm for a call that moves data. Messages that fit beside a flag are stored there with
/// every algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Each round carries as much as fits into a cell.
    #[default]
    Whole,
    /// Rounds of at most 2^n bytes: the next is written while the last is read.
    Pieces(u8),
    /// Pieces of 2^n bytes, of which each rank combines its slice for all. Only for allreduce.
    Slices(u8),
    /// As `Slices`, in pieces as large as all cells of a rank together, with no work done ahead:
    /// fewer waits. Only for allreduce.
    Wide,
    /// From rank to rank, each to up to 2^n others. Only for broadcast.
    Tree(u8),
    /// To one rank of each group that shares a cache, and from that rank to the others. Only for
    /// broadcast.
    Relayed,
}

impl Algorithm {
    /// Returns the algorithms possible for a call of `bytes` bytes, with cells of `cell` bytes; the
    /// usual one first.
    pub fn candidates(kind: Kind, bytes: usize, cell: usize, crowded: bool) -> Vec<Self> {
        let usual = Self::usual(kind, bytes, cell, crowded);
        let mut all = vec![usual];
        if bytes <= crate::flag::INLINE_BYTES || kind == Kind::Barrier {
            return all;
        }
        // A call that fits into a cell is combined in one round, independent of the table.
        if kind == Kind::Allreduce && bytes <= cell {
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

    /// Returns the algorithm used if nothing was measured.
    pub fn usual(kind: Kind, bytes: usize, cell: usize, crowded: bool) -> Self {
        let most = cell.ilog2() as u8;
        match kind {
            // Slices are faster if the ranks really work at the same time; 16 KiB was the fastest
            // size on two cores that share a cache.
            Kind::Allreduce if bytes > cell && !crowded => Self::Slices(most.min(14)),
            // Ranks that share CPUs do not gain by working ahead.
            Kind::Allreduce if bytes > cell => Self::Wide,
            _ => Self::Whole,
        }
    }
}

/// Algorithm of each kind, size and class of calls, and the barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlgorithmTable {
    /// The barrier algorithm.
    pub barrier: Barrier,
    /// Choices for calls of the usual class, by kind and size class.
    pub ways: BTreeMap<Kind, BTreeMap<usize, Algorithm>>,
    /// By rank: number of its group of ranks that share a cache; empty if it is not known.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// Choices for calls of other classes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<CallClass, BTreeMap<Kind, BTreeMap<usize, Algorithm>>>,
}

/// Class of a call: its properties that may decide which algorithm is quickest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum CallClass {
    /// Own buffers may be used again when the call returns; elements are plain numbers.
    #[default]
    Mine,
    /// The call waits only for the data.
    Loose,
    /// All ranks wait for all others before the call, after it, or both.
    Strict,
    /// As `Mine`, with elements that are expensive to combine: 16-bit floating point numbers, or an
    /// operator of the caller's own.
    HeavyMine,
    /// As `Loose`, with such elements.
    HeavyLoose,
    /// As `Strict`, with such elements.
    HeavyStrict,
}

impl CallClass {
    /// All classes.
    pub const ALL: [Self; 6] =
        [Self::Mine, Self::Loose, Self::Strict, Self::HeavyMine, Self::HeavyLoose, Self::HeavyStrict];

    /// Returns a call's class, from [`crate::CollectiveCall::what`].
    #[inline(always)]
    pub fn of(what: u64) -> Self {
        let (enter, leave) = (what >> 24 & 15, what >> 28 & 15);
        let pace = if enter == When::All as u64 || leave == When::All as u64 {
            2
        } else {
            usize::from(leave == When::None as u64)
        };
        let heavy = Self::is_heavy(what);
        Self::ALL[pace + if heavy { 3 } else { 0 }]
    }

    #[inline(always)]
    fn is_heavy(what: u64) -> bool {
        let kind = what & 0xff;
        let combines = kind == Kind::Reduce as u64
            || kind == Kind::Allreduce as u64
            || kind == Kind::ReduceScatter as u64
            || kind == Kind::Scan as u64
            || kind == Kind::Exscan as u64;
        let elements = what >> 8 & 0xff;
        let own = what >> 16 & 0xff == 15;
        combines
            && (own || elements == u64::from(Type::F16.code()) || elements == u64::from(Type::BF16.code()))
    }

    /// Returns the name used in tables and options.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Loose => "loose",
            Self::Strict => "strict",
            Self::HeavyMine => "heavy-mine",
            Self::HeavyLoose => "heavy-loose",
            Self::HeavyStrict => "heavy-strict",
        }
    }

    /// Returns whether elements are expensive to combine.
    pub fn heavy(self) -> bool {
        self as u8 >= 3
    }

    /// Returns the classes in which a choice is searched: the class itself, then others, the
    /// nearest first.
    pub fn nearest(self) -> &'static [Self] {
        match self {
            Self::Mine => &[Self::Mine],
            Self::Loose => &[Self::Loose, Self::Mine],
            Self::Strict => &[Self::Strict, Self::Mine],
            Self::HeavyMine => &[Self::HeavyMine, Self::Mine],
            Self::HeavyLoose => &[Self::HeavyLoose, Self::HeavyMine, Self::Loose, Self::Mine],
            Self::HeavyStrict => &[Self::HeavyStrict, Self::HeavyMine, Self::Strict, Self::Mine],
        }
    }
}

impl AlgorithmTable {
    /// Returns the table used if nothing was measured.
    pub fn usual(crowded: bool) -> Self {
        let barrier = if crowded { Barrier::Central } else { Barrier::Dissemination };
        Self { barrier, ways: BTreeMap::new(), others: BTreeMap::new(), groups: Vec::new() }
    }

    /// Returns the algorithm of a call of the usual class.
    pub fn way(&self, kind: Kind, bytes: usize, cell: usize, crowded: bool) -> Algorithm {
        let measured = self.chosen(CallClass::Mine, kind, class(bytes));
        measured
            .map_or_else(|| Algorithm::usual(kind, bytes, cell, crowded), |(way, _)| way)
            .within(kind, cell)
    }

    /// Returns the choice for calls of a class, or of the nearest class that has one, and that
    /// class.
    pub fn chosen(&self, manner: CallClass, kind: Kind, class: usize) -> Option<(Algorithm, CallClass)> {
        manner.nearest().iter().find_map(|near| {
            let ways = if *near == CallClass::Mine { Some(&self.ways) } else { self.others.get(near) };
            ways?.get(&kind)?.get(&class).map(|way| (*way, *near))
        })
    }

    /// Sets the algorithm for calls of a class, a kind and a size class.
    pub fn choose(&mut self, manner: CallClass, kind: Kind, class: usize, way: Algorithm) {
        let ways =
            if manner == CallClass::Mine { &mut self.ways } else { self.others.entry(manner).or_default() };
        ways.entry(kind).or_default().insert(class, way);
    }
}

/// A table in the form in which calls read it: one entry for each class, kind and size class.
#[derive(Debug)]
pub struct Flat {
    table: AlgorithmTable,
    ways: Box<[Option<Algorithm>]>,
}

impl Flat {
    /// Entries of a flat table.
    pub const ENTRY_COUNT: usize = CallClass::ALL.len() * KIND_COUNT * SIZE_CLASSES;

    /// Flattens a table.
    pub fn new(table: AlgorithmTable) -> Self {
        let mut ways = vec![None; Self::ENTRY_COUNT].into_boxed_slice();
        for manner in CallClass::ALL {
            // The farthest class first, so that nearer ones overwrite it.
            for near in manner.nearest().iter().rev() {
                let chosen =
                    if *near == CallClass::Mine { Some(&table.ways) } else { table.others.get(near) };
                for (kind, classes) in chosen.into_iter().flatten() {
                    for (class, way) in classes.iter().filter(|(class, _)| **class < SIZE_CLASSES) {
                        ways[Self::place(manner, *kind, *class)] = Some(*way);
                    }
                }
            }
        }
        Self { table, ways }
    }

    /// Returns the index of an entry.
    #[inline(always)]
    pub fn place(manner: CallClass, kind: Kind, class: usize) -> usize {
        (manner as usize * KIND_COUNT + (kind as usize - 1)) * SIZE_CLASSES + class
    }

    /// Returns the table from which it was made.
    pub fn table(&self) -> &AlgorithmTable {
        &self.table
    }

    /// Returns the algorithm of a call.
    #[inline(always)]
    pub fn way(&self, manner: CallClass, kind: Kind, bytes: usize, cell: usize, crowded: bool) -> Algorithm {
        match self.ways[Self::place(manner, kind, class(bytes))] {
            Some(way) => way.within(kind, cell),
            None => Algorithm::usual(kind, bytes, cell, crowded),
        }
    }

    /// Sets the barrier of the table.
    pub(crate) fn set_barrier(&mut self, barrier: Barrier) {
        self.table.barrier = barrier;
    }

    /// Sets another algorithm for the calls of one entry, `None` for the usual, without changing
    /// the table. Returns the previous entry.
    pub fn divert(&mut self, place: usize, way: Option<Algorithm>) -> Option<Algorithm> {
        std::mem::replace(&mut self.ways[place], way)
    }
}

/// Kinds of calls; their numbers begin with 1.
const KIND_COUNT: usize = Kind::ALL.len();

impl Algorithm {
    /// Limits an algorithm to those that cells and the kind permit: a table may come from another
    /// version, or be malicious.
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
        assert_eq!(class(usize::MAX), SIZE_CLASSES - 1);
    }

    #[test]
    fn candidates_are_different_and_begin_with_the_usual() {
        for kind in Kind::ALL {
            for bytes in [0, 8, 112, 113, 5000, 1 << 20] {
                for crowded in [false, true] {
                    let all = Algorithm::candidates(kind, bytes, 32 << 10, crowded);
                    assert_eq!(all[0], Algorithm::usual(kind, bytes, 32 << 10, crowded));
                    let mut unique = all.clone();
                    unique.sort();
                    unique.dedup();
                    assert_eq!(unique.len(), all.len(), "{kind:?} {bytes}: {all:?}");
                }
            }
        }
    }

    #[test]
    fn a_call_uses_its_class_or_the_nearest_measured_one() {
        use crate::call::Sync;
        let what = |sync: Sync, elements: Type, kind: Kind| {
            kind as u64
                | u64::from(elements.code()) << 8
                | (sync.enter as u64) << 24
                | (sync.leave as u64) << 28
        };
        let manner = |sync, elements, kind| CallClass::of(what(sync, elements, kind));
        assert_eq!(manner(Sync::MINE, Type::F64, Kind::Allreduce), CallClass::Mine);
        assert_eq!(manner(Sync::LOOSE, Type::BF16, Kind::Allreduce), CallClass::HeavyLoose);
        assert_eq!(manner(Sync::STRICT, Type::BF16, Kind::Broadcast), CallClass::Strict);
        let half = Sync { enter: When::None, leave: When::All };
        assert_eq!(manner(half, Type::F16, Kind::Scan), CallClass::HeavyStrict);
        let own = what(Sync::MINE, Type::F64, Kind::Reduce) | 15 << 16;
        assert_eq!(CallClass::of(own), CallClass::HeavyMine);

        let (kind, bytes) = (Kind::Allreduce, 1 << 20);
        let mut table = AlgorithmTable::usual(false);
        let way = |table: &AlgorithmTable, manner| {
            Flat::new(table.clone()).way(manner, kind, bytes, 32 << 10, false)
        };
        assert_eq!(way(&table, CallClass::HeavyLoose), Algorithm::Slices(14));
        table.choose(CallClass::Mine, kind, class(bytes), Algorithm::Pieces(13));
        assert!(CallClass::ALL.into_iter().all(|manner| way(&table, manner) == Algorithm::Pieces(13)));
        table.choose(CallClass::HeavyMine, kind, class(bytes), Algorithm::Whole);
        assert_eq!(way(&table, CallClass::HeavyStrict), Algorithm::Whole);
        assert_eq!(way(&table, CallClass::Strict), Algorithm::Pieces(13));
        assert_eq!(
            table.chosen(CallClass::HeavyStrict, kind, class(bytes)),
            Some((Algorithm::Whole, CallClass::HeavyMine))
        );
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<AlgorithmTable>(&text).unwrap(), table);
    }

    #[test]
    fn tables_of_others_do_no_harm() {
        let mut table = AlgorithmTable::usual(false);
        table.ways.insert(Kind::Broadcast, BTreeMap::from([(class(1 << 20), Algorithm::Slices(60))]));
        table.ways.insert(Kind::Allreduce, BTreeMap::from([(class(1 << 20), Algorithm::Slices(0))]));
        assert_eq!(table.way(Kind::Broadcast, 1 << 20, 32 << 10, false), Algorithm::Whole);
        assert_eq!(table.way(Kind::Allreduce, 1 << 20, 32 << 10, false), Algorithm::Slices(10));
        assert_eq!(table.way(Kind::Allreduce, 100, 32 << 10, false), Algorithm::Whole);
    }
}

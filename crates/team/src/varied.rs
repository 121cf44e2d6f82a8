//! Varied calls: gather, allgather, scatter and alltoall with blocks of different sizes and places,
//! as MPI's `Gatherv` and its siblings.
//!
//! **Problem.** A rank knows the sizes of the blocks that it gives and gets, and not those of the
//! others. But all ranks must take the same tickets.
//!
//! **Idea.** A rank's first ticket carries a row with the sizes of its blocks, and as much of their
//! data as fits (the module `row`). A receiver compares each size with the one that it expects, and
//! has all of a short block. The row also has the most bytes of a block that goes through cells,
//! which tells its readers the number of further rounds (the module `passing`):
//!
//! - Allgather and alltoall: every rank reads all rows.
//! - Scatter: the root knows all sizes, and all others read its row. The root waits for none.
//! - Gather: the root knows all sizes as well, and its row has nothing else. A rank with a short
//!   block returns at once, and reads the root's row when it begins its next call.
//!
//! Where ranks read each other's memory ([`crate::cma`]), a row also has the locations of long
//! blocks. These are read whole, after all rounds: in an alltoall that is in place at this rank the
//! block that lies at the destination has been staged by then, whether the call is in place at the
//! other ranks or not.
//!
//! **Properties.** A rank whose expected size differs from the given one is an error at all ranks,
//! in this call or at the next one in which ranks wait for each other, and no buffer is written
//! beyond its own rank's sizes, whatever the rows contain.

mod passing;
mod row;

use crate::call::{Kind, Sync, VARIED_FLAG};
use crate::reduce::Type;
use crate::{Error, Result};

/// Place and size of a rank's block in a buffer, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Block {
    /// Elements from the begin of the buffer to the block.
    pub place: usize,
    /// Elements of the block.
    pub count: usize,
}

impl Block {
    /// Returns blocks of these sizes, one behind the other.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::Block;
    ///
    /// let places = Block::packed(&[2, 0, 5]).map(|block| block.place);
    /// assert_eq!(places.collect::<Vec<_>>(), [0, 2, 2]);
    /// ```
    pub fn packed(counts: &[usize]) -> impl Iterator<Item = Self> {
        counts.iter().scan(0, |place, count| {
            let block = Self { place: *place, count: *count };
            *place += count;
            Some(block)
        })
    }
}

/// A call with different blocks. [`Rank::call_varied`](crate::Rank::call_varied) has an example.
#[derive(Debug, Clone, Copy)]
pub struct VariedCall<'a> {
    /// `Gather`, `Allgather`, `Scatter` or `Alltoall`.
    pub kind: Kind,
    /// Type of the elements.
    pub elements: Type,
    /// The root, or 0.
    pub root: u32,
    /// Begin of the data that this rank gives.
    pub input: *const u8,
    /// Its blocks there: one for `Gather` and `Allgather`; one for each rank for `Alltoall` and for
    /// `Scatter` at the root, and else none.
    pub gives: &'a [Block],
    /// Begin of the buffer for the data that it gets.
    pub output: *mut u8,
    /// The blocks there: one for each rank for `Allgather`, `Alltoall` and for `Gather` at the
    /// root, and else none; one for `Scatter`.
    pub gets: &'a [Block],
    /// Mode of synchronisation.
    pub sync: Sync,
}

/// Overlap of the blocks that a rank gives with those that it gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    /// No byte of the whole of one is in the whole of the other.
    Apart,
    /// The blocks are apart, or each block that is given is the one that is got.
    Harmless,
    Harmful,
}

impl VariedCall<'_> {
    /// Returns kind, type and modes in one number, as [`crate::CollectiveCall::what`].
    fn what(&self) -> u64 {
        VARIED_FLAG
            | self.kind as u64
            | u64::from(self.elements.code()) << 8
            | 15 << 16
            | (self.sync.enter as u64) << 24
            | (self.sync.leave as u64) << 28
    }

    /// Returns whether data goes from a rank to another one.
    fn pairs(&self, from: u32, to: u32) -> bool {
        match self.kind {
            Kind::Gather => to == self.root,
            Kind::Scatter => from == self.root,
            _ => true,
        }
    }

    fn shares_out(&self) -> bool {
        matches!(self.kind, Kind::Scatter | Kind::Alltoall)
    }

    /// Returns whether every rank takes from every rank.
    fn is_symmetric(&self) -> bool {
        matches!(self.kind, Kind::Allgather | Kind::Alltoall)
    }

    /// Returns a rank for each block that this rank gives to others: if it gives the same block to
    /// all, one of them.
    fn receivers(&self, me: u32, ranks: u32) -> impl Iterator<Item = u32> + use<> {
        let to = match self.kind {
            Kind::Gather => self.root..self.root + 1,
            Kind::Allgather => (me + 1) % ranks..(me + 1) % ranks + 1,
            Kind::Scatter if me != self.root => 0..0,
            _ => 0..ranks,
        };
        to.filter(move |rank| *rank != me)
    }

    /// Returns the other ranks that give a block to this one, which may be empty.
    fn givers(&self, me: u32, ranks: u32) -> impl Iterator<Item = u32> + use<> {
        let from = match self.kind {
            Kind::Scatter => self.root..self.root + 1,
            Kind::Gather if me != self.root => 0..0,
            _ => 0..ranks,
        };
        from.filter(move |rank| *rank != me)
    }

    /// Returns the address and the bytes of the block for a rank.
    fn give(&self, me: u32, to: u32) -> (*const u8, usize) {
        let at = if self.shares_out() { to as usize } else { 0 };
        let block = self.gives.get(at).filter(|_| self.pairs(me, to)).copied().unwrap_or_default();
        let size = self.elements.size();
        (self.input.wrapping_add(block.place * size), block.count * size)
    }

    /// Returns the address and the bytes of the block of a rank.
    fn get(&self, me: u32, from: u32) -> (*mut u8, usize) {
        let at = if self.kind == Kind::Scatter { 0 } else { from as usize };
        let block = self.gets.get(at).filter(|_| self.pairs(from, me)).copied().unwrap_or_default();
        let size = self.elements.size();
        (self.output.wrapping_add(block.place * size), block.count * size)
    }

    fn overlap(&self, me: u32, ranks: u32) -> Overlap {
        let range = |start: usize, blocks: &[Block]| {
            let size = self.elements.size();
            let used = || blocks.iter().filter(|block| block.count > 0);
            let begin = used().map(|block| block.place).min().unwrap_or(0);
            let end = used().map(|block| block.place + block.count).max().unwrap_or(0);
            start + begin * size..start + end * size
        };
        let (from, to) = (range(self.input as usize, self.gives), range(self.output as usize, self.gets));
        if from.start >= to.end || to.start >= from.end {
            return Overlap::Apart;
        }
        let meet = |(from, given): (*const u8, usize), (to, got): (*mut u8, usize)| {
            let both = given > 0 && got > 0;
            both && (from as usize) < to as usize + got && (to as usize) < from as usize + given
        };
        let own = self.give(me, me);
        let gets_of = if self.kind == Kind::Scatter { self.root..self.root + 1 } else { 0..ranks };
        for to in if self.shares_out() { 0..ranks } else { me..me + 1 } {
            for from in gets_of.clone() {
                let (given, got) = (self.give(me, to), self.get(me, from));
                let same = std::ptr::eq(given.0, got.0) && given.1 == got.1;
                // A block that stays where it is; in an alltoall, one that the other rank's
                // replaces. Blocks of a scatter may lie at one place, which the root's own keeps.
                let kept = self.kind == Kind::Scatter && std::ptr::eq(given.0, own.0) && given.1 == own.1;
                let stays = same && (to == from || !self.shares_out() || kept);
                if meet(given, got) && !stays {
                    return Overlap::Harmful;
                }
            }
        }
        Overlap::Harmless
    }

    /// Checks whether the call can be made at all, on rank `me`.
    pub(crate) fn check(&self, me: u32, ranks: u32) -> Result<()> {
        let argument = |text: String| Err(Error::Argument(text));
        let (n, at_root) = (ranks as usize, me == self.root);
        let (gives, gets) = match self.kind {
            Kind::Gather => (1, if at_root { n } else { 0 }),
            Kind::Allgather => (1, n),
            Kind::Scatter => (if at_root { n } else { 0 }, 1),
            Kind::Alltoall => (n, n),
            kind => return argument(format!("{} has no blocks of different sizes", kind.name())),
        };
        if self.root >= ranks {
            return argument(format!("root {} is not one of the {ranks} ranks", self.root));
        }
        for (what, has, needs) in [("input", self.gives, gives), ("output", self.gets, gets)] {
            if has.len() != needs {
                let name = self.kind.name();
                return argument(format!("{name} needs {needs} blocks of {what}, not {}", has.len()));
            }
            let end = |block: &Block| block.place.checked_add(block.count)?.checked_mul(self.elements.size());
            if has.iter().any(|block| end(block).is_none_or(|end| isize::try_from(end).is_err())) {
                return argument(format!("a block of {what} goes beyond all addresses"));
            }
        }
        if self.pairs(me, me) && self.give(me, me).1 != self.get(me, me).1 {
            return argument("this rank gives itself a block of another size than it expects".to_owned());
        }
        if self.overlap(me, ranks) == Overlap::Harmful {
            return argument("blocks of input and output overlap: they may be the same, or apart".to_owned());
        }
        Ok(())
    }
}

//! Varied calls: gather, allgather, scatter and alltoall with blocks of different sizes and places,
//! as MPI's `Gatherv` and its siblings.
//!
//! **Problem.** A rank knows the sizes of the blocks that it gives and gets, and not those of the
//! others. But all ranks must take the same tickets.
//!
//! **Idea.** In a first round each rank posts a row: the bytes that it gives to each rank, and in
//! the own entry the most bytes of them that go through cells. The greatest of these tells all
//! ranks the number of rounds, and each rank compares the sizes given to it with those that it
//! expects. In the rounds each rank stages the next piece of every block, and takes the next piece
//! of every block that it expects. Where ranks read each other's memory ([`crate::cma`]), the row
//! also has the locations of long blocks, which are read whole and take part in no round.
//!
//! **Properties.** All ranks wait for all others, once, in the first round. A rank whose expected
//! size differs from the given one is an error at all ranks, and no buffer is written beyond its
//! own rank's sizes, whatever the rows contain.

use crate::barrier::Barrier;
use crate::call::{Kind, Posted, Sync, VARIED_FLAG, When, signature};
use crate::cma::{BufferLocation, ELSEWHERE_FLAG};
use crate::endpoint::{BlocksView, Endpoint, POISON};
use crate::flag::{INLINE_BYTES, Ticket};
use crate::reduce::Type;
use crate::rounds::copy;
use crate::shared_layout::{Cause, SLOT_COUNT};
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
            (from as usize) < to as usize + got && (to as usize) < from as usize + given
        };
        let gets_of = if self.kind == Kind::Scatter { self.root..self.root + 1 } else { 0..ranks };
        for to in if self.shares_out() { 0..ranks } else { me..me + 1 } {
            for from in gets_of.clone() {
                let (given, got) = (self.give(me, to), self.get(me, from));
                let same = std::ptr::eq(given.0, got.0) && given.1 == got.1;
                // A block that stays where it is; in an alltoall, one that the other rank's
                // replaces.
                let stays = same && (to == from || !self.shares_out() || self.kind == Kind::Scatter);
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

/// The rows of all ranks, as this rank read them.
struct Rows {
    ticket: Ticket,
    /// Words of an entry: bytes, and the location if ranks read each other's memory.
    words: usize,
    inline: bool,
    /// The most bytes of a block that goes through cells.
    most: usize,
    /// Whether other ranks read this rank's buffer.
    shows: bool,
}

impl Endpoint {
    /// Carries out a varied call; `blocks` is the value of [`Self::blocks_view`].
    ///
    /// # Safety
    /// Input and output are valid for their blocks. The call was checked.
    pub(crate) async unsafe fn carry_out_varied(
        &self,
        call: &VariedCall<'_>,
        blocks: BlocksView,
    ) -> Result<()> {
        let what = call.what();
        let signature = self.begin(signature(what, 0, call.root), what, 0, call.root, blocks)?;
        let overlap = call.overlap(self.rank, self.ranks());
        if self.is_checked() {
            if overlap == Overlap::Apart {
                for from in 0..self.ranks() {
                    let (to, bytes) = call.get(self.rank, from);
                    // SAFETY: a block of the output, by the caller's promise.
                    unsafe { std::ptr::write_bytes(to, POISON, bytes) };
                }
            }
            self.barrier(Barrier::Dissemination, signature).await?;
        } else if call.sync.enter == When::All {
            self.barrier(self.routes.barrier_by.get(), signature).await?;
        }
        let moved = self.move_blocks(call, overlap, signature).await;
        if moved.is_err() && self.buffers.pull.get() {
            self.settle();
        }
        moved?;
        if call.sync.leave == When::All {
            self.barrier(self.routes.barrier_by.get(), signature).await?;
        }
        Ok(())
    }

    async fn move_blocks(&self, call: &VariedCall<'_>, overlap: Overlap, signature: u32) -> Result<()> {
        let (me, ranks) = (self.rank, self.ranks());
        let rows = self.exchange_rows(call, overlap, signature).await?;
        if call.pairs(me, me) {
            let ((from, bytes), (to, _)) = (call.give(me, me), call.get(me, me));
            // SAFETY: both are this rank's blocks of one size; they are the same or apart.
            unsafe { std::ptr::copy(from, to, bytes) };
        }
        if rows.words == 2 {
            self.fetch_blocks(call, &rows)?;
        }
        self.pass_blocks(call, &rows, signature).await?;
        self.done();
        if rows.shows {
            for rank in (0..ranks).filter(|rank| *rank != me && call.pairs(me, *rank)) {
                self.reach(&self.area.lines(rank).done, rows.ticket, rank).await?;
            }
        }
        Ok(())
    }

    /// Posts this rank's row, and reads the others'.
    async fn exchange_rows(&self, call: &VariedCall<'_>, overlap: Overlap, signature: u32) -> Result<Rows> {
        let (me, ranks) = (self.rank, self.ranks());
        let wide = self.buffers.pull.get() && ranks as usize * 16 <= self.area.cell_bytes();
        let words = if wide { 2 } else { 1 };
        let ticket = self.next_ticket();
        let inline = ranks as usize * words * 8 <= INLINE_BYTES;
        self.vacant(ticket).await?;
        let row = self.place(me, ticket, inline).cast::<u64>();
        let (mut most, mut shows) = (0, false);
        for to in (0..ranks).filter(|to| *to != me) {
            let (address, bytes) = call.give(me, to);
            let may = wide && overlap == Overlap::Apart && self.blocks_now() && self.pulls(call.kind, bytes);
            let address = address.expose_provenance() as u64;
            let shown = if may && address & ELSEWHERE_FLAG == 0 { address | ELSEWHERE_FLAG } else { 0 };
            shows |= shown != 0;
            most = most.max(if shown == 0 { bytes } else { 0 });
            let entry = row.wrapping_add(to as usize * words);
            // SAFETY: the payload or the cell has room for a row; all ranks have finished with it.
            unsafe {
                entry.write(bytes as u64);
                if wide {
                    entry.add(1).write(shown);
                }
            }
        }
        // SAFETY: as above.
        unsafe { row.wrapping_add(me as usize * words).write(most as u64) };
        self.put(ticket, signature);
        if self.routes.central.get() {
            self.central_barrier(signature).await?;
        }
        for rank in (0..ranks).filter(|rank| *rank != me) {
            self.take(rank, ticket, signature).await?;
            let row = self.place(rank, ticket, inline).cast::<u64>();
            // SAFETY: within the row, which the rank leaves until this one has finished with it.
            let (theirs, given) = unsafe {
                (row.add(rank as usize * words).read() as usize, row.add(me as usize * words).read())
            };
            most = most.max(theirs);
            let expected = call.get(me, rank).1;
            if call.pairs(rank, me) && given != expected as u64 {
                return Err(self.differs_in_size(call, rank, given, expected));
            }
        }
        Ok(Rows { ticket, words, inline, most, shows })
    }

    /// Reads the blocks that have posted locations.
    fn fetch_blocks(&self, call: &VariedCall<'_>, rows: &Rows) -> Result<()> {
        // Each rank begins with another source, so that they do not all read from the same rank.
        for rank in (1..self.ranks()).map(|step| (self.rank + step) % self.ranks()) {
            let row = self.place(rank, rows.ticket, rows.inline).cast::<u64>();
            // SAFETY: within the row.
            let told = unsafe { row.add(self.rank as usize * rows.words + 1).read() };
            let (to, bytes) = call.get(self.rank, rank);
            if let (true, BufferLocation::There(from)) = (bytes > 0, self.told_location(told)) {
                // SAFETY: a block of the output, by the caller's promise.
                unsafe { self.fetch(rank, from, to, bytes, true) }?;
            }
        }
        Ok(())
    }

    /// Returns the location of a block that is in another process.
    fn told_location(&self, told: u64) -> BufferLocation {
        if told & ELSEWHERE_FLAG == 0 {
            BufferLocation::Nowhere
        } else {
            BufferLocation::There(told & !ELSEWHERE_FLAG)
        }
    }

    /// Passes the blocks that are not shown through cells.
    async fn pass_blocks(&self, call: &VariedCall<'_>, rows: &Rows, signature: u32) -> Result<()> {
        let (me, ranks, most) = (self.rank, self.ranks(), rows.most);
        let pieces = if call.shares_out() { ranks as usize } else { 1 };
        let inline = most.saturating_mul(pieces) <= INLINE_BYTES;
        let room = self.area.cell_bytes() / pieces;
        let stride = match room / 64 * 64 {
            _ if inline => most,
            0 => room,
            lines => lines,
        };
        // Read now: the rows' slots are written again after some rounds.
        let shown: Vec<bool> = (0..ranks).map(|rank| self.is_shown(rows, rank)).collect();
        let is_out = |to: u32| self.shows_to(rows, to);
        let out: Vec<bool> = (0..ranks).map(is_out).collect();
        let mut from = 0;
        while from < most {
            let ticket = self.next_ticket();
            let left = |bytes: usize| bytes.saturating_sub(from).min(stride);
            let given = |to: u32| if to == me || out[to as usize] { 0 } else { left(call.give(me, to).1) };
            if (0..ranks).any(|to| given(to) > 0) {
                self.vacant(ticket).await?;
                let place = self.place(me, ticket, inline);
                for to in (0..ranks).filter(|to| given(*to) > 0) {
                    let at = if call.shares_out() { to as usize * stride } else { 0 };
                    let source = call.give(me, to).0.wrapping_add(from);
                    // SAFETY: a piece of a block, for which the cell has room; all ranks have
                    // finished with it.
                    unsafe { copy(source, place.add(at), given(to)) };
                    if !call.shares_out() {
                        break;
                    }
                }
                self.put(ticket, signature);
            }
            if self.routes.central.get() {
                self.central_barrier(signature).await?;
            }
            for rank in (0..ranks).filter(|rank| *rank != me && !shown[*rank as usize]) {
                let (to, bytes) = call.get(me, rank);
                if left(bytes) > 0 {
                    self.take(rank, ticket, signature).await?;
                    let at = if call.shares_out() { me as usize * stride } else { 0 };
                    let source = self.place(rank, ticket, inline).wrapping_add(at);
                    // SAFETY: a piece within the cell, and within this rank's block.
                    unsafe { copy(source, to.wrapping_add(from), left(bytes)) };
                }
            }
            if (ticket as usize).is_multiple_of(SLOT_COUNT / 2) {
                self.done();
            }
            from += stride;
        }
        Ok(())
    }

    /// Returns whether a rank's block for this rank was read at its location.
    fn is_shown(&self, rows: &Rows, rank: u32) -> bool {
        if rows.words == 1 || rank == self.rank {
            return false;
        }
        let row = self.place(rank, rows.ticket, rows.inline).cast::<u64>();
        // SAFETY: within the row.
        let told = unsafe { row.add(self.rank as usize * rows.words + 1).read() };
        told & ELSEWHERE_FLAG != 0
    }

    /// Returns whether this rank posted the location of its block for a rank.
    fn shows_to(&self, rows: &Rows, to: u32) -> bool {
        if rows.words == 1 || to == self.rank {
            return false;
        }
        let row = self.place(self.rank, rows.ticket, rows.inline).cast::<u64>();
        // SAFETY: within this rank's own row.
        let told = unsafe { row.add(to as usize * rows.words + 1).read() };
        told & ELSEWHERE_FLAG != 0
    }

    /// Gives the team up because a rank gives a block of another size than this one expects.
    #[cold]
    fn differs_in_size(&self, call: &VariedCall<'_>, rank: u32, given: u64, expected: usize) -> Error {
        let size = call.elements.size() as u64;
        let posted = self.area.lines(rank).intent.current();
        // One more than the elements: zero means that the description names no size.
        let theirs = Posted { count: given / size + 1, ..posted };
        let ours = Posted { count: expected as u64 / size + 1, ..posted };
        self.area.lines(self.rank).finding.post(rank, theirs, ours);
        self.give_up(Cause::Mismatch, self.rank);
        crate::call::mismatch(rank, &theirs, &ours)
    }
}

//! Rounds: the steps of data movement that make up most collectives.
//!
//! **Idea.** A message that does not fit into a cell moves in *rounds*, one ticket each. In a round
//! a rank may give a piece of its block, or a piece of each of its blocks, and take the pieces of
//! one other rank, of all ranks, or of those before it. A rank waits only for the pieces it takes
//! and for the cell it is about to reuse. A rank that only gives therefore runs up to
//! [`SLOT_COUNT`] rounds ahead.
//!
//! **Resident** inputs, those in the segment, are read in place. One round before the others
//! announces their locations. A rank that gives nothing in the later rounds still counts their
//! tickets, and keeps its input unchanged until all ranks that take it have finished. Data in
//! another process ([`crate::cma`]) is taken whole before the first of these rounds.
//!
//! **Central barrier.** If ranks share CPUs, a rank that waits for each of the others in turn
//! sleeps and is woken once for each. In that case all ranks write their data, then synchronise at
//! a central barrier, with one sleep each, and read all data.

use crate::Result;
use crate::algorithm_table::Algorithm;
use crate::call::{CollectiveCall, Kind, When};
use crate::cma::BufferLocation;
use crate::endpoint::Endpoint;
use crate::flag::{INLINE_BYTES, Ticket};
use crate::shared_layout::SLOT_COUNT;

/// Data that a rank gives in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundData {
    /// Nothing.
    Nothing,
    /// A piece of its block.
    Block,
    /// A piece of each rank's block.
    Blocks,
}

/// Ranks from which a rank takes data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// None.
    Nothing,
    /// One rank.
    Of(u32),
    /// All ranks.
    All,
    /// All ranks before this one.
    Before(u32),
}

/// Use of the data that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// It is the block.
    Copies,
    /// Each rank's data is that rank's block.
    Collects,
    /// The data is combined, in the order of ranks.
    Folds,
}

/// A rank's part in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankPart {
    /// Data that it gives.
    pub gives: RoundData,
    /// Ranks from which it takes data.
    pub takes: Takes,
    /// Use of the data.
    pub uses: Uses,
    /// Whether some rank gives pieces of blocks, so that cells are shared out among ranks.
    pub shared_out: bool,
    /// Whether every rank takes from every rank, which implies that earlier rounds are finished.
    pub symmetric: bool,
    /// Whether it passes on the data that it has taken.
    pub forwards: bool,
}

/// Copies bytes, faster than a library call for data as short as a number.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]; data that another process may write meanwhile is plain
/// data.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(trimtab_model)]
    {
        crate::sync::model::touch(from, false);
        crate::sync::model::touch(to, true);
    }
    // SAFETY: by the caller's promise; unaligned accesses.
    unsafe {
        match bytes {
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

impl Takes {
    fn of(self, ranks: u32) -> std::ops::Range<u32> {
        match self {
            Self::Nothing => 0..0,
            Self::Of(rank) => rank..rank + 1,
            Self::All => 0..ranks,
            Self::Before(rank) => 0..rank,
        }
    }
}

/// Inputs in the segment.
#[derive(Debug, Clone, Copy, Default)]
struct Resident {
    /// This rank's input does.
    own: bool,
    /// The input of at least one rank from which it takes does.
    others: bool,
    /// This rank's input and those of all ranks from which it takes do.
    all: bool,
    /// The data in other processes was taken already.
    taken: bool,
}

impl Endpoint {
    /// Returns the location of a ticket's data: beside the flag if it is short enough, else in the
    /// cell.
    #[inline(always)]
    pub(crate) fn place(&self, rank: u32, ticket: Ticket, inline: bool) -> *mut u8 {
        if inline { self.area.slot(rank, ticket).payload() } else { self.area.cell(rank, ticket) }
    }

    /// Carries out a rank's part of a call. If inputs are `shown`, they may be read in place.
    pub(crate) async fn rounds(
        &self,
        call: &CollectiveCall,
        part: RankPart,
        shown: bool,
        signature: u32,
    ) -> Result<()> {
        let (ranks, block, size) = (self.ranks() as usize, call.bytes(), call.elements.size());
        let pieces = if part.shared_out { ranks } else { 1 };
        let inline = block * pieces <= INLINE_BYTES;
        let resident =
            if shown { self.announce_residents(call, part, signature).await? } else { Resident::default() };
        let room = if inline {
            INLINE_BYTES
        } else if let Algorithm::Pieces(log) = self.way(call.kind, block) {
            // A round holds at least one element for each rank.
            self.area.cell_bytes().min((1 << log).max(pieces * size))
        } else {
            self.area.cell_bytes()
        };
        // The bytes of a block that a round can carry: at least one element.
        let most = room / pieces / size * size;
        let mut from = 0;
        loop {
            let bytes = (block - from).min(most);
            let ticket = self.next_ticket();
            if !resident.own {
                self.give(call, part.gives, ticket, inline, from, bytes, signature).await?;
                if from == 0 && part.gives != RoundData::Nothing {
                    self.check_root(call.kind, call.root, ticket, signature)?;
                }
            }
            if part.symmetric && self.routes.central.get() && !resident.all {
                self.central_barrier(signature).await?;
            }
            self.take_round(call, part, resident, ticket, inline, from, bytes, signature).await?;
            if part.forwards {
                // The buffer of a broadcast is both input and output.
                self.give(call, RoundData::Block, ticket, inline, from, bytes, signature).await?;
            }
            from += bytes;
            let over = from >= block;
            // By raising a slot in each round, a rank shows which slots it has finished with.
            let says = part.symmetric && !resident.own;
            let often = over || (ticket as usize).is_multiple_of(SLOT_COUNT / 2);
            if (!says && often) || (over && resident.others) {
                self.done();
            }
            if over {
                // The caller may drop a buffer outside of the segment when the call returns.
                if resident.own && (call.sync.leave != When::None || self.offset_of(call.input) == 0) {
                    self.taken(call, ticket).await?;
                }
                return Ok(());
            }
        }
    }

    /// Carries out the round in which giving ranks announce their locations, and taking ranks read
    /// them.
    async fn announce_residents(
        &self,
        call: &CollectiveCall,
        part: RankPart,
        signature: u32,
    ) -> Result<Resident> {
        let ticket = self.next_ticket();
        let (gives, gets) = call.kind.shape(self.ranks(), call.count, self.rank == call.root);
        let size = call.elements.size();
        let mut resident = Resident::default();
        let mut written = false;
        if part.gives != RoundData::Nothing {
            let (from, to) = (call.input as usize, call.output as usize);
            let skip = self.rank as usize * call.bytes();
            // Only the rank's own block is common to both buffers, and that stays as it is.
            let stays = match call.kind {
                Kind::Allgather => from == to + skip,
                Kind::Scatter => to == from + skip,
                _ => false,
            };
            let overlaps = from < to + gets * size && to < from + gives * size;
            written = part.takes != Takes::Nothing && overlaps && !stays;
            let at = if written { 0 } else { self.place_of(call, call.input) };
            resident.own = at != 0;
            self.post_buffers(ticket, [at, 0], signature).await?;
            self.check_root(call.kind, call.root, ticket, signature)?;
        }
        if part.symmetric && self.routes.central.get() {
            self.central_barrier(signature).await?;
        }
        let mut others = true;
        for rank in part.takes.of(self.ranks()) {
            let mut location = BufferLocation::Nowhere;
            if rank != self.rank {
                self.take(rank, ticket, signature).await?;
                let blocks = if part.shared_out { self.ranks() as usize } else { 1 };
                location = self.location(self.posted_buffers(rank, ticket)[0], call.bytes() * blocks)?;
                resident.others |= location != BufferLocation::Nowhere;
                others &= location != BufferLocation::Nowhere;
            }
            self.buffers.residents.borrow_mut()[rank as usize] = location;
        }
        resident.all = resident.own && others;
        // Nothing may be written into the output before the data that this rank still gives from
        // it.
        if self.buffers.pull.get() && resident.others && !written {
            resident.taken = self.take_whole(call, part, others)?;
        }
        Ok(resident)
    }

    /// Takes all data of other processes. Returns whether it was taken: to be combined, all inputs
    /// must be `shown`.
    fn take_whole(&self, call: &CollectiveCall, part: RankPart, shown: bool) -> Result<bool> {
        let (takes, block) = (part.takes.of(self.ranks()), call.bytes());
        let skip = if part.shared_out { self.rank as usize * block } else { 0 };
        if part.uses == Uses::Folds {
            if shown {
                // SAFETY: all have blocks of `block` bytes, by their callers' promises, and so has
                // the output.
                unsafe { self.fold_shown(call, takes.end, skip, 0, block) }?;
            }
            return Ok(shown);
        }
        // Each rank begins with another source, so that they do not all read from the same rank.
        for rank in (1..self.ranks()).map(|step| (self.rank + step) % self.ranks()) {
            let location = self.buffers.residents.borrow()[rank as usize];
            if let (true, BufferLocation::There(from)) = (takes.contains(&rank), location) {
                let at = if part.uses == Uses::Collects { rank as usize * block } else { 0 };
                // SAFETY: the output has a block, or one for each rank, by the caller's promise.
                unsafe { self.fetch(rank, from + skip as u64, call.output.wrapping_add(at), block, true) }?;
            }
        }
        Ok(true)
    }

    /// Waits until all ranks that read this rank's input in place have finished.
    async fn taken(&self, call: &CollectiveCall, last: Ticket) -> Result<()> {
        let takers = match call.kind {
            Kind::Reduce | Kind::Gather => call.root..call.root + 1,
            Kind::Scan | Kind::Exscan => self.rank + 1..self.ranks(),
            _ => 0..self.ranks(),
        };
        for rank in takers.filter(|rank| *rank != self.rank) {
            self.reach(&self.area.lines(rank).done, last, rank).await?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a round, in parts")]
    async fn give(
        &self,
        call: &CollectiveCall,
        gives: RoundData,
        ticket: Ticket,
        inline: bool,
        from: usize,
        bytes: usize,
        signature: u32,
    ) -> Result<()> {
        let pieces = match gives {
            RoundData::Nothing => return Ok(()),
            RoundData::Block => 1,
            RoundData::Blocks => self.ranks() as usize,
        };
        self.vacant(ticket).await?;
        let place = self.place(self.rank, ticket, inline);
        // No rank reads this rank's own piece among the blocks for each rank.
        let unread = if gives == RoundData::Blocks { self.rank as usize } else { usize::MAX };
        for piece in (0..pieces).filter(|piece| *piece != unread) {
            // SAFETY: the input has `pieces` blocks, by the caller's promise, and the cell has room
            // for a piece of each; all ranks have finished with it.
            unsafe { copy(call.input.add(piece * call.bytes() + from), place.add(piece * bytes), bytes) };
        }
        self.put(ticket, signature);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a round, in parts")]
    async fn take_round(
        &self,
        call: &CollectiveCall,
        part: RankPart,
        resident: Resident,
        ticket: Ticket,
        inline: bool,
        from: usize,
        bytes: usize,
        signature: u32,
    ) -> Result<()> {
        let ranks = part.takes.of(self.ranks());
        // The piece for this rank among those that a rank gives.
        let piece = if part.shared_out { self.rank as usize * bytes } else { 0 };
        let count = ranks.len();
        for rank in ranks {
            let own = rank == self.rank;
            let location = if resident.others {
                self.buffers.residents.borrow()[rank as usize]
            } else {
                BufferLocation::Nowhere
            };
            if resident.taken && matches!(location, BufferLocation::There(_)) {
                continue;
            }
            let block = if part.shared_out { self.rank as usize * call.bytes() } else { 0 };
            let data = if own {
                call.input.wrapping_add(block + from)
            } else if let BufferLocation::Here(location) = location {
                location.wrapping_add(block + from).cast_const()
            } else if let BufferLocation::There(location) = location {
                let mut scratch = self.buffers.scratch.borrow_mut();
                scratch.resize(self.ranks() as usize * self.area.cell_bytes() / 8, 0);
                let to = scratch.as_mut_ptr().cast::<u8>();
                let to = to.wrapping_add(rank as usize * self.area.cell_bytes());
                let last = from + bytes == call.bytes();
                // SAFETY: the scratch has room for the contents of a cell of each rank.
                unsafe { self.fetch(rank, location + (block + from) as u64, to, bytes, last) }?;
                to.cast_const()
            } else {
                self.take(rank, ticket, signature).await?;
                // SAFETY: within the cell, which has room for a piece of each rank.
                unsafe { self.place(rank, ticket, inline).add(piece) }
            };
            // For a call in place, a rank's own part is already at its destination.
            let there = call.output.wrapping_add(
                if part.uses == Uses::Collects { rank as usize * call.bytes() } else { 0 } + from,
            );
            match part.uses {
                Uses::Copies | Uses::Collects if std::ptr::eq(data, there) => {}
                Uses::Copies | Uses::Collects if matches!(location, BufferLocation::Here(_)) => {
                    let _touch = self.touch()?;
                    // SAFETY: as below. A rank with false locations may have posted bytes that
                    // overlap with this rank's output.
                    unsafe { std::ptr::copy(data, there, bytes) };
                }
                // SAFETY: the output has one block, by the caller's promise.
                Uses::Copies => unsafe { copy(data, call.output.add(from), bytes) },
                // SAFETY: the output has a block for each rank, by the caller's promise.
                Uses::Collects => unsafe {
                    copy(data, call.output.add(rank as usize * call.bytes() + from), bytes)
                },
                Uses::Folds => self.buffers.sources.borrow_mut()[rank as usize] = data,
            }
        }
        if part.uses == Uses::Folds
            && !resident.taken
            && count > 0
            && let Some(kernel) = &call.kernel
        {
            let _touch = if resident.others { Some(self.touch()?) } else { None };
            let sources = self.buffers.sources.borrow();
            // SAFETY: all have `bytes` bytes, by the arguments above; the output belongs to this
            // rank.
            unsafe {
                kernel.fold(call.output.wrapping_add(from), &sources[..count], bytes / call.elements.size());
            }
        }
        Ok(())
    }
}

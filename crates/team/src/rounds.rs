//! Moving data in rounds: what most collectives are made of.
//!
//! **Idea.** A message that does not fit into a cell goes in *rounds*, one ticket each. In a round a rank may give a piece of its block, or a
//! piece of each of its blocks, and take what one other, all, or those before it gave. Nobody waits for more than what it takes and for
//! the cell it is about to use again, so whoever only gives runs up to [`SLOTS`] rounds ahead.
//!
//! **Resident** inputs, those that lie in the segment, are taken from where they are. One round before the others says where that is;
//! who gives nothing in the others counts their tickets all the same, and keeps its input as it is until all who take it have done. What lies in
//! another process ([`crate::cma`]) is taken whole before the first of them.
//!
//! **At a centre.** Where ranks share processors, who waits for each of the others in turn sleeps and is woken as often. There all give, then
//! meet as at a central barrier, one sleep each, and find everything there.

use crate::Result;
use crate::algorithm_table::Algorithm;
use crate::call::{Call, Kind, When};
use crate::cma::BufferLocation;
use crate::endpoint::Endpoint;
use crate::flag::{INLINE, Ticket};
use crate::shared_layout::SLOTS;

/// What a rank gives in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// Nothing.
    Nothing,
    /// A piece of its block.
    Block,
    /// A piece of each rank's block.
    Blocks,
}

/// Whose it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nobody's.
    Nothing,
    /// One rank's.
    Of(u32),
    /// All ranks'.
    All,
    /// Those of ranks up to and with this one.
    UpTo(u32),
}

/// What becomes of what is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// It is the block.
    Copies,
    /// Each is its rank's block.
    Collects,
    /// They are combined, in the order of ranks.
    Folds,
}

/// A rank's part in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// See there.
    pub gives: Gives,
    /// See there.
    pub takes: Takes,
    /// See there.
    pub uses: Uses,
    /// Whether some rank gives pieces of blocks, so that cells are shared out among ranks.
    pub shared_out: bool,
    /// Whether every rank takes what every rank gives, which says by itself that earlier rounds are done with.
    pub symmetric: bool,
    /// Whether it hands on what it has taken.
    pub forwards: bool,
}

/// Copies, quicker than a call for what is as short as a number.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]; what another process may write meanwhile is plain data.
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
            Self::UpTo(rank) => 0..rank + 1,
        }
    }
}

/// Whose inputs lie in the segment.
#[derive(Debug, Clone, Copy, Default)]
struct Resident {
    /// This rank's.
    own: bool,
    /// That of one at least from whom it takes.
    others: bool,
    /// This rank's, and those of all from whom it takes.
    all: bool,
    /// What lies in other processes was taken already.
    taken: bool,
}

impl Endpoint {
    /// Where the data of a ticket are: beside the flag if they are as short, else in the cell.
    #[inline(always)]
    pub(crate) fn place(&self, rank: u32, ticket: Ticket, inline: bool) -> *mut u8 {
        if inline { self.area.slot(rank, ticket).payload() } else { self.area.cell(rank, ticket) }
    }

    /// Carries out a rank's part of a call. Where inputs are `shown` they may be taken from where they lie.
    pub(crate) async fn rounds(&self, call: &Call, part: Part, shown: bool, signature: u32) -> Result<()> {
        let (ranks, block, size) = (self.ranks() as usize, call.bytes(), call.elements.size());
        let pieces = if part.shared_out { ranks } else { 1 };
        let inline = block * pieces <= INLINE;
        let resident =
            if shown { self.tell_residents(call, part, signature).await? } else { Resident::default() };
        let room = if inline {
            INLINE
        } else if let Algorithm::Pieces(log) = self.way(call.kind, block) {
            // An element for each rank goes in a round at least.
            self.area.cell_bytes().min((1 << log).max(pieces * size))
        } else {
            self.area.cell_bytes()
        };
        // As many bytes of a block as a round can carry, and at least one element.
        let most = room / pieces / size * size;
        let mut from = 0;
        loop {
            let bytes = (block - from).min(most);
            let ticket = self.next_ticket();
            if !resident.own {
                self.give(call, part.gives, ticket, inline, from, bytes, signature).await?;
            }
            if part.symmetric && self.routes.central.get() && !resident.all {
                self.meet(signature).await?;
            }
            self.take_round(call, part, resident, ticket, inline, from, bytes, signature).await?;
            if part.forwards {
                // The buffer of a broadcast is both.
                self.give(call, Gives::Block, ticket, inline, from, bytes, signature).await?;
            }
            from += bytes;
            let over = from >= block;
            // Who raises a slot in each round says by that what it has done with.
            let says = part.symmetric && !resident.own;
            let often = over || (ticket as usize).is_multiple_of(SLOTS / 2);
            if (!says && often) || (over && resident.others) {
                self.done();
            }
            if over {
                // What is the caller's alone it may drop when the call returns.
                if resident.own && (call.sync.leave != When::None || self.offset_of(call.input) == 0) {
                    self.taken(call, ticket).await?;
                }
                return Ok(());
            }
        }
    }

    /// A round in which those who give tell where, and those who take from them look.
    async fn tell_residents(&self, call: &Call, part: Part, signature: u32) -> Result<Resident> {
        let ticket = self.next_ticket();
        let (gives, gets) = call.kind.shape(self.ranks(), call.count, self.rank == call.root);
        let size = call.elements.size();
        let mut resident = Resident::default();
        let mut written = false;
        if part.gives != Gives::Nothing {
            let (from, to) = (call.input as usize, call.output as usize);
            written = part.takes != Takes::Nothing && from < to + gets * size && to < from + gives * size;
            let at = if written { 0 } else { self.place_of(call, call.input) };
            resident.own = at != 0;
            self.tell(ticket, [at, 0], signature).await?;
        }
        if part.symmetric && self.routes.central.get() {
            self.meet(signature).await?;
        }
        let mut others = true;
        for rank in part.takes.of(self.ranks()) {
            let mut lies = BufferLocation::Nowhere;
            if rank != self.rank {
                self.take(rank, ticket, signature).await?;
                let blocks = if part.shared_out { self.ranks() as usize } else { 1 };
                lies = self.lies(self.told(rank, ticket)[0], call.bytes() * blocks)?;
                resident.others |= lies != BufferLocation::Nowhere;
                others &= lies != BufferLocation::Nowhere;
            }
            self.buffers.residents.borrow_mut()[rank as usize] = lies;
        }
        resident.all = resident.own && others;
        // Nothing else is to come into the output before what this rank still gives of it.
        if self.buffers.pull.get() && resident.others && !written {
            resident.taken = self.take_whole(call, part, others)?;
        }
        Ok(resident)
    }

    /// Takes what lies in other processes, all of it. Answers whether that was done; to be combined, everything must be `shown`.
    fn take_whole(&self, call: &Call, part: Part, shown: bool) -> Result<bool> {
        let (takes, block) = (part.takes.of(self.ranks()), call.bytes());
        let skip = if part.shared_out { self.rank as usize * block } else { 0 };
        if part.uses == Uses::Folds {
            if shown {
                // SAFETY: all have blocks of so many bytes, by their callers' promises, and so has the output.
                unsafe { self.fold_shown(call, takes.end, skip, 0, block) }?;
            }
            return Ok(shown);
        }
        // Each begins with another, so that they are not all in one's way.
        for rank in (1..self.ranks()).map(|step| (self.rank + step) % self.ranks()) {
            let lies = self.buffers.residents.borrow()[rank as usize];
            if let (true, BufferLocation::There(from)) = (takes.contains(&rank), lies) {
                let at = if part.uses == Uses::Collects { rank as usize * block } else { 0 };
                // SAFETY: the output has a block, or one for each rank, by the caller's promise.
                unsafe { self.fetch(rank, from + skip as u64, call.output.wrapping_add(at), block, true) }?;
            }
        }
        Ok(true)
    }

    /// Waits until all who take this rank's input where it lies have done with it.
    async fn taken(&self, call: &Call, last: Ticket) -> Result<()> {
        let takers = match call.kind {
            Kind::Reduce | Kind::Gather => call.root..call.root + 1,
            Kind::Scan => self.rank + 1..self.ranks(),
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
        call: &Call,
        gives: Gives,
        ticket: Ticket,
        inline: bool,
        from: usize,
        bytes: usize,
        signature: u32,
    ) -> Result<()> {
        let pieces = match gives {
            Gives::Nothing => return Ok(()),
            Gives::Block => 1,
            Gives::Blocks => self.ranks() as usize,
        };
        self.vacant(ticket).await?;
        let place = self.place(self.rank, ticket, inline);
        // Of blocks for each, nobody reads this rank's own piece.
        let unread = if gives == Gives::Blocks { self.rank as usize } else { usize::MAX };
        for piece in (0..pieces).filter(|piece| *piece != unread) {
            // SAFETY: the input has `pieces` blocks, by the caller's promise, and the cell room for a piece of each; all have done with it.
            unsafe { copy(call.input.add(piece * call.bytes() + from), place.add(piece * bytes), bytes) };
        }
        self.put(ticket, signature);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a round, in parts")]
    async fn take_round(
        &self,
        call: &Call,
        part: Part,
        resident: Resident,
        ticket: Ticket,
        inline: bool,
        from: usize,
        bytes: usize,
        signature: u32,
    ) -> Result<()> {
        let ranks = part.takes.of(self.ranks());
        // Of the pieces that a rank gives, the one that is this rank's.
        let piece = if part.shared_out { self.rank as usize * bytes } else { 0 };
        let count = ranks.len();
        for rank in ranks {
            let own = rank == self.rank;
            let lies = if resident.others {
                self.buffers.residents.borrow()[rank as usize]
            } else {
                BufferLocation::Nowhere
            };
            if resident.taken && matches!(lies, BufferLocation::There(_)) {
                continue;
            }
            let block = if part.shared_out { self.rank as usize * call.bytes() } else { 0 };
            let data = if own {
                call.input.wrapping_add(block + from)
            } else if let BufferLocation::Here(lies) = lies {
                lies.wrapping_add(block + from).cast_const()
            } else if let BufferLocation::There(lies) = lies {
                let mut scratch = self.buffers.scratch.borrow_mut();
                scratch.resize(self.ranks() as usize * self.area.cell_bytes() / 8, 0);
                let to = scratch.as_mut_ptr().cast::<u8>();
                let to = to.wrapping_add(rank as usize * self.area.cell_bytes());
                let last = from + bytes == call.bytes();
                // SAFETY: the scratch has room for what goes into a cell, of each rank.
                unsafe { self.fetch(rank, lies + (block + from) as u64, to, bytes, last) }?;
                to.cast_const()
            } else {
                self.take(rank, ticket, signature).await?;
                // SAFETY: within the cell, which has room for a piece of each rank.
                unsafe { self.place(rank, ticket, inline).add(piece) }
            };
            // In place, a rank's own part is where it belongs.
            let there = call.output.wrapping_add(
                if part.uses == Uses::Collects { rank as usize * call.bytes() } else { 0 } + from,
            );
            match part.uses {
                Uses::Copies | Uses::Collects if std::ptr::eq(data, there) => {}
                Uses::Copies | Uses::Collects if matches!(lies, BufferLocation::Here(_)) => {
                    let _touch = self.touch()?;
                    // SAFETY: as below. A rank that lies may have told of bytes that overlap with our output.
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
            && let Some(kernel) = &call.kernel
        {
            let _touch = if resident.others { Some(self.touch()?) } else { None };
            let sources = self.buffers.sources.borrow();
            // SAFETY: all have `bytes` bytes, by what is said above; the output is no other's.
            unsafe {
                kernel.fold(call.output.wrapping_add(from), &sources[..count], bytes / call.elements.size());
            }
        }
        Ok(())
    }
}

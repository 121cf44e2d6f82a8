//! Collectives: the choice of the algorithm that carries out a call, and the algorithms that are
//! more than rounds.
//!
//! **Small** messages are stored beside the flag: a rank that sees the flag has the data.
//! **Medium** ones go through a cell. **Large** ones are combined in slices, each rank its own,
//! while the next piece is staged; or, if all ranks' buffers are in the segment (*resident*),
//! directly from there, without a copy. Every combination is in the order of ranks, so all
//! algorithms give the same bits on all ranks.

use crate::algorithm_table::Algorithm;
use crate::barrier::Barrier;
use crate::cache_groups;
use crate::call::{CollectiveCall, Kind, When, signature};
use crate::cma::BufferLocation;
use crate::endpoint::{BlocksView, Endpoint};
use crate::flag::{INLINE_BYTES, Ticket};
use crate::rounds::{RankPart, RoundData, Takes, Uses, copy};
use crate::shared_layout::CELL_COUNT;
use crate::{Error, Result};

/// Least size of a block, in bytes, from which ranks announce the locations of their buffers.
pub const RESIDENT_BYTES_MIN: usize = 16 << 10;
/// Number of tickets that other ranks may still be reading when a slot is raised, if a piece is
/// staged while the previous piece is in use: two pieces staged and one combined.
const LAG_TICKETS: u32 = 3;
/// Bytes combined at a time, so that they stay in the nearest cache.
const FOLD_BYTES: usize = 8 << 10;

/// Returns a rank's part, for calls that consist of rounds.
fn part(call: &CollectiveCall, me: u32) -> RankPart {
    let (kind, root, at_root) = (call.kind, call.root, me == call.root);
    let part = |gives, takes, uses| RankPart {
        gives,
        takes,
        uses,
        shared_out: false,
        symmetric: false,
        forwards: false,
    };
    match kind {
        Kind::Broadcast if at_root => part(RoundData::Block, Takes::Nothing, Uses::Copies),
        Kind::Broadcast | Kind::Barrier => part(RoundData::Nothing, Takes::Of(root), Uses::Copies),
        // The root takes its own data directly from its input.
        Kind::Reduce if at_root => part(RoundData::Nothing, Takes::All, Uses::Folds),
        Kind::Gather if at_root => part(RoundData::Nothing, Takes::All, Uses::Collects),
        Kind::Reduce | Kind::Gather => part(RoundData::Block, Takes::Nothing, Uses::Copies),
        Kind::Allreduce => RankPart { symmetric: true, ..part(RoundData::Block, Takes::All, Uses::Folds) },
        Kind::Allgather => RankPart { symmetric: true, ..part(RoundData::Block, Takes::All, Uses::Collects) },
        Kind::Alltoall => RankPart {
            symmetric: true,
            shared_out: true,
            ..part(RoundData::Blocks, Takes::All, Uses::Collects)
        },
        Kind::ReduceScatter => {
            RankPart { symmetric: true, shared_out: true, ..part(RoundData::Blocks, Takes::All, Uses::Folds) }
        }
        Kind::Scatter if at_root => {
            RankPart { shared_out: true, ..part(RoundData::Blocks, Takes::Of(root), Uses::Copies) }
        }
        Kind::Scatter => {
            RankPart { shared_out: true, ..part(RoundData::Nothing, Takes::Of(root), Uses::Copies) }
        }
        Kind::Scan => part(RoundData::Block, Takes::Before(me + 1), Uses::Folds),
        Kind::Exscan => part(RoundData::Block, Takes::Before(me), Uses::Folds),
    }
}

impl Endpoint {
    /// Waits until all ranks have reached the barrier.
    #[inline(always)]
    pub async fn barrier_call(&self, blocks: BlocksView) -> Result<()> {
        const BARRIER_WHAT: u64 = Kind::Barrier as u64;
        self.pay_rounds().await?;
        let signature = self.begin(signature(BARRIER_WHAT, 0, 0), BARRIER_WHAT, 0, 0, blocks)?;
        let by = if self.is_checked() { Barrier::Dissemination } else { self.routes.barrier_by.get() };
        self.barrier(by, signature).await
    }

    /// Carries out a call; `blocks` is the value of [`Self::blocks_view`] when the call was made.
    ///
    /// # Safety
    /// `input` and `output` are valid for the lengths of [`Kind::shape`], until the call is over.
    #[inline(always)]
    pub async unsafe fn carry_out(&self, call: &CollectiveCall, blocks: BlocksView) -> Result<()> {
        if call.kind == Kind::Barrier {
            return self.barrier_call(blocks).await;
        }
        self.pay_rounds().await?;
        let signature = self.begin(call.signature(), call.what(), call.count as u64, call.root, blocks)?;
        if self.is_checked() {
            // SAFETY: the caller's promise.
            unsafe { self.poison(call) };
            self.barrier(Barrier::Dissemination, signature).await?;
        } else if call.sync.enter == When::All {
            self.barrier(self.routes.barrier_by.get(), signature).await?;
        }
        let shown = (blocks.any && call.bytes() >= RESIDENT_BYTES_MIN) || self.pulls(call.kind, call.bytes());
        let moved = self.move_data(call, shown, signature).await;
        if moved.is_err() && shown {
            self.settle();
        }
        moved?;
        if call.sync.leave == When::All {
            self.barrier(self.routes.barrier_by.get(), signature).await?;
        }
        Ok(())
    }

    #[inline(always)]
    async fn move_data(&self, call: &CollectiveCall, shown: bool, signature: u32) -> Result<()> {
        match call.kind {
            Kind::Broadcast if call.bytes() <= INLINE_BYTES => self.broadcast_inline(call, signature).await,
            Kind::Allreduce if shown => self.allreduce_large(call, signature).await,
            Kind::Allreduce if call.bytes() <= self.area.cell_bytes() => {
                self.allreduce_flat(call, signature).await
            }
            Kind::Allreduce => self.allreduce_staged(call, signature).await,
            Kind::Broadcast => self.rounds(call, self.broadcast_part(call, shown), shown, signature).await,
            _ => self.rounds(call, part(call, self.rank), shown, signature).await,
        }
    }

    #[inline(always)]
    async fn broadcast_inline(&self, call: &CollectiveCall, signature: u32) -> Result<()> {
        let ticket = self.next_ticket();
        if self.rank == call.root {
            self.vacant(ticket).await?;
            // SAFETY: no longer than a payload; all ranks have finished with the slot.
            unsafe { copy(call.input, self.area.slot(self.rank, ticket).payload(), call.bytes()) };
            self.put(ticket, signature);
            return self.check_root(call.kind, call.root, ticket, signature);
        }
        self.take(call.root, ticket, signature).await?;
        // SAFETY: the root filled that many bytes of its payload, and waits for `done` before it
        // does so again.
        unsafe { copy(self.area.slot(call.root, ticket).payload(), call.output, call.bytes()) };
        self.done();
        Ok(())
    }

    /// Returns a rank's part in a broadcast of more than a few bytes.
    fn broadcast_part(&self, call: &CollectiveCall, shown: bool) -> RankPart {
        let part = part(call, self.rank);
        let (me, root, ranks) = (self.rank, call.root, self.ranks());
        let relay = match self.way(Kind::Broadcast, call.bytes()) {
            // All ranks read it in place.
            _ if shown => return part,
            Algorithm::Tree(log) => cache_groups::tree(log, me, root, ranks),
            Algorithm::Relayed if self.routes.groups.borrow().are_any() => {
                self.routes.groups.borrow().relay(me, root)
            }
            _ => return part,
        };
        match relay.parent {
            Some(parent) => RankPart { takes: Takes::Of(parent), forwards: relay.forwards, ..part },
            None => part,
        }
    }

    /// Announces the offsets of this rank's buffers in the segment, in the payload of a ticket;
    /// zero if they are not in the segment.
    pub(crate) async fn post_buffers(&self, ticket: Ticket, ours: [u64; 2], signature: u32) -> Result<()> {
        self.vacant(ticket).await?;
        let payload = self.area.slot(self.rank, ticket).payload().cast::<[u64; 2]>();
        // SAFETY: 16 bytes of the payload, which is aligned to 16 bytes; all ranks have finished
        // with the slot.
        unsafe { payload.write(ours) };
        self.put(ticket, signature);
        Ok(())
    }

    /// Returns the offsets of the buffers that a rank announced; zero if they are not in the
    /// segment.
    pub(crate) fn posted_buffers(&self, rank: u32, ticket: Ticket) -> [u64; 2] {
        // SAFETY: as above, and this ticket's flag was seen.
        unsafe { self.area.slot(rank, ticket).payload().cast::<[u64; 2]>().read() }
    }

    #[inline(always)]
    async fn allreduce_flat(&self, call: &CollectiveCall, signature: u32) -> Result<()> {
        let (ticket, bytes) = (self.next_ticket(), call.bytes());
        let inline = bytes <= INLINE_BYTES;
        self.vacant(ticket).await?;
        // SAFETY: no longer than a payload, or a cell; all ranks have finished with it.
        unsafe { copy(call.input, self.place(self.rank, ticket, inline), bytes) };
        self.put(ticket, signature);
        if self.routes.central.get() {
            self.central_barrier(signature).await?;
        }
        for rank in 0..self.ranks() {
            if rank != self.rank {
                self.take(rank, ticket, signature).await?;
            }
        }
        let mut sources = self.buffers.sources.borrow_mut();
        for (rank, source) in (0..).zip(sources.iter_mut()) {
            *source = self.place(rank, ticket, inline);
        }
        if let Some(kernel) = &call.kernel {
            // SAFETY: all hold `bytes` bytes until this rank raises its next slot; the output is
            // the caller's.
            unsafe { kernel.fold(call.output, &sources, call.count) };
        }
        Ok(())
    }

    async fn allreduce_large(&self, call: &CollectiveCall, signature: u32) -> Result<()> {
        let ticket = self.next_ticket();
        let ours = [self.place_of(call, call.input), self.place_of(call, call.output)];
        self.post_buffers(ticket, ours, signature).await?;
        if self.routes.central.get() {
            self.central_barrier(signature).await?;
        }
        let (mut shown, mut elsewhere) = (true, false);
        for rank in 0..self.ranks() {
            if rank != self.rank {
                self.take(rank, ticket, signature).await?;
            }
            let [input, output] = self.posted_buffers(rank, ticket);
            shown &= input != 0 && output != 0;
            elsewhere |= self.is_elsewhere(input) || self.is_elsewhere(output);
        }
        if shown && elsewhere {
            self.allreduce_pulled(call, ticket, signature).await
        } else if shown {
            self.allreduce_resident(call, ticket, signature).await
        } else {
            self.allreduce_staged(call, signature).await
        }
    }

    /// Combines through cells, by the algorithm of the table.
    #[inline(always)]
    async fn allreduce_staged(&self, call: &CollectiveCall, signature: u32) -> Result<()> {
        match self.way(Kind::Allreduce, call.bytes()) {
            Algorithm::Slices(log) => self.allreduce_slices(call, 1 << log, signature).await,
            Algorithm::Wide => self.allreduce_wide(call, signature).await,
            Algorithm::Whole if call.bytes() <= self.area.cell_bytes() => {
                self.allreduce_flat(call, signature).await
            }
            _ => self.rounds(call, part(call, self.rank), false, signature).await,
        }
    }

    /// Returns the begin and end of a rank's slice of `bytes` bytes, in whole lines.
    fn slice(&self, rank: u32, bytes: usize) -> (usize, usize) {
        let each = bytes.div_ceil(self.ranks() as usize).next_multiple_of(64);
        let from = (rank as usize * each).min(bytes);
        (from, (from + each).min(bytes))
    }

    /// Each rank combines its slice directly from all inputs, and writes it into all outputs.
    async fn allreduce_resident(&self, call: &CollectiveCall, told: Ticket, signature: u32) -> Result<()> {
        let (bytes, size) = (call.bytes(), call.elements.size());
        let ranks = self.ranks();
        let mut outputs = Vec::with_capacity(ranks as usize);
        {
            let mut sources = self.buffers.sources.borrow_mut();
            for rank in 0..ranks {
                let [input, output] = self.posted_buffers(rank, told);
                sources[rank as usize] = self.resident(input, bytes)?;
                outputs.push(self.resident(output, bytes)?);
            }
            let (begin, end) = self.slice(self.rank, bytes);
            for source in sources.iter_mut() {
                *source = source.wrapping_add(begin);
            }
            let _touch = self.touch()?;
            let mut block = [0_u64; FOLD_BYTES / 8];
            let block = block.as_mut_ptr().cast::<u8>();
            let mut from = begin;
            while from < end
                && let Some(kernel) = &call.kernel
            {
                let bytes = (end - from).min(FOLD_BYTES);
                // SAFETY: slices are within all buffers, which are within the segment; no other
                // rank reads or writes this slice now.
                unsafe {
                    kernel.fold(block, &sources, bytes / size);
                    for output in &outputs {
                        std::ptr::copy_nonoverlapping(block, output.add(from), bytes);
                    }
                }
                for source in sources.iter_mut() {
                    *source = source.wrapping_add(bytes);
                }
                from += bytes;
            }
        }
        // All slices of this rank's output are written when all ranks have raised their slots.
        let ticket = self.next_ticket();
        self.vacant(ticket).await?;
        self.put(ticket, signature);
        if self.routes.central.get() {
            self.central_barrier(signature).await?;
        }
        for rank in (0..ranks).filter(|rank| *rank != self.rank) {
            self.take(rank, ticket, signature).await?;
        }
        Ok(())
    }

    /// Each rank reads its slice of all inputs and combines it, and then reads the other
    /// ranks' slices from their outputs.
    async fn allreduce_pulled(&self, call: &CollectiveCall, told: Ticket, signature: u32) -> Result<()> {
        let (bytes, ranks) = (call.bytes(), self.ranks());
        let mut outputs = Vec::with_capacity(ranks as usize);
        for rank in 0..ranks {
            let [input, output] = self.posted_buffers(rank, told);
            self.buffers.residents.borrow_mut()[rank as usize] = self.location(input, bytes)?;
            outputs.push(self.location(output, bytes)?);
        }
        let (begin, end) = self.slice(self.rank, bytes);
        // SAFETY: slices are within all buffers; this slice is written only in this rank's own
        // output, which others do not read yet.
        unsafe { self.fold_shown(call, ranks, 0, begin, end) }?;
        let combined = self.next_ticket();
        self.vacant(combined).await?;
        self.put(combined, signature);
        if self.routes.central.get() {
            self.central_barrier(signature).await?;
        }
        for rank in (1..ranks).map(|step| (self.rank + step) % ranks) {
            // If the output is the input, only that rank needed this slice of it.
            self.take(rank, combined, signature).await?;
            let (begin, end) = self.slice(rank, bytes);
            let to = call.output.wrapping_add(begin);
            match outputs[rank as usize].add(begin) {
                // SAFETY: a slice is within both buffers, which belong to different ranks; a rank
                // with false locations may have posted this rank's own.
                BufferLocation::Here(from) => unsafe { std::ptr::copy(from, to, end - begin) },
                // SAFETY: a slice is within the output.
                BufferLocation::There(from) => unsafe { self.fetch(rank, from, to, end - begin, true) }?,
                BufferLocation::Nowhere => return Err(Error::Revoked(self.rank)),
            }
        }
        self.done();
        // Outputs are read until all ranks have announced that they have finished.
        if self.routes.central.get() {
            return self.central_barrier(signature).await;
        }
        for rank in (0..ranks).filter(|rank| *rank != self.rank) {
            self.reach(&self.area.lines(rank).done, combined, rank).await?;
        }
        Ok(())
    }

    /// Piece by piece: all ranks stage it, each combines its slice, all copy all slices. The next
    /// piece is staged before this one is waited for.
    async fn allreduce_slices(&self, call: &CollectiveCall, most: usize, signature: u32) -> Result<()> {
        let (bytes, size) = (call.bytes(), call.elements.size());
        let ranks = self.ranks();
        let mut staged = self.next_ticket();
        self.stage(call, staged, 0, bytes.min(most), signature).await?;
        if self.routes.central.get() {
            self.central_barrier(signature).await?;
        }
        let mut from = 0;
        while from < bytes {
            let piece = (bytes - from).min(most);
            let now = staged;
            let after = from + piece;
            if after < bytes {
                staged = self.next_ticket();
                self.stage(call, staged, after, (bytes - after).min(most), signature).await?;
            }
            let (begin, end) = self.slice(self.rank, piece);
            for rank in 0..ranks {
                if rank != self.rank {
                    self.take_lagging(rank, now, signature, LAG_TICKETS).await?;
                }
                let own = rank == self.rank;
                self.buffers.sources.borrow_mut()[rank as usize] = if own {
                    call.input.wrapping_add(from + begin)
                } else {
                    self.area.cell(rank, now).wrapping_add(begin)
                };
            }
            let combined = self.next_ticket();
            self.vacant(combined).await?;
            if let Some(kernel) = &call.kernel {
                let sources = self.buffers.sources.borrow();
                // SAFETY: slices are within cells; this rank's cell of this ticket is vacant.
                unsafe {
                    kernel.fold(
                        self.area.cell(self.rank, combined).add(begin),
                        &sources,
                        (end - begin) / size,
                    )
                };
            }
            self.put(combined, signature);
            if self.routes.central.get() {
                // When all ranks have arrived, the next piece is staged, too.
                self.central_barrier(signature).await?;
            }
            for rank in 0..ranks {
                if rank != self.rank {
                    self.take_lagging(rank, combined, signature, LAG_TICKETS).await?;
                }
                let (begin, end) = self.slice(rank, piece);
                // SAFETY: slices are within cells and within the piece; the output has all pieces.
                unsafe {
                    copy(
                        self.area.cell(rank, combined).add(begin),
                        call.output.add(from + begin),
                        end - begin,
                    );
                }
            }
            from = after;
        }
        Ok(())
    }

    /// Works in pieces that fill all cells but those for the combined slice. All ranks synchronise
    /// when a piece is staged, and when it is combined.
    async fn allreduce_wide(&self, call: &CollectiveCall, signature: u32) -> Result<()> {
        let (bytes, size, cell) = (call.bytes(), call.elements.size(), self.area.cell_bytes());
        let ranks = self.ranks();
        let combined = CELL_COUNT.div_ceil(ranks as usize + 1);
        let stage = (CELL_COUNT - combined) * cell;
        let most = stage.min(combined * cell * ranks as usize);
        // No rank reads this rank's cells any more once all have announced it; from here on they
        // are this call's.
        self.done();
        (0..CELL_COUNT).for_each(|_| {
            self.next_ticket();
        });
        self.barrier(self.routes.barrier_by.get(), signature).await?;
        let cells = |rank: u32| self.area.cell(rank, 0);
        let mut from = 0;
        while from < bytes {
            let piece = (bytes - from).min(most);
            let (begin, end) = self.slice(self.rank, piece);
            let (input, own) = (call.input.wrapping_add(from), cells(self.rank));
            // SAFETY: within the input; no more than the cells of the stage, which no rank reads
            // before the barrier.
            unsafe {
                copy(input, own, begin);
                copy(input.add(end), own.add(end), piece - end);
            }
            self.barrier(self.routes.barrier_by.get(), signature).await?;
            {
                let mut sources = self.buffers.sources.borrow_mut();
                for (rank, source) in (0..).zip(sources.iter_mut()) {
                    let base = if rank == self.rank { input } else { cells(rank).cast_const() };
                    *source = base.wrapping_add(begin);
                }
                if let Some(kernel) = &call.kernel {
                    // SAFETY: a slice is no longer than the cells behind the stage; all ranks that
                    // read them have come to the barrier.
                    unsafe { kernel.fold(own.add(stage), &sources, (end - begin) / size) };
                }
            }
            self.barrier(self.routes.barrier_by.get(), signature).await?;
            for rank in 0..ranks {
                let (begin, end) = self.slice(rank, piece);
                // SAFETY: as above; the output has all pieces.
                unsafe { copy(cells(rank).add(stage), call.output.add(from + begin), end - begin) };
            }
            from += piece;
        }
        self.done();
        Ok(())
    }

    async fn stage(
        &self,
        call: &CollectiveCall,
        ticket: Ticket,
        from: usize,
        bytes: usize,
        signature: u32,
    ) -> Result<()> {
        self.vacant(ticket).await?;
        // No other rank reads this rank's own slice.
        let (begin, end) = self.slice(self.rank, bytes);
        let (input, cell) = (call.input.wrapping_add(from), self.area.cell(self.rank, ticket));
        // SAFETY: within the input, and no more than a cell, which all ranks have finished with.
        unsafe {
            copy(input, cell, begin);
            copy(input.add(end), cell.add(end), bytes - end);
        }
        self.put(ticket, signature);
        Ok(())
    }
}

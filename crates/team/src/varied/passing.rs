//! Passing of a varied call's blocks: the first ticket, with the rows, further rounds, and blocks
//! that are read at their location.

use super::row::{BESIDE, Layout, read_word, write_word};
use super::{Overlap, VariedCall};
use crate::barrier::Barrier;
use crate::call::{Kind, Posted, When, signature};
use crate::cma::ELSEWHERE_FLAG;
use crate::endpoint::{BlocksView, Endpoint, OwedRounds, POISON};
use crate::flag::{INLINE_BYTES, Ticket, reached};
use crate::rounds::copy;
use crate::shared_layout::{Cause, SLOT_COUNT};
use crate::{Error, Result};

/// Returns whether a rank's block comes through cells, by the locations that were told.
fn is_in_cells(told: &[u64], rank: u32) -> bool {
    told.get(rank as usize).is_none_or(|location| *location == 0)
}

/// A call on its way.
struct Passing<'a> {
    call: &'a VariedCall<'a>,
    overlap: Overlap,
    layout: Layout,
    /// The ticket of the rows.
    begin: Ticket,
    signature: u32,
}

impl Endpoint {
    /// Carries out a varied call; `blocks` is the value of [`Self::blocks_view`].
    ///
    /// # Safety
    /// Input and output are valid for their blocks. The call was checked.
    pub async unsafe fn carry_out_varied(&self, call: &VariedCall<'_>, blocks: BlocksView) -> Result<()> {
        self.pay_rounds().await?;
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
        let layout = self.row_layout(call);
        let passing = Passing { call, overlap, layout, begin: self.next_ticket(), signature };
        let moved = self.move_blocks(&passing).await;
        if moved.is_err() && self.buffers.pull.get() {
            self.settle();
        }
        moved?;
        if self.is_checked() {
            // A difference in sizes is found while data moves, and not by all ranks.
            self.barrier(Barrier::Dissemination, signature).await?;
        } else if call.sync.leave == When::All {
            self.barrier(self.routes.barrier_by.get(), signature).await?;
        }
        Ok(())
    }

    fn row_layout(&self, call: &VariedCall<'_>) -> Layout {
        Layout::new(call.shares_out(), self.ranks(), self.area.cell_bytes(), self.buffers.pull.get())
    }

    async fn move_blocks(&self, passing: &Passing<'_>) -> Result<()> {
        let (me, ranks, call) = (self.rank, self.ranks(), passing.call);
        let mut most = self.put_row(passing).await?;
        if call.pairs(me, me) {
            let ((from, bytes), (to, _)) = (call.give(me, me), call.get(me, me));
            // SAFETY: both are this rank's blocks of one size; they are the same or apart.
            unsafe { std::ptr::copy(from, to, bytes) };
        }
        if call.is_symmetric() && self.routes.central.get() {
            self.central_barrier(passing.signature).await?;
        }
        // By rank, the location of a block that is elsewhere, or zero. Empty if there is none.
        let mut told = Vec::new();
        for rank in call.givers(me, ranks) {
            most = most.max(self.take_row(passing, rank, &mut told).await?);
        }
        if call.kind == Kind::Gather && me != call.root {
            if call.give(me, call.root).1 <= passing.layout.first {
                self.owe_rounds(passing);
                return Ok(());
            }
            most = self.read_most(call.root, passing.begin, passing.signature).await?;
        }
        self.pass_rounds(passing, most, &told).await?;
        self.fetch_told(call, &told)?;
        self.done();
        // Locations are read after the last round, so earlier announcements do not count.
        let last = self.last_ticket();
        for rank in (0..ranks).filter(|rank| *rank != me && self.shown_block(passing, *rank) != 0) {
            self.reach(&self.area.lines(rank).done, last, rank).await?;
        }
        Ok(())
    }

    /// Returns the value to post for the location of a block; zero if it is not shown.
    fn shown_block(&self, passing: &Passing<'_>, to: u32) -> u64 {
        if !passing.layout.has_locations() {
            return 0;
        }
        let (address, bytes) = passing.call.give(self.rank, to);
        let may = passing.overlap == Overlap::Apart && self.blocks_now();
        let address = address.expose_provenance() as u64;
        // Some CPUs have tags of their own in an address's upper bits.
        if may && address & ELSEWHERE_FLAG == 0 && self.pulls(passing.call.kind, bytes) {
            address | ELSEWHERE_FLAG
        } else {
            0
        }
    }

    /// Puts this rank's row and the first piece of each of its blocks, unless it has no part in the
    /// call but to take its block. Returns the most bytes of a block that goes through cells.
    async fn put_row(&self, passing: &Passing<'_>) -> Result<usize> {
        let (me, ranks, begin) = (self.rank, self.ranks(), passing.begin);
        let Passing { call, layout, signature, .. } = passing;
        if call.kind == Kind::Scatter && me != call.root {
            return Ok(0);
        }
        self.vacant(begin).await?;
        let (payload, cell) = (self.area.slot(me, begin).payload(), self.area.cell(me, begin));
        let given = || call.receivers(me, ranks).map(|to| (to, call.give(me, to)));
        let beside = layout.are_beside(given().map(|(_, (_, bytes))| bytes));
        let mut most = 0;
        if beside {
            // SAFETY: blocks of the input; all ranks have finished with the slot.
            most = unsafe { layout.write_beside(payload, given()) };
        } else {
            for (to, (from, bytes)) in given() {
                let shown = self.shown_block(passing, to);
                let entry = layout.entry(payload, cell, to);
                // SAFETY: an entry, and a piece of a block, for which payload and cell have room;
                // all ranks have finished with both.
                unsafe {
                    write_word(entry, bytes as u64);
                    if layout.has_locations() {
                        write_word(entry.wrapping_add(8), shown);
                    }
                    if shown == 0 {
                        copy(from, layout.piece(cell, to), bytes.min(layout.first));
                        most = most.max(bytes);
                    }
                }
            }
        }
        if call.kind == Kind::Gather && me == call.root {
            // It tells the others the number of rounds.
            most = call.givers(me, ranks).map(|from| call.get(me, from).1).max().unwrap_or(0);
        }
        // SAFETY: as above.
        unsafe { write_word(payload, most as u64 | if beside { BESIDE } else { 0 }) };
        self.put(begin, *signature);
        self.check_root(call.kind, call.root, begin, *signature)?;
        Ok(most)
    }

    /// Reads a rank's row, and takes the first piece of its block, or notes the block's location.
    /// Returns the most bytes of a block that the rank gives through cells.
    async fn take_row(&self, passing: &Passing<'_>, rank: u32, told: &mut Vec<u64>) -> Result<usize> {
        let (me, begin, layout) = (self.rank, passing.begin, &passing.layout);
        self.take(rank, begin, passing.signature).await?;
        let (payload, cell) = (self.area.slot(rank, begin).payload(), self.area.cell(rank, begin));
        let (to, expected) = passing.call.get(me, rank);
        // SAFETY: the rank leaves its payload and its cell until this one has finished with them.
        let word = unsafe { read_word(payload) };
        let (given, location, piece, bytes) = if word & BESIDE == 0 {
            let entry = layout.entry(payload, cell, me);
            // SAFETY: as above.
            let given = unsafe { read_word(entry) };
            // SAFETY: as above; this row has locations.
            let location = if layout.has_locations() { unsafe { read_word(entry.add(8)) } } else { 0 };
            (given, location, layout.piece(cell, me), expected.min(layout.first))
        } else {
            // SAFETY: as above.
            let (given, place) = unsafe { layout.read_beside(payload, word, rank, me) };
            if given == expected as u64 && place + expected > INLINE_BYTES {
                self.give_up(Cause::Mismatch, me);
                let text = format!("rank {rank} posted sizes that do not fit into its slot");
                return Err(Error::Refused(text));
            }
            (given, 0, payload.wrapping_add(place), expected)
        };
        if given != expected as u64 {
            return Err(self.differs_in_size(passing.call, rank, given, expected));
        }
        if location & ELSEWHERE_FLAG != 0 {
            told.resize(self.ranks() as usize, 0);
            told[rank as usize] = location;
        } else {
            // SAFETY: a piece within the payload or the cell, and within this rank's block.
            unsafe { copy(piece, to, bytes) };
        }
        Ok((word & !BESIDE) as usize)
    }

    /// Passes the rest of the blocks through cells: `most` bytes of the longest.
    async fn pass_rounds(&self, passing: &Passing<'_>, most: usize, told: &[u64]) -> Result<()> {
        let layout = &passing.layout;
        let central = passing.call.is_symmetric() && self.routes.central.get();
        let rounds = layout.rounds(most);
        // Rounds in which this rank has no part are counted only.
        let own = if central { rounds } else { layout.rounds(self.own_most(passing, told)).min(rounds) };
        for round in 0..own {
            let (ticket, from) = (self.next_ticket(), layout.first + round * layout.stride);
            self.give_pieces(passing, ticket, from).await?;
            if central {
                self.central_barrier(passing.signature).await?;
            }
            self.take_pieces(passing, told, ticket, from).await?;
            // The end is announced when blocks were also read at their locations.
            if round + 1 < rounds && (ticket as usize).is_multiple_of(SLOT_COUNT / 2) {
                self.done();
            }
        }
        self.skip_tickets((rounds - own) as Ticket);
        Ok(())
    }

    /// Returns the most bytes of a block that this rank gives or gets through cells.
    fn own_most(&self, passing: &Passing<'_>, told: &[u64]) -> usize {
        let (me, ranks, call) = (self.rank, self.ranks(), passing.call);
        let given = call.receivers(me, ranks).filter(|to| self.shown_block(passing, *to) == 0);
        let given = given.map(|to| call.give(me, to).1);
        let taken = call.givers(me, ranks).filter(|rank| is_in_cells(told, *rank));
        given.chain(taken.map(|rank| call.get(me, rank).1)).max().unwrap_or(0)
    }

    /// Gives the piece of each block that begins `from` bytes into the block.
    async fn give_pieces(&self, passing: &Passing<'_>, ticket: Ticket, from: usize) -> Result<()> {
        let (me, ranks, call, layout) = (self.rank, self.ranks(), passing.call, &passing.layout);
        let pieces = || {
            call.receivers(me, ranks).filter_map(|to| {
                let (source, bytes) = call.give(me, to);
                let left = bytes.saturating_sub(from).min(layout.stride);
                let gives = left > 0 && self.shown_block(passing, to) == 0;
                gives.then_some((to, source.wrapping_add(from), left))
            })
        };
        if pieces().next().is_none() {
            return Ok(());
        }
        self.vacant_in(passing, ticket).await?;
        for (to, source, bytes) in pieces() {
            let place = self.area.cell(me, ticket).wrapping_add(layout.index(to) * layout.stride);
            // SAFETY: a piece of a block, for which the cell has room; all ranks have finished with
            // it.
            unsafe { copy(source, place, bytes) };
        }
        self.put(ticket, passing.signature);
        Ok(())
    }

    /// Takes the piece of each block that begins `from` bytes into the block.
    async fn take_pieces(
        &self,
        passing: &Passing<'_>,
        told: &[u64],
        ticket: Ticket,
        from: usize,
    ) -> Result<()> {
        let (me, call, layout) = (self.rank, passing.call, &passing.layout);
        for rank in call.givers(me, self.ranks()).filter(|rank| is_in_cells(told, *rank)) {
            let (to, bytes) = call.get(me, rank);
            let left = bytes.saturating_sub(from).min(layout.stride);
            if left > 0 {
                self.take(rank, ticket, passing.signature).await?;
                let source = self.area.cell(rank, ticket).wrapping_add(layout.index(me) * layout.stride);
                // SAFETY: a piece within the cell, and within this rank's block.
                unsafe { copy(source, to.wrapping_add(from), left) };
            }
        }
        Ok(())
    }

    /// As [`Self::vacant`], in a round of the call.
    async fn vacant_in(&self, passing: &Passing<'_>, ticket: Ticket) -> Result<()> {
        #[cfg(trimtab_model)]
        if crate::sync::model::broken(crate::sync::model::Broken::NotVacant) {
            return Ok(());
        }
        let (call, wanted) = (passing.call, ticket.wrapping_sub(SLOT_COUNT as u32));
        if call.kind == Kind::Gather && reached(wanted, passing.begin) {
            // The root alone reads slots of this call: the others may have returned, and announce
            // this call's tickets in their next call.
            self.reach(&self.area.lines(call.root).done, wanted, call.root).await?;
            return Ok(());
        }
        self.vacant(ticket).await
    }

    /// Reads the blocks that have posted locations.
    fn fetch_told(&self, call: &VariedCall<'_>, told: &[u64]) -> Result<()> {
        // Each rank begins with another source, so that they do not all read from the same rank.
        for rank in (1..self.ranks()).map(|step| (self.rank + step) % self.ranks()) {
            let (to, bytes) = call.get(self.rank, rank);
            let location = told.get(rank as usize).copied().unwrap_or(0);
            if bytes > 0 && location != 0 {
                // SAFETY: a block of the output, by the caller's promise.
                unsafe { self.fetch(rank, location & !ELSEWHERE_FLAG, to, bytes, true) }?;
            }
        }
        Ok(())
    }

    /// Reads the most bytes of a block from the row of a gather's root.
    async fn read_most(&self, root: u32, begin: Ticket, signature: u32) -> Result<usize> {
        self.take(root, begin, signature).await?;
        // SAFETY: the root leaves its payload until this rank has finished with it.
        Ok((unsafe { read_word(self.area.slot(root, begin).payload()) } & !BESIDE) as usize)
    }

    /// Ends a gather in which this rank has nothing left to give, before the root has come: the
    /// rank counts the other ranks' rounds later.
    fn owe_rounds(&self, passing: &Passing<'_>) {
        let Passing { call, begin, signature, .. } = *passing;
        self.tickets.owed.set(Some(OwedRounds { root: call.root, begin, signature }));
        // Others may need their slots of earlier tickets before this rank makes its next call.
        let (before, own) = (begin.wrapping_sub(1), &self.area.lines(self.rank).done);
        if !own.is(before) {
            self.raise(own, before, 0);
        }
    }

    /// Counts the rounds of the last call, if that was a gather that ended here before the root had
    /// come.
    #[inline(always)]
    pub(crate) async fn pay_rounds(&self) -> Result<()> {
        match self.tickets.owed.get() {
            None => Ok(()),
            Some(owed) => self.count_owed(owed).await,
        }
    }

    async fn count_owed(&self, owed: OwedRounds) -> Result<()> {
        // The program's time since the gather is none of its deadline.
        self.forget_waiting();
        let most = self.read_most(owed.root, owed.begin, owed.signature).await?;
        let (cell, pull) = (self.area.cell_bytes(), self.buffers.pull.get());
        let layout = Layout::new(false, self.ranks(), cell, pull);
        self.tickets.owed.set(None);
        self.waited_for_next();
        let rounds = layout.rounds(most);
        if rounds > 0 {
            self.skip_tickets(rounds as Ticket);
            // The root may be as many tickets ahead, and waits for this in its next call.
            self.done();
        }
        Ok(())
    }

    /// Gives the team up because a rank gives a block of another size than this one expects.
    #[cold]
    fn differs_in_size(&self, call: &VariedCall<'_>, rank: u32, given: u64, expected: usize) -> Error {
        let size = call.elements.size() as u64;
        // The rank has made the same call; it may be at a later one by now.
        let posted = self.posted_now();
        // One more than the elements: zero means that the description names no size.
        let theirs = Posted { count: given / size + 1, ..posted };
        let ours = Posted { count: expected as u64 / size + 1, ..posted };
        self.area.lines(self.rank).finding.post(rank, theirs, ours);
        self.give_up(Cause::Mismatch, self.rank);
        crate::call::mismatch(rank, &theirs, &ours)
    }
}

//! Direct access to buffers between ranks that are threads of one process.
//!
//! **Problem.** Data that goes through a cell is copied twice. Threads see all of each other's
//! memory, so one copy is enough. But after a failed call a buffer belongs to its caller again,
//! while another thread may still be reading it.
//!
//! **Idea.** As with blocks in the segment ([`crate::rounds`]), each rank announces the location of
//! its buffer, here as an address. No call returns before all ranks that read its buffers have
//! finished. A call that fails has given the team up. A rank announces an access to other ranks'
//! memory first and then checks whether the team is given up. After a failed call a rank sees the
//! team given up and then waits for all ranks that have announced an access. At least one of the
//! two sees the other.
//!
//! **Properties.** Only if all ranks are threads of the process that made the team, and the segment
//! was passed to no other process: such a process could choose the addresses. Rank 0 decides for
//! all ranks whether this is so. Started calls, and those with an operator of the caller's own, do
//! not show their buffers: the first may be dropped at any time, the second may be unwound.

use crate::Result;
use crate::call::CollectiveCall;
use crate::endpoint::Endpoint;
use crate::shared_layout::Cause;

/// While this value lives, this rank may access other ranks' own memory.
pub struct PeerAccess<'a>(Option<&'a Endpoint>);

impl Drop for PeerAccess<'_> {
    fn drop(&mut self) {
        if let Some(endpoint) = self.0 {
            endpoint.area.lines(endpoint.rank).touching.post(false);
        }
    }
}

impl Endpoint {
    /// Sets whether all ranks are threads that may show each other their buffers. All ranks must
    /// set the same.
    pub fn set_direct(&self, direct: bool) {
        self.buffers.direct.set(direct);
    }

    /// Returns the location of a call's buffer for the other ranks: an address among threads, else
    /// its offset in the heap plus one, or an address elsewhere ([`crate::cma`]). Zero if it is not
    /// shown.
    pub(crate) fn place_of(&self, call: &CollectiveCall, address: *const u8) -> u64 {
        let offset = self.offset_of(address);
        if !self.buffers.direct.get() {
            return if offset == 0 { self.shown(call, address) } else { offset };
        }
        let own = call.kind.combines() && call.operator.is_none();
        if offset != 0 || (self.blocks_now() && !own) { address.expose_provenance() as u64 } else { 0 }
    }

    /// Announces an access to other ranks' own memory. Fails if the team is given up.
    #[inline]
    pub fn touch(&self) -> Result<PeerAccess<'_>> {
        if !self.buffers.direct.get() {
            return Ok(PeerAccess(None));
        }
        self.area.lines(self.rank).touching.post(true);
        let touch = PeerAccess(Some(self));
        if self.area.lines(0).alarm.is_raised() { Err(self.alarmed_now()) } else { Ok(touch) }
    }

    /// Waits, after a failed call, until no thread of this process accesses its buffers any more.
    /// Ranks of other processes may still read them, but discard the data ([`Self::check_shown`]).
    #[cold]
    pub fn settle(&self) {
        if !self.buffers.direct.get() && !self.buffers.pull.get() {
            return;
        }
        // The cause of the failure has raised the alarm already, with a better reason.
        self.give_up(Cause::Mismatch, self.rank);
        self.withdraw();
        if !self.buffers.direct.get() {
            return;
        }
        for rank in (0..self.ranks()).filter(|rank| *rank != self.rank) {
            while self.area.lines(rank).touching.current() && !self.waits.liveness.gone(rank) {
                crate::sync::pause();
            }
        }
    }
}

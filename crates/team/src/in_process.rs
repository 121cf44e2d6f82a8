//! Ranks that are threads of one process read each other's buffers where they are.
//!
//! **Problem.** What goes through a cell is copied twice. Threads see all of each other's memory, so once is enough; but a buffer is its
//! caller's again when a call has failed, while another thread may be amid reading it.
//!
//! **Idea.** As with blocks in the segment ([`crate::rounds`]), each rank says where its buffer is, only that it says an address. No call returns
//! before all who take from its buffers have done with them. One that fails has given the team up: who is about to touch others' memory
//! says so first and then looks whether the team is given up; who fails sees the team given up and then waits for all that say so.
//! One of the two sees the other.
//!
//! **Properties.** Only where all ranks are threads of the process that made the team, and nobody was given the segment: addresses in memory that another
//! process writes would be its to choose. Rank 0 says for all whether that is so. Calls that were started, and those with an operator of
//! the caller's own, do not show their buffers: the first may be dropped at any time, the second may be unwound.

use crate::Result;
use crate::call::Call;
use crate::endpoint::Endpoint;
use crate::shared_layout::Cause;

/// While it lives, this rank may be at others' own memory.
pub struct Touch<'a>(Option<&'a Endpoint>);

impl Drop for Touch<'_> {
    fn drop(&mut self) {
        if let Some(station) = self.0 {
            station.area.lines(station.rank).touching.say(false);
        }
    }
}

impl Endpoint {
    /// Whether all ranks are threads that may show each other their buffers; all must say the same.
    pub fn set_direct(&self, direct: bool) {
        self.buffers.direct.set(direct);
    }

    /// Where a buffer of a call is, for the others: an address among threads, else its place in the heap plus one, or an address elsewhere
    /// ([`crate::cma`]). Zero if it is not shown.
    pub(crate) fn place_of(&self, call: &Call, address: *const u8) -> u64 {
        let offset = self.offset_of(address);
        if !self.buffers.direct.get() {
            return if offset == 0 { self.shown(call, address) } else { offset };
        }
        let own = call.kind.combines() && call.operator.is_none();
        if offset != 0 || (self.blocks_now() && !own) { address.expose_provenance() as u64 } else { 0 }
    }

    /// Before others' own memory is touched.
    #[inline]
    pub fn touch(&self) -> Result<Touch<'_>> {
        if !self.buffers.direct.get() {
            return Ok(Touch(None));
        }
        self.area.lines(self.rank).touching.say(true);
        let touch = Touch(Some(self));
        if self.area.lines(0).alarm.is_raised() { Err(self.alarmed_now()) } else { Ok(touch) }
    }

    /// After a call has failed: nobody is at its buffers any more when this returns.
    /// Those of other processes may be, but do not believe what they read ([`Self::believe`]).
    #[cold]
    pub fn settle(&self) {
        if !self.buffers.direct.get() && !self.buffers.pull.get() {
            return;
        }
        // Whatever failed has said so already, with a better reason.
        self.give_up(Cause::Mismatch, self.rank);
        self.withdraw();
        if !self.buffers.direct.get() {
            return;
        }
        for rank in (0..self.ranks()).filter(|rank| *rank != self.rank) {
            while self.area.lines(rank).touching.heard() && !self.waits.company.gone(rank) {
                crate::sync::pause();
            }
        }
    }
}

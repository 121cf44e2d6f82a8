//! Buffers that ranks show to each other: the location of each, and reading those of other
//! processes ([`crate::cma`]).

use super::Endpoint;
use crate::call::{CollectiveCall, Kind};
use crate::cma::{
    BufferLocation, ELSEWHERE_FLAG, END_WAIT, PIECE_BYTES, PULL_VARIABLE, Peers, SCRATCH_BYTES, sizes,
};
use crate::shared_layout::Cause;
use crate::{Error, Result};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

impl Endpoint {
    /// Sets the processes from which ranks read memory from now on; `None` for none. All ranks must
    /// set the same.
    pub(crate) fn set_peers(&self, peers: Option<Peers>) {
        self.buffers.pull.set(peers.is_some());
        self.buffers.peers.replace(peers.map(Rc::new));
    }

    /// Returns whether ranks read each other's buffers in a call of `bytes` bytes.
    #[inline]
    pub(crate) fn pulls(&self, kind: Kind, bytes: usize) -> bool {
        self.buffers.pull.get() && sizes(kind, self.ranks(), self.crowded()).contains(&bytes)
    }

    /// Returns the value to post for a buffer of a call that is not in the segment; zero if the
    /// buffer is not shown.
    pub(crate) fn shown(&self, call: &CollectiveCall, address: *const u8) -> u64 {
        let address = address.expose_provenance() as u64;
        let own = call.kind.combines() && call.operator.is_none();
        let may = self.blocks_now() && !own && self.pulls(call.kind, call.bytes());
        // Some CPUs have tags of their own in an address's upper bits.
        if may && address & ELSEWHERE_FLAG == 0 { address | ELSEWHERE_FLAG } else { 0 }
    }

    /// Converts the value that a rank posted for a buffer of `bytes` bytes to the buffer's
    /// location.
    pub(crate) fn location(&self, told: u64, bytes: usize) -> Result<BufferLocation> {
        if told == 0 {
            return Ok(BufferLocation::Nowhere);
        }
        if self.buffers.pull.get() && told & ELSEWHERE_FLAG != 0 {
            return Ok(BufferLocation::There(told & !ELSEWHERE_FLAG));
        }
        self.resident(told, bytes).map(BufferLocation::Here)
    }

    /// Returns whether a posted value is an address of another process.
    pub(crate) fn is_elsewhere(&self, told: u64) -> bool {
        self.buffers.pull.get() && told & ELSEWHERE_FLAG != 0
    }

    /// Reads `bytes` bytes of a rank's memory. `last`: whether this is the last read from it in
    /// this call.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes.
    pub(crate) unsafe fn fetch(
        &self,
        rank: u32,
        from: u64,
        to: *mut u8,
        bytes: usize,
        last: bool,
    ) -> Result<()> {
        let peers = self.buffers.peers.borrow();
        let Some(peers) = &*peers else { return Err(Error::Revoked(self.rank)) };
        // SAFETY: the caller's promise.
        let read = unsafe { peers.all[rank as usize].read(from, to, bytes, last) };
        match read {
            Ok(()) => self.check_shown(rank),
            Err(why) => Err(self.unread(rank, &why)),
        }
    }

    /// Withdraws this rank's buffers after a call has failed and the team is given up: from now on
    /// no rank trusts data that it read from them.
    pub fn withdraw(&self) {
        self.area.lines(self.rank).withdrawn.post(true);
        // The withdrawal is visible before the first later change of a buffer.
        crate::sync::full_fence();
    }

    /// Checks, after a rank's memory was read, that the rank had not withdrawn its buffers: then
    /// the data was as its owner had shown it.
    pub fn check_shown(&self, rank: u32) -> Result<()> {
        if self.area.lines(rank).withdrawn.current() { Err(self.alarmed_now()) } else { Ok(()) }
    }

    /// Returns the error after a failed read of a rank's memory. The most frequent cause is the
    /// rank's death.
    #[cold]
    fn unread(&self, rank: u32, why: &io::Error) -> Error {
        let (begin, most) =
            (Instant::now(), self.waits.deadline.get().map_or(END_WAIT, |deadline| deadline.min(END_WAIT)));
        while begin.elapsed() < most && !self.area.lines(0).alarm.is_raised() {
            if self.waits.liveness.left(rank) {
                self.give_up(Cause::Left, rank);
            } else if self.waits.liveness.gone(rank) {
                self.give_up(Cause::Died, rank);
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if self.area.lines(0).alarm.is_raised() {
            return self.alarmed_now();
        }
        self.give_up(Cause::Timeout, self.rank);
        Error::Refused(format!(
            "the memory of rank {rank} cannot be read any more ({why}), and the team is given up; {PULL_VARIABLE}=off makes teams use shared memory only"
        ))
    }

    /// Combines bytes `from` to `to` of the ranks' inputs, each `skip` bytes beyond its shown
    /// location, into the same bytes of the output. This rank's own input is the call's.
    ///
    /// # Safety
    /// All buffers are long enough. Only this rank writes them during the call, and only where they
    /// are its output.
    pub(crate) unsafe fn fold_shown(
        &self,
        call: &CollectiveCall,
        ranks: u32,
        skip: usize,
        from: usize,
        to: usize,
    ) -> Result<()> {
        let Some(kernel) = &call.kernel else { return Ok(()) };
        let (lowest, highest) = PIECE_BYTES;
        let each = (SCRATCH_BYTES / ranks as usize / 64 * 64).clamp(lowest, highest);
        let mut scratch = self.buffers.scratch.borrow_mut();
        scratch.resize(ranks as usize * each / 8, 0);
        let scratch = scratch.as_mut_ptr().cast::<u8>();
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(each);
            let last = at + bytes == to;
            for rank in 0..ranks {
                let location = self.buffers.residents.borrow()[rank as usize].add(skip + at);
                let source = match location {
                    _ if rank == self.rank => call.input.wrapping_add(skip + at),
                    BufferLocation::Here(here) => here.cast_const(),
                    BufferLocation::There(there) => {
                        let place = scratch.wrapping_add(rank as usize * each);
                        // SAFETY: the scratch has `each` bytes for each rank.
                        unsafe { self.fetch(rank, there, place, bytes, last) }?;
                        place
                    }
                    BufferLocation::Nowhere => return Err(Error::Revoked(self.rank)),
                };
                self.buffers.sources.borrow_mut()[rank as usize] = source;
            }
            let sources = self.buffers.sources.borrow();
            // SAFETY: all have `bytes` bytes from there on, by the caller's promise.
            unsafe {
                kernel.fold(
                    call.output.wrapping_add(at),
                    &sources[..ranks as usize],
                    bytes / call.elements.size(),
                );
            }
            at += bytes;
        }
        Ok(())
    }
}

//! Buffers that ranks show each other: where each lies, and reading those of other processes ([`crate::cma`]).

use super::Endpoint;
use crate::call::{Call, Kind};
use crate::cma::{BufferLocation, ELSEWHERE, GONE, PIECE, PULL, Peers, SCRATCH, sizes};
use crate::shared_layout::Cause;
use crate::{Error, Result};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

impl Endpoint {
    /// From now on ranks read these processes' memory, or nobody's; all must say the same.
    pub(crate) fn set_peers(&self, peers: Option<Peers>) {
        self.buffers.pull.set(peers.is_some());
        self.buffers.peers.replace(peers.map(Rc::new));
    }

    /// Whether ranks read each other's buffers in a call of so many bytes.
    #[inline]
    pub(crate) fn pulls(&self, kind: Kind, bytes: usize) -> bool {
        self.buffers.pull.get() && sizes(kind, self.ranks(), self.crowded).contains(&bytes)
    }

    /// What is told of a buffer of a call that is not in the segment.
    pub(crate) fn shown(&self, call: &Call, address: *const u8) -> u64 {
        let address = address.expose_provenance() as u64;
        let own = call.kind.combines() && call.operator.is_none();
        let may = self.blocks_now() && !own && self.pulls(call.kind, call.bytes());
        // Some processors have marks of their own in an address's upper bits.
        if may && address & ELSEWHERE == 0 { address | ELSEWHERE } else { 0 }
    }

    /// Where a rank says that so many bytes of its buffer are.
    pub(crate) fn lies(&self, told: u64, bytes: usize) -> Result<BufferLocation> {
        if told == 0 {
            return Ok(BufferLocation::Nowhere);
        }
        if self.buffers.pull.get() && told & ELSEWHERE != 0 {
            return Ok(BufferLocation::There(told & !ELSEWHERE));
        }
        self.resident(told, bytes).map(BufferLocation::Here)
    }

    /// Whether that is an address of another process.
    pub(crate) fn is_elsewhere(&self, told: u64) -> bool {
        self.buffers.pull.get() && told & ELSEWHERE != 0
    }

    /// Reads so many bytes of a rank's memory. `last` says that no more is read of it in this call.
    ///
    /// # Safety
    /// `to` is valid for writing so many bytes.
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
            Ok(()) => self.believe(rank),
            Err(why) => Err(self.unread(rank, &why)),
        }
    }

    /// After a call has failed and the team is given up: from here on nobody believes what is read of its buffers.
    pub fn withdraw(&self) {
        self.area.lines(self.rank).withdrawn.say(true);
        // Not even the first change of a buffer is seen before that.
        crate::sync::full_fence();
    }

    /// After a rank's memory was read: it was as its owner had shown it, unless that has failed since.
    pub fn believe(&self, rank: u32) -> Result<()> {
        if self.area.lines(rank).withdrawn.heard() { Err(self.alarmed_now()) } else { Ok(()) }
    }

    /// What to say when a rank's memory could not be read: most often that it has died.
    #[cold]
    fn unread(&self, rank: u32, why: &io::Error) -> Error {
        let (begin, most) =
            (Instant::now(), self.waits.deadline.get().map_or(GONE, |deadline| deadline.min(GONE)));
        while begin.elapsed() < most && !self.area.lines(0).alarm.is_raised() {
            if self.waits.company.left(rank) {
                self.give_up(Cause::Left, rank);
            } else if self.waits.company.gone(rank) {
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
            "the memory of rank {rank} cannot be read any more ({why}), and the team is given up; {PULL}=off lets teams do without that"
        ))
    }

    /// Combines bytes `from` to `to` of where ranks' inputs lie, each `skip` bytes further than it says, into the same bytes of the output.
    /// This rank's own input is the call's.
    ///
    /// # Safety
    /// All are as long as that; nobody writes them meanwhile but this rank, and that only where they are its output.
    pub(crate) unsafe fn fold_shown(
        &self,
        call: &Call,
        ranks: u32,
        skip: usize,
        from: usize,
        to: usize,
    ) -> Result<()> {
        let Some(kernel) = &call.kernel else { return Ok(()) };
        let (lowest, highest) = PIECE;
        let each = (SCRATCH / ranks as usize / 64 * 64).clamp(lowest, highest);
        let mut scratch = self.buffers.scratch.borrow_mut();
        scratch.resize(ranks as usize * each / 8, 0);
        let scratch = scratch.as_mut_ptr().cast::<u8>();
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(each);
            let last = at + bytes == to;
            for rank in 0..ranks {
                let lies = self.buffers.residents.borrow()[rank as usize].add(skip + at);
                let source = match lies {
                    _ if rank == self.rank => call.input.wrapping_add(skip + at),
                    BufferLocation::Here(here) => here.cast_const(),
                    BufferLocation::There(there) => {
                        let place = scratch.wrapping_add(rank as usize * each);
                        // SAFETY: the scratch has so many bytes for each rank.
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

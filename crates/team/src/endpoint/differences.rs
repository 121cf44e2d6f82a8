//! Differences between the calls of ranks: which rank differs, in which operation, and the error
//! for each rank's view.

use super::Endpoint;
use crate::Error;
use crate::call::{ALLOC_WHAT, FREE_WHAT, Posted, SPLIT_WHAT, VARIED_FLAG};
use crate::shared_layout::Cause;

impl Endpoint {
    /// Reports that a rank makes another call, and returns the error.
    #[cold]
    pub(crate) fn differs(&self, rank: u32) -> Error {
        let (theirs, ours) = self
            .logged_difference(rank)
            .unwrap_or_else(|| (self.area.lines(rank).intent.current(), self.posted.get()));
        self.area.lines(self.rank).finding.post(rank, theirs, ours);
        self.give_up(Cause::Mismatch, self.rank);
        crate::call::mismatch(rank, &theirs, &ours)
    }

    /// Returns the first operation up to this call in which a rank differed from this one, as
    /// described there and here: a change of the heap or a call.
    #[cold]
    pub(super) fn logged_difference(&self, rank: u32) -> Option<(Posted, Posted)> {
        let (theirs, ours) = (self.area.lines(rank), self.area.lines(self.rank));
        let calls = theirs.calls.first_difference(&ours.calls);
        let earlier = calls.filter(|(_, here)| here.number <= self.posted.get().number);
        earlier.or_else(|| theirs.blocks.first_difference(&ours.blocks))
    }

    /// Returns this rank's operation with the number of another rank's, from its logs.
    #[cold]
    fn own_counterpart(&self, theirs: &Posted) -> Option<Posted> {
        let lines = self.area.lines(self.rank);
        match theirs.what {
            ALLOC_WHAT | FREE_WHAT | SPLIT_WHAT => lines.blocks.get(theirs.number),
            _ => lines.calls.get(theirs.number),
        }
    }

    /// Returns the rank that makes another call, from the posted descriptions. For flags that are
    /// not raised by one rank alone.
    #[cold]
    pub(crate) fn differing_rank(&self) -> u32 {
        let ours = self.posted.get();
        let posted = |rank: &u32| self.area.lines(*rank).intent.current();
        let others = || (0..self.ranks()).filter(|rank| *rank != self.rank);
        let here = others().find(|rank| {
            let theirs = posted(rank);
            theirs.number == ours.number && theirs.signature != ours.signature
        });
        // A rank that left a call out, or made one more, has another call number.
        let elsewhere = || others().find(|rank| posted(rank).number != ours.number);
        here.or_else(elsewhere).unwrap_or((self.rank + 1) % self.ranks())
    }

    /// Returns the error for a difference that another rank found, or this one before, from this
    /// rank's view.
    #[cold]
    pub(super) fn found(&self, finder: u32, ours: &Posted) -> Error {
        // Data of another rank.
        let heard = self.area.lines(finder).finding.current().filter(|(of, ..)| *of < self.ranks());
        let Some((of, theirs, finders)) = heard else { return Error::Revoked(finder) };
        if finder == self.rank {
            return crate::call::mismatch(of, &theirs, &finders);
        }
        let counterpart = self.own_counterpart(&finders).unwrap_or(*ours);
        let ours = &counterpart;
        if of == self.rank {
            // Of a call with blocks of different sizes, the finder knows the block in question.
            let names_block = theirs.what & VARIED_FLAG != 0 && ours.count == 0;
            let same = theirs.number == ours.number && theirs.what == ours.what;
            return crate::call::mismatch(finder, &finders, if names_block && same { &theirs } else { ours });
        }
        if ours.number != finders.number {
            // This rank is at another call: only the difference between the two other ranks is
            // known.
            return crate::call::mismatch_of_others((of, &theirs), (finder, &finders), ours);
        }
        // One of the two calls differs from this rank's.
        let (rank, theirs) = if ours.is_same_call(&finders) { (of, theirs) } else { (finder, finders) };
        crate::call::mismatch(rank, &theirs, ours)
    }
}

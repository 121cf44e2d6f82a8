//! Ranks that do not agree on the root of a call.
//!
//! **Problem.** A rank that only gives data waits for no other rank. If two ranks both act as the
//! root of a broadcast, each raises its slot and returns with its own data.
//!
//! **Idea.** After a rank has raised its slot, it reads the slots that only a rank of another
//! opinion raises: a root that gives reads those of all other ranks, and a rank that gives to a
//! root reads the root's. The store comes before the loads in the order of all ranks
//! (sequentially consistent), so of two such ranks at least one sees the other, in this call. It
//! gives the team up, and the other rank gets the error in its next call.
//!
//! **Cost.** Ranks that agree do not write these slots, so the lines stay in the reader's cache.

use super::Endpoint;
use crate::Result;
use crate::call::Kind;
use crate::flag::Ticket;

impl Endpoint {
    /// Fails if another rank has raised its slot of this ticket in a call with another root. To be
    /// called after [`Endpoint::put`], once in a call.
    #[inline(always)]
    pub(crate) fn check_root(&self, kind: Kind, root: u32, ticket: Ticket, signature: u32) -> Result<()> {
        let at_root = self.rank == root;
        match kind {
            Kind::Broadcast | Kind::Scatter if at_root => {
                for rank in 0..self.ranks() {
                    if rank != self.rank {
                        self.check_slot(rank, ticket, signature)?;
                    }
                }
                Ok(())
            }
            Kind::Reduce | Kind::Gather if !at_root => self.check_slot(root, ticket, signature),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn check_slot(&self, rank: u32, ticket: Ticket, signature: u32) -> Result<()> {
        let word = self.area.slot(rank, ticket).reload();
        if word as Ticket == ticket && (word >> 32) as u32 != signature {
            return Err(self.differs(rank));
        }
        Ok(())
    }
}

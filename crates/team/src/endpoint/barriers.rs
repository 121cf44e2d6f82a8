//! Barriers of an endpoint: the algorithms of [`crate::barrier`].

use super::{ALL_RANKS, Endpoint};
use crate::Result;
use crate::barrier::Barrier;

impl Endpoint {
    /// Waits until all ranks have reached the barrier.
    #[inline(always)]
    pub async fn barrier(&self, how: Barrier, signature: u32) -> Result<()> {
        let number = self.tickets.barriers.get().wrapping_add(1);
        self.tickets.barriers.set(number);
        match how {
            Barrier::Dissemination => self.disseminate(number, signature).await,
            Barrier::Central => self.gather_at_centre(number, signature).await,
            Barrier::Flat => self.flat(number, signature).await,
            Barrier::Grouped => self.by_groups(number, signature).await,
        }
    }

    #[inline(always)]
    async fn disseminate(&self, number: u32, signature: u32) -> Result<()> {
        self.disseminate_among(self.rank, self.ranks(), |place| place, number, signature).await
    }

    /// Dissemination among some ranks. This rank has the place `me` among them; `of` returns the
    /// rank at a place.
    #[inline(always)]
    async fn disseminate_among(
        &self,
        me: u32,
        ranks: u32,
        of: impl Fn(u32) -> u32,
        number: u32,
        signature: u32,
    ) -> Result<()> {
        let (mut distance, mut round) = (1, 0);
        while distance < ranks {
            let to = me + distance;
            let to = of(if to >= ranks { to - ranks } else { to });
            self.raise(&self.area.lines(to).rounds[round], number, signature);
            let from = of(if me >= distance { me - distance } else { me + ranks - distance });
            let word = self.reach(&self.area.lines(self.rank).rounds[round], number, from).await?;
            if word as u32 == number && (word >> 32) as u32 != signature {
                return Err(self.differs(from));
            }
            distance *= 2;
            round += 1;
        }
        Ok(())
    }

    /// Waits until all ranks have arrived; a rank sleeps at most once for it.
    pub(crate) async fn central_barrier(&self, signature: u32) -> Result<()> {
        self.barrier(Barrier::Central, signature).await
    }

    async fn gather_at_centre(&self, number: u32, signature: u32) -> Result<()> {
        let centre = self.area.lines(0);
        let central = self.tickets.centrals.get().wrapping_add(1);
        self.tickets.centrals.set(central);
        // All arrivals of this barrier and of those before it are counted: this count identifies
        // the last rank.
        if self.count(&centre.arrived).wrapping_add(1) == central.wrapping_mul(self.ranks()) {
            self.raise(&centre.released, number, signature);
            return Ok(());
        }
        let word = self.reach(&centre.released, number, ALL_RANKS).await?;
        if word as u32 == number && (word >> 32) as u32 != signature {
            return Err(self.differs(self.differing_rank()));
        }
        Ok(())
    }

    async fn by_groups(&self, number: u32, signature: u32) -> Result<()> {
        let groups = self.routes.groups.borrow().clone();
        if !groups.are_any() {
            return self.disseminate(number, signature).await;
        }
        let speaker = groups.speaker(self.rank);
        if speaker != self.rank {
            return self.follow(speaker, number, signature).await;
        }
        for rank in groups.spoken_for(speaker) {
            self.await_arrival(rank, number, signature).await?;
        }
        let speakers = groups.speakers();
        let me = speakers.iter().position(|rank| *rank == self.rank).unwrap_or(0) as u32;
        let many = speakers.len() as u32;
        self.disseminate_among(me, many, |place| speakers[place as usize], number, signature).await?;
        self.raise(&self.area.lines(speaker).released, number, signature);
        Ok(())
    }

    /// Waits for a rank's arrival.
    async fn await_arrival(&self, rank: u32, number: u32, signature: u32) -> Result<()> {
        let word = self.reach(&self.area.lines(rank).arrived, number, rank).await?;
        if (word >> 32) as u32 != signature { Err(self.differs(rank)) } else { Ok(()) }
    }

    /// Announces this rank's arrival, and waits until `rank` announces that all have arrived.
    async fn follow(&self, rank: u32, number: u32, signature: u32) -> Result<()> {
        self.raise(&self.area.lines(self.rank).arrived, number, signature);
        let word = self.reach(&self.area.lines(rank).released, number, rank).await?;
        if word as u32 == number && (word >> 32) as u32 != signature {
            return Err(self.differs(rank));
        }
        Ok(())
    }

    async fn flat(&self, number: u32, signature: u32) -> Result<()> {
        if self.rank != 0 {
            return self.follow(0, number, signature).await;
        }
        for rank in 1..self.ranks() {
            self.await_arrival(rank, number, signature).await?;
        }
        self.raise(&self.area.lines(0).released, number, signature);
        Ok(())
    }
}

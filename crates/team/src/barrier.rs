//! Barriers: nobody goes on before everybody has come.
//!
//! **Dissemination** (Hensgen, Finkel, Manber 1988): in round k each rank tells the one 2^k further, and waits for the one 2^k before;
//! after log2(n) rounds everybody knows of everybody. Quickest where all have a processor: no line has two writers.
//!
//! **Central**: who comes is counted, the last wakes all at once. Where ranks share processors this is quickest by far: each rank
//! sleeps once, and one system call wakes them all.
//!
//! **Flat**: rank 0 looks at everybody's line and then raises one for all.

use crate::Result;
use crate::station::{ANYBODY, Station};

/// Which barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Barrier {
    /// See the module.
    Dissemination,
    /// See the module.
    Central,
    /// See the module.
    Flat,
}

impl Barrier {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Dissemination, Self::Central, Self::Flat];
}

impl Station {
    /// Waits until all have come.
    #[inline(always)]
    pub async fn barrier(&self, how: Barrier, signature: u32) -> Result<()> {
        let number = self.barriers.get().wrapping_add(1);
        self.barriers.set(number);
        match how {
            Barrier::Dissemination => self.disseminate(number, signature).await,
            Barrier::Central => self.gather_at_centre(number, signature).await,
            Barrier::Flat => self.flat(number, signature).await,
        }
    }

    #[inline(always)]
    async fn disseminate(&self, number: u32, signature: u32) -> Result<()> {
        let ranks = self.ranks();
        let (mut distance, mut round) = (1, 0);
        while distance < ranks {
            let to = self.rank + distance;
            let to = if to >= ranks { to - ranks } else { to };
            self.raise(&self.area.lines(to).rounds[round], number, signature);
            let from =
                if self.rank >= distance { self.rank - distance } else { self.rank + ranks - distance };
            let word = self.reach(&self.area.lines(self.rank).rounds[round], number, from).await?;
            if word as u32 == number && (word >> 32) as u32 != signature {
                return Err(self.differs(from));
            }
            distance *= 2;
            round += 1;
        }
        Ok(())
    }

    async fn gather_at_centre(&self, number: u32, signature: u32) -> Result<()> {
        let centre = self.area.lines(0);
        let central = self.centrals.get().wrapping_add(1);
        self.centrals.set(central);
        // All of this barrier, and of those before it, are counted: the last one sees so.
        if self.count(&centre.arrived).wrapping_add(1) == central.wrapping_mul(self.ranks()) {
            self.raise(&centre.released, number, signature);
            return Ok(());
        }
        let word = self.reach(&centre.released, number, ANYBODY).await?;
        if word as u32 == number && (word >> 32) as u32 != signature {
            return Err(self.differs(0));
        }
        Ok(())
    }

    async fn flat(&self, number: u32, signature: u32) -> Result<()> {
        if self.rank == 0 {
            for rank in 1..self.ranks() {
                let word = self.reach(&self.area.lines(rank).arrived, number, rank).await?;
                if (word >> 32) as u32 != signature {
                    return Err(self.differs(rank));
                }
            }
            self.raise(&self.area.lines(0).released, number, signature);
            return Ok(());
        }
        self.raise(&self.area.lines(self.rank).arrived, number, signature);
        let word = self.reach(&self.area.lines(0).released, number, 0).await?;
        if word as u32 == number && (word >> 32) as u32 != signature {
            return Err(self.differs(0));
        }
        Ok(())
    }
}

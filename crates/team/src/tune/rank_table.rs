//! Table of algorithms of a rank's team: the one in force, and how another one comes into force.

use super::store;
use crate::algorithm_table::AlgorithmTable;
use crate::rank::Rank;
use crate::{Error, Result};

impl Rank {
    /// Returns the table in force. [`tune()`](super::tune()) has an example.
    pub fn table(&self) -> AlgorithmTable {
        self.endpoint.table()
    }

    /// Installs a table. All ranks must install the same table between the same calls; a caller
    /// that cannot be sure of that uses [`Self::install_of_first`].
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::algorithm_table::AlgorithmTable;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// rank.install(AlgorithmTable::usual(rank.crowded()))?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `Forked`.
    pub fn install(&self, table: AlgorithmTable) -> Result<()> {
        self.ready()?;
        self.endpoint.install(table);
        Ok(())
    }

    /// Installs rank 0's table at all ranks, which must all call it. With `None` at rank 0 all keep
    /// their tables.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::algorithm_table::AlgorithmTable;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let table = AlgorithmTable::usual(true);
    /// rank.install_of_first((rank.rank() == 0).then_some(&table))?;
    /// assert_eq!(rank.table(), table);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [every call](crate::Calls#errors).
    pub fn install_of_first(&self, table: Option<&AlgorithmTable>) -> Result<()> {
        let own = match (self.rank(), table) {
            (0, Some(table)) => {
                serde_json::to_vec(table).map_err(|error| Error::Argument(error.to_string()))?
            }
            _ => Vec::new(),
        };
        let mut length = [own.len() as u64];
        self.mine().broadcast(&mut length, 0)?;
        if length[0] == 0 {
            return Ok(());
        }
        let mut text = if self.rank() == 0 { own } else { vec![0; length[0].min(1 << 20) as usize] };
        self.mine().broadcast(&mut text, 0)?;
        let table = serde_json::from_slice(&text).map_err(|error| Error::NotATeam(error.to_string()))?;
        self.install(table)
    }

    /// Returns the key of this team's tunings: see [`store::key`], which has an example.
    pub fn key(&self) -> String {
        let (cell, place) = (self.endpoint.area.cell_bytes(), store::place(&self.mask, self.ranks()));
        store::key(self.ranks(), self.crowded(), cell, &place)
    }
}

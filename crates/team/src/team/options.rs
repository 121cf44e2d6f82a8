//! Options of a team, and the environment variables that change them.

use crate::wait::Policy;
use crate::{Error, Result};
use std::time::Duration;

/// Options of a new team. [`Options::new`] has the defaults.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use trimtab_team::{Options, Policy};
///
/// let options = Options {
///     heap: 1 << 20,                           // bytes
///     deadline: Some(Duration::from_secs(10)), // for each call
///     wait: Policy::Park,
///     ..Options::new(4)
/// };
/// assert_eq!(options.ranks, 4);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of the heap that all ranks share.
    pub heap: usize,
    /// Bytes that a rank can transfer in one round: a power of two, at least 1024. It is raised if
    /// one element for each rank would not fit.
    pub cell: usize,
    /// Wait policy of the ranks.
    pub wait: Policy,
    /// Longest time that a call may wait before the call and the team are given up; `None` for no
    /// limit. For a blocking call the time begins with the first wait that lasts longer than
    /// spinning, and includes all later waits. For a started call it begins when the rank waits for
    /// the call.
    pub deadline: Option<Duration>,
    /// Time for which ranks wait for each other to join.
    pub gather: Duration,
    /// Source of the algorithm table. The value of rank 0 counts for all ranks.
    pub tables: Tables,
    /// Whether ranks that are processes read each other's memory, if the kernel permits it to all
    /// of them. One rank that sets `false` forbids it for all. `TRIMTAB_TEAM_PULL=off` forbids it,
    /// too.
    pub pull: bool,
    /// Whether every call is checked: the ranks compare their calls before data moves, so that a
    /// difference is an error at all ranks in the same call, and blocks of different sizes are one
    /// before any rank has the block; output buffers until their data is there, and freed blocks
    /// are filled with [`POISON`](crate::endpoint::POISON); and the last calls of all ranks are
    /// written to standard error when the team fails, and when a call waits for ten seconds. For
    /// tests: each call costs one barrier more. The value of rank 0 counts for all ranks.
    /// `TRIMTAB_TEAM_CHECK=on` sets it.
    pub check: bool,
    /// Called every few milliseconds by a rank that waits, also while it waits for others to join;
    /// in teams of more than 64 ranks less often, every 64 ms by 1,024 ranks. If it returns true,
    /// the call and the team are given up. For languages that handle signals between their own
    /// steps.
    pub interrupt: Option<fn() -> bool>,
}

/// Source of a team's algorithm table. [`Rank::found`](crate::Rank::found) has an example of
/// [`Tables::Lazy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tables {
    /// The tuning kept for this machine ([`crate::tune::store`]), if there is one.
    #[default]
    Kept,
    /// The usual algorithms, regardless of any kept tuning.
    Usual,
    /// As `Kept`. In addition, calls of untuned kinds, sizes and classes try out algorithms
    /// in their first repetitions ([`crate::tune::lazy`] states the cost).
    Lazy,
}

/// Environment variable with the value `kept`, `usual` or `lazy`. It counts for programs that leave
/// [`Options::tables`] at its default.
pub const TABLES_VARIABLE: &str = "TRIMTAB_TEAM_TABLES";

/// Variable that selects whether calls are checked: `on` or `off`.
pub const CHECK_VARIABLE: &str = "TRIMTAB_TEAM_CHECK";

/// Returns whether calls are checked, by the option and the value of [`CHECK_VARIABLE`].
pub(super) fn check_wanted(option: bool, said: Option<&str>) -> Result<bool> {
    match said {
        None | Some("") => Ok(option),
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => {
            Err(Error::Argument(format!("{CHECK_VARIABLE} is \"{other}\", which is neither on nor off")))
        }
    }
}

impl Tables {
    /// Applies the environment's value if the program left the option at its default.
    pub(super) fn by_environment(self, said: Option<&str>) -> Result<Self> {
        match (self, said) {
            (Self::Kept, Some("usual")) => Ok(Self::Usual),
            (Self::Kept, Some("lazy")) => Ok(Self::Lazy),
            (_, None | Some("" | "kept" | "usual" | "lazy")) => Ok(self),
            (_, Some(other)) => Err(Error::Argument(format!(
                "{TABLES_VARIABLE} is \"{other}\", which is none of kept, usual, lazy"
            ))),
        }
    }
}

impl Options {
    /// Returns options for `ranks` ranks: a heap of 16 MiB, cells of 32 KiB, no deadline, 30
    /// seconds for joining. [`Options`] has an example.
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            heap: 16 << 20,
            cell: 32 << 10,
            wait: Policy::Auto,
            deadline: None,
            gather: Duration::from_secs(30),
            tables: Tables::Kept,
            pull: true,
            check: false,
            interrupt: None,
        }
    }
}

/// Returns the smallest permitted cell in bytes. A cell must hold the longest element for each
/// rank; otherwise rounds that share a cell out among ranks would never end.
pub(super) fn least_cell(ranks: u32) -> usize {
    (ranks as usize * 8).next_power_of_two().max(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_selects_the_tables_if_the_program_does_not() {
        let by = |tables: Tables, said| tables.by_environment(said);
        assert_eq!(by(Tables::Kept, None), Ok(Tables::Kept));
        assert_eq!(by(Tables::Kept, Some("lazy")), Ok(Tables::Lazy));
        assert_eq!(by(Tables::Kept, Some("usual")), Ok(Tables::Usual));
        assert_eq!(by(Tables::Usual, Some("lazy")), Ok(Tables::Usual));
        assert!(
            by(Tables::Kept, Some("lasy")).unwrap_err().to_string().contains("none of kept, usual, lazy")
        );
    }
}

//! Budget of a hold: the computing threads that its processes may have, divided while they run.
//!
//! Unit: a computing thread. Problem: each thread pool of each process asks for the number of CPUs,
//! and each is told all of them, so that pools multiply: teams of teams, processes with teams each.
//! Idea: the processes of a hold publish how many threads they compute with and how many they want
//! ([`page`]). A pool that is about to start computes from these observations its process's share of
//! the cores, and its own size within the share ([`share`]).
//!
//! *Demand* is the number of threads that a process would use now if it were alone; a process that
//! waits demands nothing, and so *lends* its cores. A *share* is the part of the cores that a process
//! gets for its demand. A *grant* is the number of threads of one team or pool.
//!
//! Properties, each a test beside the code:
//! - The shares of one observation add up to at most the cores, or to one for each process that
//!   computes, whichever is more.
//! - No process that demands a thread gets less than one, and none gets more than it demands.
//! - A process gets its demand, or at least an equal part of the cores, whatever others demand. So
//!   a process that waited gets its part back at its next decision, and others shrink at theirs.
//! - Cores stay unused only if all demands are met.
//! - The teams of a process add up to at most its share, or to one thread for each team.
//!
//! Source: LeWI ("lend when idle") of DLB, Barcelona Supercomputing Center, which has to be linked;
//! max-min fairness for the division.

pub mod page;
pub mod share;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

/// Environment variable that gives the budget to the preload library: a [`Handoff`].
pub const VARIABLE: &str = "TRIMTAB_BUDGET";

/// Teams that may be made smaller than their program asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Teams for which the program allows it (`OMP_DYNAMIC`, `omp_set_dynamic`).
    Dynamic,
    /// These, and teams without a number of their own in the program (no `num_threads` clause).
    Unnumbered,
    /// All teams.
    All,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Dynamic, Self::Unnumbered, Self::All];

    /// Returns the word in the variable.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Unnumbered => "unnumbered",
            Self::All => "all",
        }
    }

    /// Returns whether a team may be made smaller. `numbered`: the program demands the number.
    /// `dynamic`: the program allows smaller teams.
    pub const fn bounds(self, numbered: bool, dynamic: bool) -> bool {
        match self {
            Self::Dynamic => dynamic,
            Self::Unnumbered => dynamic || !numbered,
            Self::All => true,
        }
    }
}

/// Budget as the launcher hands it over: `1 PROCESS DESCRIPTOR CORES RULE`, words separated by
/// spaces; the first is the version.
///
/// The page file has no name in any folder. It is the descriptor of the process that the launcher
/// became, and each descendant's that did not close it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// Process that became the program.
    pub pid: u32,
    /// Descriptor of the page file, in that process and in those that inherited it.
    pub descriptor: i32,
    /// Cores of the hold, at least 1.
    pub cores: u32,
    /// Teams that may be made smaller.
    pub rule: Rule,
}

/// Version of the variable's text.
const TEXT_VERSION: &str = "1";
/// Lowest descriptor of a page file: the standard streams come before it.
const DESCRIPTOR_MIN: i32 = 3;

impl fmt::Display for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, descriptor, cores, rule } = self;
        write!(f, "{TEXT_VERSION} {pid} {descriptor} {cores} {}", rule.word())
    }
}

/// A text that is no [`Handoff`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadHandoff;

impl FromStr for Handoff {
    type Err = BadHandoff;

    /// Allocates nothing.
    fn from_str(text: &str) -> Result<Self, BadHandoff> {
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(BadHandoff);
        if next()? != TEXT_VERSION {
            return Err(BadHandoff);
        }
        let pid = next()?.parse().ok().filter(|&pid| i32::try_from(pid).is_ok_and(|pid| pid > 0));
        let descriptor = next()?.parse().ok().filter(|&descriptor| descriptor >= DESCRIPTOR_MIN);
        let cores = next()?.parse().ok().filter(|cores| (1..=page::COUNT_MAX).contains(cores));
        let word = next()?;
        let rule = Rule::ALL.into_iter().find(|rule| rule.word() == word);
        match (pid, descriptor, cores, rule, words.next()) {
            (Some(pid), Some(descriptor), Some(cores), Some(rule), None) => {
                Ok(Self { pid, descriptor, cores, rule })
            }
            _ => Err(BadHandoff),
        }
    }
}

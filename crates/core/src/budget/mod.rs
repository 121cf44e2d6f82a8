//! Budget of a hold: the computing threads that its processes may have, divided while they run.
//!
//! Unit: a computing thread. Problem: each thread pool of each process reads the number of CPUs and
//! gets the number of all of them, so that pools multiply: teams of teams, processes with teams
//! each. Idea: the processes of a hold publish how many threads they compute with and how many they
//! want ([`page`]). A pool that is about to start computes from these observations its process's
//! share of the cores, and its own size within the share ([`share`]). It observes the others over
//! some milliseconds ([`track`]), since waiting is a matter of time.
//!
//! *Demand* is the number of threads that a process would use now if it were alone; a process that
//! waits demands nothing, and so *lends* its cores. A *share* is the part of the cores that a
//! process gets for its demand. A *grant* is the number of threads of one team or pool.
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

pub mod count_use;
pub mod nproc;
pub mod page;
pub mod share;
pub mod track;

#[cfg(test)]
mod tests;

use crate::ids::{CPUS_MAX, OsCpu};
use crate::set::CpuSet;

/// Environment variable that gives the budget to the preload library: a [`Handoff`].
pub const VARIABLE: &str = "TRIMTAB_BUDGET";

/// Teams that may be made smaller than their program requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Teams without a number of their own in the program (no `num_threads` clause), and teams for
    /// which the program allows it (`OMP_DYNAMIC`, `omp_set_dynamic`).
    Unnumbered,
    /// All teams.
    All,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 2] = [Self::Unnumbered, Self::All];

    /// Returns the word in the variable.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unnumbered => "unnumbered",
            Self::All => "all",
        }
    }

    /// Returns whether a team may be made smaller. `numbered`: the program demands the number.
    /// `dynamic`: the program allows smaller teams.
    pub const fn bounds(self, numbered: bool, dynamic: bool) -> bool {
        match self {
            Self::Unnumbered => dynamic || !numbered,
            Self::All => true,
        }
    }
}

/// Budget as the launcher hands it over: `1 PROCESS DESCRIPTOR CORES RULE CPUS`, words separated by
/// spaces; the first is the version, and CPUs are written as `0-3,8`.
///
/// The page file has no name in any folder. The process that the launcher became has the
/// descriptor, and so has each descendant that did not close it. Reading allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff<'a> {
    /// Process that became the program.
    pub pid: u32,
    /// Descriptor of the page file, in that process and in those that inherited it.
    pub descriptor: i32,
    /// Cores of the hold, at least 1.
    pub cores: u32,
    /// Teams that may be made smaller.
    pub rule: Rule,
    /// CPUs of the hold as text. Processes that may run elsewhere do not count.
    cpus: &'a str,
}

/// Version of the variable's text.
const TEXT_VERSION: &str = "1";
/// Lowest descriptor of a page file: the standard streams come before it.
const DESCRIPTOR_MIN: i32 = 3;

impl<'a> Handoff<'a> {
    /// Parses the text of the variable; `None` if it is no hand-off.
    pub fn read(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        words.next().filter(|&version| version == TEXT_VERSION)?;
        let pid = words.next()?.parse().ok().filter(|&pid| i32::try_from(pid).is_ok_and(|pid| pid > 0))?;
        let descriptor = words.next()?.parse().ok().filter(|&descriptor| descriptor >= DESCRIPTOR_MIN)?;
        let cores = words.next()?.parse().ok().filter(|cores| (1..=page::COUNT_MAX).contains(cores))?;
        let word = words.next()?;
        let rule = Rule::ALL.into_iter().find(|rule| rule.word() == word)?;
        let cpus = words.next()?;
        let is_whole = words.next().is_none() && cpus.split(',').all(|range| cpu_range(range).is_some());
        is_whole.then_some(Self { pid, descriptor, cores, rule, cpus })
    }

    /// Returns the CPUs of the hold as ranges: first and last.
    pub fn cpus(&self) -> impl Iterator<Item = (OsCpu, OsCpu)> + use<'a> {
        self.cpus.split(',').filter_map(cpu_range)
    }
}

/// Returns the text of a hand-off.
pub fn handoff(pid: u32, descriptor: i32, cores: u32, rule: Rule, cpus: &CpuSet) -> String {
    let cores = cores.clamp(1, page::COUNT_MAX);
    format!("{TEXT_VERSION} {pid} {descriptor} {cores} {} {cpus}", rule.word())
}

/// Reads `8` or `0-3`.
fn cpu_range(text: &str) -> Option<(OsCpu, OsCpu)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let cpu = |text: &str| text.parse().ok().filter(|&cpu: &u32| (cpu as usize) < CPUS_MAX);
    let (first, last) = (cpu(first)?, cpu(last)?);
    (first <= last).then_some((OsCpu(first), OsCpu(last)))
}

//! The facts of a launch: what is so where it takes place, as far as the decision asks.
//!
//! Facts are gathered in three steps, each as late as it must be: machine, limits, load and program
//! first; the ledger under the lock that makes it stay true; and, on the CPUs that are then held,
//! what only the decision so far asks for ([`Answers`]).

use crate::family::Family;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::ids::OsCpu;
use trimtab_core::place::launchers::Launcher;
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::place::waiting::Yield;
use trimtab_core::place::{Reason, Taken};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;

/// Everything a launch meets.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchFacts {
    /// The machine.
    pub machine: Machine,
    /// What of it may be used: `allowed`, `mems` and `quota`; nothing else is set.
    pub bounds: Taken,
    /// Why not all of it, in words.
    pub limited: Vec<Reason>,
    /// What else runs.
    pub load: Load,
    /// What other runs hold.
    pub ledger: LedgerFacts,
    /// The program; `None` where none is named.
    pub program: Option<ProgramFacts>,
    /// This process's parent.
    pub parent: Parent,
    /// The preload library, or why there is none.
    pub library: Result<PathBuf, String>,
    /// The version of the C library.
    pub glibc: Option<(u32, u32)>,
    /// The process that becomes the program.
    pub pid: u32,
    /// The file in which the preload library counts meetings, where they are counted.
    pub meetings: Option<String>,
    /// Answers to what an earlier decision asked.
    pub answers: Answers,
}

/// What else runs on the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Busy share of each CPU in thousandths; empty where load was not sampled.
    pub busy: BTreeMap<OsCpu, u16>,
    /// CPUs that foreign tasks are bound to.
    pub pinned: CpuSet,
    /// What was not looked at, and why, in words.
    pub notes: Vec<String>,
}

/// What the ledger says at the place where this launch stands in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LedgerFacts {
    /// The CPUs there are to take: the machine's, or those of the enclosing run.
    pub within: CpuSet,
    /// The CPUs that others hold.
    pub held: CpuSet,
    /// The CPUs that the ranks of this job hold together, once one of them has taken them.
    pub allotment: Option<CpuSet>,
    /// Why nothing can be reserved, where that is so.
    pub fault: Option<String>,
}

/// This process's parent, as far as ranks are concerned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parent {
    /// The CPUs that it may use, where that was looked at.
    pub mask: Option<CpuSet>,
    /// Its identity in words, where that was looked at: a name for a job that has no other.
    pub identity: Option<String>,
}

/// The facts of a program's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramFacts {
    /// The file that is executed.
    pub path: PathBuf,
    /// The kind of program, by its name or its interpreter's.
    pub family: Option<Family>,
    /// Whether it is a script, which may start anything.
    pub script: bool,
    /// Whether the Go compiler made it.
    pub go: bool,
    /// The OpenMP runtime it links.
    pub openmp: Option<Runtime>,
    /// Whether the loader takes a preload, and the file bears this library; or why not.
    pub preload: Result<(), String>,
    /// Why no library can be preloaded at all, whichever: privilege, linkage, an unreadable file.
    pub closed: Option<String>,
    /// Whether it may start threads by itself. Looked for in programs that link OpenMP only.
    pub starts_threads: bool,
    /// Whether it may call `omp_set_nesting_info`. Looked for in programs that link OpenMP only.
    pub sets_teams: bool,
    /// The MPI launcher that it is, or that it becomes (`env mpirun ...`).
    pub launcher: Option<LauncherFacts>,
}

/// A launcher of ranks on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LauncherFacts {
    /// Which.
    pub launcher: Launcher,
    /// The name of its file.
    pub name: String,
    /// Its place among the words of the command: 0, or more behind a wrapper such as `env`.
    pub at: usize,
}

/// Facts that are expensive to find out and depend on the CPUs of the plan. A decision says which
/// it wants ([`Questions`](crate::plan::Questions)); they count on the CPUs they were found out on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answers {
    /// The CPUs.
    pub cpus: CpuSet,
    /// What `sched_yield` does there.
    pub yields: Option<Yield>,
    /// The file with a picture of these CPUs for launchers, or why there is none.
    pub picture: Option<Result<String, String>>,
}

impl LaunchFacts {
    /// What is taken of the machine from the point of view of this launch.
    pub fn taken(&self) -> Taken {
        Taken {
            allowed: self.bounds.allowed.intersection(&self.ledger.within),
            held: self.ledger.held.clone(),
            pinned: self.load.pinned.clone(),
            busy: self.load.busy.clone(),
            ..self.bounds.clone()
        }
    }

    /// The answers, where they are about these CPUs.
    pub fn answers_on(&self, cpus: &CpuSet) -> Answers {
        if self.answers.cpus == *cpus { self.answers.clone() } else { Answers::default() }
    }
}

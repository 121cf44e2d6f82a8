//! The study of oversubscription as data: what was run, in which way, beside whom, and how long it took.
//!
//! Unit: seconds, and times: a slow-down of 2 is twice the time. Problem: what more threads than cores cost or gain depends on program, runtime, how
//! threads wait, whether they are bound, and who else is there; figures of different hours of a busy machine cannot be set side by
//! side. Idea: a [`Sample`] is one run of one [`Cell`], and holds the time of a run of the program's *baseline* that was made just before
//! ([`Sample::beside`]): ratios are taken within such neighbours, and only then over rounds.
//!
//! Terms. The *baseline* of a program by a runtime is: alone, a thread for each core it may use, floating, waiting as the runtime does by itself.
//! *Per core* is threads over the cores that this program may use: two programs that share two cores with two threads each have one per core
//! each, and so have two programs with a core of their own and one thread each. A pair of programs makes two samples of one round, each with the
//! other as its [`Company`].
//!
//! Properties: what was not measured is `None`; a run that was stopped since it took too long is a sample ([`Status::Slower`]) whose time is a
//! lower bound, and whatever is derived from it says so. Equal samples and seed give equal results.
//!
//! Source: C. Iancu, S. Hofmeyr, F. Blagojević and Y. Zheng, "Oversubscription on Multicore Processors", IPDPS 2010, for what is varied and shown;
//! S. Eyerman and L. Eeckhout, "System-Level Performance Metrics for Multiprogram Workloads", IEEE Micro 28(3), 2008, for throughput and
//! fairness of a pair.

mod derive;
mod read;
#[cfg(test)]
mod tests;

pub use derive::{Pair, Sharing, Summary, best, cells, pairs, sharing};
pub use read::{About, ReadError, SCHEMA, Study, read};

use crate::place::runtimes;
use crate::place::waiting::WaitPolicy;
use crate::setting::{Knob, Setting, SettingError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What kind of program it is: how its threads wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// A kernel or pseudo-application of the NAS Parallel Benchmarks.
    Nas,
    /// Equal work between barriers, at intervals that are chosen.
    Barriers,
    /// Threads that pass work on by flags of their own, which no runtime's wait policy reaches.
    Pipeline,
    /// Threads that each open a team: several zones at once.
    Zones,
}

/// What runs the threads or ranks: a [`runtimes::Runtime`], and for teams what the ranks are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// GCC's OpenMP.
    Libgomp,
    /// LLVM's OpenMP.
    Libomp,
    /// Open MPI.
    #[serde(rename = "openmpi")]
    OpenMpi,
    /// MPICH.
    Mpich,
    /// A team of this project, its ranks threads.
    TeamThread,
    /// The same, its ranks processes.
    TeamProcess,
}

impl Runtime {
    /// All, in the order of tables.
    pub const ALL: [Self; 6] =
        [Self::Libgomp, Self::Libomp, Self::OpenMpi, Self::Mpich, Self::TeamThread, Self::TeamProcess];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Libgomp => "libgomp",
            Self::Libomp => "libomp",
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::TeamThread => "team-thread",
            Self::TeamProcess => "team-process",
        }
    }

    /// The runtime, whatever its ranks are.
    pub const fn runtime(self) -> runtimes::Runtime {
        match self {
            Self::Libgomp => runtimes::Runtime::Libgomp,
            Self::Libomp => runtimes::Runtime::Libomp,
            Self::OpenMpi => runtimes::Runtime::OpenMpi,
            Self::Mpich => runtimes::Runtime::Mpich,
            Self::TeamThread | Self::TeamProcess => runtimes::Runtime::Team,
        }
    }
}

/// Where threads may run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grip {
    /// Each on one core, evenly, for good.
    Pinned,
    /// Wherever Linux puts them.
    Floating,
    /// As the speed balancer moves them.
    Balanced,
}

impl Grip {
    /// All, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Pinned, Self::Floating, Self::Balanced];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Floating => "floating",
            Self::Balanced => "balanced",
        }
    }
}

/// How two programs have the cores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// Both may use all.
    Shared,
    /// Each has half of them to itself.
    Partitioned,
}

impl Arrangement {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Partitioned];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Partitioned => "partitioned",
        }
    }
}

macro_rules! words {
    ($type:ty, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.into_iter().find(|one| one.word() == text).ok_or_else(|| {
                    let known: Vec<&str> = Self::ALL.into_iter().map(Self::word).collect();
                    format!("\"{text}\" is no {}: {}", $what, known.join(", "))
                })
            }
        }
    };
}

words!(Runtime, "runtime");
words!(Grip, "grip");
words!(Arrangement, "arrangement");

/// The other program of a pair.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Company {
    /// Its name.
    pub program: String,
    /// Its problem class, if it has classes.
    pub class: Option<String>,
    /// Who runs it.
    pub runtime: Runtime,
    /// Its threads for each core that it may use.
    pub per_core: u32,
    /// How the two have the cores.
    pub arrangement: Arrangement,
    /// Which of the two the *sample's* program is, 1 or 2: a program can be its own company.
    pub place: u8,
}

/// What is run, and in which way: samples of equal cells can be compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The program's name, as `cg`, `barriers-1ms`, `pipeline` or `zones`.
    pub program: String,
    /// Its problem class, if it has classes.
    pub class: Option<String>,
    /// What kind of program it is.
    pub family: Family,
    /// Who runs its threads.
    pub runtime: Runtime,
    /// All its threads or ranks.
    pub threads: u32,
    /// Cores that it may use.
    pub cores: u32,
    /// The former over the latter.
    pub per_core: u32,
    /// Where its threads may run.
    pub grip: Grip,
    /// How its threads wait; [`WaitPolicy::Keep`] is as the runtime does by itself.
    pub wait: WaitPolicy,
    /// The other program; `None` when it was alone.
    pub company: Option<Company>,
}

impl Cell {
    /// Program and class, as `cg.W`.
    pub fn name(&self) -> String {
        named(&self.program, self.class.as_deref())
    }

    /// Whether this is how a program's baseline is run.
    pub fn is_baseline(&self) -> bool {
        let Self { per_core, grip, wait, company, .. } = self;
        (*per_core, *grip, *wait) == (1, Grip::Floating, WaitPolicy::Keep) && company.is_none()
    }

    /// What `run` would be told to start the program so.
    ///
    /// # Errors
    /// `run` cannot start it so.
    pub fn setting(&self) -> Result<Setting, SettingError> {
        let (pin, balance) = match self.grip {
            Grip::Pinned => ("auto", "none"),
            Grip::Floating => ("mask", "none"),
            Grip::Balanced => ("mask", "speed"),
        };
        let setting = Setting::new()
            .with(Knob::Threads, self.threads.to_string())?
            .with(Knob::Cores, self.cores.to_string())?;
        setting.with(Knob::Wait, self.wait.word())?.with(Knob::Pin, pin)?.with(Knob::Balance, balance)
    }
}

/// One line that is different for different cells.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, threads, cores, grip, wait, company, .. } = self;
        write!(f, "{}/{runtime}/{threads}on{cores}/{grip}/{wait}", self.name())?;
        let Some(Company { program, class, runtime, per_core, arrangement, place }) = company else {
            return Ok(());
        };
        let other = named(program, class.as_deref());
        write!(f, "/{arrangement}{place}+{other}/{runtime}/{per_core}")
    }
}

fn named(program: &str, class: Option<&str>) -> String {
    class.map_or_else(|| program.to_owned(), |class| format!("{program}.{class}"))
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Its result was verified.
    Done,
    /// It was stopped when it had taken too many times its baseline's time: its times are lower bounds.
    Slower,
    /// It failed: it has no times that mean anything.
    Failed,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// What was run.
    #[serde(flatten)]
    pub cell: Cell,
    /// In which round, from 1.
    pub round: u32,
    /// How it ended.
    pub status: Status,
    /// Seconds of the part that the program itself times, which leaves out its start; for one that was stopped, how long it was let run.
    pub seconds: Option<f64>,
    /// The same of the baseline that was run just before; of a baseline itself, `None`.
    pub beside: Option<f64>,
    /// Seconds from start to end.
    pub wall: f64,
    /// CPU seconds of all its threads in the program, waiting included.
    pub user: Option<f64>,
    /// And in the kernel.
    pub system: Option<f64>,
    /// Lowest over highest user time of the cores meanwhile, of whomever; `None` for runs too short for the kernel's ticks.
    pub balance: Option<f64>,
    /// Mean seconds between two meetings of all threads (of a pipeline, between two planes) *at the baseline's speed*, where that is known.
    pub interval: Option<f64>,
    /// Share of the machine's time that others used or that a host kept, where that is known.
    pub foreign: Option<f64>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Sample {
    /// Its time over its baseline's; a lower bound when it was stopped.
    pub fn slowdown(&self) -> Option<f64> {
        let (seconds, beside) = (self.seconds?, self.beside?);
        (self.status != Status::Failed && seconds > 0.0 && beside > 0.0).then(|| seconds / beside)
    }
}

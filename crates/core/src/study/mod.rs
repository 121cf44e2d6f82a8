//! Data of the oversubscription study: runs, their configurations, their companions and their
//! times.
//!
//! Unit: seconds, and factors: a slowdown of 2 is twice the time. Problem: the cost or gain of more
//! threads than cores depends on the program, the runtime, the wait policy, the binding, and other
//! programs on the machine; figures of different hours of a busy machine cannot be compared. Idea:
//! a [`Sample`] is one run of one [`StudyCell`], and holds the time of a run of the program's
//! *baseline* that was made just before ([`Sample::beside`]). Ratios are taken within such
//! neighbours, and only then over rounds.
//!
//! Terms. The *baseline* of a program with a runtime is: alone, a thread for each core it may use,
//! floating, with the runtime's own wait policy. *Per core* is threads over the cores that this
//! program may use: two programs that share two cores with two threads each have one per core each,
//! and so have two programs with a core of their own and one thread each. A pair of programs makes
//! two samples of one round, each with the other as its [`PairedProgram`].
//!
//! Properties: a value that was not measured is `None`. A run that was stopped because it took too
//! long is a sample ([`Status::Slower`]) with a time that is a lower bound, and every derived value
//! is marked as one. Equal samples and seed give equal results.
//!
//! Source: C. Iancu, S. Hofmeyr, F. Blagojević and Y. Zheng, "Oversubscription on Multicore
//! Processors", IPDPS 2010, for the varied parameters and the figures; S. Eyerman and L. Eeckhout,
//! "System-Level Performance Metrics for Multiprogram Workloads", IEEE Micro 28(3), 2008, for
//! throughput and fairness of a pair.

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

/// Kind of program, by the way its threads wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// A kernel or pseudo-application of the NAS Parallel Benchmarks.
    Nas,
    /// Equal work between barriers, at chosen intervals.
    Barriers,
    /// Threads that pass work on by flags of their own, out of reach of any runtime's wait policy.
    Pipeline,
    /// Threads that each open a team: several zones at once.
    Zones,
    /// Any command of the user.
    Command,
}

/// Runtime of the threads or ranks: a [`runtimes::Runtime`], and for teams the kind of ranks.
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
    /// A team of this project with threads as ranks.
    TeamThread,
    /// A team of this project with processes as ranks.
    TeamProcess,
    /// UPC++, with ranks in one machine.
    Upcxx,
    /// Any, of a command of the user: it is told OpenMP's variables.
    Any,
}

impl Runtime {
    /// All runtimes whose programs are known, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Libgomp,
        Self::Libomp,
        Self::OpenMpi,
        Self::Mpich,
        Self::TeamThread,
        Self::TeamProcess,
        Self::Upcxx,
    ];

    /// Returns the name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Libgomp => "libgomp",
            Self::Libomp => "libomp",
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::TeamThread => "team-thread",
            Self::TeamProcess => "team-process",
            Self::Upcxx => "upcxx",
            Self::Any => "any",
        }
    }

    /// Returns the runtime without the kind of ranks.
    pub const fn runtime(self) -> runtimes::Runtime {
        match self {
            Self::Libgomp | Self::Any => runtimes::Runtime::Libgomp,
            Self::Libomp => runtimes::Runtime::Libomp,
            Self::OpenMpi => runtimes::Runtime::OpenMpi,
            Self::Mpich => runtimes::Runtime::Mpich,
            Self::TeamThread | Self::TeamProcess => runtimes::Runtime::Team,
            // The launcher does not know it: a program that starts its threads or ranks itself.
            Self::Upcxx => runtimes::Runtime::Pthread,
        }
    }
}

/// Binding of threads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadBinding {
    /// Each thread on one core, evenly, for the whole run.
    Pinned,
    /// Threads run wherever Linux puts them.
    Floating,
    /// The speed balancer moves the threads.
    Balanced,
}

impl ThreadBinding {
    /// All bindings, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Pinned, Self::Floating, Self::Balanced];

    /// Returns the name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Floating => "floating",
            Self::Balanced => "balanced",
        }
    }
}

/// Schedule of an OpenMP program's loops, as `OMP_SCHEDULE` names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoopSchedule {
    /// Each thread has one part of the turns, of equal size.
    Static,
    /// A thread that is done takes the next turn.
    Dynamic,
    /// A thread that is done takes a share of the turns that are left.
    Guided,
}

impl LoopSchedule {
    /// All schedules, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Static, Self::Dynamic, Self::Guided];

    /// Returns the name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::Guided => "guided",
        }
    }
}

/// Division of the cores between two programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// Both may use all cores.
    Shared,
    /// Each has half of the cores to itself.
    Partitioned,
}

impl Arrangement {
    /// Both arrangements.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Partitioned];

    /// Returns the name.
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
                    format!("unknown {} \"{text}\" (known: {})", $what, known.join(", "))
                })
            }
        }
    };
}

words!(Runtime, "runtime");
words!(ThreadBinding, "grip");
words!(LoopSchedule, "schedule");
words!(Arrangement, "arrangement");

/// The other program of a pair.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PairedProgram {
    /// Name of the program.
    pub program: String,
    /// Problem class, if the program has classes.
    pub class: Option<String>,
    /// Runtime of the program.
    pub runtime: Runtime,
    /// Threads per core that the program may use.
    pub per_core: u32,
    /// Division of the cores between the two.
    pub arrangement: Arrangement,
    /// Position of the *sample's* program in the pair, 1 or 2: a program can be its own company.
    pub place: u8,
}

/// Configuration of a run: samples of equal cells can be compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StudyCell {
    /// Name of the program, such as `cg`, `barriers-1ms`, `pipeline` or `zones`.
    pub program: String,
    /// Problem class, if the program has classes.
    pub class: Option<String>,
    /// Kind of program.
    pub family: Family,
    /// Runtime of the program.
    pub runtime: Runtime,
    /// Number of all its threads or ranks.
    pub threads: u32,
    /// Number of cores that it may use.
    pub cores: u32,
    /// Threads over cores.
    pub per_core: u32,
    /// Binding of the threads.
    pub grip: ThreadBinding,
    /// Wait policy of the threads; [`WaitPolicy::Keep`] is the runtime's own.
    pub wait: WaitPolicy,
    /// Schedule of the program's loops, if the program is built to be told one; `None` for the
    /// schedule in its source.
    #[serde(default)]
    pub schedule: Option<LoopSchedule>,
    /// The other program; `None` if the program was alone.
    pub company: Option<PairedProgram>,
}

impl StudyCell {
    /// Returns program and class, such as `cg.W`.
    pub fn name(&self) -> String {
        named(&self.program, self.class.as_deref())
    }

    /// Returns whether this is the configuration of a program's baseline.
    pub fn is_baseline(&self) -> bool {
        let Self { per_core, grip, wait, schedule, company, .. } = self;
        (*per_core, *grip, *wait) == (1, ThreadBinding::Floating, WaitPolicy::Keep)
            && schedule.is_none()
            && company.is_none()
    }

    /// Returns the setting with which `run` would start the program like this.
    ///
    /// # Errors
    /// `run` cannot start it like this.
    pub fn setting(&self) -> Result<Setting, SettingError> {
        let (pin, balance) = match self.grip {
            ThreadBinding::Pinned => ("auto", "none"),
            ThreadBinding::Floating => ("mask", "none"),
            ThreadBinding::Balanced => ("mask", "speed"),
        };
        let setting = Setting::new()
            .with(Knob::Threads, self.threads.to_string())?
            .with(Knob::Cores, self.cores.to_string())?;
        setting.with(Knob::Wait, self.wait.word())?.with(Knob::Pin, pin)?.with(Knob::Balance, balance)
    }
}

/// Formats the cell as one line that differs for different cells.
impl fmt::Display for StudyCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, threads, cores, grip, wait, schedule, company, .. } = self;
        write!(f, "{}/{runtime}/{threads}on{cores}/{grip}/{wait}", self.name())?;
        if let Some(schedule) = schedule {
            write!(f, "/{schedule}")?;
        }
        let Some(PairedProgram { program, class, runtime, per_core, arrangement, place }) = company else {
            return Ok(());
        };
        let other = named(program, class.as_deref());
        write!(f, "/{arrangement}{place}+{other}/{runtime}/{per_core}")
    }
}

fn named(program: &str, class: Option<&str>) -> String {
    class.map_or_else(|| program.to_owned(), |class| format!("{program}.{class}"))
}

/// Outcome of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The result was verified.
    Done,
    /// The run exceeded the limit over its baseline's time and was stopped: its times are lower
    /// bounds.
    Slower,
    /// The run failed: its times mean nothing.
    Failed,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Configuration.
    #[serde(flatten)]
    pub cell: StudyCell,
    /// Round, from 1.
    pub round: u32,
    /// Outcome.
    pub status: Status,
    /// Seconds of the part that the program itself times, without its start; for a stopped run, the
    /// time until it was stopped.
    pub seconds: Option<f64>,
    /// Seconds of the same part of the baseline that ran just before; `None` for a baseline itself.
    pub beside: Option<f64>,
    /// Seconds from start to end.
    pub wall: f64,
    /// CPU seconds of all threads in user mode, waiting included.
    pub user: Option<f64>,
    /// CPU seconds of all threads in the kernel.
    pub system: Option<f64>,
    /// Lowest over highest user time of the cores during the run, including other programs; `None`
    /// for runs too short for the kernel's ticks.
    pub balance: Option<f64>,
    /// Mean seconds between two barriers of all threads (for a pipeline, between two planes) *at
    /// the baseline's speed*, if known.
    pub interval: Option<f64>,
    /// Share of the machine's time that others used or that a host kept, if known.
    pub foreign: Option<f64>,
    /// Reason of a failure.
    pub error: Option<String>,
}

impl Sample {
    /// Returns the time over the baseline's; a lower bound for a stopped run.
    pub fn slowdown(&self) -> Option<f64> {
        let (seconds, beside) = (self.seconds?, self.beside?);
        (self.status != Status::Failed && seconds > 0.0 && beside > 0.0).then(|| seconds / beside)
    }
}

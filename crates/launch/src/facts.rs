//! Facts of a launch: the state of the machine, its limits and its load, as far as the decision
//! needs them.
//!
//! The caller gathers facts in three steps, each as late as possible: first machine, limits, load
//! and program; then the ledger, under the lock that keeps its contents valid; then, on the CPUs
//! that are now held, the facts that depend on the decision so far ([`Answers`]).

use crate::family::Family;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::ids::{OsCpu, OsNode};
use trimtab_core::jobserver::Form;
use trimtab_core::place::launchers::Launcher;
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::place::waiting::Yield;
use trimtab_core::place::{ExclusiveGrant, Reason, Taken};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;

/// All facts that a decision needs. [`LaunchFacts::idle`] and [`decide()`](crate::decide()) have
/// examples.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchFacts {
    /// The machine.
    pub machine: Machine,
    /// Limits of this launch: `allowed`, `mems` and `quota`; no other field is set.
    pub bounds: Taken,
    /// CPUs that the site keeps for the system; no launch gets them.
    pub reserved: CpuSet,
    /// Reasons why the launch may not use the whole machine, in words.
    pub limited: Vec<Reason>,
    /// Load of other programs.
    pub load: Load,
    /// Reservations of other runs.
    pub ledger: LedgerFacts,
    /// The program; `None` if the command names none.
    pub program: Option<ProgramFacts>,
    /// Text of the program, or its beginning, if it is a shell's script in a file.
    pub script: Option<String>,
    /// This process's parent.
    pub parent: Parent,
    /// Path of the preload library, or the reason why there is none.
    pub library: Result<PathBuf, String>,
    /// Path of the preload library that also exports functions of BLAS, or the reason why there is
    /// none. Loaded in place of the other if the launch has a budget.
    pub blas_library: Result<PathBuf, String>,
    /// The version of the C library.
    pub glibc: Option<(u32, u32)>,
    /// Process id of the process that becomes the program.
    pub pid: u32,
    /// File in which the preload library counts barriers and collectives; `None` if they are not
    /// counted.
    pub meetings: Option<String>,
    /// Build tools that the launch may start. Only read for a jobserver.
    pub build: BuildFacts,
    /// Answers to the questions of an earlier decision.
    pub answers: Answers,
}

/// Build tools that a launch may start, and what they know of jobservers.
/// [`set_up`](crate::jobserver::set_up) has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BuildFacts {
    /// Form that make reads: the program itself if it is one, else the first in the search path.
    /// `None` without make.
    pub make: Option<Form>,
    /// Whether ninja uses a jobserver: the program itself if it is one, else the first in the
    /// search path. `None` without ninja.
    pub ninja: Option<bool>,
}

/// Load of other programs on the machine.
///
/// # Examples
/// ```
/// use trimtab_core::ids::OsCpu;
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::facts::Load;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, decide};
///
/// // Another program keeps CPU 0 busy for 90 % of the time.
/// let load = Load { busy: [(OsCpu(0), 900)].into(), ..Load::default() };
/// let facts = LaunchFacts { load, ..LaunchFacts::idle(parse_synthetic("core:4")?) };
/// let options = Options { cores: Some("1".parse()?), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
/// assert_eq!(decide(&request, &facts)?.placement.mask.to_string(), "1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Busy share of each CPU in thousandths; empty if load was not sampled.
    pub busy: BTreeMap<OsCpu, u16>,
    /// CPUs to which tasks of other programs are bound.
    pub pinned: CpuSet,
    /// CPUs that managers of this machine granted exclusively to jobs of theirs.
    pub granted: Vec<ExclusiveGrant>,
    /// Free memory of each node that was examined, in bytes.
    pub memory: BTreeMap<OsNode, u64>,
    /// Load facts that were not read, and why, in words.
    pub notes: Vec<String>,
}

/// Contents of the ledger, as seen from this launch. [`LaunchFacts::taken`] has an example.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LedgerFacts {
    /// CPUs that this launch may take: those of the machine, or of the enclosing run.
    pub within: CpuSet,
    /// Whether this launch is inside another run, which may hold the whole machine.
    pub is_inner: bool,
    /// CPUs held by others.
    pub held: CpuSet,
    /// Memory of each node that others hold and do not use yet, in bytes. Only read for a request
    /// that names an amount of memory.
    pub memory: BTreeMap<OsNode, u64>,
    /// CPUs that the ranks of this job hold together; `None` until one rank has taken them.
    pub allotment: Option<CpuSet>,
    /// Reason why nothing can be reserved; `None` if reserving works.
    pub fault: Option<String>,
    /// Reason why programs outside of this container do not see this launch's reservation; `None`
    /// if they do.
    pub private: Option<String>,
}

/// Facts about this process's parent, which matter for ranks.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::facts::Parent;
/// use trimtab_launch::{Environment, LaunchFacts, LaunchRequest, Role, Sources};
///
/// // The launcher may use four CPUs, and has bound this rank to two of them.
/// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
/// facts.bounds.allowed = "2-3".parse()?;
/// facts.parent = Parent { mask: Some("0-3".parse()?), ..Parent::default() };
/// let variables = [("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
/// let environment: Environment =
///     variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
/// let request = LaunchRequest::merge(Sources { environment, ..Sources::default() })?;
/// assert!(matches!(Role::of(&request, &facts), Role::Bound(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parent {
    /// CPUs that the parent may use; `None` if not read.
    pub mask: Option<CpuSet>,
    /// Identity of the parent in words, used as the name of a job without one; `None` if not read.
    pub identity: Option<String>,
}

/// The facts of a program's file. [`Preload`](crate::Preload) has an example.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramFacts {
    /// The file that is executed.
    pub path: PathBuf,
    /// Kind of the program, by its own name or that of its interpreter.
    pub family: Option<Family>,
    /// Whether it is a script, which may start any program.
    pub script: bool,
    /// Whether it was built by the Go compiler.
    pub go: bool,
    /// OpenMP runtime that the program links.
    pub openmp: Option<Runtime>,
    /// Whether the loader honours `LD_PRELOAD` and the file can load this library; else the reason.
    pub preload: Result<(), String>,
    /// Reason why no library at all can be preloaded: privilege, static linkage, an unreadable
    /// file.
    pub closed: Option<String>,
    /// Whether it may start threads by itself. Examined only in programs that link OpenMP.
    pub starts_threads: bool,
    /// Whether it may call `omp_set_nesting_info`. Examined only in programs that link OpenMP.
    pub sets_teams: bool,
    /// The MPI launcher that it is, or that it executes (`env mpirun ...`).
    pub launcher: Option<LauncherFacts>,
}

/// Launcher of ranks on the command line, a part of [`ProgramFacts`].
/// [`Preload`](crate::Preload) has an example of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LauncherFacts {
    /// Which launcher.
    pub launcher: Launcher,
    /// Name of its file.
    pub name: String,
    /// Index among the words of the command: 0, or more behind a wrapper such as `env`.
    pub at: usize,
}

/// Facts that are expensive to find out and depend on the CPUs of the plan. A decision lists those
/// it wants ([`Questions`](crate::plan::Questions)). An answer is valid only for the CPUs on which
/// it was found out. [`LaunchFacts::answers_on`] has an example.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answers {
    /// The CPUs for which the answers are valid.
    pub cpus: CpuSet,
    /// Effect of `sched_yield` on these CPUs.
    pub yields: Option<Yield>,
    /// File with the restricted topology (`picture`) of these CPUs for launchers, or why there is
    /// none.
    pub picture: Option<Result<String, String>>,
}

impl LaunchFacts {
    /// Returns the facts of a launch on an idle machine of which it may use everything: no program,
    /// no preload library, nothing known of the C library. A caller fills in the facts that it
    /// found.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::topology::parse_synthetic;
    /// use trimtab_launch::LaunchFacts;
    ///
    /// let mut facts = LaunchFacts::idle(parse_synthetic("pack:2 core:4")?);
    /// facts.ledger.held = "0-1".parse()?; // Another run has these.
    /// facts.glibc = Some((2, 36));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn idle(machine: Machine) -> Self {
        Self {
            bounds: Taken::nothing(machine.cpus()),
            reserved: CpuSet::new(),
            limited: Vec::new(),
            load: Load::default(),
            ledger: LedgerFacts { within: machine.cpus(), ..LedgerFacts::default() },
            program: None,
            script: None,
            parent: Parent::default(),
            library: Err("no preload library".to_owned()),
            blas_library: Err("no preload library with functions of BLAS".to_owned()),
            glibc: None,
            pid: 0,
            meetings: None,
            build: BuildFacts::default(),
            answers: Answers::default(),
            machine,
        }
    }

    /// Returns the occupancy of the machine, as seen from this launch.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::topology::parse_synthetic;
    /// use trimtab_launch::LaunchFacts;
    ///
    /// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
    /// facts.ledger.within = "0-2".parse()?; // An enclosing run has these.
    /// facts.ledger.held = "0".parse()?;
    /// let taken = facts.taken();
    /// assert_eq!((taken.allowed.to_string(), taken.held.to_string()), ("0-2".into(), "0".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn taken(&self) -> Taken {
        Taken {
            allowed: self.bounds.allowed.intersection(&self.ledger.within),
            held: self.held(),
            pinned: self.load.pinned.clone(),
            busy: self.load.busy.clone(),
            free_memory: self.load.memory.clone(),
            held_memory: self.ledger.memory.clone(),
            ..self.bounds.clone()
        }
    }

    /// Returns the CPUs that others hold: by the ledger, or by a grant of another manager.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::place::{ExclusiveGrant, Manager};
    /// use trimtab_core::topology::parse_synthetic;
    /// use trimtab_launch::LaunchFacts;
    ///
    /// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
    /// facts.ledger.held = "0".parse()?; // Another run has this one.
    /// let to = "job 42".to_owned();
    /// let cpus = "2".parse()?;
    /// facts.load.granted = vec![ExclusiveGrant { manager: Manager::Slurm, to, cpus }];
    /// assert_eq!(facts.held().to_string(), "0,2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn held(&self) -> CpuSet {
        self.load.granted.iter().fold(self.ledger.held.clone(), |held, grant| held.union(&grant.cpus))
    }

    /// Returns the answers if they are valid for these CPUs, else empty answers.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::topology::parse_synthetic;
    /// use trimtab_launch::LaunchFacts;
    /// use trimtab_launch::facts::Answers;
    ///
    /// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
    /// let picture = Some(Err("not needed".to_owned()));
    /// facts.answers = Answers { cpus: "0-1".parse()?, picture, yields: None };
    /// assert!(facts.answers_on(&"0-1".parse()?).picture.is_some());
    /// assert!(facts.answers_on(&"2-3".parse()?).picture.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn answers_on(&self, cpus: &CpuSet) -> Answers {
        if self.answers.cpus == *cpus { self.answers.clone() } else { Answers::default() }
    }
}

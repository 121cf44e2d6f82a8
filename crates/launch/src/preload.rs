//! Preload library of a launch: whether it is loaded into a program, and the variables for it.

use crate::facts::{LaunchFacts, ProgramFacts};
use crate::family::Family;
use crate::options::PinMode;
use crate::request::LaunchRequest;
use crate::variables::Environment;
use serde::Serialize;
use std::path::{Path, PathBuf};
use trimtab_core::budget::VARIABLE as VARIABLE_OF_BUDGET;
use trimtab_core::handoff::bearer;
use trimtab_core::handoff::{
    CHANGED_VARIABLE, Handoff, NEST_VARIABLE, NestHandoff, Pin, VARIABLE, changed_text,
};
use trimtab_core::place::{Action, Plan, Variable};
use trimtab_core::set::CpuSet;
use trimtab_core::sync_stats;

/// Name of the reader of the library's variables, as shown in tables.
const READER: &str = "trimtab's guest library";
/// Variable that lists preloaded libraries.
const PRELOAD: &str = "LD_PRELOAD";
/// Variable in which LLVM's runtime searches for tools.
const TOOLS: &str = "OMP_TOOL_LIBRARIES";

/// Whether the preload library is loaded.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::facts::ProgramFacts;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Sources, decide, preload};
///
/// // A static program on a machine with the library.
/// let program = ProgramFacts {
///     path: "/home/ann/app".into(),
///     family: None,
///     script: false,
///     go: false,
///     openmp: None,
///     preload: Err("it is static".to_owned()),
///     closed: Some("it is static".to_owned()),
///     starts_threads: false,
///     sets_teams: false,
///     launcher: None,
/// };
/// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
/// facts.library = Ok("/usr/lib/trimtab/libtrimtab_shim.so".into());
/// assert_eq!(preload::uncounted(&program, &facts.library), ["it is static"]);
/// facts.program = Some(program);
/// let plan = decide(&LaunchRequest::merge(Sources::default())?, &facts)?;
/// assert_eq!(plan.preload.stays_out(), Some("it is static: threads float inside the mask"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "library", rename_all = "kebab-case")]
pub enum Preload {
    /// The library is loaded.
    Goes {
        /// Treatment of threads: `born`, `float`, `mask` or `moved`.
        #[serde(serialize_with = "word")]
        pin: Pin,
    },
    /// The library is not loaded.
    Stays {
        /// The reason, in words.
        why: String,
    },
}

fn word<S: serde::Serializer>(pin: &Pin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(pin)
}

/// Why the library stays out of a launch that changes no variables.
pub(crate) const WITHOUT_VARIABLES: &str =
    "--env keep leaves variables alone, and the preload library needs some";

/// Tasks of the preload library in a launch.
pub(crate) struct Tasks {
    /// Requested treatment of new threads.
    pub(crate) mode: PinMode,
    /// Whether a rule leaves the threads of this program in the mask.
    pub(crate) mask_only: bool,
    /// Whether OpenMP threads have places: those of the runtime or of nested teams.
    pub(crate) openmp: bool,
    /// Whether there is a task besides placing threads: nested teams, a budget, or reporting fewer
    /// threads than there are CPUs.
    pub(crate) others: bool,
    /// Whether a balancer moves threads while the program runs.
    pub(crate) moved: bool,
}

impl Preload {
    /// Returns why the library is not loaded; `None` if it is. [`Preload`] has an example.
    pub fn stays_out(&self) -> Option<&str> {
        match self {
            Self::Stays { why } => Some(why),
            Self::Goes { .. } => None,
        }
    }

    /// Decides by the kind of the program. Where the library neither places threads at their
    /// creation nor has another task, it stays out of programs with threads that share the mask,
    /// and so out of all programs that these start.
    pub(crate) fn decide(program: Option<&ProgramFacts>, tasks: &Tasks) -> Self {
        let stays = |why: &str| Self::Stays { why: why.to_owned() };
        let Some(program) = program else { return stays("no program is named") };
        if let Err(why) = &program.preload {
            return Self::Stays { why: format!("{why}: threads float inside the mask") };
        }
        let shared = match program.family {
            Some(Family::Launcher) => return stays("it starts other programs: they share the mask"),
            Some(Family::Jvm) => Some("the JVM manages its threads: they float inside the mask"),
            Some(Family::Node) => Some("Node.js manages its threads: they float inside the mask"),
            _ if program.go => Some("Go moves its work between threads: they float inside the mask"),
            _ => None,
        };
        let shell = matches!(program.family, Some(Family::Shell | Family::Make));
        // Go asks the kernel itself, and what a shell starts is another process.
        if tasks.moved && !program.go && !shell {
            return Self::Goes { pin: Pin::Moved };
        }
        if let Some(why) = shared {
            return stays(why);
        }
        match (tasks.mode == PinMode::Mask || tasks.mask_only || shell, tasks.openmp) {
            (true, _) if !tasks.others => stays("threads float inside the mask"),
            (true, _) => Self::Goes { pin: Pin::Mask },
            // OpenMP's places cover the slots; a second thread on one of them would halve its CPU
            // time.
            (_, true) => Self::Goes { pin: Pin::Float },
            _ => Self::Goes { pin: Pin::Born },
        }
    }
}

/// Returns the hand-off to the library.
fn handoff(plan: &Plan, pin: Pin, pid: u32) -> Handoff {
    let slots = plan.slots.iter().map(|slot| [slot.cpu].into_iter().collect::<CpuSet>()).collect();
    let threads = ((plan.threads as usize) < plan.mask.len()).then_some(plan.threads);
    Handoff { pid, mask: plan.mask.clone(), slots, pin, threads }
}

pub(crate) fn variable(name: &str, action: Action) -> Variable {
    Variable { name: name.to_owned(), reader: READER, action }
}

/// Returns the variables that load the library, or that remove those of an enclosing run.
pub(crate) fn variables(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    plan: &Plan,
    preload: &Preload,
    teams: Option<&NestHandoff>,
) -> Vec<Variable> {
    let environment = &request.environment;
    let (pin, library) = match (preload, library(request, facts)) {
        (Preload::Goes { pin }, Ok(library)) => (*pin, library),
        (Preload::Stays { why }, _) | (_, Err(why)) => return without(environment, why),
    };
    let nest = match teams {
        Some(teams) => Action::Set { value: teams.to_string() },
        None => Action::Unset { why: "no nested teams were asked for".to_owned() },
    };
    let mut variables = vec![
        variable(PRELOAD, Action::Set { value: with_library(environment, library) }),
        variable(VARIABLE, Action::Set { value: handoff(plan, pin, facts.pid).to_string() }),
        variable(NEST_VARIABLE, nest),
    ];
    if teams.is_some() {
        // Some builds of LLVM's runtime search for tools only here. Another tool keeps its place.
        let set = || Action::Set { value: library.display().to_string() };
        let action = environment.of_user(TOOLS).map_or_else(set, |value| Action::Kept { value });
        variables.push(variable(TOOLS, action));
    }
    variables
}

/// Returns the variables for a launch without the library, with the reason.
fn without(environment: &Environment, why: &str) -> Vec<Variable> {
    let unset = || Action::Unset { why: why.to_owned() };
    let preload = match (environment.text(PRELOAD), of_others(environment)) {
        (Some(all), Some(others)) if all == others => Action::Kept { value: all },
        (_, Some(value)) => Action::Set { value },
        _ => unset(),
    };
    vec![variable(PRELOAD, preload), variable(VARIABLE, unset()), variable(NEST_VARIABLE, unset())]
}

/// Returns whether a launch has a budget, of its own or of an enclosing run, and so loads the
/// library that also exports functions of BLAS.
///
/// # Examples
/// ```
/// use trimtab_core::place::Fit;
/// use trimtab_launch::preload::has_budget;
/// use trimtab_launch::{LaunchRequest, Options, Sources};
///
/// let request = |fit| {
///     let options = Options { fit: Some(fit), ..Options::default() };
///     LaunchRequest::merge(Sources { options, ..Sources::default() })
/// };
/// assert!(has_budget(&request(Fit::Budget)?) && !has_budget(&request(Fit::Keep)?));
/// # Ok::<(), trimtab_launch::Refusal>(())
/// ```
pub fn has_budget(request: &LaunchRequest) -> bool {
    request.budget_rule().is_some() || request.environment.text(VARIABLE_OF_BUDGET).is_some()
}

/// Returns the library that a launch loads. With a budget, of its own or of an enclosing run, this
/// is the one with functions of BLAS. Without a budget a program finds these names only in its
/// BLAS.
fn library<'a>(request: &LaunchRequest, facts: &'a LaunchFacts) -> &'a Result<PathBuf, String> {
    if has_budget(request) && facts.blas_library.is_ok() { &facts.blas_library } else { &facts.library }
}

/// Returns `LD_PRELOAD` with the library after the user's own libraries, so that those take
/// precedence. The library of an enclosing run is replaced.
fn with_library(environment: &Environment, library: &Path) -> String {
    let ours = library.display().to_string();
    let entries = environment.text(PRELOAD).unwrap_or_default();
    if entries.split([':', ' ']).any(|path| path == ours) {
        return entries;
    }
    match of_others(environment) {
        Some(theirs) if !theirs.trim_matches([':', ' ']).is_empty() => format!("{theirs}:{ours}"),
        _ => ours,
    }
}

/// Returns `LD_PRELOAD` without the library, which an enclosing run added; `None` if nothing is
/// left.
fn of_others(environment: &Environment) -> Option<String> {
    let all = environment.text(PRELOAD)?;
    let ours = |path: &&str| bearer::is_library(path.as_bytes());
    if !all.split([':', ' ']).any(|path| ours(&path)) {
        return Some(all);
    }
    let others: Vec<&str> = all.split([':', ' ']).filter(|path| !path.is_empty() && !ours(path)).collect();
    (!others.is_empty()).then(|| others.join(":"))
}

/// Returns the names of the variables that a launch changes, for the line that the library writes
/// if the program fails within seconds. The library alone is not named: most programs with threads
/// load it, and an ordinary failure of each would get a line.
pub(crate) fn changed(environment: &[Variable], preload: &Preload, pid: u32) -> Option<Variable> {
    let ours = |name: &str| name.starts_with("TRIMTAB_") || name == PRELOAD || name == TOOLS;
    let names = environment
        .iter()
        .filter(|variable| !matches!(variable.action, Action::Kept { .. } | Action::Unset { .. }))
        .map(|variable| variable.name.as_str())
        .filter(|name| !ours(name));
    let text = changed_text(pid, names)?;
    matches!(preload, Preload::Goes { .. }).then(|| variable(CHANGED_VARIABLE, Action::Set { value: text }))
}

/// Lets the library count barriers and collectives, also in programs that need it for nothing else,
/// and in launchers, through which it reaches their ranks.
pub(crate) fn count_sync(request: &LaunchRequest, facts: &LaunchFacts, variables: &mut Vec<Variable>) {
    let (Some(page), Some(program)) = (&facts.meetings, &facts.program) else { return };
    if !uncounted(program, &facts.library).is_empty() && program.family != Some(Family::Launcher) {
        return;
    }
    if load(request, facts, variables) {
        variables.push(variable(sync_stats::VARIABLE, Action::Set { value: page.clone() }));
    }
}

/// Loads the library, whatever else it is needed for. Returns whether there is one.
pub(crate) fn load(request: &LaunchRequest, facts: &LaunchFacts, variables: &mut Vec<Variable>) -> bool {
    let Ok(library) = library(request, facts) else { return false };
    let action = Action::Set { value: with_library(&request.environment, library) };
    match variables.iter_mut().find(|variable| variable.name == PRELOAD) {
        Some(variable) => variable.action = action,
        None => variables.push(variable(PRELOAD, action)),
    }
    true
}

/// Returns why the library cannot count barriers and collectives in a program, in words; empty if
/// it can. [`Preload`] has an example.
pub fn uncounted<T>(program: &ProgramFacts, library: &Result<T, String>) -> Vec<String> {
    let mut why: Vec<String> = program.closed.iter().cloned().collect();
    why.extend(library.as_ref().err().cloned());
    if program.go {
        why.push("goroutines wait inside Go's own runtime".to_owned());
    }
    match program.family {
        Some(Family::Jvm) => why.push("Java's threads wait inside the JVM".to_owned()),
        Some(Family::Node) => why.push("Node.js waits in its own loop".to_owned()),
        _ => {}
    }
    if why.is_empty() && program.family != Some(Family::Launcher) {
        why.extend(program.preload.as_ref().err().cloned());
    }
    why
}

//! Facts of a launch, read once, as a value for the decision.
//!
//! The facts come first; then the holds of others, for a run under the ledger's lock
//! ([`reserve`](crate::reserve)) and for others without it ([`look_at_ledger`]); last, on the CPUs
//! of the plan, the measurements that the decision asks for ([`settle`]).

use crate::foreign_load::Surroundings;
use crate::held_memory::{self, MemoryUse};
use crate::site_facts::{LedgerPosition, Situation, location, private_ledger};
use crate::withheld::Withheld;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trimtab_core::ids::OsNode;
use trimtab_core::place::waiting::Yield;
use trimtab_core::place::{FULL_BELOW_PERCENT, foreign_grants, local_rank, shell_script};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::args::SurveyMode;
use trimtab_front::process_env::World;
use trimtab_launch::facts::{Answers, BuildFacts, LedgerFacts, Load, Parent};
use trimtab_launch::preload::has_budget;
use trimtab_launch::{EnvMode, LaunchFacts, LaunchPlan, LaunchRequest, Refusal, Role, decide};
use trimtab_linux::calibrate::{YieldKind, yield_share};
use trimtab_linux::kept_yield;
use trimtab_linux::launch::{picture, preload_library, preload_library_with_blas};
use trimtab_linux::ledger::{Ledger, LedgerError, LedgerView, Level, ProcessTable};
use trimtab_linux::limits::parent_mask;
use trimtab_linux::process::{self, Pid};
use trimtab_linux::program::Program;
use trimtab_linux::survey::{ExclusiveGrants, exclusive_grants, free_memory, used_memory};
use trimtab_linux::sys::slice::is_usual_policy;
use trimtab_linux::sys::version;

/// Reads the facts, except the holds of others, the preload libraries ([`look_for_libraries`]) and
/// the measurements that the decision asks for. For another machine than this one, only the machine
/// is read. `ledger` is the ledger, if it is open.
pub fn facts(
    world: &World,
    situation: &Situation,
    program: Option<&Program>,
    command: &[OsString],
    survey: Option<SurveyMode>,
    ledger: Option<&Ledger>,
) -> LaunchFacts {
    let machine = &situation.machine;
    let look = |mode| Surroundings::look(world, mode, machine, &situation.taken.allowed, ledger);
    let seen = survey.map(look);
    let load =
        seen.map(|Surroundings { busy, pinned, notes, .. }| Load { busy, pinned, notes, ..Load::default() });
    let mut load = load.unwrap_or_default();
    if survey.is_some() {
        let found = granted(world, machine, &situation.taken.allowed);
        load.granted = found.grants;
        load.notes.extend(found.notes);
    }
    let not_sought = || Err("it was not looked for".to_owned());
    LaunchFacts {
        bounds: situation.taken.clone(),
        reserved: situation.reserved.clone(),
        limited: situation.limited.clone(),
        load,
        ledger: LedgerFacts { within: machine.cpus(), ..LedgerFacts::default() },
        script: program.and_then(|program| script(program, command)),
        program: program.map(|program| program.facts(command, world.raw("PATH"))),
        parent: if survey.is_some() { parent(world) } else { Parent::default() },
        library: not_sought(),
        blas_library: not_sought(),
        glibc: version::glibc(),
        pid: std::process::id(),
        meetings: None,
        build: BuildFacts::default(),
        answers: Answers::default(),
        machine: machine.clone(),
    }
}

/// Looks for the preload libraries that the launch may load: none if its variables stay as they
/// are, and the one with functions of BLAS for a launch with a budget only.
pub fn look_for_libraries(request: &LaunchRequest, facts: &mut LaunchFacts) {
    if request.env == EnvMode::Keep {
        return;
    }
    facts.library = preload_library();
    if has_budget(request) {
        facts.blas_library = beside(&facts.library);
    }
}

/// Notes a preload library and the one with functions of BLAS beside it, or the reason why a launch
/// cannot load them.
pub(crate) fn set_libraries(facts: &mut LaunchFacts, library: Result<PathBuf, String>) {
    facts.blas_library = beside(&library);
    facts.library = library;
}

/// Returns the library with functions of BLAS.
fn beside(library: &Result<PathBuf, String>) -> Result<PathBuf, String> {
    library.as_deref().map_err(Clone::clone).and_then(preload_library_with_blas)
}

/// Reads the text of a shell's script: the program itself, or the file that the shell is to read.
fn script(program: &Program, command: &[OsString]) -> Option<String> {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let named = shell_script(&words.iter().map(String::as_str).collect::<Vec<_>>()).map(str::to_owned);
    program.shell_text(named.as_deref().map(Path::new))
}

/// Reads the CPUs that managers of this machine granted exclusively to jobs of which this process
/// is none.
pub fn granted(world: &World, machine: &Machine, allowed: &CpuSet) -> ExclusiveGrants {
    let node = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut found = exclusive_grants(&world.root, node);
    found.grants = foreign_grants(found.grants, &machine.cpus(), allowed);
    found
}

/// Reads the free memory of the nodes, if it matters: the request names an amount, or there are
/// several nodes, and the memory in use could fill one of them.
pub fn look_at_memory(world: &World, request: &LaunchRequest, mode: SurveyMode, facts: &mut LaunchFacts) {
    let nodes = facts.machine.nodes();
    let sized = request.place.memory.size.is_some();
    let full_from = |bytes: u64| bytes / 100 * u64::from(100 - FULL_BELOW_PERCENT);
    let smallest = nodes.iter().filter_map(|node| node.bytes).filter(|&bytes| bytes > 0).min();
    let may_be_full = || smallest.is_some_and(|bytes| used_memory() >= full_from(bytes));
    if !sized && (nodes.len() < 2 || mode == SurveyMode::None || !may_be_full()) {
        return;
    }
    match free_memory(&world.sys(), nodes.iter().map(|node| node.os)) {
        Ok(free) => facts.load.memory = free,
        Err(error) => facts.load.notes.push(format!("the free memory of nodes is not known: {error}")),
    }
}

/// Returns the parent of a rank; nothing is read for other processes.
fn parent(world: &World) -> Parent {
    let Some(rank) = local_rank(&|name| world.text(name)).filter(|rank| rank.of.is_some_and(|of| of > 1))
    else {
        return Parent::default();
    };
    let identity = || {
        let parent = process::stat(&world.proc(), Pid::own()).ok()?.parent;
        let start = process::stat(&world.proc(), parent).ok()?.start;
        Some(format!("{parent} {}", start.0))
    };
    Parent {
        mask: parent_mask(&world.proc(), Pid::own()).ok().flatten(),
        identity: if rank.job.is_none() { identity() } else { None },
    }
}

/// Reads the holds of others, without the lock that would keep them unchanged. Returns whether
/// there is a ledger.
pub fn look_at_ledger(world: &World, request: &LaunchRequest, facts: &mut LaunchFacts) -> bool {
    let seen = location(world).and_then(|location| LedgerView::open(&location));
    let view = match seen {
        Ok(Some(view)) => view,
        Ok(None) => return false,
        Err(error) => {
            facts.ledger.fault = Some(error.to_string());
            return true;
        }
    };
    let stand = LedgerPosition::find(world, &view, &facts.machine);
    let uid = rustix::process::getuid().as_raw();
    let group = Role::of(request, facts).shared().filter(|_| request.ranks.is_none()).map(|(_, job)| {
        view.find_group(stand.level, &stand.within, job, uid, &ProcessTable::at(&world.proc()))
    });
    let allowed = facts.bounds.allowed.clone();
    let seen = group.transpose().and_then(|group| {
        let used = memory_use(world, request, facts, &view)?;
        let withheld = Withheld::look(world, request, &view, &stand, &allowed, facts)?;
        // Without the right to plan, a hold may end between the two readings: it counts as
        // withheld.
        let ending = withheld.include(&view, &stand, &allowed, facts)?.unwrap_or_default();
        let held = view.map(stand.level, &stand.within)?.held().union(&ending);
        let memory = memory_of_others(world, request, facts, (&view, &stand), used.as_ref())?;
        Ok((group, held, memory))
    });
    match seen {
        Ok((group, held, memory)) => {
            let allotment = group.flatten().map(|group| group.cpus);
            let private = private_ledger(world, &view.path());
            let (within, is_inner) = (stand.within, stand.level != Level::MACHINE);
            facts.ledger = LedgerFacts { within, is_inner, held, memory, allotment, fault: None, private };
        }
        Err(error) => facts.ledger.fault = Some(error.to_string()),
    }
    true
}

/// Reads the memory that the processes of each hold use, if the request names an amount of memory.
///
/// # Errors
/// The ledger cannot be read.
pub fn memory_use(
    world: &World,
    request: &LaunchRequest,
    facts: &LaunchFacts,
    view: &LedgerView,
) -> Result<Option<MemoryUse>, LedgerError> {
    let is_wanted = request.place.memory.size.is_some();
    is_wanted.then(|| MemoryUse::read(&world.proc(), view, &facts.machine.cpus())).transpose()
}

/// Returns the memory that others hold and do not use yet; none if their use was not read. The free
/// memory is read again after that: pages that are touched in between count as used twice at most,
/// and never as free.
///
/// # Errors
/// The ledger cannot be read.
pub fn memory_of_others(
    world: &World,
    request: &LaunchRequest,
    facts: &mut LaunchFacts,
    (view, position): (&LedgerView, &LedgerPosition),
    used: Option<&MemoryUse>,
) -> Result<BTreeMap<OsNode, u64>, LedgerError> {
    let Some(used) = used else { return Ok(BTreeMap::new()) };
    let memory = held_memory::of_others(view, position, &facts.machine.cpus(), used)?;
    if !memory.is_empty() {
        look_at_memory(world, request, SurveyMode::Auto, facts);
    }
    Ok(memory)
}

/// Decides, answers the open questions of the decision by measurement, and decides again.
/// The effect of `sched_yield` is measured by the first start of a boot only, if that is possible.
///
/// # Errors
/// The decision refuses.
pub fn settle(
    world: &World,
    request: &LaunchRequest,
    facts: &mut LaunchFacts,
) -> Result<LaunchPlan, Refusal> {
    let plan = decide(request, facts)?;
    if !plan.questions.any() {
        return Ok(plan);
    }
    let cpus = plan.placement.mask.clone();
    facts.answers = Answers {
        yields: plan.questions.yields.then(|| known_yield(world, &cpus)),
        picture: plan.questions.picture.then(|| picture(&cpus)),
        cpus,
    };
    decide(request, facts)
}

/// Returns the effect of `sched_yield` that an earlier start of this boot measured, or measures it.
/// A kept result decides for the whole boot. So a measurement is kept only if this process is
/// scheduled in the usual way, since in real time every kernel gives the CPU away; and `posix` only
/// if a second measurement agrees.
fn known_yield(world: &World, cpus: &CpuSet) -> Yield {
    let cache = world.cache().filter(|_| is_usual_policy());
    if let Some(kept) = cache.as_deref().and_then(kept_yield::load) {
        return effect(kept);
    }
    let Some(kind) = yield_share(cpus) else { return Yield::Unknown };
    if let Some(cache) = cache
        && (kind != YieldKind::Posix || yield_share(cpus) == Some(kind))
    {
        kept_yield::store(&cache, kind);
    }
    effect(kind)
}

/// Measures the effect of `sched_yield` on these CPUs.
pub fn measured_yield(cpus: &CpuSet) -> Yield {
    yield_share(cpus).map_or(Yield::Unknown, effect)
}

fn effect(kind: YieldKind) -> Yield {
    match kind {
        YieldKind::Posix => Yield::Posix,
        YieldKind::Weak { share } => Yield::Weak { share },
    }
}

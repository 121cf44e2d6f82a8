//! Cores for the ranks of a launcher that starts them itself: reserved by the launcher, one part
//! for each rank.
//!
//! Problem: a launcher such as Slurm grants CPUs to a job and starts its processes. It is the
//! parent that holds the cores, for as long as it lives, and the children that are bound to them.
//! Idea: the launcher reserves once ([`RanksRequest::reserve`]), and gets a [`RankOrder`] for each
//! rank: CPUs, memory policy and variables, decided as for a rank of `trimtab run`. The order is
//! plain data. The process that becomes the rank carries it out on itself ([`RankOrder::apply`])
//! before its exec.

use crate::cores::CoresRequest;
use crate::facts::{facts, look_at_memory, set_libraries};
use crate::reserve::{ReserveError, ReserveOptions, reserve};
use crate::site_facts::{OpenLedger, Situation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use trimtab_core::place::{Amount, HugePages, MemoryPlan, MemoryPolicy, rank_variables};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::args::SurveyMode;
use trimtab_front::args::time::Wait;
use trimtab_front::process_env::World;
use trimtab_launch::facts::Parent;
use trimtab_launch::request::variables_of_hold;
use trimtab_launch::{
    EnvMode, Environment, LaunchFacts, LaunchPlan, LaunchRequest, Options, Refusal, Sources, decide,
};
use trimtab_linux::launch::{ApplyError, ProcessSettings};
use trimtab_linux::ledger::{Held, Ledger};
use trimtab_linux::program::{Program, resolve};

/// Cores wanted for ranks.
#[derive(Clone, Debug)]
pub struct RanksRequest {
    /// The cores: the CPUs that the launcher granted, settings, label, wait.
    pub cores: CoresRequest,
    /// Number of ranks on this machine.
    pub ranks: u32,
    /// Most cores to take; `None`: all cores of the granted CPUs.
    pub cores_max: Option<u32>,
    /// Processes of the ranks, if they exist already.
    pub pids: Vec<u32>,
    /// Environment of the ranks.
    pub environment: Environment,
    /// Command of the ranks; empty if it is not known.
    pub command: Vec<OsString>,
    /// Folder in which the command is found; `None`: that of this process.
    pub folder: Option<PathBuf>,
    /// The preload library, or the reason why there is none.
    pub library: Result<PathBuf, String>,
    /// Beginning of the names of holders with which the cores are shared, if they hold some:
    /// holders of the same launcher, which decided that both use them.
    pub shared_with: Option<String>,
}

/// Cores reserved for ranks. They are given back on drop, and at the end of the process.
#[derive(Debug)]
pub struct Ranks {
    /// Kept for its drop.
    held: Option<Held>,
    orders: Vec<RankOrder>,
    text: String,
    warnings: Vec<String>,
    /// The process that reserved them, as in [`Cores`](crate::cores::Cores).
    maker: u32,
}

/// What a process does to itself before it becomes a rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankOrder {
    /// CPUs of the rank.
    pub cpus: CpuSet,
    /// Memory policy.
    pub memory: MemoryPlan,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// Scheduler slice in milliseconds.
    pub slice_ms: Option<f64>,
    /// Whether a setting that is not available is an error.
    pub strict: bool,
    /// Number of threads that the rank should use.
    pub threads: u32,
    /// Variables of the rank: `None` removes one.
    pub environment: BTreeMap<String, Option<String>>,
}

impl RankOrder {
    /// Carries the order out on this process, except for the variables. Returns messages on the
    /// settings that are not available.
    ///
    /// # Errors
    /// As [`ProcessSettings::apply`].
    pub fn apply(&self) -> Result<Vec<String>, ApplyError> {
        let settings = ProcessSettings {
            mask: &self.cpus,
            memory: &self.memory,
            huge_pages: self.huge_pages,
            slice_ms: self.slice_ms,
            strict: self.strict,
        };
        settings.apply()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if self.maker != std::process::id()
            && let Some(held) = self.held.take()
        {
            held.close();
        }
    }
}

impl Ranks {
    /// Returns the orders, one for each rank. Empty if there are more ranks than cores: the
    /// launcher then binds them better, since it knows the hardware threads that it granted to
    /// each.
    pub fn orders(&self) -> &[RankOrder] {
        &self.orders
    }

    /// Returns the CPUs that are reserved; empty if nothing is.
    pub fn reserved(&self) -> CpuSet {
        self.held.as_ref().map(|held| held.cpus().clone()).unwrap_or_default()
    }

    /// Returns a line about the placement.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns warnings: about the machine, the site's files, and what could not be reserved.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl RanksRequest {
    /// Reserves cores within the granted CPUs, and decides for each rank.
    ///
    /// # Errors
    /// Cores are held by others than `shared_with`, the request can never be met, or it is strict
    /// where nothing can be reserved.
    pub fn reserve(&self, world: &World) -> Result<Ranks, ReserveError> {
        if self.ranks == 0 {
            return Err(never("the number of ranks is 0"));
        }
        let situation = Situation::live(world, self.cores.rules).map_err(ReserveError::Never)?;
        let granted = self.granted(&situation)?;
        let all = cores_of(&situation.machine, &granted);
        let count = self.cores_max.filter(|&most| most > 0).map_or(all, |most| all.min(most));
        let program = self.program();
        // All cores of the grant are taken, so a look at other programs could change nothing.
        let survey = if count < all { self.cores.survey } else { SurveyMode::None };
        let ledger = OpenLedger::of(world).ok().map(|opened| opened.ledger);
        let mut facts = self.facts(world, &situation, program.as_ref(), survey, ledger.as_ref());
        let options = self.options(granted.clone(), count);
        let (held, request, shared) = self.take(world, &situation, options, &mut facts, ledger)?;
        let whole = decide(&request, &facts).map_err(ReserveError::of)?;
        let mut warnings = situation.warnings.clone();
        warnings.extend(facts.ledger.fault.iter().map(|why| format!("the cores are not reserved: {why}")));
        warnings.extend(facts.ledger.private.clone());
        let mut orders = Vec::new();
        if self.ranks <= count {
            facts.ledger.allotment = Some(whole.placement.hold.clone());
            let hold = held.as_ref().and_then(position);
            for rank in 0..self.ranks {
                let request = self.request_of(&request, &situation, program.as_ref(), rank)?;
                facts.pid = self.pids.get(rank as usize).copied().unwrap_or(facts.pid);
                let plan = decide(&request, &facts).map_err(ReserveError::of)?;
                orders.push(order(&request, &plan, hold.as_deref()));
            }
        }
        let text = text(&orders, &whole, count, self.ranks, shared);
        Ok(Ranks { held, orders, text, warnings, maker: std::process::id() })
    }

    /// Returns the granted CPUs that may be used.
    fn granted(&self, situation: &Situation) -> Result<CpuSet, ReserveError> {
        let allowed = &situation.taken.allowed;
        let Some(names) = &self.cores.cpus else { return Ok(allowed.clone()) };
        let named = situation.cpus(names).map_err(ReserveError::of)?;
        let granted = named.intersection(allowed);
        if granted.is_empty() {
            return Err(never(format!("of the granted CPUs {named}, none may be used here: {allowed} may")));
        }
        Ok(granted)
    }

    fn options(&self, granted: CpuSet, count: u32) -> Options {
        let cores = Some(Amount::Cores(count));
        Options { cores, cpus: Some(granted), ..self.cores.options.clone() }
    }

    /// Returns the program of the ranks; `None` if it is not known or cannot be read here.
    fn program(&self) -> Option<Program> {
        let command = self.command.first()?;
        let search_path = self.environment.raw("PATH");
        let path = match &self.folder {
            Some(folder) if Path::new(command).is_relative() && has_slash(command) => {
                folder.join(command).canonicalize().ok()?
            }
            _ => resolve(command, search_path).ok()?,
        };
        Program::look(&path, search_path).ok()
    }

    /// Returns the facts, as a rank would read them.
    fn facts(
        &self,
        world: &World,
        situation: &Situation,
        program: Option<&Program>,
        survey: SurveyMode,
        ledger: Option<&Ledger>,
    ) -> LaunchFacts {
        let mut facts = facts(world, situation, None, &[], Some(survey), ledger);
        facts.program = program.map(|program| program.facts(&self.command, self.environment.raw("PATH")));
        // The parent of the ranks is this launcher, which has bound nothing that would count, and
        // the exclusive grants of this machine include the launcher's own.
        facts.parent = Parent::default();
        facts.load.granted.clear();
        set_libraries(&mut facts, self.library.clone());
        facts
    }

    /// Takes the cores. Returns the request with which they were taken, and whether they are
    /// shared.
    fn take(
        &self,
        world: &World,
        situation: &Situation,
        options: Options,
        facts: &mut LaunchFacts,
        mut ledger: Option<Ledger>,
    ) -> Result<(Option<Held>, LaunchRequest, bool), ReserveError> {
        let order = ReserveOptions {
            holder: None,
            grants: false,
            wait: self.cores.wait.map(Wait),
            label: &self.cores.label,
            tell: &|_| {},
            goes_on: &|| true,
            priority: self.cores.priority,
            rules: situation.policy.site.queue(),
        };
        // Without variables: the variables of ranks would make this launch one of them.
        let merged = |options: Options| {
            let site = situation.policy.site.clone();
            LaunchRequest::merge(Sources { options, site, ..Sources::default() }).map_err(ReserveError::of)
        };
        let request = merged(options.clone())?;
        look_at_memory(world, &request, self.cores.survey, facts);
        let refusal = match reserve(world, &request, facts, &order, &mut ledger) {
            Ok(held) => return Ok((held, request, false)),
            Err(ReserveError::NoCores(cause)) => cause,
            Err(other) => return Err(other),
        };
        let granted = options.cpus.clone().unwrap_or_default();
        if !self.held_by_friends(world, &granted) {
            return Err(ReserveError::NoCores(without_options(&refusal)));
        }
        let request = merged(Options { share: true, ..options })?;
        let held = reserve(world, &request, facts, &order, &mut None)?;
        Ok((held, request, true))
    }

    /// Returns whether all holders of these CPUs are those with which they are shared.
    fn held_by_friends(&self, world: &World, cpus: &CpuSet) -> bool {
        let Some(beginning) = &self.shared_with else { return false };
        let Ok(all) = crate::cores::list(world) else { return false };
        let mut holders = all.holds.iter().filter(|hold| hold.level == 0 && hold.cpus.intersects(cpus));
        !all.unknown.intersects(cpus) && holders.all(|hold| hold.command.starts_with(beginning.as_str()))
    }

    /// Returns the request of a rank, with its own variables.
    fn request_of(
        &self,
        taken: &LaunchRequest,
        situation: &Situation,
        program: Option<&Program>,
        rank: u32,
    ) -> Result<LaunchRequest, ReserveError> {
        let options = Options { share: taken.place.share, ..self.cores.options.clone() };
        let options = Options { cores: Some(taken.place.amount), cpus: taken.place.cpus.clone(), ..options };
        let sources = Sources {
            options,
            site: situation.policy.site.clone(),
            rule: program.and_then(|program| situation.policy.of(&program.path)),
            environment: of_rank(&self.environment, rank, self.ranks),
            command: self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            ..Sources::default()
        };
        LaunchRequest::merge(sources).map_err(ReserveError::of)
    }
}

/// Returns a refusal without its remedies: a launcher has no such options.
pub(crate) fn without_options(refusal: &anyhow::Error) -> anyhow::Error {
    let text = format!("{refusal:#}");
    anyhow::anyhow!(
        "{}",
        text.split("wait with --wait").next().unwrap_or_default().trim_end_matches([';', ',', ' '])
    )
}

fn never(why: impl Into<String>) -> ReserveError {
    ReserveError::of(Refusal::Request(why.into()))
}

fn has_slash(command: &OsStr) -> bool {
    command.as_encoded_bytes().contains(&b'/')
}

/// Returns the number of cores that have one of these CPUs.
fn cores_of(machine: &Machine, cpus: &CpuSet) -> u32 {
    let used = machine.cores().iter().filter(|core| machine.cpus_of(&core.pus).intersects(cpus));
    u32::try_from(used.count()).unwrap_or(u32::MAX)
}

/// Returns the environment of a rank: the variables of its job, and those that number it. Variables
/// of a launcher that started the job's own launcher do not number these ranks.
fn of_rank(environment: &Environment, rank: u32, ranks: u32) -> Environment {
    let numbers: Vec<&str> = rank_variables().collect();
    let own = [
        ("SLURM_LOCALID", rank.to_string()),
        ("SLURM_NODEID", "0".to_owned()),
        ("SLURM_STEP_TASKS_PER_NODE", ranks.to_string()),
    ];
    let others = environment.entries().filter(|(name, _)| {
        let known = |known: &str| OsStr::new(known) == *name;
        !numbers.iter().any(|number| known(number)) && !own.iter().any(|(number, _)| known(number))
    });
    let others = others.map(|(name, value)| (name.to_owned(), value.to_owned()));
    others.chain(own.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

/// Returns the order of a rank.
fn order(request: &LaunchRequest, plan: &LaunchPlan, hold: Option<&str>) -> RankOrder {
    let settings = ProcessSettings::of(plan);
    let set = request.env == EnvMode::Set;
    let changes = if set { request.environment.changes(&plan.environment) } else { BTreeMap::new() };
    let text = |value: OsString| value.into_string().ok();
    let mut environment: BTreeMap<String, Option<String>> =
        changes.into_iter().map(|(name, value)| (name, value.and_then(text))).collect();
    environment.extend(variables_of_hold(&request.environment, hold.map(str::to_owned)));
    RankOrder {
        cpus: settings.mask.clone(),
        memory: settings.memory.clone(),
        huge_pages: settings.huge_pages,
        slice_ms: settings.slice_ms,
        strict: settings.strict,
        threads: plan.threads.value,
        environment,
    }
}

/// Returns the value by which runs inside a rank find the hold: by its number, since ranks inherit
/// no descriptor of it.
pub(crate) fn position(held: &Held) -> Option<String> {
    held.claim().hold.is_some().then(|| held.claim().to_string())
}

/// Returns the line about the placement.
fn text(orders: &[RankOrder], whole: &LaunchPlan, count: u32, ranks: u32, shared: bool) -> String {
    let shared = if shared { ", shared with other steps" } else { "" };
    if orders.is_empty() {
        let cpus = &whole.placement.hold;
        return format!(
            "{ranks} tasks on {count} core{} (CPUs {cpus}{shared}), bound by the launcher",
            if count == 1 { "" } else { "s" }
        );
    }
    let each: Vec<String> = (0..)
        .zip(orders)
        .map(|(rank, order): (u32, &RankOrder)| {
            let memory = match order.memory.policy {
                MemoryPolicy::None => "memory as inherited".to_owned(),
                policy if policy.takes_nodes() => format!("memory {policy} on node {}", order.memory.nodes),
                policy => format!("memory {policy}"),
            };
            let (cpus, threads) = (&order.cpus, order.threads);
            let plural = if threads == 1 { "" } else { "s" };
            format!("task {rank}: CPUs {cpus}, {threads} thread{plural}, {memory}")
        })
        .collect();
    format!("{}{shared}", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::handoff::bearer::{BLAS_LIBRARY, LIBRARY};
    use trimtab_core::place::local_rank;
    use trimtab_core::topology::parse_synthetic;
    use trimtab_front::machine::Which;
    use trimtab_launch::facts::ProgramFacts;

    fn environment(entries: &[(&str, &str)]) -> Environment {
        entries.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    #[test]
    fn a_rank_is_numbered_by_its_launcher_and_by_no_outer_one() {
        let outer = environment(&[
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "9"),
            ("LOCAL_RANK", "3"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("SLURM_STEP_TASKS_PER_NODE", "7(x3)"),
            ("SLURM_NODEID", "2"),
            ("HOME", "/h"),
        ]);
        let own = of_rank(&outer, 1, 2);
        let rank = local_rank(&|name| own.text(name)).unwrap();
        assert_eq!((rank.launcher, rank.rank, rank.of), ("Slurm", 1, Some(2)));
        assert_eq!(own.text("HOME").as_deref(), Some("/h"));
    }

    #[test]
    fn ranks_with_a_budget_load_the_library_with_functions_of_blas() {
        let folder = tempfile::tempdir().unwrap();
        let [library, blas] = [LIBRARY, BLAS_LIBRARY].map(|name| folder.path().join(name));
        [&library, &blas].iter().for_each(|path| std::fs::write(path, "").unwrap());
        let ranks = |library: Result<PathBuf, String>| RanksRequest {
            cores: CoresRequest::default(),
            ranks: 1,
            cores_max: None,
            pids: Vec::new(),
            environment: Environment::default(),
            command: Vec::new(),
            folder: None,
            library,
            shared_with: None,
        };
        let mut world = World::default();
        world.root = folder.path().to_owned();
        let situation = Situation::elsewhere(&world, &Which::Synthetic("core:4".to_owned())).unwrap();
        let facts = |library: Result<PathBuf, String>| {
            ranks(library).facts(&world, &situation, None, SurveyMode::None, None)
        };
        let options = Options { fit: Some("budget".parse().unwrap()), ..Options::default() };
        let request = LaunchRequest::merge(Sources { options, ..Sources::default() }).unwrap();
        let program = ProgramFacts {
            path: "/bin/app".into(),
            family: None,
            script: false,
            go: false,
            openmp: None,
            preload: Ok(()),
            closed: None,
            starts_threads: false,
            sets_teams: false,
            launcher: None,
        };
        let known = LaunchFacts { program: Some(program), ..facts(Ok(library.clone())) };
        let plan = decide(&request, &known).unwrap();
        let loads = |path: &Path| format!("{:?}", plan.environment).contains(&path.display().to_string());
        assert!(loads(&blas) && !loads(&library), "{:?}", plan.environment);
        let none = facts(Err("why".to_owned()));
        assert_eq!([none.library, none.blas_library], [Err("why".to_owned()), Err("why".to_owned())]);
    }

    #[test]
    fn cores_are_counted_by_the_cpus_that_are_granted() {
        let machine = parse_synthetic("pack:2 core:2 pu:2").unwrap();
        for (cpus, cores) in [("0-7", 4), ("0-3", 2), ("0,2", 2), ("0-1", 1), ("3-4", 2)] {
            assert_eq!(cores_of(&machine, &cpus.parse().unwrap()), cores, "{cpus}");
        }
    }

    #[test]
    fn an_order_is_read_back_as_it_was_written() {
        let order = RankOrder {
            cpus: "4-7".parse().unwrap(),
            memory: MemoryPlan { policy: MemoryPolicy::PreferredMany, nodes: "1".parse().unwrap() },
            huge_pages: HugePages::Advised,
            slice_ms: Some(0.5),
            strict: true,
            threads: 4,
            environment: [("A".to_owned(), None), ("B".to_owned(), Some("1 \"2\"\n".to_owned()))].into(),
        };
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<RankOrder>(&text).unwrap(), order);
        assert!(serde_json::from_str::<RankOrder>("{}").is_err());
    }
}

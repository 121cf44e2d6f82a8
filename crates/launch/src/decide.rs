//! Decision about one launch: [`decide()`].
//!
//! The steps follow each other in the order in which a launch is described to the user: role in a
//! job, cores, threads, nested teams, variables, launchers, the preload library, waiting, and the
//! messages. Each step is a function of the results of earlier steps; [`Deciding`] holds the inputs
//! that all steps share.

use crate::budget::{self, BudgetPlan};
use crate::facts::{Answers, LaunchFacts, ProgramFacts};
use crate::family::Family;
use crate::jobserver::{self, JobserverPlan};
use crate::launchers::{self, ForLaunchers};
use crate::nesting::{self, Nesting};
use crate::options::{EnvMode, PinMode, SpinMode};
use crate::origin::ValueOrigin;
use crate::place::{Placed, cores, place};
use crate::plan::{LaunchPlan, Questions, RankPart, RankPlan, WaitPlan, WatchPlan};
use crate::preload::{self, Preload, Tasks};
use crate::ranks::Role;
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::request::{LaunchRequest, Sourced};
use crate::{devices, spin, tell};
use trimtab_core::balance::Kind;
use trimtab_core::handoff::{Missed, Pin};
use trimtab_core::place::runtimes::{BINDING_VARIABLES, Runtime};
use trimtab_core::place::waiting::{Occupancy, Waiting};
use trimtab_core::place::{
    Action, Binder, CountRequest, Fit, MemoryPolicy, OPENMP, Plan, Reason, Stated, Variable, effective,
    environment, pins_itself, stated,
};

/// Variable that makes the allocator of the C library request huge pages.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
const ASKS: &str = "glibc.malloc.hugetlb=1";
/// First version of glibc that understands `glibc.malloc.hugetlb`.
pub const TUNABLES_SINCE: (u32, u32) = (2, 35);

/// Decides a launch.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, decide};
///
/// let facts = LaunchFacts::idle(parse_synthetic("pack:2 core:4")?);
/// let options = Options { cores: Some("2".parse()?), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
///
/// let plan = decide(&request, &facts)?;
/// assert_eq!(plan.placement.mask.to_string(), "0-1");
/// for reason in &plan.reasons {
///     println!("{}", reason.text); // 2 cores: CPUs 0-1, ...
/// }
///
/// // Equal request and facts give an equal plan; the reason why there is none is an error.
/// assert_eq!(decide(&request, &facts)?, plan);
/// let full = trimtab_launch::facts::LedgerFacts { held: "0-7".parse()?, ..facts.ledger.clone() };
/// let refusal = decide(&request, &LaunchFacts { ledger: full, ..facts }).unwrap_err();
/// assert!(refusal.passes(), "other runs end");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns the reason why there is no plan: the cores are not available, or, with `--strict`,
/// anything else that was asked for is not.
pub fn decide(request: &LaunchRequest, facts: &LaunchFacts) -> Result<LaunchPlan, Refusal> {
    let role = Role::of(request, facts);
    let mut reasons = request.reasons.clone();
    reasons.extend(role.tell(facts).into_iter().chain(launchers::warn(facts)));
    reasons.extend(ledger(request, facts)?);
    let placed = place(request, facts, &role)?;
    reasons.extend(tell::crowding(&role, placed.whole.as_ref()));
    let holds = request.tuning.as_ref().is_none_or(|tuning| cores(&placed.plan) == tuning.wanted_cores());
    reasons.extend(tell::tuning(request, &placed.plan, holds));
    reasons.extend(tell::growth(request, facts));
    let deciding = Deciding::new(request, facts, &placed, holds);
    let teams = deciding.teams();
    let ForLaunchers { variables: of_launchers, wants_picture, reasons: told } =
        launchers::decide(request, facts, &deciding.plan, deciding.answers.picture.as_ref())?;
    reasons.extend(told);
    let mut variables = teams.environment;
    let (preload, missing) = deciding.preload(teams.nesting.as_ref(), &variables);
    let missed = deciding.tell_nesting(teams.nesting.as_ref(), &preload, &variables, &mut reasons)?;
    let (wait, asks_for_yield) = deciding.wait(&role, teams.nesting.as_ref(), &mut variables);
    variables.extend(deciding.huge_pages(&mut reasons));
    reasons.extend(missing.map(|why| LaunchReason::warning(Topic::Threads, why)));
    let handoff = match &teams.nesting {
        Some(nesting) => Some(nesting.handoff(request.nest_roots, request.report.clone(), missed)),
        None if deciding.binds && deciding.own.is_none() => {
            nesting::for_calls(facts, &deciding.plan, request.report.clone())
        }
        None => None,
    };
    variables.extend(preload::variables(request, facts, &deciding.plan, &preload, handoff.as_ref()));
    if !request.quiet {
        variables.extend(preload::changed(&variables, &preload, facts.pid));
    }
    variables.extend(of_launchers);
    let (of_devices, told) = devices::decide(request, &role);
    reasons.extend(told);
    variables.extend(of_devices);
    preload::count_sync(request, facts, &mut variables);
    // The budget of a run that grows begins with its cores, not with the threads that it may use
    // later.
    let cores = if request.grow.is_some() { placed.plan.threads } else { deciding.plan.threads };
    let (budget, told) = budget::decide(request, facts, &preload, cores)?;
    reasons.extend(told);
    let (spin, told) = spin::decide(request, facts, &preload)?;
    reasons.extend(told);
    let for_others = budget.is_some() || request.spin == SpinMode::Yield;
    if for_others && budget::starts_others(facts) {
        preload::load(request, facts, &mut variables);
    }
    variables.extend(spin);
    let (jobserver, told) = jobserver::decide(request, facts, placed.plan.threads)?;
    if request.env != EnvMode::Print {
        deciding.tell(&preload, teams.nesting.as_ref(), &variables, &wait, &mut reasons);
        reasons.extend(memory(request, &placed.plan)?);
    }
    reasons.extend(told);
    let questions = Questions { yields: asks_for_yield, picture: wants_picture };
    let threads = deciding.threads.clone();
    let (openmp, nesting) = (deciding.openmp, teams.nesting);
    Ok(assembled(
        request,
        &role,
        placed,
        threads,
        holds,
        StepResults {
            openmp,
            nesting,
            environment: variables,
            wait,
            preload,
            budget,
            jobserver,
            reasons,
            questions,
        },
    ))
}

/// Inputs shared by all steps of a decision.
struct Deciding<'a> {
    request: &'a LaunchRequest,
    facts: &'a LaunchFacts,
    placed: &'a Placed,
    /// Whether the plan has the number of cores on which the tuning was measured.
    holds: bool,
    /// The plan, with the thread count that is announced to the runtimes.
    plan: Plan,
    threads: Sourced<u32>,
    answers: Answers,
    /// Thread count in the program's command line.
    stated: Option<Stated>,
    openmp: Option<Runtime>,
    /// Reason why the runtime does not bind the program's OpenMP threads.
    own: Option<OwnBinding>,
    pin: PinMode,
    /// Whether OpenMP threads should be bound.
    binds: bool,
    /// Whether the user's environment binds OpenMP threads.
    bound: bool,
}

/// Reason why the runtime does not bind a program's OpenMP threads.
#[derive(Clone, Copy)]
struct OwnBinding {
    why: &'static str,
    /// Whether the program binds its threads itself, so that trimtab places none of them.
    pins: bool,
}

/// Nested teams and the runtime variables that follow from them.
struct WithTeams {
    nesting: Option<Nesting>,
    environment: Vec<Variable>,
}

impl<'a> Deciding<'a> {
    fn new(request: &'a LaunchRequest, facts: &'a LaunchFacts, placed: &'a Placed, holds: bool) -> Self {
        let program = facts.program.as_ref();
        let mut plan = placed.plan.clone();
        let Sourced { value, origin } = request.threads.at(holds).clone();
        let threads = Sourced { value: value.unwrap_or(plan.threads), origin };
        plan.threads = threads.value;
        let openmp = program.and_then(|program| program.openmp);
        // The balancer moves these threads, and a run that grows gives them more CPUs, so they are
        // not bound when they are created.
        let frees = request.balance.is_some() && request.nest.is_none() || request.grow.is_some();
        let pin = if frees { PinMode::Mask } else { request.pin };
        let words: Vec<&str> = request.command.iter().map(String::as_str).collect();
        let launched = program.is_some_and(|program| program.family == Some(Family::Launcher));
        Self {
            answers: facts.answers_on(&plan.mask),
            stated: stated(&words, launched),
            own: program.and_then(|program| leaves_binding_to(program, openmp)),
            binds: pin == PinMode::Auto && request.mask_only.is_none(),
            bound: BINDING_VARIABLES.iter().any(|name| request.user(name).is_some()),
            request,
            facts,
            placed,
            holds,
            plan,
            threads,
            openmp,
            pin,
        }
    }

    fn asked(&self) -> CountRequest<'_> {
        CountRequest {
            threads: self.request.threads.at(self.holds).value,
            stated: self.stated.as_ref(),
            fit: if self.request.env == EnvMode::Keep { Fit::Keep } else { self.request.fit },
        }
    }

    /// Returns the OpenMP thread count that the program will find; `None` if the user set none.
    fn omp(&self) -> Option<String> {
        effective(&self.plan, &|name| self.request.user(name), &self.asked(), OPENMP)
    }

    /// Returns the nested teams, either requested or implied by the user's own thread counts, and
    /// the runtime variables.
    fn teams(&self) -> WithTeams {
        let Self { request, facts, placed, .. } = *self;
        let asked_for = request.nest.is_some();
        let omp = self.omp();
        let nest = request.nest.as_ref().map(|teams| teams.nest.clone()).or_else(|| {
            let places = self.binds && self.own.is_none() && request.env != EnvMode::Keep;
            nesting::shape(request, facts, &self.plan, omp.as_deref()).filter(|_| places)
        });
        let nesting = nest.and_then(|nest| {
            Nesting::new(&facts.machine, &placed.free, &self.plan, placed.wide.clone(), &nest)
        });
        let loadable = facts.program.as_ref().is_some_and(|program| program.preload.is_ok());
        let carries = loadable && request.env != EnvMode::Keep && facts.library.is_ok();
        let binder = match (&nesting, self.openmp) {
            (Some(nesting), _) if asked_for => Binder::Teams(nesting.resolved()),
            (Some(nesting), _) => Binder::Shape(nesting.resolved()),
            (None, Some(openmp)) if self.binds && (carries || self.bound) => {
                self.own.map_or(Binder::Runtime(openmp), |own| Binder::Program(own.why))
            }
            (None, Some(_)) => Binder::Free,
            _ => Binder::Unknown,
        };
        let environment = environment(&self.plan, &|name| request.user(name), binder, &self.asked());
        WithTeams { environment, nesting }
    }

    /// Returns whether a balancer moves threads of a program that the user lets this run pin.
    fn moves(&self) -> bool {
        self.request.balance.is_some_and(|kind| kind != Kind::Float) && self.request.pin != PinMode::Mask
    }

    /// Decides whether the preload library is used. The second value explains that the library is
    /// missing although it is needed.
    fn preload(&self, nesting: Option<&Nesting>, variables: &[Variable]) -> (Preload, Option<String>) {
        if self.request.env == EnvMode::Keep {
            return (Preload::Stays { why: preload::WITHOUT_VARIABLES.to_owned() }, None);
        }
        let places = variables.iter().any(|Variable { name, action, .. }| {
            matches!(name.as_str(), "OMP_PLACES" | "KMP_AFFINITY") && matches!(action, Action::Set { .. })
        });
        let pins_itself = self.own.is_some_and(|own| own.pins);
        let pin = if pins_itself && self.pin == PinMode::Auto { PinMode::Mask } else { self.pin };
        let floats = places || nesting.is_some() || (self.own.is_some() && !self.bound);
        let more = nesting.is_some()
            || budget::rule(self.request).is_some()
            || self.request.spin == SpinMode::Yield
            || (self.plan.threads as usize) < self.plan.mask.len();
        let mask_only = self.request.mask_only.is_some();
        let tasks = Tasks {
            mode: pin,
            mask_only,
            openmp: floats,
            others: more,
            moved: nesting.is_none() && !mask_only && self.moves(),
        };
        let preload = Preload::decide(self.facts.program.as_ref(), &tasks);
        match (&preload, &self.facts.library) {
            (Preload::Goes { pin: Pin::Moved }, Err(_)) if !more => {
                (Preload::Stays { why: "threads float inside the mask".to_owned() }, None)
            }
            (Preload::Goes { .. }, Err(why)) => {
                let text = format!("threads are not pinned at birth: {why}");
                (Preload::Stays { why: why.clone() }, Some(text))
            }
            _ => (preload, None),
        }
    }

    /// Adds the reasons about requested nested teams. Returns the reaction of the preload library
    /// if no thread of the program gets placed.
    fn tell_nesting(
        &self,
        nesting: Option<&Nesting>,
        preload: &Preload,
        variables: &[Variable],
        reasons: &mut Vec<LaunchReason>,
    ) -> Result<Missed, Refusal> {
        let Some(asked) = &self.request.nest else { return Ok(Missed::Ignored) };
        let Some(nesting) = nesting else { return Ok(asked.missed(self.request.strict, self.request.quiet)) };
        let program = self.facts.program.as_ref();
        let out_of_reach = program.and_then(|_| preload.stays_out().or_else(|| nesting::unreached(program)));
        reasons.extend(nesting::tell(self.request, nesting, self.openmp, out_of_reach)?);
        reasons.extend(variables.iter().filter_map(|Variable { name, action, .. }| match action {
            Action::Removed { value, why } => {
                let text = format!("{name}={value} is removed: {why}");
                Some(LaunchReason::warning(Topic::Environment, text))
            }
            _ => None,
        }));
        // An earlier message has reported the threads that are out of reach.
        Ok(if out_of_reach.is_some() {
            Missed::Ignored
        } else {
            asked.missed(self.request.strict, self.request.quiet)
        })
    }

    /// Decides how threads wait, sets the variables for it, and returns whether the effect of
    /// `sched_yield` matters and is unknown.
    fn wait(
        &self,
        role: &Role,
        nesting: Option<&Nesting>,
        variables: &mut Vec<Variable>,
    ) -> (WaitPlan, bool) {
        let user = |name: &str| self.request.user(name);
        let nested = nesting.map(|nesting| nesting.resolved().threads());
        let by_command = self.stated.as_ref().map(|stated| stated.threads.to_string());
        let quota = self.facts.bounds.quota;
        // A run that grows counts with its most threads, although its budget keeps teams smaller:
        // GNU's runtime counts the CPUs at the start, and puts threads beyond them to sleep at each
        // barrier. LULESH then took 15.7 s with the runtime's own way of waiting, and 9.1 s with
        // this one.
        let count = by_command.or(self.omp());
        let budget =
            matches!(self.request.fit, Fit::Budget | Fit::Limit) && self.request.env != EnvMode::Keep;
        let occupancy = Occupancy { budget, ..Occupancy::of(&self.plan, count.as_deref(), nested, quota) };
        let Sourced { value: policy, origin } = self.request.wait.at(self.holds).clone();
        let waiting: Waiting = trimtab_core::place::waiting::decide(policy, &occupancy);
        let launched =
            self.facts.program.as_ref().is_some_and(|program| program.family == Some(Family::Launcher));
        let matters = waiting.asks_for_yield(role.is_rank() || launched);
        let yields = self.answers.yields.filter(|_| matters);
        variables.extend(waiting.variables(yields.unwrap_or_default(), &user));
        let left_to_user = waiting.left_to_user(&user);
        (WaitPlan { waiting, origin, yields, left_to_user }, matters && yields.is_none())
    }

    /// Returns the variable that makes the allocator request huge pages.
    fn huge_pages(&self, reasons: &mut Vec<LaunchReason>) -> Option<Variable> {
        if !self.request.allocator.at(self.holds).value {
            return None;
        }
        let warning = |text: String| LaunchReason::warning(Topic::Memory, text);
        if self.facts.glibc.is_none_or(|version| version < TUNABLES_SINCE) {
            reasons.push(warning(
                "--thp on needs the allocator of glibc 2.35: GLIBC_TUNABLES has no effect on this C library"
                    .to_owned(),
            ));
        }
        let action = match self.request.user(TUNABLES) {
            Some(value) => {
                reasons.push(warning(format!("--thp on has no effect: your {TUNABLES} stays as it is")));
                Action::Kept { value }
            }
            None => Action::Set { value: ASKS.to_owned() },
        };
        Some(Variable { name: TUNABLES.to_owned(), reader: "malloc of glibc", action })
    }

    /// Adds the messages about a launch that takes place.
    fn tell(
        &self,
        preload: &Preload,
        nesting: Option<&Nesting>,
        variables: &[Variable],
        wait: &WaitPlan,
        reasons: &mut Vec<LaunchReason>,
    ) {
        reasons.extend(tell::placement(&self.placed.plan, self.request));
        reasons.push(tell::threads(preload, nesting));
        reasons.extend(tell::fitted(variables, &self.plan));
        if self.request.env == EnvMode::Set {
            reasons.extend(tell::waiting(wait));
        }
    }
}

/// Returns the warning for a ledger in which nothing can be reserved; with `--strict`, the refusal.
fn ledger(request: &LaunchRequest, facts: &LaunchFacts) -> Result<Option<LaunchReason>, Refusal> {
    let Some(fault) = &facts.ledger.fault else {
        let Some(private) = &facts.ledger.private else { return Ok(None) };
        if request.strict {
            return Err(Refusal::Strict(private.clone()));
        }
        return Ok(Some(LaunchReason::warning(Topic::Ledger, private.clone())));
    };
    if request.strict {
        return Err(Refusal::Strict(format!("the cores cannot be reserved: {fault}")));
    }
    let text = format!("the cores are not reserved, other runs may take them: {fault}");
    Ok(Some(LaunchReason::warning(Topic::Ledger, text)))
}

/// Returns the warning about a requested memory policy that the plan could not include; with
/// `--strict`, the refusal.
fn memory(request: &LaunchRequest, plan: &Plan) -> Result<Option<LaunchReason>, Refusal> {
    let asked = request.place.memory.policy.is_some_and(MemoryPolicy::takes_nodes);
    if !asked || plan.memory.policy != MemoryPolicy::None {
        return Ok(None);
    }
    let why = plan.reasons.iter().find_map(|reason| match reason {
        Reason::Memory { why, .. } => Some(why.as_str()),
        _ => None,
    });
    let text = why.unwrap_or("the memory policy asked for cannot be had");
    if request.strict {
        return Err(Refusal::Strict(text.to_owned()));
    }
    let text = format!("{text}; the inherited policy stays");
    Ok(Some(LaunchReason::warning(Topic::Memory, text)))
}

/// Returns why the runtime must not bind the program's OpenMP threads; `None` if it may.
///
/// GNU OpenMP gives the first places to every thread that opens a team on its own. The teams of a
/// program that starts its own threads therefore share the same CPUs. LLVM's runtime distributes
/// the places among these threads.
fn leaves_binding_to(program: &ProgramFacts, openmp: Option<Runtime>) -> Option<OwnBinding> {
    if pins_itself(&program.path.to_string_lossy()).is_some() {
        return Some(OwnBinding { why: "the program binds its own threads", pins: true });
    }
    let starts = openmp.is_some_and(|runtime| runtime.row().reuses_first_places) && program.starts_threads;
    starts.then_some(OwnBinding {
        why: "the program starts threads of its own, and each could open a team",
        pins: false,
    })
}

/// Results of the steps.
struct StepResults {
    openmp: Option<Runtime>,
    nesting: Option<Nesting>,
    environment: Vec<Variable>,
    wait: WaitPlan,
    preload: Preload,
    budget: Option<BudgetPlan>,
    jobserver: Option<JobserverPlan>,
    reasons: Vec<LaunchReason>,
    questions: Questions,
}

fn assembled(
    request: &LaunchRequest,
    role: &Role,
    placed: Placed,
    threads: Sourced<u32>,
    holds: bool,
    rest: StepResults,
) -> LaunchPlan {
    let rank = match role {
        Role::Alone => None,
        Role::Shares(rank, _) | Role::Bound(rank) | Role::Uncounted(rank) => Some(RankPlan {
            launcher: rank.launcher,
            rank: rank.rank,
            of: rank.of,
            shares: role.shared().is_some(),
        }),
    };
    let part = |(rank, part): (u32, &Plan)| RankPart { rank, mask: part.mask.clone(), threads: part.threads };
    let watch = (request.balance.is_some() || request.observed.is_some()).then(|| WatchPlan {
        policy: request.balance.unwrap_or(Kind::Float),
        balances: request.balance.is_some(),
    });
    let nest_origin = request
        .nest
        .as_ref()
        .map(|teams| teams.origin.clone())
        .or_else(|| rest.nesting.as_ref().map(|_| ValueOrigin::Variable(OPENMP.to_owned())));
    LaunchPlan {
        request: placed.request,
        taken: placed.taken,
        placement: placed.plan,
        whole: placed.whole,
        rank,
        ranks: (0..).zip(&placed.parts).map(part).collect(),
        threads,
        nest: rest.nesting.as_ref().map(|nesting| nesting.listing(rest.openmp)),
        nest_origin,
        nesting: rest.nesting,
        environment: rest.environment,
        env: request.env,
        wait: rest.wait,
        slice: request.slice.at(holds).clone(),
        preempt: request.preempt,
        preload: rest.preload,
        budget: rest.budget,
        jobserver: rest.jobserver,
        watch: watch.filter(|_| request.env != EnvMode::Print),
        tuning: request.tuning.clone().filter(|_| holds),
        rule: request.rule.clone(),
        strict: request.strict,
        origins: request.origins.clone(),
        reasons: rest.reasons,
        questions: rest.questions,
    }
}

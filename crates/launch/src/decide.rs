//! The decision about one launch: [`decide()`].
//!
//! It reads from top to bottom as a launch is told: role in a job, cores, threads, nested teams,
//! variables, launchers, the preload library, waiting, and the lines for people. Each step is a
//! function that takes the earlier ones' results; [`Deciding`] is what they have in common.

use crate::facts::{Answers, LaunchFacts, ProgramFacts};
use crate::family::Family;
use crate::launchers::{self, ForLaunchers};
use crate::nesting::{self, Nesting};
use crate::options::{EnvMode, PinMode};
use crate::place::{Placed, cores, place};
use crate::plan::{LaunchPlan, Questions, RankPart, RankPlan, WaitPlan, WatchPlan};
use crate::preload::{self, Preload};
use crate::ranks::Role;
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::request::{LaunchRequest, Origin, Sourced};
use crate::tell;
use trimtab_core::balance::Kind;
use trimtab_core::handoff::Missed;
use trimtab_core::place::runtimes::{BINDING_VARIABLES, Runtime};
use trimtab_core::place::waiting::{Occupancy, Waiting};
use trimtab_core::place::{
    Action, Asked, Binder, Fit, MemoryPolicy, OPENMP, Plan, Reason, Stated, Variable, effective, environment,
    pins_itself, stated,
};

/// What the C library's allocator is told so that it asks for huge pages.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
const ASKS: &str = "glibc.malloc.hugetlb=1";
/// The first version of the C library that understands it.
pub const TUNABLES_SINCE: (u32, u32) = (2, 35);

/// Decides.
///
/// # Errors
/// Why there is no plan: cores that cannot be had, or with `--strict` anything else.
pub fn decide(request: &LaunchRequest, facts: &LaunchFacts) -> Result<LaunchPlan, Refusal> {
    let role = Role::of(request, facts);
    let mut reasons = request.reasons.clone();
    reasons.extend(role.tell(facts).into_iter().chain(launchers::warn(facts)));
    reasons.extend(ledger(request, facts)?);
    let placed = place(request, facts, &role)?;
    let holds = request.tuning.as_ref().is_none_or(|tuning| cores(&placed.plan) == tuning.wanted_cores());
    reasons.extend(tell::tuning(request, &placed.plan, holds));
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
    preload::count_meetings(request, facts, &mut variables);
    if request.env != EnvMode::Print {
        deciding.tell(&preload, teams.nesting.as_ref(), &variables, &wait, &mut reasons);
        reasons.extend(memory(request, &placed.plan)?);
    }
    let questions = Questions { yields: asks_for_yield, picture: wants_picture };
    let threads = deciding.threads.clone();
    let (openmp, nesting) = (deciding.openmp, teams.nesting);
    Ok(assembled(
        request,
        &role,
        placed,
        threads,
        holds,
        Rest { openmp, nesting, environment: variables, wait, preload, reasons, questions },
    ))
}

/// What the steps have in common.
struct Deciding<'a> {
    request: &'a LaunchRequest,
    facts: &'a LaunchFacts,
    placed: &'a Placed,
    /// Whether the tuning was measured on this number of cores.
    holds: bool,
    /// The plan, with the number of threads that runtimes are told.
    plan: Plan,
    threads: Sourced<u32>,
    answers: Answers,
    /// The count that the program's command line states.
    stated: Option<Stated>,
    openmp: Option<Runtime>,
    /// Why the OpenMP threads of the program are not bound by the runtime.
    own: Option<OwnBinding>,
    pin: PinMode,
    /// Whether OpenMP threads are to be bound.
    binds: bool,
    /// Whether the user binds OpenMP threads.
    bound: bool,
}

/// Why the OpenMP threads of a program are not bound by the runtime.
#[derive(Clone, Copy)]
struct OwnBinding {
    why: &'static str,
    /// Whether the program binds its threads itself, so that no thread of it is placed.
    pins: bool,
}

/// Nested teams, and the variables of runtimes that follow from them.
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
        // Threads that are balanced are not bound at their birth.
        let frees = request.balance.is_some() && request.nest.is_none();
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

    fn asked(&self) -> Asked<'_> {
        Asked {
            threads: self.request.threads.at(self.holds).value,
            stated: self.stated.as_ref(),
            fit: if self.request.env == EnvMode::Keep { Fit::Keep } else { self.request.fit },
        }
    }

    /// The count for OpenMP that the program will find, where the user set one.
    fn omp(&self) -> Option<String> {
        effective(&self.plan, &|name| self.request.user(name), &self.asked(), OPENMP)
    }

    /// The nested teams, asked for or listed by the user's own count, and the variables of
    /// runtimes.
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
        let bears = facts.program.as_ref().is_some_and(|program| program.preload.is_ok());
        let carries = bears && facts.library.is_ok();
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

    /// Whether the preload library goes along; with the words for a library that would and is
    /// missing.
    fn preload(&self, nesting: Option<&Nesting>, variables: &[Variable]) -> (Preload, Option<String>) {
        let places = variables.iter().any(|Variable { name, action, .. }| {
            matches!(name.as_str(), "OMP_PLACES" | "KMP_AFFINITY") && matches!(action, Action::Set { .. })
        });
        let pins_itself = self.own.is_some_and(|own| own.pins);
        let pin = if pins_itself && self.pin == PinMode::Auto { PinMode::Mask } else { self.pin };
        let floats = places || nesting.is_some() || (self.own.is_some() && !self.bound);
        let more = nesting.is_some() || (self.plan.threads as usize) < self.plan.mask.len();
        let mask_only = self.request.mask_only.is_some();
        let program = self.facts.program.as_ref();
        let preload = Preload::decide(program, pin, mask_only, floats, more);
        match (&preload, &self.facts.library) {
            (Preload::Goes { .. }, Err(why)) => {
                let text = format!("threads are not pinned at birth: {why}");
                (Preload::Stays { why: why.clone() }, Some(text))
            }
            _ => (preload, None),
        }
    }

    /// Tells about nested teams that were asked for, and what becomes of a program in which no
    /// thread is placed.
    fn tell_nesting(
        &self,
        nesting: Option<&Nesting>,
        preload: &Preload,
        variables: &[Variable],
        reasons: &mut Vec<LaunchReason>,
    ) -> Result<Missed, Refusal> {
        let Some(asked) = &self.request.nest else { return Ok(Missed::Ignored) };
        let Some(nesting) = nesting else { return Ok(asked.missed(self.request)) };
        let program = self.facts.program.as_ref();
        let out_of_reach = program.and_then(|_| preload.stays_out().or_else(|| nesting::unreached(program)));
        reasons.extend(nesting::tell(self.request, nesting, self.openmp, out_of_reach)?);
        reasons.extend(variables.iter().filter_map(|Variable { name, action, .. }| match action {
            Action::Removed { value, why } => {
                let text = format!("{name}={value} is taken away: {why}");
                Some(LaunchReason::warning(Topic::Environment, text))
            }
            _ => None,
        }));
        // What is out of reach was just told.
        Ok(if out_of_reach.is_some() { Missed::Ignored } else { asked.missed(self.request) })
    }

    /// How threads wait, its variables, and whether it matters what a yield does.
    fn wait(
        &self,
        role: &Role,
        nesting: Option<&Nesting>,
        variables: &mut Vec<Variable>,
    ) -> (WaitPlan, bool) {
        let user = |name: &str| self.request.user(name);
        let nested = nesting.map(|nesting| nesting.resolved().threads());
        let by_command = self.stated.as_ref().map(|stated| stated.threads.to_string());
        let count = by_command.or(self.omp());
        let quota = self.facts.bounds.quota;
        let occupancy = Occupancy::of(&self.plan, count.as_deref(), nested, quota);
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

    /// The variable by which the allocator is told to ask for huge pages.
    fn huge_pages(&self, reasons: &mut Vec<LaunchReason>) -> Option<Variable> {
        if !self.request.allocator.at(self.holds).value {
            return None;
        }
        let warning = |text: String| LaunchReason::warning(Topic::Memory, text);
        if self.facts.glibc.is_none_or(|version| version < TUNABLES_SINCE) {
            reasons.push(warning(
                "--thp on needs the allocator of glibc 2.35: this C library is not told to ask for huge pages by it"
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

    /// The lines for people about a launch that takes place.
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

/// What is said where nothing can be reserved.
fn ledger(request: &LaunchRequest, facts: &LaunchFacts) -> Result<Option<LaunchReason>, Refusal> {
    let Some(fault) = &facts.ledger.fault else { return Ok(None) };
    if request.strict {
        return Err(Refusal::Strict(format!("the cores cannot be reserved: {fault}")));
    }
    let text = format!("the cores are not reserved, other runs may take them: {fault}");
    Ok(Some(LaunchReason::warning(Topic::Ledger, text)))
}

/// What is said of a memory policy that was asked for and that the plan is without.
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

/// Programs whose OpenMP threads the runtime must not bind. GNU OpenMP gives every thread that
/// opens a team by itself the first places, so that the teams of a program that starts threads of
/// its own meet on the same CPUs. LLVM's runtime deals places round among them.
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

/// The results of the steps.
struct Rest {
    openmp: Option<Runtime>,
    nesting: Option<Nesting>,
    environment: Vec<Variable>,
    wait: WaitPlan,
    preload: Preload,
    reasons: Vec<LaunchReason>,
    questions: Questions,
}

fn assembled(
    request: &LaunchRequest,
    role: &Role,
    placed: Placed,
    threads: Sourced<u32>,
    holds: bool,
    rest: Rest,
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
        .or_else(|| rest.nesting.as_ref().map(|_| Origin::Variable(OPENMP.to_owned())));
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
        preload: rest.preload,
        watch: watch.filter(|_| request.env != EnvMode::Print),
        tuning: request.tuning.clone().filter(|_| holds),
        rule: request.rule.clone(),
        strict: request.strict,
        origins: request.origins.clone(),
        reasons: rest.reasons,
        questions: rest.questions,
    }
}

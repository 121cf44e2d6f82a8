//! Nested OpenMP teams of a launch: where they were asked for, on which cores they lie, and if they
//! can be placed.
//!
//! Three ways to ask, the first that is there counts: `--nest`, `TRIMTAB_NESTING`, and
//! `OMP_NESTING_TEAM_SIZE`, the name of the publication. A text of the first two that is not
//! understood is an error, as with any option: it was meant for trimtab. The third may be set for
//! another tool: there it is said and the program runs without, but with `--strict`.

use crate::facts::{LaunchFacts, ProgramFacts};
use crate::family::Family;
use crate::options::Options;
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::request::{LaunchRequest, Origin};
use crate::variables::Environment;
use trimtab_core::handoff::{Missed, NestHandoff, Report, Roots};
use trimtab_core::place::nesting::{Advice, Listing, Nest, NestError, Resolved, Teams, Tree, advise};
use trimtab_core::place::runtimes::{BINDING_VARIABLES, Runtime};
use trimtab_core::place::{Plan, counts};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;

/// The option.
const OPTION: &str = "--nest";
/// The variable by which a user asks.
const OURS: &str = "TRIMTAB_NESTING";
/// The published one, which other tools may read too.
const PUBLISHED: &str = "OMP_NESTING_TEAM_SIZE";
/// The variables by which a user asks, the first one first.
pub const NEST_VARIABLES: [&str; 2] = [OURS, PUBLISHED];

/// Teams that were asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedTeams {
    /// The teams.
    pub nest: Nest,
    /// Where they were asked for.
    pub origin: Origin,
}

/// The teams asked for, by the option or else by the environment, and a remark about a text that is
/// passed over.
///
/// # Errors
/// A text that is not understood; of the published variable only with `--strict`.
pub(crate) fn asked(
    options: &Options,
    environment: &Environment,
) -> Result<(Option<AskedTeams>, Option<LaunchReason>), Refusal> {
    let variable = || {
        let set =
            |name: &'static str| Some((name, environment.text(name).filter(|text| !text.trim().is_empty())?));
        NEST_VARIABLES.into_iter().find_map(set)
    };
    let option = options.nest.as_ref().map(|text| (OPTION, text.clone()));
    let Some((source, text)) = option.or_else(variable) else { return Ok((None, None)) };
    let error: NestError = match text.parse() {
        Ok(nest) => {
            let origin = match source {
                OPTION => Origin::Option,
                name => Origin::Variable(name.to_owned()),
            };
            return Ok((Some(AskedTeams { nest, origin }), None));
        }
        Err(error) => error,
    };
    match (source == PUBLISHED, options.strict) {
        (true, false) => {
            let text = format!("{source}: {error}; the program runs without nested placement");
            Ok((None, Some(LaunchReason::warning(Topic::Nesting, text))))
        }
        (true, true) => Err(Refusal::Strict(format!("{source}: {error}"))),
        (false, _) => Err(Refusal::Request(format!("{source}: {error}"))),
    }
}

impl AskedTeams {
    /// What becomes of a program in which no thread is placed.
    pub(crate) fn missed(&self, request: &LaunchRequest) -> Missed {
        // The published variable may be meant for another reader.
        let of_trimtab = self.origin != Origin::Variable(PUBLISHED.to_owned());
        match (request.strict, of_trimtab && !request.quiet) {
            (true, _) => Missed::Fails,
            (false, true) => Missed::Told,
            (false, false) => Missed::Ignored,
        }
    }
}

/// Nested teams in a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nesting {
    nest: Nest,
    /// The teams on the plan's cores.
    pub teams: Teams,
    /// The cores that the plan was narrowed from, where it was.
    wide: Option<Tree>,
    /// Everything the program might have had, hardware threads and busy cores included.
    free: Option<Tree>,
}

impl Nesting {
    /// The teams in the plan's cores, which was narrowed from `wide`, out of those it could have
    /// had; `None` for a plan without CPUs.
    pub fn new(
        machine: &Machine,
        free: &CpuSet,
        plan: &Plan,
        wide: Option<Tree>,
        nest: &Nest,
    ) -> Option<Self> {
        let teams = Teams::new(Tree::new(machine, &plan.mask)?, wide.as_ref(), nest);
        Some(Self { nest: nest.clone(), teams, wide, free: Tree::new(machine, free) })
    }

    /// The teams, every size a number.
    pub fn resolved(&self) -> &Resolved {
        self.teams.resolved()
    }

    /// What to tell the user of these teams, for a program that links this OpenMP runtime.
    pub fn advice(&self, openmp: Option<Runtime>) -> Vec<Advice> {
        let mut advice = self.teams.advice();
        // The plan is as small as the teams: what they leave idle is seen in what they might have
        // had.
        for wider in self.free.iter().flat_map(|free| advise(free, self.resolved())) {
            let is_of_machine = matches!(wider, Advice::LoneTeam { .. } | Advice::Uneven { .. });
            if is_of_machine
                && !advice.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(&wider))
            {
                advice.push(wider);
            }
        }
        let nested = self.resolved().levels().iter().skip(1).any(|(threads, _)| *threads > 1);
        if openmp.is_some_and(|runtime| runtime.row().recreates_inner_teams) && nested {
            advice.push(Advice::ThreadsMadeAnew);
        }
        advice
    }

    /// Every thread, and the advice for a program that links this OpenMP runtime.
    pub fn listing(&self, openmp: Option<Runtime>) -> Listing {
        Listing { advice: self.advice(openmp), ..Listing::new(&self.teams) }
    }

    /// The text for the preload library.
    pub(crate) fn handoff(&self, roots: Roots, report: Report, missed: Missed) -> NestHandoff {
        let (tree, wide, nest) = (self.teams.tree().clone(), self.wide.clone(), Some(self.nest.clone()));
        NestHandoff { tree, wide, roots, report, missed, nest }
    }
}

/// The text for the preload library in a program that may name teams by a call, where no teams were
/// asked for. Not for one whose threads are to be left free.
pub(crate) fn for_calls(facts: &LaunchFacts, plan: &Plan, report: Report) -> Option<NestHandoff> {
    facts.program.as_ref().filter(|program| program.openmp.is_some() && program.sets_teams)?;
    let tree = Tree::new(&facts.machine, &plan.mask)?;
    let (roots, missed) = (Roots::default(), Missed::default());
    Some(NestHandoff { tree, wide: None, roots, report, missed, nest: None })
}

/// The nested teams that the user's `OMP_NUM_THREADS` lists, where they fit the plan and the
/// preload library can place them. A binding that the user set stays in force instead.
pub(crate) fn shape(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    plan: &Plan,
    omp: Option<&str>,
) -> Option<Nest> {
    let program = facts.program.as_ref()?;
    let reachable = program.family.is_none() && program.preload.is_ok() && facts.library.is_ok();
    if program.openmp.is_none()
        || !reachable
        || BINDING_VARIABLES.iter().any(|name| request.user(name).is_some())
    {
        return None;
    }
    let counts = counts(omp?)?;
    let threads = counts.iter().fold(1u64, |product, &count| product.saturating_mul(u64::from(count)));
    Nest::of_counts(&counts).filter(|_| threads <= plan.slots.len() as u64)
}

/// Why nested teams of a program that the preload library goes along with cannot be placed: threads
/// are only those of the process that trimtab becomes.
pub(crate) fn unreached(program: Option<&ProgramFacts>) -> Option<&'static str> {
    match program?.family {
        Some(Family::Shell) => Some(
            "it is a shell, and only a program that it becomes by exec would be reached: put trimtab run before the program inside",
        ),
        Some(Family::Make) => Some("it starts other programs: put trimtab run before them"),
        _ => None,
    }
}

/// What a user should know before the program runs: the library may not reach it, the runtime may
/// not open as many levels, and what is to be said of the teams themselves.
///
/// # Errors
/// With `--strict`, threads that cannot be placed at all.
pub(crate) fn tell(
    request: &LaunchRequest,
    nesting: &Nesting,
    openmp: Option<Runtime>,
    out_of_reach: Option<&str>,
) -> Result<Vec<LaunchReason>, Refusal> {
    let warning = |text: String| LaunchReason::warning(Topic::Nesting, text);
    if let Some(why) = out_of_reach {
        let text = format!("nested teams cannot be placed: {why}");
        return if request.strict { Err(Refusal::Strict(text)) } else { Ok(vec![warning(text)]) };
    }
    let mut said = Vec::new();
    let levels = nesting.resolved().levels().len();
    let allowed = request.user("OMP_MAX_ACTIVE_LEVELS").and_then(|text| text.trim().parse::<usize>().ok());
    if let Some(allowed) = allowed.filter(|&allowed| allowed < levels) {
        said.push(warning(format!(
            "your OMP_MAX_ACTIVE_LEVELS={allowed} keeps the runtime from opening the {levels} levels of {}",
            nesting.resolved()
        )));
    }
    if request.user("OMP_NESTED").is_some_and(|value| value.eq_ignore_ascii_case("false")) && levels > 1 {
        said.push(warning("your OMP_NESTED=false keeps the runtime from opening inner teams".to_owned()));
    }
    said.extend(nesting.advice(openmp).into_iter().map(|advice| {
        let text = format!("nested teams: {advice}");
        match advice {
            // Known to a user who runs it again and again.
            Advice::ThreadsMadeAnew => LaunchReason::note(Topic::Nesting, text),
            _ => warning(text),
        }
    }));
    Ok(said)
}

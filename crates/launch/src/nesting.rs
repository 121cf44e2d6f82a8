//! Nested OpenMP teams of a launch: their cores, and whether they can be placed. `asked_teams` says
//! where they were requested.

use crate::facts::{LaunchFacts, ProgramFacts};
use crate::family::Family;
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::request::LaunchRequest;
use trimtab_core::handoff::{Missed, NestHandoff, Report, Roots};
use trimtab_core::place::nesting::{Advice, Listing, Nest, Resolved, Teams, Tree, advise};
use trimtab_core::place::runtimes::{BINDING_VARIABLES, Runtime};
use trimtab_core::place::{Plan, counts};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;

/// Nested teams in a plan. [`Nesting::new`] has an example.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nesting {
    nest: Nest,
    /// The teams on the plan's cores.
    pub teams: Teams,
    /// Cores from which the plan was narrowed; `None` if it was not narrowed.
    wide: Option<Tree>,
    /// All CPUs that the program could have had, including hardware threads and busy cores.
    free: Option<Tree>,
}

impl Nesting {
    /// Creates the teams on the cores of a plan, which was narrowed from `wide`, out of the CPUs
    /// `free`. Returns `None` for a plan without CPUs.
    ///
    /// # Examples
    /// [`decide()`](crate::decide()) calls it for a request with nested teams:
    ///
    /// ```
    /// use trimtab_core::topology::parse_synthetic;
    /// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, decide};
    ///
    /// let options = Options { nest: Some("2,4".to_owned()), ..Options::default() };
    /// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
    /// let plan = decide(&request, &LaunchFacts::idle(parse_synthetic("l3:2 core:4")?))?;
    /// let nesting = plan.nesting.expect("nested teams were asked for");
    /// assert_eq!(nesting.resolved().threads(), 8);
    /// assert!(nesting.advice(None).is_empty());
    /// let listing = nesting.listing(None); // As `trimtab plan --nest` prints it.
    /// assert_eq!(listing.levels.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// Returns the teams with every size resolved to a number. [`Self::new`] has an example.
    pub fn resolved(&self) -> &Resolved {
        self.teams.resolved()
    }

    /// Returns the advice about these teams for a program that links this OpenMP runtime.
    /// [`Self::new`] has an example.
    pub fn advice(&self, openmp: Option<Runtime>) -> Vec<Advice> {
        let mut advice = self.teams.advice();
        // The plan is only as large as the teams, so CPUs that the teams leave idle show up only in
        // the set of all free CPUs.
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

    /// Returns every thread, and the advice for a program that links this OpenMP runtime.
    /// [`Self::new`] has an example.
    pub fn listing(&self, openmp: Option<Runtime>) -> Listing {
        Listing { advice: self.advice(openmp), ..Listing::new(&self.teams) }
    }

    /// Returns the hand-off to the preload library.
    pub(crate) fn handoff(&self, roots: Roots, report: Report, missed: Missed) -> NestHandoff {
        let (tree, wide, nest) = (self.teams.tree().clone(), self.wide.clone(), Some(self.nest.clone()));
        NestHandoff { tree, wide, roots, report, missed, nest }
    }
}

/// Returns the hand-off for a program that may declare teams by a call, if no teams were requested.
/// The caller must not use it for a program with free threads.
pub(crate) fn for_calls(facts: &LaunchFacts, plan: &Plan, report: Report) -> Option<NestHandoff> {
    facts.program.as_ref().filter(|program| program.openmp.is_some() && program.sets_teams)?;
    let tree = Tree::new(&facts.machine, &plan.mask)?;
    let (roots, missed) = (Roots::default(), Missed::default());
    Some(NestHandoff { tree, wide: None, roots, report, missed, nest: None })
}

/// Returns the nested teams implied by the user's `OMP_NUM_THREADS`, if they fit the plan and the
/// preload library can place them. Returns `None` if the user set a binding, which stays in force.
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

/// Returns why nested teams cannot be placed in a program into which the preload library is loaded:
/// only the threads of the process that trimtab becomes are reached.
pub(crate) fn unreached(program: Option<&ProgramFacts>) -> Option<&'static str> {
    match program?.family {
        Some(Family::Shell) => Some(
            "it is a shell, and only a program that it becomes by exec would be reached: put trimtab run before the program inside",
        ),
        Some(Family::Make) => Some("it starts other programs: put trimtab run before them"),
        _ => None,
    }
}

/// Returns the warnings about nested teams before the program runs: the library may not reach the
/// program, the runtime may not open enough levels, and the advice about the teams themselves.
///
/// # Errors
/// With `--strict`, if the threads cannot be placed at all.
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
            // A note only: it is known after the first run.
            Advice::ThreadsMadeAnew => LaunchReason::note(Topic::Nesting, text),
            _ => warning(text),
        }
    }));
    Ok(said)
}

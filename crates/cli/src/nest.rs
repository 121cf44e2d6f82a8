//! Nested teams on the command line: who asked for what, and what the guest is told.
//!
//! Three ways to ask, the first that is there counts: `--nest`, `TRIMTAB_NESTING`, and `OMP_NESTING_TEAM_SIZE`, which is
//! the name it had in the publication. A text of the first two that is not understood is an error, as with any option: it
//! was meant for trimtab. The third may be set for another tool: there it is said and the program runs without, but with
//! `--strict`.

use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::world::World;
use anyhow::anyhow;
use trimtab_core::handoff::{Missed, NestHandoff, Report, Roots};
use trimtab_core::place::Plan;
use trimtab_core::place::nesting::{Advice, Listing, Nest, NestError, Resolved, Teams, Tree, advise};
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_linux::program::Program;

/// The variable by which a user asks.
const OURS: &str = "TRIMTAB_NESTING";
/// The published one, which other tools may read too.
const PUBLISHED: &str = "OMP_NESTING_TEAM_SIZE";
/// The variables by which a user asks, the first one first.
pub const VARIABLES: [&str; 2] = [OURS, PUBLISHED];

/// What a program contains that sets its teams by itself: part of the names of the function in C, C++ and Fortran, and of
/// the one that our header looks up.
const CALL: &str = "_set_nesting_info";
/// The longest program that is searched for it: reading takes about 0.1 ms a megabyte. Longer ones are taken to call it.
pub const SEARCHED: usize = 16 << 20;

/// The teams asked for, by the option or else by the environment.
///
/// # Errors
/// A text that is not understood: which, where, and what would be; of the published variable only with `strict`.
pub fn asked(
    world: &World,
    option: Option<&str>,
    strict: bool,
    volume: Volume,
) -> Result<Option<Asked>, anyhow::Error> {
    let variable = || {
        let set = |name: &'static str| Some((name, world.text(name).filter(|text| !text.trim().is_empty())?));
        VARIABLES.into_iter().find_map(set)
    };
    let Some((source, text)) = option.map(|text| ("--nest", text.to_owned())).or_else(variable) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(nest) => Ok(Some(Asked { nest, of_trimtab: source != PUBLISHED })),
        Err(error) if source == PUBLISHED && !strict => {
            let error: NestError = error;
            say::warning(volume, &format!("{source}: {error}; the program runs without nested placement"));
            Ok(None)
        }
        Err(error) if source == PUBLISHED => Err(anyhow!("{source}: {error} (--strict)")),
        Err(error) => Err(anyhow!("{source}: {error}")),
    }
}

/// Teams that were asked for.
#[derive(Debug)]
pub struct Asked {
    /// The teams.
    pub nest: Nest,
    /// Whether trimtab was asked, and not whatever reads the published variable.
    pub of_trimtab: bool,
}

impl Asked {
    /// What becomes of a program in which no thread is placed.
    pub fn missed(&self, strict: bool, volume: Volume) -> Missed {
        match (strict, self.of_trimtab && volume > Volume::Quiet) {
            (true, _) => Missed::Fails,
            (false, true) => Missed::Told,
            (false, false) => Missed::Ignored,
        }
    }
}

/// Nested teams in a plan.
#[derive(Debug)]
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
    /// The teams in the plan's cores, which was narrowed from `wide`, out of those it could have had; `None` for a plan
    /// without CPUs.
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
        // The plan is as small as the teams: what they leave idle is seen in what they might have had.
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

    /// What the guest is told.
    pub fn handoff(&self, roots: Roots, report: Report, missed: Missed) -> NestHandoff {
        let (tree, wide, nest) = (self.teams.tree().clone(), self.wide.clone(), Some(self.nest.clone()));
        NestHandoff { tree, wide, roots, report, missed, nest }
    }
}

/// What the guest is told for a program for which nobody asked for teams, but which may do so itself. Not for one whose
/// threads are to be left free.
pub fn for_calls(machine: &Machine, plan: &Plan, program: &Program, report: Report) -> Option<NestHandoff> {
    program.binary.as_ref()?.openmp?;
    if program.mentions(CALL, SEARCHED) == Some(false) {
        return None;
    }
    let tree = Tree::new(machine, &plan.mask)?;
    let (roots, missed) = (Roots::default(), Missed::default());
    Some(NestHandoff { tree, wide: None, roots, report, missed, nest: None })
}

/// Says what a user should know before the program runs: the guest may not reach it, the runtime may not open as many
/// levels, and what is to be said of the teams themselves.
///
/// # Errors
/// With `strict`, threads that cannot be placed at all.
pub fn tell(
    world: &World,
    nesting: &Nesting,
    openmp: Option<Runtime>,
    out_of_reach: Option<&str>,
    strict: bool,
    volume: Volume,
) -> Result<(), Exit> {
    if let Some(why) = out_of_reach {
        let text = format!("nested teams cannot be placed: {why}");
        if strict {
            return Err(Exit::new(exit::RUN_FAILED, anyhow!("{text} (--strict)")));
        }
        say::warning(volume, &text);
        return Ok(());
    }
    let levels = nesting.resolved().levels().len();
    let allowed = world.of_user("OMP_MAX_ACTIVE_LEVELS").and_then(|text| text.trim().parse::<usize>().ok());
    if let Some(allowed) = allowed.filter(|&allowed| allowed < levels) {
        let text = format!(
            "your OMP_MAX_ACTIVE_LEVELS={allowed} keeps the runtime from opening the {levels} levels of {}",
            nesting.resolved()
        );
        say::warning(volume, &text);
    }
    if world.of_user("OMP_NESTED").is_some_and(|value| value.eq_ignore_ascii_case("false")) && levels > 1 {
        say::warning(volume, "your OMP_NESTED=false keeps the runtime from opening inner teams");
    }
    for advice in nesting.advice(openmp) {
        match advice {
            // Known to who runs it again and again; `trimtab plan` says it too.
            Advice::ThreadsMadeAnew => say::note(volume, &format!("nested teams: {advice}")),
            _ => say::warning(volume, &format!("nested teams: {advice}")),
        }
    }
    Ok(())
}

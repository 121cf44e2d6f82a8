//! Budget of a launch: whether the processes of the run share its cores while they run, and which
//! of their teams may be made smaller.
//!
//! A program may rely on its number of threads, so that teams are bounded on request only
//! (`--fit budget`, `--fit limit`). Without the request a launch is as if there were no budget.

use crate::facts::LaunchFacts;
use crate::family::Family;
use crate::options::EnvMode;
use crate::preload::{self, Preload};
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::request::LaunchRequest;
use serde::Serialize;
use trimtab_core::budget::Rule;
use trimtab_core::words::plural;

/// Budget of a run. [`rule`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct BudgetPlan {
    /// Threads that the processes of the run may compute with together.
    pub cores: u32,
    /// Teams that may be made smaller: `unnumbered` or `all`.
    #[serde(serialize_with = "word")]
    pub rule: Rule,
}

fn word<S: serde::Serializer>(rule: &Rule, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.word())
}

/// Returns the rule of a request; `None` if no team is bounded.
///
/// # Examples
/// ```
/// use trimtab_core::budget::Rule;
/// use trimtab_core::place::Fit;
/// use trimtab_core::place::runtimes::Runtime;
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::budget::rule;
/// use trimtab_launch::facts::ProgramFacts;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, decide};
///
/// let options = Options { fit: Some(Fit::Budget), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
/// assert_eq!(rule(&request), Some(Rule::Unnumbered));
///
/// // A program that links GCC's OpenMP, and can load the preload library.
/// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
/// facts.library = Ok("/usr/lib/trimtab/libtrimtab_shim.so".into());
/// facts.program = Some(ProgramFacts {
///     path: "/home/ann/app".into(),
///     family: None,
///     script: false,
///     go: false,
///     openmp: Some(Runtime::Libgomp),
///     preload: Ok(()),
///     closed: None,
///     starts_threads: false,
///     sets_teams: false,
///     launcher: None,
/// });
/// let budget = decide(&request, &facts)?.budget.expect("a budget was asked for");
/// assert_eq!((budget.cores, budget.rule), (4, Rule::Unnumbered));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rule(request: &LaunchRequest) -> Option<Rule> {
    request.budget_rule()
}

/// Decides on the budget. The second value are the messages about it.
pub(crate) fn decide(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    preload: &Preload,
    threads: u32,
) -> Result<(Option<BudgetPlan>, Vec<LaunchReason>), Refusal> {
    let mut told = Vec::new();
    let Some(rule) = rule(request) else { return Ok((None, told)) };
    if let Some(why) = missing(request, facts, preload) {
        let text = format!("--fit {} cannot bound the program's teams: {why}", request.fit);
        if request.strict {
            return Err(Refusal::Strict(text));
        }
        return Ok((None, vec![LaunchReason::warning(Topic::Threads, text)]));
    }
    if let Err(why) = &facts.blas_library {
        let text = format!("--fit {} does not bound calls of OpenBLAS, MKL and BLIS: {why}", request.fit);
        if request.strict {
            return Err(Refusal::Strict(text));
        }
        told.push(LaunchReason::warning(Topic::Threads, text));
    }
    let teams = match rule {
        Rule::Unnumbered => "teams without a number of their own",
        Rule::All => "all teams",
    };
    let cores = threads.max(1);
    let text = format!("{teams} share a budget of {} with all processes of the run", plural(cores, "thread"));
    told.insert(0, LaunchReason::note(Topic::Threads, text));
    Ok((Some(BudgetPlan { cores, rule }), told))
}

/// Returns why the preload library, which carries out what is asked for, does not get into the
/// program.
pub(crate) fn missing<'a>(
    request: &LaunchRequest,
    facts: &'a LaunchFacts,
    preload: &'a Preload,
) -> Option<&'a str> {
    if request.env == EnvMode::Keep {
        return Some(preload::WITHOUT_VARIABLES);
    }
    if let Err(why) = &facts.library {
        return Some(why);
    }
    preload.stays_out().filter(|_| !starts_others(facts))
}

/// Returns whether the program is a launcher, which needs no library itself and hands the variables
/// on to the ranks that it starts.
pub(crate) fn starts_others(facts: &LaunchFacts) -> bool {
    facts.program.as_ref().is_some_and(|program| program.family == Some(Family::Launcher))
}

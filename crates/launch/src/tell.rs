//! Messages about a launch, each made once as a reason of the decision.

use crate::facts::LaunchFacts;
use crate::nesting::Nesting;
use crate::options::GrowMost;
use crate::place::cores;
use crate::plan::WaitPlan;
use crate::preload::Preload;
use crate::ranks::Role;
use crate::reason::{LaunchReason, Level, Topic};
use crate::request::LaunchRequest;
use trimtab_core::handoff::Pin;
use trimtab_core::place::{Amount, CpuState, Plan, Reason, Variable, fitted_lines};
use trimtab_core::set::CpuSet;
use trimtab_core::words::plural;

/// Returns the line with the number of cores and their location.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Sources, decide, headline};
///
/// let request = LaunchRequest::merge(Sources::default())?;
/// let plan = decide(&request, &LaunchFacts::idle(parse_synthetic("numa:1 core:4")?))?;
/// assert_eq!(headline(&plan.placement), "4 cores: CPUs 0-3 on node 0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn headline(plan: &Plan) -> String {
    let cores = cores(plan);
    let nodes = if plan.nodes.is_empty() { String::new() } else { format!(" on node {}", plan.nodes) };
    let threads = if plan.slots.len() == cores {
        String::new()
    } else {
        format!(", {}", plural(plan.slots.len(), "slot"))
    };
    format!("{}{threads}: CPUs {}{nodes}", plural(cores, "core"), plan.mask)
}

/// Returns the message about growth while the program runs.
pub(crate) fn growth(request: &LaunchRequest, facts: &LaunchFacts) -> Option<LaunchReason> {
    let most = match request.grow? {
        GrowMost::Free => "as many cores as become free".to_owned(),
        GrowMost::Cores(cores) => plural(cores as usize, "core"),
    };
    // Inside another hold it does not.
    let is_outer = !facts.ledger.is_inner && facts.ledger.within == facts.machine.cpus();
    let also = request.yield_to.phrase().filter(|_| is_outer).map_or_else(String::new, |programs| {
        format!(", and gives cores back to {programs} too (--yield-to)")
    });
    let text = format!("the run grows up to {most} while its threads want more than it has (--grow){also}");
    Some(LaunchReason::note(Topic::Placement, text))
}

/// Returns the message about the tuning: applied as a whole, or without threads and waiting.
pub(crate) fn tuning(request: &LaunchRequest, plan: &Plan, holds: bool) -> Option<LaunchReason> {
    let tuning = request.tuning.as_ref()?;
    if holds {
        let crate::request::Tuning { found_on, gained, setting, .. } = tuning;
        let text = format!("as tuned on {found_on}: {setting} ({gained} then; --no-tuning runs without it)");
        return Some(LaunchReason::notice(Topic::Tuning, text));
    }
    let text = format!(
        "the profile {} is for {}, and this run has {}: threads and waiting are left as they are",
        tuning.name,
        plural(tuning.wanted_cores(), "core"),
        cores(plan)
    );
    Some(LaunchReason::warning(Topic::Tuning, text))
}

/// Returns the messages about the cores and the reasons for choosing them.
pub(crate) fn placement(plan: &Plan, request: &LaunchRequest) -> Vec<LaunchReason> {
    let mut told = vec![LaunchReason::new(Topic::Placement, Level::Headline, headline(plan))];
    told.extend(short_of(plan).map(|text| LaunchReason::notice(Topic::Placement, text)));
    told.extend(plan.reasons.iter().map(|reason| LaunchReason::note(Topic::Placement, reason.to_string())));
    let rule = request.rule.as_ref();
    told.extend(
        rule.map(|rule| LaunchReason::note(Topic::Placement, format!("the rule for \"{rule}\" applies"))),
    );
    told
}

/// Returns the message that ranks share cores, from the first rank, so that it is shown once.
/// `whole` is the plan of the job's allotment.
pub(crate) fn crowding(role: &Role, whole: Option<&Plan>) -> Option<LaunchReason> {
    let (rank, _job) = role.shared().filter(|(rank, _)| rank.rank == 0)?;
    let (of, cores) = (rank.of?, cores(whole?));
    (cores < of as usize).then(|| {
        let text = format!(
            "{of} ranks share {} in turn, so that some wait for others; start at most {cores}, or give them more with -c",
            plural(cores, "core")
        );
        LaunchReason::warning(Topic::Rank, text)
    })
}

/// Returns why a plan with an open number of cores has fewer cores than usable, if other programs
/// are the cause. The program then has fewer threads than its user may expect, and no other message
/// reports that.
fn short_of(plan: &Plan) -> Option<String> {
    if plan.amount != Amount::Auto
        || !plan.reasons.iter().any(|reason| matches!(reason, Reason::Auto { cap: None, .. }))
        || plan.reasons.iter().any(|reason| matches!(reason, Reason::Granted(_)))
    {
        return None;
    }
    let avoided = |states: &[CpuState]| {
        let cpus = plan.reasons.iter().filter_map(|reason| match reason {
            Reason::Avoided { state, cpus } if states.contains(state) => Some(cpus),
            _ => None,
        });
        cpus.fold(CpuSet::new(), |all, cpus| all.union(cpus))
    };
    let (busy, held) = (avoided(&[CpuState::Busy, CpuState::Pinned]), avoided(&[CpuState::Held]));
    let mut causes = Vec::new();
    if !busy.is_empty() {
        causes.push(format!(
            "other programs keep CPUs {busy} busy or are bound to them (-c N takes busy ones too)"
        ));
    }
    if !held.is_empty() {
        causes.push(format!("other runs hold CPUs {held} (trimtab ps lists them)"));
    }
    (!causes.is_empty()).then(|| format!("{} only, as {}", plural(cores(plan), "core"), causes.join("; ")))
}

/// Returns the message about the placement of new threads.
pub(crate) fn threads(preload: &Preload, nesting: Option<&Nesting>) -> LaunchReason {
    let text = match (preload, nesting) {
        (Preload::Stays { why }, _) => why.clone(),
        (Preload::Goes { .. }, Some(nesting)) => format!(
            "threads of nested teams are placed as {}, other threads float inside the mask",
            nesting.resolved()
        ),
        (Preload::Goes { pin: Pin::Born }, None) => "new threads are born on their own slots".to_owned(),
        (Preload::Goes { pin: Pin::Float }, None) => {
            "OpenMP threads get exact places, other threads float inside the mask".to_owned()
        }
        (Preload::Goes { pin: Pin::Mask | Pin::Moved }, None) => "threads float inside the mask".to_owned(),
    };
    LaunchReason::note(Topic::Threads, text)
}

/// Returns the messages about thread counts of the user that were lowered.
pub(crate) fn fitted(variables: &[Variable], plan: &Plan) -> impl Iterator<Item = LaunchReason> {
    let lines = fitted_lines(variables, plan);
    lines.into_iter().map(|line| LaunchReason::notice(Topic::Environment, line))
}

/// Returns the messages about waiting, and about the settings for it that the user decides.
pub(crate) fn waiting(wait: &WaitPlan) -> Vec<LaunchReason> {
    let WaitPlan { waiting, yields, left_to_user, .. } = wait;
    let detail = |text: String| LaunchReason::new(Topic::Waiting, Level::Detail, text);
    let mut told = vec![LaunchReason::note(Topic::Waiting, waiting.to_string())];
    told.extend(yields.map(|yields| match waiting.caution(yields) {
        Some(caution) => LaunchReason::warning(Topic::Waiting, caution),
        None => detail(yields.to_string()),
    }));
    told.extend(left_to_user.iter().cloned().map(detail));
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::request::Sources;
    use trimtab_core::topology::parse_synthetic;

    #[test]
    fn a_run_inside_one_that_holds_the_whole_machine_yields_to_no_other_programs() {
        let yield_to = Some("all".parse().unwrap());
        let options = Options { grow: Some(GrowMost::Free), yield_to, ..Options::default() };
        let request = LaunchRequest::merge(Sources { options, ..Sources::default() }).unwrap();
        let mut facts = LaunchFacts::idle(parse_synthetic("core:4").unwrap());
        let said = |facts: &LaunchFacts| growth(&request, facts).unwrap().text;
        assert!(said(&facts).ends_with("gives cores back to programs of all users too (--yield-to)"));
        facts.ledger.is_inner = true;
        assert!(said(&facts).ends_with("than it has (--grow)"));
    }
}

//! Placement of a launch: the cores that a request gets among the facts, or a rank's part of them.
//!
//! [`place()`] is the first half of a decision and can be asked alone: a reservation asks it while
//! it holds the right to plan, takes [`Placed::hold`], and notes in the facts what it saw. The
//! decision then comes to the same cores, since equal facts give equal plans.

use crate::facts::LaunchFacts;
use crate::ranks::Role;
use crate::request::LaunchRequest;
use std::collections::BTreeSet;
use trimtab_core::place::nesting::{Tree, narrow};
use trimtab_core::place::{
    Amount, KindChoice, LocalRank, MemoryPlan, MemoryPolicy, PlaceError, Plan, Reason, Request, Taken, part,
    plan,
};
use trimtab_core::set::CpuSet;

/// A placement.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// The request that the plan answers: narrowed to nested teams, or to the allotment of a job.
    pub request: Request,
    /// What was taken of the machine.
    pub taken: Taken,
    /// The plan; of a rank, its part.
    pub plan: Plan,
    /// The plan of the whole allotment, where this is a rank's part of it.
    pub whole: Option<Plan>,
    /// The parts of all ranks, in order.
    pub parts: Vec<Plan>,
    /// The CPUs to reserve.
    pub hold: CpuSet,
    /// The CPUs that might have been had.
    pub free: CpuSet,
    /// The cores on which nested teams were placed before the plan was narrowed to them.
    pub wide: Option<Tree>,
}

/// Places a request.
///
/// # Errors
/// The cores cannot be had, at all or now.
pub fn place(request: &LaunchRequest, facts: &LaunchFacts, role: &Role) -> Result<Placed, PlaceError> {
    let mut asked = request.place.clone();
    if let Role::Bound(_) = role {
        // Its launcher gave this rank its CPUs; an amount is a count for the whole machine.
        asked.amount = Amount::Auto;
        asked.or_fewer = true;
    }
    let taken = facts.taken();
    match role.shared() {
        Some((rank, _)) => of_rank(facts, &asked, &taken, rank),
        None => alone(request, facts, asked, taken),
    }
}

fn alone(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    asked: Request,
    taken: Taken,
) -> Result<Placed, PlaceError> {
    let (asked, wide) = match &request.nest {
        Some(teams) => {
            let narrowed = narrow(&facts.machine, &asked, &taken, &teams.nest)?;
            (narrowed.request, narrowed.wide)
        }
        None => (asked, None),
    };
    let mut plan = plan(&facts.machine, &asked, &taken)?;
    let hold = plan.hold.clone();
    explain(facts, &mut plan);
    let free = taken.allowed.difference(&taken.held);
    Ok(Placed { request: asked, taken, plan, whole: None, parts: Vec::new(), hold, free, wide })
}

/// A rank's part of the job's allotment, which is taken whole by the first rank.
fn of_rank(
    facts: &LaunchFacts,
    asked: &Request,
    taken: &Taken,
    rank: &LocalRank,
) -> Result<Placed, PlaceError> {
    let allotment = match &facts.ledger.allotment {
        Some(allotment) => allotment.clone(),
        None => plan(&facts.machine, asked, taken)?.hold,
    };
    // Every rank comes to its part from the allotment alone, so that all agree, whatever each saw
    // of the machine's load.
    let request = Request {
        amount: Amount::Auto,
        cpus: Some(allotment.clone()),
        kind: KindChoice::Any,
        share: false,
        cores_auto: None,
        cores_max: None,
        ..asked.clone()
    };
    let quiet = facts.bounds.clone();
    let shared = || plan(&facts.machine, &Request { share: true, ..asked.clone() }, &quiet);
    let Ok(mut whole) = plan(&facts.machine, &request, &quiet).or_else(|_| shared()) else {
        // The allotment was planned from the same machine a moment ago; only a cpuset that shrank
        // since leads here.
        let mut plan = bare(facts, asked, &allotment);
        explain(facts, &mut plan);
        return Ok(Placed {
            request,
            taken: quiet,
            plan,
            whole: None,
            parts: Vec::new(),
            hold: allotment.clone(),
            free: allotment,
            wide: None,
        });
    };
    whole.hold = whole.hold.union(&allotment);
    whole.reasons.retain(|reason| !matches!(reason, Reason::Auto { .. }));
    let of = rank.of.unwrap_or(1);
    let mut own = part(&facts.machine, &whole, rank.rank, of);
    explain(facts, &mut own);
    let parts = (0..of).map(|rank| part(&facts.machine, &whole, rank, of)).collect();
    Ok(Placed {
        request,
        taken: quiet,
        plan: own,
        whole: Some(whole),
        parts,
        hold: allotment.clone(),
        free: allotment,
        wide: None,
    })
}

/// The mask that is left, without a place for any thread.
fn bare(facts: &LaunchFacts, asked: &Request, allotment: &CpuSet) -> Plan {
    Plan {
        amount: asked.amount,
        strategy: asked.strategy,
        slots: Vec::new(),
        mask: facts.bounds.allowed.clone(),
        hold: allotment.clone(),
        nodes: Default::default(),
        memory: MemoryPlan { policy: MemoryPolicy::None, nodes: Default::default() },
        huge_pages: asked.huge_pages,
        threads: 1,
        reasons: Vec::new(),
    }
}

/// Puts the bounds of the launch and what is known of others in front of the reasons.
fn explain(facts: &LaunchFacts, plan: &mut Plan) {
    let notes = facts.load.notes.iter().map(|text| Reason::Note { text: text.clone() });
    let before: Vec<Reason> = facts.limited.iter().cloned().chain(notes).collect();
    plan.reasons.splice(0..0, before);
}

/// The cores of a plan's slots.
pub fn cores(plan: &Plan) -> usize {
    plan.slots.iter().map(|slot| slot.core).collect::<BTreeSet<_>>().len()
}

//! Placement of a launch: the cores that a request gets under the facts, or a rank's part of them.
//!
//! [`place()`] is the first half of a decision and can be called alone. A reservation calls it
//! while it holds the planning lock, takes [`Placed::hold`], and stores the state it saw in the
//! facts. The decision then arrives at the same cores, since equal facts give equal plans.

use crate::facts::LaunchFacts;
use crate::family::Family;
use crate::ranks::Role;
use crate::request::LaunchRequest;
use std::collections::BTreeSet;
use trimtab_core::place::nesting::{Tree, narrow};
use trimtab_core::place::{
    Amount, GrantedCores, KindChoice, LocalRank, MemoryPlan, MemoryPolicy, MemoryRequest, NearDevice,
    NodeMemory, PlaceError, Plan, Reason, Request, Taken, deal, local_rank, part, plan, stated_in_text,
    stated_within,
};
use trimtab_core::set::CpuSet;

/// Placement of a launch. [`place()`] has an example.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// Request that the plan answers, narrowed to nested teams or to the allotment of a job.
    pub request: Request,
    /// Occupancy of the machine that the plan assumes.
    pub taken: Taken,
    /// The plan; for a rank, its part.
    pub plan: Plan,
    /// Plan of the whole allotment, if `plan` is a rank's part of it.
    pub whole: Option<Plan>,
    /// Parts of all ranks, in order.
    pub parts: Vec<Plan>,
    /// CPUs to reserve.
    pub hold: CpuSet,
    /// Memory to reserve, by node. Later ranks of a job have none: the first one reserved it.
    pub memory_hold: Vec<NodeMemory>,
    /// CPUs that the launch could have had.
    pub free: CpuSet,
    /// Cores on which nested teams were placed before the plan was narrowed to the teams.
    pub wide: Option<Tree>,
}

/// Places a request: the first half of a decision, for a reservation.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Role, Sources, decide, place};
///
/// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
/// let options = Options { cores: Some("2".parse()?), ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
///
/// // Under the ledger's lock: read the holds of others, and take the cores of the placement.
/// facts.ledger.held = "0".parse()?;
/// let placed = place(&request, &facts, &Role::of(&request, &facts))?;
/// assert_eq!(placed.hold.to_string(), "1-2");
///
/// // After that, the whole decision comes to the same cores.
/// assert_eq!(decide(&request, &facts)?.placement, placed.plan);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The cores are not available, permanently or at present.
pub fn place(request: &LaunchRequest, facts: &LaunchFacts, role: &Role) -> Result<Placed, PlaceError> {
    let mut asked = request.place.clone();
    if let Role::Bound(_) = role {
        // The launcher gave this rank its CPUs; an amount is a count for the whole machine.
        asked.amount = Amount::Auto;
        asked.or_fewer = true;
    }
    asked.granted = granted(request, facts, role);
    if let (Role::Bound(LocalRank { rank, of: Some(of), .. }), Some(near)) = (role, &mut asked.near)
        && !near.each.is_empty()
    {
        let own = deal::of_rank(&near.each, *rank, *of).to_vec();
        *near = NearDevice { name: deal::names(&own), cpus: deal::near(&own), each: Vec::new() };
    }
    let taken = facts.taken();
    match role.shared() {
        Some((rank, _)) => of_rank(facts, &asked, &taken, rank, request.is_of_own_ranks()),
        None => alone(request, facts, asked, taken),
    }
}

/// Returns the most cores that `auto` takes by the grant of a workload manager. A rank that its
/// launcher has bound has the CPUs of its mask instead.
fn granted(request: &LaunchRequest, facts: &LaunchFacts, role: &Role) -> Option<GrantedCores> {
    let grant = request.grant.filter(|_| !matches!(role, Role::Bound(_)))?;
    let rank = local_rank(&|name| request.environment.text(name));
    let ranks = if grant.per_rank { rank?.of? } else { 1 };
    Some(grant.cores(&facts.machine, request.place.smt, ranks))
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
    let usual = plan(&facts.machine, &asked, &taken)?;
    let (asked, mut plan) =
        as_many_as_stated(request, facts, &asked, &taken, &usual).unwrap_or((asked, usual));
    let (hold, memory_hold) = (plan.hold.clone(), plan.memory_hold.clone());
    explain(facts, &mut plan);
    let free = taken.allowed.difference(&taken.held);
    let (whole, parts) = (None, Vec::new());
    Ok(Placed { request: asked, taken, plan, whole, parts, hold, memory_hold, free, wide })
}

/// Returns a plan with a core for each thread that the command line states, busy ones too, if
/// `auto` has fewer of them; `None` if it has enough, or there are no more.
///
/// A count in the command line stays as it is, so threads beyond the cores would take one core from
/// each other, and some programs (IQ-TREE) refuse to start with more threads than CPUs.
fn as_many_as_stated(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    asked: &Request,
    taken: &Taken,
    usual: &Plan,
) -> Option<(Request, Plan)> {
    let launches = facts.program.as_ref().is_some_and(|program| program.family == Some(Family::Launcher));
    if asked.amount != Amount::Auto || request.nest.is_some() || launches {
        return None;
    }
    let words: Vec<&str> = request.command.iter().map(String::as_str).collect();
    let in_file = || facts.script.as_deref().and_then(stated_in_text);
    let stated = stated_within(&words).or_else(in_file)?;
    let granted = asked.granted.as_ref().map(|granted| granted.cores);
    let limits = [asked.cores_auto, asked.cores_max, granted].into_iter().flatten();
    let wanted = limits.fold(stated.threads, u32::min);
    if wanted as usize <= cores(usual) {
        return None;
    }
    let each = Request { amount: Amount::Cores(wanted), or_fewer: true, ..asked.clone() };
    let mut more = plan(&facts.machine, &each, taken).ok().filter(|more| cores(more) > cores(usual))?;
    more.reasons.retain(|reason| !matches!(reason, Reason::Fewer { .. }));
    let text = format!("{stated}: a core is taken for each of these threads, busy ones too");
    more.reasons.insert(0, Reason::Note { text });
    Some((each, more))
}

/// Returns a rank's part of the job's allotment. The first rank takes the whole allotment.
fn of_rank(
    facts: &LaunchFacts,
    asked: &Request,
    taken: &Taken,
    rank: &LocalRank,
    own_ranks: bool,
) -> Result<Placed, PlaceError> {
    let (allotment, memory_hold) = match &facts.ledger.allotment {
        Some(allotment) => (allotment.clone(), Vec::new()),
        None => {
            let of = rank.of.unwrap_or(1);
            let usual = allotment(facts, asked, taken, of, own_ranks)?;
            let first = by_devices(facts, asked, taken, of, &usual).unwrap_or(usual);
            (first.hold, first.memory_hold)
        }
    };
    // Every rank derives its part from the allotment alone, so that all ranks agree, even if each
    // saw a different load.
    let request = Request {
        amount: Amount::Auto,
        cpus: Some(allotment.clone()),
        kind: KindChoice::Any,
        share: false,
        cores_auto: None,
        cores_max: None,
        granted: None,
        // Examined when the allotment was chosen.
        memory: MemoryRequest { size: None, ..asked.memory.clone() },
        near: None,
        ..asked.clone()
    };
    let quiet = facts.bounds.clone();
    let shared = || plan(&facts.machine, &Request { share: true, ..asked.clone() }, &quiet);
    let Ok(mut whole) = plan(&facts.machine, &request, &quiet).or_else(|_| shared()) else {
        // The allotment was planned on the same machine a moment ago; this path is reached only if
        // a cpuset shrank since.
        let mut plan = bare(facts, asked, &allotment);
        explain(facts, &mut plan);
        return Ok(Placed {
            request,
            taken: quiet,
            plan,
            whole: None,
            parts: Vec::new(),
            hold: allotment.clone(),
            memory_hold,
            free: allotment,
            wide: None,
        });
    };
    whole.hold = whole.hold.union(&allotment);
    whole.reasons.retain(|reason| !matches!(reason, Reason::Auto { .. }));
    let of = rank.of.unwrap_or(1);
    let devices = asked.near.as_ref().map_or(&[][..], |near| &near.each);
    let mut own = part(&facts.machine, &whole, rank.rank, of, devices);
    explain(facts, &mut own);
    let parts = (0..of).map(|rank| part(&facts.machine, &whole, rank, of, devices)).collect();
    Ok(Placed {
        request,
        taken: quiet,
        plan: own,
        whole: Some(whole),
        parts,
        hold: allotment.clone(),
        memory_hold,
        free: allotment,
        wide: None,
    })
}

/// Returns the plan of an allotment with as many cores as the usual one, of which each rank's share
/// is near its devices; `None` if no devices are dealt, if units of the machine were requested, or
/// if the usual one has every core that there is.
fn by_devices(facts: &LaunchFacts, asked: &Request, taken: &Taken, ranks: u32, usual: &Plan) -> Option<Plan> {
    let near = asked.near.as_ref().filter(|near| !near.each.is_empty())?;
    let total = u32::try_from(cores(usual)).ok().filter(|&total| total >= ranks)?;
    if matches!(asked.amount, Amount::Shape(_) | Amount::Exact) {
        return None;
    }
    let memory = MemoryRequest { size: None, ..asked.memory.clone() };
    let of_rank = Request { memory, or_fewer: false, granted: None, cores_max: None, ..asked.clone() };
    let mut left = taken.clone();
    let mut hold = CpuSet::new();
    for rank in deal::choosing_order(&near.each, ranks) {
        let own = deal::of_rank(&near.each, rank, ranks);
        let device = NearDevice { name: deal::names(own), cpus: deal::near(own), each: Vec::new() };
        let share = total / ranks + u32::from(rank < total % ranks);
        let request = Request { amount: Amount::Cores(share), near: Some(device), ..of_rank.clone() };
        let own = plan(&facts.machine, &request, &left).ok()?;
        left.held = left.held.union(&own.hold);
        hold = hold.union(&own.hold);
    }
    let all =
        Request { amount: Amount::Cores(total), cpus: Some(hold), kind: KindChoice::Any, ..asked.clone() };
    plan(&facts.machine, &Request { near: None, ..all }, taken).ok()
}

/// Returns the plan of a job's allotment. Without a count it has a core for each rank at least,
/// busy ones too: a core that is half taken is better than one that two ranks take from each other.
///
/// Where there are not as many cores, ranks of `--ranks` are refused unless fewer cores were
/// accepted. Ranks of another launcher run already, so they share the cores that there are.
fn allotment(
    facts: &LaunchFacts,
    asked: &Request,
    taken: &Taken,
    ranks: u32,
    own_ranks: bool,
) -> Result<Plan, PlaceError> {
    let usual = plan(&facts.machine, asked, taken);
    if asked.amount != Amount::Auto || usual.as_ref().is_ok_and(|plan| cores(plan) >= ranks as usize) {
        return usual;
    }
    let each = Request { amount: Amount::Cores(ranks), or_fewer: false, ..asked.clone() };
    match plan(&facts.machine, &each, taken) {
        Ok(plan) => Ok(plan),
        Err(_) if asked.or_fewer || !own_ranks => {
            let fewer = Request { or_fewer: true, ..each };
            plan(&facts.machine, &fewer, taken).or(usual)
        }
        Err(cause) => Err(PlaceError::RanksWithoutCores { ranks, cause: Box::new(cause) }),
    }
}

/// Returns a plan that consists of the remaining mask, without a slot for any thread.
fn bare(facts: &LaunchFacts, asked: &Request, allotment: &CpuSet) -> Plan {
    Plan {
        amount: asked.amount,
        strategy: asked.strategy,
        slots: Vec::new(),
        mask: facts.bounds.allowed.clone(),
        hold: allotment.clone(),
        nodes: Default::default(),
        memory: MemoryPlan { policy: MemoryPolicy::None, nodes: Default::default() },
        memory_hold: Vec::new(),
        huge_pages: asked.huge_pages,
        threads: 1,
        reasons: Vec::new(),
    }
}

/// Inserts the limits of the launch, the grants of others and the notes about other programs before
/// the reasons.
fn explain(facts: &LaunchFacts, plan: &mut Plan) {
    let granted = facts.load.granted.iter().map(ToString::to_string);
    let notes = granted.chain(facts.load.notes.iter().cloned()).map(|text| Reason::Note { text });
    let before: Vec<Reason> = facts.limited.iter().cloned().chain(notes).collect();
    plan.reasons.splice(0..0, before);
}

/// Returns the number of cores of a plan's slots.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, cores, decide};
///
/// // Two hardware threads of each of two cores.
/// let smt = Some("2".parse()?);
/// let options = Options { cores: Some("2".parse()?), smt, ..Options::default() };
/// let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
/// let plan = decide(&request, &LaunchFacts::idle(parse_synthetic("core:4 pu:2")?))?.placement;
/// assert_eq!((cores(&plan), plan.slots.len()), (2, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cores(plan: &Plan) -> usize {
    plan.slots.iter().map(|slot| slot.core).collect::<BTreeSet<_>>().len()
}

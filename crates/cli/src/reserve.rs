//! From a request to a plan whose cores are ours: look, plan, take, and wait in line where that was asked for.
//!
//! The order matters: foreign load is sampled before the right to plan is asked for, since sampling takes a tenth of a
//! second; the lock map is read after, since only then it stays true until the cores are taken.

use crate::args::Wait;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::situation::{Situation, Standpoint, location};
use crate::surroundings::Surroundings;
use crate::world::World;
use anyhow::anyhow;
use std::time::{Duration, Instant};
use trimtab_core::place::nesting::{Nest, Tree, narrow};
use trimtab_core::place::{
    Amount, KindChoice, LocalRank, PlaceError, Plan, Reason, Request, Taken, part, plan,
};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_linux::ledger::{Held, Ledger, LedgerError, Level, Mode, ProcessTable, TakeError, Ticket};

/// How long the right to plan is waited for. A launch holds it for under a millisecond; whoever holds it longer was
/// stopped, and planning without it is safe.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is waited for once its holder was found to be stopped: a waiter who spent [`PATIENCE`] on each attempt would
/// observe the line too seldom to pass over a stopped ticket.
const PATIENCE_WITH_STOPPED: Duration = Duration::from_millis(20);
/// How often a plan is made anew because others took its cores first, which happens only to those who plan without the
/// right to.
const ATTEMPTS: usize = 16;

/// How often one who is not the first in line looks whether he is by now. Chosen: a look costs microseconds, and until it
/// is made a free core may lie idle; 1,000 short runs, 16 at a time on 2 CPUs, took 77 s when the whole pause was slept
/// through.
const GLANCE: Duration = Duration::from_millis(5);

/// A plan, and what reserves its cores.
#[derive(Debug)]
pub struct Reserved {
    /// The plan: of a rank, its part.
    pub plan: Plan,
    /// The hold; `None` when the ledger cannot be used.
    pub held: Option<Held>,
    /// What was allowed and not held by others when the plan was made.
    pub free: CpuSet,
    /// The cores that nested teams were placed on before the plan was narrowed to those they use.
    pub wide: Option<Tree>,
}

/// What is asked for, by whom.
pub struct Order<'a> {
    /// The request.
    pub request: &'a Request,
    /// Nested teams, whose cores are wanted where the request leaves open how many.
    pub nest: Option<&'a Nest>,
    /// What else runs.
    pub seen: &'a Surroundings,
    /// The rank, when the ranks of a job share one allotment.
    pub rank: Option<(&'a LocalRank, u64)>,
    /// Whether to wait, and how long.
    pub wait: Option<Wait>,
    /// What the holder is called.
    pub label: &'a str,
    /// Whether a ledger that cannot be used is an error.
    pub strict: bool,
    /// How much is said.
    pub volume: Volume,
}

impl Order<'_> {
    /// Plans for the whole request; with the cores that it was narrowed from for nested teams.
    fn plan(&self, machine: &Machine, taken: &Taken) -> Result<(Plan, Option<Tree>), PlaceError> {
        let Some(nest) = self.nest.filter(|_| self.rank.is_none()) else {
            return Ok((plan(machine, self.request, taken)?, None));
        };
        let narrowed = narrow(machine, self.request, taken, nest)?;
        Ok((plan(machine, &narrowed.request, taken)?, narrowed.wide))
    }
}

/// Makes the plan and takes its cores.
///
/// # Errors
/// [`exit::NO_CORES`] when there are not enough free cores (in time); [`exit::RUN_FAILED`] for a request that can never
/// be met, or with `strict` a ledger that cannot be used.
pub fn reserve(world: &World, situation: &Situation, order: &Order<'_>) -> Result<Reserved, Exit> {
    let begin = Instant::now();
    let mut queue: Option<Ticket> = None;
    let mut said_waiting = false;
    let mut attempts = 0;
    let mut patience = PATIENCE;
    loop {
        let ledger = match location(world).and_then(|location| Ledger::open(&location)) {
            Ok(ledger) => ledger,
            Err(error) => return without_ledger(situation, order, &error),
        };
        let stand = Standpoint::find(world, &ledger, &situation.machine);
        // Who would wait does not overtake those who do.
        let line = || ledger.waiting(stand.level, &stand.within).is_ok_and(|waiting| waiting > 0);
        if queue.is_none() && order.wait.is_some() && line() {
            queue = ledger.enqueue(stand.level, &stand.within).ok();
        }
        let may_take = match &mut queue {
            Some(ticket) => ticket.is_first().unwrap_or(true),
            None => true,
        };
        let cause = match attempt(world, situation, order, &ledger, &stand, may_take, &mut patience) {
            Ok(Attempt::Done(reserved)) => return Ok(*reserved),
            Ok(Attempt::Again) if attempts < ATTEMPTS => {
                attempts += 1;
                continue;
            }
            Ok(Attempt::Again) => {
                return Err(Exit::new(
                    exit::NO_CORES,
                    anyhow!(
                        "other launches took the planned cores {ATTEMPTS} times; try again, or use --wait"
                    ),
                ));
            }
            Ok(Attempt::Behind) => anyhow!("others came first and wait still"),
            Ok(Attempt::Refused(error)) if error.passes() && order.wait.is_some() => {
                anyhow::Error::from(error)
            }
            Ok(Attempt::Refused(error)) => {
                let status = if error.passes() { exit::NO_CORES } else { exit::RUN_FAILED };
                return Err(Exit::new(status, error));
            }
            Err(LedgerError::Replaced { .. }) if attempts < ATTEMPTS => {
                attempts += 1;
                continue;
            }
            Err(error) => return without_ledger(situation, order, &error),
        };
        let limit = order.wait.and_then(|wait| wait.0);
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            let waited = begin.elapsed().as_secs();
            return Err(Exit::new(exit::NO_CORES, cause.context(format!("gave up after {waited} s"))));
        }
        if queue.is_none() {
            queue = ledger.enqueue(stand.level, &stand.within).ok();
        }
        let ahead = queue.as_mut().and_then(|ticket| ticket.ahead().ok()).unwrap_or(0);
        if !said_waiting {
            let line = if ahead == 0 { String::new() } else { format!("; {ahead} ahead in line") };
            say::headline(order.volume, &format!("waiting for cores{line} ({cause})"));
            said_waiting = true;
        }
        let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(begin.elapsed()));
        pause(queue.as_mut(), ahead, left);
    }
}

/// Sleeps until it is worth while to look again: as long as the place in line says, but no longer than others are ahead.
fn pause(mut ticket: Option<&mut Ticket>, ahead: u64, left: Duration) {
    let (begin, whole) = (Instant::now(), Ticket::pause(ahead).min(left));
    loop {
        let rest = whole.saturating_sub(begin.elapsed());
        let first = ahead > 0 && ticket.as_mut().is_some_and(|ticket| ticket.is_first().unwrap_or(true));
        if rest.is_zero() || first {
            return;
        }
        std::thread::sleep(rest.min(GLANCE));
    }
}

enum Attempt {
    Done(Box<Reserved>),
    /// Others were quicker.
    Again,
    /// There is enough, and others who came first wait for it.
    Behind,
    Refused(PlaceError),
}

/// One look, plan and take. `may_take` is false for those in line behind others: they only join their own job's group.
fn attempt(
    world: &World,
    situation: &Situation,
    order: &Order<'_>,
    ledger: &Ledger,
    stand: &Standpoint,
    may_take: bool,
    patience: &mut Duration,
) -> Result<Attempt, LedgerError> {
    let _right = match ledger.planner(stand.level, *patience) {
        Ok(planner) => {
            *patience = PATIENCE;
            Some(planner)
        }
        Err(LedgerError::PlannerBusy { .. }) => {
            *patience = PATIENCE_WITH_STOPPED;
            None
        }
        Err(error) => return Err(error),
    };
    let processes = ProcessTable::at(&world.proc());
    // Before the map: a job that ends in between would be held by nobody one could join, and still be in the way.
    let group = match order.rank {
        Some((_, job)) => {
            let uid = rustix::process::getuid().as_raw();
            ledger.find_group(stand.level, &stand.within, job, uid, &processes)?
        }
        None => None,
    };
    if let Some(allotment) = group {
        return join(world, situation, order, ledger, stand.level, &allotment);
    }
    let map = ledger.map(stand.level, &stand.within)?;
    let mut taken = around(situation, order, stand);
    taken.held = map.held();
    let (whole, wide) = match order.plan(&situation.machine, &taken) {
        Ok(planned) if may_take => planned,
        Ok(_) => return Ok(Attempt::Behind),
        Err(error) => return Ok(Attempt::Refused(error)),
    };
    let (mode, job) = match order.rank {
        Some((_, job)) => (Mode::Shared, job),
        None if order.request.share => (Mode::Shared, 0),
        None => (Mode::Exclusive, 0),
    };
    // What others hold alone cannot be held with them; sharing it is all the user asked for.
    let to_hold = if order.request.share {
        whole.hold.difference(&map.exclusive).difference(&map.lost)
    } else {
        whole.hold.clone()
    };
    let holder = processes.this_process(job, world.now(), order.label)?;
    let held = match ledger.take(stand.level, &to_hold, mode, &holder) {
        Ok(held) => Some(held),
        Err(TakeError::Nothing) => None,
        Err(TakeError::Busy { .. }) => return Ok(Attempt::Again),
        Err(TakeError::Ledger(error)) => return Err(error),
        Err(_) => return Ok(Attempt::Again),
    };
    let mut plan = match order.rank {
        Some((rank, _)) => ranked(situation, order, &whole.hold, rank),
        None => whole,
    };
    explain(situation, order, &mut plan);
    let free = taken.allowed.difference(&taken.held);
    Ok(Attempt::Done(Box::new(Reserved { plan, held, free, wide })))
}

/// Joins the allotment that another rank of the job took first.
fn join(
    world: &World,
    situation: &Situation,
    order: &Order<'_>,
    ledger: &Ledger,
    level: Level,
    allotment: &CpuSet,
) -> Result<Attempt, LedgerError> {
    let Some((rank, job)) = order.rank else { return Ok(Attempt::Again) };
    let holder = ProcessTable::at(&world.proc()).this_process(job, world.now(), order.label)?;
    let held = match ledger.take(level, allotment, Mode::Shared, &holder) {
        Ok(held) => held,
        Err(TakeError::Ledger(error)) => return Err(error),
        Err(_) => return Ok(Attempt::Again),
    };
    let mut plan = ranked(situation, order, allotment, rank);
    explain(situation, order, &mut plan);
    Ok(Attempt::Done(Box::new(Reserved { plan, held: Some(held), free: allotment.clone(), wide: None })))
}

/// A rank's part of an allotment. Every rank comes to it from the allotment alone, so that all agree, whatever each saw
/// of the machine's load.
fn ranked(situation: &Situation, order: &Order<'_>, allotment: &CpuSet, rank: &LocalRank) -> Plan {
    let whole = Request {
        amount: Amount::Auto,
        cpus: Some(allotment.clone()),
        kind: KindChoice::Any,
        share: false,
        cores_auto: None,
        cores_max: None,
        ..order.request.clone()
    };
    let quiet = Taken {
        held: CpuSet::new(),
        pinned: CpuSet::new(),
        busy: Default::default(),
        ..situation.taken.clone()
    };
    let fallback = || plan(&situation.machine, &Request { share: true, ..order.request.clone() }, &quiet);
    let plan = plan(&situation.machine, &whole, &quiet).or_else(|_| fallback());
    match plan {
        Ok(mut plan) => {
            plan.hold = plan.hold.union(allotment);
            plan.reasons.retain(|reason| !matches!(reason, Reason::Auto { .. }));
            part(&situation.machine, &plan, rank.rank, rank.of.unwrap_or(1))
        }
        // The allotment was planned from the same machine a moment ago; only a cpuset that shrank since gets here.
        Err(_) => Plan {
            amount: order.request.amount,
            strategy: order.request.strategy,
            slots: Vec::new(),
            mask: situation.taken.allowed.clone(),
            hold: allotment.clone(),
            nodes: Default::default(),
            memory: trimtab_core::place::MemoryPlan {
                policy: trimtab_core::place::MemoryPolicy::None,
                nodes: Default::default(),
            },
            huge_pages: order.request.huge_pages,
            threads: 1,
            reasons: Vec::new(),
        },
    }
}

/// What surrounds the request, but for what is held.
fn around(situation: &Situation, order: &Order<'_>, stand: &Standpoint) -> Taken {
    let mut taken = situation.taken.clone();
    taken.allowed = taken.allowed.intersection(&stand.within);
    taken.busy = order.seen.busy.clone();
    taken.pinned = order.seen.pinned.clone();
    taken
}

/// Puts what happened before planning in front of the reasons.
fn explain(situation: &Situation, order: &Order<'_>, plan: &mut Plan) {
    let notes = order.seen.notes.iter().map(|text| Reason::Note { text: text.clone() });
    let before: Vec<Reason> = situation.limited.iter().cloned().chain(notes).collect();
    plan.reasons.splice(0..0, before);
}

/// Plans without reserving.
fn without_ledger(situation: &Situation, order: &Order<'_>, error: &LedgerError) -> Result<Reserved, Exit> {
    if order.strict {
        return Err(Exit::new(exit::RUN_FAILED, anyhow!("the cores cannot be reserved: {error}")));
    }
    say::warning(order.volume, &format!("the cores are not reserved, other runs may take them: {error}"));
    let stand = Standpoint { level: Level::MACHINE, within: situation.machine.cpus() };
    let taken = around(situation, order, &stand);
    let (whole, wide) =
        order.plan(&situation.machine, &taken).map_err(|error| Exit::new(exit::RUN_FAILED, error))?;
    let mut plan = match order.rank {
        Some((rank, _)) => ranked(situation, order, &whole.hold, rank),
        None => whole,
    };
    explain(situation, order, &mut plan);
    Ok(Reserved { plan, held: None, free: taken.allowed, wide })
}

//! Reservation of a launch's cores: read the ledger, plan, take, and wait in line if requested.
//!
//! The order matters: foreign load is sampled before the planner lock is taken, since sampling
//! takes a tenth of a second; the lock map is read after, because only then does it stay true until
//! the cores are taken.

use crate::args::Wait;
use crate::exit::{self, Exit};
use crate::gather::Trouble;
use crate::say::{self, Volume};
use crate::site_facts::{Standpoint, location};
use crate::world::World;
use anyhow::anyhow;
use std::time::{Duration, Instant};
use trimtab_core::place::PlaceError;
use trimtab_core::set::CpuSet;
use trimtab_launch::facts::LedgerFacts;
use trimtab_launch::{LaunchFacts, LaunchRequest, Refusal, Role, place};
use trimtab_linux::ledger::{Held, Ledger, LedgerError, Mode, ProcessTable, TakeError, Ticket};

/// Longest wait for the planner lock. A launch holds it for under a millisecond; a process that
/// holds it longer was stopped, and planning without the lock is safe.
const PLANNER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest wait once its holder was found to be stopped: a waiter that spent [`PLANNER_WAIT_MAX`]
/// on each attempt would check the line too rarely to pass over a stopped ticket.
const PLANNER_WAIT_MAX_STOPPED: Duration = Duration::from_millis(20);
/// Most attempts to plan again because other launches took the cores first, which happens only to
/// launches that plan without the lock.
const PLAN_ATTEMPTS_MAX: usize = 16;

/// Interval at which a waiter that is not first in line checks whether it is first now. Chosen: a
/// check costs microseconds, and a free core may stay idle until it is made; 1,000 short runs, 16
/// at a time on 2 CPUs, took 77 s when the whole pause was slept through.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How cores are reserved.
#[derive(Debug)]
pub struct ReserveOptions<'a> {
    /// Whether to wait, and how long.
    pub wait: Option<Wait>,
    /// The holder's name.
    pub label: &'a str,
    /// How much is printed.
    pub volume: Volume,
}

/// Takes the cores of a launch, and stores in its facts the holds of others at that moment. `None`
/// if nothing can be reserved: the facts say why.
///
/// # Errors
/// [`exit::NO_CORES`] when there are not enough free cores (in time); [`exit::RUN_FAILED`] for a
/// request that can never be met, or that is strict where nothing can be reserved.
pub fn reserve(
    world: &World,
    request: &LaunchRequest,
    facts: &mut LaunchFacts,
    order: &ReserveOptions<'_>,
) -> Result<Option<Held>, Exit> {
    let begin = Instant::now();
    let mut queue: Option<Ticket> = None;
    let mut said_waiting = false;
    let mut attempts = 0;
    let role = Role::of(request, facts);
    let mut taking = Taking { world, request, role, label: order.label, patience: PLANNER_WAIT_MAX };
    loop {
        let ledger = match location(world).and_then(|location| Ledger::open(&location)) {
            Ok(ledger) => ledger,
            Err(error) => return Ok(without_ledger(facts, &error)),
        };
        let stand = Standpoint::find(world, &ledger, &facts.machine);
        // A launch that may wait does not overtake launches that already wait.
        let line = || ledger.waiting(stand.level, &stand.within).is_ok_and(|waiting| waiting > 0);
        if queue.is_none() && order.wait.is_some() && line() {
            queue = ledger.enqueue(stand.level, &stand.within).ok();
        }
        let may_take = queue.as_mut().is_none_or(|ticket| ticket.is_first().unwrap_or(true));
        let cause = match taking.attempt(facts, &ledger, &stand, may_take) {
            Ok(Attempt::Done(held)) => return Ok(held),
            Ok(Attempt::Again) | Err(LedgerError::Replaced { .. }) if attempts < PLAN_ATTEMPTS_MAX => {
                attempts += 1;
                continue;
            }
            Ok(Attempt::Again) => return Err(overtaken()),
            Ok(Attempt::Behind) => anyhow!("earlier launches still wait"),
            Ok(Attempt::Refused(error)) if error.passes() && order.wait.is_some() => {
                anyhow::Error::from(error)
            }
            Ok(Attempt::Refused(error)) => return Err(Trouble::from(Refusal::from(error)).into()),
            Err(error) => return Ok(without_ledger(facts, &error)),
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

fn overtaken() -> Exit {
    let text =
        format!("other launches took the planned cores {PLAN_ATTEMPTS_MAX} times; try again, or use --wait");
    Exit::new(exit::NO_CORES, anyhow!(text))
}

/// Sleeps until the next attempt: as long as the position in the line suggests, but not longer than
/// others are ahead.
fn pause(mut ticket: Option<&mut Ticket>, ahead: u64, left: Duration) {
    let (begin, whole) = (Instant::now(), Ticket::pause(ahead).min(left));
    loop {
        let rest = whole.saturating_sub(begin.elapsed());
        let first = ahead > 0 && ticket.as_mut().is_some_and(|ticket| ticket.is_first().unwrap_or(true));
        if rest.is_zero() || first {
            return;
        }
        std::thread::sleep(rest.min(FIRST_POLL_INTERVAL));
    }
}

enum Attempt {
    /// The cores are taken; `None` for a plan that overlaps other runs on purpose.
    Done(Option<Held>),
    /// Other launches were faster.
    Again,
    /// There are enough cores, but earlier launches wait for them.
    Behind,
    Refused(PlaceError),
}

/// An acquisition of cores.
struct Taking<'a> {
    world: &'a World,
    request: &'a LaunchRequest,
    role: Role,
    label: &'a str,
    /// Longest wait for the planner lock.
    patience: Duration,
}

impl Taking<'_> {
    /// Reads, plans and takes once. `may_take` is false behind others in the line: such a launch
    /// may only join its own job's group.
    fn attempt(
        &mut self,
        facts: &mut LaunchFacts,
        ledger: &Ledger,
        stand: &Standpoint,
        may_take: bool,
    ) -> Result<Attempt, LedgerError> {
        let _right = match ledger.planner(stand.level, self.patience) {
            Ok(planner) => {
                self.patience = PLANNER_WAIT_MAX;
                Some(planner)
            }
            Err(LedgerError::PlannerBusy { .. }) => {
                self.patience = PLANNER_WAIT_MAX_STOPPED;
                None
            }
            Err(error) => return Err(error),
        };
        // Read before the map: a job that ends in between would have no holder to join, and would
        // still block its cores.
        if let Some(allotment) = self.group(ledger, stand)? {
            return self.join(facts, ledger, stand, allotment);
        }
        let map = ledger.map(stand.level, &stand.within)?;
        facts.ledger =
            LedgerFacts { within: stand.within.clone(), held: map.held(), ..LedgerFacts::default() };
        let hold = match place(self.request, facts, &self.role) {
            Ok(placed) if may_take => placed.hold,
            Ok(_) => return Ok(Attempt::Behind),
            Err(error) => return Ok(Attempt::Refused(error)),
        };
        let share = self.request.place.share;
        let (mode, job) = match self.role.shared() {
            Some((_, job)) => (Mode::Shared, job),
            None if share => (Mode::Shared, 0),
            None => (Mode::Exclusive, 0),
        };
        // CPUs that others hold exclusively cannot be held; the user asked only to share them.
        let to_hold =
            if share { hold.difference(&map.exclusive).difference(&map.lost) } else { hold.clone() };
        if self.role.shared().is_some() {
            facts.ledger.allotment = Some(hold);
        }
        self.take(ledger, stand, &to_hold, mode, job)
    }

    /// Returns the CPUs that the ranks of this job already hold.
    fn group(&self, ledger: &Ledger, stand: &Standpoint) -> Result<Option<CpuSet>, LedgerError> {
        let Some((_, job)) = self.role.shared() else { return Ok(None) };
        let uid = rustix::process::getuid().as_raw();
        ledger.find_group(stand.level, &stand.within, job, uid, &ProcessTable::at(&self.world.proc()))
    }

    /// Joins the allotment that another rank of the job took first.
    fn join(
        &self,
        facts: &mut LaunchFacts,
        ledger: &Ledger,
        stand: &Standpoint,
        allotment: CpuSet,
    ) -> Result<Attempt, LedgerError> {
        let job = self.role.shared().map_or(0, |(_, job)| job);
        let taken = self.take(ledger, stand, &allotment, Mode::Shared, job)?;
        facts.ledger = LedgerFacts {
            within: stand.within.clone(),
            allotment: Some(allotment),
            ..LedgerFacts::default()
        };
        Ok(taken)
    }

    fn take(
        &self,
        ledger: &Ledger,
        stand: &Standpoint,
        cpus: &CpuSet,
        mode: Mode,
        job: u64,
    ) -> Result<Attempt, LedgerError> {
        let processes = ProcessTable::at(&self.world.proc());
        let holder = processes.this_process(job, self.world.now(), self.label)?;
        match ledger.take(stand.level, cpus, mode, &holder) {
            Ok(held) => Ok(Attempt::Done(Some(held))),
            Err(TakeError::Nothing) => Ok(Attempt::Done(None)),
            Err(TakeError::Ledger(error)) => Err(error),
            Err(_) => Ok(Attempt::Again),
        }
    }
}

/// Notes in the facts that nothing can be reserved.
fn without_ledger(facts: &mut LaunchFacts, error: &LedgerError) -> Option<Held> {
    let within = facts.machine.cpus();
    facts.ledger = LedgerFacts { within, fault: Some(error.to_string()), ..LedgerFacts::default() };
    None
}

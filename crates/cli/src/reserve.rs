//! From a request to a plan whose cores are ours: look, plan, take, and wait in line where that was
//! asked for.
//!
//! The order matters: foreign load is sampled before the right to plan is asked for, since sampling
//! takes a tenth of a second; the lock map is read after, since only then it stays true until the
//! cores are taken.

use crate::args::Wait;
use crate::exit::{self, Exit};
use crate::gather::Trouble;
use crate::say::{self, Volume};
use crate::situation::{Standpoint, location};
use crate::world::World;
use anyhow::anyhow;
use std::time::{Duration, Instant};
use trimtab_core::place::PlaceError;
use trimtab_core::set::CpuSet;
use trimtab_launch::facts::LedgerFacts;
use trimtab_launch::{LaunchFacts, LaunchRequest, Refusal, Role, place};
use trimtab_linux::ledger::{Held, Ledger, LedgerError, Mode, ProcessTable, TakeError, Ticket};

/// How long the right to plan is waited for. A launch holds it for under a millisecond; whoever
/// holds it longer was stopped, and planning without it is safe.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is waited for once its holder was found to be stopped: a waiter who spent
/// [`PATIENCE`] on each attempt would observe the line too seldom to pass over a stopped ticket.
const PATIENCE_WITH_STOPPED: Duration = Duration::from_millis(20);
/// How often a plan is made anew because others took its cores first, which happens only to those
/// who plan without the right to.
const ATTEMPTS: usize = 16;

/// How often one who is not the first in line looks whether he is by now. Chosen: a look costs
/// microseconds, and until it is made a free core may lie idle; 1,000 short runs, 16 at a time on 2
/// CPUs, took 77 s when the whole pause was slept through.
const GLANCE: Duration = Duration::from_millis(5);

/// How cores are reserved.
#[derive(Debug)]
pub struct Order<'a> {
    /// Whether to wait, and how long.
    pub wait: Option<Wait>,
    /// The holder's name.
    pub label: &'a str,
    /// How much is said.
    pub volume: Volume,
}

/// Takes the cores of a launch, and leaves in its facts what others held when they were taken.
/// `None` where nothing can be reserved: the facts say why.
///
/// # Errors
/// [`exit::NO_CORES`] when there are not enough free cores (in time); [`exit::RUN_FAILED`] for a request that can never
/// be met, or that is strict where nothing can be reserved.
pub fn reserve(
    world: &World,
    request: &LaunchRequest,
    facts: &mut LaunchFacts,
    order: &Order<'_>,
) -> Result<Option<Held>, Exit> {
    let begin = Instant::now();
    let mut queue: Option<Ticket> = None;
    let mut said_waiting = false;
    let mut attempts = 0;
    let role = Role::of(request, facts);
    let mut taking = Taking { world, request, role, label: order.label, patience: PATIENCE };
    loop {
        let ledger = match location(world).and_then(|location| Ledger::open(&location)) {
            Ok(ledger) => ledger,
            Err(error) => return Ok(without_ledger(facts, &error)),
        };
        let stand = Standpoint::find(world, &ledger, &facts.machine);
        // A launch that would wait does not overtake those that do.
        let line = || ledger.waiting(stand.level, &stand.within).is_ok_and(|waiting| waiting > 0);
        if queue.is_none() && order.wait.is_some() && line() {
            queue = ledger.enqueue(stand.level, &stand.within).ok();
        }
        let may_take = queue.as_mut().is_none_or(|ticket| ticket.is_first().unwrap_or(true));
        let cause = match taking.attempt(facts, &ledger, &stand, may_take) {
            Ok(Attempt::Done(held)) => return Ok(held),
            Ok(Attempt::Again) | Err(LedgerError::Replaced { .. }) if attempts < ATTEMPTS => {
                attempts += 1;
                continue;
            }
            Ok(Attempt::Again) => return Err(overtaken()),
            Ok(Attempt::Behind) => anyhow!("others came first and wait still"),
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
    let text = format!("other launches took the planned cores {ATTEMPTS} times; try again, or use --wait");
    Exit::new(exit::NO_CORES, anyhow!(text))
}

/// Sleeps until it is worth while to look again: as long as the place in line says, but no longer
/// than others are ahead.
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
    /// They are taken; nothing was to take for a plan that overlaps other runs on purpose.
    Done(Option<Held>),
    /// Others were quicker.
    Again,
    /// There is enough, and others who came first wait for it.
    Behind,
    Refused(PlaceError),
}

/// Cores being taken.
struct Taking<'a> {
    world: &'a World,
    request: &'a LaunchRequest,
    role: Role,
    label: &'a str,
    /// How long the right to plan is waited for.
    patience: Duration,
}

impl Taking<'_> {
    /// One look, plan and take. `may_take` is false for those in line behind others: they only join
    /// their own job's group.
    fn attempt(
        &mut self,
        facts: &mut LaunchFacts,
        ledger: &Ledger,
        stand: &Standpoint,
        may_take: bool,
    ) -> Result<Attempt, LedgerError> {
        let _right = match ledger.planner(stand.level, self.patience) {
            Ok(planner) => {
                self.patience = PATIENCE;
                Some(planner)
            }
            Err(LedgerError::PlannerBusy { .. }) => {
                self.patience = PATIENCE_WITH_STOPPED;
                None
            }
            Err(error) => return Err(error),
        };
        // Before the map: a job that ends in between would be held by nobody one could join, and
        // still be in the way.
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
        // What others hold alone cannot be held with them; sharing it is all the user asked for.
        let to_hold =
            if share { hold.difference(&map.exclusive).difference(&map.lost) } else { hold.clone() };
        if self.role.shared().is_some() {
            facts.ledger.allotment = Some(hold);
        }
        self.take(ledger, stand, &to_hold, mode, job)
    }

    /// The CPUs that the ranks of this job hold already.
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

/// Notes that nothing can be reserved.
fn without_ledger(facts: &mut LaunchFacts, error: &LedgerError) -> Option<Held> {
    let within = facts.machine.cpus();
    facts.ledger = LedgerFacts { within, fault: Some(error.to_string()), ..LedgerFacts::default() };
    None
}

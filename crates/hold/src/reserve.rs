//! Reservation of a launch's cores: read the ledger, plan, take, and wait in line if requested.
//!
//! The order matters: foreign load is sampled before the planner lock is taken, since sampling
//! takes a tenth of a second; the lock map is read after, because only then does it stay true until
//! the cores are taken.

mod taking;

use crate::grower;
use crate::queue::unknown_lockers;
use crate::site_facts::{LedgerPosition, location};
use anyhow::anyhow;
use std::time::{Duration, Instant};
use taking::{Attempt, Taking};
use thiserror::Error;
use trimtab_core::place::PlaceError;
use trimtab_core::queue::QueueRules;
use trimtab_core::topology::Machine;
use trimtab_front::args::time::Wait;
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_launch::facts::LedgerFacts;
use trimtab_launch::{LaunchFacts, LaunchRequest, Refusal, demand};
use trimtab_linux::ledger::{Held, Holder, Ledger, LedgerError, ProcessTable, Ticket};

/// Most attempts to plan again because other launches took the cores first, which happens only to
/// launches that plan without the lock.
const PLAN_ATTEMPTS_MAX: usize = 16;

/// Interval at which a waiter that is not first in line checks whether it is first now. Chosen: a
/// check costs microseconds, and a free core may stay idle until it is made; 1,000 short runs, 16
/// at a time on 2 CPUs, took 77 s when the whole pause was slept through.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Longest wait of a run that waits for no others, while a run has grown. Chosen: a grower looks
/// twice a second on most machines.
const GIVE_BACK_MAX: Duration = Duration::from_secs(2);

/// Longest wait of a run that waits for no others, while the CPUs of a hold that has ended are
/// withheld from it: the service that enforces holds looks at the ledger once a second, and some
/// seconds later while holds change and it reads very many processes.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// Time after which the line about the wait is repeated if the position is the same. Chosen: a sign
/// of life that does not fill a log.
const ESTIMATE_INTERVAL: Duration = Duration::from_secs(600);
/// Shortest time between two such lines. Chosen: short runs ahead would print a line each.
const ESTIMATE_INTERVAL_MIN: Duration = Duration::from_secs(5);

/// Why no cores were reserved.
#[derive(Debug, Error)]
pub enum ReserveError {
    /// There are not enough free cores now, or not in time.
    #[error("{0:#}")]
    NoCores(anyhow::Error),
    /// The request can never be met here, or is strict where nothing can be reserved.
    #[error("{0:#}")]
    Never(anyhow::Error),
    /// The caller ended the wait.
    #[error("the wait for cores was ended")]
    Cancelled,
}

impl From<ReserveError> for Exit {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::NoCores(cause) => Self::new(exit::NO_CORES, cause),
            ReserveError::Never(cause) => Self::new(exit::RUN_FAILED, cause),
            ReserveError::Cancelled => Self::new(exit::NO_CORES, anyhow!("{error}")),
        }
    }
}

impl ReserveError {
    /// Makes the error for a decision that refuses.
    pub fn of(refusal: Refusal) -> Self {
        if refusal.passes() { Self::NoCores(refusal.into()) } else { Self::Never(refusal.into()) }
    }

    fn with(self, words: &str) -> Self {
        match self {
            Self::NoCores(cause) => Self::NoCores(anyhow!("{cause}; {words}")),
            Self::Never(cause) => Self::Never(anyhow!("{cause}; {words}")),
            Self::Cancelled => Self::Cancelled,
        }
    }
}

/// How cores are reserved.
pub struct ReserveOptions<'a> {
    /// Whether to wait, and how long.
    pub wait: Option<Wait>,
    /// The holder's name.
    pub label: &'a str,
    /// Receiver of lines about the wait: position, and the holds that block it.
    pub tell: &'a dyn Fn(&str),
    /// Whether the wait goes on; asked every few milliseconds.
    pub goes_on: &'a dyn Fn() -> bool,
    /// Priority in the queue.
    pub priority: i32,
    /// The site's rules for the queue.
    pub rules: QueueRules,
    /// The holder, if it is not this process; its time is set when the cores are taken.
    pub holder: Option<Holder>,
    /// Whether grants of other managers count while it waits. A launcher that is such a manager
    /// reserves for the job that has the grant.
    pub grants: bool,
}

/// Takes the cores of a launch, and stores in its facts the holds of others at that moment. `None`
/// if nothing can be reserved: the facts say why. `opened` is the ledger for the first attempt, if
/// it is open; each later attempt opens it again, since its files may have been replaced. The one
/// through which the cores were taken is left there: a launch closes its files by its exec.
///
/// # Errors
/// Not enough free cores (in time), or a request that can never be met, or that is strict where
/// nothing can be reserved.
pub fn reserve(
    world: &World,
    request: &LaunchRequest,
    facts: &mut LaunchFacts,
    order: &ReserveOptions<'_>,
    opened: &mut Option<Ledger>,
) -> Result<Option<Held>, ReserveError> {
    let (begin, mut attempts) = (Instant::now(), 0);
    let mut queue: Option<Ticket> = None;
    let (mut told, mut asked_back) = (WaitMessage::default(), None);
    let mut taking = Taking::new(world, request, facts, order);
    loop {
        let open = || location(world).and_then(|location| Ledger::open(&location));
        let ledger = match opened.take().map_or_else(open, Ok) {
            Ok(ledger) => ledger,
            Err(error) => return Ok(without_ledger(facts, &error)),
        };
        let stand = taking.position(&ledger, &facts.machine);
        // A launch that may wait does not overtake launches that already wait.
        let line = || ledger.waiting(stand.level, &stand.within).is_ok_and(|waiting| waiting > 0);
        if queue.is_none() && order.wait.is_some() && line() {
            queue = taking.line_up(facts, &ledger, &stand);
        }
        let cause = match taking.attempt(facts, &ledger, &stand, queue.as_mut()) {
            Ok(Attempt::Done(held)) => {
                *opened = Some(ledger);
                return Ok(held);
            }
            Ok(Attempt::Again) | Err(LedgerError::Replaced { .. }) if attempts < PLAN_ATTEMPTS_MAX => {
                attempts += 1;
                continue;
            }
            Ok(Attempt::Again) => return Err(overtaken()),
            Ok(Attempt::Stale) => {
                taking.forget_memory_use();
                continue;
            }
            Ok(Attempt::Kept(cause)) if order.wait.is_some() => anyhow!(cause),
            Ok(Attempt::Kept(cause)) => {
                return Err(ReserveError::NoCores(anyhow!("{cause}; wait in line with --wait")));
            }
            Ok(Attempt::Refused(error)) if error.passes() && order.wait.is_some() => {
                anyhow::Error::from(error)
            }
            // Its place in the line asks for the cores.
            Ok(Attempt::Refused(error))
                if error.passes()
                    && (taking.waits_for_release() && begin.elapsed() < RELEASE_MAX
                        || waits_for_growth(&mut asked_back, world, &ledger, &facts.machine)) =>
            {
                anyhow::Error::from(error)
            }
            Ok(Attempt::Refused(error)) if taking.settles(&error, facts) => continue,
            Ok(Attempt::Refused(error)) => return Err(refused(error, &ledger, &stand)),
            Err(error) => return Ok(without_ledger(facts, &error)),
        };
        let limit = order.wait.and_then(|wait| wait.0);
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            let waited = begin.elapsed().as_secs();
            return Err(ReserveError::NoCores(cause.context(format!("gave up after {waited} s"))));
        }
        if queue.is_none() {
            queue = taking.enqueue(facts, &ledger, &stand);
        }
        let ahead =
            queue.as_mut().map(|ticket| taking.ahead(facts, &ledger, &stand, ticket)).unwrap_or_default();
        if told.is_due(ahead.len()) {
            let wanted = demand(request, facts, &stand.within).cpus;
            let estimate = taking.line(facts, &stand).estimate(&ledger, ahead.len(), &wanted);
            (order.tell)(&format!("waiting for cores: {estimate} ({cause})"));
        }
        let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(begin.elapsed()));
        if !pause(queue.as_mut(), &ahead, left, taking.processes(), order.goes_on) {
            return Err(ReserveError::Cancelled);
        }
        taking.look_again(facts);
    }
}

/// Returns whether a launch that waits for no others waits for a run that has grown. `asked`: the
/// time since which it does.
fn waits_for_growth(asked: &mut Option<Instant>, world: &World, ledger: &Ledger, machine: &Machine) -> bool {
    match asked {
        Some(asked) => asked.elapsed() < GIVE_BACK_MAX,
        None => {
            let grows = grower::is_any(&world.proc(), ledger, &machine.cpus());
            *asked = grows.then(Instant::now);
            grows
        }
    }
}

/// State of the message about the wait.
#[derive(Default)]
struct WaitMessage {
    /// Number of runs ahead in the last line, and its time.
    last: Option<(usize, Instant)>,
}

impl WaitMessage {
    /// Returns whether the line is due with this number of runs ahead, and takes it as printed.
    fn is_due(&mut self, ahead: usize) -> bool {
        let due = self.last.is_none_or(|(before, at)| {
            let apart = if before == ahead { ESTIMATE_INTERVAL } else { ESTIMATE_INTERVAL_MIN };
            at.elapsed() >= apart
        });
        if due {
            self.last = Some((ahead, Instant::now()));
        }
        due
    }
}

/// Returns the error for a request that cannot be met now; it names the processes that lock CPUs
/// without being known as runs.
fn refused(error: PlaceError, ledger: &Ledger, stand: &LedgerPosition) -> ReserveError {
    let lockers = if error.passes() { unknown_lockers(ledger, stand) } else { None };
    let refused = ReserveError::of(Refusal::from(error));
    match lockers {
        Some(lockers) => refused.with(&lockers),
        None => refused,
    }
}

fn overtaken() -> ReserveError {
    let text =
        format!("other launches took the planned cores {PLAN_ATTEMPTS_MAX} times; try again, or use --wait");
    ReserveError::NoCores(anyhow!(text))
}

/// Sleeps until the next attempt: as long as the position in the line suggests, but not longer than
/// the first of those ahead stays in the line. Returns whether the wait goes on.
fn pause(
    mut ticket: Option<&mut Ticket>,
    ahead: &[u64],
    left: Duration,
    processes: &ProcessTable,
    goes_on: &dyn Fn() -> bool,
) -> bool {
    let (begin, whole) = (Instant::now(), Ticket::pause(ahead.len() as u64).min(left));
    loop {
        let rest = whole.saturating_sub(begin.elapsed());
        if let Some(ticket) = ticket.as_mut() {
            if ahead.first().is_some_and(|&first| ticket.has_left(first).unwrap_or(true)) {
                ticket.look_again();
                return goes_on();
            }
            let _ = ticket.queue(processes); // moves the pulse; the next attempt meets the error
        }
        if !goes_on() {
            return false;
        }
        if rest.is_zero() {
            return true;
        }
        std::thread::sleep(rest.min(FIRST_POLL_INTERVAL));
    }
}

/// Notes in the facts that nothing can be reserved.
fn without_ledger(facts: &mut LaunchFacts, error: &LedgerError) -> Option<Held> {
    let within = facts.machine.cpus();
    facts.ledger = LedgerFacts { within, fault: Some(error.to_string()), ..LedgerFacts::default() };
    None
}

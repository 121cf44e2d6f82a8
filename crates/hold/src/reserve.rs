//! Reservation of a launch's cores: read the ledger, plan, take, and wait in line if requested.
//!
//! The order matters: foreign load is sampled before the planner lock is taken, since sampling
//! takes a tenth of a second; the lock map is read after, because only then does it stay true until
//! the cores are taken.

use crate::facts::{granted, look_at_memory, memory_of_others, memory_use};
use crate::grower;
use crate::held_memory::{self, MemoryUse};
use crate::queue::{Line, claim, unknown_lockers};
use crate::site_facts::{LedgerPosition, location, private_ledger};
use crate::withheld::{self, Withheld};
use anyhow::anyhow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use thiserror::Error;
use trimtab_core::ids::OsNode;
use trimtab_core::place::PlaceError;
use trimtab_core::queue::{Applicant, Precedence, QueueRules};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::args::SurveyMode;
use trimtab_front::args::time::Wait;
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_launch::facts::LedgerFacts;
use trimtab_launch::{LaunchFacts, LaunchRequest, Refusal, Role, demand, place};
use trimtab_linux::ledger::{Group, Held, Holder, Ledger, LedgerError, Level, Mode, Planner};
use trimtab_linux::ledger::{ProcessTable, QueuedRun, TakeError, Ticket};
use trimtab_linux::partitions;

/// Longest wait for the planner lock. A launch holds it for under a millisecond; a process that
/// holds it longer was stopped, and planning without the lock is safe.
const PLANNER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest wait once its holder was found to be stopped: a waiter that spent [`PLANNER_WAIT_MAX`]
/// on each attempt would check the line too rarely to pass over a stopped ticket.
const PLANNER_WAIT_MAX_STOPPED: Duration = Duration::from_millis(20);
/// Longest wait for the planner lock after which the memory that holds use is not read again.
const MEMORY_READING_MAX: Duration = Duration::from_millis(50);
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

/// Time for which a request must be more than exists, beside a service that enforces holds, before
/// it is refused: one partition ends and another begins between the readings of an attempt, which
/// then counts too few CPUs.
const SETTLING_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts in that time.
const SETTLING_PAUSE: Duration = Duration::from_millis(20);

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
    let role = Role::of(request, facts);
    let processes = OnceCell::new();
    let allowed = facts.bounds.allowed.clone();
    let (patience, ending, settling, used) = (PLANNER_WAIT_MAX, CpuSet::new(), None, None);
    let mut taking =
        Taking { world, request, role, order, patience, allowed, ending, settling, used, processes };
    loop {
        let open = || location(world).and_then(|location| Ledger::open(&location));
        let ledger = match opened.take().map_or_else(open, Ok) {
            Ok(ledger) => ledger,
            Err(error) => return Ok(without_ledger(facts, &error)),
        };
        let stand = LedgerPosition::find(world, &ledger, &facts.machine);
        // A launch that may wait does not overtake launches that already wait.
        let line = || ledger.waiting(stand.level, &stand.within).is_ok_and(|waiting| waiting > 0);
        if queue.is_none() && order.wait.is_some() && line() {
            // The attempt meets the error.
            let looked = taking.look_at_withheld(facts, &ledger, &stand);
            let _ =
                looked.and_then(|looked| taking.include_withheld(facts, &ledger, &stand, looked.as_ref()));
            queue = taking.enqueue(facts, &ledger, &stand);
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
                taking.used = None;
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
                    && (!taking.ending.is_empty() && begin.elapsed() < RELEASE_MAX
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

enum Attempt {
    /// The cores are taken; `None` for a plan that overlaps other runs on purpose.
    Done(Option<Held>),
    /// Other launches were faster.
    Again,
    /// There are enough cores, but some are kept for launches that wait; the reason.
    Kept(String),
    /// There would be enough, by a reading of the memory that holds use which was not made for this
    /// attempt.
    Stale,
    Refused(PlaceError),
}

/// An acquisition of cores.
struct Taking<'a> {
    world: &'a World,
    request: &'a LaunchRequest,
    role: Role,
    order: &'a ReserveOptions<'a>,
    /// Longest wait for the planner lock.
    patience: Duration,
    /// CPUs that the limits of this process and the site allow now. Those that enforced holds
    /// withhold are none of them, and are added in the facts.
    allowed: CpuSet,
    /// CPUs of holds that have ended which are withheld for another moment.
    ending: CpuSet,
    /// Time of the first of the attempts in a row for which too few CPUs exist.
    settling: Option<Instant>,
    /// The memory that holds use, if the request names an amount; kept while the launch waits.
    used: Option<MemoryUse>,
    processes: OnceCell<ProcessTable>,
}

impl Taking<'_> {
    /// Returns the queue at a position in the ledger.
    fn line<'f>(&'f self, facts: &'f LaunchFacts, stand: &'f LedgerPosition) -> Line<'f> {
        Line { world: self.world, machine: &facts.machine, stand, rules: self.order.rules }
    }

    /// Reads what changes while a launch waits.
    fn look_again(&mut self, facts: &mut LaunchFacts) {
        self.read_limits(facts);
        if self.order.grants {
            // Jobs of other managers begin and end meanwhile.
            facts.load.granted = granted(self.world, &facts.machine, &facts.bounds.allowed).grants;
        }
        if self.request.place.memory.size.is_some() {
            // Programs that ended meanwhile have returned their memory, and others have taken some.
            look_at_memory(self.world, self.request, SurveyMode::Auto, facts);
        }
    }

    /// Reads the limits of this process again: holds that are enforced begin and end meanwhile.
    fn read_limits(&mut self, facts: &LaunchFacts) {
        if self.order.holder.is_none()
            && let Some(allowed) = withheld::read_again(facts)
        {
            self.allowed = allowed;
        }
    }

    /// Pauses and returns `true` if an attempt for which too few CPUs exist is to be made again,
    /// since a service that enforces holds may have changed partitions between its readings.
    fn settles(&mut self, error: &PlaceError, facts: &mut LaunchFacts) -> bool {
        let again = lacks_cpus(error)
            && self.order.holder.is_none()
            && !facts.machine.cpus().is_subset(&self.allowed)
            && self.settling.get_or_insert_with(Instant::now).elapsed() < SETTLING_MAX
            && partitions::is_enforced(&self.world.root)
            && (self.order.goes_on)();
        if again {
            std::thread::sleep(SETTLING_PAUSE);
            self.look_again(facts);
        }
        again
    }

    /// Looks for the CPUs that only enforced holds keep from this process; `None` for a holder that
    /// is another process, whose limits are known to the caller alone.
    fn look_at_withheld(
        &mut self,
        facts: &LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
    ) -> Result<Option<Withheld>, LedgerError> {
        if self.order.holder.is_some() {
            return Ok(None);
        }
        if !facts.machine.cpus().is_subset(&self.allowed) {
            // The service may have given CPUs back since the limits were read.
            self.read_limits(facts);
        }
        Withheld::look(self.world, self.request, ledger, stand, &self.allowed, facts).map(Some)
    }

    /// Adds these CPUs to the facts. Returns `false` if another hold has ended since the look.
    fn include_withheld(
        &mut self,
        facts: &mut LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
        looked: Option<&Withheld>,
    ) -> Result<bool, LedgerError> {
        let Some(looked) = looked else { return Ok(true) };
        let ending = looked.include(ledger, stand, &self.allowed, facts)?;
        let is_true = ending.is_some();
        self.ending = ending.unwrap_or_default();
        if facts.bounds.allowed == self.allowed && !facts.machine.cpus().is_subset(&self.allowed) {
            // The service may have given CPUs back between the readings of the mask and of the
            // groups.
            self.read_limits(facts);
            facts.bounds.allowed = self.allowed.clone();
        }
        Ok(is_true)
    }

    /// Reads the memory that holds use, unless a reading is recent. Returns whether it was read.
    fn read_memory_use(&mut self, facts: &LaunchFacts, ledger: &Ledger) -> Result<bool, LedgerError> {
        if self.used.as_ref().is_some_and(MemoryUse::is_recent) {
            return Ok(false);
        }
        self.used = memory_use(self.world, self.request, facts, ledger)?;
        Ok(true)
    }

    /// Draws a ticket; `None` if the queue cannot be used.
    fn enqueue(&self, facts: &LaunchFacts, ledger: &Ledger, stand: &LedgerPosition) -> Option<Ticket> {
        let holder = self.processes().this_process(0, self.world.now(), self.order.label).ok()?;
        let demand = demand(self.request, facts, &stand.within);
        let claim = claim(self.request, demand, self.order.priority, holder);
        ledger.enqueue(stand.level, &stand.within, &claim).ok()
    }

    /// Returns the cores that this launch must leave to the launches in the queue, and these
    /// launches.
    fn precedence(
        &self,
        facts: &LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
        ticket: Option<&mut Ticket>,
    ) -> Result<(Vec<QueuedRun>, Precedence), LedgerError> {
        let (runs, applicant) = match ticket {
            Some(ticket) => (ticket.queue(self.processes())?, Applicant::Ticket(ticket.number())),
            None if ledger.waiting(stand.level, &stand.within)? == 0 => return Ok(Default::default()),
            None => (ledger.queue(stand.level, &stand.within, self.processes())?, Applicant::Passing),
        };
        let given = self.line(facts, stand).precedence(ledger, &runs, applicant)?;
        Ok((runs, given))
    }

    /// Returns the tickets ahead of ours, in the order of the line.
    fn ahead(
        &self,
        facts: &LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
        ticket: &mut Ticket,
    ) -> Vec<u64> {
        self.precedence(facts, ledger, stand, Some(ticket)).map(|(_, given)| given.ahead).unwrap_or_default()
    }

    /// Takes the right to plan; `None` if another launch has it for too long.
    fn right(&mut self, ledger: &Ledger, stand: &LedgerPosition) -> Result<Option<Planner>, LedgerError> {
        // Each attempt that fails opens the ledger again, and one that succeeds reads it no more.
        match ledger.last_planner(stand.level, self.patience) {
            Ok(planner) => {
                self.patience = PLANNER_WAIT_MAX;
                Ok(Some(planner))
            }
            Err(LedgerError::PlannerBusy { .. }) => {
                self.patience = PLANNER_WAIT_MAX_STOPPED;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads, plans and takes once. CPUs that are kept for launches ahead are not taken; a launch
    /// may always join its own job's group.
    fn attempt(
        &mut self,
        facts: &mut LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
        ticket: Option<&mut Ticket>,
    ) -> Result<Attempt, LedgerError> {
        // These examine all processes and all groups, so they come before the right to plan.
        let mut is_fresh = self.read_memory_use(facts, ledger)?;
        let looked = self.look_at_withheld(facts, ledger, stand)?;
        let begin = Instant::now();
        let right = self.right(ledger, stand)?;
        // Memory that a hold has returned during the wait is free by now, and the older reading
        // counts it as used by the hold: it would be promised twice.
        if self.used.is_some() && begin.elapsed() > MEMORY_READING_MAX {
            self.used = memory_use(self.world, self.request, facts, ledger)?;
            is_fresh = true;
        }
        // The enclosing hold may have shrunk since; whoever shrinks it has this right, too.
        if stand.level != Level::MACHINE
            && right.is_some()
            && LedgerPosition::find(self.world, ledger, &facts.machine) != *stand
        {
            return Ok(Attempt::Again);
        }
        // Read before the map: a job that ends in between would have no holder to join, and would
        // still block its cores.
        if let Some(group) = self.group(ledger, stand)? {
            return self.join(facts, ledger, stand, group, right);
        }
        if !self.include_withheld(facts, ledger, stand, looked.as_ref())? {
            return Ok(Attempt::Again);
        }
        let map = ledger.map(stand.level, &stand.within)?;
        let others = map.held().union(&self.ending);
        let position = (&**ledger, stand);
        let memory = memory_of_others(self.world, self.request, facts, position, self.used.as_ref())?;
        let (runs, given) = self.precedence(facts, ledger, stand, ticket)?;
        let private = private_ledger(self.world, &ledger.path());
        let held = |held| LedgerFacts {
            within: stand.within.clone(),
            held,
            memory: memory.clone(),
            private: private.clone(),
            ..LedgerFacts::default()
        };
        facts.ledger = held(others.union(&given.kept));
        let (hold, memory_hold) = match place(self.request, facts, &self.role) {
            Ok(_) if !is_fresh => return Ok(Attempt::Stale),
            Ok(placed) => (placed.hold, placed.memory_hold),
            Err(error) => {
                if error.passes() {
                    self.settling = None;
                }
                facts.ledger = held(others);
                let without = !given.kept.is_empty() && place(self.request, facts, &self.role).is_ok();
                return Ok(match without {
                    true => Attempt::Kept(self.line(facts, stand).kept_for(&runs, &given)),
                    false => Attempt::Refused(error),
                });
            }
        };
        let share = self.request.place.share;
        let (mode, job) = match self.role.shared() {
            Some((_, job)) => (Mode::Shared, job),
            None if share => (Mode::Shared, 0),
            None => (Mode::Exclusive, 0),
        };
        // CPUs that others hold exclusively cannot be held; the user asked only to share them.
        let to_hold = if share {
            hold.difference(&map.exclusive).difference(&map.lost).difference(&given.kept)
        } else {
            hold.clone()
        };
        if self.role.shared().is_some() {
            facts.ledger.allotment = Some(hold);
        }
        let planned_alone = right.is_some();
        let own: BTreeMap<OsNode, u64> =
            memory_hold.into_iter().map(|memory| (memory.node, memory.bytes)).collect();
        let taken = self.take(ledger, stand, &to_hold, (mode, job), own.clone(), right)?;
        // Locks keep two launches from the same CPUs, and only the right to plan keeps them from
        // the same memory. Without it, both look once more, and one that sees the other tries
        // again.
        if !planned_alone && !own.is_empty() && matches!(taken, Attempt::Done(Some(_))) {
            let cpus = facts.machine.cpus();
            let used = MemoryUse::read(&self.world.proc(), ledger, &cpus)?;
            let all = held_memory::of_others(ledger, stand, &cpus, &used)?;
            if has_grown(&memory, &own, &all) {
                return Ok(Attempt::Again);
            }
        }
        Ok(taken)
    }

    /// Returns the processes of this machine, as this process sees them.
    fn processes(&self) -> &ProcessTable {
        self.processes.get_or_init(|| ProcessTable::at(&self.world.proc()))
    }

    /// Returns what the ranks of this job already hold.
    fn group(&self, ledger: &Ledger, stand: &LedgerPosition) -> Result<Option<Group>, LedgerError> {
        let Some((_, job)) = self.role.shared() else { return Ok(None) };
        let uid = rustix::process::getuid().as_raw();
        ledger.find_group(stand.level, &stand.within, job, uid, self.processes())
    }

    /// Joins the allotment that another rank of the job took first.
    fn join(
        &self,
        facts: &mut LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
        group: Group,
        right: Option<Planner>,
    ) -> Result<Attempt, LedgerError> {
        let job = self.role.shared().map_or(0, |(_, job)| job);
        let Group { cpus: allotment, memory } = group;
        let taken = self.take(ledger, stand, &allotment, (Mode::Shared, job), memory, right)?;
        facts.ledger = LedgerFacts {
            within: stand.within.clone(),
            allotment: Some(allotment),
            private: private_ledger(self.world, &ledger.path()),
            ..LedgerFacts::default()
        };
        Ok(taken)
    }

    /// Takes the CPUs and the memory, with the right to plan if this launch has it.
    fn take(
        &self,
        ledger: &Ledger,
        stand: &LedgerPosition,
        cpus: &CpuSet,
        (mode, job): (Mode, u64),
        memory: BTreeMap<OsNode, u64>,
        right: Option<Planner>,
    ) -> Result<Attempt, LedgerError> {
        let since = self.world.now();
        let holder = match &self.order.holder {
            Some(holder) => Holder { job, since, memory, ..holder.clone() },
            None => {
                let own = self.processes().this_process(job, since, self.order.label)?;
                Holder { memory, ..own }
            }
        };
        let taken = match right {
            Some(right) => ledger.take_planned(right, cpus, mode, &holder),
            None => ledger.take(stand.level, cpus, mode, &holder),
        };
        match taken {
            Ok(held) => Ok(Attempt::Done(Some(held))),
            Err(TakeError::Nothing) => Ok(Attempt::Done(None)),
            Err(TakeError::Ledger(error)) => Err(error),
            Err(_) => Ok(Attempt::Again),
        }
    }
}

/// Returns whether a request was refused because too few CPUs may be used.
fn lacks_cpus(error: &PlaceError) -> bool {
    match error {
        PlaceError::RanksWithoutCores { cause, .. } => lacks_cpus(cause),
        PlaceError::NothingAllowed
        | PlaceError::MoreThanExist { .. }
        | PlaceError::UnitsNotAllowed { .. }
        | PlaceError::CpusNotAllowed { .. } => true,
        PlaceError::NotEnough { held, .. } => held.is_empty(),
        _ => false,
    }
}

/// Returns whether others hold more memory than a plan assumed. `all` is what the ledger has now,
/// with the launch's own memory, which is kept in mebibytes.
fn has_grown(
    assumed: &BTreeMap<OsNode, u64>,
    own: &BTreeMap<OsNode, u64>,
    all: &BTreeMap<OsNode, u64>,
) -> bool {
    let of = |memory: &BTreeMap<OsNode, u64>, node| memory.get(node).copied().unwrap_or(0);
    let most = |node| of(assumed, node).saturating_add(of(own, node)).saturating_add(1 << 20);
    all.iter().any(|(node, &bytes)| bytes > most(node))
}

/// Notes in the facts that nothing can be reserved.
fn without_ledger(facts: &mut LaunchFacts, error: &LedgerError) -> Option<Held> {
    let within = facts.machine.cpus();
    facts.ledger = LedgerFacts { within, fault: Some(error.to_string()), ..LedgerFacts::default() };
    None
}

#[cfg(test)]
mod tests;

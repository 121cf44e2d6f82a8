//! Taking of a launch's cores: what one acquisition knows from attempt to attempt, and the attempt
//! itself.

use super::ReserveOptions;
use crate::facts::{granted, look_at_memory, memory_of_others, memory_use};
use crate::held_memory::{self, MemoryUse};
use crate::queue::{Line, claim};
use crate::site_facts::{HOLD, LedgerPosition, private_ledger};
use crate::withheld::{self, Withheld};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trimtab_core::ids::OsNode;
use trimtab_core::place::PlaceError;
use trimtab_core::queue::{Applicant, Precedence};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::args::SurveyMode;
use trimtab_front::process_env::World;
use trimtab_launch::facts::LedgerFacts;
use trimtab_launch::{LaunchFacts, LaunchRequest, Role, demand, place};
use trimtab_linux::ledger::{Group, Held, Holder, Ledger, LedgerError, Level, LockMap, Mode, Planner};
use trimtab_linux::ledger::{ProcessTable, QueuedRun, TakeError, Ticket};
use trimtab_linux::partitions;
use trimtab_linux::sys::affinity;

/// Longest wait for the planner lock. A launch holds it for under a millisecond; a process that
/// holds it longer was stopped, and planning without the lock is safe.
const PLANNER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest wait once its holder was found to be stopped: a waiter that spent [`PLANNER_WAIT_MAX`]
/// on each attempt would check the line too rarely to pass over a stopped ticket.
const PLANNER_WAIT_MAX_STOPPED: Duration = Duration::from_millis(20);
/// Longest wait for the planner lock after which the memory that holds use is not read again.
const MEMORY_READING_MAX: Duration = Duration::from_millis(50);
/// Time for which a request must be more than exists, beside a service that enforces holds, before
/// it is refused: one partition ends and another begins between the readings of an attempt, which
/// then counts too few CPUs.
const SETTLING_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts in that time.
const SETTLING_PAUSE: Duration = Duration::from_millis(20);

/// Outcome of one attempt to take the cores of a launch.
pub(super) enum Attempt {
    /// The cores are taken; `None` for a plan that overlaps other runs on purpose.
    Done(Option<Held>),
    /// Other launches were faster.
    Again,
    /// There are enough cores, but some are kept for launches that wait; the reason.
    Kept(String),
    /// There would be enough, by a reading of the memory that holds use which was not made for this
    /// attempt.
    Stale,
    /// The cores are not available; the reason.
    Refused(PlaceError),
}

/// An acquisition of cores, which may take several attempts.
pub(super) struct Taking<'a> {
    world: &'a World,
    request: &'a LaunchRequest,
    role: Role,
    order: &'a ReserveOptions<'a>,
    /// Number of this process.
    own: u32,
    /// Whether the next attempt may assume the position in the ledger, and whether this one does.
    may_assume: bool,
    assumes: bool,
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

impl<'a> Taking<'a> {
    /// Begins an acquisition for a launch with these facts.
    pub(super) fn new(
        world: &'a World,
        request: &'a LaunchRequest,
        facts: &LaunchFacts,
        order: &'a ReserveOptions<'a>,
    ) -> Self {
        let role = Role::of(request, facts);
        Self {
            world,
            request,
            order,
            own: facts.pid,
            // The queue and the allotment of a job are read before the map.
            may_assume: order.wait.is_none() && role.shared().is_none(),
            assumes: false,
            role,
            patience: PLANNER_WAIT_MAX,
            allowed: facts.bounds.allowed.clone(),
            ending: CpuSet::new(),
            settling: None,
            used: None,
            processes: OnceCell::new(),
        }
    }

    /// Returns the position in the ledger for the next attempt. The first attempt assumes that no
    /// keeper holds the CPUs of this process, and ends if the map of locks that it reads does not
    /// prove that.
    pub(super) fn position(&mut self, ledger: &Ledger, machine: &Machine) -> LedgerPosition {
        self.assumes = std::mem::take(&mut self.may_assume) && self.world.text(HOLD).is_none();
        match self.assumes {
            true => LedgerPosition::outside(machine),
            false => LedgerPosition::find(self.world, ledger, machine),
        }
    }

    /// Returns whether an assumed position may be wrong, by the CPUs that are held exclusively: all
    /// CPUs of a process for which a keeper holds cores are. The mask is that of this moment, since
    /// a keeper may have set it after the limits were read. The next attempt finds the position
    /// before it takes the right to plan.
    fn may_be_misplaced(&self, held: &CpuSet, machine: &Machine) -> bool {
        let is_held = |mask: CpuSet| mask.intersection(&machine.cpus()).is_subset(held);
        // Where nothing is held, the mask need not be read.
        self.assumes && !held.is_empty() && affinity::get(None).map_or(true, is_held)
    }

    /// Returns whether CPUs that the last attempt wanted are withheld for another moment.
    pub(super) fn waits_for_release(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Has the memory that holds use read again.
    pub(super) fn forget_memory_use(&mut self) {
        self.used = None;
    }

    /// Looks for withheld CPUs, which belong to what the launch waits for, and draws a ticket.
    /// `None` if the queue cannot be used.
    pub(super) fn line_up(
        &mut self,
        facts: &mut LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
    ) -> Option<Ticket> {
        // The attempt meets the error.
        let looked = self.look_at_withheld(facts, ledger, stand);
        let _ = looked.and_then(|looked| self.include_withheld(facts, ledger, stand, looked.as_ref()));
        self.enqueue(facts, ledger, stand)
    }

    /// Returns the queue at a position in the ledger.
    pub(super) fn line<'f>(&'f self, facts: &'f LaunchFacts, stand: &'f LedgerPosition) -> Line<'f> {
        Line { world: self.world, machine: &facts.machine, stand, rules: self.order.rules }
    }

    /// Reads what changes while a launch waits.
    pub(super) fn look_again(&mut self, facts: &mut LaunchFacts) {
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
    pub(super) fn settles(&mut self, error: &PlaceError, facts: &mut LaunchFacts) -> bool {
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
    pub(super) fn enqueue(
        &self,
        facts: &LaunchFacts,
        ledger: &Ledger,
        stand: &LedgerPosition,
    ) -> Option<Ticket> {
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
    pub(super) fn ahead(
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
    pub(super) fn attempt(
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
        if self.may_be_misplaced(&map.exclusive, &facts.machine) {
            return Ok(Attempt::Again);
        }
        self.plan_and_take(facts, (ledger, stand), ticket, &map, right, is_fresh)
    }

    /// Plans beside the holds of a map, and takes once.
    fn plan_and_take(
        &mut self,
        facts: &mut LaunchFacts,
        (ledger, stand): (&Ledger, &LedgerPosition),
        ticket: Option<&mut Ticket>,
        map: &LockMap,
        right: Option<Planner>,
        is_fresh: bool,
    ) -> Result<Attempt, LedgerError> {
        let others = map.held().union(&self.ending);
        let position = (&**ledger, stand);
        let memory = memory_of_others(self.world, self.request, facts, position, self.used.as_ref())?;
        let (runs, given) = self.precedence(facts, ledger, stand, ticket)?;
        let private = private_ledger(self.world, &ledger.path());
        let held = |held| LedgerFacts {
            within: stand.within.clone(),
            is_inner: stand.level != Level::MACHINE,
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
    pub(super) fn processes(&self) -> &ProcessTable {
        self.processes.get_or_init(|| ProcessTable::of(&self.world.proc(), self.own))
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
            is_inner: stand.level != Level::MACHINE,
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

#[cfg(test)]
mod tests;

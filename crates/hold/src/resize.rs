//! Change of a hold's cores while its programs run.
//!
//! The ledger first when a hold grows, the masks first when it shrinks: at every instant the masks
//! of its threads are within the CPUs that the ledger grants it, also if the process that does it
//! is killed. Exceptions:
//! - The preload library places threads that are born later by the plan of the start, which may
//!   name CPUs that were given back ([`Resized::stale`]).
//! - If another process has the right to plan for too long, since it was stopped, threads are bound
//!   to added CPUs without the right. If the hold shrinks at that instant, threads may have CPUs
//!   that are no longer its own. They are bound back if that is seen when the binding has ended.

use crate::foreign_load::Surroundings;
use crate::masks::widest_mask;
use crate::outsiders::Outsiders;
use crate::room::HoldRoom;
use crate::select::{HoldName, Selected, all_holds, open};
use crate::site_facts::Situation;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::handoff::{Handoff, Pin, VARIABLE, bearer};
use trimtab_core::resize::{Extent, ResizeError, cores_of, resized};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::args::SurveyMode;
use trimtab_front::process_env::World;
use trimtab_linux::budget::BudgetPage;
use trimtab_linux::ledger::{Borrowed, Hold, Ledger, LedgerError, Planner};
use trimtab_linux::partitions::{home_cpus, lacks, wait_for_cpus};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::rebind::{Bound, Rebound, rebind, threads};

/// Longest wait for the right to plan.
const PLANNER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest wait until the control group of an enforced hold has the CPUs that were added.
const GROUP_WAIT_MAX: Duration = Duration::from_secs(15);
/// State after a growth that was broken off, and its remedy.
const LARGER: &str = "the hold is larger now, and not all of its threads are bound anew: \
    resize it to 1 core, then to this number again";

/// A changed hold: `trimtab.resize/1`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Resized {
    schema: &'static str,
    /// Number of the hold.
    pub hold: String,
    /// The holder.
    pub pid: u32,
    /// Its CPUs before.
    pub before: CpuSet,
    /// Its CPUs now.
    pub reserved: CpuSet,
    /// CPUs on which its program may run now.
    pub cpus: CpuSet,
    /// Its cores now.
    pub cores: usize,
    /// Number of threads that got another mask.
    pub rebound: usize,
    /// Number of threads that kept their masks.
    pub kept: usize,
    /// Processes whose preload library places later threads by the plan of their start, of which
    /// some CPUs were given back.
    pub stale: BTreeSet<u32>,
    /// The holder's name.
    pub command: String,
}

/// Changes a hold to this number of cores.
///
/// # Errors
/// There is no such hold, it is another user's or shared, there are not enough free cores, runs
/// inside it have its cores, or the kernel refuses.
pub fn resize(world: &World, name: HoldName, wanted: usize, survey: SurveyMode) -> Result<Resized> {
    let situation = Situation::live(world, true)?;
    let machine = &situation.machine;
    let ledger = open(world)?;
    let selected = Selected::find(world, &ledger, &machine.cpus(), name)?;
    let wanted = WantedSize { cores: wanted, survey, within: None, yields: None };
    Ok(change(world, &situation, &ledger, selected, None, &wanted)?.0)
}

/// Size that a hold shall have.
pub(crate) struct WantedSize<'a> {
    /// Its cores.
    pub(crate) cores: usize,
    /// How the load of other programs is examined.
    pub(crate) survey: SurveyMode,
    /// CPUs that it may get; `None`: all that the machine and the site allow.
    pub(crate) within: Option<CpuSet>,
    /// Programs outside of all holds for which cores are given back; `None`: for others. They get
    /// no more cores, and no other ones, than they lack with the holds as they are when no other
    /// hold changes.
    pub(crate) yields: Option<&'a Outsiders>,
}

/// Changes a hold that was found; `own` is its description if this process has it.
pub(crate) fn change(
    world: &World,
    situation: &Situation,
    ledger: &Ledger,
    selected: Selected,
    own: Option<Borrowed>,
    wanted: &WantedSize<'_>,
) -> Result<(Resized, Borrowed)> {
    let &WantedSize { cores: wanted, survey, ref within, yields } = wanted;
    selected.exclusive()?;
    // Threads of the holder that were never bound to its cores have all CPUs.
    let unbound = own.is_some().then(|| allowed(&world.root, situation));
    let borrowed = match own {
        Some(own) => own,
        None => ledger.borrow_from(&selected.lockers, &selected.hold)?,
    };
    let machine = &situation.machine;
    let locked = borrowed.locked(ledger, &machine.cpus())?;
    let grows = wanted > cores_of(machine, &selected.hold.cpus).len();
    // Takes a tenth of a second, so it comes before the right to plan.
    let mut allowed = allowed(&world.root, situation);
    if let Some(within) = within {
        allowed = allowed.intersection(within);
    }
    let seen = match grows {
        true => Surroundings::look(world, survey, machine, &allowed, Some(ledger)),
        false => Surroundings::default(),
    };
    let mut change = HoldChange { world, machine, ledger, selected, borrowed, locked, unbound };
    let rights = change.rights()?;
    let all = all_holds(ledger, &machine.cpus())?;
    // The hold may have been changed before its description was borrowed, too.
    if change.is_changed_by_others()? || change.is_stale(&all) {
        bail!("another process changed the hold at the same time, try again");
    }
    // Threads of runs that began inside the hold since it was found are left alone.
    change.selected.all = all;
    let room = HoldRoom { world, machine, ledger, hold: &change.selected.hold };
    let free = if grows { room.free(&allowed, situation)? } else { CpuSet::new() };
    let inside = change.inside()?;
    let hold = &change.borrowed.hold().cpus;
    let (wanted, kept) = match yields {
        Some(outsiders) => yielded(&room, outsiders, &inside, wanted)?,
        None => (wanted, inside),
    };
    let quiet = room.quiet(&free, &seen);
    let after = match resized(machine, hold, &quiet, &kept, wanted) {
        Err(ResizeError::TooFew { .. }) => resized(machine, hold, &free, &kept, wanted)?,
        after => after?,
    };
    change.carry_out(&after, rights)
}

/// Returns the size of a hold that gives cores back to programs outside of all holds, at least
/// `least`, and the CPUs that it keeps. Called with the right to plan: other holds that yield to
/// the same programs give cores back before this one, or after it.
fn yielded(
    room: &HoldRoom<'_>,
    outsiders: &Outsiders,
    inside: &CpuSet,
    least: usize,
) -> Result<(usize, CpuSet)> {
    // Which CPUs it could take matters only when it grows.
    let lacking = outsiders.cores(room, inside, &CpuSet::new())?;
    if lacking.lacking == 0 {
        bail!("other programs have got cores meanwhile");
    }
    let cores = cores_of(room.machine, &room.hold.cpus).len();
    Ok((least.max(cores - lacking.lacking), room.hold.cpus.difference(&lacking.cpus)))
}

/// Returns the CPUs that a hold may get: those of the cpuset, without the site's own. The mask of
/// this process does not count, since the hold may have narrowed it.
pub(crate) fn allowed(root: &Path, situation: &Situation) -> CpuSet {
    let widest = widest_mask().unwrap_or_else(|| situation.taken.allowed.clone());
    // A hold that is enforced has no other CPUs, and may get those of the group around it.
    let home = home_cpus(root, Pid::own());
    let widest = home.map_or_else(|| widest.clone(), |home| home.union(&widest));
    match &situation.policy.site.reserved_cpus {
        Some(reserved) => widest.difference(reserved),
        None => widest,
    }
}

/// A change in progress.
struct HoldChange<'a> {
    world: &'a World,
    machine: &'a Machine,
    ledger: &'a Ledger,
    selected: Selected,
    borrowed: Borrowed,
    /// CPUs that the hold has locked: as it was found, with the changes of this process.
    locked: CpuSet,
    /// Mask of threads of this process that do not take part, if this process has the hold.
    unbound: Option<CpuSet>,
}

impl HoldChange<'_> {
    /// Takes the right to plan at the hold's level and inside it, so that neither a new hold nor
    /// one inside this one is made meanwhile.
    fn rights(&self) -> Result<Vec<Planner>> {
        let level = self.selected.hold.level;
        let levels = [Some(level), level.inner()].into_iter().flatten();
        let right = |level| match self.ledger.planner(level, PLANNER_WAIT_MAX) {
            Ok(right) => Ok(right),
            Err(error @ LedgerError::PlannerBusy { .. }) => {
                Err(anyhow::Error::from(error).context("another launch is planning, try again"))
            }
            Err(error) => Err(error.into()),
        };
        levels.map(right).collect()
    }

    /// Returns the CPUs of the hold that runs inside it have.
    fn inside(&self) -> Result<CpuSet> {
        let hold = self.borrowed.hold();
        HoldRoom { world: self.world, machine: self.machine, ledger: self.ledger, hold }.inside()
    }

    /// Returns whether no run inside the hold has any of these CPUs.
    fn is_unused(&self, cpus: &CpuSet) -> bool {
        self.inside().is_ok_and(|inside| !inside.intersects(cpus))
    }

    /// Returns whether another process has changed the CPUs of the hold.
    fn is_changed_by_others(&self) -> Result<bool> {
        Ok(self.borrowed.locked(self.ledger, &self.machine.cpus())? != self.locked)
    }

    /// Returns whether the ledger, with all of these holds, has other CPUs for the hold than those
    /// with which it was found.
    fn is_stale(&self, now: &[Hold]) -> bool {
        let found = &self.selected.hold;
        now.iter().any(|hold| (hold.id, hold.level) == (found.id, found.level) && hold.cpus != found.cpus)
    }

    /// Takes the right that binding needs: no run begins inside the hold with it, and no other
    /// process changes the hold. Launches beside the hold may plan. `None` if another process has
    /// the right for too long: it was stopped.
    fn right_to_bind(&self) -> Result<Option<Planner>> {
        let level = self.selected.hold.level;
        match self.ledger.planner(level.inner().unwrap_or(level), PLANNER_WAIT_MAX) {
            Ok(right) => Ok(Some(right)),
            Err(LedgerError::PlannerBusy { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the groups of an enforced hold have the CPUs to which its threads are to be
    /// bound. Other launches plan meanwhile. Returns the rights again, as far as they are needed
    /// and to be had: a stopped planner does not keep the threads from CPUs that are the hold's.
    fn wait_for_groups(
        &mut self,
        members: &[Pid],
        cpus: &CpuSet,
        rights: Vec<Planner>,
    ) -> Result<Vec<Planner>> {
        if !members.iter().any(|pid| lacks(&self.world.root, *pid, cpus)) {
            return Ok(rights);
        }
        drop(rights);
        let begin = Instant::now();
        for pid in members {
            let left = GROUP_WAIT_MAX.saturating_sub(begin.elapsed());
            wait_for_cpus(&self.world.root, *pid, cpus, left);
        }
        let right = self.right_to_bind().context(LARGER)?;
        if self.is_changed_by_others().context(LARGER)? {
            bail!("the hold was changed by others at the same time: its threads are as they left them");
        }
        // Threads of runs that began inside the hold meanwhile are left alone.
        self.selected.all = all_holds(self.ledger, &self.machine.cpus()).context(LARGER)?;
        Ok(right.into_iter().collect())
    }

    /// Binds the threads to more CPUs, of which `added` are new ones of the hold. Returns the
    /// rights that are left.
    fn widen(
        &mut self,
        members: &[Pid],
        added: &CpuSet,
        (old, new, crowded): (&Extent, &Extent, bool),
        rights: Vec<Planner>,
    ) -> Result<(Rebound, Vec<Planner>)> {
        // Groups of enforced holds follow the ledger.
        let rights = self.wait_for_groups(members, added, rights)?;
        let bound = self.bind(old, new, crowded);
        if rights.is_empty() {
            self.bind_back(new)?;
        }
        let error = match bound {
            Ok(rebound) => return Ok((rebound, rights)),
            Err(error) => error,
        };
        // Without the right, a run that begins inside the hold may be about to take some of them.
        if !rights.is_empty() && self.is_unused(added) && self.bind(new, old, false).is_ok() {
            // The caller is told of the first error.
            let _ = self.borrowed.give_back(self.ledger, added);
            return Err(error);
        }
        Err(error.context(LARGER))
    }

    /// Takes CPUs from the threads that others gave back while the threads were bound to them
    /// without the right to do so.
    ///
    /// # Errors
    /// Others have changed the hold, which is then not as the caller wants it.
    fn bind_back(&mut self, new: &Extent) -> Result<()> {
        let now = self.borrowed.locked(self.ledger, &self.machine.cpus())?;
        if now == self.locked {
            return Ok(());
        }
        self.selected.all = all_holds(self.ledger, &self.machine.cpus())?;
        let left = now.intersection(&new.hold);
        if left != new.hold && !left.is_empty() {
            self.bind(new, &new.changed_to(self.machine, &left), false)?;
        }
        bail!("the hold was changed by others at the same time: it has CPUs {now}");
    }

    /// Makes the hold consist of these CPUs. Nobody else plans meanwhile, except while it waits for
    /// the service that enforces holds.
    fn carry_out(mut self, after: &CpuSet, mut rights: Vec<Planner>) -> Result<(Resized, Borrowed)> {
        let before = self.borrowed.hold().cpus.clone();
        let proc = self.world.proc();
        let members = self.selected.members(&proc, self.ledger);
        let masks: Vec<CpuSet> =
            members.iter().flat_map(|pid| threads(&proc, *pid)).map(|thread| thread.mask).collect();
        let old = Extent::of_threads(before.clone(), &masks);
        let new = old.changed_to(self.machine, after);
        let (added, removed) = (after.difference(&before), before.difference(after));
        let mut rebound = Rebound::default();
        if !added.is_empty() {
            self.borrowed.add(self.ledger, &added)?;
            self.locked = self.locked.union(&added);
            // Threads with their new masks are found, too, if they have to get the old ones again.
            self.selected.hold.cpus = self.borrowed.hold().cpus.clone();
            let crowded = masks.iter().filter(|mask| mask.is_subset(&before)).count() > old.mask.len();
            (rebound, rights) = self.widen(&members, &added, (&old, &new, crowded), rights)?;
        }
        if !removed.is_empty() {
            rebound = self.bind(&old, &new, false)?;
            self.borrowed.give_back(self.ledger, &removed)?;
        }
        let mut stale = if removed.is_empty() { BTreeSet::new() } else { self.placed_by_library(&members) };
        let moved = |pid: u32| {
            let threads = process::threads(&proc, Pid(pid)).unwrap_or_default();
            threads.iter().any(|tid| rebound.changed.contains(&tid.0))
        };
        stale.retain(|&pid| moved(pid));
        if let Some(page) = BudgetPage::of_run(&proc, Pid(self.borrowed.hold().holder.pid)) {
            // Without it, the teams of the run keep the budget that they had.
            let _ = page.set_cores(u32::try_from(new.mask.len()).unwrap_or(u32::MAX));
        }
        drop(rights);
        let hold = self.borrowed.hold();
        let done = Resized {
            schema: "trimtab.resize/1",
            hold: hold.id.name(),
            pid: hold.holder.pid,
            before,
            reserved: hold.cpus.clone(),
            cpus: new.mask,
            cores: cores_of(self.machine, after).len(),
            rebound: rebound.changed.len(),
            kept: rebound.kept.len(),
            stale,
            command: hold.holder.label.clone(),
        };
        Ok((done, self.borrowed))
    }

    /// Gives all threads of the hold their masks.
    fn bind(&self, old: &Extent, new: &Extent, crowded: bool) -> Result<Rebound> {
        let proc = self.world.proc();
        // A thread whose mask changed is judged by its new mask in the next pass.
        let rule = |thread: &Bound| {
            let is_unbound = |unbound: &CpuSet| thread.pid == Pid::own() && unbound.is_subset(&thread.mask);
            if self.unbound.as_ref().is_some_and(is_unbound) {
                return None;
            }
            let mask = old.mask_of_thread(new, &thread.mask, crowded)?;
            (!self.selected.is_elsewhere(&proc, self.ledger, thread.pid, &thread.mask)).then_some(mask)
        };
        let members = || self.selected.members(&proc, self.ledger);
        Ok(rebind(&proc, &members, &rule)?)
    }

    /// Returns the processes that have the preload library with a plan.
    fn placed_by_library(&self, members: &[Pid]) -> BTreeSet<u32> {
        let proc = self.world.proc();
        let loaded = |pid: &&Pid| {
            std::fs::read_to_string(proc.join(format!("{pid}/maps")))
                .is_ok_and(|maps| maps.lines().any(|line| bearer::is_library(line.as_bytes())))
        };
        members.iter().filter(loaded).filter(|pid| places(&proc, **pid)).map(|pid| pid.0).collect()
    }
}

/// Returns whether the plan of a process makes the library place threads, as far as it is shown.
fn places(proc: &Path, pid: Pid) -> bool {
    let text = std::fs::read(proc.join(format!("{pid}/environ"))).unwrap_or_default();
    let name = [VARIABLE.as_bytes(), b"="].concat();
    let plan = text.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(name.as_slice()));
    let plan: Option<Handoff> = plan.and_then(|plan| std::str::from_utf8(plan).ok()?.parse().ok());
    plan.is_none_or(|plan| matches!(plan.pin, Pin::Born | Pin::Float))
}

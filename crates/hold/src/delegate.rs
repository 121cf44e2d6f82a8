//! Cores for a process or a control group that runs already.
//!
//! Order: reserve, then start the keeper that keeps the hold, then bind the threads of the target.
//! A kill at any instant leaves a hold that ends with its target, or none; no thread is bound to
//! cores that are not held.

use crate::cores::{CoresDocument, CoresRequest};
use crate::facts::look_at_memory;
use crate::foreign_load::Surroundings;
use crate::masks::{describe, processes_of, restore, write_cpuset};
use crate::membership::{CGROUP_LABEL, is_part};
use crate::release::end_keeper;
use crate::reserve::{ReserveError, ReserveOptions, reserve};
use crate::select::{Selected, all_holds, open};
use crate::site_facts::{LedgerPosition, Situation};
use anyhow::{Context, anyhow};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use trimtab_core::place::{Binding, pinned_cpus};
use trimtab_core::set::CpuSet;
use trimtab_front::args::SurveyMode;
use trimtab_front::args::time::Wait;
use trimtab_front::process_env::World;
use trimtab_launch::{LaunchFacts, LaunchPlan, LaunchRequest, decide};
pub use trimtab_linux::keeper::WatchedTarget;
use trimtab_linux::keeper::{self, Target};
use trimtab_linux::ledger::{Held, Holder, Ledger, ProcessTable};
pub use trimtab_linux::process::Pid;
use trimtab_linux::process::{self, State};
use trimtab_linux::rebind::{Bound, Rebound, rebind, threads};

/// Longest label that is read of a target, in bytes.
const LABEL_MAX: usize = 160;

/// A hold that a keeper keeps for its target.
#[derive(Debug)]
pub struct Delegated {
    plan: LaunchPlan,
    target: Target,
    number: String,
    reserved: CpuSet,
    warnings: Vec<String>,
    /// What was done with the threads.
    pub rebound: Rebound,
}

impl Delegated {
    /// Describes the hold: `trimtab.cores/1`.
    pub fn document(&self) -> CoresDocument<'_> {
        CoresDocument::planned(&self.plan).of_target(
            &self.target,
            &self.number,
            self.reserved.clone(),
            &self.warnings,
        )
    }

    /// Returns the CPUs of the target.
    pub fn cpus(&self) -> &CpuSet {
        &self.plan.placement.mask
    }

    /// Returns the number of the hold.
    pub fn number(&self) -> &str {
        &self.number
    }

    /// Returns warnings about the machine and the site's files.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn never(cause: impl Into<anyhow::Error>) -> ReserveError {
    ReserveError::Never(cause.into())
}

impl CoresRequest {
    /// Reserves cores for a target, binds its threads to them, and leaves the hold with a keeper
    /// (`program` is `trimtab-lab`), until the target ends.
    ///
    /// # Errors
    /// As [`Self::reserve`]; the target has ended, is another user's, or has cores already.
    pub fn hold_for(
        &self,
        world: &World,
        watched: WatchedTarget,
        program: &Path,
        tell: &dyn Fn(&str),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Delegated, ReserveError> {
        let ledger = open(world).map_err(never)?;
        let (request, mut facts, situation) = self.gather_for(world, &watched, &ledger)?;
        look_at_memory(world, &request, self.survey, &mut facts);
        let holder = holder(world, watched.target(), &self.label).map_err(never)?;
        let order = ReserveOptions {
            grants: true,
            wait: self.wait.map(Wait),
            label: &self.label,
            tell,
            goes_on,
            priority: self.priority,
            rules: situation.policy.site.queue(),
            holder: Some(holder),
        };
        let held = reserve(world, &request, &mut facts, &order, &mut Some(ledger))?;
        let plan = decide(&request, &facts).map_err(ReserveError::of)?;
        let Some(held) = held else {
            let fault = facts.ledger.fault.unwrap_or_else(|| "they overlap other holds (share)".to_owned());
            return Err(never(anyhow!("the cores cannot be reserved for another process: {fault}")));
        };
        let warnings = situation.warnings;
        deliver(world, watched, program, held, plan, warnings).map_err(never)
    }

    /// Reads the facts; the target's own load and bindings do not count.
    fn gather_for(
        &self,
        world: &World,
        watched: &WatchedTarget,
        ledger: &Ledger,
    ) -> Result<(LaunchRequest, LaunchFacts, Situation), ReserveError> {
        let unseen = Self { survey: SurveyMode::None, ..self.clone() };
        let (request, mut facts, situation) = unseen.gather(world, Some(ledger))?;
        let members = processes_of(world, watched.target());
        refuse_holders(world, ledger, &facts, &members).map_err(never)?;
        let machine = &situation.machine;
        let mut seen =
            Surroundings::look(world, self.survey, machine, &situation.taken.allowed, Some(ledger));
        let proc = world.proc();
        for pid in &members {
            for tid in process::threads(&proc, *pid).unwrap_or_default() {
                if let Ok(stat) = process::thread_stat(&proc, *pid, tid)
                    && stat.state == State::Running
                    && let Some(cpu) = stat.last_cpu
                {
                    seen.busy.insert(cpu, 0);
                }
            }
        }
        seen.pins.retain(|pin| !members.contains(&pin.pid));
        let bindings = seen
            .pins
            .iter()
            .map(|pin| Binding { cpus: pin.cpus.clone(), running: pin.state == State::Running });
        facts.load.pinned = pinned_cpus(machine, &bindings.collect::<Vec<_>>());
        facts.load.busy = seen.busy;
        facts.load.notes = seen.notes;
        Ok((request, facts, situation))
    }
}

/// Refuses a target that runs on cores of a hold at this position already.
fn refuse_holders(
    world: &World,
    ledger: &Ledger,
    facts: &LaunchFacts,
    members: &BTreeSet<Pid>,
) -> anyhow::Result<()> {
    let stand = LedgerPosition::find(world, ledger, &facts.machine);
    let all = all_holds(ledger, &facts.machine.cpus()).context("cannot read the holders")?;
    let proc = world.proc();
    for hold in all.iter().filter(|hold| hold.level >= stand.level) {
        let bound = |pid: &&Pid| {
            threads(&proc, **pid).iter().any(|thread| thread.mask.is_subset(&hold.cpus))
                && is_part(&proc, ledger, **pid, hold, &all)
        };
        if let Some(pid) = members.iter().find(bound) {
            anyhow::bail!(
                "process {pid} runs on CPUs {} already, which PID {} holds; change their number with trimtab resize {pid} -c N",
                hold.cpus,
                hold.holder.pid
            );
        }
    }
    Ok(())
}

/// Makes the record of a target.
pub(crate) fn holder(world: &World, target: &Target, label: &str) -> anyhow::Result<Holder> {
    let proc = world.proc();
    let first = match target {
        Target::Process { pid, .. } => *pid,
        Target::Cgroup(folder) => {
            *keeper::cgroup_processes(folder).first().context("the control group has no processes")?
        }
    };
    let (stat, status) = (process::stat(&proc, first)?, process::status(&proc, first)?);
    let own = ProcessTable::at(&proc).this_process(0, Duration::ZERO, "")?;
    let named = match target {
        Target::Cgroup(_) if !label.is_empty() => {
            anyhow::bail!("a hold for a control group has that group's name: leave the label out")
        }
        Target::Cgroup(folder) => format!("{CGROUP_LABEL}{}", folder.display()),
        Target::Process { .. } => {
            let line = process::command_line(&proc, first, LABEL_MAX).unwrap_or_default();
            if line.is_empty() { stat.comm.clone() } else { line }
        }
    };
    let label = if label.is_empty() { named } else { label.to_owned() };
    let start_ticks = stat.start.0;
    Ok(Holder { pid: first.0, start_ticks, uid: status.uid, label, delegated: true, ..own })
}

/// Starts the keeper, and binds the threads of the target.
fn deliver(
    world: &World,
    watched: WatchedTarget,
    program: &Path,
    held: Held,
    plan: LaunchPlan,
    mut warnings: Vec<String>,
) -> anyhow::Result<Delegated> {
    let proc = world.proc();
    let target = watched.target().clone();
    let (reserved, mask) = (held.cpus().clone(), plan.placement.mask.clone());
    let id = held.id().context("the hold has no number: other users have locked all of them")?;
    let machine = reserved.clone();
    let about = describe(world, &target);
    watched.keep(program, held, &about)?;
    let ledger = open(world)?;
    let all = all_holds(&ledger, &machine).context("cannot read the holders")?;
    let hold = all.iter().find(|hold| hold.id == id).cloned();
    let hold = hold.context("the target has ended, and its cores are free again")?;
    let selected = Selected { hold, all, lockers: Vec::new(), keeper: None };
    let members = || processes_of(world, &target).into_iter().collect::<Vec<_>>();
    let rule = |thread: &Bound| {
        let fits =
            thread.mask.is_subset(&mask) || selected.is_elsewhere(&proc, &ledger, thread.pid, &thread.mask);
        (!fits).then(|| mask.clone())
    };
    if let Target::Cgroup(folder) = &target
        && about.cpuset.is_some()
        && let Err(cause) = write_cpuset(folder, &mask.to_string())
    {
        warnings.push(format!("{}: {cause}; the processes have masks instead", folder.display()));
    }
    match rebind(&proc, &members, &rule) {
        Ok(rebound) => {
            let number = selected.hold.id.name();
            Ok(Delegated { plan, target, number, reserved, warnings, rebound })
        }
        Err(cause) => {
            let selected = Selected::of(world, &ledger, selected.hold, selected.all)?;
            restore(world, &about, &reserved);
            end_keeper(world, &selected).context("the hold could not be ended")?;
            Err(anyhow::Error::from(cause).context("the cores are free again"))
        }
    }
}

//! Cores for a program that asks for them itself: wanted, reserved, described, given back.
//!
//! The same decision and the same ledger as for `trimtab run`: the cores exclude every other run of
//! trimtab, and the kernel gives them back when the process ends in any way. Nothing here prints,
//! changes the process's own CPUs without being asked, or keeps state between calls.

use crate::facts::{self, look_at_ledger, look_at_memory};
use crate::foreign_load::Surroundings;
use crate::holds::{self, Holds};
use crate::queue::priority_beyond;
use crate::reserve::{ReserveError, ReserveOptions, reserve};
use crate::resize::{Resized, WantedSize, change};
use crate::select::{Selected, all_holds, open};
use crate::site::Policy;
use crate::site_facts::{OpenLedger, Situation, location};
use anyhow::Context;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use trimtab_core::place::Amount;
use trimtab_core::resize::ResizeError;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_core::topology::{CpuNames, DeviceName};
use trimtab_front::args::SurveyMode;
use trimtab_front::args::time::Wait;
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_launch::request::{HOLD, variables_of_hold};
use trimtab_launch::{LaunchFacts, LaunchPlan, LaunchRequest, Options, Refusal, Sources, decide};
use trimtab_linux::keeper::Target;
use trimtab_linux::ledger::{Borrowed, Held, LedgerView};
use trimtab_linux::sys::affinity;
use trimtab_linux::users::Users;

/// CoresRequest cores.
///
/// # Examples
/// Two cores, given back at the end of the block:
///
/// ```no_run
/// use trimtab_front::process_env::World;
/// use trimtab_hold::cores::CoresRequest;
///
/// let world = World::current();
/// let wanted = CoresRequest { label: "solver".to_owned(), ..CoresRequest::cores("2")? };
/// let cores = wanted.reserve(&world, &|line| eprintln!("{line}"), &|| true)?;
/// println!("CPUs {}", cores.cpus());
/// cores.bind_thread()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CoresRequest {
    /// The options of `trimtab run` about cores, layout and memory.
    pub options: Options,
    /// CPUs to choose from; `None`: all.
    pub cpus: Option<CpuNames>,
    /// Device to be near to.
    pub near: Option<DeviceName>,
    /// How long to wait for cores: `None` not at all, `Some(None)` without a limit.
    pub wait: Option<Option<Duration>>,
    /// Name of the holder in `trimtab ps`.
    pub label: String,
    /// Priority in the queue.
    pub priority: i32,
    /// Whether the files of the site and the user count.
    pub rules: bool,
    /// How other programs are examined.
    pub survey: SurveyMode,
}

impl Default for CoresRequest {
    fn default() -> Self {
        Self {
            options: Options::default(),
            cpus: None,
            near: None,
            wait: None,
            label: String::new(),
            priority: 0,
            rules: true,
            survey: SurveyMode::Auto,
        }
    }
}

impl CoresRequest {
    /// Wants a number of cores, as the text of `-c`: `4`, `50%`, `2xl3`, `node`, `auto`.
    ///
    /// # Errors
    /// The text is no amount.
    ///
    /// # Examples
    /// ```
    /// use trimtab_hold::cores::CoresRequest;
    ///
    /// assert!(CoresRequest::cores("2xl3").is_ok());
    /// assert!(CoresRequest::cores("two").unwrap_err().to_string().contains("two"));
    /// ```
    pub fn cores(text: &str) -> Result<Self, ReserveError> {
        let amount = text.parse().map_err(|why| never(format!("cores: {why}")))?;
        Ok(Self { options: Options { cores: Some(amount), ..Options::default() }, ..Self::default() })
    }

    /// Adds settings as the text of `--set`: `smt=all strategy=scatter mem=bind`.
    ///
    /// # Errors
    /// The text is no setting.
    pub fn with_settings(mut self, text: &str) -> Result<Self, ReserveError> {
        let setting: Setting = text.parse().map_err(|why| never(format!("settings: {why}")))?;
        self.options = self.options.filled(&setting).map_err(never)?;
        Ok(self)
    }

    /// Chooses among these CPUs only, as the text of `--cpus`.
    ///
    /// # Errors
    /// The text is no list of CPUs.
    pub fn within(mut self, text: &str) -> Result<Self, ReserveError> {
        self.cpus = Some(text.parse().map_err(|why| never(format!("cpus: {why}")))?);
        Ok(self)
    }

    /// Prefers cores near a device, as the text of `--near`: `gpu:0`, `nic:mlx5_0`.
    ///
    /// # Errors
    /// The text names no kind of device.
    pub fn near(mut self, text: &str) -> Result<Self, ReserveError> {
        self.near = Some(text.parse().map_err(|why| never(format!("near: {why}")))?);
        Ok(self)
    }

    /// Returns the plan for cores that would be reserved now. Nothing is reserved.
    ///
    /// # Errors
    /// They would be refused, or something cannot be read.
    pub fn plan(&self, world: &World) -> Result<LaunchPlan, ReserveError> {
        let (request, mut facts, _) = self.gather(world, None)?;
        look_at_memory(world, &request, self.survey, &mut facts);
        look_at_ledger(world, &request, &mut facts);
        decide(&request, &facts).map_err(ReserveError::of)
    }

    /// Reserves the cores. `tell` gets lines about the wait, `goes_on` is asked every few
    /// milliseconds whether it goes on.
    ///
    /// # Errors
    /// Not enough free cores (in time), a request that can never be met, or a cancelled wait.
    pub fn reserve(
        &self,
        world: &World,
        tell: &dyn Fn(&str),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Cores, ReserveError> {
        let mut ledger = OpenLedger::of(world).ok().map(|opened| opened.ledger);
        let (request, mut facts, situation) = self.gather(world, ledger.as_ref())?;
        look_at_memory(world, &request, self.survey, &mut facts);
        let order = ReserveOptions {
            grants: true,
            wait: self.wait.map(Wait),
            label: &self.label,
            tell,
            goes_on,
            priority: self.priority,
            rules: situation.policy.site.queue(),
            holder: None,
        };
        let held = reserve(world, &request, &mut facts, &order, &mut ledger)?;
        // Its questions are not answered: that would measure with threads of ours, and the program
        // is not known.
        let plan = decide(&request, &facts).map_err(ReserveError::of)?;
        let maker = std::process::id();
        let mut warnings = situation.warnings;
        let fault = facts.ledger.fault.iter().map(|why| format!("the cores are not reserved: {why}"));
        warnings.extend(fault.chain(facts.ledger.private.clone()));
        warnings.extend(priority_beyond(Some(self.priority), &situation.policy.site.queue()));
        let reserved = held.as_ref().map(|held| held.cpus().clone()).unwrap_or_default();
        let (held, wanted) = (held.map(Arc::new), self.clone());
        Ok(Cores { held, outer: None, reserved, wanted, plan, request, warnings, maker })
    }

    pub(crate) fn gather(
        &self,
        world: &World,
        ledger: Option<&trimtab_linux::ledger::Ledger>,
    ) -> Result<(LaunchRequest, LaunchFacts, Situation), ReserveError> {
        let mut situation = Situation::live(world, self.rules).map_err(ReserveError::Never)?;
        let mut options = self.options.clone();
        let cpus = self.cpus.as_ref().map(|names| situation.cpus(names)).transpose();
        options.cpus = cpus.map_err(ReserveError::of)?.or(options.cpus);
        let near = self.near.as_ref().map(|name| situation.near(world, name)).transpose();
        options.near = near.map_err(ReserveError::of)?.or(options.near);
        let sources = Sources {
            options,
            site: situation.policy.site.clone(),
            environment: world.environment().clone(),
            ..Sources::default()
        };
        let request = LaunchRequest::merge(sources).map_err(ReserveError::of)?;
        let mut facts = facts::facts(world, &situation, None, &[], Some(self.survey), ledger);
        facts::look_for_libraries(&request, &mut facts);
        Ok((request, facts, situation))
    }
}

fn never(why: impl Into<String>) -> ReserveError {
    ReserveError::of(Refusal::Request(why.into()))
}

/// Reserved cores. They are given back on drop, and at the end of the process. Forked children
/// share them: they are free when the last of these processes has ended or dropped its copy.
#[derive(Debug)]
pub struct Cores {
    held: Option<Arc<Held>>,
    /// The cores of which these are a part, which are held at least as long.
    outer: Option<Arc<Held>>,
    reserved: CpuSet,
    wanted: CoresRequest,
    plan: LaunchPlan,
    request: LaunchRequest,
    warnings: Vec<String>,
    /// The process that reserved them. A forked child's copy must not unlock its parent's cores.
    maker: u32,
}

impl Drop for Cores {
    fn drop(&mut self) {
        if self.maker != std::process::id() {
            let copies = [self.held.take(), self.outer.take()];
            // Of several parts, the last one closes the copy of the whole.
            copies.into_iter().flatten().filter_map(Arc::into_inner).for_each(Held::close);
        }
    }
}

/// Description of reserved or planned cores: `trimtab.cores/1`.
#[derive(Debug, Serialize)]
pub struct CoresDocument<'a> {
    schema: &'static str,
    /// CPUs on which the program may run.
    pub cpus: &'a CpuSet,
    /// CPUs that are reserved; left out of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<CpuSet>,
    /// Number of threads that a program should use.
    pub threads: u32,
    /// Number of the hold, which `resize` and `release` take; left out of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The process or control group for which they are held, if it is not the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<&'a Target>,
    /// Variables for a program: null removes one. Left out of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<BTreeMap<String, Option<String>>>,
    /// Warnings about the machine and the site's files.
    pub warnings: &'a [String],
    /// The whole decision.
    pub launch: &'a LaunchPlan,
}

impl<'a> CoresDocument<'a> {
    /// Describes reserved cores.
    pub fn of(cores: &'a Cores) -> Self {
        Self {
            reserved: Some(cores.reserved()),
            hold: cores.number(),
            environment: Some(cores.environment()),
            warnings: &cores.warnings,
            ..Self::planned(&cores.plan)
        }
    }

    /// Describes planned cores.
    pub fn planned(plan: &'a LaunchPlan) -> Self {
        Self {
            schema: "trimtab.cores/1",
            cpus: &plan.placement.mask,
            reserved: None,
            hold: None,
            target: None,
            threads: plan.threads.value,
            environment: None,
            warnings: &[],
            launch: plan,
        }
    }

    /// Adds the target of a hold for another process. The environment is left out: that process
    /// runs already.
    pub(crate) fn of_target(
        self,
        target: &'a Target,
        number: &str,
        reserved: CpuSet,
        warnings: &'a [String],
    ) -> Self {
        let hold = Some(number.to_owned());
        Self { reserved: Some(reserved), hold, target: Some(target), warnings, ..self }
    }
}

impl Cores {
    /// Returns the CPUs on which the program may run.
    pub fn cpus(&self) -> &CpuSet {
        &self.plan.placement.mask
    }

    /// Returns the CPUs that are reserved, which include the idle hardware threads of the cores.
    /// Empty if nothing was reserved: the warnings say why.
    pub fn reserved(&self) -> CpuSet {
        self.reserved.clone()
    }

    /// Changes the number of cores. Programs on the cores, and bound threads of this process, are
    /// given new masks, as by `trimtab resize`.
    ///
    /// # Errors
    /// Nothing is reserved, there are not enough free cores, or parts of these cores are reserved.
    pub fn resize(&mut self, world: &World, wanted: usize) -> Result<Resized, ReserveError> {
        let held = self.held.clone().ok_or_else(|| never("no cores are reserved"))?;
        let failed = |cause: anyhow::Error| match cause.downcast_ref::<ResizeError>() {
            Some(ResizeError::TooFew { .. }) => ReserveError::NoCores(cause),
            _ => ReserveError::Never(cause),
        };
        let situation = Situation::live(world, self.wanted.rules).map_err(failed)?;
        let ledger = open(world).map_err(failed)?;
        let all = all_holds(&ledger, &situation.machine.cpus()).map_err(|error| failed(error.into()))?;
        let hold = all.iter().find(|hold| Some(hold.id) == held.id() && hold.level == held.level());
        let hold = hold.cloned().ok_or_else(|| never("the ledger does not show these cores"))?;
        let own = Borrowed::of_own(&held, &hold).map_err(|error| failed(error.into()))?;
        let selected = Selected::of(world, &ledger, hold, all).map_err(failed)?;
        let wanted = WantedSize { cores: wanted, survey: self.wanted.survey, within: None, yields: None };
        let done = change(world, &situation, &ledger, selected, Some(own), &wanted);
        let (done, _) = done.map_err(failed)?;
        self.reserved = done.reserved.clone();
        self.follow(world, &done)?;
        Ok(done)
    }

    /// Makes the plan of the cores after a change.
    fn follow(&mut self, world: &World, done: &Resized) -> Result<(), ReserveError> {
        let count = u32::try_from(done.cores).unwrap_or(u32::MAX);
        let mut wanted = self.wanted.clone();
        wanted.options.cores = Some(Amount::Cores(count));
        wanted.options.cpus = Some(done.reserved.clone());
        (wanted.cpus, wanted.survey) = (None, SurveyMode::None);
        let (request, mut facts, _) = wanted.gather(world, None)?;
        // The mask of the calling thread may be narrower than the cores.
        facts.bounds.allowed = facts.bounds.allowed.union(&done.reserved);
        facts.ledger.within = facts.machine.cpus();
        self.plan = decide(&request, &facts).map_err(ReserveError::of)?;
        self.request = request;
        Ok(())
    }

    /// Reserves a part of these cores. Parts exclude each other, and hold these cores as long as
    /// they last.
    ///
    /// # Errors
    /// As [`CoresRequest::reserve`].
    pub fn reserve_part(
        &self,
        wanted: &CoresRequest,
        world: &World,
        tell: &dyn Fn(&str),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, ReserveError> {
        let hold = self.position().ok_or_else(|| never("no cores are reserved"))?;
        let world = world.with_variable(HOLD, &hold);
        // Other programs do not use the parts: the whole is held already.
        let wanted = CoresRequest { survey: SurveyMode::None, ..wanted.clone() };
        let mut part = wanted.reserve(&world, tell, goes_on)?;
        part.outer.clone_from(&self.held);
        Ok(part)
    }

    /// Returns the number of threads that a program should use on them.
    pub fn threads(&self) -> u32 {
        self.plan.threads.value
    }

    /// Returns the whole decision, as `trimtab plan --json` shows it.
    pub fn plan(&self) -> &LaunchPlan {
        &self.plan
    }

    /// Returns warnings about the machine and the site's files.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the variables for a program that is to run on these cores: `None` removes one. Runs
    /// of trimtab inside the program stay within the cores.
    pub fn environment(&self) -> BTreeMap<String, Option<String>> {
        let changes = self.request.environment.changes(&self.plan.environment);
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let mut all: BTreeMap<String, Option<String>> =
            changes.into_iter().map(|(name, value)| (name, value.and_then(text))).collect();
        if let Some(hold) = self.position() {
            all.extend(variables_of_hold(&self.request.environment, Some(hold)));
        }
        all
    }

    /// Returns the number of the hold, which `resize` and `release` take; `None` if nothing was
    /// reserved.
    pub fn number(&self) -> Option<String> {
        Some(self.held.as_ref()?.id()?.name())
    }

    /// Returns the value by which inner runs find this hold. They find it by its number: no
    /// descriptor is inherited.
    fn position(&self) -> Option<String> {
        let claim = self.held.as_ref()?.claim();
        claim.hold.is_some().then(|| claim.to_string())
    }

    /// Binds the calling thread to the cores. Threads and processes that it starts inherit that.
    ///
    /// # Errors
    /// The kernel refuses: a cpuset changed, or forbids the CPUs.
    pub fn bind_thread(&self) -> io::Result<()> {
        Ok(affinity::set(None, self.cpus())?)
    }
}

/// Returns the holds of cores of this machine, as `trimtab ps --json` shows it.
///
/// # Errors
/// The machine or the ledger cannot be read.
pub fn list(world: &World) -> anyhow::Result<Holds> {
    let (machine, _) = Which::Live.load(world)?;
    let view = LedgerView::open(&location(world)?).context("cannot read the ledger")?;
    let users = Users::read(&world.root.join("etc/passwd")).unwrap_or_default();
    let rules = Policy::read(&world.config()).map(|policy| policy.site.queue()).unwrap_or_default();
    holds::gather(world, &machine, view.as_ref(), &Surroundings::default(), &users, rules)
}

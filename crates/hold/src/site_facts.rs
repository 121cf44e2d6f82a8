//! Site facts of a launch: the machine, the limits of this process, the site's rules, and the
//! position in the ledger.

use crate::membership::{CGROUP_LABEL, descends};
use crate::site::Policy;
use anyhow::{Context, Result};
use std::path::Path;
use trimtab_agent::paths::LEDGER;
use trimtab_core::hold_claim::HoldClaim;
use trimtab_core::place::{DealtDevice, NearDevice, Reason, Taken};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{CpuNames, Device, DeviceKind, DeviceName, Machine, each_device, known_devices};
use trimtab_front::machine::{Model, Which};
use trimtab_front::process_env::World;
use trimtab_launch::Refusal;
use trimtab_linux::devices;
use trimtab_linux::ledger::{
    Hold, Holder, Ledger, LedgerError, LedgerView, Level, Location, ProcessTable, Standing,
};
use trimtab_linux::limits::{Bounds, Limits};
use trimtab_linux::process::Pid;
use trimtab_linux::sys::affinity;

pub use trimtab_core::hold_claim::HOLD;

/// Facts of the site.
#[derive(Debug)]
pub struct Situation {
    /// The machine.
    pub machine: Machine,
    /// Whether it is this machine, and no described one.
    pub live: bool,
    /// CPUs that may be used: `allowed`, `mems` and `quota` are set, nothing is taken yet.
    pub taken: Taken,
    /// CPUs that the site keeps for the system; `taken` allows none of them.
    pub reserved: CpuSet,
    /// Why the process may not use the whole machine.
    pub limited: Vec<Reason>,
    /// The site's and user's files.
    pub policy: Policy,
    /// Warnings that were not printed yet.
    pub warnings: Vec<String>,
}

impl Situation {
    /// Reads the live machine, without its devices, and this process's limits.
    ///
    /// # Errors
    /// The machine cannot be discovered, or a rules file cannot be used.
    pub fn live(world: &World, rules: bool) -> Result<Self> {
        Self::on(world, Which::Live.read(world)?, rules)
    }

    /// Does the same with the devices of the machine, for a picture of it.
    ///
    /// # Errors
    /// As [`Self::live`].
    pub fn with_devices(world: &World, rules: bool) -> Result<Self> {
        Self::on(world, Which::Live.read_with_devices(world)?, rules)
    }

    fn on(world: &World, model: Model, rules: bool) -> Result<Self> {
        let Model { machine, key, warning } = model;
        let mask = affinity::get(None).context("cannot read this process's CPU mask")?;
        let unreadable = "cannot read the limits of this process";
        let (online, nodes) = key.map_or((None, None), |key| (key.online(), key.nodes()));
        let bounds = Bounds::read(&world.root, &mask, online, nodes).context(unreadable)?;
        let mut situation = Self {
            taken: Taken {
                mems: bounds.mems,
                quota: bounds.quota.map(|quota| quota.milli_cpus),
                ..Taken::nothing(bounds.allowed.intersection(&machine.cpus()))
            },
            reserved: CpuSet::new(),
            limited: Vec::new(),
            policy: Policy::default(),
            warnings: warning.into_iter().collect(),
            live: true,
            machine,
        };
        let (allowed, of) = (situation.taken.allowed.len(), situation.machine.pu_count());
        if allowed < of {
            // Only now the causes matter; they are in several files.
            let limits = Limits::read(&world.root, Some(&mask)).context(unreadable)?;
            let words: Vec<String> = limits.limiters.iter().map(ToString::to_string).collect();
            situation.limited.push(Reason::Limited { allowed, of, by: words.join("; ") });
        }
        if rules {
            situation.policy = Policy::read(&world.config())?;
            situation.reserve_for_system();
        }
        Ok(situation)
    }

    /// Loads another machine, all of it free.
    ///
    /// # Errors
    /// The file or description cannot be used.
    pub fn elsewhere(world: &World, which: &Which) -> Result<Self> {
        let (machine, _) = which.load(world)?;
        let taken = Taken::nothing(machine.allowed());
        Ok(Self {
            machine,
            live: false,
            taken,
            reserved: CpuSet::new(),
            limited: Vec::new(),
            policy: Policy::default(),
            warnings: Vec::new(),
        })
    }

    /// Returns the CPUs of these names.
    ///
    /// # Errors
    /// The machine has no such part.
    pub fn cpus(&self, names: &CpuNames) -> Result<CpuSet, Refusal> {
        names.on(&self.machine).map_err(|error| Refusal::Request(format!("--cpus {error}")))
    }

    /// Finds a device: in the model of the machine, or, on this machine, in the kernel's files.
    ///
    /// # Errors
    /// There is no such device; the message lists the known ones.
    pub fn near(&mut self, world: &World, name: &DeviceName) -> Result<NearDevice, Refusal> {
        // The model of a launch has no devices. Without one that has, the kernel's files tell.
        let read = self.live.then(|| Which::Live.read_with_devices(world)).transpose();
        let (read, failure) = match read {
            Ok(read) => (read, None),
            Err(error) => (None, Some(error)),
        };
        if let Some(warning) = read.as_ref().and_then(|model| model.warning.as_ref())
            && !self.warnings.contains(warning)
        {
            self.warnings.push(warning.clone());
        }
        let model = read.as_ref().map_or(&self.machine, |model| &model.machine);
        let refused = |cause: String| {
            let known = known_devices(model);
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let failed = failure.as_ref().map(|error| format!("; {error:#}")).unwrap_or_default();
            Refusal::Request(format!("--near {name}: {cause} (devices in the model: {known}{failed})"))
        };
        let cpus = match (name.near(model), self.live) {
            // The machine may have changed since the model of the launch was read.
            (Some(cpus), _) => cpus.intersection(&self.machine.cpus()),
            (None, false) => return Err(refused("that machine has no such device".to_owned())),
            (None, true) => devices::near(&world.sys(), name)
                .map_err(|error| refused(error.to_string()))?
                .intersection(&self.machine.cpus()),
        };
        let each = match name {
            DeviceName::Each(kind) => self.each(model, *kind),
            _ => Vec::new(),
        };
        Ok(NearDevice { name: name.to_string(), cpus, each })
    }

    /// Returns the devices of a kind that are dealt to ranks.
    fn each(&self, model: &Machine, kind: DeviceKind) -> Vec<DealtDevice> {
        let each = each_device(model, kind);
        let dealt = |(index, (number, device)): (u32, &(u32, &Device))| DealtDevice {
            name: DeviceName::Numbered(kind, *number).to_string(),
            cpus: device.cpus.intersection(&self.machine.cpus()),
            vendor: device.vendor,
            index,
        };
        (0..).zip(&each).map(dealt).collect()
    }

    fn reserve_for_system(&mut self) {
        let Some(reserved) = &self.policy.site.reserved_cpus else { return };
        let left = self.taken.allowed.difference(reserved);
        if left.is_empty() {
            self.warnings
                .push(format!("site rules reserve CPUs {reserved}, which is the whole machine: ignored"));
            return;
        }
        let by = format!("site rules reserve CPUs {reserved}");
        self.limited.push(Reason::Limited { allowed: left.len(), of: self.taken.allowed.len(), by });
        self.taken.allowed = left;
        self.reserved = reserved.clone();
    }
}

/// The ledger as a run opened it at its start.
#[derive(Debug)]
pub struct OpenLedger {
    /// Its location.
    pub location: Location,
    /// The ledger.
    pub ledger: Ledger,
}

impl OpenLedger {
    /// Opens the ledger.
    ///
    /// # Errors
    /// There is no place for it, or it cannot be used.
    pub fn of(world: &World) -> Result<Self, LedgerError> {
        let location = location(world)?;
        Ok(Self { ledger: Ledger::open(&location)?, location })
    }
}

/// Returns the location of the ledger.
///
/// # Errors
/// The boot id cannot be read.
pub fn location(world: &World) -> Result<Location, LedgerError> {
    world.paths().location()
}

/// Returns the reason why programs outside of this container do not see a ledger; `None` for a
/// folder that is meant to be shared: the package's, and one that the user named.
pub fn private_ledger(world: &World, path: &Path) -> Option<String> {
    let meant = path.starts_with("/run/trimtab") || world.text(LEDGER).is_some();
    (!meant && in_container(world)).then(|| only_here(path))
}

/// Returns the sentence about a ledger that is private to a container.
pub fn only_here(path: &Path) -> String {
    let path = path.display();
    format!("{path} exists only in this container: runs in other containers and on the host are not visible")
}

/// Returns whether this is a container, from the marks of container runtimes: `/.dockerenv`,
/// `/run/.containerenv` and the variable `container`.
pub fn in_container(world: &World) -> bool {
    let exists = |name: &str| world.root.join(name).exists();
    exists(".dockerenv") || exists("run/.containerenv") || world.text("container").is_some()
}

/// A position in the ledger: the level, and the CPUs of the hold that encloses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerPosition {
    /// The level at which CPUs are taken.
    pub level: Level,
    /// The CPUs of this level.
    pub within: CpuSet,
}

impl LedgerPosition {
    /// Returns the position of a process for which no run and no keeper holds cores.
    pub(crate) fn outside(machine: &Machine) -> Self {
        Self { level: Level::MACHINE, within: machine.cpus() }
    }

    /// Finds the position of this process: inside an enclosing run if it has inherited that run's
    /// hold or can name it, or if a keeper holds cores for a process that started this one;
    /// otherwise at the level of the machine.
    pub fn find(world: &World, view: &LedgerView, machine: &Machine) -> Self {
        let outside = Self::outside(machine);
        let Some(text) = world.text(HOLD) else {
            return delegated(world, view, machine).unwrap_or(outside);
        };
        let Ok(HoldClaim { depth, descriptor, hold: id }) = text.parse() else { return outside };
        let Some(level) = Level::new(depth) else { return outside };
        let Some(inner) = level.inner() else { return outside };
        let inherited = view.held_through(descriptor, level, &machine.cpus()).unwrap_or_default();
        let within = if inherited.is_empty() { named(world, view, level, id, machine) } else { inherited };
        if within.is_empty() { outside } else { Self { level: inner, within } }
    }
}

/// Returns the position inside the hold that a keeper has for an ancestor of this process, or for
/// its control group. If the CPUs of its mask are not all held, as at most starts, it is in none.
fn delegated(world: &World, view: &LedgerView, machine: &Machine) -> Option<LedgerPosition> {
    let mask = affinity::get(None).ok()?.intersection(&machine.cpus());
    let held = view.map(Level::MACHINE, &mask).ok()?.exclusive;
    if mask.is_empty() || !mask.is_subset(&held) {
        return None;
    }
    let uid = rustix::process::getuid().as_raw();
    let holds = view.holders(Level::MACHINE, &machine.cpus()).ok()?.known;
    let around = |hold: &&Hold| {
        let Hold { holder, cpus, .. } = hold;
        holder.delegated
            && holder.uid == uid
            && mask.is_subset(cpus)
            && (descends(&world.proc(), Pid::own(), holder)
                || is_in_group(&world.proc(), "self", &holder.label))
    };
    let hold = holds.iter().find(around)?;
    Some(LedgerPosition { level: Level::MACHINE.inner()?, within: hold.cpus.clone() })
}

/// Returns whether a process (`self`, or a number) is in the control group of version 2 that a
/// label names, or below it. The folder of the label is not opened: any user may have written the
/// label.
pub(crate) fn is_in_group(proc: &Path, process: &str, label: &str) -> bool {
    let Some(folder) = label.strip_prefix(CGROUP_LABEL) else { return false };
    let groups = std::fs::read_to_string(proc.join(process).join("cgroup")).unwrap_or_default();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    let ancestors = Path::new(own).ancestors().filter(|group| !group.as_os_str().is_empty());
    ancestors.into_iter().any(|group| Path::new(folder).ends_with(group))
}

/// Returns the CPUs of the hold with this id, if it belongs to this user: for programs that close
/// unknown descriptors, as Python does for its children. A hold of root counts for the processes
/// that its holder has started: the daemon of a workload manager holds cores for the ranks of a
/// user.
fn named(world: &World, view: &LedgerView, level: Level, id: Option<u64>, machine: &Machine) -> CpuSet {
    let uid = rustix::process::getuid().as_raw();
    let processes = ProcessTable::at(&world.proc());
    let holds = view.holders(level, &machine.cpus()).map(|holders| holders.known).unwrap_or_default();
    let started_by = |holder: &Holder| descends(&world.proc(), Pid::own(), holder);
    let owned = |holder: &Holder| holder.uid == uid || holder.uid == 0 && started_by(holder);
    let ours = |hold: &&Hold| {
        Some(hold.id.number()) == id
            && owned(&hold.holder)
            && !matches!(processes.standing(&hold.holder), Standing::Impostor { .. })
    };
    holds.iter().filter(ours).fold(CpuSet::new(), |sum, hold| sum.union(&hold.cpus))
}

//! This machine, as a hook sees it: reserves the cores of a guest, binds its threads, and gives the
//! cores back.
//!
//! Order: the hold exists before the guest's process, and lasts until the engine ends. When the
//! process runs, the hold is handed over to it, so that the kernel's notice of its end in any way
//! frees the cores; then its threads are bound. A kill at any instant leaves a hold that ends with
//! the engine or the guest, or none.

use crate::config::{CONFIG, GuestRule, HookConfig};
use crate::engine::HookEngine;
use crate::pins::{VcpuPins, vcpu_pins};
use crate::shape::GuestShape;
use crate::wanted::{GuestNeed, guest_need};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::topology::Machine;
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_hold::container::{ContainerRequest, EngineTask, KeptContainer, Pid, kept_guests};
use trimtab_hold::cores::CoresRequest;
use trimtab_hold::reserve::ReserveError;
use trimtab_hold::site_facts::HOLD;
use trimtab_launch::Environment;
use trimtab_linux::process::Tid;
use trimtab_linux::rebind::{Bound, rebind};
use trimtab_linux::vcpus::{VirtualMachine, VmName, Vms};

/// Longest wait for a QEMU's own socket. Its engine is connected, so it does not answer.
const QMP_PATIENCE: Duration = Duration::from_millis(20);

/// This machine.
#[derive(Debug)]
pub struct ThisHost {
    /// The process environment of the hook.
    pub world: World,
    /// The program that keeps holds.
    pub keeper: PathBuf,
    /// The engine.
    pub engine: HookEngine,
    /// The site's rules for guests.
    pub config: HookConfig,
    machine: Machine,
}

/// Result of a step for a guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookOutcome {
    /// It has these lines as its explanation.
    Done(Vec<String>),
    /// It gets no cores, for this reason.
    Without(String),
}

impl ThisHost {
    /// Reads the machine and the configuration.
    ///
    /// # Errors
    /// The machine cannot be read.
    pub fn new(world: &World, keeper: PathBuf, engine: HookEngine, config: HookConfig) -> Result<Self> {
        // The hook is in no hold, although a run may have started the engine.
        let world = world.with_variable(HOLD, "");
        let machine = Which::Live.load(&world)?.0;
        Ok(Self { world, keeper, engine, config, machine })
    }

    /// Reserves cores for a guest that will be started, until the engine's process ends or the hold
    /// is handed over.
    ///
    /// # Errors
    /// Not enough free cores, or nothing can be reserved.
    pub fn reserve(
        &self,
        name: &str,
        guest: &GuestShape,
        engine: Pid,
        until: Instant,
    ) -> Result<HookOutcome, ReserveError> {
        let rule = self.config.rule(name);
        let need = guest_need(&rule, guest, &self.machine);
        let (request, mut lines) = match need.map_err(|cause| ReserveError::Never(anyhow!(cause)))? {
            GuestNeed::Alone(reason) => return Ok(HookOutcome::Without(reason)),
            GuestNeed::Cores { request, notes, .. } => (request, notes),
        };
        // Of a start that failed.
        self.release(name).map_err(ReserveError::Never)?;
        let id = self.engine.id(name);
        let order = ContainerRequest {
            cores: CoresRequest { label: self.engine.label(name), wait: None, ..*request },
            kind: EngineTask::Guest,
            id: &id,
            environment: Environment::default(),
            quota: None,
            accept: &|_| Ok(()),
            goes_on: &|| Instant::now() < until,
        };
        let cores = order.reserve(&self.world, engine, &self.keeper)?;
        let mut all = vec![format!("reserved CPUs {} for {} vCPUs", cores.reserved, guest.vcpus)];
        all.extend(cores.reasons);
        all.append(&mut lines);
        all.extend(cores.warnings.iter().map(|line| format!("warning: {line}")));
        Ok(HookOutcome::Done(all))
    }

    /// Hands the hold of a guest over to its process, and binds the threads.
    ///
    /// # Errors
    /// The process is no virtual machine, or its threads cannot be bound; then the cores are free
    /// again.
    pub fn place(&self, name: &str, guest: &GuestShape, process: Pid) -> Result<HookOutcome> {
        let Some(kept) = self.kept(name)?.into_iter().next() else {
            return Ok(HookOutcome::Without("it has no hold".to_owned()));
        };
        let vm = self.virtual_machine(process)?;
        kept.hand_over(&self.world, process, &self.keeper)?;
        let rule = self.config.rule(name);
        match guest_need(&rule, guest, &self.machine).map_err(|cause| anyhow!(cause))? {
            GuestNeed::Cores { bind: true, .. } => {}
            GuestNeed::Cores { .. } | GuestNeed::Alone(_) => return Ok(HookOutcome::Done(Vec::new())),
        }
        let pins = vcpu_pins(&self.machine, &kept.cpus, &kept.reserved, guest);
        if let Err(cause) = self.bind(&vm, &pins) {
            self.release(name)?;
            return Err(cause.context("the cores are free again"));
        }
        let mut lines: Vec<String> = (0..)
            .zip(&pins.vcpus)
            .map(|(number, cpus): (u32, &CpuSet)| format!("vCPU {number}: CPUs {cpus}"))
            .collect();
        lines.push(format!("emulator and I/O threads: CPUs {}", pins.rest));
        lines.extend(pins.notes);
        lines.push(self.confine_memory(process, &rule, &pins.all));
        Ok(HookOutcome::Done(lines))
    }

    /// Finds the vCPUs of a process.
    ///
    /// # Errors
    /// It is no virtual machine.
    pub fn virtual_machine(&self, process: Pid) -> Result<VirtualMachine> {
        let vms = Vms::new(&self.world.proc()).patient(QMP_PATIENCE);
        Ok(vms.find(&VmName::Pid(process))?)
    }

    /// Gives the cores of a guest back, and returns whether it had any.
    ///
    /// # Errors
    /// The holds cannot be read, or one cannot be ended.
    pub fn release(&self, name: &str) -> Result<bool> {
        let all = self.kept(name)?;
        for kept in &all {
            kept.end(&self.world)?;
        }
        Ok(!all.is_empty())
    }

    /// Returns the holds of a guest.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn kept(&self, name: &str) -> Result<Vec<KeptContainer>> {
        let id = self.engine.id(name);
        Ok(kept_guests(&self.world)?.into_iter().filter(|kept| kept.id == id).collect())
    }

    /// Returns the CPUs of a guest's vCPUs by its hold, or by a plan if it has none.
    ///
    /// # Errors
    /// It gets no cores, or not now.
    pub fn pins(&self, name: &str, guest: &GuestShape) -> Result<VcpuPins> {
        if let Some(kept) = self.kept(name)?.into_iter().next() {
            return Ok(vcpu_pins(&self.machine, &kept.cpus, &kept.reserved, guest));
        }
        match guest_need(&self.config.rule(name), guest, &self.machine).map_err(|cause| anyhow!(cause))? {
            GuestNeed::Alone(reason) => bail!("{reason}"),
            GuestNeed::Cores { request, .. } => {
                let plan = request.plan(&self.world)?.placement;
                Ok(vcpu_pins(&self.machine, &plan.mask, &plan.hold, guest))
            }
        }
    }

    /// Returns the nodes of CPUs, as a list; empty on a machine without nodes.
    pub fn nodes(&self, cpus: &CpuSet) -> String {
        self.machine.nodes_of(cpus).to_string()
    }

    fn bind(&self, vm: &VirtualMachine, pins: &VcpuPins) -> Result<()> {
        // One thread runs all vCPUs of some emulators.
        let is_one = vm.vcpus.len() == 1;
        let mask = |index: usize| match pins.vcpus.get(index) {
            Some(own) if !is_one => own.clone(),
            _ => pins.all.clone(),
        };
        let indices = vm.vcpus.iter().filter_map(|vcpu| Some((vcpu.tid, mask(vcpu.index? as usize))));
        let masks: BTreeMap<Tid, CpuSet> = indices.collect();
        let rule = |thread: &Bound| {
            let mask = masks.get(&thread.tid).unwrap_or(&pins.rest);
            (thread.mask != *mask).then(|| mask.clone())
        };
        rebind(&self.world.proc(), &|| vec![vm.pid], &rule)?;
        Ok(())
    }

    /// Confines the memory of a guest to the nodes of its CPUs if its rule wants that, and says
    /// where the memory comes from.
    fn confine_memory(&self, process: Pid, rule: &GuestRule, cpus: &CpuSet) -> String {
        let local = "memory: from the node of the vCPU that first touches it";
        if !is_memory_bound(rule) {
            return local.to_owned();
        }
        let nodes = self.nodes(cpus);
        match guest_cgroup(&self.world, process).and_then(|folder| {
            let file = folder.join("cpuset.mems");
            fs::write(&file, format!("{nodes}\n")).with_context(|| format!("cannot write {}", file.display()))
        }) {
            Ok(()) => format!("memory: nodes {nodes} only"),
            Err(cause) => format!("{local}; it cannot be confined to nodes {nodes}: {cause:#}"),
        }
    }
}

/// Returns whether a rule wants the memory of its guests on the nodes of their CPUs only.
pub(crate) fn is_memory_bound(rule: &GuestRule) -> bool {
    let settings = rule.settings.as_deref().and_then(|text| text.parse::<Setting>().ok());
    settings.is_some_and(|settings| settings.get(Knob::Memory) == Some("bind"))
}

/// Reads the rules of the site for guests.
///
/// # Errors
/// The file cannot be read or used.
pub fn configuration(world: &World, file: Option<&Path>) -> Result<HookConfig> {
    let beside = || world.config().into_iter().map(|folder| folder.join(CONFIG)).find(|path| path.exists());
    let Some(path) = file.map(Path::to_owned).or_else(beside) else { return Ok(HookConfig::default()) };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().map_err(|cause| anyhow!("{}: {cause}", path.display()))
}

/// Returns the control group of a guest's own.
fn guest_cgroup(world: &World, process: Pid) -> Result<PathBuf> {
    let file = world.proc().join(format!("{process}/cgroup"));
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).and_then(own_group);
    let own = own.context("it has no control group of version 2 of its own")?;
    Ok(world.sys().join("fs/cgroup").join(own))
}

/// Returns the part of a control group's path that ends with the group of one guest: libvirt's
/// scope of the machine, its group where systemd does not run, or the scope of its number in
/// `qemu.slice` of Proxmox VE.
fn own_group(path: &str) -> Option<PathBuf> {
    let mut own = PathBuf::new();
    let mut parent = "";
    for part in path.split('/').filter(|part| !part.is_empty() && *part != "..") {
        own.push(part);
        let is_scope =
            part.ends_with(".scope") && (part.starts_with("machine-qemu") || parent == "qemu.slice");
        let is_group = part.starts_with("qemu-") && part.ends_with(".libvirt-qemu");
        if is_scope || is_group {
            return Some(own);
        }
        parent = part;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_guest_is_part_of_its_process_group() {
        for (path, expected) in [
            (
                r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator",
                Some(r"machine.slice/machine-qemu\x2d1\x2dweb.scope"),
            ),
            ("/qemu.slice/100.scope", Some("qemu.slice/100.scope")),
            ("/machine/qemu-1-web.libvirt-qemu/vcpu0", Some("machine/qemu-1-web.libvirt-qemu")),
            ("/machine/qemu-1-web", None),
            ("/system.slice/incus.service", None),
            ("/user.slice/session-1.scope", None),
            ("/", None),
            ("/../machine-qemu-1.scope/x", Some("machine-qemu-1.scope")),
        ] {
            assert_eq!(own_group(path), expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn memory_is_confined_where_the_rule_says_so() {
        let rule = |settings: &str| GuestRule { settings: Some(settings.to_owned()), ..GuestRule::default() };
        assert!(is_memory_bound(&rule("smt=all memory=bind")));
        assert!(!is_memory_bound(&rule("memory=local")) && !is_memory_bound(&GuestRule::default()));
    }

    #[test]
    fn the_rules_of_the_site_are_beside_its_others() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().to_str().unwrap();
        let world = World::of([("TRIMTAB_CONFIG".into(), text.into())].into_iter().collect());
        assert_eq!(configuration(&world, None).unwrap(), HookConfig::default());
        fs::write(folder.path().join(CONFIG), "[[guest]]\nname = \"*\"\nrequired = true\n").unwrap();
        assert!(configuration(&world, None).unwrap().rule("web").required);
        fs::write(folder.path().join(CONFIG), "nonsense").unwrap();
        let said = format!("{:#}", configuration(&world, None).unwrap_err());
        assert!(said.contains("hook.toml"), "{said}");
        assert!(configuration(&world, Some(Path::new("/nowhere/hook.toml"))).is_err());
    }
}

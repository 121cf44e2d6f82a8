//! Cores for containers and virtual machines, for an engine's plug-in.
//!
//! Problem: an engine asks for the cores of a container before the container has a process, and
//! the plug-in may be killed at any time. Idea: a keeper has the hold from the first moment. Until
//! the container is started, the keeper waits for the end of the engine; then a second keeper, of
//! the container's first process, gets the same hold (`hand_over`). Both have a note of the
//! container, by which a plug-in that was started again finds the hold ([`kept`]).
//!
//! Properties: at no instant between the reservation and the end of the container are its cores
//! free, whatever is killed, except if the engine is killed before the container is started. No
//! mask is set: the engine confines the container. Holds of virtual machines are made, found and
//! handed over in the same way, with QEMU as the first process; a plug-in for containers does not
//! see them.

use crate::cores::CoresRequest;
use crate::delegate::holder;
use crate::facts::{facts, look_at_memory, set_libraries};
use crate::ranks::{position, without_options};
use crate::reserve::{ReserveError, ReserveOptions, reserve};
use crate::select::open;
use crate::site_facts::Situation;
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;
use trimtab_core::place::{MemoryPlan, rank_variables};
use trimtab_core::set::CpuSet;
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_launch::request::variables_of_hold;
use trimtab_launch::{Environment, LaunchRequest, Sources, decide};
use trimtab_linux::keeper::{ARGUMENT, ContainerNote, Description, WatchedTarget, description};
pub use trimtab_linux::keeper::{EngineTask, Target};
use trimtab_linux::ledger::{Hold, Holder, Ledger, Level, ProcessTable};
pub use trimtab_linux::process::Pid;
use trimtab_linux::process::{self};

/// Beginning of variables that steer trimtab itself. Those of a container are not meant for the
/// plug-in.
const OWN_VARIABLES: &str = "TRIMTAB_";
/// Beginning of argument 0 of a keeper.
const KEEPER: &[u8] = b"trimtab: keeper of ";

/// Cores wanted for a container that will be started.
pub struct ContainerRequest<'a> {
    /// The cores, with the label for `trimtab ps`. There is no wait: the engine tries again.
    pub cores: CoresRequest,
    /// What the engine starts.
    pub kind: EngineTask,
    /// The engine's number of the container, or its name of the guest.
    pub id: &'a str,
    /// Environment of the container.
    pub environment: Environment,
    /// Limit of CPU time in thousandths of a CPU.
    pub quota: Option<u32>,
    /// Whether these CPUs may be taken; the error is the reason of the refusal.
    pub accept: &'a dyn Fn(&CpuSet) -> Result<(), String>,
    /// Whether the caller still waits for the answer.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// Cores that are held for a container.
#[derive(Clone, PartialEq, Debug)]
pub struct ContainerCores {
    /// CPUs on which the container may run.
    pub cpus: CpuSet,
    /// CPUs that are reserved, which include the idle hardware threads of the cores.
    pub reserved: CpuSet,
    /// Memory policy.
    pub memory: MemoryPlan,
    /// Number of threads that its program should use.
    pub threads: u32,
    /// Variables for its program: `None` removes one.
    pub environment: BTreeMap<String, Option<String>>,
    /// Why these CPUs were chosen.
    pub reasons: Vec<String>,
    /// Warnings about the machine and the site's files.
    pub warnings: Vec<String>,
}

/// A hold of a container, as its keeper has it.
#[derive(Clone, Debug)]
pub struct KeptContainer {
    /// The engine's number of the container, or its name of the guest.
    pub id: String,
    kind: EngineTask,
    /// CPUs on which the container may run.
    pub cpus: CpuSet,
    /// CPUs that are reserved.
    pub reserved: CpuSet,
    /// The process that frees the cores by its end: the engine, or the container's first process.
    pub target: Target,
    keeper: Pid,
    hold: Hold,
}

/// Why a hold was not handed over.
#[derive(Debug, Error)]
pub enum HandOverError {
    /// The engine named a process that is not of the container.
    #[error("process {process} is in no control group of container {id}")]
    Stranger {
        /// The process.
        process: Pid,
        /// The engine's number of the container.
        id: String,
    },
    /// The process or the hold has ended, or the hold cannot be kept.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl ContainerRequest<'_> {
    /// Reserves cores, and leaves them with a keeper (`program` is `trimtab-lab`) until the engine
    /// ends, or the hold is handed over.
    ///
    /// # Errors
    /// Not enough free cores, a request that can never be met, or nothing can be reserved here.
    pub fn reserve(
        &self,
        world: &World,
        engine: Pid,
        program: &Path,
    ) -> Result<ContainerCores, ReserveError> {
        let watched = WatchedTarget::process(&world.proc(), engine).map_err(never)?;
        let ledger = open(world).map_err(never)?;
        let mut situation = Situation::live(world, self.cores.rules).map_err(ReserveError::Never)?;
        let request = self.request(world, &mut situation)?;
        let mut facts = facts(world, &situation, None, &[], Some(self.cores.survey), Some(&ledger));
        facts.bounds.quota = self.quota;
        set_libraries(&mut facts, Err("a container has files of its own".to_owned()));
        look_at_memory(world, &request, self.cores.survey, &mut facts);
        // Not the engine: what the engine starts is not in this hold.
        let own = ProcessTable::at(&world.proc()).this_process(0, Duration::ZERO, &self.cores.label);
        let holder = Holder { delegated: true, ..own.map_err(never)? };
        let order = ReserveOptions {
            grants: true,
            wait: None,
            label: &self.cores.label,
            tell: &|_| {},
            goes_on: self.goes_on,
            priority: 0,
            rules: situation.policy.site.queue(),
            holder: Some(holder),
        };
        let held =
            reserve(world, &request, &mut facts, &order, &mut Some(ledger)).map_err(|error| match error {
                ReserveError::NoCores(cause) => ReserveError::NoCores(without_options(&cause)),
                other => other,
            })?;
        let plan = decide(&request, &facts).map_err(ReserveError::of)?;
        let Some(held) = held else {
            let fault = facts.ledger.fault.unwrap_or_else(|| "they overlap other holds (share)".to_owned());
            return Err(never(anyhow!("the cores cannot be reserved for a container: {fault}")));
        };
        (self.accept)(held.cpus()).map_err(|cause| ReserveError::NoCores(anyhow!(cause)))?;
        if !(self.goes_on)() {
            return Err(ReserveError::Cancelled);
        }
        let changes = request.environment.changes(&plan.environment);
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let mut environment: BTreeMap<String, Option<String>> =
            changes.into_iter().map(|(name, value)| (name, value.and_then(text))).collect();
        if let Some(hold) = position(&held) {
            environment.extend(variables_of_hold(&request.environment, Some(hold)));
        }
        let reserved = held.cpus().clone();
        let cpus = plan.placement.mask.clone();
        let about = about((self.kind, self.id), watched.target(), &cpus);
        watched.keep(program, held, &about).map_err(never)?;
        let mut warnings = situation.warnings;
        warnings.extend(facts.ledger.private);
        let reasons = plan.placement.reasons.iter().map(ToString::to_string).collect();
        let (memory, threads) = (plan.placement.memory, plan.threads.value);
        Ok(ContainerCores { cpus, reserved, memory, threads, environment, reasons, warnings })
    }

    fn request(&self, world: &World, situation: &mut Situation) -> Result<LaunchRequest, ReserveError> {
        let mut options = self.cores.options.clone();
        let cpus = self.cores.cpus.as_ref().map(|names| situation.cpus(names)).transpose();
        options.cpus = cpus.map_err(ReserveError::of)?.or(options.cpus);
        let near = self.cores.near.as_ref().map(|name| situation.near(world, name)).transpose();
        options.near = near.map_err(ReserveError::of)?.or(options.near);
        let environment = without_steering(&self.environment);
        let site = situation.policy.site.clone();
        LaunchRequest::merge(Sources { options, site, environment, ..Sources::default() })
            .map_err(ReserveError::of)
    }
}

/// Returns a container's variables without those that number ranks, which would make it one of a
/// job on this machine, and without those that steer trimtab.
fn without_steering(environment: &Environment) -> Environment {
    let ranks: Vec<&str> = rank_variables().collect();
    let kept = environment.entries().filter(|(name, _)| {
        !name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes())
            && !ranks.iter().any(|rank| name.as_encoded_bytes() == rank.as_bytes())
    });
    kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn about((kind, id): (EngineTask, &str), target: &Target, cpus: &CpuSet) -> Description {
    let container = Some(ContainerNote { id: id.to_owned(), kind, cpus: cpus.clone() });
    Description { target: target.clone(), before: Vec::new(), usual: CpuSet::new(), cpuset: None, container }
}

fn never(cause: impl Into<anyhow::Error>) -> ReserveError {
    ReserveError::Never(cause.into())
}

/// Returns whether a process is a keeper, by its arguments: a keeper that has just been started has
/// not set its name yet.
fn is_container_keeper(proc: &Path, pid: Pid) -> bool {
    let line = std::fs::read(proc.join(format!("{pid}/cmdline"))).unwrap_or_default();
    let mut words = line.split(|&byte| byte == 0);
    words.next().is_some_and(|name| name.starts_with(KEEPER)) && words.next() == Some(ARGUMENT.as_bytes())
}

/// Returns whether a process with these control groups (`/proc/PID/cgroup`) is in the group of a
/// container. Engines name the group after the container: `ID`, or `ENGINE-ID.scope` where systemd
/// makes the groups.
fn is_in_container(groups: &str, id: &str) -> bool {
    let is_its = |name: &str| {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        name.strip_suffix(id).is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', ':']))
    };
    // `NUMBER:CONTROLLERS:PATH`
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    !id.is_empty() && paths.flat_map(|path| path.split('/')).any(is_its)
}

/// Returns the holds of containers of this user, by their keepers.
///
/// # Errors
/// The ledger or the list of processes cannot be read.
pub fn kept(world: &World) -> Result<Vec<KeptContainer>> {
    kept_of(world, EngineTask::Container)
}

/// Returns the holds of this user's virtual machines, as [`kept`].
///
/// # Errors
/// As [`kept`].
pub fn kept_guests(world: &World) -> Result<Vec<KeptContainer>> {
    kept_of(world, EngineTask::Guest)
}

fn kept_of(world: &World, kind: EngineTask) -> Result<Vec<KeptContainer>> {
    let (ledger, proc) = (open(world)?, world.proc());
    let machine = Which::Live.load(world)?.0.cpus();
    let holds = ledger.holders(Level::MACHINE, &machine).context("cannot read the holders")?.known;
    let own = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for keeper in process::all(&proc).context("cannot list the processes")? {
        let is_ours = || {
            is_container_keeper(&proc, keeper)
                && process::status(&proc, keeper).is_ok_and(|status| status.uid == own)
        };
        if !is_ours() {
            continue;
        }
        let Some((target, note)) =
            description(&proc, keeper).and_then(|about| Some((about.target, about.container?)))
        else {
            continue;
        };
        if note.kind != kind {
            continue;
        }
        let Ok(cpus) = ledger.held_by(keeper.0, Level::MACHINE, &machine) else { continue };
        // A keeper that has just ended has no locks.
        let Some(hold) = holds.iter().find(|hold| hold.cpus == cpus && !cpus.is_empty()) else { continue };
        let (hold, reserved) = (hold.clone(), cpus);
        found.push(KeptContainer { id: note.id, kind, cpus: note.cpus, reserved, target, keeper, hold });
    }
    Ok(found)
}

impl KeptContainer {
    /// Hands the hold over to the container's first process: it lasts until that process ends. A
    /// process outside of the container's control groups gets none, whatever the engine says: the
    /// hold would last as long as that process.
    ///
    /// # Errors
    /// There is no such process any more, it is not of the container, or the hold has ended. The
    /// hold is as before.
    pub fn hand_over(&self, world: &World, first: Pid, program: &Path) -> Result<(), HandOverError> {
        // The process is watched before its groups are read, so they are its own.
        let watched = WatchedTarget::process(&world.proc(), first).map_err(anyhow::Error::new)?;
        if *watched.target() == self.target {
            return Ok(());
        }
        if self.kind == EngineTask::Container {
            let groups = std::fs::read_to_string(world.proc().join(format!("{first}/cgroup")));
            if !watched.has_ended() && !groups.is_ok_and(|groups| is_in_container(&groups, &self.id)) {
                return Err(HandOverError::Stranger { process: first, id: self.id.clone() });
            }
        }
        Ok(self.pass_to(world, watched, program)?)
    }

    fn pass_to(&self, world: &World, watched: WatchedTarget, program: &Path) -> Result<()> {
        let ledger: Ledger = open(world)?;
        let mut borrowed = ledger.borrow_from(&[self.keeper.0], &self.hold)?;
        let mut holder = holder(world, watched.target(), &self.hold.holder.label)?;
        holder.since = self.hold.holder.since;
        holder.memory = self.hold.holder.memory.clone();
        // Only a name is lost if this fails.
        let _ = borrowed.rename(&ledger, holder);
        let about = about((self.kind, &self.id), watched.target(), &self.cpus);
        watched.keep_copy(program, borrowed.into_file(), &about)?;
        self.end(world)
    }

    /// Ends the keeper, and its hold if no other keeper has it.
    ///
    /// # Errors
    /// It cannot be ended.
    pub fn end(&self, world: &World) -> Result<()> {
        let number = i32::try_from(self.keeper.0).ok().and_then(rustix::process::Pid::from_raw);
        let Some(number) = number else { bail!("{} is no process", self.keeper) };
        let Ok(keeper) = pidfd_open(number, PidfdFlags::empty()) else { return Ok(()) };
        if !is_container_keeper(&world.proc(), self.keeper) {
            return Ok(()); // it ended, and the number is another process's
        }
        match pidfd_send_signal(&keeper, Signal::TERM) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => {
                Err(anyhow::Error::new(error).context(format!("keeper {} cannot be ended", self.keeper)))
            }
        }
    }

    /// Returns the number of the hold, which `resize` and `release` take.
    pub fn number(&self) -> String {
        self.hold.id.name()
    }

    /// Returns whether the hold lasts until the end of this process.
    pub fn is_of(&self, pid: Pid) -> bool {
        matches!(&self.target, Target::Process { pid: of, .. } if *of == pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use trimtab_core::place::local_rank;

    #[test]
    fn a_process_is_in_a_container_by_a_group_that_is_named_after_it() {
        let of = |path: &str| is_in_container(&format!("3:cpu:/a\n0::{path}\n"), "4f1c");
        for own in [
            "/kubepods/burstable/podx/4f1c",
            "/kubepods.slice/kubepods-podx.slice/cri-containerd-4f1c.scope",
            "/../../kubepods-podx.slice/crio-4f1c.scope/container",
            "/system.slice/kubepods-podx.slice:cri-containerd:4f1c",
        ] {
            assert!(of(own), "{own}");
        }
        for other in ["/", "/init.scope", "/a/04f1c", "/a/4f1c0", "/a/x-4f1c.service", "/a/.scope", ""] {
            assert!(!of(other), "{other}");
        }
        assert!(!is_in_container("0::/a//b/.scope\n", ""), "an engine that names no container");
    }

    #[test]
    fn a_containers_variables_neither_number_ranks_nor_steer_trimtab() {
        let variables = [
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("TRIMTAB_LEDGER", "/elsewhere"),
            ("OMP_NUM_THREADS", "7"),
        ];
        let all: Environment =
            variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        let left = without_steering(&all);
        assert!(
            local_rank(&|name| all.text(name)).is_some() && local_rank(&|name| left.text(name)).is_none()
        );
        assert_eq!((left.text("TRIMTAB_LEDGER"), left.text("OMP_NUM_THREADS").as_deref()), (None, Some("7")));
    }
}

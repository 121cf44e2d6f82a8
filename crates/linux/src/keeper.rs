//! Keeper: a small process that keeps a hold for a process or a control group that runs already.
//!
//! **Problem.** A hold lasts as long as a process has its descriptor. A process that runs already
//! cannot be given one, and the caller that reserves for it may end first.
//!
//! **Idea.** A process of its own has the descriptor, and waits for the end of the target: the
//! process's pidfd becomes readable, or `cgroup.events` of the control group says that it is empty.
//! Then it ends, and the kernel gives the cores back. A record that each reader validates would
//! need no process, but every reader of every version would have to know it, a reader that cannot
//! see the target (another user, a container) could not validate it, and it could outlive its
//! target.
//!
//! **Properties.** The keeper is started before any mask is set. It is not a child of the caller,
//! has a session of its own, and three descriptors: the hold (0), the end of the target (1), and a
//! description of the hold for later commands (2). It makes no decision and writes nothing. SIGTERM
//! ends the hold. A keeper that is killed ends the hold too; the masks of the target stay, so later
//! runs that survey the machine see bound threads there.

use crate::ledger::Held;
use crate::process::{self, Pid, StartTime};
use crate::sys::orphan;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{PTracer, PidfdFlags, pidfd_open, set_ptracer};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thiserror::Error;
use trimtab_core::set::CpuSet;

/// The only argument of a keeper.
pub const ARGUMENT: &str = "keep";
/// Name of a keeper's process, and of a process that waits with a hold of its own.
pub const COMM: &str = "trimtab-keeper";
/// Argument 0 of a keeper.
const NAME: &str = "trimtab: keeper of ";
/// Most bytes of a description that are read: 30,000 threads.
const DESCRIPTION_MAX: u64 = 4 << 20;
/// Number of the descriptor of a keeper's description.
const DESCRIPTION: i32 = 2;

/// Target of a delegated hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A process, with its start, which distinguishes it from a later one with its number.
    Process {
        /// The process.
        pid: Pid,
        /// Its start.
        start: StartTime,
    },
    /// A control group (version 2), by its folder.
    Cgroup(PathBuf),
}

/// Contents of a keeper's description.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The target.
    pub target: Target,
    /// Masks of the target's threads before the hold: thread, its start, its mask.
    pub before: Vec<(u32, u64, CpuSet)>,
    /// Mask for threads that are not listed.
    pub usual: CpuSet,
    /// Text of the control group's own list of CPUs before, if the hold changed it.
    pub cpuset: Option<String>,
    /// The container for which the hold is, if an engine's plug-in made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerNote>,
}

/// What an engine runs on cores that are held for it. A plug-in cares for the holds of its own kind
/// only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineTask {
    /// A container.
    #[default]
    Container,
    /// A virtual machine.
    Guest,
}

/// What a plug-in notes of a container's hold, and reads when it is started again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerNote {
    /// The engine's number of the container, or its name of the guest.
    pub id: String,
    /// What the engine runs.
    #[serde(default)]
    pub kind: EngineTask,
    /// CPUs on which the container may run.
    pub cpus: CpuSet,
}

/// Why a target cannot be kept.
#[derive(Debug, Error)]
pub enum TargetError {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// The number belongs to another process now.
    #[error("process {pid} has ended, and its number belongs to another process now")]
    Reused {
        /// Its number.
        pid: u32,
    },
    /// It belongs to another user.
    #[error(
        "process {pid} belongs to another user (uid {uid}): only that user and root can reserve cores for it"
    )]
    NotYours {
        /// The process.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// The folder is not a control group.
    #[error("{path} is not a control group of version 2: it has no readable cgroup.events ({source})")]
    NoCgroup {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The control group has no processes.
    #[error("control group {path} has no processes")]
    Empty {
        /// Its folder.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{attempt}: {source}")]
    System {
        /// What was tried.
        attempt: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// A target, with the descriptor that shows its end.
#[derive(Debug)]
pub struct WatchedTarget {
    target: Target,
    end: OwnedFd,
}

impl WatchedTarget {
    /// Watches a process: the one that has this number now.
    ///
    /// # Errors
    /// It has ended, or belongs to another user.
    pub fn process(proc: &Path, pid: Pid) -> Result<Self, TargetError> {
        let gone = || TargetError::NoProcess { pid: pid.0 };
        let number = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(gone)?;
        let end = pidfd_open(number, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH | Errno::INVAL => gone(),
            error => TargetError::System { attempt: "cannot watch the process", source: error.into() },
        })?;
        Self::of_pidfd(proc, pid, end)
    }

    /// Watches the process of a pidfd that has this number.
    ///
    /// # Errors
    /// As [`Self::process`].
    pub fn of_pidfd(proc: &Path, pid: Pid, end: OwnedFd) -> Result<Self, TargetError> {
        let gone = || TargetError::NoProcess { pid: pid.0 };
        let stat = process::stat(proc, pid).map_err(|_| gone())?;
        let status = process::status(proc, pid).map_err(|_| gone())?;
        // The process lives after its entry was read, so the entry is its own.
        if has_ended(end.as_fd()) {
            return Err(gone());
        }
        let own = rustix::process::getuid();
        if !rustix::process::geteuid().is_root() && status.uid != own.as_raw() {
            return Err(TargetError::NotYours { pid: pid.0, uid: status.uid });
        }
        Ok(Self { target: Target::Process { pid, start: stat.start }, end })
    }

    /// Watches a control group of version 2.
    ///
    /// # Errors
    /// The folder is none, it has no processes, or one belongs to another user.
    pub fn cgroup(proc: &Path, folder: &Path) -> Result<Self, TargetError> {
        let refused = |source| TargetError::NoCgroup { path: folder.to_owned(), source };
        let path = folder.canonicalize().map_err(refused)?;
        let mut events = File::open(path.join("cgroup.events")).map_err(refused)?;
        if !is_populated(&mut events).map_err(refused)? {
            return Err(TargetError::Empty { path });
        }
        let own = rustix::process::getuid();
        for pid in cgroup_processes(&path) {
            let uid = process::status(proc, pid).ok().map(|status| status.uid);
            if let Some(uid) = uid.filter(|uid| !own.is_root() && *uid != own.as_raw()) {
                return Err(TargetError::NotYours { pid: pid.0, uid });
            }
        }
        Ok(Self { target: Target::Cgroup(path), end: events.into() })
    }

    /// Returns the target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns whether the target has ended.
    pub fn has_ended(&self) -> bool {
        match &self.target {
            Target::Process { .. } => has_ended(self.end.as_fd()),
            Target::Cgroup(path) => !File::open(path.join("cgroup.events"))
                .is_ok_and(|mut file| is_populated(&mut file).unwrap_or(false)),
        }
    }

    /// Starts a keeper, which is this file of `trimtab-lab`. From then on it has the hold: this
    /// process gives up its part.
    ///
    /// # Errors
    /// It cannot be started; the hold is given back.
    pub fn keep(self, program: &Path, held: Held, description: &Description) -> Result<(), TargetError> {
        let copy = held.copy().map_err(|error| TargetError::System {
            attempt: "cannot keep the hold",
            source: io::Error::other(error),
        })?;
        self.keep_copy(program, copy, description)?;
        held.close();
        Ok(())
    }

    /// Starts a keeper with a copy of a hold's descriptor, for a hold that passes from one keeper
    /// to another. The keeper has its name when this returns, so its hold can be released.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn keep_copy(
        self,
        program: &Path,
        copy: OwnedFd,
        description: &Description,
    ) -> Result<(), TargetError> {
        let system = |attempt| move |source| TargetError::System { attempt, source };
        let about = describe(description).map_err(system("cannot describe the hold"))?;
        let name = match &self.target {
            Target::Process { pid, .. } => format!("{NAME}process {pid}"),
            Target::Cgroup(path) => format!("{NAME}{}", path.display()),
        };
        let mut command = Command::new(program);
        command.arg0(name).arg(ARGUMENT).env_clear().current_dir("/");
        command.stdin(Stdio::from(copy)).stdout(Stdio::from(self.end)).stderr(Stdio::from(about));
        orphan::spawn_ready(command).map_err(system("cannot start a keeper"))?;
        Ok(())
    }
}

/// Makes the file of a description.
fn describe(description: &Description) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("trimtab-hold", MemfdFlags::CLOEXEC)?);
    file.write_all(serde_json::to_string(description)?.as_bytes())?;
    Ok(file.into())
}

/// Reads the description of a keeper, which that process's user may have written.
pub fn description(proc: &Path, keeper: Pid) -> Option<Description> {
    let file = File::open(proc.join(format!("{keeper}/fd/{DESCRIPTION}"))).ok()?;
    // Not a pipe or a device, which could keep the reader waiting.
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut text = String::new();
    file.take(DESCRIPTION_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns whether a process is a keeper, or waits with a hold of its own, by its name.
pub fn is_keeper(proc: &Path, pid: Pid) -> bool {
    process::stat(proc, pid).is_ok_and(|stat| stat.comm == COMM)
}

/// Gives this process the name of keepers, by which `trimtab release` knows it.
pub fn take_name() {
    // A name that cannot be set costs the command `release`, which says that the process is no
    // keeper.
    let _ = rustix::thread::set_name(c"trimtab-keeper");
}

/// Returns the processes of a control group and those below it.
pub fn cgroup_processes(folder: &Path) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| line.parse().ok()).map(Pid));
        let below = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        // `file_type` does not follow links.
        folders.extend(
            below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
    found.sort_unstable();
    found
}

/// Returns whether the text of `cgroup.events` says that there are processes. A group that was
/// removed has none.
fn is_populated(events: &mut File) -> io::Result<bool> {
    use std::io::{Seek, SeekFrom};
    let mut text = String::new();
    events.seek(SeekFrom::Start(0))?;
    match events.read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => return Ok(false),
        Err(error) => return Err(error),
    }
    let line = text.lines().find_map(|line| line.strip_prefix("populated "));
    line.map(|value| value.trim() != "0").ok_or_else(|| io::Error::other("no line `populated`"))
}

fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::new(&pidfd, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut set, Some(&now)), Ok(1..))
}

/// The life of a keeper: descriptors 0 to 2 are those that [`WatchedTarget::keep`] gave it.
///
/// # Errors
/// The end of the target cannot be watched.
pub fn run() -> io::Result<()> {
    take_name();
    // Yama would keep other processes of the user from copying the hold's descriptor, which is how
    // the hold is resized. Without Yama this is an error that does not matter.
    let _ = set_ptracer(PTracer::Any);
    orphan::close_from(3)?;
    let end = io::stdout();
    let mut events = File::from(end.as_fd().try_clone_to_owned()?);
    let is_cgroup = events.metadata().is_ok_and(|meta| meta.is_file());
    loop {
        if is_cgroup && !is_populated(&mut events)? {
            return Ok(());
        }
        let flags = if is_cgroup { PollFlags::PRI } else { PollFlags::IN };
        match poll(&mut [PollFd::new(&end, flags)], None) {
            Ok(_) if !is_cgroup => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_control_group_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cgroup.events");
        for (text, populated) in
            [("populated 1\nfrozen 0\n", Some(true)), ("frozen 0\npopulated 0\n", Some(false)), ("", None)]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_populated(&mut File::open(&path).unwrap()).ok(), populated, "{text}");
        }
    }

    #[test]
    fn processes_of_groups_below_belong_to_a_group_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (top, elsewhere) = (folder.path().join("top"), folder.path().join("elsewhere"));
        for (path, text) in [(&top, "7\n"), (&top.join("a"), "5\n6\n"), (&elsewhere, "9\n")] {
            std::fs::create_dir_all(path).unwrap();
            std::fs::write(path.join("cgroup.procs"), text).unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, top.join("link")).unwrap();
        assert_eq!(cgroup_processes(&top), [Pid(5), Pid(6), Pid(7)]);
    }

    #[test]
    fn a_process_that_has_ended_or_is_another_users_cannot_be_watched() {
        let proc = Path::new("/proc");
        assert!(!WatchedTarget::process(proc, Pid::own()).unwrap().has_ended());
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid(child.id());
        child.wait().unwrap();
        assert!(matches!(WatchedTarget::process(proc, pid), Err(TargetError::NoProcess { .. })));
        for number in [0, u32::MAX] {
            assert!(matches!(WatchedTarget::process(proc, Pid(number)), Err(TargetError::NoProcess { .. })));
        }
        if !rustix::process::geteuid().is_root() {
            assert!(matches!(
                WatchedTarget::process(proc, Pid(1)),
                Err(TargetError::NotYours { uid: 0, .. })
            ));
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(WatchedTarget::cgroup(proc, folder.path()), Err(TargetError::NoCgroup { .. })));
    }

    #[test]
    fn a_description_is_read_from_files_only() {
        assert_eq!(description(Path::new("/proc"), Pid(u32::MAX)), None);
        let about = Description {
            target: Target::Process { pid: Pid(7), start: StartTime(8) },
            before: vec![(7, 8, "0-3".parse().unwrap())],
            usual: "0-3".parse().unwrap(),
            cpuset: None,
            container: Some(ContainerNote {
                id: "c1".into(),
                kind: EngineTask::Guest,
                cpus: "1".parse().unwrap(),
            }),
        };
        let file = describe(&about).unwrap();
        let own = std::os::fd::AsRawFd::as_raw_fd(&file);
        let text = std::fs::read_to_string(format!("/proc/self/fd/{own}")).unwrap();
        assert_eq!(serde_json::from_str::<Description>(&text).unwrap(), about);
    }
}

//! Roots of the watch: processes, threads, control groups and virtual machines, with their ends.

use super::vcpu_threads::VcpuWatch;
use crate::host::error::LiveError;
use crate::host::procfs;
use crate::process::{self, Pid, State, Tid, may_move_others};
use crate::text::ReadError;
use crate::vcpus::VirtualMachine;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, geteuid, pidfd_open, test_kill_process};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use trimtab_core::ids::ProgramId;

/// Root of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Root {
    /// A process and all its descendants.
    Tree(Pid),
    /// One thread of a process. The other threads and the process's children are only observed,
    /// since they may inherit its mask.
    Thread(Pid, Tid),
    /// All processes of a control group and of the groups below it.
    Cgroup(PathBuf),
    /// The CPUs of a virtual machine; the other threads of its process are not touched.
    Vm(Box<VirtualMachine>),
}

/// Number of a root, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RootId(pub(super) u32);

/// A root under watch.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) root: Root,
    /// The program of its threads.
    pub(super) program: ProgramId,
    /// If set, the root covers only threads of this user.
    pub(super) only: Option<u32>,
    pub(super) ended: bool,
    pub(super) ends: Option<OwnedFd>,
    /// Watcher of a virtual machine's CPUs.
    pub(super) vcpu_watch: Option<VcpuWatch>,
}

impl Watched {
    /// Checks whether the root can be watched. `signals` means that process numbers mean the same
    /// to the kernel; with `hands_off` no right to move threads is needed.
    pub(super) fn new(proc: &Path, root: &Root, signals: bool, hands_off: bool) -> Result<Self, LiveError> {
        let pid = match root {
            Root::Tree(pid) | Root::Thread(pid, _) => *pid,
            Root::Vm(vm) => vm.pid,
            Root::Cgroup(path) => {
                procfs::open_folder(path)
                    .map_err(|errno| LiveError::NoGroup { path: path.clone(), source: errno.into() })?;
                return Ok(Self::begin(root, None));
            }
        };
        if pid == Pid::own() {
            return Err(LiveError::Own(pid));
        }
        let kernel = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw).filter(|_| signals);
        // Opened before the process is read, so that both belong to the same process.
        let ends = kernel.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let missing = |error: ReadError| {
            let there = kernel.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM)));
            match error {
                error if error.is_gone() && there => LiveError::Hidden(pid),
                error if error.is_gone() => LiveError::NoProcess(pid),
                error if error.is_refused() => LiveError::Hidden(pid),
                error => error.into(),
            }
        };
        let stat = process::stat(proc, pid).map_err(missing)?;
        if stat.kernel_thread {
            return Err(LiveError::KernelThread(pid));
        }
        if stat.state == State::Zombie && stat.threads <= 1 {
            return Err(LiveError::Ended(pid));
        }
        let identity = process::identity(proc, pid).map_err(missing)?;
        if identity.process != pid {
            return Err(LiveError::Thread { thread: pid, process: identity.process });
        }
        if !hands_off && !identity.is(geteuid().as_raw()) && !may_move_others(proc) {
            return Err(LiveError::NotYours { pid, uid: identity.real });
        }
        let vcpu_watch = match root {
            Root::Vm(vm) if vm.start != stat.start => return Err(LiveError::NoProcess(pid)),
            Root::Vm(vm) => Some(VcpuWatch::begin(proc, vm)?),
            Root::Tree(_) | Root::Thread(..) | Root::Cgroup(_) => None,
        };
        Ok(Self { vcpu_watch, ..Self::begin(root, ends) })
    }

    fn begin(root: &Root, ends: Option<OwnedFd>) -> Self {
        Self { root: root.clone(), program: ProgramId(0), only: None, ended: false, ends, vcpu_watch: None }
    }

    /// Returns the single thread that the root covers; `None` for all.
    pub(super) fn thread(&self) -> Option<Tid> {
        match self.root {
            Root::Thread(_, tid) => Some(tid),
            Root::Tree(_) | Root::Cgroup(_) | Root::Vm(_) => None,
        }
    }
}

/// Returns whether a thread is this user's to move, by the kernel's rules. For a process, pass its
/// first thread.
pub(super) fn is_of(proc: &Path, pid: Pid, tid: Tid, uid: u32) -> bool {
    process::thread_identity(proc, pid, tid).is_ok_and(|identity| identity.is(uid))
}

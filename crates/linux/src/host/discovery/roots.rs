//! Roots of the watching: processes, threads, control groups and virtual machines, and whether they
//! have ended.

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

/// What is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Root {
    /// A process and all that come from it.
    Tree(Pid),
    /// One thread of a process; the others, and what comes of them, are only looked at, since they
    /// may inherit its mask.
    Thread(Pid, Tid),
    /// All processes of a control group and of those below it.
    Cgroup(PathBuf),
    /// The CPUs of a virtual machine; the other threads of its process are not touched.
    Vm(Box<VirtualMachine>),
}

/// A root's number, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RootId(pub(super) u32);

/// A root under watch.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) root: Root,
    /// The program that its threads are of.
    pub(super) program: ProgramId,
    /// Only threads of this user are meant.
    pub(super) only: Option<u32>,
    pub(super) ended: bool,
    pub(super) ends: Option<OwnedFd>,
    /// The lookout for a virtual machine's CPUs.
    pub(super) guests: Option<VcpuWatch>,
}

impl Watched {
    /// Looks whether it can be watched. `signals` says that numbers of processes mean the same to
    /// the kernel; with `hands_off` no right to move anything is needed.
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
        // Opened before the process is looked at, so that both mean the same one.
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
        let who = process::identity(proc, pid).map_err(missing)?;
        if who.process != pid {
            return Err(LiveError::Thread { thread: pid, process: who.process });
        }
        if !hands_off && !who.is(geteuid().as_raw()) && !may_move_others(proc) {
            return Err(LiveError::NotYours { pid, uid: who.real });
        }
        let guests = match root {
            Root::Vm(vm) if vm.start != stat.start => return Err(LiveError::NoProcess(pid)),
            Root::Vm(vm) => Some(VcpuWatch::begin(proc, vm)?),
            Root::Tree(_) | Root::Thread(..) | Root::Cgroup(_) => None,
        };
        Ok(Self { guests, ..Self::begin(root, ends) })
    }

    fn begin(root: &Root, ends: Option<OwnedFd>) -> Self {
        Self { root: root.clone(), program: ProgramId(0), only: None, ended: false, ends, guests: None }
    }

    /// The one thread that is meant; `None` for all.
    pub(super) fn thread(&self) -> Option<Tid> {
        match self.root {
            Root::Thread(_, tid) => Some(tid),
            Root::Tree(_) | Root::Cgroup(_) | Root::Vm(_) => None,
        }
    }
}

/// Whether a thread is this user's to move, as far as the kernel would say; of a process, its
/// first.
pub(super) fn is_of(proc: &Path, pid: Pid, tid: Tid, uid: u32) -> bool {
    process::thread_identity(proc, pid, tid).is_ok_and(|who| who.is(uid))
}

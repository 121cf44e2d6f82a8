//! What is watched, whether it may be, and when it has ended.

use crate::host::discovery;
use crate::host::discovery::members;
use crate::host::discovery::vcpu_threads::Watch;
use crate::host::error::LiveError;
use crate::host::procfs;
use crate::host::{Live, Stopper};
use crate::process::{self, Pid, State, Tid, may_move_others};
use crate::text::ReadError;
use crate::vcpus::VirtualMachine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, geteuid, pidfd_open, test_kill_process};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use trimtab_core::drive::Awake;
use trimtab_core::ids::ProgramId;
use trimtab_core::time::{Moment, Span};

/// What is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Root {
    /// A process and all that come from it.
    Tree(Pid),
    /// One thread of a process; the others, and what comes of them, are only looked at, since they may inherit its mask.
    Thread(Pid, Tid),
    /// All processes of a control group and of those below it.
    Cgroup(PathBuf),
    /// The CPUs of a virtual machine; the other threads of its process are not touched.
    Vm(Box<VirtualMachine>),
}

/// A root's number, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RootId(pub(in crate::host) u32);

/// Where the kernel cannot wake us when a process ends, we look so often. Chosen.
const LOOK: Span = Span::from_ms(100);
/// And so often where roots are tags.
const LOOK_AT_TAGS: Span = Span::from_ms(500);

/// A root under watch.
#[derive(Debug)]
pub(in crate::host) struct Watched {
    pub(in crate::host) root: Root,
    /// The program that its threads are of.
    pub(in crate::host) program: ProgramId,
    /// Only threads of this user are meant.
    pub(in crate::host) only: Option<u32>,
    /// Moves of its threads.
    pub(in crate::host) moves: u64,
    pub(in crate::host) ended: bool,
    pub(in crate::host) ends: Option<OwnedFd>,
    /// Who looks out for a virtual machine's CPUs.
    pub(in crate::host) guests: Option<Watch>,
}

impl Watched {
    /// Looks whether it can be watched. `signals` says that numbers of processes mean the same to the kernel; with `hands_off` no right
    /// to move anything is needed.
    pub(in crate::host) fn new(
        proc: &Path,
        root: &Root,
        signals: bool,
        hands_off: bool,
    ) -> Result<Self, LiveError> {
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
            Root::Vm(vm) => Some(Watch::begin(proc, vm)?),
            Root::Tree(_) | Root::Thread(..) | Root::Cgroup(_) => None,
        };
        Ok(Self { guests, ..Self::begin(root, ends) })
    }

    fn begin(root: &Root, ends: Option<OwnedFd>) -> Self {
        Self {
            root: root.clone(),
            program: ProgramId(0),
            only: None,
            moves: 0,
            ended: false,
            ends,
            guests: None,
        }
    }

    /// The one thread that is meant; `None` for all.
    pub(in crate::host) fn thread(&self) -> Option<Tid> {
        match self.root {
            Root::Thread(_, tid) => Some(tid),
            Root::Tree(_) | Root::Cgroup(_) | Root::Vm(_) => None,
        }
    }
}

/// Whether a thread is this user's to move, as far as the kernel would say; of a process, its first.
pub(in crate::host) fn is_of(proc: &Path, pid: Pid, tid: Tid, uid: u32) -> bool {
    process::thread_identity(proc, pid, tid).is_ok_and(|who| who.is(uid))
}

/// Whether a process lives, as far as can be seen.
fn lives(proc: &Path, pid: Pid) -> bool {
    process::stat(proc, pid).is_ok_and(|stat| stat.state != State::Zombie)
}

impl Live {
    fn over(&mut self) -> bool {
        // Of tags there may be thousands that the kernel wakes us for none of.
        let now = self.clock.now();
        let looks = !self.options.tags || self.blind_at.is_none_or(|at| now.since(at) >= LOOK_AT_TAGS);
        if looks {
            self.blind_at = Some(now);
        }
        for (id, watched) in &mut self.roots {
            let pid = match &watched.root {
                Root::Tree(pid) => *pid,
                Root::Thread(pid, tid) => {
                    watched.ended |= self.table.has_ended(*pid, *tid);
                    *pid
                }
                Root::Vm(vm) => vm.pid,
                // As long as one of its members lives it need not be listed.
                Root::Cgroup(_) if self.table.member_of(*id).is_some_and(|pid| lives(&self.proc, pid)) => {
                    watched.ended = false;
                    continue;
                }
                // Also a group that was removed has no members.
                Root::Cgroup(path) => {
                    // One that is empty may be filled again, for whoever stays.
                    watched.ended = !self.options.tags
                        && members::group_members(path).is_ok_and(|members| members.is_empty());
                    watched.ended |= !path.exists();
                    continue;
                }
            };
            if !watched.ended && watched.ends.is_none() && looks {
                // A later process with the number is not told apart here, but by the table, which then has no threads.
                watched.ended = match process::stat(&self.proc, pid) {
                    Ok(stat) => stat.state == State::Zombie && stat.threads <= 1,
                    Err(error) => discovery::is_gone(&error),
                };
            }
        }
        !self.options.tags && self.roots.values().all(|watched| watched.ended)
    }

    /// Sleeps until a moment, or until all roots have ended, or until it is stopped.
    pub(in crate::host) fn wait_until(&mut self, until: Moment) -> Result<Awake, LiveError> {
        let begin = self.clock.now();
        loop {
            if self.over() {
                return Ok(Awake::Over);
            }
            let left = until.since(self.clock.now());
            let unseen = |watched: &Watched| !watched.ended && watched.ends.is_none();
            let blind = !self.options.tags && self.roots.values().any(unseen);
            let nap = if blind { left.min(LOOK) } else { left };
            if self.nap(nap)? {
                return Ok(Awake::Over);
            }
            let now = self.clock.now();
            if now >= until {
                if self.over() {
                    return Ok(Awake::Over);
                }
                let late = now.since(until);
                self.latest = self.latest.max(late);
                let interval = until.since(begin);
                self.late += u64::from(interval > Span::ZERO && late.0 > interval.0.saturating_mul(10));
                return Ok(Awake::Due);
            }
        }
    }

    /// Sleeps so long, or until something ends. Whether we were stopped.
    fn nap(&mut self, nap: Span) -> Result<bool, LiveError> {
        let stopper: &Stopper = &self.stopper;
        let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(stopper, PollFlags::IN)];
        let mut watched: Vec<RootId> = Vec::new();
        for (id, root) in self.roots.iter().filter(|(_, root)| !root.ended) {
            if let Some(ends) = &root.ends {
                waited.push(PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN));
                watched.push(*id);
            }
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(nap.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nap.0 % 1_000_000_000).unwrap_or(0),
        };
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(LiveError::System { attempt: "waiting", source: errno.into() });
            }
        }
        let ready: Vec<bool> = waited.iter().map(|waited| !waited.revents().is_empty()).collect();
        drop(waited);
        for (id, ready) in watched.into_iter().zip(ready.iter().skip(1)) {
            if let Some(root) = self.roots.get_mut(&id) {
                root.ended |= ready;
            }
        }
        Ok(ready[0])
    }
}

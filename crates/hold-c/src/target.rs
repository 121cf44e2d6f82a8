//! Target of a hold for others, as a C program states it.

use crate::code::Failure;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::path::Path;
use trimtab_front::process_env::World;
use trimtab_hold::delegate::{Pid, WatchedTarget};

/// `struct trimtab_cores_target` of `trimtab.h`, field by field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TargetOf {
    /// Size of the structure in bytes.
    pub size: usize,
    /// Kind of the target: a process, a pidfd, a control group.
    pub kind: u32,
    /// The process, or the descriptor.
    pub number: c_int,
    /// Folder of the control group.
    pub cgroup: *const c_char,
}

const PROCESS: u32 = 1;
const PIDFD: u32 = 2;
const CGROUP: u32 = 3;

/// Sizes of the structure in all versions so far.
const SIZES: [usize; 1] = [size_of::<TargetOf>()];

/// Finds the target of a caller's structure.
///
/// # Safety
/// `from` is null, or valid for reading a size, and then as many bytes, if it is that of a version;
/// its text is null or ends with a zero byte; a descriptor stays open during the call.
pub(crate) unsafe fn watch(world: &World, from: *const TargetOf) -> Result<WatchedTarget, Failure> {
    Failure::unless(!from.is_null(), "no target is described")?;
    // SAFETY: not null, and so the structure's first field by the caller's promise.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    Failure::unless(
        SIZES.contains(&size),
        "struct trimtab_cores_target has another size than in this library: set its first field to its size",
    )?;
    // SAFETY: it has the size of a version of the structure.
    let target = unsafe { from.read_unaligned() };
    let proc = world.proc();
    let watched = match target.kind {
        PROCESS => {
            let pid = u32::try_from(target.number).map_err(|_| Failure::argument("the PID is negative"))?;
            WatchedTarget::process(&proc, Pid(pid))
        }
        PIDFD => {
            Failure::unless(target.number >= 0, "the descriptor of the process is negative")?;
            // SAFETY: not negative, and open during the call by the caller's promise.
            let pidfd = unsafe { BorrowedFd::borrow_raw(target.number) };
            let copy =
                pidfd.try_clone_to_owned().map_err(|error| Failure::system(format!("pidfd: {error}")))?;
            let pid = pid_of(target.number).ok_or_else(|| {
                Failure::argument(format!("descriptor {} is no pidfd of a living process", target.number))
            })?;
            WatchedTarget::of_pidfd(&proc, pid, copy)
        }
        CGROUP => {
            Failure::unless(!target.cgroup.is_null(), "there is no folder of a control group")?;
            // SAFETY: not null, and so a text by the caller's promise.
            let folder = unsafe { CStr::from_ptr(target.cgroup) };
            let folder = folder.to_str().map_err(|_| Failure::argument("the folder is no UTF-8"))?;
            WatchedTarget::cgroup(&proc, Path::new(folder))
        }
        kind => return Err(Failure::argument(format!("there is no kind of target {kind}"))),
    };
    watched.map_err(Failure::unread)
}

/// Returns the process of a pidfd.
fn pid_of(descriptor: c_int) -> Option<Pid> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim();
    pid.parse().ok().filter(|&pid| pid > 0).map(Pid)
}

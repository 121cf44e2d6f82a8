//! New masks for all threads of running processes, until none has an old one.
//!
//! A thread that is made while masks are set inherits the mask of its creator, old or new. So the
//! threads are listed again until two passes in a row find nothing to change: a thread that the
//! first of them missed was made by a thread that had its new mask by then.

use crate::process::{self, Pid, StartTime, Tid};
use crate::sys::affinity;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::Path;
use thiserror::Error;
use trimtab_core::set::CpuSet;

/// Most passes. Chosen: a pass follows every thread that was made during the one before; a program
/// that makes threads faster than masks are set for so long is one that does nothing else.
const PASSES_MAX: u32 = 1_000;

/// A thread and its mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Its start.
    pub start: StartTime,
    /// The CPUs on which it may run.
    pub mask: CpuSet,
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebound {
    /// Threads that got a new mask.
    pub changed: BTreeSet<u32>,
    /// Threads that kept theirs.
    pub kept: BTreeSet<u32>,
}

/// Why not all threads have their new masks.
#[derive(Debug, Error)]
pub enum RebindError {
    /// The kernel refuses a mask.
    #[error("thread {tid} of process {pid} cannot be bound to CPUs {cpus}: {cause}")]
    Refused {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The mask.
        cpus: CpuSet,
        /// The kernel's answer.
        cause: Errno,
    },
    /// A cpuset takes CPUs away.
    #[error(
        "process {pid} may use CPUs {left} of {cpus} only: its cpuset (control group) does not contain the others"
    )]
    Cpuset {
        /// The process.
        pid: Pid,
        /// The mask that was set.
        cpus: CpuSet,
        /// What remained.
        left: CpuSet,
    },
    /// New threads appear all the time.
    #[error("the program makes threads faster than they can be bound; stop it (kill -STOP) meanwhile")]
    Restless,
}

/// Returns the threads of a process with their masks; threads that end meanwhile are left out.
pub fn threads(proc: &Path, pid: Pid) -> Vec<Bound> {
    let bound = |tid: Tid| {
        let mask = affinity::get(Some(tid)).ok()?;
        let start = process::thread_stat(proc, pid, tid).ok()?.start;
        Some(Bound { pid, tid, start, mask })
    };
    process::threads(proc, pid).unwrap_or_default().into_iter().filter_map(bound).collect()
}

/// Gives each thread of the processes the mask that `rule` says (`None`: it keeps its own), until
/// two passes in a row change nothing. `members` lists the processes for each pass.
///
/// # Errors
/// The kernel refuses a mask, or new threads appear all the time. Masks that were set stay.
pub fn rebind(
    proc: &Path,
    members: &dyn Fn() -> Vec<Pid>,
    rule: &dyn Fn(&Bound) -> Option<CpuSet>,
) -> Result<Rebound, RebindError> {
    let mut done = Rebound::default();
    let mut quiet = 0;
    for _ in 0..PASSES_MAX {
        let mut changed = false;
        for thread in members().into_iter().flat_map(|pid| threads(proc, pid)) {
            match rule(&thread) {
                Some(mask) => {
                    changed |= set(&thread, &mask)?;
                    done.changed.insert(thread.tid.0);
                    done.kept.remove(&thread.tid.0);
                }
                None => {
                    if !done.changed.contains(&thread.tid.0) {
                        done.kept.insert(thread.tid.0);
                    }
                }
            }
        }
        quiet = if changed { 0 } else { quiet + 1 };
        if quiet == 2 {
            return Ok(done);
        }
    }
    Err(RebindError::Restless)
}

/// Sets one mask; false if the thread has ended.
fn set(thread: &Bound, mask: &CpuSet) -> Result<bool, RebindError> {
    let Bound { pid, tid, .. } = *thread;
    match affinity::set(Some(tid), mask) {
        Ok(()) => {}
        Err(Errno::SRCH) => return Ok(false),
        Err(cause) => return Err(RebindError::Refused { pid, tid, cpus: mask.clone(), cause }),
    }
    // The kernel drops CPUs that the cpuset withholds, without an error. A mask of all CPUs that
    // the kernel could have means: what the cpuset grants.
    if affinity::every().is_ok_and(|every| every == *mask) {
        return Ok(true);
    }
    match affinity::get(Some(tid)) {
        Ok(left) if !mask.is_subset(&left) && left.is_subset(mask) => {
            Err(RebindError::Cpuset { pid, cpus: mask.clone(), left })
        }
        _ => Ok(true),
    }
}

//! Threads that somebody bound to some CPUs are taken as tagged: as the guest kernel of the study did, on the host.
//!
//! A mask that is read may be one of ours. Of threads under watch their own mask is known; any other counts only when it was bound at
//! two scans in a row, by which time what was born with a mask of ours has been found and has its own.

use super::Shared;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_core::tags::{By, Mark, Reach};
use trimtab_linux::process::{self, Pid, Tid};
use trimtab_linux::survey::{Masks, PinScan};

/// How often is looked at most. Chosen: masks change seldom.
const EVERY: Duration = Duration::from_secs(5);
/// Looking takes at most one part in this many of a CPU.
const SHARE: u32 = 400;

/// Looks for them.
#[derive(Debug)]
pub(crate) struct Pinned {
    proc: PathBuf,
    online: CpuSet,
    reach: Reach,
    before: BTreeSet<(u32, u32, u64)>,
    next: Instant,
}

impl Pinned {
    pub(crate) fn new(proc: PathBuf, online: CpuSet, reach: Reach) -> Self {
        Self { proc, online, reach, before: BTreeSet::new(), next: Instant::now() }
    }

    /// Looks, if it is time.
    pub(crate) fn tend(&mut self, shared: &Shared) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.look(shared);
        self.next = now + EVERY.max(now.elapsed() * SHARE);
    }

    /// Somebody bound it: to some of the CPUs, and not to one, which leaves nothing to choose.
    fn is_bound(&self, own: &CpuSet) -> bool {
        own.len() > 1 && own.intersection(&self.online) != self.online
    }

    fn look(&mut self, shared: &Shared) {
        let scan = PinScan { proc: &self.proc, cpus: &self.online, own: Pid::own(), masks: Masks::Kernel };
        let Ok(found) = scan.run(|_| true) else { return };
        let homes = shared.lock().homes.clone();
        let mut bound = BTreeSet::new();
        for pin in found.pins {
            let ours = homes.get(&pin.tid);
            let reached = match self.reach {
                Reach::All => true,
                Reach::User(uid) => pin.uid == uid,
            };
            if !reached || !self.is_bound(ours.unwrap_or(&pin.cpus)) {
                continue;
            }
            if let Ok(stat) = process::thread_stat(&self.proc, pin.pid, pin.tid)
                && !stat.kernel_thread
                && !stat.fixed
            {
                bound.insert((pin.pid.0, pin.tid.0, stat.start.0));
            }
        }
        let at = shared.now();
        let mut state = shared.lock();
        for (pid, tid, start) in &bound {
            if homes.contains_key(&Tid(*tid)) || self.before.contains(&(*pid, *tid, *start)) {
                let mark = Mark::Thread { pid: *pid, tid: *tid, start: *start };
                // Where there are too many tags already, this is one that is not there.
                let _ = state.registry.tag_by(By::Pinned, mark, at);
            }
        }
        let is_bound = |mark: &Mark| match mark {
            Mark::Thread { pid, tid, start } => {
                // One that we hold on all its CPUs or on one has its own mask all the same.
                bound.contains(&(*pid, *tid, *start))
                    || homes.get(&Tid(*tid)).is_some_and(|home| self.is_bound(home))
            }
            _ => false,
        };
        state.registry.clear_by(&By::Pinned, |mark| !is_bound(mark));
        drop(state);
        self.before = bound;
    }
}

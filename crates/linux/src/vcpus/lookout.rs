//! Keeps an eye on a virtual machine's CPUs while it is watched: some are plugged in or out, threads get their names late.
//!
//! In a thread of its own, since a monitor that is asked may take its time, and whoever balances must not wait for it. The machine is asked
//! again only where the number of its threads changed, or not all was known: a QMP socket is otherwise left to others. A CPU whose number
//! is not known yet is asked for it every few seconds.

use super::{Vcpu, VirtualMachine, VmError, Vms};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often is looked. As the bounds of groups.
const EVERY: Duration = Duration::from_millis(1_000);
/// Looking takes at most one part in this many of a CPU, however many threads there are, and however they come and go.
const SHARE: u32 = 400;
/// After so many looks without cause all is asked again.
const ANYWAY: u32 = 30;
/// After so many where a CPU's number is not known: it may sleep then, and tell.
const NUMBERS: u32 = 5;

/// What the lookout knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Goes up with each change.
    pub version: u64,
    /// The CPUs.
    pub vcpus: Vec<Vcpu>,
    /// Why they could not be asked for the last time; those that were known are known still.
    pub fault: Option<String>,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<(Seen, bool)>,
    ended: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Seen, bool)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Waits until it is time to look again; false when it is over.
    fn goes_on(&self, cost: Duration) -> bool {
        let guard = self.lock();
        let rest = EVERY.max(cost * SHARE);
        let waited = self.ended.wait_timeout_while(guard, rest, |(_, ended)| !*ended);
        !waited.unwrap_or_else(PoisonError::into_inner).0.1
    }
}

/// Looks until it is dropped.
#[derive(Debug)]
pub struct Lookout(Arc<Shared>);

impl Lookout {
    /// Begins to look.
    ///
    /// # Errors
    /// This process may have no more threads.
    pub fn begin(vms: Vms, vm: VirtualMachine) -> io::Result<Self> {
        let seen = Seen { version: 0, vcpus: vm.vcpus.clone(), fault: None };
        let shared = Arc::new(Shared { seen: Mutex::new((seen, false)), ended: Condvar::new() });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("vcpus".to_owned()).spawn(move || look_out(&vms, vm, &theirs))?;
        Ok(Self(shared))
    }

    /// What changed since this version.
    pub fn news(&self, since: Option<u64>) -> Option<Seen> {
        let seen = &self.0.lock().0;
        (Some(seen.version) != since).then(|| seen.clone())
    }

    /// By what to know whether its thread has ended.
    pub fn pulse(&self) -> Pulse {
        Pulse(Arc::downgrade(&self.0))
    }
}

/// Whether a lookout's thread lives, which may be a while after the lookout was dropped.
#[derive(Debug)]
pub struct Pulse(Weak<Shared>);

impl Pulse {
    /// Whether it does.
    pub fn beats(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        // Not waited for: it ends by itself, after an answer that it waits for at the latest.
        self.0.lock().1 = true;
        self.0.ended.notify_all();
    }
}

fn look_out(vms: &Vms, mut vm: VirtualMachine, shared: &Shared) {
    let tasks = vms.proc.join(format!("{}/task", vm.pid));
    // Just now all was asked.
    let mut links = links_of(&tasks);
    let mut idle = 0;
    let mut worked = worked_until_now();
    while shared.goes_on(worked_until_now().saturating_sub(worked)) {
        worked = worked_until_now();
        let now = links_of(&tasks);
        let settled = links == now && now.is_ok();
        links = now;
        idle = if settled { idle + 1 } else { 0 };
        // Once more after each change: a thread is made first and named then.
        let known = vm.vcpus.iter().all(|vcpu| vcpu.index.is_some());
        if idle > 1 && idle % (if known { ANYWAY } else { NUMBERS }) != 0 {
            continue;
        }
        let again = vms.again(&vm);
        let mut shared = shared.lock();
        let seen = &mut shared.0;
        let (vcpus, fault) = match again {
            Ok(found) => {
                let worse = found.tried.iter().find(|tried| tried.method == vm.found);
                let fault = worse.map(ToString::to_string);
                vm.vcpus = vms.with_those_that_live(found.vcpus, &vm);
                (vm.vcpus.clone(), fault)
            }
            // It has ended, which others see to.
            Err(VmError::NoProcess(_)) => return,
            Err(error) => (seen.vcpus.clone(), Some(error.to_string())),
        };
        if vcpus != seen.vcpus || fault != seen.fault {
            (seen.vcpus, seen.fault) = (vcpus, fault);
            seen.version += 1;
        }
    }
}

/// The CPU time of this thread.
fn worked_until_now() -> Duration {
    let worked = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(worked.tv_sec).unwrap_or(0), u32::try_from(worked.tv_nsec).unwrap_or(0))
}

/// How many links the folder of threads has: two more than threads.
#[allow(clippy::useless_conversion, reason = "the number of links is narrower on other architectures")]
fn links_of(tasks: &Path) -> Result<u64, Errno> {
    rustix::fs::stat(tasks).map(|stat| u64::from(stat.st_nlink))
}

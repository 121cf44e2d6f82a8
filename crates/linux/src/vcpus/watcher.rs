//! Background watcher of a virtual machine's CPUs: some are plugged in or out, and threads get
//! their names late.
//!
//! The watcher has a thread of its own, since a monitor may be slow to answer and the balancer must
//! not wait for it. The machine is queried again only if the number of its threads changed, or if
//! something was unknown; otherwise a QMP socket is left to other clients. The index of a vCPU that
//! is not known yet is queried every few seconds.

use super::{Vcpu, VirtualMachine, VmError, Vms};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Period of the scans. The same as for the limits of groups.
const SCAN_PERIOD: Duration = Duration::from_millis(1_000);
/// Scans take at most one part in this number of a CPU, however many threads there are, and however
/// they come and go.
const REST_PER_COST: u32 = 400;
/// Number of scans without cause after which everything is queried again.
const SCANS_PER_QUERY: u32 = 30;
/// The same number while a vCPU's index is not known: the vCPU may sleep then, and show its index.
const SCANS_PER_INDEX_QUERY: u32 = 5;

/// Latest knowledge of the watcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VcpuSnapshot {
    /// Goes up with each change.
    pub version: u64,
    /// The CPUs.
    pub vcpus: Vec<Vcpu>,
    /// Reason why the last query failed; the vCPUs known before stay known.
    pub fault: Option<String>,
}

#[derive(Debug)]
struct VcpuWatcherState {
    seen: Mutex<(VcpuSnapshot, bool)>,
    ended: Condvar,
}

impl VcpuWatcherState {
    fn lock(&self) -> MutexGuard<'_, (VcpuSnapshot, bool)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VcpuWatcherState {
    /// Waits until the next scan is due; returns false when the watcher is to end.
    fn goes_on(&self, cost: Duration) -> bool {
        let guard = self.lock();
        let rest = SCAN_PERIOD.max(cost * REST_PER_COST);
        let waited = self.ended.wait_timeout_while(guard, rest, |(_, ended)| !*ended);
        !waited.unwrap_or_else(PoisonError::into_inner).0.1
    }
}

/// Watcher of a machine's vCPUs, until dropped.
#[derive(Debug)]
pub struct VcpuWatcher(Arc<VcpuWatcherState>);

impl VcpuWatcher {
    /// Starts the watcher.
    ///
    /// # Errors
    /// This process may have no more threads.
    pub fn begin(vms: Vms, vm: VirtualMachine) -> io::Result<Self> {
        let seen = VcpuSnapshot { version: 0, vcpus: vm.vcpus.clone(), fault: None };
        let shared = Arc::new(VcpuWatcherState { seen: Mutex::new((seen, false)), ended: Condvar::new() });
        let state = Arc::clone(&shared);
        std::thread::Builder::new().name("vcpus".to_owned()).spawn(move || watch_vcpus(&vms, vm, &state))?;
        Ok(Self(shared))
    }

    /// Returns the knowledge of the watcher if it changed since this version.
    pub fn news(&self, since: Option<u64>) -> Option<VcpuSnapshot> {
        let seen = &self.0.lock().0;
        (Some(seen.version) != since).then(|| seen.clone())
    }

    /// Returns a handle that shows whether the watcher's thread has ended.
    pub fn pulse(&self) -> Pulse {
        Pulse(Arc::downgrade(&self.0))
    }
}

/// Handle that shows whether a watcher's thread lives, possibly for a while after the watcher was
/// dropped.
#[derive(Debug)]
pub struct Pulse(Weak<VcpuWatcherState>);

impl Pulse {
    /// Returns whether the thread lives.
    pub fn beats(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Drop for VcpuWatcher {
    fn drop(&mut self) {
        // The thread is not waited for: it ends by itself, at the latest after a pending answer.
        self.0.lock().1 = true;
        self.0.ended.notify_all();
    }
}

fn watch_vcpus(vms: &Vms, mut vm: VirtualMachine, shared: &VcpuWatcherState) {
    let tasks = vms.proc.join(format!("{}/task", vm.pid));
    // Everything has just been queried.
    let mut links = links_of(&tasks);
    let mut idle = 0;
    let mut worked = crate::sys::clock::of_this_thread();
    while shared.goes_on(crate::sys::clock::of_this_thread().saturating_sub(worked)) {
        worked = crate::sys::clock::of_this_thread();
        let now = links_of(&tasks);
        let settled = links == now && now.is_ok();
        links = now;
        idle = if settled { idle + 1 } else { 0 };
        // Once more after each change: a thread is first made and then named.
        let known = vm.vcpus.iter().all(|vcpu| vcpu.index.is_some());
        if idle > 1 && idle % (if known { SCANS_PER_QUERY } else { SCANS_PER_INDEX_QUERY }) != 0 {
            continue;
        }
        let again = vms.again(&vm);
        let mut shared = shared.lock();
        let seen = &mut shared.0;
        let (vcpus, fault) = match again {
            Ok(found) => {
                let worse = found.tried.iter().find(|tried| tried.method == vm.found);
                let fault = worse.map(ToString::to_string);
                vm.vcpus = vms.with_living(found.vcpus, &vm);
                (vm.vcpus.clone(), fault)
            }
            // The machine has ended, which other code handles.
            Err(VmError::NoProcess(_)) => return,
            Err(error) => (seen.vcpus.clone(), Some(error.to_string())),
        };
        if vcpus != seen.vcpus || fault != seen.fault {
            (seen.vcpus, seen.fault) = (vcpus, fault);
            seen.version += 1;
        }
    }
}

/// Returns the number of links of the folder of threads: two more than threads.
#[allow(clippy::useless_conversion, reason = "the number of links is narrower on other architectures")]
fn links_of(tasks: &Path) -> Result<u64, Errno> {
    rustix::fs::stat(tasks).map(|stat| u64::from(stat.st_nlink))
}

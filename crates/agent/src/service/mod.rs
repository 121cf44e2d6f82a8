//! The service: balancing of all tagged threads of the machine, and the state that its two threads
//! share.
//!
//! There are two threads, and a third one if holds are enforced (`enforcer`). One serves requests
//! (`requests`): it reads from clients, guests and the
//! scans for bound threads and declared programs, and changes the registry of tags; it blocks on
//! none of them. The other (`host`) applies the registry to the live machine, in the loop of all
//! balancing. Between them is `ServiceState`; its lock is held no longer than a look-up takes.

pub mod channel;
pub mod client;
mod declared;
pub mod enforcer;
mod guest_link;
mod guests;
pub mod host;
mod kept;
mod pinned;
pub mod removal;
mod requests;
mod resolve;
mod run;
mod steps;
mod vm_registry;

pub use run::{ServiceEnd, ServiceOptions, serve};

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trimtab_core::enforce::EnforcementStatus;
use trimtab_core::set::CpuSet;
use trimtab_core::tags::{By, Explainer, Mark, Refusal, Registry, TagId};
use trimtab_core::telemetry::account::Tally;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;
use trimtab_linux::process::{StartTime, Tid};

/// Progress of a tag.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct TagProgress {
    /// Threads that it means now.
    pub(crate) threads: u32,
    /// Number of their moves.
    pub(crate) moves: u64,
    /// Reason why they are not balanced.
    pub(crate) fault: Option<String>,
}

/// Progress and cost of the service.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ServiceProgress {
    pub(crate) threads: u32,
    pub(crate) moves: u64,
    pub(crate) refused: u64,
    pub(crate) withheld: u64,
    pub(crate) samples: u64,
    pub(crate) share: Option<f64>,
    pub(crate) slowed: u64,
}

/// Thread that is a CPU of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Vcpu {
    /// Number of the virtual CPU, if it is certain.
    pub(crate) index: Option<u32>,
    pub(crate) tid: Tid,
    pub(crate) start: StartTime,
}

/// Identity of a machine's monitor: its process and the process's start time.
pub(crate) type MonitorId = (u32, u64);

/// State of the two threads.
#[derive(Debug)]
pub(crate) struct ServiceState {
    /// The tags.
    pub(crate) registry: Registry,
    /// Progress of each tag.
    pub(crate) known: BTreeMap<TagId, TagProgress>,
    /// Progress of the service.
    pub(crate) done: ServiceProgress,
    /// CPUs of the machines that tags name; those of an ended machine are removed.
    pub(crate) vcpus: BTreeMap<MonitorId, Vec<Vcpu>>,
    /// Own masks of watched threads.
    pub(crate) homes: BTreeMap<Tid, CpuSet>,
    /// Faults of the service.
    pub(crate) faults: Vec<String>,
    /// State of enforcement, if the service enforces holds.
    pub(crate) enforcement: Option<EnforcementStatus>,
}

/// Handle of the shared state.
#[derive(Clone, Debug)]
pub struct SharedState {
    state: Arc<Mutex<ServiceState>>,
    explainer: Arc<Mutex<Explainer>>,
    began: Instant,
}

impl SharedState {
    /// Makes a state without tags.
    pub fn new(registry: Registry) -> Self {
        let state = ServiceState {
            registry,
            known: BTreeMap::new(),
            done: ServiceProgress::default(),
            vcpus: BTreeMap::new(),
            homes: BTreeMap::new(),
            faults: Vec::new(),
            enforcement: None,
        };
        let explainer = Arc::default();
        Self { state: Arc::new(Mutex::new(state)), explainer, began: Instant::now() }
    }

    /// Explains the work on this machine from now on.
    pub(crate) fn explaining(self, machine: &Machine) -> Self {
        *self.explainer() = Explainer::new(machine);
        self
    }

    /// Returns the explanations. The state is not locked while they are held.
    pub(crate) fn explainer(&self) -> MutexGuard<'_, Explainer> {
        self.explainer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the counts so far.
    pub fn count(&self, tally: &Tally) {
        let mut state = self.lock();
        state.done.moves = tally.applied;
        state.done.refused = tally.refused;
        state.done.withheld = tally.withheld;
        state.done.samples = tally.looks;
    }

    /// Tags something on behalf of the service's own process: for measurements of the service
    /// without its socket.
    ///
    /// # Errors
    /// The registry refuses.
    pub fn tag(&self, by: By, mark: Mark) -> Result<(), Refusal> {
        let now = self.now();
        self.lock().registry.tag_by(by, mark, now).map(drop)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time as the registry counts it: since the service's begin, and never zero.
    pub(crate) fn now(&self) -> Moment {
        Moment(0) + Span::from_ms(1) + Span::from(self.began.elapsed())
    }
}

/// Returns CPU time by one of the kernel's clocks.
fn spent(clock: ClockId) -> Span {
    let spent = clock_gettime(clock);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    Span::from(Duration::new(seconds, u32::try_from(spent.tv_nsec).unwrap_or(0)))
}

/// Returns the process-id namespace of this process.
fn namespace(proc: &Path) -> Option<u64> {
    std::fs::metadata(proc.join("self/ns/pid")).ok().map(|meta| meta.ino())
}

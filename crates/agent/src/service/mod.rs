//! The service: balancing of all tagged threads of the machine, and the state that its two threads
//! share.
//!
//! Two threads. One serves requests (`requests`): it hears clients, guests and the scan for bound
//! threads, and changes the registry of tags; it blocks on none of them. The other (`host`) carries
//! out what the registry says with the live machine, in the loop of all balancing. Between them
//! stands `ServiceState`, whose lock is held no longer than a look-up takes.

pub mod channel;
pub mod client;
mod guest_link;
mod guests;
pub mod host;
mod pinned;
pub mod removal;
mod requests;
mod resolve;
mod run;
mod vm_registry;

pub use run::{ServiceEnd, ServiceOptions, serve};

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_core::tags::{By, Mark, Refusal, Registry, TagId};
use trimtab_core::telemetry::account::Tally;
use trimtab_core::time::{Moment, Span};
use trimtab_linux::process::{StartTime, Tid};

/// What is known of a tag, besides what it is.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct TagProgress {
    /// Threads that it means now.
    pub(crate) threads: u32,
    /// How often they were moved.
    pub(crate) moves: u64,
    /// Why nothing is done about it.
    pub(crate) fault: Option<String>,
}

/// What was done and what it cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ServiceProgress {
    pub(crate) threads: u32,
    pub(crate) moves: u64,
    pub(crate) refused: u64,
    pub(crate) looks: u64,
    pub(crate) share: Option<f64>,
    pub(crate) slowed: u64,
}

/// A thread that is a CPU of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Vcpu {
    /// Its number, where it is certain.
    pub(crate) index: Option<u32>,
    pub(crate) tid: Tid,
    pub(crate) start: StartTime,
}

/// A machine's monitor: its process and when it started.
pub(crate) type MonitorId = (u32, u64);

/// What both sides know.
#[derive(Debug)]
pub(crate) struct ServiceState {
    /// The tags.
    pub(crate) registry: Registry,
    /// What is known of them.
    pub(crate) known: BTreeMap<TagId, TagProgress>,
    /// What was done.
    pub(crate) done: ServiceProgress,
    /// The CPUs of the machines that tags name; those of one that has ended are gone.
    pub(crate) vcpus: BTreeMap<MonitorId, Vec<Vcpu>>,
    /// The own masks of threads under watch.
    pub(crate) homes: BTreeMap<Tid, CpuSet>,
    /// What does not work.
    pub(crate) faults: Vec<String>,
}

/// What both sides know, for both.
#[derive(Clone, Debug)]
pub struct SharedState {
    state: Arc<Mutex<ServiceState>>,
    began: Instant,
}

impl SharedState {
    /// Nothing is tagged yet.
    pub fn new(registry: Registry) -> Self {
        let state = ServiceState {
            registry,
            known: BTreeMap::new(),
            done: ServiceProgress::default(),
            vcpus: BTreeMap::new(),
            homes: BTreeMap::new(),
            faults: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), began: Instant::now() }
    }

    /// What was done so far.
    pub fn count(&self, tally: &Tally) {
        let mut state = self.lock();
        state.done.moves = tally.applied;
        state.done.refused = tally.refused;
        state.done.looks = tally.looks;
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

    /// Now, as the registry counts: from the service's begin, and never zero.
    pub(crate) fn now(&self) -> Moment {
        Moment(0) + Span::from_ms(1) + Span::from(self.began.elapsed())
    }
}

/// CPU time by one of the kernel's clocks.
fn spent(clock: ClockId) -> Span {
    let spent = clock_gettime(clock);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    Span::from(Duration::new(seconds, u32::try_from(spent.tv_nsec).unwrap_or(0)))
}

/// The process-id namespace of this process.
fn namespace(proc: &Path) -> Option<u64> {
    std::fs::metadata(proc.join("self/ns/pid")).ok().map(|meta| meta.ino())
}

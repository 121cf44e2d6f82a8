//! The service: what is shared between whoever answers at the socket and whoever looks at the machine and moves threads.
//!
//! Two threads. The *desk* hears requests, guests and the scan for bound threads, and changes the registry of tags; it waits for nobody.
//! The *host* (`host`) carries out what the registry says with the live machine, in the loop of all balancing. Between them stands
//! `State`, which nobody holds for longer than it takes to look something up.

#[path = "requests.rs"]
pub mod desk;
mod guests;
pub mod host;
#[path = "guest_link.rs"]
mod link;
#[path = "vm_registry.rs"]
mod machines;
mod pinned;
mod resolve;

pub use resolve::reach;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use trimtab_core::set::CpuSet;
use trimtab_core::tags::{Registry, TagId};
use trimtab_core::telemetry::account::Tally;
use trimtab_core::time::{Moment, Span};
use trimtab_linux::process::{StartTime, Tid};

/// What is known of a tag, besides what it is.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Known {
    /// Threads that it means now.
    pub(crate) threads: u32,
    /// How often they were moved.
    pub(crate) moves: u64,
    /// Why nothing is done about it.
    pub(crate) fault: Option<String>,
}

/// What was done and what it cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Done {
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
pub(crate) struct State {
    /// The tags.
    pub(crate) registry: Registry,
    /// What is known of them.
    pub(crate) known: BTreeMap<TagId, Known>,
    /// What was done.
    pub(crate) done: Done,
    /// The CPUs of the machines that tags name; those of one that has ended are gone.
    pub(crate) vcpus: BTreeMap<MonitorId, Vec<Vcpu>>,
    /// The own masks of threads under watch.
    pub(crate) homes: BTreeMap<Tid, CpuSet>,
    /// What does not work.
    pub(crate) faults: Vec<String>,
}

/// What both sides know, for both.
#[derive(Clone, Debug)]
pub struct Shared {
    state: Arc<Mutex<State>>,
    began: Instant,
}

impl Shared {
    /// Nothing is tagged yet.
    pub fn new(registry: Registry) -> Self {
        let state = State {
            registry,
            known: BTreeMap::new(),
            done: Done::default(),
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, as the registry counts: from the service's begin, and never zero.
    pub(crate) fn now(&self) -> Moment {
        Moment(0) + Span::from_ms(1) + Span::from(self.began.elapsed())
    }
}

//! Threads of a virtual machine's process that run its CPUs, as identified by a [`VcpuWatcher`].

use crate::host::error::LiveError;
use crate::process::{StartTime, Tid};
use crate::vcpus::{Vcpu, VcpuWatcher, VirtualMachine, Vms};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The watched threads of a process, if not all are watched.
#[derive(Debug, Default)]
pub(in crate::host) struct Only {
    /// The vCPUs' threads, with their start times and names.
    pub(super) threads: BTreeMap<Tid, (StartTime, String)>,
    /// Other threads that have been seen.
    pub(super) others: BTreeSet<Tid>,
}

impl Only {
    pub(super) fn of(vcpus: &[Vcpu]) -> Self {
        let name =
            |vcpu: &Vcpu| vcpu.index.map_or_else(|| "vcpu ?".to_owned(), |index| format!("vcpu {index}"));
        let named = |vcpu: &Vcpu| (vcpu.tid, (vcpu.start, name(vcpu)));
        Self { threads: vcpus.iter().map(named).collect(), others: BTreeSet::new() }
    }

    /// Returns the name of a thread, if it is one of these.
    pub(super) fn name(&self, tid: Tid, start: StartTime) -> Option<&str> {
        self.threads.get(&tid).filter(|(known, _)| *known == start).map(|(_, name)| name.as_str())
    }
}

/// Watcher of a machine's CPUs, with the version of its last answer.
#[derive(Debug)]
pub(super) struct VcpuWatch {
    pub(super) watcher: VcpuWatcher,
    pub(super) version: Option<u64>,
}

impl VcpuWatch {
    pub(super) fn begin(proc: &Path, vm: &VirtualMachine) -> Result<Self, LiveError> {
        let begun = VcpuWatcher::begin(Vms::new(proc), vm.clone());
        let attempt = "starting a thread to look for virtual CPUs (`ulimit -u` shows their limit)";
        let watcher = begun.map_err(|source| LiveError::System { attempt, source })?;
        Ok(Self { watcher, version: None })
    }
}

//! Threads of a virtual machine's process that run its CPUs, as a [`Lookout`] says, now and later.

use crate::host::error::LiveError;
use crate::process::{StartTime, Tid};
use crate::vcpus::{Lookout, Vcpu, VirtualMachine, Vms};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The threads of a process that are watched, where not all are.
#[derive(Debug, Default)]
pub(in crate::host) struct Only {
    /// The virtual CPUs' threads, with their starts and names.
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

    /// The name of a thread, if it is one of these.
    pub(super) fn name(&self, tid: Tid, start: StartTime) -> Option<&str> {
        self.threads.get(&tid).filter(|(known, _)| *known == start).map(|(_, name)| name.as_str())
    }
}

/// The lookout for a machine's CPUs, and the version of its answer that was heard last.
#[derive(Debug)]
pub(super) struct VcpuWatch {
    pub(super) lookout: Lookout,
    pub(super) version: Option<u64>,
}

impl VcpuWatch {
    pub(super) fn begin(proc: &Path, vm: &VirtualMachine) -> Result<Self, LiveError> {
        let begun = Lookout::begin(Vms::new(proc), vm.clone());
        let attempt = "starting a thread to look for virtual CPUs (`ulimit -u` says how many there may be)";
        let lookout = begun.map_err(|source| LiveError::System { attempt, source })?;
        Ok(Self { lookout, version: None })
    }
}

//! Virtual machines under watch: of their processes only the threads that run virtual CPUs.
//!
//! Which these are, a [`Lookout`] says, now and later. Another thread of the process is never moved, with one exception: one that was born
//! of a virtual CPU's thread while that had our mask, and so has it too, gets its maker's own mask. Groups bind a virtual CPU as a
//! thread: libvirt has one for each.

use crate::host::error::LiveError;
use crate::host::{Live, Root};
use crate::process::{Pid, StartTime, Tid};
use crate::sys::affinity;
use crate::vcpus::{Lookout, Vcpu, VirtualMachine, Vms};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::Sample;

/// The threads of a process that are watched, where not all are.
#[derive(Debug, Default)]
pub(in crate::host) struct Only {
    /// The virtual CPUs' threads, with their starts and names.
    threads: BTreeMap<Tid, (StartTime, String)>,
    /// Other threads that have been seen.
    others: BTreeSet<Tid>,
}

impl Only {
    pub(in crate::host) fn of(vcpus: &[Vcpu]) -> Self {
        let name =
            |vcpu: &Vcpu| vcpu.index.map_or_else(|| "vcpu ?".to_owned(), |index| format!("vcpu {index}"));
        let named = |vcpu: &Vcpu| (vcpu.tid, (vcpu.start, name(vcpu)));
        Self { threads: vcpus.iter().map(named).collect(), others: BTreeSet::new() }
    }

    /// The name of a thread, if it is one of these.
    pub(in crate::host) fn name(&self, tid: Tid, start: StartTime) -> Option<&str> {
        self.threads.get(&tid).filter(|(known, _)| *known == start).map(|(_, name)| name.as_str())
    }
}

/// Who looks out for a machine's CPUs.
#[derive(Debug)]
pub(in crate::host) struct Watch {
    lookout: Lookout,
    version: Option<u64>,
}

impl Watch {
    pub(in crate::host) fn begin(proc: &Path, vm: &VirtualMachine) -> Result<Self, LiveError> {
        let begun = Lookout::begin(Vms::new(proc), vm.clone());
        let attempt = "starting a thread to look for virtual CPUs (`ulimit -u` says how many there may be)";
        let lookout = begun.map_err(|source| LiveError::System { attempt, source })?;
        Ok(Self { lookout, version: None })
    }
}

impl Live {
    /// What the lookouts have found since the last look.
    pub(in crate::host) fn hear_of_vcpus(&mut self) {
        let mut renamed = Vec::new();
        for watched in self.roots.values_mut() {
            let (Root::Vm(vm), Some(watch)) = (&watched.root, &mut watched.guests) else { continue };
            let Some(seen) = watch.lookout.news(watch.version) else { continue };
            watch.version = Some(seen.version);
            if let Some(fault) = seen.fault {
                self.vm_fault = Some(fault);
            }
            if let Some(process) = self.table.processes.get_mut(&vm.pid)
                && let Some(only) = &mut process.only
            {
                only.threads = Only::of(&seen.vcpus).threads;
                process.stale = true;
                for (tid, id) in &process.threads {
                    let Some(thread) = self.table.threads.get_mut(id) else { continue };
                    if let Some(name) = only.name(*tid, thread.start).filter(|name| *name != thread.name) {
                        name.clone_into(&mut thread.name);
                        renamed.push(*id);
                    }
                }
            }
        }
        for id in renamed {
            self.tell_later(id);
        }
    }

    /// The virtual CPUs among the threads of a process; all, where it is no virtual machine.
    pub(in crate::host) fn select(&mut self, pid: Pid, listed: Vec<Tid>) -> Vec<Tid> {
        let Some(only) = self.table.processes.get_mut(&pid).and_then(|process| process.only.as_mut()) else {
            return listed;
        };
        let (ours, others): (Vec<Tid>, Vec<Tid>) =
            listed.into_iter().partition(|tid| only.threads.contains_key(tid));
        let others: BTreeSet<Tid> = others.into_iter().collect();
        let new: Vec<Tid> = others.difference(&only.others).copied().collect();
        only.others = others;
        for tid in new {
            // Who is born of a virtual CPU's thread has its mask, which may be ours.
            if self.own_namespace
                && let Ok(mask) = affinity::get(Some(tid))
                && let Some(own) = self.table.inherited(pid, &mask)
            {
                let group = self.bounds.group_of_thread(pid, tid);
                // Where that fails it has ended, or is not ours to move.
                let _ = own.give(tid, || self.bounds.granted(group?));
            }
        }
        ours
    }

    /// Looks in which group a virtual CPU is.
    pub(in crate::host) fn place_vcpu(&mut self, id: ThreadId, sample: &mut Sample) {
        let Some(thread) = self.table.threads.get(&id) else { return };
        let Some(group) = self.bounds.group_of_thread(thread.pid, thread.tid) else { return };
        let before = self.table.group_of(id);
        if let Some(thread) = self.table.threads.get_mut(&id) {
            thread.group = Some(group);
        }
        self.regrouped(&BTreeSet::from([id]), before, group, sample);
    }
}

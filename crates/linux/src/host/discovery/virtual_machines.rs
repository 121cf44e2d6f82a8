//! Threads of virtual machines: in their processes only the threads that run vCPUs are watched.
//!
//! A [`VcpuWatcher`](crate::vcpus::VcpuWatcher) identifies these threads, now and later. The
//! listener receives every other thread of the process, since a thread created by a vCPU's thread
//! inherits its mask.

use super::Discovery;
use super::listener::ThreadListener;
use super::roots::Root;
use super::vcpu_threads::Only;
use crate::process::{Pid, Tid};
use std::collections::BTreeSet;

impl Discovery {
    /// Takes over the findings of the vCPU watchers since the last sample.
    pub(super) fn take_vcpu_news(&mut self, listener: &mut dyn ThreadListener) {
        let mut renamed = Vec::new();
        for watched in self.table.roots.values_mut() {
            let (Root::Vm(vm), Some(watch)) = (&watched.root, &mut watched.vcpu_watch) else { continue };
            let Some(seen) = watch.watcher.news(watch.version) else { continue };
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
            listener.thread_renamed(&self.table, id);
        }
    }

    /// Returns the vCPUs among the threads of a process; all threads if it is not a virtual
    /// machine.
    pub(super) fn select(
        &mut self,
        pid: Pid,
        listed: Vec<Tid>,
        listener: &mut dyn ThreadListener,
    ) -> Vec<Tid> {
        let Some(only) = self.table.processes.get_mut(&pid).and_then(|process| process.only.as_mut()) else {
            return listed;
        };
        let (ours, others): (Vec<Tid>, Vec<Tid>) =
            listed.into_iter().partition(|tid| only.threads.contains_key(tid));
        let others: BTreeSet<Tid> = others.into_iter().collect();
        let new: Vec<Tid> = others.difference(&only.others).copied().collect();
        only.others = others;
        for tid in new {
            listener.bystander_found(&self.table, pid, tid);
        }
        ours
    }
}

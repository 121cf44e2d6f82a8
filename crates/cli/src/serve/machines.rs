//! Machines that tags name: found and watched by threads of their own, since a monitor that is asked may take its time.

use super::{MonitorId, Shared, Vcpu};
use crate::aside;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;
use trimtab_core::tags::{Mark, Owner, Refusal, Who};
use trimtab_linux::vcpus::{Lookout, VirtualMachine, VmError, VmName, Vms};

use super::resolve::Places;

/// So many machines are watched. Chosen: a thread each.
const MACHINES_MAX: usize = 256;
/// So many wait to be found. Chosen: each may take as long as its monitor.
const WAITING_MAX: usize = 32;
/// How long a monitor may take to answer: others wait for it.
const PATIENCE: Duration = Duration::from_millis(300);

/// Who wants a machine found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum For<T> {
    /// Who asked at the socket.
    Client(T),
    /// A guest, by its place in the list.
    Guest(usize),
}

/// A machine to be found.
#[derive(Debug)]
struct Job<T> {
    wanted: For<T>,
    who: Who,
    name: String,
}

/// A machine that was found, or not.
#[derive(Debug)]
pub(crate) struct Found<T> {
    pub(crate) wanted: For<T>,
    pub(crate) machine: Result<(VirtualMachine, Owner), Refusal>,
}

/// Finds and watches.
#[derive(Debug)]
pub(crate) struct Machines<T> {
    vms: Vms,
    jobs: SyncSender<Job<T>>,
    found: Receiver<Found<T>>,
    /// Jobs under way.
    pub(crate) pending: usize,
    watched: BTreeMap<MonitorId, (Lookout, Option<u64>)>,
}

impl<T: Send + 'static> Machines<T> {
    pub(crate) fn begin(places: &Places) -> Result<Self> {
        let vms = Vms::new(&places.proc).patient(PATIENCE);
        let (jobs, incoming) = sync_channel::<Job<T>>(WAITING_MAX);
        let (outgoing, found): (Sender<Found<T>>, _) = channel();
        let (finder, places) = (vms.clone(), places.clone());
        aside::begin("machines", move || {
            for job in incoming {
                let machine = find(&finder, &places, job.who, &job.name);
                if outgoing.send(Found { wanted: job.wanted, machine }).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { vms, jobs, found, pending: 0, watched: BTreeMap::new() })
    }

    /// Has a machine found.
    pub(crate) fn find(&mut self, wanted: For<T>, who: Who, name: String) -> Result<(), (For<T>, Refusal)> {
        match self.jobs.try_send(Job { wanted, who, name }) {
            Ok(()) => {
                self.pending += 1;
                Ok(())
            }
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                Err((job.wanted, Refusal::Busy))
            }
        }
    }

    /// What was found since.
    pub(crate) fn found(&mut self) -> Vec<Found<T>> {
        let found: Vec<Found<T>> = self.found.try_iter().collect();
        self.pending = self.pending.saturating_sub(found.len());
        found
    }

    /// Keeps an eye on a machine that was found.
    pub(crate) fn watch(&mut self, vm: VirtualMachine, shared: &Shared) -> Result<(), Refusal> {
        let id = (vm.pid.0, vm.start.0);
        if self.watched.contains_key(&id) {
            return Ok(());
        }
        if self.watched.len() >= MACHINES_MAX {
            return Err(Refusal::TooMany { limit: MACHINES_MAX });
        }
        shared.lock().vcpus.insert(id, plain(&vm));
        let lookout =
            Lookout::begin(self.vms.clone(), vm).map_err(|error| Refusal::Failed(error.to_string()))?;
        self.watched.insert(id, (lookout, None));
        Ok(())
    }

    /// Tells what changed, and forgets machines that no tag and no guest names.
    pub(crate) fn tend(&mut self, shared: &Shared, guests: &BTreeSet<MonitorId>) {
        if self.watched.is_empty() {
            return;
        }
        let mut state = shared.lock();
        let named: BTreeSet<MonitorId> = state
            .registry
            .tags()
            .filter_map(|(_, tag)| match tag.mark {
                Mark::Vm { pid, start, .. } | Mark::Vcpu { pid, start, .. } => Some((pid, start)),
                _ => None,
            })
            .chain(guests.iter().copied())
            .collect();
        self.watched.retain(|id, _| named.contains(id));
        state.vcpus.retain(|id, _| named.contains(id));
        for (id, (lookout, version)) in &mut self.watched {
            if let Some(seen) = lookout.news(*version) {
                *version = Some(seen.version);
                let vcpus = seen.vcpus.iter();
                let vcpus = vcpus.map(|one| Vcpu { index: one.index, tid: one.tid, start: one.start });
                state.vcpus.insert(*id, vcpus.collect());
            }
        }
    }
}

fn plain(vm: &VirtualMachine) -> Vec<Vcpu> {
    vm.vcpus.iter().map(|one| Vcpu { index: one.index, tid: one.tid, start: one.start }).collect()
}

/// Finds a machine that is this user's to tag.
fn find(vms: &Vms, places: &Places, who: Who, name: &str) -> Result<(VirtualMachine, Owner), Refusal> {
    let none = |why: String| Refusal::NoVm { name: name.to_owned(), why };
    let wanted: VmName = name.parse().unwrap_or_else(|never| match never {});
    let owner = |pid: u32| places.process(pid).map(|(owner, _)| owner);
    let theirs = |owner: Owner| who.over_others() || owner.is(who.uid);
    let pid = match wanted {
        VmName::Pid(pid) => {
            let owner = owner(pid.0)?;
            if !theirs(owner) {
                return Err(Refusal::NotYours { pid: pid.0, uid: owner.effective });
            }
            pid
        }
        // We would connect wherever anybody wants, with our rights.
        VmName::Socket(_) if !who.over_others() => {
            return Err(none("name it by its name or process; by a socket only root may".to_owned()));
        }
        VmName::Socket(path) => {
            let vm = vms.find(&VmName::Socket(path)).map_err(|error| none(one_line(&error)))?;
            let owner = owner(vm.pid.0)?;
            return Ok((vm, owner));
        }
        VmName::Name(wanted) => {
            // Names are anybody's to choose: those of others' machines do not count for who may not tag them.
            let all = vms.list();
            let seen = all.iter().filter(|vm| owner(vm.pid.0).is_ok_and(theirs));
            let mut named = seen.clone().filter(|vm| vm.name.as_deref() == Some(&wanted));
            match (named.next(), named.next()) {
                (Some(vm), None) => vm.pid,
                (Some(_), Some(_)) => {
                    return Err(none("several have this name: name its process".to_owned()));
                }
                (None, _) => {
                    let names: Vec<String> = seen.take(8).map(ToString::to_string).collect();
                    return Err(none(match names.is_empty() {
                        true => "none of yours runs".to_owned(),
                        false => format!("there are {}", names.join(", ")),
                    }));
                }
            }
        }
    };
    let vm = vms.find(&VmName::Pid(pid)).map_err(|error| none(one_line(&error)))?;
    let owner = owner(pid.0)?;
    Ok((vm, owner))
}

fn one_line(error: &VmError) -> String {
    error.to_string().replace('\n', "; ")
}

/// Whether a machine's monitor lives.
pub(crate) fn lives(proc: &Path, (pid, start): MonitorId) -> bool {
    use trimtab_linux::process::{Pid, State, stat};
    stat(proc, Pid(pid)).is_ok_and(|stat| stat.start.0 == start && stat.state != State::Zombie)
}

//! Registry of the virtual machines that tags name. Each is looked up and watched by a thread of
//! its own, since a monitor may be slow to answer, and the reply of a process may never come.
//!
//! Properties: a waiting client is answered after [`LOOKUP_TIME_MAX`] at the latest. The machines
//! of one user cannot take the threads, or the time, for look-ups of others: there is a bound for
//! each user, one for all users together, and room beyond that for root and the guests. A user
//! without the right to see an object of the service gets no information about it.

use super::resolve::Resolver;
use super::{MonitorId, SharedState, Vcpu, spent};
use crate::spawn::spawn;
use rustix::process::geteuid;
use rustix::time::ClockId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use trimtab_core::tags::{Mark, Owner, Refusal, Requester};
use trimtab_linux::vcpus::{Pulse, VcpuWatcher, VirtualMachine, VmError, VmName, Vms};

/// Bound of the machines that are watched for one user. Chosen: a thread each.
const MACHINES_OF_USER_MAX: usize = 16;
/// Bound for all users but root together.
const MACHINES_OF_USERS_MAX: usize = 192;
/// Bound in all.
const MACHINES_MAX: usize = 256;
/// Bound of the virtual CPUs of a machine that are watched for a user: a process may call any of
/// its threads a virtual CPU. Chosen: more than usual machines have.
const VCPUS_OF_USER_MAX: usize = 256;
/// The same bound for root and the guests. Chosen: twice what KVM allows.
const VCPUS_MAX: usize = 8_192;
/// Bound of the concurrent look-ups for one user, each in a thread.
const LOOKUPS_OF_USER_MAX: usize = 2;
/// Bound for all users but root together.
const LOOKUPS_OF_USERS_MAX: usize = 24;
/// Bound in all.
const LOOKUPS_MAX: usize = 48;
/// Least ratio of elapsed time to CPU time of a user's look-ups, beyond [`LOOKUP_CREDIT`].
const LOOKUP_COST_RATIO: u32 = 20;
/// CPU time that a user's look-ups may take at once.
const LOOKUP_CREDIT: Duration = Duration::from_secs(1);
/// Longest time that a monitor may take to answer. Chosen: the four that are asked at most fit
/// into [`LOOKUP_TIME_MAX`].
const MONITOR_ANSWER_MAX: Duration = Duration::from_millis(1_500);
/// Longest time until a client gets the message that there is no answer.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(8);

/// Origin of a look-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Asker<T> {
    /// Client at the socket.
    Client(T),
    /// Guest, by its index in the list.
    Guest(usize),
    /// Declaration, by its index, and the monitor that it means.
    Declaration(usize, MonitorId),
    /// Tag by hand that an earlier service had: its user and its group.
    Kept(Requester, Option<String>),
}

/// Look-up in progress.
#[derive(Debug)]
struct Lookup<T> {
    /// The asker; `None` after the look-up took too long.
    wanted: Option<Asker<T>>,
    guest: Option<usize>,
    uid: u32,
    name: String,
    began: Instant,
}

/// Machine that was found, or the reason why not.
#[derive(Debug)]
pub(crate) struct LookupResult<T> {
    pub(crate) wanted: Asker<T>,
    pub(crate) machine: Result<(VirtualMachine, Owner), Refusal>,
}

/// Message of a look-up's thread: the job, its result, and its CPU time.
type LookupMessage = (u64, Result<(VirtualMachine, Owner), Refusal>, Duration);

/// Watched machine.
#[derive(Debug)]
struct WatchedVm {
    watcher: VcpuWatcher,
    version: Option<u64>,
    /// The user for whom it was watched first; root once root asks.
    uid: u32,
}

/// Look-ups in progress, and the watched machines.
#[derive(Debug)]
pub(crate) struct VmRegistry<T> {
    vms: Vms,
    resolver: Resolver,
    jobs: BTreeMap<u64, Lookup<T>>,
    next: u64,
    tells: Sender<LookupMessage>,
    told: Receiver<LookupMessage>,
    /// Time at which the CPU time spent for each user is amortised.
    paid: BTreeMap<u32, Instant>,
    watched: BTreeMap<MonitorId, WatchedVm>,
    /// Ended watches with threads that still run.
    fading: Vec<(u32, Pulse)>,
}

impl<T: Send + 'static> VmRegistry<T> {
    pub(crate) fn new(resolver: &Resolver) -> Self {
        let (tells, told) = channel();
        Self {
            vms: Vms::new(&resolver.proc).patient(MONITOR_ANSWER_MAX),
            resolver: resolver.clone(),
            jobs: BTreeMap::new(),
            next: 0,
            tells,
            told,
            paid: BTreeMap::new(),
            watched: BTreeMap::new(),
            fading: Vec::new(),
        }
    }

    /// Starts a look-up of a machine.
    ///
    /// # Errors
    /// Too many look-ups are in progress.
    pub(crate) fn find(&mut self, wanted: Asker<T>, user: Requester, name: String) -> Result<(), Refusal> {
        let guest = match wanted {
            Asker::Guest(at) => Some(at),
            Asker::Client(_) | Asker::Declaration(..) | Asker::Kept(..) => None,
        };
        if guest.is_some() && self.jobs.values().any(|job| job.guest == guest) {
            return Err(Refusal::Busy);
        }
        let users = self.jobs.values().filter(|job| job.uid != 0).count();
        let theirs = self.jobs.values().filter(|job| job.uid == user.uid).count();
        let full = !user.over_others() && (theirs >= LOOKUPS_OF_USER_MAX || users >= LOOKUPS_OF_USERS_MAX);
        if full || self.jobs.len() >= LOOKUPS_MAX {
            return Err(Refusal::Busy);
        }
        let now = Instant::now();
        self.paid.retain(|_, paid| *paid > now);
        let debt = self.paid.get(&user.uid).map_or(Duration::ZERO, |paid| paid.duration_since(now));
        if let Some(wait) =
            debt.checked_sub(LOOKUP_CREDIT * LOOKUP_COST_RATIO).filter(|_| !user.over_others())
        {
            return Err(Refusal::TooOften { ms: 1 + u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) });
        }
        let id = self.next;
        let (vms, resolver, tells, told) =
            (self.vms.clone(), self.resolver.clone(), self.tells.clone(), name.clone());
        spawn("machines", move || {
            let machine = find(&vms, &resolver, user, &told);
            // The registry may have ended.
            let _ = tells.send((id, machine, Duration::from_nanos(spent(ClockId::ThreadCPUTime).0)));
        })
        .map_err(|error| Refusal::Failed(format!("{error:#}")))?;
        self.next += 1;
        self.jobs.insert(id, Lookup { wanted: Some(wanted), guest, uid: user.uid, name, began: now });
        Ok(())
    }

    /// Returns whether an asker waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.jobs.values().any(|job| job.wanted.is_some())
    }

    /// Returns the finished and the expired look-ups.
    pub(crate) fn found(&mut self) -> Vec<LookupResult<T>> {
        let mut found = Vec::new();
        for (id, machine, cost) in self.told.try_iter() {
            let Some(job) = self.jobs.remove(&id) else { continue };
            let now = Instant::now();
            let paid = self.paid.entry(job.uid).or_insert(now);
            *paid = now.max(*paid) + cost * LOOKUP_COST_RATIO;
            found.extend(job.wanted.map(|wanted| LookupResult { wanted, machine }));
        }
        // Its thread keeps its place until it ends.
        for job in self.jobs.values_mut().filter(|job| job.began.elapsed() >= LOOKUP_TIME_MAX) {
            let why = "it does not answer in time".to_owned();
            let machine = Err(Refusal::NoVm { name: job.name.clone(), why });
            found.extend(job.wanted.take().map(|wanted| LookupResult { wanted, machine }));
        }
        found
    }

    /// Watches a machine that was found: its virtual CPUs may come and go.
    ///
    /// # Errors
    /// Too many machines are watched.
    pub(crate) fn watch(
        &mut self,
        vm: VirtualMachine,
        user: Requester,
        shared: &SharedState,
    ) -> Result<(), Refusal> {
        let id = (vm.pid.0, vm.start.0);
        if let Some(watched) = self.watched.get_mut(&id) {
            if user.over_others() {
                // All of it is published again: more of it may count now.
                (watched.uid, watched.version) = (user.uid, None);
            }
            return Ok(());
        }
        self.fading.retain(|(_, pulse)| pulse.beats());
        let of = |meant: &dyn Fn(u32) -> bool| {
            let all = self.watched.values().map(|watched| watched.uid);
            all.chain(self.fading.iter().map(|(uid, _)| *uid)).filter(|uid| meant(*uid)).count()
        };
        let limits = [
            (user.over_others(), MACHINES_MAX, of(&|_| true)),
            (!user.over_others(), MACHINES_OF_USER_MAX, of(&|uid| uid == user.uid)),
            (!user.over_others(), MACHINES_OF_USERS_MAX, of(&|uid| uid != 0)),
        ];
        if let Some((_, limit, _)) = limits.into_iter().find(|(counts, limit, are)| *counts && are >= limit) {
            return Err(Refusal::TooManyMachines { limit });
        }
        shared.lock().vcpus.insert(id, plain(&vm.vcpus, user.uid));
        let watcher =
            VcpuWatcher::begin(self.vms.clone(), vm).map_err(|error| Refusal::Failed(error.to_string()))?;
        self.watched.insert(id, WatchedVm { watcher, version: None, uid: user.uid });
        Ok(())
    }

    /// Publishes changes, and removes machines that no tag and no guest names.
    pub(crate) fn tend(&mut self, shared: &SharedState, guests: &BTreeSet<MonitorId>) {
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
        let fading = &mut self.fading;
        self.watched.retain(|id, watched| {
            let stays = named.contains(id);
            if !stays {
                fading.push((watched.uid, watched.watcher.pulse()));
            }
            stays
        });
        state.vcpus.retain(|id, _| named.contains(id));
        for (id, WatchedVm { watcher, version, uid }) in &mut self.watched {
            if let Some(seen) = watcher.news(*version) {
                *version = Some(seen.version);
                state.vcpus.insert(*id, plain(&seen.vcpus, *uid));
            }
        }
    }
}

fn plain(vcpus: &[trimtab_linux::vcpus::Vcpu], uid: u32) -> Vec<Vcpu> {
    let most = if uid == 0 { VCPUS_MAX } else { VCPUS_OF_USER_MAX };
    let plain = |one: &trimtab_linux::vcpus::Vcpu| Vcpu { index: one.index, tid: one.tid, start: one.start };
    vcpus.iter().take(most).map(plain).collect()
}

/// Returns whether a user has the right to all information of this process: root may, and the
/// service's own user.
fn is_trusted(user: Requester) -> bool {
    user.over_others() || user.uid == geteuid().as_raw()
}

/// Finds a machine that this user may tag.
fn find(
    vms: &Vms,
    resolver: &Resolver,
    user: Requester,
    name: &str,
) -> Result<(VirtualMachine, Owner), Refusal> {
    let none = |why: String| Refusal::NoVm { name: name.to_owned(), why };
    let failed = |error: VmError| {
        match error {
        error if is_trusted(user) => none(one_line(&error)),
        // Replies of sockets and files are not shown to users that may not ask them.
        VmError::NoVcpus { .. } => none(
            "none of its threads is known to be a virtual CPU: start it with -name NAME,debug-threads=on, or with a QMP socket that \
             is its user's"
                .to_owned(),
        ),
        _ => none("it cannot be inspected, or has ended".to_owned()),
    }
    };
    let wanted: VmName = name.parse().unwrap_or_else(|never| match never {});
    let owner = |pid: u32| resolver.process(pid).map(|(owner, _)| owner);
    let theirs = |owner: Owner| user.over_others() || owner.is(user.uid);
    let pid = match wanted {
        VmName::Pid(pid) => {
            let owner = owner(pid.0)?;
            if !theirs(owner) {
                return Err(Refusal::NotYours { pid: pid.0, uid: owner.effective });
            }
            pid
        }
        // The service would connect to any path with its own rights.
        VmName::Socket(_) if !is_trusted(user) => {
            return Err(none("name it by its name or process; by a socket only root may".to_owned()));
        }
        VmName::Socket(path) => {
            let vm = vms.find(&VmName::Socket(path)).map_err(failed)?;
            let owner = owner(vm.pid.0)?;
            return Ok((vm, owner));
        }
        VmName::Name(wanted) => {
            // Any user may choose any name: names of machines that this user may not tag do not
            // count.
            let seen = vms.list_of(|pid| owner(pid.0).is_ok_and(theirs));
            let mut named = seen.iter().filter(|vm| vm.name.as_deref() == Some(&wanted));
            match (named.next(), named.next()) {
                (Some(vm), None) => vm.pid,
                (Some(_), Some(_)) => {
                    return Err(none("several have this name: name its process".to_owned()));
                }
                (None, _) => {
                    let names: Vec<String> = seen.iter().take(8).map(ToString::to_string).collect();
                    return Err(none(match names.is_empty() {
                        true => "none of yours runs".to_owned(),
                        false => format!("there are {}", names.join(", ")),
                    }));
                }
            }
        }
    };
    let vm = vms.find(&VmName::Pid(pid)).map_err(failed)?;
    let owner = owner(pid.0)?;
    Ok((vm, owner))
}

fn one_line(error: &VmError) -> String {
    error.to_string().replace('\n', "; ")
}

/// Returns whether a machine's monitor is alive.
pub(crate) fn lives(proc: &Path, (pid, start): MonitorId) -> bool {
    use trimtab_linux::process::{Pid, State, stat};
    stat(proc, Pid(pid)).is_ok_and(|stat| stat.start.0 == start && stat.state != State::Zombie)
}

//! Host of the service: the live machine, on which the watched roots follow the registry's tags and
//! sampling keeps to its share of a core.

use super::vm_registry::lives;
use super::{ServiceState, SharedState, TagProgress, spent};
use crate::monitored_host::{tell_at_once, tell_memory};
use crate::narrator::Narrator;
use crate::restoration::RestorationFaults;
use rustix::time::ClockId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trimtab_core::balance::{Decision, Outcome, Refusal, Settled, Wanted};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::{ProgramId, ThreadId};
use trimtab_core::observe::Sample;
use trimtab_core::sampling_budget::{Pacer, SamplingBudget};
use trimtab_core::tags::{Mark, Tag, TagId};
use trimtab_core::time::{Moment, Span};
use trimtab_linux::host::{Live, LiveError, ReadAtOnce, Restored, Root, RootId, Watch};
use trimtab_linux::process::{Pid, StartTime, Tid};

/// Longest time until a change of the registry is noticed. Chosen: too short for a user to notice.
const REGISTRY_POLL: Span = Span::from_ms(100);
/// Time between two updates of the numbers for `status`.
const FIGURES_PERIOD: Duration = Duration::from_millis(250);

/// Longest time between two comparisons of the tags with the watched roots.
const SETTLE_PERIOD: Duration = Duration::from_secs(1);

/// Time after which a target that could not be watched is tried again for the first time.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest such time; it doubles with each failure.
const RETRY_MAX: Duration = Duration::from_secs(64);

/// Thing on the machine that a tag names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TagTarget {
    Process(u32, u64),
    Thread(u32, u32, u64),
    Cgroup(String),
}

/// Reason why a tag's target is not watched now.
#[derive(Clone, Debug)]
struct WatchFault {
    why: String,
    /// Time of the next attempt, and the wait before it.
    next: Instant,
    waited: Duration,
}

impl WatchFault {
    /// Makes the fault of a first or repeated failure.
    fn new(why: String, before: Option<&Self>) -> Self {
        let waited = before.map_or(RETRY_FIRST, |before| (before.waited * 2).min(RETRY_MAX));
        Self { why, next: Instant::now() + waited, waited }
    }
}

/// Live machine, for all that is tagged.
#[derive(Debug)]
pub struct ServiceHost {
    live: Live,
    shared: SharedState,
    proc: PathBuf,
    roots: BTreeMap<TagId, BTreeMap<TagTarget, RootId>>,
    /// Faults by target: a virtual machine has several targets, and a fault of one does not imply
    /// faults of the others.
    faults: BTreeMap<TagId, BTreeMap<TagTarget, WatchFault>>,
    pacer: Pacer,
    generation: Option<u64>,
    at: Moment,
    worked: Span,
    published: Option<Instant>,
    settled: Option<Instant>,
    homes: bool,
    /// Whether no thread at all is moved.
    observe: bool,
    /// Tags with threads that are only observed, and their roots.
    observing_tags: BTreeSet<TagId>,
    observing: BTreeSet<RootId>,
    narrator: Arc<dyn Narrator>,
    /// Whether threads are read all at once, as last told.
    at_once: ReadAtOnce,
}

impl ServiceHost {
    /// Watches all that is tagged, at this share of a core. `homes`: whether the scan of bound
    /// threads needs the threads' own masks.
    pub fn new(
        live: Live,
        shared: SharedState,
        proc: PathBuf,
        budget: f64,
        homes: bool,
        narrator: Arc<dyn Narrator>,
    ) -> Self {
        Self {
            live,
            shared,
            proc,
            roots: BTreeMap::new(),
            faults: BTreeMap::new(),
            pacer: Pacer::new(SamplingBudget::share(budget)),
            generation: None,
            at: Moment::default(),
            worked: spent(ClockId::ProcessCPUTime),
            published: None,
            settled: None,
            homes,
            observe: false,
            observing_tags: BTreeSet::new(),
            observing: BTreeSet::new(),
            narrator,
            at_once: ReadAtOnce::NotNeeded,
        }
    }

    /// Moves no thread at all, if `observe`: each decision is answered as only observed.
    #[must_use]
    pub fn observing(mut self, observe: bool) -> Self {
        self.observe = observe;
        self
    }

    /// Returns whether a thread is only observed: no tag that covers it wants it moved.
    fn is_observed(&self, thread: ThreadId) -> bool {
        if self.observe || self.observing.is_empty() {
            return self.observe;
        }
        let mut roots = self.live.roots_of(thread).peekable();
        roots.peek().is_some() && roots.all(|root| self.observing.contains(&root))
    }

    /// Gives all masks back. Also returns why no journal of them was kept, if so.
    pub fn restore(&mut self) -> (Restored, RestorationFaults) {
        let restored = self.live.restore();
        (restored, RestorationFaults::of(&self.live))
    }

    /// Makes the watched roots agree with the tags.
    fn settle(&mut self) {
        self.settled = Some(Instant::now());
        let wanted: BTreeMap<TagId, (Tag, BTreeSet<TagTarget>)> = {
            let state = self.shared.lock();
            self.generation = Some(state.registry.generation());
            state.registry.tags().map(|(id, tag)| (id, (tag.clone(), named(&tag.mark, &state)))).collect()
        };
        self.leave(&wanted);
        let mut over = Vec::new();
        for (id, (tag, named)) in wanted {
            let mut have = self.roots.remove(&id).unwrap_or_default();
            if let Some(faults) = self.faults.get_mut(&id) {
                faults.retain(|one, _| named.contains(one));
            }
            let plugged_out: Vec<TagTarget> =
                have.keys().filter(|one| !named.contains(one)).cloned().collect();
            for root in plugged_out.iter().filter_map(|one| have.remove(one)).collect::<Vec<_>>() {
                self.unwatch(root);
            }
            for one in named {
                let before = self.faults.get(&id).and_then(|faults| faults.get(&one)).cloned();
                let early = before.as_ref().is_some_and(|before| Instant::now() < before.next);
                if have.contains_key(&one) || early {
                    continue;
                }
                let watched = self.watch(&tag, &one);
                if watched.is_ok()
                    && let Some(faults) = self.faults.get_mut(&id)
                {
                    faults.remove(&one);
                }
                match watched {
                    Ok(root) => drop(have.insert(one, root)),
                    // It ended between the request and now.
                    Err(LiveError::NoProcess(_) | LiveError::Ended(_) | LiveError::NoGroup { .. }) => {
                        if !matches!(tag.mark, Mark::Vm { .. } | Mark::Vcpu { .. }) {
                            over.push(id);
                        }
                    }
                    Err(LiveError::Read(error)) if error.is_gone() => over.push(id),
                    Err(error) => {
                        let fault = WatchFault::new(error.to_string(), before.as_ref());
                        self.faults.entry(id).or_default().insert(one, fault);
                    }
                }
            }
            self.roots.insert(id, have);
        }
        let roots = self.roots.iter().filter(|(id, _)| self.observing_tags.contains(id));
        self.observing = roots.flat_map(|(_, roots)| roots.values().copied()).collect();
        if !over.is_empty() {
            let mut state = self.shared.lock();
            for id in over {
                state.registry.end(id);
            }
        }
    }

    /// Ends the watch of what no tag wants any more, and prepares what is only observed.
    fn leave(&mut self, wanted: &BTreeMap<TagId, (Tag, BTreeSet<TagTarget>)>) {
        let gone: Vec<TagId> = self.roots.keys().filter(|id| !wanted.contains_key(id)).copied().collect();
        for id in &gone {
            for root in self.roots.remove(id).unwrap_or_default().into_values() {
                self.unwatch(root);
            }
        }
        self.faults.retain(|id, _| wanted.contains_key(id));
        self.shared.explainer().keep(&wanted.values().map(|(tag, _)| ProgramId(tag.program)).collect());
        let acted = gone.iter().any(|id| !self.observing_tags.contains(id));
        let mut acting = wanted.iter().filter(|(_, (tag, _))| !tag.observe);
        if acted || acting.any(|(id, _)| !self.roots.contains_key(id)) {
            self.watch_observed_anew();
        }
        self.observing_tags = wanted.iter().filter(|(_, (tag, _))| tag.observe).map(|(id, _)| *id).collect();
    }

    /// Ends the watch of all that is only observed; it is watched again at once. A tag that acts
    /// has come or gone, and may cover the same threads: these get their own masks back, and are
    /// new to the policy, which has decided about them in the other state.
    fn watch_observed_anew(&mut self) {
        for id in self.observing_tags.clone() {
            for root in self.roots.remove(&id).unwrap_or_default().into_values() {
                self.unwatch(root);
            }
        }
    }

    fn watch(&mut self, tag: &Tag, named: &TagTarget) -> Result<RootId, LiveError> {
        let how = |start| Watch { program: ProgramId(tag.program), only: tag.only, start };
        match named {
            TagTarget::Process(pid, start) => {
                self.live.watch(&Root::Tree(Pid(*pid)), how(Some(StartTime(*start))))
            }
            TagTarget::Thread(pid, tid, start) => {
                self.live.watch(&Root::Thread(Pid(*pid), Tid(*tid)), how(Some(StartTime(*start))))
            }
            TagTarget::Cgroup(path) => self.live.watch(&Root::Cgroup(PathBuf::from(path)), how(None)),
        }
    }

    fn unwatch(&mut self, root: RootId) {
        let restored = self.live.unwatch(root);
        if restored.refused > 0 {
            let fault = format!("{} threads could not be given their own masks back", restored.refused);
            self.narrator.warning(&fault);
        }
    }

    /// Ends tags after the end of their targets.
    fn end_finished_tags(&mut self) {
        let ended: BTreeSet<RootId> =
            self.live.roots().into_iter().filter(|root| root.ended).map(|root| root.id).collect();
        let marks: BTreeMap<TagId, Mark> = {
            let state = self.shared.lock();
            state.registry.tags().map(|(id, tag)| (id, tag.mark.clone())).collect()
        };
        // Looked up without the lock, so that others may continue.
        let mut over: Vec<TagId> = Vec::new();
        for (id, roots) in &self.roots {
            let Some(mark) = marks.get(id) else { continue };
            let is_over = match mark {
                // Its threads start and end; it ends with its monitor.
                Mark::Vm { pid, start, .. } | Mark::Vcpu { pid, start, .. } => {
                    !lives(&self.proc, (*pid, *start))
                }
                _ => roots.values().any(|root| ended.contains(root)),
            };
            if is_over {
                over.push(*id);
            }
        }
        if !over.is_empty() {
            let mut state = self.shared.lock();
            for id in over {
                state.registry.end(id);
            }
        }
    }

    /// Publishes progress and faults.
    fn publish(&mut self) {
        if self.published.is_some_and(|published| published.elapsed() < FIGURES_PERIOD) {
            return;
        }
        self.published = Some(Instant::now());
        let facts: BTreeMap<RootId, _> = self.live.roots().into_iter().map(|root| (root.id, root)).collect();
        let threads = u32::try_from(self.live.tagged()).unwrap_or(u32::MAX);
        let homes = if self.homes { self.live.homes() } else { BTreeMap::new() };
        let fault = self.live.facts().keeper_fault;
        let mut state = self.shared.lock();
        let before = std::mem::take(&mut state.known);
        for (id, roots) in &self.roots {
            let fault = self.faults.get(id).and_then(|faults| faults.values().next());
            let mut known =
                TagProgress { fault: fault.map(|fault| fault.why.clone()), ..TagProgress::default() };
            for facts in roots.values().filter_map(|root| facts.get(root)) {
                known.threads += facts.threads;
                known.moves += facts.moves;
            }
            // Moves of a machine's former threads still count.
            known.moves = known.moves.max(before.get(id).map_or(0, |before| before.moves));
            state.known.insert(*id, known);
        }
        state.homes = homes;
        state.done.threads = threads;
        state.done.share = self.pacer.share();
        state.done.slowed = self.pacer.slowed();
        state.faults = fault.into_iter().collect();
    }

    fn changed(&self) -> bool {
        self.generation != Some(self.shared.lock().registry.generation())
    }

    fn is_idle(&self) -> bool {
        self.roots.is_empty()
    }
}

/// Returns the targets that a mark names now.
fn named(mark: &Mark, state: &ServiceState) -> BTreeSet<TagTarget> {
    let vcpus = |pid: u32, start: u64, index: Option<u32>| -> BTreeSet<TagTarget> {
        let all = state.vcpus.get(&(pid, start)).into_iter().flatten();
        let wanted = all.filter(|vcpu| index.is_none_or(|_| index == vcpu.index));
        wanted.map(|vcpu| TagTarget::Thread(pid, vcpu.tid.0, vcpu.start.0)).collect()
    };
    match mark {
        Mark::Process { pid, start } => BTreeSet::from([TagTarget::Process(*pid, *start)]),
        Mark::Thread { pid, tid, start } => BTreeSet::from([TagTarget::Thread(*pid, *tid, *start)]),
        Mark::Cgroup(path) => BTreeSet::from([TagTarget::Cgroup(path.clone())]),
        Mark::Vm { pid, start, .. } => vcpus(*pid, *start, None),
        Mark::Vcpu { pid, start, index, .. } => vcpus(*pid, *start, Some(*index)),
    }
}

impl Host for ServiceHost {
    type Error = LiveError;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, LiveError> {
        // The vCPUs of virtual machines are plugged in and out without notice.
        self.end_finished_tags();
        if self.changed() || self.settled.is_none_or(|at| at.elapsed() >= SETTLE_PERIOD) {
            self.settle();
        }
        let sample = self.live.observe(wanted)?;
        tell_memory(&sample, &*self.narrator);
        tell_at_once(&mut self.at_once, self.live.at_once(), &*self.narrator);
        self.at = sample.at;
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, LiveError> {
        let observed = |decision: &Decision| self.is_observed(decision.thread);
        let withheld: Vec<bool> = decisions.iter().map(observed).collect();
        let wanted: Vec<Decision> =
            decisions.iter().zip(&withheld).filter(|(_, not)| !**not).map(|(one, _)| one.clone()).collect();
        let mut done = if wanted.is_empty() { Vec::new() } else { self.live.apply(&wanted)? }.into_iter();
        let end = |(decision, withheld): (&Decision, &bool)| match withheld {
            true => Outcome { thread: decision.thread, end: Settled::Refused(Refusal::Observed) },
            // The live host answers each decision in order.
            false => done
                .next()
                .unwrap_or(Outcome { thread: decision.thread, end: Settled::Refused(Refusal::Other) }),
        };
        Ok(decisions.iter().zip(&withheld).map(end).collect())
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, LiveError> {
        self.publish();
        // Cost of all that this process does: answering requests, searching for machines and bound
        // threads. Migrating pages after threads is not included, since it has its own pace.
        let worked = spent(ClockId::ProcessCPUTime).less(self.live.fetching_cost());
        let cost = worked.less(self.worked);
        self.worked = self.worked.max(worked);
        let due = self.pacer.next(self.at, cost, until);
        let mut next = self.at;
        loop {
            // While nothing is tagged, there is nothing to sample.
            let idle = self.is_idle();
            next = if idle { next + REGISTRY_POLL } else { (next + REGISTRY_POLL).min(due) };
            if self.live.wait(next)? == Awake::Over {
                return Ok(Awake::Over);
            }
            self.publish();
            if self.changed() {
                self.settle();
                self.published = None;
                if idle && !self.is_idle() {
                    return Ok(Awake::Due);
                }
            }
            if next >= due && !self.is_idle() {
                return Ok(Awake::Due);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narrator::Silent;
    use trimtab_core::set::CpuSet;
    use trimtab_core::tags::{Owner, Reach, Registry, Requester};
    use trimtab_linux::host::{HostOptions, Stopper};
    use trimtab_linux::process;

    fn served(proc: &std::path::Path, shared: &SharedState) -> (ServiceHost, Stopper) {
        let options = HostOptions { tags: true, ..HostOptions::default() };
        let usable: CpuSet = trimtab_linux::sys::affinity::get(None).unwrap();
        let live = Live::with(proc, &[], &usable, options).unwrap();
        let stopper = live.stopper();
        (ServiceHost::new(live, shared.clone(), proc.to_owned(), 0.01, false, Arc::new(Silent)), stopper)
    }

    #[test]
    fn an_object_that_could_not_be_watched_is_tried_again() {
        // A process with a file that cannot be parsed just now.
        let proc = tempfile::tempdir().unwrap();
        let task = proc.path().join("77/task/77");
        std::fs::create_dir_all(&task).unwrap();
        let own = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap();
        let stat = own("stat").replacen(&std::process::id().to_string(), "77", 1);
        let start = process::stat(std::path::Path::new("/proc"), Pid::own()).unwrap().start.0;
        let status: String = own("status")
            .lines()
            .map(|line| match line.split_once(':') {
                Some((name @ ("Tgid" | "Pid"), _)) => format!("{name}:\t77\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        for folder in [&proc.path().join("77"), &task] {
            std::fs::write(folder.join("stat"), "rubbish").unwrap();
            std::fs::write(folder.join("status"), &status).unwrap();
        }
        let shared = SharedState::new(Registry::new(Reach::All));
        let owner = Some(Owner { pid: 77, real: 0, effective: 0 });
        let mark = Mark::Process { pid: 77, start };
        let (id, _) =
            shared.lock().registry.tag(Requester { uid: 0 }, mark, owner, None, shared.now()).unwrap();
        let (mut host, _) = served(proc.path(), &shared);
        host.settle();
        assert!(host.roots[&id].is_empty() && host.faults[&id].len() == 1, "{:?}", host.faults);
        let waits = |host: &ServiceHost| host.faults[&id].values().next().unwrap().waited;
        assert_eq!(waits(&host), RETRY_FIRST);
        let due = |host: &mut ServiceHost| {
            for fault in host.faults.get_mut(&id).unwrap().values_mut() {
                fault.next = Instant::now();
            }
            host.settle();
        };
        due(&mut host);
        assert_eq!(waits(&host), 2 * RETRY_FIRST, "more and more seldom");
        // Not before it is time.
        host.settle();
        assert_eq!(waits(&host), 2 * RETRY_FIRST);
        for folder in [&proc.path().join("77"), &task] {
            std::fs::write(folder.join("stat"), &stat).unwrap();
        }
        due(&mut host);
        assert!(host.faults[&id].is_empty(), "{:?}", host.faults);
        assert_eq!((host.roots[&id].len(), shared.lock().registry.len()), (1, 1));
    }

    #[test]
    fn the_time_of_the_services_other_threads_counts_too() {
        let shared = SharedState::new(Registry::new(Reach::All));
        let (mut host, stopper) = served(std::path::Path::new("/proc"), &shared);
        // So that waiting ends at once: the test reads only its planned length.
        stopper.stop();
        let before = spent(ClockId::ProcessCPUTime);
        std::thread::spawn(move || {
            while spent(ClockId::ProcessCPUTime).less(before) < Span::from_ms(50) {
                std::hint::spin_loop();
            }
        })
        .join()
        .unwrap();
        host.observe(&Wanted::all()).unwrap();
        assert_eq!(host.wait(host.at + Span::from_ms(10)).unwrap(), Awake::Over);
        assert_eq!(host.pacer.slowed(), 1, "50 ms of work are worth 5 s at one per cent");
    }
}

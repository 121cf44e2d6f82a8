//! Scan that tags threads which were bound to some CPUs, as the guest kernel of the study did,
//! on the host.
//!
//! A mask that is read may be one of ours. For watched threads their own mask is known. Any other
//! thread counts only when it was bound at two scans in a row: by then a thread that was created
//! with a mask of ours has been found and has its own.
//!
//! A scan reads every thread of the machine, which may take long. So it runs beside the thread that
//! serves requests, in its own thread each time.

use super::{SharedState, spent};
use rustix::time::ClockId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_core::tags::{By, Mark, Reach};
use trimtab_linux::process::{self, Pid, Tid};
use trimtab_linux::survey::{Masks, PinScan};

/// Least time between two scans. Chosen: masks rarely change.
const SCAN_PERIOD_MIN: Duration = Duration::from_secs(5);
/// Bound of the threads of a user other than root that are tagged here. Chosen: a fourth of all
/// tags, so that no user keeps others out.
const BOUND_OF_USER_MAX: usize = 128;
/// Least ratio of elapsed time to scanning time in the long run: 1/400 of a CPU. A second scan that
/// confirms the first is not delayed, but its cost counts.
const SCAN_COST_RATIO: u32 = 400;

/// Bound thread: its process, its id, and its start time.
type BoundThread = (u32, u32, u64);

/// Result of a scan: bound threads, each with its user.
type BoundThreads = BTreeMap<BoundThread, u32>;

/// Returns the bound threads to be tagged in addition, for each user at most as many as there is
/// room for.
fn chosen(bound: &BoundThreads, tagged: &BTreeSet<BoundThread>) -> Vec<BoundThread> {
    let mut room: BTreeMap<u32, usize> = bound.values().map(|uid| (*uid, BOUND_OF_USER_MAX)).collect();
    room.insert(0, usize::MAX);
    for uid in tagged.iter().filter_map(|one| bound.get(one)) {
        room.entry(*uid).and_modify(|room| *room = room.saturating_sub(1));
    }
    let new = bound.iter().filter(|(one, _)| !tagged.contains(*one));
    let has_room = |(one, uid): (&BoundThread, &u32)| {
        let room = room.get_mut(uid)?;
        *room = room.checked_sub(1)?;
        Some(*one)
    };
    new.filter_map(has_room).collect()
}

/// Scanner for bound threads.
#[derive(Debug)]
pub(crate) struct Pinned {
    proc: PathBuf,
    online: CpuSet,
    reach: Reach,
    before: BoundThreads,
    next: Instant,
    /// Time at which the cost of all scans is amortised.
    paid: Instant,
    /// Whether the last scan was to confirm newly found threads.
    again: bool,
    /// The scan in progress; it returns its CPU time too.
    scan: Option<JoinHandle<(Option<BoundThreads>, Duration)>>,
}

impl Pinned {
    pub(crate) fn new(proc: PathBuf, online: CpuSet, reach: Reach) -> Self {
        let now = Instant::now();
        Self {
            proc,
            online,
            reach,
            before: BoundThreads::new(),
            next: now,
            paid: now,
            again: false,
            scan: None,
        }
    }

    /// Starts a scan, if it is time, and takes the result of a finished one. Does not block.
    pub(crate) fn tend(&mut self, shared: &SharedState) {
        if let Some(scan) = self.scan.take_if(|scan| scan.is_finished()) {
            // A failed scan counts as one that could not read anything.
            let (bound, cost) = scan.join().unwrap_or_default();
            let unsure = bound.is_some_and(|bound| self.take(shared, bound));
            self.next = self.after(Instant::now(), cost, unsure);
        }
        if self.scan.is_some() || Instant::now() < self.next {
            return;
        }
        let (proc, online, reach) = (self.proc.clone(), self.online.clone(), self.reach);
        let homes = shared.lock().homes.clone();
        let work = move || {
            let bound = find(&proc, &online, reach, &homes);
            (bound, Duration::from(spent(ClockId::ThreadCPUTime)))
        };
        match Builder::new().name("pinned".to_owned()).spawn(work) {
            Ok(scan) => self.scan = Some(scan),
            // The limit of threads may be reached now; later it may not.
            Err(_) => self.next = Instant::now() + SCAN_PERIOD_MIN,
        }
    }

    /// Returns the time of the next scan. A scan that found new threads is repeated soon, but of
    /// two scans in a row at most one comes before its cost is amortised.
    fn after(&mut self, now: Instant, cost: Duration, unsure: bool) -> Instant {
        self.paid = self.paid.max(now) + cost * SCAN_COST_RATIO;
        self.again = unsure && !self.again;
        let soon = now + SCAN_PERIOD_MIN;
        if self.again { soon } else { soon.max(self.paid) }
    }

    /// Returns whether a mask is a binding: to some of the CPUs, and to more than one, since one
    /// leaves nothing to choose.
    fn is_bound(&self, own: &CpuSet) -> bool {
        is_bound(own, &self.online)
    }

    /// Tags the threads found, and clears the tags of others. Returns whether some must be found
    /// again first.
    fn take(&mut self, shared: &SharedState, bound: BoundThreads) -> bool {
        let homes = shared.lock().homes.clone();
        let at = shared.now();
        let mut state = shared.lock();
        let sure = |one: &BoundThread| homes.contains_key(&Tid(one.1)) || self.before.contains_key(one);
        let eligible: BoundThreads =
            bound.iter().filter(|(one, _)| sure(one)).map(|(one, uid)| (*one, *uid)).collect();
        let tagged = state.registry.tags().filter(|(_, tag)| tag.by == By::Pinned);
        let tagged: BTreeSet<BoundThread> = tagged
            .filter_map(|(_, tag)| match tag.mark {
                Mark::Thread { pid, tid, start } => Some((pid, tid, start)),
                _ => None,
            })
            .collect();
        for (pid, tid, start) in chosen(&eligible, &tagged) {
            // If there are too many tags already, this one is dropped.
            let _ = state.registry.tag_by(By::Pinned, Mark::Thread { pid, tid, start }, at);
        }
        let is_bound = |mark: &Mark| match mark {
            Mark::Thread { pid, tid, start } => {
                // A thread that we hold on all its CPUs or on one keeps its own mask as home.
                bound.contains_key(&(*pid, *tid, *start))
                    || homes.get(&Tid(*tid)).is_some_and(|home| self.is_bound(home))
            }
            _ => false,
        };
        state.registry.clear_by(&By::Pinned, |mark| !is_bound(mark));
        drop(state);
        let unsure = eligible.len() < bound.len();
        self.before = bound;
        unsure
    }
}

/// Returns whether a mask is a binding: to some of the CPUs, and to more than one, since one leaves
/// nothing to choose.
fn is_bound(own: &CpuSet, online: &CpuSet) -> bool {
    own.len() > 1 && own.intersection(online) != *online
}

/// Returns bound threads; `homes` are the own masks of watched threads.
fn find(proc: &Path, online: &CpuSet, reach: Reach, homes: &BTreeMap<Tid, CpuSet>) -> Option<BoundThreads> {
    let scan = PinScan { proc, cpus: online, own: Pid::own(), masks: Masks::Kernel };
    let mut bound = BoundThreads::new();
    for pin in scan.run(|_| true).ok()?.pins {
        let ours = homes.get(&pin.tid);
        let reached = match reach {
            Reach::All => true,
            Reach::User(uid) => pin.uid == uid,
        };
        if !reached || !is_bound(ours.unwrap_or(&pin.cpus), online) {
            continue;
        }
        if let Ok(stat) = process::thread_stat(proc, pin.pid, pin.tid)
            && !stat.kernel_thread
            && !stat.fixed
        {
            bound.insert((pin.pid.0, pin.tid.0, stat.start.0), pin.uid);
        }
    }
    Some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;
    use trimtab_core::tags::{Registry, TAGS_OF_USER_MAX};
    use trimtab_linux::sys::affinity;

    impl Pinned {
        /// Runs one scan and waits for it.
        fn scan_once(&mut self, shared: &SharedState) {
            self.next = Instant::now();
            self.tend(shared);
            assert!(self.scan.is_some(), "nothing waits for it");
            while self.scan.is_some() {
                std::thread::sleep(Duration::from_millis(1));
                self.next = Instant::now() + SCAN_PERIOD_MIN;
                self.tend(shared);
            }
        }
    }

    /// Process that is killed when dropped.
    struct Sleeper(std::process::Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn nobodys_threads_keep_others_out() {
        let of = |uid: u32, tids: std::ops::Range<u32>| tids.map(move |tid| ((tid, tid, 7), uid));
        let bound: BTreeMap<BoundThread, u32> =
            of(9, 1..1_000).chain(of(8, 2_000..2_003)).chain(of(0, 3_000..3_500)).collect();
        let count = |chosen: &[BoundThread], uid| chosen.iter().filter(|one| bound[*one] == uid).count();
        let first = chosen(&bound, &BTreeSet::new());
        assert_eq!([9, 8, 0].map(|uid| count(&first, uid)), [BOUND_OF_USER_MAX, 3, 500]);
        let tagged: BTreeSet<BoundThread> = first.iter().copied().collect();
        assert_eq!(chosen(&bound, &tagged), []);
        let fewer: BTreeSet<BoundThread> = tagged.iter().filter(|one| one.0 > 5).copied().collect();
        assert_eq!(chosen(&bound, &fewer), [(1, 1, 7), (2, 2, 7), (3, 3, 7), (4, 4, 7), (5, 5, 7)]);
    }

    #[test]
    fn new_threads_shorten_the_scan_period_and_the_cost_of_each_scan_is_amortised() {
        let begin = Instant::now();
        let mut pinned = Pinned::new("/proc".into(), CpuSet::new(), Reach::All);
        let cost = Duration::from_millis(100);
        // New threads are found each time.
        let mut now = begin;
        for scan in 1..=10 {
            let next = pinned.after(now, cost, true);
            if scan % 2 == 1 {
                assert_eq!(next - now, SCAN_PERIOD_MIN);
            } else {
                assert!(next - begin >= cost * SCAN_COST_RATIO * scan, "{scan} scans are paid for");
            }
            now = next + cost;
        }
        // No new threads: the cost of each scan is amortised before the next.
        assert!(pinned.after(now, cost, false) - now >= cost * SCAN_COST_RATIO);
        let cheap = pinned.after(now + cost * SCAN_COST_RATIO * 9, Duration::ZERO, false);
        assert_eq!(cheap - (now + cost * SCAN_COST_RATIO * 9), SCAN_PERIOD_MIN);
    }

    #[test]
    fn a_thread_bound_in_two_scans_is_tagged_and_a_mask_of_ours_is_no_binding() {
        let allowed = affinity::get(None).unwrap();
        if allowed.len() < 2 {
            return skipped("two CPUs are needed");
        }
        let reach = Reach::User(rustix::process::geteuid().as_raw());
        let sleeper = Sleeper(std::process::Command::new("sleep").arg("1000").spawn().unwrap());
        let pid = sleeper.0.id();
        let shared = SharedState::new(Registry::new(reach));
        let is_tagged = || {
            let state = shared.lock();
            let found = state.registry.tags().any(|(_, tag)| tag.mark.pid() == Some(pid));
            // If very many threads are bound, not all are tagged.
            (found, [BOUND_OF_USER_MAX, TAGS_OF_USER_MAX].contains(&state.registry.len()))
        };
        // On a machine with more CPUs, every thread here is bound.
        let more: CpuSet = "4000-4003".parse().unwrap();
        let online = allowed.union(&more);
        let mut pinned = Pinned::new("/proc".into(), online.clone(), reach);
        pinned.scan_once(&shared);
        assert!(!is_tagged().0, "its mask may be one of ours that was not given back yet");
        pinned.scan_once(&shared);
        let (tagged, full) = is_tagged();
        assert!(tagged || full);
        // It is watched, and its own mask is known to be all CPUs.
        shared.lock().homes.insert(Tid(pid), online.clone());
        pinned.scan_once(&shared);
        assert!(!is_tagged().0);
        shared.lock().homes.insert(Tid(pid), allowed.clone());
        pinned.scan_once(&shared);
        let (tagged, full) = is_tagged();
        assert!(tagged || full);
        // One CPU leaves nothing to choose; all of them are not a binding.
        let one: CpuSet = allowed.iter().take(1).collect();
        assert!(!pinned.is_bound(&one) && !pinned.is_bound(&online) && pinned.is_bound(&allowed));
        // The daemon of another user does not tag it.
        let mut others = Pinned::new("/proc".into(), online, Reach::User(4_000_000));
        let empty = SharedState::new(Registry::new(reach));
        others.scan_once(&empty);
        others.scan_once(&empty);
        assert!(empty.lock().registry.is_empty());
    }
}

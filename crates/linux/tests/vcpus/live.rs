//! Real guests under watch: their vCPUs moved, plugged in, paused, killed.

use crate::guest::{Guest, NO_QEMU, Setup, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::balance::{Act, Decision, Reason, Settled, Wanted};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ThreadId;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;
use trimtab_linux::host::{HostOptions, Live, Root};
use trimtab_linux::process::{Pid, Tid};
use trimtab_linux::sys::affinity;
use trimtab_linux::vcpus::{VmName, Vms};

struct Watched {
    live: Live,
    threads: BTreeMap<u32, ThreadId>,
    names: Vec<String>,
    /// Threads that were counted at the last sample.
    counted: BTreeSet<ThreadId>,
}

impl Watched {
    fn new(name: &VmName) -> Self {
        Self::with(name, HostOptions::default())
    }

    fn with(name: &VmName, options: HostOptions) -> Self {
        let proc = Path::new("/proc");
        let vm = Vms::new(proc).patient(Duration::from_secs(30)).find(name).unwrap();
        let live = Live::with(proc, &[Root::Vm(Box::new(vm))], &usable(), options).unwrap();
        let mut watched =
            Self { live, threads: BTreeMap::new(), names: Vec::new(), counted: BTreeSet::new() };
        watched.look();
        watched
    }

    fn look(&mut self) {
        let sample = self.live.observe(&Wanted { counts: true, ..Wanted::all() }).unwrap();
        self.counted =
            sample.threads.iter().filter(|read| read.counts.is_some()).map(|read| read.id).collect();
        for info in sample.news {
            assert_eq!(info.left, None, "{info:?}");
            if self.threads.insert(info.tid, info.id).is_none() {
                self.names.push(info.name);
            }
        }
        self.threads.retain(|_, id| !sample.gone.contains(id));
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
            std::thread::sleep(Duration::from_millis(20));
            self.look();
        }
    }

    fn confine(&mut self, tid: u32, to: &CpuSet) {
        let act = Act::Confine(to.clone());
        let decision = Decision { thread: self.threads[&tid], act, reason: Reason::Start, gain: None };
        assert_eq!(self.live.apply(&[decision]).unwrap()[0].end, Settled::Applied);
    }
}

fn usable() -> CpuSet {
    affinity::get(None).unwrap()
}

fn mask(tid: u32) -> CpuSet {
    affinity::get(Some(Tid(tid))).unwrap()
}

#[test]
fn a_guests_cpus_are_moved_through_pause_and_plug_until_it_is_killed() {
    let mut guest = need!(Guest::start(&Setup::default()), NO_QEMU);
    let one: CpuSet = usable().first().unwrap().to_string().parse().unwrap();
    let mut watched = Watched::new(&VmName::Socket(guest.socket()));
    let cpus = guest.cpu_threads();
    assert_eq!(watched.threads.keys().copied().collect::<Vec<_>>(), cpus);
    assert_eq!(watched.names, ["vcpu 0", "vcpu 1"]);
    for cpu in &cpus {
        watched.confine(*cpu, &one);
    }
    let others = |guest: &Guest| {
        guest.threads().into_iter().filter(|(tid, _)| !cpus.contains(tid)).collect::<Vec<_>>()
    };
    // Paused, its vCPUs sleep and stay.
    let mut qmp = guest.qmp();
    qmp.tell(r#"{"execute":"stop"}"#);
    watched.look();
    watched.look();
    assert_eq!(watched.threads.len(), 2);
    assert!(cpus.iter().all(|cpu| mask(*cpu) == one));
    qmp.tell(r#"{"execute":"cont"}"#);
    qmp.plug(2);
    drop(qmp);
    watched.until("the CPU that was plugged in", |watched| watched.threads.len() == 3);
    assert_eq!(watched.names[2], "vcpu 2");
    assert!(others(&guest).iter().all(|(tid, _)| mask(*tid) == usable()));
    let restored = watched.live.restore();
    assert_eq!((restored.given_back, restored.changed, restored.refused), (2, 0, 0));
    assert!(guest.threads().iter().all(|(tid, _)| mask(*tid) == usable()));
    watched.confine(cpus[0], &one);
    guest.kill();
    assert_eq!(watched.live.wait(Moment(u64::MAX)).unwrap(), Awake::Over);
    watched.look();
    assert!(watched.threads.is_empty());
    let restored = watched.live.restore();
    assert_eq!((restored.given_back, restored.refused), (0, 0));
}

#[test]
fn a_guests_cpus_are_counted_until_they_are_paused_moved_away_or_killed() {
    let mut guest = need!(Guest::start(&Setup { work: Work::Spin, ..Setup::default() }), NO_QEMU);
    // Events that every machine has.
    let counting = "busy=task-clock,requests=page-faults".parse().unwrap();
    let mut watched =
        Watched::with(&VmName::Pid(Pid(guest.pid())), HostOptions { counting, ..HostOptions::default() });
    if !watched.live.counting().is_some_and(|standing| standing.rung.counts()) {
        return eprintln!("SKIPPED: nothing may be counted here");
    }
    let all = |watched: &Watched| watched.counted == watched.threads.values().copied().collect();
    watched.until("both are counted", |watched| watched.counted.len() == 2 && all(watched));
    assert_eq!(watched.live.counted_threads(), 2, "and no other thread of its process");
    // Paused, they have nothing to count, and their counters stay.
    let mut qmp = guest.qmp();
    qmp.tell(r#"{"execute":"stop"}"#);
    watched.until("nobody counts", |watched| watched.counted.is_empty());
    assert_eq!(watched.live.counted_threads(), 2);
    qmp.tell(r#"{"execute":"cont"}"#);
    watched.until("both are counted again", |watched| watched.counted.len() == 2);
    // A vCPU that is plugged in spins when the others tell it to, which these do not: it is
    // watched, and sleeps.
    qmp.plug(2);
    watched.until("the CPU that was plugged in", |watched| watched.threads.len() == 3);
    qmp.tell(r#"{"execute":"migrate","arguments":{"uri":"exec:cat >/dev/null"}}"#);
    watched.until("it is gone, and its shell stays", |watched| watched.counted.is_empty());
    let descriptors = watched.live.facts().descriptors;
    guest.kill();
    assert_eq!(watched.live.wait(Moment(u64::MAX)).unwrap(), Awake::Over);
    watched.until("they are gone", |watched| watched.threads.is_empty());
    let left = watched.live.facts().descriptors;
    assert!(watched.live.counted_threads() == 0 && left < descriptors, "{left} of {descriptors}");
}

#[test]
fn a_guest_that_moved_away_is_watched_until_it_ends_here() {
    let guest = need!(Guest::start(&Setup { work: Work::Spin, ..Setup::default() }), NO_QEMU);
    let one: CpuSet = usable().first().unwrap().to_string().parse().unwrap();
    let mut watched = Watched::new(&VmName::Pid(Pid(guest.pid())));
    let cpus = guest.cpu_threads();
    watched.confine(cpus[0], &one);
    let mut qmp = guest.qmp();
    qmp.tell(r#"{"execute":"migrate","arguments":{"uri":"exec:cat >/dev/null"}}"#);
    let begin = Instant::now();
    while !qmp.tell(r#"{"execute":"query-migrate"}"#).contains("\"completed\"") {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not move");
        std::thread::sleep(Duration::from_millis(50));
    }
    watched.look();
    watched.look();
    assert_eq!((watched.threads.len(), mask(cpus[0])), (2, one));
    qmp.tell(r#"{"execute":"quit"}"#);
    assert_eq!(watched.live.wait(Moment(u64::MAX)).unwrap(), Awake::Over);
    assert_eq!(watched.live.restore().given_back, 0);
}

#[test]
fn a_guest_without_its_socket_is_still_watched() {
    let guest = need!(Guest::start(&Setup::default()), NO_QEMU);
    let mut watched = Watched::new(&VmName::Pid(Pid(guest.pid())));
    let mut qmp = guest.qmp();
    std::fs::remove_file(guest.socket()).unwrap();
    qmp.plug(2);
    watched.until("the new CPU, by its name", |watched| watched.threads.len() == 3);
    watched.until("that the socket is gone", |watched| watched.live.facts().vm_fault.is_some());
    assert!(watched.live.facts().vm_fault.unwrap().contains("cannot connect"));
}

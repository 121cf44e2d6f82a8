//! Control groups: as roots, as shrinking bounds, and as limits of CPU time.

use crate::scene::{
    NO_COMPILER, Observations, PROC, Worker, apply, eventually, is_root, mask, need, two_cpus, usable,
};
use std::fs;
use std::path::{Path, PathBuf};
use trimtab_core::balance::{Act, Settled};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::observe::Notice;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use trimtab_linux::host::{HostOptions, Live, LiveError, Root};
use trimtab_linux::process::Pid;

/// A group of its own in a hierarchy of version 1, removed at the end.
pub(crate) struct TestGroup(PathBuf);

impl TestGroup {
    pub(crate) fn make(controller: &str, name: &str) -> Option<Self> {
        let parent = Path::new("/sys/fs/cgroup").join(controller);
        if !is_root() || !parent.join("cgroup.procs").exists() {
            return None;
        }
        let path = parent.join(format!("trimtab-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> std::io::Result<()> {
        fs::write(self.0.join(file), text)
    }

    pub(crate) fn add(&self, pid: Pid) {
        self.write("cgroup.procs", &pid.to_string()).unwrap();
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            let _ = fs::write(self.0.parent().unwrap().join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(self.0.join("below"));
        let _ = fs::remove_dir(&self.0);
    }
}

pub(crate) const NO_GROUPS: &str =
    "no control group of version 1 can be made here (root and the hierarchy are needed)";

#[test]
fn a_groups_processes_are_found_also_below_and_also_later() {
    let group = need!(TestGroup::make("cpuacct", "members"), NO_GROUPS);
    let eager = HostOptions { find_every: Span::ZERO, ..HostOptions::default() };
    let watch = || Live::with(Path::new(PROC), &[Root::Cgroup(group.0.clone())], &usable(), eager.clone());
    assert!(matches!(watch().unwrap_err(), LiveError::EmptyGroup(_)));
    let (one, other) = (need!(Worker::start(), NO_COMPILER), need!(Worker::start(), NO_COMPILER));
    group.add(one.pid());
    let mut live = watch().unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!(seen.tids(), [one.pid().0]);
    assert!(seen.last.programs[0].name.starts_with("trimtab-test-members"));
    let below = group.0.join("below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("cgroup.procs"), other.pid().to_string()).unwrap();
    eventually("the one below is found", || {
        seen.look(&mut live);
        seen.tids().contains(&other.pid().0)
    });
    drop((one, other));
    eventually("both have ended", || {
        seen.look(&mut live);
        seen.threads.is_empty()
    });
    assert_eq!(live.wait(Moment(u64::MAX)).unwrap(), Awake::Over);
}

#[test]
fn a_cpuset_that_shrinks_is_reported_and_is_no_foreign_call() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let group = need!(cpuset("shrinks", &both), NO_GROUPS);
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(3);
    group.add(worker.pid());
    let (mut live, mut seen) = worker.seen();
    assert_eq!(seen.info(tids[0]).home, both);
    for (tid, cpu) in tids.iter().zip([&one, &other]) {
        assert_eq!(apply(&mut live, seen.id(*tid), Act::Confine(cpu.clone())), Settled::Applied);
    }
    group.write("cpuset.cpus", &one.to_string()).unwrap();
    seen.look(&mut live);
    assert!(seen.notices.contains(&Notice::Usable(one.clone())), "{:?}", seen.notices);
    assert!(tids.iter().all(|tid| mask(*tid) == one), "the kernel moved them");
    assert!(seen.threads.values().all(|info| info.left.is_none()), "{:?}", seen.threads);
    // A request outside the bounds is refused, and one inside is applied.
    let refused = Settled::Refused(trimtab_core::balance::Refusal::Cpus);
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(other.clone())), refused);
    assert_eq!(apply(&mut live, seen.id(tids[1]), Act::Confine(one.clone())), Settled::Applied);
    group.write("cpuset.cpus", &both.to_string()).unwrap();
    seen.look(&mut live);
    assert_eq!(seen.notices.last(), Some(&Notice::Usable(both.clone())));
    assert!(seen.threads.values().all(|info| info.left.is_none()), "{:?}", seen.threads);
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(other)), Settled::Applied);
    let restored = live.restore();
    assert_eq!((restored.changed, restored.refused), (0, 0));
    assert_eq!(mask(tids[0]), both);
}

/// Makes a cpuset with these CPUs.
pub(crate) fn cpuset(name: &str, cpus: &CpuSet) -> Option<TestGroup> {
    let group = TestGroup::make("cpuset", name)?;
    group.write("cpuset.mems", "0").and_then(|()| group.write("cpuset.cpus", &cpus.to_string())).ok()?;
    Some(group)
}

#[test]
fn masks_come_back_with_the_cpus_that_a_cpuset_took_away() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let group = need!(cpuset("grows", &both), NO_GROUPS);
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(4);
    group.add(worker.pid());
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[3])), "0");
    let (mut live, mut seen) = worker.seen();
    // The four threads: one loses its only CPU, one keeps it, one was moved and released, one was
    // bound by its program.
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(other.clone())), Settled::Applied);
    assert_eq!(apply(&mut live, seen.id(tids[1]), Act::Confine(one.clone())), Settled::Applied);
    assert_eq!(apply(&mut live, seen.id(tids[2]), Act::Confine(other.clone())), Settled::Applied);
    assert_eq!(apply(&mut live, seen.id(tids[3]), Act::Confine(other.clone())), Settled::Applied);
    group.write("cpuset.cpus", &one.to_string()).unwrap();
    seen.look(&mut live);
    assert!(tids.iter().all(|tid| seen.info(*tid).home == one), "as far as is granted: {:?}", seen.threads);
    // Released while only one CPU is granted.
    assert_eq!(apply(&mut live, seen.id(tids[2]), Act::Release), Settled::Applied);
    group.write("cpuset.cpus", &both.to_string()).unwrap();
    seen.look(&mut live);
    assert_eq!(mask(tids[2]), both, "what it was let go to grows with the group");
    let homes: Vec<CpuSet> = tids.iter().map(|tid| seen.info(*tid).home.clone()).collect();
    assert_eq!(homes, [both.clone(), both.clone(), both.clone(), other.clone()]);
    let restored = live.restore();
    assert_eq!((restored.changed, restored.refused), (0, 0));
    let masks: Vec<CpuSet> = tids.iter().map(|tid| mask(*tid)).collect();
    assert_eq!(masks, [both.clone(), both.clone(), both, other]);
}

#[test]
fn a_thread_that_was_balanced_grows_with_its_cpuset_as_a_plain_one_does() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let group = need!(cpuset("follows", &one), NO_GROUPS);
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let plain = need!(Worker::start(), NO_COMPILER);
    // Before it joins, so that its request is for more than the cpuset.
    let tids = worker.threads(3);
    group.add(worker.pid());
    group.add(plain.pid());
    let all =
        |masks: &CpuSet| tids.iter().chain([&plain.pid().main_thread()]).all(|tid| mask(*tid) == *masks);
    for nudge in [false, true] {
        group.write("cpuset.cpus", &one.to_string()).unwrap();
        let (mut live, mut seen) = worker.seen();
        // All granted CPUs, and released again; and the same with the cpuset in both states.
        for tid in &tids {
            let act = if nudge { Act::Nudge(one.clone()) } else { Act::Confine(one.clone()) };
            assert_eq!(apply(&mut live, seen.id(*tid), act), Settled::Applied);
        }
        group.write("cpuset.cpus", &both.to_string()).unwrap();
        assert!(
            all(&both),
            "while it is balanced: {:?}",
            tids.iter().map(|tid| mask(*tid)).collect::<Vec<_>>()
        );
        seen.look(&mut live);
        for (tid, cpu) in tids.iter().zip([&one, &other, &both]) {
            let act = if nudge { Act::Nudge(cpu.clone()) } else { Act::Confine(cpu.clone()) };
            assert_eq!(apply(&mut live, seen.id(*tid), act), Settled::Applied);
        }
        group.write("cpuset.cpus", &other.to_string()).unwrap();
        seen.look(&mut live);
        // A thread that is started by a held one.
        let restored = live.restore();
        assert_eq!((restored.changed, restored.refused), (0, 0));
        assert!(all(&other));
        group.write("cpuset.cpus", &both.to_string()).unwrap();
        assert!(all(&both), "after it: {:?}", tids.iter().map(|tid| mask(*tid)).collect::<Vec<_>>());
    }
}

#[test]
fn threads_created_while_their_creator_was_confined_grow_with_the_cpuset_too() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let group = need!(cpuset("born", &both), NO_GROUPS);
    let mut worker = need!(Worker::start(), NO_COMPILER);
    group.add(worker.pid());
    let (mut live, mut seen) = worker.seen();
    let main = worker.pid().main_thread();
    assert_eq!(apply(&mut live, seen.id(main), Act::Confine(one.clone())), Settled::Applied);
    let born = worker.threads(1)[0];
    assert_eq!(mask(born), one);
    seen.look(&mut live);
    assert_eq!(mask(born), both);
    live.restore();
    group.write("cpuset.cpus", &one.to_string()).unwrap();
    group.write("cpuset.cpus", &both.to_string()).unwrap();
    assert_eq!([mask(main), mask(born)], [both.clone(), both]);
}

#[test]
fn an_own_mask_is_restored_after_any_change_of_the_cpuset() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let group = need!(cpuset("own", &both), NO_GROUPS);
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    group.add(worker.pid());
    assert_eq!(worker.ask(&format!("bind {} {one}", tids[0])), "0");
    let (mut live, mut seen) = worker.seen();
    for tid in &tids {
        assert_eq!(apply(&mut live, seen.id(*tid), Act::Confine(other.clone())), Settled::Applied);
    }
    // For a while the cpuset grants exactly the CPUs of the first thread's own mask, and then none
    // of them.
    group.write("cpuset.cpus", &one.to_string()).unwrap();
    seen.look(&mut live);
    group.write("cpuset.cpus", &both.to_string()).unwrap();
    seen.look(&mut live);
    group.write("cpuset.cpus", &other.to_string()).unwrap();
    seen.look(&mut live);
    live.restore();
    assert_eq!([mask(tids[0]), mask(tids[1])], [other.clone(), other]);
    group.write("cpuset.cpus", &both.to_string()).unwrap();
    assert!(one.is_subset(&mask(tids[0])), "its own mask was not lost: {}", mask(tids[0]));
    let (mut live, seen) = worker.seen();
    assert_eq!(apply(&mut live, seen.id(tids[1]), Act::Confine(one.clone())), Settled::Applied);
    live.restore();
    assert_eq!(mask(tids[1]), both);
}

#[test]
fn masks_that_were_set_on_purpose_are_no_more_than_that_when_the_cpuset_grows() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let group = need!(cpuset("bound", &one), NO_GROUPS);
    let worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.pid().main_thread();
    trimtab_linux::sys::affinity::set(Some(tid), &one).unwrap();
    group.add(worker.pid());
    let (mut live, mut seen) = worker.seen_with(HostOptions { bound: true, ..HostOptions::default() });
    assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(one.clone())), Settled::Applied);
    group.write("cpuset.cpus", &both.to_string()).unwrap();
    seen.look(&mut live);
    assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(other.clone())), Settled::Applied);
    assert_eq!(live.restore().given_back, 1);
    assert_eq!(mask(tid), one);
    // The same holds for a mask that is seen not to grow, before the thread is ever moved.
    drop(live);
    group.write("cpuset.cpus", &one.to_string()).unwrap();
    let (mut live, mut seen) = worker.seen();
    group.write("cpuset.cpus", &both.to_string()).unwrap();
    seen.look(&mut live);
    assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(other)), Settled::Applied);
    live.restore();
    assert_eq!(mask(tid), one);
}

#[test]
fn two_programs_have_each_their_own_bounds() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let (left, right) =
        (need!(cpuset("left", &one), NO_GROUPS), need!(cpuset("right", &usable()), NO_GROUPS));
    let (mut bound, mut free) = (need!(Worker::start(), NO_COMPILER), need!(Worker::start(), NO_COMPILER));
    let (bound_tid, free_tid) = (bound.threads(1)[0], free.threads(1)[0]);
    left.add(bound.pid());
    right.add(free.pid());
    let mut live = Live::new(Path::new(PROC), &[bound.root(), free.root()], &usable()).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!((&seen.info(bound_tid).home, &seen.info(free_tid).home), (&one, &usable()));
    let refused = Settled::Refused(trimtab_core::balance::Refusal::Cpus);
    assert_eq!(apply(&mut live, seen.id(bound_tid), Act::Confine(other.clone())), refused);
    assert_eq!(apply(&mut live, seen.id(free_tid), Act::Confine(other.clone())), Settled::Applied);
    // One program's bounds change, and the other's threads stay as they were.
    left.write("cpuset.cpus", &other.to_string()).unwrap();
    seen.look(&mut live);
    assert_eq!((&seen.info(bound_tid).home, &seen.info(free_tid).home), (&other, &usable()));
    assert!(seen.threads.values().all(|info| info.left.is_none()), "{:?}", seen.threads);
    assert_eq!(apply(&mut live, seen.id(bound_tid), Act::Confine(other)), Settled::Applied);
    assert_eq!(live.restore().changed, 0);
    assert_eq!(mask(free_tid), usable());
}

#[test]
fn a_quota_that_holds_back_is_counted() {
    let group = need!(TestGroup::make("cpu", "quota"), NO_GROUPS);
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let mut live = worker.live();
    let mut seen = Observations::default();
    assert_eq!(seen.look(&mut live).throttled, None, "no quota");
    if group.write("cpu.cfs_quota_us", "1000").is_err() {
        eprintln!("SKIPPED: no quotas here");
        return;
    }
    group.add(worker.pid());
    worker.ask("busy 1");
    let mut live = worker.live();
    eventually("time off the CPUs is counted", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        seen.look(&mut live).throttled > Some(Span::ZERO)
    });
}

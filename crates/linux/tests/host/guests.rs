//! Processes of which only some threads are watched: virtual machines, here made of a program's
//! threads.

use crate::groups::{NO_GROUPS, TestGroup};
use crate::scene::{
    NO_COMPILER, Observations, PROC, Worker, apply, eventually, mask, need, two_cpus, usable,
};
use std::path::Path;
use trimtab_core::balance::{Act, Refusal, Settled};
use trimtab_core::set::CpuSet;
use trimtab_linux::host::{HostOptions, Live, LiveError, Root};
use trimtab_linux::process::{self, StartTime, Tid};
use trimtab_linux::vcpus::{GuestPlace, Method, Monitor, Vcpu, VirtualMachine};

/// Returns a virtual machine with these threads as its vCPUs.
fn machine(worker: &Worker, tids: &[Tid]) -> VirtualMachine {
    let proc = Path::new(PROC);
    let start = |tid: Tid| process::thread_stat(proc, worker.pid(), tid).unwrap().start;
    let vcpu = |(index, &tid): (u32, &Tid)| {
        let (place, found) = (GuestPlace::default(), Method::Names);
        Vcpu { index: Some(index), tid, start: start(tid), place, found }
    };
    VirtualMachine {
        pid: worker.pid(),
        start: start(worker.pid().main_thread()),
        name: "paper\x1b".to_owned(),
        monitor: Monitor::Other,
        vcpus: (0..).zip(tids).map(vcpu).collect(),
        found: Method::Names,
        qmp: None,
        speaker: None,
        tried: Vec::new(),
    }
}

fn watch(vm: VirtualMachine) -> Result<Live, LiveError> {
    Live::with(Path::new(PROC), &[Root::Vm(Box::new(vm))], &usable(), HostOptions::default())
}

fn names(seen: &Observations) -> Vec<(u32, &str)> {
    seen.threads.values().map(|info| (info.tid, info.name.as_str())).collect()
}

#[test]
fn only_a_machines_cpus_are_watched_and_moved_and_later_ones_are_found() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(3);
    let mut live = watch(machine(&worker, &tids[1..])).unwrap();
    let mut seen = Observations::default();
    let looked = seen.look(&mut live);
    assert_eq!((looked.programs[0].name.as_str(), looked.programs[0].pid), ("paper\\x1b", worker.pid().0));
    assert_eq!(names(&seen), [(tids[1].0, "vcpu 0"), (tids[2].0, "vcpu 1")]);
    assert_eq!(apply(&mut live, seen.id(tids[1]), Act::Confine(one.clone())), Settled::Applied);
    assert_eq!(apply(&mut live, seen.id(tids[2]), Act::Confine(other.clone())), Settled::Applied);
    // Neither a child nor a thread of another kind is a vCPU; a thread with a vCPU's name is, soon
    // after it gets the name.
    worker.ask("fork");
    let later = worker.threads(2);
    assert_eq!(worker.ask("name vcpu7"), "0");
    eventually("the CPU that was plugged in", || {
        seen.look(&mut live);
        seen.threads.len() == 3
    });
    assert_eq!(names(&seen)[2], (later[1].0, "vcpu 7"));
    let untouched = [worker.pid().main_thread(), tids[0], later[0], later[1]];
    assert!(untouched.iter().all(|tid| mask(*tid) == usable()));
    assert_eq!((mask(tids[1]), mask(tids[2])), (one, other));
    let restored = live.restore();
    assert_eq!((restored.given_back, restored.changed, restored.refused), (2, 0, 0));
    assert!(tids.iter().all(|tid| mask(*tid) == usable()));
}

#[test]
fn a_vcpu_of_unknown_number_is_watched_and_named_later() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(1);
    let mut vm = machine(&worker, &tids);
    vm.vcpus[0].index = None;
    let mut live = watch(vm).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!(names(&seen), [(tids[0].0, "vcpu ?")]);
    let id = seen.id(tids[0]);
    assert_eq!(worker.ask("name vcpu7"), "0");
    eventually("its number is known", || {
        seen.look(&mut live);
        names(&seen) == [(tids[0].0, "vcpu 7")]
    });
    assert_eq!(seen.id(tids[0]), id, "the same thread as before");
}

#[test]
fn a_thread_created_by_a_vcpus_thread_gets_its_own_mask() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let maker = worker.pid().main_thread();
    let mut live = watch(machine(&worker, &[maker])).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!(apply(&mut live, seen.id(maker), Act::Confine(one.clone())), Settled::Applied);
    let born = worker.threads(1)[0];
    assert_eq!(mask(born), one);
    seen.look(&mut live);
    assert_eq!(mask(born), usable(), "as the maker's was");
    assert_eq!((mask(maker), seen.threads.len()), (one.clone(), 1));
    // A thread that another program binds later is left bound.
    assert_eq!(worker.ask(&format!("bind {born} {one}")), "0");
    for _ in 0..3 {
        worker.threads(1);
        seen.look(&mut live);
    }
    assert_eq!(mask(born), one);
    // Also a thread that was started just before the end.
    let last = worker.threads(1)[0];
    assert_eq!(live.restore().given_back, 1);
    assert_eq!((mask(maker), mask(last)), (usable(), usable()));
}

#[test]
fn each_cpu_has_the_bounds_of_its_own_group() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let cpuset = |name: &str, cpus: &CpuSet| {
        let group = TestGroup::make("cpuset", name)?;
        group.write("cpuset.mems", "0").and_then(|()| group.write("cpuset.cpus", &cpus.to_string())).ok()?;
        Some(group)
    };
    // As libvirt does: the process in one group, its vCPUs in others.
    let emulator = need!(cpuset("emulator", &one), NO_GROUPS);
    let first = need!(cpuset("vcpu0", &other), NO_GROUPS);
    let second = need!(cpuset("vcpu1", &both), NO_GROUPS);
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    emulator.add(worker.pid());
    for (group, tid) in [(&first, tids[0]), (&second, tids[1])] {
        group.write("tasks", &tid.to_string()).unwrap();
    }
    let mut live = watch(machine(&worker, &tids)).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    let homes = |seen: &Observations| tids.iter().map(|tid| seen.info(*tid).home.clone()).collect::<Vec<_>>();
    assert_eq!(homes(&seen), [other.clone(), both.clone()]);
    seen.look(&mut live);
    assert_eq!(
        apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone())),
        Settled::Refused(Refusal::Cpus)
    );
    assert_eq!(apply(&mut live, seen.id(tids[1]), Act::Confine(one.clone())), Settled::Applied);
    // CPUs that libvirt grants later do not count as a foreign call.
    first.write("cpuset.cpus", &both.to_string()).unwrap();
    eventually("the wider bounds are told", || {
        seen.look(&mut live);
        homes(&seen)[0] == both
    });
    second.write("cpuset.cpus", &other.to_string()).unwrap();
    eventually("the narrower ones too", || {
        seen.look(&mut live);
        homes(&seen)[1] == other
    });
    assert!(seen.threads.values().all(|info| info.left.is_none()), "{:?}", seen.threads);
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone())), Settled::Applied);
    second.write("cpuset.cpus", &both.to_string()).unwrap();
    seen.look(&mut live);
    assert_eq!(live.restore().changed, 0);
    assert_eq!((mask(tids[0]), mask(tids[1])), (both.clone(), both));
    assert_eq!(mask(worker.pid().main_thread()), one);
}

#[test]
fn a_mask_set_by_another_program_is_left_alone() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let mut live = watch(machine(&worker, &tids)).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone())), Settled::Applied);
    // As `virsh vcpupin` does.
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[0])), "0");
    eventually("it is seen", || {
        seen.look(&mut live);
        seen.info(tids[0]).left.is_some()
    });
    assert_eq!(
        apply(&mut live, seen.id(tids[0]), Act::Confine(one)),
        Settled::Refused(Refusal::MovedMeanwhile)
    );
    assert_eq!(live.restore().given_back, 0);
    assert_eq!(mask(tids[0]), other);
}

#[test]
fn a_machine_that_is_another_by_now_is_not_watched() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(1);
    let vm = machine(&worker, &tids);
    let mut earlier = vm.clone();
    earlier.start = StartTime(vm.start.0 - 1);
    assert!(matches!(watch(earlier).unwrap_err(), LiveError::NoProcess(pid) if pid == worker.pid()));
    // A number that another thread has by now does not name a vCPU of the machine.
    let mut reused = vm;
    reused.vcpus[0].start = StartTime(reused.vcpus[0].start.0 - 1);
    let mut live = watch(reused).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert!(seen.threads.is_empty());
}

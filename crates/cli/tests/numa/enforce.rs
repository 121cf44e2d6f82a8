//! Holds that are enforced: the service makes partitions of them, keeps strangers off, refuses
//! holds that were not granted, and gives everything back, also when it is killed.

mod bed;
mod resize;

use crate::shape::{Cpus, Shape};
use crate::util::{MASK, Running, Sandbox, cpus, eventually, skip};
use bed::{
    ANN, BOB, Hog, Homes, ROOT, allowed, bed, group_of, guardian, holds_in, python, run, serve, state,
};
use bed::{until_enforced, until_given_back, with_roots_ledger, word};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trimtab_core::enforce::{GroupChange, GroupEnd, HoldGroup};
use trimtab_core::set::NodeSet;
use trimtab_linux::partitions::Partitions;

#[test]
fn a_stranger_is_kept_off_a_hold_until_the_hold_ends() {
    let (homes, shape, sandbox) = given!(bed());
    sandbox.write("config/site.toml", "enforce-memory = true\n");
    let (hog, all) = (Hog::new(), shape.cpus());
    homes.take("bob", hog.0.id());
    let (held, mask) = run(&sandbox, &homes, ANN, "-c 1");
    assert_eq!(allowed(hog.0.id()), all, "before, a hold is an agreement");
    let service = serve(&sandbox, "--enforce");
    let rest: Cpus = all.difference(&mask).copied().collect();
    eventually("the hog is off the held CPU", || allowed(hog.0.id()) == rest);
    eventually("the state is published", || state(&sandbox, &mask)["enforced"] == true);
    assert_eq!(allowed(service.pid()), rest, "the service is a stranger too");
    // The hold is in its group, inside the session of its user.
    let [group] = holds_in(&homes.of("ann")).try_into().unwrap();
    assert_eq!(group_of(held.pid()), group.to_string_lossy().replace(ROOT, ""));
    assert_eq!(
        (allowed(held.pid()), word(&group, "cpuset.cpus.partition")),
        (mask.clone(), "root".to_owned())
    );
    let nodes: BTreeSet<u32> = shape.nodes_of(&mask);
    assert_eq!(cpus(&word(&group, "cpuset.mems")), nodes);
    assert!(word(&homes.of("ann"), "cgroup.procs").lines().any(|line| line == held.pid().to_string()));
    // A stranger cannot bind itself there either.
    let cpu = mask.first().unwrap().to_string();
    let bound = Command::new("taskset").args(["-c", &cpu, "true"]).status().unwrap();
    assert!(!bound.success());
    held.ends().ok();
    eventually("the hog may run there again", || allowed(hog.0.id()) == all);
    eventually("the group is gone", || homes.groups().is_empty());
    service.signal(Signal::TERM);
    service.ends();
    until_given_back(&homes, &[hog.0.id()], &all);
    assert_eq!(guardian(), None);
}

#[test]
fn a_hold_beyond_the_limits_is_refused_and_its_cpus_become_free() {
    let homes = given!(Homes::new());
    given!(Shape::here());
    let sandbox = with_roots_ledger();
    sandbox.write("config/site.toml", "max-cores = 2\nmax-cores-per-user = 2\n");
    let service = serve(&sandbox, "--enforce");
    let (first, mask) = run(&sandbox, &homes, ANN, "-c 1");
    until_enforced(&sandbox, &mask);
    // The launcher's limits do not bind: it was asked not to read them.
    let (second, more) = run(&sandbox, &homes, ANN, "-c 2 --no-rules");
    assert!(more.is_disjoint(&mask));
    eventually("the service says why", || service.errors().contains("max-cores-per-user"));
    eventually("its CPUs are free", || sandbox.held() == mask);
    // It runs on, without a hold.
    assert!(Path::new(&format!("/proc/{}", second.pid())).exists());
    assert!(!group_of(second.pid()).contains("trimtab"));
    // Another user gets these CPUs, and the refused run is kept off.
    let (third, theirs) = run(&sandbox, &homes, BOB, "-c 2 --no-rules");
    assert_eq!(theirs, more);
    until_enforced(&sandbox, &theirs);
    assert!(allowed(second.pid()).is_disjoint(&theirs), "{:?}", allowed(second.pid()));
    assert_eq!(allowed(third.pid()), theirs);
    for run in [first, second, third] {
        run.ends().ok();
    }
    service.signal(Signal::TERM);
    service.ends();
    assert_eq!(homes.groups(), Vec::<PathBuf>::new());
}

#[test]
fn everything_is_given_back_when_the_service_is_killed() {
    let (homes, shape, sandbox) = given!(bed());
    let (hog, all) = (Hog::new(), shape.cpus());
    homes.take("bob", hog.0.id());
    let (held, mask) = run(&sandbox, &homes, ANN, "-c 1");
    let rest: Cpus = all.difference(&mask).copied().collect();
    let enforced = |service: &Running<'_>| {
        eventually("the hog is off", || allowed(hog.0.id()) == rest);
        eventually("there is a guardian", || guardian().is_some());
        service.pid()
    };
    let whole = |held: &Running<'_>| {
        until_given_back(&homes, &[hog.0.id()], &all);
        assert_eq!(group_of(held.pid()), "/users.slice/ann/session");
        assert_eq!((allowed(held.pid()), sandbox.held()), (mask.clone(), mask.clone()));
    };
    // By its guardian, at once.
    let service = serve(&sandbox, "--enforce");
    enforced(&service);
    service.signal(Signal::KILL);
    service.ends();
    whole(&held);
    eventually("the guardian ends", || guardian().is_none());
    // With its guardian: the next service takes the groups over, and they do not change meanwhile.
    let kill_both = || {
        let service = serve(&sandbox, "--enforce");
        enforced(&service);
        let orphan = Pid::from_raw(guardian().unwrap().cast_signed()).unwrap();
        kill_process(orphan, Signal::KILL).unwrap();
        service.signal(Signal::KILL);
        service.ends();
        assert_eq!(allowed(hog.0.id()), rest, "nothing is left to give it back");
    };
    kill_both();
    let next = serve(&sandbox, "--enforce");
    eventually("the next service has it", || state(&sandbox, &mask)["enforced"] == true);
    assert_eq!(allowed(hog.0.id()), rest);
    next.signal(Signal::TERM);
    next.ends();
    whole(&held);
    // By a service that does not enforce, and by the command for it.
    kill_both();
    let plain = serve(&sandbox, "");
    whole(&held);
    plain.signal(Signal::TERM);
    plain.ends();
    kill_both();
    let said = sandbox.trimtab("serve --give-back").ends();
    assert!(said.stderr.contains("gave 1 group of holds back"), "{}", said.stderr);
    whole(&held);
    held.ends().ok();
}

#[test]
fn a_dry_run_changes_nothing_and_tells_everything() {
    let (homes, shape, sandbox) = given!(bed());
    sandbox.write("config/site.toml", "max-cores = 1\n");
    let (_one, mask) = run(&sandbox, &homes, ANN, "-c 1");
    let (_two, more) = run(&sandbox, &homes, BOB, "-c 2 --no-rules");
    let service = serve(&sandbox, "--enforce --observe");
    for words in [
        "would be enforced by /users.slice/ann/session/trimtab.",
        "would keep all others off CPUs",
        "would be refused: it has 2 cores, and a run may have 1 (max-cores)",
        "would free CPUs",
    ] {
        eventually(words, || service.errors().contains(words));
    }
    eventually("the state is published", || state(&sandbox, &mask)["enforced"] == false);
    assert_eq!((homes.groups(), guardian()), (Vec::new(), None));
    assert_eq!(sandbox.held(), mask.union(&more).copied().collect());
    assert_eq!(allowed(service.pid()), shape.cpus());
    assert!(!word(&homes.of("ann"), "cgroup.subtree_control").contains("cpuset"));
    service.signal(Signal::TERM);
    service.ends();
}

/// The owner of the ledger's file could replace it by one that pretends any hold.
#[test]
fn a_ledger_of_another_user_is_not_believed() {
    let homes = given!(Homes::new());
    let sandbox = Sandbox::alone();
    let (held, mask) = run(&sandbox, &homes, ANN, "-c 1");
    let service = serve(&sandbox, "--enforce");
    eventually("the fault is told", || service.errors().contains("is not root's"));
    assert_eq!((homes.groups(), sandbox.held()), (Vec::new(), mask));
    service.signal(Signal::TERM);
    service.ends();
    held.ends().ok();
}

/// A user with a control group of the session manager's can make groups and change settings there.
#[test]
fn a_user_who_owns_the_group_gets_no_more_than_the_own_hold() {
    let (homes, shape, sandbox) = given!(bed());
    let (held, mask) = run(&sandbox, &homes, ANN, "-c 1");
    let home = homes.of("ann");
    for entry in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(home.join(entry), Some(ANN), Some(ANN)).unwrap();
    }
    let ps = sandbox.ps();
    let id = ps["holds"][0]["hold"].as_str().unwrap().trim_start_matches("0x").to_owned();
    let planted = home.join(format!("trimtab.{id}"));
    fs::create_dir(&planted).unwrap();
    chown(&planted, Some(ANN), Some(ANN)).unwrap();
    let service = serve(&sandbox, "--enforce");
    eventually("it is left alone", || {
        state(&sandbox, &mask)["fault"].as_str().is_some_and(|fault| fault.contains("was made by user 1001"))
    });
    fs::remove_dir(&planted).unwrap();
    until_enforced(&sandbox, &mask);
    // The user switches the controller off, which ends the partition: the next look mends it.
    fs::write(home.join("cgroup.subtree_control"), "-cpuset").unwrap();
    let rest: Cpus = shape.cpus().difference(&mask).copied().collect();
    eventually("it is mended", || {
        word(&planted, "cpuset.cpus.partition") == "root" && allowed(service.pid()) == rest
    });
    held.ends().ok();
    homes.end(service, &shape);
}

#[test]
fn a_second_service_does_not_enforce() {
    let _homes = given!(Homes::new());
    let sandbox = with_roots_ledger();
    let service = serve(&sandbox, "--enforce");
    let other = sandbox.path("other");
    let second = sandbox.trimtab("serve --enforce").arg("--socket").arg(other).ends();
    second.fails(2, &["another service enforces holds here"]);
    sandbox.trimtab("serve --give-back").ends().fails(2, &["another service enforces holds here"]);
    service.signal(Signal::TERM);
    service.ends();
}

/// Some programs close all descriptors that they do not know. The hold stays, by a mapping, and its
/// group shows what the descriptor showed.
#[test]
fn a_program_that_closes_the_descriptor_stays_in_its_group() {
    let (homes, shape, sandbox) = given!(bed());
    let python = given!(python());
    // A guest's files are on an overlay, and mappings there do not keep locks. A ledger is in
    // memory.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "mode=1777", "ledger"])
        .arg(sandbox.path("ledger"))
        .status();
    assert!(mounted.unwrap().success());
    let script = "import os, sys; print('on', flush=True); sys.stdin.readline(); \
                  os.closerange(3, 4096); print('closed', flush=True); sys.stdin.read()";
    let mut held = sandbox.run("-c 1").arg(&python).args(["-c", script]).begins();
    held.line();
    homes.take("ann", held.pid());
    let mask = sandbox.held();
    let rest: Cpus = shape.cpus().difference(&mask).copied().collect();
    let first = serve(&sandbox, "--enforce");
    until_enforced(&sandbox, &mask);
    held.tell("\n");
    held.lines(2);
    first.signal(Signal::KILL);
    kill_process(Pid::from_raw(guardian().unwrap().cast_signed()).unwrap(), Signal::KILL).unwrap();
    first.ends();
    let next = serve(&sandbox, "--enforce");
    eventually("the next service knows it", || state(&sandbox, &mask)["enforced"] == true);
    assert_eq!(allowed(next.pid()), rest);
    held.ends().ok();
    eventually("it is over", || homes.groups().is_empty());
    next.signal(Signal::TERM);
    next.ends();
    until_given_back(&homes, &[], &shape.cpus());
}

/// The kernel shows a run the CPUs that enforced holds leave. Those of the holds are held all the
/// same: they come back.
#[test]
fn a_run_waits_for_the_cpus_of_an_enforced_hold() {
    let (homes, shape, sandbox) = given!(bed());
    let (held, mask) = run(&sandbox, &homes, ANN, "-c 3");
    let service = serve(&sandbox, "--enforce");
    let rest: Cpus = shape.cpus().difference(&mask).copied().collect();
    eventually("it is enforced", || allowed(service.pid()) == rest);
    sandbox.run("-c 2").arg("true").user(BOB).ends().fails(124, &["are held by others"]);
    // More than the machine has is refused at once, also with --wait.
    let more = shape.cpus().len() + 1;
    sandbox.run(&format!("-c {more} --wait")).arg("true").user(BOB).ends().fails(125, &[]);
    let mut waiting = sandbox.run("-c 2 --wait").sh(&format!("{MASK}; exec cat")).user(BOB).begins();
    eventually("it waits in line", || sandbox.ps()["waiting"] == 1);
    let behind = sandbox.run("-c 4 --wait").sh(MASK).user(ANN).begins();
    eventually("another waits for all", || sandbox.ps()["waiting"] == 2);
    held.ends().ok();
    assert_eq!(cpus(&waiting.line()).len(), 2);
    waiting.ends().ok();
    assert_eq!(cpus(&behind.ends().ok()), shape.cpus());
    homes.end(service, &shape);
}

/// A run that shares CPUs with others does not get those of an enforced hold, on which the kernel
/// lets nothing else run.
#[test]
fn a_run_that_shares_is_placed_beside_enforced_holds() {
    let (homes, shape, sandbox) = given!(bed());
    let (held, mask) = run(&sandbox, &homes, ANN, "-c 1");
    let service = serve(&sandbox, "--enforce");
    let rest: Cpus = shape.cpus().difference(&mask).copied().collect();
    eventually("it is enforced", || allowed(service.pid()) == rest);
    let shares = sandbox.run(&format!("-c {} --share", rest.len())).sh(MASK).user(BOB).ends();
    assert_eq!((shares.code, cpus(&shares.out())), (Some(0), rest.clone()), "{shares}");
    let more = sandbox.run(&format!("-c {} --share", rest.len() + 1)).sh(MASK).user(BOB).ends();
    more.fails(125, &[]);
    held.ends().ok();
    homes.end(service, &shape);
}

/// A process with the number of an ended member of a hold leaves the hold's group again.
#[test]
fn a_process_that_began_at_another_time_does_not_stay_in_a_group() {
    let homes = given!(Homes::new());
    let partitions = Partitions::open(Path::new(ROOT)).unwrap();
    let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = process.id();
    homes.take("ann", pid);
    let home = "/users.slice/ann/session".to_owned();
    let group = HoldGroup { home: home.clone(), hold: 0x5a };
    let (cpus, mems) = ("1".parse().unwrap(), NodeSet::new());
    partitions.apply(&GroupChange::Establish { group: group.clone(), cpus, mems }).unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let enter = |start| GroupChange::Enter { group: group.clone(), pids: BTreeMap::from([(pid, start)]) };
    partitions.apply(&enter(start + 1)).unwrap();
    assert_eq!(group_of(pid), home, "it is not moved");
    partitions.apply(&enter(start)).unwrap();
    assert_eq!(group_of(pid), group.path());
    // The kernel was told the number, and it was this process's by then.
    partitions.expel_other(&group, pid, start).unwrap();
    assert_eq!(group_of(pid), group.path(), "it is the one");
    partitions.expel_other(&group, pid, start + 1).unwrap();
    assert_eq!(group_of(pid), home);
    partitions.apply(&GroupChange::GiveBack { group, why: GroupEnd::Hold }).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(homes.groups(), Vec::<PathBuf>::new());
}

/// A hold that has ended is a partition for another moment. Each run beside it gets its CPUs, or
/// waits for them.
#[test]
fn runs_that_follow_each_other_get_the_cpus_of_enforced_holds() {
    let (homes, shape, sandbox) = given!(bed());
    let service = serve(&sandbox, "--enforce");
    for _ in 0..3 {
        let (held, mask) = run(&sandbox, &homes, ANN, "-c 3");
        until_enforced(&sandbox, &mask);
        held.ends().ok();
        let next = sandbox.run("-c 4").sh(MASK).user(BOB).ends();
        assert_eq!((next.code, cpus(&next.out())), (Some(0), shape.cpus()), "{next}");
    }
    homes.end(service, &shape);
}

/// nginx and PostgreSQL write their titles over their environment.
#[test]
fn a_program_that_overwrites_its_environment_stays_enforced() {
    let (homes, shape, sandbox) = given!(bed());
    let python = given!(python());
    let script = "import ctypes, sys; print('on', flush=True); sys.stdin.readline(); \
                  stat = open('/proc/self/stat').read().rsplit(')', 1)[1].split(); \
                  first, last = int(stat[47]), int(stat[48]); ctypes.memset(first, 0, last - first); \
                  print('written', flush=True); sys.stdin.read()";
    let mut held = sandbox.run("-c 1").arg(&python).args(["-c", script]).begins();
    held.line();
    homes.take("ann", held.pid());
    let mask = sandbox.held();
    let service = serve(&sandbox, "--enforce");
    until_enforced(&sandbox, &mask);
    held.tell("\n");
    held.lines(2);
    let environment = fs::read(format!("/proc/{}/environ", held.pid())).unwrap();
    assert!(environment.iter().all(|byte| *byte == 0), "{environment:?}");
    // Another hold makes the service read all processes again.
    let (other, theirs) = run(&sandbox, &homes, BOB, "-c 1");
    until_enforced(&sandbox, &theirs);
    assert_eq!(state(&sandbox, &mask)["enforced"], true);
    let rest: Cpus = shape.cpus().difference(&mask).copied().collect();
    assert_eq!(allowed(service.pid()), rest.difference(&theirs).copied().collect());
    held.ends().ok();
    other.ends().ok();
    homes.end(service, &shape);
}

/// A user who locks the CPUs of a second hold with the number of the first one, as the launcher
/// never does, has no more than the limits allow.
#[test]
fn a_second_hold_of_the_same_number_is_refused() {
    let homes = given!(Homes::new());
    given!(Shape::here());
    // Another user may not execute every Python.
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return skip("no Python of the system");
    }
    let sandbox = with_roots_ledger();
    sandbox.write("config/site.toml", "max-cores-per-user = 2\n");
    let service = serve(&sandbox, "--enforce");
    // The byte of the number is locked for reading, which two descriptions can do.
    let script = "\
import fcntl, glob, os, struct, sys
path, = glob.glob(sys.argv[1] + '/ledger/*.locks')
held = int(os.environ['TRIMTAB_HOLD'].split(' ')[1])
own = [line.split() for line in open(f'/proc/self/fdinfo/{held}') if 'lock:' in line]
at, = [int(line[-2]) for line in own if int(line[-2]) >= 1 << 62]
def lock(file, kind, start):
    fcntl.fcntl(file, 37, struct.pack('hhqqi4x', kind, 0, start, 1, 0))
lock(held, fcntl.F_RDLCK, at)
second = os.open(path, os.O_RDWR)
lock(second, fcntl.F_RDLCK, at)
for cpu in map(int, sys.argv[2].split(',')):
    lock(second, fcntl.F_WRLCK, cpu)
print('locked', flush=True)
sys.stdin.read()
";
    let mut held = sandbox
        .run("-c 1 --cpus 0")
        .arg(python)
        .args(["-c", script, &sandbox.path("").to_string_lossy(), "1,2"])
        .user(ANN)
        .begins();
    assert_eq!(held.line(), "locked");
    homes.take("ann", held.pid());
    eventually("the service says why", || {
        service.errors().contains("the number of an older hold of its user")
    });
    eventually("only the first is left", || sandbox.held() == Cpus::from([0]));
    eventually("that is enforced", || state(&sandbox, &Cpus::from([0]))["enforced"] == true);
    held.ends().ok();
    service.signal(Signal::TERM);
    service.ends();
}

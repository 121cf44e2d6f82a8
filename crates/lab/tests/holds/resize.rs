//! Changes of the number of cores.

use crate::delegate::{THREADS, hold, waiting};
use crate::ledger::{held, used};
use crate::util::{Sandbox, eventually, need, python, two};
use std::collections::BTreeSet;

#[test]
fn a_run_grows_and_shrinks_with_all_its_threads() {
    let [a, b] = need!(two(), "two cores are needed");
    let python = need!(python(), "no Python");
    let sandbox = Sandbox::new();
    let mut run = sandbox.run("-c 1").arg(python).args(["-c", THREADS]).begins();
    let child: u32 = run.line().parse().unwrap();
    let both = BTreeSet::from([a, b]);
    let resize = |words: &str| sandbox.trimtab(&format!("resize --survey none {words}")).ends();
    let one = used(run.pid());
    for by in [run.pid(), child] {
        let grown = resize(&format!("{by} -c 2 --json"));
        let said: serde_json::Value = serde_json::from_str(&grown.out()).unwrap();
        assert_eq!((&said["schema"], &said["cores"]), (&"trimtab.resize/1".into(), &2.into()), "{said}");
        assert_eq!(said["pid"], run.pid());
        assert_eq!([used(run.pid()), used(child), held(&sandbox)], [&both; 3].map(Clone::clone));
        assert_eq!(resize(&format!("{by} -c 1")).code, Some(0));
        assert_eq!((used(run.pid()), used(child)), (held(&sandbox), held(&sandbox)));
        assert_eq!(held(&sandbox).len(), 1);
    }
    assert_eq!(one.len(), 1);
    resize(&format!("{} -c 0", run.pid())).fails(2, &["at least 1 core"]);
    resize(&format!("{} -c 3000", run.pid())).fails(2, &["more cores are needed"]);
    let other = sandbox.hold("-c 1");
    resize(&format!("{} -c 2", run.pid())).fails(2, &["1 more cores are needed, and 0 are free"]);
    assert_eq!(held(&sandbox), both);
    drop(other);
    // The grown hold ends with its program alone.
    eventually("the other run has ended", || held(&sandbox).len() == 1);
    assert_eq!(resize(&format!("{} -c 2", run.pid())).code, Some(0));
    run.ends().ok();
    assert!(held(&sandbox).is_empty());
}

#[test]
fn threads_that_were_bound_by_their_program_stay_if_their_cpu_is_left() {
    let [a, b] = need!(two(), "two cores are needed");
    let python = need!(python(), "no Python");
    let sandbox = Sandbox::new();
    let script = "import os, sys, threading
def bound(cpu):
    os.sched_setaffinity(0, {cpu}); ready.release(); stop.acquire()
ready, stop = threading.Semaphore(0), threading.Semaphore(0)
for cpu in map(int, sys.argv[1:]): threading.Thread(target=bound, args=(cpu,), daemon=True).start(); ready.acquire()
print('on', flush=True); sys.stdin.read()";
    let words = ["-c", script, &a.to_string(), &b.to_string()].map(str::to_owned);
    let mut run = sandbox.run("-c 2").arg(python).args(words).begins();
    run.line();
    let masks = || {
        let mut masks = crate::util::masks(run.pid());
        masks.sort();
        masks
    };
    let sets = |lists: &[&[u32]]| {
        lists.iter().map(|list| list.iter().copied().collect()).collect::<Vec<BTreeSet<u32>>>()
    };
    assert_eq!(masks(), sets(&[&[a], &[a, b], &[b]]));
    let shrunk = sandbox.trimtab(&format!("resize {} -c 1 --json", run.pid())).ends().out();
    let shrunk: serde_json::Value = serde_json::from_str(&shrunk).unwrap();
    assert_eq!((&shrunk["rebound"], &shrunk["kept"]), (&2.into(), &1.into()), "{shrunk}");
    let left: u32 = shrunk["reserved"].as_str().unwrap().parse().unwrap();
    assert_eq!(masks(), sets(&[&[left], &[left], &[left]]));
}

#[test]
fn cores_that_a_run_inside_has_are_not_given_back() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script = |cores: u32| {
        format!(
            "exec 3<&0; $T run --survey none -c {cores} -- sh -c 'echo in; read line' <&3 & read line; wait"
        )
    };
    let mut outer = sandbox.run("-c 2").sh(&script(2)).begins();
    outer.line();
    let resize = |words: &str| sandbox.trimtab(&format!("resize --survey none {words}")).ends();
    resize(&format!("{} -c 1", outer.pid())).fails(2, &["runs inside it", "first"]);
    assert_eq!(held(&sandbox).len(), 2);
    drop(outer);
    eventually("it has ended", || held(&sandbox).is_empty());
    let mut outer = sandbox.run("-c 2").sh(&script(1)).begins();
    outer.line();
    assert_eq!(resize(&format!("{} -c 1", outer.pid())).code, Some(0));
    let ps = sandbox.ps();
    assert_eq!(ps["holds"].as_array().unwrap().len(), 2, "{ps}");
    assert_eq!(ps["holds"][0]["cpus"], ps["holds"][1]["cpus"], "the inner run keeps its core: {ps}");
}

#[test]
fn shared_holds_and_waiting_runs_are_respected() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let shared = sandbox.hold("-c 1 --share");
    sandbox.trimtab(&format!("resize {} -c 2", shared.pid())).ends().fails(2, &["shared"]);
    drop(shared);
    eventually("it has ended", || sandbox.ps()["holds"].as_array().unwrap().is_empty());
    let target = waiting(&sandbox);
    hold(&sandbox, &format!("-c 1 --pid {}", target.pid())).ends();
    assert_eq!(sandbox.trimtab(&format!("resize --survey none {} -c 2", target.pid())).ends().code, Some(0));
    assert_eq!(used(target.pid()).len(), 2);
}

/// A growth that is killed while it binds leaves threads without the added cores. A smaller size
/// and then the same binds them all; the same size alone leaves the threads where they are, since
/// the program may have bound them itself.
#[test]
fn threads_of_a_growth_that_was_broken_off_are_bound_by_the_next() {
    let [a, b] = need!(two(), "two cores are needed");
    let python = need!(python(), "no Python");
    let sandbox = Sandbox::new();
    let mut run = sandbox.run("-c 1").arg(python).args(["-c", THREADS]).begins();
    let child: u32 = run.line().parse().unwrap();
    let resize = |cores: u32| {
        let words = format!("resize --survey none {} -c {cores} --json", run.pid());
        let said = sandbox.trimtab(&words).ends().out();
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    let one = used(run.pid());
    resize(2);
    let both = BTreeSet::from([a, b]);
    let old: trimtab_core::set::CpuSet = one.iter().copied().map(trimtab_core::ids::OsCpu).collect();
    for entry in std::fs::read_dir(format!("/proc/{}/task", run.pid())).unwrap() {
        let tid = entry.unwrap().file_name().into_string().unwrap().parse::<u32>().unwrap();
        trimtab_linux::sys::affinity::set(Some(trimtab_linux::process::Tid(tid)), &old).unwrap();
    }
    assert_eq!([used(run.pid()), used(child), held(&sandbox)], [one.clone(), both.clone(), both.clone()]);
    assert_eq!(resize(2)["rebound"], 0);
    assert_eq!(used(run.pid()), one, "they keep their mask");
    resize(1);
    let said = resize(2);
    assert_eq!([used(run.pid()), used(child), held(&sandbox)], [both.clone(), both.clone(), both], "{said}");
}

//! A control group that withholds a node: neither the plan nor the memory uses that node.

use crate::memory::assert_all_on;
use crate::pages;
use crate::shape::{Cpus, Shape, file, testbed};
use crate::util::{Call, MASK, Sandbox, cpus, skip};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use trimtab_core::balance::{Act, Decision, Reason, Settled, Wanted};
use trimtab_core::drive::Host;
use trimtab_core::set::CpuSet;
use trimtab_linux::host::{Live, Root};
use trimtab_linux::process::{Pid, Tid};
use trimtab_linux::sys::affinity;

/// A control group, removed when dropped.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn of(cpus: &Cpus, mems: impl IntoIterator<Item = u32>) -> Option<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        testbed()?;
        let root = PathBuf::from("/sys/fs/cgroup");
        if !file("/sys/fs/cgroup/cgroup.controllers").contains("cpuset")
            || fs::write(root.join("cgroup.subtree_control"), "+cpuset").is_err()
        {
            skip("no cpusets of cgroup v2 here");
            return None;
        }
        let group = Self(root.join(format!("numa-{}", NUMBER.fetch_add(1, Ordering::Relaxed))));
        fs::create_dir(&group.0).unwrap();
        fs::write(group.0.join("cpuset.cpus"), list(cpus)).unwrap();
        fs::write(group.0.join("cpuset.mems"), list(&mems.into_iter().collect())).unwrap();
        Some(group)
    }

    /// Starts the call in the group.
    pub(crate) fn inside<'s>(&self, call: Call<'s>) -> Call<'s> {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        call.through(["sh", "-c", &script, "sh"])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn list(numbers: &BTreeSet<u32>) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the machine, a node that is withheld, and a group without it.
pub(crate) fn without_a_node() -> Option<(Shape, u32, Group)> {
    let shape = Shape::here()?;
    let withheld = shape.homes()[1];
    let rest = shape.cpus().difference(&shape.nodes[&withheld].cpus).copied().collect();
    let mems = shape.homes().into_iter().filter(|&node| node != withheld);
    let group = Group::of(&rest, mems)?;
    Some((shape, withheld, group))
}

#[test]
fn a_plan_stays_inside() {
    let (shape, withheld, group) = given!(without_a_node());
    let sandbox = Sandbox::new();
    let rest: Cpus = shape.cpus().difference(&shape.nodes[&withheld].cpus).copied().collect();
    let whole = shape.first_threads(&rest);
    for options in ["", "-c 100%", &format!("-c {}", whole.len())] {
        let mask = cpus(&group.inside(sandbox.run(options).sh(MASK)).ends().ok());
        assert_eq!(mask, whole, "{options:?}");
    }
    let one = cpus(&group.inside(sandbox.run("-c node").sh(MASK)).ends().ok());
    assert!(shape.nodes_of(&one).len() == 1 && one.is_subset(&whole), "{one:?}");
}

#[test]
fn its_reason_names_the_group() {
    let (_, withheld, group) = given!(without_a_node());
    let sandbox = Sandbox::new();
    let call = sandbox.trimtab("plan --survey none --explain -c 1");
    let said = group.inside(call).ends().ok();
    let name = group.0.file_name().unwrap().to_string_lossy();
    let line = said.lines().find(|line| line.contains("may be used"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(&format!("/{name}")), "{said}");
    assert!(line.contains(&format!("leaves out memory nodes {withheld}")), "{said}");
}

#[test]
fn more_than_the_group_has_is_refused() {
    let (shape, withheld, group) = given!(without_a_node());
    let sandbox = Sandbox::new();
    let all = shape.cores.len();
    group
        .inside(sandbox.run(&format!("-c {all}")).arg("true"))
        .ends()
        .fails(125, &[&format!("{all} cores asked for"), "may be used here", "cpuset"]);
    let cpu = shape.nodes[&withheld].cpus.first().unwrap();
    group
        .inside(sandbox.run(&format!("--cpus {cpu}")).arg("true"))
        .ends()
        .fails(125, &[&format!("CPUs {cpu} may not be used by this process"), "cpuset"]);
    group.inside(sandbox.run(&format!("-c 1 --mem bind:{withheld}")).arg("true")).ends().fails(
        125,
        &[&format!("memory nodes {withheld} do not exist, have no memory or may not be allocated from")],
    );
}

#[test]
fn memory_stays_inside() {
    let (shape, withheld, group) = given!(without_a_node());
    let sandbox = Sandbox::new();
    let rest: BTreeSet<u32> = shape.homes().into_iter().filter(|&node| node != withheld).collect();
    for policy in ["interleave", "bind"] {
        let call = group.inside(sandbox.run(&format!("-c 100% --mem {policy}")));
        let seen = given!(pages::seen(call));
        assert_eq!(seen.policy, (policy.to_owned(), rest.clone()), "{seen:?}");
        assert!(seen.nodes().is_subset(&rest), "{seen:?}");
    }
    for &node in &rest {
        let cpu = shape.of_node(node).pop_first().unwrap();
        let call = group.inside(sandbox.run(&format!("--cpus {cpu}")));
        assert_all_on(&given!(pages::seen(call)), "preferred", node);
    }
}

#[test]
fn cores_without_access_to_their_own_memory_still_run() {
    let shape = given!(Shape::here());
    let (home, away) = (shape.homes()[0], shape.homes()[1]);
    let group = given!(Group::of(&shape.cpus(), [home]));
    let sandbox = Sandbox::new();
    let cpu = shape.of_node(away).pop_first().unwrap();
    for policy in ["auto", "local"] {
        let call = group.inside(sandbox.run(&format!("--cpus {cpu} --mem {policy}")));
        let seen = given!(pages::seen(call));
        assert_eq!((seen.mask.clone(), seen.nodes()), (BTreeSet::from([cpu]), BTreeSet::from([home])));
    }
    let call = group.inside(sandbox.run(&format!("--cpus {cpu} --mem bind:{home}")));
    assert_all_on(&given!(pages::seen(call)), "bind", home);
}

#[test]
fn a_policy_that_leaves_no_node_is_missed_aloud() {
    let shape = given!(Shape::here());
    let (home, away) = (shape.homes()[0], shape.homes()[1]);
    let group = given!(Group::of(&shape.cpus(), [home]));
    let sandbox = Sandbox::new();
    let cpu = shape.of_node(away).pop_first().unwrap();
    let why = "bind was asked for, but the cores chosen have no node with memory that may be used";
    let run = |more: &str| {
        let call = sandbox.run(&format!("--cpus {cpu} --mem bind {more}")).args(["echo", "ran"]);
        group.inside(call).ends()
    };
    assert_eq!(run("").warns(&["warning", why, "the inherited policy stays"]), "ran");
    run("--strict").fails(125, &[why, "--strict"]);
}

/// A cpuset of version 2, on old and new kernels: the test relies on the kernel's own system call.
#[test]
fn a_process_that_was_moved_grows_with_its_group_again() {
    let (shape, _, group) = given!(without_a_node());
    let sandbox = Sandbox::new();
    let mut program = group.inside(sandbox.shell("echo on; exec cat")).begins();
    program.line();
    let (tid, narrow) = (Tid(program.pid()), affinity::get(Some(Tid(program.pid()))).unwrap());
    let all: CpuSet = list(&shape.cpus()).parse().unwrap();
    let one: CpuSet = [narrow.first().unwrap()].into_iter().collect();
    let mut live = Live::new(Path::new("/proc"), &[Root::Tree(Pid(program.pid()))], &all).unwrap();
    let seen = live.observe(&Wanted::default()).unwrap();
    let act = Act::Confine(one.clone());
    let decision = Decision { thread: seen.news[0].id, act, reason: Reason::Start, gain: None };
    let outcomes = live.apply(&[decision]).unwrap();
    assert_eq!((outcomes[0].end, affinity::get(Some(tid)).unwrap()), (Settled::Applied, one));
    live.restore();
    assert_eq!(affinity::get(Some(tid)).unwrap(), narrow);
    fs::write(group.0.join("cpuset.cpus"), list(&shape.cpus())).unwrap();
    assert_eq!(affinity::get(Some(tid)).unwrap(), all);
    fs::write(group.0.join("cpuset.cpus"), narrow.to_string()).unwrap();
    assert_eq!(affinity::get(Some(tid)).unwrap(), narrow);
    program.ends();
}

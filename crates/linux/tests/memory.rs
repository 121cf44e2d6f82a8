//! Memory policies and huge pages on this machine, and under the system-call filters of containers.
//!
//! A policy and a filter belong to the thread that sets them, so every case runs in its own thread.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "what this machine cannot show is said aloud")]

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::process::Command;
use trimtab_core::ids::OsNode;
use trimtab_core::place::{HugePages, MemoryPlan, MemoryPolicy};
use trimtab_core::set::NodeSet;
use trimtab_linux::memory::{
    self, Cause, HugePagesRefusal, MemoryOutcome, Proof, SystemHugePages, apply_huge_pages, system_huge_pages,
};
use trimtab_linux::sys::mempolicy::{self, Mode};
use trimtab_linux::sys::prctl::{ThpDisable, set_thp_disable};

/// A system call to refuse: its number, the error, and the value of one argument for which it is
/// refused.
struct Refuse {
    call: i64,
    answer: u32,
    when: Option<(u8, u64)>,
}

fn refuse(call: i64, errno: Errno) -> Refuse {
    Refuse { call, answer: errno.raw_os_error().unsigned_abs(), when: None }
}

fn refuse_when(call: i64, errno: Errno, argument: u8, value: u64) -> Refuse {
    Refuse { when: Some((argument, value)), ..refuse(call, errno) }
}

/// A filter may also report success without making the call.
fn pretend(call: i64, when: Option<(u8, u64)>) -> Refuse {
    Refuse { call, answer: 0, when }
}

fn program(refuse: &Refuse) -> BpfProgram {
    let rules = refuse.when.map(|(argument, value)| {
        let is = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value).unwrap();
        SeccompRule::new(vec![is]).unwrap()
    });
    let rules = [(refuse.call, rules.into_iter().collect())].into();
    let here = std::env::consts::ARCH.try_into().unwrap();
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(refuse.answer), here)
        .unwrap()
        .try_into()
        .unwrap()
}

/// Runs `body` in its own thread, with some calls refused.
fn under<T: Send + 'static>(refused: &[Refuse], body: impl FnOnce() -> T + Send + 'static) -> T {
    let programs: Vec<BpfProgram> = refused.iter().map(program).collect();
    let run = move || {
        for program in &programs {
            seccompiler::apply_filter(program).unwrap();
        }
        body()
    };
    std::thread::spawn(run).join().unwrap()
}

fn plan(policy: MemoryPolicy, nodes: &NodeSet) -> MemoryPlan {
    MemoryPlan { policy, nodes: nodes.clone() }
}

fn apply(refused: &[Refuse], policy: MemoryPolicy, nodes: &NodeSet) -> MemoryOutcome {
    let plan = plan(policy, nodes);
    under(refused, move || memory::apply(&plan))
}

/// Returns the nodes that this process may use; reports a skip and returns `None` if the machine
/// lacks the calls.
fn own_nodes() -> Option<NodeSet> {
    let usable = under(&[], || {
        let nodes = mempolicy::allowed()?;
        mempolicy::set(Mode::Local, &NodeSet::new()).map(|()| nodes)
    });
    usable.inspect_err(|errno| eprintln!("SKIPPED: memory policies cannot be set here: {errno}")).ok()
}

fn refusals(outcome: &MemoryOutcome) -> Vec<(MemoryPolicy, Option<i32>)> {
    outcome.refused.iter().map(|refusal| (refusal.policy, refusal.errno)).collect()
}

/// Returns a node that no machine with these nodes has.
fn beyond(nodes: &NodeSet) -> OsNode {
    OsNode(nodes.last().unwrap().0 + 1)
}

#[test]
fn every_policy_is_set_and_read_back() {
    use MemoryPolicy::{Bind, Interleave, Local, Preferred, PreferredMany, Weighted};
    let Some(nodes) = own_nodes() else { return };
    let one: NodeSet = nodes.first().into_iter().collect();
    let none = NodeSet::new();
    for (policy, nodes) in [
        (Local, &none),
        (Preferred, &one),
        (PreferredMany, &nodes),
        (Bind, &nodes),
        (Bind, &one),
        (Interleave, &nodes),
        (Weighted, &nodes),
    ] {
        let outcome = apply(&[], policy, nodes);
        if outcome.refused.iter().any(|refusal| matches!(refusal.cause, Cause::TooOld { .. })) {
            eprintln!("SKIPPED: {policy}: {}", outcome.refused[0]);
            continue;
        }
        assert!(outcome.is_as_asked(), "{outcome:?}");
        assert_eq!((outcome.proof, outcome.refused.len()), (Proof::ReadBack, 0), "{outcome:?}");
    }
}

#[test]
fn no_policy_leaves_the_inherited_one() {
    let Some(nodes) = own_nodes() else { return };
    let (outcome, before, after) = under(&[], move || {
        mempolicy::set(Mode::Bind, &nodes).unwrap();
        let before = mempolicy::get().unwrap();
        (memory::apply(&plan(MemoryPolicy::None, &NodeSet::new())), before, mempolicy::get().unwrap())
    });
    assert_eq!(before, after);
    assert!(outcome.is_as_asked() && outcome.proof == Proof::NothingSet, "{outcome:?}");
}

#[test]
fn the_policy_is_handed_on_to_the_program() {
    let Some(nodes) = own_nodes() else { return };
    let one = nodes.first().unwrap();
    let maps = under(&[], move || {
        memory::apply(&plan(MemoryPolicy::Bind, &[one].into_iter().collect()));
        Command::new("cat").arg("/proc/self/numa_maps").output().unwrap().stdout
    });
    let maps = String::from_utf8(maps).unwrap();
    assert!(maps.lines().all(|line| line.contains(&format!(" bind:{one}"))), "{maps}");
}

#[test]
fn a_filter_that_refuses_leaves_the_program_without_a_policy() {
    use MemoryPolicy::{Bind, Interleave, None, Preferred, PreferredMany, Weighted};
    let nodes: NodeSet = "0".parse().unwrap();
    for (errno, cause) in [(Errno::PERM, Cause::Filtered), (Errno::NOSYS, Cause::FilteredOrNoNuma)] {
        let refused = [refuse(libc::SYS_set_mempolicy, errno)];
        let number = Some(errno.raw_os_error());
        let bind = apply(&refused, Bind, &nodes);
        assert_eq!(refusals(&bind), [(Bind, number), (PreferredMany, number), (Preferred, number)]);
        assert!(bind.refused.iter().all(|refusal| refusal.cause == cause), "{bind:?}");
        assert_eq!((bind.applied.policy, bind.proof), (None, Proof::NothingSet));
        let weighted = apply(&refused, Weighted, &nodes);
        assert_eq!(refusals(&weighted), [(Weighted, number), (Interleave, number)]);
        let line = weighted.to_string();
        let start = "no memory policy set; asked for weighted on nodes 0; memory policy weighted refused: blocked by a \
                     system-call filter";
        assert!(line.starts_with(start) && !line.contains("interleave"), "{line}");
    }
}

#[test]
fn each_step_down_is_the_strongest_that_is_left() {
    use MemoryPolicy::{Bind, Preferred, PreferredMany};
    let Some(nodes) = own_nodes() else { return };
    let one: NodeSet = nodes.first().into_iter().collect();
    let not_bind = refuse_when(libc::SYS_set_mempolicy, Errno::PERM, 0, Mode::Bind as u64);
    let not_many = refuse_when(libc::SYS_set_mempolicy, Errno::INVAL, 0, Mode::PreferredMany as u64);
    let outcome = apply(&[not_bind, not_many], Bind, &nodes);
    assert_eq!(
        refusals(&outcome),
        [(Bind, Some(Errno::PERM.raw_os_error())), (PreferredMany, Some(Errno::INVAL.raw_os_error()))]
    );
    assert_eq!(outcome.refused[1].cause, Cause::TooOld { since: (5, 15) });
    assert_eq!(
        outcome.refused[1].to_string(),
        "memory policy preferred-many refused: needs Linux 5.15 (Invalid argument (os error 22))"
    );
    assert_eq!((outcome.applied, outcome.proof), (plan(Preferred, &one), Proof::ReadBack));
}

#[test]
fn preferring_several_nodes_without_preferred_many_prefers_the_first() {
    let Some(nodes) = own_nodes() else { return };
    let mut more = nodes.clone();
    more.insert(beyond(&nodes));
    let outcome = apply(&[], MemoryPolicy::Preferred, &more);
    assert_eq!(outcome.applied.nodes, nodes.first().into_iter().collect());
    assert!(!outcome.is_as_asked() && outcome.refused.is_empty(), "{outcome:?}");
    let first = nodes.first().unwrap();
    assert_eq!(
        outcome.to_string(),
        format!(
            "memory policy preferred on one node only, {first}, set and verified; asked for preferred on nodes {more}"
        )
    );
}

#[test]
fn a_policy_that_cannot_be_read_back_is_set_but_not_verified() {
    let Some(nodes) = own_nodes() else { return };
    let outcome = apply(&[refuse(libc::SYS_get_mempolicy, Errno::PERM)], MemoryPolicy::Bind, &nodes);
    assert_eq!(outcome.proof, Proof::Unverified(Errno::PERM.raw_os_error()));
    assert!(outcome.is_as_asked() && outcome.refused.is_empty(), "{outcome:?}");
    assert!(outcome.proof.to_string().starts_with("set but not verified"), "{}", outcome.proof);
    let elsewhere = apply(
        &[refuse(libc::SYS_get_mempolicy, Errno::PERM)],
        MemoryPolicy::Interleave,
        &[beyond(&nodes)].into_iter().collect(),
    );
    assert_eq!(elsewhere.refused[0].cause, Cause::NodesOrKernel);
}

#[test]
fn a_filter_that_pretends_success_is_found_out() {
    if own_nodes().is_none() {
        return;
    }
    let outcome = apply(&[pretend(libc::SYS_set_mempolicy, None)], MemoryPolicy::Bind, &"0".parse().unwrap());
    assert!(outcome.refused.iter().all(|refusal| refusal.cause == Cause::NotKept), "{outcome:?}");
    assert_eq!((outcome.refused.len(), outcome.applied.policy), (3, MemoryPolicy::None));
}

#[test]
fn nodes_outside_the_cpuset_are_named_and_nodes_partly_outside_are_left_out() {
    let Some(nodes) = own_nodes() else { return };
    let outside: NodeSet = [beyond(&nodes)].into_iter().collect();
    let outcome = apply(&[], MemoryPolicy::Bind, &outside);
    assert_eq!(outcome.refused.len(), 3);
    for refusal in &outcome.refused {
        assert_eq!(refusal.cause, Cause::OutsideCpuset { permitted: nodes.clone() });
        assert_eq!(refusal.errno, Some(Errno::INVAL.raw_os_error()));
    }
    let outcome = apply(&[], MemoryPolicy::Bind, &nodes.union(&outside));
    assert_eq!(outcome.applied, plan(MemoryPolicy::Bind, &nodes));
    assert!(!outcome.is_as_asked() && outcome.proof == Proof::ReadBack, "{outcome:?}");
}

#[test]
fn a_plan_without_nodes_is_not_taken_for_another() {
    let outcome = apply(&[], MemoryPolicy::Bind, &NodeSet::new());
    assert!(outcome.refused.iter().all(|refusal| refusal.cause == Cause::NoNodes), "{outcome:?}");
    assert_eq!((outcome.refused.len(), outcome.applied.policy), (3, MemoryPolicy::None));
}

#[test]
fn the_highest_node_of_a_mask_is_not_lost() {
    // If the length of the mask were passed one short, the kernel would see no node and set "local"
    // instead.
    let Some(nodes) = own_nodes() else { return };
    for node in [63, 127, 1023, 1024, 5000].map(OsNode) {
        if !nodes.contains(node) {
            let only = [node].into_iter().collect();
            let answer = under(&[], move || mempolicy::set(Mode::Preferred, &only));
            assert_eq!(answer, Err(Errno::INVAL), "node {node}");
        }
    }
}

/// `PR_SET_THP_DISABLE` and `PR_GET_THP_DISABLE`.
const SET: u64 = 41;
const GET: u64 = 42;

#[test]
fn the_switch_for_huge_pages_is_set_read_back_and_handed_on() {
    // One test for all cases of the switch: it belongs to the whole process.
    let before = apply_huge_pages(HugePages::Inherit);
    assert!(before.refused.is_none());
    let Some(inherited) = before.now else { return eprintln!("SKIPPED: no switch for huge pages here") };

    let off = apply_huge_pages(HugePages::Off);
    assert!(off.is_as_asked() && off.is_verified(), "{off:?}");
    let child = Command::new("cat").arg("/proc/self/status").output().unwrap().stdout;
    assert!(String::from_utf8(child).unwrap().contains("THP_enabled:\t0"));

    let advised = apply_huge_pages(HugePages::Advised);
    match advised.refused {
        None => assert!(advised.is_verified(), "{advised:?}"),
        Some(refusal) => {
            eprintln!("SKIPPED: {refusal}");
            assert_eq!((refusal, advised.now), (HugePagesRefusal::TooOld, Some(HugePages::Off)));
        }
    }

    set_thp_disable(ThpDisable::No).unwrap();
    let older_kernel = [refuse_when(libc::SYS_prctl, Errno::INVAL, 2, 2)];
    let advised = under(&older_kernel, || apply_huge_pages(HugePages::Advised));
    assert_eq!(advised.refused, Some(HugePagesRefusal::TooOld));
    assert!(advised.refused.unwrap().to_string().contains("needs Linux 6.18"));
    assert_eq!(advised.now, Some(HugePages::Inherit));

    let blocked = [refuse_when(libc::SYS_prctl, Errno::PERM, 0, SET)];
    let off = under(&blocked, || apply_huge_pages(HugePages::Off));
    assert_eq!(off.refused, Some(HugePagesRefusal::Filtered { errno: Errno::PERM.raw_os_error() }));

    let off = under(
        &[
            refuse_when(libc::SYS_prctl, Errno::INVAL, 0, SET),
            refuse_when(libc::SYS_prctl, Errno::INVAL, 0, GET),
        ],
        || apply_huge_pages(HugePages::Off),
    );
    assert_eq!((off.refused, off.now), (Some(HugePagesRefusal::NoHugePages), None));

    let pretended = [pretend(libc::SYS_prctl, Some((0, SET)))];
    let off = under(&pretended, || apply_huge_pages(HugePages::Off));
    assert_eq!(off.refused, Some(HugePagesRefusal::NotKept));

    let unread = [refuse_when(libc::SYS_prctl, Errno::PERM, 0, GET)];
    let off = under(&unread, || apply_huge_pages(HugePages::Off));
    assert!(off.is_as_asked() && !off.is_verified(), "{off:?}");

    if inherited == HugePages::Inherit {
        set_thp_disable(ThpDisable::No).unwrap();
    }
}

#[test]
fn the_systems_choice_is_the_word_in_brackets() {
    for (text, choice) in [
        ("always [madvise] never\n", Some(SystemHugePages::Madvise)),
        ("[always] madvise never\n", Some(SystemHugePages::Always)),
        ("always madvise [never]", Some(SystemHugePages::Never)),
        ("always madvise never\n", None),
        ("", None),
    ] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("kernel/mm/transparent_hugepage");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("enabled"), text).unwrap();
        let read = system_huge_pages(root.path());
        match choice {
            Some(choice) => assert_eq!(read.unwrap(), Some(choice)),
            None => assert!(read.unwrap_err().to_string().ends_with("enabled: no known choice in brackets")),
        }
    }
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(system_huge_pages(empty.path()).unwrap(), None);
}

//! Numbers of cores, and memory that others hold.

use crate::util::*;
use trimtab_core::ids::OsCpu;
use trimtab_core::topology::parse_synthetic;
use trimtab_launch::*;

#[test]
fn one_line_without_v_says_that_other_programs_leave_fewer_cores() {
    let told = |options: Options, busy: &[u32], pinned: &str, held: &str| {
        let request = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap();
        let mut facts = facts("core:4");
        facts.load.busy = (0..4).map(|cpu| (OsCpu(cpu), if busy.contains(&cpu) { 990 } else { 0 })).collect();
        facts.load.pinned = pinned.parse().unwrap();
        facts.ledger.held = held.parse().unwrap();
        let plan = decide(&request, &facts).unwrap();
        let notices = plan.reasons.iter().filter(|reason| reason.level == Level::Notice);
        let lines: Vec<String> = notices.map(|reason| reason.text.clone()).collect();
        (plan.placement.mask.to_string(), lines)
    };
    let (mask, lines) = told(Options::default(), &[1], "3", "");
    assert_eq!(mask, "0,2");
    assert_eq!(
        lines,
        [
            "2 cores only, as other programs keep CPUs 1,3 busy or are bound to them (-c N takes busy ones too)"
        ]
    );
    let (mask, lines) = told(Options::default(), &[], "", "0-2");
    assert_eq!((mask.as_str(), lines.len()), ("3", 1));
    assert_eq!(lines[0], "1 core only, as other runs hold CPUs 0-2 (trimtab ps lists them)");
    // Nothing is missing, or the number was the user's own.
    assert_eq!(told(Options::default(), &[], "", ""), ("0-3".to_owned(), vec![]));
    let two = Options { cores: Some("2".parse().unwrap()), ..Options::default() };
    assert_eq!(told(two, &[1], "3", ""), ("0,2".to_owned(), vec![]));
}

/// IQ-TREE, for one, refuses to start with more threads than CPUs.
#[test]
fn auto_has_a_core_for_each_thread_that_the_command_line_states() {
    let cores_of = |command: &str, options: Options, facts: &LaunchFacts| {
        let command = match command.strip_prefix("sh -c ") {
            Some(text) => ["sh", "-c", text].map(str::to_owned).to_vec(),
            None => command.split(' ').map(str::to_owned).collect(),
        };
        let sources = Sources { options, command, ..sources(&[]) };
        let plan = decide(&LaunchRequest::merge(sources).unwrap(), facts).unwrap();
        (cores(&plan.placement), said(&plan).contains("a core is taken for each of these threads"))
    };
    let auto = |command: &str, facts: &LaunchFacts| cores_of(command, Options::default(), facts);
    let mut facts = facts("core:4");
    facts.load.busy = (1..4).map(|cpu| (OsCpu(cpu), 990)).collect();
    assert_eq!(auto("iqtree -s data", &facts), (1, false));
    assert_eq!(auto("app -T 3", &facts), (1, false), "an unknown program states nothing");
    assert_eq!(auto("iqtree -s data -T 3", &facts), (3, true));
    assert_eq!(auto("sh -c iqtree -s data -T 2 && echo done", &facts), (2, true));
    assert_eq!(auto("iqtree -T 1", &facts), (1, false));
    let script = LaunchFacts { script: Some("#!/bin/sh\niqtree -T 2 a\n".to_owned()), ..facts.clone() };
    assert_eq!(auto("./script 7", &script), (2, true));
    assert_eq!(auto("iqtree -T 99", &facts), (4, true), "as many as there are");
    let one = Options { cores: Some("1".parse().unwrap()), ..Options::default() };
    assert_eq!(cores_of("iqtree -T 3", one, &facts), (1, false), "the user's number has precedence");
    facts.ledger.held = "2-3".parse().unwrap();
    assert_eq!(auto("iqtree -T 3", &facts), (2, true), "held cores are not taken");
    facts.ledger.held = "1-3".parse().unwrap();
    assert_eq!(auto("iqtree -T 3", &facts), (1, false));
}

#[test]
fn a_workload_managers_grant_bounds_auto_and_nothing_else() {
    let slurm = [("SLURM_CPUS_ON_NODE", "3"), ("SLURM_CPUS_PER_TASK", "2")];
    let cores_of = |variables: &[(&str, &str)], amount: Option<&str>, facts: &LaunchFacts| {
        let options = Options { cores: amount.map(|amount| amount.parse().unwrap()), ..Options::default() };
        let sources = Sources { options, ..sources(variables) };
        let plan = decide(&LaunchRequest::merge(sources).unwrap(), facts).unwrap();
        (cores(&plan.placement), said(&plan).contains("SLURM_CPUS"))
    };
    let mut facts = facts("core:8");
    assert_eq!(cores_of(&[], None, &facts), (8, false));
    assert_eq!(cores_of(&slurm, None, &facts), (3, true));
    assert_eq!(cores_of(&slurm, Some("6"), &facts), (6, false), "a stated amount takes precedence");
    assert_eq!(cores_of(&[("SLURM_CPUS_ON_NODE", "99")], None, &facts), (8, false));
    // An inner run has the cores of the outer one.
    let inner = [slurm[0], (request::HOLD, "1")];
    assert_eq!(cores_of(&inner, None, &facts), (8, false));
    // HyperQueue's worker may be in the outer run, and its task has a part of that.
    let task = [("HQ_CPUS", "5,2"), (request::HOLD, "1")];
    assert_eq!(cores_of(&task, None, &facts).0, 2);
    assert_eq!(cores_of(&task, Some("6"), &facts).0, 6);
    // A run of six cores that such a task has started: its inner runs have those.
    let of_hold = |outer: &[(&str, &str)], hold: Option<&str>| {
        request::variables_of_hold(&environment(outer), hold.map(str::to_owned))
    };
    let variables = of_hold(&task[..1], Some("1"));
    let in_own = variables.iter().map(|(name, value)| (name.as_str(), value.as_deref().unwrap()));
    let in_own: Vec<_> = [task[0]].into_iter().chain(in_own).collect();
    assert_eq!(cores_of(&in_own, None, &facts).0, 8);
    let only = |value: Option<&str>| vec![(request::HOLD.to_owned(), value.map(str::to_owned))];
    assert_eq!((of_hold(&[], Some("1")), of_hold(&task, None)), (only(Some("1")), only(None)));
    // Each rank of a step has two CPUs of four.
    let step = [slurm[0], slurm[1], ("SLURM_LOCALID", "1"), ("SLURM_STEP_TASKS_PER_NODE", "2")];
    let of_step = LaunchRequest::merge(sources(&step)).unwrap();
    let plan = decide(&of_step, &facts).unwrap();
    assert_eq!(
        (plan.placement.mask.to_string(), plan.placement.hold.to_string()),
        ("2-3".into(), "0-3".into())
    );
    // A site that confines the job to fewer CPUs than it announces.
    facts.bounds.allowed = "4-5".parse().unwrap();
    assert_eq!(cores_of(&slurm, None, &facts), (2, false));
}

#[test]
fn memory_that_others_hold_is_waited_for() {
    let mut facts = facts("core:4");
    let mut parts = facts.machine.parts().clone();
    parts.nodes = parse_synthetic("numa:1(memory=64GB) core:4").unwrap().parts().nodes.clone();
    facts.machine = trimtab_core::topology::Machine::build(parts).unwrap();
    let ask = |size: &str| {
        let size = Some(size.parse().unwrap());
        let options = Options { mem_size: size, cores: Some("1".parse().unwrap()), ..Options::default() };
        LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap()
    };
    let held = decide(&ask("40G"), &facts).unwrap().placement.memory_hold;
    assert_eq!(held.iter().map(|memory| memory.bytes >> 30).collect::<Vec<_>>(), [40]);
    facts.ledger.memory = [(trimtab_core::ids::OsNode(0), 40 << 30)].into();
    let refusal = decide(&ask("40G"), &facts).unwrap_err();
    assert!(refusal.passes() && refusal.to_string().contains("others hold 40 GiB there"), "{refusal}");
    let role = Role::of(&ask("20G"), &facts);
    assert_eq!(place(&ask("20G"), &facts, &role).unwrap().memory_hold.len(), 1);
    assert!(!decide(&ask("65G"), &facts).unwrap_err().passes());
}

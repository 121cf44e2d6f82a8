//! CPUs of runs: runs keep apart, overlap on purpose, take fewer, or are refused.

use crate::util::{MASK, Orphan, Outcome, Sandbox, confined, cpus, eventually, need, two};
use rustix::process::Signal;
use std::collections::BTreeSet;

#[test]
fn the_mask_inside_is_the_plans() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for options in
        ["-c 1", "-c 2", "-c auto", "-c 50%", "-c 100%", "-c 1 --smt all", "-s scatter", "-c 1 -s stride:1"]
    {
        let plan = sandbox.plan(options);
        let mask = plan["plan"]["mask"].as_str().unwrap();
        assert_eq!(sandbox.run(options).sh(MASK).ends().ok(), mask, "{options}");
        let tool = sandbox.run(options).sh("exec taskset -cp $$").ends().ok();
        assert!(
            tool.ends_with(&format!(": {mask}")) || tool.ends_with(&format!(": {}", mask.replace('-', ","))),
            "{tool}"
        );
    }
}

#[test]
fn two_runs_at_once_never_overlap_and_a_third_is_refused() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut first = sandbox.run("-c 1").sh(&format!("{MASK}; exec cat")).begins();
    let mut second = sandbox.run("-c 1").sh(&format!("{MASK}; exec cat")).begins();
    let masks: BTreeSet<String> = [first.line(), second.line()].into();
    assert_eq!(masks, BTreeSet::from([a.to_string(), b.to_string()]));
    for options in ["-c 1", "-c auto", "", "--or-fewer -c 2", "-c 50%", &format!("--cpus {a}")] {
        let refused = sandbox.run(options).arg("true").ends();
        refused.fails(124, &["held by", "trimtab ps", "--wait"]);
    }
    second.ends().ok();
    // The core of the run that ended is free for the next, and no other.
    sandbox
        .run("-c 2")
        .arg("true")
        .ends()
        .fails(124, &["2 cores asked for, 1 can be had now", "--wait", "--or-fewer"]);
    let third = sandbox.run("-c 1").sh(MASK).ends().ok();
    assert_ne!(third, first.line());
}

#[test]
fn a_refusal_starts_nothing() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold(&format!("--cpus {a}"));
    let file = sandbox.path("started");
    sandbox.run(&format!("--cpus {a}")).arg("touch").arg(&file).ends().fails(124, &["held by"]);
    assert!(!file.exists());
}

#[test]
fn auto_takes_the_free_cores() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    assert_eq!(cpus(&sandbox.run("").sh(MASK).ends().ok()), BTreeSet::from([a, b]));
    let held = sandbox.hold(&format!("--cpus {b}"));
    // A program without a count might silently get one thread: a line says why.
    for options in ["", "-c auto"] {
        let said = sandbox.run(options).sh(MASK).ends();
        assert_eq!(said.warns(&["1 core only, as other runs hold", &b.to_string()]), a.to_string());
    }
    for options in ["-c 2 --or-fewer", "-c 99 --or-fewer", "-c 100% --or-fewer"] {
        assert_eq!(sandbox.run(options).sh(MASK).ends().ok(), a.to_string(), "{options}");
    }
    held.ends().ok();
}

#[test]
fn sharing_overlaps_on_purpose_and_keeps_others_out() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // Shared with exclusive holders.
    let alone = sandbox.hold(&format!("--cpus {a}"));
    assert_eq!(cpus(&sandbox.run("--share -c 2").sh(MASK).ends().ok()), BTreeSet::from([a, b]));
    assert_eq!(sandbox.run("--share -c 1").sh(MASK).ends().ok(), b.to_string(), "held cores come last");
    assert_eq!(sandbox.run(&format!("--share --cpus {a}")).sh(MASK).ends().ok(), a.to_string());
    alone.ends().ok();
    // Shared with each other.
    let _one = sandbox.hold("--share -c 2");
    let _other = sandbox.hold("--share -c 2");
    sandbox.run("-c 1").arg("true").ends().fails(124, &["held by"]);
    let ps = sandbox.ps();
    assert!(ps["holds"].as_array().unwrap().iter().all(|hold| hold["mode"] == "shared"), "{ps}");
}

#[test]
fn cores_are_chosen_among_the_named_cpus() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&format!("-c 1 --cpus {b}")).sh(MASK).ends().ok(), b.to_string());
    assert_eq!(cpus(&sandbox.run(&format!("--cpus {b},{a}")).sh(MASK).ends().ok()), BTreeSet::from([a, b]));
    let _held = sandbox.hold(&format!("--cpus {b}"));
    sandbox.run(&format!("-c 1 --cpus {b}")).arg("true").ends().fails(124, &["held by"]);
    assert_eq!(sandbox.run(&format!("-c 1 --cpus {a},{b}")).sh(MASK).ends().ok(), a.to_string());
}

#[test]
fn an_inherited_mask_bounds_a_run() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let only = |cpu: u32| ["taskset".to_owned(), "-c".to_owned(), cpu.to_string()];
    assert_eq!(sandbox.run("").arg("nproc").through(only(b)).ends().ok(), "1");
    assert_eq!(sandbox.run("").sh(MASK).through(only(b)).ends().ok(), b.to_string());
    let refused = sandbox.run("-c 2").arg("true").through(only(b)).ends();
    refused.fails(125, &["2 cores asked for", "only 1 core may be used here", "--or-fewer"]);
    let refused = sandbox.run(&format!("--cpus {a}")).arg("true").through(only(b)).ends();
    refused.fails(125, &[&format!("CPUs {a} may not be used by this process"), &format!("allows {b}")]);
    assert_eq!(sandbox.run("-c 2 --or-fewer").sh(MASK).through(only(b)).ends().ok(), b.to_string());
}

#[test]
fn a_killed_run_gives_its_cores_back() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::ABORT] {
        let held = sandbox.hold("-c 2");
        assert_eq!(sandbox.held().len(), 2);
        held.signal(signal);
        drop(held.ends());
        sandbox.until_free();
        sandbox.run("-c 2").arg("true").ends().ok();
    }
}

#[test]
fn those_a_program_leaves_behind_hold_on_until_they_end() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let left = sandbox.run(&format!("--cpus {a}")).sh(script).ends().ok();
    let sleeper = Orphan::of(&left);
    let ps = sandbox.ps();
    assert_eq!(ps["holds"][0]["cpus"], a.to_string(), "{ps}");
    assert!(ps["holds"][0]["standing"].as_str().unwrap().contains("ended"), "{ps}");
    sandbox.run(&format!("--cpus {a}")).arg("true").ends().fails(124, &["held by"]);
    drop(sleeper);
    sandbox.until_free();
}

#[test]
fn a_daemon_that_left_its_session_holds_on_too() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script =
        "mkfifo up; setsid sh -c 'echo $$ > up; exec sleep 1000 >/dev/null 2>&1 </dev/null' & cat up";
    let daemon = Orphan::of(&sandbox.run(&format!("--cpus {a}")).sh(script).ends().ok());
    sandbox.run(&format!("--cpus {a}")).arg("true").ends().fails(124, &["held by"]);
    drop(daemon);
    sandbox.until_free();
}

#[test]
fn a_program_that_fails_to_start_holds_no_cores() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let orphan = sandbox.script("orphan", "#!/no/such/interpreter\n");
    for _ in 0..3 {
        sandbox.run("-c 2").arg(&orphan).ends().fails(127, &["interpreter"]);
    }
    sandbox.until_free();
}

#[test]
fn many_at_once_share_out_the_cores() {
    let all = need!(confined(2), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut runs: Vec<_> =
        (0..10).map(|_| sandbox.run("-c 1").sh(&format!("{MASK}; exec cat")).begins()).collect();
    // Two of them get a core and stay; the others are refused at once, whatever the order.
    eventually("all but two have ended", || {
        runs.iter_mut().filter_map(|run| run.lives().then_some(())).count() == 2
    });
    let (mut masks, mut refused) = (BTreeSet::new(), 0);
    for mut run in runs {
        if run.lives() {
            assert!(masks.insert(run.line().parse::<u32>().unwrap()), "two runs on one CPU");
            run.ends().ok();
        } else {
            run.ends().fails(124, &["held by"]);
            refused += 1;
        }
    }
    assert_eq!((masks, refused), (all.into_iter().collect(), 8));
}

#[test]
fn env_print_reserves_and_starts_nothing_for_long() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let file = sandbox.path("started");
    let outcome: Outcome = sandbox.run("-c 2 --env print").arg("touch").arg(&file).ends();
    assert!(outcome.ok().contains("OMP_NUM_THREADS"));
    assert!(!file.exists());
    sandbox.until_free();
}

//! Runs inside runs: they subdivide what the outer one holds.

use crate::util::{MASK, Sandbox, confined, cpus, need, python, two};
use std::collections::BTreeSet;

/// A shell that starts `inner` twice at once inside its hold, each printing its mask, and tries a
/// third time.
const TWO_INSIDE: &str = r#"
    inside() { "$T" run --survey none "$@"; }
    for name in a b; do
        inside -c 1 -- sh -c 'MASK > mask.part; mv mask.part mask.'$name'; while ! [ -e stop ]; do sleep 0.02; done' &
    done
    until [ -e mask.a ] && [ -e mask.b ]; do sleep 0.02; done
    inside -c 1 -- true 2>third; echo $?
    inside -c 2 -- true 2>both; echo $?
    touch stop
    wait
    inside -c 2 -- sh -c 'MASK'
"#;

#[test]
fn inner_runs_divide_the_cores_of_the_outer_one() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script =
        TWO_INSIDE.replace("mask.part", "mask.part.$$").replace("MASK", &MASK.replace('\'', "'\\''"));
    let said = sandbox.run("-c 2").sh(&script).ends().ok();
    let both = BTreeSet::from([a, b]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["124", "124"], "{said}");
    assert_eq!(cpus(lines[2]), both);
    let masks: BTreeSet<u32> = ["mask.a", "mask.b"]
        .into_iter()
        .flat_map(|name| cpus(&crate::util::text(&sandbox.path(name))))
        .collect();
    assert_eq!(masks, both, "the two did not get a core each");
    for file in ["third", "both"] {
        let said = crate::util::text(&sandbox.path(file));
        assert!(said.contains("held by others") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_wide_inner_run_is_refused_while_a_narrow_one_holds() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script = r#""$T" run --survey none -c 1 -- sh -c '
        "$T" run --survey none -c 1 -- true && echo innermost;
        "$T" run --survey none -c 2 -- true'; echo $?"#;
    let outcome = sandbox.run("-c 2").sh(script).ends();
    assert_eq!(outcome.out(), "innermost\n125", "{outcome}");
    assert!(outcome.stderr.contains("2 cores asked for, but only 1 core may be used here"), "{outcome}");
}

#[test]
fn the_outer_hold_stands_while_inner_ones_come_and_go() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script = "\"$T\" run --survey none -c 1 -- true; echo inner; exec cat";
    let mut outer = sandbox.run("-c 2").sh(script).begins();
    outer.line();
    sandbox.run("-c 1").arg("true").ends().fails(124, &["held by"]);
    assert_eq!(sandbox.held(), BTreeSet::from([a, b]));
    outer.ends().ok();
    sandbox.run("-c 2").arg("true").ends().ok();
}

#[test]
fn ps_shows_inner_holds_inside_the_outer() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut outer =
        sandbox.run("-c 2").sh("\"$T\" run --survey none -c 1 -- sh -c 'echo up; exec cat'").begins();
    outer.line();
    let ps = sandbox.ps();
    let levels: Vec<_> =
        ps["holds"].as_array().unwrap().iter().map(|hold| hold["level"].as_u64().unwrap()).collect();
    assert_eq!(levels, [0, 1], "{ps}");
    let inner = &ps["holds"][1]["pid"];
    let violators = ps["violators"].as_array().unwrap();
    assert!(
        violators.iter().all(|violator| violator["pid"] != *inner),
        "the inner run is on its own cores: {ps}"
    );
}

#[test]
fn programs_that_close_descriptors_do_not_break_the_chain() {
    need!(two(), "two cores are needed");
    need!(python(), "Python is not installed");
    let sandbox = Sandbox::new();
    let script = r#"
import os, subprocess
def inner(cores, what, **more):
    command = [os.environ["T"], "run", "--survey", "none", "-c", cores, "--", "sh", "-c", what]
    return subprocess.Popen(command, close_fds=True, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
hold = "MASK; exec cat"
first, second = inner("1", hold), inner("1", hold)
masks = {first.stdout.readline().strip(), second.stdout.readline().strip()}
third = inner("1", "true")
words = third.communicate()[1]
first.communicate(); second.communicate()
print(len(masks), third.returncode, "held by" in words)
both = inner("2", "true"); both.communicate()
print(both.returncode)
"#;
    let script = script.replace("MASK", &MASK.replace('\\', "\\\\").replace('"', "\\\""));
    assert_eq!(sandbox.run("-c 2").python(&script).ends().ok(), "2 124 True\n0");
}

#[test]
fn a_hold_that_ended_is_no_hold() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let stale = sandbox.run("-c 2").sh("echo \"$TRIMTAB_HOLD\"").ends().ok();
    assert!(stale.starts_with("0 "), "{stale:?}");
    let mut running =
        sandbox.run("-c 2").sh(&format!("{MASK}; exec cat")).env("TRIMTAB_HOLD", &stale).begins();
    assert_eq!(cpus(&running.line()), BTreeSet::from([a, b]));
    // The run took its cores from the machine, not from a dead run: other runs are refused.
    sandbox.run("-c 1").arg("true").ends().fails(124, &["held by"]);
    sandbox.run("-c 1").arg("true").env("TRIMTAB_HOLD", &stale).ends().fails(124, &["held by"]);
}

#[test]
fn a_forged_hold_gets_nothing() {
    let [_, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 1");
    for forged in [
        "",
        " ",
        "0",
        "0 0",
        "0 1 2 3",
        "x y z",
        "-1 -1 -1",
        "0 700 1",
        "0 2 99999999999999999999",
        "255 700 5",
        "7 1 1",
        "0 99999999999 5",
        "0\n700\n5",
        "00 0700 005",
        "0 700 0",
    ] {
        let mask = sandbox.run("-c 1").sh(MASK).env("TRIMTAB_HOLD", forged).ends().ok();
        assert_eq!(mask, b.to_string(), "TRIMTAB_HOLD={forged:?}");
        sandbox.run("-c 2").arg("true").env("TRIMTAB_HOLD", forged).ends().fails(124, &["held by"]);
    }
    held.ends().ok();
}

#[test]
fn runs_nest_as_deep_as_one_likes() {
    let [_, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut command = vec!["sh".to_owned(), "-c".to_owned(), MASK.to_owned()];
    for _ in 0..12 {
        let trimtab = [
            "env",
            "--",
            crate::util::trimtab().to_str().unwrap(),
            "run",
            "--survey",
            "none",
            "-c",
            "1",
            "--",
        ];
        command.splice(0..0, trimtab.map(str::to_owned));
    }
    let outcome = sandbox.run("-c 1").args(command).ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_eq!(cpus(&outcome.out()).len(), 1, "{outcome}");
}

#[test]
fn an_inner_wait_is_for_the_outer_runs_cores() {
    let all = need!(confined(2), "two cores are needed");
    let sandbox = Sandbox::new();
    let script = r#"
        "$T" run --survey none -c 1 -- sh -c 'echo up; read -r line' < go | tee up > /dev/null &
        exec 9> go
        until [ -s up ]; do sleep 0.02; done
        "$T" run --survey none -c 1 --wait -- echo got &
        sleep 0.2; echo go >&9
        wait"#;
    let script = format!("mkfifo go; {script}");
    let said = sandbox.run(&format!("--cpus {}", all[0])).sh(&script).ends().ok();
    assert_eq!(said, "got");
}

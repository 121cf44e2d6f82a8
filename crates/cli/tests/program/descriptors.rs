//! Standard streams that are closed, and the descriptors that the program finds.

use crate::util::{Sandbox, need, python, text, two};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::process::Command;

/// Starts a call with some of the standard streams closed, and writes the files under 0, 1 and 2 to
/// a file.
fn closed(sandbox: &Sandbox, which: &str) -> (Option<i32>, String) {
    let seen = sandbox.path("seen");
    let script = format!(
        "for n in 0 1 2; do readlink /proc/$$/fd/$n || echo closed; done > {} 2>/dev/null",
        seen.display()
    );
    let call = sandbox.run("-c 1").args(["sh", "-c", &script]).through([
        "sh",
        "-c",
        &format!("exec \"$@\" {which}"),
        "sh",
    ]);
    (call.ends().code, text(&seen))
}

#[test]
fn closed_streams_do_not_stop_a_run() {
    let sandbox = Sandbox::new();
    for which in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let (code, seen) = closed(&sandbox, which);
        assert_eq!(code, Some(0), "{which}: {seen}");
        // Above all, none of trimtab's files may be where the program reads and writes.
        assert!(
            !seen.contains("ledger") && !seen.contains("cache") && seen.lines().count() == 3,
            "{which}: {seen}"
        );
    }
    sandbox.until_free();
}

#[test]
fn an_error_with_stderr_closed_is_still_a_status() {
    let sandbox = Sandbox::new();
    let call = sandbox.run("-c 0").arg("true").through(["sh", "-c", "exec \"$@\" 2>&-", "sh"]);
    assert_eq!(call.ends().code, Some(125));
    let call =
        sandbox.run("-c 1").arg("no-such-program").through(["sh", "-c", "exec \"$@\" 2>&- >&- <&-", "sh"]);
    assert_eq!(call.ends().code, Some(127));
}

#[test]
fn the_program_finds_one_descriptor_more_and_far_from_its_own() {
    let sandbox = Sandbox::new();
    let list = "ls /proc/self/fd";
    let native = Command::new("sh").args(["-c", list]).output().unwrap();
    let native: Vec<String> = String::from_utf8_lossy(&native.stdout).lines().map(str::to_owned).collect();
    let under = sandbox.run("-c 1").sh(list).ends().ok();
    let more: Vec<&str> = under.lines().filter(|line| !native.contains(&(*line).to_owned())).collect();
    assert_eq!(more.len(), 1, "native {native:?}, under trimtab {under}");
    assert!(more[0].parse::<u32>().unwrap() > 255, "{more:?}");
}

#[test]
fn a_low_limit_on_descriptors_is_coped_with() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let limit = ["sh", "-c", "ulimit -n 32; exec \"$@\"", "sh"];
    let mut running = sandbox.run(&format!("--cpus {a}")).sh("echo up; exec cat").through(limit).begins();
    running.line();
    assert!(sandbox.held().contains(&a));
    running.ends().ok();
}

#[test]
fn a_program_that_closes_descriptors_it_does_not_know_keeps_its_cores() {
    let [a, _] = need!(two(), "two cores are needed");
    need!(python(), "no Python");
    let sandbox = Sandbox::new();
    let script = "import os, sys; os.closerange(3, 4096); print('closed', flush=True); sys.stdin.read()";
    let mut closing = sandbox.run(&format!("--cpus {a}")).python(script).begins();
    assert_eq!(closing.line(), "closed");
    assert_eq!(sandbox.held(), BTreeSet::from([a]));
    sandbox.run(&format!("--cpus {a}")).arg("true").ends().fails(124, &["held by"]);
    // A program killed in this state gives them back.
    closing.signal(Signal::KILL);
    closing.ends();
    sandbox.until_free();
}

//! Holds for a process that runs already.

use crate::ledger::{held, keepers, used};
use crate::util::{Call, Running, Sandbox, eventually, need, python, two, two_users};
use rustix::process::Signal;
use std::collections::BTreeSet;

/// A program with three threads and a child, which says when they are there.
pub(crate) const THREADS: &str = "import threading, time, subprocess, sys
for _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
child = subprocess.Popen(['sleep', '600'])
print(child.pid, flush=True)
sys.stdin.read()
child.kill()";

/// Starts a process that waits until its input ends.
pub(crate) fn waiting(sandbox: &Sandbox) -> Running<'_> {
    let mut process = sandbox.shell("echo on; read line").begins();
    process.line();
    process
}

pub(crate) fn hold<'s>(sandbox: &'s Sandbox, options: &str) -> Call<'s> {
    sandbox.trimtab(&format!("hold --survey none {options}"))
}

#[test]
fn all_threads_and_children_are_bound_and_the_hold_ends_with_the_process() {
    let [a, b] = need!(two(), "two cores are needed");
    let python = need!(python(), "no Python");
    let sandbox = Sandbox::new();
    let mut target = sandbox.shell("exec \"$@\"").arg("sh").arg(python).args(["-c", THREADS]).begins();
    let child: u32 = target.line().parse().unwrap();
    let done = hold(&sandbox, &format!("-c 1 --cpus {b} --pid {}", target.pid())).ends();
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(done.out(), b.to_string());
    assert!(done.stderr.contains("5 threads bound"), "{done}");
    assert_eq!([used(target.pid()), used(child), held(&sandbox)], [1, 2, 3].map(|_| BTreeSet::from([b])));
    let ps = sandbox.ps();
    let row = &ps["holds"][0];
    assert_eq!((&row["pid"], &row["delegated"]), (&target.pid().into(), &true.into()), "{ps}");
    assert!(row["command"].as_str().unwrap().contains("import threading"), "{ps}");
    assert_eq!(
        (ps["escaped"].as_array().unwrap().len(), ps["violators"].as_array().unwrap().len()),
        (0, 0),
        "{ps}"
    );
    // Nothing else gets the core, and the other one is free.
    sandbox.run(&format!("-c 1 --cpus {b}")).arg("true").ends().fails(124, &["held by other"]);
    sandbox.run(&format!("-c 1 --cpus {a}")).arg("true").ends().ok();
    assert_eq!(keepers(&format!("process {}", target.pid())).len(), 1);
    let name = format!("process {}", target.pid());
    target.signal(Signal::KILL);
    eventually("the hold ends", || held(&sandbox).is_empty() && keepers(&name).is_empty());
    let _ = std::process::Command::new("kill").arg(child.to_string()).status();
}

#[test]
fn released_threads_get_their_own_masks_back() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut target = sandbox
        .shell("exec taskset -c \"$1\" sh -c 'echo on; read line'")
        .args(["sh", &a.to_string()])
        .begins();
    target.line();
    hold(&sandbox, &format!("-c 1 --cpus {b} --pid {}", target.pid())).ends();
    assert_eq!(used(target.pid()), BTreeSet::from([b]));
    let said = sandbox.trimtab(&format!("release {} --json", target.pid())).ends().ok();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["schema"], &said["threads"]), (&"trimtab.release/1".into(), &1.into()));
    assert_eq!((used(target.pid()), held(&sandbox)), (BTreeSet::from([a]), BTreeSet::new()));
    sandbox.trimtab(&format!("release {}", target.pid())).ends().fails(2, &["holds no cores"]);
    // By its number.
    let held_json = hold(&sandbox, &format!("-c 1 --json --pid {}", target.pid())).ends();
    let document: serde_json::Value = serde_json::from_str(&held_json.out()).unwrap();
    assert_eq!(document["schema"], "trimtab.cores/1");
    assert_eq!(document["target"]["process"]["pid"], target.pid());
    assert!(document.get("environment").is_none());
    sandbox.trimtab(&format!("release {}", document["hold"].as_str().unwrap())).ends().ok();
    assert!(held(&sandbox).is_empty());
}

#[test]
fn a_run_inside_such_a_process_divides_the_hold() {
    let [_, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script = "echo on; read line; $T run --survey none -c 1 -- $T ps";
    let mut target = sandbox.shell(script).begins();
    target.line();
    hold(&sandbox, &format!("-c 1 --cpus {b} --pid {}", target.pid())).ends();
    target.tell("go\n");
    let said = target.ends().out();
    let rows: Vec<&str> = said.lines().filter(|line| line.trim_start().starts_with(&b.to_string())).collect();
    assert_eq!(rows.len(), 2, "{said}");
    assert!(rows[1].starts_with(' '), "the inner hold is inside: {said}");
}

#[test]
fn a_hold_without_a_target_lasts_until_it_is_ended() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut first = hold(&sandbox, "-c 1 --label night").begins();
    let cpu = first.line();
    assert_eq!(held(&sandbox).len(), 1);
    let ps = sandbox.ps();
    assert_eq!(
        (&ps["holds"][0]["command"], &ps["holds"][0]["cpus"]),
        (&"night".into(), &cpu.as_str().into())
    );
    hold(&sandbox, "-c 2").ends().fails(124, &["2 cores asked for"]);
    sandbox.trimtab(&format!("release {}", first.pid())).ends().ok();
    eventually("it has ended", || !first.lives());
    assert!(held(&sandbox).is_empty());
    let mut second = hold(&sandbox, "-c 2").begins();
    second.line();
    second.signal(Signal::INT);
    eventually("it has ended", || !second.lives());
    assert!(held(&sandbox).is_empty());
    assert_eq!(hold(&sandbox, "-c 2 --for 10ms").ends().code, Some(0));
    assert!(held(&sandbox).is_empty());
}

#[test]
fn requests_that_make_no_sense_say_what_to_do() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let refused = |options: &str, words: &[&str]| hold(&sandbox, options).ends().fails(2, words);
    refused("-c 2 -- sleep 1", &["use trimtab run -c 2 sleep"]);
    refused("-c 1 --pid 0", &["no process 0"]);
    refused("-c 1 --pid 4294967295", &["no process"]);
    hold(&sandbox, "-c 1 --pid 1 --for 1s").ends().fails_with(2, "cannot be used with");
    refused("-c 1 --cgroup /", &["not a control group"]);
    sandbox.trimtab("release none").ends().fails(2, &["neither a process"]);
    sandbox.trimtab("release 0x7").ends().fails(2, &["no hold 0x7"]);
    let run = sandbox.hold("-c 1");
    let pid = run.pid();
    hold(&sandbox, &format!("-c 1 --pid {pid}")).ends().fails(125, &["already", "trimtab resize"]);
    sandbox.trimtab(&format!("release {pid}")).ends().fails(2, &["held by a run", "end the program"]);
    let target = waiting(&sandbox);
    hold(&sandbox, &format!("-c 2 --pid {}", target.pid())).ends().fails(124, &["2 cores asked for"]);
    assert_eq!(held(&sandbox).len(), 1, "only the run's");
}

#[test]
fn another_users_process_and_hold_are_refused_and_roots_are_not() {
    let [user, hostile] = need!(two_users(), "to act as two users a test needs root");
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut target = sandbox.shell("echo on; read line").user(user).copy("sh".as_ref()).begins();
    target.line();
    let pid = target.pid();
    let as_user = |words: &str, uid: u32| sandbox.trimtab(words).user(uid).ends();
    as_user(&format!("hold --survey none -c 1 --pid {pid}"), hostile).fails(2, &["another user", "root"]);
    assert_eq!(as_user(&format!("hold --survey none -c 1 --pid {pid}"), user).code, Some(0));
    let before = (used(pid), held(&sandbox));
    as_user(&format!("resize --survey none {pid} -c 2"), hostile).fails(2, &["another user"]);
    as_user(&format!("release {pid}"), hostile).fails(2, &["another user"]);
    assert_eq!((used(pid), held(&sandbox)), before);
    assert_eq!(as_user(&format!("resize --survey none {pid} -c 2"), user).code, Some(0));
    assert_eq!((used(pid).len(), held(&sandbox).len()), (2, 2));
    // Root may do all of it.
    sandbox.trimtab(&format!("resize --survey none {pid} -c 1")).ends();
    assert_eq!((used(pid).len(), held(&sandbox).len()), (1, 1));
    sandbox.trimtab(&format!("release {pid}")).ends().ok();
    assert!(held(&sandbox).is_empty());
}

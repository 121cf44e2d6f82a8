//! Runs that grow: cores that become free are taken, and given back to runs that wait.

use crate::ledger::{held, used};
use crate::util::{Call, Running, Sandbox, eventually, eventually_within, need, python, two};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// Two processes that compute until the first one ends.
const SPINNERS: &str = "import os
first = os.getpid()
if os.fork(): print('on', flush=True)
while first in (os.getpid(), os.getppid()): pass";

/// Longest time to the next step of a run on a crowded machine: it looks once a second, or less
/// often if that costs much, and waits five seconds after it gave cores back.
const STEP: Duration = Duration::from_secs(120);

fn spinning<'s>(sandbox: &'s Sandbox, words: &str) -> Option<Running<'s>> {
    let call: Call<'_> = sandbox.run(words).arg(python()?).args(["-c", SPINNERS]);
    let mut run = call.begins();
    assert_eq!(run.line(), "on");
    Some(run)
}

/// Returns the growers of this test's runs: their arguments have the numbers of its holds.
fn growers(numbers: &BTreeSet<String>) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with("trimtab: grower of hold ") && numbers.iter().any(|number| line.contains(number))
    };
    pids.filter(is_one).collect()
}

fn numbers(sandbox: &Sandbox) -> BTreeSet<String> {
    let ps = sandbox.ps();
    ps["holds"].as_array().unwrap().iter().map(|hold| hold["hold"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_takes_the_core_of_one_that_ended_and_gives_it_to_one_that_waits() {
    let both = BTreeSet::from(need!(two(), "two cores are needed"));
    let sandbox = Sandbox::new();
    let other = sandbox.hold("-c 1");
    let run = need!(spinning(&sandbox, "-c 1 --grow"), "no Python");
    let mine = numbers(&sandbox);
    drop(other);
    eventually_within(STEP, "it has both cores", || held(&sandbox) == both && used(run.pid()) == both);
    // A run that waits gets its core, and each of the two has one of its own meanwhile.
    let mut waits = sandbox.run("-c 1 --wait").sh("echo on; read line").begins();
    assert_eq!(waits.line(), "on");
    let (one, two) = (used(run.pid()), used(waits.pid()));
    assert!(one.len() == 1 && two.len() == 1 && one.is_disjoint(&two), "{one:?} {two:?}");
    assert_eq!(held(&sandbox), both);
    drop(waits);
    eventually_within(STEP, "it has both again", || used(run.pid()) == both);
    // A grower that is killed leaves the hold as it is.
    let growers_now = growers(&mine);
    assert_eq!(growers_now.len(), 1, "{growers_now:?}");
    let pid = rustix::process::Pid::from_raw(growers_now[0].cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("the grower has ended", || growers(&mine).is_empty());
    assert_eq!((held(&sandbox), used(run.pid())), (both.clone(), both));
    drop(run);
    eventually("its cores are free", || held(&sandbox).is_empty());
}

/// One process that computes until it is killed, as this user, by this policy, on these CPUs if any
/// are named.
const OTHER: &str = "import os, sys
if sys.argv[3:]: os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[3:]})
os.sched_setscheduler(0, getattr(os, sys.argv[2]), os.sched_param(0))
os.setuid(int(sys.argv[1]))
print('on', flush=True)
while True: pass";

/// A program that was not started by trimtab, killed when it is dropped.
struct Other(std::process::Child);

impl Other {
    fn of(python: &std::path::Path, uid: u32, cpus: &[u32]) -> Self {
        Self::by("SCHED_OTHER", python, uid, cpus)
    }

    fn by(policy: &str, python: &std::path::Path, uid: u32, cpus: &[u32]) -> Self {
        use std::io::{BufRead, BufReader};
        let mut command = std::process::Command::new(python);
        command.args(["-c", OTHER, &uid.to_string(), policy]).args(cpus.iter().map(u32::to_string));
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "on\n");
        Self(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns users of no other program, those of one test of a process: their threads alone lack
/// cores in it. Below 65,536, since a container may have no others.
fn strangers(test: u32) -> [u32; 2] {
    let first = 10_000 + 4 * (std::process::id() % 12_000) + 2 * test;
    [first, first + 1]
}

#[test]
fn a_run_yields_to_programs_of_the_users_that_it_or_the_site_names() {
    let both = BTreeSet::from(need!(two(), "two cores are needed"));
    need!(rustix::process::geteuid().is_root().then_some(()), "root is needed for a second user");
    let python = need!(python(), "no Python");
    let [named, unnamed] = strangers(0);
    for by_site in [false, true] {
        let sandbox = Sandbox::new();
        let words = match by_site {
            true => {
                sandbox.write("config/site.toml", format!("yield-to = \"{named}\"\n"));
                "-c 1 --grow".to_owned()
            }
            false => format!("-c 1 --grow --yield-to=nosuchuser,{named}"),
        };
        // A program of a user who is not named computes all the time, and two want only what others
        // leave.
        let _others = Other::of(&python, unnamed, &[]);
        let _idle = [0; 2].map(|_| Other::by("SCHED_IDLE", &python, named, &[]));
        let run = need!(spinning(&sandbox, &words), "no Python");
        eventually_within(STEP, "it has both cores", || used(run.pid()) == both);
        // The core of the start is not given back, whatever others lack.
        let strangers = [0; 3].map(|_| Other::of(&python, named, &[]));
        eventually_within(STEP, "it has one core", || {
            used(run.pid()).len() == 1 && held(&sandbox).len() == 1
        });
        drop(strangers);
        eventually_within(STEP, "it has both again", || used(run.pid()) == both && held(&sandbox) == both);
    }
}

#[test]
fn the_core_that_is_given_back_is_one_that_the_program_may_use() {
    let [first, second] = need!(two(), "two cores are needed");
    need!(rustix::process::geteuid().is_root().then_some(()), "root is needed for a second user");
    let python = need!(python(), "no Python");
    let both = BTreeSet::from([first, second]);
    let [named, _] = strangers(1);
    for (bound, left) in [(first, second), (second, first)] {
        let sandbox = Sandbox::new();
        let words = format!("-c 1 --grow --yield-to={named}");
        let run = need!(spinning(&sandbox, &words), "no Python");
        eventually_within(STEP, "it has both cores", || used(run.pid()) == both);
        let _other = Other::of(&python, named, &[bound]);
        let left = BTreeSet::from([left]);
        eventually_within(STEP, "it has the other core", || {
            held(&sandbox) == left && used(run.pid()) == left
        });
    }
}

#[test]
fn a_run_that_cannot_see_the_programs_of_others_says_so() {
    need!(two(), "two cores are needed");
    need!(rustix::process::geteuid().is_root().then_some(()), "root is needed for a second user");
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let is_free = yama.map_or(true, |text| text.trim() == "0");
    need!(is_free.then_some(()), "only root's runs can grow here (Yama)");
    let hiding = "mount -t proc -o hidepid=2 proc /proc && \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" \"$@\"";
    let can = std::process::Command::new("unshare").args(["-m", "sh", "-c", hiding, "true"]).status();
    need!(can.is_ok_and(|can| can.success()).then_some(()), "no procfs can be mounted here");
    let sandbox = Sandbox::new();
    let program = sandbox.public().join("trimtab");
    let said = |options: &str| {
        let call = sandbox.run(options).arg("true").copy(&program);
        let cache = sandbox.path("home/65534");
        call.through(["unshare", "-m", "sh", "-c", hiding]).env("XDG_CACHE_HOME", cache).ends()
    };
    let hidden = "cores are given back to your own programs only";
    said("-c 1 --grow --yield-to=all").warns(&[hidden, "hidepid"]);
    said("-c 1 --strict --grow --yield-to=all").fails_with(125, hidden);
    for silent in ["-c 1 --strict --grow --yield-to=65534", "-c 1 --strict --grow"] {
        said(silent).ok();
    }
    // Inside another hold a run yields to none of them, and a rule of the site changes nothing.
    let inside = |options: &str| {
        let inner = format!("$T run --survey none {options} true");
        // A grower ends a moment after its run.
        eventually("the hold before has ended", || held(&sandbox).is_empty());
        sandbox.run("-c 2").sh(&inner).ends()
    };
    inside("-c 1 --grow --yield-to=all").warns(&["--yield-to: no cores are given back", "another hold"]);
    inside("-c 1 --strict --grow --yield-to=all").fails_with(125, "another hold");
    sandbox.write("config/site.toml", "yield-to = \"all\"\n");
    inside("-c 1 --strict --grow").ok();
}

#[test]
fn a_grower_ends_with_its_run_and_never_takes_more_than_allowed() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let run = need!(spinning(&sandbox, &format!("--cpus {a} --grow")), "no Python");
    let mine = numbers(&sandbox);
    eventually("its grower is there", || growers(&mine).len() == 1);
    // Another run has the rest; what a run may not use is not asked for.
    let other = sandbox.hold("-c 1");
    assert!(held(&sandbox).contains(&a) && used(run.pid()) == BTreeSet::from([a]));
    drop((run, other));
    eventually("all have ended", || held(&sandbox).is_empty() && growers(&mine).is_empty());
}

#[test]
fn what_excludes_growth_is_refused() {
    let sandbox = Sandbox::new();
    for words in ["--grow --share", "--grow --ranks 2", "--grow --nest 2,scatter", "--grow --balance"] {
        sandbox.run(words).arg("true").ends().fails_with(125, "--grow");
    }
    for words in ["--yield-to=all", "--grow --yield-to=ann,all", "--grow --yield-to="] {
        sandbox.run(words).arg("true").ends().fails_with(125, "--yield-to");
    }
    // A user that does not exist is named, and refused where that matters.
    let call = sandbox.run("-c 1 --grow --yield-to=nosuchuser").arg("true").ends();
    call.warns(&["no cores are given back to programs of nosuchuser: ", "state their numbers"]);
    let call = sandbox.run("-c 1 --strict --grow --yield-to=nosuchuser").arg("true").ends();
    call.fails_with(125, "nosuchuser");
    for bad in ["0", "-1", "all", ""] {
        sandbox.run(&format!("--grow={bad}")).arg("true").ends().fails_with(125, "--grow");
    }
    let said = sandbox.trimtab("plan --grow=9 -c 1 --machine core:8 --json -- true").ends().out();
    let plan: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&plan["threads"]["value"], &plan["budget"]["cores"]), (&9.into(), &1.into()), "{plan}");
}

//! Several users, many runs at once, and violent ends.

use crate::util::{Random, Running, Sandbox, c, cpus, eventually, nap, need, two, two_users};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[test]
fn two_users_keep_off_each_others_cores() {
    let [a, b] = need!(two(), "two cores are needed");
    let users = need!(two_users(), "to act as two users a test needs root");
    let sandbox = Sandbox::new();
    let hold = |user: u32| {
        let mut running = sandbox
            .run("-c 1")
            .sh("grep -h Cpus_allowed_list /proc/self/status; exec cat")
            .user(user)
            .begins();
        let line = running.line();
        (running, cpus(line.split(':').next_back().unwrap()))
    };
    let (first, firsts) = hold(users[0]);
    let (second, seconds) = hold(users[1]);
    assert_eq!(&firsts | &seconds, BTreeSet::from([a, b]));
    for user in users {
        sandbox.run("-c 1").arg("true").user(user).ends().fails(124, &["held by"]);
    }
    first.ends().ok();
    // A core that one user releases goes to the other.
    let third =
        sandbox.run("-c 1").sh("grep -h Cpus_allowed_list /proc/self/status").user(users[1]).ends().ok();
    assert_eq!(cpus(third.split(':').next_back().unwrap()), firsts);
    second.ends().ok();
    sandbox.until_free();
}

#[test]
fn each_sees_the_others_name_and_command() {
    need!(two(), "two cores are needed");
    let [one, other] = need!(two_users(), "to act as two users a test needs root");
    let sandbox = Sandbox::new();
    let mut running = sandbox.run("-c 1").sh("echo up; exec cat; : recognise me").user(one).begins();
    running.line();
    let name = std::fs::read_to_string("/etc/passwd").unwrap();
    let name = name
        .lines()
        .find(|line| line.split(':').nth(2) == Some(&one.to_string()))
        .and_then(|line| line.split(':').next());
    let name = name.map_or(one.to_string(), str::to_owned);
    let ps = sandbox.trimtab("ps --json").user(other).ends().ok();
    let ps: serde_json::Value = serde_json::from_str(&ps).unwrap();
    let hold = &ps["holds"][0];
    assert_eq!(
        (hold["user"].as_str(), hold["uid"].as_u64()),
        (Some(name.as_str()), Some(u64::from(one))),
        "{ps}"
    );
    assert_eq!(
        (hold["pid"].as_u64(), hold["standing"].as_str()),
        (Some(u64::from(running.pid())), Some("running")),
        "{ps}"
    );
    assert!(hold["command"].as_str().unwrap().contains("recognise me"), "{ps}");
    let table = sandbox.trimtab("ps").user(other).ends().ok();
    assert!(table.contains(&name) && table.contains("sh -c echo up"), "{table}");
}

#[test]
fn a_user_cannot_name_anothers_hold_as_his() {
    let [_, b] = need!(two(), "two cores are needed");
    let [one, other] = need!(two_users(), "to act as two users a test needs root");
    let sandbox = Sandbox::new();
    let mut running = sandbox.run("-c 1").sh("echo \"$TRIMTAB_HOLD\"; exec cat").user(one).begins();
    let forged = running.line();
    let free = sandbox.run("-c 1").sh(crate::util::MASK).user(other).env("TRIMTAB_HOLD", &forged).ends().ok();
    assert_eq!(cpus(&free), BTreeSet::from([b]), "he got into the other's hold");
    sandbox.run("-c 2").arg("true").user(other).env("TRIMTAB_HOLD", &forged).ends().fails(124, &["held by"]);
}

/// About 20 s in a debug build on two CPUs.
#[test]
fn a_thousand_runs_of_two_users_never_share_a_core() {
    need!(two(), "two cores are needed");
    let claim = need!(c("claim.c"), "no C compiler");
    let users = two_users();
    if users.is_none() {
        crate::util::skip("to act as two users a test needs root: all runs are one user's");
    }
    let sandbox = Sandbox::new();
    let claims = sandbox.path("shared");
    let mut random = Random(20_260_729);
    let mut running: Vec<Running<'_>> = Vec::new();
    let (mut started, begin) = (0, Instant::now());
    while started < 1_000 || !running.is_empty() {
        while started < 1_000 && running.len() < 16 {
            let (cores, pause) = (1 + random.below(2), random.below(4));
            let call =
                sandbox.run(&format!("--wait -c {cores}")).arg(&claim).arg(&claims).arg(pause.to_string());
            let call = match users {
                Some(users) => call.user(users[random.below(2) as usize]),
                None => call,
            };
            running.push(call.begins());
            started += 1;
        }
        let mut at = 0;
        while at < running.len() {
            match running[at].lives() {
                true => at += 1,
                false => {
                    running.swap_remove(at).ends().ok();
                }
            };
        }
        assert!(begin.elapsed() < 5 * Duration::from_secs(60), "after five minutes {started} have begun");
        nap();
    }
    assert_eq!(std::fs::read_dir(&claims).unwrap().count(), 0);
    sandbox.until_free();
    assert_eq!(sandbox.ps()["waiting"], 0);
    sandbox.run("-c 2").arg("true").ends().ok();
}

/// About 10 s in a debug build on two CPUs.
#[test]
fn runs_killed_at_any_moment_leave_nothing_behind() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut random = Random(7);
    let (mut before, mut within) = (0, 0);
    for round in 0..75 {
        // Four at once, so that some are killed while they wait, plan, or take.
        let mut running: Vec<Running<'_>> = (0..4)
            .map(|_| {
                let cores = 1 + random.below(2);
                sandbox.run(&format!("--wait -c {cores}")).args(["sleep", "0.01"]).begins()
            })
            .collect();
        for run in &mut running {
            std::thread::sleep(Duration::from_micros(random.below(12_000)));
            // Some runs are left to end by themselves: they must.
            if random.below(8) > 0 && run.lives() {
                run.signal(Signal::KILL);
            }
        }
        for run in running {
            let outcome = run.ends();
            match (outcome.code, outcome.signal) {
                (Some(0), None) => within += 1,
                (None, Some(9)) => before += 1,
                _ => panic!("round {round}: {outcome}"),
            }
        }
    }
    assert!(before > 100 && within > 20, "{before} were killed and {within} ended: not what this is about");
    eventually("nothing is held and nobody waits", || {
        sandbox.held().is_empty() && sandbox.ps()["waiting"] == 0
    });
    sandbox.run("-c 2").arg("true").ends().ok();
}

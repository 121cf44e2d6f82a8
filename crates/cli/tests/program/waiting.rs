//! `--wait`: first come, first served, until the time is over.

use crate::util::{MASK, Random, Running, Sandbox, c, eventually, need, text, two, two_users};
use rustix::process::Signal;
use std::time::Duration;

/// Starts a run that must wait, and returns when it is in line.
fn in_line<'s>(sandbox: &'s Sandbox, options: &str, script: &str, place: u64) -> Running<'s> {
    let waiter = sandbox.run(options).sh(script).begins();
    eventually("it stands in line", || sandbox.ps()["waiting"] == place);
    waiter
}

#[test]
fn a_waiter_gets_the_core_when_it_is_freed() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold(&format!("--cpus {a}"));
    let mut waiter = in_line(&sandbox, &format!("--wait --cpus {a}"), MASK, 1);
    assert!(waiter.lives() && waiter.said().is_empty());
    held.ends().ok();
    assert_eq!(waiter.ends().ok(), a.to_string());
    assert_eq!(sandbox.ps()["waiting"], 0);
}

#[test]
fn waiting_ends_when_the_time_is_over() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 2");
    let outcome = sandbox.run("--wait=1s -c 1").arg("true").ends();
    outcome.fails(124, &["gave up after 1 s", "held by", "trimtab ps"]);
    sandbox.run("--wait=0 -c 1").arg("true").ends().fails(124, &["held by"]);
}

#[test]
fn a_run_does_not_wait_for_cores_that_do_not_exist() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 1");
    sandbox.run("--wait -c 99999").arg("true").ends().fails(125, &["99999 cores asked for"]);
    sandbox.run("--wait --cpus 99999").arg("true").ends().fails(125, &["99999", "do not exist"]);
    sandbox.run("--wait -c 1 --kind none-such").arg("true").ends().fails(125, &["no core kind"]);
}

#[test]
fn waiting_runs_are_served_in_the_order_of_arrival() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let order = sandbox.path("order");
    let held = sandbox.hold("-c 2");
    let waiters: Vec<_> = (1..=4)
        .map(|number| {
            in_line(&sandbox, "--wait -c 2", &format!("echo {number} >> {}", order.display()), number)
        })
        .collect();
    held.ends().ok();
    for waiter in waiters {
        waiter.ends().ok();
    }
    assert_eq!(text(&order), "1\n2\n3\n4\n");
}

#[test]
fn a_later_run_that_would_wait_does_not_overtake() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let order = sandbox.path("order");
    let note = |word: &str| format!("echo {word} >> {}", order.display());
    let [one, other] = [a, b].map(|cpu| sandbox.hold(&format!("--cpus {cpu}")));
    let wide = in_line(&sandbox, "--wait -c 2", &note("wide"), 1);
    one.ends().ok();
    // A core is free, but the first in line waits for two: the narrow run must not starve it.
    let narrow = in_line(&sandbox, "--wait -c 1", &note("narrow"), 2);
    other.ends().ok();
    wide.ends().ok();
    narrow.ends().ok();
    assert_eq!(text(&order), "wide\nnarrow\n");
}

#[test]
fn a_waiter_that_is_killed_leaves_the_line() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 2");
    let first = in_line(&sandbox, "--wait -c 2", "echo first", 1);
    let second = in_line(&sandbox, "--wait -c 2", "echo second", 2);
    first.signal(Signal::KILL);
    assert_eq!(first.ends().signal, Some(9));
    held.ends().ok();
    assert_eq!(second.ends().ok(), "second");
    sandbox.until_free();
}

#[test]
fn a_stopped_waiter_keeps_only_its_place() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _one = sandbox.hold(&format!("--cpus {a}"));
    let held = sandbox.hold(&format!("--cpus {b}"));
    let stopped = in_line(&sandbox, "--wait -c 1", "echo stopped", 1);
    stopped.signal(Signal::STOP);
    held.ends().ok();
    // A run that does not wait is not held up.
    sandbox.run("-c 1").arg("true").ends().ok();
    stopped.signal(Signal::CONT);
    assert_eq!(stopped.ends().ok(), "stopped");
}

#[test]
fn a_stopped_waiter_is_passed_over_and_served_when_it_is_continued() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let order = sandbox.path("order");
    let note = |word: &str| format!("echo {word} >> {}", order.display());
    for signal in [Signal::STOP, Signal::TSTP] {
        let held = sandbox.hold("-c 2");
        let stopped = in_line(&sandbox, "--wait -c 2", &note("stopped"), 1);
        stopped.signal(signal);
        let next = in_line(&sandbox, "--wait -c 2", &note("next"), 2);
        held.ends().ok();
        next.ends().ok();
        sandbox.run("--wait -c 1").sh(&note("newcomer")).ends().ok();
        stopped.signal(Signal::CONT);
        stopped.ends().ok();
    }
    assert_eq!(text(&order), "next\nnewcomer\nstopped\n".repeat(2));
}

#[test]
fn interrupting_a_waiter_ends_it() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 2");
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let waiter = in_line(&sandbox, "--wait -c 1", "echo never", 1);
        waiter.signal(signal);
        let outcome = waiter.ends();
        assert_eq!((outcome.signal, outcome.out().as_str()), (Some(number), ""), "{outcome}");
        eventually("the line is empty", || sandbox.ps()["waiting"] == 0);
    }
}

#[test]
fn a_verbose_waiting_run_names_the_cores_it_waits_for() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 2");
    let waiter = in_line(&sandbox, "--wait -c 1 -v", "true", 1);
    held.ends().ok();
    let outcome = waiter.ends();
    assert!(outcome.stderr.starts_with("trimtab: waiting for cores"), "{outcome}");
    assert_eq!(outcome.stderr.matches("waiting for cores").count(), 1, "{outcome}");
}

#[test]
fn ps_names_the_runs_that_wait() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 2");
    let first = in_line(&sandbox, "--wait -c 2", "echo first", 1);
    let second = in_line(&sandbox, &format!("--wait --cpus {a} --priority -3"), "echo second", 2);
    let queue = sandbox.ps()["queue"].clone();
    let seen = |row: usize, field: &str| queue[row][field].clone();
    assert_eq!((seen(0, "position"), seen(0, "pid")), (1.into(), first.pid().into()), "{queue}");
    assert_eq!((seen(0, "cores"), seen(0, "priority")), (2.into(), 0.into()), "{queue}");
    assert_eq!(
        (seen(0, "standing"), seen(0, "uid")),
        ("running".into(), rustix::process::getuid().as_raw().into())
    );
    assert!(seen(0, "command").as_str().is_some_and(|command| command.contains("echo first")), "{queue}");
    assert_eq!((seen(1, "position"), seen(1, "pid")), (2.into(), second.pid().into()), "{queue}");
    assert_eq!(
        (seen(1, "cpus"), seen(1, "cores")),
        (a.to_string().into(), serde_json::Value::Null),
        "{queue}"
    );
    assert_eq!(seen(1, "priority").as_i64(), Some(-3), "{queue}");
    second.signal(Signal::STOP);
    eventually("ps shows that it is stopped", || sandbox.ps()["queue"][1]["standing"] == "stopped");
    assert!(sandbox.ps()["queue"][1]["position"].is_null());
    let table = sandbox.trimtab("ps").ends().ok();
    assert!(table.contains("LINE") && table.contains("stopped") && table.contains("echo first"), "{table}");
    second.signal(Signal::CONT);
}

#[test]
fn a_later_run_starts_first_on_cores_that_the_first_does_not_need() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold(&format!("--cpus {a}"));
    let first = in_line(&sandbox, &format!("--wait --cpus {a}"), "echo first", 1);
    assert_eq!(sandbox.run("--wait -c 1").sh("echo later").ends().ok(), "later");
    assert_eq!(sandbox.ps()["waiting"], 1, "the first waits still");
    held.ends().ok();
    assert_eq!(first.ends().ok(), "first");
}

#[test]
fn a_run_that_does_not_wait_leaves_cores_to_a_long_waiter() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("config/site.toml", "reserve-after = 0\n");
    let held = sandbox.hold(&format!("--cpus {a}"));
    let wide = in_line(&sandbox, "--wait -c 2", "echo wide", 1);
    let kept = format!("kept for PID {}", wide.pid());
    sandbox.run("-c 1").arg("true").ends().fails(124, &[&kept, "waits for 2 cores", "--wait"]);
    sandbox.run("--no-rules -c 1").arg("true").ends().ok();
    // While it is stopped, it keeps nothing.
    wide.signal(Signal::STOP);
    eventually("it is stopped", || sandbox.ps()["queue"][0]["standing"] == "stopped");
    sandbox.run("-c 1").arg("true").ends().ok();
    wide.signal(Signal::CONT);
    held.ends().ok();
    assert_eq!(wide.ends().ok(), "wide");
}

#[test]
fn a_priority_comes_first_as_far_as_the_site_grants_it() {
    need!(two(), "two cores are needed");
    let [user, _] = need!(two_users(), "to act as an ordinary user a test needs root");
    let sandbox = Sandbox::new();
    let order = sandbox.path("shared/order");
    let note = |word: &str| format!("umask 0; echo {word} >> {}", order.display());
    let of_user = |options: &str, word: &str, place: u64| {
        let waiter = sandbox.run(&format!("--wait -c 2 {options}")).sh(&note(word)).user(user).begins();
        eventually("it stands in line", || sandbox.ps()["waiting"] == place);
        waiter
    };
    for (rules, expected) in [("", "early\nlate\n"), ("max-priority = 2\n", "late\nearly\n")] {
        sandbox.write("config/site.toml", rules);
        let held = sandbox.hold("-c 2");
        let waiters = [of_user("", "early", 1), of_user("--priority 2", "late", 2)];
        held.ends().ok();
        let [early, late] = waiters.map(Running::ends);
        early.ok();
        assert_eq!(late.stderr.contains("counts as 0"), rules.is_empty(), "{late}");
        assert_eq!(text(&order), expected);
        std::fs::remove_file(&order).unwrap();
    }
}

#[test]
fn a_waiting_run_gets_its_position_and_the_holder() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 2");
    let first = in_line(&sandbox, "--wait -c 1 -v", "true", 1);
    let second = in_line(&sandbox, "--wait -c 1 -v", "true", 2);
    let told = |waiter: &Running<'_>, place: &str| {
        let holder = format!("by PID {}", held.pid());
        eventually("the line is printed", || waiter.errors().contains("waiting for cores"));
        let said = waiter.errors();
        assert!(said.contains(place) && said.contains("are held since") && said.contains(&holder), "{said}");
    };
    told(&first, "first in line");
    told(&second, "2nd in line");
    held.ends().ok();
    first.ends();
    second.ends();
}

/// Each run marks its CPUs in the file system, which knows nothing of the ledger.
#[test]
fn three_users_stopped_and_killed_in_line_share_no_core_and_block_no_queue() {
    need!(two(), "two cores are needed");
    let [one, other] = need!(two_users(), "to act as three users a test needs root");
    let claim = need!(c("claim.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let claims = sandbox.path("shared");
    let mut random = Random(22);
    for _ in 0..10 {
        let mut runs: Vec<Running<'_>> = Vec::new();
        for user in [one, other, 0, one, other, 0] {
            let options = format!("--wait -c {} --priority -{}", 1 + random.below(2), random.below(3));
            let pause = random.below(30).to_string();
            runs.push(sandbox.run(&options).arg(&claim).arg(&claims).arg(pause).user(user).begins());
        }
        let stopped = usize::try_from(random.below(6)).unwrap();
        let killed = usize::try_from(random.below(6)).unwrap();
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        // A stopped or killed program would keep its cores, or could not remove its marks.
        let only_waits = |run: &Running<'_>| {
            let ps = sandbox.ps();
            let among = |list: &str| {
                ps[list].as_array().is_some_and(|rows| rows.iter().any(|row| row["pid"] == run.pid()))
            };
            among("queue") && !among("holds")
        };
        let stop = |run: &Running<'_>| {
            let waited = only_waits(run);
            if waited {
                run.signal(Signal::STOP);
            }
            let stays = waited && only_waits(run);
            if waited && !stays {
                run.signal(Signal::CONT);
            }
            stays
        };
        let stops = stop(&runs[stopped]);
        let kills = killed != stopped && stop(&runs[killed]);
        if kills {
            runs[killed].signal(Signal::KILL);
        }
        let mut left = Vec::new();
        for (number, run) in runs.into_iter().enumerate() {
            match number {
                _ if number == stopped && stops => left.push(run),
                _ if number == killed && kills => drop(run.ends()),
                _ => drop(run.ends().ok()),
            }
        }
        for run in left {
            run.signal(Signal::CONT);
            run.ends().ok();
        }
    }
    assert_eq!(std::fs::read_dir(&claims).unwrap().count(), 0);
    sandbox.until_free();
    assert_eq!(sandbox.ps()["waiting"], 0);
}

//! `--wait`: first come, first served, until the time is over.

use crate::util::{MASK, Running, Sandbox, eventually, need, text, two};
use rustix::process::Signal;

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
fn nobody_waits_for_what_can_never_be() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 1");
    sandbox.run("--wait -c 99999").arg("true").ends().fails(125, &["99999 cores asked for"]);
    sandbox.run("--wait --cpus 99999").arg("true").ends().fails(125, &["99999", "do not exist"]);
    sandbox.run("--wait -c 1 --kind none-such").arg("true").ends().fails(125, &["no core kind"]);
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
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
fn a_newcomer_who_would_wait_does_not_overtake() {
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
fn a_verbose_waiter_says_what_it_waits_for() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 2");
    let waiter = in_line(&sandbox, "--wait -c 1 -v", "true", 1);
    held.ends().ok();
    let outcome = waiter.ends();
    assert!(outcome.stderr.starts_with("trimtab: waiting for cores"), "{outcome}");
    assert_eq!(outcome.stderr.matches("waiting for cores").count(), 1, "{outcome}");
}

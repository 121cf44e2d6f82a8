//! `trimtab counters`, and counts in recordings. The kernel's software events stand in on machines
//! without counters.

use crate::util::{Sandbox, c, eventually, need, skip, text};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Child, Command, Stdio};

const SOFTWARE: &str = "busy=task-clock,requests=page-faults,cycles=cpu-clock";

/// A program that computes until it is dropped.
struct Busy(Child);

impl Busy {
    fn new() -> Self {
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the JSON of `trimtab counters`, whatever its status.
fn asked(sandbox: &Sandbox, words: &str) -> Value {
    let end = sandbox.trimtab(&format!("counters --json {words}")).ends();
    assert!(matches!(end.code, Some(0 | 1)), "{}", end.stderr);
    serde_json::from_slice(&end.stdout).unwrap()
}

/// Returns whether anything may be counted here.
fn may_count(sandbox: &Sandbox) -> bool {
    let may = asked(sandbox, &format!("--events {SOFTWARE}"))["events"]
        .as_array()
        .is_some_and(|events| !events.is_empty());
    if !may {
        skip("nothing may be counted here");
    }
    may
}

#[test]
fn it_says_where_this_machine_stands_and_why_not_higher() {
    let sandbox = Sandbox::new();
    let said = asked(&sandbox, "");
    assert_eq!(said["schema"], "trimtab.counters/1");
    let rung = said["rung"].as_str().unwrap().to_owned();
    let end = sandbox.trimtab("counters").ends();
    let text = end.out();
    assert_eq!(end.code, Some(i32::from(rung == "nothing")), "{text}");
    assert!(text.starts_with(&format!("{rung}: ")), "{text}");
    for missing in said["missing"].as_array().unwrap() {
        assert!(missing["why"].as_str().is_some_and(|word| !word.contains(' ')));
        let line = format!(": {}", missing["text"].as_str().unwrap());
        assert!(text.contains(&line) && text.contains(missing["rung"].as_str().unwrap()));
    }
    let off = sandbox.trimtab("counters --events off").ends();
    assert_eq!((off.code, off.out().as_str()), (Some(1), "nothing: nothing is counted"));
}

#[test]
fn threads_of_a_program_are_counted_for_a_while() {
    let sandbox = Sandbox::new();
    if !may_count(&sandbox) {
        return;
    }
    let busy = Busy::new();
    let pid = busy.0.id();
    let mut said = Value::Null;
    // On a busy machine it may not run often enough at first.
    eventually("its counters are read twice", || {
        said = asked(&sandbox, &format!("--events {SOFTWARE} --for 300ms {pid} {pid}"));
        said["threads"][0]["counts"].is_object()
    });
    assert_eq!((&said["rung"], &said["events"][0]["role"]), (&"exact".into(), &"busy".into()), "{said}");
    assert!(said["cost"]["switch_two_ns"].as_u64().unwrap() > 0 && said["one_in"].as_u64().unwrap() >= 1);
    let threads = said["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1, "named twice it is one: {said}");
    let thread = &threads[0];
    assert_eq!((&thread["pid"], &thread["tid"], &thread["name"]), (&pid.into(), &pid.into(), &"sh".into()));
    assert!(said["watched_ns"].as_u64().unwrap() >= 300_000_000 && thread["run_ns"].as_u64().unwrap() > 0);
    assert!(
        thread["share"].as_f64().unwrap() > 0.0 && thread["counts"]["busy"].as_u64().unwrap() > 0,
        "{said}"
    );
    assert!(thread["cycles_per_instruction"].is_null(), "what was not counted is missing: {said}");
    let mut text = String::new();
    eventually("it runs", || {
        text = sandbox.trimtab(&format!("counters --events {SOFTWARE} --for 200ms {pid}")).ends().ok();
        !text.contains("no thread ran in")
    });
    for word in ["events     busy", "task-clock", "cost       reading", "TID", "BUSY/INSTR", &pid.to_string()]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn counting_ends_with_the_program() {
    let sandbox = Sandbox::new();
    let mut program = Command::new("sleep").arg("0.3").spawn().unwrap();
    let end = sandbox.trimtab(&format!("counters --for 1h {}", program.id())).ends();
    program.wait().unwrap();
    // On a busy machine the program may still start when the counting begins, and be counted then.
    let told = ["no thread ran in", " over "].iter().any(|words| end.out().contains(words));
    assert!(matches!(end.code, Some(0 | 1)) && told, "{end}");
}

#[test]
fn events_that_cannot_be_counted_are_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    let fails = |words: &str, says: &str| {
        let end = sandbox.trimtab(words).ends();
        assert!(end.code == Some(2) && end.stderr.contains(says), "{words}: {}", end.stderr);
    };
    fails("counters --events nonsense", "neither auto, off, exact");
    fails("counters --events busy=nonsense", "'nonsense' is not an event");
    fails("counters --events colour=r1", "a role of busy, requests");
    fails("counters --for 1s", "PID");
    fails("counters 0", "0");
    fails("counters 4194999", "there is no process 4194999");
    fails("attach 1 --counters best", "neither auto");
    let end = sandbox.trimtab("run --counters exact true").ends();
    assert!(end.code == Some(125) && end.stderr.contains("--counters needs --balance"), "{}", end.stderr);
    let said = asked(&sandbox, "--events busy=gpu/event=1/,requests=r1");
    let text = said["missing"][0]["text"].as_str().unwrap();
    assert!(said["missing"][0]["why"] == "bad-event" && text.contains("no 'gpu' among"), "{said}");
}

#[test]
fn counts_are_recorded_on_request_only() {
    let sandbox = Sandbox::new();
    if !may_count(&sandbox) {
        return;
    }
    let spins = need!(c("spins.c"), "no C compiler");
    for (option, counted) in [
        (format!("--counters {SOFTWARE}"), true),
        ("--counters off".to_owned(), false),
        (String::new(), false),
    ] {
        let trace = sandbox.path("trace.jsonl");
        let _ = std::fs::remove_file(&trace);
        let mut program = sandbox.shell(&format!("exec {} 1", spins.display())).begins();
        program.line();
        let words = format!("attach {} --balance float --interval 20ms {option} --trace", program.pid());
        let attached = sandbox.trimtab(&words).arg(&trace).begins();
        let has = |word: &str| text(&trace).contains(word);
        eventually("some looks are recorded", || text(&trace).lines().count() > 8);
        if counted {
            eventually("counts are recorded", || has("\"counts\":{\"enabled\""));
        }
        attached.signal(Signal::INT);
        attached.ends().ok();
        assert_eq!(has("\"counts\":{\"enabled\""), counted, "{option}");
        assert_eq!(has("{\"counting\":\"exact\"}"), counted, "{option}");
        // The recording can be read back.
        sandbox.trimtab("replay --check").arg(&trace).ends().ok();
        assert_eq!(program.ends().code, Some(9));
    }
}

//! `trimtab replay`: equal decisions, decisions of another policy beside them, and files that are
//! not traces.

use crate::runs::Run;
use crate::util::{Call, Sandbox, c, eventually, need, text, two};
use serde_json::Value;
use std::path::PathBuf;

/// Records a trace of a real run under a policy.
fn recorded(sandbox: &Sandbox, policy: &str) -> Option<PathBuf> {
    let spins = c("spins.c")?;
    let trace = sandbox.path(&format!("{policy}.jsonl"));
    let options =
        format!("-c 2 --or-fewer --balance={policy} --interval 10ms --seed 7 --trace {}", trace.display());
    let mut running = sandbox.run(&options).arg(&spins).arg("3").begins();
    running.line();
    eventually("twenty looks", || text(&trace).lines().count() > 20);
    assert_eq!(running.ends().code, Some(9));
    Some(trace)
}

#[test]
fn a_policy_decides_the_same_again() {
    let sandbox = Sandbox::new();
    for policy in ["auto", "speed", "exchange", "nudge", "pinned", "float"] {
        let trace = need!(recorded(&sandbox, policy), "no C compiler");
        let again = sandbox.path("again.jsonl");
        let call = sandbox.trimtab("replay --check").arg(&trace).arg("--to").arg(&again);
        let said = call.ends().ok();
        assert!(
            said.contains("every turn is equal") && said.contains("only recorded: 0, only replayed: 0"),
            "{said}"
        );
        // Its own trace equals that of the run, except for the end.
        let lines = |path: &PathBuf| {
            text(path)
                .lines()
                .filter(|line| !line.starts_with("{\"end\""))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&again), lines(&trace), "{policy}");
        sandbox.trimtab("replay --check").arg(&again).ends().ok();
    }
}

#[test]
fn another_policy_is_shown_beside_it() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let trace = need!(recorded(&sandbox, "pinned"), "no C compiler");
    let replay = |words: &str| sandbox.trimtab(&format!("replay {words}")).arg(&trace);
    let said = replay("--policy float").ends().ok();
    assert!(said.contains("  - thread ") && said.contains("pinned then, float now"), "{said}");
    assert!(said.contains("the recorded machine does not react"), "{said}");
    let different = replay("--policy float --check").ends();
    assert_eq!((different.code, different.stderr.as_str()), (Some(1), ""), "{different}");
    let json = replay("--policy float --json").ends().ok();
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, steps) = lines.split_last().unwrap();
    let summary = &summary["summary"];
    assert_eq!(summary["steps"], steps.len());
    let only: usize = steps.iter().map(|step| step["step"]["recorded"].as_array().unwrap().len()).sum();
    assert_eq!((&summary["only_recorded"], &summary["only_replayed"]), (&only.into(), &0.into()));
    assert!(only > 0 && summary["first_difference"].is_u64(), "{summary}");
    // Decisions have no effect, but the same policy, which only saw floating threads, decides
    // again.
    let other =
        replay("--policy speed --seed 3 --speed-metric cpu-share --interval 20ms --across-nodes").ends().ok();
    assert!(other.contains("speed now"), "{other}");
}

#[test]
fn a_trace_cut_anywhere_is_replayed_up_to_the_cut() {
    let sandbox = Sandbox::new();
    let trace = need!(recorded(&sandbox, "speed"), "no C compiler");
    let whole = std::fs::read(&trace).unwrap();
    let header = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let length = whole.len() - header;
    for cut in (0..20).map(|part| header + length * part / 20) {
        let part = sandbox.write("part.jsonl", &whole[..cut]);
        let outcome = sandbox.trimtab("replay --check").arg(&part).ends();
        assert_eq!(outcome.code, Some(0), "{cut}: {outcome}");
        // A line that lacks nothing but its end is whole.
        let clean = whole[cut - 1] == b'\n' || whole[cut] == b'\n';
        assert_eq!(outcome.stderr.contains("incomplete"), !clean, "{cut}: {outcome}");
    }
}

#[test]
fn a_trace_may_come_through_a_pipe() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("run.trace", Run::default().text());
    let named = sandbox.trimtab("replay").arg(&trace).ends().ok();
    let again = sandbox.path("again.trace");
    let call = sandbox.trimtab("replay - --to").arg(&again).input(std::fs::read(&trace).unwrap());
    assert_eq!(call.ends().ok(), named);
    assert!(text(&again).contains("a replay of standard input"));
}

#[test]
fn replayed_decisions_are_printed_at_once() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("run.trace", Run::default().text());
    // Half way through, the new trace cannot grow any more; the replay until then has been printed.
    let limit = std::fs::metadata(&trace).unwrap().len() / 512 / 2;
    let script = format!(
        "(trap '' XFSZ; ulimit -f {limit}; exec \"$T\" replay --json {} --to again) | cat",
        trace.display()
    );
    let outcome = sandbox.shell(&script).ends();
    assert!(outcome.stderr.contains("again cannot be written"), "{outcome}");
    assert!(outcome.out().lines().count() > 2, "{outcome}");
}

#[test]
fn a_file_that_is_no_trace_is_reported_in_one_line() {
    let sandbox = Sandbox::new();
    let replay = |call: Call<'_>, words: &[&str]| call.ends().fails(2, words);
    let file = |bytes: &[u8]| {
        let path = sandbox.write("file", bytes);
        sandbox.trimtab("replay").arg(path)
    };
    replay(file(b""), &["the trace is empty"]);
    replay(file(b"\x7fELF\x02\x01\x01\xff\xfe"), &["not a trimtab trace", "not text"]);
    replay(file(b"hello\n"), &["not a trimtab trace"]);
    replay(file(b"{\"a\":1}\n"), &["not a trimtab trace"]);
    replay(file(b"\0\0\0\0\n"), &["not a trimtab trace"]);
    replay(file(b"{\"header\":{\"trimtab-trace\":99}}\n"), &["version 99", "another trimtab"]);
    replay(sandbox.trimtab("replay").arg(sandbox.path("")), &["is a folder"]);
    replay(sandbox.trimtab("replay /no/such/trace"), &["cannot read /no/such/trace", "No such file"]);
    sandbox.trimtab("replay --policy fast x").ends().fails_with(2, "not a balancing policy");
    let trace = need!(recorded(&sandbox, "float"), "no C compiler");
    let mut damaged: Vec<String> = text(&trace).lines().map(str::to_owned).collect();
    damaged[3] = "{\"step\":{\"sample\":7}}".into();
    replay(file((damaged.join("\n") + "\n").as_bytes()), &["line 4 cannot be read"]);
    replay(sandbox.trimtab("replay --to /nowhere/x").arg(&trace), &["--to /nowhere/x"]);
    replay(sandbox.trimtab("replay --to /dev/full").arg(&trace), &["/dev/full", "No space left"]);
}

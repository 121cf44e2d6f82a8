//! Wrong input: one line that names the fault, and a status that is trimtab's own.

use crate::util::{Sandbox, need, two};

/// Options, and words of the message about them.
const WRONG: [(&str, &[&str]); 39] = [
    ("-c 0", &["'0'", "0 cores is not a request", "position 1"]),
    ("-c x", &["\"x\" is not a unit", "position 1", "l3, die, node"]),
    ("-c 2xfoo", &["\"foo\" is not a unit", "position 3 of \"2xfoo\""]),
    ("-c 101%", &["101% is more than the whole machine"]),
    ("-c 0%", &["0 cores"]),
    ("-c 50%x", &["position 4"]),
    ("-c 1.5", &["position 2"]),
    ("-c 2x", &["a unit is missing at position 3"]),
    ("-c 2x8", &["a / and a unit are missing"]),
    ("-c 8/", &["a unit is missing at position 3"]),
    ("-c 4294967296", &["4294967296 is too large"]),
    ("-c -1", &["-1"]),
    ("-c=", &["missing"]),
    ("-c \u{e9}", &["\u{e9}"]),
    ("--cpus x", &["position 1 of \"x\""]),
    ("--cpus 0,,1", &["a number is missing at position 3"]),
    ("--cpus 3-1", &["3-1 runs backwards"]),
    ("--cpus 0-", &["position 3"]),
    ("--cpus -1", &["-1"]),
    ("--cpus 0x3", &["\"0x3\" is not a number at position 1"]),
    ("--cpus 99999999999", &["too large"]),
    ("--cpus=", &["no CPU is named", "--cpus 0-3"]),
    ("--cpus 99999", &["CPUs 99999 do not exist", "this machine has"]),
    ("-s sprad", &["\"sprad\" is not a strategy", "compact, scatter"]),
    ("-s stride:0", &["stride of 0"]),
    ("-s stride:x", &["\"x\" is not a stride"]),
    ("--smt 0", &["\"0\" is not a number of hardware threads"]),
    ("--smt two", &["\"two\""]),
    ("--mem lokal", &["\"lokal\" is not a memory policy", "local"]),
    ("--mem bind:99", &["memory nodes 99 do not exist"]),
    ("--mem bind:", &["no node is named"]),
    ("--mem local:0", &["local takes no nodes"]),
    ("--kind Q", &["no core kind \"Q\"", "it has"]),
    ("-c 99999", &["99999 cores asked for", "ask for at most", "--or-fewer"]),
    ("-c 99xmachine", &["99 machines asked for", "has 1"]),
    ("--cpus 0 --smt 2", &["--cpus without --cores", "--smt"]),
    ("--cpus 0 --or-fewer", &["--cpus without --cores", "--or-fewer"]),
    ("-c 1 -c 2", &["--cores", "cannot be used multiple times"]),
    ("--survey", &["--survey"]),
];

#[test]
fn wrong_options_of_run_are_named() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("started");
    for (options, words) in WRONG {
        let call = match options {
            "--survey" => sandbox.trimtab("run --survey=some").arg("touch").arg(&file),
            _ => sandbox.run(options).arg("touch").arg(&file),
        };
        let outcome = call.ends();
        assert!(!file.exists(), "{options}: the program was started");
        lines(&outcome.stderr, options);
        assert_eq!(outcome.code, Some(125), "{outcome}");
        for word in words {
            assert!(outcome.stderr.contains(word), "{options}: \"{word}\" is missing: {outcome}");
        }
    }
}

#[test]
fn wrong_options_of_plan_are_named() {
    let sandbox = Sandbox::new();
    for (options, words) in WRONG.iter().filter(|(options, _)| *options != "--survey") {
        let outcome = sandbox.trimtab(&format!("plan --survey none {options}")).ends();
        assert!(outcome.stdout.is_empty(), "{outcome}");
        lines(&outcome.stderr, options);
        // A request that this machine cannot meet is an answer (1); an invalid request is a fault
        // (2).
        assert!(matches!(outcome.code, Some(1 | 2)), "{outcome}");
        let parses = ["-c 99999", "-c 99xmachine", "--cpus=", "--cpus 99999", "--mem bind:99", "--kind Q"]
            .contains(options);
        assert_eq!(outcome.code == Some(1), parses, "{outcome}");
        for word in *words {
            assert!(outcome.stderr.contains(word), "{options}: \"{word}\" is missing: {outcome}");
        }
    }
}

/// Checks for one line, and the two that the parser of the options adds.
fn lines(stderr: &str, options: &str) {
    let known = ["", "For more information, try '--help'."];
    let added = ["Usage: ", "  [possible values", "  tip: "];
    let lines = stderr
        .lines()
        .filter(|line| !known.contains(line) && !added.iter().any(|start| line.starts_with(start)));
    assert_eq!(lines.count(), 1, "{options}: {stderr}");
}

#[test]
fn an_unknown_option_is_not_taken_for_the_program() {
    let sandbox = Sandbox::new();
    for (options, option) in
        [("--shared", "--shared"), ("-z", "-z"), ("-c 1 --or-less", "--or-less"), ("-cq", "q")]
    {
        for (command, status) in [("run", 125), ("plan", 2)] {
            let outcome = sandbox.trimtab(&format!("{command} {options} true")).ends();
            assert_eq!(outcome.code, Some(status), "{outcome}");
            assert!(outcome.stderr.starts_with("error: ") && outcome.stderr.contains(option), "{outcome}");
            lines(&outcome.stderr, options);
        }
    }
}

#[test]
fn an_empty_list_is_no_list() {
    let sandbox = Sandbox::new();
    let call = |name: &str| sandbox.trimtab("run --survey none").args([name, "", "true"]).ends();
    call("--cpus").fails(125, &["no CPU is named"]);
    call("--cores").fails(125, &["an expression is missing at position 1"]);
    call("--strategy").fails(125, &["is not a strategy"]);
    call("--mem").fails(125, &["is not a memory policy"]);
    call("--kind").fails(125, &["no core kind"]);
    sandbox.trimtab("run --wait=").arg("true").ends().fails(125, &["--wait"]);
    let outcome = sandbox.trimtab("run -q -v true").ends();
    assert!(outcome.code == Some(125) && outcome.stderr.contains("cannot be used with"), "{outcome}");
}

#[test]
fn empty_variables_are_unset_ones() {
    let sandbox = Sandbox::new();
    // Files of the current directory are not read.
    sandbox.write("site.toml", "max-cores = x\n");
    let call = sandbox
        .run("-c 1")
        .arg("true")
        .env("TRIMTAB_CONFIG", "")
        .env("XDG_CONFIG_HOME", sandbox.path("none"));
    call.ends().ok();
    let outcome = sandbox.trimtab("ps").env("TRIMTAB_LEDGER", "").ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
}

#[test]
fn a_missing_command_is_asked_for() {
    let sandbox = Sandbox::new();
    for words in ["run", "run --", "run -c 1", "run -c 1 --"] {
        let outcome = sandbox.trimtab(words).ends();
        assert_eq!(outcome.code, Some(125), "{outcome}");
        assert!(
            outcome.stderr.contains("<COMMAND>") && outcome.stderr.contains("Usage: trimtab run"),
            "{outcome}"
        );
    }
}

#[test]
fn unknown_commands_are_named() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("rnu true").ends();
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert!(outcome.stderr.contains("rnu"), "{outcome}");
    for words in ["topo --machin x", "ps --jsn", "doctor now", "check", "generate postscript"] {
        let outcome = sandbox.trimtab(words).ends();
        assert_eq!(outcome.code, Some(2), "{outcome}");
        assert!(!outcome.stderr.is_empty() && outcome.stdout.is_empty(), "{outcome}");
    }
}

#[test]
fn times_that_are_none_are_named_in_the_same_words_everywhere() {
    let sandbox = Sandbox::new();
    let options = [
        ("run --wait=", " true", 125),
        ("run --balance --interval=", " true", 125),
        ("attach --for=", " 1", 2),
        ("attach --interval=", " 1", 2),
        ("replay --interval=", " x", 2),
        ("top --once --interval=", "", 2),
    ];
    for (option, rest, status) in options {
        for (time, word) in [
            ("10y", "\"10y\" is not a time such as 100ms, 1.5s, 10m or 2h"),
            ("m", "\"m\" is not a time such as"),
            ("-3", "\"-3\" is not a time such as"),
            ("1e3", "\"1e3\" is not a time such as"),
            ("1..5s", "\"1..5s\" is not a time such as"),
            ("99999999999999999999", "99999999999999999999 is too long"),
        ] {
            let outcome = sandbox.trimtab(&format!("{option}{time}{rest}")).ends();
            assert_eq!(outcome.code, Some(status), "{outcome}");
            assert!(outcome.stderr.contains(word), "{outcome}");
            lines(&outcome.stderr, time);
        }
    }
    sandbox.trimtab("attach --for=0s 1").ends().fails(2, &["0s is zero"]);
    sandbox.trimtab("top --once --interval=1.5ms").ends().fails(2, &["1.5ms is not between 20ms and 1h"]);
    // Every option accepts a fraction.
    assert_eq!(sandbox.run("--wait=0.5s -c 1").arg("true").ends().ok(), "");
    assert_eq!(sandbox.run("-c 1 --balance --interval 2.5ms").arg("true").ends().ok(), "");
}

#[test]
fn shapes_this_machine_lacks_are_named_with_those_it_has() {
    let sandbox = Sandbox::new();
    // Synthetic machines have exactly the described parts.
    let outcome = sandbox.trimtab("plan -c die --machine pack:2").ends();
    outcome.fails(1, &["this machine has no die", "it has:"]);
    let outcome = sandbox.trimtab("plan -c 3xpackage").args(["--machine", "pack:2 core:4"]).ends();
    outcome.fails(1, &["3 packages asked for", "has 2"]);
    let outcome = sandbox.trimtab("plan -c 5/package").args(["--machine", "pack:2 core:4"]).ends();
    assert_eq!(outcome.code, Some(1), "{outcome}");
}

#[test]
fn a_wrong_request_of_a_held_machine_is_wrong_and_not_refused() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 2");
    sandbox.run("-c 99999").arg("true").ends().fails(125, &["only 2 cores may be used here"]);
    sandbox.run("--cpus 99999").arg("true").ends().fails(125, &["do not exist"]);
}

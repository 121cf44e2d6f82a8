//! `trimtab advise --pair`: two programs, in arrangements whose order is known.

use crate::util::{Outcome, Sandbox};
use serde_json::{Value, json};

fn read(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.out()).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

fn of<'v>(document: &'v Value, arrangement: &str) -> &'v Value {
    let all = document["arrangements"].as_array().unwrap();
    all.iter().find(|tried| tried["arrangement"] == arrangement).unwrap_or_else(|| panic!("{document}"))
}

#[test]
fn programs_that_sleep_lose_nothing_at_once() {
    let sandbox = Sandbox::new();
    let call =
        sandbox.trimtab("advise --pair --budget 30s --json").args(["sleep", "0.2", "--", "sleep", "0.1"]);
    let outcome = call.ends();
    let document = read(&outcome);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert_eq!((&document["schema"], &document["run"]), (&json!("trimtab.pair/1"), &Value::Null));
    assert_eq!(document["commands"], json!([["sleep", "0.2"], ["sleep", "0.1"]]));
    let (now, in_turn) = (of(&document, "at-once"), of(&document, "in-turn"));
    let ends = |tried: &Value| [0, 1].map(|place| tried["ends"][place].as_f64().unwrap());
    assert!(ends(now)[1] < ends(now)[0] && ends(in_turn)[0] < ends(in_turn)[1], "{document}");
    // A sleep is never shorter than it says, whatever runs on this machine.
    assert!(document["alone"][0].as_f64().unwrap() >= 0.2 && document["alone"][1].as_f64().unwrap() >= 0.1);
    assert!(now["throughput"].as_f64().unwrap() > in_turn["throughput"].as_f64().unwrap(), "{document}");
    assert!(in_turn["command"].as_str().unwrap().ends_with("trimtab run -- sleep 0.1"), "{document}");
}

#[test]
fn the_text_says_what_each_program_gets() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("advise --pair --budget 30s").args(["sleep", "0.1"]).ends();
    let said = outcome.out();
    assert!(said.starts_with("A is sleep 0.1, B is sleep 0.1, on "), "{outcome}");
    for words in
        ["Alone under trimtab run A takes ", "both at once, as now", "one after the other", "Throughput "]
    {
        assert!(said.contains(words), "{words}: {outcome}");
    }
}

#[test]
fn a_program_that_fails_is_named() {
    let sandbox = Sandbox::new();
    let call =
        sandbox.trimtab("advise --pair --json sleep 0.1 --").args(["sh", "-c", "echo broken >&2; exit 3"]);
    let outcome = call.ends();
    assert_eq!(outcome.code, Some(2), "{outcome}");
    let why = of(&read(&outcome), "in-turn")["rejected"].as_str().unwrap().to_owned();
    assert!(why.contains("exit 3") && why.contains("status 3") && why.contains("broken"), "{why}");
    let missing = sandbox.trimtab("advise --pair true -- /nowhere/program").ends();
    assert_eq!(missing.code, Some(2), "{missing}");
    assert!(missing.out().contains("/nowhere/program"), "{missing}");
}

#[test]
fn words_that_are_not_two_programs_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.trimtab("advise --pair true --").ends().fails(2, &["a program on each side of --"]);
    sandbox.trimtab("advise --pair a -- b -- c").ends().fails(2, &["sh -c"]);
    let both = sandbox.trimtab("advise --pair --once true").ends();
    assert_eq!(both.code, Some(2), "{both}");
    assert!(both.stderr.contains("'--pair' cannot be used with '--once'"), "{both}");
    // Without --pair the words are those of one program, as for cargo test -- --nocapture.
    let one = sandbox.trimtab("advise --once --others 0 --json true -- x").ends();
    assert_eq!(read(&one)["command"], json!(["true", "--", "x"]), "{one}");
}

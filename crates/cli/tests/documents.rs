//! The schemas in docs/json-*.md: every field that a command prints is described there.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[path = "../../agent/tests/fixtures/recorded_runs.rs"]
mod runs;

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

fn trimtab(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_trimtab"))
        .args(arguments)
        .env("TRIMTAB_LEDGER", folder.path())
        .env("TRIMTAB_CONFIG", folder.path())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Collects every field name and every word that stands for a variant.
fn words(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // CPU numbers are keys of `busy`.
                if !name.bytes().all(|byte| byte.is_ascii_digit()) {
                    into.insert(name.clone());
                }
                if name == "reason" || name == "advice" || name == "verdict" || name == "state" {
                    into.extend(value.as_str().map(str::to_owned));
                }
                words(value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| words(value, into)),
        _ => {}
    }
}

/// Stand-in for a benchmark program: `sh` passes the shape.
const FAKE: &str = "#!/bin/sh\nfor shape; do :; done\ns='{\"median\":1.5}'\n\
    echo \"{\\\"kernel\\\":\\\"${0##*/}\\\",\\\"outer\\\":1,\\\"inner\\\":1,\\\"seconds\\\":$s,\\\"verified\\\":true}\"\n";

#[test]
fn every_field_of_a_measurement_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("nested_solver");
    std::fs::write(&program, FAKE).unwrap();
    assert!(Command::new("chmod").arg("755").arg(&program).status().unwrap().success());
    let output = Command::new(env!("CARGO_BIN_EXE_trimtab"))
        .args(["bench", "nested", "--only", "solver", "--shape", "1x1", "--json", "-", "--programs"])
        .arg(folder.path())
        .env("TRIMTAB_LEDGER", folder.path())
        .env("TRIMTAB_CONFIG", folder.path())
        .output()
        .unwrap();
    let mut found = BTreeSet::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        // These fields are described with the programs.
        line["report"] = Value::Null;
        // These names are the user's.
        line["environment"] = Value::Null;
        found.insert(line["record"].as_str().unwrap().to_owned());
        words(&line, &mut found);
    }
    for record in ["start", "run", "result", "end"] {
        assert!(found.contains(record), "{record}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let described = described();
    let missing: Vec<_> = found.iter().filter(|word| !described.contains(word.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} are not described in docs/json-*.md");
}

#[test]
fn every_field_of_a_simulated_run_is_documented() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim/hog.toml");
    let mut line = trimtab(&["sim", "--json", "--set", "policy=exchange", scenario]);
    // Its keys are those of the scenario.
    line["set"] = Value::Null;
    let mut found = BTreeSet::new();
    words(&line, &mut found);
    let described = described();
    let missing: Vec<_> = found.iter().filter(|word| !described.contains(word.as_str())).collect();
    assert!(
        found.contains("makespan") && missing.is_empty(),
        "{missing:?} are not described in docs/json-*.md"
    );
}

#[test]
fn every_field_of_samples_and_reports_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run.trace");
    std::fs::write(&trace, runs::Run::default().text()).unwrap();
    let trace = trace.to_str().unwrap();
    let own = std::process::id().to_string();
    let commands: [&[&str]; 3] = [
        &["top", "--json", "--replay", trace],
        &["top", "--json", "-i", "100ms", &own],
        &["report", "--json", trace],
    ];
    let described = described();
    for arguments in commands {
        let mut document = trimtab(arguments);
        for one in document["moves"].as_array_mut().unwrap() {
            // Reasons and their figures belong to the trace.
            one["reason"] = Value::Null;
        }
        // So do findings.
        document["findings"] = Value::Null;
        let mut found = BTreeSet::new();
        words(&document, &mut found);
        let missing: Vec<_> = found.iter().filter(|word| !described.contains(word.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?} of {arguments:?} are not described in docs/json-*.md");
    }
}

fn described() -> BTreeSet<&'static str> {
    let text = concat!(
        include_str!("../../../docs/json-launching.md"),
        include_str!("../../../docs/json-observing.md"),
        include_str!("../../../docs/json-advice.md"),
        include_str!("../../../docs/json-studies.md"),
    );
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_-".contains(letter))).collect()
}

#[test]
fn every_field_of_advice_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.json");
    let profile = r#"{"schema":"trimtab.profile/1","program":"app","cpus":2,"cores":2,"wall":800000000,"user":1500000000,"workers":4,
        "runtimes":["libgomp"],"intervals":{"count":2600,"mean":300000,"median":300000,"tenth":250000,"ninetieth":350000}}"#;
    std::fs::write(&file, profile).unwrap();
    let advice = trimtab(&["advise", "--json", "--others", "0", "--from", file.to_str().unwrap()]);
    let tested =
        trimtab(&["advise", "--json", "--share", "--budget", "2s", "--others", "0", "--", "sleep", "0.1"]);
    assert!(tested["tested"]["variants"].as_array().is_some_and(|all| all.len() >= 2), "{tested}");
    let mut found = BTreeSet::new();
    words(&advice, &mut found);
    words(&tested, &mut found);
    let described = described();
    let missing: Vec<_> = found.iter().filter(|word| !described.contains(word.as_str())).collect();
    assert!(
        found.contains("change") && missing.is_empty(),
        "{missing:?} are not described in docs/json-*.md"
    );
}

#[test]
fn every_field_that_is_printed_is_documented() {
    let described = described();
    let far = "pack:2 [numa(memory=16GB tier=hbm)] numa:2(memory=64GB) l3:2 core:4 pu:2(far)";
    let commands: &[&[&str]] = &[
        &["plan", "--json", "--survey", "none"],
        &["plan", "--json", "--machine", far, "-c", "50%", "--or-fewer"],
        &["plan", "--json", "--machine", far, "-c", "2xl3", "-s", "scatter", "--mem", "preferred:hbm"],
        &["plan", "--json", "--machine", far, "-c", "12", "-s", "stride:l3", "--or-fewer", "--smt", "all"],
        &["plan", "--json", "--machine", far, "--cpus", "0-3", "--kind", "any"],
        &["plan", "--json", "--machine", far, "--nest", "3,scatter,9,subcompact,4"],
        &["plan", "--json", "--machine", far, "--nest", "1,scatter,4,subscatter"],
        &["plan", "--json", "--machine", "core:1", "--nest", "2"],
        &["topo", "--json"],
        &["topo", "--json", "--machine", far],
        &["ps", "--json"],
        &["doctor", "--json"],
        &["tune-team", "--list", "--json", "--ranks", "2"],
        &["tune-team", "--check", "--json", "--ranks", "2", "--ops", "barrier,bcast", "--bytes", "65536"],
        &["run", "-c", "1", "--share", env!("CARGO_BIN_EXE_trimtab"), "ps", "--json"],
    ];
    for arguments in commands {
        let mut found = BTreeSet::new();
        words(&trimtab(arguments), &mut found);
        let missing: Vec<_> = found.iter().filter(|word| !described.contains(word.as_str())).collect();
        assert!(
            missing.is_empty(),
            "{arguments:?} prints {missing:?}, which docs/json-*.md does not describe"
        );
    }
}

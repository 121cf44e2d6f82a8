//! The schemas in docs/json.md: whatever a command prints is described there.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

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

/// Every name of a field and every word that stands for a variant.
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

#[test]
fn every_field_that_is_printed_is_documented() {
    let text = include_str!("../../../docs/json.md");
    let described: BTreeSet<&str> =
        text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_-".contains(letter))).collect();
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
        &["run", "-c", "1", "--share", env!("CARGO_BIN_EXE_trimtab"), "ps", "--json"],
    ];
    for arguments in commands {
        let mut found = BTreeSet::new();
        words(&trimtab(arguments), &mut found);
        let missing: Vec<_> = found.iter().filter(|word| !described.contains(word.as_str())).collect();
        assert!(missing.is_empty(), "{arguments:?} prints {missing:?}, which docs/json.md does not describe");
    }
}

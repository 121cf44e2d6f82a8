//! `trimtab field` on a machine with several nodes, with a script in place of the benchmark
//! program: times on emulated nodes mean nothing, but all parts that need two nodes must run.

use crate::shape::Shape;
use crate::util::{Sandbox, eventually, text};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// A script with the interface of `uncore_lists`, which logs its arguments.
const FAKE: &str = r#"#!/bin/sh
echo "$*" >>log
echo "threads $$"
read -r line || exit 3
echo '{"kernel":"uncore_lists","steps":1000,"adds":0,"seconds":1e-3,"cpu_seconds":1e-3,"turn_cpu_ns":80,"verified":true}'
read -r line
exit 0
"#;

fn text_if_there(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[test]
fn a_machine_with_nodes_is_measured_between_them_and_with_brm() {
    let shape = given!(Shape::here());
    let sandbox = Sandbox::new();
    sandbox.script("programs/uncore_lists", FAKE);
    let file = sandbox.path("field.json");
    let call = sandbox.lab("field --minutes 1 --only nodes --programs").arg(sandbox.path("programs"));
    let running = call.arg("--output").arg(&file).begins();
    // A program of the second round runs: the first round is recorded, and no more is needed.
    let nodes = shape.homes().len();
    // Latency and bandwidth of each pair; one program and two, in three variants.
    let programs = 2 * nodes * nodes + 3 * (1 + 2);
    let started = || text_if_there(&sandbox.path("log")).lines().count();
    eventually("a round is over", || started() > programs);
    running.signal(Signal::INT);
    let outcome = running.ends();
    assert_eq!(outcome.code, Some(130), "{outcome}");
    let record: Value = serde_json::from_str(&text(&file)).unwrap();
    let part = &record["parts"][0];
    assert_eq!(part["end"], "stopped", "{part}");
    assert!(!part["why"].to_string().contains("two nodes"), "{part}");
    let lines = part["lines"].as_array().unwrap();
    let runs: BTreeSet<(String, String)> = lines
        .iter()
        .filter(|line| line["record"] == "run" && line["error"].is_null())
        .map(|line| {
            let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            (word("case"), word("way"))
        })
        .collect();
    let [first, second] = [0, 1].map(|at| shape.homes()[at]);
    for (memory, cpus) in [(first, first), (first, second)] {
        for kind in ["latency", "bandwidth"] {
            let case = format!("{kind}/memory-{memory}-cpus-{cpus}");
            assert!(runs.contains(&(case.clone(), "bound".to_owned())), "{case}: {runs:?}");
        }
    }
    for case in ["placed/far", "placed/crossed"] {
        for way in ["linux", "brm", "brm-memory"] {
            assert!(runs.contains(&(case.to_owned(), way.to_owned())), "{case} {way}: {runs:?} {outcome}");
        }
    }
    // Far memory is written on a CPU of one node, and read on CPUs of another.
    let far = text(&sandbox.path("log"));
    let far = far.lines().filter(|line| line.contains("--cpus ")).any(|line| {
        let word = |name: &str| -> u32 {
            let words: Vec<&str> = line.split(' ').collect();
            let at = words.iter().position(|word| *word == name).unwrap();
            words[at + 1].split(',').next().unwrap().parse().unwrap()
        };
        shape.node_of(word("--home")) != shape.node_of(word("--cpus"))
    });
    assert!(far, "no run had far memory");
    let machine = &record["machine"]["topology"];
    assert!(machine["nodes"].as_array().is_some_and(|nodes| nodes.len() >= 2), "{machine}");
}

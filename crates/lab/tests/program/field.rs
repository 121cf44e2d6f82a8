//! `trimtab field`, with scripts in place of the benchmark programs: the file, and everything that
//! it must not contain.

use crate::util::{Call, Outcome, Sandbox, eventually, need, text, two};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A script with the interface of `uncore_lists`. An access takes 80 ns.
const FAKE: &str = r#"#!/bin/sh
threads=1 repeats=1 last=
for word; do
    case $last in --threads) threads=$word ;; --repeats) repeats=$word ;; esac
    last=$word
done
case " $* " in *" --share "*) [ -e "${0%/*}/hang" ] && { touch "${0%/*}/hangs"; exec sleep 60; } ;; esac
echo "threads $$"
case " $* " in *" --wait "*) ;; *) exec sleep 60 ;; esac
window=0
while [ $window -lt $repeats ]; do
    read -r line || exit 3
    window=$((window + 1))
    echo "{\"kernel\":\"uncore_lists\",\"steps\":500,\"adds\":500,\"seconds\":40e-6,\"cpu_seconds\":${threads}e-6,\"turn_cpu_ns\":80,\"verified\":true}"
done
read -r line
exit 0
"#;

/// A user that does not exist here, with a name in every place from which it could leak.
const USER: &str = "zzsecretuser";

fn field<'s>(sandbox: &'s Sandbox, options: &str, file: &Path) -> Call<'s> {
    sandbox.script(&format!("{USER}/programs/uncore_lists"), FAKE);
    let folder = sandbox.path(&format!("{USER}/programs"));
    let call = sandbox.lab(&format!("field {options} --programs")).arg(folder).arg("--output").arg(file);
    let home = sandbox.path(USER);
    call.env("USER", USER).env("LOGNAME", USER).env("HOME", home)
}

fn said(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

fn record(file: &Path) -> Value {
    serde_json::from_str(&text(file)).unwrap()
}

fn part<'a>(record: &'a Value, name: &str) -> &'a Value {
    let parts = record["parts"].as_array().unwrap();
    parts.iter().find(|part| part["part"] == name).unwrap_or_else(|| panic!("no {name}: {record}"))
}

/// Returns everything about this machine and its processes that could identify it.
fn private() -> BTreeSet<String> {
    let mut all = BTreeSet::from([USER.to_owned()]);
    let mut add = |text: String| {
        let text = text.trim().to_owned();
        // Short names, such as that of a host called vm, are in words by chance.
        if text.len() >= 6 && text != "00:00:00:00:00:00" {
            all.insert(text);
        }
    };
    add(rustix::system::uname().nodename().to_string_lossy().into_owned());
    for file in ["/etc/machine-id", "/etc/hostname", "/proc/sys/kernel/random/boot_id"] {
        add(fs::read_to_string(file).unwrap_or_default());
    }
    for folder in ["/sys/class/net", "/sys/class/dmi/id"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let file = if folder.ends_with("net") { entry.path().join("address") } else { entry.path() };
            if folder.ends_with("net") || name.ends_with("serial") || name.ends_with("uuid") {
                add(fs::read_to_string(file).unwrap_or_default());
            }
        }
    }
    // Addresses of this machine, as the kernel lists them.
    for line in fs::read_to_string("/proc/net/fib_trie").unwrap_or_default().lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ").filter(|address| !address.ends_with(".0")) {
            add(address.to_owned());
        }
    }
    all
}

#[test]
fn the_file_has_all_parts_and_nothing_private() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let file = sandbox.path(&format!("{USER}/out.json"));
    // Other programs' command lines must not be in it.
    let other = sandbox.shell(&format!("exec sleep 61 # {USER}")).begins();
    let call = field(&sandbox, "--quick", &file);
    let list = format!("{},{}", cpus[0], cpus[1]);
    let outcome = call.through(["taskset", "-c", &list]).ends();
    drop(other);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_eq!(said(&outcome).lines().last(), file.to_str(), "its name is the last line");
    let record = record(&file);
    assert_eq!(
        (record["schema"].as_str(), record["complete"].as_bool()),
        (Some("trimtab.field/1"), Some(true))
    );
    let names: Vec<&str> =
        record["parts"].as_array().unwrap().iter().filter_map(|part| part["part"].as_str()).collect();
    assert_eq!(names, ["nodes", "index", "nested", "balance"]);
    for name in ["nodes", "index"] {
        let part = part(&record, name);
        let results = part["lines"].as_array().unwrap().iter().filter(|line| line["record"] == "result");
        // A slow machine may not make all rounds within the time.
        assert!(part["end"] == "done" || part["end"] == "time-over", "{part}");
        assert!(results.count() > 0, "{part}");
    }
    let latency = part(&record, "nodes")["lines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["record"] == "result" && line["kind"] == "latency");
    let samples = latency.unwrap()["samples"].as_array().unwrap();
    assert!(!samples.is_empty() && samples.iter().all(|sample| sample == 80.0), "raw samples: {samples:?}");
    // Programs that are missing are said, without the folder where they were searched.
    for name in ["nested", "balance"] {
        let part = part(&record, name);
        let why = part["why"].to_string();
        assert!(part["end"] == "failed" && why.contains("make -C bench") && why.contains("[path]"), "{part}");
    }
    for field in ["numa_balancing", "transparent_hugepage", "cpufreq.governor", "kernel"] {
        assert!(record["machine"]["settings"].as_object().unwrap().contains_key(field), "{field}");
    }
    assert!(record["machine"]["counters"]["rung"].is_string() && record["machine"]["topology"].is_object());

    let all = text(&file);
    for secret in private() {
        assert!(!all.contains(&secret), "the file has {secret}");
    }
    for word in
        ["/home", "/root", "/tmp", "sleep 61", "\"command\"", "\"stderr\"", "\"programs\"", "\"tid\"", "eth0"]
    {
        assert!(!all.contains(word), "the file has {word}");
    }
    let addresses =
        regex::Regex::new(r"(?i)\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b|\b\d+\.\d+\.\d+\.\d+\b").unwrap();
    assert!(!addresses.is_match(&all), "{:?}", addresses.find(&all));
}

#[test]
fn one_node_says_what_needs_two() {
    let nodes = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let nodes = nodes.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .strip_prefix("node")
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
    });
    need!((nodes.count() < 2).then_some(()), "this machine has several nodes");
    let sandbox = Sandbox::new();
    let file = sandbox.path("out.json");
    let outcome = field(&sandbox, "--quick --only nodes", &file).ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(part(&record(&file), "nodes")["why"].to_string().contains("need two nodes"), "{outcome}");
    assert!(
        said(&outcome).contains("need two nodes") && outcome.stderr.contains("need two nodes"),
        "{outcome}"
    );
}

#[test]
fn an_interrupted_measurement_keeps_its_results() {
    // On one core nothing is measured for the index, and no program hangs.
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let file = sandbox.path("out.json");
    // The program of the second part hangs.
    sandbox.write(&format!("{USER}/programs/hang"), "");
    let running = field(&sandbox, "--quick --only nodes --only index", &file).begins();
    eventually("a program runs", || sandbox.path(&format!("{USER}/programs/hangs")).exists());
    running.signal(Signal::INT);
    let outcome = running.ends();
    assert_eq!(outcome.code, Some(130), "{outcome}");
    let record = record(&file);
    assert_eq!(record["complete"], false);
    assert_eq!(part(&record, "nodes")["end"], "done");
    assert_eq!(part(&record, "index")["end"], "stopped");
    assert_eq!(said(&outcome).lines().last(), file.to_str());
}

#[test]
fn a_file_of_something_else_is_not_replaced() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("thesis.txt", "words");
    field(&sandbox, "--quick --only nodes", &file).ends().fails(2, &["is not a file of trimtab field"]);
    assert_eq!(text(&file), "words");
}

#[test]
fn report_shows_the_file_plain_and_compressed() {
    let sandbox = Sandbox::new();
    for name in ["plain.json", "packed.json.gz"] {
        let file = sandbox.path(name);
        // The second run replaces the file of the first.
        for _ in 0..2 {
            field(&sandbox, "--quick --only nodes", &file).ends().out();
        }
        let page = sandbox.path(&format!("{name}.html"));
        let said = sandbox.lab("report").arg(&file).arg("-o").arg(&page).ends().ok();
        assert!(said.contains("latency/memory-0-cpus-0") && said.contains("80.0"), "{said}");
        let page = text(&page);
        assert!(page.starts_with("<!doctype html>") && page.contains("latency/memory-0-cpus-0"));
    }
}

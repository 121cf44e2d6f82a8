//! `trimtab doctor`.

use crate::util::{Sandbox, chmod};
use serde_json::Value;

fn findings(outcome: &crate::util::Outcome) -> Vec<Value> {
    let document: Value =
        serde_json::from_str(&outcome.out()).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    assert_eq!(document["schema"], "trimtab.doctor/1");
    document["findings"].as_array().unwrap().clone()
}

fn subject<'f>(findings: &'f [Value], name: &str) -> &'f Value {
    findings
        .iter()
        .find(|finding| finding["subject"] == name)
        .unwrap_or_else(|| panic!("{name}: {findings:?}"))
}

#[test]
fn the_status_says_whether_something_should_be_changed() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("doctor --json").ends();
    let findings = findings(&outcome);
    let faults = findings.iter().filter(|finding| finding["verdict"] == "fault").count();
    assert_eq!(outcome.code, Some(i32::from(faults > 0)), "{outcome}");
    for finding in &findings {
        assert!(finding["found"].as_str().is_some_and(|found| !found.is_empty()), "{finding}");
        assert_eq!(
            finding["verdict"] == "fault",
            finding["remedy"].is_string(),
            "a fault has a remedy: {finding}"
        );
    }
    for name in [
        "machine",
        "ledger",
        "preload library",
        "memory policy",
        "NUMA balancing",
        "huge pages",
        "reading threads",
        "site and rules files",
    ] {
        subject(&findings, name);
    }
}

#[test]
fn words_say_the_same() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("doctor").ends();
    assert!(outcome.stderr.is_empty() && matches!(outcome.code, Some(0 | 1)), "{outcome}");
    let text = outcome.out();
    for line in text.lines() {
        let starts = ["ok    ", "note  ", "FAULT ", "      remedy: "];
        assert!(starts.iter().any(|start| line.starts_with(start)), "{text}");
    }
    assert_eq!(text.contains("FAULT"), outcome.code == Some(1), "{text}");
}

#[test]
fn variables_that_fight_a_launcher_are_found() {
    let sandbox = Sandbox::new();
    for (name, value) in [
        ("GOMP_CPU_AFFINITY", "0"),
        ("KMP_AFFINITY", "compact"),
        ("OMP_PLACES", "cores"),
        ("OMP_PROC_BIND", "true"),
    ] {
        let outcome = sandbox.trimtab("doctor --json").env(name, value).ends();
        assert_eq!(outcome.code, Some(1), "{outcome}");
        let findings = findings(&outcome);
        let found = subject(&findings, "environment");
        assert!(found["found"].as_str().unwrap().contains(&format!("{name}={value}")), "{found}");
        assert!(found["remedy"].as_str().unwrap().contains(&format!("unset {name}")), "{found}");
    }
    // Variables that a run sets do not count.
    let outcome = sandbox.run("-c 1").sh("OMP_PLACES=x; \"$T\" doctor --json").ends();
    assert!(findings(&outcome).iter().all(|finding| finding["subject"] != "environment"), "{outcome}");
}

#[test]
fn a_private_ledger_in_a_container_is_found() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("doctor --json").env("container", "podman").ends();
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let findings = findings(&outcome);
    let found = subject(&findings, "ledger");
    assert!(found["found"].as_str().unwrap().contains("only in this container"), "{found}");
    assert!(found["remedy"].as_str().unwrap().contains("bind-mount"), "{found}");
}

#[test]
fn a_ledger_that_cannot_be_used_is_found() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("doctor --json").env("TRIMTAB_LEDGER", sandbox.path("missing")).ends();
    let findings = findings(&outcome);
    assert_eq!((outcome.code, &subject(&findings, "ledger")["verdict"]), (Some(1), &Value::from("fault")));
}

#[test]
fn a_bound_shell_is_noted() {
    let two = crate::util::two();
    let [a, b] = crate::util::need!(two, "two cores are needed");
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("doctor --json").through(["taskset", "-c", &a.to_string()]).ends();
    let findings = findings(&outcome);
    let found = subject(&findings, "limits");
    let words = found["found"].as_str().unwrap();
    assert!(words.contains("mask") && words.contains(&b.to_string()), "{found}");
}

#[test]
fn a_model_that_cannot_be_kept_is_found() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("file", "");
    chmod(&file, 0o444);
    let outcome = sandbox.trimtab("doctor --json").env("XDG_CACHE_HOME", &file).ends();
    let findings = findings(&outcome);
    let found = subject(&findings, "machine");
    assert_eq!(found["verdict"], "fault", "{found}");
    assert!(found["remedy"].as_str().unwrap().contains("XDG_CACHE_HOME"), "{found}");
}

#[test]
fn a_program_that_does_not_bear_a_change_is_tried_without_each() {
    crate::util::need!(crate::util::two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // It insists on its count, like programs that compare it with their options.
    let app = sandbox.script(
        "app",
        "#!/bin/sh\n[ \"$OMP_NUM_THREADS\" = 4 ] || { echo \"four threads, please\" >&2; exit 3; }\n",
    );
    let outcome = sandbox.trimtab("doctor --json").arg(&app).env("OMP_NUM_THREADS", "4").ends();
    let document: Value =
        serde_json::from_str(&outcome.out()).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    assert_eq!(
        (outcome.code, &document["schema"]),
        (Some(1), &"trimtab.doctor-program/1".into()),
        "{outcome}"
    );
    let status = |at: usize| document["variants"][at]["status"].as_u64();
    assert_eq!((status(0), status(1)), (Some(0), Some(3)), "{outcome}");
    assert_eq!(document["variants"][1]["last_error"], "four threads, please", "{outcome}");
    let remedy = document["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("trimtab run --fit keep -- "), "{outcome}");
    // The remedy works.
    let kept = sandbox.run("--fit keep").arg(&app).env("OMP_NUM_THREADS", "4").ends();
    assert_eq!(kept.code, Some(0), "{kept}");
    let words = sandbox.trimtab("doctor").arg(&app).env("OMP_NUM_THREADS", "1").ends();
    assert!(words.code == Some(0) && words.out().contains("3, also without trimtab"), "{words}");
    let late = sandbox.trimtab("doctor --timeout 100ms").args(["sleep", "5"]).ends();
    assert!(late.code == Some(0) && late.out().contains("exceeded the time limit"), "{late}");
}

//! `trimtab nproc`: bounds of the calling process, beside coreutils' nproc where that sees them.

use super::bounds::Group;
use crate::util::{Sandbox, built, installed, need, two};
use serde_json::Value;
use std::path::Path;

/// Returns the number of threads of a bound; `None` if it is not listed.
fn bound(document: &Value, kind: &str) -> Option<u64> {
    let bounds = document["bounds"].as_array().unwrap();
    bounds.iter().find(|bound| bound["kind"] == kind).map(|bound| bound["threads"].as_u64().unwrap())
}

fn read(text: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap();
    assert_eq!(document["schema"], "trimtab.nproc/1");
    document
}

#[test]
fn it_answers_as_coreutils_does_where_that_sees_the_bounds() {
    let nproc = need!(installed("nproc"), "coreutils' nproc is needed");
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (mask, options, counts) in [
        (None, "", None),
        (None, "--all", None),
        (None, "--ignore 1", None),
        (None, "--ignore 1000", None),
        (Some(a.to_string()), "", None),
        (Some(a.to_string()), "--all", None),
        (None, "", Some("1,4")),
        (None, "", Some("0")),
        (None, "", Some("none")),
    ] {
        let answer = |program: Option<&Path>| {
            let words = options.split_whitespace();
            let mut call = match program {
                Some(nproc) => sandbox.shell("exec \"$@\"").arg("sh").arg(nproc).args(words),
                None => sandbox.trimtab("nproc").args(words),
            };
            if let Some(mask) = &mask {
                call = call.through(["taskset", "-c", mask]);
            }
            let call = match counts {
                Some(counts) => call.env("OMP_NUM_THREADS", counts),
                None => call.without("OMP_NUM_THREADS").without("OMP_THREAD_LIMIT"),
            };
            call.ends().ok()
        };
        assert_eq!(answer(None), answer(Some(&nproc)), "{mask:?} {options} {counts:?}");
    }
}

#[test]
fn a_quota_that_the_mask_does_not_show_bounds_it() {
    need!(two(), "two cores are needed");
    let group = need!(Group::with_quota(50), "no quota can be set here");
    let sandbox = Sandbox::new();
    let found = read(&sandbox.trimtab("nproc --json").through(group.join()).ends().ok());
    assert_eq!((found["threads"].as_u64(), bound(&found, "quota")), (Some(1), Some(1)), "{found}");
    assert!(bound(&found, "mask").unwrap() >= 2, "{found}");
    let told = sandbox.trimtab("nproc --explain").through(group.join()).ends().ok();
    assert!(told.starts_with("1\n") && told.contains("gets the time of 0.5 CPUs"), "{told}");
}

#[test]
fn a_hold_bounds_a_process_that_widened_its_mask() {
    let [a, b] = need!(two(), "two cores are needed");
    need!(installed("taskset"), "taskset is needed");
    let sandbox = Sandbox::new();
    let script = format!("taskset -c {a},{b} $T nproc --json; $T nproc --json");
    let told = sandbox.run("-c 1 --pin mask").sh(&script).ends().ok();
    let mut documents = serde_json::Deserializer::from_str(&told).into_iter::<Value>().map(Result::unwrap);
    let (wide, own) = (documents.next().unwrap(), documents.next().unwrap());
    assert_eq!((bound(&wide, "mask"), bound(&wide, "hold")), (Some(2), Some(1)), "{wide}");
    assert_eq!(wide["threads"], 1, "{wide}");
    assert_eq!((bound(&own, "mask"), bound(&own, "hold")), (Some(1), Some(1)), "{own}");
    assert_eq!(bound(&read(&sandbox.trimtab("nproc --json").ends().ok()), "hold"), None);
}

#[test]
fn threads_of_other_processes_of_the_run_are_taken_from_its_budget() {
    need!(two(), "two cores are needed");
    let program = need!(built("gcc", "asks.c", &["-O2", "-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    let script = format!("{} \"$T nproc --json\"", program.display());
    let told = sandbox.run("-c 2 --fit budget").sh(&script).ends().ok();
    let mut documents = serde_json::Deserializer::from_str(&told).into_iter::<Value>().map(Result::unwrap);
    let (inside, after) = (documents.next().unwrap(), documents.next().unwrap());
    assert_eq!(bound(&inside, "budget"), Some(1), "a team of two computes: {inside}");
    assert_eq!(bound(&after, "budget"), Some(2), "the team has ended: {after}");
    assert_eq!(bound(&read(&sandbox.run("-c 2").sh("$T nproc --json").ends().ok()), "budget"), None);
}

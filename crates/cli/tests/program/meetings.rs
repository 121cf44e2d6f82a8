//! `trimtab run --report`: the count of synchronisations is in it, compared with programs that know
//! it; missing values are reported.

use crate::profile::agree;
use crate::util::{Sandbox, built, eventually, installed, need, text, two};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;

const OPTIONS: &str = "--quiet --share --report=r.json";

/// Returns the section of the report, and the output of the program.
fn meetings(sandbox: &Sandbox, options: &str, words: &[impl AsRef<OsStr>]) -> (Value, String) {
    let call = sandbox.run(options).args(words);
    // Open MPI does not run as root without both variables.
    let call = call.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let said = call.ends().ok();
    let report: Value = serde_json::from_str(&text(&sandbox.path("r.json"))).unwrap();
    assert_eq!(report["schema"], "trimtab.audit/1");
    (report["meetings"].clone(), said)
}

#[test]
fn a_report_contains_the_number_of_barriers_and_the_cost_of_counting() {
    for (compiler, flag, runtime) in
        [("gcc", "-fopenmp", "libgomp"), ("clang", "-fopenmp", "libomp"), ("gcc", "-pthread", "pthread")]
    {
        let program = need!(built(compiler, "meets.c", &[flag]), "{compiler} with {flag} is needed");
        let sandbox = Sandbox::new();
        let (met, said) = meetings(&sandbox, OPTIONS, &[program.to_str().unwrap(), "300", "200"]);
        agree(&met, &said, runtime);
        assert_eq!((&met["workers"], &met["unseen"]), (&2.into(), &serde_json::json!([])), "{met}");
        assert!(met["wait"].is_string() && met["record_ns"].as_f64().unwrap() > 0.0, "{met}");
        let between = |at: usize| met["waiting_between"][at].as_f64().unwrap();
        let waiting = met["waiting"].as_f64().unwrap();
        assert!(between(0) <= waiting && waiting <= between(1), "{met}");
    }
}

/// Regions that follow the last counted one, at most: `core::region_sampling` skips fewer than
/// twice 64.
const UNCOUNTED_MAX: u64 = 128;

#[test]
fn short_regions_are_sampled_and_their_number_is_still_that_of_all() {
    for (compiler, runtime) in [("gcc", "libgomp"), ("clang", "libomp")] {
        let program = need!(built(compiler, "regions.c", &["-O1", "-fopenmp"]), "{compiler} with OpenMP");
        let sandbox = Sandbox::new();
        let program = program.to_str().unwrap();
        let (met, _) = meetings(&sandbox, OPTIONS, &[program, "100000"]);
        let count = met["intervals"]["count"].as_u64().unwrap();
        assert!((100_000 - UNCOUNTED_MAX..=100_000).contains(&count), "{met}");
        assert_eq!(met["runtimes"], serde_json::json!([runtime]));
        let waiting = met["waiting"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&waiting), "{met}");
        // Few enough barriers inside that regions are skipped between them: such a barrier is lost
        // with its region, or, in a counted region, has its weight.
        let (met, said) = meetings(&sandbox, OPTIONS, &[program, "100000", "10000"]);
        assert_eq!(said.trim(), "100000 10");
        let count = met["intervals"]["count"].as_u64().unwrap();
        assert!((100_000 - UNCOUNTED_MAX..=100_000 + 10 * UNCOUNTED_MAX).contains(&count), "{met}");
        // So many that each region is counted.
        let (met, _) = meetings(&sandbox, OPTIONS, &[program, "20000", "100"]);
        assert_eq!(met["intervals"]["count"], 20_200, "{met}");
    }
}

#[test]
fn a_report_says_it_in_words_too() {
    let program = need!(built("gcc", "meets.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    let ended = sandbox.run("--quiet --share --report").arg(&program).args(["300", "200"]).ends();
    let lines: Vec<&str> = ended.stderr.lines().collect();
    for words in [
        "trimtab: 2 threads synchronised",
        "trimtab: threads synchronise every ",
        "trimtab: this is ",
        " of the parallel time is waiting at barriers (",
        "trimtab: counting took ",
    ] {
        assert_eq!(lines.iter().filter(|line| line.contains(words)).count(), 1, "{words}: {ended}");
    }
    assert!(
        ended.stderr.contains("(601 intervals by libgomp; ") && !ended.stderr.contains("not seen"),
        "{ended}"
    );
}

#[test]
fn missing_parts_of_a_report_are_said_once() {
    let sandbox = Sandbox::new();
    let unseen = |options: &str, words: &[&str], why: &str| {
        let (met, _) = meetings(&sandbox, options, words);
        for null in ["workers", "intervals", "waiting", "waiting_between"] {
            assert_eq!(met[null], Value::Null, "{null}: {met}");
        }
        let [one] = &met["unseen"].as_array().unwrap()[..] else { panic!("{met}") };
        assert!(one.as_str().unwrap().contains(why), "{met}");
        let ended = sandbox.run(&options.replace("=r.json", "")).args(words).ends();
        assert_eq!(ended.stderr.matches("not seen: ").count(), 1, "{ended}");
        assert!(!ended.stderr.contains("threads synchronise"), "{ended}");
    };
    unseen(OPTIONS, &["sh", "-c", "true"], "none through libgomp");
    unseen(&format!("{OPTIONS} --env keep"), &["sh", "-c", "true"], "--env");
    let program =
        need!(built("gcc", "meets.c", &["-pthread", "-static"]), "gcc and a static C library are needed");
    unseen(OPTIONS, &[program.to_str().unwrap(), "20", "100"], "statically linked");
}

#[test]
fn a_run_without_a_report_counts_nothing() {
    let sandbox = Sandbox::new();
    let script = "echo \"${TRIMTAB_MEETINGS-none}\"";
    for options in ["--share", "--share --balance=float", "--share --trace t"] {
        assert_eq!(sandbox.run(options).sh(script).ends().out(), "none", "{options}");
    }
    assert!(sandbox.run(OPTIONS).sh(script).ends().ok().starts_with("/proc/"));
}

#[test]
fn ranks_of_a_launcher_and_a_single_rank_are_distinguished() {
    let launcher = need!(installed("mpirun.mpich"), "mpirun.mpich is needed");
    let program = need!(built("mpicc.mpich", "meets.c", &["-DMEETS_MPI"]), "mpicc.mpich is needed");
    let sandbox = Sandbox::new();
    let (launcher, program) = (launcher.to_str().unwrap(), program.to_str().unwrap());
    let (met, said) = meetings(&sandbox, OPTIONS, &[launcher, "-n", "2", program, "60", "500"]);
    agree(&met, &said, "mpich");
    // Each rank is in its own run: the first counts for all, the other waits like it.
    let script =
        format!("exec \"$T\" run --survey none --quiet --share --report=r$PMI_RANK.json {program} 60 500");
    let said = sandbox
        .trimtab("")
        .copy(std::path::Path::new(launcher))
        .args(["-n", "2", "sh", "-c", &script])
        .ends()
        .ok();
    let of = |rank: &str| -> Value {
        let report: Value = serde_json::from_str(&text(&sandbox.path(rank))).unwrap();
        report["meetings"].clone()
    };
    agree(&of("r0.json"), &said, "mpich");
    let other = of("r1.json");
    assert_eq!(
        (&other["intervals"], &other["runtimes"]),
        (&Value::Null, &serde_json::json!(["mpich"])),
        "{other}"
    );
    assert!(other["waiting"].is_f64() && other["unseen"].to_string().contains("first rank"), "{other}");
}

#[test]
fn a_program_that_is_killed_or_has_nested_teams_is_reported_all_the_same() {
    let [a, b] = need!(two(), "two cores are needed");
    let program = need!(built("gcc", "meets.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(OPTIONS).arg(&program).args(["50", "100", "stay"]).begins();
    let said = run.line();
    run.signal(Signal::TERM);
    eventually("it ends", || !run.lives());
    let report: Value = serde_json::from_str(&text(&sandbox.path("r.json"))).unwrap();
    agree(&report["meetings"], &said, "libgomp");
    drop(run);
    // After the shim's own report of places.
    let zones = need!(built("gcc", "zones.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let options = format!("--quiet --share --cpus {a},{b} --nest 2,scatter,2,scatter --report=r.txt");
    sandbox.run(&options).arg(&zones).args(["50", "100"]).ends().ok();
    let said = text(&sandbox.path("r.txt"));
    assert!(said.contains("regions of GNU's runtime") && said.contains("by libgomp; "), "{said}");
    assert!(said.contains("4 threads synchronised"), "{said}");
}

#[test]
fn every_field_of_the_meetings_of_a_report_is_documented() {
    let sandbox = Sandbox::new();
    let (met, _) = meetings(&sandbox, OPTIONS, &["true"]);
    let all = include_str!("../../../../docs/json-observing.md");
    let section = all.split("## `trimtab.audit/1`").nth(1).unwrap().split("\n## ").next().unwrap();
    for name in met.as_object().unwrap().keys().chain([&"meetings".to_owned()]) {
        assert!(section.contains(&format!("`{name}`")), "{name}");
    }
}

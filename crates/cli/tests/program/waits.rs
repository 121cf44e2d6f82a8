//! Wait policies of threads: the variables that runtimes get, and their effect.

use crate::util::{Call, Sandbox, built, need, two};
use std::collections::BTreeMap;
use std::path::PathBuf;

const NAMES: [&str; 9] = [
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "KMP_USE_YIELD",
    "KMP_LIBRARY",
    "OMPI_MCA_mpi_yield_when_idle",
    "I_MPI_WAIT_MODE",
    "I_MPI_THREAD_YIELD",
    "UPCXX_OVERSUBSCRIBED",
];

/// Returns the values of the variables that a program finds.
fn inside(call: Call<'_>) -> BTreeMap<String, String> {
    let said = call.args(["env", "-0"]).ends().ok();
    let pairs = said.split('\0').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.trim_start().to_owned(), value.to_owned()));
    pairs.filter(|(name, _)| NAMES.contains(&name.as_str())).collect()
}

fn openmp(compiler: &str) -> Option<PathBuf> {
    built(compiler, "openmp.c", &["-O1", "-fopenmp"])
}

#[test]
fn threads_with_cpus_of_their_own_wait_as_their_runtime_does() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for options in ["-c 2", "-c 1", "-c 2 --wait-policy auto", "-c 2 --wait-policy keep"] {
        assert_eq!(inside(sandbox.run(options)), BTreeMap::new(), "{options}");
    }
    assert_eq!(
        inside(sandbox.run("-c 2 --fit keep --wait-policy keep").env("OMP_NUM_THREADS", "9")),
        BTreeMap::new()
    );
    let said = sandbox.run("-c 2 --env print").arg("true").ends().ok();
    let why = "not set: threads wait as their runtimes do: every thread has a CPU";
    assert_eq!(said.matches(why).count(), 8, "{said}");
    assert!(sandbox.run("-c 2 -v").arg("true").ends().stderr.contains("every thread has a CPU"));
}

#[test]
fn more_threads_than_cpus_spin_for_a_moment_and_sleep() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for count in ["3", "2,2"] {
        let found = inside(sandbox.run("-c 2 --fit keep").env("OMP_NUM_THREADS", count));
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let all = [
            ("GOMP_SPINCOUNT", "100"),
            ("I_MPI_THREAD_YIELD", found.iter().find(|(name, _)| *name == "I_MPI_THREAD_YIELD").unwrap().1),
            ("I_MPI_WAIT_MODE", "1"),
            ("KMP_BLOCKTIME", "0"),
            ("KMP_USE_YIELD", "1"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ("UPCXX_OVERSUBSCRIBED", "yes"),
        ];
        assert_eq!(found, all, "{count}");
    }
    let said = sandbox.run("-c 2 -v --fit keep").arg("true").env("OMP_NUM_THREADS", "3").ends();
    assert!(said.stderr.contains("spin for a moment and then sleep: 3 threads on 2 CPUs"), "{said}");
}

#[test]
fn yielding_is_measured_only_where_something_hangs_on_it() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let said = |options: &str, variables: &[(&str, &str)]| {
        let call = sandbox.run(&format!("-c 2 -v {options}")).arg("true");
        let outcome = variables.iter().fold(call, |call, (name, value)| call.env(name, value)).ends();
        assert_eq!(outcome.code, Some(0), "{outcome}");
        outcome.stderr.contains("sched_yield")
    };
    assert!(said("--wait-policy yield", &[]));
    // Ranks that share cores cannot sleep.
    let ranks = [("OMPI_COMM_WORLD_LOCAL_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "3")];
    assert!(said("", &ranks) && !said("--wait-policy sleep", &ranks));
    assert!(!said("", &[]) && !said("", &[("OMP_NUM_THREADS", "3")]));
}

#[test]
fn other_programs_on_the_same_cores_change_nothing() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 2");
    let call = sandbox.run("-c 2 --share -v").sh("echo ${GOMP_SPINCOUNT-none}").ends();
    assert_eq!(call.out(), "none", "{call}");
    assert!(call.stderr.contains("every thread has a CPU, though other programs use CPUs "), "{call}");
}

#[test]
fn llvms_runtime_is_not_put_to_sleep_where_regions_may_be_cancelled() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for options in ["-c 2 --fit keep", "-c 2 --fit keep --wait-policy sleep"] {
        let call = sandbox.run(options).env("OMP_NUM_THREADS", "3").env("OMP_CANCELLATION", "true");
        let found = inside(call);
        assert!(!found.contains_key("KMP_BLOCKTIME") && !found.contains_key("OMP_WAIT_POLICY"), "{found:?}");
        assert!(found.contains_key("GOMP_SPINCOUNT"), "{found:?}");
    }
}

#[test]
fn runtimes_follow_the_wait_policy() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let run = |program: &PathBuf, policy: &str, threads: &str| {
        let call = sandbox.run(&format!("-c 2 --fit keep --wait-policy {policy}")).arg(program);
        let call = call.env("OMP_DISPLAY_ENV", "verbose").env("KMP_SETTINGS", "1");
        let outcome = call.env("OMP_NUM_THREADS", threads).ends();
        assert_eq!(outcome.code, Some(0), "{outcome}");
        // The settings in force: LLVM prints the user's first.
        let all = format!("{}{}", outcome.out(), outcome.stderr);
        all.split("Effective settings").last().unwrap().replace([' ', '\''], "")
    };
    if let Some(program) = openmp("gcc") {
        for (policy, threads, takes) in [
            ("auto", "2", ["GOMP_SPINCOUNT=300000", "OMP_WAIT_POLICY=PASSIVE"]),
            ("auto", "3", ["GOMP_SPINCOUNT=100", "OMP_WAIT_POLICY=PASSIVE"]),
            ("keep", "3", ["GOMP_SPINCOUNT=300000", "OMP_WAIT_POLICY=PASSIVE"]),
            ("yield", "2", ["GOMP_SPINCOUNT=100", "OMP_WAIT_POLICY=PASSIVE"]),
            ("sleep", "2", ["GOMP_SPINCOUNT=0", "OMP_WAIT_POLICY=PASSIVE"]),
            ("spin", "2", ["GOMP_SPINCOUNT=30000000000", "OMP_WAIT_POLICY=ACTIVE"]),
        ] {
            let said = run(&program, policy, threads);
            assert!(takes.iter().all(|line| said.contains(&format!("{line}\n"))), "{policy}: {said}");
        }
    } else {
        crate::util::skip("no gcc with OpenMP");
    }
    if let Some(program) = openmp("clang") {
        for (policy, threads, takes) in [
            ("auto", "2", ["KMP_BLOCKTIME=200", "KMP_USE_YIELD=1", "KMP_LIBRARY=throughput"]),
            ("auto", "3", ["KMP_BLOCKTIME=0", "KMP_USE_YIELD=1", "KMP_LIBRARY=throughput"]),
            ("yield", "2", ["KMP_BLOCKTIME=2147483647", "KMP_USE_YIELD=1", "KMP_LIBRARY=throughput"]),
            ("sleep", "2", ["KMP_BLOCKTIME=0", "KMP_USE_YIELD=1", "KMP_LIBRARY=throughput"]),
            ("spin", "2", ["KMP_BLOCKTIME=2147483647", "KMP_USE_YIELD=2", "KMP_LIBRARY=turnaround"]),
        ] {
            let said = run(&program, policy, threads);
            assert!(takes.iter().all(|line| said.contains(&format!("{line}\n"))), "{policy}: {said}");
        }
    } else {
        crate::util::skip("no clang with OpenMP");
    }
}

#[test]
fn a_variable_set_by_the_user_stays_and_decides_for_its_family() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let full = |name: &str, value: &str| {
        inside(sandbox.run("-c 2 --fit keep").env("OMP_NUM_THREADS", "3").env(name, value))
    };
    for name in &NAMES[..5] {
        let found = full(name, "mine");
        let openmp: Vec<_> = NAMES[..5].iter().filter(|name| found.contains_key(**name)).collect();
        assert_eq!((openmp, found[*name].as_str()), (vec![name], "mine"), "{found:?}");
        assert_eq!(found["UPCXX_OVERSUBSCRIBED"], "yes", "another family");
    }
    let found = full("OMPI_MCA_mpi_yield_when_idle", "0");
    assert_eq!((&*found["OMPI_MCA_mpi_yield_when_idle"], &*found["GOMP_SPINCOUNT"]), ("0", "100"));
    let call = sandbox
        .run("-c 2 -v --fit keep")
        .arg("true")
        .env("OMP_NUM_THREADS", "3")
        .env("GOMP_SPINCOUNT", "5")
        .ends();
    let left = "    you set GOMP_SPINCOUNT=5: how OpenMP threads wait is left to you";
    assert!(call.stderr.contains(left), "{call}");
    let keep = sandbox.run("-c 2 -v --env keep").arg("true").env("OMP_NUM_THREADS", "3").ends();
    assert!(!keep.stderr.contains("waiting threads"), "nothing is set: {keep}");
    let print = sandbox.run("-c 2 --env print --wait-policy sleep").arg("true");
    let said = print.env("GOMP_SPINCOUNT", "5").ends().ok();
    assert!(said.contains("unchanged, set by you: 5"), "{said}");
    let left = "not set: you set GOMP_SPINCOUNT=5: how OpenMP threads wait is left to you";
    assert_eq!(said.matches(left).count(), 3, "{said}");
}

#[test]
fn a_run_inside_decides_for_its_own_cores() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // The outer program has too many threads, the inner one has not: variables for the outer one
    // are removed again.
    let inner = "OMP_NUM_THREADS=1 \"$T\" run --survey none -c 1 -- sh -c 'echo ${GOMP_SPINCOUNT-none}'";
    let call = sandbox.run("-c 2 --fit keep").sh(&format!("echo $GOMP_SPINCOUNT; {inner}"));
    assert_eq!(call.env("OMP_NUM_THREADS", "3").ends().ok(), "100\nnone");
}

#[test]
fn an_unknown_policy_is_refused_with_the_known_ones() {
    let sandbox = Sandbox::new();
    let refused = sandbox.run("--wait-policy lazy").arg("true").ends();
    assert!(
        refused.code != Some(0) && refused.stderr.contains("auto, spin, yield, sleep or keep"),
        "{refused}"
    );
}

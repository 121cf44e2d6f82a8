//! `trimtab bench misses`, with scripts in place of perf, valgrind and the kernels, and once with
//! valgrind and a real kernel.

use crate::util::{Call, Sandbox, installed, need, text, two};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A kernel's report; it takes no time.
const KERNEL: &str = r#"#!/bin/sh
[ -e broken ] && exit 1
echo "{\"kernel\":\"${0##*/}\",\"threads\":$OMP_NUM_THREADS,\"seconds\":1.0,\"verified\":true}"
echo "${0##*/} $* threads=$OMP_NUM_THREADS waits=$OMP_WAIT_POLICY schedule=${OMP_SCHEDULE-none}" >>log
"#;

/// `perf stat`: a million instructions, and 1,000 misses for each thread. With the file `uncounted`
/// it counts nothing, as in most virtual machines.
const PERF: &str = r#"#!/bin/sh
shift 4
out=/dev/stderr
[ "$1" = -o ] && { out=$2; shift 2; }
shift
"$@" || exit
misses=$((${OMP_NUM_THREADS:-0} * 1000)) instructions=1000000
[ -e uncounted ] && misses='<not supported>' instructions='<not supported>'
printf '%s,,instructions:u,1,100.00,,\n%s,,cache-misses:u,1,100.00,,\n' "$instructions" "$misses" >"$out"
"#;

/// Valgrind: 500,000 instructions and 250 misses of the last cache.
const VALGRIND: &str = r#"#!/bin/sh
[ "$1" = --version ] && exit
while :; do case $1 in --cachegrind-out-file=*) out=${1#*=};; --*) ;; *) break;; esac; echo "$1" >>options; shift; done
"$@" || exit
printf 'events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nsummary: 500000 9 50 9 9 100 9 9 100\n' >"$out"
"#;

/// Runs the benchmark on two cores, with these programs in the search path and no others of these
/// names.
fn misses<'s>(sandbox: &'s Sandbox, cpus: [u32; 2], programs: &[(&str, &str)], options: &str) -> Call<'s> {
    let mut folders = vec![sandbox.path("bin")];
    std::fs::create_dir_all(&folders[0]).unwrap();
    for (name, script) in programs {
        sandbox.script(&format!("bin/{name}"), script);
    }
    for name in ["cg", "ep"] {
        sandbox.script(&format!("programs/{name}"), KERNEL);
    }
    // Basic programs alone: this machine may have perf and valgrind.
    for name in ["sh", "true", "taskset"] {
        let _ = std::os::unix::fs::symlink(installed(name).unwrap(), folders[0].join(name));
    }
    let path = std::env::join_paths(folders.drain(..)).unwrap();
    let call =
        sandbox.lab(&format!("bench misses {options} --kernels cg,ep --programs programs")).env("PATH", path);
    call.through(["taskset", "-c", &format!("{},{}", cpus[0], cpus[1])])
}

fn lines(sandbox: &Sandbox, record: &str) -> Vec<Value> {
    let file = text(&sandbox.path("record"));
    let all = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["record"] == record).collect()
}

/// Returns whether perf's `cache-misses` are those of the last-level cache.
fn is_intel() -> bool {
    text(Path::new("/proc/cpuinfo")).contains("GenuineIntel")
}

#[test]
fn hardware_counts_if_it_can_with_threads_on_all_cores() {
    let cpus = need!(two(), "two cores are needed");
    need!(
        is_intel().then_some(()),
        "hardware counts misses of the last-level cache by this name on Intel only"
    );
    let sandbox = Sandbox::new();
    let both = [("perf", PERF), ("valgrind", VALGRIND)];
    let page = misses(&sandbox, cpus, &both, "--per-core 1,4 --json record")
        .env("OMP_SCHEDULE", "guided")
        .ends()
        .out();
    assert!(page.contains("hardware counters, read by perf stat") && page.contains("1 PER CORE"), "{page}");
    let row = page.lines().find(|line| line.starts_with("cg.W")).unwrap_or_else(|| panic!("{page}"));
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["cg.W", "2.000", "8.000", "(4.00)"], "{page}");
    let log = text(&sandbox.path("log"));
    assert!(log.contains("ep W --json threads=8 waits=passive schedule=none"), "{log}");
    let results = lines(&sandbox, "result");
    assert_eq!(results.len(), 4);
    let described = include_str!("../../../../docs/json-studies.md");
    for key in
        lines(&sandbox, "run")[0].as_object().unwrap().keys().chain(results[0].as_object().unwrap().keys())
    {
        assert!(described.contains(&format!("`{key}`")), "{key} is not described");
    }
    assert_eq!(lines(&sandbox, "end")[0]["complete"], true);
}

#[test]
fn caches_are_simulated_where_hardware_counts_nothing_and_it_is_said() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("uncounted", "");
    let both = [("perf", PERF), ("valgrind", VALGRIND)];
    let page = misses(&sandbox, cpus, &both, "--per-core 2").ends().out();
    let why = match is_intel() {
        true => "hardware counts no instructions here (perf: <not supported>)",
        false => "those of the last-level cache on Intel only",
    };
    assert!(page.contains(why), "{page}");
    assert!(page.contains("simulated by valgrind's cachegrind") && page.contains("0.500"), "{page}");
    let log = text(&sandbox.path("log"));
    assert!(log.contains("cg S --json threads=2 "), "the threads of one simulated core: {log}");
    // A cache of another size is always a simulated one.
    std::fs::remove_file(sandbox.path("uncounted")).unwrap();
    misses(&sandbox, cpus, &both, "--per-core 1 --cache 2097152").ends().out();
    assert!(text(&sandbox.path("options")).contains("--LL=2097152,16,64"));
    let sandbox = Sandbox::new();
    let outcome = misses(&sandbox, cpus, &[], "").ends();
    let no_perf = if is_intel() { "perf cannot be started" } else { "on Intel only" };
    outcome.fails(2, &[no_perf, "valgrind cannot be started", "install valgrind"]);
    let forced = misses(&sandbox, cpus, &[("valgrind", VALGRIND)], "--by counters").ends();
    forced.fails(2, &[no_perf]);
    let simulated = misses(&sandbox, cpus, &both, "--by counters --cache 2097152").ends();
    simulated.fails(2, &["leave out --by counters"]);
}

#[test]
fn a_wrong_result_has_no_counts() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("broken", "");
    let outcome = misses(&sandbox, cpus, &[("valgrind", VALGRIND)], "--per-core 1 --json record").ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("its result is wrong"), "{outcome}");
    assert!(outcome.out().contains("nothing was measured"), "{outcome}");
    assert!(lines(&sandbox, "run").iter().all(|run| run["misses"].is_null() && !run["error"].is_null()));
}

#[test]
fn a_real_kernel_has_the_misses_that_valgrind_itself_reports() {
    need!(installed("valgrind"), "no valgrind");
    let make = need!(installed("make"), "no make");
    need!(installed("gcc"), "no gcc");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
    let sandbox = Sandbox::new();
    let build = sandbox.path("real");
    let mut making = Command::new(make);
    making.arg("-C").arg(source).args(["CC=gcc", &format!("BUILD={}", build.display())]);
    let built = making.arg(build.join("is")).output().unwrap();
    assert!(built.status.success(), "is cannot be built: {}", String::from_utf8_lossy(&built.stderr));
    let options = "bench misses --by cachegrind --kernels is --class S --per-core 1 --json record --programs";
    sandbox.lab(options).arg(&build).ends().out();
    let run = lines(&sandbox, "run").remove(0);
    let counted = |key: &str| run[key].as_u64().unwrap() as f64;
    // Valgrind's own summary, in words.
    let words = ["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"];
    let mut valgrind = Command::new("valgrind");
    valgrind.args(words).arg(build.join("is")).arg("S");
    let said = valgrind.env("OMP_NUM_THREADS", "1").env("OMP_WAIT_POLICY", "passive").output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let number = |name: &str| -> f64 {
        // How many blanks are between the words depends on the version.
        let words = |line: &&str| line.split_whitespace().collect::<Vec<_>>().join(" ").contains(name);
        let line = said.lines().find(words).unwrap_or_else(|| panic!("{name}: {said}"));
        let digits = line.split(':').nth(1).unwrap().split('(').next().unwrap();
        digits.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    // Addresses differ from run to run, and with them a few misses.
    assert!((counted("instructions") / number("I refs:") - 1.0).abs() < 0.01, "{run} {said}");
    assert!((counted("misses") / number("LL misses:") - 1.0).abs() < 0.1, "{run} {said}");
}

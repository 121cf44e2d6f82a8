//! `trimtab bench oversub`, with scripts in place of the programs, and once with a real one. Tests
//! of the programs: `make -C bench check`.

use crate::util::{Call, Sandbox, eventually, installed, need, text, two};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use trimtab_core::study::{self, Status};
use trimtab_front::chart::text::faults;

/// A script that reports as NAS kernels do, and logs in `log` how it was started. Two threads take
/// a second, and each further one half a second more, unless `trouble` overrides it.
const FAKE: &str = r#"#!/bin/sh
name=${0##*/}
while read -r key list; do case $key in Cpus_allowed_list:) mask=$list;; esac; done </proc/self/status
threads=$OMP_NUM_THREADS
echo "$name $* threads=$threads policy=${OMP_WAIT_POLICY-} places=${OMP_PLACES-} on=$mask" >>log
seconds=$((threads + 0)).0
case $threads in 2) seconds=1.0;; 4) seconds=2.0;; 8) seconds=4.0;; esac
[ -e trouble ] && . ./trouble
echo "{\"kernel\":\"$name\",\"threads\":$threads,\"seconds\":$seconds,\"verified\":true}"
"#;

/// Runs the benchmark on two cores, whatever the machine has, with programs of GCC only.
pub(crate) fn bench<'s>(sandbox: &'s Sandbox, cpus: [u32; 2], options: &str) -> Call<'s> {
    for name in ["cg", "ep"] {
        if !sandbox.path(&format!("programs/gcc/{name}")).exists() {
            sandbox.script(&format!("programs/gcc/{name}"), FAKE);
        }
    }
    let list = format!("{},{}", cpus[0], cpus[1]);
    let call = sandbox.lab(&format!("bench oversub {options} --programs")).arg(sandbox.path("programs/gcc"));
    call.through(["taskset", "-c", &list])
}

/// One program in four cells.
const FEW: &str =
    "--kernels cg --runtimes libgomp --pairs none --grips floating --waits keep,sleep --per-core 1,2";

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn of<'a>(lines: &'a [Value], record: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["record"] == record).collect()
}

/// Counts the runs of each cell in each round, without baselines.
fn runs(text: &str) -> BTreeMap<(u32, String), usize> {
    let mut runs = BTreeMap::new();
    for sample in study::read(text).unwrap().samples.iter().filter(|sample| sample.beside.is_some()) {
        *runs.entry((sample.round, sample.cell.to_string())).or_default() += 1;
    }
    runs
}

/// Visits all keys of a value, at any depth.
fn every_key(value: &Value, see: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            see(key);
            every_key(value, see);
        }),
        Value::Array(items) => items.iter().for_each(|item| every_key(item, see)),
        _ => {}
    }
}

#[test]
fn cases_are_listed_with_their_commands_and_what_is_left_out() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let said =
        bench(&sandbox, cpus, "--list --kernels cg,ep --pairs cg+ep --class S --runtimes libgomp,libomp")
            .ends()
            .ok();
    let line = |name: &str| {
        let found = said.lines().find(|line| line.starts_with(&format!("{name}: ")));
        found.unwrap_or_else(|| panic!("{name}: {said}")).to_owned()
    };
    assert!(
        line("cg.S/libgomp/8on2/floating/sleep").contains("OMP_NUM_THREADS=8 OMP_WAIT_POLICY=passive"),
        "{said}"
    );
    let places = format!("OMP_PLACES={{{}}},{{{}}} OMP_PROC_BIND=spread", cpus[0], cpus[1]);
    assert!(line("ep.S/libgomp/16on2/pinned/keep").contains(&places), "{said}");
    assert!(line("cg.S/libgomp/2on2/balanced/keep").contains("--balance=speed -- "), "{said}");
    let half = format!("--cpus {} -- ", cpus[1]);
    assert!(line("ep.S/libgomp/4on1/floating/keep/partitioned2+cg.S/libgomp/1").contains(&half), "{said}");
    assert!(
        said.contains("# cg, ep with libomp cannot run here: not in")
            && said.contains("make -C bench CC=clang"),
        "{said}"
    );
    assert!(said.contains("# libgomp with --waits yield: it cannot yield while waiting"), "{said}");
    assert!(!said.contains("pinned/sleep"), "ways to wait are varied with floating threads: {said}");
    let cross = bench(&sandbox, cpus, "--list --kernels cg --class S --runtimes libgomp --cross").ends().ok();
    assert!(cross.contains("cg.S/libgomp/8on2/pinned/sleep: "), "{cross}");
    assert!(!sandbox.path("log").exists(), "nothing was run");
}

#[test]
fn slowdowns_come_from_the_times_that_programs_report() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // With the sleep policy, each time is half a second longer.
    sandbox.write("trouble", "[ \"$OMP_WAIT_POLICY\" = passive ] && seconds=${seconds%.0}.5");
    let page = bench(&sandbox, cpus, &format!("{FEW} --rounds 5 --json record --svg picture")).ends().out();
    assert!(page.is_empty() || page.contains("OpenMP of GCC"), "{page}");
    let row = |wait: &str| {
        let row = page.lines().find(|line| line.contains(&format!("floating  {wait}")));
        row.unwrap_or_else(|| panic!("{page}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row("keep").ends_with("1.000 s floating keep 1.00 [1.00, 1.00] 2.00 [2.00, 2.00]"), "{page}");
    assert!(row("sleep").ends_with("floating sleep 1.50 [1.50, 1.50] 2.50 [2.50, 2.50]"), "{page}");
    // Each baseline serves at most two cases.
    let all = lines(&text(&sandbox.path("record")));
    let mut since = usize::MAX;
    for sample in of(&all, "sample") {
        since = if sample["beside"].is_null() { 0 } else { since.saturating_add(1) };
        assert!(since <= 2, "{sample}");
    }
    assert_eq!(of(&all, "start")[0]["bench"], "oversub");
    assert_eq!(of(&all, "cell").len(), 4);
    assert_eq!(of(&all, "end")[0]["complete"], true);
    let record = text(&sandbox.path("record"));
    assert_eq!(runs(&record).len(), 20);
    assert!(runs(&record).values().all(|times| *times == 1));
    let study = study::read(&record).unwrap();
    assert!(study.samples.iter().all(|sample| sample.status == Status::Done && sample.cell.cores == 2));
    let picture = text(&sandbox.path("picture"));
    assert!(picture.starts_with("<svg") && picture.contains("cg.W, 2 per core: 2.50"), "{picture}");
    assert_eq!(faults(&picture), Vec::<String>::new());
    // The record alone gives the same report.
    let again = sandbox.lab("bench oversub --from record").ends().ok();
    assert!(again.contains("2.50 [2.50, 2.50]"), "{again}");
}

#[test]
fn a_kill_loses_one_run_at_most_and_leaves_nothing_behind() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "[ $(grep -c . log) -ge 5 ] && { echo $$ >hanging; exec sleep 60; }");
    let running = bench(&sandbox, cpus, &format!("{FEW} --rounds 2 --json record")).begins();
    eventually("the fifth run", || {
        std::fs::read_to_string(sandbox.path("hanging")).is_ok_and(|pid| pid.ends_with('\n'))
    });
    let hanging = text(&sandbox.path("hanging"));
    // Taskset executes the program in its place, so this is trimtab's process id.
    running.signal(Signal::KILL);
    drop(running);
    let process = Path::new("/proc").join(hanging.trim());
    let lives = || std::fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z "));
    eventually("what was run ends with who ran it", || !lives());
    let before = study::read(&text(&sandbox.path("record"))).unwrap().samples.len();
    assert_eq!(before, 4);
    let mut file = std::fs::OpenOptions::new().append(true).open(sandbox.path("record")).unwrap();
    file.write_all(b"{\"schema\":\"trimtab.bench/1\",\"record\":\"sample\",\"prog").unwrap();
    drop(file);
    std::fs::remove_file(sandbox.path("trouble")).unwrap();
    bench(&sandbox, cpus, &format!("{FEW} --rounds 2 --json record --resume")).ends().out();
    let record = text(&sandbox.path("record"));
    assert_eq!(runs(&record).len(), 8, "{record}");
    assert!(runs(&record).values().all(|times| *times == 1), "{record}");
    // Nothing is left to run. A record with more rounds is continued; one with other options is
    // refused and left unchanged.
    let log = || text(&sandbox.path("log")).lines().count();
    let so_far = log();
    bench(&sandbox, cpus, &format!("{FEW} --rounds 2 --json record --resume")).ends().out();
    assert_eq!(log(), so_far);
    bench(&sandbox, cpus, &format!("{FEW} --rounds 3 --json record --resume")).ends().out();
    assert_eq!(runs(&text(&sandbox.path("record"))).len(), 12);
    let whole = text(&sandbox.path("record"));
    let refused = bench(&sandbox, cpus, &format!("{FEW} --limit 3 --json record --resume")).ends();
    refused.fails(2, &["cannot continue record", "its --limit was 10, now it is 3"]);
    assert_eq!(text(&sandbox.path("record")), whole);
}

#[test]
fn ctrl_c_ends_it_and_the_results_so_far_are_shown() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "[ $(grep -c . log) -ge 4 ] && exec sleep 60");
    let running = bench(&sandbox, cpus, &format!("{FEW} --json record")).begins();
    eventually("the fourth run", || {
        std::fs::read_to_string(sandbox.path("log")).is_ok_and(|log| log.lines().count() == 4)
    });
    running.signal(Signal::INT);
    let outcome = running.ends();
    assert_eq!(outcome.code, Some(130), "{outcome}");
    assert!(outcome.out().contains("Stopped early"), "{outcome}");
    let all = lines(&text(&sandbox.path("record")));
    assert_eq!((of(&all, "sample").len(), &of(&all, "end")[0]["complete"]), (3, &false.into()));
}

#[test]
fn a_run_that_takes_too_long_is_stopped_and_shown_as_a_lower_bound() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "[ $threads = 4 ] && exec sleep 60");
    let few =
        "--kernels cg --runtimes libgomp --pairs none --grips floating --waits keep --per-core 2 --rounds 1";
    let page = bench(&sandbox, cpus, &format!("{few} --json record")).ends().out();
    let row = page.lines().find(|line| line.starts_with("cg.W ")).unwrap_or_else(|| panic!("{page}"));
    assert!(row.split_whitespace().last().unwrap().starts_with('>'), "{page}");
    let samples = study::read(&text(&sandbox.path("record"))).unwrap().samples;
    let slow = samples.iter().find(|sample| sample.cell.per_core == 2).unwrap();
    assert_eq!((slow.status, slow.beside), (Status::Slower, Some(1.0)));
    assert!(slow.slowdown().unwrap() >= 10.0, "{slow:?}");
}

#[test]
fn pairs_share_all_cores_or_have_half_of_them_each() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // Alone a program takes a second; beside the other one 1.25 or 2.5, and on a core of its own 2.
    let trouble = "[ $threads = 1 ] && seconds=2.0; case $1 in S) [ $name = cg ] && [ $(grep -c . log) -gt 2 ] && [ $threads = 2 ] && seconds=1.25;; esac
[ $name = ep ] && [ $(grep -c . log) -gt 2 ] && [ $threads = 2 ] && seconds=2.5; sleep 0.3";
    sandbox.write("trouble", trouble);
    let options = "--kernels cg --per-core 1 --waits keep --grips floating --class S --runtimes libgomp --pairs cg+ep --mixes 1:1 --rounds 1";
    bench(&sandbox, cpus, &format!("{options} --json record")).ends().out();
    let record = text(&sandbox.path("record"));
    let all = lines(&record);
    let log = text(&sandbox.path("log"));
    for cpu in cpus {
        assert!(
            log.lines().any(|line| line.contains("threads=1") && line.ends_with(&format!("on={cpu}"))),
            "{log}"
        );
    }
    let described: Vec<&str> = include_str!("../../../../docs/json-studies.md")
        .split(|letter: char| !(letter.is_ascii_alphanumeric() || "_-".contains(letter)))
        .collect();
    for line in &all {
        every_key(line, &mut |key| {
            assert!(described.contains(&key), "{key} is not described in docs/json-studies.md: {line}")
        });
    }
    let pairs = of(&all, "pair");
    assert_eq!(pairs.len(), 2, "{record}");
    for pair in pairs {
        let (first, second) = (&pair["slowdowns"][0]["median"], &pair["slowdowns"][1]["median"]);
        let [first, second] = [first, second].map(|one| one.as_f64().unwrap());
        let throughput = pair["throughput"]["median"].as_f64().unwrap();
        assert!((throughput - 1.0 / first - 1.0 / second).abs() < 1e-9, "{pair}");
        let fairness = pair["fairness"]["median"].as_f64().unwrap();
        assert!((fairness - first.min(second) / first.max(second)).abs() < 1e-9, "{pair}");
    }
    assert_eq!(of(&all, "sharing").len(), 1);
}

#[test]
fn a_failing_case_is_reported_once_and_costs_only_itself() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "if [ \"$OMP_WAIT_POLICY\" = passive ]; then echo no sleeping >&2; exit 3; fi");
    let outcome = bench(&sandbox, cpus, &format!("{FEW} --rounds 4")).ends();
    let said = &outcome.stderr;
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert!(
        said.contains("cg.W/libgomp/4on2/floating/sleep: exit status: 3; it said: no sleeping"),
        "{said}"
    );
    assert!(said.contains("not everything could be measured"), "{said}");
    let page = outcome.out();
    assert!(page.contains("failed") && page.contains("2.00"), "{page}");
    // Two cells failed, and neither was tried in all four rounds.
    assert_eq!(text(&sandbox.path("log")).matches("policy=passive").count(), 4);
    // Without a baseline, no case is run.
    sandbox.write("trouble", "echo broken >&2; exit 9");
    std::fs::remove_file(sandbox.path("log")).unwrap();
    let outcome = bench(&sandbox, cpus, &format!("{FEW} --rounds 4")).ends();
    assert!(
        outcome.code == Some(2) && outcome.stderr.contains("its baseline: exit status: 9; it said: broken"),
        "{outcome}"
    );
    assert!(outcome.out().contains("nothing was measured"), "{outcome}");
    assert_eq!(text(&sandbox.path("log")).lines().count(), 2, "it was not tried for each cell");
}

#[test]
fn when_the_time_is_over_the_remaining_runs_are_counted_and_can_be_resumed() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "sleep 0.3");
    let page = bench(&sandbox, cpus, &format!("{FEW} --rounds 3 --minutes 0.01 --json record")).ends().out();
    assert!(page.contains("The time limit was reached: ") && page.contains("--resume"), "{page}");
    let known = runs(&text(&sandbox.path("record"))).len();
    assert!((1..12).contains(&known), "{known}");
    std::fs::remove_file(sandbox.path("trouble")).unwrap();
    bench(&sandbox, cpus, &format!("{FEW} --rounds 3 --json record --resume")).ends().out();
    assert_eq!(runs(&text(&sandbox.path("record"))).len(), 12);
}

#[test]
fn options_that_make_no_sense_are_refused_with_a_remedy() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (options, why) in [
        ("--kernels xx", "invalid value 'xx'"),
        ("--runtimes pthread", "unknown runtime \"pthread\" (known: libgomp, libomp"),
        ("--grips glued", "unknown grip \"glued\" (known: pinned, floating, balanced)"),
        ("--waits hop", "is not a way to wait"),
        ("--pairs cg", "is neither a pair such as cg+ep or \"./a 1 + ./b 2\", nor none"),
        ("--pairs cg+xx", "there is no program \"xx\""),
        ("--mixes 1:0", "is not a mix such as 1:4"),
        ("--per-core 0", "invalid value '0'"),
        ("--rounds 0", "invalid value '0'"),
        ("--limit 1", "is not a number from 1.5"),
        ("--minutes nan", "is not a number of minutes"),
        ("--class D", "invalid value 'D'"),
        ("--resume", "--json"),
        ("--from x --json y", "cannot be used with"),
        ("--kernels mg --pairs none --runtimes libgomp", "there is nothing to measure"),
        ("--json - --resume", "--resume needs a file"),
        ("--json none --resume", "cannot continue none"),
        ("--from none", "cannot show none"),
    ] {
        let outcome = bench(&sandbox, cpus, options).ends();
        assert!(outcome.code == Some(2) && outcome.stderr.contains(why), "{options}: {outcome}");
    }
    sandbox.write("other", "{\"schema\":\"other/1\"}\n");
    bench(&sandbox, cpus, "--json other --resume").ends().fails(2, &["line 1 is not of schema"]);
    assert_eq!(text(&sandbox.path("other")), "{\"schema\":\"other/1\"}\n");
    sandbox.lab("bench oversub --programs none").ends().fails(2, &["none is not a folder"]);
    assert!(!sandbox.path("log").exists(), "nothing was run");
}

#[test]
fn a_real_kernel_is_measured_from_end_to_end() {
    let cpus = need!(two(), "two cores are needed");
    let make = need!(installed("make"), "no make");
    need!(installed("gcc"), "no gcc");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
    let sandbox = Sandbox::new();
    let build = sandbox.path("real/gcc");
    let target = build.join("cg");
    let built = Command::new(make)
        .arg("-C")
        .arg(source)
        .args(["CC=gcc", &format!("BUILD={}", build.display())])
        .arg(&target)
        .output()
        .unwrap();
    need!(
        built.status.success().then_some(()),
        "cg cannot be built: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    let options = "--kernels cg --class S --runtimes libgomp --per-core 1,2 --waits keep --pairs none --rounds 1 --json record";
    let call = sandbox.lab(&format!("bench oversub {options} --programs")).arg(&build);
    call.through(["taskset", "-c", &format!("{},{}", cpus[0], cpus[1])]).ends().out();
    let study = study::read(&text(&sandbox.path("record"))).unwrap();
    // Two numbers of threads, each pinned, floating and balanced.
    let beside: Vec<_> = study.samples.iter().filter(|sample| sample.beside.is_some()).collect();
    assert_eq!(beside.len(), 6);
    for sample in beside {
        assert!(matches!(sample.status, Status::Done | Status::Slower), "{sample:?}");
        assert!(sample.slowdown().unwrap() > 0.0 && sample.interval.unwrap() > 0.0, "{sample:?}");
    }
}

//! `trimtab bench uncore`, with a script in place of the program. Tests of the program:
//! `make -C bench check`.

use crate::util::need;
use crate::util::{Call, Sandbox, eventually, text, two};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use trimtab_front::chart::text::faults;

/// A script with the interface of the program, which logs its arguments in `log`. An access takes
/// one nanosecond per thread.
const FAKE: &str = r#"#!/bin/sh
threads=1 repeats=1 last=
for word; do
    case $last in --threads) threads=$word ;; --repeats) repeats=$word ;; esac
    last=$word
done
echo "$$ $*" >>log
[ -e trouble ] && . ./trouble
echo "threads $$"
case " $* " in *" --wait "*) ;; *) exec sleep 60 ;; esac
window=0
while [ $window -lt $repeats ]; do
    read -r line || exit 3
    window=$((window + 1))
    echo '{"kernel":"uncore_lists","thread":0}'
    echo "{\"kernel\":\"uncore_lists\",\"steps\":500,\"adds\":500,\"cpu_seconds\":${threads}e-6,\"verified\":true}"
done
read -r line
exit 0
"#;

fn programs(sandbox: &Sandbox) -> PathBuf {
    sandbox.script("programs/uncore_lists", FAKE);
    sandbox.path("programs")
}

/// Runs the benchmark on two cores, whatever the machine has: all experiments except the one that
/// needs two nodes compare alone with beside others.
fn bench<'s>(sandbox: &'s Sandbox, cpus: [u32; 2], options: &str) -> Call<'s> {
    let folder = programs(sandbox);
    let list = format!("{},{}", cpus[0], cpus[1]);
    let call = sandbox.lab(&format!("bench uncore {options} --programs")).arg(folder);
    call.through(["taskset", "-c", &list])
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn of<'a>(lines: &'a [Value], record: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["record"] == record).collect()
}

const SOME: &str = "--quick --only sharing --only contention-sharing";

#[test]
fn cases_are_listed_with_what_is_left_out() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let said = bench(&sandbox, cpus, "--list --quick").ends().ok();
    assert!(said.contains("sharing/64B/") && said.contains("--private 33554432 --chains 4"), "{said}");
    for line in said.lines() {
        assert!(line.starts_with("# ") || line.contains(": uncore_lists --threads "), "{line}");
    }
    assert!(!sandbox.path("log").exists(), "nothing was run");
    let outcome = bench(&sandbox, cpus, "--only everything").ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("locality-contention"), "{outcome}");
}

#[test]
fn one_core_has_nothing_to_compare_with() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let call = bench(&sandbox, [cpus[0], cpus[0]], "--only contention");
    call.ends().fails(2, &["nothing to measure here", "contention: needs two cores"]);
}

#[test]
fn every_round_runs_every_way_once_in_an_order_of_its_own() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let rounds = |seed: u64| {
        let _ = std::fs::remove_file(sandbox.path("log"));
        bench(&sandbox, cpus, &format!("{SOME} --repeats 2 --seed {seed}")).ends().out();
        let log = text(&sandbox.path("log"));
        let runs: Vec<String> = log.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        runs.chunks(8).map(<[String]>::to_vec).collect::<Vec<_>>()
    };
    let first = rounds(1);
    assert_eq!(first.len(), 2, "{first:?}");
    let sorted = |round: &[String]| {
        let mut round = round.to_vec();
        round.sort();
        round
    };
    assert_eq!(sorted(&first[0]), sorted(&first[1]));
    assert!(first[0] != first[1], "{first:?}");
    assert_eq!(rounds(1), first, "the seed says the order");
    assert!(rounds(2) != first);
}

#[test]
fn times_are_compared_and_recorded() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let page =
        bench(&sandbox, cpus, &format!("{SOME} --repeats 3 --json record --svg chart.svg")).ends().out();
    let row = page.lines().find(|line| line.starts_with("sharing/64B")).unwrap_or_else(|| panic!("{page}"));
    let all = lines(&text(&sandbox.path("record")));
    let (start, end) = (of(&all, "start")[0], of(&all, "end")[0]);
    assert_eq!((start["bench"].as_str(), start["cases"].as_array().unwrap().len()), (Some("uncore"), 4));
    assert_eq!(
        (end["complete"].as_bool(), &end["runs"], &end["failed"]),
        (Some(true), &24.into(), &0.into())
    );
    assert_eq!(of(&all, "run").len(), 24);
    let results = of(&all, "result");
    let worth = of(&all, "worth");
    assert!(results.len() == 4 && worth.iter().any(|line| line["experiment"].is_null()), "{worth:?}");
    // If two threads work together, an access takes twice as long; if both variants have the same
    // number of threads, equally long.
    let threads: Vec<usize> = of(&all, "run")
        .iter()
        .filter(|line| line["case"] == "sharing/64B" && line["round"] == 1)
        .map(|line| line["setup"]["cpus"].as_array().unwrap().len())
        .collect();
    let expected = if threads[0] == threads[1] { 0.0 } else { 1.0 };
    assert_eq!(results[0]["time"]["relative"].as_f64(), Some(expected), "{row}");
    assert!(row.contains(if expected > 0.0 { "+100 %" } else { "+0 %" }), "{row}");
    let chart = text(&sandbox.path("chart.svg"));
    assert!(chart.starts_with("<svg") && chart.trim_end().ends_with("</svg>"));
    assert_eq!(faults(&chart), Vec::<String>::new());
    // The record gives the same report and the same chart.
    let again = sandbox.lab("bench uncore --from record --svg again.svg").ends().ok();
    assert_eq!(again.trim_end(), page.trim_end());
    assert_eq!(text(&sandbox.path("again.svg")), chart);
}

#[test]
fn a_competitor_ends_with_its_run() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let said = bench(&sandbox, cpus, "--list --quick --only locality-contention").ends().ok();
    if !said.contains("; beside ") {
        return crate::util::skip("the machine has two nodes: nothing competes");
    }
    bench(&sandbox, cpus, "--quick --only locality-contention --repeats 1").ends().out();
    let log = text(&sandbox.path("log"));
    let rivals: Vec<&str> = log.lines().filter(|line| !line.contains("--wait")).collect();
    assert_eq!(rivals.len(), 6, "{log}");
    for rival in rivals {
        assert!(rival.contains("--order sequential"), "{rival}");
        let pid = rival.split_once(' ').unwrap().0.to_owned();
        eventually("the competitor is gone", || !Path::new("/proc").join(&pid).exists());
    }
}

#[test]
fn a_failing_case_is_reported_once_and_costs_only_itself() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "case \"$*\" in *'--share 512 '*) echo no memory >&2; exit 3 ;; esac");
    let outcome = bench(&sandbox, cpus, SOME).ends();
    assert_eq!(outcome.code, Some(2), "{outcome}");
    let said = &outcome.stderr;
    assert_eq!(said.matches("it said: no memory").count(), 1, "{said}");
    assert!(said.contains("sharing/512B failed, see above"), "{said}");
    let page = outcome.out();
    assert!(page.contains("sharing/64B") && page.contains("2 runs failed"), "{page}");
    assert!(!page.contains("sharing/512B"), "{page}");
}

#[test]
fn impossible_output_of_the_program_is_rejected() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (trouble, why) in [
        ("exit 0", "it ended too early"),
        ("echo ready", "it does not name its threads"),
        ("echo threads", "it does not name its threads"),
        ("echo threads 1x", "it does not name its threads"),
        ("echo threads $$; read -r line; echo gibberish", "its report is not JSON"),
        ("echo threads $$; read -r line; echo '{\"verified\":false}'", "its result is wrong"),
        ("echo threads $$; read -r line; echo '{\"verified\":true}'; repeats=0", "its report lacks steps"),
    ] {
        // Only the first output is read.
        sandbox.write("trouble", format!("{trouble}; case $repeats in 0) ;; *) exit 0 ;; esac"));
        let outcome = bench(&sandbox, cpus, "--quick --only sharing --repeats 1").ends();
        assert!(outcome.code == Some(2) && outcome.stderr.contains(why), "{why}: {outcome}");
    }
}

#[test]
fn a_signal_ends_it_and_the_results_so_far_are_shown() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "[ $(grep -c . log) -ge 4 ] && exec sleep 60");
    let running = bench(&sandbox, cpus, &format!("{SOME} --json record")).begins();
    eventually("the fourth run", || {
        std::fs::read_to_string(sandbox.path("log")).is_ok_and(|log| log.lines().count() == 4)
    });
    running.signal(Signal::TERM);
    let outcome = running.ends();
    assert_eq!(outcome.code, Some(143), "{outcome}");
    assert!(outcome.out().contains("Stopped early"), "{outcome}");
    let all = lines(&text(&sandbox.path("record")));
    assert_eq!((of(&all, "run").len(), &of(&all, "end")[0]["complete"]), (3, &false.into()));
}

#[test]
fn unusable_options_are_refused_before_any_run() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    bench(&sandbox, cpus, &format!("{SOME} --json no/such")).ends().fails(2, &["cannot write no/such"]);
    bench(&sandbox, cpus, &format!("{SOME} --svg no/such")).ends().fails(2, &["cannot write no/such"]);
    bench(&sandbox, cpus, "--from no/such").ends().fails(2, &["cannot show no/such"]);
    sandbox.write("other", "{\"schema\":\"other/1\"}\n");
    bench(&sandbox, cpus, "--from other").ends().fails(2, &["cannot show other", "not of schema"]);
    std::fs::remove_file(sandbox.path("programs/uncore_lists")).unwrap();
    let call = sandbox.lab("bench uncore --programs programs").through([
        "taskset",
        "-c",
        &format!("{},{}", cpus[0], cpus[1]),
    ]);
    call.ends().fails(2, &["uncore_lists is not in", "make -C bench"]);
    assert!(!sandbox.path("log").exists(), "nothing was run");
}

/// Returns the row of an index in the validation table: name, correlation and rank of levels and of
/// changes, and signs.
fn row(page: &str, index: &str) -> Vec<String> {
    let mut rows = page.lines().skip_while(|line| !line.starts_with("INDEX"));
    let row = rows.find(|line| line.starts_with(index));
    row.unwrap_or_else(|| panic!("{page}")).split_whitespace().map(str::to_owned).collect()
}

fn changes(page: &str, index: &str) -> f64 {
    row(page, index)[3].parse().unwrap()
}

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the report of a stored record.
fn page_of(sandbox: &Sandbox, record: &str) -> String {
    let record = project("experiments/uncore/results").join(record);
    sandbox.lab("bench uncore --from").arg(record).ends().ok()
}

/// Counts from real hardware, of 86 cases: the validation of each index. The records are fixed, so
/// the results must not change either.
#[test]
fn recorded_counts_give_the_value_of_each_index() {
    let sandbox = Sandbox::new();
    for name in ["zen3-guest-1.jsonl", "zen3-guest-2.jsonl.gz"] {
        let page = page_of(&sandbox, name);
        let changes = |index: &str| changes(&page, index);
        let signs = |index: &str| {
            let (agree, of) =
                row(&page, index)[5].split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
            agree.parse::<f64>().unwrap() / of.parse::<f64>().unwrap()
        };
        // The penalty follows large changes better than the miss rate does ...
        assert!(changes("penalty") >= 0.9 && changes("penalty") > changes("miss-rate"), "{page}");
        // ... but busy cycles per instruction tell which of two placements is better, and the
        // penalty does not.
        assert!(signs("busy") >= 0.98 && signs("penalty") < 0.85, "{page}");
    }
}

/// Two threads, of which one spins until the other arrives, counted on real hardware.
#[test]
fn recorded_counts_of_spinning_threads_say_that_cycles_an_instruction_mislead() {
    let sandbox = Sandbox::new();
    let page = page_of(&sandbox, "zen3-guest-spin.jsonl");
    let changes = |index: &str| changes(&page, index);
    let signs = |index: &str| row(&page, index)[5].clone();
    assert!(changes("penalty") >= 0.9 && changes("penalty") > changes("busy"), "{page}");
    assert!(changes("busy") > changes("cpi"), "{page}");
    assert_eq!((signs("penalty").as_str(), signs("cpi").as_str()), ("10/10", "5/10"), "{page}");
    // An index that was not counted has no column.
    assert!(!page.lines().any(|line| line.starts_with("far") || line.starts_with("miss-rate ")), "{page}");
}

/// All documents state the numbers of the records.
#[test]
fn the_documents_figures_of_indices_are_those_of_the_records() {
    let sandbox = Sandbox::new();
    let pages = ["zen3-guest-1.jsonl", "zen3-guest-2.jsonl.gz"].map(|name| page_of(&sandbox, name));
    let spin = page_of(&sandbox, "zen3-guest-spin.jsonl");
    let of = |signs: &str| signs.replace('/', " of ");
    let [performance, penalty, guide, readme] = [
        "docs/performance-balancing.md",
        "crates/core/src/penalty.rs",
        "docs/guide/balancing.md",
        "experiments/uncore/README.md",
    ]
    .map(|path| text(&project(path)).replace("//! ", "").split_whitespace().collect::<Vec<_>>().join(" "));
    let has = |name: &str, document: &str, words: String| {
        assert!(document.contains(&words), "{name} says otherwise than: {words}");
    };
    for (index, called, briefly) in [
        ("penalty", "penalty (busy cycles a request, P)", "P = B / A"),
        ("busy", "busy cycles an instruction", "B / instruction"),
        ("share", "share of cycles that are busy (W)", ""),
        ("cpi", "cycles an instruction", "CPI"),
        ("miss-rate", "miss rate of the last cache", "LLC miss rate"),
        ("estimate", "estimate of P from generic counters", "P' (generic)"),
    ] {
        let [one, two] = [0, 1].map(|at| row(&pages[at], index));
        let pair = |at: usize| format!("{}, {}", one[at], two[at]);
        let signs = format!("{}, {}", of(&one[5]), of(&two[5]));
        let line = format!("| {called} | {} | {} | {} | {signs} |", pair(1), pair(3), pair(4));
        has("performance-balancing.md", &performance, line);
        if !briefly.is_empty() {
            has("penalty.rs", &penalty, format!("{briefly} {} {signs}", pair(3)));
        }
        if ["penalty", "busy", "cpi"].contains(&index) {
            let row = row(&spin, index);
            has("penalty.rs", &penalty, format!("{signs} {}, {}", row[3], of(&row[5])));
            let called = called.replace("busy cycles a request, ", "");
            has(
                "performance-balancing.md",
                &performance,
                format!("| {called} | {} | {} | {} |", row[3], row[4], of(&row[5])),
            );
        }
    }
    // Cases in which the goal of 0.9 was met, and in which it was missed.
    let [one, two] = [0, 1].map(|at| row(&pages[at], "penalty"));
    let (levels, met) = ([&one[1], &two[1]], [&one[3], &two[3], &row(&spin, "penalty")[3]]);
    assert!(met.iter().all(|r| r.parse::<f64>().unwrap() >= 0.9));
    assert!(levels.iter().all(|r| r.parse::<f64>().unwrap() < 0.9));
    let missed = format!("missed for levels over all kinds of work ({}, {}", levels[0], levels[1]);
    for (name, document) in [("penalty.rs", &penalty), ("balancing.md", &guide), ("README.md", &readme)] {
        has(name, document, missed.clone());
    }
    has("README.md", &readme, format!("met for changes ({}, {}; spinning {})", met[0], met[1], met[2]));
    has(
        "performance-balancing.md",
        &performance,
        format!("misses that goal ({} and {})", levels[0], levels[1]),
    );
    has("balancing.md", &guide, format!("r of changes {} against {}", met[2], row(&spin, "busy")[3]));
}

//! `trimtab bench balance`, with scripts in place of the programs. Tests of the programs:
//! `make -C bench check`.

use crate::util::need;
use crate::util::{Call, Sandbox, eventually, text, two};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

/// A script that reports as the programs do, and logs its arguments in `log`. Its time is
/// `$seconds`, or `$placed` under trimtab; `$foreign` is the CPU time of other processes.
const FAKE: &str = r#"#!/bin/sh
name=${0##*/}
if [ "$1" = --calibrate ]; then echo '{"kernel":"balance_spmd","rate":1000}'; exit 0; fi
echo "$name $* policy=${OMP_WAIT_POLICY-} count=${OMP_NUM_THREADS-} spins=${GOMP_SPINCOUNT-}" >>log
[ -e trouble ] && . ./trouble
time=$seconds
[ -n "$TRIMTAB_HOLD" ] && time=$placed
case "$*" in *"--threads 2"*) threads=2 compute=1,1;; *) threads=3 compute=1,1,1;; esac
cat <<END
{"kernel":"$name","threads":$threads,"seconds":$time,"compute_seconds":[$compute],"machine_cpus":2,
"foreign_seconds":$foreign,"steal_seconds":0,"verified":true}
END
"#;

/// A competitor that lives until it is killed.
const HOG: &str = "#!/bin/sh\necho \"hog $$ $*\" >>log\necho ready\nexec sleep 60\n";

fn programs(sandbox: &Sandbox) -> PathBuf {
    for name in ["balance_spmd", "balance_omp"] {
        sandbox.script(&format!("programs/{name}"), FAKE);
    }
    sandbox.script("programs/balance_hog", HOG);
    sandbox.path("programs")
}

/// Runs the benchmark on two cores, whatever the machine has.
fn bench<'s>(sandbox: &'s Sandbox, cpus: [u32; 2], options: &str) -> Call<'s> {
    let folder = programs(sandbox);
    let list = format!("{},{}", cpus[0], cpus[1]);
    let call = sandbox.lab(&format!("bench balance {options} --programs")).arg(folder);
    let call = call.through(["taskset", "-c", &list]);
    call.env("seconds", "1.8").env("placed", "1.5").env("foreign", "0")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn of<'a>(lines: &'a [Value], record: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["record"] == record).collect()
}

/// Cases that every trimtab can run: they do not balance.
const WAITS: &str = "--only omp-1ms";

#[test]
fn cases_are_listed_and_an_unknown_one_is_refused() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let said = bench(&sandbox, cpus, "--list").ends().ok();
    for name in
        ["final-3/spin/kernel", "freed-3/sleep/kernel", "omp-1ms-3/runtime/wait-policy", "hog-2/hyb/pinned"]
    {
        assert!(said.lines().any(|line| line == name), "{name}: {said}");
    }
    assert!(!sandbox.path("log").exists(), "nothing was run");
    bench(&sandbox, cpus, "--only final-99").ends().fails(2, &["no case's name contains final-99", "--list"]);
}

#[test]
fn every_round_runs_every_cell_once_in_an_order_of_its_own() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let cells = "--only final-3/sleep/kernel --only final-3/sleep/pinned --only final-3/spin/kernel --only final-3/spin/pinned --only final-3/yield/kernel --only final-3/yield/pinned";
    let rounds = |seed: u64| {
        let _ = std::fs::remove_file(sandbox.path("log"));
        bench(&sandbox, cpus, &format!("{cells} --repeats 2 --seed {seed}")).ends().out();
        let log = text(&sandbox.path("log"));
        let runs: Vec<String> =
            log.lines().map(|line| line.split_once("--wait").unwrap().1.to_owned()).collect();
        runs.chunks(6).map(<[String]>::to_vec).collect::<Vec<_>>()
    };
    let first = rounds(1);
    assert_eq!(first.len(), 2);
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
fn goals_are_met_or_missed_on_clean_runs() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let page = bench(&sandbox, cpus, WAITS).ends().out();
    let row = |way: &str| {
        let row = page.lines().find(|line| line.starts_with("omp-1ms-3") && line.contains(way));
        row.unwrap_or_else(|| panic!("{page}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // The ideal time of three seconds of work on two cores is 1.5.
    assert_eq!(row("kernel"), "omp-1ms-3 runtime kernel 1.20 [1.20, 1.20] 1.00 - 5/5");
    assert_eq!(
        row("wait-policy"),
        "omp-1ms-3 runtime wait-policy 1.00 [1.00, 1.00] 1.00 0.83x shorter 5/5 <= 1.40 met, half of spin not judged, no worse met, steady met"
    );
    assert!(
        page.contains("15 of 15 runs were clean") && page.contains("3 met, 0 missed, 1 not judged"),
        "{page}"
    );
    // Variables that each variant sets for the runtime.
    let log = text(&sandbox.path("log"));
    assert_eq!(log.matches("policy=active count=3 spins=infinity\n").count(), 5, "{log}");
    assert_eq!(log.matches("policy= count=3 spins=100\n").count(), 5, "{log}");
    assert_eq!(log.matches("policy= count=3 spins=\n").count(), 5, "{log}");
}

#[test]
fn a_noisy_run_is_never_called_clean() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for foreign in ["0.5", "null"] {
        let page = bench(&sandbox, cpus, WAITS).env("foreign", foreign).ends().out();
        assert!(
            page.contains("0 of 15 runs were clean") && page.contains("0 met, 0 missed, 4 not judged"),
            "{page}"
        );
        assert!(page.matches(" noisy ").count() >= 3, "{page}");
    }
}

#[test]
fn everything_that_is_listed_can_be_run() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let listed = bench(&sandbox, cpus, "--quick --list").ends().ok();
    bench(&sandbox, cpus, "--quick --repeats 1 --json record").ends().out();
    let all = lines(&text(&sandbox.path("record")));
    let mut names: Vec<&str> = of(&all, "result").iter().map(|line| line["cell"].as_str().unwrap()).collect();
    assert_eq!(names, listed.lines().collect::<Vec<_>>());
    let runs = of(&all, "run");
    names.retain(|name| !runs.iter().any(|run| run["cell"] == *name && run["error"].is_null()));
    assert_eq!(names, [""; 0], "did not go well");
    for run in runs.iter().filter(|run| run["cell"].as_str().unwrap().ends_with("/auto")) {
        assert!(run["command"].as_array().unwrap().contains(&"--balance=auto".into()), "{run}");
    }
}

#[test]
fn the_users_settings_do_not_reach_the_programs() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let call = bench(&sandbox, cpus, &format!("{WAITS} --repeats 1"));
    call.env("OMP_WAIT_POLICY", "passive")
        .env("OMP_NUM_THREADS", "9")
        .env("GOMP_SPINCOUNT", "1")
        .ends()
        .out();
    let log = text(&sandbox.path("log"));
    assert!(!log.contains("passive") && !log.contains("count=9") && !log.contains("spins=1\n"), "{log}");
}

#[test]
fn a_record_is_resumed() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let json = sandbox.path("record");
    bench(&sandbox, cpus, &format!("{WAITS} --repeats 1 --json record")).ends().out();
    let runs = || text(&sandbox.path("log")).lines().count();
    assert_eq!(runs(), 3);
    let first = lines(&text(&json));
    assert!(first.iter().all(|line| line["schema"] == "trimtab.bench/1"));
    let start = of(&first, "start")[0];
    assert_eq!(
        (&start["bench"], &start["cores"], &start["rate"]),
        (&"balance".into(), &2.into(), &1000.into())
    );
    assert_eq!((of(&first, "run").len(), of(&first, "result").len()), (3, 3));
    assert_eq!(of(&first, "end")[0]["complete"], true);
    // A sudden end in the middle of a line.
    let mut file = std::fs::OpenOptions::new().append(true).open(&json).unwrap();
    file.write_all(b"{\"schema\":\"trimtab.bench/1\",\"record\":\"run\",\"ce").unwrap();
    drop(file);
    let page = bench(&sandbox, cpus, &format!("{WAITS} --repeats 2 --json record --resume")).ends().out();
    assert_eq!(runs(), 6, "only the second round is run");
    assert!(page.contains("6 of 6 runs"), "{page}");
    let all = lines(&text(&json));
    assert_eq!(of(&all, "run").len(), 6);
    // An incomparable record is refused and left unchanged.
    let before = text(&json);
    let refused = bench(&sandbox, cpus, &format!("{WAITS} --quick --json record --resume")).ends();
    refused.fails(2, &["cannot continue record", "its --quick was false, now it is true"]);
    assert_eq!(text(&json), before);
    sandbox.write("other", "{\"schema\":\"other/1\"}\n");
    bench(&sandbox, cpus, &format!("{WAITS} --json other --resume")).ends().fails(2, &["not of schema"]);
    bench(&sandbox, cpus, &format!("{WAITS} --json none --resume")).ends().fails(2, &["cannot be read"]);
    bench(&sandbox, cpus, &format!("{WAITS} --json - --resume")).ends().fails(2, &["--resume needs a file"]);
}

#[test]
fn the_table_is_written_after_each_round() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // The last round finds the table of the earlier rounds.
    let trouble = "[ -e table ] && cp table seen; true";
    sandbox.write("trouble", trouble);
    let page = bench(&sandbox, cpus, &format!("{WAITS} --repeats 2 --table table")).ends().out();
    assert!(text(&sandbox.path("seen")).contains("3 of 3 runs were clean"));
    assert_eq!(text(&sandbox.path("table")).trim_end(), page.trim_end());
    bench(&sandbox, cpus, &format!("{WAITS} --repeats 1 --table no/such"))
        .ends()
        .fails(2, &["cannot write no/such"]);
}

#[test]
fn a_hog_exists_during_its_run_only() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    bench(&sandbox, cpus, "--only hog-pinned-session-2/spin/kernel --repeats 1").ends().out();
    let log = text(&sandbox.path("log"));
    let words: Vec<&str> = log.lines().next().unwrap().split(' ').collect();
    assert_eq!(words[2..], ["--limit", "120", "--cpu", &cpus[1].to_string(), "--setsid"], "{log}");
    assert!(log.lines().nth(1).unwrap().contains(&format!("--hog {}", words[1])), "{log}");
    let alive = || std::path::Path::new("/proc").join(words[1]).exists();
    eventually("the hog is gone", || !alive());
}

#[test]
fn a_failing_case_is_reported_once_and_costs_only_itself() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "if [ \"$OMP_WAIT_POLICY\" = active ]; then echo no spinning >&2; exit 3; fi");
    let outcome = bench(&sandbox, cpus, WAITS).ends();
    let said = &outcome.stderr;
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert_eq!(said.matches("it said: no spinning").count(), 1, "{said}");
    assert!(said.contains("omp-1ms-3/runtime/omp-active failed, see above"), "{said}");
    let page = outcome.out();
    assert!(page.contains("wait-policy") && page.contains("2 runs failed"), "{page}");
    // The failing case was not tried in all five rounds.
    assert_eq!(text(&sandbox.path("log")).matches("policy=active").count(), 2);
}

#[test]
fn reports_of_other_programs_are_rejected() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (trouble, why) in [
        ("echo '{\"kernel\":\"cg\",\"verified\":true}'; exit 0", "its report is of another run"),
        ("echo gibberish; exit 0", "its report is not JSON"),
        (
            "echo \"{\\\"kernel\\\":\\\"$name\\\",\\\"threads\\\":3,\\\"verified\\\":true}\"; exit 0",
            "its report lacks seconds",
        ),
        ("exit 1", "its result is wrong"),
    ] {
        sandbox.write("trouble", trouble);
        let outcome = bench(&sandbox, cpus, &format!("{WAITS} --repeats 1")).ends();
        assert!(outcome.code == Some(2) && outcome.stderr.contains(why), "{why}: {outcome}");
    }
}

#[test]
fn a_signal_ends_it_and_the_results_so_far_are_shown() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "[ $(grep -c . log) -ge 4 ] && exec sleep 60");
    let running = bench(&sandbox, cpus, &format!("{WAITS} --json record")).begins();
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
fn missing_programs_are_named_with_the_way_to_have_them() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let folder = programs(&sandbox);
    std::fs::remove_file(folder.join("balance_hog")).unwrap();
    let call = sandbox.lab("bench balance --programs").arg(&folder).through([
        "taskset",
        "-c",
        &format!("{},{}", cpus[0], cpus[1]),
    ]);
    call.ends().fails(2, &["balance_hog is not in", "make -C bench"]);
}

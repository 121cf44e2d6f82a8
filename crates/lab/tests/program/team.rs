//! `trimtab bench team`, with a script in place of the peers. Tests of the peers:
//! `make -C bench check`.

use crate::util::{Call, Sandbox, text};
use serde_json::Value;
use trimtab_front::chart::text::faults;

/// A script with the interface of bench/team/peer, which logs its arguments in `log`. A call takes
/// 1000 us on an otherwise idle machine, unless `trouble` overrides it.
const FAKE: &str = r#"#!/bin/sh
name=$1
shift
if [ "$1" = --here ]; then
    case $name in pthread|mpich) exit 0 ;; esac
    echo "peer: no $name on this machine" >&2
    exit 1
fi
ranks=0 op= bytes=0 mode= last=
for word; do
    case $last in -n) ranks=$word ;; -o) op=$word ;; -z) bytes=$word ;; -m) mode=$word ;; esac
    last=$word
done
[ $op = barrier ] && bytes=0
foreign=0.010
echo "$name $*" >>log
[ -e trouble ] && . ./trouble
for us in 1000.5 1000.0 1010.25; do
    echo "{\"peer\":\"$name\",\"kind\":\"process\",\"ranks\":$ranks,\"op\":\"$op\",\"bytes\":$bytes,\"mode\":\"$mode\",\"us\":$us,\"cpu_us\":500,\"foreign\":$foreign}"
done
"#;

fn bench<'s>(sandbox: &'s Sandbox, options: &str) -> Call<'s> {
    let peer = sandbox.script("peer", FAKE);
    sandbox.lab(&format!("bench team {options} --peer")).arg(peer)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn of<'a>(lines: &'a [Value], record: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["record"] == record).collect()
}

fn rows<'a>(page: &'a str, begin: &str) -> Vec<&'a str> {
    page.lines().filter(|line| line.starts_with(begin)).collect()
}

const SMALL: &str = "--ranks 2 --ops barrier,allreduce --bytes 64 --modes stream --seconds 0.002";

#[test]
fn a_cell_is_measured_in_every_kind_and_mode() {
    let sandbox = Sandbox::new();
    for (kind, ranks) in [("thread", 3), ("process", 2), ("2x2", 4)] {
        for (op, mode) in [
            ("barrier", "stream"),
            ("bcast", "strict"),
            ("bcast", "resident"),
            ("allreduce", "resident"),
            ("allreduce", "stream"),
            ("alltoall", "loose"),
            ("alltoall", "resident"),
        ] {
            let options = format!("-n {ranks} -o {op} -z 72 -m {mode} -k {kind} -B 3 -T 0.1");
            let said = sandbox.lab(&format!("bench team-cell {options}")).ends().ok();
            let said = lines(&said);
            assert_eq!(said.len(), 3, "{options}: {said:?}");
            for line in said {
                let bytes = if op == "barrier" { 0 } else { 72 };
                assert_eq!(
                    (
                        &line["peer"],
                        &line["kind"],
                        &line["ranks"],
                        &line["op"],
                        &line["bytes"],
                        &line["mode"]
                    ),
                    (&"team".into(), &kind.into(), &ranks.into(), &op.into(), &bytes.into(), &mode.into())
                );
                assert!(line["us"].as_f64().unwrap() > 0.0 && line["cpu_us"].as_f64().is_some(), "{line}");
            }
        }
    }
}

#[test]
fn an_impossible_cell_is_refused() {
    let sandbox = Sandbox::new();
    for (options, why) in [
        ("-n 3 -k 2x2", "2x2 does not give 3 ranks"),
        ("-o allreduce -z 12", "not a multiple of 8"),
        ("-T 0", "milliseconds"),
    ] {
        sandbox.lab(&format!("bench team-cell {options}")).ends().fails(2, &[why]);
    }
    for value in ["v1:99:0:2", "v1:5", "nonsense"] {
        let outcome = sandbox.lab("bench team-cell").env("TRIMTAB_TEAM", value).ends();
        assert_eq!(outcome.code, Some(1), "{outcome}");
    }
}

#[test]
fn cells_are_listed_with_what_is_left_out() {
    let sandbox = Sandbox::new();
    let said = bench(&sandbox, &format!("{SMALL} --list --kinds thread,2x1 --pin")).ends().ok();
    for wanted in [
        "2/barrier team-thread: ",
        "2/allreduce/64/stream team-2x1: ",
        "bench team-cell -n 2 -o allreduce -z 64 -m stream -B 3 ",
        " -k 2x1 -p",
        "pthread-process: ",
        "-k process -p",
        "# openmpi cannot run here: no openmpi on this machine",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let all = bench(&sandbox, "--list --peers mpich").ends().ok();
    // Peers have no loose calls, and no calls with data in a segment.
    assert!(all.contains("loose team-process") && !all.contains("loose mpich"), "{all}");
    assert!(
        all.contains("8/alltoall/1048576/resident team-thread") && !all.contains("barrier/8/resident"),
        "{all}"
    );
    assert!(!sandbox.path("log").exists(), "nothing was run");
    bench(&sandbox, "--peers mpich,lam").ends().fails(2, &["unknown peer lam"]);
    let outcome = bench(&sandbox, "--bytes 12").ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("multiple of 8"), "{outcome}");
}

#[test]
fn teams_are_compared_with_peers_and_recorded() {
    let sandbox = Sandbox::new();
    let page = bench(&sandbox, &format!("{SMALL} --rounds 5 --json record --svg chart.svg")).ends().out();
    // Two rows in the tables of all contestants, and one row per team in the table of teams.
    assert_eq!((rows(&page, "barrier").len(), rows(&page, "allreduce").len()), (4, 4), "{page}");
    let times = rows(&page, "allreduce")[0];
    // The median of a run, and the shortest batch of all.
    assert_eq!(times.matches("1000 (1000)").count(), 3, "{page}");
    let head = rows(&page, "OPERATION")[0];
    for column in ["team-thread", "team-process", "mpich", "pthread", "pthread-process"] {
        assert!(head.contains(column), "{page}");
    }
    for goal in [
        "team-thread: ratio to mpich",
        "team-process: barrier, ratio to pthread-process",
        "2/barrier, median us",
    ] {
        assert!(page.contains(goal), "{goal}: {page}");
    }
    let all = lines(&text(&sandbox.path("record")));
    let (start, end) = (of(&all, "start")[0], of(&all, "end")[0]);
    assert_eq!(
        (&start["bench"], &start["rounds"], &start["seed"]),
        (&"team".into(), &5.into(), &1.into()),
        "{start}"
    );
    assert_eq!((&end["complete"], &end["runs"], &end["failed"]), (&true.into(), &50.into(), &0.into()));
    let (runs, results) = (of(&all, "run"), of(&all, "result"));
    assert_eq!((runs.len(), results.len()), (50, 10));
    assert!(runs.iter().all(|run| run["batches"].as_array().unwrap().len() == 3), "{runs:?}");
    let result = |column: &str| {
        *results.iter().find(|line| line["column"] == column && line["op"] == "allreduce").unwrap()
    };
    let mpich = result("mpich");
    assert_eq!((&mpich["us"]["median"], &mpich["least_us"]), (&1000.5.into(), &1000.0.into()));
    assert_eq!((mpich["clean"].as_array().unwrap().len(), &mpich["ratio"]), (5, &Value::Null));
    let team = result("team-thread");
    let (ours, ratio) = (&team["us"]["median"], &team["ratio"]["median"]);
    assert!((ours.as_f64().unwrap() / 1000.5 - ratio.as_f64().unwrap()).abs() < 1e-6, "{team}");
    assert!(team["best_peer"].is_string());
    assert!(!of(&all, "goal").is_empty());
    let chart = text(&sandbox.path("chart.svg"));
    assert!(chart.starts_with("<svg") && chart.trim_end().ends_with("</svg>"));
    assert_eq!(faults(&chart), Vec::<String>::new());
    for words in [">2 ranks<", ">allreduce<", ">microseconds a call<", "mpich: 1000.5"] {
        assert!(chart.contains(words), "{words}: {chart}");
    }
}

#[test]
fn the_seed_says_the_order_and_every_round_has_its_own() {
    let sandbox = Sandbox::new();
    let order = |seed: u32| {
        let _ = std::fs::remove_file(sandbox.path("log"));
        let options = "--ranks 1,2 --ops bcast,alltoall --bytes 8 --modes stream,strict --kinds 7x9";
        bench(&sandbox, &format!("{options} --rounds 2 --seed {seed}")).ends().out();
        text(&sandbox.path("log")).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let first = order(1);
    let (one, two) = first.split_at(first.len() / 2);
    assert_eq!(first.len(), 48);
    assert!(one != two, "{first:?}");
    let sorted = |round: &[String]| {
        let mut round = round.to_vec();
        round.sort();
        round
    };
    assert_eq!(sorted(one), sorted(two));
    assert_eq!(order(1), first);
    assert!(order(2) != first);
}

#[test]
fn noisy_runs_are_marked_and_judge_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "foreign=0.2");
    let page = bench(&sandbox, &format!("{SMALL} --rounds 5 --kinds thread --peers mpich")).ends().out();
    assert!(rows(&page, "allreduce")[0].contains("~1000 (1000)"), "{page}");
    assert!(page.contains("not judged  team-thread: ratio to mpich"), "{page}");
}

#[test]
fn a_failing_case_is_reported_once_and_costs_only_itself() {
    let sandbox = Sandbox::new();
    for (trouble, why) in [
        ("case $name in mpich) echo no memory >&2; exit 1 ;; esac", "exit status: 1; it said: no memory"),
        ("case $name in mpich) exit 3 ;; esac", "its result is wrong"),
        ("case $name in mpich) op=scan ;; esac", "its report is of another run"),
        ("case $name in mpich) exit 0 ;; esac", "its report is empty"),
        ("case $name in mpich) echo hello ;; esac", "not JSON"),
    ] {
        sandbox.write("trouble", trouble);
        let options =
            "--ranks 2 --ops barrier --seconds 0.002 --kinds thread --peers mpich,pthread --rounds 3";
        let outcome = bench(&sandbox, options).ends();
        assert_eq!(outcome.code, Some(2), "{outcome}");
        assert_eq!(outcome.stderr.matches(why).count(), 1, "{why}: {outcome}");
        assert!(outcome.stderr.contains("2/barrier mpich failed, see above"), "{outcome}");
        let page = outcome.out();
        assert!(page.contains("2 runs failed") && rows(&page, "barrier")[0].contains("1000"), "{page}");
    }
}

#[test]
fn an_unwritable_file_is_refused_before_any_run() {
    let sandbox = Sandbox::new();
    bench(&sandbox, &format!("{SMALL} --json no/such")).ends().fails(2, &["cannot write no/such"]);
    bench(&sandbox, &format!("{SMALL} --svg no/such")).ends().fails(2, &["cannot write no/such"]);
    sandbox.lab("bench team --peer no/such").ends().fails(2, &["no/such does not exist"]);
    assert!(!sandbox.path("log").exists(), "nothing was run");
}

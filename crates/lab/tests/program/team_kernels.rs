//! `trimtab bench team --kernels`, with a script in place of the programs. Tests of the programs:
//! `make -C bench check`.

use crate::util::{Call, Sandbox, text};
use serde_json::Value;
use trimtab_front::chart::text::faults;

/// A script with the interface of bench/team/peer for kernels, which logs its arguments in `log`.
/// Threads take 0.2 s, processes 0.1 s, peers 0.4 s on an otherwise idle machine, unless `trouble`
/// overrides it.
const FAKE: &str = r#"#!/bin/sh
name=$1
shift
[ "$1" = kernels ] || exit 2
shift
if [ "$1" = --here ]; then
    case $name in team|mpich) exit 0 ;; esac
    echo "peer: no $name on this machine" >&2
    exit 1
fi
ranks=0 kernel= class= mode= kind=thread last=
for word; do
    case $last in -n) ranks=$word ;; -K) kernel=$word ;; -c) class=$word ;; -m) mode=$word ;; -k) kind=$word ;; esac
    last=$word
done
foreign=0.010
seconds=0.2
[ $kind = process ] && seconds=0.1
[ $name = mpich ] && seconds=0.4
echo "$name $*" >>log
[ -e trouble ] && . ./trouble
for more in 000 001 050; do
    echo "{\"peer\":\"$name\",\"kind\":\"$kind\",\"ranks\":$ranks,\"kernel\":\"$kernel\",\"class\":\"$class\",\"mode\":\"$mode\",\"seconds\":$seconds$more,\"comm_seconds\":0.02,\"cpu_seconds\":0.3,\"mops\":100,\"foreign\":$foreign}"
done
"#;

fn bench<'s>(sandbox: &'s Sandbox, options: &str) -> Call<'s> {
    let peer = sandbox.script("peer", FAKE);
    sandbox.lab(&format!("bench team --kernels{options} --peer")).arg(peer)
}

fn records(text: &str, record: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["record"] == record).collect()
}

#[test]
fn kernels_are_listed_with_what_is_left_out() {
    let sandbox = Sandbox::new();
    let said = bench(&sandbox, " --list --pin").ends().ok();
    for wanted in [
        "2/ft/W/stream team-thread: ",
        "team kernels -n 2 -K ft -c W -m stream -B 3 -T 200 -k thread -p",
        "8/is/W/resident team-2xN: ",
        "kernels -n 8 -K is -c W -m resident -B 3 -T 200 -k 2x4 -p",
        "mpich kernels -n 4 -K is -c W -m stream -B 3 -T 200 -p",
        "# openmpi cannot run here: no openmpi on this machine",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // Two ranks cannot be two processes of several threads, and exchanges of peers are copied.
    assert!(!said.contains("2/ft/W/stream team-2xN") && !said.contains("resident mpich"), "{said}");
    let one =
        bench(&sandbox, "=is --class A --ranks 3 --kinds 3x1 --modes stream --peers none --list").ends().ok();
    assert_eq!(one.lines().count(), 1, "{one}");
    assert!(one.contains("team kernels -n 3 -K is -c A -m stream"), "{one}");
    assert!(!sandbox.path("log").exists(), "nothing was run");
}

#[test]
fn options_that_kernels_do_not_have_are_refused() {
    let sandbox = Sandbox::new();
    for (options, why) in [
        ("=mg", "invalid value 'mg'"),
        (" --class D", "invalid value 'D'"),
        (" --ops bcast", "cannot be used with"),
        (" --kinds 1xN", "is neither thread nor process"),
    ] {
        let outcome = bench(&sandbox, options).ends();
        assert!(outcome.code == Some(2) && outcome.stderr.contains(why), "{options}: {outcome}");
    }
    bench(&sandbox, " --peers gloo").ends().fails(2, &["unknown peer gloo"]);
    let outcome = sandbox.lab("bench team --class A").ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("--kernels"), "{outcome}");
}

#[test]
fn processes_are_set_beside_threads_and_teams_beside_peers() {
    let sandbox = Sandbox::new();
    let options = " --ranks 1,4 --class S --rounds 5 --json record --svg chart.svg";
    let page = bench(&sandbox, options).ends().out();
    let at = |begin: &str| page.find(begin).unwrap_or_else(|| panic!("{begin}: {page}"));
    let row = |begin: &str, row: &str| {
        let of_table = &page[at(begin)..];
        of_table
            .lines()
            .find(|line| line.starts_with(row))
            .unwrap_or_else(|| panic!("{row}: {page}"))
            .to_owned()
    };
    // The median of a run, and the shortest repetition of all.
    let times = row("FT, class S: milliseconds", "    4  stream");
    assert!(
        times.contains("200 (200)") && times.contains("100 (100)") && times.contains("400 (400)"),
        "{page}"
    );
    let beside = row("FT, class S: time of processes / time of threads", "    4  resident");
    assert!(beside.contains("0.50 (0.50 to 0.50)") && beside.contains("1.00 (1.00 to 1.00)"), "{page}");
    // One rank is a thread and a process at once.
    assert!(!page[at("time of processes")..at("FT, class S: CPU")].contains("    1  "), "{page}");
    let team = row("IS, class S: teams compared with the fastest peer", "    4  resident  team-process");
    assert!(team.contains("0.25") && team.contains("mpich"), "{page}");
    assert!(row("IS, class S: percentage of time", "    4  stream").contains("10"), "{page}");
    assert!(!page.contains('~') || page.matches('~').count() == 1, "nothing was noisy: {page}");

    let record = text(&sandbox.path("record"));
    let (runs, results) = (records(&record, "run"), records(&record, "result"));
    let one_round = 2 * (1 + 2 * 2) + 2 * (1 + 2 * 3);
    assert_eq!((runs.len(), results.len()), (5 * one_round, one_round));
    assert!(runs.iter().all(|run| run["repetitions"].as_array().unwrap().len() == 3), "{runs:?}");
    let compared = records(&record, "comparison");
    // Processes and 2xN, in two modes of two kernels.
    assert_eq!(compared.len(), 8);
    let first = &compared[0];
    assert_eq!((&first["ranks"], &first["below"]), (&4.into(), &"team-thread".into()), "{first}");
    let (start, end) = (&records(&record, "start")[0], &records(&record, "end")[0]);
    assert_eq!((&start["bench"], &start["rounds"]), (&"team-kernels".into(), &5.into()));
    assert_eq!((&end["complete"], &end["failed"]), (&true.into(), &0.into()));
    let chart = text(&sandbox.path("chart.svg"));
    assert!(chart.starts_with("<svg") && chart.trim_end().ends_with("</svg>"));
    assert_eq!(faults(&chart), Vec::<String>::new());
    for words in [">ft<", ">is: beside teams of threads<", ">stream<", ">resident<", ">seconds<", ">ranks<"] {
        assert!(chart.contains(words), "{words}: {chart}");
    }
    assert!(chart.contains("mpich: 0.4001") && chart.contains("team-process: 0.5002"), "{chart}");
}

#[test]
fn kernels_that_fail_are_said_once_and_cost_only_themselves() {
    let sandbox = Sandbox::new();
    for (trouble, why) in [
        ("case $name in mpich) echo no memory >&2; exit 1 ;; esac", "exit status: 1; it said: no memory"),
        ("case $name in mpich) exit 3 ;; esac", "its result is wrong"),
        ("case $name in mpich) class=B ;; esac", "its report is of another run"),
        ("case $name in mpich) exit 0 ;; esac", "its report is empty"),
    ] {
        sandbox.write("trouble", trouble);
        let outcome = bench(&sandbox, "=ft --ranks 2 --modes stream --kinds thread --rounds 3").ends();
        assert_eq!(outcome.code, Some(2), "{outcome}");
        assert_eq!(outcome.stderr.matches(why).count(), 1, "{why}: {outcome}");
        assert!(outcome.stderr.contains("2/ft/W/stream mpich failed, see above"), "{outcome}");
        let page = outcome.out();
        assert!(page.contains("2 runs failed") && page.contains("200 (200)"), "{page}");
    }
}

#[test]
fn noisy_kernels_are_marked() {
    let sandbox = Sandbox::new();
    for foreign in ["foreign=0.2", "foreign=null"] {
        sandbox.write("trouble", foreign);
        let page =
            bench(&sandbox, "=is --ranks 2 --modes stream --rounds 1 --kinds thread,process").ends().out();
        assert!(page.contains("~200 (200)") && page.contains("~0.50"), "{page}");
    }
}

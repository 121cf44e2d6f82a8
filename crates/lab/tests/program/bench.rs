//! `trimtab bench nested`, with scripts in place of the programs.

use crate::util::{Call, Sandbox, eventually, text, trimtab};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use trimtab_front::chart::text::faults;

/// A script that reports as the programs do. It logs each call in `log`; placed by trimtab, it
/// reports `$bound`.
const FAKE: &str = r#"#!/bin/sh
name=${0##*/}
for shape; do :; done
value=$unbound
way=unbound
if [ -n "$TRIMTAB_HOLD" ]; then value=$bound way=bound; fi
echo "$name $shape $way ${OMP_NUM_THREADS-unset}" >>log
[ -e trouble ] && . ./trouble
series="{\"best\":$value,\"median\":$value,\"samples\":[$value]}"
construct="\"average_us\":$series,\"worst_us\":$series"
cat <<END
{"kernel":"$name","outer":${shape%x*},"inner":${shape#*x},"sum_gbs":$series,"wall_gbs":$series,"seconds":$series,
"constructs":[{"construct":"parallel",$construct},{"construct":"barrier",$construct},{"construct":"reduction",$construct}],
"verified":true}
END
"#;

/// Creates a folder with three such scripts.
fn programs(sandbox: &Sandbox) -> PathBuf {
    for name in ["nested_stream", "nested_syncbench", "nested_solver"] {
        sandbox.script(&format!("programs/{name}"), FAKE);
    }
    sandbox.path("programs")
}

fn bench<'s>(sandbox: &'s Sandbox, options: &str) -> Call<'s> {
    let folder = programs(sandbox);
    let call = sandbox.lab(&format!("bench nested {options} --programs")).arg(folder);
    call.env("unbound", "2.0").env("bound", "4.0")
}

/// Parses the lines of a record.
fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn of<'a>(lines: &'a [Value], record: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["record"] == record).collect()
}

#[test]
fn both_ways_take_turns_round_by_round() {
    let sandbox = Sandbox::new();
    bench(&sandbox, "--rounds 3 --shape 1x1 --only stream --only solver").ends().ok();
    let log = text(&sandbox.path("log"));
    let ways: Vec<&str> = log.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let there = ["unbound", "bound"].repeat(2);
    let back = ["bound", "unbound"].repeat(2);
    assert_eq!(ways, [there.clone(), back, there].concat(), "{log}");
    assert!(!log.contains("syncbench"), "{log}");
}

#[test]
fn a_gain_is_a_gain_and_a_loss_is_a_loss() {
    let sandbox = Sandbox::new();
    let page = bench(&sandbox, "--shape 1x1").ends().ok();
    let row = |figure: &str| {
        let row = page.lines().find(|line| line.starts_with("1x1") && line.contains(figure));
        row.unwrap_or_else(|| panic!("{figure}: {page}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // Twice the bandwidth, and twice the time.
    let numbers = "2.00 [2.00, 2.00] 4.00 [4.00, 4.00]";
    assert_eq!(row("sum"), format!("1x1 sum {numbers} 2.00x [2.00, 2.00] better (higher)"));
    assert_eq!(row("barrier"), format!("1x1 barrier {numbers} 0.50x [0.50, 0.50] WORSE (longer)"));
    assert_eq!(row("seconds"), format!("1x1 seconds {numbers} 0.50x [0.50, 0.50] WORSE (longer)"));
    for published in ["IWOMP 2010", "3.4 / 43.0", "2655.09 / 425.63", "SHEMAT-Suite", "seed 1"] {
        assert!(page.contains(published), "{published}: {page}");
    }
}

#[test]
fn equal_samples_are_no_difference_and_few_are_no_verdict() {
    let sandbox = Sandbox::new();
    let page = bench(&sandbox, "--shape 1x1 --only stream").env("bound", "2.0").ends().ok();
    assert_eq!(page.matches("no difference").count(), 2, "{page}");
    let page = bench(&sandbox, "--shape 1x1 --only stream --rounds 4").ends().ok();
    assert_eq!(page.matches("not known").count(), 2, "{page}");
    assert!(!page.contains("2.00 ["), "{page}");
}

#[test]
fn everything_is_recorded() {
    let sandbox = Sandbox::new();
    bench(&sandbox, "--rounds 5 --shape 1x1 --seed 7 --json record").ends().ok();
    let lines = lines(&text(&sandbox.path("record")));
    assert!(lines.iter().all(|line| line["schema"] == "trimtab.bench/1"));
    let start = of(&lines, "start")[0];
    assert_eq!((&start["seed"], &start["rounds"]), (&7.into(), &5.into()));
    assert!(start["kernel"].as_str().unwrap().contains('.') && start["summary"].is_string(), "{start}");
    let runs = of(&lines, "run");
    assert_eq!(runs.len(), 2 * 3 * 5);
    let bound =
        runs.iter().find(|run| run["variant"] == "bound" && run["program"] == "nested_syncbench").unwrap();
    let command: Vec<&str> =
        bound["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(command[1..5], ["run", "--nest", "1,scatter,1,subcompact", "--"], "{bound}");
    assert!(
        command[5].ends_with("/programs/nested_syncbench") && bound["report"]["verified"] == true,
        "{bound}"
    );
    let results = of(&lines, "result");
    assert_eq!(results.len(), 2 + 3 + 1);
    assert_eq!(results[0]["unbound"], serde_json::json!([2.0, 2.0, 2.0, 2.0, 2.0]));
    assert_eq!(results[0]["comparison"]["verdict"], "better");
    assert_eq!(results[0]["comparison"]["gain"]["interval"]["low"], 2.0);
    let end = of(&lines, "end")[0];
    assert_eq!((&end["complete"], &end["runs"], &end["failed"]), (&true.into(), &30.into(), &0.into()));
}

#[test]
fn the_record_can_go_to_standard_output() {
    let sandbox = Sandbox::new();
    let said = bench(&sandbox, "--rounds 1 --shape 1x1 --only solver --json -").ends().ok();
    let records: Vec<Value> = lines(&said).iter().map(|line| line["record"].clone()).collect();
    assert_eq!(records, ["start", "run", "run", "result", "end"]);
}

#[test]
fn the_chart_is_an_svg() {
    let sandbox = Sandbox::new();
    bench(&sandbox, "--shape 1x1 --shape 1x2 --svg chart.svg").ends();
    let chart = text(&sandbox.path("chart.svg"));
    assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"), "{chart}");
    assert_eq!(faults(&chart), Vec::<String>::new());
    assert!(chart.contains("1x1 bound: better (higher): 4.0000 [4.0000, 4.0000]"), "{chart}");
    assert_eq!(chart.matches("class=\"panel\"").count(), 2 + 3 + 1);
}

#[test]
fn a_failing_program_costs_only_itself() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "trouble",
        "case $name$way in nested_syncbenchunbound) echo 'no luck' >&2; echo today >&2; exit 3;; esac",
    );
    let outcome = bench(&sandbox, "--shape 1x1 --json record").ends();
    assert_eq!(outcome.code, Some(2), "{outcome}");
    let said: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(said.len(), 2, "{outcome}");
    for word in ["nested_syncbench 1x1 unbound", "exit status: 3", "no luck / today"] {
        assert!(said[0].contains(word), "{word}: {outcome}");
    }
    assert!(said[1].contains("nested_syncbench 1x1 unbound failed"), "{outcome}");
    // The results of the other programs and of the other variant are there.
    assert!(outcome.out().contains("better (higher)") && outcome.out().contains("barrier"), "{outcome}");
    let lines = lines(&text(&sandbox.path("record")));
    let failed: Vec<&Value> = of(&lines, "run").into_iter().filter(|run| !run["error"].is_null()).collect();
    assert_eq!(failed.len(), 2, "it is not tried for ever");
    assert_eq!((&failed[0]["stderr"], &failed[0]["report"]), (&"no luck\ntoday".into(), &Value::Null));
    let barrier = of(&lines, "result").into_iter().find(|result| result["figure"] == "barrier").unwrap();
    assert_eq!(barrier["comparison"]["verdict"], "unknown");
    assert_eq!(
        (barrier["unbound"].as_array().unwrap().len(), barrier["bound"].as_array().unwrap().len()),
        (0, 5)
    );
    assert_eq!(of(&lines, "end")[0]["complete"], true);
}

#[test]
fn only_a_valid_report_is_accepted() {
    let sandbox = Sandbox::new();
    for (trouble, why) in [
        ("echo nonsense; exit 0", "not JSON"),
        ("exit 0", "not JSON"),
        ("name=nested_other", "of another run"),
        ("shape=7x7", "of another run"),
        ("value=null", "lacks sum"),
        (
            "echo '{\"kernel\":\"nested_stream\",\"outer\":1,\"inner\":1,\"verified\":false}'; exit 0",
            "not verified",
        ),
        ("exit 1", "its result is wrong"),
        ("kill -9 $$", "signal: 9"),
    ] {
        sandbox.write("trouble", trouble);
        let outcome = bench(&sandbox, "--rounds 1 --shape 1x1 --only stream").ends();
        assert!(outcome.code == Some(2) && outcome.stderr.contains(why), "{trouble}: {outcome}");
        assert!(outcome.out().contains("nothing was measured"), "{outcome}");
    }
}

#[test]
fn an_interrupted_measurement_keeps_its_samples() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sandbox = Sandbox::new();
        // The fourth run does not end by itself.
        sandbox.write("trouble", "[ $(wc -l <log) -lt 4 ] || exec sleep 1000");
        let running = bench(&sandbox, "--shape 1x1 --only stream --json record --svg chart").begins();
        eventually("the fourth run begins", || text(&sandbox.path("log")).lines().count() == 4);
        running.signal(signal);
        let outcome = running.ends();
        assert_eq!(outcome.code, Some(status), "{outcome}");
        assert!(outcome.out().contains("Stopped early") && outcome.out().contains("2.00x"), "{outcome}");
        let lines = lines(&text(&sandbox.path("record")));
        assert_eq!((of(&lines, "run").len(), of(&lines, "result").len()), (3, 2));
        assert_eq!(of(&lines, "end")[0]["complete"], false);
        assert!(text(&sandbox.path("chart")).ends_with("</svg>\n"));
    }
}

#[test]
fn samples_of_a_killed_measurement_are_in_its_record() {
    let sandbox = Sandbox::new();
    sandbox.write("trouble", "[ $(wc -l <log) -lt 3 ] || exec sleep 1000");
    let running = bench(&sandbox, "--shape 1x1 --only stream --json record").begins();
    eventually("the third run begins", || text(&sandbox.path("log")).lines().count() == 3);
    running.signal(Signal::KILL);
    assert_eq!(of(&lines(&text(&sandbox.path("record"))), "run").len(), 2);
}

#[test]
fn missing_programs_are_said_with_how_to_make_them() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let call = || sandbox.lab("bench nested --programs empty");
    call().ends().fails(2, &["nested_stream is not in empty", "make -C bench"]);
    // An installed program without benchmark programs beside it.
    for part in ["trimtab", "trimtab-lab", "trimtab-discover"] {
        let copied = Command::new("cp").arg(trimtab().with_file_name(part)).arg(sandbox.path("")).status();
        assert!(copied.unwrap().success());
    }
    let copy = sandbox.path("trimtab-lab");
    let said = sandbox.lab("bench nested").copy(&copy).ends();
    said.fails(2, &["neither installed beside", "make -C bench", "--programs DIR"]);
}

#[test]
fn installed_programs_are_found() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("prefix/bin")).unwrap();
    for (part, place) in [
        ("trimtab", "bin"),
        ("trimtab-lab", "bin"),
        ("trimtab-discover", "libexec/trimtab"),
        ("libtrimtab_shim.so", "lib/trimtab"),
    ] {
        let place = sandbox.path("prefix").join(place);
        std::fs::create_dir_all(&place).unwrap();
        let copied = Command::new("cp").arg(trimtab().with_file_name(part)).arg(&place).status();
        assert!(copied.unwrap().success());
    }
    sandbox.script("prefix/libexec/trimtab/bench/nested_solver", FAKE_INSTALLED);
    let call = sandbox.lab("bench nested --only solver --shape 1x1 --rounds 1");
    let page = call.copy(&sandbox.path("prefix/bin/trimtab-lab")).ends().ok();
    assert!(page.contains("0.125"), "{page}");
}

const FAKE_INSTALLED: &str = "#!/bin/sh\n\
    echo '{\"kernel\":\"nested_solver\",\"outer\":1,\"inner\":1,\"seconds\":{\"median\":0.125},\"verified\":true}'\n";

#[test]
fn multi_zone_benchmarks_get_their_teams_by_the_variable() {
    const ZONES: &str = "#!/bin/sh\n\
        echo \"${0##*/} $* ${TRIMTAB_HOLD:+bound }$OMP_NUM_THREADS\" >>log\n\
        echo '{\"kernel\":\"lu-mz\",\"outer\":2,\"inner\":1,\"seconds\":0.125,\"verified\":true}'\n";
    let sandbox = Sandbox::new();
    sandbox.script("zones/lu-mz", ZONES);
    let page =
        sandbox.lab("bench nested --only lu-mz --shape 2x1 --rounds 1 --quick --programs zones").ends().ok();
    assert!(page.contains("NAS LU-MZ") && page.contains("0.125"), "{page}");
    let log = text(&sandbox.path("log"));
    let teams: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("lu-mz --json S ")).collect();
    assert!(teams.contains(&"2,1"), "{log}");
    assert!(teams.iter().any(|line| line.starts_with("bound 2,1")), "{log}");
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_runs() {
    let sandbox = Sandbox::new();
    for option in ["--json", "--svg"] {
        let call = bench(&sandbox, &format!("--shape 1x1 {option} no/such/file"));
        call.ends().fails(2, &["cannot write no/such/file"]);
        assert!(!sandbox.path("log").exists());
    }
}

#[test]
fn a_full_disk_costs_the_record_and_not_the_tables() {
    let sandbox = Sandbox::new();
    if !std::path::Path::new("/dev/full").exists() {
        crate::util::skip("there is no /dev/full");
        return;
    }
    let outcome = bench(&sandbox, "--shape 1x1 --only stream --json /dev/full").ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("cannot write /dev/full"), "{outcome}");
    assert!(outcome.out().contains("Stopped early"), "{outcome}");
}

#[test]
fn the_users_thread_number_is_kept_from_the_programs() {
    let sandbox = Sandbox::new();
    let call = bench(&sandbox, "--rounds 1 --shape 1x1 --only stream --json record");
    let page = call.env("OMP_NUM_THREADS", "7").env("OMP_SCHEDULE", "dynamic").ends().ok();
    let log = text(&sandbox.path("log"));
    assert!(log.contains("unbound unset") && !log.contains(" 7"), "{log}");
    // Other variables of the runtime are left to the user, and reported.
    assert!(page.contains("OMP_SCHEDULE=dynamic is set for both"), "{page}");
    let lines = lines(&text(&sandbox.path("record")));
    assert_eq!(of(&lines, "start")[0]["environment"], serde_json::json!({"OMP_SCHEDULE": "dynamic"}));
}

#[test]
fn absurd_options_are_refused() {
    let sandbox = Sandbox::new();
    for option in
        ["--rounds 0", "--rounds 1001", "--shape 0x1", "--shape 4", "--only cg", "--init nobody", "--seed -1"]
    {
        let outcome = sandbox.lab(&format!("bench nested {option}")).ends();
        assert!(outcome.code == Some(2) && outcome.stdout.is_empty(), "{option}: {outcome}");
    }
    let help = sandbox.lab("bench nested --help").ends().ok();
    assert!(help.contains("Examples:") && help.contains("make -C bench"), "{help}");
}

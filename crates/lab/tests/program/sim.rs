//! `trimtab sim`: scenario files run, swept, recorded and drawn; equal output for any number of
//! jobs; and invalid files.

use crate::util::{Sandbox, text};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use trimtab_front::chart::text::faults;

const SMALL: &str = "machine = 'core:2'\nkernel = 'linux-6.12'\nend = '1 s'\n\
    [[program]]\nname = 'app'\nthreads = 3\nwork = '10 ms'\n";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sim")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn each_example_runs_to_its_end() {
    let sandbox = Sandbox::new();
    let mut runs = BTreeMap::new();
    for entry in fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        let out = sandbox.lab("sim --json").arg(&path).ends().ok();
        let all = lines(&out);
        for line in &all {
            let programs = line["outcome"]["programs"].as_array().unwrap();
            let ended = programs.iter().filter(|program| !program["makespan"].is_null()).count();
            assert!(ended * 10 >= programs.len() * 9, "{}: {line}", path.display());
            for program in programs {
                let ratio = program["ratio"].as_f64().unwrap_or(1.0);
                assert!(ratio >= 0.999, "nothing is faster than the ideal: {}: {program}", path.display());
            }
        }
        runs.insert(path.file_stem().unwrap().to_str().unwrap().to_owned(), all.len());
    }
    let wanted = [
        ("arrivals", 9),
        ("brm", 4),
        ("budget", 2),
        ("hog", 4),
        ("oversubscription", 12),
        ("speed-against-load", 36),
        ("three-on-two", 24),
        ("vm-credit", 4),
    ];
    assert_eq!(runs, wanted.map(|(name, count)| (name.to_owned(), count)).into());
}

#[test]
fn examples_show_the_effects_in_their_comments() {
    let sandbox = Sandbox::new();
    let ratio = |file: &str, set: &[&str]| {
        let mut call = sandbox.lab("sim --json").arg(examples().join(file));
        for set in set {
            call = call.args(["--set", set]);
        }
        let all = lines(&call.ends().ok());
        assert_eq!(all.len(), 1);
        all[0]["outcome"]["programs"][0]["ratio"].as_f64().unwrap()
    };
    let three = |kernel: &str, policy: &str| {
        let set = [format!("kernel={kernel}"), format!("policy={policy}")];
        let wait = "program.app.wait=sleep";
        ratio("three-on-two.toml", &[&set[0], &set[1], wait])
    };
    assert!((three("linux-2.6.28", "none") - 4.0 / 3.0).abs() < 0.02);
    assert!(three("linux-6.18", "none") < 1.2);
    let hog = |policy: &str| ratio("hog.toml", &[&format!("policy={policy}")]);
    assert!(hog("exchange") < hog("none"));
    let speed = |variant: &str| {
        ratio("speed-against-load.toml", &["program.app.mask=0-13", &format!("variant={variant}")])
    };
    assert!((speed("LOAD") - 2.0).abs() < 0.01 && speed("SPEED") < 1.3);
}

#[test]
fn equal_scenarios_give_equal_bytes_whatever_the_number_of_jobs() {
    let sandbox = Sandbox::new();
    let scenario = examples().join("three-on-two.toml");
    let mut seen = Vec::new();
    for jobs in ["1", "2", "7"] {
        let traces = format!("traces-{jobs}/");
        let svg = sandbox.path(&format!("{jobs}.svg"));
        let call = sandbox.lab("sim --json --jobs").args([jobs, "--trace", &traces]);
        let out = call.arg("--svg").arg(&svg).arg(&scenario).ends().ok();
        let mut files: Vec<(String, String)> = fs::read_dir(sandbox.path(&traces))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), text(&path)))
            .collect();
        files.sort();
        assert_eq!((files.len(), files[0].0.as_str()), (24, "three-on-two-01.trace"));
        seen.push((out, files, text(&svg)));
    }
    assert!(seen[0] == seen[1] && seen[1] == seen[2], "runs differ with the number of jobs");
    let runs: Vec<u64> = lines(&seen[0].0).iter().map(|line| line["run"].as_u64().unwrap()).collect();
    assert!(runs.iter().copied().eq(1..=24), "in the order of the sweep: {runs:?}");
}

#[test]
fn the_order_of_a_sweep_is_that_of_the_file_and_lines_have_the_settings() {
    let sandbox = Sandbox::new();
    let sweep = format!("{SMALL}[sweep]\nseed = [4, 5]\nprogram.app.threads = [1, 2]\n");
    let file = sandbox.write("x.toml", sweep);
    let all = lines(&sandbox.lab("sim --json").arg(&file).ends().ok());
    let set: Vec<String> = all.iter().map(|line| line["set"].to_string()).collect();
    let wanted = [("1", "4"), ("2", "4"), ("1", "5"), ("2", "5")]
        .map(|(threads, seed)| format!("{{\"program.app.threads\":\"{threads}\",\"seed\":\"{seed}\"}}"));
    assert_eq!(set, wanted);
    assert_eq!(
        (&all[2]["seed"], &all[0]["schema"], &all[0]["scenario"]),
        (&5.into(), &"trimtab.sim/1".into(), &"x".into())
    );
    let table = sandbox.lab("sim").arg(&file).ends().ok();
    assert!(
        table.contains("x.toml: 4 runs over seed, program.app.threads\nseed  program.app.threads  makespan"),
        "{table}"
    );
    // The seed of the command line replaces those of the file.
    let all = lines(&sandbox.lab("sim --json --seed 9").arg(&file).ends().ok());
    assert!(all.len() == 2 && all.iter().all(|line| line["seed"] == 9), "{all:?}");
}

#[test]
fn scenarios_come_from_standard_input_and_many_at_once() {
    let sandbox = Sandbox::new();
    let out = sandbox.lab("sim --json -").input(SMALL).ends().ok();
    assert_eq!(lines(&out)[0]["scenario"], "standard input");
    let (one, two) = (sandbox.write("one.toml", SMALL), sandbox.write("two.toml", SMALL));
    let table = sandbox.lab("sim").args([&one, &two]).ends().ok();
    assert!(table.find("one.toml\n").unwrap() < table.find("two.toml\n").unwrap(), "{table}");
    assert_eq!(table.matches("\napp            3").count(), 2, "{table}");
    let traces = sandbox.path("traces");
    sandbox.lab("sim --trace").args([&traces, &one, &two]).ends().ok();
    assert!(traces.join("one.trace").is_file() && traces.join("two.trace").is_file());
    fs::create_dir(sandbox.path("other")).unwrap();
    let same = sandbox.write("other/one.toml", SMALL);
    let ends = sandbox.lab("sim --trace").args([&traces, &one, &same]).ends();
    ends.fails(2, &["two scenarios are called one"]);
}

#[test]
fn machine_files_lie_beside_the_scenario() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("sub")).unwrap();
    let machine = sandbox.lab("sim machines host-2").ends().ok();
    assert!(machine.contains("[source]"), "{machine}");
    sandbox.write("sub/own.toml", machine.replace("name = \"host-2\"", "name = \"own\""));
    let file = sandbox.write("sub/x.toml", SMALL.replace("core:2", "own.toml"));
    assert!(sandbox.lab("sim --json").arg(&file).ends().ok().contains("\"complete\":true"));
    let lost = sandbox.write("x.toml", SMALL.replace("core:2", "own.toml"));
    sandbox
        .lab("sim")
        .arg(&lost)
        .ends()
        .fails(2, &["x.toml:1: machine = 'own.toml'", "cannot read", "No such file"]);
    sandbox.write("own.toml", "name = 'x'\ntopology = 'core:0'\n");
    sandbox
        .lab("sim")
        .arg(&lost)
        .ends()
        .fails(2, &["own.toml:2: topology = 'core:0'", "not a count of at least 1"]);
}

#[test]
fn shipped_machines_are_listed_and_printed() {
    let sandbox = Sandbox::new();
    let list = sandbox.lab("sim machines").ends().ok();
    let names: Vec<&str> = list.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 11 && names.contains(&"epyc-9654-nps4"), "{list}");
    for name in names {
        let file = sandbox.lab("sim machines").arg(name).ends().ok();
        assert!(file.contains(&format!("name = \"{name}\"")), "{file}");
        let scenario = SMALL.replace("core:2", name);
        assert!(
            sandbox.lab("sim --json -").input(scenario).ends().ok().contains("\"complete\":true"),
            "{name}"
        );
    }
    sandbox.lab("sim machines pdp-11").ends().fails(2, &["pdp-11", "host-2"]);
}

#[test]
fn traces_open_like_live_ones() {
    let sandbox = Sandbox::new();
    let scenario = examples().join("hog.toml");
    let trace = sandbox.path("hog.trace");
    let record = |policy: &str| {
        let set = format!("policy={policy}");
        sandbox.lab("sim --set").args([&set, "--trace"]).arg(&trace).arg(&scenario).ends().ok();
    };
    record("exchange");
    let replayed = sandbox.trimtab("replay --check").arg(&trace).ends().ok();
    assert!(replayed.contains("every turn is equal"), "{replayed}");
    let page = sandbox.path("hog.html");
    sandbox.trimtab("report").arg(&trace).arg("-o").arg(&page).ends().ok();
    assert!(text(&page).starts_with("<!doctype html>"));
    let report: Value =
        serde_json::from_str(&sandbox.trimtab("report --json").arg(&trace).ends().ok()).unwrap();
    assert_eq!(report["programs"][0]["name"], "app", "{report}");
    let top = sandbox.trimtab("top --once --replay").arg(&trace).ends().ok();
    assert!(top.contains("app") && top.contains("4 threads"), "{top}");
    // A run without a policy is observed, too; an earlier trace is overwritten.
    record("none");
    let text = text(&trace);
    assert!(text.contains("\"policy\":\"float\"") && text.trim_end().ends_with("\"}}"), "{}", &text[..200]);
    assert!(!text.contains("decisions"), "float touches nothing");
}

#[test]
fn pictures_show_a_line_for_each_combination_of_the_other_keys() {
    let sandbox = Sandbox::new();
    let svg = sandbox.path("x.svg");
    let scenario = format!(
        "{SMALL}[sweep]\nprogram.app.threads = [1, 2, 4]\npolicy = ['none', 'speed']\nseed = [1, 2]\n"
    );
    let file = sandbox.write("x.toml", scenario);
    let draw = |value: &str| {
        sandbox.lab("sim --value").args([value, "--svg"]).arg(&svg).arg(&file).ends().ok();
        text(&svg)
    };
    let picture = draw("makespan");
    assert!(picture.starts_with("<svg xmlns=") && picture.trim_end().ends_with("</svg>"), "{picture}");
    assert_eq!(faults(&picture), Vec::<String>::new());
    assert_eq!(picture.matches("<title>").count(), 6, "three points each");
    assert!(picture.contains(">none</text>") && picture.contains(">speed</text>"), "{picture}");
    assert_eq!(draw("makespan"), picture, "written over, and the same");
    assert_ne!(draw("moves"), picture);
    fs::write(&svg, "mine").unwrap();
    let ends = sandbox.lab("sim --svg").args([&svg, &file]).ends();
    ends.fails(2, &["--svg", "not a picture of trimtab", "would be lost"]);
    let single = sandbox.write("single.toml", SMALL);
    let ends = sandbox.lab("sim --svg").arg(sandbox.path("y.svg")).arg(&single).ends();
    ends.fails(2, &["single.toml is a single run", "[sweep]"]);
    let many: Vec<String> = (10..30).map(|ms| format!("'{ms} ms'")).collect();
    let many = format!("program.app.work=[{}]", many.join(", "));
    let ends = sandbox.lab("sim --svg").arg(sandbox.path("y.svg")).args(["--set", &many]).arg(&file).ends();
    ends.fails(2, &["40 lines", "14 are allowed"]);
    sandbox.lab("sim --value height").arg(&file).ends().fails_with(2, "known: makespan, ratio");
}

#[test]
fn ctrl_c_ends_it_with_the_finished_runs() {
    let sandbox = Sandbox::new();
    // The second run takes long: a day with a context switch every microsecond.
    let long =
        SMALL.replace("work = '10 ms'", "work = '10 ms'\ninterval = '1 us'").replace("'1 s'", "'86400 s'");
    let file = sandbox.write("x.toml", format!("{long}[sweep]\nprogram.app.work = ['1 ms', '80000 s']\n"));
    let mut running = sandbox.lab("sim --json --jobs 2").arg(&file).begins();
    running.lines(1);
    running.signal(Signal::INT);
    let ended = running.ends();
    assert_eq!((ended.code, lines(&ended.out()).len()), (Some(130), 1), "{ended}");
    let mut running = sandbox.lab("sim --jobs 1").arg(&file).begins();
    // The first run may or may not be finished by then; the command ends in any case.
    assert!(running.lives());
    std::thread::sleep(std::time::Duration::from_millis(200));
    running.signal(Signal::INT);
    let ended = running.ends();
    assert!(ended.code == Some(130) && ended.out().contains("of 2 runs until the interruption"), "{ended}");
}

#[test]
fn files_that_are_no_scenarios_are_refused_by_name() {
    let sandbox = Sandbox::new();
    let refuse = |name: &str, text: &[u8], words: &[&str]| {
        let file = sandbox.write(name, text);
        let mut all = vec![name];
        all.extend(words);
        sandbox.lab("sim").arg(&file).ends().fails(2, &all);
    };
    refuse("empty.toml", b"", &["machine: is missing"]);
    refuse("binary.toml", b"\xff\xfe", &["is not text"]);
    refuse("toml.toml", b"machine = [", &["toml.toml:1:"]);
    refuse("cores.toml", SMALL.replace("core:2", "core:0").as_bytes(), &["machine = 'core:0'"]);
    refuse(
        "many.toml",
        SMALL.replace("= 3", "= 1_000_000_000").as_bytes(),
        &["program.app.threads", "65536"],
    );
    refuse("end.toml", SMALL.replace("'1 s'", "'-1 s'").as_bytes(), &["end = '-1 s'"]);
    refuse("nan.toml", format!("{SMALL}jitter = nan\n").as_bytes(), &["jitter = nan", "from 0 to 1"]);
    refuse("key.toml", format!("{SMALL}jiter = 0.1\n").as_bytes(), &["program.app.jiter", "jitter"]);
    refuse("sweep.toml", format!("{SMALL}[sweep]\nseed = 1\n").as_bytes(), &["sweep.seed"]);
    refuse("long.toml", " ".repeat(5 << 20).as_bytes(), &["more than the 4194304 allowed"]);
    sandbox.lab("sim nowhere.toml").ends().fails(2, &["cannot read nowhere.toml"]);
    sandbox.lab("sim .").ends().fails(2, &["cannot read .: it is a folder"]);
    sandbox.lab("sim /dev/zero").ends().fails(2, &["/dev/zero", "more than the 4194304 allowed"]);
    sandbox.lab("sim").ends().fails_with(2, "<SCENARIO.toml>...");
    let file = sandbox.write("x.toml", SMALL);
    for (option, words) in [
        ("--set policy", &["--set policy:", "KEY=VALUE"][..]),
        ("--set policy=magic", &["--set policy=magic: policy = magic", "\"exchange\""]),
        ("--set program.app.wait=nap", &["program.app.wait = nap", "\"sleep\""]),
    ] {
        sandbox.lab(&format!("sim {option}")).arg(&file).ends().fails(2, words);
    }
    sandbox.lab("sim --jobs 0").arg(&file).ends().fails_with(2, "--jobs");
    sandbox.lab("sim --seed=-1").arg(&file).ends().fails_with(2, "--seed");
    let swept = sandbox.write("swept.toml", format!("{SMALL}[sweep]\nseed = [1, 2]\n"));
    let ends = sandbox.lab("sim --trace").arg(&file).arg(&swept).ends();
    ends.fails(2, &["2 runs need a folder"]);
    let ends = sandbox.lab("sim --trace").arg(&file).arg(&file).ends();
    ends.fails(2, &["--trace", "is not a trace", "would be lost"]);
    assert_eq!(text(&file), SMALL, "what is there stays");
}

#[test]
fn values_with_a_common_beginning_are_distinguished() {
    let sandbox = Sandbox::new();
    let long =
        |ms: u32| format!("{{ kind = 'speed', metric = 'run-wait', threshold = 0.9, interval = '{ms} ms' }}");
    let sweep = format!("[sweep]\nprogram.app.threads = [1, 2]\npolicy = [{}, {}]\n", long(10), long(20));
    let file = sandbox.write("x.toml", format!("{SMALL}{sweep}"));
    let all = lines(&sandbox.lab("sim --json").arg(&file).ends().ok());
    assert_eq!((&all[0]["set"]["policy"], &all[1]["set"]["policy"]), (&long(10).into(), &long(20).into()));
    let shown = |place: u32| format!("{}... ({place})", &long(10)[..40]);
    let table = sandbox.lab("sim").arg(&file).ends().ok();
    assert_eq!((table.matches(&shown(1)).count(), table.matches(&shown(2)).count()), (2, 2), "{table}");
    let picture = sandbox.lab("sim --svg -").arg(&file).ends().ok();
    assert_eq!(picture.matches("class=\"line\"").count(), 4, "two curves, and their legends");
    // Names with dots can be swept in the file and by option.
    let dotted = SMALL.replace("'app'", "'a.b'");
    let key = "program.\"a.b\".threads";
    let file = sandbox.write("x.toml", format!("{dotted}[sweep]\n{key} = [1, 2]\n"));
    let all = lines(&sandbox.lab("sim --json").arg(&file).ends().ok());
    assert_eq!((all.len(), &all[1]["set"][key]), (2, &"2".into()));
    let set = format!("{key}=[1, 2, 4]");
    let all = lines(&sandbox.lab("sim --json --set").args([&set]).arg(&file).ends().ok());
    assert_eq!((all.len(), &all[2]["set"][key]), (3, &"4".into()));
}

#[test]
fn a_minus_is_standard_output_and_has_room_for_one() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("x.toml", SMALL);
    let swept = sandbox.write("swept.toml", format!("{SMALL}[sweep]\nseed = [1, 2]\n"));
    let trace = sandbox.lab("sim --set policy=auto --trace -").arg(&file).ends().ok();
    assert!(trace.starts_with("{\"header\""), "{trace}");
    let replayed = sandbox.trimtab("replay --check -").input(&trace).ends().ok();
    assert!(replayed.contains("every turn is equal"), "{replayed}");
    let picture = sandbox.lab("sim --value ratio --svg -").arg(&swept).ends().ok();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
    assert_eq!(faults(&picture), Vec::<String>::new());
    for (options, words) in [
        ("--trace -", &["--trace -", "2 runs need a folder"][..]),
        ("--trace - --json", &["--trace - and --json", "standard output"]),
        ("--svg - --json", &["--svg - and --json"]),
        ("--svg - --trace -", &["--svg - and --trace -"]),
    ] {
        sandbox.lab(&format!("sim {options}")).arg(&swept).ends().fails(2, words);
    }
    sandbox.lab("sim - -").input(SMALL).ends().fails(2, &["standard input is given twice"]);
    assert!(!sandbox.path("-").exists());
    sandbox.lab("sim --check --value ratio").arg(&swept).ends().fails_with(2, "--value <VALUE>");
    sandbox.lab("sim --value ratio").arg(&swept).ends().fails_with(2, "--svg <FILE>");
}

#[test]
fn settings_of_a_variant_concern_it_alone() {
    let sandbox = Sandbox::new();
    let scenario = examples().join("speed-against-load.toml");
    let all = ["--set policy=auto: policy: the variant LOAD sets policy itself", "--set variant=NAME"];
    sandbox.lab("sim --set policy=auto").arg(&scenario).ends().fails(2, &all);
    let kept = ["--set policy=auto", "--set variant=DWRR", "--set program.app.mask=0-4", "--json"].join(" ");
    let lines = lines(&sandbox.lab(&format!("sim {kept}")).arg(&scenario).ends().ok());
    assert!(
        lines.iter().all(|line| line["policy"] == "auto" && line["set"]["variant"] == "DWRR"),
        "{lines:?}"
    );
}

#[test]
fn a_recorded_run_becomes_a_scenario() {
    let sandbox = Sandbox::new();
    // Policies that watch read how often threads sleep.
    let long = "'5 s'\ninterval = '10 ms'\nwait = 'sleep'";
    let text = SMALL.replace("'10 ms'", long).replace("'1 s'", "'60 s'\npolicy = 'auto'");
    let file = sandbox.write("a.toml", text);
    let trace = sandbox.path("run.trace");
    sandbox.lab("sim --trace").arg(&trace).arg(&file).ends().ok();
    let made = sandbox.lab("sim --from").arg(&trace).ends().ok();
    assert!(made.contains("# Threads meet at barriers only") && made.contains("threads = 3"), "{made}");
    let again = sandbox.write("again.toml", &made);
    let lasted = |file: &Path| {
        let line = &lines(&sandbox.lab("sim --json").arg(file).ends().ok())[0];
        line["outcome"]["programs"][0]["makespan"].as_f64().unwrap()
    };
    let (recorded, simulated) = (lasted(&file), lasted(&again));
    assert!((simulated / recorded - 1.0).abs() < 0.1, "{simulated} instead of {recorded}");
    sandbox.lab("sim --from").arg(&file).ends().fails(2, &["a.toml", "not a trimtab trace"]);
    sandbox.lab("sim --from").arg(&trace).arg("--from").arg(&trace).ends().fails(2, &["one of each"]);
    sandbox.lab("sim --kernel minix --from").arg(&trace).ends().fails(2, &["minix", "linux-6.18"]);
    sandbox.lab("sim --from").arg(&trace).arg(&file).ends().fails_with(2, "cannot be used with");
}

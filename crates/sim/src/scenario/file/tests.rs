use super::*;
use crate::faults::Faults;
use crate::kernel::{Kernel, SchedulerKind};
use crate::observer_cost::ObserverCost;
use crate::program::{Bind, Body, Footprint, ProgramSpec, WaitMode};
use crate::scenario::Happening;
use trimtab_core::balance::Kind;
use trimtab_core::topology::parse_synthetic;

pub(super) const SMALL: &str = "machine = 'core:2'\nkernel = 'linux-6.12'\nend = '1 s'\n\
    [[program]]\nname = 'app'\nthreads = 3\nwork = '10 ms'\n";

pub(super) fn open(text: &str, set: &[&str]) -> Result<File, FileError> {
    let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
    File::open("x.toml", text, &set, &mut |path| Err(format!("{path} is not there")))
}

pub(super) fn one(text: &str, set: &[&str]) -> Scenario {
    let file = open(text, set).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(file.len(), 1);
    file.scenario(0).unwrap()
}

#[track_caller]
pub(super) fn refused(text: &str, set: &[&str], words: &[&str]) {
    let error = open(text, set).map(|_| ()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    for word in words {
        assert!(error.contains(word), "\"{word}\" is missing: {error}");
    }
}

#[test]
fn a_small_file_says_all_that_is_needed() {
    let scenario = one(SMALL, &[]);
    assert_eq!(scenario.name, "x");
    let wanted = Scenario {
        name: "x".to_owned(),
        model: Model::plain(parse_synthetic("core:2").unwrap()),
        memory: true,
        kernel: Kernel::preset("linux-6.12", 2).unwrap(),
        programs: vec![ProgramSpec::spmd("app", 3, Span::from_ms(10), WaitMode::Spin)],
        arrivals: Vec::new(),
        policy: None,
        events: Vec::new(),
        faults: Faults::default(),
        observer_cost: ObserverCost::default(),
        end: Moment(1_000_000_000),
        seed: 1,
    };
    assert_eq!(scenario, wanted);
}

#[test]
fn every_key_can_be_set_and_swept() {
    let scenario = one(
        SMALL,
        &[
            "program.app.threads=5",
            "policy=speed",
            "policy.interval=20 ms",
            "seed=9",
            "kernel.slice = 2ms",
            "name=other",
        ],
    );
    assert_eq!((scenario.programs[0].threads, scenario.seed, scenario.name.as_str()), (5, 9, "other"));
    let (kind, settings) = scenario.policy.unwrap();
    assert_eq!((kind, settings.interval, settings.seed), (Kind::Speed, Span::from_ms(20), 9));
    assert_eq!(scenario.kernel.slice, Span::from_ms(2));
    let text = format!(
        "{SMALL}[sweep]\nprogram.1.threads = [2, 3]\n'policy' = ['none', {{ kind = 'speed', interval = '10 ms' }}]\n"
    );
    let file = open(&text, &["machine.cores.speed=[1, [1, 0.5]]"]).unwrap();
    let keys: Vec<&str> = file.axes().iter().map(|axis| axis.key.as_str()).collect();
    assert_eq!(keys, ["program.1.threads", "policy", "machine.cores.speed"]);
    assert_eq!((file.len(), file.places(0), file.places(5)), (8, vec![0, 0, 0], vec![1, 0, 1]));
    let last = file.scenario(7).unwrap();
    assert_eq!((last.programs[0].threads, &last.model.speeds[..]), (3, &[1.0, 0.5][..]));
    assert_eq!(last.policy.unwrap().1.interval, Span::from_ms(10));
    assert_eq!(file.axes()[1].values, ["none", "{ kind = 'speed', interval = '10 ms' }"]);
    // A setting replaces a sweep; a word of a table leaves its other keys.
    let file = open(&text, &["policy=exchange", "program.1.threads=[7]"]).unwrap();
    assert_eq!((file.len(), file.axes()[0].key.as_str()), (1, "program.1.threads"));
    let table = format!("{SMALL}[policy]\nkind = 'speed'\ninterval = '30 ms'\n");
    let (kind, settings) = one(&table, &["policy=exchange"]).policy.unwrap();
    assert_eq!((kind, settings.interval), (Kind::Exchange, Span::from_ms(30)));
}

#[test]
fn variants_set_several_keys_at_once() {
    let text = format!(
        "{SMALL}[sweep]\nvariant = [\n {{ name = 'LOAD', kernel = 'linux-2.6.28', 'program.app.wait' = 'yield' }},\n \
         {{ name = 'SPEED', policy = 'speed', program.app.wait = 'sleep' }} ]\nseed = [4, 5]\n"
    );
    let file = open(&text, &[]).unwrap();
    assert_eq!(
        file.axes()[0],
        Axis { key: "variant".to_owned(), values: vec!["LOAD".to_owned(), "SPEED".to_owned()] }
    );
    let runs: Vec<Scenario> = (0..4).map(|run| file.scenario(run).unwrap()).collect();
    assert_eq!((runs[0].kernel.kind, runs[2].kernel.kind), (SchedulerKind::Load, SchedulerKind::Eevdf));
    assert_eq!((runs[1].programs[0].wait, runs[3].programs[0].wait), (WaitMode::Yield, WaitMode::Sleep));
    assert_eq!((runs[1].seed, runs[2].seed, runs[0].name.as_str()), (5, 4, "x"));
    // One of them, by its name, and another order.
    let one = open(&text, &["variant=SPEED"]).unwrap();
    assert_eq!((one.len(), &one.axes()[0].values[..]), (2, &["SPEED".to_owned()][..]));
    assert!(one.scenario(0).unwrap().policy.is_some());
    let turned = open(&text, &["variant=['SPEED', 'LOAD']", "seed=3"]).unwrap();
    assert_eq!(turned.scenario(1).unwrap().kernel.kind, SchedulerKind::Load);
    refused(&text, &["variant=BRM"], &["--set variant=BRM: variant = BRM", "there are LOAD, SPEED"]);
    refused(
        &format!("{SMALL}[sweep]\nvariant = [{{ policy = 'speed' }}]\n"),
        &[],
        &["x.toml:9: sweep.variant", "name"],
    );
}

#[test]
fn programs_can_be_many_and_share_out_work() {
    let text = SMALL
        .replace("work = '10 ms'", "total_work = '30 ms'\ncount = 3\nstart = '5 ms'\nbind = ['0', '0-1']");
    let scenario = one(&text, &[]);
    let names: Vec<&str> = scenario.programs.iter().map(|program| program.name.as_str()).collect();
    assert_eq!(names, ["app 1", "app 2", "app 3"]);
    let third = &scenario.programs[2];
    assert!(matches!(third.body, Body::Spmd { work, .. } if work == Span::from_ms(10)), "{third:?}");
    assert_eq!(third.start, Moment(5_000_000));
    let event =
        format!("{text}[[event]]\nat = '2 ms'\nstop = 'app 2'\n[[event]]\nat = '1 ms'\nusable = '0'\n");
    let events = one(&event, &[]).events;
    assert_eq!(
        (&events[1].what, events[0].at),
        (&Happening::Stop(1), Moment(1_000_000)),
        "the earliest first"
    );
}

#[test]
fn programs_can_be_like_benchmarks() {
    let text = SMALL.replace("work = '10 ms'", "profile = 'cg'").replace("name = 'app'\n", "");
    let cg = &one(&text, &[]).programs[0];
    let profile = crate::program::nas::find("cg").unwrap().program(3, WaitMode::Spin, f64::INFINITY);
    assert_eq!(*cg, ProgramSpec { name: "cg".to_owned(), ..profile.clone() });
    let set = ["program.1.total_work=30 ms", "program.1.jitter=0", "program.1.footprint.misses=1"];
    let changed = &one(&text, &set).programs[0];
    assert!(matches!(changed.body, Body::Spmd { work, jitter: 0.0, .. } if work == Span::from_ms(10)));
    assert_eq!(changed.footprint, Footprint { misses: 1.0, ..profile.footprint });
    refused(&text, &["program.1.profile=xx"], &["profile = xx", "\"ep\", \"cg\""]);
    refused(&text, &["program.1.kind=hog"], &["profile", "contradicts kind"]);
}

#[test]
fn machines_are_shipped_read_described_or_changed() {
    let named = SMALL.replace("core:2", "host-2");
    assert_eq!(one(&named, &[]).model.machine.name(), "host-2");
    assert_eq!(one(&named, &["machine.memory.local_ns=200"]).model.memory.local_ns, 200.0);
    let elsewhere = SMALL.replace("core:2", "my/own.toml");
    refused(&elsewhere, &[], &["x.toml:1: machine = 'my/own.toml'", "my/own.toml is not there"]);
    let mut asked = Vec::new();
    let mut find = |path: &str| {
        asked.push(path.to_owned());
        Ok(crate::model::shipped::SHIPPED[0].text.to_owned())
    };
    let file = File::open("x.toml", &format!("{elsewhere}[sweep]\nseed = [1, 2]\n"), &[], &mut find).unwrap();
    assert_eq!(file.scenario(1).unwrap().model.machine.name(), "barcelona-8350");
    assert_eq!(asked, ["my/own.toml"], "once");
    let mut bad = |_: &str| Ok("name = 'x'\n".to_owned());
    let error = File::open("x.toml", &elsewhere, &[], &mut bad).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("my/own.toml:1: topology: is missing"), "{error}");
}

/// The small scenario with one text in the place of another.
fn swap(from: &str, to: &str) -> String {
    SMALL.replace(from, to)
}

#[test]
fn a_wrong_value_is_named_with_the_allowed_ones() {
    refused("machine = ", &[], &["x.toml:1:"]);
    refused("", &[], &["machine: is missing", "host-2", "pack:2 core:4"]);
    refused(&swap("core:2", "pdp-11"), &[], &["x.toml:1: machine = 'pdp-11'", "tigerton-e7310"]);
    refused(&swap("core:2", "core:0"), &[], &["machine = 'core:0'", "not a count of at least 1"]);
    refused(&swap("linux-6.12", "linux-7"), &[], &["x.toml:2: kernel = 'linux-7'", "linux-6.18"]);
    refused(&swap("end = '1 s'", ""), &[], &["end: is missing", "86400 s"]);
    refused(&swap("'1 s'", "'-1 s'"), &[], &["x.toml:3: end = '-1 s'", "times from \"1 us\" to \"86400 s\""]);
    refused(&swap("'1 s'", "60"), &[], &["end = 60", "units: ns, us"]);
    refused(
        &swap("threads = 3", "threads = 0"),
        &[],
        &["x.toml:6: program.app.threads = 0", "threads from 1 to 65536"],
    );
    refused(
        &swap("threads = 3", "threads = 1_000_000_000"),
        &[],
        &["program.app.threads", "threads from 1 to"],
    );
    refused(&swap("threads = 3", "threads = 3.5"), &[], &["threads = 3.5"]);
    refused(&swap("threads = 3", "thread = 3"), &[], &["program.app.threads: is missing"]);
    refused(
        &swap("'10 ms'", "'10 ms'\nfoo = 1"),
        &[],
        &["x.toml:8: program.app.foo = 1", "is unknown here", "interval"],
    );
    refused(&swap("'10 ms'", "'10 ms'\njitter = nan"), &[], &["jitter = nan", "from 0 to 1"]);
    refused(&swap("'10 ms'", "'10 ms'\nimbalance = 2"), &[], &["imbalance = 2"]);
    refused(&swap("'10 ms'", "'10 ms'\ntotal_work = '1 s'"), &[], &["total_work", "contradicts work"]);
    refused(
        &swap("'10 ms'", "'10 ms'\nwait = 'spin'\nspin_for = '1 s'"),
        &[],
        &["spin_for", "contradicts wait"],
    );
    refused(&swap("'10 ms'", "'10 ms'\nwait = 'nap'"), &[], &["wait = 'nap'", "\"spin-then-sleep\""]);
    refused(&swap("'10 ms'", "'10 ms'\nmask = '0-7'"), &[], &["mask = '0-7'", "\"0-1\" or some of them"]);
    refused(&swap("'10 ms'", "'10 ms'\nbind = ['0', '9']"), &[], &["bind = ['0', '9']"]);
    refused(&swap("'10 ms'", "'10 ms'\nbind = []"), &[], &["bind = []"]);
    refused(
        &swap("'10 ms'", "'10 ms'\nbegin_on = ['0']\nbind = 'close'"),
        &[],
        &["begin_on", "contradicts bind"],
    );
    refused(
        &swap("'10 ms'", "'10 ms'\n[program.footprint]\npages = 'node 1'"),
        &[],
        &["footprint.pages", "\"node 0\""],
    );
    refused(&swap("'10 ms'", "'10 ms'\n[program.footprint]\nworking_set = '9999T'"), &[], &["working_set"]);
    refused(&swap("'10 ms'", "'10 ms'\ncount = 40000"), &[], &["count = 40000"]);
    refused(&swap("threads = 3", "threads = 60000\ncount = 2"), &[], &["120000 threads"]);
    refused(&swap("'10 ms'", "'10 ms'\nkind = 'hog'"), &[], &["program.app.work", "is unknown here"]);
    refused(&swap("[[program]]", "[program]"), &[], &["program", "[[program]]"]);
}

#[test]
fn faults_of_policies_events_and_arrivals_are_named_too() {
    refused(&format!("seed = -1\n{SMALL}"), &[], &["seed = -1"]);
    refused(&format!("policy = 'magic'\n{SMALL}"), &[], &["policy = 'magic'", "\"none\"", "\"exchange\""]);
    refused(
        &format!("{SMALL}[policy]\nkind = 'speed'\ninterval = '1 us'\n"),
        &[],
        &["policy.interval", "\"1 ms\""],
    );
    refused(
        &format!("{SMALL}[faults]\nlost = 1.5\n"),
        &[],
        &["faults.lost = 1.5", "probabilities from 0 to 1"],
    );
    refused(&format!("{SMALL}[[event]]\nat = '0.5 s'\n"), &[], &["event.1.at", "usable, stop and start"]);
    refused(
        &format!("{SMALL}[[event]]\nat = '0.5 s'\nstop = 'ap'\n"),
        &[],
        &["event.1.stop = 'ap'", "there are app"],
    );
    refused(&format!("{SMALL}[[event]]\nat = '0.5 s'\nstop = 2\n"), &[], &["event.1.stop = 2"]);
    refused(
        &format!("{SMALL}[[arrivals]]\nevery = '0 s'\nmost = 1\n"),
        &[],
        &["arrivals.1.every", "times from"],
    );
    refused(&format!("{SMALL}[kernel]\npreset = 'linux-6.1'\n"), &[], &["x.toml:8", "duplicate key"]);
    refused(
        &swap("kernel = 'linux-6.12'", "kernel = { preset = 'linux-6.1', slice = '0 s' }"),
        &[],
        &["kernel.slice"],
    );
    refused(&swap("'core:2'", "{ cores = {} }"), &[], &["x.toml:1: machine.name: is missing"]);
}

#[test]
fn sweeps_and_settings_are_checked_too() {
    let sweep = |line: &str| format!("{SMALL}[sweep]\n{line}\n");
    refused(&sweep("seed = 3"), &[], &["x.toml:9: sweep.seed = 3", "a list of 1 to 1000 values"]);
    refused(&sweep("seed = []"), &[], &["sweep.seed"]);
    refused(&format!("sweep = 3\n{SMALL}"), &[], &["sweep = 3", "[sweep]"]);
    refused(&sweep("program.app.threads = [1, 0]"), &[], &["x.toml:9: program.app.threads = 0"]);
    refused(&sweep("program.foo.threads = [1]"), &[], &["no program is called foo; there are app"]);
    refused(&sweep("end.x = ['1 s']"), &[], &["end.x", "no keys below it"]);
    refused(&sweep("program.app = [3]"), &[], &["program.app is a section"]);
    refused(&sweep("nothing = [3]"), &[], &["x.toml:9: nothing = 3", "is unknown here"]);
    let many: Vec<String> = (0..101).map(|seed| seed.to_string()).collect();
    let many = many.join(", ");
    let text = sweep(&format!("seed = [{many}]\npolicy.seed = [{many}]\npolicy.kind = ['speed']"));
    refused(&text, &[], &["sweep: 101 x 101 x 1 runs", "10000"]);
    for (set, words) in [
        ("policy", &["--set policy:", "KEY=VALUE"][..]),
        ("=3", &["--set =3:", "no key"]),
        ("policy=magic", &["--set policy=magic: policy = magic", "\"speed\""]),
        (
            "program.app.threads=-1",
            &["--set program.app.threads=-1: program.app.threads = -1", "threads from"],
        ),
        ("program.app.wait=[spin, nap]", &["program.app.wait = [spin, nap]: is not TOML", "quotes"]),
        ("seed=[]", &["a list of 1 to"]),
        ("foo.bar=1", &["foo", "is unknown here"]),
        ("sweep.seed=[1]", &["--set sweep.seed=[1]: seed is swept if it is set to a list"]),
    ] {
        refused(SMALL, &["seed=3", set], words);
    }
}

#[test]
fn every_key_is_documented() {
    let page = include_str!("../../../../../docs/scenario-files.md");
    let after = |text: &str| format!("{SMALL}{text}zzz = 1\n");
    let kind = |kind: &str, keys: &str| {
        format!("{}zzz = 1\n", SMALL.replace("work = '10 ms'", &format!("kind = '{kind}'\n{keys}")))
    };
    let files = [
        format!("zzz = 1\n{SMALL}"),
        SMALL.replace("'core:2'", "{ base = 'core:2', zzz = 1 }"),
        SMALL.replace("'linux-6.12'", "{ preset = 'linux-6.12', zzz = 1 }"),
        after(""),
        kind("nested", "inner = 2\nregions = 3\nwork = '1 ms'\n"),
        kind("hog", ""),
        kind("churn", "at_once = 2\nwork = '1 ms'\n"),
        after("[program.footprint]\n"),
        after("[[arrivals]]\nevery = '1 s'\nmost = 1\nthreads = 1\nwork = '1 ms'\n"),
        after("[[event]]\nat = '0.5 s'\nstop = 1\n"),
        after("[faults]\n"),
        after("[policy]\nkind = 'speed'\n"),
    ];
    for file in files {
        let error = open(&file, &[]).map(|_| ()).unwrap_err().to_string();
        let (_, known) = error.split_once("known are ").unwrap_or_else(|| panic!("{error}"));
        for key in known.split(", ").filter(|key| !["title", "switching"].contains(key)) {
            let shown = ["`", "[", ".", "[["].iter().any(|head| {
                ["`", "]", ".", "]]"].iter().any(|tail| page.contains(&format!("{head}{key}{tail}")))
            });
            assert!(shown, "{key} is not described in docs/scenario-files.md");
        }
    }
}

#[test]
fn a_scenario_that_no_file_may_contain_is_not_written() {
    let mut scenario = one(SMALL, &[]);
    scenario.end = Moment(0);
    let error = write(&scenario).unwrap_err().to_string();
    assert!(
        error.starts_with("the scenario cannot be written as a file: written:") && error.contains("end"),
        "{error}"
    );
    let mut scenario = one(SMALL, &[]);
    scenario.model.topology = "nowhere".to_owned();
    assert!(write(&scenario).unwrap_err().to_string().contains("no description gives the machine core:2"));
}

#[test]
fn keys_as_deep_as_a_text_is_long_are_refused() {
    let deep = vec!["a"; 100_000].join(".");
    refused(&format!("{SMALL}[sweep]\n\"{deep}\" = [1]\n"), &[], &["up to 16 parts"]);
    let variant = format!("{SMALL}[sweep]\nvariant = [{{ name = 'x', \"{deep}\" = 1 }}]\n");
    refused(&variant, &[], &["up to 16 parts"]);
    refused(SMALL, &[&format!("{}=1", &deep[..39])], &["up to 16 parts"]);
}

#[test]
fn no_variant_at_all_is_no_choice() {
    let text = format!("{SMALL}[sweep]\nvariant = [{{ name = 'x', seed = 1 }}]\n");
    refused(&text, &["variant=[]"], &["variant", "at least one"]);
}

const HOG: &str = "[event.start]\nkind = 'hog'\nthreads = 1\n";

#[test]
fn an_event_after_the_end_is_refused() {
    for at in ["1 s", "2 s"] {
        let words = ["is not before the end of the run, end = \"1 s\"", &format!("'{at}'")];
        refused(&format!("{SMALL}start = '{at}'\n"), &[], &[&["program.app.start"], &words[..]].concat());
        let event = format!("{SMALL}[[event]]\nat = '{at}'\nusable = '0'\n");
        refused(&event, &[], &[&["event.1.at"], &words[..]].concat());
    }
    let jobs = format!("{SMALL}[[arrivals]]\nevery = '2 s'\nmost = 1\nthreads = 1\nwork = '1 ms'\n");
    refused(&jobs, &[], &["arrivals.1.every", "end = \"1 s\""]);
    one(&jobs, &["end=2 s"]);
    // This holds also if only a sweep makes the end too early.
    refused(
        &format!("{SMALL}start = '900 ms'\n[sweep]\nend = ['1 s', '500 ms']\n"),
        &[],
        &["program.app.start"],
    );
}

#[test]
fn a_program_started_by_an_event_can_be_stopped_by_name_and_position() {
    // In any written order: places follow the times.
    let text = format!(
        "{SMALL}[[event]]\nat = '40 ms'\nstop = 'late'\n[[event]]\nat = '30 ms'\nstop = 2\n\
         [[event]]\nat = '20 ms'\n{HOG}name = 'late'\n[[event]]\nat = '10 ms'\n{HOG}name = 'early'\n"
    );
    let scenario = one(&text, &[]);
    let stops: Vec<&Happening> = scenario.events[2..].iter().map(|event| &event.what).collect();
    assert_eq!(stops, [&Happening::Stop(1), &Happening::Stop(2)]);
    assert_eq!(one(&write(&scenario).unwrap(), &[]), scenario);
    let twice = text.replace("'early'", "'late'");
    refused(&twice, &[], &["event.1.stop", "several programs have this name", "stop = 2 or 3"]);
    let before = text.replace("'40 ms'", "'15 ms'");
    refused(&before, &[], &["event.1.stop", "started by a later event"]);
    refused(&text.replace("stop = 2", "stop = 4"), &[], &["event.2.stop = 4", "1 to 3"]);
    refused(
        &text.replace("stop = 'late'", "stop = 'no'"),
        &[],
        &["no program has this name", "app, early, late"],
    );
}

#[test]
fn limits_hold_for_all_programs_and_streams_together() {
    let stream = |most: u32, threads: u32| {
        format!("[[arrivals]]\nevery = '1 ms'\nmost = {most}\nthreads = {threads}\nwork = '1 ms'\n")
    };
    one(&format!("{SMALL}{}{}", stream(500_000, 1), stream(500_000, 1)), &[]);
    let jobs = format!("{SMALL}{}{}", stream(600_000, 1), stream(600_000, 1));
    refused(&jobs, &[], &["arrivals.2.most = 600000", "1200000 jobs", "up to 1000000"]);
    let threads = format!("{SMALL}{}{}", stream(300_000, 10), stream(300_000, 10));
    refused(&threads, &[], &["arrivals.2.most", "6000000 threads", "up to 4000000"]);
    let hog = "[[program]]\nkind = 'hog'\nname = 'one more'\nthreads = 1\n";
    refused(
        &format!("{SMALL}count = 10000\n{hog}"),
        &[],
        &[".name = 'one more'", "more than 10000 programs"],
    );
    refused(&format!("{SMALL}{hog}count = 10000\n"), &[], &[".count = 10000", "more than 10000 programs"]);
}

#[test]
fn copies_share_the_cpus_of_their_threads() {
    let scenario = one(&format!("{SMALL}count = 2\nbind = ['0', '0-1']\n"), &[]);
    let lists: Vec<_> = scenario.programs.iter().map(|program| &program.bind).collect();
    assert!(matches!(lists[..], [Bind::List(one), Bind::List(other)] if std::sync::Arc::ptr_eq(one, other)));
}

//! `plan` and `run` decide the same launch: each gathers its own facts, on its own ledger.

use super::*;
use crate::args::{Cli, Command};
use crate::commands::run::reserved;
use crate::monitor::Outputs;
use crate::tuning_store::{Conditions, Kept, Store};
use clap::{Arg, CommandFactory, Parser};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ffi::OsString;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_hold::reserve::ReserveOptions;
use trimtab_launch::facts::Answers;
use trimtab_linux::ledger::Held;
use trimtab_linux::program::resolve;

/// Options; each line is absent or has one of its values, which may be several options. `@` is a
/// folder of the launch's own.
const OPTIONS: [&[&str]; 30] = [
    &["-c1", "-c2", "-c50%", "-cnode", "-c3", "--cpus=0", "--cpus=0-1", "--cpus=core:0", "--cpus=N:99"],
    &["--near=lo", "--near=gpu:99", "--near=gpu:each --visible-devices", "--near=file:/"],
    &["--strategy=scatter", "--strategy=stride:2"],
    &["--smt=all", "--smt=2"],
    &["--kind=any", "--kind=one", "--kind=P"],
    &["--mem=bind", "--mem=interleave", "--mem=none", "--mem=bind:99", "--mem=hbm"],
    &["--thp=on", "--thp=off", "--thp=advised", "--thp=inherit"],
    &["--nest=2,scatter", "--nest=2,scatter,2,subcompact", "--nest=what"],
    &["--nest-roots=share", "--nest-roots=part:2"],
    &["--share"],
    &["--or-fewer"],
    &["--wait", "--wait=1s --priority=-1"],
    &[
        "--ranks=1",
        "--ranks=2 --prefix",
        "--ranks=3 --grace=1",
        "--ranks=2 --heap=32M",
        "--ranks=2 --as-rank",
    ],
    &["--teams"],
    &["--strict"],
    &["--threads=1", "--threads=3"],
    &["--fit=auto", "--fit=keep", "--fit=budget", "--fit=limit"],
    &["--jobserver", "--jobserver=auto", "--jobserver=fifo", "--jobserver=pipe"],
    &["--slice=1"],
    &["--preempt", "--preempt=100"],
    &["--spin=keep", "--spin=yield"],
    &["--grow", "--grow=1", "--grow=3", "--grow --yield-to=all", "--grow=3 --yield-to=root,1000"],
    &[
        "--wait-policy=auto",
        "--wait-policy=sleep",
        "--wait-policy=yield",
        "--wait-policy=spin",
        "--wait-policy=keep",
    ],
    &["--pin=mask", "--pin=auto"],
    &["--env=set", "--env=keep", "--env=print"],
    &[
        "--balance",
        "--balance=auto --across-nodes --seed=7 --speed-metric=cpu-share --interval=20ms",
        "--balance=auto --free",
        "--balance=speed --free",
        "--balance=float --counters=off",
        "--balance=speed",
        "--balance=exchange",
        "--balance=nudge",
        "--balance=pinned",
        "--balance=brm --index=cpi --mean=sum --candidates=all",
        "--balance=brm-paper",
        "--balance=serial --move-memory --budget=2%",
        "--trace=@/trace.jsonl",
        "--metrics=unix:@/metrics",
        "--interval=20ms",
    ],
    &["--report", "--report=json", "--report=@/report.txt", "--report=@/report.json"],
    &["--no-tuning", "--no-rules"],
    &["--quiet", "--verbose"],
    &["--with-parent"],
];

/// Options that no line has, with the reason.
const NOT_DRAWN: [(&str, &str); 2] = [
    ("survey", "each launch has none: the load of other programs changes between two samples"),
    ("mem-size", "the free memory changes between two samples"),
];

/// Options of which each value is drawn: those with a closed list of words.
const EVERY_VALUE: [&str; 8] = ["thp", "fit", "spin", "jobserver", "wait-policy", "pin", "env", "balance"];

/// Variables; each line is absent or has one of its values.
const VARIABLES: [&[(&str, &str)]; 10] = [
    &[("OMP_NUM_THREADS", "4"), ("OMP_NUM_THREADS", "2,2"), ("OMP_NUM_THREADS", "1")],
    &[("OMP_WAIT_POLICY", "active"), ("KMP_BLOCKTIME", "7")],
    &[("OMP_PROC_BIND", "true")],
    &[("GLIBC_TUNABLES", "x")],
    &[("LD_PRELOAD", "/no/such.so")],
    &[("TRIMTAB_NESTING", "2,scatter"), ("OMP_NESTING_TEAM_SIZE", "0")],
    &[("OPENBLAS_NUM_THREADS", "9")],
    &[("LOCAL_WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "5"), ("LOCAL_WORLD_SIZE", "1")],
    &[("HWLOC_XMLFILE", "/no/such.xml")],
    &[("MAKEFLAGS", "k"), ("MAKEFLAGS", "-j3"), ("MAKEFLAGS", " -j2 --jobserver-auth=3,4")],
];

const RULES: [&str; 5] = [
    "",
    "[[rule]]\nprogram = \"*\"\nthp = \"off\"\nstrategy = \"scatter\"\n",
    "[[rule]]\nprogram = \"*\"\npin = \"mask\"\nsmt = \"all\"\n",
    "[[rule]]\nprogram = \"true\"\nmem = \"interleave\"\n",
    "[[rule]]\nprogram = \"*\"\nthp = \"never\"\n",
];

const SITES: [&str; 5] =
    ["", "auto-cores = 1\n", "max-cores = 1\n", "reserved-cpus = \"0\"\n", "yield-to = \"all\"\n"];

const TUNINGS: [&str; 5] = [
    "",
    "threads=3 wait=sleep",
    "cores=1 threads=2 thp=on slice=1",
    "cores=2 strategy=scatter pin=mask",
    "balance=speed memory=interleave",
];

/// Machines of two CPUs that stand for this one: the numbers of the CPUs must exist here.
const MACHINES: [&str; 3] = ["core:2", "numa:2 core:1", "core:1 pu:2"];

const PROGRAMS: [&[&str]; 7] = [
    &["true"],
    &["sh", "-c", "true"],
    &["env", "true"],
    &["xz", "-T4"],
    &["make", "-kj", "all"],
    &["make", "-j2"],
    &["mpirun.openmpi", "-n", "2", "true"],
];

/// One launch as a user types it.
#[derive(Clone, Debug)]
struct Typed {
    options: Vec<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
    program: &'static [&'static str],
    rules: &'static str,
    site: &'static str,
    tuning: &'static str,
    machine: &'static str,
}

/// Draws for each line nothing or one of its values.
fn some<T: Clone + std::fmt::Debug + 'static>(
    lines: &'static [&'static [T]],
) -> impl Strategy<Value = Vec<T>> {
    let line = |line: &&'static [T]| proptest::option::weighted(0.15, proptest::sample::select(*line));
    let all: Vec<_> = lines.iter().map(line).collect();
    all.prop_map(|values| values.into_iter().flatten().collect())
}

fn typed() -> impl Strategy<Value = Typed> {
    let of = |values: &'static [&'static str]| proptest::sample::select(values);
    let program = proptest::sample::select(&PROGRAMS[..]);
    let all =
        (some(&OPTIONS), some(&VARIABLES), program, of(&RULES), of(&SITES), of(&TUNINGS), of(&MACHINES));
    all.prop_map(|(options, variables, program, rules, site, tuning, machine)| Typed {
        options,
        variables,
        program,
        rules,
        site,
        tuning,
        machine,
    })
}

/// A folder with its own files, and the environment that names them.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(typed: &Typed) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["ledger", "config", "data"] {
            std::fs::create_dir(place.path(name)).unwrap();
        }
        std::fs::write(place.path("config").join("rules.toml"), typed.rules).unwrap();
        std::fs::write(place.path("config").join("site.toml"), typed.site).unwrap();
        place
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn world(&self, typed: &Typed, rank: Option<u32>) -> World {
        let mut all: Vec<(&str, OsString)> = vec![
            ("PATH", std::env::var_os("PATH").unwrap_or_default()),
            ("TRIMTAB_LEDGER", self.path("ledger").into()),
            ("TRIMTAB_CONFIG", self.path("config").into()),
            ("XDG_DATA_HOME", self.path("data").into()),
            ("TRIMTAB_MACHINE", typed.machine.into()),
        ];
        all.extend(typed.variables.iter().map(|(name, value)| (*name, OsString::from(value))));
        if let Some(rank) = rank {
            all.push(("LOCAL_RANK", rank.to_string().into()));
            all.push(("TORCHELASTIC_RUN_ID", "job".into()));
        }
        World::of(all.into_iter().map(|(name, value)| (OsString::from(name), value)).collect())
    }

    /// Stores the tuning for the program that is typed.
    fn keep(&self, world: &World, typed: &Typed, args: &RunArgs) {
        if typed.tuning.is_empty() {
            return;
        }
        let Ok(path) = resolve(&args.command[0], world.raw("PATH")) else { return };
        let kept = Kept {
            setting: typed.tuning.parse().unwrap(),
            from: Setting::new(),
            conditions: Conditions::of(&path, &args.command, &args.place, 2).unwrap(),
            metric: "time".to_owned(),
            higher: false,
            gain: 2.0,
            low: 1.9,
            high: 2.1,
            before: Vec::new(),
            after: Vec::new(),
            adds: Vec::new(),
            when: 1_700_000_000,
            version: "0.1.0".to_owned(),
        };
        Store::of(world).unwrap().write(&kept).unwrap();
    }
}

fn command_line(command: &str, typed: &Typed, place: &Place) -> Option<Command> {
    let folder = place.folder.path().display().to_string();
    let options = typed.options.iter().flat_map(|options| options.split(' '));
    let options = options.map(|option| option.replace('@', &folder));
    let words = ["trimtab", command, "--survey=none"].map(str::to_owned).into_iter().chain(options);
    let program = typed.program.iter().map(|word| (*word).to_owned());
    Cli::try_parse_from(words.chain(["--".to_owned()]).chain(program)).ok().map(|cli| cli.command)
}

fn both(typed: &Typed, place: &Place) -> Option<(RunArgs, PlanArgs)> {
    match (command_line("run", typed, place), command_line("plan", typed, place)) {
        (Some(Command::Run(run)), Some(Command::Plan(plan))) => Some((*run, *plan)),
        (None, None) => None,
        (run, plan) => panic!("run {:?}, plan {:?}", run.is_some(), plan.is_some()),
    }
}

/// Values that two launches do not have in common, from the first of them.
#[derive(Clone, Default)]
struct OfPlan {
    /// The effect of a yield: two measurements differ.
    answers: Answers,
    /// The page in which barriers are counted.
    meetings: Option<String>,
}

/// Returns the launch that `run` would carry out, and the hold of its cores.
fn run_decides(world: &World, args: &RunArgs, known: OfPlan) -> Result<(Option<Held>, LaunchPlan), String> {
    let in_words = |trouble: GatherError| trouble.to_string();
    let program = program(world, args).map_err(in_words)?;
    let situation = Situation::live(world, !args.place.no_rules).map_err(|error| in_words(error.into()))?;
    let Gathered { request, situation, watch } =
        gather::request(world, args, situation, program.as_ref()).map_err(in_words)?;
    let watch = watch.filter(|_| request.env != EnvMode::Print);
    let outputs = watch.map(|_| Outputs::open(&args.run)).transpose().map_err(|error| error.to_string())?;
    let survey = Some(args.place.survey);
    let mut facts = facts::facts(world, &situation, program.as_ref(), &args.command, survey, None);
    facts::look_for_libraries(&request, &mut facts);
    facts.build = gather::build_facts(world, &request, program.as_ref());
    facts.answers = known.answers;
    facts.meetings = outputs.and_then(|outputs| outputs.sync_page()).map(|own| known.meetings.unwrap_or(own));
    let order = ReserveOptions {
        grants: true,
        // A plan says what a run gets now, and a run that waits gets the same later.
        wait: None,
        label: "test",
        tell: &|_| {},
        goes_on: &|| true,
        priority: 0,
        rules: situation.policy.site.queue(),
        holder: None,
    };
    reserved(world, &request, &mut facts, &order, &mut None).map_err(|error| error.to_string())
}

fn plan_decides(world: &World, args: &PlanArgs) -> Result<Planned, String> {
    planned(world, &Which::Live, args).map_err(|trouble| trouble.to_string())
}

fn compare(typed: &Typed, rank: Option<u32>) -> Result<(), TestCaseError> {
    let place = Place::new(typed);
    let Some((run, plan)) = both(typed, &place) else { return Ok(()) };
    let world = place.world(typed, rank);
    place.keep(&world, typed, &run);
    let planned = plan_decides(&world, &plan);
    let known = planned.as_ref().map_or_else(
        |_| OfPlan::default(),
        |Planned { facts, .. }| OfPlan { answers: facts.answers.clone(), meetings: facts.meetings.clone() },
    );
    match (planned, run_decides(&world, &run, known)) {
        (Ok(planned), Ok((_held, carried))) => {
            prop_assert_eq!(&planned.launch, &carried);
            // The second decision starts from the allotment that was taken.
            if planned.launch.rank.as_ref().is_some_and(|rank| rank.shares) && run.run.ranks.is_none() {
                let again = plan_decides(&world, &plan).map(|planned| planned.launch.placement);
                prop_assert_eq!(again, Ok(carried.placement));
            }
            Ok(())
        }
        (Err(planned), Err(carried)) => {
            prop_assert_eq!(planned, carried);
            Ok(())
        }
        (planned, carried) => {
            prop_assert!(false, "plan {:?}, run {:?}", planned.err(), carried.err());
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_what_a_run_carries_out(typed in typed(), rank in proptest::option::of(0..2u32)) {
        prop_assume!(has_two_cpus());
        let size = typed.variables.iter().any(|(name, _)| *name == "LOCAL_WORLD_SIZE");
        compare(&typed, rank.filter(|_| size))?;
    }
}

/// Returns the options of a command that have a name, as it defines them.
fn options_of(command: &str) -> Vec<Arg> {
    let all = Cli::command();
    let arguments = all.find_subcommand(command).unwrap().get_arguments();
    arguments.filter(|argument| argument.get_long().is_some_and(|name| name != "help")).cloned().collect()
}

#[test]
fn every_option_of_a_run_is_an_option_of_plan_and_is_drawn() {
    let names = |command: &str| -> BTreeSet<String> {
        options_of(command).iter().filter_map(Arg::get_long).map(str::to_owned).collect()
    };
    assert!(names("run").is_subset(&names("plan")), "{:?}", names("run").difference(&names("plan")));
    let drawn: Vec<&str> = OPTIONS.iter().copied().flatten().flat_map(|value| value.split(' ')).collect();
    let is_drawn = |option: &Arg| {
        let long = format!("--{}", option.get_long().unwrap());
        let short = option.get_short().map(|letter| format!("-{letter}"));
        drawn.iter().any(|word| match word.strip_prefix(long.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('='),
            None => short.as_ref().is_some_and(|short| word.starts_with(short.as_str())),
        })
    };
    let missing: BTreeSet<String> = options_of("run")
        .iter()
        .filter(|option| !is_drawn(option))
        .filter_map(|option| option.get_long().map(str::to_owned))
        .collect();
    assert_eq!(missing, NOT_DRAWN.map(|(name, _)| name.to_owned()).into(), "add a line to OPTIONS");
    for option in options_of("run").iter().filter(|option| EVERY_VALUE.contains(&option.get_long().unwrap()))
    {
        let values = option.get_possible_values();
        assert!(!values.is_empty());
        for value in values {
            let word = format!("--{}={}", option.get_long().unwrap(), value.get_name());
            assert!(drawn.contains(&word.as_str()), "add {word} to OPTIONS");
        }
    }
}

/// Returns whether the machines of these tests exist here.
fn has_two_cpus() -> bool {
    let online = trimtab_linux::machine::online(std::path::Path::new("/sys"));
    let online = online.is_ok_and(|online| "0-1".parse().is_ok_and(|two: CpuSet| two.is_subset(&online)));
    if !online {
        crate::skip::skipped("CPUs 0 and 1 are needed");
    }
    online
}

/// Returns a launch without any option or variable.
fn bare() -> Typed {
    let (rules, site, tuning) = ("", "", "");
    Typed { options: vec![], variables: vec![], program: &["true"], rules, site, tuning, machine: "core:2" }
}

#[test]
fn a_kept_tuning_is_in_the_plan() {
    if !has_two_cpus() {
        return;
    }
    let typed = Typed { tuning: "cores=1 threads=3 wait=sleep", ..bare() };
    let place = Place::new(&typed);
    let world = place.world(&typed, None);
    let (run, plan) = both(&typed, &place).unwrap();
    place.keep(&world, &typed, &run);
    let planned = plan_decides(&world, &plan).unwrap().launch;
    assert_eq!(planned.threads.value, 3);
    let words = words(&plan_decides(&world, &plan).unwrap(), &plan);
    assert!(words.contains("threads: 3") && words.contains("as tuned on 2023-11-14"), "{words}");
    assert!(words.contains("waiting threads sleep") && words.contains("sets OMP_NUM_THREADS=3"), "{words}");
}

#[test]
fn the_parts_of_ranks_are_those_that_they_take() {
    let base = Typed { options: vec!["-c2", "--ranks=2"], ..bare() };
    let place = Place::new(&base);
    let Some(Command::Plan(plan)) = command_line("plan", &base, &place) else { unreachable!() };
    if !has_two_cpus() {
        return;
    }
    let planned = plan_decides(&place.world(&base, None), &plan).unwrap();
    let mut typed = base.clone();
    typed.options.push("--as-rank");
    typed.variables.push(("LOCAL_WORLD_SIZE", "2"));
    let Some(Command::Run(run)) = command_line("run", &typed, &place) else { unreachable!() };
    let mut held = Vec::new();
    for part in &planned.launch.ranks {
        let (hold, carried) =
            run_decides(&place.world(&typed, Some(part.rank)), &run, OfPlan::default()).unwrap();
        assert_eq!((&carried.placement.mask, carried.threads.value), (&part.mask, part.threads));
        held.push(hold);
    }
    assert_eq!(held.len(), 2);
}

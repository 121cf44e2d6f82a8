//! The decision as a function, on machines, programs, quotas and holds other than those of this
//! machine.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

use proptest::prelude::*;
use std::ffi::OsString;
use trimtab_core::ids::OsCpu;
use trimtab_core::place::launchers::Launcher;
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::place::waiting::Yield;
use trimtab_core::place::{Action, DealtDevice, NearDevice, PlaceError};
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_core::topology::parse_synthetic;
use trimtab_launch::facts::{Answers, LauncherFacts, ProgramFacts};
use trimtab_launch::rules::{Rule, Site};
use trimtab_launch::*;

const MACHINES: [&str; 4] = ["core:1", "pack:2 core:4 pu:2", "numa:4 core:2", "l3:2 core:3"];

fn facts(machine: &str) -> LaunchFacts {
    LaunchFacts {
        program: Some(program(None)),
        library: Ok("/lib/trimtab.so".into()),
        blas_library: Ok("/lib/blas/libtrimtab_shim_blas.so".into()),
        glibc: Some((2, 36)),
        pid: 7,
        ..LaunchFacts::idle(parse_synthetic(machine).unwrap())
    }
}

fn program(openmp: Option<Runtime>) -> ProgramFacts {
    ProgramFacts {
        path: "/bin/app".into(),
        family: None,
        script: false,
        go: false,
        openmp,
        preload: Ok(()),
        closed: None,
        starts_threads: false,
        sets_teams: false,
        launcher: None,
    }
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

fn sources(variables: &[(&str, &str)]) -> Sources {
    Sources {
        environment: environment(variables),
        command: vec!["/bin/app".to_owned()],
        ..Sources::default()
    }
}

fn tuning(setting: &str, cores: u32) -> Option<Result<Tuning, String>> {
    let setting: Setting = setting.parse().unwrap();
    let (found_on, gained) = ("a day".to_owned(), "2.00 times as fast".to_owned());
    Some(Ok(Tuning { name: "t".to_owned(), setting, cores, found_on, gained }))
}

fn value(plan: &LaunchPlan, name: &str) -> Option<Action> {
    plan.environment.iter().find(|variable| variable.name == name).map(|variable| variable.action.clone())
}

fn set_to(text: &str) -> Option<Action> {
    Some(Action::Set { value: text.to_owned() })
}

fn said(plan: &LaunchPlan) -> String {
    plan.reasons.iter().map(|reason| reason.text.clone() + "\n").collect()
}

#[test]
fn a_tuning_is_applied_on_its_cores_and_its_places_elsewhere_too() {
    let with = |options: Options, cores: u32| {
        let tuning = tuning("threads=3 wait=sleep slice=1 thp=on strategy=scatter", cores);
        let request = LaunchRequest::merge(Sources { options, tuning, ..sources(&[]) }).unwrap();
        decide(&request, &facts("numa:4 core:2")).unwrap()
    };
    let here = with(Options::default(), 8);
    assert_eq!((here.threads.value, here.slice.value), (3, Some(1.0)));
    assert_eq!(here.threads.origin, ValueOrigin::Tuning("t".to_owned()));
    assert_eq!(value(&here, "OMP_NUM_THREADS"), set_to("3"));
    assert_eq!(value(&here, "OMP_WAIT_POLICY"), set_to("passive"));
    assert_eq!(value(&here, TUNABLES), set_to("glibc.malloc.hugetlb=1"));
    assert!(said(&here).contains("as tuned on a day: threads=3"), "{}", said(&here));
    let elsewhere = with(Options { cores: Some("4".parse().unwrap()), ..Options::default() }, 8);
    assert_eq!((elsewhere.threads.value, elsewhere.slice.value), (4, None));
    assert_eq!((value(&elsewhere, TUNABLES), elsewhere.tuning), (None, None));
    assert_eq!(elsewhere.origins["strategy"], ValueOrigin::Tuning("t".to_owned()));
    assert!(
        elsewhere.reasons.iter().any(|reason| reason.text.contains("is for 8 cores, and this run has 4"))
    );
    let mine = Options { threads: Some(5), ..Options::default() };
    assert_eq!((with(mine, 8).threads.value, with(Options::default(), 7).threads.value), (5, 8));
}

#[test]
fn options_win_over_tunings_over_rules_and_each_value_says_where_it_is_from() {
    let rule = Rule {
        program: "app".to_owned(),
        strategy: Some("balanced".parse().unwrap()),
        smt: Some("all".parse().unwrap()),
        mem: Some("interleave".parse().unwrap()),
        ..Rule::default()
    };
    let options = Options { smt: Some("1".parse().unwrap()), ..Options::default() };
    let all =
        Sources { options, rule: Some(rule), tuning: tuning("smt=2 strategy=scatter", 1), ..sources(&[]) };
    let request = LaunchRequest::merge(all).unwrap();
    assert_eq!(request.origins["smt"], ValueOrigin::Option);
    assert_eq!(request.origins["strategy"], ValueOrigin::Tuning("t".to_owned()));
    assert_eq!(request.origins["memory"], ValueOrigin::Rule("app".to_owned()));
    assert_eq!(request.origins["amount"], ValueOrigin::Default);
    assert_eq!(request.place.strategy.to_string(), "scatter");
}

#[test]
fn one_line_without_v_says_that_other_programs_leave_fewer_cores() {
    let told = |options: Options, busy: &[u32], pinned: &str, held: &str| {
        let request = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap();
        let mut facts = facts("core:4");
        facts.load.busy = (0..4).map(|cpu| (OsCpu(cpu), if busy.contains(&cpu) { 990 } else { 0 })).collect();
        facts.load.pinned = pinned.parse().unwrap();
        facts.ledger.held = held.parse().unwrap();
        let plan = decide(&request, &facts).unwrap();
        let notices = plan.reasons.iter().filter(|reason| reason.level == Level::Notice);
        let lines: Vec<String> = notices.map(|reason| reason.text.clone()).collect();
        (plan.placement.mask.to_string(), lines)
    };
    let (mask, lines) = told(Options::default(), &[1], "3", "");
    assert_eq!(mask, "0,2");
    assert_eq!(
        lines,
        [
            "2 cores only, as other programs keep CPUs 1,3 busy or are bound to them (-c N takes busy ones too)"
        ]
    );
    let (mask, lines) = told(Options::default(), &[], "", "0-2");
    assert_eq!((mask.as_str(), lines.len()), ("3", 1));
    assert_eq!(lines[0], "1 core only, as other runs hold CPUs 0-2 (trimtab ps lists them)");
    // Nothing is missing, or the number was the user's own.
    assert_eq!(told(Options::default(), &[], "", ""), ("0-3".to_owned(), vec![]));
    let two = Options { cores: Some("2".parse().unwrap()), ..Options::default() };
    assert_eq!(told(two, &[1], "3", ""), ("0,2".to_owned(), vec![]));
}

#[test]
fn wait_loops_yield_only_on_request_and_where_the_library_gets_into_the_program() {
    let name = trimtab_core::spin::VARIABLE;
    let with = |spin: Option<&str>, strict: bool, given: &[(&str, &str)], facts: &LaunchFacts| {
        let spin = spin.map(|word| word.parse().unwrap());
        let sources = Sources { options: Options { spin, strict, ..Options::default() }, ..sources(given) };
        decide(&LaunchRequest::merge(sources).unwrap(), facts)
    };
    let action = |plan: &LaunchPlan| {
        let found = plan.environment.iter().find(|variable| variable.name == name);
        found.map(|variable| variable.action.clone())
    };
    let facts = facts("core:4");
    for spin in [None, Some("keep")] {
        assert_eq!(action(&with(spin, false, &[], &facts).unwrap()), None);
        // The variable of a run around this one does not count.
        let inner = with(spin, false, &[(name, "1 yield")], &facts).unwrap();
        assert!(matches!(action(&inner), Some(Action::Unset { .. })), "{:?}", action(&inner));
    }
    let none = LaunchFacts { library: Err("it is not installed".into()), ..facts.clone() };
    let plan = with(Some("yield"), false, &[], &none).unwrap();
    assert_eq!(action(&plan), None);
    assert!(said(&plan).contains("--spin yield has no effect: "), "{}", said(&plan));
    assert!(with(Some("yield"), true, &[], &none).is_err());
    let plan = with(Some("yield"), false, &[], &facts).unwrap();
    if cfg!(target_arch = "x86_64") {
        assert!(matches!(action(&plan), Some(Action::Set { value }) if value == "1 yield"));
        assert!(matches!(plan.preload, Preload::Goes { .. }), "{:?}", plan.preload);
    } else {
        assert!(said(&plan).contains("x86-64 only"), "{}", said(&plan));
    }
}

#[test]
fn a_budget_is_there_only_on_request() {
    let with = |fit: Option<trimtab_core::place::Fit>, facts: &LaunchFacts| {
        let options = Options { fit, ..Options::default() };
        let sources = Sources { options, ..sources(&[("OMP_DYNAMIC", "true"), ("OMP_NUM_THREADS", "4")]) };
        decide(&LaunchRequest::merge(sources).unwrap(), facts).unwrap()
    };
    let facts = facts("core:4");
    let plain = with(None, &facts);
    assert_eq!(plain.budget, None);
    assert!(!serde_json::to_string(&plain).unwrap().contains("budget"));
    assert_eq!(with(Some("keep".parse().unwrap()), &facts).budget, None);
    for (fit, rule) in [("budget", "unnumbered"), ("limit", "all")] {
        let fit = Some(fit.parse().unwrap());
        let plan = with(fit, &facts);
        let budget = plan.budget.unwrap();
        assert_eq!((budget.cores, budget.rule.word()), (4, rule));
        assert_eq!(plan.threads, plain.threads);
        // Without the library there is none, and a warning says so.
        let none = LaunchFacts { library: Err("it is not installed".into()), ..facts.clone() };
        let plan = with(fit, &none);
        assert_eq!(plan.budget, None);
        assert!(
            said(&plan).contains("cannot bound the program's teams: it is not installed"),
            "{}",
            said(&plan)
        );
    }
}

#[test]
fn only_a_budget_loads_the_library_with_functions_of_blas() {
    let with = |fit: Option<&str>, strict, (preload, outer): (Option<&'static str>, bool), facts: &_| {
        let options = Options { fit: fit.map(|fit| fit.parse().unwrap()), strict, ..Options::default() };
        let mut variables: Vec<_> = preload.map(|value| ("LD_PRELOAD", value)).into_iter().collect();
        variables.extend(outer.then_some(("TRIMTAB_BUDGET", "1 7 9 4 all 0-3")));
        decide(&LaunchRequest::merge(Sources { options, ..sources(&variables) }).unwrap(), facts)
    };
    let preloaded = |plan: &LaunchPlan| {
        let found = plan.environment.iter().find(|variable| variable.name == "LD_PRELOAD").unwrap();
        let Action::Set { value } = &found.action else { panic!("{found:?}") };
        value.clone()
    };
    let facts = facts("core:4");
    let (usual, blas) = ("/lib/trimtab.so", "/lib/blas/libtrimtab_shim_blas.so");
    // Of another installation; the user's own libraries stay before ours.
    for (preload, before) in [(None, ""), (Some("/a.so /opt/libtrimtab_shim.so"), "/a.so:")] {
        for fit in [None, Some("auto"), Some("keep")] {
            let of = |outer| preloaded(&with(fit, false, (preload, outer), &facts).unwrap());
            assert_eq!((of(false), of(true)), (format!("{before}{usual}"), format!("{before}{blas}")));
        }
        for fit in ["budget", "limit"] {
            let plan = with(Some(fit), true, (preload, false), &facts).unwrap();
            assert_eq!(preloaded(&plan), format!("{before}{blas}"));
        }
    }
    let missing = LaunchFacts { blas_library: Err("it is not there".into()), ..facts };
    let plan = with(Some("limit"), false, (None, false), &missing).unwrap();
    assert_eq!(preloaded(&plan), usual);
    assert!(said(&plan).contains("--fit limit does not bound calls of OpenBLAS and MKL: it is not there"));
    assert!(
        with(Some("limit"), true, (None, false), &missing)
            .unwrap_err()
            .to_string()
            .contains("it is not there")
    );
    assert!(!said(&with(None, true, (None, false), &missing).unwrap()).contains("BLAS"));
}

#[test]
fn a_run_that_grows_starts_with_its_most_threads_and_the_budget_of_its_cores() {
    let with = |words: (&str, Option<&str>)| {
        let (grow, fit) = words;
        let (grow, fit) = (Some(grow.parse().unwrap()), fit.map(|fit| fit.parse().unwrap()));
        let cores = Some("2".parse().unwrap());
        let request = LaunchRequest::merge(Sources {
            options: Options { grow, fit, cores, ..Options::default() },
            ..sources(&[])
        });
        let mut facts = facts("core:4");
        facts.program = Some(program(Some(Runtime::Libgomp)));
        decide(&request.unwrap(), &facts).unwrap()
    };
    let plan = with(("3", None));
    assert_eq!((plan.threads.value, plan.budget.unwrap().cores, plan.placement.mask.len()), (3, 2, 2));
    assert_eq!(plan.preload, Preload::Goes { pin: trimtab_core::handoff::Pin::Mask });
    // Without the budget the three threads share two cores at first.
    let keeps = with(("3", Some("keep")));
    assert_eq!((keeps.threads.value, keeps.budget), (3, None));
    let free = with(("free", None));
    assert_eq!((free.threads.value, free.budget), (2, None), "numbers of threads stay as they are");
    assert!(said(&free).contains("the run grows up to as many cores as become free"), "{}", said(&free));
    for bad in ["0", "x", "-1", ""] {
        assert!(bad.parse::<trimtab_launch::options::GrowMost>().is_err(), "{bad}");
    }
}

#[test]
fn a_balanced_run_carries_the_library_where_it_can_tell_the_program_its_mask() {
    let preload = |policy: &str, change: &dyn Fn(&mut LaunchFacts)| {
        let options = Options { balance: Some(policy.parse().unwrap()), ..Options::default() };
        let request = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap();
        let mut facts = facts("core:4");
        facts.program = Some(program(Some(Runtime::Libgomp)));
        change(&mut facts);
        decide(&request, &facts).unwrap().preload
    };
    let moved = Preload::Goes { pin: trimtab_core::handoff::Pin::Moved };
    let family =
        |family| move |facts: &mut LaunchFacts| facts.program.as_mut().unwrap().family = Some(family);
    for policy in ["auto", "pinned", "speed"] {
        assert_eq!(preload(policy, &|_| {}), moved, "{policy}");
    }
    assert_eq!(preload("auto", &family(Family::Jvm)), moved);
    assert_eq!(preload("auto", &family(Family::Node)), moved);
    // These are told nothing by it: other processes, system calls, threads that stay where they are.
    assert!(preload("auto", &family(Family::Shell)).stays_out().is_some());
    assert!(preload("auto", &|facts| facts.program.as_mut().unwrap().go = true).stays_out().is_some());
    assert!(preload("float", &|_| {}).stays_out().is_some());
    let pin = Some(PinMode::Mask);
    let options = Options { balance: Some("auto".parse().unwrap()), pin, ..Options::default() };
    let request = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap();
    let mut asked_for = facts("core:4");
    asked_for.program = Some(program(Some(Runtime::Libgomp)));
    assert!(decide(&request, &asked_for).unwrap().preload.stays_out().is_some(), "--pin mask");
    // A library that is not there is no fault of such a run.
    let without = preload("auto", &|facts| facts.library = Err("it is not installed".to_owned()));
    assert_eq!(without.stays_out(), Some("threads float inside the mask"));
}

#[test]
fn contradictions_are_refused() {
    let nest = || Some("2,scatter".to_owned());
    for (options, words) in [
        (Options { nest: nest(), pin: Some(PinMode::Mask), ..Options::default() }, "--pin mask"),
        (
            Options { nest: nest(), balance: Some("speed".parse().unwrap()), ..Options::default() },
            "--balance=speed",
        ),
        (Options { nest: Some("x".to_owned()), ..Options::default() }, "--nest"),
        (
            Options { ranks: Some(2), observed: Some("--trace"), ..Options::default() },
            "--trace applies to one",
        ),
        (
            Options { cpus: Some("0".parse().unwrap()), or_fewer: true, ..Options::default() },
            "--cpus without --cores",
        ),
    ] {
        let refusal = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap_err();
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    let inner = sources(&[("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")]);
    let options = Options { ranks: Some(2), ..Options::default() };
    assert!(LaunchRequest::merge(Sources { options, ..inner }).is_err());
}

#[test]
fn strict_makes_warnings_errors() {
    let strict = Options { strict: true, ..Options::default() };
    let decided = |options: &Options, facts: &LaunchFacts| {
        let options = options.clone();
        decide(&LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap(), facts)
    };
    let mut unreserved = facts("core:4");
    unreserved.ledger.fault = Some("no folder".to_owned());
    assert!(said(&decided(&Options::default(), &unreserved).unwrap()).contains("not reserved"));
    let refusal = decided(&strict, &unreserved).unwrap_err().to_string();
    assert!(refusal.contains("no folder") && refusal.ends_with("(--strict)"), "{refusal}");
    let mut launches = facts("core:4");
    let srun = LauncherFacts { launcher: Launcher::Slurm, name: "srun".to_owned(), at: 0 };
    let family = Some(Family::Launcher);
    launches.program = Some(ProgramFacts { launcher: Some(srun), family, ..program(None) });
    let two = |strict| Options { cores: Some("2".parse().unwrap()), strict, ..Options::default() };
    assert!(said(&decided(&two(false), &launches).unwrap()).contains("may leave CPUs"));
    assert!(decided(&two(true), &launches).is_err());
}

#[test]
fn a_rank_that_was_bound_stays_where_it_is() {
    let mut facts = facts("core:4");
    facts.bounds.allowed = "2".parse().unwrap();
    facts.parent.mask = Some("0-3".parse().unwrap());
    let ranks = [("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "4")];
    let options = Options { cores: Some("4".parse().unwrap()), ..Options::default() };
    let request = LaunchRequest::merge(Sources { options, ..sources(&ranks) }).unwrap();
    let plan = decide(&request, &facts).unwrap();
    assert_eq!((plan.placement.mask.to_string(), plan.rank.unwrap().shares), ("2".to_owned(), false));
}

fn of_ranks(ranks: u32, facts: &LaunchFacts, options: Options) -> Result<LaunchPlan, Refusal> {
    let options = Options { ranks: Some(ranks), ..options };
    decide(&LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap(), facts)
}

#[test]
fn ranks_that_share_cores_get_a_warning() {
    let facts = facts("core:2");
    let refusal = of_ranks(3, &facts, Options::default()).unwrap_err().to_string();
    assert!(refusal.contains("--ranks 3") && refusal.contains("--or-fewer"), "{refusal}");
    let fewer = of_ranks(3, &facts, Options { or_fewer: true, ..Options::default() }).unwrap();
    assert!(said(&fewer).contains("3 ranks share 2 cores"));
    let counted = Options { cores: Some("1".parse().unwrap()), ..Options::default() };
    assert!(said(&of_ranks(2, &facts, counted).unwrap()).contains("2 ranks share 1 core "));
    assert!(!said(&of_ranks(2, &facts, Options::default()).unwrap()).contains("ranks share"));
}

proptest! {
    /// Each rank has a core that no other rank has, or the launch is refused; it is refused only
    /// if fewer cores are free of holds than there are ranks, whatever the load is.
    #[test]
    fn ranks_without_a_count_get_a_core_each_or_an_error(
        ranks in 2u32..7,
        held in 0u8..64,
        busy in proptest::collection::vec(0u16..1001, 6),
    ) {
        let mut facts = facts("core:6");
        facts.ledger.held = (0u32..6).filter(|at| held & (1 << at) != 0).map(OsCpu).collect();
        facts.load.busy = (0u32..6).map(OsCpu).zip(busy).collect();
        let free = 6 - held.count_ones();
        match of_ranks(ranks, &facts, Options::default()) {
            Ok(plan) => {
                prop_assert!(free >= ranks);
                prop_assert_eq!(plan.ranks.len(), ranks as usize);
                for (at, part) in plan.ranks.iter().enumerate() {
                    prop_assert!(!part.mask.is_empty() && !part.mask.intersects(&facts.ledger.held));
                    for other in &plan.ranks[..at] {
                        prop_assert!(!part.mask.intersects(&other.mask));
                    }
                }
            }
            Err(refusal) => {
                prop_assert!(free < ranks, "{}", refusal);
                prop_assert!(refusal.passes());
            }
        }
    }
}

/// Random request and facts.
#[derive(Clone, Debug)]
struct Drawn {
    machine: &'static str,
    options: Options,
    tuning: Option<(&'static str, u32)>,
    rule: Option<Rule>,
    site: Site,
    variables: Vec<(&'static str, &'static str)>,
    program: Option<ProgramFacts>,
    library: bool,
    quota: Option<u32>,
    held: u64,
    pinned: u64,
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(0.3, proptest::sample::select(values))
}

fn parsed<T: std::str::FromStr + Clone + std::fmt::Debug>(
    words: &'static [&'static str],
) -> impl Strategy<Value = Option<T>> {
    maybe(words).prop_map(|word| word.and_then(|word| word.parse().ok()))
}

fn options() -> impl Strategy<Value = Options> {
    let places = (
        parsed(&["auto", "1", "2", "3", "50%", "node", "1/node", "9"]),
        parsed::<CpuSet>(&["0", "0-1", "0-5", "30"]),
        parsed(&["scatter", "balanced", "stride:2"]),
        parsed(&["1", "2", "all"]),
        parsed(&["bind", "interleave", "none", "local", "bind:0", "bind:9"]),
        parsed(&["on", "off", "advised", "inherit"]),
        maybe(&["2,scatter", "2,scatter,2,subcompact", "9,compact"]),
    );
    let runs = (
        maybe(&[1u32, 3, 64]),
        parsed(&["auto", "keep"]),
        maybe(&[0.5f64, 3.0]),
        parsed(&["spin", "yield", "sleep", "keep", "auto"]),
        parsed(&["auto", "mask"]),
        parsed::<EnvMode>(&["keep", "print", "set"]),
        parsed(&["auto", "speed", "float"]),
        maybe(&[1u32, 2, 5]),
    );
    (places, runs, any::<[bool; 5]>()).prop_map(|(places, runs, flags)| {
        let (cores, cpus, strategy, smt, mem, thp, nest) = places;
        let (threads, fit, slice, wait_policy, pin, env, balance, ranks) = runs;
        let [share, or_fewer, strict, quiet, no_tuning] = flags;
        Options {
            cores,
            cpus,
            strategy,
            smt,
            mem,
            thp,
            nest: nest.map(str::to_owned),
            threads,
            fit,
            slice,
            wait_policy,
            pin,
            env: env.unwrap_or_default(),
            balance,
            ranks: ranks.filter(|_| quiet),
            share,
            or_fewer,
            strict: strict && share,
            quiet,
            no_tuning: no_tuning && strict,
            ..Options::default()
        }
    })
}

fn programs() -> impl Strategy<Value = Option<ProgramFacts>> {
    let families = [Family::Jvm, Family::Python, Family::Launcher, Family::Shell, Family::Make];
    let openmp = proptest::option::of(proptest::sample::select(&[Runtime::Libgomp, Runtime::Libomp][..]));
    let family = proptest::option::weighted(0.4, proptest::sample::select(families.to_vec()));
    (openmp, family, any::<[bool; 6]>()).prop_map(|(openmp, family, flags)| {
        let [there, script, go, loadable, starts_threads, sets_teams] = flags;
        let launcher = family.filter(|family| *family == Family::Launcher).map(|_| LauncherFacts {
            launcher: if go { Launcher::OpenMpi4 } else { Launcher::Slurm },
            name: "mpirun".to_owned(),
            at: 0,
        });
        let preload = if loadable { Ok(()) } else { Err("it is statically linked".to_owned()) };
        there.then(|| ProgramFacts {
            family,
            script,
            go: go && launcher.is_none(),
            preload,
            starts_threads,
            sets_teams,
            launcher,
            ..program(openmp)
        })
    })
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let tunings =
        ["threads=3 wait=sleep", "cores=2 threads=2 thp=on", "balance=speed smt=all", "slice=1 pin=mask"];
    let tuning = proptest::option::of((proptest::sample::select(tunings.to_vec()), 1..9u32));
    let rule =
        (parsed(&["scatter"]), parsed(&["all"]), any::<bool>()).prop_map(|(strategy, smt, mask_only)| Rule {
            program: "app".to_owned(),
            strategy,
            smt,
            mask_only,
            ..Rule::default()
        });
    let site = (maybe(&[1u32, 4]), maybe(&[2u32, 6])).prop_map(|(auto_cores, max_cores)| Site {
        auto_cores,
        max_cores,
        reserved_cpus: None,
        ..Site::default()
    });
    let variables = [
        ("OMP_NUM_THREADS", "4"),
        ("OMP_NUM_THREADS", "2,2"),
        ("OMP_PROC_BIND", "true"),
        ("OMP_WAIT_POLICY", "active"),
        ("SLURM_CPUS_ON_NODE", "3"),
        ("LOCAL_WORLD_SIZE", "3"),
        ("LOCAL_RANK", "1"),
        ("GLIBC_TUNABLES", "x"),
        ("LD_PRELOAD", "/a.so"),
        ("TRIMTAB_NESTING", "2,scatter"),
        ("OPENBLAS_NUM_THREADS", "40"),
    ];
    let variables = proptest::sample::subsequence(variables.to_vec(), 0..6);
    let rule = proptest::option::of(rule);
    let numbers = (proptest::option::of(500..9_000u32), any::<u64>(), any::<u64>(), any::<bool>());
    (proptest::sample::select(&MACHINES[..]), options(), tuning, rule, site, variables, programs(), numbers)
        .prop_map(|(machine, options, tuning, rule, site, variables, program, numbers)| {
            let (quota, held, pinned, library) = numbers;
            let (held, pinned) = (held & pinned, pinned & !held & 0b1010_0101);
            Drawn { machine, options, tuning, rule, site, variables, program, library, quota, held, pinned }
        })
}

impl Drawn {
    fn request(&self) -> Result<LaunchRequest, Refusal> {
        let Self { options, rule, site, .. } = self.clone();
        let tuning = self.tuning.and_then(|(setting, cores)| tuning(setting, cores));
        LaunchRequest::merge(Sources { options, rule, site, tuning, ..sources(&self.variables) })
    }

    fn facts(&self) -> LaunchFacts {
        let mut facts = facts(self.machine);
        let bit = |bits: u64, at: usize| bits >> (at % 64) & 1 == 1;
        // Holds consist of whole cores.
        let cores = facts.machine.cores().iter().enumerate().filter(|(at, _)| bit(self.held, *at));
        let held = cores.fold(CpuSet::new(), |sum, (_, core)| sum.union(&facts.machine.cpus_of(&core.pus)));
        let pinned = facts.machine.cpus().iter().filter(|cpu| bit(self.pinned, cpu.0 as usize)).collect();
        facts.ledger.held = held;
        facts.load.pinned = pinned;
        facts.bounds.quota = self.quota;
        facts.program.clone_from(&self.program);
        if !self.library {
            facts.library = Err("it is not installed".to_owned());
        }
        facts
    }
}

/// Decides as `trimtab plan` does: at once, and again with the answers to the questions.
fn planned(request: &LaunchRequest, mut facts: LaunchFacts) -> Result<LaunchPlan, Refusal> {
    let plan = decide(request, &facts)?;
    answer(&plan, &mut facts);
    decide(request, &facts)
}

/// Decides as `trimtab run` does: places first, takes and records the cores, and then decides.
fn carried(request: &LaunchRequest, mut facts: LaunchFacts) -> Result<(CpuSet, LaunchPlan), Refusal> {
    let role = Role::of(request, &facts);
    let hold = place(request, &facts, &role).map_err(|error: PlaceError| Refusal::from(error))?.hold;
    if role.shared().is_some() {
        facts.ledger.allotment = Some(hold.clone());
    }
    let plan = decide(request, &facts)?;
    answer(&plan, &mut facts);
    Ok((hold, decide(request, &facts)?))
}

fn answer(plan: &LaunchPlan, facts: &mut LaunchFacts) {
    facts.answers = Answers {
        cpus: plan.placement.mask.clone(),
        yields: plan.questions.yields.then_some(Yield::Posix),
        picture: plan.questions.picture.then(|| Ok("/proc/7/fd/600".to_owned())),
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_what_a_run_carries_out(drawn in drawn()) {
        let Ok(request) = drawn.request() else { return Ok(()) };
        match (planned(&request, drawn.facts()), carried(&request, drawn.facts())) {
            (Ok(planned), Ok((hold, carried))) => {
                prop_assert_eq!(&planned, &carried);
                prop_assert!(carried.placement.mask.is_subset(&hold));
                prop_assert!(!carried.questions.any());
            }
            (Err(planned), Err(carried)) => prop_assert_eq!(planned.passes(), carried.passes()),
            (planned, carried) => prop_assert!(false, "plan {:?}, run {:?}", planned.err(), carried.err()),
        }
    }

    /// A variable of the user changes only if a count exceeds the CPUs or if requested nested teams
    /// place the threads; the plan then says so.
    #[test]
    fn variables_of_the_user_stay(drawn in drawn()) {
        let Ok(request) = drawn.request() else { return Ok(()) };
        let Ok(plan) = planned(&request, drawn.facts()) else { return Ok(()) };
        let environment = &request.environment;
        for (name, changed) in environment.changes(&plan.environment) {
            let Some(mine) = environment.text(&name) else { continue };
            let now = changed.map(|value| value.into_string().unwrap());
            let allowed = match name.as_str() {
                "OMP_NUM_THREADS" | "OPENBLAS_NUM_THREADS" => now.is_some() || request.nest.is_some(),
                "OMP_PROC_BIND" => request.nest.is_some(),
                "LD_PRELOAD" => now.as_ref().is_some_and(|now| now.contains(&mine)),
                _ => now.as_ref() == Some(&mine),
            };
            prop_assert!(allowed, "{name}: {mine} became {now:?}");
        }
    }

    #[test]
    fn equal_requests_and_facts_give_equal_plans_with_reasons(drawn in drawn()) {
        let Ok(request) = drawn.request() else { return Ok(()) };
        let (one, other) = (decide(&request, &drawn.facts()), decide(&request, &drawn.facts()));
        prop_assert_eq!(&one, &other);
        if let Ok(plan) = one {
            prop_assert!(request.env == EnvMode::Print || plan.reasons.iter().any(|reason| reason.level == Level::Headline));
            serde_json::to_string(&plan).unwrap();
        }
    }
}

/// IQ-TREE, for one, refuses to start with more threads than CPUs.
#[test]
fn auto_has_a_core_for_each_thread_that_the_command_line_states() {
    let cores_of = |command: &str, options: Options, facts: &LaunchFacts| {
        let command = match command.strip_prefix("sh -c ") {
            Some(text) => ["sh", "-c", text].map(str::to_owned).to_vec(),
            None => command.split(' ').map(str::to_owned).collect(),
        };
        let sources = Sources { options, command, ..sources(&[]) };
        let plan = decide(&LaunchRequest::merge(sources).unwrap(), facts).unwrap();
        (cores(&plan.placement), said(&plan).contains("a core is taken for each of these threads"))
    };
    let auto = |command: &str, facts: &LaunchFacts| cores_of(command, Options::default(), facts);
    let mut facts = facts("core:4");
    facts.load.busy = (1..4).map(|cpu| (OsCpu(cpu), 990)).collect();
    assert_eq!(auto("iqtree -s data", &facts), (1, false));
    assert_eq!(auto("app -T 3", &facts), (1, false), "an unknown program states nothing");
    assert_eq!(auto("iqtree -s data -T 3", &facts), (3, true));
    assert_eq!(auto("sh -c iqtree -s data -T 2 && echo done", &facts), (2, true));
    assert_eq!(auto("iqtree -T 1", &facts), (1, false));
    let script = LaunchFacts { script: Some("#!/bin/sh\niqtree -T 2 a\n".to_owned()), ..facts.clone() };
    assert_eq!(auto("./script 7", &script), (2, true));
    assert_eq!(auto("iqtree -T 99", &facts), (4, true), "as many as there are");
    let one = Options { cores: Some("1".parse().unwrap()), ..Options::default() };
    assert_eq!(cores_of("iqtree -T 3", one, &facts), (1, false), "the user's number has precedence");
    facts.ledger.held = "2-3".parse().unwrap();
    assert_eq!(auto("iqtree -T 3", &facts), (2, true), "held cores are not taken");
    facts.ledger.held = "1-3".parse().unwrap();
    assert_eq!(auto("iqtree -T 3", &facts), (1, false));
}

#[test]
fn a_workload_managers_grant_bounds_auto_and_nothing_else() {
    let slurm = [("SLURM_CPUS_ON_NODE", "3"), ("SLURM_CPUS_PER_TASK", "2")];
    let cores_of = |variables: &[(&str, &str)], amount: Option<&str>, facts: &LaunchFacts| {
        let options = Options { cores: amount.map(|amount| amount.parse().unwrap()), ..Options::default() };
        let sources = Sources { options, ..sources(variables) };
        let plan = decide(&LaunchRequest::merge(sources).unwrap(), facts).unwrap();
        (cores(&plan.placement), said(&plan).contains("SLURM_CPUS"))
    };
    let mut facts = facts("core:8");
    assert_eq!(cores_of(&[], None, &facts), (8, false));
    assert_eq!(cores_of(&slurm, None, &facts), (3, true));
    assert_eq!(cores_of(&slurm, Some("6"), &facts), (6, false), "a stated amount takes precedence");
    assert_eq!(cores_of(&[("SLURM_CPUS_ON_NODE", "99")], None, &facts), (8, false));
    // An inner run has the cores of the outer one.
    let inner = [slurm[0], (request::HOLD, "1")];
    assert_eq!(cores_of(&inner, None, &facts), (8, false));
    // HyperQueue's worker may be in the outer run, and its task has a part of that.
    let task = [("HQ_CPUS", "5,2"), (request::HOLD, "1")];
    assert_eq!(cores_of(&task, None, &facts).0, 2);
    assert_eq!(cores_of(&task, Some("6"), &facts).0, 6);
    // A run of six cores that such a task has started: its inner runs have those.
    let of_hold = request::task_of_hold(&environment(&task[..1])).unwrap();
    let in_own = [task[0], task[1], (&of_hold.0, &of_hold.1)];
    assert_eq!(cores_of(&in_own, None, &facts).0, 8);
    // Each rank of a step has two CPUs of four.
    let step = [slurm[0], slurm[1], ("SLURM_LOCALID", "1"), ("SLURM_STEP_TASKS_PER_NODE", "2")];
    let of_step = LaunchRequest::merge(sources(&step)).unwrap();
    let plan = decide(&of_step, &facts).unwrap();
    assert_eq!(
        (plan.placement.mask.to_string(), plan.placement.hold.to_string()),
        ("2-3".into(), "0-3".into())
    );
    // A site that confines the job to fewer CPUs than it announces.
    facts.bounds.allowed = "4-5".parse().unwrap();
    assert_eq!(cores_of(&slurm, None, &facts), (2, false));
}

/// Four nodes with an accelerator each, whose numbers do not follow those of the nodes.
fn with_devices(vendor: u16) -> (LaunchFacts, NearDevice) {
    let facts = facts("numa:4(memory=64GB) core:4");
    let device = |(index, cpus): (u32, &str)| DealtDevice {
        name: format!("gpu:{index}"),
        cpus: cpus.parse().unwrap(),
        vendor: Some(vendor),
        index,
    };
    let each = (0..).zip(["12-15", "4-7", "8-11", "0-3"]).map(device).collect();
    (facts, NearDevice { name: "gpu:each".to_owned(), cpus: "0-15".parse().unwrap(), each })
}

/// Returns the plan of a rank of another launcher.
fn rank_of_mpi(facts: &LaunchFacts, options: Options, rank: u32, variables: &[(&str, &str)]) -> LaunchPlan {
    let number = rank.to_string();
    let announced = [("LOCAL_RANK", number.as_str()), ("LOCAL_WORLD_SIZE", "4")];
    let all = [&announced, variables].concat();
    let request = LaunchRequest::merge(Sources { options, ..sources(&all) }).unwrap();
    decide(&request, facts).unwrap()
}

#[test]
fn each_rank_runs_near_its_own_device() {
    let (facts, near) = with_devices(0x10de);
    let near = Some(near);
    for (cores, masks) in
        [(None, ["12-15", "4-7", "8-11", "0-3"]), (Some("8"), ["12-13", "4-5", "8-9", "0-1"])]
    {
        let cores = cores.map(|cores: &str| cores.parse().unwrap());
        let options = Options { near: near.clone(), cores, ..Options::default() };
        let parts = of_ranks(4, &facts, options.clone()).unwrap().ranks;
        assert_eq!(parts.iter().map(|part| part.mask.to_string()).collect::<Vec<_>>(), masks);
        let plan = rank_of_mpi(&facts, options, 2, &[]);
        assert_eq!(plan.placement.mask.to_string(), masks[2]);
        assert_eq!(value(&plan, "CUDA_VISIBLE_DEVICES"), None, "not asked for");
    }
    // A rank that its launcher bound, and a single process.
    let mut bound = facts.clone();
    bound.bounds.allowed = "6-9".parse().unwrap();
    bound.parent.mask = Some("0-15".parse().unwrap());
    let options = Options { near: near.clone(), cores: Some("1".parse().unwrap()), ..Options::default() };
    let plan = rank_of_mpi(&bound, options.clone(), 2, &[]);
    assert!(plan.placement.mask.is_subset(&bound.bounds.allowed), "{}", plan.placement.mask);
    let request = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap();
    assert_eq!(decide(&request, &facts).unwrap().placement.slots.len(), 1);
}

#[test]
fn a_rank_sees_its_own_device_where_that_is_asked_for() {
    for (vendor, name, order) in [
        (0x10de, "CUDA_VISIBLE_DEVICES", Some(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))),
        (0x1002, "ROCR_VISIBLE_DEVICES", None),
        (0x8086, "ZE_AFFINITY_MASK", Some(("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1"))),
    ] {
        let (facts, near) = with_devices(vendor);
        let options = Options { near: Some(near), visible_devices: true, ..Options::default() };
        let plan = rank_of_mpi(&facts, options.clone(), 2, &[]);
        assert_eq!(value(&plan, name), set_to("2"), "{name}");
        assert_eq!(order.and_then(|(name, _)| value(&plan, name)), order.and_then(|(_, to)| set_to(to)));
        // A variable of the user stays, with a word.
        let kept = rank_of_mpi(&facts, options, 2, &[(name, "3,1")]);
        assert_eq!(value(&kept, name), Some(Action::Kept { value: "3,1".to_owned() }), "{name}");
        assert!(said(&kept).contains(&format!("{name}=3,1 is set already and stays")), "{}", said(&kept));
    }
    let (facts, near) = with_devices(0x1234);
    let options = Options { near: Some(near), visible_devices: true, ..Options::default() };
    let unknown = rank_of_mpi(&facts, options.clone(), 0, &[]);
    assert!(
        said(&unknown).contains("no variable is known for the maker of gpu:0: all ranks see all devices")
    );
    let (facts, near) = with_devices(0x10de);
    let options = Options { near: Some(near), ..options };
    let other = rank_of_mpi(&facts, options.clone(), 0, &[("CUDA_DEVICE_ORDER", "FASTEST_FIRST")]);
    assert!(
        said(&other).contains("CUDA_DEVICE_ORDER=FASTEST_FIRST is set already and stays"),
        "{}",
        said(&other)
    );
    let without =
        LaunchRequest::merge(Sources { options: Options { near: None, ..options }, ..sources(&[]) });
    assert!(without.unwrap_err().to_string().contains("add --near gpu:each"));
}

#[test]
fn memory_that_others_hold_is_waited_for() {
    let mut facts = facts("core:4");
    let mut parts = facts.machine.parts().clone();
    parts.nodes = parse_synthetic("numa:1(memory=64GB) core:4").unwrap().parts().nodes.clone();
    facts.machine = trimtab_core::topology::Machine::build(parts).unwrap();
    let ask = |size: &str| {
        let size = Some(size.parse().unwrap());
        let options = Options { mem_size: size, cores: Some("1".parse().unwrap()), ..Options::default() };
        LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap()
    };
    let held = decide(&ask("40G"), &facts).unwrap().placement.memory_hold;
    assert_eq!(held.iter().map(|memory| memory.bytes >> 30).collect::<Vec<_>>(), [40]);
    facts.ledger.memory = [(trimtab_core::ids::OsNode(0), 40 << 30)].into();
    let refusal = decide(&ask("40G"), &facts).unwrap_err();
    assert!(refusal.passes() && refusal.to_string().contains("others hold 40 GiB there"), "{refusal}");
    let role = Role::of(&ask("20G"), &facts);
    assert_eq!(place(&ask("20G"), &facts, &role).unwrap().memory_hold.len(), 1);
    assert!(!decide(&ask("65G"), &facts).unwrap_err().passes());
}

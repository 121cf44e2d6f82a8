//! The preload library, the budget and the variables of a run.

use crate::util::*;
use trimtab_core::place::Action;
use trimtab_core::place::runtimes::Runtime;
use trimtab_launch::*;

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
    assert!(
        said(&plan).contains("--fit limit does not bound calls of OpenBLAS, MKL and BLIS: it is not there")
    );
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
    // These are told nothing by it: other processes, system calls, threads that stay where they
    // are.
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
fn a_launch_that_changes_no_variable_does_without_the_library_and_need_not_know_of_one() {
    let decided = |options: Options, library: Result<std::path::PathBuf, String>| {
        let options = Options { env: EnvMode::Keep, ..options };
        let request = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap();
        let mut facts = LaunchFacts { library, ..facts("core:4") };
        facts.program = Some(program(Some(Runtime::Libgomp)));
        decide(&request, &facts)
    };
    let there = || Ok("/usr/lib/trimtab/libtrimtab_shim.so".into());
    let nest = || Options { nest: Some("2,2".to_owned()), ..Options::default() };
    let budget = || Options { fit: Some("budget".parse().unwrap()), ..Options::default() };
    let all: [fn() -> Options; 3] = [Options::default, nest, budget];
    for options in all {
        let plan = decided(options(), there()).unwrap();
        assert!(plan.preload.stays_out().unwrap().starts_with("--env keep leaves variables alone"));
        assert_eq!(decided(options(), Err("it was not looked for".to_owned())).unwrap(), plan);
    }
    let warned = |plan: &LaunchPlan| plan.reasons.iter().any(|reason| reason.level == Level::Warning);
    let plan = decided(Options::default(), there()).unwrap();
    assert!(!warned(&plan), "{}", said(&plan));
    // What was asked for and cannot be had is said, and refused if it must be had.
    let plan = decided(nest(), there()).unwrap();
    assert!(said(&plan).contains("nested teams cannot be placed: --env keep"), "{}", said(&plan));
    assert!(decided(Options { strict: true, ..nest() }, there()).is_err());
}

//! Options, tunings and rules: which one wins, and which contradict each other.

use crate::util::*;
use trimtab_core::place::launchers::Launcher;
use trimtab_launch::facts::{LauncherFacts, ProgramFacts};
use trimtab_launch::rules::{Rule, Site};
use trimtab_launch::*;

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
fn a_run_that_grows_yields_to_those_of_its_option_or_else_of_the_site() {
    let of = |option: Option<&str>, site: Option<&str>, grow: bool| {
        let read = |text: Option<&str>| text.map(|text| text.parse().unwrap());
        let grow = grow.then_some(options::GrowMost::Free);
        let options = Options { grow, yield_to: read(option), ..Options::default() };
        let site = Site { yield_to: read(site), ..Site::default() };
        LaunchRequest::merge(Sources { options, site, ..sources(&[]) })
    };
    for (option, site, chosen) in [
        (None, None, "runs"),
        (Some("ann"), None, "ann"),
        (None, Some("bob"), "bob"),
        (Some("ann"), Some("bob"), "ann"),
        (Some("runs"), Some("all"), "runs"),
    ] {
        let request = of(option, site, true).unwrap();
        assert_eq!(request.yield_to.to_string(), chosen);
        let told = said(&decide(&request, &facts("core:4")).unwrap());
        let phrase = "gives cores back to programs of";
        assert_eq!(told.contains(phrase), chosen != "runs", "{told}");
        // A run inside another hold yields to none of them.
        let mut inner = facts("core:4");
        inner.ledger.within = "0-1".parse().unwrap();
        assert!(!said(&decide(&request, &inner).unwrap()).contains(phrase));
    }
    assert!(of(Some("all"), None, false).unwrap_err().to_string().contains("add --grow"));
    assert!(of(None, Some("all"), false).is_ok(), "a site's rule concerns runs that grow");
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

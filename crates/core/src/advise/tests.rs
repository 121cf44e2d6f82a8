use super::*;
use crate::place::runtimes::Runtime;
use crate::profile::Intervals;
use crate::time::Span;
use crate::topology::parse_synthetic;
use proptest::prelude::*;

fn machine() -> Machine {
    parse_synthetic("core:2").unwrap()
}

/// Profile of equal libgomp threads that work `step_us` microseconds between barriers, in a
/// setting, on two CPUs for a second or more.
fn meets(threads: u32, step_us: u64, setting: &str) -> Profile {
    let interval = Span(step_us * 1000 * u64::from(threads.max(2)) / 2);
    let count = (1_000_000_000 / interval.0).max(4);
    Profile {
        program: "app".to_owned(),
        setting: setting.parse().unwrap(),
        cpus: 2,
        cores: 2,
        wall: interval.times(count as f64),
        user: Span(step_us * 1000).times((count * u64::from(threads)) as f64),
        workers: threads,
        runtimes: vec![Runtime::Libgomp],
        intervals: Some(Intervals {
            count,
            mean: interval,
            median: interval,
            tenth: interval,
            ninetieth: interval,
        }),
        waiting: Some(0.0),
        ..Profile::default()
    }
}

fn alone() -> Situation {
    Situation { cpus: 2, others: Some(0.0), yields: Yield::Posix, ..Situation::default() }
}

fn of(topic: Topic, profile: &Profile, situation: &Situation) -> Advice {
    let all = advise(profile, &machine(), situation);
    assert_eq!(all.iter().map(|advice| advice.topic).collect::<Vec<_>>(), Topic::ALL);
    all.into_iter().find(|advice| advice.topic == topic).unwrap()
}

#[track_caller]
fn changes(advice: &Advice, setting: &str) {
    assert_eq!(
        (advice.verdict, advice.setting.to_string().as_str()),
        (Conclusion::Change, setting),
        "{advice:#?}"
    );
    assert!(advice.gain.is_some_and(|gain| gain.is_sure()) && !advice.evidence.is_empty(), "{advice:#?}");
}

#[track_caller]
fn stays(advice: &Advice, verdict: Conclusion, words: &str) {
    assert_eq!((advice.verdict, advice.setting.is_empty()), (verdict, true), "{advice:#?}");
    assert!(advice.words.contains(words), "{advice:#?}");
}

#[test]
fn nested_teams_of_two_by_two_on_two_cpus_get_advice_for_two_threads() {
    let situation = Situation { teams: vec![2, 2], ..alone() };
    for wait in ["wait=spin", "as it is"] {
        let advice = of(Topic::Threads, &meets(4, 100, wait), &situation);
        changes(&advice, "threads=2");
        assert!(advice.rule.contains("2 x 2"), "{}", advice.rule);
    }
    // As seen on a busy machine: while one team has the CPUs the other's intervals are long, which
    // is not its work.
    let us = |us: u64| Span(1000 * us);
    let spread =
        Intervals { count: 1201, mean: us(1068), median: us(220), tenth: us(156), ninetieth: us(3527) };
    let even = meets(4, 1068, "as it is");
    let seen = Profile { intervals: Some(spread), kept_waiting: Some(0.37), waiting: Some(0.74), ..even };
    changes(&of(Topic::Threads, &seen, &situation), "threads=2");
    assert_eq!(fitting(&[2, 2], 2), [2, 1]);
    assert_eq!(fitting(&[2, 4], 4), [2, 2]);
    assert_eq!(fitting(&[4, 3], 2), [2, 1]);
    assert_eq!(fitting(&[2, 2], 0), [1, 1]);
}

#[test]
fn runtimes_of_openmp_do_not_insist_on_spinning_where_their_own_threads_crowd() {
    let modes = [
        (Runtime::Libgomp, load::WaitMode::Moment),
        (Runtime::Libomp, load::WaitMode::Yield),
        (Runtime::Mpich, load::WaitMode::Spin),
    ];
    for (runtime, mode) in modes {
        let of = |threads| {
            let profile = Profile { runtimes: vec![runtime], ..meets(threads, 100, "wait=spin") };
            known::ProgramFacts::of(&profile, &alone()).mode
        };
        assert_eq!((of(4), of(2)), (Some(mode), Some(load::WaitMode::Spin)), "{runtime:?}");
    }
}

#[test]
fn the_wake_latency_decides_whether_sleeping_waits_should_spin() {
    let sleeps = meets(2, 100, "wait=sleep");
    let advised = |wake| of(Topic::Wait, &sleeps, &Situation { wake, ..alone() });
    let advice = advised(Some(Span(40_000)));
    changes(&advice, "wait=auto");
    assert!(
        advice.evidence.iter().any(|seen| seen == "waking a thread takes 40 us here (measured)"),
        "{advice:#?}"
    );
    for wake in [None, Some(Span(2_000))] {
        assert_ne!(advised(wake).verdict, Conclusion::Change, "{wake:?}");
    }
}

#[test]
fn threads_with_rare_barriers_keep_their_number() {
    let advice = of(Topic::Threads, &meets(4, 500_000, "as it is"), &alone());
    assert_ne!(advice.verdict, Conclusion::Change, "{advice:#?}");
}

#[test]
fn more_threads_than_were_found_good_are_never_advised() {
    let advice = of(Topic::Threads, &meets(2, 1000, "as it is"), &alone());
    stays(&advice, Conclusion::NoChange, "as many threads as CPUs");
    let few = Situation { cpus: 4, ..alone() };
    stays(
        &of(Topic::Threads, &meets(2, 1000, "as it is"), &few),
        Conclusion::Unsure,
        "one run does not show whether more would help",
    );
}

#[test]
fn threads_that_spin_beside_one_foreign_thread_leave_the_core_to_it() {
    let profile = Profile { cpus: 16, ..meets(16, 200, "wait=spin") };
    let beside = Situation { cpus: 16, others: Some(1.0), ..alone() };
    changes(&of(Topic::Sharing, &profile, &beside), "threads=15 cores=15");
    // All other topics are judged as if the program had those cores to itself.
    stays(&of(Topic::Balance, &profile, &beside), Conclusion::NoChange, "every thread has a CPU");
    let two = Situation { others: Some(1.0), ..alone() };
    stays(&of(Topic::Sharing, &meets(2, 200, "wait=spin"), &two), Conclusion::Unsure, "might help");
    let all = Situation { others: Some(2.0), ..alone() };
    stays(
        &of(Topic::Sharing, &meets(2, 200, "wait=spin"), &all),
        Conclusion::Unsure,
        "no CPU is available exclusively",
    );
    stays(
        &of(Topic::Sharing, &meets(2, 200, "wait=spin"), &alone()),
        Conclusion::NoChange,
        "no other program",
    );
}

#[test]
fn waiting_threads_sleep_where_a_quota_is_used_up_by_spinning() {
    let mut profile = meets(2, 1000, "wait=spin");
    profile.waiting = Some(0.4);
    let short = Situation { quota: Some(1000), ..alone() };
    changes(&of(Topic::Wait, &profile, &short), "wait=sleep");
    profile.user = profile.user.times(0.3);
    stays(&of(Topic::Wait, &profile, &short), Conclusion::NoChange, "not used up");
}

#[test]
fn sleeping_threads_with_a_cpu_each_get_advice_to_spin_only_if_waking_is_expensive() {
    changes(&of(Topic::Wait, &meets(2, 15, "wait=sleep"), &alone()), "wait=auto");
    stays(
        &of(Topic::Wait, &meets(2, 100_000, "wait=sleep"), &alone()),
        Conclusion::NoChange,
        "no significant gain",
    );
    stays(&of(Topic::Wait, &meets(2, 100, "as it is"), &alone()), Conclusion::NoChange, "suits these CPUs");
}

#[test]
fn unknown_facts_are_named_and_nothing_is_changed() {
    for (unseen, words) in [
        (Profile { intervals: None, ..meets(4, 100, "wait=spin") }, "the synchronisation intervals"),
        (Profile { workers: 0, ..meets(4, 100, "wait=spin") }, "the number of threads that worked at once"),
        (Profile { runtimes: Vec::new(), ..meets(4, 100, "as it is") }, "the wait policy in use"),
    ] {
        let situation = if unseen.runtimes.is_empty() { Situation { cpus: 8, ..alone() } } else { alone() };
        let advice = of(Topic::Wait, &unseen, &situation);
        stays(&advice, Conclusion::Unsure, words);
        assert!(advice.missing.iter().any(|missing| missing.contains(words)), "{advice:#?}");
    }
    let unknown = Situation { others: None, ..alone() };
    let all = advise(&meets(4, 100, "wait=spin"), &machine(), &unknown);
    assert!(together(&all).is_empty(), "{all:#?}");
    let nothing = advise(&Profile::default(), &machine(), &Situation::default());
    assert!(together(&nothing).is_empty(), "{nothing:#?}");
}

#[test]
fn moving_threads_is_judged_after_their_number_and_beside_others_left_to_tuning() {
    let bound = Situation { bound: Some(true), ..alone() };
    changes(&of(Topic::Threads, &meets(3, 300_000, "wait=sleep"), &bound), "threads=2");
    stays(
        &of(Topic::Balance, &meets(3, 300_000, "wait=sleep"), &bound),
        Conclusion::NoChange,
        "nothing to balance",
    );
    stays(&of(Topic::Balance, &meets(4, 500_000, "wait=sleep"), &bound), Conclusion::NoChange, "same length");
    let already = of(Topic::Balance, &meets(3, 300_000, "wait=sleep balance=speed"), &bound);
    stays(&already, Conclusion::NoChange, "already balances");
    let beside = Situation { others: Some(1.0), ..alone() };
    stays(
        &of(Topic::Balance, &meets(4, 500_000, "wait=sleep"), &beside),
        Conclusion::Unsure,
        "helps or harms",
    );
}

#[test]
fn huge_pages_are_for_programs_with_much_kernel_time_in_first_touches() {
    let touches = |faults: u64, huge: f64, system_ms: u64| Profile {
        faults: Some(faults),
        huge_share: Some(huge),
        resident: Some(faults * 4096),
        user: Span(1_000_000_000),
        system: Span(system_ms * 1_000_000),
        ..meets(2, 1000, "as it is")
    };
    changes(&of(Topic::HugePages, &touches(500_000, 0.0, 400), &alone()), "thp=on");
    stays(&of(Topic::HugePages, &touches(500_000, 0.9, 400), &alone()), Conclusion::NoChange, "already");
    stays(
        &of(Topic::HugePages, &touches(500, 0.0, 400), &alone()),
        Conclusion::NoChange,
        "too little memory",
    );
    // The gain is at most the kernel's time.
    let little = of(Topic::HugePages, &touches(500_000, 0.0, 10), &alone());
    assert_ne!(little.verdict, Conclusion::Change, "{little:#?}");
    let unseen = Profile { faults: None, ..touches(500_000, 0.0, 400) };
    stays(&of(Topic::HugePages, &unseen, &alone()), Conclusion::Unsure, "the number of page faults");
}

#[test]
fn memory_that_is_far_away_is_brought_near_where_misses_are_many() {
    let far = parse_synthetic("pack:2 numa:1(memory=8GB) l3:1 core:2").unwrap();
    let profile =
        Profile { remote_share: Some(0.9), misses_per_kilo: Some(60.0), ..meets(2, 1000, "as it is") };
    let place = |profile: &Profile, machine: &Machine| {
        advise(profile, machine, &alone()).into_iter().find(|one| one.topic == Topic::Placement).unwrap()
    };
    changes(&place(&profile, &far), "memory=local");
    let near = Profile { remote_share: Some(0.05), ..profile.clone() };
    stays(&place(&near, &far), Conclusion::NoChange, "already local");
    let unseen = Profile { misses_per_kilo: None, ..profile.clone() };
    stays(&place(&unseen, &far), Conclusion::Unsure, "cache misses");
    stays(&place(&profile, &machine()), Conclusion::NoChange, "no difference");
}

#[test]
fn slices_are_never_changed_by_a_rule() {
    stays(&of(Topic::Slice, &meets(4, 500_000, "wait=spin"), &alone()), Conclusion::Unsure, "between ticks");
    stays(
        &of(Topic::Slice, &meets(2, 100, "wait=spin"), &alone()),
        Conclusion::NoChange,
        "every thread has a CPU",
    );
}

#[test]
fn two_programs_are_kept_apart_if_one_has_frequent_barriers_without_a_promised_gain() {
    let companion = Some(Companion { profile: meets(2, 100_000, "as it is") });
    let pair = Situation { companion, ..alone() };
    stays(&of(Topic::Sharing, &meets(2, 100, "wait=sleep"), &pair), Conclusion::Unsure, "keep them apart");
    let coarse = of(Topic::Sharing, &meets(2, 100_000, "wait=sleep"), &pair);
    stays(&coarse, Conclusion::Unsure, "may help");
    assert!(coarse.gain.is_some());
}

prop_compose! {
    fn any_profile()(
        cpus in any::<u32>(), workers in any::<u32>(), small in any::<bool>(),
        times in prop::array::uniform8(any::<u64>()),
        seen in prop::array::uniform8(prop::option::of(prop_oneof![-2.0..2.0_f64, Just(f64::NAN), Just(f64::INFINITY), Just(-1e308)])),
        runtimes in prop::collection::vec(prop::sample::select(vec![Runtime::Libgomp, Runtime::Libomp, Runtime::OpenMpi, Runtime::Mpich, Runtime::Team, Runtime::Pthread]), 0..3),
        wait in prop::sample::select(vec!["as it is", "wait=spin", "wait=yield", "wait=sleep", "wait=auto", "wait=keep balance=auto", "threads=3"]),
        met in any::<bool>(),
    ) -> Profile {
        let (cpus, workers) = if small { (cpus % 65, workers % 129) } else { (cpus, workers) };
        let span = |at: usize| Span(if small { times[at] % 1_000_000_000 } else { times[at] });
        Profile {
            setting: wait.parse().unwrap(), cpus, cores: cpus, workers, runtimes,
            wall: span(0), user: span(1), system: span(2),
            intervals: met.then(|| Intervals { count: times[3] % 100_000, mean: span(4), median: span(5), tenth: span(6), ninetieth: span(7) }),
            waiting: seen[0], kept_waiting: seen[1], misses_per_kilo: seen[2], huge_share: seen[3], remote_share: seen[4],
            resident: seen[5].map(|_| times[5]), faults: seen[6].map(|_| times[6]),
            ..Profile::default()
        }
    }
}

prop_compose! {
    fn any_situation()(
        cpus in prop_oneof![0..65_u32, any::<u32>()],
        others in prop::option::of(prop_oneof![0.0..20.0_f64, Just(f64::NAN), Just(1e300)]),
        quota in prop::option::of(any::<u32>()), bound in any::<Option<bool>>(), posix in any::<bool>(),
        teams in prop::collection::vec(any::<u32>(), 0..4), companion in prop::option::of(any_profile()),
        wake in prop::option::of(any::<u64>()),
    ) -> Situation {
        Situation {
            cpus, others, quota, bound, teams, yields: if posix { Yield::Posix } else { Yield::Unknown },
            companion: companion.map(|profile| Companion { profile }), wake: wake.map(Span),
        }
    }
}

proptest! {
    #[test]
    fn advice_is_complete_and_changes_are_safe_for_any_profile(profile in any_profile(), situation in any_situation()) {
        for machine in [machine(), parse_synthetic("pack:2 numa:1(memory=8GB) l3:2 core:4 pu:2").unwrap()] {
            let all = advise(&profile, &machine, &situation);
            prop_assert_eq!(all.len(), Topic::ALL.len());
            for advice in &all {
                prop_assert!(!advice.words.is_empty() && !advice.rule.is_empty());
                prop_assert_eq!(advice.verdict == Conclusion::Change, !advice.setting.is_empty());
                if let Some(gain) = advice.gain {
                    prop_assert!(0.0 <= gain.low && gain.low <= gain.likely && gain.likely <= gain.high, "{advice:?}");
                }
                if advice.verdict == Conclusion::Change {
                    prop_assert!(advice.gain.is_some_and(|gain| gain.is_sure()), "{advice:?}");
                    prop_assert!(advice.missing.is_empty(), "{advice:?}");
                }
            }
            // No knob is set twice.
            let set: usize = all.iter().map(|advice| advice.setting.iter().count()).sum();
            prop_assert_eq!(set, together(&all).iter().count());
            prop_assert_eq!(&all, &advise(&profile, &machine, &situation));
        }
    }

    #[test]
    fn a_phase_is_never_below_the_least_and_costs_nothing_with_a_cpu_for_each(
        threads in 1..200_u32, cpus in 1..65_u32, rivals in 0..20_u32, step in 1e-6..0.1_f64, at in 0..4_usize,
        bound in any::<bool>(), posix in any::<bool>(),
    ) {
        let load = load::PhaseLoad { threads, cpus, rivals, step, mode: load::WaitMode::ALL[at], bound, posix, auto: false, wake: load::WAKE_S };
        let least = step * f64::from((threads + rivals).max(cpus)) / f64::from(cpus);
        let phase = load.phase();
        prop_assert!(phase.is_finite() && phase >= least * (1.0 - 1e-9), "{phase} {least}");
        if threads + rivals <= cpus && at != 2 {
            prop_assert!((phase - step).abs() < 1e-12);
        }
    }
}

#[test]
fn a_range_that_is_too_wide_is_not_printed_as_numbers() {
    for (low, likely, high, words) in [
        (0.5, 0.8, 1.2, "0.80 times the run time (0.50 to 1.20)"),
        (0.002, 0.016, 0.13, "at most 0.13 times the run time"),
        (2.0, 54.05, 519_312.88, "at least 2.00 times the run time"),
        (0.9, 54.05, 519_312.88, "a gain or a loss: best and worst case differ by more than a factor of 4"),
        (0.0, 0.5, 1.0, "a gain or a loss: best and worst case differ by more than a factor of 4"),
    ] {
        assert_eq!(Gain { low, likely, high }.to_string(), words);
    }
}

mod proposed {
    use super::*;
    use crate::advise::candidates::{CANDIDATES_MAX, Facts, propose};
    use crate::advise::libraries::Library;
    use crate::setting::Knob;
    use std::collections::BTreeMap;

    /// A program for which candidates are wanted.
    #[derive(Clone, Debug, Default)]
    struct Case {
        profile: Profile,
        situation: Situation,
        variables: Vec<(&'static str, &'static str)>,
        command: &'static str,
        libraries: Vec<Library>,
        processes: u32,
        computing: u32,
        ended_early: bool,
        slices: bool,
        huge_pages: bool,
        nodes: u32,
    }

    impl Case {
        fn candidates(&self) -> Vec<Candidate> {
            let advice = advise(&self.profile, &machine(), &self.situation);
            let variables: BTreeMap<String, String> = self
                .variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let command: Vec<String> = self.command.split_whitespace().map(str::to_owned).collect();
            propose(&Facts {
                profile: &self.profile,
                situation: &self.situation,
                advice: &advice,
                variables: &variables,
                command: &command,
                libraries: &self.libraries,
                processes: self.processes,
                computing: self.computing,
                ended_early: self.ended_early,
                usable: 2,
                nodes: self.nodes.max(1),
                huge_pages: self.huge_pages,
                slices: self.slices,
            })
        }

        /// Returns the candidates in a short form.
        fn ways(&self) -> Vec<String> {
            let way = |one: Candidate| {
                let mut words: Vec<String> = Vec::new();
                for (name, value) in &one.change.variables {
                    words.push(format!("{name}={}", value.as_deref().unwrap_or("-")));
                }
                if !one.change.setting.is_empty() {
                    words.push(one.change.setting.to_string());
                }
                words.extend(one.change.fit.map(|fit| format!("fit={fit}")));
                words.extend(one.change.nest.map(|nest| format!("nest={nest}")));
                words.extend(one.change.command.map(|words| words.join(" ")));
                if one.change.bare {
                    words.push("bare".to_owned());
                }
                words.join(" ")
            };
            self.candidates().into_iter().map(way).collect()
        }
    }

    fn long(profile: Profile) -> Profile {
        Profile { wall: Span::from_ms(5_000), ..profile }
    }

    fn base() -> Case {
        Case { situation: alone(), command: "./app", processes: 1, ..Case::default() }
    }

    #[test]
    fn nested_teams_get_shapes_that_fit() {
        let situation = Situation { teams: vec![2, 2], ..alone() };
        let case = Case {
            profile: long(meets(4, 100, "wait=spin")),
            situation,
            variables: vec![("OMP_NUM_THREADS", "2,2")],
            computing: 4,
            ..base()
        };
        let ways = case.ways();
        // `trimtab run` itself makes 2,1 of 2,2.
        assert!(!ways.contains(&"OMP_NUM_THREADS=2,1".to_owned()), "{ways:?}");
        assert!(ways.contains(&"OMP_NUM_THREADS=1,2".to_owned()), "{ways:?}");
        assert!(ways.iter().any(|way| way.contains("nest=2,scatter,1,subcompact")), "{ways:?}");
    }

    #[test]
    fn a_run_that_was_ended_early_gets_fewer_threads_also_without_trimtab() {
        // A run that was ended has no barriers in its profile: LU waits on flags of its own.
        let profile = Profile { intervals: None, waiting: None, ..meets(4, 100, "") };
        let case = Case {
            profile,
            variables: vec![("OMP_NUM_THREADS", "4")],
            computing: 4,
            ended_early: true,
            slices: true,
            ..base()
        };
        let ways = case.ways();
        assert_eq!(ways[0], "OMP_NUM_THREADS=2 bare", "{ways:?}");
        assert!(ways.contains(&"OMP_NUM_THREADS=1".to_owned()), "{ways:?}");
    }

    #[test]
    fn a_library_in_each_process_of_a_pool_is_named_and_bounded() {
        let library = Library {
            name: "OpenBLAS".to_owned(),
            version: Some("0.3.30".to_owned()),
            variable: "OPENBLAS_NUM_THREADS".to_owned(),
            processes: 4,
            threads: 2,
            service: 0,
            workers: 2,
        };
        let profile = Profile { cpus: 2, workers: 8, wall: Span::from_ms(4_900), ..Profile::default() };
        let case = Case { profile, libraries: vec![library], processes: 4, computing: 8, ..base() };
        let candidates = case.candidates();
        assert_eq!(case.ways()[0], "OPENBLAS_NUM_THREADS=1");
        assert!(candidates[0].why.contains("OpenBLAS 0.3.30: 2 threads in each of 4 processes"));
    }

    #[test]
    fn pools_of_runtimes_are_bounded_by_the_means_that_each_has() {
        let library = |name: &str, variable: &str, threads| Library {
            name: name.to_owned(),
            variable: variable.to_owned(),
            processes: 1,
            threads,
            workers: threads,
            ..Library::default()
        };
        let case = |library: Library, others: f64| Case {
            profile: Profile { cpus: 2, workers: 2, wall: Span::from_ms(4_900), ..Profile::default() },
            situation: Situation { others: Some(others), ..alone() },
            computing: library.threads,
            libraries: vec![library],
            variables: vec![("JAVA_TOOL_OPTIONS", "-Xmx1g")],
            ..base()
        };
        let java = || library("Java", "JAVA_TOOL_OPTIONS", 6);
        let bounded = |count: u32| format!("JAVA_TOOL_OPTIONS=-Xmx1g -XX:ActiveProcessorCount={count}");
        assert_eq!(case(java(), 0.0).ways()[0], bounded(2));
        // Where the user says how many processors there are, another option changes nothing.
        let told = Case { command: "java -XX:ActiveProcessorCount=6 App", ..case(java(), 0.0) };
        assert_eq!(told.ways(), Vec::<String>::new());
        let stronger = vec![("_JAVA_OPTIONS", "-Xmx1g -XX:ActiveProcessorCount=6")];
        assert_eq!(Case { variables: stronger, ..case(java(), 0.0) }.ways(), Vec::<String>::new());
        // Six threads ran, of which five collected at that moment; later there were two workers.
        let collects = Library { service: 5, workers: 2, ..java() };
        assert_eq!(case(collects, 0.0).ways(), Vec::<String>::new());
        // Beside another program one CPU is free.
        let ways = case(java(), 0.9).ways();
        assert!(ways.contains(&bounded(1)), "{ways:?}");
        let go = case(library("Go", "GOMAXPROCS", 2), 0.9).ways();
        assert!(go.contains(&"GOMAXPROCS=1".to_owned()), "{go:?}");
        // TBB has no variable; its mask decides.
        let tbb = case(library("TBB", "", 2), 0.9).ways();
        assert!(tbb.contains(&"cores=1".to_owned()), "{tbb:?}");
        // Each thread has a CPU, and no other program works.
        // A third thread of Go serves the runtime.
        for alone in [library("Go", "GOMAXPROCS", 3), library("TBB", "", 2)] {
            assert_eq!(case(alone, 0.0).ways(), Vec::<String>::new());
        }
    }

    #[test]
    fn all_cpus_are_tried_where_trimtab_would_take_those_that_others_leave_free() {
        let case = |cpus: u32| Case {
            profile: long(Profile { cpus, ..meets(4, 100, "") }),
            situation: Situation { cpus, others: Some(0.9), ..alone() },
            variables: vec![("OMP_NUM_THREADS", "4")],
            computing: 4,
            ..base()
        };
        let one = case(1).ways();
        assert!(one.contains(&"OMP_NUM_THREADS=2 bare".to_owned()), "{one:?}");
        assert!(!case(2).ways().iter().any(|way| way.ends_with("bare")));
        let nested = Case {
            situation: Situation { cpus: 1, others: Some(0.9), teams: vec![2, 2], ..alone() },
            variables: vec![("OMP_NUM_THREADS", "2,2")],
            ..case(1)
        };
        let ways = nested.ways();
        assert!(ways.contains(&"OMP_NUM_THREADS=2,1 bare".to_owned()), "{ways:?}");
    }

    #[test]
    fn short_programs_are_also_started_without_trimtab_in_their_best_ways() {
        let short = |ms: u64| Case {
            profile: Profile { wall: Span::from_ms(ms), ..meets(4, 100, "") },
            variables: vec![("OMP_NUM_THREADS", "4")],
            computing: 4,
            ..base()
        };
        let at = |ways: &[String], way: &str| ways.iter().position(|one| one == way);
        // `trimtab run` makes two of the four threads by itself, so two are tried without it.
        let tiny = short(40).ways();
        assert!(at(&tiny, "OMP_NUM_THREADS=2 bare").is_some(), "{tiny:?}");
        assert_eq!(tiny.iter().filter(|way| way.ends_with(" bare")).count(), 2, "{tiny:?}");
        // In a tiny run a start without trimtab is tried before the same with it, else after it.
        for (ms, first) in [(40, true), (400, false)] {
            let ways = short(ms).ways();
            let both =
                ways.iter().filter_map(|way| Some((at(&ways, way)?, at(&ways, &format!("{way} bare"))?)));
            let both: Vec<(usize, usize)> = both.collect();
            assert!(!both.is_empty(), "{ways:?}");
            assert!(both.iter().all(|(with, without)| (without < with) == first), "{ways:?}");
        }
        assert!(short(5_000).ways().iter().all(|way| !way.contains("bare")));
    }

    #[test]
    fn counts_of_launchers_and_programs_change_where_they_stand() {
        let profile = Profile { cpus: 2, workers: 4, wall: Span::from_ms(4_000), ..Profile::default() };
        let ranks = Case {
            profile: profile.clone(),
            command: "mpirun -np 4 ./app -n 9",
            computing: 4,
            processes: 4,
            ..base()
        };
        assert_eq!(ranks.ways()[0], "mpirun -np 2 ./app -n 9");
        let stated = Case { profile, command: "gmx mdrun -ntomp 4", computing: 4, ..base() };
        assert_eq!(stated.ways()[0], "gmx mdrun -ntomp 2");
        let few = Case { command: "mpirun -np 2 ./app", computing: 2, processes: 2, ..base() };
        assert_eq!(few.ways(), Vec::<String>::new());
    }

    #[test]
    fn teams_of_several_threads_get_smaller_teams_and_no_thread_limit() {
        let profile = Profile { intervals: None, ..long(meets(8, 1_000, "")) };
        let case = Case { profile, computing: 8, ..base() };
        let ways = case.ways();
        assert_eq!(ways[0], "OMP_NUM_THREADS=1", "{ways:?}");
        assert!(ways.contains(&"fit=limit".to_owned()), "{ways:?}");
    }

    #[test]
    fn a_program_with_a_cpu_for_each_thread_that_does_not_wait_gets_no_fewer_threads() {
        let case = Case { profile: long(meets(2, 5_000, "")), computing: 2, ..base() };
        assert!(case.ways().iter().all(|way| !way.contains("threads") && !way.contains("THREADS")));
        let one =
            Case { profile: Profile { workers: 1, ..long(meets(1, 5_000, "")) }, computing: 1, ..base() };
        assert_eq!(one.ways(), Vec::<String>::new());
    }

    #[test]
    fn large_memory_in_small_pages_and_several_nodes_get_memory_candidates() {
        let profile = Profile {
            resident: Some(1 << 30),
            huge_share: Some(0.0),
            remote_share: Some(0.5),
            ..long(meets(2, 5_000, ""))
        };
        let case = Case { profile, computing: 2, huge_pages: true, nodes: 2, ..base() };
        let ways = case.ways();
        assert!(
            ways.contains(&"thp=on".to_owned()) && ways.contains(&"memory=interleave".to_owned()),
            "{ways:?}"
        );
        let tuned = Case { variables: vec![("GLIBC_TUNABLES", "x")], ..case };
        assert!(!tuned.ways().contains(&"thp=on".to_owned()));
    }

    proptest! {
        #[test]
        fn candidates_are_few_different_and_ask_for_no_more_threads_than_cpus(
            threads in 1..40_u32, step in 1..100_000_u64, cpus in 1..9_u32, computing in 0..70_u32,
            processes in 0..9_u32, teams in prop::collection::vec(1..5_u32, 0..3), waiting in prop::option::of(0.0..1.0_f64),
            others in prop::option::of(0.0..9.0_f64), set in any::<bool>(), early in any::<bool>(), bits in 0..8_u32,
        ) {
            let profile = Profile { waiting, ..meets(threads, step, "") };
            let teams = if teams.len() > 1 { teams } else { Vec::new() };
            let library = Library {
                name: "MKL".to_owned(), version: None, variable: "MKL_NUM_THREADS".to_owned(), processes, threads: 3,
                service: 0, workers: 3,
            };
            let case = Case {
                profile,
                situation: Situation { cpus, others, teams, ..alone() },
                variables: if set { vec![("OMP_NUM_THREADS", "7")] } else { Vec::new() },
                libraries: if bits & 1 == 1 { vec![library] } else { Vec::new() },
                processes, computing, ended_early: early, slices: true,
                huge_pages: bits & 2 == 2, nodes: 1 + (bits >> 2),
                ..base()
            };
            let all = case.candidates();
            prop_assert!(all.len() <= CANDIDATES_MAX);
            for (at, one) in all.iter().enumerate() {
                prop_assert!(!one.why.is_empty() && one.expected.is_finite());
                prop_assert!(all[..at].iter().all(|other| other.change != one.change));
                prop_assert!(one.change != StartChange::default());
                prop_assert!(!one.change.variables.contains_key("OMP_THREAD_LIMIT"));
                for (name, value) in &one.change.variables {
                    let Some(value) = value.as_ref().filter(|_| name.ends_with("_NUM_THREADS")) else { continue };
                    let product: u32 = value.split(',').map(|size| size.parse::<u32>().unwrap()).product();
                    // Without `trimtab run` the program has two CPUs.
                    let most = if one.change.bare { cpus.max(2) } else { cpus };
                    prop_assert!((1..=most).contains(&product), "{name}={value} on {cpus}");
                }
                let count = one.change.setting.number(Knob::Threads).unwrap_or(1.0);
                prop_assert!(count >= 1.0 && count <= f64::from(cpus));
            }
        }
    }
}

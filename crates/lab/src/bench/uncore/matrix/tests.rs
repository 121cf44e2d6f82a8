use super::*;
use trimtab_core::topology::parse_synthetic;

const EVERYTHING: UncoreScope<'_> = UncoreScope { quick: false, only: &[], threads: None };

fn on(machine: &str, scope: UncoreScope<'_>) -> UncorePlan {
    let machine = parse_synthetic(machine).unwrap();
    let allowed = machine.cpus();
    plan(&machine, &allowed, scope)
}

fn numbers(cpus: &[OsCpu]) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

fn first_of(plan: &UncorePlan, experiment: Experiment) -> &UncoreCase {
    plan.cases.iter().find(|case| case.experiment == experiment).unwrap()
}

#[test]
fn two_nodes_show_all_that_was_published() {
    let plan = on("numa:2 l3:1 core:4", EVERYTHING);
    assert!(plan.left_out.is_empty(), "{:?}", plan.left_out);
    let of = |experiment| first_of(&plan, experiment).ways.clone();
    let [near, far] = of(Experiment::Locality);
    assert_eq!((numbers(&near.cpus), near.home), (vec![0], None));
    assert_eq!((numbers(&far.cpus), far.home.map(|cpu| cpu.0)), (vec![4], Some(0)));
    let [separate, shared] = of(Experiment::Contention);
    assert_eq!((separate.way, numbers(&separate.cpus)), ("separate", vec![0, 4, 1, 5]));
    assert_eq!((shared.way, numbers(&shared.cpus)), ("shared", vec![0, 1, 2, 3]));
    let [close, apart] = of(Experiment::All);
    assert_eq!((numbers(&close.cpus), numbers(&apart.cpus)), (vec![0, 1, 2, 3], vec![0, 4, 1, 5]));
    assert!(close.home == apart.home && close.shared == 128 * KIB && close.rival.is_none());
}

#[test]
fn caches_of_one_node_show_contention_but_no_distance() {
    let plan = on("numa:1 l3:2 core:4", EVERYTHING);
    assert_eq!(first_of(&plan, Experiment::Sharing).ways[1].way, "apart");
    assert!(plan.cases.iter().all(|case| case.experiment != Experiment::Locality));
    assert_eq!(first_of(&plan, Experiment::LocalityContention).ways[1].way, "loaded");
    let said = plan.left_out.join("\n");
    assert!(said.contains("locality: near against far memory needs two nodes"), "{said}");
    assert_eq!(plan.left_out.len(), 4, "{said}");
}

#[test]
fn two_cores_are_alone_or_beside_each_other() {
    let plan = on("numa:1 l3:1 core:2", EVERYTHING);
    assert_eq!(plan.left_out.len(), ALL.len(), "{:?}", plan.left_out);
    let [alone, loaded] = first_of(&plan, Experiment::Contention).ways.clone();
    assert_eq!((alone.rival, numbers(&alone.cpus)), (None, vec![0]));
    let rival = loaded.rival.unwrap();
    assert_eq!((numbers(&rival.cpus), rival.private, rival.streams), (vec![1], MIB, false));
    let streaming = first_of(&plan, Experiment::LocalityContention).ways[1].rival.clone().unwrap();
    assert_eq!((streaming.private, streaming.streams), (STREAM_BYTES, true));
    assert_eq!(numbers(&first_of(&plan, Experiment::Sharing).ways[1].cpus), [0, 1]);
}

#[test]
fn one_core_shows_nothing() {
    let plan = on("numa:1 l3:1 core:1 pu:2", EVERYTHING);
    assert!(plan.cases.is_empty() && plan.left_out.len() == ALL.len());
    assert!(plan.left_out.iter().all(|said| said.ends_with("needs two cores; left out")));
}

#[test]
fn ways_differ_in_placement_or_load_alone_and_names_are_unique() {
    for machine in
        ["numa:2 l3:1 core:4", "numa:1 l3:2 core:4", "numa:1 l3:1 core:2", "numa:4 l3:2 core:4 pu:2"]
    {
        for quick in [false, true] {
            let plan = on(machine, UncoreScope { quick, ..EVERYTHING });
            let names: std::collections::BTreeSet<String> =
                plan.cases.iter().map(ToString::to_string).collect();
            assert_eq!(names.len(), plan.cases.len());
            for UncoreCase { ways: [one, other], .. } in &plan.cases {
                // On two cores alone, a larger list replaces the slower memory of the thread that
                // is waited for.
                let stands_for_far = (one.way, other.way) == ("cached", "missing");
                let barriers = |way: &Setup| way.barriers.filter(|_| !stands_for_far);
                let work = |way: &Setup| (way.private, way.chains, way.shared, barriers(way));
                assert_eq!(work(one), work(other));
                assert_eq!(
                    stands_for_far,
                    one.barriers.map(|at| at.first) != other.barriers.map(|at| at.first)
                );
                assert!((one.way, &one.cpus, &one.rival) != (other.way, &other.cpus, &other.rival));
                assert!(one.private > 0 || one.shared > 0);
                for way in [one, other] {
                    let beside = way.rival.iter().flat_map(|rival| &rival.cpus);
                    assert!(beside.into_iter().all(|cpu| !way.cpus.contains(cpu)));
                }
            }
        }
    }
}

#[test]
fn only_chosen_cases_and_no_more_threads() {
    let scope = UncoreScope { quick: true, only: &[Experiment::Sharing], threads: Some(2) };
    let plan = on("numa:2 l3:1 core:4", scope);
    assert_eq!(plan.cases.len(), 2);
    assert!(plan.cases.iter().all(|case| case.ways.iter().all(|way| way.cpus.len() == 2)));
    let words = plan.cases[0].ways[1].command(Path::new("/b"), 0.1, 2);
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    assert_eq!(
        words.join(" "),
        "/b/uncore_lists --threads 2 --cpus 0,4 --private 0 --chains 1 --share 64 --seconds 0.1 --repeats 2 --wait"
    );
}

#[test]
fn one_line_is_shared_by_as_many_as_were_published_and_fit() {
    let shared_by = |machine: &str, threads: Option<usize>| -> Vec<usize> {
        let plan = on(machine, UncoreScope { only: &[Experiment::Sharing], threads, ..EVERYTHING });
        let lines = plan.cases.iter().filter(|case| case.ways[1].shared == 64);
        let mut counts: Vec<usize> = lines.map(|case| case.ways[1].cpus.len()).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(shared_by("numa:2 l3:1 core:12", None), [2, 4, 6, 8, 10, 12]);
    assert_eq!(shared_by("numa:2 l3:1 core:4", None), [2, 4], "close together is within one cache");
    assert_eq!(shared_by("numa:1 l3:1 core:7", None), [2, 4, 6], "one alone, or so many together");
    assert_eq!(shared_by("numa:1 l3:1 core:2", None), [2]);
    assert_eq!(shared_by("numa:2 l3:1 core:12", Some(3)), [2, 3], "no more than was said");
}

#[test]
fn the_straggler_has_far_memory_a_competitor_or_a_larger_list() {
    let of = |machine: &str| {
        let plan = on(machine, UncoreScope { only: &[Experiment::Spinning], ..EVERYTHING });
        (plan.cases[0].ways.clone(), plan.left_out)
    };
    let (ways, said) = of("numa:2 l3:1 core:2");
    assert!(said.is_empty(), "{said:?}");
    assert_eq!((numbers(&ways[0].cpus), numbers(&ways[1].cpus)), (vec![0, 1], vec![2, 3]));
    assert_eq!((ways[0].home, ways[1].home.map(|cpu| cpu.0)), (None, Some(0)));
    let ([alone, loaded], said) = of("numa:2 l3:1 core:1 pu:2");
    assert!(
        alone.way == "cached" && loaded.way == "missing" && said.len() == 1,
        "a node with one core has no pair"
    );
    let ([alone, loaded], _) = of("numa:1 l3:1 core:3");
    let rival = loaded.rival.unwrap();
    assert_eq!((alone.rival, rival.streams, numbers(&rival.cpus)), (None, true, vec![2]));
    let ([cached, missing], said) = of("numa:1 l3:1 core:2");
    assert!(said[0].contains("is measured instead"), "{said:?}");
    let first = |way: &Setup| way.barriers.map(|barriers| barriers.first);
    assert_eq!((first(&cached), first(&missing)), (Some(64 * KIB), Some(512 * KIB)));
    let words: Vec<_> = missing.command(Path::new("/b"), 0.1, 1);
    let words = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    assert!(words.contains("--private 65536") && words.contains("--first 524288 --phase 5000"), "{words}");
}

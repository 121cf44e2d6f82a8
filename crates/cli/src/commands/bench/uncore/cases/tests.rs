use super::*;
use trimtab_core::topology::parse_synthetic;

const EVERYTHING: Scope<'_> = Scope { quick: false, only: &[], threads: 4 };

fn on(machine: &str, scope: Scope<'_>) -> Plan {
    let machine = parse_synthetic(machine).unwrap();
    let allowed = machine.cpus();
    plan(&machine, &allowed, scope)
}

fn numbers(cpus: &[OsCpu]) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

fn first_of(plan: &Plan, experiment: Experiment) -> &Case {
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
    assert_eq!(plan.left_out.len(), 3, "{said}");
}

#[test]
fn two_cores_are_alone_or_beside_each_other() {
    let plan = on("numa:1 l3:1 core:2", EVERYTHING);
    assert_eq!(plan.left_out.len(), 6, "{:?}", plan.left_out);
    let [alone, loaded] = first_of(&plan, Experiment::Contention).ways.clone();
    assert_eq!((alone.rival, numbers(&alone.cpus)), (None, vec![0]));
    let rival = loaded.rival.unwrap();
    assert_eq!((numbers(&rival.cpus), rival.private, rival.streams), (vec![1], MIB, false));
    let streaming = first_of(&plan, Experiment::LocalityContention).ways[1].rival.clone().unwrap();
    assert_eq!((streaming.private, streaming.streams), (STREAM, true));
    assert_eq!(numbers(&first_of(&plan, Experiment::Sharing).ways[1].cpus), [0, 1]);
}

#[test]
fn one_core_shows_nothing() {
    let plan = on("numa:1 l3:1 core:1 pu:2", EVERYTHING);
    assert!(plan.cases.is_empty() && plan.left_out.len() == 6);
    assert!(plan.left_out.iter().all(|said| said.ends_with("needs two cores; left out")));
}

#[test]
fn ways_differ_in_placement_or_load_alone_and_names_are_unique() {
    for machine in
        ["numa:2 l3:1 core:4", "numa:1 l3:2 core:4", "numa:1 l3:1 core:2", "numa:4 l3:2 core:4 pu:2"]
    {
        for quick in [false, true] {
            let plan = on(machine, Scope { quick, ..EVERYTHING });
            let names: std::collections::BTreeSet<String> =
                plan.cases.iter().map(ToString::to_string).collect();
            assert_eq!(names.len(), plan.cases.len());
            for Case { ways: [one, other], .. } in &plan.cases {
                let work = |way: &Setup| (way.private, way.chains, way.shared);
                assert_eq!(work(one), work(other));
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
fn only_what_was_asked_for_and_no_more_threads() {
    let scope = Scope { quick: true, only: &[Experiment::Sharing], threads: 2 };
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

mod memory;
mod oracle;

use super::*;
use crate::check::check;
use crate::ids::{Id, OsCpu};
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Level, Machine, parse_synthetic};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, prop_assume, proptest};
use std::collections::BTreeSet;

fn machine(text: &str) -> Machine {
    parse_synthetic(text).unwrap()
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn free(machine: &Machine) -> Taken {
    Taken::nothing(machine.cpus())
}

fn ask(text: &str) -> Request {
    Request { amount: text.parse().unwrap(), ..Request::default() }
}

/// Plans, checks the plan with the independent checker, and returns it.
fn good(machine: &Machine, request: &Request, taken: &Taken) -> Plan {
    let plan = plan(machine, request, taken).unwrap_or_else(|error| panic!("{request:?}: {error}"));
    let findings = check(machine, request, taken, &plan);
    assert!(findings.is_empty(), "{request:?}: {findings:?}\n{plan:#?}");
    plan
}

fn order(plan: &Plan) -> Vec<u32> {
    plan.slots.iter().map(|slot| slot.cpu.0).collect()
}

#[test]
fn expressions_are_read_back_as_written() {
    for text in ["auto", "64", "50%", "node", "2xl3", "8/node", "2x8/node", "3xpackage"] {
        assert_eq!(text.parse::<Amount>().unwrap().to_string(), text);
    }
    assert_eq!("4xcores".parse::<Amount>().unwrap(), Amount::Cores(4));
    assert_eq!("2xllc".parse::<Amount>().unwrap(), "2xL3".parse().unwrap());
}

#[test]
fn faults_in_expressions_name_their_position() {
    for (text, at, word) in [
        ("", 0, "missing"),
        ("0", 0, "not a request"),
        ("0-7", 0, "--cpus"),
        ("S0:0-3", 0, "--cpus"),
        ("101%", 0, "more than the whole machine"),
        ("50%x", 3, "nothing can follow"),
        ("4q", 1, "unexpected"),
        ("2x", 2, "a unit is missing"),
        ("2xfoo", 2, "not a unit"),
        ("2x8node", 3, "a / and a unit"),
        ("8/", 2, "missing"),
        ("99999999999", 0, "too large"),
        ("-3", 0, "not a unit"),
    ] {
        let error = text.parse::<Amount>().unwrap_err();
        assert_eq!(error.at, at, "{text:?}: {error}");
        assert!(error.to_string().contains(word), "{text:?}: {error}");
    }
}

#[test]
fn compact_takes_the_tightest_hole() {
    let machine = machine("pack:2 l3:2 core:4");
    // The L3s have 4, 2, 4, 3 free cores: two fit exactly into the second.
    let taken = Taken { held: cpus("6,7,15"), ..free(&machine) };
    assert_eq!(good(&machine, &ask("2"), &taken).mask, cpus("4-5"));
    assert_eq!(good(&machine, &ask("3"), &taken).mask, cpus("12-14"));
    assert_eq!(good(&machine, &ask("4"), &taken).mask, cpus("0-3"));
    // Six cores need two caches in any case: the tighter pair is within one package.
    assert_eq!(good(&machine, &ask("6"), &taken).mask, cpus("0-5"));
}

#[test]
fn compact_prefers_near_nodes() {
    // Two packages with two nodes each; without firmware distances the tree determines the near
    // nodes.
    let machine = machine("pack:2 numa:2 core:4");
    let taken = Taken { held: cpus("0"), ..free(&machine) };
    // Eight cores need two nodes: the second package has two whole ones, near to each other.
    assert_eq!(good(&machine, &ask("8"), &taken).mask, cpus("8-15"));
}

#[test]
fn busy_cores_are_weighed_against_distance() {
    let machine = machine("numa:2 core:4");
    let with = |load: u16| Taken {
        busy: (0..4).map(|cpu| (OsCpu(cpu), if cpu == 3 { load } else { 0 })).collect(),
        held: cpus("4,5"),
        ..free(&machine)
    };
    // Node 0 has one core in use; node 1 has two of four free. A little load is better than a
    // second node ...
    assert_eq!(good(&machine, &ask("4"), &with(300)).mask, cpus("0-3"));
    // ... a busy core is not.
    let crossed = good(&machine, &ask("4"), &with(900));
    assert!(!crossed.mask.contains(OsCpu(3)) && crossed.nodes.len() == 2, "{crossed:?}");
}

#[test]
fn pinned_are_avoided_before_busy_ones() {
    let machine = machine("core:3");
    let taken = Taken { pinned: cpus("0"), busy: [(OsCpu(1), 990)].into(), ..free(&machine) };
    assert_eq!(good(&machine, &ask("1"), &taken).mask, cpus("2"));
    assert_eq!(good(&machine, &ask("2"), &taken).mask, cpus("1-2"));
    let all = good(&machine, &ask("3"), &taken);
    assert!(
        all.reasons.iter().any(|reason| matches!(reason, Reason::UsedAnyway { state: CpuState::Pinned, .. }))
    );
}

#[test]
fn held_cores_are_used_only_to_share_and_then_last() {
    let machine = machine("core:4");
    let taken = Taken { held: cpus("0-1"), pinned: cpus("2"), ..free(&machine) };
    assert!(matches!(
        plan(&machine, &ask("3"), &taken),
        Err(PlaceError::NotEnough { asked: 3, free: 2, .. })
    ));
    let share = |text| Request { share: true, ..ask(text) };
    assert_eq!(good(&machine, &share("2"), &taken).mask, cpus("2-3"));
    assert_eq!(good(&machine, &share("3"), &taken).mask.len(), 3);
    let fewer = Request { or_fewer: true, ..ask("3") };
    assert_eq!(good(&machine, &fewer, &taken).mask, cpus("2-3"));
}

#[test]
fn whole_cores_by_default_with_siblings_held_idle() {
    let machine = machine("core:4 pu:2(far)");
    let one = good(&machine, &ask("2"), &free(&machine));
    assert_eq!((one.mask, one.hold), (cpus("0-1"), cpus("0-1,4-5")));
    let both = good(&machine, &Request { smt: Smt::All, ..ask("2") }, &free(&machine));
    assert_eq!(order(&both), [0, 4, 1, 5]);
    let spread = Request { smt: Smt::All, strategy: Strategy::Scatter, ..ask("2") };
    let dealt = good(&machine, &spread, &free(&machine));
    assert_eq!(dealt.slots.len(), 4);
    assert_eq!(
        dealt.slots[..2].iter().map(|slot| slot.core).collect::<BTreeSet<_>>().len(),
        2,
        "cores before siblings"
    );
}

#[test]
fn a_sibling_held_by_another_run_makes_the_core_held() {
    let machine = machine("core:2 pu:2");
    let taken = Taken { held: cpus("1"), ..free(&machine) };
    assert_eq!(good(&machine, &ask("1"), &taken).mask, cpus("2"));
}

#[test]
fn siblings_outside_the_cpuset_do_not_block_a_container() {
    let machine = machine("core:2 pu:2(far)");
    // This process may use CPUs 0 and 1; the other container runs on their siblings 2 and 3 and
    // holds one.
    let taken = Taken { held: cpus("2"), ..Taken::nothing(cpus("0-1")) };
    let both = good(&machine, &ask("2"), &taken);
    assert_eq!((both.mask.clone(), both.hold), (cpus("0-1"), cpus("0-1")));
    assert_eq!(good(&machine, &ask("1"), &taken).mask, cpus("1"));
}

#[test]
fn scatter_deals_and_balanced_blocks() {
    let machine = machine("pack:2 l3:2 core:2");
    let scatter = |text| Request { strategy: Strategy::Scatter, ..ask(text) };
    let balanced = |text| Request { strategy: Strategy::Balanced, ..ask(text) };
    assert_eq!(order(&good(&machine, &scatter("4"), &free(&machine))), [0, 4, 2, 6]);
    assert_eq!(order(&good(&machine, &balanced("4"), &free(&machine))), [0, 2, 4, 6]);
    assert_eq!(order(&good(&machine, &scatter("2"), &free(&machine))), [0, 4]);
    assert_eq!(order(&good(&machine, &scatter("8"), &free(&machine))), [0, 4, 2, 6, 1, 5, 3, 7]);
}

#[test]
fn strides_skip_or_hold() {
    let machine = machine("l3:1 l2:4 core:2");
    let stride = |stride| Request { strategy: Strategy::Stride(stride), ..ask("2") };
    let every = good(&machine, &stride(Stride::Every(2)), &free(&machine));
    assert_eq!((every.mask, every.hold), (cpus("0,2"), cpus("0,2")));
    let per_l2 = good(&machine, &stride(Stride::OnePer(Level::L2)), &free(&machine));
    assert_eq!((per_l2.mask, per_l2.hold), (cpus("0,2"), cpus("0-3")));
    // Another run uses the first two modules, so they cannot be kept idle.
    let taken = Taken { held: cpus("1,2"), ..free(&machine) };
    assert_eq!(good(&machine, &stride(Stride::OnePer(Level::L2)), &taken).mask, cpus("4,6"));
    let all = Request { amount: Amount::Auto, ..stride(Stride::OnePer(Level::L2)) };
    assert_eq!(good(&machine, &all, &taken).mask, cpus("4,6"));
}

#[test]
fn shapes_are_kept() {
    let machine = machine("pack:2 numa:2 l3:2 core:4");
    let taken = Taken { held: cpus("0,17"), ..free(&machine) };
    assert_eq!(good(&machine, &ask("node"), &taken).mask, cpus("8-15"));
    assert_eq!(good(&machine, &ask("2xl3"), &taken).mask, cpus("8-15"));
    assert_eq!(good(&machine, &ask("3/node"), &taken).mask, cpus("1-3,8-10,16,18-19,24-26"));
    assert_eq!(good(&machine, &ask("2x8/node"), &taken).mask.len(), 16);
    assert!(matches!(
        plan(&machine, &ask("8/node"), &taken),
        Err(PlaceError::UnitsNotFree { asked: 4, free: 2, level: Level::Node, per: Some(8) })
    ));
    assert!(matches!(plan(&machine, &ask("3xnode"), &taken), Err(PlaceError::UnitsNotFree { free: 2, .. })));
    assert!(matches!(
        plan(&machine, &ask("9xnode"), &taken),
        Err(PlaceError::MoreUnitsThanExist { exist: 4, .. })
    ));
    assert!(matches!(plan(&machine, &ask("die"), &taken), Err(PlaceError::NoSuchUnit { .. })));
    let fewer = Request { or_fewer: true, ..ask("9xnode") };
    assert_eq!(good(&machine, &fewer, &taken).mask, cpus("8-15,24-31"));
}

#[test]
fn named_cpus_are_taken_exactly_or_refused() {
    let machine = machine("core:4 pu:2(far)");
    let exact = |text: &str| Request { amount: Amount::Exact, cpus: Some(cpus(text)), ..Request::default() };
    let plan_of = |text: &str, taken: &Taken| plan(&machine, &exact(text), taken);
    assert_eq!(good(&machine, &exact("1,5,3"), &free(&machine)).mask, cpus("1,3,5"));
    let taken = Taken { held: cpus("5"), ..free(&machine) };
    // The named CPU's core is shared with another run, so it is not available without --share.
    assert!(matches!(plan_of("5", &taken), Err(PlaceError::CpusHeld { .. })));
    assert!(matches!(plan_of("9", &taken), Err(PlaceError::NoSuchCpus { .. })));
    assert!(matches!(plan_of("", &taken), Err(PlaceError::NoCpus)));
    let narrow = Taken::nothing(cpus("0-1"));
    assert!(matches!(plan_of("0-2", &narrow), Err(PlaceError::CpusNotAllowed { .. })));
    let among = Request { cpus: Some(cpus("2-3")), ..ask("1") };
    assert_eq!(good(&machine, &among, &free(&machine)).mask, cpus("2"));
}

#[test]
fn auto_takes_free_cores_up_to_the_sites_default() {
    let machine = machine("core:8");
    let taken =
        Taken { held: cpus("0-1"), busy: [(OsCpu(2), 800), (OsCpu(4), 300)].into(), ..free(&machine) };
    assert_eq!(good(&machine, &ask("auto"), &taken).mask, cpus("3-7"));
    let capped = Request { cores_auto: Some(2), ..ask("auto") };
    assert_eq!(good(&machine, &capped, &taken).mask.len(), 2);
    let max = Request { cores_max: Some(4), ..ask("5") };
    assert!(matches!(plan(&machine, &max, &taken), Err(PlaceError::SiteMax { asked: 5, max: 4 })));
}

#[test]
fn quotas_bound_the_thread_count() {
    let machine = machine("core:8");
    let taken = Taken { quota: Some(2_500), ..free(&machine) };
    assert_eq!(good(&machine, &ask("8"), &taken).threads, 3);
}

#[test]
fn memory_follows_the_cores() {
    let machine = machine("pack:2 [numa(memory=16GB tier=hbm)] numa:2(memory=64GB) core:4");
    let memory = |text: &str, cores: &str| {
        let request = Request { memory: text.parse().unwrap(), ..ask(cores) };
        good(&machine, &request, &free(&machine)).memory
    };
    let of = |policy, nodes: &str| MemoryPlan { policy, nodes: nodes.parse::<NodeSet>().unwrap() };
    assert_eq!(memory("auto", "4"), of(MemoryPolicy::Preferred, "0"));
    assert_eq!(memory("auto", "8"), of(MemoryPolicy::PreferredMany, "0-1"));
    assert_eq!(memory("bind", "16"), of(MemoryPolicy::Bind, "0-3"));
    assert_eq!(memory("interleave:0,3", "4"), of(MemoryPolicy::Interleave, "0,3"));
    assert_eq!(memory("preferred:hbm", "4"), of(MemoryPolicy::Preferred, "4"));
    assert_eq!(memory("local", "4"), of(MemoryPolicy::Local, ""));
    assert_eq!(memory("none", "4"), of(MemoryPolicy::None, ""));
    let no = Request { memory: "bind:9".parse().unwrap(), ..ask("1") };
    assert!(matches!(plan(&machine, &no, &free(&machine)), Err(PlaceError::NoSuchNodes { .. })));
    let no = Request { memory: "bind:cxl".parse().unwrap(), ..ask("1") };
    assert!(matches!(plan(&machine, &no, &free(&machine)), Err(PlaceError::NoSuchTier { .. })));
}

/// Returns the machine with some of its nodes in the two forms of dies without memory: nodes with
/// zero bytes, or missing nodes.
fn without_memory(text: &str, empty: &[usize], missing: &[usize]) -> Machine {
    let mut parts = machine(text).parts().clone();
    for (at, node) in parts.nodes.iter_mut().enumerate() {
        node.bytes = Some(if empty.contains(&at) { 0 } else { 8 << 30 });
    }
    assert!(parts.distances.is_empty());
    parts.nodes =
        (0..).zip(parts.nodes).filter(|(at, _)| !missing.contains(at)).map(|(_, node)| node).collect();
    Machine::try_from(parts).unwrap()
}

/// The Threadripper 2990WX: four dies with two caches of four cores each; every other die has
/// memory.
const FOUR_DIES: &str = "pack:1 numa:4 l3:2 core:4";

#[test]
fn cores_with_memory_come_first_with_every_strategy() {
    // Dies without memory as reported by Linux (nodes with zero bytes), and as omitted by hwloc.
    for machine in [without_memory(FOUR_DIES, &[0, 2], &[]), without_memory(FOUR_DIES, &[], &[0, 2])] {
        let with = |amount: &str, strategy| {
            good(&machine, &Request { strategy, ..ask(amount) }, &free(&machine)).mask
        };
        let dies = cpus("8-15,24-31");
        for strategy in [Strategy::Compact, Strategy::Scatter, Strategy::Balanced] {
            for amount in [
                "1", "2", "4", "9", "12", "16", "50%", "2xl3", "1xl3", "3/node", "2x4/node", "8/node",
                "2xnode", "node",
            ] {
                let mask = with(amount, strategy);
                assert!(mask.is_subset(&dies), "{amount} {strategy}: {mask}");
            }
            // If they do not suffice, all of them are used, and then the others.
            for amount in ["17", "20", "24", "31"] {
                let mask = with(amount, strategy);
                assert!(dies.is_subset(&mask), "{amount} {strategy}: {mask}");
            }
            assert_eq!(with("32", strategy), machine.cpus());
            assert_eq!(with("auto", strategy), machine.cpus());
        }
        for stride in [Stride::Every(2), Stride::OnePer(Level::L3), Stride::OnePer(Level::Node)] {
            let mask = with("2", Strategy::Stride(stride));
            assert!(mask.is_subset(&dies), "{stride:?}: {mask}");
        }
        assert_eq!(with("1/node", Strategy::Compact), cpus("8,24"));
        // Among the dies without memory, only one is used.
        assert_eq!(with("20", Strategy::Compact), cpus("0-3,8-15,24-31"));
        assert_eq!(with("24", Strategy::Compact), cpus("0-15,24-31"));
    }
}

#[test]
fn a_core_without_memory_is_better_than_one_in_use_and_is_said() {
    let machine = without_memory("numa:2 core:2", &[0], &[]);
    let reasons = |plan: &Plan| plan.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let quiet = good(&machine, &ask("2"), &free(&machine));
    assert_eq!(quiet.mask, cpus("2-3"));
    assert!(
        reasons(&quiet).contains("avoided CPUs 0-1: they have no memory of their own"),
        "{}",
        reasons(&quiet)
    );
    let busy = Taken { busy: [(OsCpu(2), 950), (OsCpu(3), 950)].into(), ..free(&machine) };
    assert_eq!(good(&machine, &ask("2"), &busy).mask, cpus("0-1"));
    let more = good(&machine, &ask("3"), &free(&machine));
    assert_eq!(more.mask, cpus("0,2-3"));
    let why =
        "uses CPUs 0 although they have no memory of their own: the cores that have some do not suffice";
    assert!(reasons(&more).contains(why), "{}", reasons(&more));
    assert_eq!(more.memory.nodes.to_string(), "1", "no policy over a node that has nothing");
    let little = Taken { busy: [(OsCpu(2), 300)].into(), ..free(&machine) };
    assert_eq!(good(&machine, &ask("2"), &little).mask, cpus("2-3"));
    // Named CPUs are used exactly as named.
    let named = Request { amount: Amount::Exact, cpus: Some(cpus("0-1")), ..Request::default() };
    let named = good(&machine, &named, &free(&machine));
    assert!(
        reasons(&named)
            .contains("CPUs 0-1 have no memory of their own: all memory they use is on other nodes")
    );
    assert_eq!(named.memory.policy, MemoryPolicy::None);
    let bound = Request { memory: "bind:0".parse().unwrap(), ..ask("1") };
    assert!(matches!(plan(&machine, &bound, &free(&machine)), Err(PlaceError::NoSuchNodes { .. })));
}

#[test]
fn memory_that_may_not_be_used_is_no_local_memory() {
    let machine = machine("numa:2 core:4");
    let taken = Taken { mems: Some("1".parse().unwrap()), ..free(&machine) };
    assert_eq!(good(&machine, &ask("4"), &taken).mask, cpus("4-7"));
    assert_eq!(good(&machine, &ask("1/node"), &taken).mask, cpus("4"));
    // If no core has any, or nothing is known, all cores are equal.
    let confined = Taken { allowed: cpus("0-3"), ..taken };
    assert_eq!(good(&machine, &ask("2"), &confined).mask, cpus("0-1"));
    let nothing = without_memory("numa:2 core:4", &[0, 1], &[]);
    assert_eq!(good(&nothing, &ask("4"), &free(&nothing)).mask, cpus("0-3"));
    let unknown = good(&machine, &ask("4"), &free(&machine));
    assert!(!unknown.reasons.iter().any(|reason| matches!(reason, Reason::Remote { .. })));
}

#[test]
fn the_checker_rejects_a_plan_on_cores_without_memory() {
    let plain = machine(FOUR_DIES);
    let empty = without_memory(FOUR_DIES, &[0, 2], &[]);
    for (amount, strategy) in [
        ("8", Strategy::Compact),
        ("3", Strategy::Scatter),
        ("50%", Strategy::Balanced),
        ("node", Strategy::Compact),
        ("2xl3", Strategy::Compact),
        ("2x2/node", Strategy::Balanced),
        ("4", Strategy::Stride(Stride::Every(1))),
        ("2", Strategy::Stride(Stride::OnePer(Level::L3))),
    ] {
        // A plan that is correct if all nodes have memory is wrong if the first node has none.
        let request = Request { strategy, ..ask(amount) };
        let plan = plan(&plain, &request, &free(&plain)).unwrap();
        assert_eq!(check(&plain, &request, &free(&plain), &plan), [], "{amount} {strategy}");
        let findings = check(&empty, &request, &free(&empty), &plan);
        assert!(
            matches!(findings[..], [crate::check::PlanFinding::NoLocalMemory { .. }]),
            "{amount} {strategy}: {findings:?}"
        );
        // The plan is correct if the other cores are taken.
        let taken = Taken { pinned: cpus("8-15,24-31"), ..free(&empty) };
        assert_eq!(check(&empty, &request, &taken, &plan), [], "{amount} {strategy}");
    }
}

/// Raw data of a test case: machine shape, held CPUs, loads, a count, a strategy, flags.
type Situation = ((u32, u32, u32, u32, u32, u32, bool), u64, u64, u32, usize, u8);

fn situation() -> impl proptest::strategy::Strategy<Value = Situation> {
    let shape = (1u32..3, 1u32..3, 1u32..4, 1u32..3, 1u32..4, 1u32..3, any::<bool>());
    (shape, any::<u64>(), any::<u64>(), 1u32..24, 0usize..10, 0u8..4)
}

/// Returns a machine, a request and an occupancy that challenge the planner.
fn situate(situation: Situation) -> (Machine, Request, Taken) {
    let ((pack, numa, l3, l2, core, pu, far), held, loads, n, strategy, flags) = situation;
    let far = if far { "(far)" } else { "" };
    let text = format!("pack:{pack} numa:{numa} l3:{l3} l2:{l2} core:{core} pu:{pu}{far}");
    // Nodes with zero bytes, missing nodes, and machines that report no memory.
    let among = |shift: u32| {
        (0..(pack * numa) as usize).filter(|at| loads >> (shift + *at as u32) & 3 == 3).collect::<Vec<_>>()
    };
    let machine = match held >> 60 & 3 {
        0 => machine(&text),
        _ => without_memory(&text, &among(40), &among(50)),
    };
    // Two set bits of four make a CPU held: about one in four.
    let held = machine
        .cpus()
        .iter()
        .filter(|cpu| held >> (cpu.index() % 32) & 1 == 1 && held >> (32 + cpu.index() % 31) & 1 == 1)
        .collect();
    let busy = machine
        .cpus()
        .iter()
        .filter(|cpu| loads >> (cpu.index() % 61) & 3 == 3)
        .map(|cpu| (cpu, 450))
        .collect();
    let strategies = [
        Strategy::Compact,
        Strategy::Scatter,
        Strategy::Balanced,
        Strategy::Stride(Stride::Every(2)),
        Strategy::Stride(Stride::OnePer(Level::L2)),
        Strategy::Stride(Stride::OnePerFpu),
    ];
    let amounts = [
        Amount::Cores(n),
        Amount::Percent(n * 4),
        Amount::Auto,
        Amount::Shape(Shape { units: Some(n % 3 + 1), per: None, level: Level::L3 }),
        Amount::Shape(Shape { units: None, per: Some(n % 3 + 1), level: Level::Node }),
    ];
    let request = Request {
        amount: amounts[(n as usize + strategy) % amounts.len()],
        strategy: strategies[strategy % strategies.len()],
        smt: if flags & 1 == 1 { Smt::All } else { Smt::default() },
        or_fewer: flags & 2 == 2,
        ..Request::default()
    };
    let taken = Taken { held, busy, ..free(&machine) };
    (machine, request, taken)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_plan_passes_the_checker_and_is_deterministic(situation in situation()) {
        let (machine, request, taken) = situate(situation);
        let first = plan(&machine, &request, &taken);
        prop_assert_eq!(&first, &plan(&machine, &request, &taken));
        if let Ok(first) = first {
            let findings = check(&machine, &request, &taken, &first);
            prop_assert!(findings.is_empty(), "{:?}\n{:?}\n{:?}", request, findings, first);
        }
    }

    #[test]
    fn a_refusal_means_that_it_really_cannot_be_met(situation in situation()) {
        let (machine, request, taken) = situate(situation);
        let Err(error) = plan(&machine, &request, &taken) else { return Ok(()) };
        let free_cores = machine.cores().iter().filter(|core| !machine.cpus_of(&core.pus).intersects(&taken.held)).count();
        match (request.amount, request.strategy) {
            (Amount::Cores(n), Strategy::Compact | Strategy::Scatter | Strategy::Balanced) => {
                prop_assert!((n as usize) > free_cores, "{n} asked, {free_cores} free: {error}");
                prop_assert!(!request.or_fewer || free_cores == 0);
            }
            (Amount::Auto, Strategy::Compact) => prop_assert_eq!(free_cores, 0),
            _ => {}
        }
    }

    /// The oracle tries every set of nodes and every set of caches; the planner must not touch
    /// more.
    #[test]
    fn compact_touches_the_fewest_nodes_and_caches(situation in situation()) {
        let (machine, request, mut taken) = situate(situation);
        taken.busy.clear();
        let Amount::Cores(n) = request.amount else { return Ok(()) };
        let request = Request { amount: Amount::Cores(n), ..Request::default() };
        let Ok(made) = plan(&machine, &request, &taken) else { return Ok(()) };
        let is_free = |core: u32| !machine.cpus_of(&machine.cores()[core as usize].pus).intersects(&taken.held);
        // Cores with memory have priority over everything that is minimal here.
        let says = machine.nodes().iter().any(|node| node.bytes.is_none_or(|bytes| bytes > 0));
        let has_memory = |core: u32| {
            let node = machine.cores()[core as usize].node;
            node.is_some_and(|node| !says || machine.nodes()[node.0 as usize].bytes != Some(0))
        };
        let with_memory = (0..machine.cores().len() as u32).filter(|&core| is_free(core) && has_memory(core)).count();
        prop_assume!(with_memory >= n as usize && !machine.nodes().is_empty());
        let is_free = |core: u32| is_free(core) && has_memory(core);
        let caches: Vec<(u32, usize)> = machine
            .llcs()
            .iter()
            .map(|llc| (llc.node.map_or(0, |node| node.0), llc.cores.clone().filter(|&core| is_free(core)).count()))
            .collect();
        prop_assume!(caches.len() <= 12);
        let mut best = (usize::MAX, usize::MAX);
        for set in 0u32..1 << caches.len() {
            let members: Vec<_> = (0..caches.len()).filter(|at| set >> at & 1 == 1).collect();
            if members.iter().map(|&at| caches[at].1).sum::<usize>() >= n as usize {
                let nodes: BTreeSet<u32> = members.iter().map(|&at| caches[at].0).collect();
                best = best.min((nodes.len(), members.len()));
            }
        }
        let llcs: BTreeSet<_> = made.slots.iter().map(|slot| slot.llc).collect();
        prop_assert_eq!((made.nodes.len(), llcs.len()), best, "{:?}", made.slots);
    }

    /// Spread shares differ by at most one between nodes with the same free room, and no node with
    /// room is unused while another has two more.
    #[test]
    fn scatter_is_even_over_equal_nodes(pack in 1u32..4, numa in 1u32..4, core in 1u32..6, n in 1u32..40, balanced in any::<bool>()) {
        let machine = machine(&format!("pack:{pack} numa:{numa} core:{core}"));
        let n = n % (pack * numa * core) + 1;
        let strategy = if balanced { Strategy::Balanced } else { Strategy::Scatter };
        let made = good(&machine, &Request { amount: Amount::Cores(n), strategy, ..Request::default() }, &free(&machine));
        let mut per_node = vec![0u32; (pack * numa) as usize];
        for slot in &made.slots { per_node[slot.node.unwrap().0 as usize] += 1; }
        let (least, most) = (per_node.iter().min().unwrap(), per_node.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{per_node:?}");
        if balanced {
            prop_assert!(order(&made).is_sorted());
        }
    }

    #[test]
    fn any_expression_is_parsed_or_refused(text in "[0-9axuto%/nlcdek3 ]{0,12}|.{0,12}") {
        if let Ok(amount) = text.parse::<Amount>() {
            prop_assert_eq!(amount.to_string().parse::<Amount>().unwrap(), amount);
        }
        let _ = (text.parse::<Strategy>(), text.parse::<Smt>(), text.parse::<MemoryRequest>(), parse_synthetic(&text));
    }
}

#[test]
fn units_out_of_bounds_are_not_waited_for() {
    let machine = parse_synthetic("pack:2 core:4").unwrap();
    let one = Taken::nothing("0-3".parse().unwrap());
    let two = Request { amount: "2xpackage".parse().unwrap(), ..Request::default() };
    let error = plan(&machine, &two, &one).unwrap_err();
    assert_eq!(error, PlaceError::UnitsNotAllowed { asked: 2, allowed: 1, level: Level::Package });
    assert!(!error.passes());
    // Units held by others may become free.
    let held = Taken { held: "4-7".parse().unwrap(), ..Taken::nothing(machine.cpus()) };
    assert!(plan(&machine, &two, &held).unwrap_err().passes());
    assert!(plan(&machine, &Request { or_fewer: true, ..two }, &one).is_ok());
}

//! Tests of machines from parts: nesting, added objects, refused parts, and nearest nodes.

use super::*;

#[test]
fn a_list_of_cpus_is_a_machine() {
    let machine = Machine::build(Parts { pus: vec![OsCpu(5), OsCpu(2)], ..Parts::default() }).unwrap();
    assert_sound(&machine);
    assert_eq!(core_runs(&machine), [0..1, 1..2]);
    assert_eq!((machine.nodes().len(), machine.llcs().len(), machine.smt()), (0, 1, 1));
    assert_eq!(machine.os(Pu(0)), OsCpu(5));
    assert_eq!(machine.pu(OsCpu(2)), Some(Pu(1)));
    assert_eq!(machine.pu(OsCpu(0)), None);
    assert_eq!(machine.nodes_of(&machine.cpus()), NodeSet::new());
}

#[test]
fn objects_nest_in_any_order_of_input() {
    use Level::{Core, Die, L3, Package};
    let machine = Machine::build(with_domains(
        8,
        &[(Core, 4, 2), (L3, 4, 4), (Package, 0, 8), (Core, 0, 2), (L3, 0, 4), (Core, 6, 2), (Core, 2, 2)],
    ))
    .unwrap();
    assert_sound(&machine);
    let levels: Vec<Level> = machine.objects().iter().map(|object| object.level).collect();
    assert_eq!(levels, [Level::Machine, Package, L3, Core, Core, L3, Core, Core]);
    assert_eq!(machine.objects()[3].parent, Some(ObjectId(2)));
    assert_eq!(machine.enclosing(L3, CoreId(2)).unwrap().pus, 4..8);
    assert_eq!(machine.enclosing(Die, CoreId(2)), None);
    assert_eq!(machine.cores_in(&(2..6)), 1..3);
    assert_eq!(machine.cores_in(&(3..3)), 0..0);
}

#[test]
fn cores_are_added_where_absent() {
    let machine = Machine::build(with_domains(5, &[(Level::Core, 1, 2)])).unwrap();
    assert_sound(&machine);
    assert_eq!(core_runs(&machine), [0..1, 1..3, 3..4, 4..5]);
}

#[test]
fn nested_groups_count_as_their_outermost() {
    use Level::Group;
    let machine =
        Machine::build(with_domains(8, &[(Group, 0, 4), (Group, 0, 2), (Group, 2, 2), (Group, 5, 2)]))
            .unwrap();
    assert_sound(&machine);
    assert_eq!(machine.at(Group).count(), 4);
    assert_eq!(machine.units(Group), [0..4, 4..5, 5..7, 7..8]);
    assert_eq!(machine.enclosing(Group, CoreId(1)).unwrap().pus, 0..2);
}

#[test]
fn impossible_parts_are_refused_by_name() {
    use MachineError as E;
    let refused = |parts: Parts| Machine::build(parts).unwrap_err();
    let nodes = |nodes: &[NodePart]| Parts { nodes: nodes.to_vec(), ..bare(4) };
    let domains = |domains: &[(Level, u32, u32)]| with_domains(4, domains);
    assert_eq!(refused(bare(0)), E::Empty);
    let twice = Parts { pus: vec![OsCpu(3), OsCpu(1), OsCpu(3)], ..Parts::default() };
    assert_eq!(refused(twice), E::DuplicateCpu(OsCpu(3)));
    assert_eq!(refused(nodes(&[node(1, 0, 2), node(0, 2, 1), node(1, 2, 2)])), E::DuplicateNode(OsNode(1)));
    assert_eq!(refused(domains(&[(Level::L3, 0, 3), (Level::L2, 2, 2)])), E::Crossing(Level::L3, Level::L2));
    assert_eq!(
        refused(domains(&[(Level::Core, 0, 2), (Level::L2, 0, 1)])),
        E::Crossing(Level::Core, Level::L2),
        "nothing is inside a core"
    );
    assert_eq!(
        refused(Parts { nodes: vec![node(0, 0, 1)], ..domains(&[(Level::Core, 0, 2)]) }),
        E::Crossing(Level::Core, Level::Node),
        "a core has one home"
    );
    for (first, count) in [(0, 5), (4, 1), (5, 0), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
        let end = u64::from(first) + u64::from(count);
        let out = |level| E::OutOfRange { level, first, end, pus: 4 };
        assert_eq!(refused(domains(&[(Level::Die, first, count)])), out(Level::Die));
        assert_eq!(refused(nodes(&[node(0, first, count)])), out(Level::Node));
    }
    for count in [1, 3, 5] {
        let parts = Parts { distances: vec![10; count], ..nodes(&[node(0, 0, 2), node(1, 2, 2)]) };
        assert_eq!(refused(parts), E::Distances { found: count, nodes: 2 });
    }
    let far = Parts { pus: vec![OsCpu(0), OsCpu(u32::MAX)], ..Parts::default() };
    assert_eq!(refused(far), E::CpuNumber(OsCpu(u32::MAX)));
    assert_eq!(refused(nodes(&[node(u32::MAX, 0, 4)])), E::NodeNumber(OsNode(u32::MAX)));
    let most = u32::try_from(MAX_PUS).unwrap();
    assert!(Machine::build(bare(most)).is_ok());
    assert!(matches!(refused(bare(most + 1)), E::TooMany { what: "hardware threads", .. }));
    let many = (0..=u32::try_from(MAX_NODES).unwrap()).map(|os| node(os, 0, 0)).collect::<Vec<_>>();
    assert!(matches!(refused(nodes(&many)), E::TooMany { what: "NUMA nodes", .. }));
    let many = vec![KindPart::default(); 256];
    assert!(matches!(refused(Parts { kinds: many, ..bare(2) }), E::TooMany { what: "core kinds", .. }));
}

#[test]
fn last_level_caches_are_the_outermost_ones() {
    use Level::{L2, L3, Package};
    let llcs = |domains: &[(Level, u32, u32)]| {
        let machine = Machine::build(with_domains(8, domains)).unwrap();
        assert_sound(&machine);
        llc_runs(&machine)
    };
    // L3 above L2.
    assert_eq!(llcs(&[(L3, 0, 4), (L3, 4, 4), (L2, 0, 2), (L2, 2, 2)]), [0..4, 4..8]);
    // No L3: shared L2s, as in clusters and modules.
    assert_eq!(llcs(&[(L2, 0, 2), (L2, 2, 2), (L2, 4, 4)]), [0..2, 2..4, 4..8]);
    // No L3 and private L2s: every core has its own LLC.
    let private: Vec<_> = (0..8).map(|at| (L2, at, 1)).collect();
    assert_eq!(llcs(&private).len(), 8);
    // No caches known: one LLC per package.
    assert_eq!(llcs(&[(Package, 0, 4), (Package, 4, 4)]), [0..4, 4..8]);
    assert_eq!(llcs(&[]), vec![0..8]);
    // Some cores are behind an L3, the low-power ones behind an L2 alone.
    assert_eq!(llcs(&[(L3, 0, 6), (L2, 0, 1), (L2, 1, 1), (L2, 2, 4), (L2, 6, 2)]), [0..6, 6..8]);
    // One L3 over two nodes gives two domains: memory is nearer to one half.
    let halves = Parts { nodes: vec![node(0, 0, 4), node(1, 4, 4)], ..with_domains(8, &[(L3, 0, 8)]) };
    assert_eq!(llc_runs(&Machine::build(halves).unwrap()), [0..4, 4..8]);
}

#[test]
fn home_is_the_nearest_ordinary_memory() {
    let hbm = |os, first, count| NodePart { tier: Tier::Hbm, has_cpus: false, ..node(os, first, count) };
    let parts = Parts {
        nodes: vec![
            hbm(7, 0, 4),
            node(1, 4, 4),
            node(0, 0, 4),
            NodePart { tier: Tier::Cxl, ..node(2, 4, 4) }, // as near as node 1, but not ordinary
            hbm(8, 0, 0),
        ],
        ..bare(8)
    };
    let machine = Machine::build(parts).unwrap();
    assert_sound(&machine);
    let numbers: Vec<u32> = machine.nodes().iter().map(|node| node.os.0).collect();
    assert_eq!(numbers, [0, 1, 2, 7, 8], "sorted");
    assert_eq!(machine.nodes_of(&cpus("0-3")), "0".parse().unwrap());
    assert_eq!(machine.nodes_of(&cpus("3-4")), "0-1".parse().unwrap());
    assert_eq!(machine.at(Level::Node).count(), 2, "memory-only nodes are no objects");
    let with_cores: Vec<usize> = machine.nodes().iter().map(|node| node.cores.len()).collect();
    assert_eq!(with_cores, [4, 4, 0, 0, 0]);
    assert_eq!((machine.nodes()[3].near.clone(), machine.nodes()[4].near.clone()), (0..4, 0..0));
    // A small locality inside a large one: the rest on both sides has the large one as home.
    let parts = Parts { nodes: vec![node(0, 0, 6), node(1, 2, 2)], ..bare(6) };
    let machine = Machine::build(parts).unwrap();
    assert_sound(&machine);
    assert_eq!(machine.nodes()[0].cores, [0, 1, 4, 5].map(CoreId));
    assert_eq!(machine.units(Level::Node), [0..2, 2..4, 4..6]);
    // CPUs without a node.
    let machine = Machine::build(Parts { nodes: vec![node(0, 0, 2)], ..bare(4) }).unwrap();
    assert_sound(&machine);
    assert_eq!(machine.cores()[3].node, None);
}

#[test]
fn distances_are_firmwares_or_the_trees() {
    let machine = synthetic("group:2 pack:2 numa:2 core:1");
    let from_first: Vec<u32> = (0..8).map(|to| machine.distance(NodeId(0), NodeId(to))).collect();
    assert_eq!(from_first, [10, 12, 16, 16, 20, 20, 20, 20]);
    assert_sound(&machine);
    // Unsorted nodes: the table is sorted with them, and may be asymmetric.
    let parts = Parts {
        nodes: vec![node(4, 2, 1), node(0, 0, 1), node(2, 1, 1)],
        distances: vec![10, 41, 43, 14, 10, 13, 34, 31, 10],
        ..bare(3)
    };
    let machine = Machine::build(parts).unwrap();
    assert_sound(&machine);
    let at = |from, to| machine.distance(NodeId(from), NodeId(to));
    assert_eq!([at(0, 1), at(0, 2), at(1, 0), at(1, 2), at(2, 0), at(2, 1)], [13, 14, 31, 34, 41, 43]);
    assert_eq!(machine.parts().nodes[0].os, OsNode(0));
    // Memory without CPUs has the distance given by the tree, or the largest one if the tree gives
    // none.
    let parts = Parts {
        nodes: vec![
            node(0, 0, 2),
            node(1, 2, 2),
            NodePart { has_cpus: false, ..node(2, 0, 2) },
            node(3, 0, 0),
        ],
        ..with_domains(4, &[(Level::Package, 0, 2), (Level::Package, 2, 2)])
    };
    let machine = Machine::build(parts).unwrap();
    let from_first: Vec<u32> = (0..4).map(|to| machine.distance(NodeId(0), NodeId(to))).collect();
    assert_eq!(from_first, [10, 20, 11, 20]);
}

/// Returns the names and CPUs of a machine's joined kinds.
fn kinds_of(count: u32, kinds: Vec<KindPart>) -> Vec<(String, String)> {
    let machine = Machine::build(Parts { kinds, ..bare(count) }).unwrap();
    assert_sound(&machine);
    machine.kinds().iter().map(|kind| (kind.name.clone(), kind.cpus.to_string())).collect()
}

fn named(kinds: &[(&str, &str)]) -> Vec<(String, String)> {
    kinds.iter().map(|&(name, cpus)| (name.to_owned(), cpus.to_owned())).collect()
}

#[test]
fn favoured_cores_are_joined_and_makes_are_not() {
    assert_eq!(kinds_of(4, Vec::new()), named(&[("all", "0-3")]));
    let by_mhz = |mhz: &[u32]| {
        let at = (0u32..).zip(mhz);
        kinds_of(4, at.map(|(at, &mhz)| kind(&at.to_string(), at, Some(mhz), None)).collect())
    };
    assert_eq!(by_mhz(&[3900, 3900, 5000, 5000]), named(&[("P", "2-3"), ("E", "0-1")]));
    assert_eq!(by_mhz(&[4800, 4800, 5200, 5000]), named(&[("all", "0-3")]));
    assert_eq!(by_mhz(&[2500, 3800, 3800, 5000]), named(&[("P", "3"), ("E", "1-2"), ("LP-E", "0")]));
    assert_eq!(
        by_mhz(&[1000, 2000, 3000, 4000]).iter().map(|kind| &*kind.0).collect::<Vec<_>>(),
        ["K0", "K1", "K2", "K3"]
    );
    // Five reported kinds of two makes.
    let capacities = [718, 731, 997, 1017, 1024];
    let reported =
        (0..).zip(capacities).map(|(at, capacity)| kind(&format!("{at}"), at, None, Some(capacity)));
    assert_eq!(kinds_of(5, reported.collect()), named(&[("P", "2-4"), ("E", "0-1")]));
    // Different manufacturers' words separate kinds with close values, and equal words do not join
    // kinds with different values.
    let made =
        |list, make: &str, mhz| KindPart { make: Some(make.to_owned()), ..kind(list, mhz, Some(mhz), None) };
    let kinds =
        vec![made("0", "IntelAtom", 4900), made("1", "IntelCore", 5000), made("2", "IntelCore", 3000)];
    assert_eq!(kinds_of(3, kinds), named(&[("P", "1"), ("E", "0"), ("LP-E", "2")]));
    // CPUs without a reported kind belong to the fastest; kinds of absent CPUs do not exist.
    let kinds =
        vec![kind("0", 0, Some(2000), None), kind("1", 1, Some(4000), None), kind("90", 2, Some(9000), None)];
    assert_eq!(kinds_of(4, kinds), named(&[("P", "1-3"), ("E", "0")]));
    // A CPU reported twice belongs to the faster kind.
    let kinds = vec![kind("0-2", 0, Some(2000), None), kind("2-3", 1, Some(4000), None)];
    assert_eq!(kinds_of(4, kinds), named(&[("P", "2-3"), ("E", "0-1")]));
    let machine = Machine::build(Parts {
        kinds: vec![kind("0", 0, Some(2000), None), kind("1", 1, Some(4000), None)],
        ..bare(2)
    })
    .unwrap();
    assert_eq!(machine.cores().iter().map(|core| core.kind).collect::<Vec<_>>(), [KindId(1), KindId(0)]);
}

#[test]
fn sets_outside_the_machine_do_no_harm() {
    let machine =
        Machine::build(Parts { allowed: Some(cpus("1-9")), offline: cpus("4"), ..bare(4) }).unwrap();
    assert_eq!(machine.allowed(), cpus("1-3"));
    assert_eq!(machine.offline(), &cpus("4"));
    assert_eq!(Machine::build(bare(2)).unwrap().allowed(), cpus("0-1"));
}

#[test]
fn amd_modules_share_their_floating_point_unit() {
    let cpu = |vendor: &str, family| CpuModel { vendor: Some(vendor.to_owned()), family, model: None };
    assert!(cpu("AuthenticAMD", Some(21)).shares_fpu_by_l2());
    assert!(!cpu("AuthenticAMD", Some(23)).shares_fpu_by_l2());
    assert!(!cpu("GenuineIntel", Some(21)).shares_fpu_by_l2());
    assert!(!CpuModel::default().shares_fpu_by_l2());
}

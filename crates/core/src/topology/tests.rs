use super::*;
use crate::check::check;
use crate::place::{Amount, Request, Strategy as Layout, Stride, Taken, plan};
use proptest::prelude::*;

fn synthetic(text: &str) -> Machine {
    parse_synthetic(text).unwrap()
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// Parts with CPUs `0..count` and nothing else.
fn bare(count: u32) -> Parts {
    Parts { pus: (0..count).map(OsCpu).collect(), ..Parts::default() }
}

fn domain(level: Level, first: u32, count: u32) -> Domain {
    Domain { level, os: None, first, count }
}

fn node(os: u32, first: u32, count: u32) -> NodePart {
    NodePart { os: OsNode(os), first, count, bytes: Some(1 << 30), tier: Tier::Dram, has_cpus: true }
}

fn with_domains(count: u32, domains: &[(Level, u32, u32)]) -> Parts {
    let domains = domains.iter().map(|&(level, first, count)| domain(level, first, count)).collect();
    Parts { domains, ..bare(count) }
}

fn core_runs(machine: &Machine) -> Vec<Range<u32>> {
    machine.cores().iter().map(|core| core.pus.clone()).collect()
}

fn llc_runs(machine: &Machine) -> Vec<Range<u32>> {
    machine.llcs().iter().map(|llc| llc.cores.clone()).collect()
}

/// What [`Machine`] promises, checked by naive search from the parts.
fn assert_sound(machine: &Machine) {
    let parts = machine.parts();
    let pus = u32::try_from(parts.pus.len()).unwrap();
    assert_eq!(machine.objects()[0].pus, 0..pus);
    assert_eq!(machine.objects()[0].level, Level::Machine);
    for (at, object) in machine.objects().iter().enumerate() {
        assert!(object.pus.start < object.pus.end && object.pus.end <= pus, "{object:?}");
        match object.parent {
            None => assert_eq!(at, 0),
            Some(parent) => {
                assert!(parent.index() < at, "parents come first");
                let outer = &machine.objects()[parent.index()].pus;
                assert!(outer.start <= object.pus.start && object.pus.end <= outer.end, "{object:?}");
            }
        }
        for other in &machine.objects()[..at] {
            let (a, b) = (&other.pus, &object.pus);
            let apart = a.end <= b.start || b.end <= a.start;
            assert!(apart || (a.start <= b.start && b.end <= a.end), "{other:?} {object:?}");
        }
    }
    // Cores follow one another without holes, and so do last-level caches.
    let mut next = 0;
    for (at, core) in machine.cores().iter().enumerate() {
        assert_eq!(core.pus.start, next);
        next = core.pus.end;
        for pu in core.pus.clone() {
            assert_eq!(machine.core_of(Pu(pu)), CoreId::from_index(at));
            assert_eq!(machine.pu(machine.os(Pu(pu))), Some(Pu(pu)));
        }
        assert!(machine.llcs()[core.llc.index()].cores.contains(&u32::try_from(at).unwrap()));
        assert_eq!(machine.llcs()[core.llc.index()].node, core.node);
        assert!(usize::from(core.kind.0) < machine.kinds().len());
    }
    assert_eq!(next, pus);
    let mut next = 0;
    for llc in machine.llcs() {
        assert!(llc.cores.start == next && llc.cores.end > next, "{llc:?}");
        next = llc.cores.end;
    }
    assert_eq!(next as usize, machine.cores().len());
    // Home nodes: the smallest locality with CPUs, then the most ordinary memory, then the lowest number.
    let mut by_number = parts.nodes.clone();
    by_number.sort_by_key(|node| node.os);
    let nodes: Vec<OsNode> = machine.nodes().iter().map(|node| node.os).collect();
    assert_eq!(nodes, by_number.iter().map(|node| node.os).collect::<Vec<_>>());
    for (at, &cpu) in (0u32..).zip(&parts.pus) {
        let holds = |node: &&NodePart| node.has_cpus && node.first <= at && at - node.first < node.count;
        let home = by_number.iter().filter(holds).min_by_key(|node| (node.count, node.tier, node.os));
        assert_eq!(
            machine.nodes_of(&std::iter::once(cpu).collect()),
            home.map(|home| home.os).into_iter().collect()
        );
    }
    for (at, node) in (0u32..).zip(machine.nodes()) {
        assert!(node.cores.is_sorted());
        let homed = machine.cores().iter().enumerate().filter(|(_, core)| core.node == Some(NodeId(at)));
        assert!(homed.map(|(core, _)| CoreId::from_index(core)).eq(node.cores.iter().copied()));
    }
    // Units of every level cover the cores, each once.
    for level in Level::ALL {
        let mut next = 0;
        for unit in machine.units(level) {
            assert!(unit.start == next && unit.end > next, "{level}: {unit:?}");
            next = unit.end;
        }
        assert_eq!(next as usize, machine.cores().len(), "{level}");
    }
    // Every CPU is of exactly one kind.
    for &cpu in &parts.pus {
        assert_eq!(machine.kinds().iter().filter(|kind| kind.cpus.contains(cpu)).count(), 1, "CPU {cpu}");
    }
    let nodes = u32::try_from(machine.nodes().len()).unwrap();
    for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
        let distance = machine.distance(NodeId(from), NodeId(to));
        if parts.distances.is_empty() {
            assert_eq!(distance, machine.distance(NodeId(to), NodeId(from)));
            assert_eq!(distance == 10, from == to);
        }
    }
    let text = serde_json::to_string(machine).unwrap();
    assert_eq!(&serde_json::from_str::<Machine>(&text).unwrap(), machine);
}

/// Draws a machine both ways and checks what holds of every picture.
fn assert_pictured(machine: &Machine, marks: &Marks) {
    for width in [0, 40, 57, 80, 200] {
        let grid = draw::grid(machine, marks, width);
        assert!(grid.is_ascii());
        let longest = grid.lines().map(str::len).max().unwrap();
        assert!(longest <= width.max(draw::WIDTH_MIN), "{longest} columns of {width}:\n{grid}");
    }
    let svg = svg::picture(machine, marks);
    assert!(svg.is_ascii() && svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<title>CPU ").count(), machine.pu_count(), "a tooltip for every hardware thread");
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap();
        assert!(!text.contains('>') && !tag.contains("script"), "{tag}");
        match (tag.strip_prefix('/'), tag.ends_with('/')) {
            (Some(name), _) => assert_eq!(open.pop(), Some(name)),
            (None, true) => {}
            (None, false) => open.push(tag.split(' ').next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

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
fn objects_nest_in_whatever_order_they_come() {
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
    // L3 over L2.
    assert_eq!(llcs(&[(L3, 0, 4), (L3, 4, 4), (L2, 0, 2), (L2, 2, 2)]), [0..4, 4..8]);
    // No L3: shared L2s, as in clusters and modules.
    assert_eq!(llcs(&[(L2, 0, 2), (L2, 2, 2), (L2, 4, 4)]), [0..2, 2..4, 4..8]);
    // No L3 and private L2s: every core has its own.
    let private: Vec<_> = (0..8).map(|at| (L2, at, 1)).collect();
    assert_eq!(llcs(&private).len(), 8);
    // Nothing known: by package.
    assert_eq!(llcs(&[(Package, 0, 4), (Package, 4, 4)]), [0..4, 4..8]);
    assert_eq!(llcs(&[]), vec![0..8]);
    // Some cores behind an L3, the low-power ones behind an L2 alone.
    assert_eq!(llcs(&[(L3, 0, 6), (L2, 0, 1), (L2, 1, 1), (L2, 2, 4), (L2, 6, 2)]), [0..6, 6..8]);
    // One L3 over two nodes is two domains: memory is nearer to one half.
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
    // A small locality inside a large one: the large one is home to the rest, on both sides.
    let parts = Parts { nodes: vec![node(0, 0, 6), node(1, 2, 2)], ..bare(6) };
    let machine = Machine::build(parts).unwrap();
    assert_sound(&machine);
    assert_eq!(machine.nodes()[0].cores, [0, 1, 4, 5].map(CoreId));
    assert_eq!(machine.units(Level::Node), [0..2, 2..4, 4..6]);
    // CPUs without any node.
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
    // Nodes come unsorted: the table moves with them, and may be lopsided.
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
    // Memory without CPUs is as far as the tree says, and far where it says nothing.
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
    assert_eq!(from_first, [10, 20, 12, 20]);
}

/// A kind as Linux reports it.
fn kind(list: &str, efficiency: u32, mhz_max: Option<u32>, capacity: Option<u32>) -> KindPart {
    KindPart { cpus: cpus(list), make: None, efficiency: Some(efficiency), mhz_max, capacity }
}

/// Names and CPUs of the kinds a machine ends with.
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
    // Makers' words part what figures would join, and do not join what figures part.
    let made =
        |list, make: &str, mhz| KindPart { make: Some(make.to_owned()), ..kind(list, mhz, Some(mhz), None) };
    let kinds =
        vec![made("0", "IntelAtom", 4900), made("1", "IntelCore", 5000), made("2", "IntelCore", 3000)];
    assert_eq!(kinds_of(3, kinds), named(&[("P", "1"), ("E", "0"), ("LP-E", "2")]));
    // CPUs of no reported kind are of the fastest; kinds of absent CPUs do not exist.
    let kinds =
        vec![kind("0", 0, Some(2000), None), kind("1", 1, Some(4000), None), kind("90", 2, Some(9000), None)];
    assert_eq!(kinds_of(4, kinds), named(&[("P", "1-3"), ("E", "0")]));
    // A CPU reported twice is of the faster kind.
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

#[test]
fn descriptions_make_machines() {
    let machine = synthetic("pack:2 numa:2(memory=62GB) l3:2 l2:2 core:2 pu:2");
    assert_sound(&machine);
    let count = |level| machine.at(level).count();
    assert_eq!(
        [Level::Package, Level::Node, Level::L3, Level::L2, Level::Core].map(count),
        [2, 4, 8, 16, 32]
    );
    assert_eq!(
        (machine.pu_count(), machine.smt(), machine.name()),
        (64, 2, "pack:2 numa:2(memory=62GB) l3:2 l2:2 core:2 pu:2")
    );
    assert_eq!(machine.nodes()[3].bytes, Some(62 << 30));
    assert_eq!(machine.cpus_of(&machine.cores()[1].pus), cpus("2-3"));
    let far = synthetic("core:4 pu:2(far)");
    assert_eq!(far.cpus_of(&far.cores()[1].pus), cpus("1,5"));
    assert_eq!(far.nodes().len(), 1, "every machine has memory");
    assert_eq!(synthetic("core:3").nodes()[0].bytes, None);
    // Extra nodes follow the ordinary ones in number, wherever they hang.
    let machine = synthetic("pack:2 [numa(memory=16GiB tier=hbm)] numa:2 core:2 [NUMANode(tier=cxl)]");
    assert_sound(&machine);
    let tiers: Vec<Tier> = machine.nodes().iter().map(|node| node.tier).collect();
    assert_eq!(tiers[..6], [Tier::Dram, Tier::Dram, Tier::Dram, Tier::Dram, Tier::Hbm, Tier::Hbm]);
    assert_eq!(tiers[6..], [Tier::Cxl; 8]);
    assert_eq!(machine.nodes()[5].near, 4..8);
    for (same, words) in [
        ("Socket:2 L3Cache:1 Core:4 PU:2", "pack:2 l3:1 core:4 pu:2"),
        ("  pack:2   core:2  ", "pack:2 core:2"),
        ("board:2 board:2 core:1", "group:2 group:2 core:1"),
        ("numa:2(memory=1024MB) core:1", "numa:2(memory=1GB) core:1"),
        ("core:2 thread:2", "core:2 pu:2"),
    ] {
        let renamed = |text| Parts { name: String::new(), ..synthetic(text).parts().clone() };
        assert_eq!(renamed(same), renamed(words), "{same}");
    }
}

#[test]
fn faults_in_descriptions_name_their_position() {
    for (text, at, word) in [
        ("", 0, "empty"),
        ("   ", 0, "empty"),
        ("foo:2", 0, "\"foo\" is no level"),
        ("pack:2 foo:2", 7, "\"foo\" is no level"),
        ("machine:1", 0, "no level"),
        ("pack", 0, "lacks its count"),
        ("pack:2 core", 7, "lacks its count"),
        ("pack:", 5, "no count"),
        ("pack:0", 5, "no count"),
        ("pack:-1", 5, "no count"),
        ("pack:2 core:x", 12, "no count"),
        ("core:99999999999999999999", 5, "no count"),
        ("core:65537", 5, "more than 65536 hardware threads"),
        ("pack:256 core:257", 14, "hardware threads"),
        ("pack:65536 core:65536 pu:65536", 16, "hardware threads"),
        ("numa:5000", 5, "NUMA nodes"),
        ("core:5000 [numa]", 10, "NUMA nodes"),
        ("pu:2 core:2", 5, "nothing can follow pu"),
        ("core:2 l2:2", 7, "l2 cannot be inside a core"),
        ("pack:2 pack:2", 7, "stands twice"),
        ("[numa] core:2", 0, "needs a level before it"),
        ("pack:2 [core] core:2", 8, "only [numa]"),
        ("pack:2 [numa core:2", 7, "not closed"),
        ("numa:2(memory=4GB core:2", 6, "not closed"),
        ("numa:2(memory=4XB) core:2", 0, "\"4XB\" is no size"),
        ("numa:2(memory=99999999999TB) core:2", 0, "is no size"),
        ("numa:2(tier=fast) core:2", 0, "\"fast\" is no memory tier"),
        ("core:2 numa:2(color=red)", 7, "inside a core"),
        ("pack:1 numa:2(color=red)", 7, "no attribute of numa"),
        ("pack:2(memory=4GB)", 6, "takes no attribute"),
        ("core:2 pu:2(near)", 11, "takes no attribute"),
    ] {
        let error = parse_synthetic(text).unwrap_err();
        assert!(error.to_string().contains(word), "{text:?}: {error}");
        assert_eq!(error.at, at, "{text:?}: {error}");
    }
}

/// A laptop: six P-cores of two threads, eight E-cores in modules of four, two LP-E-cores outside the L3; a GPU and a NIC;
/// a CPU switched off.
fn laptop() -> Machine {
    use Level::{Core, L2, L3, Package};
    let mut domains = vec![domain(Package, 0, 22), domain(L3, 0, 20)];
    domains.extend((0..6).flat_map(|at| [domain(L2, at * 2, 2), domain(Core, at * 2, 2)]));
    domains.extend([domain(L2, 12, 4), domain(L2, 16, 4), domain(L2, 20, 2)]);
    let device = |kind, name: &str, address: &str| Device {
        kind,
        name: name.to_owned(),
        address: Some(address.to_owned()),
        cpus: cpus("0-21"),
    };
    Machine::build(Parts {
        name: "laptop".to_owned(),
        domains,
        nodes: vec![NodePart { bytes: Some(31 << 30), ..node(0, 0, 22) }],
        kinds: vec![
            kind("0-11", 2, Some(5000), None),
            kind("12-19", 1, Some(3900), None),
            kind("20-21", 0, Some(2500), None),
        ],
        devices: vec![
            device(DeviceKind::Gpu, "renderD128", "0000:00:02.0"),
            device(DeviceKind::Nic, "wlan0", "0000:00:14.3"),
            device(DeviceKind::Storage, "nvme0n1", "0000:02:00.0"),
        ],
        offline: cpus("22"),
        ..bare(22)
    })
    .unwrap()
}

/// A server with accelerators: memory-only nodes in a row, distances from firmware, devices near some nodes.
fn accelerated() -> Machine {
    let gpu = |os| NodePart { tier: Tier::Gpu, has_cpus: false, bytes: Some(96 << 30), ..node(os, 0, 0) };
    let dram = |os, first| NodePart { bytes: Some(480 << 30), ..node(os, first, 8) };
    let device = |kind, name: &str, at| Device { kind, name: name.to_owned(), address: None, cpus: cpus(at) };
    Machine::build(Parts {
        name: "accelerated".to_owned(),
        nodes: vec![dram(0, 0), dram(1, 8), gpu(2), gpu(3), gpu(4), gpu(5)],
        distances: vec![
            10, 40, 80, 80, 120, 120, //
            40, 10, 120, 120, 80, 80, //
            80, 120, 10, 90, 130, 130, //
            80, 120, 90, 10, 130, 130, //
            120, 80, 130, 130, 10, 90, //
            120, 80, 130, 130, 90, 10,
        ],
        devices: vec![
            device(DeviceKind::Gpu, "GH200 480GB", "0-7"),
            device(DeviceKind::Gpu, "GH200 480GB", "8-15"),
            device(DeviceKind::Nic, "mlx5_0 ib0", "8-15"),
        ],
        ..with_domains(
            16,
            &[(Level::Package, 0, 8), (Level::L3, 0, 8), (Level::Package, 8, 8), (Level::L3, 8, 8)],
        )
    })
    .unwrap()
}

/// Cores asked for, laid out in a way, where some CPUs are held, busy, pinned and out of bounds.
struct Scene {
    cores: u32,
    layout: Layout,
    held: &'static str,
    busy: &'static str,
    pinned: &'static str,
    out: &'static str,
}

const QUIET: Scene = Scene { cores: 0, layout: Layout::Compact, held: "", busy: "", pinned: "", out: "" };

fn marks(machine: &Machine, scene: &Scene) -> Marks {
    let mut taken = Taken::nothing(machine.cpus().difference(&cpus(scene.out)));
    taken.held = cpus(scene.held);
    taken.pinned = cpus(scene.pinned);
    taken.busy = cpus(scene.busy).iter().map(|cpu| (cpu, 700)).collect();
    let marks = Marks::around(machine, &taken);
    if scene.cores == 0 {
        return marks;
    }
    let amount = Amount::Cores(scene.cores);
    let ask = |share| Request { amount, strategy: scene.layout, share, ..Request::default() };
    let made = plan(machine, &ask(false), &taken).or_else(|_| plan(machine, &ask(true), &taken));
    marks.with_plan(&made.unwrap())
}

/// Summary and picture, as the program prints them.
fn page(machine: &Machine, marks: &Marks, width: usize) -> String {
    format!("{}\n\n{}", draw::summary(machine), draw::grid(machine, marks, width))
}

#[test]
fn pictures_of_machines() {
    let plain = |text: &str| page(&synthetic(text), &Marks::default(), draw::WIDTH);
    insta::assert_snapshot!("two_cores", plain("core:2"));
    insta::assert_snapshot!("two_sockets_of_64", plain("pack:2 numa:1(memory=251GB) l3:8 core:8 pu:2(far)"));
    insta::assert_snapshot!("one_l3_per_socket", plain("pack:2 numa:1(memory=503GB) l3:1 core:28 pu:2(far)"));
    insta::assert_snapshot!("no_caches", plain("pack:2 core:64"));
    insta::assert_snapshot!("one_package_per_cpu", plain("numa:2 pack:16 core:1"));
    insta::assert_snapshot!("many_nodes", plain("numa:64(memory=4GB) core:2"));
    insta::assert_snapshot!(
        "many_threads",
        plain("numa:1(memory=188GB) [numa(memory=16GB tier=hbm)] l2:12 core:2 pu:4(far)")
    );
    insta::assert_snapshot!(
        "memory_without_cores",
        plain("pack:2 [numa(memory=16GB tier=hbm)] numa:2(memory=62GB) core:4")
    );
    insta::assert_snapshot!("groups_and_dies", plain("group:2 pack:2 die:2 numa:1(memory=2TB) l3:2 core:4"));
    let unordered = Parts {
        pus: [0, 2, 4, 6, 1, 3, 5, 7].map(OsCpu).to_vec(),
        ..with_domains(8, &[(Level::Package, 0, 4), (Level::Package, 4, 4)])
    };
    let unordered = Machine::build(unordered).unwrap();
    insta::assert_snapshot!("no_nodes", page(&unordered, &Marks::default(), draw::WIDTH));
    let clusters = (0..4).map(|at| domain(Level::Group, at * 4, 4));
    let inner = [domain(Level::Group, 0, 2), domain(Level::L2, 8, 2), domain(Level::L2, 10, 2)];
    let outer = [domain(Level::Package, 0, 16), domain(Level::L3, 0, 16)];
    let domains = clusters.chain(inner).chain(outer).collect();
    let clustered = Machine::build(Parts { domains, nodes: vec![node(0, 0, 16)], ..bare(16) }).unwrap();
    insta::assert_snapshot!("clusters", page(&clustered, &Marks::default(), draw::WIDTH));
    insta::assert_snapshot!("laptop", page(&laptop(), &Marks::default(), draw::WIDTH));
    insta::assert_snapshot!("accelerated", page(&accelerated(), &Marks::default(), draw::WIDTH));
    let thousands = plain("pack:16 numa:2(memory=512GB) l3:8 core:8 pu:2(far)");
    assert!(thousands.lines().count() < 200);
    insta::assert_snapshot!("thousands", thousands.lines().take(24).collect::<Vec<_>>().join("\n"));
}

#[test]
fn pictures_of_plans() {
    let scene = |text: &str, scene: &Scene, width| {
        let machine = synthetic(text);
        page(&machine, &marks(&machine, scene), width)
    };
    let server = "pack:2 numa:2(memory=62GB) l3:2 core:8 pu:2(far)";
    let shared = Scene { cores: 12, held: "0-3,64-67,20,84", busy: "40-42", pinned: "57", ..QUIET };
    insta::assert_snapshot!("shared_server", scene(server, &shared, 80));
    insta::assert_snapshot!("shared_server_narrow", scene(server, &shared, 40));
    insta::assert_snapshot!("shared_server_wide", scene(server, &shared, 160));
    let scatter = Scene { layout: Layout::Scatter, ..shared };
    insta::assert_snapshot!("scattered", scene(server, &scatter, 80));
    let modules = Scene { cores: 6, layout: Layout::Stride(Stride::OnePer(Level::L2)), held: "9", ..QUIET };
    insta::assert_snapshot!("stride_over_modules", scene("pack:2 l3:2 l2:4 core:2", &modules, 80));
    let container = Scene { cores: 3, busy: "18", out: "0-15,20-31,32-48,51-63", ..QUIET };
    insta::assert_snapshot!("container", scene("numa:2 l3:2 core:8 pu:2(far)", &container, 80));
    let crowded = Scene { cores: 4, busy: "1", held: "2", pinned: "3", ..QUIET };
    insta::assert_snapshot!("crowded", scene("core:4", &crowded, 80));
    let laptop = laptop();
    let picture = page(&laptop, &marks(&laptop, &Scene { cores: 7, busy: "13", ..QUIET }), 80);
    insta::assert_snapshot!("laptop_plan", picture);
}

#[test]
fn drawings() {
    let small = synthetic("numa:1(memory=4GB) core:2 pu:2");
    let marked = marks(&small, &Scene { cores: 1, held: "3", ..QUIET });
    insta::assert_snapshot!("drawing", svg::picture(&small, &marked));
    let large = synthetic("pack:16 numa:2(memory=512GB) l3:8 core:8 pu:2(far)");
    for machine in [laptop(), accelerated(), large] {
        let scene = Scene { cores: 5, busy: "1", pinned: "3", out: "6", ..QUIET };
        assert_pictured(&machine, &marks(&machine, &scene));
    }
    let hostile = Parts { name: "<a href=\"x\">&\u{202e}\n</a>".to_owned(), ..bare(1) };
    let picture = svg::picture(&Machine::build(hostile).unwrap(), &Marks::default());
    assert!(picture.contains(">&lt;a href=&quot;x&quot;&gt;&amp;??&lt;/a&gt;<"), "{picture}");
}

#[test]
fn cpu_lists_are_short() {
    for (list, short) in [
        ("", ""),
        ("0", "0"),
        ("0-7,64-71", "0-7,64-71"),
        ("0,2,4,6,8", "0-8:2"),
        ("0,2,4,6,33,35,37", "0-6:2,33-37:2"),
        ("0,64,128,192", "0-192:64"),
        ("0,64", "0,64"),
        ("0-1,64-65", "0-1,64-65"),
        ("0,2-4", "0,2-4"),
        ("0,2,4-6", "0-4:2,5-6"),
    ] {
        assert_eq!(outline::list(&cpus(list)), short);
        assert_eq!(cpus(short), cpus(list), "and mean the same");
    }
}

#[test]
fn sizes_are_short() {
    let sizes = [0, 1023, 1024, 1536, 10 << 30, (251 << 30) + (700 << 20), 1 << 40, 3 << 39, u64::MAX];
    let words = sizes.map(outline::size);
    assert_eq!(
        words,
        ["0 B", "1023 B", "1 KiB", "1.5 KiB", "10 GiB", "252 GiB", "1 TiB", "1.5 TiB", "16 EiB"]
    );
}

/// Parts whose runs nest by construction: the cuts of each level are among the cuts of the next.
fn laminar() -> impl proptest::strategy::Strategy<Value = Parts> {
    const LEVELS: [Level; 6] = [Level::Group, Level::Package, Level::Die, Level::L3, Level::L2, Level::Core];
    let cuts = prop::collection::vec(0usize..=LEVELS.len(), 1..40);
    let shuffle = any::<prop::sample::Index>();
    let flags = prop::collection::vec(any::<u8>(), 64);
    (cuts, shuffle, flags, 0..=LEVELS.len()).prop_map(|(cuts, shuffle, flags, node_level)| {
        let count = u32::try_from(cuts.len()).unwrap();
        let step = (1..).filter(|step| gcd(*step, count) == 1).nth(shuffle.index(4)).unwrap();
        let flag = |at: usize| flags[at % flags.len()];
        // PU `at` begins a new object of every level from `cuts[at]` inwards.
        let runs = |level: usize| -> Vec<(u32, u32)> {
            let starts = (0..count).filter(|&at| at == 0 || cuts[at as usize] <= level);
            let starts: Vec<u32> = starts.chain([count]).collect();
            starts.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
        };
        let mut parts =
            Parts { pus: (0..count).map(|at| OsCpu(at * step % count * 3)).collect(), ..Parts::default() };
        for (level, word) in LEVELS.into_iter().enumerate() {
            let keep = flag(level);
            for (at, (first, count)) in runs(level).into_iter().enumerate() {
                if keep & 3 != 0 && (keep & 4 == 0 || flag(at + first as usize) & 1 == 0) {
                    parts.domains.push(Domain { level: word, os: None, first, count });
                }
            }
        }
        parts.domains.sort_by_key(|domain| domain.first.wrapping_mul(7) % 5);
        for (at, (first, count)) in runs(node_level.min(LEVELS.len() - 1)).into_iter().enumerate() {
            let about = flag(at + 20);
            let tier = [Tier::Dram, Tier::Hbm, Tier::Cxl][usize::from(about % 3)];
            let os = u32::try_from(at * 5 % 97 + at / 97).unwrap();
            let has_cpus = about & 8 == 0;
            parts.nodes.push(NodePart {
                os: OsNode(os),
                first,
                count,
                bytes: Some(u64::from(about) << 28),
                tier,
                has_cpus,
            });
        }
        if flag(40) & 1 == 0 {
            let half: CpuSet = parts.pus.iter().copied().filter(|cpu| flag(cpu.index()) & 1 == 0).collect();
            parts.kinds.push(KindPart {
                cpus: half,
                mhz_max: Some(2_000),
                efficiency: Some(0),
                ..KindPart::default()
            });
            let all = parts.pus.iter().copied().collect();
            parts.kinds.push(KindPart {
                cpus: all,
                mhz_max: Some(4_000),
                efficiency: Some(u32::from(flag(41) & 1)),
                ..KindPart::default()
            });
        }
        parts.devices.push(Device {
            kind: DeviceKind::Gpu,
            name: "card<0>\u{7}".to_owned(),
            address: None,
            cpus: CpuSet::new(),
        });
        parts
    })
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Numbers around the edges and anywhere.
fn number() -> impl proptest::strategy::Strategy<Value = u32> {
    prop_oneof![8 => 0u32..12, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

/// Parts that make no sense, or some by chance.
fn garbage() -> impl proptest::strategy::Strategy<Value = Parts> {
    let level = prop::sample::select(Level::ALL.to_vec());
    let domain = (level, proptest::option::of(number()), number(), number());
    let domain = domain.prop_map(|(level, os, first, count)| Domain { level, os, first, count });
    let node = (number(), number(), number(), any::<Option<u64>>(), any::<bool>());
    let node = node.prop_map(|(os, first, count, bytes, has_cpus)| NodePart {
        os: OsNode(os),
        first,
        count,
        bytes,
        tier: if count % 2 == 0 { Tier::Dram } else { Tier::Gpu },
        has_cpus,
    });
    let some_cpus = || {
        prop::collection::vec(0u32..12, 0..6).prop_map(|cpus| cpus.into_iter().map(OsCpu).collect::<CpuSet>())
    };
    let figure = || proptest::option::of(number());
    let kind = (some_cpus(), proptest::option::of(".{0,3}"), figure(), figure(), figure());
    let kind = kind.prop_map(|(cpus, make, efficiency, mhz_max, capacity)| KindPart {
        cpus,
        make,
        efficiency,
        mhz_max,
        capacity,
    });
    let device = (some_cpus(), ".{0,8}").prop_map(|(cpus, name)| Device {
        kind: DeviceKind::Nic,
        address: Some(name.clone()),
        name,
        cpus,
    });
    let pus = prop_oneof![3 => (1u32..12).prop_map(|count| (0..count).collect::<Vec<_>>()), 1 => prop::collection::vec(number(), 0..9)];
    (
        pus,
        prop::collection::vec(domain, 0..6),
        prop::collection::vec(node, 0..4),
        prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(any::<u32>(), 0..17)],
        prop::collection::vec(kind, 0..4),
        prop::collection::vec(device, 0..3),
        (some_cpus(), proptest::option::of(some_cpus()), ".{0,10}"),
    )
        .prop_map(|(pus, domains, nodes, distances, kinds, devices, (offline, allowed, name))| Parts {
            name,
            cpu: CpuModel::default(),
            pus: pus.into_iter().map(OsCpu).collect(),
            domains,
            nodes,
            distances,
            kinds,
            devices,
            offline,
            allowed,
        })
}

/// Surroundings and a request made of a number, and the plan for it, checked.
fn planned(machine: &Machine, seed: u64) -> Marks {
    let bit = |cpu: OsCpu, salt: u32| (seed.rotate_left(salt) >> (cpu.index() % 59)) & 3 == 3;
    let mut taken = Taken::nothing(machine.cpus());
    taken.allowed = machine.cpus().iter().filter(|&cpu| !bit(cpu, 7)).collect();
    taken.held = machine.cpus().iter().filter(|&cpu| bit(cpu, 19)).collect();
    taken.pinned = machine.cpus().iter().filter(|&cpu| bit(cpu, 31)).collect();
    taken.busy = machine.cpus().iter().filter(|&cpu| bit(cpu, 43)).map(|cpu| (cpu, 600)).collect();
    let layouts =
        [Layout::Compact, Layout::Scatter, Layout::Balanced, Layout::Stride(Stride::OnePer(Level::L2))];
    let request = Request {
        amount: Amount::Cores(u32::try_from(seed % 9).unwrap() + 1),
        strategy: layouts[usize::try_from(seed % 4).unwrap()],
        or_fewer: true,
        ..Request::default()
    };
    let marks = Marks::around(machine, &taken);
    let Ok(plan) = plan(machine, &request, &taken) else { return marks };
    assert_eq!(check(machine, &request, &taken, &plan), []);
    marks.with_plan(&plan)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn nested_parts_make_sound_machines(parts in laminar(), seed in any::<u64>()) {
        // A node inside a core is the one thing that may cross here.
        let machine = match Machine::build(parts.clone()) {
            Ok(machine) => machine,
            Err(MachineError::Crossing(Level::Core, Level::Node)) => return Ok(()),
            Err(error) => panic!("{error}: {parts:?}"),
        };
        assert_sound(&machine);
        let mut shuffled = parts;
        shuffled.domains.reverse();
        shuffled.nodes.reverse();
        prop_assert_eq!(&machine.objects, &Machine::build(shuffled).unwrap().objects);
        assert_pictured(&machine, &planned(&machine, seed));
        assert_pictured(&machine, &Marks::default());
    }

    #[test]
    fn hostile_parts_are_built_soundly_or_refused(parts in garbage(), seed in any::<u64>()) {
        if let Ok(machine) = Machine::build(parts) {
            assert_sound(&machine);
            assert_pictured(&machine, &planned(&machine, seed));
        }
    }

    #[test]
    fn any_text_is_a_machine_or_refused(text in "((group|pack|numa|l3|l2|core|pu):[0-9]{1,2} ?){1,5}|[a-z0-9:()\\[\\]= ]{0,40}|.{0,20}") {
        match parse_synthetic(&text) {
            Ok(machine) if machine.pu_count() <= 200 => assert_sound(&machine),
            Ok(_) => {}
            Err(error) => {
                prop_assert!(error.at <= text.len());
                prop_assert!(!error.problem.is_empty());
            }
        }
    }
}

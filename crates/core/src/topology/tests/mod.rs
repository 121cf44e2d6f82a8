//! Shared helpers of the model's tests: small machines, and the properties of every machine.

mod described;
mod generated;
mod model;
mod pictures;

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

/// Returns parts with CPUs `0..count` and nothing else.
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

/// Checks the properties of [`Machine`] by naive search in the parts.
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
    assert_consecutive(machine);
    assert_homed(machine);
    assert_covered(machine);
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

/// Cores are consecutive without holes, and so are last-level caches.
fn assert_consecutive(machine: &Machine) {
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
    assert_eq!(next as usize, machine.parts().pus.len());
    let mut next = 0;
    for llc in machine.llcs() {
        assert!(llc.cores.start == next && llc.cores.end > next, "{llc:?}");
        next = llc.cores.end;
    }
    assert_eq!(next as usize, machine.cores().len());
}

/// Home nodes: the smallest locality with CPUs, then the most ordinary memory, then the lowest
/// number.
fn assert_homed(machine: &Machine) {
    let parts = machine.parts();
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
}

/// The units of every level cover each core exactly once, and every CPU belongs to exactly one
/// kind.
fn assert_covered(machine: &Machine) {
    for level in Level::ALL {
        let mut next = 0;
        for unit in machine.units(level) {
            assert!(unit.start == next && unit.end > next, "{level}: {unit:?}");
            next = unit.end;
        }
        assert_eq!(next as usize, machine.cores().len(), "{level}");
    }
    for &cpu in &machine.parts().pus {
        assert_eq!(machine.kinds().iter().filter(|kind| kind.cpus.contains(cpu)).count(), 1, "CPU {cpu}");
    }
}

/// Draws a machine in both ways and checks the properties of every picture.
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

/// Returns a kind as reported by Linux.
fn kind(list: &str, efficiency: u32, mhz_max: Option<u32>, capacity: Option<u32>) -> KindPart {
    KindPart { cpus: cpus(list), make: None, efficiency: Some(efficiency), mhz_max, capacity }
}

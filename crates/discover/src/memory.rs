//! NUMA nodes: their CPUs, their kind of memory, and their distances.
//!
//! hwloc attaches a node without CPUs to the objects near it, where it looks like a node that owns
//! their CPUs. The kernel reports which nodes have CPUs; a file does not. For a file, the node that
//! a PU's memory would ordinarily come from counts as the PU's own: ordinary memory before special,
//! then the smaller locality, then the lower number.

use crate::runs::{Runs, cpus_of};
use crate::{processor, text};
use hwlocality::Topology;
use hwlocality::memory::attribute::MemoryAttribute;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::{Distances, DistancesKind};
use hwlocality::object::types::ObjectType;
use std::ops::Range;
use trimtab_core::ids::{Id, OsNode};
use trimtab_core::set::NodeSet;
use trimtab_core::topology::{MemorySpeed, NodePart, Tier};

/// A node as hwloc shows it.
struct SeenNode<'t> {
    object: &'t TopologyObject,
    os: OsNode,
    near: Range<u32>,
    /// Kind of memory according to names and infos.
    tier: Option<Tier>,
    has_cpus: bool,
}

/// Returns the nodes. `with_cpus` are those that have CPUs, if the kernel can be asked.
pub(crate) fn nodes(topology: &Topology, runs: &Runs, with_cpus: Option<&NodeSet>) -> Vec<NodePart> {
    let mut seen: Vec<SeenNode<'_>> = topology
        .objects_with_type(ObjectType::NUMANode)
        .filter_map(|object| {
            let os = OsNode::from_index(object.os_index()?);
            Some(SeenNode { object, os, near: near(object, runs), tier: named_tier(object), has_cpus: false })
        })
        .collect();
    match with_cpus {
        Some(with_cpus) => seen.iter_mut().for_each(|node| node.has_cpus = with_cpus.contains(node.os)),
        None => claim(&mut seen, runs.pus().len()),
    }
    let tiers: Vec<Tier> = seen.iter().map(|node| tier(topology, node, &seen)).collect();
    // hwloc gives the same value for no memory and for an unknown amount. If it reports the amounts
    // of other nodes, the value means no memory.
    let tells = seen.iter().any(|node| bytes(node.object).is_some());
    seen.iter()
        .zip(tiers)
        .map(|(node, tier)| NodePart {
            os: node.os,
            first: node.near.start,
            count: node.near.end - node.near.start,
            bytes: bytes(node.object).or(tells.then_some(0)),
            tier,
            has_cpus: node.has_cpus,
        })
        .collect()
}

/// Returns the PUs near to a node, as one run: its own if they are one, else those of the smallest
/// object around it that is one.
fn near(object: &TopologyObject, runs: &Runs) -> Range<u32> {
    if cpus_of(object).is_empty() {
        return 0..0; // near to no CPU, or to CPUs that are hidden from us
    }
    let around = std::iter::once(object).chain(object.ancestors());
    around
        .map(|object| runs.split(&cpus_of(object)))
        .find_map(|split| if let [run] = split.as_slice() { Some(run.clone()) } else { None })
        .unwrap_or(0..0)
}

/// Gives every PU to the node its memory would ordinarily come from; a node that gets a PU has
/// CPUs.
fn claim(seen: &mut [SeenNode<'_>], pus: usize) {
    let rank = |node: &SeenNode<'_>| (node.tier.unwrap_or(Tier::Dram), node.near.len(), node.os);
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|&at| rank(&seen[at]));
    let mut taken = vec![false; pus];
    for at in order {
        let node = &mut seen[at];
        for slot in &mut taken[node.near.start as usize..node.near.end as usize] {
            node.has_cpus |= !*slot;
            *slot = true;
        }
        node.has_cpus |= has_hidden_cpus(node.object);
    }
}

/// Returns whether a node has no near CPUs here only because its CPUs are switched off or hidden by
/// a cpuset.
fn has_hidden_cpus(object: &TopologyObject) -> bool {
    object.cpuset().is_some_and(|set| set.is_empty())
        && object.complete_cpuset().is_some_and(|set| !set.is_empty())
}

/// Returns the kind of a node by its name (hwloc's `subtype`), or by hwloc's infos on the device
/// behind it.
fn named_tier(object: &TopologyObject) -> Option<Tier> {
    let name = object.subtype().map(text::owned).unwrap_or_default().to_ascii_uppercase();
    // Outermost property first: HBM behind CXL is reached as CXL is.
    let by_name = [
        ("CXL", Tier::Cxl),
        ("GPU", Tier::Gpu),
        ("HBM", Tier::Hbm),
        ("MCDRAM", Tier::Hbm),
        ("NVM", Tier::Nvm),
        ("PMEM", Tier::Nvm),
        ("DRAM", Tier::Dram),
    ];
    if let Some(&(_, tier)) = by_name.iter().find(|(word, _)| name.contains(word)) {
        return Some(tier);
    }
    if text::info(object, "CXLDevice").is_some() {
        return Some(Tier::Cxl);
    }
    (text::info(object, "DAXType").as_deref() == Some("NVM")).then_some(Tier::Nvm)
}

/// Least bandwidth of a nameless high-bandwidth node, as a multiple of ordinary memory's. Known
/// parts have three (Xeon Max) to five times as much (Knights Landing), while tiers of ordinary
/// memory differ by far less.
const HBM_TIMES: u64 = 2;

/// Returns the kind of a node: by name; ordinary if it has CPUs; else by comparison with the
/// ordinary nodes.
fn tier(topology: &Topology, node: &SeenNode<'_>, all: &[SeenNode<'_>]) -> Tier {
    if let Some(tier) = node.tier {
        return tier;
    }
    if node.has_cpus || has_hidden_cpus(node.object) {
        return Tier::Dram;
    }
    let ordinary =
        || all.iter().filter(|other| other.has_cpus && other.tier.is_none_or(|tier| tier == Tier::Dram));
    let best = ordinary().filter_map(|other| bandwidth(topology, other.object)).max();
    if let (Some(ours), Some(best)) = (bandwidth(topology, node.object), best) {
        return if ours >= best.saturating_mul(HBM_TIMES) { Tier::Hbm } else { Tier::Other };
    }
    // Newer hwloc ranks memory by performance, 0 the fastest.
    let rank = |node: &SeenNode<'_>| text::info(node.object, "MemoryTier")?.parse::<u32>().ok();
    match (rank(node), ordinary().filter_map(rank).min()) {
        (Some(ours), Some(best)) if ours < best => Tier::Hbm,
        (Some(_), Some(_)) => Tier::Other,
        _ if is_on_package(topology, node) => Tier::Hbm,
        _ => Tier::Other,
    }
}

/// Processors with high-bandwidth memory on the package, by parts of their names, and the most
/// bytes of it that one node has: Xeon Max has 64 GiB a package, Knights Landing 16 GiB.
const ON_PACKAGE: [(&str, u64); 2] = [("Xeon(R) CPU Max", 64 << 30), ("Xeon Phi", 16 << 30)];

/// Returns whether a nameless node without CPUs is the high-bandwidth memory of such a processor.
/// Files of older hwloc have neither bandwidths nor ranks.
fn is_on_package(topology: &Topology, node: &SeenNode<'_>) -> bool {
    let Some(model) = processor::model(topology).model else { return false };
    ON_PACKAGE.iter().any(|&(name, most)| {
        model.contains(name) && !node.near.is_empty() && bytes(node.object).is_some_and(|bytes| bytes <= most)
    })
}

/// Returns the speeds of the nodes that have any in the firmware's table.
pub(crate) fn speeds(topology: &Topology) -> Vec<MemorySpeed> {
    let of = |object: &TopologyObject| {
        let node = OsNode::from_index(object.os_index()?);
        let (bandwidth, latency) = (bandwidth(topology, object), latency(topology, object));
        (bandwidth.is_some() || latency.is_some()).then_some(MemorySpeed { node, bandwidth, latency })
    };
    topology.objects_with_type(ObjectType::NUMANode).filter_map(of).collect()
}

/// Returns the bandwidth to a node from the nearest initiator, in MB/s.
fn bandwidth(topology: &Topology, object: &TopologyObject) -> Option<u64> {
    let (_, values) = MemoryAttribute::bandwidth(topology).initiators(object).ok()?;
    values.into_iter().max()
}

/// Returns the latency of a node from the nearest initiator, in nanoseconds.
fn latency(topology: &Topology, object: &TopologyObject) -> Option<u64> {
    let (_, values) = MemoryAttribute::latency(topology).initiators(object).ok()?;
    values.into_iter().min()
}

fn bytes(object: &TopologyObject) -> Option<u64> {
    match object.attributes() {
        Some(ObjectAttributes::NUMANode(node)) => node.local_memory().map(u64::from),
        _ => None,
    }
}

/// Returns the latency table over these nodes, row by row in their order; empty if no table covers
/// them all. hwloc may hold several: firmware's before others.
pub(crate) fn distances(topology: &Topology, nodes: &[NodePart]) -> Vec<u32> {
    let tables = topology
        .distances_with_type(Some(DistancesKind::MEANS_LATENCY), ObjectType::NUMANode)
        .unwrap_or_default();
    let named = |table: &&Distances<'_>| table.name().is_some_and(|name| name.to_bytes() == b"NUMALatency");
    let (first, rest): (Vec<_>, Vec<_>) = tables.iter().partition(named);
    first.into_iter().chain(rest).find_map(|table| over(table, nodes)).unwrap_or_default()
}

fn over(table: &Distances<'_>, nodes: &[NodePart]) -> Option<Vec<u32>> {
    let order: Vec<Option<usize>> =
        table.objects().map(|object| object.and_then(TopologyObject::os_index)).collect();
    let places: Vec<usize> = nodes
        .iter()
        .map(|node| order.iter().position(|&os| os == Some(node.os.index())))
        .collect::<Option<_>>()?;
    let values = table.distances();
    let mut rows = Vec::with_capacity(places.len() * places.len());
    for &from in &places {
        for &to in &places {
            let value = *values.get(from * order.len() + to)?;
            rows.push(u32::try_from(value).unwrap_or(u32::MAX));
        }
    }
    Some(rows)
}

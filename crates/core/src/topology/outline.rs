//! Outline of a machine as nested frames: the content of both pictures, before either lays it out.
//!
//! Problem: machines nest their parts in many orders (nodes in packages, packages in nodes, groups
//! of either), leave out levels, and repeat the same run of cores at several levels. Idea: the
//! outermost groups, packages, dies and nodes become frames, except those without information; the
//! cores directly inside a frame become blocks, one for each last-level cache. Properties: Every
//! core is in exactly one block. Blocks and frames are in logical order. Frames nest at most four
//! deep, for any parts.

use super::{Core, DeviceKind, Level, Machine, Node, Object, Tier};
use crate::ids::{CoreId, Id, NodeId, OsNode};
use crate::set::{CpuSet, NodeSet};
use std::collections::BTreeSet;
use std::ops::Range;

/// Group, package, die or node.
pub(super) struct Frame {
    pub(super) level: Level,
    /// `pack 0`, `node 3`.
    pub(super) name: String,
    /// Size and type of a node's memory.
    pub(super) memory: Option<String>,
    pub(super) cores: Range<u32>,
    pub(super) content: Vec<Content>,
}

/// Content of a frame.
pub(super) enum Content {
    Frame(Frame),
    Block(Block),
}

/// Cores with one last-level cache, or cores that share none.
pub(super) struct Block {
    /// `l3 5`, with the number placement uses; `None` without a shared cache.
    pub(super) name: Option<String>,
    pub(super) cores: Range<u32>,
}

/// Equal nodes without cores and with consecutive numbers.
pub(super) struct MemoryGroup {
    pub(super) nodes: NodeSet,
    /// `16 GiB HBM`; `None` if nothing is known.
    pub(super) size: Option<String>,
    /// Nearest nodes with cores; empty if all are equally near, or nothing is known.
    pub(super) near: NodeSet,
}

/// GPU or network interface.
pub(super) struct Attached {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) address: String,
    /// Nearest nodes; empty on machines without nodes.
    pub(super) near: NodeSet,
}

/// Returns the frames and blocks of a machine, outermost first.
pub(super) fn contents(machine: &Machine) -> Vec<Content> {
    let shown = shown(machine);
    let caches = caches(machine);
    let all = 0..u32::try_from(machine.cores().len()).unwrap_or(u32::MAX);
    inside(machine, &caches, &mut shown.into_iter().peekable(), &all)
}

/// Object of a future frame, and its number within its level.
type Shown<'m> = (&'m Object, u32);

/// Returns the objects that get a frame, depth first.
fn shown(machine: &Machine) -> Vec<Shown<'_>> {
    const LEVELS: [Level; 4] = [Level::Group, Level::Package, Level::Die, Level::Node];
    let runs = |level| machine.at(level).map(|object| (object.pus.start, object.pus.end));
    let named: BTreeSet<(u32, u32)> =
        runs(Level::Machine).chain(runs(Level::Package)).chain(runs(Level::Node)).collect();
    let clusters: BTreeSet<(u32, u32)> = clusters(machine).into_iter().collect();
    let mut next = [(0, 0); LEVELS.len()]; // per level: end of its last frame, and number of frames
    let mut shown = Vec::new();
    for object in machine.objects() {
        let Some(at) = LEVELS.iter().position(|&level| level == object.level) else { continue };
        let run = (object.pus.start, object.pus.end);
        let redundant = match object.level {
            Level::Group => named.contains(&run) || clusters.contains(&run),
            Level::Die => named.contains(&run),
            _ => false,
        };
        if !redundant && run.0 >= next[at].0 {
            shown.push((object, next[at].1));
            next[at] = (run.1, next[at].1 + 1);
        }
    }
    shown
}

/// Returns groups inside a package that contain no node (clusters of cores), as runs of PUs, depth
/// first. Such groups are numerous, and kernels number them arbitrarily.
fn clusters(machine: &Machine) -> Vec<(u32, u32)> {
    let nodes: BTreeSet<(u32, u32)> =
        machine.at(Level::Node).map(|node| (node.pus.start, node.pus.end)).collect();
    let holds_node = |start, end| nodes.range((start, 0)..(end, 0)).any(|node| node.1 <= end);
    let mut package_end = 0;
    let mut clusters = Vec::new();
    for object in machine.objects() {
        let (start, end) = (object.pus.start, object.pus.end);
        match object.level {
            Level::Package => package_end = end.max(package_end),
            Level::Group if start < package_end && !holds_node(start, end) => clusters.push((start, end)),
            _ => {}
        }
    }
    clusters
}

/// Returns the frames inside a run of cores, and the blocks between them.
fn inside<'m>(
    machine: &'m Machine,
    caches: &[Option<&'static str>],
    shown: &mut std::iter::Peekable<std::vec::IntoIter<Shown<'m>>>,
    run: &Range<u32>,
) -> Vec<Content> {
    let mut content = Vec::new();
    let mut next = run.start;
    while let Some((object, number)) =
        shown.next_if(|(object, _)| machine.cores_in(&object.pus).start < run.end)
    {
        let cores = machine.cores_in(&object.pus);
        content.extend(blocks(machine, caches, next..cores.start).map(Content::Block));
        next = cores.end;
        let (name, memory) = names(machine, object, number);
        let inner = inside(machine, caches, shown, &cores);
        content.push(Content::Frame(Frame { level: object.level, name, memory, cores, content: inner }));
    }
    content.extend(blocks(machine, caches, next..run.end).map(Content::Block));
    content
}

fn names(machine: &Machine, object: &Object, number: u32) -> (String, Option<String>) {
    let number = object.os.unwrap_or(number);
    let word = if object.level == Level::Package { "pack" } else { object.level.word() };
    let node = machine.nodes().iter().find(|node| object.level == Level::Node && node.os == OsNode(number));
    let text = node.and_then(|node| {
        let parts = [memory(node.bytes, node.tier), speed(node)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    });
    (format!("{word} {number}"), text)
}

/// Returns the speed of a node's memory: `204 GB/s, 95 ns`.
fn speed(node: &Node) -> Option<String> {
    let bandwidth = node.bandwidth.map(|bandwidth| match bandwidth {
        10_000.. => format!("{} GB/s", bandwidth / 1_000),
        _ => format!("{bandwidth} MB/s"),
    });
    let known: Vec<String> =
        bandwidth.into_iter().chain(node.latency.map(|latency| format!("{latency} ns"))).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// Returns the blocks of a run of cores without frames.
fn blocks(
    machine: &Machine,
    caches: &[Option<&'static str>],
    run: Range<u32>,
) -> impl Iterator<Item = Block> + use<> {
    let cores = &machine.cores()[run.start as usize..run.end.max(run.start) as usize];
    // Sizes of caches are shown if they differ.
    let sizes: BTreeSet<_> = machine.llcs().iter().filter_map(|llc| llc.bytes).collect();
    let size = |core: &Core| {
        let bytes = machine.llcs()[core.llc.index()].bytes.filter(|_| sizes.len() > 1);
        bytes.map_or_else(String::new, |bytes| match bytes >> 20 {
            0 => format!(" ({} KiB)", bytes >> 10),
            mebibytes => format!(" ({mebibytes} MiB)"),
        })
    };
    // Caches with one core each do not form groups, so their cores are adjacent.
    let shared = cores.windows(2).any(|pair| pair[0].llc == pair[1].llc);
    let mut blocks: Vec<Block> = Vec::new();
    for (at, core) in (run.start..).zip(cores) {
        let fresh = at == run.start || shared && core.llc != cores[(at - run.start - 1) as usize].llc;
        match blocks.last_mut() {
            Some(block) if !fresh => block.cores.end = at + 1,
            _ => {
                let cache = caches[at as usize].filter(|_| shared);
                let name = cache.map(|cache| format!("{cache} {}{}", core.llc, size(core)));
                blocks.push(Block { name, cores: at..at + 1 });
            }
        }
    }
    blocks.into_iter()
}

/// Returns the name of the level of each core's last-level cache.
pub(super) fn caches(machine: &Machine) -> Vec<Option<&'static str>> {
    let mut caches = vec![None; machine.cores().len()];
    for object in machine.objects() {
        if matches!(object.level, Level::L3 | Level::L2) {
            for core in machine.cores_in(&object.pus) {
                caches[core as usize].get_or_insert(object.level.word()); // outermost first
            }
        }
    }
    caches
}

/// Returns for each core its cluster, or its second-level cache if several cores share it: a number
/// and a word for the type.
pub(super) fn modules(machine: &Machine) -> Vec<Option<(u32, &'static str)>> {
    let mut modules = vec![None; machine.cores().len()];
    let mut next = 0;
    let outermost = clusters(machine).into_iter().filter(|&(start, end)| {
        let outside = start >= next;
        next = end.max(next);
        outside
    });
    let clusters = outermost.map(|(start, end)| ("cluster", machine.cores_in(&(start..end))));
    let caches = machine.outermost(Level::L2).into_iter().map(|cores| ("shared L2", cores));
    for (number, (word, cores)) in (0..).zip(clusters.chain(caches)) {
        if cores.len() > 1 {
            modules[cores.start as usize..cores.end as usize].fill(Some((number, word)));
        }
    }
    modules
}

/// Returns the memory of nodes without cores.
pub(super) fn memories(machine: &Machine) -> Vec<MemoryGroup> {
    let mut memories: Vec<MemoryGroup> = Vec::new();
    for (at, node) in (0..).zip(machine.nodes()).filter(|(_, node)| node.cores.is_empty()) {
        let (size, near) = (memory(node.bytes, node.tier), nearest(machine, NodeId(at)));
        match memories.last_mut() {
            Some(last)
                if (&last.size, &last.near) == (&size, &near)
                    && last.nodes.last().is_some_and(|os| os.0 + 1 == node.os.0) =>
            {
                last.nodes.insert(node.os);
            }
            _ => memories.push(MemoryGroup { nodes: std::iter::once(node.os).collect(), size, near }),
        }
    }
    memories
}

/// Returns the nodes with cores that are nearest to a memory-only node: by the firmware's distances
/// if there are any, else by the reported locality.
fn nearest(machine: &Machine, memory: NodeId) -> NodeSet {
    let with_cores = || (0..).map(NodeId).zip(machine.nodes()).filter(|(_, node)| !node.cores.is_empty());
    let all: NodeSet = with_cores().map(|(_, node)| node.os).collect();
    let near = if machine.parts().distances.is_empty() {
        let cores = machine.cores_in(&machine.nodes()[memory.0 as usize].near);
        let homes = cores.filter_map(|core| machine.core(CoreId(core)).node);
        homes.map(|node| machine.nodes()[node.0 as usize].os).collect()
    } else {
        let least = with_cores().map(|(id, _)| machine.distance(id, memory)).min();
        let tied = with_cores().filter(|&(id, _)| Some(machine.distance(id, memory)) == least);
        tied.map(|(_, node)| node.os).collect()
    };
    if near == all { NodeSet::new() } else { near }
}

/// Returns the devices that matter for placement.
pub(super) fn attached(machine: &Machine) -> Vec<Attached> {
    let of = |device: &super::Device| {
        let kind = match device.kind {
            DeviceKind::Gpu => "gpu",
            DeviceKind::Nic => "nic",
            DeviceKind::Storage => return None,
        };
        let (name, address) = (plain(&device.name), plain(device.address.as_deref().unwrap_or("")));
        Some(Attached { kind, name, address, near: machine.nodes_of(&device.cpus) })
    };
    machine.devices().iter().filter_map(of).collect()
}

/// Returns external text in the form for a picture: printable ASCII, and a question mark for each
/// other character.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_ascii_graphic() || char == ' ' { char } else { '?' }).collect()
}

/// Returns `62 GiB`, `16 GiB HBM` or `HBM`; `None` for ordinary memory of unknown size.
fn memory(bytes: Option<u64>, tier: Tier) -> Option<String> {
    match (bytes, tier) {
        (None, Tier::Dram) => None,
        (None, tier) => Some(tier.to_string()),
        (Some(bytes), Tier::Dram) => Some(size(bytes)),
        (Some(bytes), tier) => Some(format!("{} {tier}", size(bytes))),
    }
}

/// Returns bytes in the largest unit that gives at least 1, with at least two digits.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let tenths = (u128::from(bytes) * 10 + (1 << (10 * unit) >> 1)) >> (10 * unit);
    match (tenths / 10, tenths % 10) {
        (whole @ ..10, rest @ 1..) => format!("{whole}.{rest} {}", UNITS[unit]),
        (whole, rest) => format!("{} {}", whole + u128::from(rest >= 5), UNITS[unit]),
    }
}

/// Returns CPUs in the notation of `taskset`: runs, and runs with a step (`0-30:2`).
pub(super) fn list(cpus: &CpuSet) -> String {
    let ids: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
    let mut items = Vec::new();
    let mut at = 0;
    while at < ids.len() {
        let step = ids.get(at + 1).map_or(1, |next| next - ids[at]);
        let run = 1 + ids[at..].windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
        let (first, last) = (ids[at], ids[at + run - 1]);
        match (run, step) {
            (2.., 1) => items.push(format!("{first}-{last}")),
            (3.., _) => items.push(format!("{first}-{last}:{step}")),
            _ => {
                items.push(first.to_string());
                at += 1;
                continue;
            }
        }
        at += run;
    }
    items.join(",")
}

/// Returns `node 3` or `nodes 0-1`.
pub(super) fn nodes(nodes: &NodeSet) -> String {
    format!("node{} {nodes}", if nodes.len() == 1 { "" } else { "s" })
}

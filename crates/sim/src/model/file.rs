//! Machine file in TOML: the parts, speeds and distances of a machine, and the source of each
//! number.
//!
//! ```toml
//! name = "westmere-e5620"
//! title = "2 x Xeon E5620"
//! topology = "pack:2 numa:1(memory=8GB) l3:1 core:4 pu:2"
//! distance = 20                  # between any two nodes; or [12, 32]: within one board (else
//!                                # package), and beyond it; or distances = [[10, 20], [20, 10]];
//!                                # absent: from the topology's shape
//!
//! [cores]
//! speed = 1.0                    # of each core, or a list, one for each core
//! smt = [1.0, 1.25]              # throughput of a core with 1, 2, ... busy hardware threads
//! turbo = [1.1, 1.1, 1.0, 1.0]   # with 1, 2, ... busy cores of a package; absent: always 1
//!
//! [caches]
//! private = "256K"
//! shared = "12M"                 # "0" if cores share none
//! shared_ns = 16.7
//! transfer_ns = 30
//! far_transfer_ns = 55
//!
//! [memory]
//! local_ns = 67
//! per_distance_ns = 3.8          # needed where there are several nodes
//! node_gbs = 19
//! link_gbs = 11                  # needed where there are several nodes
//! core_gbs = 9
//! port_gbs = 8                   # optional: each package's bus
//! bus_gbs = 30                   # optional: all memory traffic of the machine
//! page = "4K"
//!
//! [switching]
//! switch_ns = 1500
//! migrate_ns = 3000
//! wake_ns = 4000
//! yield_ns = 500
//!
//! [source]                       # optional, by key
//! memory.local_ns = "measured with ..."
//! ```
//!
//! Limits are in the constants; errors state them.

use super::{Caches, MemoryParams, Model, Smt, Switching, Turbo};
use crate::reader::{FileError, NumberLimits, Section, Text};
use std::collections::BTreeMap;
use trimtab_core::ids::{Id, NodeId};
use trimtab_core::time::Span;
use trimtab_core::topology::{Level, Machine, Node, parse_synthetic};

/// Latency of one access: up to ten milliseconds, for memory over a network.
const LATENCY: NumberLimits = NumberLimits::new(0.1, 1e7, "nanoseconds");
/// Latency that distance adds.
const STEP: NumberLimits = NumberLimits::new(0.0, 1e6, "nanoseconds for each unit of distance");
/// Bandwidths: from a modem to a rack.
const BANDWIDTH: NumberLimits = NumberLimits::new(1e-3, 1e6, "GB/s");
/// Factors of speed: a thousandth to a thousandfold.
const FACTOR: NumberLimits = NumberLimits::new(1e-3, 1e3, "factors");
/// Firmware's scale of distances.
const DISTANCE: NumberLimits = NumberLimits::new(10.0, 255.0, "distances");
/// Times of the kernel's steps: up to a second.
const STEP_COST: NumberLimits = NumberLimits::new(0.0, 1e9, "nanoseconds");
/// The largest cache: a terabyte.
const CACHE_BYTES_MAX: u64 = 1 << 40;
/// Pages from 512 bytes to 16 gigabytes.
const PAGE: (u64, u64) = (512, 16 << 30);
/// Highest number of nodes with a table of distances; larger machines have one distance.
pub const MOST_NODES: usize = 1 << 10;

/// Reads a machine file.
///
/// # Errors
/// [`FileError`] names the file, line, key, value and the allowed values.
pub fn read(file: &str, text: &str) -> Result<Model, FileError> {
    let text = Text { file, text };
    let table = text.table()?;
    model(Section::top(text, table.get_ref()))
}

/// Reads a machine from a table with the keys of a machine file.
pub(crate) fn model(top: Section<'_>) -> Result<Model, FileError> {
    let (machine, topology) = machine(&top)?;
    let cores = top.needed_section("cores")?;
    let speeds = speeds(&cores, &machine)?.unwrap_or_else(|| vec![1.0; machine.cores().len()]);
    let turbo = turbo(&cores)?.unwrap_or_default();
    let smt = smt(&cores, &machine)?.unwrap_or_else(|| Smt { throughput: vec![1.0] });
    cores.finish()?;
    let caches = caches(top.needed_section("caches")?, &machine, None)?;
    let memory = memory(top.needed_section("memory")?, &machine, None)?;
    let switching = switching(top.needed_section("switching")?, None)?;
    let sources = sources(&top)?;
    let model = Model { topology, machine, speeds, turbo, smt, caches, memory, switching, sources };
    top.finish()?;
    Ok(model)
}

/// Applies a table of changes to a machine; keys that are absent keep their values. `base` must
/// have been asked for already.
pub(crate) fn change(top: Section<'_>, base: Model) -> Result<Model, FileError> {
    let mut model = base;
    if let Some(name) = top.words("name")? {
        let distances = Some(model.machine.parts().distances.clone());
        model.machine = named(&top, model.machine, name, distances)?;
    }
    if let Some(cores) = top.section("cores")? {
        model.speeds = speeds(&cores, &model.machine)?.unwrap_or(model.speeds);
        model.turbo = turbo(&cores)?.unwrap_or(model.turbo);
        model.smt = smt(&cores, &model.machine)?.unwrap_or(model.smt);
        cores.finish()?;
    }
    if let Some(section) = top.section("caches")? {
        model.caches = caches(section, &model.machine, Some(&model.caches))?;
    }
    if let Some(section) = top.section("memory")? {
        model.memory = memory(section, &model.machine, Some(&model.memory))?;
    }
    if let Some(section) = top.section("switching")? {
        model.switching = switching(section, Some(&model.switching))?;
    }
    top.finish()?;
    Ok(model)
}

/// Reads a number, which is required unless there is one already.
fn number(
    section: &Section<'_>,
    key: &'static str,
    limits: NumberLimits,
    base: Option<f64>,
) -> Result<f64, FileError> {
    match base {
        Some(base) => Ok(section.number(key, limits)?.unwrap_or(base)),
        None => section.needed(key, limits),
    }
}

/// Reads the machine, and its topology as written.
fn machine(top: &Section<'_>) -> Result<(Machine, String), FileError> {
    let name =
        top.words("name")?.ok_or_else(|| top.error("name", "is missing: a name in quotes is allowed"))?;
    top.words("title")?;
    let written = top.words("topology")?.ok_or_else(|| {
        top.error("topology", "is missing: levels are allowed, such as \"pack:2 numa:1 l3:1 core:4 pu:2\"")
    })?;
    let machine = parse_synthetic(written).map_err(|error| top.error("topology", error.to_string()))?;
    let nodes = machine.nodes().len();
    let one = top.numbers("distance", DISTANCE)?;
    let rows = top.rows("distances", DISTANCE)?;
    let table: Vec<u32> = match (one, rows) {
        (Some(_), Some(_)) => {
            return Err(top.error("distances", "contradicts distance: only one of them is allowed"));
        }
        (None, None) => return Ok((named(top, machine, name, None)?, written.to_owned())),
        (Some(one), None) => {
            if nodes > MOST_NODES {
                let problem = format!("the machine has {nodes} nodes; up to {MOST_NODES} may have distances");
                return Err(top.error("distance", problem));
            }
            let (near, far) = match one[..] {
                [one] => (one, one),
                [near, far] if near <= far => (near, far),
                _ => {
                    return Err(
                        top.error("distance", "one number is allowed, or two that rise: near and far")
                    );
                }
            };
            let place = near_nodes(&machine);
            let between = |from: usize, to: usize| match () {
                () if from == to => 10,
                () if place[from].is_some() && place[from] == place[to] => near as u32,
                () => far as u32,
            };
            (0..nodes * nodes).map(|at| between(at / nodes, at % nodes)).collect()
        }
        (None, Some(rows)) => {
            if nodes > MOST_NODES || rows.len() != nodes || rows.iter().any(|row| row.len() != nodes) {
                let problem =
                    format!("the topology has {nodes} nodes: {nodes} rows of {nodes} distances are allowed");
                return Err(top.error("distances", problem));
            }
            if (0..nodes).any(|node| rows[node][node] != 10.0) {
                return Err(top.error("distances", "from a node to itself, only 10 is allowed"));
            }
            rows.iter().flatten().map(|&distance| distance as u32).collect()
        }
    };
    Ok((named(top, machine, name, Some(table))?, written.to_owned()))
}

/// Returns for each node the board on which it is, or the package if the machine has no boards.
fn near_nodes(machine: &Machine) -> Vec<Option<usize>> {
    let level = if machine.at(Level::Group).next().is_some() { Level::Group } else { Level::Package };
    let places = machine.outermost(level);
    let place = |node: &Node| {
        let core = node.cores.first()?.0;
        places.iter().position(|cores| cores.contains(&core))
    };
    machine.nodes().iter().map(place).collect()
}

/// Returns the machine with its name and, if given, its distances.
fn named(
    top: &Section<'_>,
    machine: Machine,
    name: &str,
    table: Option<Vec<u32>>,
) -> Result<Machine, FileError> {
    let mut parts = machine.parts().clone();
    parts.name = name.to_owned();
    parts.distances = table.unwrap_or_default();
    Machine::build(parts).map_err(|error| top.error("topology", error.to_string()))
}

fn speeds(cores: &Section<'_>, machine: &Machine) -> Result<Option<Vec<f64>>, FileError> {
    let count = machine.cores().len();
    let Some(mut speeds) = cores.numbers("speed", FACTOR)? else { return Ok(None) };
    if speeds.len() == 1 {
        speeds = vec![speeds[0]; count];
    }
    if speeds.len() != count {
        let problem =
            format!("{} speeds for {count} cores: one, or one for each core, is allowed", speeds.len());
        return Err(cores.error("speed", problem));
    }
    Ok(Some(speeds))
}

fn turbo(cores: &Section<'_>) -> Result<Option<Turbo>, FileError> {
    let Some(factors) = cores.numbers("turbo", FACTOR)? else { return Ok(None) };
    if factors.windows(2).any(|pair| pair[0] < pair[1]) {
        return Err(cores.error("turbo", "rises with busy cores: only factors that fall or stay are allowed"));
    }
    Ok(Some(Turbo { factors }))
}

fn smt(cores: &Section<'_>, machine: &Machine) -> Result<Option<Smt>, FileError> {
    let Some(throughput) = cores.numbers("smt", FACTOR)? else { return Ok(None) };
    let threads = machine.smt();
    if throughput.is_empty() || throughput.len() > threads {
        let problem = format!("1 to {threads} factors are allowed: cores have {threads} hardware threads");
        return Err(cores.error("smt", problem));
    }
    if throughput[0] != 1.0 || throughput.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(cores.error("smt", "only 1.0 is allowed first, and then values that never fall"));
    }
    if throughput.iter().enumerate().any(|(at, &all)| all > (at + 1) as f64) {
        return Err(cores.error("smt", "up to n is allowed for n threads: none is faster than alone"));
    }
    Ok(Some(Smt { throughput }))
}

fn caches(section: Section<'_>, machine: &Machine, base: Option<&Caches>) -> Result<Caches, FileError> {
    let size = |key: &'static str, base: Option<u64>| -> Result<u64, FileError> {
        section.bytes(key, CACHE_BYTES_MAX)?.or(base).ok_or_else(|| {
            section.error(key, "is missing: bytes are allowed, such as \"256K\", or 0 if there is none")
        })
    };
    let latency = |key: &'static str, base: Option<f64>| number(&section, key, LATENCY, base);
    let caches = Caches {
        private_bytes: size("private", base.map(|base| base.private_bytes))?,
        shared_bytes: size("shared", base.map(|base| base.shared_bytes))?,
        shared_ns: latency("shared_ns", base.map(|base| base.shared_ns))?,
        transfer_ns: latency("transfer_ns", base.map(|base| base.transfer_ns))?,
        far_transfer_ns: latency("far_transfer_ns", base.map(|base| base.far_transfer_ns))?,
    };
    let nodes = machine.nodes().len();
    let node = NodeId::from_index;
    let farthest = (0..nodes).map(|to| machine.distance(node(0), node(to))).max().unwrap_or(10);
    if caches.far_transfer_ns * f64::from(farthest) / 10.0 < caches.transfer_ns {
        let problem =
            format!("a far line would come sooner than a near one (transfer_ns = {})", caches.transfer_ns);
        return Err(section.error("far_transfer_ns", problem));
    }
    section.finish()?;
    Ok(caches)
}

fn memory(
    section: Section<'_>,
    machine: &Machine,
    base: Option<&MemoryParams>,
) -> Result<MemoryParams, FileError> {
    let nodes = machine.nodes().len();
    let several = |key: &'static str, limits: NumberLimits, without: Option<f64>, alone: f64| match (
        section.number(key, limits)?.or(without),
        nodes,
    ) {
        (Some(value), _) => Ok(value),
        (None, 2..) => {
            let problem =
                format!("is missing, and the topology has {nodes} nodes: {} are needed", limits.unit);
            Err(section.error(key, problem))
        }
        (None, _) => Ok(alone),
    };
    let page_bytes = section.bytes("page", PAGE.1)?.or(base.map(|base| base.page_bytes)).unwrap_or(4096);
    if page_bytes < PAGE.0 || !page_bytes.is_power_of_two() {
        return Err(section.error("page", format!("powers of two from {} to {} are allowed", PAGE.0, PAGE.1)));
    }
    let step = base.map(|base| base.per_distance_ns);
    let link = base.map(|base| base.link_bandwidth);
    let memory = MemoryParams {
        local_ns: number(&section, "local_ns", LATENCY, base.map(|base| base.local_ns))?,
        per_distance_ns: several("per_distance_ns", STEP, step, 0.0)?,
        node_bandwidth: number(&section, "node_gbs", BANDWIDTH, base.map(|base| base.node_bandwidth))?,
        link_bandwidth: several("link_gbs", BANDWIDTH, link, f64::INFINITY)?,
        core_bandwidth: number(&section, "core_gbs", BANDWIDTH, base.map(|base| base.core_bandwidth))?,
        port_bandwidth: section.number("port_gbs", BANDWIDTH)?.or(base.and_then(|base| base.port_bandwidth)),
        bus_bandwidth: section.number("bus_gbs", BANDWIDTH)?.or(base.and_then(|base| base.bus_bandwidth)),
        page_bytes,
    };
    if memory.port_bandwidth.is_some() && machine.at(Level::Package).next().is_none() {
        return Err(section.error("port_gbs", "contradicts a topology without packages: none is allowed"));
    }
    let wider = [
        ("node_gbs", Some(memory.node_bandwidth)),
        ("port_gbs", memory.port_bandwidth),
        ("bus_gbs", memory.bus_bandwidth),
    ];
    for (key, bandwidth) in wider {
        if let Some(bandwidth) = bandwidth.filter(|&bandwidth| bandwidth < memory.core_bandwidth) {
            let problem = format!("contradicts {key} = {bandwidth}: at most that is allowed");
            return Err(section.error("core_gbs", problem));
        }
    }
    section.finish()?;
    Ok(memory)
}

fn switching(section: Section<'_>, base: Option<&Switching>) -> Result<Switching, FileError> {
    let span = |key: &'static str, base: Option<Span>| {
        let base = base.map(|base| base.0 as f64);
        Ok(Span(number(&section, key, STEP_COST, base)? as u64))
    };
    let switching = Switching {
        switch: span("switch_ns", base.map(|base| base.switch))?,
        migrate: span("migrate_ns", base.map(|base| base.migrate))?,
        wake: span("wake_ns", base.map(|base| base.wake))?,
        yielding: span("yield_ns", base.map(|base| base.yielding))?,
    };
    section.finish()?;
    Ok(switching)
}

/// Keys that may have a source: those that are numbers, and the topology.
pub const KEYS: [&str; 23] = [
    "topology",
    "distance",
    "distances",
    "cores.speed",
    "cores.smt",
    "cores.turbo",
    "caches.private",
    "caches.shared",
    "caches.shared_ns",
    "caches.transfer_ns",
    "caches.far_transfer_ns",
    "memory.local_ns",
    "memory.per_distance_ns",
    "memory.node_gbs",
    "memory.link_gbs",
    "memory.core_gbs",
    "memory.port_gbs",
    "memory.bus_gbs",
    "memory.page",
    "switching.switch_ns",
    "switching.migrate_ns",
    "switching.wake_ns",
    "switching.yield_ns",
];

fn sources(top: &Section<'_>) -> Result<BTreeMap<String, String>, FileError> {
    let Some(section) = top.section("source")? else { return Ok(BTreeMap::new()) };
    let texts = section.texts()?;
    if let Some((key, _)) = texts.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
        let problem = format!("is not a key of a machine; known are {}", KEYS.join(", "));
        return Err(section.error(key, problem));
    }
    Ok(texts.into_iter().map(|(key, text)| (key, text.to_owned())).collect())
}

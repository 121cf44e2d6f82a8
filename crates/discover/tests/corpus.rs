//! Captured machines, checked against the counts in their index and against hwloc's own calculator.
//!
//! The machines are not part of the repository. `TRIMTAB_TOPOLOGIES` names their folder; without
//! it, `../shared/topologies` next to the repository is tried. If there is none, the tests report
//! that they skip.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use trimtab_core::ids::{Id, NodeId, OsCpu, OsNode, Pu};
use trimtab_core::topology::{DeviceKind, Level, Machine, Tier, each_device};
use trimtab_linux::machine::from_xml;

const HELPER: &str = env!("CARGO_BIN_EXE_trimtab-discover");

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TRIMTAB_TOPOLOGIES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/topologies"),
        PathBuf::from,
    );
    let there = folder.join("INDEX.tsv").is_file();
    if !there {
        skip(&format!("no captured machines in {} (set TRIMTAB_TOPOLOGIES)", folder.display()));
    }
    there.then_some(folder)
}

/// Reports a skip past the test harness, which captures the output of passing tests.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

fn machine(name: &str) -> Option<Machine> {
    let file = folder()?.join(format!("{name}.xml"));
    Some(from_xml(&file, Some(Path::new(HELPER))).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// A row of the index: column to value.
type IndexRow = BTreeMap<String, String>;

fn index() -> Option<Vec<IndexRow>> {
    let text = std::fs::read_to_string(folder()?.join("INDEX.tsv")).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let row = |line: &str| {
        names.iter().map(|name| (*name).to_owned()).zip(line.split('\t').map(str::to_owned)).collect()
    };
    Some(lines.filter(|line| line.contains('\t')).map(row).collect())
}

/// Objects without a visible PU: hwloc lists packages and caches of which a cpuset leaves only
/// memory. Nothing can be placed on them, and as runs of PUs they do not exist.
const WITHOUT_PUS: [(&str, &str, usize); 3] = [
    ("16amd64-8n2c-cpusets", "packages", 1),
    ("32amd64-4s2n4c-cgroup2", "packages", 2),
    ("32amd64-4s2n4c-cgroup2", "L3", 4),
];

#[test]
fn every_machine_has_the_counts_of_the_index() {
    let Some(index) = index() else { return };
    assert_eq!(index.len(), 25);
    let mut wrong = Vec::new();
    for row in index {
        let name = row["name"].as_str();
        let machine = machine(name).unwrap();
        let parts = machine.parts();
        let pus = machine.pu_count();
        let gib = parts.nodes.iter().filter_map(|node| node.bytes).sum::<u64>() >> 30;
        for (column, found) in [
            ("nodes", machine.nodes().len()),
            ("packages", machine.at(Level::Package).count()),
            ("dies", machine.at(Level::Die).count()),
            ("groups", machine.at(Level::Group).count()),
            ("L3", machine.at(Level::L3).count()),
            ("cores", machine.cores().len()),
            ("PUs", pus),
            ("allowed_PUs", machine.allowed().len()),
            ("complete_PUs", pus + machine.offline().len()),
            ("cpukinds", parts.kinds.len()),
            ("GiB", usize::try_from(gib).unwrap()),
            ("memless_nodes", machine.nodes().iter().filter(|node| node.bytes.is_none()).count()),
            ("cpuless_nodes", parts.nodes.iter().filter(|node| node.count == 0).count()),
        ] {
            let hidden = WITHOUT_PUS
                .iter()
                .find(|(of, what, _)| *of == name && *what == column)
                .map_or(0, |row| row.2);
            let expected = row[column].parse::<usize>().unwrap() - hidden;
            if found != expected {
                wrong.push(format!("{name}: {found} {column}, {expected} in the index"));
            }
        }
        // Some tables in the index are between devices; if there is any table, there is one between
        // nodes.
        let nodes = machine.nodes().len();
        let expected = if row["distances"] == "0" { 0 } else { nodes * nodes };
        if parts.distances.len() != expected {
            wrong.push(format!("{name}: {} distances for {nodes} nodes", parts.distances.len()));
        }
        if machine.name() != name {
            wrong.push(format!("{name}: called {}", machine.name()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_machine_is_whole() {
    let Some(index) = index() else { return };
    for row in index {
        let name = row["name"].as_str();
        let machine = machine(name).unwrap();
        let mut cores = vec![0; machine.pu_count()];
        for core in machine.cores() {
            core.pus.clone().for_each(|pu| cores[pu as usize] += 1);
        }
        assert!(cores.iter().all(|&count| count == 1), "{name}: a PU without a core of its own");
        let llc_cores: u32 = machine.llcs().iter().map(|llc| llc.cores.end - llc.cores.start).sum();
        assert_eq!(llc_cores as usize, machine.cores().len(), "{name}");
        for at in 0..machine.nodes().len() {
            let here = NodeId::from_index(at);
            let local = machine.distance(here, here);
            let nearest =
                (0..machine.nodes().len()).map(|to| machine.distance(here, NodeId::from_index(to))).min();
            assert_eq!(nearest, Some(local), "{name}: another node is nearer to {at} than itself");
        }
        let kinds: usize = machine.kinds().iter().map(|kind| kind.cpus.len()).sum();
        assert_eq!(kinds, machine.pu_count(), "{name}: kinds do not share the CPUs out");
        for device in machine.devices() {
            assert!(!device.name.is_empty() && device.cpus.is_subset(&machine.cpus()), "{name}: {device:?}");
        }
    }
}

/// hwloc's calculator on the same file: another program over the same library, which shares none of
/// our code.
#[test]
fn places_agree_with_hwloc_calc() {
    let Some(index) = index() else { return };
    if Command::new("hwloc-calc").arg("--version").output().is_err() {
        skip("no hwloc-calc to compare with");
        return;
    }
    let folder = folder().unwrap();
    let calc = |name: &str, words: &[&str]| -> Option<Vec<u32>> {
        let out = Command::new("hwloc-calc")
            .env("HWLOC_HIDE_ERRORS", "2")
            .args(["--disallowed", "--if", "xml", "-i"])
            .arg(folder.join(format!("{name}.xml")))
            .args(words)
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        out.status.success().then(|| text.trim().split(',').filter_map(|word| word.parse().ok()).collect())
    };
    for row in index {
        let name = row["name"].as_str();
        let machine = machine(name).unwrap();
        let ours: Vec<u32> = (0..machine.pu_count()).map(|at| machine.os(Pu::from_index(at)).0).collect();
        assert_eq!(calc(name, &["-I", "pu", "--po", "all"]).unwrap(), ours, "{name}: order of PUs");
        for (word, level) in [("package", Level::Package), ("l3", Level::L3), ("core", Level::Core)] {
            let objects: Vec<_> = machine.at(level).collect();
            // The ends and the middle: asking for each object would start a process for each.
            for at in [0, objects.len() / 2, objects.len().saturating_sub(1)] {
                let Some(object) = objects.get(at) else { continue };
                let theirs = calc(name, &["-I", "pu", "--po", &format!("{word}:{at}")]).unwrap();
                if theirs.is_empty() || machine.at(level).count().to_string() != row_count(&row, level) {
                    continue; // hwloc counts objects without PUs too, so the numbers differ there
                }
                let ours: Vec<u32> = object.pus.clone().map(|pu| machine.os(Pu(pu)).0).collect();
                assert_eq!(theirs, ours, "{name}: {word} {at}");
            }
        }
        for node in machine.nodes() {
            let theirs = calc(name, &["-I", "pu", "--po", "--pi", &format!("numa:{}", node.os)]).unwrap();
            let ours: Vec<u32> = node.near.clone().map(|pu| machine.os(Pu(pu)).0).collect();
            assert_eq!(theirs, ours, "{name}: node {}", node.os);
        }
    }
}

fn row_count(row: &IndexRow, level: Level) -> String {
    let column = match level {
        Level::Package => "packages",
        Level::L3 => "L3",
        _ => "cores",
    };
    row[column].clone()
}

#[test]
fn favoured_cores_are_joined_into_makes() {
    for (name, expected) in [
        ("20em64t-hybrid-1p6c2t+2ca4co1t", vec![("P", "0-11"), ("E", "12-19")]),
        ("nvidia-dgx-gb10", vec![("P", "5-9,15-19"), ("E", "0-4,10-14")]),
        ("128arm-2pa2n8cluster4co", vec![("all", "0-127")]),
        ("epyc-corona", vec![("all", "0-95")]),
        ("32amd64-4s2n4c-cgroup2", vec![("all", "0-5")]),
    ] {
        let Some(machine) = machine(name) else { return };
        let found: Vec<(&str, String)> =
            machine.kinds().iter().map(|kind| (kind.name.as_str(), kind.cpus.to_string())).collect();
        let expected: Vec<(&str, String)> =
            expected.into_iter().map(|(name, cpus)| (name, cpus.to_owned())).collect();
        assert_eq!(found, expected, "{name}");
    }
}

/// Returns node number, tier, and the number of cores that have the node as their own.
fn memory(machine: &Machine) -> Vec<(u32, Tier, usize)> {
    machine.nodes().iter().map(|node| (node.os.0, node.tier, node.cores.len())).collect()
}

#[test]
fn special_memory_is_nobodys_own() {
    use Tier::{Dram, Hbm, Nvm};
    for (name, expected) in [
        (
            "knl-snc4-flat-hwloc1",
            vec![
                (0, Dram, 18),
                (1, Dram, 18),
                (2, Dram, 16),
                (3, Dram, 16),
                (4, Hbm, 0),
                (5, Hbm, 0),
                (6, Hbm, 0),
                (7, Hbm, 0),
            ],
        ),
        (
            // Node 2 is all the memory that its CPUs have, fast as it is. The kernel's `has_cpu`
            // was 0-2.
            "fakeheteromemtiers",
            vec![(0, Dram, 2), (1, Dram, 2), (2, Hbm, 2), (4, Hbm, 0), (6, Nvm, 0), (8, Nvm, 0), (9, Nvm, 0)],
        ),
        // Behind CPUs hidden by a cpuset there is ordinary memory, not special memory.
        ("16amd64-8n2c-cpusets", vec![(1, Dram, 2), (2, Dram, 1), (3, Dram, 1), (4, Dram, 0)]),
        (
            "32amd64-4s2n4c-cgroup2",
            vec![(0, Dram, 4), (1, Dram, 2), (2, Dram, 0), (3, Dram, 0), (4, Dram, 0), (5, Dram, 0)],
        ),
        // hwloc hid the accelerators' nodes from the file.
        ("nvidiagpunumanodes", vec![(0, Dram, 4), (8, Dram, 4)]),
        ("cxlmem+dax.v2", vec![(0, Dram, 4)]),
        ("memorysidecaches", vec![(0, Dram, 10), (1, Dram, 10), (2, Dram, 10), (3, Dram, 10)]),
        ("offline-cpu0-node0", vec![(1, Dram, 8)]),
    ] {
        let Some(machine) = machine(name) else { return };
        assert_eq!(memory(&machine), expected, "{name}");
    }
}

#[test]
fn cpus_without_a_node_and_offline_cpus_are_known() {
    let Some(machine) = machine("offline-cpu0-node0") else { return };
    assert_eq!(machine.offline().to_string(), "0-3,21-23");
    let homeless: Vec<u32> = machine
        .cores()
        .iter()
        .filter(|core| core.node.is_none())
        .map(|core| machine.os(Pu(core.pus.start)).0)
        .collect();
    assert_eq!(homeless, [4, 6, 8, 10, 12, 14, 16, 18, 20], "the other package's node is off");
    assert_eq!(machine.pu(OsCpu(0)), None);
    assert_eq!(machine.nodes_of(&machine.cpus()).iter().collect::<Vec<_>>(), [OsNode(1)]);
}

#[test]
fn distances_go_by_the_kernels_numbers() {
    // hwloc's table is in the order 0 2 1 3.
    let Some(machine) = machine("memorysidecaches") else { return };
    let table: Vec<u32> = (0..16).map(|at| machine.distance(NodeId(at / 4), NodeId(at % 4))).collect();
    assert_eq!(table, [10, 21, 11, 21, 21, 10, 21, 11, 11, 21, 10, 21, 21, 11, 21, 10]);
}

#[test]
fn devices_are_counted_and_placed() {
    let Some(tioga) = machine("eas-tioga") else { return };
    let of = |machine: &Machine, kind: DeviceKind| -> Vec<(String, String, String)> {
        let devices = machine.devices().iter().filter(|device| device.kind == kind);
        devices
            .map(|device| {
                (device.name.clone(), device.address.clone().unwrap_or_default(), device.cpus.to_string())
            })
            .collect()
    };
    // Eight dies, with crossed numbers and nodes.
    let gpus = of(&tioga, DeviceKind::Gpu);
    assert_eq!(gpus.len(), 8);
    assert_eq!(gpus[4], ("rsmi4".into(), "0000:d1:00.0".into(), "0-7,64-71".into()));
    assert_eq!(of(&tioga, DeviceKind::Nic)[1].2, "56-63,120-127");

    // Each accelerator has several names and counts once; the console has one name and does not
    // count.
    let corona = machine("epyc-corona-p2").unwrap();
    let gpus = of(&corona, DeviceKind::Gpu);
    assert_eq!(gpus.iter().map(|gpu| gpu.0.as_str()).collect::<Vec<_>>().len(), 8);
    assert!(gpus.iter().all(|gpu| gpu.0.starts_with("rsmi")), "{gpus:?}");
    let nics: Vec<String> = of(&corona, DeviceKind::Nic).into_iter().map(|nic| nic.0).collect();
    assert_eq!(nics, ["hsi0", "mlx5_0", "eno1", "eno2"], "an interface and its adapter are both names");

    // Accelerators without a driver's name are listed too, by bus id.
    let power = machine("nvidiagpunumanodes").unwrap();
    assert_eq!(of(&power, DeviceKind::Gpu).len(), 6);
    // Memory that is shown as disks is not a disk.
    let cxl = machine("cxlmem+dax.v2").unwrap();
    let disks: Vec<String> = of(&cxl, DeviceKind::Storage).into_iter().map(|disk| disk.0).collect();
    assert_eq!(disks, ["sda"]);
}

#[test]
fn the_processor_is_known() {
    let Some(opteron) = machine("64amd64-4s2n4ca2co") else { return };
    assert!(opteron.cpu().shares_fpu_by_l2(), "{:?}", opteron.cpu());
    let epyc = machine("epyc-corona").unwrap();
    assert!(!epyc.cpu().shares_fpu_by_l2());
    assert_eq!(epyc.cpu().vendor.as_deref(), Some("AuthenticAMD"));
    assert_eq!(epyc.cpu().family, Some(0x17));
}

#[test]
fn sizes_of_caches_and_speeds_of_memory_are_known_where_the_file_has_them() {
    let Some(tiers) = machine("fakeheteromemtiers") else { return };
    let speeds: Vec<_> = tiers.nodes().iter().map(|node| (node.os.0, node.bandwidth, node.latency)).collect();
    let fast = |mb: u64| Some(mb);
    assert_eq!(
        speeds,
        [
            (0, fast(1_000), None),
            (1, fast(1_000), None),
            (2, fast(10_000), None),
            (4, fast(10_000), None),
            (6, fast(100), None),
            (8, fast(100), None),
            (9, fast(100), None)
        ]
    );
    // Four cores share second-level caches, and four have none: their size is unknown, not 0.
    let uneven = machine("8em64t-2s4c-asymcaches").unwrap();
    let sizes: Vec<Option<u64>> =
        uneven.llcs().iter().map(|llc| llc.bytes.map(|bytes| bytes >> 20)).collect();
    assert!(sizes.contains(&Some(4)) && sizes.contains(&None), "{sizes:?}");
    assert_eq!(uneven.largest_cache(), None);
    for row in index().unwrap() {
        let machine = machine(&row["name"]).unwrap();
        let equal = machine.llcs().windows(2).all(|pair| pair[0].bytes == pair[1].bytes);
        if equal && machine.llcs()[0].bytes.is_some() {
            assert_eq!(machine.largest_cache(), Some(machine.cpus()), "{}", row["name"]);
        }
        for node in machine.nodes().iter().filter(|_| row["memattrs"] == "0") {
            assert_eq!((node.bandwidth, node.latency), (None, None), "{}", row["name"]);
        }
    }
    let zen = machine("AMD-19h-Zen4-2xEpyc-9654").unwrap();
    assert!(zen.llcs().iter().all(|llc| llc.bytes == Some(32 << 20)));
}

#[test]
fn makers_of_accelerators_are_known_and_those_with_the_most_are_dealt() {
    let Some(tioga) = machine("eas-tioga") else { return };
    let each = each_device(&tioga, DeviceKind::Gpu);
    assert!(each.len() == 8 && each.iter().all(|(_, device)| device.vendor == Some(0x1002)));
    let power = machine("nvidiagpunumanodes").unwrap();
    let unknown = each_device(&power, DeviceKind::Gpu);
    assert!(unknown.len() == 6 && unknown.iter().all(|(_, device)| device.vendor.is_none()));
    // An integrated one beside four of another maker keeps its number, and is not dealt.
    let mut parts = tioga.parts().clone();
    let mut integrated = parts.devices.iter().find(|device| device.kind == DeviceKind::Gpu).unwrap().clone();
    integrated.vendor = Some(0x8086);
    parts.devices.insert(0, integrated);
    let mixed = Machine::build(parts).unwrap();
    let numbers: Vec<u32> = each_device(&mixed, DeviceKind::Gpu).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(each_device(&machine("cxlmem+dax.v2").unwrap(), DeviceKind::Gpu).is_empty());
}

#[test]
fn captured_machines_without_devices_are_the_same_but_for_them() {
    let Some(index) = index() else { return };
    let mut devices = 0;
    for row in index {
        let file = folder().unwrap().join(format!("{}.xml", row["name"]));
        let parts = |options: &[&str]| {
            let out =
                Command::new(HELPER).arg("xml").arg(&file).arg("--json").args(options).output().unwrap();
            serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
        };
        let mut with = parts(&[]);
        devices += with["devices"].as_array().unwrap().len();
        with["devices"] = serde_json::json!([]);
        assert_eq!(parts(&["--no-devices"]), with, "{}", row["name"]);
    }
    assert!(devices > 20, "{devices} devices on all captured machines");
}

//! Machines for the tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use trimtab_core::topology::{Machine, parse_synthetic};
use trimtab_discover::{Devices, from_xml};

/// Returns the captured machines, by name. They are not part of the repository; see `corpus.rs`.
pub(crate) fn captured() -> Vec<(String, Machine)> {
    let folder = std::env::var_os("TRIMTAB_TOPOLOGIES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/topologies"),
        PathBuf::from,
    );
    let Ok(entries) = std::fs::read_dir(&folder) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no captured machines in {}", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "xml"));
    files.sort();
    let load = |file: &PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        (name, Machine::build(from_xml(file, Devices::Important).unwrap()).unwrap())
    };
    files.iter().map(load).collect()
}

/// Returns large and odd machines, by description.
pub(crate) fn synthetic() -> Vec<(String, Machine)> {
    let large = [
        "pack:2 numa:4 l3:4 core:32 pu:8",
        "pack:8 numa:1 l3:16 core:8 pu:2(far)",
        "pack:4 die:2 numa:2 l2:4 core:2",
    ];
    let small =
        ["core:1", "core:3 pu:4", "pack:2 core:1", "group:3 pack:2 numa:1 core:5 pu:2", "numa:5 core:1"];
    large.iter().chain(&small).map(|text| ((*text).to_owned(), parse_synthetic(text).unwrap())).collect()
}

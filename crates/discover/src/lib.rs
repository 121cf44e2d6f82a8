//! Conversion of hwloc's view of a machine to trimtab's model.
//!
//! Problem: twenty years of firmware quirks make `/sys` wrong or incomplete on many machines. hwloc
//! corrects them, but it is a C library with its own release cycle, and a program that starts other
//! programs should not have to load it. Idea: one small program calls hwloc and prints the model
//! ([`Parts`], encoded by `trimtab_linux::machine`); all other programs read that.
//!
//! Properties: the model is the whole machine, whatever cpuset this process is in. PUs are in
//! hwloc's logical order, so that the PUs of every hwloc object are consecutive. If a topology
//! breaks this rule (no released hwloc makes one), the objects that cannot be represented are
//! dropped, and the rest of the machine is kept.
//!
//! # Example
//!
//! ```
//! use trimtab_core::topology::Machine;
//!
//! let parts = trimtab_discover::live(None, trimtab_discover::Devices::Important)?;
//! let machine = Machine::build(parts)?;
//! assert!(!machine.cpus().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! [`live`] reads this machine, [`from_xml`] a file of hwloc, and [`picture`] makes a file of a
//! part of this machine for launchers. The program `trimtab-discover` prints the results.

#![warn(missing_docs)]

mod devices;
mod memory;
mod objects;
mod processor;
mod runs;
mod source;
mod text;

use hwlocality::Topology;
use runs::Runs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trimtab_core::set::{CpuSet, NodeSet};
use trimtab_core::topology::{MachineError, Parts};

pub use source::{Devices, hwloc_version};

/// Reason why the model is missing. Each message names the cause and a remedy.
#[derive(Debug, Error)]
pub enum DiscoverError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is not a machine description.
    #[error("{} is not an hwloc machine description: {problem} (write one with `lstopo machine.xml`)", path.display())]
    NotTopology {
        /// The file.
        path: PathBuf,
        /// The fault in its content.
        problem: String,
    },
    /// The file is in a format that is newer than the installed hwloc.
    #[error(
        "{} is in hwloc's XML format {format}, and the installed hwloc (API {hwloc}) reads formats up to {}: \
         write it again with `lstopo --export-xml-flags v2 machine.xml` where it was made, or install hwloc {format} here",
        path.display(), hwloc.split('.').next().unwrap_or(hwloc)
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: String,
        /// The version of hwloc's interface.
        hwloc: String,
    },
    /// hwloc refuses the source.
    #[error("hwloc (API {hwloc}) refuses {what}: {problem} ({advice})")]
    Refused {
        /// The source that was requested.
        what: String,
        /// hwloc's error.
        problem: String,
        /// A possible remedy.
        advice: &'static str,
        /// The version of hwloc's interface.
        hwloc: String,
    },
    /// The data that hwloc found does not make a machine.
    #[error("the data that hwloc found in {what} does not make a machine: {problem}")]
    Machine {
        /// The source of the data.
        what: String,
        /// The fault.
        problem: MachineError,
    },
}

/// Discovers the machine on which this program runs.
///
/// The limits of this process are left out on purpose: the model is kept for other processes with
/// other masks.
///
/// `nodes_with_cpus` are the nodes that have CPUs according to the kernel, if it reports them:
/// hwloc itself only reports which CPUs each node is *near* to.
///
/// # Errors
/// [`DiscoverError::Refused`] when hwloc finds nothing, mostly because `/sys` is missing.
pub fn live(nodes_with_cpus: Option<&NodeSet>, devices: Devices) -> Result<Parts, DiscoverError> {
    let topology = source::live(devices)?;
    let mut parts = parts(&topology, nodes_with_cpus)
        .map_err(|problem| DiscoverError::Machine { what: "this machine".to_owned(), problem })?;
    parts.name = text::trimmed("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".to_owned());
    parts.allowed = None;
    processor::name_makes(&mut parts.kinds, &parts.pus, processor::hybrid_makes());
    Ok(parts)
}

/// Makes a picture of this machine that has only these CPUs, as hwloc's XML. A launcher gets it, so
/// that the ranks it binds stay on these CPUs.
///
/// # Errors
/// [`DiscoverError::Refused`] when hwloc finds nothing, or none of these CPUs.
pub fn picture(cpus: &CpuSet) -> Result<String, DiscoverError> {
    source::restricted(cpus)
}

/// Reads the machine that an hwloc XML file describes. Its name is the file's stem.
///
/// # Errors
/// [`DiscoverError`] names the file and its fault.
pub fn from_xml(file: &Path, devices: Devices) -> Result<Parts, DiscoverError> {
    let topology = source::xml(file, devices)?;
    let mut parts = parts(&topology, None)
        .map_err(|problem| DiscoverError::Machine { what: file.display().to_string(), problem })?;
    parts.name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    Ok(parts)
}

fn parts(topology: &Topology, nodes_with_cpus: Option<&NodeSet>) -> Result<Parts, MachineError> {
    let runs = Runs::of(topology);
    let online: CpuSet = runs.pus().iter().copied().collect();
    let nodes = memory::nodes(topology, &runs, nodes_with_cpus);
    let allowed = runs::cpus(&topology.allowed_cpuset()).intersection(&online);
    let parts = Parts {
        name: String::new(), // set by the caller
        cpu: processor::model(topology),
        pus: runs.pus().to_vec(),
        domains: objects::domains(topology, &runs),
        distances: memory::distances(topology, &nodes),
        caches: objects::caches(topology, &runs),
        memory_speeds: memory::speeds(topology),
        nodes,
        kinds: processor::kinds(topology),
        devices: devices::devices(topology),
        offline: runs::cpus(&topology.complete_cpuset()).difference(&online),
        allowed: (allowed != online).then_some(allowed),
    };
    objects::without_crossings(parts)
}

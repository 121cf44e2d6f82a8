//! hwloc's view of a machine as trimtab's model.
//!
//! Problem: twenty years of firmware quirks stand between `/sys` and a sound picture of a machine, and hwloc has met
//! them; but it is a C library of its own pace, and nothing that starts programs should have to load it. Idea: one small
//! program asks hwloc and prints the model ([`Parts`], encoded by `trimtab_linux::machine`); everybody else reads that.
//!
//! Properties: the model is the whole machine, whatever cpuset this process is in; PUs stand in hwloc's logical order,
//! so that every hwloc object is a run of them; a topology that breaks this, as no released hwloc makes, loses the
//! objects that cannot be held and never the machine.

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

pub use source::hwloc_version;

/// Why there is no model. Each line names the cause and what helps.
#[derive(Debug, Error)]
pub enum DiscoverError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is no machine description.
    #[error("{} is not an hwloc machine description: {problem} (write one with `lstopo machine.xml`)", path.display())]
    NotTopology {
        /// The file.
        path: PathBuf,
        /// What it is instead.
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
        /// What was asked for.
        what: String,
        /// What hwloc said.
        problem: String,
        /// What may help.
        advice: &'static str,
        /// The version of hwloc's interface.
        hwloc: String,
    },
    /// What hwloc found makes no machine.
    #[error("what hwloc found in {what} makes no machine: {problem}")]
    Machine {
        /// Where it looked.
        what: String,
        /// What is wrong with it.
        problem: MachineError,
    },
}

/// The machine this program runs on.
///
/// What the process may use of it is left out on purpose: the model is kept for other processes with other masks.
///
/// `nodes_with_cpus` are the nodes that have CPUs according to the kernel, if it says: hwloc itself only tells what
/// each node is *near* to.
///
/// # Errors
/// [`DiscoverError::Refused`] when hwloc finds nothing, mostly for want of `/sys`.
pub fn live(nodes_with_cpus: Option<&NodeSet>) -> Result<Parts, DiscoverError> {
    let topology = source::live()?;
    let mut parts = parts(&topology, nodes_with_cpus)
        .map_err(|problem| DiscoverError::Machine { what: "this machine".to_owned(), problem })?;
    parts.name = text::trimmed("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".to_owned());
    parts.allowed = None;
    processor::name_makes(&mut parts.kinds, &parts.pus, processor::hybrid_makes());
    Ok(parts)
}

/// A picture of this machine that has only these CPUs, as hwloc's XML: what a launcher is given so that the ranks it binds
/// stay on them.
///
/// # Errors
/// [`DiscoverError::Refused`] when hwloc finds nothing, or none of these CPUs.
pub fn picture(cpus: &CpuSet) -> Result<String, DiscoverError> {
    source::restricted(cpus)
}

/// The machine that an hwloc XML file describes, called by the file's stem.
///
/// # Errors
/// [`DiscoverError`] names the file and what is wrong with it.
pub fn from_xml(file: &Path) -> Result<Parts, DiscoverError> {
    let topology = source::xml(file)?;
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
        name: String::new(), // the caller's to give
        cpu: processor::model(topology),
        pus: runs.pus().to_vec(),
        domains: objects::domains(topology, &runs),
        distances: memory::distances(topology, &nodes),
        nodes,
        kinds: processor::kinds(topology),
        devices: devices::devices(topology),
        offline: runs::cpus(&topology.complete_cpuset()).difference(&online),
        allowed: (allowed != online).then_some(allowed),
    };
    objects::without_crossings(parts)
}

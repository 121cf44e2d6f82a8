//! Sources of topologies: this machine, or a file.

use crate::DiscoverError;
use hwlocality::bitmap::BitmapIndex;
use hwlocality::cpu::cpuset::CpuSet as HwlocSet;
use hwlocality::errors::{HybridError, RawHwlocError};
use hwlocality::memory::nodeset::NodeSet;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};
use hwlocality::topology::editor::RestrictFlags;
use hwlocality::topology::export::xml::XMLExportFlags;
use hwlocality::{Topology, hwloc_api_version};
use std::convert::Infallible;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use trimtab_core::ids::Id;
use trimtab_core::set::CpuSet;

/// Largest file that is read, in bytes. The largest in hwloc's own corpus is half a mebibyte, for
/// 384 PUs.
const MAX_XML_BYTES: u64 = 256 << 20;

/// The devices of a model.
///
/// They take most of a discovery: a read of a PCI device's configuration goes to the device, which
/// takes milliseconds in a virtual machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Devices {
    /// Those near which programs are placed.
    Important,
    /// None. All else is the same, except for groups that hwloc adds for a PCI bus whose CPUs are
    /// those of no other object.
    None,
}

/// Returns the version of the interface of the linked hwloc library, such as `2.8`. It follows the
/// library's own version without being equal: hwloc 2.9 still offers interface 2.8.
pub fn hwloc_version() -> String {
    let version = hwloc_api_version();
    format!("{}.{}", version >> 16, version >> 8 & 0xff)
}

/// Discovers the running machine.
///
/// Bindings are not changed: hwloc's x86 part would run on every CPU to identify it. This adds
/// little to the kernel's data here, disturbs cores that were isolated from exactly such visits,
/// and waits without end for a core that a real-time task keeps.
pub(crate) fn live(devices: Devices) -> Result<Topology, DiscoverError> {
    let flags = BuildFlags::INCLUDE_DISALLOWED | BuildFlags::DONT_CHANGE_BINDING;
    load(TopologyBuilder::new(), flags, devices)
        .map_err(|problem| refused("this machine", &problem, "are /proc and /sys mounted?"))
}

/// Returns, as hwloc's XML, the machine that any program of this process's control group sees
/// through hwloc, without the CPUs outside `cpus` and the objects that have none of them. Every
/// hwloc from 2.0 on reads format 2.
pub(crate) fn restricted(cpus: &CpuSet) -> Result<String, DiscoverError> {
    let advice = "are those CPUs online, and allowed here?";
    let refused = |problem: &str| refused(&format!("a picture of CPUs {cpus}"), problem, advice);
    let mut topology = load(TopologyBuilder::new(), BuildFlags::DONT_CHANGE_BINDING, Devices::Important)
        .map_err(|problem| refused(&problem))?;
    let set: HwlocSet = cpus.iter().filter_map(|cpu| BitmapIndex::try_from(cpu.index()).ok()).collect();
    // hwloc keeps nodes that lose their CPUs, and launchers would put ranks on them. hwloc 2.9
    // refuses the binding's flag against that (REMOVE_EMPTIED), so the nodes are removed in a
    // separate step.
    let nodes = NodeSet::from_cpuset(&topology, &set);
    let none = RestrictFlags::empty();
    topology.edit(|editor| editor.restrict(&set, none)).map_err(|error| refused(&error.to_string()))?;
    topology.edit(|editor| editor.restrict(&nodes, none)).map_err(|error| refused(&error.to_string()))?;
    let text = topology.export_xml(XMLExportFlags::empty()).map_err(|error| refused(&error.to_string()))?;
    Ok(text.as_str().to_owned())
}

/// Loads the machine in an hwloc XML file. hwloc's message for a malformed file is
/// `Invalid argument`, so the file is checked first.
pub(crate) fn xml(path: &Path, devices: Devices) -> Result<Topology, DiscoverError> {
    let text = read(path).map_err(|source| DiscoverError::Unreadable { path: path.to_owned(), source })?;
    check(path, &text)?;
    let builder = TopologyBuilder::new().from_xml(&text).map_err(|error| error.to_string());
    builder.and_then(|builder| load(builder, BuildFlags::INCLUDE_DISALLOWED, devices)).map_err(|problem| {
        refused(
            &path.display().to_string(),
            &problem,
            "is it damaged? `lstopo machine.xml` writes one that loads",
        )
    })
}

fn load(builder: TopologyBuilder, flags: BuildFlags, devices: Devices) -> Result<Topology, String> {
    let filter = match devices {
        Devices::Important => TypeFilter::KeepImportant,
        Devices::None => TypeFilter::KeepNone,
    };
    builder
        .with_flags(flags)
        .map_err(words)?
        .with_io_type_filter(filter)
        .map_err(words)?
        .build()
        .map_err(|error| words::<Infallible>(HybridError::Hwloc(error)))
}

/// Returns hwloc's error in the system's words.
fn words<E: Error>(error: HybridError<E>) -> String {
    match error {
        HybridError::Hwloc(RawHwlocError { errno: Some(errno), .. }) => errno.to_string(),
        HybridError::Hwloc(RawHwlocError { api, .. }) => format!("{api} failed"),
        HybridError::Rust(error) => error.to_string(),
    }
}

fn refused(what: &str, problem: &str, advice: &'static str) -> DiscoverError {
    DiscoverError::Refused {
        what: what.to_owned(),
        problem: problem.to_owned(),
        advice,
        hwloc: hwloc_version(),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let about = fs::metadata(path)?; // before it is opened: a FIFO would block
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if about.len() > MAX_XML_BYTES {
        return Err(io::Error::other(format!("it is larger than {} MiB", MAX_XML_BYTES >> 20)));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_XML_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Checks whether hwloc can possibly read the text.
fn check(path: &Path, text: &str) -> Result<(), DiscoverError> {
    let wrong = |problem: &str| {
        Err(DiscoverError::NotTopology { path: path.to_owned(), problem: problem.to_owned() })
    };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.is_empty() {
        return wrong("it is empty");
    }
    if !text.starts_with('<') || text.contains('\0') {
        return wrong("it is not XML");
    }
    let Some(tag) = root(text) else { return wrong("it has no element") };
    if tag.name != "topology" {
        return wrong(&format!("its root element is <{}>, not <topology>", tag.name));
    }
    if !text.contains("</topology>") {
        return wrong("it is cut short, without a closing </topology>");
    }
    // Format 1 has no version attribute.
    let format = tag.attribute("version").unwrap_or("1");
    let major = format.split('.').next().and_then(|major| major.parse::<usize>().ok());
    match major {
        Some(major) if major <= hwloc_api_version() >> 16 => Ok(()),
        Some(_) => Err(DiscoverError::TooNew {
            path: path.to_owned(),
            format: format.to_owned(),
            hwloc: hwloc_version(),
        }),
        None => wrong(&format!("its format version is \"{format}\"")),
    }
}

/// An element's opening tag.
struct Tag<'a> {
    name: &'a str,
    rest: &'a str,
}

impl<'a> Tag<'a> {
    fn attribute(&self, name: &str) -> Option<&'a str> {
        self.rest.split_ascii_whitespace().find_map(|word| {
            let value = word.strip_prefix(name)?.strip_prefix('=')?;
            Some(value.trim_matches(['"', '\'', '/']))
        })
    }
}

/// Returns the first element, after the declaration, comments and the document type.
fn root(mut text: &str) -> Option<Tag<'_>> {
    loop {
        text = &text[text.find('<')? + 1..];
        if let Some(comment) = text.strip_prefix("!--") {
            text = &comment[comment.find("-->")?..];
        } else if !text.starts_with(['?', '!']) {
            let tag = &text[..text.find('>')?];
            let end = tag.find(|letter: char| letter.is_whitespace() || letter == '/').unwrap_or(tag.len());
            return Some(Tag { name: &tag[..end], rest: &tag[end..] });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> String {
        check(Path::new("m.xml"), text).map_or_else(|error| error.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn files_that_cannot_be_a_topology_are_recognised() {
        let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- <topology version=\"9\"> -->\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n";
        for (text, words) in [
            (format!("{head}<topology version=\"2.0\">\n</topology>"), "ok"),
            (format!("{head}<topology>\n</topology>"), "ok"),
            (format!("\u{feff}{head}<topology version='1'>\n</topology>"), "ok"),
            (
                format!("{head}<topology version=\"3.0\">\n</topology>"),
                "XML format 3.0, and the installed hwloc (API 2.",
            ),
            (format!("{head}<topology version=\"x\">\n</topology>"), "format version is \"x\""),
            (format!("{head}<topology version=\"2.0\">\n<object"), "cut short"),
            (format!("{head}<topologydiff>\n</topologydiff>"), "root element is <topologydiff>"),
            ("<html><body/></html>".to_owned(), "root element is <html>"),
            ("<!-- only a comment".to_owned(), "no element"),
            (" \n".to_owned(), "it is empty"),
            ("{\"pus\": 4}".to_owned(), "not XML"),
        ] {
            let verdict = verdict(&text);
            assert!(verdict.contains(words), "{text}: {verdict}");
        }
    }
}

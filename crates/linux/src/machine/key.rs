//! Key of a model: the machine and the state that the model describes.
//!
//! The key must be cheap and must not need hwloc: boot id, online CPUs and online nodes are three
//! small reads, and one system call gives the amount of memory, which changes when memory is
//! plugged into a node or taken from it. A node gets or loses CPUs only when CPUs come online or go
//! offline. hwloc's own version is *not* part of it, though
//! a newer hwloc might see more: asking would load the library, which the cache avoids, and a stat
//! of the helper would tie a system-wide cache to one installation. The program's version and the
//! cache format replace it, and each boot makes a new model in any case.

use crate::boot;
use crate::text::{self, ReadError};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trimtab_core::fingerprint::{BOOT_ID, CPUS_ONLINE, NODES_ONLINE, NODES_WITH_CPUS};
use trimtab_core::set::{CpuSet, NodeSet};

/// Names of the key's lines, as faults report them.
pub(super) const LINES: [&str; 6] = [
    "trimtab version",
    "boot",
    "set of online CPUs",
    "set of online NUMA nodes",
    "amount of memory",
    "choice of devices",
];
/// The last line, of a model with devices and of one without.
const DEVICES: &str = "devices";
const NO_DEVICES: &str = "no devices";

/// The machine and state for which a model is valid, and whether it has devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// One line for each of [`LINES`].
    text: String,
}

/// A part of the key that could not be read.
#[derive(Debug, Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct KeyError {
    /// The file.
    pub path: PathBuf,
    /// The kernel's error.
    pub source: io::Error,
}

impl Key {
    /// Returns the key of the running machine, now, for a model with its devices.
    ///
    /// # Errors
    /// [`KeyError`] when `/proc` or `/sys` do not give the boot or the CPUs.
    pub fn live() -> Result<Self, KeyError> {
        let (nodes, memory) = (read_optional(NODES_ONLINE)?, memory().to_string());
        Ok(Self::of([&read(BOOT_ID)?, &read(CPUS_ONLINE)?, &nodes, &memory]))
    }

    /// Returns the key of a machine described by a file: it depends on no state, and is never
    /// cached.
    pub fn file() -> Self {
        Self::of(["file", "", "", ""])
    }

    /// Returns the online CPUs; `None` if the kernel's list does not parse.
    pub fn online(&self) -> Option<CpuSet> {
        self.text.lines().nth(2)?.parse().ok()
    }

    /// Returns the online nodes; `None` if the kernel has no list of them.
    pub fn nodes(&self) -> Option<NodeSet> {
        self.text.lines().nth(3).filter(|list| !list.is_empty())?.parse().ok()
    }

    /// Returns the key of a model without devices of the same machine and state.
    #[must_use]
    pub fn without_devices(&self) -> Self {
        let state = self.text.trim_end().strip_suffix(DEVICES).unwrap_or(&self.text);
        let state = state.strip_suffix("no ").unwrap_or(state);
        Self { text: format!("{state}{NO_DEVICES}\n") }
    }

    fn of(state: [&str; 4]) -> Self {
        let [boot, cpus, nodes, memory] = state.map(str::trim);
        let version = env!("CARGO_PKG_VERSION");
        Self { text: format!("{version}\n{boot}\n{cpus}\n{nodes}\n{memory}\n{DEVICES}\n") }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the boot id, or the word in its place.
    pub(super) fn boot(&self) -> &str {
        self.text.lines().nth(1).unwrap_or_default()
    }
}

/// Returns the nodes that have CPUs; `None` if the kernel does not list them.
pub fn nodes_with_cpus() -> Option<NodeSet> {
    let list = read_optional(NODES_WITH_CPUS).ok()?;
    list.trim().parse().ok().filter(|nodes: &NodeSet| !nodes.is_empty())
}

/// Bits of the amount of memory that count, behind the first. Chosen: a step is an eighth to a
/// sixteenth of the memory. A guest with a balloon gains and loses less than that all the time, and
/// plans read the free memory anew.
const MEMORY_BITS: u32 = 3;

/// Returns the machine's memory, rounded down.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    rounded(info.totalram.saturating_mul(u64::from(info.mem_unit).max(1)))
}

fn rounded(bytes: u64) -> u64 {
    let dropped = (u64::BITS - bytes.leading_zeros()).saturating_sub(MEMORY_BITS + 1);
    bytes >> dropped << dropped
}

fn read(path: &str) -> Result<String, KeyError> {
    let fault = |source| KeyError { path: path.into(), source };
    let read = if path == BOOT_ID { boot::id } else { text::read_piece };
    let bytes = read(Path::new(path)).map_err(|error| match error {
        ReadError::Io { source, .. } => fault(source),
        other => fault(io::Error::other(other)),
    })?;
    String::from_utf8(bytes).map_err(|error| fault(io::Error::new(io::ErrorKind::InvalidData, error)))
}

fn read_optional(path: &str) -> Result<String, KeyError> {
    match read(path) {
        Err(KeyError { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_all_its_lines_in_any_state() {
        for key in [Key::live().unwrap(), Key::file(), Key::of(["b", "", "", ""])] {
            let without = key.without_devices();
            for key in [&key, &without] {
                assert_eq!(key.text().lines().count(), LINES.len(), "{key:?}");
            }
            assert_eq!(without.without_devices(), without);
            assert_eq!((without.online(), without.boot()), (key.online(), key.boot()));
            assert_ne!(without, key);
        }
        let key = Key::of(["boot\n", "0-3\n", "0-1\n", "511"]);
        assert_eq!(key.boot(), "boot");
        assert_eq!((key.online(), key.nodes()), ("0-3".parse().ok(), "0-1".parse().ok()));
        assert_eq!(Key::of(["boot", "x", "", ""]).online(), None);
        assert_eq!(Key::of(["boot", "0", "", ""]).nodes(), None);
    }

    #[test]
    fn memory_that_is_plugged_in_makes_another_key() {
        let key = |memory| Key::of(["boot", "0-3", "0-1", memory]);
        assert_ne!(key("511"), key("513"));
        let total = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kibibytes = total.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        // A container may be shown less.
        assert!(memory() >= rounded(kibibytes << 10) && memory() > 0);
        for (bytes, kept) in [(0, 0), (9, 9), (16, 16), (0b1_0101, 0b1_0100), (0b1111_1111, 0b1111_0000)] {
            assert_eq!(rounded(bytes), kept);
        }
        assert!(Key::live().unwrap().text().ends_with(&format!("\n{}\ndevices\n", memory())));
    }
}

//! Fingerprint of a machine: decides which files of an earlier run are still valid for this one.
//!
//! Problem: a cached model is wrong after a boot or a hot-plug. A stored tuning is wrong on another
//! processor or kernel, but valid after a boot. Idea: two fingerprints from the same files of the
//! kernel. The *state* ([`BOOT_ID`], [`CPUS_ONLINE`], [`NODES_ONLINE`], [`NODES_WITH_CPUS`]: four
//! small reads, as each launch needs it, and the amount of memory) is valid until something
//! changes. The [`hardware`] is the same after each boot: processor, CPUs and nodes that are
//! online, caches of CPU 0 with the CPUs that share them, and the kernel's release.
//!
//! Properties: the read function is an argument; equal files give equal texts; the text is compared
//! and hashed, never parsed.

use std::fmt::Write as _;

/// File with the kernel's random name for this boot.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// File with the CPUs that are online, as the kernel writes lists.
pub const CPUS_ONLINE: &str = "/sys/devices/system/cpu/online";
/// File with the NUMA nodes that are online. Absent on kernels without NUMA.
pub const NODES_ONLINE: &str = "/sys/devices/system/node/online";
/// File with the NUMA nodes that have a CPU. Absent on kernels without NUMA.
pub const NODES_WITH_CPUS: &str = "/sys/devices/system/node/has_cpu";
/// File with the properties of each CPU, one per line.
const CPU_PROPERTIES: &str = "/proc/cpuinfo";
/// File with the kernel's release.
const KERNEL_RELEASE: &str = "/proc/sys/kernel/osrelease";
/// Folders of the caches of CPU 0; the index follows.
const CACHE: &str = "/sys/devices/system/cpu/cpu0/cache/index";
/// Number of cache indices that are read: levels 1 (instructions and data) to 4.
const CACHES_MAX: u32 = 5;

/// Returns a text for the hardware and the kernel. `read` returns the content of a file; a missing
/// file counts as empty.
pub fn hardware(read: &dyn Fn(&str) -> Option<String>) -> String {
    let read = |path: &str| read(path).unwrap_or_default().trim().to_owned();
    let properties = read(CPU_PROPERTIES);
    let model = properties.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.unwrap_or("").trim_start_matches([' ', '\t', ':']);
    let mut text = format!("{model}; online {}; nodes {}", read(CPUS_ONLINE), read(NODES_ONLINE));
    for index in 0..CACHES_MAX {
        let size = read(&format!("{CACHE}{index}/size"));
        if !size.is_empty() {
            let _ = write!(text, "; {size} of {}", read(&format!("{CACHE}{index}/shared_cpu_list")));
        }
    }
    let _ = write!(text, "; Linux {}", read(KERNEL_RELEASE));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_hardware_is_that_of_the_files() {
        let files = BTreeMap::from([
            (CPU_PROPERTIES.to_owned(), "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags : a\n"),
            (CPUS_ONLINE.to_owned(), "0-3\n"),
            (format!("{CACHE}0/size"), "32K\n"),
            (format!("{CACHE}0/shared_cpu_list"), "0-1\n"),
            (format!("{CACHE}3/size"), "8M\n"),
            (format!("{CACHE}3/shared_cpu_list"), "0-3\n"),
            (KERNEL_RELEASE.to_owned(), "6.1.0\n"),
        ]);
        let text = hardware(&|path| files.get(path).map(|text| (*text).to_owned()));
        assert_eq!(text, "Some CPU @ 2 GHz; online 0-3; nodes ; 32K of 0-1; 8M of 0-3; Linux 6.1.0");
        assert_eq!(hardware(&|_| None), "; online ; nodes ; Linux ");
    }
}

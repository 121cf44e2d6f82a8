//! Locality without counters: the nodes on which a process's memory is, or was used.
//!
//! There are two sources. With NUMA balancing, the kernel unmaps pages for a moment now and then
//! and records which thread accessed them from which node (`/proc/PID/task/TID/sched`, faults that
//! fade with time). The other source is a sample of the resident pages, queried for their nodes:
//! some 0.2 us each, whatever the size of the process, while reading its `numa_maps` would walk it
//! page by page under its lock.
//!
//! Memory that counts is the memory to which the process writes: its own, and memory that it shares
//! (shared memory, files mapped for writing). A virtual machine's memory is often shared so that a
//! backend of its devices sees it too, and databases keep their buffers there. Left out are
//! devices, read-only memory, and private pages of a program's file, which are few. Of shared
//! memory only pages that this process has touched count. Large pages of their own (hugetlb) are
//! queried like others, at the address of each small page in them.
//!
//! Properties: the sample is the same for equal areas and rounds, and in the long run every page is
//! equally likely.

use crate::process::{Pid, Tid};
use crate::sys::residency;
use crate::text::{self, ReadError};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use thiserror::Error;
use trimtab_core::ids::{OsCpu, OsNode};
use trimtab_core::set::CpuSet;

/// Number of pages queried. Measured: 0.2 ms. The share of a node is then known to within 3 % (two
/// deviations).
const SAMPLE_PAGES: u64 = 1_024;
/// Largest number of areas considered. Chosen: programs with more have many of one kind.
const AREAS_MAX: usize = 4_096;

/// Pages, or faults for pages, on each node.
pub type Pages = BTreeMap<OsNode, u64>;

/// Reason why nothing is known about a process's memory.
#[derive(Debug, Error)]
pub enum Unknown {
    /// Its files cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its pages cannot be queried.
    #[error("pages cannot be queried: {0}")]
    Pages(Errno),
}

/// Reads the faults of a thread by node, which the kernel lets fade; empty as long as there were
/// none.
///
/// # Errors
/// The thread has ended, or this kernel has no such file.
pub fn faults(proc: &Path, pid: Pid, tid: Tid) -> Result<Pages, Unknown> {
    Ok(parse_faults(&text::read(&proc.join(format!("{pid}/task/{tid}/sched")))?))
}

/// Queries the nodes of a sample of the pages that a process works with. Another `round` samples
/// other pages.
///
/// # Errors
/// [`Unknown`].
pub fn resident(proc: &Path, pid: Pid, round: u64) -> Result<Pages, Unknown> {
    let maps = text::read(&proc.join(format!("{pid}/maps")))?;
    let page = crate::sys::clock::page_bytes();
    let addresses = sample(&areas(&maps), page, round);
    let mut pages = Pages::new();
    for node in residency::nodes(pid, &addresses).map_err(Unknown::Pages)?.into_iter().flatten() {
        *pages.entry(node).or_insert(0) += 1;
    }
    Ok(pages)
}

/// Splits pages into those on a node and those on others.
pub fn split(pages: &Pages, node: OsNode) -> (u64, u64) {
    let near = pages.get(&node).copied().unwrap_or(0);
    let all = pages.values().copied().fold(0, u64::saturating_add);
    (near, all.saturating_sub(near))
}

/// Returns the node of each CPU, as far as sysfs gives it.
pub fn nodes_of_cpus(sys: &Path) -> BTreeMap<OsCpu, OsNode> {
    let Ok(entries) = std::fs::read_dir(sys.join("devices/system/node")) else { return BTreeMap::new() };
    let nodes = entries.flatten().filter_map(|entry| {
        let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus: CpuSet = text::list(&text::read(&entry.path().join("cpulist")).ok()?)?;
        Some((OsNode(node), cpus))
    });
    nodes.flat_map(|(node, cpus)| cpus.iter().map(|cpu| (cpu, node)).collect::<Vec<_>>()).collect()
}

/// Parses lines like
/// `numa_faults node=1 task_private=3 task_shared=4 group_private=0 group_shared=0`.
fn parse_faults(sched: &[u8]) -> Pages {
    let mut pages = Pages::new();
    for line in sched.split(|&byte| byte == b'\n') {
        let Some(rest) = line.strip_prefix(b"numa_faults ") else { continue };
        let value = |name: &[u8]| {
            text::words(rest).find_map(|word| word.strip_prefix(name)).and_then(text::number::<u64>)
        };
        let node = value(b"node=").and_then(|node| u32::try_from(node).ok());
        let (Some(node), Some(private), Some(shared)) =
            (node, value(b"task_private="), value(b"task_shared="))
        else {
            continue;
        };
        let count = pages.entry(OsNode(node)).or_insert(0);
        *count = count.saturating_add(private).saturating_add(shared);
    }
    pages.retain(|_, count| *count > 0);
    pages
}

/// Files that are memory: their contents are written back nowhere, however they are mapped. Names
/// given by the kernel, and usual names of users.
const MEMORY: [&[u8]; 5] = [b"/memfd:", b"/dev/shm/", b"/dev/zero", b"/dev/hugepages", b"/anon_hugepage"];

/// Returns the areas of memory that the process works with: written by it, its own or shared, of no
/// device.
fn areas(maps: &[u8]) -> Vec<(u64, u64)> {
    let hexadecimal = |digits: &[u8]| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let area = |line: &[u8]| {
        let mut words = text::words(line);
        let (range, rights) = (words.next()?, words.next()?);
        let (_offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
        let file = words.next().unwrap_or_default();
        let at = range.iter().position(|&byte| byte == b'-')?;
        let (begin, end) = (hexadecimal(&range[..at])?, hexadecimal(&range[at + 1..])?);
        let memory = MEMORY.iter().any(|start| file.starts_with(start));
        let ours = match rights.get(3) {
            Some(b'p') => inode == b"0" || memory,
            // Devices are in `/dev`, or their names are in no folder.
            Some(b's') => memory || file.starts_with(b"/") && !file.starts_with(b"/dev/"),
            _ => false,
        };
        (rights.get(1) == Some(&b'w') && ours && begin < end).then_some((begin, end))
    };
    maps.split(|&byte| byte == b'\n').filter_map(area).take(AREAS_MAX).collect()
}

/// Returns addresses spread evenly over these areas, one of each stretch; another round takes other
/// ones.
fn sample(areas: &[(u64, u64)], page: u64, round: u64) -> Vec<u64> {
    let page = page.max(1);
    let all = areas.iter().map(|(begin, end)| (end - begin) / page).fold(0, u64::saturating_add);
    let many = all.min(SAMPLE_PAGES);
    if many == 0 {
        return Vec::new();
    }
    // With the golden ratio, the shifts of successive rounds are far apart.
    let shift = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut wanted = (0..many).map(|at| {
        // Computed in 128 bits: the product of two page numbers needs more than 64.
        let stretch =
            |at: u64| u64::try_from(u128::from(all) * u128::from(at) / u128::from(many)).unwrap_or(all);
        let (low, high) = (stretch(at), stretch(at + 1));
        let into = (u128::from(high - low) * u128::from(shift)) >> 64;
        low + u64::try_from(into).unwrap_or(0)
    });
    let mut addresses = Vec::new();
    let mut before = 0;
    let mut next = wanted.next();
    for (begin, end) in areas {
        let pages = (end - begin) / page;
        while let Some(at) = next.filter(|at| at.saturating_sub(before) < pages) {
            addresses.push(begin + at.saturating_sub(before) * page);
            next = wanted.next();
        }
        before = before.saturating_add(pages);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;
    use proptest::prelude::*;

    const MAPS: &[u8] = b"55d0-55e0 r--p 00000000 fd:01 1234 /usr/bin/x y\n\
        10000-20000 rw-p 00000000 00:00 0 [heap]\n\
        30000-40000 rw-s 00000000 00:01 9 /memfd:x (deleted)\n\
        50000-58000 rw-p 00000000 00:00 0 \n\
        60000-70000 ---p 00000000 00:00 0 \n\
        80000-90000 rw-p 00001000 fd:01 77 /usr/lib/libc.so\n\
        nonsense\n";

    #[test]
    fn the_working_memory_of_a_process_is_its_writable_memory_except_devices() {
        assert_eq!(areas(MAPS), [(0x10000, 0x20000), (0x30000, 0x40000), (0x50000, 0x58000)]);
        let addresses = sample(&areas(MAPS), 4_096, 0);
        assert_eq!(addresses.len(), 40, "all of few pages");
        assert!(
            addresses.contains(&0x1f000) && addresses.contains(&0x57000) && !addresses.contains(&0x58000)
        );
    }

    #[test]
    fn memory_of_virtual_machines_is_recognised_in_every_form() {
        let taken = |rights: &str, inode: u32, name: &str| {
            let line = format!("7f00-8f00 {rights} 00000000 00:2a {inode} {name}\n");
            !areas(line.as_bytes()).is_empty()
        };
        for (rights, name) in [
            ("rw-s", "/memfd:memory-backend-memfd (deleted)"),
            ("rw-s", "/dev/shm/ram-node0"),
            ("rw-s", "/dev/zero (deleted)"),
            ("rw-s", "/SYSV00000000 (deleted)"),
            ("rw-s", "/var/lib/libvirt/qemu/ram/1-web/ram-node0"),
            ("rw-s", "/dev/hugepages/libvirt/qemu/1-web/ram-node0"),
            ("rw-p", "/dev/hugepages/qemu_back_mem.pc.ram.Xa1b2 (deleted)"),
            ("rw-p", "/memfd:pc.ram (deleted)"),
            ("rw-p", "/anon_hugepage (deleted)"),
        ] {
            assert!(taken(rights, 7, name), "{rights} {name}");
        }
        for (rights, name) in [
            ("r--s", "/memfd:read (deleted)"),
            ("rw-s", "/dev/vfio/12"),
            ("rw-s", "/dev/dri/card0"),
            ("rw-s", "anon_inode:kvm-vcpu:0"),
            ("rw-s", "anon_inode:[io_uring]"),
            ("rw-s", "anon_inode:[perf_event]"),
            ("rw-s", "socket:[77]"),
            ("r-xp", "/usr/bin/qemu-system-x86_64"),
            ("rw-p", "/usr/lib/libc.so"),
        ] {
            assert!(!taken(rights, 7, name), "{rights} {name}");
        }
    }

    #[test]
    fn faults_are_summed_by_node() {
        let sched = b"x (1, #threads: 1)\ntotal_numa_faults : 9\ncurrent_node=0, numa_group_id=0\n\
            numa_faults node=0 task_private=3 task_shared=4 group_private=100 group_shared=0\n\
            numa_faults node=1 task_private=0 task_shared=0 group_private=0 group_shared=0\n\
            numa_faults node=2 task_private=5 task_shared=x\n";
        let pages = parse_faults(sched);
        assert_eq!(pages, Pages::from([(OsNode(0), 7)]));
        assert_eq!((split(&pages, OsNode(0)), split(&pages, OsNode(1))), ((7, 0), (0, 7)));
        let here = faults(Path::new("/proc"), Pid::own(), Pid::own().main_thread());
        if let Err(error) = here {
            skipped(error);
        }
        assert!(faults(Path::new("/proc"), Pid(4_000_000), Tid(4_000_000)).is_err());
    }

    #[test]
    fn pages_of_this_process_lie_on_nodes_of_this_machine() {
        let touched = vec![1u8; 8 << 20];
        match resident(Path::new("/proc"), Pid::own(), 3) {
            Ok(pages) => {
                let nodes: Vec<OsNode> = nodes_of_cpus(Path::new("/sys")).into_values().collect();
                assert!(pages.values().sum::<u64>() > 0);
                // A node without CPUs may have memory, but not if all nodes are one.
                assert!(
                    nodes.iter().max() != Some(&OsNode(0))
                        || pages.keys().all(|node| node.0 == 0 || nodes.len() < 2),
                    "{pages:?}"
                );
            }
            Err(error) => skipped(error),
        }
        assert!(resident(Path::new("/proc"), Pid(4_000_000), 0).is_err());
        assert!(nodes_of_cpus(Path::new("/nowhere")).is_empty());
        drop(touched);
    }

    proptest! {
        #[test]
        fn samples_are_pages_of_their_areas_each_once_and_even(
            sizes in prop::collection::vec((0u64..5_000, 0u64..100), 0..20), round in any::<u64>(),
        ) {
            let mut at = 1 << 20;
            let mut areas = Vec::new();
            for (pages, gap) in sizes {
                areas.push((at, at + pages * 4_096));
                at += (pages + gap) * 4_096;
            }
            let all: u64 = areas.iter().map(|(begin, end)| (end - begin) / 4_096).sum();
            let taken = sample(&areas, 4_096, round);
            prop_assert_eq!(taken.len() as u64, all.min(SAMPLE_PAGES));
            prop_assert!(taken.is_sorted() && taken.windows(2).all(|two| two[0] < two[1]));
            for (begin, end) in areas {
                let inside = taken.iter().filter(|address| (begin..end).contains(address)).count() as f64;
                prop_assert!(taken.iter().all(|address| address % 4_096 == 0));
                let share = (end - begin) as f64 / 4_096.0 * taken.len() as f64 / (all.max(1)) as f64;
                prop_assert!((inside - share).abs() <= 2.0, "{} of {}", inside, share);
            }
        }

        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), maps in "([0-9a-f]{1,17}-[0-9a-f]{1,17} rw-p 0 0:0 0\\n){0,5}", sched in "(numa_faults node=[0-9]{1,12} task_private=[0-9]{1,21} task_shared=[0-9]{1,21}\\n){0,5}") {
            let _ = (parse_faults(&bytes), areas(&bytes), parse_faults(sched.as_bytes()));
            let _ = sample(&areas(maps.as_bytes()), 4_096, 7);
        }
    }
}

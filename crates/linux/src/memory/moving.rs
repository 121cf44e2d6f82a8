//! Page migration of a running process's memory to one node.
//!
//! Problem: the kernel moves pages on request, but it would move any pages, and all of them in one
//! call that cannot be interrupted. Idea: `numa_maps` gives for each area its policy, its kind and
//! the number of its pages on each node. Of the areas that are the process's own, a few pages at a
//! time are queried for their node, and those on other nodes are moved (`move_pages`), with a pause
//! after each step.
//!
//! Properties: private memory without a file is moved, and shared memory that no other process has
//! mapped; huge pages from a reserved pool are never moved. Nothing is moved of a process in which
//! any area or thread has a memory policy other than the system's ("default") or "local", nor of
//! one with memory in use by devices (a VFIO or iommufd descriptor, pinned pages), nor into a node
//! without room. The result reports where pages were seen afterwards, not the kernel's answer.
//! Known gaps: memory mapped at the same addresses during the migration counts as the memory that
//! was there before; the policies of threads beyond the first 4,096 are not read.

use crate::process::{self, Pid, StartTime};
use crate::sys::residency;
use crate::text::{self, ReadError};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::ids::OsNode;
use trimtab_core::observe::Unfetched;
use trimtab_core::set::NodeSet;

/// Number of pages that are queried, and at most moved, between two pauses. Chosen: half a
/// millisecond to move them all.
const STEP_PAGES: usize = 512;
/// Number of tries of a step, as long as each moves some page: one page that is in use keeps the
/// kernel from the others of its call.
const STEP_TRIES_MAX: u32 = 8;
/// Largest number of addresses that are queried: 256 GiB of them, most of which need not have
/// pages. Chosen.
const ADDRESSES_MAX: u64 = 1 << 26;
/// Largest number of threads for which the policy is read. Chosen.
const THREADS_MAX: usize = 4_096;
/// Largest number of descriptors that are read. Chosen.
const DESCRIPTORS_MAX: usize = 65_536;
/// Bytes of the node that stay free.
const SPARE_BYTES: u64 = 64 << 20;

/// Request for a migration: the memory and its destination.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Mount point of procfs.
    pub proc: &'a Path,
    /// Mount point of sysfs.
    pub sys: &'a Path,
    /// Process that has the memory.
    pub pid: Pid,
    /// Start of that process.
    pub start: StartTime,
    /// Destination node.
    pub to: OsNode,
}

/// Outcome of a migration, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MigratedBytes {
    /// Bytes that were moved from other nodes.
    pub moved: u64,
    /// Bytes that are still on other nodes, of the memory that was queried.
    pub left: u64,
    /// Reason why not all were moved.
    pub why: Option<Unfetched>,
}

/// An area of a process's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Area {
    begin: u64,
    /// Pages that are present, and those of them on other nodes.
    there: u64,
    elsewhere: u64,
}

/// Areas of a process's memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Areas {
    /// Its own areas with pages on other nodes, in the kernel's order.
    own: Vec<Area>,
    /// Bytes on other nodes in huge pages from a reserved pool.
    huge: u64,
}

/// Returns why memory could not be migrated to any node of this machine, or to this node; reads no
/// process.
pub fn unfit(sys: &Path, to: OsNode) -> Option<Unfetched> {
    let list = |name: &str| text::list(&text::read(&sys.join("devices/system/node").join(name)).ok()?);
    // A kernel with neither file has no support for nodes.
    let nodes: NodeSet = list("has_memory").or_else(|| list("online")).unwrap_or_default();
    if nodes.len() < 2 {
        Some(Unfetched::OneNode)
    } else {
        (!nodes.contains(to)).then_some(Unfetched::NoMemory)
    }
}

/// Migrates the memory that may be moved. `go_on` is called after each step with the time that it
/// took, and may pause; when it returns false the migration ends.
pub fn bring(wanted: &Wanted<'_>, go_on: &mut dyn FnMut(Duration) -> bool) -> MigratedBytes {
    let mut brought = MigratedBytes::default();
    brought.why = bring_all(wanted, go_on, &mut brought).err();
    brought
}

fn bring_all(
    wanted: &Wanted<'_>,
    go_on: &mut dyn FnMut(Duration) -> bool,
    brought: &mut MigratedBytes,
) -> Result<(), Unfetched> {
    let Wanted { proc, sys, pid, to, .. } = *wanted;
    if let Some(why) = unfit(sys, to) {
        return Err(why);
    }
    is_same(wanted)?;
    if is_used_by_devices(proc, pid)? {
        return Err(Unfetched::Pinned);
    }
    policies_of_threads(proc, pid)?;
    let page = crate::sys::clock::page_bytes();
    let maps = text::read(&proc.join(format!("{pid}/numa_maps"))).map_err(why)?;
    let Areas { own, huge } = areas(&maps, to, page)?;
    let ends = ends(&text::read(&proc.join(format!("{pid}/maps"))).map_err(why)?);
    let all = own.iter().map(|area| area.elsewhere.saturating_mul(page)).fold(0, u64::saturating_add);
    brought.left = all.saturating_add(huge);
    if all.saturating_add(SPARE_BYTES) > free(sys, to).unwrap_or(u64::MAX) {
        return Err(Unfetched::Full);
    }
    let mut addresses = ADDRESSES_MAX;
    for area in &own {
        let Some(&end) = ends.get(&area.begin) else { continue };
        bring_area(wanted, area, end, page, &mut addresses, go_on, brought)?;
    }
    match brought.left {
        0 => Ok(()),
        left if left <= huge => Err(Unfetched::Huge),
        _ => Err(Unfetched::Busy),
    }
}

fn bring_area(
    wanted: &Wanted<'_>,
    area: &Area,
    end: u64,
    page: u64,
    addresses: &mut u64,
    go_on: &mut dyn FnMut(Duration) -> bool,
    brought: &mut MigratedBytes,
) -> Result<(), Unfetched> {
    let (mut at, mut there) = (area.begin, 0);
    // Most areas have fewer pages than addresses: after the last page the area is done.
    while at < end && there < area.there && *addresses > 0 {
        let began = Instant::now();
        is_same(wanted)?;
        let many = ((end - at) / page).min(STEP_PAGES as u64).max(1);
        let step: Vec<u64> = (0..many).map(|page_at| at + page_at * page).collect();
        let (found, mut elsewhere) = look(wanted, &step)?;
        let before = elsewhere.len();
        for _ in 0..STEP_TRIES_MAX {
            if elsewhere.is_empty() {
                break;
            }
            let answer = residency::bring(wanted.pid, &elsewhere, wanted.to);
            let (_, now) = look(wanted, &elsewhere)?;
            let stuck = now.len() == elsewhere.len();
            elsewhere = now;
            if stuck {
                answer.map_err(refused)?;
                break;
            }
        }
        let moved = (before - elsewhere.len()) as u64 * page;
        brought.moved += moved;
        brought.left = brought.left.saturating_sub(moved);
        there += found;
        at += many * page;
        *addresses = addresses.saturating_sub(many);
        if !go_on(began.elapsed()) {
            return Err(Unfetched::Stopped);
        }
    }
    Ok(())
}

/// Returns how many of these addresses have a page, and which of them have it on another node.
fn look(wanted: &Wanted<'_>, addresses: &[u64]) -> Result<(u64, Vec<u64>), Unfetched> {
    let nodes = residency::nodes(wanted.pid, addresses).map_err(refused)?;
    let there = nodes.iter().flatten().count() as u64;
    let elsewhere =
        addresses.iter().zip(nodes).filter(|(_, node)| node.is_some_and(|node| node != wanted.to));
    Ok((there, elsewhere.map(|(address, _)| *address).collect()))
}

fn is_same(wanted: &Wanted<'_>) -> Result<(), Unfetched> {
    match process::stat(wanted.proc, wanted.pid) {
        Ok(stat) if stat.start == wanted.start => Ok(()),
        _ => Err(Unfetched::Ended),
    }
}

/// Returns whether devices hold addresses of its memory: an assigned device keeps the memory in
/// place, and so does a pin.
fn is_used_by_devices(proc: &Path, pid: Pid) -> Result<bool, Unfetched> {
    let status = text::read(&proc.join(format!("{pid}/status"))).map_err(why)?;
    let pinned = text::field(&status, b"VmPin:").and_then(|field| text::words(field).next());
    if pinned.and_then(text::number::<u64>).is_some_and(|kib| kib > 0) {
        return Ok(true);
    }
    let path = proc.join(format!("{pid}/fd"));
    let entries = std::fs::read_dir(&path).map_err(|source| why(ReadError::Io { path, source }))?;
    let links =
        entries.flatten().take(DESCRIPTORS_MAX).filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Ok(links.into_iter().any(|link| {
        let link = link.as_os_str().as_encoded_bytes();
        [&b"/dev/vfio/"[..], b"/dev/iommu", b"anon_inode:[vfio", b"anon_inode:vfio", b"anon_inode:kvm-vfio"]
            .iter()
            .any(|name| link.starts_with(name))
    }))
}

/// Checks the policy of each thread; the kernel shows it as the policy of the areas without one.
fn policies_of_threads(proc: &Path, pid: Pid) -> Result<(), Unfetched> {
    for tid in process::threads(proc, pid).map_err(why)?.into_iter().take(THREADS_MAX) {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        // For a read of a few bytes the kernel formats no more than the first area, which is part
        // of the program and small.
        let mut text = [0; 128];
        let path = proc.join(format!("{tid}/numa_maps"));
        let read =
            openat(CWD, &path, flags, Mode::empty()).and_then(|file| rustix::io::read(&file, &mut text));
        let read = match read {
            Ok(read) => read,
            Err(Errno::NOENT | Errno::SRCH) => continue,
            Err(errno) => return Err(why(ReadError::io(&path, errno))),
        };
        let policy = text::words(&text[..read]).nth(1);
        if let Some(policy) = policy.filter(|policy| !leaves_node_open(policy)) {
            return Err(Unfetched::Policy(String::from_utf8_lossy(policy).into_owned()));
        }
    }
    Ok(())
}

/// Returns whether a policy leaves the node of memory open.
fn leaves_node_open(policy: &[u8]) -> bool {
    [&b"default"[..], b"local"].contains(&policy)
}

/// Parses lines like `7f0000 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4`.
fn areas(numa_maps: &[u8], to: OsNode, page: u64) -> Result<Areas, Unfetched> {
    let mut areas = Areas::default();
    for line in numa_maps.split(|&byte| byte == b'\n') {
        let mut words = text::words(line);
        let (Some(begin), Some(policy)) = (words.next().and_then(hexadecimal), words.next()) else {
            continue;
        };
        if !leaves_node_open(policy) {
            return Err(Unfetched::Policy(String::from_utf8_lossy(policy).into_owned()));
        }
        let (mut there, mut elsewhere, mut size) = (0u64, 0u64, page);
        let (mut own, mut huge) = (true, false);
        for word in words {
            if let Some((node, pages)) = pages(word) {
                there = there.saturating_add(pages);
                elsewhere = elsewhere.saturating_add(if node == to { 0 } else { pages });
            } else if let Some(kib) = word.strip_prefix(b"kernelpagesize_kB=").and_then(text::number::<u64>) {
                size = kib.saturating_mul(1_024);
            } else if let Some(file) = word.strip_prefix(b"file=") {
                own = is_memory(file);
            }
            huge |= word == b"huge";
        }
        if huge || size > page {
            areas.huge = areas.huge.saturating_add(elsewhere.saturating_mul(size));
        } else if own && elsewhere > 0 {
            areas.own.push(Area { begin, there, elsewhere });
        }
    }
    Ok(areas)
}

/// Returns whether a file is shared memory, which is a file only by name.
fn is_memory(file: &[u8]) -> bool {
    [&b"/dev/zero"[..], b"/memfd:", b"/SYSV", b"/dev/shm/"].iter().any(|name| file.starts_with(name))
}

/// Parses `N1=12`.
fn pages(word: &[u8]) -> Option<(OsNode, u64)> {
    let at = word.iter().position(|&byte| byte == b'=')?;
    let node = word[..at].strip_prefix(b"N").and_then(text::number::<u32>)?;
    Some((OsNode(node), text::number(&word[at + 1..])?))
}

/// Returns the ends of areas, by their begins.
fn ends(maps: &[u8]) -> BTreeMap<u64, u64> {
    let area = |line: &[u8]| {
        let range = text::words(line).next()?;
        let at = range.iter().position(|&byte| byte == b'-')?;
        Some((hexadecimal(&range[..at])?, hexadecimal(&range[at + 1..])?))
    };
    maps.split(|&byte| byte == b'\n').filter_map(area).collect()
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the bytes of a node that are free, or hold file pages that were not used lately.
fn free(sys: &Path, node: OsNode) -> Option<u64> {
    let text = text::read(&sys.join(format!("devices/system/node/node{node}/meminfo"))).ok()?;
    let value = |name: &[u8]| {
        text.split(|&byte| byte == b'\n').find_map(|line| {
            let mut words = text::words(line).skip_while(|word| *word != name);
            words.next()?;
            words.next().and_then(text::number::<u64>)
        })
    };
    let kib = value(b"MemFree:")?.saturating_add(value(b"Inactive(file):").unwrap_or(0));
    Some(kib.saturating_mul(1_024))
}

fn why(error: ReadError) -> Unfetched {
    if error.is_gone() {
        Unfetched::Ended
    } else if error.is_refused() {
        Unfetched::Permission
    } else {
        Unfetched::Kernel(error.to_string())
    }
}

fn refused(errno: Errno) -> Unfetched {
    match errno {
        Errno::NOMEM => Unfetched::Full,
        Errno::ACCESS | Errno::PERM => Unfetched::Permission,
        Errno::SRCH => Unfetched::Ended,
        Errno::NODEV => Unfetched::NoMemory,
        _ => Unfetched::Kernel(std::io::Error::from(errno).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &[u8] = b"1000 default file=/usr/bin/x mapped=2 mapmax=3 N0=2 kernelpagesize_kB=4\n\
        2000 default file=/usr/bin/x anon=2 dirty=2 N0=2 kernelpagesize_kB=4\n\
        3000 default heap anon=7 dirty=7 active=0 N0=4 N1=3 kernelpagesize_kB=4\n\
        b000 local stack anon=1 dirty=1 N1=1 kernelpagesize_kB=4\n\
        c000 default file=/memfd:x\\040(deleted) dirty=5 N0=5 kernelpagesize_kB=4\n\
        200000 default file=/memfd:y huge dirty=3 N0=3 kernelpagesize_kB=2048\n\
        900000 default\n";

    #[test]
    fn private_memory_on_other_nodes_is_found() {
        let own = |begin, there, elsewhere| Area { begin, there, elsewhere };
        let found = areas(MAPS, OsNode(1), 4_096).unwrap();
        assert_eq!(found, Areas { own: vec![own(0x3000, 7, 4), own(0xc000, 5, 5)], huge: 3 << 21 });
        let found = areas(MAPS, OsNode(0), 4_096).unwrap();
        assert_eq!(found, Areas { own: vec![own(0x3000, 7, 3), own(0xb000, 1, 1)], huge: 0 });
        let ends = ends(b"3000-a000 rw-p 0 00:00 0 [heap]\nrubbish\nb000-c000 rw-p 0 00:00 0 [stack]\n");
        assert_eq!(ends, BTreeMap::from([(0x3000, 0xa000), (0xb000, 0xc000)]));
    }

    #[test]
    fn memory_with_a_policy_is_not_moved() {
        for policy in
            ["bind:0", "prefer:1", "interleave:0-1", "bind=static:0", "weighted interleave:0", "nonsense"]
        {
            let maps = [MAPS, format!("a00000 {policy} anon=1 N0=1\n").as_bytes()].concat();
            let word = policy.split(' ').next().unwrap().to_owned();
            assert_eq!(areas(&maps, OsNode(1), 4_096), Err(Unfetched::Policy(word)));
        }
    }

    #[test]
    fn a_machine_with_one_node_and_a_node_without_memory_are_distinguished() {
        let sys = tempfile::tempdir().unwrap();
        let nodes = sys.path().join("devices/system/node");
        assert_eq!(unfit(sys.path(), OsNode(0)), Some(Unfetched::OneNode));
        std::fs::create_dir_all(nodes.join("node1")).unwrap();
        std::fs::write(nodes.join("has_memory"), "0\n").unwrap();
        assert_eq!(unfit(sys.path(), OsNode(0)), Some(Unfetched::OneNode));
        std::fs::write(nodes.join("has_memory"), "0-1\n").unwrap();
        assert_eq!(
            (unfit(sys.path(), OsNode(1)), unfit(sys.path(), OsNode(2))),
            (None, Some(Unfetched::NoMemory))
        );
        let meminfo = "Node 1 MemTotal:  900 kB\nNode 1 MemFree:   100 kB\nNode 1 Inactive(file):  7 kB\n";
        std::fs::write(nodes.join("node1/meminfo"), meminfo).unwrap();
        assert_eq!((free(sys.path(), OsNode(1)), free(sys.path(), OsNode(0))), (Some(107 << 10), None));
    }

    #[test]
    fn here_it_is_brought_or_said_why_not() {
        let own = Pid::own();
        let start = process::stat(Path::new("/proc"), own).unwrap().start;
        let wanted =
            Wanted { proc: Path::new("/proc"), sys: Path::new("/sys"), pid: own, start, to: OsNode(0) };
        assert_eq!(is_used_by_devices(wanted.proc, own), Ok(false));
        let brought = bring(&wanted, &mut |_| true);
        let one = unfit(wanted.sys, OsNode(0));
        assert!(one.is_none() || (brought.moved, brought.why) == (0, one), "told as it is");
        let other = Wanted { start: StartTime(start.0 + 1), ..wanted };
        assert_eq!(is_same(&other), Err(Unfetched::Ended));
    }

    #[test]
    fn memory_that_devices_use_stays() {
        let proc = tempfile::tempdir().unwrap();
        let fd = proc.path().join("7/fd");
        std::fs::create_dir_all(&fd).unwrap();
        let status = |pinned: &str| std::fs::write(proc.path().join("7/status"), pinned).unwrap();
        status("Name:\tx\nVmPin:\t       0 kB\n");
        std::os::unix::fs::symlink("/dev/null", fd.join("0")).unwrap();
        let used = || is_used_by_devices(proc.path(), Pid(7));
        assert_eq!(used(), Ok(false));
        for device in [
            "/dev/vfio/12",
            "/dev/vfio/vfio",
            "/dev/iommu",
            "anon_inode:[vfio-device]",
            "anon_inode:kvm-vfio",
        ] {
            std::os::unix::fs::symlink(device, fd.join("1")).unwrap();
            assert_eq!(used(), Ok(true), "{device}");
            std::fs::remove_file(fd.join("1")).unwrap();
        }
        status("Name:\tx\nVmPin:\t    4096 kB\n");
        assert_eq!(used(), Ok(true));
        assert_eq!(is_used_by_devices(proc.path(), Pid(8)), Err(Unfetched::Ended));
    }

    #[test]
    fn a_node_without_room_takes_none_and_one_that_is_not_there_neither() {
        // A second node, which this machine does not have.
        let sys = tempfile::tempdir().unwrap();
        let node = sys.path().join("devices/system/node/node999");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(sys.path().join("devices/system/node/has_memory"), "0,999\n").unwrap();
        let memory = vec![1u8; 8 << 20];
        let start = process::stat(Path::new("/proc"), Pid::own()).unwrap().start;
        let wanted =
            Wanted { proc: Path::new("/proc"), sys: sys.path(), pid: Pid::own(), start, to: OsNode(999) };
        for (free, expected) in [(0, Unfetched::Full), (1_u64 << 40, Unfetched::NoMemory)] {
            let text = format!("Node 999 MemFree: {free} kB\nNode 999 Inactive(file): 0 kB\n");
            std::fs::write(node.join("meminfo"), text).unwrap();
            let brought = bring(&wanted, &mut |_| true);
            match &brought.why {
                Some(
                    Unfetched::Policy(_) | Unfetched::Kernel(_) | Unfetched::Ended | Unfetched::Permission,
                ) => {
                    crate::skip::skipped(format_args!("memory cannot be asked for here: {brought:?}"));
                }
                why => assert_eq!((brought.moved, why), (0, &Some(expected)), "{brought:?}"),
            }
            assert!(brought.why != Some(Unfetched::Full) || brought.left >= memory.len() as u64);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            lines in "([0-9a-f]{1,17} default (N[0-9]{1,11}=[0-9]{1,21} )?(kernelpagesize_kB=[0-9]{1,21})?\\n){0,5}",
        ) {
            let _ = (areas(&bytes, OsNode(0), 4_096), ends(&bytes), areas(lines.as_bytes(), OsNode(1), 4_096));
        }
    }
}

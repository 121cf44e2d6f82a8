//! The kernel's own list of file locks, as text: `/proc/locks` for the whole machine,
//! `/proc/self/fdinfo/<n>` for one descriptor. All users may read both, without opening the locked
//! file.
//!
//! A line reads `1: OFDLCK ADVISORY  WRITE -1 00:1b:40 0 63`: number, family, strictness, kind,
//! process, device and inode, first and last byte, the last one `EOF` for locks without end. `->`
//! after the number marks a waiting request. Device numbers are the file system's; on some (btrfs,
//! overlayfs) `stat` returns a different one.

use super::layout::Tag;
use crate::sys::lock::{ByteLock, END, LockKind};
use rustix::fs::Stat;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

/// Identity of a file, independent of its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Smallest amount of text that a kernel returns at once, in bytes: it returns no more than the
/// requested amount and no more than a page, of which this is the smallest.
const PIECE_BYTES: usize = 4096;

/// Amount of text requested at once, in bytes.
const REQUEST_BYTES: usize = 1 << 16;

/// Maximal number of readings of a list that keeps changing. Chosen; how often a reading of such a
/// list misses a given line was measured, see the tests.
const READINGS_MAX: u32 = 8;

/// The locks in such a text, in its order.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    lines: Vec<LockLine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LockLine {
    file: FileNumber,
    lock: ByteLock,
    /// The process, for locks of the classic family; 0 for others.
    pid: u32,
}

/// Device and inode as in the kernel's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileNumber {
    major: u32,
    minor: u32,
    inode: u64,
}

impl Listing {
    /// Reads all locks of the system; the list is empty when `/proc` does not exist.
    ///
    /// The kernel returns a long list in pieces, each true for its moment, and continues by
    /// counting lines: when an earlier line disappears between two pieces, another line is skipped.
    /// Therefore a list longer than a piece is read until two readings agree, and the union of all
    /// readings is used.
    pub(super) fn of_system(proc_root: &Path) -> Self {
        let read = || read_large(&proc_root.join("locks")).unwrap_or_default();
        let mut text = read();
        let mut listing = Self::parse(&text);
        for _ in 1..READINGS_MAX {
            if text.len() < PIECE_BYTES / 2 {
                break;
            }
            let again = read();
            if again == text {
                break;
            }
            let more = Self::parse(&again).lines.into_iter().filter(|line| !listing.lines.contains(line));
            let more: Vec<LockLine> = more.collect();
            listing.lines.extend(more);
            text = again;
        }
        listing
    }

    /// Reads the locks of one of our descriptors; the list is empty when it is not open.
    pub(super) fn of_descriptor(proc_root: &Path, number: i32) -> Self {
        Self::of_fdinfo(
            &fs::read_to_string(proc_root.join(format!("self/fdinfo/{number}"))).unwrap_or_default(),
        )
    }

    /// Reads the locks of one descriptor of another process; the list is empty when it is not
    /// shown.
    pub(super) fn of_other_descriptor(proc_root: &Path, pid: u32, number: i32) -> Self {
        let text = fs::read_to_string(proc_root.join(format!("{pid}/fdinfo/{number}")));
        Self::of_fdinfo(&text.unwrap_or_default())
    }

    /// Reads the locks of all descriptors of a process; the list is empty when they are not shown.
    pub(super) fn of_process(proc_root: &Path, pid: u32) -> Self {
        let entries = fs::read_dir(proc_root.join(format!("{pid}/fdinfo")));
        let files = entries.into_iter().flatten().flatten();
        let texts = files.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        Self { lines: texts.flat_map(|text| Self::of_fdinfo(&text).lines).collect() }
    }

    /// Returns the descriptors of a process with locks of a file of this inode number.
    pub(super) fn descriptors_with(proc_root: &Path, pid: u32, file: Identity) -> Vec<i32> {
        let entries = fs::read_dir(proc_root.join(format!("{pid}/fdinfo"))).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let locks =
            |number: &i32| !Self::of_other_descriptor(proc_root, pid, *number).of_inode(file).is_empty();
        numbers.filter(locks).collect()
    }

    /// Returns the locks of one file, which is recognised by its inode alone, as its device may be
    /// listed differently.
    pub(super) fn of_inode(&self, file: Identity) -> Vec<ByteLock> {
        let ours = self.lines.iter().filter(|line| line.file.inode == file.inode);
        ours.map(|line| line.lock.clone()).collect()
    }

    /// Returns the locks of one file.
    pub(super) fn of_file(&self, identity: Identity) -> Vec<ByteLock> {
        let (major, minor) = (rustix::fs::major(identity.device), rustix::fs::minor(identity.device));
        let wanted = FileNumber { major, minor, inode: identity.inode };
        self.lines.iter().filter(|line| line.file == wanted).map(|line| line.lock.clone()).collect()
    }

    /// Returns the locks of other files that carry our ledger's tag: of ledgers of this name that
    /// were deleted here while processes held CPUs. The present ledger is recognised by its inode
    /// alone, as its device may be listed differently.
    pub(super) fn lost(&self, tag: Tag, present: Identity) -> Vec<ByteLock> {
        let tagged = self.tagged(tag);
        let lost = |file: FileNumber| file.inode != present.inode && tagged.contains(&file);
        self.lines.iter().filter(|line| lost(line.file)).map(|line| line.lock.clone()).collect()
    }

    /// Returns the processes with a classic lock on some of `bytes` of a file.
    pub(super) fn owners(&self, file: Identity, bytes: &[Range<u64>]) -> Vec<u32> {
        let owns = |line: &&LockLine| line.pid != 0 && line.touches(file, bytes);
        self.lines.iter().filter(owns).map(|line| line.pid).collect()
    }

    /// Returns whether a lock of the list is on some of `bytes` of a file.
    pub(super) fn has(&self, file: Identity, bytes: &[Range<u64>]) -> bool {
        self.lines.iter().any(|line| line.touches(file, bytes))
    }

    /// Returns the locks of our ledger, the present one and deleted ones.
    pub(super) fn present_or_lost(&self, tag: Tag, present: Identity) -> Vec<ByteLock> {
        let tagged = self.tagged(tag);
        let ours = |file: FileNumber| file.inode == present.inode || tagged.contains(&file);
        self.lines.iter().filter(|line| ours(line.file)).map(|line| line.lock.clone()).collect()
    }

    /// Returns the files that have a lock with this tag.
    fn tagged(&self, tag: Tag) -> Vec<FileNumber> {
        let bytes = tag.bytes();
        let within =
            |lock: &ByteLock| bytes.contains(&lock.bytes.start) && bytes.contains(&(lock.bytes.end - 1));
        self.lines.iter().filter(|line| within(&line.lock)).map(|line| line.file).collect()
    }

    /// Reads what the kernel says of a descriptor. Only its lines of locks count: others may hold
    /// words that a user has chosen.
    fn of_fdinfo(text: &str) -> Self {
        let locks = text.lines().filter(|line| line.starts_with("lock:"));
        Self { lines: locks.filter_map(LockLine::parse).collect() }
    }

    fn parse(text: &str) -> Self {
        Self { lines: text.lines().filter_map(LockLine::parse).collect() }
    }
}

/// Reads in large requests. The standard library begins with a request of 32 bytes, which the
/// kernel answers with one line.
fn read_large(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    loop {
        let done = text.len();
        text.resize(done + REQUEST_BYTES, 0);
        let more = file.read(&mut text[done..])?;
        text.truncate(done + more);
        if more == 0 {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

impl LockLine {
    /// The file is recognised by its inode alone, as its device may be listed differently.
    fn touches(&self, file: Identity, bytes: &[Range<u64>]) -> bool {
        let lock = &self.lock.bytes;
        self.file.inode == file.inode
            && bytes.iter().any(|bytes| lock.start < bytes.end && bytes.start < lock.end)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("lock:").unwrap_or(line).split_whitespace();
        words.next()?.strip_suffix(':')?;
        // Locks of the classic family conflict with ours too; whole-file locks (FLOCK) and leases
        // do not, and waiting requests (->) hold nothing.
        matches!(words.next()?, "OFDLCK" | "POSIX").then_some(())?;
        words.next()?;
        let kind = match words.next()? {
            "READ" => LockKind::Read,
            "WRITE" => LockKind::Write,
            _ => return None,
        };
        let pid = words.next()?.parse().unwrap_or(0);
        let mut file = words.next()?.split(':');
        let major = u32::from_str_radix(file.next()?, 16).ok()?;
        let minor = u32::from_str_radix(file.next()?, 16).ok()?;
        let inode = file.next()?.parse().ok()?;
        let start: u64 = words.next()?.parse().ok()?;
        let end = match words.next()? {
            "EOF" => END,
            last => last.parse::<u64>().ok()?.checked_add(1)?,
        };
        (start < end).then_some(Self {
            file: FileNumber { major, minor, inode },
            lock: ByteLock { bytes: start..end, kind },
            pid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::HoldId;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let text = "\
1: OFDLCK ADVISORY  READ -1 00:1b:40 7 7
2: POSIX  ADVISORY  WRITE 4711 fd:00:123456 0 EOF
2: -> POSIX  ADVISORY  WRITE 4712 fd:00:123456 0 EOF
3: FLOCK  ADVISORY  WRITE 12 00:1b:40 0 EOF
4: LEASE  ACTIVE    READ 12 00:1b:40 0 EOF
pos:\t0
lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1b:41 3 5
";
        let listing = Listing::parse(text);
        let locks = |major, minor, inode| {
            listing.of_file(Identity { device: rustix::fs::makedev(major, minor), inode })
        };
        assert_eq!(locks(0, 0x1b, 40), [ByteLock { bytes: 7..8, kind: LockKind::Read }]);
        assert_eq!(locks(0xfd, 0, 123_456), [ByteLock { bytes: 0..END, kind: LockKind::Write }]);
        assert_eq!(locks(0, 0x1b, 41), [ByteLock { bytes: 3..6, kind: LockKind::Write }]);
        assert_eq!(listing.lines.len(), 3);
    }

    #[test]
    fn a_descriptors_other_lines_are_no_locks() {
        let text = "pos:\t0\nname:\tPOSIX ADVISORY WRITE 1 00:1b:40 0 EOF\n\
                    lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1b:41 3 5\n";
        let listing = Listing::of_fdinfo(text);
        assert_eq!(listing.lines.len(), 1);
        assert_eq!(listing.of_inode(Identity { device: 0, inode: 41 }).len(), 1);
    }

    #[test]
    fn lost_ledgers_are_known_by_their_directorys_tag() {
        let (ours, theirs) = (Tag::of(1, 2, "x"), Tag::of(1, 3, "x"));
        assert!(ours != theirs && ours != Tag::of(1, 2, "y"));
        let byte = |tag| HoldId::new(9).map(|id| id.byte(tag).start).unwrap_or_default();
        let text = format!(
            "1: OFDLCK ADVISORY  WRITE -1 00:1b:40 0 3\n2: OFDLCK ADVISORY  WRITE -1 00:1b:40 {0} {0}\n\
             3: OFDLCK ADVISORY  WRITE -1 00:1b:41 4 7\n4: OFDLCK ADVISORY  WRITE -1 00:1b:41 {1} {1}\n\
             5: OFDLCK ADVISORY  WRITE -1 00:1b:42 8 9\n",
            byte(ours),
            byte(theirs)
        );
        let listing = Listing::parse(&text);
        let other = Identity { device: 9, inode: 99 };
        assert_eq!(listing.lost(ours, other)[0].bytes, 0..4);
        assert_eq!(listing.lost(ours, other).len(), 2);
        assert_eq!(listing.lost(ours, Identity { device: 9, inode: 40 }), []);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "(lock:)?[0-9]{1,3}: (-> )?(OFDLCK|POSIX) [A-Z]{1,9} (READ|WRITE) [-0-9:a-f ]{0,40}|.{0,60}") {
            for line in Listing::parse(&text).lines {
                prop_assert!(line.lock.bytes.start < line.lock.bytes.end);
            }
        }
    }
}

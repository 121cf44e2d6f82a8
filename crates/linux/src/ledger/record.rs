//! Record of the holder of a CPU: one record of fixed size per CPU and level, beside the locks.
//!
//! All users may write the file, so a record is a claim. It is parsed as hostile input and counts
//! only while the lock of the CPU *and* the lock of the hold that the record names are there: a
//! killed holder leaves its records behind, and the next one needs a moment to write its own.
//!
//! Layout, little endian: magic 4, version 2, flags 2, pid 4, uid 4, start time 8, pid namespace 8,
//! hold 8, job 8, since 8, label length 2, memory count 2, zero 4, label 184, checksum 8.
//!
//! Memory that the hold has is at the end of the label's field, if the flag for it is set: for each
//! range of nodes the first 2, the last 2, and the mebibytes of each node 4; the last range comes
//! first. Versions without memory ignore the flag, read the label by its length, and see a hold of
//! CPUs; their own records hold no memory.

use super::layout::HoldId;
use std::collections::BTreeMap;
use std::time::Duration;
use trimtab_core::hash::fnv1a;
use trimtab_core::ids::OsNode;

/// Size of a record in bytes: four cache lines, and a divisor of the page size, so that no record
/// straddles two pages.
pub const RECORD_BYTES: usize = 256;

const MAGIC: [u8; 4] = *b"ttab";
const FORMAT_VERSION: u16 = 1;
const LABEL_AT: usize = 64;
const CHECKSUM_AT: usize = RECORD_BYTES - 8;
/// Flag of a hold that a keeper has for the holder. Readers ignore flags that they do not know.
const DELEGATED: u16 = 1;
/// Flag of a hold that has memory.
const MEMORY: u16 = 2;
/// Size of a range of nodes with memory.
const RANGE_BYTES: usize = 8;
/// Most ranges of nodes in a record, so that a label keeps at least 56 bytes. Chosen; a run on all
/// nodes of a machine mostly has one range, since it has an equal share of each.
const RANGES_MAX: usize = 16;
/// Numbers of nodes are below this one: four times the most that Linux can run.
const NODES_END: u16 = 4096;
/// Most nodes with memory in a record: as many as Linux can run.
const NODES_MAX: usize = 1024;
const MEBIBYTE_BITS: u32 = 20;

/// Length of the longest label that is kept, in bytes of UTF-8.
pub const LABEL_BYTES: usize = CHECKSUM_AT - LABEL_AT;

/// A process that takes CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holder {
    /// The process, as numbered in its own pid namespace.
    pub pid: u32,
    /// Start time of that process, in clock ticks since boot (`/proc/<pid>/stat`, field 22):
    /// distinguishes it from a later process with the same number. Unchanged by exec.
    pub start_ticks: u64,
    /// Its real user.
    pub uid: u32,
    /// Its pid namespace, by inode; 0 when that could not be read.
    pub pid_namespace: u64,
    /// The job for which several processes take CPUs together, 0 for none.
    pub job: u64,
    /// Time at which the CPUs were taken, on the clock that counts from boot and through suspend.
    pub since: Duration,
    /// The command, for people.
    pub label: String,
    /// Whether another process keeps the lock for this one (a keeper), until this one ends.
    pub delegated: bool,
    /// Memory of the hold on each node, in bytes; it is kept in mebibytes, rounded up.
    pub memory: BTreeMap<OsNode, u64>,
}

/// A holder and the hold it vouches for with a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The hold.
    pub hold: HoldId,
    /// Its holder.
    pub holder: Holder,
}

impl Record {
    /// Encodes the record. A label longer than [`LABEL_BYTES`], or than the rest beside the memory,
    /// is cut at a character boundary; times beyond 584 years after boot are cut too. Memory in
    /// more ranges than fit is left out: see [`Self::has_all_memory`].
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let Holder { pid, start_ticks, uid, pid_namespace, job, since, label, delegated, memory } =
            &self.holder;
        let mut ranges = ranges(memory);
        ranges.truncate(RANGES_MAX);
        let label = cut(label, LABEL_BYTES - ranges.len() * RANGE_BYTES).as_bytes();
        let of_memory = if ranges.is_empty() { 0 } else { MEMORY };
        let flags = if *delegated { DELEGATED | of_memory } else { of_memory };
        let mut writer = Writer { bytes: [0; RECORD_BYTES], at: 0 };
        writer.put(&MAGIC);
        writer.put(&FORMAT_VERSION.to_le_bytes());
        writer.put(&flags.to_le_bytes());
        writer.put(&pid.to_le_bytes());
        writer.put(&uid.to_le_bytes());
        writer.put(&start_ticks.to_le_bytes());
        writer.put(&pid_namespace.to_le_bytes());
        writer.put(&self.hold.number().to_le_bytes());
        writer.put(&job.to_le_bytes());
        writer.put(&u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).to_le_bytes());
        writer.put(&u16::try_from(label.len()).unwrap_or(0).to_le_bytes());
        writer.put(&u16::try_from(ranges.len()).unwrap_or(0).to_le_bytes());
        writer.at = LABEL_AT;
        writer.put(label);
        for (at, range) in ranges.iter().enumerate() {
            writer.at = CHECKSUM_AT - (at + 1) * RANGE_BYTES;
            writer.put(&range.first.to_le_bytes());
            writer.put(&range.last.to_le_bytes());
            writer.put(&range.mebibytes.to_le_bytes());
        }
        writer.at = CHECKSUM_AT;
        let sum = fnv1a(writer.bytes[..CHECKSUM_AT].iter().copied());
        writer.put(&sum.to_le_bytes());
        writer.bytes
    }

    /// Reads a record from bytes that any process may have written; `None` unless it is whole, of
    /// this version and its checksum is right. In the label, everything is replaced that a terminal
    /// could take for a command or for reordering.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let mut reader = Reader { rest: bytes };
        if reader.take()? != MAGIC || u16::from_le_bytes(reader.take()?) != FORMAT_VERSION {
            return None;
        }
        if fnv1a(bytes[..CHECKSUM_AT].iter().copied())
            != u64::from_le_bytes(bytes[CHECKSUM_AT..].try_into().ok()?)
        {
            return None;
        }
        let flags = u16::from_le_bytes(reader.take()?);
        let pid = u32::from_le_bytes(reader.take()?);
        let uid = u32::from_le_bytes(reader.take()?);
        let start_ticks = u64::from_le_bytes(reader.take()?);
        let pid_namespace = u64::from_le_bytes(reader.take()?);
        let hold = HoldId::new(u64::from_le_bytes(reader.take()?))?;
        let job = u64::from_le_bytes(reader.take()?);
        let since = Duration::from_nanos(u64::from_le_bytes(reader.take()?));
        let length = usize::from(u16::from_le_bytes(reader.take()?));
        let label = bytes[LABEL_AT..CHECKSUM_AT].get(..length)?;
        let label = printable(&String::from_utf8_lossy(label));
        let count = usize::from(u16::from_le_bytes(reader.take()?));
        let memory = match flags & MEMORY {
            0 => BTreeMap::new(),
            _ => memory(&bytes[LABEL_AT + length..CHECKSUM_AT], count)?,
        };
        let delegated = flags & DELEGATED != 0;
        let holder = Holder { pid, start_ticks, uid, pid_namespace, job, since, label, delegated, memory };
        Some(Self { hold, holder })
    }

    /// Returns whether the whole memory of the hold fits into the record.
    pub fn has_all_memory(&self) -> bool {
        let known = |node: &OsNode| node.0 < u32::from(NODES_END);
        self.holder.memory.keys().all(known) && ranges(&self.holder.memory).len() <= RANGES_MAX
    }
}

/// Nodes with consecutive numbers and the same amount of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeRange {
    first: u16,
    last: u16,
    mebibytes: u32,
}

/// Returns the memory of a hold as ranges.
fn ranges(memory: &BTreeMap<OsNode, u64>) -> Vec<NodeRange> {
    let mut ranges: Vec<NodeRange> = Vec::new();
    for (node, &bytes) in memory.iter().filter(|(_, bytes)| **bytes > 0) {
        let Some(node) = u16::try_from(node.0).ok().filter(|&node| node < NODES_END) else { continue };
        let mebibytes = u32::try_from(bytes.div_ceil(1 << MEBIBYTE_BITS)).unwrap_or(u32::MAX);
        match ranges.last_mut() {
            Some(range) if range.last + 1 == node && range.mebibytes == mebibytes => range.last = node,
            _ => ranges.push(NodeRange { first: node, last: node, mebibytes }),
        }
    }
    ranges
}

/// Reads `count` ranges from the end of a label's field; `None` unless they are ascending and fit.
fn memory(field: &[u8], count: usize) -> Option<BTreeMap<OsNode, u64>> {
    let start = field.len().checked_sub(count.checked_mul(RANGE_BYTES)?)?;
    let mut reader = Reader { rest: &field[start..] };
    let mut memory = BTreeMap::new();
    let mut before = NODES_END;
    let mut nodes = 0;
    for _ in 0..count {
        let (first, last) = (u16::from_le_bytes(reader.take()?), u16::from_le_bytes(reader.take()?));
        let mebibytes = u32::from_le_bytes(reader.take()?);
        if first > last || last >= before {
            return None;
        }
        before = first;
        nodes += usize::from(last - first) + 1;
        if nodes > NODES_MAX {
            return None; // written to make readers slow
        }
        let bytes = u64::from(mebibytes) << MEBIBYTE_BITS;
        memory.extend((first..=last).map(|node| (OsNode(u32::from(node)), bytes)));
    }
    Some(memory)
}

struct Writer {
    bytes: [u8; RECORD_BYTES],
    at: usize,
}

impl Writer {
    fn put(&mut self, value: &[u8]) {
        self.bytes[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*head)
    }
}

/// Returns the longest prefix of `text` that has at most `bytes` bytes and ends at a character
/// boundary.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Replaces every character that could move the cursor, recolour the terminal, or hide or reorder
/// the text after it.
pub(super) fn printable(text: &str) -> String {
    let harmful = |letter: char| {
        letter.is_control()
            || matches!(letter,
                '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().map(|letter| if harmful(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(mut bytes: [u8; RECORD_BYTES]) -> [u8; RECORD_BYTES] {
        let sum = fnv1a(bytes[..CHECKSUM_AT].iter().copied());
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn record(label: &str) -> Record {
        let since = Duration::from_nanos(123_456_789_012);
        let holder = Holder {
            pid: 4711,
            start_ticks: 99,
            uid: 1000,
            pid_namespace: 4_026_531_836,
            job: 5,
            since,
            label: label.into(),
            delegated: false,
            memory: BTreeMap::new(),
        };
        Record { hold: HoldId::new(77).unwrap(), holder }
    }

    #[test]
    fn the_layout_does_not_change_unnoticed() {
        let bytes = record("cg.C").encode();
        assert_eq!(&bytes[..8], b"ttab\x01\0\0\0");
        let mut kept = record("cg.C");
        kept.holder.delegated = true;
        assert_eq!(&kept.encode()[..8], b"ttab\x01\0\x01\0");
        assert_eq!(bytes[8..12], 4711u32.to_le_bytes());
        assert_eq!(bytes[12..16], 1000u32.to_le_bytes());
        assert_eq!(bytes[16..24], 99u64.to_le_bytes());
        assert_eq!(bytes[24..32], 4_026_531_836u64.to_le_bytes());
        assert_eq!(bytes[32..40], 77u64.to_le_bytes());
        assert_eq!(bytes[40..48], 5u64.to_le_bytes());
        assert_eq!(bytes[48..56], 123_456_789_012u64.to_le_bytes());
        assert_eq!(bytes[56..58], 4u16.to_le_bytes());
        assert_eq!(&bytes[64..68], b"cg.C");
    }

    /// The reader of versions that knew no memory, as it was.
    fn read_without_memory(bytes: &[u8; RECORD_BYTES]) -> (u32, u64, String, bool) {
        let number = |at: usize, size: usize| {
            bytes[at..at + size].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
        };
        assert_eq!((&bytes[..4], number(4, 2)), (&b"ttab"[..], 1));
        assert_eq!(number(248, 8), fnv1a(bytes[..248].iter().copied()));
        let length = usize::try_from(number(56, 2)).unwrap();
        let label = String::from_utf8_lossy(&bytes[64..248][..length]).into_owned();
        (u32::try_from(number(8, 4)).unwrap(), number(32, 8), label, number(6, 2) & 1 != 0)
    }

    fn with_memory(label: &str, memory: &[(u32, u64)]) -> Record {
        let mut record = record(label);
        record.holder.memory = memory.iter().map(|&(node, bytes)| (OsNode(node), bytes)).collect();
        record
    }

    #[test]
    fn memory_is_read_by_versions_that_know_it_and_ignored_by_others() {
        let gib = |gib: u64| gib << 30;
        let some = with_memory("cg.C", &[(0, gib(64)), (1, gib(64)), (3, gib(2))]);
        let bytes = some.encode();
        assert_eq!(Record::decode(&bytes), Some(some.clone()));
        assert_eq!(read_without_memory(&bytes), (4711, 77, "cg.C".to_owned(), false));
        // The layout: two ranges, the last one first.
        assert_eq!((&bytes[6..8], &bytes[58..64]), (&[2u8, 0][..], &[2u8, 0, 0, 0, 0, 0][..]));
        assert_eq!(bytes[240..248], [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(bytes[232..240], [3, 0, 3, 0, 0, 8, 0, 0]);
        // A record of a version without memory holds none, whatever its unused bytes are.
        let mut older = record("cg.C").encode();
        older[58..64].fill(7);
        older[240..248].fill(7);
        assert_eq!(Record::decode(&sealed(older)), Some(record("cg.C")));
        // Less than a mebibyte is rounded up, and a long label is cut beside the memory.
        let odd = with_memory(&"x".repeat(300), &[(2, 1)]);
        let read = Record::decode(&odd.encode()).unwrap().holder;
        assert_eq!(
            (read.memory, read.label.len()),
            (BTreeMap::from([(OsNode(2), 1 << 20)]), LABEL_BYTES - 8)
        );
    }

    #[test]
    fn memory_on_very_many_nodes_is_kept_if_the_shares_are_equal() {
        let equal: Vec<(u32, u64)> = (0..64).map(|node| (node, 5 << 30)).collect();
        let equal = with_memory("x", &equal);
        assert!(equal.has_all_memory());
        assert_eq!(Record::decode(&equal.encode()), Some(equal));
        let unequal: Vec<(u32, u64)> = (0..64).map(|node| (node, u64::from(1 + node % 2) << 30)).collect();
        let unequal = with_memory("x", &unequal);
        assert!(!unequal.has_all_memory());
        assert_eq!(Record::decode(&unequal.encode()).unwrap().holder.memory.len(), RANGES_MAX);
        assert!(!with_memory("x", &[(5_000, 1)]).has_all_memory());
    }

    #[test]
    fn damaged_memory_is_no_record() {
        let good = with_memory("x", &[(0, 1 << 30), (4, 2 << 30)]).encode();
        for (at, value) in [(58, 24), (59, 1), (240, 9), (242, 4), (235, 16)] {
            let mut bad = good;
            bad[at] = value;
            assert!(Record::decode(&sealed(bad)).is_none(), "byte {at}");
        }
        assert!(Record::decode(&good).is_some());
    }

    #[test]
    fn a_long_label_is_cut_at_a_character() {
        let long = "ä".repeat(LABEL_BYTES);
        let label = Record::decode(&record(&long).encode()).unwrap().holder.label;
        assert_eq!(label, "ä".repeat(LABEL_BYTES / 2));
        let odd = format!("x{long}");
        let label = Record::decode(&record(&odd).encode()).unwrap().holder.label;
        assert_eq!(label.len(), LABEL_BYTES - 1);
    }

    #[test]
    fn a_label_cannot_command_the_terminal() {
        let label = Record::decode(&record("a\x1b[2Jb\nc\u{202e}d\u{9b}e\0").encode()).unwrap().holder.label;
        assert_eq!(label, "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}");
    }

    #[test]
    fn wrong_magic_version_sum_size_length_or_hold_is_no_record() {
        let good = record("x").encode();
        assert!(Record::decode(&good).is_some());
        assert!(Record::decode(&good[1..]).is_none());
        assert!(Record::decode(&[0; RECORD_BYTES]).is_none());
        for at in [0, 4, 70, CHECKSUM_AT] {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(Record::decode(&bad).is_none(), "byte {at}");
        }
        // The checksum is correct, but the contents are not a record.
        for (at, value) in [(4, 2), (32 + 7, 0xff), (57, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert!(Record::decode(&sealed(bad)).is_none(), "byte {at}");
        }
        let mut nameless = good;
        nameless[32..40].fill(0);
        assert!(Record::decode(&sealed(nameless)).is_none());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            pid: u32, start_ticks: u64, uid: u32, pid_namespace: u64, job: u64, since: u64,
            hold in 1u64..1 << 41, label in "\\PC{0,200}", delegated: bool,
            memory in prop::collection::btree_map((0u32..4096).prop_map(OsNode), 1u64..1 << 32, 0..6),
        ) {
            let since = Duration::from_nanos(since);
            let label_kept = label.clone();
            let memory: BTreeMap<OsNode, u64> = memory.into_iter().map(|(node, mib)| (node, mib << 20)).collect();
            let beside = LABEL_BYTES - 8 * memory.len();
            let holder = Holder { pid, start_ticks, uid, pid_namespace, job, since, label: label_kept, delegated, memory };
            let written = Record { hold: HoldId::new(hold).unwrap(), holder };
            let read = Record::decode(&written.encode()).unwrap();
            prop_assert!(label.len() > beside || read.holder.label == printable(&label));
            prop_assert!(read.holder.label.chars().count() <= label.chars().count());
            prop_assert_eq!(Record { holder: Holder { label, ..read.holder }, ..read }, written);
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..2 * RECORD_BYTES),
            flips in prop::collection::vec((0..RECORD_BYTES, any::<u8>()), 0..12),
            seal: bool,
        ) {
            let _ = Record::decode(&bytes);
            // Bytes that get past the checks: a good record, damaged, and mostly sealed again.
            let mut damaged = with_memory("the label", &[(0, 1 << 30), (2, 3 << 20)]).encode();
            for (at, value) in flips {
                damaged[at] = value;
            }
            if seal {
                damaged = sealed(damaged);
            }
            if let Some(read) = Record::decode(&damaged) {
                prop_assert!(!read.holder.label.chars().any(char::is_control));
                prop_assert!(Record::decode(&read.encode()).is_some());
            }
        }

        #[test]
        fn sealed_garbage_is_read_or_refused_without_harm(bytes in prop::collection::vec(any::<u8>(), RECORD_BYTES)) {
            let mut garbage: [u8; RECORD_BYTES] = bytes.try_into().unwrap();
            garbage[..4].copy_from_slice(&MAGIC);
            garbage[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
            if let Some(read) = Record::decode(&sealed(garbage)) {
                prop_assert!(!read.holder.label.chars().any(char::is_control));
            }
        }
    }
}

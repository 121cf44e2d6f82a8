//! Record of the holder of a CPU: one record of fixed size per CPU and level, beside the locks.
//!
//! All users may write the file, so a record is a claim. It is parsed as hostile input and counts
//! only while the lock of the CPU *and* the lock of the hold that the record names are there: a
//! killed holder leaves its records behind, and the next one needs a moment to write its own.
//!
//! Layout, little endian: magic 4, version 2, flags 2, pid 4, uid 4, start time 8, pid namespace 8,
//! hold 8, job 8, since 8, label length 2, zero 6, label 184, checksum 8.

use super::layout::HoldId;
use std::time::Duration;
use trimtab_core::hash::fnv1a;

/// Size of a record in bytes: four cache lines, and a divisor of the page size, so that no record
/// straddles two pages.
pub const RECORD_BYTES: usize = 256;

const MAGIC: [u8; 4] = *b"ttab";
const FORMAT_VERSION: u16 = 1;
const LABEL_AT: usize = 64;
const CHECKSUM_AT: usize = RECORD_BYTES - 8;
/// Flag of a hold that a keeper has for the holder. Readers ignore flags that they do not know.
const DELEGATED: u16 = 1;

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
    /// Encodes the record. A label longer than [`LABEL_BYTES`] is cut at a character boundary;
    /// times beyond 584 years after boot are cut too.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let Holder { pid, start_ticks, uid, pid_namespace, job, since, label, delegated } = &self.holder;
        let label = cut(label, LABEL_BYTES).as_bytes();
        let mut writer = Writer { bytes: [0; RECORD_BYTES], at: 0 };
        writer.put(&MAGIC);
        writer.put(&FORMAT_VERSION.to_le_bytes());
        writer.put(&(if *delegated { DELEGATED } else { 0 }).to_le_bytes());
        writer.put(&pid.to_le_bytes());
        writer.put(&uid.to_le_bytes());
        writer.put(&start_ticks.to_le_bytes());
        writer.put(&pid_namespace.to_le_bytes());
        writer.put(&self.hold.number().to_le_bytes());
        writer.put(&job.to_le_bytes());
        writer.put(&u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).to_le_bytes());
        writer.put(&u16::try_from(label.len()).unwrap_or(0).to_le_bytes());
        writer.at = LABEL_AT;
        writer.put(label);
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
        let delegated = u16::from_le_bytes(reader.take()?) & DELEGATED != 0;
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
        let holder = Holder { pid, start_ticks, uid, pid_namespace, job, since, label, delegated };
        Some(Self { hold, holder })
    }
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
        ) {
            let since = Duration::from_nanos(since);
            let label_kept = label.clone();
            let holder = Holder { pid, start_ticks, uid, pid_namespace, job, since, label: label_kept, delegated };
            let written = Record { hold: HoldId::new(hold).unwrap(), holder };
            let read = Record::decode(&written.encode()).unwrap();
            prop_assert!(label.len() > LABEL_BYTES || read.holder.label == printable(&label));
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
            let mut damaged = record("the label").encode();
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

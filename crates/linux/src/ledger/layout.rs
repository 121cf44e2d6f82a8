//! Byte layout of the lock file and of the file of records.
//!
//! | bytes | meaning |
//! | --- | --- |
//! | `level << 20 \| cpu` | CPU `cpu` is held at this level |
//! | `2^32 + level` | a process plans at this level |
//! | `2^60 + level << 52 + lane << 32 + n` | ticket `n` of a queue |
//! | `2^61 + ((level << 52 + lane << 32 + n) << 4) + p` | that ticket's pulse at position `p` |
//! | `2^62 + tag << 41 + id` | the hold with this id is alive; `tag` names directory and boot |
//!
//! No byte of the lock file is ever read or written: a lock may lie beyond the end of a file. The
//! numbers are the protocol between versions of the program that run at the same time, so they
//! never change without a change of file name.

use super::error::LedgerError;
use super::level::Level;
use crate::sys::lock::ByteLock;
use std::fmt;
use std::ops::Range;
use trimtab_core::hash::fnv1a;
use trimtab_core::ids::{Id, OsCpu};
use trimtab_core::set::CpuSet;

const CPU_BITS: u32 = 20;
const PLANNERS_AT: u64 = 1 << 32;
const QUEUES_AT: u64 = 1 << 60;
const QUEUE_LEVEL_BITS: u32 = 52;
const TICKET_BITS: u32 = 32;
const PULSES_AT: u64 = 1 << 61;
const PULSE_BITS: u32 = 4;
const HOLDS_AT: u64 = 1 << 62;
const HOLD_BITS: u32 = 41;
const TAG_BITS: u32 = 20;

/// Returns the byte of a CPU at a level.
fn cpu_byte(level: Level, cpu: OsCpu) -> Result<u64, LedgerError> {
    if cpu.0 >> CPU_BITS != 0 {
        return Err(LedgerError::CpuOutOfRange { cpu });
    }
    Ok(u64::from(level.depth()) << CPU_BITS | u64::from(cpu.0))
}

/// Returns the bytes from one CPU to another, both included.
pub(super) fn cpu_bytes(level: Level, first: OsCpu, last: OsCpu) -> Result<Range<u64>, LedgerError> {
    Ok(cpu_byte(level, first)?..cpu_byte(level, last)? + 1)
}

/// Returns the bytes of a set, in as few ranges as the set has, ascending.
pub(super) fn set_bytes(level: Level, cpus: &CpuSet) -> Result<Vec<Range<u64>>, LedgerError> {
    cpus.ranges().into_iter().map(|(first, last)| cpu_bytes(level, first, last)).collect()
}

/// Returns the CPU of a CPU byte, for any level.
pub(super) fn cpu_of(byte: u64) -> OsCpu {
    OsCpu::from_index(usize::try_from(byte & ((1 << CPU_BITS) - 1)).unwrap_or(usize::MAX))
}

/// Returns the byte that serialises planning at a level.
pub(super) fn planner_byte(level: Level) -> Range<u64> {
    let start = PLANNERS_AT + u64::from(level.depth());
    start..start + 1
}

/// Returns the tickets of one queue: of the runs at this level that wait for CPUs of the same set,
/// identified by its lowest member.
pub(super) fn queue_bytes(level: Level, lane: OsCpu) -> Result<Range<u64>, LedgerError> {
    let lane = cpu_byte(Level::MACHINE, lane)?;
    let start = QUEUES_AT + (u64::from(level.depth()) << QUEUE_LEVEL_BITS) + (lane << TICKET_BITS);
    Ok(start..start + (1 << TICKET_BITS))
}

/// Returns the positions through which the pulse of a ticket circulates.
pub(super) fn pulse_bytes(ticket: u64) -> Range<u64> {
    let start = PULSES_AT + (ticket.saturating_sub(QUEUES_AT) << PULSE_BITS);
    start..start + (1 << PULSE_BITS)
}

/// Common mark of the holds of one boot's ledgers in one directory. Distinguishes them from the
/// holds of other ledgers in the kernel's list of locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag(u64);

impl Tag {
    /// Returns the tag of the ledgers with this name in the directory with this device and inode.
    pub(super) fn of(device: u64, inode: u64, stem: &str) -> Self {
        Self(fingerprint(&[device, inode, fnv1a(stem.bytes())]) & ((1 << TAG_BITS) - 1))
    }

    /// Returns the bytes of all holds with this tag.
    pub(super) fn bytes(self) -> Range<u64> {
        let start = HOLDS_AT + (self.0 << HOLD_BITS);
        start..start + (1 << HOLD_BITS)
    }
}

/// Name of a hold among the living ones. A process that holds its byte vouches for the records that
/// carry it. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HoldId(u64);

impl HoldId {
    const JOB_BIT: u64 = 1 << (HOLD_BITS - 1);

    /// Returns the id with this number; `None` if the number is 0 or too large.
    pub(super) fn new(number: u64) -> Option<Self> {
        (number != 0 && number >> HOLD_BITS == 0).then_some(Self(number))
    }

    /// Returns the id at which a hold of one process starts to search for a free id.
    pub(super) fn of_process(pid: u32, start_ticks: u64, since_ns: u64) -> Self {
        Self((fingerprint(&[u64::from(pid), start_ticks, since_ns]) & (Self::JOB_BIT - 1)).max(1))
    }

    /// Returns the next id of one process.
    pub(super) fn next(self) -> Self {
        Self(((self.0 + 1) & (Self::JOB_BIT - 1)).max(1))
    }

    /// Returns the id that all processes of a job share, so that it lives as long as any of them.
    pub(super) fn of_job(job: u64, uid: u32) -> Self {
        Self(Self::JOB_BIT | fingerprint(&[job, u64::from(uid)]) & (Self::JOB_BIT - 1))
    }

    /// Returns the number, for records and messages.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the number as people and programs name the hold: `0x1a2b`.
    pub fn name(self) -> String {
        format!("{:#x}", self.0)
    }

    /// Returns the hold whose number is among these locks; `None` if there is none, or several.
    pub(super) fn locked(locks: &[ByteLock], tag: Tag) -> Option<Self> {
        let all = tag.bytes();
        let mut found = locks.iter().filter(|lock| all.contains(&lock.bytes.start));
        let one = found.next().filter(|lock| lock.bytes.end - lock.bytes.start == 1)?;
        if found.next().is_some() {
            return None;
        }
        Self::new(one.bytes.start - all.start)
    }

    /// Returns the byte that is locked as long as the hold lives.
    pub(super) fn byte(self, tag: Tag) -> Range<u64> {
        let start = tag.bytes().start + self.0;
        start..start + 1
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Hashes `words` with FNV-1a over their little-endian bytes: distributes well and detects
/// accidents; no protection against malice.
pub(super) fn fingerprint(words: &[u64]) -> u64 {
    fnv1a(words.iter().flat_map(|word| word.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::lock::{END, LockKind};

    #[test]
    fn no_two_meanings_share_a_byte() {
        let deepest = Level::new(Level::COUNT - 1).unwrap();
        let widest = OsCpu((1 << CPU_BITS) - 1);
        let mut regions = Vec::new();
        regions.push(Tag(0).bytes().start..Tag((1 << TAG_BITS) - 1).bytes().end);
        for depth in 0..Level::COUNT {
            let level = Level::new(depth).unwrap();
            regions.push(cpu_bytes(level, OsCpu(0), widest).unwrap());
            regions.push(planner_byte(level));
            let (first, last) = (queue_bytes(level, OsCpu(0)).unwrap(), queue_bytes(level, widest).unwrap());
            regions.push(first.start..last.end);
            regions.push(pulse_bytes(first.start).start..pulse_bytes(last.end - 1).end);
        }
        regions.sort_by_key(|region| region.start);
        assert!(regions.windows(2).all(|pair| pair[0].end <= pair[1].start), "{regions:?}");
        assert!(regions.last().unwrap().end < END);
        assert_eq!(deepest.inner(), None);
        assert!(cpu_bytes(deepest, OsCpu(0), OsCpu(1 << CPU_BITS)).is_err());
    }

    #[test]
    fn a_description_has_one_number_or_none() {
        let tag = Tag(5);
        let lock = |bytes: Range<u64>| ByteLock { bytes, kind: LockKind::Read };
        let (one, other) = (HoldId(9), HoldId(77));
        let cpu = lock(0..4);
        assert_eq!(HoldId::locked(&[cpu.clone(), lock(one.byte(tag))], tag), Some(one));
        assert_eq!(HoldId::locked(&[cpu.clone(), lock(one.byte(Tag(6)))], tag), None);
        assert_eq!(HoldId::locked(&[lock(one.byte(tag)), lock(other.byte(tag))], tag), None);
        // A lock of all holds at once, as only a hostile program has.
        assert_eq!(HoldId::locked(&[cpu, lock(tag.bytes())], tag), None);
    }

    #[test]
    fn ids_stay_in_their_half() {
        let last = HoldId(HoldId::JOB_BIT - 1);
        assert_eq!(last.next(), HoldId(1));
        assert!(HoldId::of_job(7, 1000).0 >= HoldId::JOB_BIT);
        assert!(HoldId::of_process(7, 8, 9).0 < HoldId::JOB_BIT);
        assert_eq!(HoldId::new(0), None);
        assert_eq!(HoldId::new(1 << HOLD_BITS), None);
        assert!(HoldId::new(HoldId::of_job(u64::MAX, u32::MAX).number()).is_some());
    }
}

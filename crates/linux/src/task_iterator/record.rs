//! Record of one thread, as the program inside the kernel writes it.
//!
//! Property: any bytes are read without harm. A record without its mark, or one that is cut, ends
//! the reading: the rest of the pass is not used.

use crate::process::{Pid, StartTime, Tid};
use trimtab_core::ids::OsCpu;
use trimtab_core::time::Span;

/// Size of a record, in bytes.
pub(super) const RECORD_BYTES: usize = 64;
/// Last word of each record.
pub(super) const MARK: u32 = 0x5452_494d;
/// Nanoseconds of a clock tick, the unit of [`StartTime`].
const TICK_NS: u64 = 1_000_000_000 / crate::process::TICKS_PER_SECOND;
/// States that `/proc` does not show as `R`: the states of `TASK_REPORT`, `TASK_RTLOCK_WAIT` and
/// `TASK_FROZEN` (the kernel's `include/linux/sched.h`). A task without any of them runs or is
/// ready.
const NOT_READY: u32 = 0x7f | 0x1000 | 0x8000;

/// Distances of the values from the start of a record, in bytes.
pub(super) mod place {
    pub(in crate::task_iterator) const TGID: i16 = 0;
    pub(in crate::task_iterator) const TID: i16 = 4;
    pub(in crate::task_iterator) const RUN: i16 = 8;
    pub(in crate::task_iterator) const WAIT: i16 = 16;
    pub(in crate::task_iterator) const SLICES: i16 = 24;
    pub(in crate::task_iterator) const VOLUNTARY: i16 = 32;
    pub(in crate::task_iterator) const START: i16 = 40;
    pub(in crate::task_iterator) const STATE: i16 = 48;
    pub(in crate::task_iterator) const EXIT: i16 = 52;
    pub(in crate::task_iterator) const CPU: i16 = 56;
    pub(in crate::task_iterator) const MARK: i16 = 60;
}

/// Counters and state of one thread at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskRecord {
    /// Its process.
    pub pid: Pid,
    /// Its number.
    pub tid: Tid,
    /// Its start, in the unit of `/proc`.
    pub start: StartTime,
    /// Time on a CPU.
    pub run: Span,
    /// Time ready to run without a CPU.
    pub wait: Span,
    /// Number of times it was put on a CPU.
    pub slices: u64,
    /// Number of times it gave up the CPU to sleep.
    pub voluntary: u64,
    /// Whether it runs or is ready to run, which `/proc` shows as `R`.
    pub ready: bool,
    /// The CPU on which it ran last.
    pub cpu: OsCpu,
}

impl TaskRecord {
    /// Reads one record; `None` if it is cut or has no mark.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_BYTES] = bytes.get(..RECORD_BYTES)?.try_into().ok()?;
        let at = |place: i16| usize::try_from(place).ok();
        let four = |place: i16| {
            let at = at(place)?;
            bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
        };
        let eight = |place: i16| {
            let at = at(place)?;
            bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
        };
        if four(place::MARK)? != MARK {
            return None;
        }
        let (pid, tid) = (four(place::TGID)?, four(place::TID)?);
        Some(Self {
            pid: Pid(pid),
            tid: Tid(tid),
            start: StartTime(eight(place::START)? / TICK_NS),
            run: Span(eight(place::RUN)?),
            wait: Span(eight(place::WAIT)?),
            slices: eight(place::SLICES)?,
            voluntary: eight(place::VOLUNTARY)?,
            ready: (four(place::STATE)? | four(place::EXIT)?) & NOT_READY == 0,
            cpu: OsCpu(four(place::CPU)?),
        })
        .filter(|_| pid > 0 && tid > 0)
    }

    /// Reads the records of a pass, up to the first that is none.
    pub(super) fn all(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        bytes.chunks(RECORD_BYTES).map_while(Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record, written without the constants of the reader.
    fn bytes(pid: u32, tid: u32, start_ns: u64, state: u32, exit: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend([pid, tid].iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend([111, 222, 333, 444, start_ns].iter().flat_map(|word: &u64| word.to_ne_bytes()));
        bytes.extend([state, exit, 5, 0x5452_494d].iter().flat_map(|word: &u32| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn values_have_the_units_of_proc() {
        let record = TaskRecord::parse(&bytes(7, 8, 12_345_678_901, 0, 0)).unwrap();
        assert_eq!((record.pid, record.tid, record.start), (Pid(7), Tid(8), StartTime(1_234)));
        assert_eq!((record.run, record.wait, record.slices), (Span(111), Span(222), 333));
        assert_eq!((record.voluntary, record.cpu, record.ready), (444, OsCpu(5), true));
    }

    #[test]
    fn only_tasks_that_run_or_could_run_are_ready() {
        let ready = |state, exit| TaskRecord::parse(&bytes(7, 8, 0, state, exit)).unwrap().ready;
        // TASK_WAKING, TASK_NEW.
        assert!(ready(0, 0) && ready(0x200, 0) && ready(0x800, 0));
        for state in [1, 2, 4, 8, 0x40, 0x402, 0x1000, 0x8000] {
            assert!(!ready(state, 0), "{state:#x}");
        }
        assert!(!ready(0, 0x10) && !ready(0, 0x20), "ended");
    }

    #[test]
    fn a_pass_ends_at_the_first_record_that_is_none() {
        let mut pass = [bytes(1, 2, 0, 0, 0), bytes(1, 3, 0, 0, 0), bytes(1, 4, 0, 0, 0)].concat();
        assert_eq!(TaskRecord::all(&pass).map(|record| record.tid.0).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(TaskRecord::all(&pass[..191]).count(), 2, "cut");
        pass[64 + 60] ^= 1;
        assert_eq!(TaskRecord::all(&pass).count(), 1, "without its mark");
        assert_eq!(TaskRecord::all(&bytes(0, 0, 0, 0, 0)).count(), 0, "no task has the number 0");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(TaskRecord::all(&bytes).count() <= bytes.len() / RECORD_BYTES);
        }
    }
}

//! Computing tasks that launches found, kept for the next launch in the file of the records.
//!
//! Problem: on a machine with thousands of tasks, a launch that searches for the runnable ones stops
//! before it has found the program that has computed for hours. Idea: each launch looks first at the
//! tasks that an earlier one found, and searches only if these do not explain the number of runnable
//! tasks.
//!
//! All users may write the file. A task is a claim, and costs a reading of its state at most: whether
//! it computes is read anew. Two writers at once make a wrong checksum, which counts as empty.
//!
//! Layout, little endian: magic 8, checksum of all that follows 8, then for each task process 4,
//! thread 4, start 8; zeros behind the last one.

use super::Ledger;
use crate::process::{Pid, StartTime, TaskName, Tid};
use rustix::io::{pread, pwrite};
use rustix::process::{Resource, getrlimit};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use trimtab_core::hash::fnv1a;

/// Offset: behind the kept counters.
const TASKS_AT: u64 = (1 << 32) + (1 << 20);
const MAGIC: [u8; 8] = *b"tttask01";
const HEADER_BYTES: usize = 16;
const TASK_BYTES: usize = 16;
const BYTES: usize = HEADER_BYTES + KeptTasks::MOST * TASK_BYTES;

/// The kept tasks of one boot.
#[derive(Debug)]
pub struct KeptTasks {
    file: Arc<OwnedFd>,
}

impl KeptTasks {
    /// Most tasks that are kept. Chosen: reading their states takes as long as the rest of a search
    /// may.
    pub const MOST: usize = 64;

    /// Returns the tasks in this file of records.
    pub(super) fn in_file(file: Arc<OwnedFd>) -> Self {
        Self { file }
    }

    /// Returns the tasks beside an open ledger; `None` if its file of records cannot be used.
    pub fn beside(ledger: &Ledger) -> Option<Self> {
        Some(Self::in_file(Arc::clone(ledger.records()?)))
    }

    /// Reads the tasks.
    pub fn read(&self) -> Vec<TaskName> {
        let mut bytes = [0; BYTES];
        let read = pread(&self.file, &mut bytes[..], TASKS_AT).unwrap_or(0);
        let (header, tasks) = bytes.split_at(HEADER_BYTES);
        if read != BYTES || header[..8] != MAGIC || header[8..] != checksum(tasks) {
            return Vec::new();
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let half = |bytes: &[u8]| u32::try_from(number(bytes)).unwrap_or(0);
        let task = |bytes: &[u8]| TaskName {
            pid: Pid(half(&bytes[..4])),
            tid: Tid(half(&bytes[4..8])),
            start: StartTime(number(&bytes[8..])),
        };
        tasks.chunks_exact(TASK_BYTES).map(task).take_while(|task| task.pid.0 != 0).collect()
    }

    /// Keeps these tasks instead. Does nothing if the file cannot be written.
    pub fn keep(&self, tasks: &[TaskName]) {
        let mut bytes = [0; BYTES];
        for (task, place) in tasks.iter().zip(bytes[HEADER_BYTES..].chunks_exact_mut(TASK_BYTES)) {
            place[..4].copy_from_slice(&task.pid.0.to_le_bytes());
            place[4..8].copy_from_slice(&task.tid.0.to_le_bytes());
            place[8..].copy_from_slice(&task.start.0.to_le_bytes());
        }
        bytes[..8].copy_from_slice(&MAGIC);
        let sum = checksum(&bytes[HEADER_BYTES..]);
        bytes[8..HEADER_BYTES].copy_from_slice(&sum);
        // Beyond this limit the kernel does not only refuse: it kills this process (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < TASKS_AT + BYTES as u64) {
            return;
        }
        let _ = pwrite(&self.file, &bytes, TASKS_AT);
    }
}

fn checksum(tasks: &[u8]) -> [u8; 8] {
    fnv1a(tasks.iter().copied()).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> KeptTasks {
        KeptTasks::in_file(Arc::new(tempfile::tempfile().unwrap().into()))
    }

    fn task(number: u32) -> TaskName {
        TaskName { pid: Pid(number), tid: Tid(number + 1), start: StartTime(u64::from(number) << 33) }
    }

    #[test]
    fn tasks_are_read_as_they_were_kept() {
        let kept = kept();
        assert_eq!(kept.read(), []);
        kept.keep(&[task(7), task(9)]);
        assert_eq!(kept.read(), [task(7), task(9)]);
        kept.keep(&[]);
        assert_eq!(kept.read(), []);
        let many: Vec<TaskName> = (1..=100).map(task).collect();
        kept.keep(&many);
        assert_eq!(kept.read(), many[..KeptTasks::MOST]);
    }

    #[test]
    fn damaged_tasks_count_as_none() {
        let kept = kept();
        kept.keep(&[task(7)]);
        pwrite(&kept.file, b"x", TASKS_AT + HEADER_BYTES as u64).unwrap();
        assert_eq!(kept.read(), []);
        pwrite(&kept.file, &[0xff; 40], TASKS_AT).unwrap();
        assert_eq!(kept.read(), []);
    }
}

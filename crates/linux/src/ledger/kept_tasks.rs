//! Places of computing tasks that launches keep for the next launch, in the file of the records.
//!
//! Problem: on a machine with hundreds of processes a launch stops its search for the runnable tasks
//! before it finds the program that has computed for hours, and then waits whether the unknown tasks
//! stay. Idea: each launch keeps the places of the tasks that it found to compute, and the next one
//! looks there first.
//!
//! All users may write the file. A place costs a reading or two, and is no evidence: the task's state is
//! read anew, and a place that is named twice counts once ([`crate::survey::RunningSearch`]). Two
//! writers at once make a checksum that is wrong, which counts as no place.
//!
//! Layout, little endian: magic 8, checksum of the places 8, then for each place process 4 and thread
//! 4; zeros behind the last one.

use crate::process::{Pid, Tid};
use crate::survey::TaskPlace;
use rustix::io::{pread, pwrite};
use rustix::process::{Resource, getrlimit};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use trimtab_core::hash::fnv1a;

/// Offset: behind the kept counters.
const PLACES_AT: u64 = (1 << 32) + (1 << 20);
const MAGIC: [u8; 8] = *b"ttplac01";
const HEADER_BYTES: usize = 16;
const PLACE_BYTES: usize = 8;
const BYTES: usize = HEADER_BYTES + KeptTasks::MOST * PLACE_BYTES;

/// The kept places of one boot.
#[derive(Debug)]
pub struct KeptTasks {
    file: Arc<OwnedFd>,
}

impl KeptTasks {
    /// Most places that are kept. Chosen: reading these states takes as long as a search may.
    pub const MOST: usize = 64;

    /// Returns the places in this file of records.
    pub fn in_file(file: Arc<OwnedFd>) -> Self {
        Self { file }
    }

    /// Reads the places.
    pub fn read(&self) -> Vec<TaskPlace> {
        let mut bytes = [0; BYTES];
        let read = pread(&self.file, &mut bytes[..], PLACES_AT).unwrap_or(0);
        let (header, places) = bytes.split_at(HEADER_BYTES);
        if read != BYTES || header[..8] != MAGIC || header[8..] != checksum(places) {
            return Vec::new();
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
        let place = |bytes: &[u8]| TaskPlace { pid: Pid(number(&bytes[..4])), tid: Tid(number(&bytes[4..])) };
        places.chunks_exact(PLACE_BYTES).map(place).take_while(|place| place.pid.0 != 0).collect()
    }

    /// Keeps these places instead, at most [`Self::MOST`] of them. Does nothing if the file cannot be
    /// written.
    pub fn keep(&self, places: &[TaskPlace]) {
        let mut bytes = [0; BYTES];
        for (place, room) in places.iter().zip(bytes[HEADER_BYTES..].chunks_exact_mut(PLACE_BYTES)) {
            room[..4].copy_from_slice(&place.pid.0.to_le_bytes());
            room[4..].copy_from_slice(&place.tid.0.to_le_bytes());
        }
        bytes[..8].copy_from_slice(&MAGIC);
        let sum = checksum(&bytes[HEADER_BYTES..]);
        bytes[8..HEADER_BYTES].copy_from_slice(&sum);
        // Beyond this limit the kernel does not only refuse: it kills this process (SIGXFSZ).
        let end = PLACES_AT + BYTES as u64;
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < end) {
            return;
        }
        let _ = pwrite(&self.file, &bytes, PLACES_AT);
    }
}

fn checksum(places: &[u8]) -> [u8; 8] {
    fnv1a(places.iter().copied()).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> KeptTasks {
        KeptTasks::in_file(Arc::new(tempfile::tempfile().unwrap().into()))
    }

    fn place(number: u32) -> TaskPlace {
        TaskPlace { pid: Pid(number), tid: Tid(number << 20 | 1) }
    }

    #[test]
    fn places_are_read_as_they_were_kept() {
        let kept = kept();
        assert_eq!(kept.read(), []);
        kept.keep(&[place(7), place(9)]);
        assert_eq!(kept.read(), [place(7), place(9)]);
        kept.keep(&[]);
        assert_eq!(kept.read(), []);
        let many: Vec<TaskPlace> = (1..=100).map(place).collect();
        kept.keep(&many);
        assert_eq!(kept.read(), many[..KeptTasks::MOST]);
    }

    #[test]
    fn damaged_places_count_as_none() {
        let kept = kept();
        kept.keep(&[place(7)]);
        pwrite(&kept.file, b"x", PLACES_AT + HEADER_BYTES as u64).unwrap();
        assert_eq!(kept.read(), []);
        pwrite(&kept.file, &[0xff; 40], PLACES_AT).unwrap();
        assert_eq!(kept.read(), []);
    }
}

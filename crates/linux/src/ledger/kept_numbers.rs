//! Lists of numbers that launches keep for the next launch, in the file of the records.
//!
//! - *Tasks*: places of the tasks that were found to compute. On a machine with hundreds of processes a
//!   launch stops its search for the runnable tasks before it finds the program that has computed for
//!   hours. The next one looks at these places first.
//! - *Processes*: those that the kernel listed where it has thousands of threads, which takes long. The
//!   next launch examines these, and those that were made since.
//!
//! All users may write the file, so a number is a place to look at, and no evidence: a task is read anew
//! and counts once ([`crate::survey::RunningSearch`]), and a list of processes is proven to be complete or
//! not used ([`crate::survey::Processes::known`]). Two writers at once make a checksum that is wrong,
//! which counts as no list.
//!
//! Layout, little endian: magic 8, checksum of the rest 8, length 4, numbers 4 each.

use crate::process::{Pid, Tid};
use crate::survey::{KnownProcesses, TaskPlace};
use rustix::io::{pread, pwrite};
use rustix::process::{Resource, getrlimit};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use trimtab_core::hash::fnv1a;

/// Offset of the first list: behind the kept counters.
const LISTS_AT: u64 = (1 << 32) + (1 << 20);
/// Distance between two lists.
const LIST_BYTES: u64 = 64 << 10;
const MAGIC: [u8; 8] = *b"ttnums01";
const CHECKED_AT: usize = 16;
const NUMBERS_AT: usize = 20;

/// Contents of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Tasks,
    Processes,
}

impl Part {
    fn at(self) -> u64 {
        match self {
            Self::Tasks => LISTS_AT,
            Self::Processes => LISTS_AT + LIST_BYTES,
        }
    }

    /// Most numbers. Chosen: 64 tasks, since reading their states takes as long as a search may, and
    /// as many processes as a machine with thousands of threads has.
    fn most(self) -> usize {
        match self {
            Self::Tasks => 2 * 64,
            Self::Processes => 1 + 2_048,
        }
    }
}

/// The kept lists of one boot.
#[derive(Clone, Debug)]
pub struct KeptNumbers {
    file: Arc<OwnedFd>,
}

impl KeptNumbers {
    /// Returns the lists in this file of records.
    pub fn in_file(file: Arc<OwnedFd>) -> Self {
        Self { file }
    }

    /// Reads the places of tasks that were found to compute.
    pub fn tasks(&self) -> Vec<TaskPlace> {
        let numbers = self.read(Part::Tasks);
        numbers.chunks_exact(2).map(|pair| TaskPlace { pid: Pid(pair[0]), tid: Tid(pair[1]) }).collect()
    }

    /// Keeps the places of these tasks, as many as there is room for.
    pub fn keep_tasks(&self, places: &[TaskPlace]) {
        let numbers: Vec<u32> = places.iter().flat_map(|place| [place.pid.0, place.tid.0]).collect();
        self.keep(Part::Tasks, &numbers[..numbers.len().min(Part::Tasks.most())]);
    }

    /// Reads the processes.
    pub fn processes(&self) -> KnownProcesses {
        let numbers = self.read(Part::Processes);
        let (newest, pids) = numbers.split_first().unwrap_or((&0, &[]));
        KnownProcesses { newest: *newest, pids: pids.iter().copied().map(Pid).collect() }
    }

    /// Keeps these processes, if there is room for all.
    pub fn keep_processes(&self, processes: &KnownProcesses) {
        let pids = processes.pids.iter().map(|pid| pid.0);
        let numbers: Vec<u32> = std::iter::once(processes.newest).chain(pids).collect();
        if numbers.len() <= Part::Processes.most() {
            self.keep(Part::Processes, &numbers);
        }
    }

    fn read(&self, part: Part) -> Vec<u32> {
        let mut bytes = vec![0; NUMBERS_AT + 4 * part.most()];
        let read = pread(&self.file, &mut bytes[..], part.at()).unwrap_or(0);
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let length = word(CHECKED_AT).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length <= part.most()) else { return Vec::new() };
        let end = NUMBERS_AT + 4 * length;
        if read < end || bytes[..8] != MAGIC || bytes[8..CHECKED_AT] != checksum(&bytes[CHECKED_AT..end]) {
            return Vec::new();
        }
        (NUMBERS_AT..end).step_by(4).filter_map(word).collect()
    }

    /// Does nothing if the file cannot be written.
    fn keep(&self, part: Part, numbers: &[u32]) {
        let mut bytes = vec![0; CHECKED_AT];
        bytes.extend(u32::try_from(numbers.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let sum = checksum(&bytes[CHECKED_AT..]);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..CHECKED_AT].copy_from_slice(&sum);
        // Beyond this limit the kernel does not only refuse: it kills this process (SIGXFSZ).
        let end = part.at() + bytes.len() as u64;
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < end) {
            return;
        }
        let _ = pwrite(&self.file, &bytes, part.at());
    }
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    fnv1a(bytes.iter().copied()).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> KeptNumbers {
        KeptNumbers::in_file(Arc::new(tempfile::tempfile().unwrap().into()))
    }

    fn place(number: u32) -> TaskPlace {
        TaskPlace { pid: Pid(number), tid: Tid(number << 20 | 1) }
    }

    #[test]
    fn lists_are_read_as_they_were_kept() {
        let kept = kept();
        assert_eq!((kept.tasks(), kept.processes()), (Vec::new(), KnownProcesses::default()));
        kept.keep_tasks(&[place(7), place(9)]);
        let processes = KnownProcesses { newest: 70_000, pids: vec![Pid(3), Pid(69_999)] };
        kept.keep_processes(&processes);
        assert_eq!((kept.tasks(), kept.processes()), (vec![place(7), place(9)], processes.clone()));
        kept.keep_tasks(&[]);
        assert_eq!((kept.tasks(), kept.processes()), (Vec::new(), processes.clone()));
        let many: Vec<TaskPlace> = (1..=100).map(place).collect();
        kept.keep_tasks(&many);
        assert_eq!(kept.tasks(), many[..64]);
        // Half a list of processes would be of no use.
        kept.keep_processes(&KnownProcesses { newest: 1, pids: vec![Pid(1); 2_049] });
        assert_eq!(kept.processes(), processes);
        let most = KnownProcesses { newest: 1, pids: vec![Pid(1); 2_048] };
        kept.keep_processes(&most);
        assert_eq!(kept.processes(), most);
    }

    #[test]
    fn damaged_lists_count_as_none() {
        let kept = kept();
        kept.keep_tasks(&[place(7)]);
        pwrite(&kept.file, b"x", LISTS_AT + NUMBERS_AT as u64).unwrap();
        assert_eq!(kept.tasks(), []);
        for damage in [vec![0xff; 40], [&MAGIC[..], &[0xff; 12]].concat()] {
            pwrite(&kept.file, &damage, LISTS_AT).unwrap();
            assert_eq!(kept.tasks(), []);
        }
    }
}

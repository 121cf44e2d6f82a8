//! Task iterator: the counters of all threads of a process by a few system calls, however many
//! threads it has.
//!
//! Problem: `/proc` has a file for each thread, and a system call for each is most of the cost of a
//! sample. Idea: the kernel runs a small program for each thread of a process (`iter/task`), which
//! writes a record of 64 bytes, and one `read` returns the records of some 500 threads.
//!
//! The program is some 35 instructions and is assembled here (`program`), with the places of its
//! fields from the kernel's own description of its types (`btf`). Rejected: libbpf-rs, which
//! compiles a C library and needs libelf; aya, which loads an object file that a second compiler
//! must make, and brings a reader and writer of such files and a dozen crates.
//!
//! Properties: nothing is loaded before [`TaskIterator::open`] is called; everything belongs to
//! descriptors and ends with them. The values are those of `schedstat`, `stat` and `status`: `open`
//! compares its own record with `/proc` and refuses if they name different tasks. A record has the
//! start time, so that a number that was used again is noticed. It needs `CAP_BPF` and
//! `CAP_PERFMON`; the iterator takes a process since Linux 6.1.

mod btf;
mod program;
mod record;
mod why;

pub use record::TaskRecord;
pub use why::NotAtOnce;

use crate::process::{self, Pid};
use crate::sys::bpf;
use btf::Btf;
use program::IteratorProgram;
use record::RECORD_BYTES;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Size of one reading, in bytes: the size of the kernel's buffer of an iterator.
const READING_BYTES: usize = 32 << 10;
/// Maximal number of records of a pass. Chosen: twice the number of threads that are watched.
const RECORDS_MAX: usize = 65_536;

/// Maximal number of tries to load the program, as libbpf has it.
const LOAD_TRIES: u32 = 5;

/// Returns whether this process has the capabilities for the program. Inside a user namespace it
/// may have them and be refused nevertheless.
fn may_load() -> bool {
    let enough = |has: CapabilitySet| {
        has.contains(CapabilitySet::SYS_ADMIN) || has.contains(CapabilitySet::BPF | CapabilitySet::PERFMON)
    };
    rustix::thread::capabilities(None).is_ok_and(|sets| enough(sets.effective))
}

/// The loaded program, and a link for each process that was read.
#[derive(Debug)]
pub struct TaskIterator {
    program: OwnedFd,
    links: BTreeMap<Pid, OwnedFd>,
    buffer: Vec<u8>,
}

impl TaskIterator {
    /// Loads the program and tries it on this process: some milliseconds, most of them for the
    /// kernel's description of its types. `root` is the folder that contains `proc` and `sys`.
    ///
    /// # Errors
    /// [`NotAtOnce`].
    pub fn open(root: &Path) -> Result<Self, NotAtOnce> {
        if !cfg!(feature = "bpf") {
            return Err(NotAtOnce::NotBuilt);
        }
        // Asked first: a process without the right pays nothing more, leaves no line in an audit's
        // log, and does not make a call for which a filter may kill it.
        if !may_load() {
            return Err(NotAtOnce::NotPermitted);
        }
        let program = {
            let types = std::fs::read(root.join("sys/kernel/btf/vmlinux")).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                let reason = NotAtOnce::of(errno);
                if reason.may_pass() { reason } else { NotAtOnce::NoTypes(errno) }
            })?;
            let btf = Btf::parse(&types).ok_or(NotAtOnce::BadTypes)?;
            IteratorProgram::new(&btf).map_err(NotAtOnce::NoSuchName)?
        };
        let load =
            || bpf::load_iterator(&program.instructions, program::LICENCE, program::NAME, program.function.0);
        // A signal that is pending ends the kernel's check of the program.
        let mut tries = 1..LOAD_TRIES;
        let loaded = loop {
            match load() {
                Err(Errno::AGAIN) if tries.next().is_some() => {}
                loaded => break loaded,
            }
        };
        let program = loaded.map_err(|errno| match errno {
            Errno::PERM => NotAtOnce::NotPermitted,
            Errno::NOSYS => NotAtOnce::NoCall,
            errno => NotAtOnce::of(errno),
        })?;
        let mut iterator = Self { program, links: BTreeMap::new(), buffer: Vec::new() };
        iterator.try_on_self(&root.join("proc"))?;
        Ok(iterator)
    }

    fn try_on_self(&mut self, proc: &Path) -> Result<(), NotAtOnce> {
        let own = Pid::own();
        let stat = process::stat(proc, own).map_err(|_| NotAtOnce::OtherNumbers)?;
        let mut records = Vec::new();
        let read = self.read(own, &mut records);
        self.forget(own);
        read.map_err(|errno| match errno {
            Errno::INVAL | Errno::TOOBIG => NotAtOnce::NoParameter,
            Errno::PERM | Errno::ACCESS => NotAtOnce::NotPermitted,
            errno => NotAtOnce::of(errno),
        })?;
        let is_own = |record: &TaskRecord| record.tid == own.main_thread() && record.start == stat.start;
        let only = records.iter().all(|record| record.pid == own);
        if only && records.iter().any(is_own) { Ok(()) } else { Err(NotAtOnce::OtherNumbers) }
    }

    /// Appends a record of each thread of a process. A process that has ended has none.
    ///
    /// # Errors
    /// The kernel's error; records read before it stay appended.
    pub fn read(&mut self, pid: Pid, records: &mut Vec<TaskRecord>) -> Result<(), Errno> {
        let link = match self.links.entry(pid) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(bpf::link_to_process(&self.program, pid.0)?)
            }
        };
        let pass = bpf::begin_pass(&*link)?;
        self.buffer.resize(READING_BYTES, 0);
        let mut many = 0;
        while many < RECORDS_MAX {
            let read = match rustix::io::read(&pass, &mut self.buffer[..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(errno) => return Err(errno),
            };
            let before = records.len();
            records.extend(TaskRecord::all(&self.buffer[..read]));
            many += records.len() - before;
            // The kernel gives whole records. A reading that is not made of them is not understood.
            if (records.len() - before) * RECORD_BYTES != read {
                return Err(Errno::BADMSG);
            }
        }
        Ok(())
    }

    /// Returns whether a descriptor is open for a process.
    pub fn has_link(&self, pid: Pid) -> bool {
        self.links.contains_key(&pid)
    }

    /// Closes the link of a process.
    pub fn forget(&mut self, pid: Pid) {
        self.links.remove(&pid);
    }

    /// Closes the links of all processes but these.
    pub fn retain(&mut self, mut keep: impl FnMut(Pid) -> bool) {
        self.links.retain(|pid, _| keep(*pid));
    }

    /// Returns the number of open descriptors.
    pub fn descriptors(&self) -> usize {
        1 + self.links.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Tid;
    use crate::skip::skipped;
    use std::sync::{Arc, Barrier};
    use trimtab_core::ids::OsCpu;

    fn here() -> Option<TaskIterator> {
        TaskIterator::open(Path::new("/")).map_err(|why| skipped(format_args!("{} ({why})", why.word()))).ok()
    }

    /// Runs, waits and slices of a thread, from `/proc` and without the reader of this crate.
    fn schedstat(tid: Tid) -> [u64; 3] {
        let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
        let words: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        words.try_into().unwrap()
    }

    fn records(iterator: &mut TaskIterator) -> BTreeMap<Tid, TaskRecord> {
        let mut records = Vec::new();
        iterator.read(Pid::own(), &mut records).unwrap();
        assert!(records.iter().all(|record| record.pid == Pid::own()));
        records.into_iter().map(|record| (record.tid, record)).collect()
    }

    #[test]
    fn records_of_a_hundred_sleeping_threads_equal_proc() {
        let Some(mut iterator) = here() else { return };
        let (ready, end) = (Arc::new(Barrier::new(101)), Arc::new(Barrier::new(101)));
        let (tell, told) = std::sync::mpsc::channel();
        let threads: Vec<_> = (0..100)
            .map(|_| {
                let (ready, end, tell) = (ready.clone(), end.clone(), tell.clone());
                std::thread::spawn(move || {
                    tell.send(Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())).unwrap();
                    ready.wait();
                    end.wait();
                })
            })
            .collect();
        ready.wait();
        let tids: Vec<Tid> = told.iter().take(100).collect();
        // A thread that was read twice with the same counters, before and after the pass, slept.
        let mut same = 0;
        for _ in 0..1_000 {
            let before: Vec<_> = tids.iter().map(|tid| schedstat(*tid)).collect();
            let records = records(&mut iterator);
            same = 0;
            for (tid, before) in tids.iter().zip(before) {
                // The kernel ends a pass early if the thread at which it stands has ended: another
                // test of this process may end one.
                let Some(record) = records.get(tid) else { break };
                let stat = process::thread_stat(Path::new("/proc"), Pid::own(), *tid).unwrap();
                let read = [record.run.0, record.wait.0, record.slices];
                assert!(read.iter().zip(before).all(|(now, before)| *now >= before), "{read:?} {before:?}");
                assert_eq!(record.start, stat.start);
                if schedstat(*tid) == before {
                    assert_eq!(read, before);
                    assert_eq!(Some(record.cpu), stat.last_cpu);
                    assert_eq!(record.ready, stat.state == crate::process::State::Running);
                    same += 1;
                }
            }
            if same == 100 {
                break;
            }
        }
        assert_eq!(same, 100, "all sleep in the end");
        end.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let left = records(&mut iterator);
        assert!(tids.iter().all(|tid| !left.contains_key(tid) || left[tid].start.0 > 0));
        assert!(OsCpu(0) <= left.values().next().unwrap().cpu);
    }

    #[test]
    fn a_process_that_has_ended_has_no_records() {
        let Some(mut iterator) = here() else { return };
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid(child.id());
        let mut records = Vec::new();
        iterator.read(pid, &mut records).unwrap();
        assert_eq!(records.iter().map(|record| record.tid).collect::<Vec<_>>(), [pid.main_thread()]);
        child.kill().unwrap();
        child.wait().unwrap();
        records.clear();
        iterator.read(pid, &mut records).unwrap();
        assert!(records.iter().all(|record| record.pid != pid), "{records:?}");
        assert_eq!(iterator.descriptors(), 2);
        iterator.retain(|_| false);
        assert_eq!(iterator.descriptors(), 1);
    }
}

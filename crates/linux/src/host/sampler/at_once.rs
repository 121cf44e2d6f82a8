//! Reading at once: the records of large processes for one sample, where the kernel permits it.
//!
//! Problem: a program of 100 threads that is read each 10 ms costs 100 to 300 calls a sample. Idea:
//! [`TaskIterator`] reads all threads of a process by four calls. Most watched programs are small,
//! so it is opened at the first large process, by a thread of its own: it takes some milliseconds,
//! and a balancing step must not wait for them. The files in `/proc` serve until it is open, and
//! for good if it cannot be opened.
//!
//! Properties: a record is used only in the sample that read it, and only for the thread whose
//! number and start it has. Its descriptors count in the [`DescriptorBudget`], and may exceed it:
//! each saves those of 16 threads or more, which are closed when the first record comes.

use crate::host::discovery::WatchedThread;
use crate::host::procfs::{DescriptorBudget, Procfs};
use crate::process::Pid;
use crate::task_iterator::{NotAtOnce, TaskIterator, TaskRecord};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Smallest number of wanted threads of a process that is read at once. Chosen: with fewer, a pass
/// saves less than it costs.
pub(in crate::host) const WANTED_MIN: usize = 16;
/// A pass reads all threads of a process: it is taken if at least one in this number is wanted.
/// Chosen: a record costs a quarter of a file.
pub(in crate::host) const ONE_IN: usize = 4;
/// Number of samples after which a reader is opened again, if the reason may pass.
const REST_SAMPLES: u32 = 1_000;

/// Whether threads of large processes are read all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadAtOnce {
    /// No process was large enough so far, or it is switched off.
    #[default]
    NotNeeded,
    /// The kernel is being asked; files are read meanwhile.
    Opening,
    /// They are read at once.
    Open,
    /// They are read file by file, for this reason.
    Refused(NotAtOnce),
}

#[derive(Debug)]
enum Reader {
    NotNeeded,
    Opening(JoinHandle<Result<TaskIterator, NotAtOnce>>),
    Open(TaskIterator),
    /// The reason, and the number of samples since.
    Refused(NotAtOnce, u32),
}

/// The reader, and the records of this sample.
#[derive(Debug)]
pub(super) struct AtOnce {
    reader: Reader,
    /// Number of its descriptors that the budget counts.
    counted: usize,
    /// Records of this sample, ascending by their numbers.
    records: Vec<TaskRecord>,
    /// Processes most of whose threads are not watched: a pass over all of them costs more than
    /// their files.
    too_large: BTreeSet<Pid>,
}

impl AtOnce {
    pub(super) fn new() -> Self {
        Self { reader: Reader::NotNeeded, counted: 0, records: Vec::new(), too_large: BTreeSet::new() }
    }

    pub(super) fn state(&self) -> ReadAtOnce {
        match &self.reader {
            Reader::NotNeeded => ReadAtOnce::NotNeeded,
            Reader::Opening(_) => ReadAtOnce::Opening,
            Reader::Open(_) => ReadAtOnce::Open,
            Reader::Refused(why, _) => ReadAtOnce::Refused(*why),
        }
    }

    /// Begins a sample: the records of the sample before are dropped. Returns whether processes may
    /// be read at once in this one.
    pub(super) fn begin(&mut self) -> bool {
        self.records.clear();
        match &mut self.reader {
            Reader::Refused(why, samples) if why.may_pass() => {
                *samples += 1;
                if *samples >= REST_SAMPLES {
                    self.reader = Reader::NotNeeded;
                }
                matches!(self.reader, Reader::NotNeeded)
            }
            Reader::Refused(..) => false,
            _ => true,
        }
    }

    /// Reads the records of these processes, each with the number of its threads that are watched.
    pub(super) fn read(&mut self, large: &[(Pid, usize)], proc: &Arc<Procfs>, budget: &DescriptorBudget) {
        if !large.is_empty() {
            self.open(proc, budget);
        }
        let Self { reader: Reader::Open(iterator), counted, records, too_large } = self else { return };
        let mut fault = None;
        for (pid, watched) in large {
            if too_large.contains(pid) {
                continue;
            }
            if !iterator.has_link(*pid) {
                budget.count();
                *counted += 1;
            }
            let before = records.len();
            match iterator.read(*pid, records) {
                // The process may have ended, and a full table of descriptors may have room later.
                Ok(()) | Err(Errno::SRCH | Errno::NOENT | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {}
                Err(errno) => fault = Some(errno),
            }
            if records.len() - before > watched.saturating_mul(ONE_IN) {
                too_large.insert(*pid);
                iterator.forget(*pid);
            }
        }
        records.sort_unstable_by_key(|record| record.tid);
        self.settle(budget);
        if let Some(errno) = fault {
            self.close(NotAtOnce::Refused(errno), budget);
        }
    }

    /// Begins to open the reader, or finds that it is open.
    fn open(&mut self, proc: &Arc<Procfs>, budget: &DescriptorBudget) {
        self.reader = match std::mem::replace(&mut self.reader, Reader::NotNeeded) {
            Reader::NotNeeded if !cfg!(feature = "bpf") => Reader::Refused(NotAtOnce::NotBuilt, 0),
            Reader::NotNeeded if !proc.shares_numbers() => Reader::Refused(NotAtOnce::OtherNumbers, 0),
            Reader::NotNeeded => {
                let root = proc.root().to_owned();
                let work = std::thread::Builder::new().name("reader".to_owned());
                match work.spawn(move || TaskIterator::open(&root)) {
                    Ok(work) => Reader::Opening(work),
                    Err(error) => {
                        let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
                        Reader::Refused(NotAtOnce::NotNow(errno), 0)
                    }
                }
            }
            Reader::Opening(work) if work.is_finished() => match work.join() {
                Ok(Ok(iterator)) => {
                    budget.count();
                    self.counted = 1;
                    Reader::Open(iterator)
                }
                Ok(Err(why)) => Reader::Refused(why, 0),
                Err(_) => Reader::Refused(NotAtOnce::BadTypes, 0),
            },
            reader => reader,
        };
    }

    /// Gives descriptors back that are closed.
    fn settle(&mut self, budget: &DescriptorBudget) {
        let open = match &self.reader {
            Reader::Open(iterator) => iterator.descriptors(),
            _ => 0,
        };
        for _ in open..self.counted {
            budget.give_back();
        }
        self.counted = self.counted.min(open);
    }

    fn close(&mut self, why: NotAtOnce, budget: &DescriptorBudget) {
        self.reader = Reader::Refused(why, 0);
        self.settle(budget);
    }

    /// Closes the link of a process that has ended or is no longer watched.
    pub(super) fn forget(&mut self, pid: Pid, budget: &DescriptorBudget) {
        self.too_large.remove(&pid);
        if let Reader::Open(iterator) = &mut self.reader {
            iterator.forget(pid);
            self.settle(budget);
        }
    }

    /// Returns the record of this thread, if this sample read it.
    pub(super) fn record(&self, thread: &WatchedThread) -> Option<TaskRecord> {
        let at = self.records.binary_search_by_key(&thread.tid, |record| record.tid).ok()?;
        let record = self.records.get(at)?;
        (record.pid == thread.pid && record.start == thread.start).then_some(*record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{StartTime, Tid};
    use crate::skip::skipped;
    use std::path::Path;
    use trimtab_core::ids::ProgramId;
    use trimtab_core::time::Span;

    fn watched(record: &TaskRecord) -> WatchedThread {
        WatchedThread {
            program: ProgramId(0),
            interest: crate::host::Interest::Any,
            pid: record.pid,
            tid: record.tid,
            start: record.start,
            name: String::new(),
        }
    }

    fn made(pid: u32, tid: u32, start: u64) -> TaskRecord {
        TaskRecord {
            pid: Pid(pid),
            tid: Tid(tid),
            start: StartTime(start),
            run: Span(1),
            wait: Span(2),
            slices: 3,
            voluntary: 4,
            ready: true,
            cpu: trimtab_core::ids::OsCpu(0),
        }
    }

    #[test]
    fn a_record_serves_only_the_thread_whose_number_and_start_it_has() {
        let mut at_once = AtOnce::new();
        at_once.records = vec![made(1, 5, 100), made(1, 7, 100), made(9, 9, 300)];
        assert_eq!(at_once.record(&watched(&made(1, 7, 100))), Some(made(1, 7, 100)));
        assert_eq!(at_once.record(&watched(&made(1, 7, 99))), None, "an earlier thread of this number");
        assert_eq!(at_once.record(&watched(&made(2, 7, 100))), None, "of another process");
        assert_eq!(at_once.record(&watched(&made(1, 6, 100))), None);
    }

    /// Reads a process as a sample does.
    fn sample(at_once: &mut AtOnce, large: &[(Pid, usize)], proc: &Arc<Procfs>, budget: &DescriptorBudget) {
        if at_once.begin() {
            at_once.read(large, proc, budget);
        }
    }

    /// Reads this process until the reader is open or refused; returns whether it is open.
    fn opened(at_once: &mut AtOnce, proc: &Arc<Procfs>, budget: &DescriptorBudget) -> bool {
        while matches!(at_once.state(), ReadAtOnce::NotNeeded | ReadAtOnce::Opening) {
            sample(at_once, &[(Pid::own(), 1_000)], proc, budget);
            std::thread::yield_now();
        }
        if let ReadAtOnce::Refused(why) = at_once.state() {
            skipped(format_args!("{} ({why})", why.word()));
            return false;
        }
        true
    }

    #[test]
    fn descriptors_are_counted_and_given_back() {
        let proc = Arc::new(Procfs::open(Path::new("/proc")).unwrap());
        // Files of threads may have taken the whole budget.
        for most in [None, Some(0)] {
            let budget = DescriptorBudget::of_this_process(most);
            let mut at_once = AtOnce::new();
            sample(&mut at_once, &[], &proc, &budget);
            assert_eq!(at_once.state(), ReadAtOnce::NotNeeded, "nothing is opened without a large process");
            if !opened(&mut at_once, &proc, &budget) {
                return assert_eq!(budget.used(), 0);
            }
            sample(&mut at_once, &[(Pid::own(), 1_000)], &proc, &budget);
            assert_eq!(budget.used(), 2, "the program and the link");
            assert!(at_once.records.iter().any(|record| record.tid == Pid::own().main_thread()));
            at_once.forget(Pid::own(), &budget);
            assert_eq!(budget.used(), 1);
            sample(&mut at_once, &[], &proc, &budget);
            assert!(at_once.records.is_empty(), "records of the sample before are not used");
            at_once.close(NotAtOnce::Refused(Errno::IO), &budget);
            let refused = ReadAtOnce::Refused(NotAtOnce::Refused(Errno::IO));
            assert_eq!((budget.used(), at_once.state()), (0, refused));
            assert!(!(0..2 * REST_SAMPLES).any(|_| at_once.begin()), "for good");
        }
    }

    #[test]
    fn a_process_most_of_whose_threads_are_not_watched_is_read_by_files() {
        let proc = Arc::new(Procfs::open(Path::new("/proc")).unwrap());
        let budget = DescriptorBudget::of_this_process(None);
        let mut at_once = AtOnce::new();
        if !opened(&mut at_once, &proc, &budget) {
            return;
        }
        sample(&mut at_once, &[(Pid::own(), 0)], &proc, &budget);
        assert_eq!(budget.used(), 1, "no link is kept");
        sample(&mut at_once, &[(Pid::own(), 0)], &proc, &budget);
        assert!(at_once.records.is_empty());
        at_once.forget(Pid::own(), &budget);
        sample(&mut at_once, &[(Pid::own(), 1_000)], &proc, &budget);
        assert!(!at_once.records.is_empty(), "its number may be another process's by now");
    }

    #[test]
    fn a_reason_that_may_pass_is_asked_again() {
        let mut at_once = AtOnce::new();
        at_once.reader = Reader::Refused(NotAtOnce::NotNow(Errno::MFILE), 0);
        let tried = (1..=REST_SAMPLES).find(|_| at_once.begin());
        assert_eq!((tried, at_once.state()), (Some(REST_SAMPLES), ReadAtOnce::NotNeeded));
    }
}

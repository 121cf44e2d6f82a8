//! Sampler: reads the kernel's counters of each thread and CPU at the lowest cost.
//!
//! Each thread's counters are read through a descriptor that is kept while there is room
//! ([`DescriptorBudget`]); values that were not requested are not read. A failed reading is the
//! sign that a thread has ended. Threads of large processes are read all at once where the kernel
//! permits it (`at_once`): a thread with a record costs no call.
//!
//! Counters of suspended, stopped and traced threads do not change; so have the vCPUs of a virtual
//! machine that is paused.

pub(super) mod at_once;
pub(super) mod counters;

pub use at_once::ReadAtOnce;
pub use counters::Unread;

use super::discovery::WatchedThread;
use super::procfs::{self, DescriptorBudget, Procfs};
use crate::process::{self, Pid, Stat, State, Tid};
use crate::survey::LoadSample;
use crate::task_iterator::TaskRecord;
use at_once::AtOnce;
use counters::{Files, Source, ThreadCounters};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use trimtab_core::balance::Wanted;
use trimtab_core::ids::{OsCpu, ThreadId};
use trimtab_core::observe::{CpuSample, ThreadSample};
use trimtab_core::time::Span;

/// Number of readings for which a thread with unchanged counters is checked for sleep each time.
/// Pools of sleeping threads are large: after these readings the thread is checked once per this
/// number of readings, and after [`ASLEEP_READINGS`] of sleep only once per that number, with the
/// threads spread over the readings.
const CHECKED_READINGS: u32 = 8;
const ASLEEP_READINGS: u32 = 64;
/// Number of records after which a thread's name is read again; the second reading reads it too,
/// since most threads are named at their start.
const NAME_READINGS: u32 = 256;
/// The same for the main thread of a process, whose name also tells that the process is another
/// program now.
const MAIN_NAME_READINGS: u32 = 8;

/// Returns whether a thread without progress for this number of readings is checked for sleep.
fn is_asked(still: u32, tid: Tid) -> bool {
    let one_in = |readings: u32| still.wrapping_add(tid.0).is_multiple_of(readings);
    still <= CHECKED_READINGS
        || (still < ASLEEP_READINGS && one_in(CHECKED_READINGS))
        || one_in(ASLEEP_READINGS)
}

/// Returns whether the name of a thread is read beside its record of this number.
fn is_named(records: u32, thread: &WatchedThread) -> bool {
    let every = if thread.tid == thread.pid.main_thread() { MAIN_NAME_READINGS } else { NAME_READINGS };
    records == 2 || (records > 2 && records.wrapping_add(thread.tid.0).is_multiple_of(every))
}

/// State of one thread between two readings.
#[derive(Debug, Default)]
struct Tracked {
    files: Files,
    last: Option<ThreadCounters>,
    voluntary: Option<u64>,
    /// Number of readings since its counters moved.
    still: u32,
    /// Whether it was ready to run at the last check.
    ready: Option<bool>,
    cpu: Option<OsCpu>,
    /// `cpu` was looked up, and the thread has not been put on a CPU since: it is still there.
    placed: bool,
    /// Whether it ran between the last two readings.
    ran: bool,
    /// Number of records that were read of it.
    records: u32,
}

/// One reading of a thread.
#[derive(Clone, Debug)]
pub struct ThreadReading {
    /// The counters, for a sample.
    pub sample: ThreadSample,
    /// Its time on a CPU since the reading before.
    pub run: Span,
    /// Its stat line, if it was read: the line has the name.
    pub stat: Option<Stat>,
}

/// The part of a host that reads counters.
#[derive(Debug)]
pub struct Sampler {
    proc: Arc<Procfs>,
    budget: DescriptorBudget,
    source: Source,
    threads: BTreeMap<ThreadId, Tracked>,
    at_once: AtOnce,
    stat_file: Option<OwnedFd>,
    text: Vec<u8>,
}

impl Sampler {
    /// Makes a sampler without threads.
    pub fn new(proc: Arc<Procfs>, budget: DescriptorBudget) -> Self {
        let source = Source::of(proc.folder());
        let (threads, at_once) = (BTreeMap::new(), AtOnce::new());
        Self { proc, budget, source, threads, at_once, stat_file: None, text: Vec::new() }
    }

    /// Begins a sample. Returns whether [`Self::read_at_once`] may read processes in it.
    pub fn begin(&mut self) -> bool {
        // Records have the values of `schedstat`, and no mix of two sources is reported.
        self.at_once.begin() && self.counts_waiting()
    }

    /// Reads all threads of these processes at once, for the readings of one sample, each with the
    /// number of its threads that are watched. The processes should be large; without the kernel's
    /// permission nothing is read, and [`Self::read`] reads files.
    pub fn read_at_once(&mut self, large: &[(Pid, usize)]) {
        self.at_once.read(large, &self.proc, &self.budget);
    }

    /// Returns whether threads of large processes are read at once.
    pub fn at_once(&self) -> ReadAtOnce {
        self.at_once.state()
    }

    /// Forgets a process that has ended or is no longer watched.
    pub fn forget_process(&mut self, pid: Pid) {
        self.at_once.forget(pid, &self.budget);
    }

    /// Returns whether the kernel counts the time that threads wait for a CPU.
    pub fn counts_waiting(&self) -> bool {
        self.source == Source::Schedstat
    }

    /// Returns the CPU on which a thread ran last, as far as it is known without a reading.
    pub fn last_cpu(&self, id: ThreadId) -> Option<OsCpu> {
        self.threads.get(&id)?.cpu
    }

    /// Returns whether a thread ran between its last two readings.
    pub fn ran(&self, id: ThreadId) -> bool {
        self.threads.get(&id).is_some_and(|tracked| tracked.ran)
    }

    /// Returns how often a thread has gone to sleep, as last read.
    pub(super) fn sleeps(&self, id: ThreadId) -> Option<u64> {
        self.threads.get(&id)?.voluntary
    }

    /// Removes a thread, and closes its files.
    pub fn forget(&mut self, id: ThreadId) {
        if let Some(mut tracked) = self.threads.remove(&id) {
            tracked.files.close(&self.budget);
        }
    }

    /// Returns whether a thread's number still belongs to this thread.
    pub fn is_same(&mut self, id: ThreadId, thread: &WatchedThread) -> bool {
        let (pid, tid) = (thread.pid, thread.tid);
        match self.threads.get_mut(&id).filter(|tracked| tracked.files.show_identity()) {
            Some(tracked) => {
                let proc = self.proc.folder();
                tracked.files.counters(proc, (pid, tid), self.source, &self.budget).is_ok()
            }
            None => self.has_same_start(thread),
        }
    }

    fn has_same_start(&self, thread: &WatchedThread) -> bool {
        let stat = process::thread_stat(self.proc.path(), thread.pid, thread.tid);
        stat.is_ok_and(|stat| stat.start == thread.start)
    }

    /// Reads the requested values of a thread. `only` is the CPU to which the thread is bound, if
    /// it is known to be bound to a single one.
    ///
    /// # Errors
    /// [`Unread`]: it has ended, or could not be read this time.
    pub fn read(
        &mut self,
        id: ThreadId,
        thread: &WatchedThread,
        only: Option<OsCpu>,
        wanted: &Wanted,
    ) -> Result<ThreadReading, Unread> {
        if let Some(record) = self.at_once.record(thread) {
            return self.take_record(id, thread, &record, only, wanted);
        }
        let (pid, tid) = (thread.pid, thread.tid);
        let tracked = self.threads.entry(id).or_default();
        tracked.ran = false;
        let kept = tracked.files.show_identity();
        let now = tracked.files.counters(self.proc.folder(), (pid, tid), self.source, &self.budget)?;
        let before = tracked.last.replace(now);
        tracked.ran = before != Some(now);
        let ran = tracked.ran;
        // A thread that moves to another CPU is put on it, which counts as a slice.
        let stayed = before.is_some_and(|before| now.slices.is_some() && now.slices == before.slices);
        let backwards = before.is_some_and(|before| now.run < before.run);
        // After a reopen, the file may belong to another thread with the same number.
        if ((!kept && before.is_some()) || backwards) && !self.has_same_start(thread) {
            return Err(Unread::Gone);
        }
        let Some(tracked) = self.threads.get_mut(&id) else { return Err(Unread::Gone) };
        let proc = self.proc.folder();
        let mut seen_stat: Option<Stat> = None;
        if let Some(only) = only {
            tracked.cpu = Some(only);
        } else if wanted.places && (ran && !(stayed && tracked.placed) || tracked.cpu.is_none()) {
            seen_stat = tracked.files.stat(proc, (pid, tid), &self.budget)?;
            tracked.cpu = seen_stat.as_ref().and_then(|stat| stat.last_cpu).or(tracked.cpu);
            tracked.placed = seen_stat.as_ref().is_some_and(|stat| stat.last_cpu.is_some());
        } else if !stayed {
            // The thread may be on another CPU by now.
            tracked.placed = false;
        }
        tracked.still = if ran { 0 } else { tracked.still.saturating_add(1) };
        // A thread that was ready and has not run since is still ready: a thread that waits for a
        // CPU cannot fall asleep.
        let asked = !ran && before.is_some() && now.wait.is_some() && is_asked(tracked.still, tid);
        if asked && tracked.ready != Some(true) && seen_stat.is_none() {
            seen_stat = tracked.files.stat(proc, (pid, tid), &self.budget)?;
        }
        tracked.ready = match &seen_stat {
            _ if ran => None,
            Some(stat) if asked => Some(stat.state == State::Running),
            _ => tracked.ready,
        };
        if !wanted.sleeps {
            // A value read before a pause in the requests would be reported as if it were current.
            tracked.voluntary = None;
        } else if ran || tracked.voluntary.is_none() {
            let file = procfs::open(proc, &format!("{pid}/task/{tid}/status"))?;
            let status = procfs::read_all(file, &mut self.text)?;
            tracked.voluntary = counters::switches(status).0.or(tracked.voluntary);
        }
        let sample = ThreadSample {
            id,
            run: now.run,
            wait: now.wait,
            slices: now.slices,
            voluntary: tracked.voluntary,
            cpu: tracked.cpu,
            ready: tracked.ready,
            counts: None,
        };
        let run = now.run.less(before.map_or(Span::ZERO, |before| before.run));
        Ok(ThreadReading { sample, run, stat: seen_stat })
    }

    /// Takes the values of a thread from its record. Its start is that of the thread, so that the
    /// number cannot belong to another one.
    fn take_record(
        &mut self,
        id: ThreadId,
        thread: &WatchedThread,
        record: &TaskRecord,
        only: Option<OsCpu>,
        wanted: &Wanted,
    ) -> Result<ThreadReading, Unread> {
        let now = ThreadCounters { run: record.run, wait: Some(record.wait), slices: Some(record.slices) };
        let tracked = self.threads.entry(id).or_default();
        let before = tracked.last.replace(now);
        tracked.ran = before != Some(now);
        tracked.still = if tracked.ran { 0 } else { tracked.still.saturating_add(1) };
        tracked.cpu = Some(only.unwrap_or(record.cpu));
        tracked.placed = true;
        tracked.ready = (!tracked.ran && before.is_some()).then_some(record.ready);
        tracked.voluntary = wanted.sleeps.then_some(record.voluntary);
        tracked.records = tracked.records.saturating_add(1);
        // The record takes the place of the files.
        tracked.files.close(&self.budget);
        let mut stat = None;
        if is_named(tracked.records, thread) {
            let (proc, ids) = (self.proc.folder(), (thread.pid, thread.tid));
            stat = match tracked.files.stat_once(proc, ids) {
                Ok(stat) => stat.filter(|stat| stat.start == thread.start),
                Err(Unread::Gone) => return Err(Unread::Gone),
                // The counters are known, and the name is read another time.
                Err(Unread::Trouble) => None,
            };
        }
        let sample = ThreadSample {
            id,
            run: now.run,
            wait: now.wait,
            slices: now.slices,
            voluntary: tracked.voluntary,
            cpu: tracked.cpu,
            ready: tracked.ready,
            counts: None,
        };
        let run = now.run.less(before.map_or(Span::ZERO, |before| before.run));
        Ok(ThreadReading { sample, run, stat })
    }

    /// Reads the busy time of each CPU.
    pub fn cpus(&mut self) -> Vec<CpuSample> {
        if self.stat_file.is_none() {
            self.stat_file = procfs::open(self.proc.folder(), "stat").ok();
        }
        let Some(file) = &self.stat_file else { return Vec::new() };
        let read = procfs::read_all(file, &mut self.text).ok().and_then(|text| LoadSample::parse(text).ok());
        let span = |ticks: u64| Span::from(process::from_ticks(ticks));
        read.map(|read| {
            let cpus = read.cpus.into_iter();
            cpus.map(|(cpu, ticks)| {
                let busy = [ticks.user, ticks.nice, ticks.system, ticks.irq, ticks.softirq];
                let busy = busy.into_iter().fold(0u64, u64::saturating_add);
                CpuSample { cpu, busy: span(busy), steal: Some(span(ticks.steal)) }
            })
            .collect()
        })
        .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Interest;
    use super::*;
    use crate::process::StartTime;
    use trimtab_core::ids::ProgramId;

    #[test]
    fn names_are_read_at_the_second_record_and_then_in_turn() {
        let thread = |tid| WatchedThread {
            program: ProgramId(0),
            interest: Interest::Any,
            pid: Pid(1),
            tid: Tid(tid),
            start: StartTime(1),
            name: String::new(),
        };
        for tid in 2..600 {
            let named: Vec<u32> = (1..=1_026).filter(|records| is_named(*records, &thread(tid))).collect();
            assert_eq!(named[0], 2, "{tid}");
            assert!((5..=6).contains(&named.len()), "{tid}: {named:?}");
        }
        let most = (3..600).map(|at| (2..258).filter(|tid| is_named(at, &thread(*tid))).count()).max();
        assert_eq!(most, Some(1), "threads of one age are spread over the readings");
        let main = (3..=802).filter(|records| is_named(*records, &thread(1))).count();
        assert_eq!(main, 100, "the main thread's is read more often");
    }

    #[test]
    fn sleeping_threads_are_read_rarely_and_in_turn() {
        let asked =
            |from: u32, to: u32, tid: u32| (from..to).filter(|still| is_asked(*still, Tid(tid))).count();
        for tid in 1..200 {
            assert_eq!(asked(1, CHECKED_READINGS + 1, tid), 8, "each time at first");
            assert_eq!(
                asked(CHECKED_READINGS + 1, ASLEEP_READINGS, tid),
                (ASLEEP_READINGS / CHECKED_READINGS - 1) as usize - usize::from(tid % 8 == 0)
            );
            assert_eq!(asked(1_000, 1_000 + 4 * ASLEEP_READINGS, tid), 4);
        }
        // A pool that fell asleep together is not checked at the same reading.
        let most =
            (1_000..1_100).map(|still| (0..256).filter(|tid| is_asked(still, Tid(*tid))).count()).max();
        assert_eq!(most, Some(4));
    }
}

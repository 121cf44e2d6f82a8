//! Page migration: brings memory to another node, one process at a time, in its own thread, so that
//! no sample ever waits for it.
//!
//! Properties: a migration is answered at once (pending, or refused). Its end is in a later sample,
//! with a notice of the amount moved and of the reason why no more was moved. It stops within a
//! step of about half a millisecond when its process is no longer balanced, or when the watch ends.
//! It uses at most half of one CPU. Memory that its program bound stays where it is. For a machine
//! with one memory node the notice is given once.

use super::discovery::ThreadTable;
use super::procfs::Procfs;
use crate::memory::moving::{self, MigratedBytes, Wanted};
use crate::process::Pid;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use trimtab_core::balance::{Outcome, Refusal, Settled};
use trimtab_core::ids::{OsNode, ThreadId};
use trimtab_core::observe::{Fetched, Notice, Sample, Unfetched};
use trimtab_core::time::Span;

/// Longest pause after a step. Chosen: the longest time for which work may continue on a process
/// that is no longer balanced.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Maximal number of migrations in the queue. Chosen.
const WAITING_MAX: usize = 256;

/// A requested migration.
#[derive(Clone, Copy, Debug)]
struct PageRequest {
    thread: ThreadId,
    pid: Pid,
    to: OsNode,
}

/// The migration in progress.
#[derive(Debug)]
struct Running {
    request: PageRequest,
    stop: Arc<AtomicBool>,
    work: JoinHandle<MigratedBytes>,
}

/// The part of a host that moves pages.
#[derive(Debug)]
pub(super) struct PageMigration {
    proc: Arc<Procfs>,
    sys: PathBuf,
    running: Option<Running>,
    waiting: Vec<PageRequest>,
    /// CPU time, in ns.
    worked: Arc<AtomicU64>,
    /// Whether the notice that no memory can be moved on this machine was given.
    notice_given: bool,
}

impl PageMigration {
    pub(super) fn new(proc: Arc<Procfs>) -> Self {
        let sys = proc.root().join("sys");
        Self { proc, sys, running: None, waiting: Vec::new(), worked: Arc::default(), notice_given: false }
    }

    /// Starts to bring the memory of a thread's process to a node, or returns the refusal.
    pub(super) fn begin(
        &mut self,
        thread: ThreadId,
        to: OsNode,
        table: &ThreadTable,
        news: &mut Sample,
    ) -> Settled {
        let Some(pid) = table.threads.get(&thread).map(|thread| thread.pid) else { return Settled::Vanished };
        if let Some(why) = moving::unfit(&self.sys, to) {
            let once = why == Unfetched::OneNode;
            if !once || !self.notice_given {
                let (moved, left, why) = (0, 0, Some(why));
                let fetched = Fetched { thread, pid: pid.0, to, moved, left, why };
                news.notices.push(Notice::Memory(fetched));
            }
            self.notice_given |= once;
            return Settled::Refused(Refusal::Memory);
        }
        let running = self.running.iter().map(|running| running.request);
        if running.chain(self.waiting.iter().copied()).any(|other| other.pid == pid)
            || self.waiting.len() >= WAITING_MAX
        {
            return Settled::Refused(Refusal::Other);
        }
        self.waiting.push(PageRequest { thread, pid, to });
        self.begin_next(table, news);
        Settled::Pending
    }

    /// Starts the next migration in the queue, if none is in progress.
    fn begin_next(&mut self, table: &ThreadTable, news: &mut Sample) {
        while self.running.is_none() && !self.waiting.is_empty() {
            let request = self.waiting.remove(0);
            let Some(start) = table.processes.get(&request.pid).map(|process| process.start) else {
                end(request, MigratedBytes { why: Some(Unfetched::Ended), ..MigratedBytes::default() }, news);
                continue;
            };
            let (proc, sys, stop) = (self.proc.clone(), self.sys.clone(), Arc::new(AtomicBool::new(false)));
            let (stopped, worked) = (stop.clone(), self.worked.clone());
            let work = move || {
                let before = worked.load(Ordering::Relaxed);
                let wanted = Wanted { proc: proc.path(), sys: &sys, pid: request.pid, start, to: request.to };
                let brought = moving::bring(&wanted, &mut |took| {
                    worked.store(before.saturating_add(cpu_time()), Ordering::Relaxed);
                    // As long as the step took: the other half of the CPU remains for the program
                    // that runs here too.
                    let on = !stopped.load(Ordering::Acquire);
                    if on {
                        std::thread::sleep(took.min(PAUSE_MAX));
                    }
                    on
                });
                worked.store(before.saturating_add(cpu_time()), Ordering::Relaxed);
                brought
            };
            match std::thread::Builder::new().name("memory".to_owned()).spawn(work) {
                Ok(work) => self.running = Some(Running { request, stop, work }),
                Err(error) => {
                    let why = Some(Unfetched::Kernel(format!("no thread could be started for it: {error}")));
                    end(request, MigratedBytes { why, ..MigratedBytes::default() }, news);
                }
            }
        }
    }

    /// Reports the migrations that ended since the last sample, and stops those with a thread that
    /// is not `wanted` to move any more.
    pub(super) fn collect(
        &mut self,
        wanted: &dyn Fn(ThreadId) -> bool,
        table: &ThreadTable,
        news: &mut Sample,
    ) {
        if let Some(running) = self.running.as_ref().filter(|running| !wanted(running.request.thread)) {
            running.stop.store(true, Ordering::Release);
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (waiting, over): (Vec<PageRequest>, Vec<PageRequest>) =
            waiting.into_iter().partition(|request| wanted(request.thread));
        self.waiting = waiting;
        for request in over {
            end(request, MigratedBytes { why: Some(Unfetched::Stopped), ..MigratedBytes::default() }, news);
        }
        if let Some(running) = self.running.take_if(|running| running.work.is_finished()) {
            running.join(news);
        }
        self.begin_next(table, news);
    }

    /// Ends the migration in progress; pages moved so far stay where they are.
    pub(super) fn stop(&mut self, news: &mut Sample) {
        for request in std::mem::take(&mut self.waiting) {
            end(request, MigratedBytes { why: Some(Unfetched::Stopped), ..MigratedBytes::default() }, news);
        }
        if let Some(running) = self.running.take() {
            running.stop.store(true, Ordering::Release);
            running.join(news);
        }
    }

    /// Returns the CPU time used by page migration so far, which is not part of the cost of
    /// samples.
    pub(super) fn cost(&self) -> Span {
        Span(self.worked.load(Ordering::Relaxed))
    }
}

impl Running {
    /// Waits for the end, and reports it.
    fn join(self, news: &mut Sample) {
        let failed = || MigratedBytes {
            why: Some(Unfetched::Kernel("it failed".to_owned())),
            ..MigratedBytes::default()
        };
        end(self.request, self.work.join().unwrap_or_else(|_| failed()), news);
    }
}

/// Reports the end of a migration in the next sample.
fn end(request: PageRequest, brought: MigratedBytes, news: &mut Sample) {
    let PageRequest { thread, pid, to } = request;
    let MigratedBytes { moved, left, why } = brought;
    let end = match &why {
        Some(Unfetched::Ended) => Settled::Vanished,
        // A few pages that are in use at the moment are not worth a warning.
        Some(Unfetched::Busy | Unfetched::Huge) if moved > 0 && moved >= left => Settled::Applied,
        Some(_) => Settled::Refused(Refusal::Memory),
        None => Settled::Applied,
    };
    news.settled.push(Outcome { thread, end });
    news.notices.push(Notice::Memory(Fetched { thread, pid: pid.0, to, moved, left, why }));
}

/// Returns the CPU time of this thread, in ns.
fn cpu_time() -> u64 {
    u64::try_from(crate::sys::clock::of_this_thread().as_nanos()).unwrap_or(u64::MAX)
}

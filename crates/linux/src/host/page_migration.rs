//! Page migration: memory is brought to another node, one process at a time, by a thread of its
//! own, so that no look ever waits for it.
//!
//! Properties: a migration is answered at once (pending, or refused), and its end comes with a
//! later sample, with a notice of how much came and why not more; it ends within a step of half a
//! millisecond or so when its process is left alone from then on, or the watching ends; it uses at
//! most half of one CPU; memory that its program bound stays where it is. A machine with one node
//! of memory is told once.

use super::discovery::ThreadTable;
use super::procfs::Procfs;
use crate::memory::moving::{self, Brought, Wanted};
use crate::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use trimtab_core::balance::{Outcome, Refusal, Settled};
use trimtab_core::ids::{OsNode, ThreadId};
use trimtab_core::observe::{Fetched, Notice, Sample, Unfetched};
use trimtab_core::time::Span;

/// The longest pause after a step. Chosen: as long as a process that is no longer balanced may be
/// worked on.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Migrations that wait for their turn. Chosen.
const WAITING_MAX: usize = 256;

/// A migration that was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    thread: ThreadId,
    pid: Pid,
    to: OsNode,
}

/// The migration that is under way.
#[derive(Debug)]
struct Running {
    asked: Asked,
    stop: Arc<AtomicBool>,
    work: JoinHandle<Brought>,
}

/// The part of a host that moves pages.
#[derive(Debug)]
pub(super) struct PageMigration {
    proc: Arc<Procfs>,
    sys: PathBuf,
    running: Option<Running>,
    waiting: Vec<Asked>,
    /// CPU time, in ns.
    worked: Arc<AtomicU64>,
    /// Told already that no memory can be moved on this machine.
    told: bool,
}

impl PageMigration {
    pub(super) fn new(proc: Arc<Procfs>) -> Self {
        let sys = proc.root().join("sys");
        Self { proc, sys, running: None, waiting: Vec::new(), worked: Arc::default(), told: false }
    }

    /// Begins to bring the memory of a thread's process to a node, or says why not.
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
            if !once || !self.told {
                let (moved, left, why) = (0, 0, Some(why));
                let fetched = Fetched { thread, pid: pid.0, to, moved, left, why };
                news.notices.push(Notice::Memory(fetched));
            }
            self.told |= once;
            return Settled::Refused(Refusal::Memory);
        }
        let running = self.running.iter().map(|running| running.asked);
        if running.chain(self.waiting.iter().copied()).any(|other| other.pid == pid)
            || self.waiting.len() >= WAITING_MAX
        {
            return Settled::Refused(Refusal::Other);
        }
        self.waiting.push(Asked { thread, pid, to });
        self.begin_next(table, news);
        Settled::Pending
    }

    /// The next in turn, if none is under way.
    fn begin_next(&mut self, table: &ThreadTable, news: &mut Sample) {
        while self.running.is_none() && !self.waiting.is_empty() {
            let asked = self.waiting.remove(0);
            let Some(start) = table.processes.get(&asked.pid).map(|process| process.start) else {
                end(asked, Brought { why: Some(Unfetched::Ended), ..Brought::default() }, news);
                continue;
            };
            let (proc, sys, stop) = (self.proc.clone(), self.sys.clone(), Arc::new(AtomicBool::new(false)));
            let (stopped, worked) = (stop.clone(), self.worked.clone());
            let work = move || {
                let before = worked.load(Ordering::Relaxed);
                let wanted = Wanted { proc: proc.path(), sys: &sys, pid: asked.pid, start, to: asked.to };
                let brought = moving::bring(&wanted, &mut |took| {
                    worked.store(before.saturating_add(cpu_time()), Ordering::Relaxed);
                    // As long as it took: the program that runs here too has the other half.
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
                Ok(work) => self.running = Some(Running { asked, stop, work }),
                Err(error) => {
                    let why = Some(Unfetched::Kernel(format!("no thread could be started for it: {error}")));
                    end(asked, Brought { why, ..Brought::default() }, news);
                }
            }
        }
    }

    /// Tells the migrations that ended since the last look, and stops those whose thread is not
    /// `wanted` to move any more.
    pub(super) fn look(&mut self, wanted: &dyn Fn(ThreadId) -> bool, table: &ThreadTable, news: &mut Sample) {
        if let Some(running) = self.running.as_ref().filter(|running| !wanted(running.asked.thread)) {
            running.stop.store(true, Ordering::Release);
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (waiting, over): (Vec<Asked>, Vec<Asked>) =
            waiting.into_iter().partition(|asked| wanted(asked.thread));
        self.waiting = waiting;
        for asked in over {
            end(asked, Brought { why: Some(Unfetched::Stopped), ..Brought::default() }, news);
        }
        if let Some(running) = self.running.take_if(|running| running.work.is_finished()) {
            running.join(news);
        }
        self.begin_next(table, news);
    }

    /// Ends what is under way; what came until then stays where it is.
    pub(super) fn stop(&mut self, news: &mut Sample) {
        for asked in std::mem::take(&mut self.waiting) {
            end(asked, Brought { why: Some(Unfetched::Stopped), ..Brought::default() }, news);
        }
        if let Some(running) = self.running.take() {
            running.stop.store(true, Ordering::Release);
            running.join(news);
        }
    }

    /// The CPU time that bringing memory took so far, which is not part of what looks cost.
    pub(super) fn cost(&self) -> Span {
        Span(self.worked.load(Ordering::Relaxed))
    }
}

impl Running {
    /// Waits for the end, and tells it.
    fn join(self, news: &mut Sample) {
        let failed =
            || Brought { why: Some(Unfetched::Kernel("it failed".to_owned())), ..Brought::default() };
        end(self.asked, self.work.join().unwrap_or_else(|_| failed()), news);
    }
}

/// Tells the end of a migration in the next sample.
fn end(asked: Asked, brought: Brought, news: &mut Sample) {
    let Asked { thread, pid, to } = asked;
    let Brought { moved, left, why } = brought;
    let end = match &why {
        Some(Unfetched::Ended) => Settled::Vanished,
        // A few pages that are in use just then are no reason for a warning.
        Some(Unfetched::Busy | Unfetched::Huge) if moved > 0 && moved >= left => Settled::Applied,
        Some(_) => Settled::Refused(Refusal::Memory),
        None => Settled::Applied,
    };
    news.settled.push(Outcome { thread, end });
    news.notices.push(Notice::Memory(Fetched { thread, pid: pid.0, to, moved, left, why }));
}

/// How long this thread has been on a CPU, in ns.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, rest) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

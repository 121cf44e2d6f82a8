//! Memory that follows threads: one process at a time, by a thread of its own, so that no look ever waits for it.
//!
//! Properties: a fetch is answered at once (pending, or refused), and its end comes with a later sample, with a notice of how much came
//! and why not more; a process that is left alone from then on, and the end of the watching, end it within a step of half a millisecond or
//! so; at most half of one CPU is used for it. What a machine with one node of memory cannot do is said once.

use crate::host::Live;
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

/// The longest pause after a step. Chosen: so long a process may live on that nobody balances any more.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// So many wait for their turn. Chosen.
const WAITING_MAX: usize = 256;

/// One that was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    thread: ThreadId,
    pid: Pid,
    to: OsNode,
}

/// The one that is under way.
#[derive(Debug)]
struct Running {
    asked: Asked,
    stop: Arc<AtomicBool>,
    work: JoinHandle<Brought>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    running: Option<Running>,
    waiting: Vec<Asked>,
    /// CPU time, in ns.
    worked: Arc<AtomicU64>,
    /// Told already that no memory can be moved on this machine.
    told: bool,
}

impl Live {
    /// Begins to bring the memory of a thread's process to a node, or says why not.
    pub(super) fn fetch(&mut self, thread: ThreadId, pid: Pid, to: OsNode) -> Settled {
        if let Some(why) = moving::unfit(&self.sys(), to) {
            let once = why == Unfetched::OneNode;
            if !once || !self.fetching.told {
                let (moved, left, why) = (0, 0, Some(why));
                let fetched = Fetched { thread, pid: pid.0, to, moved, left, why };
                self.later.notices.push(Notice::Memory(fetched));
            }
            self.fetching.told |= once;
            return Settled::Refused(Refusal::Memory);
        }
        let running = self.fetching.running.iter().map(|running| running.asked);
        if running.chain(self.fetching.waiting.iter().copied()).any(|other| other.pid == pid)
            || self.fetching.waiting.len() >= WAITING_MAX
        {
            return Settled::Refused(Refusal::Other);
        }
        self.fetching.waiting.push(Asked { thread, pid, to });
        self.begin_fetch();
        Settled::Pending
    }

    fn sys(&self) -> PathBuf {
        self.proc.parent().unwrap_or(&self.proc).join("sys")
    }

    /// The next in turn, if none is under way.
    fn begin_fetch(&mut self) {
        while self.fetching.running.is_none() && !self.fetching.waiting.is_empty() {
            let asked = self.fetching.waiting.remove(0);
            let Some(start) = self.table.processes.get(&asked.pid).map(|process| process.start) else {
                self.end_fetch(asked, Brought { why: Some(Unfetched::Ended), ..Brought::default() });
                continue;
            };
            let (proc, sys, stop) = (self.proc.clone(), self.sys(), Arc::new(AtomicBool::new(false)));
            let (stopped, worked) = (stop.clone(), self.fetching.worked.clone());
            let work = move || {
                let before = worked.load(Ordering::Relaxed);
                let wanted = Wanted { proc: &proc, sys: &sys, pid: asked.pid, start, to: asked.to };
                let brought = moving::bring(&wanted, &mut |took| {
                    worked.store(before.saturating_add(cpu_time()), Ordering::Relaxed);
                    // As long as it took: whoever runs here too has the other half.
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
                Ok(work) => self.fetching.running = Some(Running { asked, stop, work }),
                Err(error) => {
                    let why = Some(Unfetched::Kernel(format!("no thread could be started for it: {error}")));
                    self.end_fetch(asked, Brought { why, ..Brought::default() });
                }
            }
        }
    }

    /// What ended since the last look goes into the sample; what nobody wants any more is ended.
    pub(super) fn look_at_fetches(&mut self, sample: &mut Sample) {
        let wanted = |asked: &Asked, live: &Self| {
            live.table
                .threads
                .get(&asked.thread)
                .is_some_and(|thread| thread.left.is_none() && thread.wish.is_wanted())
        };
        if let Some(running) = &self.fetching.running
            && !wanted(&running.asked, self)
        {
            running.stop.store(true, Ordering::Release);
        }
        let waiting = std::mem::take(&mut self.fetching.waiting);
        let (waiting, over): (Vec<Asked>, Vec<Asked>) =
            waiting.into_iter().partition(|asked| wanted(asked, self));
        self.fetching.waiting = waiting;
        for asked in over {
            self.end_fetch(asked, Brought { why: Some(Unfetched::Stopped), ..Brought::default() });
        }
        if self.fetching.running.as_ref().is_some_and(|running| running.work.is_finished())
            && let Some(Running { asked, work, .. }) = self.fetching.running.take()
        {
            let failed =
                || Brought { why: Some(Unfetched::Kernel("it failed".to_owned())), ..Brought::default() };
            self.end_fetch(asked, work.join().unwrap_or_else(|_| failed()));
        }
        self.begin_fetch();
        sample.settled.append(&mut self.later.settled);
        sample.notices.append(&mut self.later.notices);
    }

    /// Remembers what became of one for the next sample.
    fn end_fetch(&mut self, asked: Asked, brought: Brought) {
        let Asked { thread, pid, to } = asked;
        let Brought { moved, left, why } = brought;
        let end = match &why {
            Some(Unfetched::Ended) => Settled::Vanished,
            // Of a few pages that are in use just then nobody needs to be warned.
            Some(Unfetched::Busy | Unfetched::Huge) if moved > 0 && moved >= left => Settled::Applied,
            Some(_) => Settled::Refused(Refusal::Memory),
            None => Settled::Applied,
        };
        self.later.settled.push(Outcome { thread, end });
        self.later.notices.push(Notice::Memory(Fetched { thread, pid: pid.0, to, moved, left, why }));
    }

    /// Ends what is under way; what came until then stays where it is.
    pub(super) fn end_fetches(&mut self) {
        for asked in std::mem::take(&mut self.fetching.waiting) {
            self.end_fetch(asked, Brought { why: Some(Unfetched::Stopped), ..Brought::default() });
        }
        if let Some(Running { asked, stop, work }) = self.fetching.running.take() {
            stop.store(true, Ordering::Release);
            let failed =
                || Brought { why: Some(Unfetched::Kernel("it failed".to_owned())), ..Brought::default() };
            self.end_fetch(asked, work.join().unwrap_or_else(|_| failed()));
        }
    }

    /// The CPU time that bringing memory took so far, which is not part of what looks cost.
    pub fn fetching_cost(&self) -> Span {
        Span(self.fetching.worked.load(Ordering::Relaxed))
    }
}

/// How long this thread has been on a CPU, in ns.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, rest) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

//! Memory placement of threads when hardware does not count: pages, or accesses, near to and far
//! from the CPUs on which each thread ran.

use super::{CounterReader, SchedCounters, mark};
use crate::host::discovery::ThreadTable;
use crate::host::procfs::Procfs;
use crate::perf::locality::{self, Pages};
use crate::process::{self, Pid};
use std::collections::BTreeMap;
use trimtab_core::balance::Wanted;
use trimtab_core::counter_budget::CounterThrottle;
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::ids::{OsCpu, OsNode, ThreadId};
use trimtab_core::observe::{MemorySample, Sample};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Time between two queries for the nodes of a process's memory.
const QUERY_PERIOD: Span = Span::from_ms(500);
/// Maximal numbers of processes queried in one sample (0.3 ms each), and of threads when each has
/// its own file (20 us).
const PROCESSES_PER_SAMPLE: usize = 8;
const FILES_PER_SAMPLE: usize = 256;

/// Answers of the kernel about memory that are still fresh.
#[derive(Debug, Default)]
pub(super) struct MemoryReader {
    nodes: BTreeMap<OsCpu, OsNode>,
    pages: BTreeMap<Pid, (Moment, Pages)>,
    /// Number of the query: pages are sampled at other places each time.
    round: u64,
}

impl MemoryReader {
    /// Drops the answers.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
    }

    /// Returns the pages of a process, queried if the last answer is old and there is `room` for
    /// one more query in this sample; `None` without room.
    fn pages(&mut self, proc: &Procfs, pid: Pid, at: Moment, room: &mut usize) -> Option<Pages> {
        let fresh = self.pages.get(&pid).is_some_and(|(asked, _)| at.since(*asked) < QUERY_PERIOD);
        if !fresh {
            *room = room.checked_sub(1)?;
            self.round = self.round.wrapping_add(1);
            // A process that may not be queried is tried again like the others, and has no pages.
            let pages = locality::resident(proc.path(), pid, self.round);
            self.pages.insert(pid, (at, pages.unwrap_or_default()));
        }
        self.pages.get(&pid).map(|(_, pages)| pages.clone())
    }
}

impl CounterReader {
    /// Counts the pages, or accesses, of threads that ran.
    pub(super) fn count_memory<'m>(
        &mut self,
        rung: Rung,
        wanted: &Wanted,
        table: &ThreadTable,
        mask: &dyn Fn(ThreadId) -> Option<&'m CpuSet>,
        sample: &mut Sample,
    ) {
        let at = sample.at;
        if self.memory.nodes.is_empty() {
            self.memory.nodes = locality::nodes_of_cpus(&self.sys);
        }
        self.memory.pages.retain(|pid, _| table.processes.contains_key(pid));
        let (mut processes, mut files) = (PROCESSES_PER_SAMPLE, FILES_PER_SAMPLE);
        for read in &mut sample.threads {
            let Some(thread) = table.threads.get(&read.id) else { continue };
            let now = SchedCounters::of(read);
            let counted = self.threads.entry(read.id).or_default();
            let ran = mark(counted, at, now, true, &CounterThrottle::FREE, &mut self.spent);
            let due = counted.tallied.is_none_or(|last| at.since(last) >= QUERY_PERIOD);
            if !due || (!ran && counted.tallied.is_some()) {
                continue;
            }
            let pages = if rung == Rung::HintFaults {
                if files == 0 {
                    continue;
                }
                files -= 1;
                locality::faults(self.proc.path(), thread.pid, thread.tid).unwrap_or_default()
            } else {
                match self.memory.pages(&self.proc, thread.pid, at, &mut processes) {
                    Some(pages) => pages,
                    None => continue,
                }
            };
            counted.tallied = Some(at);
            let from = *counted.from.get_or_insert(now);
            if pages.is_empty() {
                continue;
            }
            let here = node_of(mask(read.id), &self.memory.nodes, || {
                // For a thread that may not leave its node, the CPU is not read: the last known CPU
                // may be on another node.
                let known = read.cpu.filter(|_| wanted.places);
                let asked = || process::thread_stat(self.proc.path(), thread.pid, thread.tid).ok()?.last_cpu;
                known.or_else(asked)
            });
            let Some(node) = here else { continue };
            let (near, far) = locality::split(&pages, node);
            let tally = &mut counted.tally;
            *tally = (tally.0.saturating_add(near), tally.1.saturating_add(far));
            let ran_for = now.run.less(from.run);
            read.counts = Some(Counts {
                enabled: ran_for,
                running: ran_for,
                near: Some(tally.0),
                far: Some(tally.1),
                ..Counts::default()
            });
            sample.memory.push(MemorySample { thread: read.id, pages });
        }
    }
}

/// Returns the node of a thread: the node of all CPUs in its mask, else of the CPU where it ran
/// last.
fn node_of(
    mask: Option<&CpuSet>,
    nodes: &BTreeMap<OsCpu, OsNode>,
    cpu: impl FnOnce() -> Option<OsCpu>,
) -> Option<OsNode> {
    let node = |cpu: OsCpu| nodes.get(&cpu).copied();
    let mut mask = mask.into_iter().flat_map(CpuSet::iter).map(node);
    let first = mask.next().flatten();
    if first.is_some() && mask.all(|node| node == first) { first } else { cpu().and_then(node) }
}

//! Audit of a finished run: the context switches and migrations that the kernel counted for each
//! thread, and the nodes of its memory. Times and CPUs are in the samples, which
//! `trimtab_core::telemetry` adds up.
//!
//! Counters are read while a thread lives, since they end with it; the last values read are kept.
//! Most of the data costs more than a sample for balancing (30 us per thread, and milliseconds per
//! process for memory maps), so it is read on request: every few seconds and at the end.
//!
//! Values that were not read are missing.

use super::discovery::{ThreadTable, WatchedThread};
use super::sampler::counters;
use crate::process::{Pid, Tid};
use crate::text;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::ids::{OsNode, ThreadId};

/// Maximal number of threads with an entry of their own; further threads are summed up. Chosen: a
/// longer list is not useful to a user.
const THREADS_MAX: usize = 8_192;
/// Maximal number of processes with remembered memory; the smallest are dropped first. Chosen: the
/// data of a program that starts a process for each of its tasks must not grow with its run time.
const PROCESSES_MAX: usize = 1_024;

/// Final state of one thread.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadAudit {
    /// The host's number for it.
    pub id: ThreadId,
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Its name, printable.
    pub name: String,
    /// Number of times it went to sleep.
    pub voluntary: Option<u64>,
    /// Number of times it was preempted.
    pub involuntary: Option<u64>,
    /// Number of migrations from one CPU to another.
    pub migrations: Option<u64>,
    /// Whether it has ended.
    pub ended: bool,
}

/// Final state of the memory of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryAudit {
    /// Its pages on each node, in bytes.
    pub nodes: BTreeMap<OsNode, u64>,
    /// Memory that belongs to no file, in bytes.
    pub anonymous: Option<u64>,
    /// The part of it in huge pages, in bytes.
    pub huge: Option<u64>,
    /// Peak of bytes in memory.
    pub resident: Option<u64>,
    /// Peak of bytes touched between two readings; `None` unless the marks were cleared
    /// ([`Live::forget_touched`](super::Live::forget_touched)).
    pub touched: Option<u64>,
}

impl MemoryAudit {
    /// Returns the number of bytes, as far as it was read.
    fn bytes(&self) -> u64 {
        self.nodes.values().copied().fold(0, u64::saturating_add).max(self.anonymous.unwrap_or(0))
    }
}

/// Final state of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Audit {
    /// The threads, ascending by their number.
    pub threads: Vec<ThreadAudit>,
    /// Number of further threads, which have no entry of their own.
    pub more: u64,
    /// Memory of the processes at the last reading; of very many, the largest.
    pub memory: BTreeMap<Pid, MemoryAudit>,
}

impl Audit {
    /// Returns the sum of the processes' peaks of bytes in memory.
    pub fn resident(&self) -> Option<u64> {
        self.memory.values().filter_map(|memory| memory.resident).reduce(u64::saturating_add)
    }

    /// Returns the sum of the processes' peaks of bytes touched between two readings.
    pub fn touched(&self) -> Option<u64> {
        self.memory.values().filter_map(|memory| memory.touched).reduce(u64::saturating_add)
    }

    /// Returns the share of anonymous memory that is in huge pages.
    pub fn huge_share(&self) -> Option<f64> {
        let read = self.memory.values().filter_map(|memory| Some((memory.anonymous?, memory.huge?)));
        let (all, huge) = read.fold((0, 0), |(all, huge), (a, h)| (all + a, huge + h));
        (all > 0).then(|| huge as f64 / all as f64)
    }
}

/// Collector of an audit.
#[derive(Debug, Default)]
pub(super) struct Auditor {
    found: BTreeMap<ThreadId, ThreadAudit>,
    memory: BTreeMap<Pid, MemoryAudit>,
    more: u64,
    /// Processes with cleared marks of touched pages.
    forgot: BTreeSet<Pid>,
}

impl Auditor {
    /// Returns the entry of a thread, if there is room for one more.
    fn entry(
        &mut self,
        id: ThreadId,
        thread: &WatchedThread,
        voluntary: Option<u64>,
    ) -> Option<&mut ThreadAudit> {
        if !self.found.contains_key(&id) && self.found.len() >= THREADS_MAX {
            return None;
        }
        let entry = self.found.entry(id).or_insert_with(|| ThreadAudit {
            id,
            pid: thread.pid,
            tid: thread.tid,
            name: String::new(),
            voluntary: None,
            involuntary: None,
            migrations: None,
            ended: false,
        });
        entry.name.clone_from(&thread.name);
        entry.voluntary = voluntary.max(entry.voluntary);
        Some(entry)
    }

    /// Keeps the last reading of a process's memory.
    fn remember(&mut self, pid: Pid, memory: MemoryAudit) {
        let before = self.memory.get(&pid);
        let most = |now: Option<u64>, before: Option<u64>| now.max(before);
        let touched = memory.touched.filter(|_| self.forgot.contains(&pid));
        let memory = MemoryAudit {
            resident: most(memory.resident, before.and_then(|before| before.resident)),
            touched: most(touched, before.and_then(|before| before.touched)),
            ..memory
        };
        self.memory.insert(pid, memory);
        if self.memory.len() > PROCESSES_MAX {
            let smallest = self.memory.iter().min_by_key(|(_, memory)| memory.bytes()).map(|(pid, _)| *pid);
            smallest.and_then(|pid| self.memory.remove(&pid));
        }
    }

    /// Keeps the last count of a thread that has ended.
    pub(super) fn thread_ended(&mut self, id: ThreadId, thread: &WatchedThread, voluntary: Option<u64>) {
        match self.entry(id, thread, voluntary) {
            Some(entry) => entry.ended = true,
            None => self.more += 1,
        }
    }

    /// Reads the data of an audit for the threads and processes under watch.
    pub(super) fn look_closely(
        &mut self,
        proc: &Path,
        table: &ThreadTable,
        sleeps: &dyn Fn(ThreadId) -> Option<u64>,
    ) {
        for (id, thread) in table.threads() {
            let folder = proc.join(format!("{}/task/{}", thread.pid, thread.tid));
            let status = text::read(&folder.join("status")).unwrap_or_default();
            let (voluntary, involuntary) = counters::switches(&status);
            let migrations = text::read(&folder.join("sched")).ok().and_then(|sched| migrations(&sched));
            let Some(entry) = self.entry(id, thread, sleeps(id)) else { continue };
            entry.voluntary = voluntary.or(entry.voluntary);
            entry.involuntary = involuntary.or(entry.involuntary);
            entry.migrations = migrations.or(entry.migrations);
        }
        for pid in table.processes() {
            if let Some(memory) = memory(proc, pid) {
                self.remember(pid, memory);
            }
        }
    }

    /// Clears the kernel's marks of touched pages.
    pub(super) fn forget_touched(&mut self, proc: &Path, table: &ThreadTable) {
        for pid in table.processes() {
            let marks = proc.join(pid.to_string()).join("clear_refs");
            if self.forgot.len() < PROCESSES_MAX && std::fs::write(marks, "1").is_ok() {
                self.forgot.insert(pid);
            }
        }
    }

    /// Returns the audit so far.
    pub(super) fn audit(&self) -> Audit {
        Audit {
            threads: self.found.values().cloned().collect(),
            more: self.more,
            memory: self.memory.clone(),
        }
    }
}

/// Returns `se.nr_migrations` of a sched file.
fn migrations(sched: &[u8]) -> Option<u64> {
    let line = text::field(sched, b"se.nr_migrations")?;
    text::number(line.strip_prefix(b":").unwrap_or(line).trim_ascii())
}

/// Returns the memory of a process; `None` when nothing can be read, for example after its end.
fn memory(proc: &Path, pid: Pid) -> Option<MemoryAudit> {
    let folder = proc.join(pid.to_string());
    let maps = text::read(&folder.join("numa_maps")).ok();
    let rollup = text::read(&folder.join("smaps_rollup")).ok();
    if maps.as_ref().or(rollup.as_ref()).is_none_or(|text| text.is_empty()) {
        return None;
    }
    let kilobytes = |name: &[u8]| {
        let line = text::field(rollup.as_ref()?, name)?;
        text::words(line).next().and_then(text::number::<u64>).map(|kb| kb.saturating_mul(1024))
    };
    let status = text::read(&folder.join("status")).unwrap_or_default();
    let peak = text::field(&status, b"VmHWM:").and_then(|line| text::words(line).next());
    let peak = peak.and_then(text::number::<u64>).map(|kb| kb.saturating_mul(1024));
    Some(MemoryAudit {
        resident: peak.or_else(|| kilobytes(b"Rss:")),
        touched: kilobytes(b"Referenced:"),
        nodes: maps.map(|maps| pages(&maps)).unwrap_or_default(),
        anonymous: kilobytes(b"Anonymous:"),
        huge: kilobytes(b"AnonHugePages:"),
    })
}

/// Returns the bytes on each node, from lines like
/// `7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4`.
fn pages(maps: &[u8]) -> BTreeMap<OsNode, u64> {
    let mut nodes: BTreeMap<OsNode, u64> = BTreeMap::new();
    for line in maps.split(|&byte| byte == b'\n') {
        let value = |word: &[u8], name: &[u8]| word.strip_prefix(name).and_then(text::number::<u64>);
        let size = text::words(line).find_map(|word| value(word, b"kernelpagesize_kB=")).unwrap_or(4);
        for word in text::words(line) {
            let Some(at) = word.iter().position(|&byte| byte == b'=') else { continue };
            let node = word.strip_prefix(b"N").and_then(|_| text::number::<u32>(&word[1..at]));
            if let (Some(node), Some(pages)) = (node, text::number::<u64>(&word[at + 1..])) {
                let sum = nodes.entry(OsNode(node)).or_insert(0);
                *sum = sum.saturating_add(pages.saturating_mul(size).saturating_mul(1024));
            }
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_are_counted_by_node() {
        let maps =
            b"7f00 default anon=4 dirty=4 N0=3 N1=1 kernelpagesize_kB=4\n7e00 default file=/N9=1 stack\n";
        let memory = MemoryAudit {
            nodes: pages(maps),
            anonymous: Some(100),
            huge: Some(25),
            ..MemoryAudit::default()
        };
        assert_eq!(memory.nodes, BTreeMap::from([(OsNode(0), 12 << 10), (OsNode(1), 4 << 10)]));
        let audit = Audit { memory: BTreeMap::from([(Pid(7), memory)]), ..Audit::default() };
        assert_eq!(audit.huge_share(), Some(0.25));
    }

    #[test]
    fn the_memory_of_the_largest_processes_is_stored_up_to_a_bound() {
        let mut auditor = Auditor::default();
        let of = |bytes| MemoryAudit { anonymous: Some(bytes), ..MemoryAudit::default() };
        auditor.remember(Pid(1), of(1 << 40));
        for pid in 2..10_000 {
            auditor.remember(Pid(pid), of(u64::from(pid)));
        }
        assert_eq!(auditor.memory.len(), PROCESSES_MAX);
        assert!(auditor.memory.contains_key(&Pid(1)) && auditor.memory.contains_key(&Pid(9_999)));
    }

    #[test]
    fn migrations_are_found_among_the_other_numbers() {
        let sched = b"x (1, #threads: 1)\nse.sum_exec_runtime   :  1.5\nse.nr_migrations       :       12\n";
        assert_eq!(migrations(sched), Some(12));
        assert_eq!(migrations(b"nr_switches : 3"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), line in "(N[0-9]{1,11}=[0-9]{1,21} ?){0,4}") {
            let _ = (migrations(&bytes), pages(&bytes), pages(line.as_bytes()));
        }
    }
}

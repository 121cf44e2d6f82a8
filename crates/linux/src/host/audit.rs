//! What remains to be said when a run is over: where each thread ran, how often it was moved and
//! interrupted, and where its memory lay.
//!
//! Counters are read while a thread lives, since they end with it; what was read last is kept. Most
//! of it is dearer than a look for balancing (30 us a thread, and for memory maps milliseconds a
//! process), so it is read when asked for: every few seconds and at the end.
//!
//! Shares are in [0, 1]; what was not read is missing.

use super::discovery::{Thread, ThreadTable};
use super::sampler::{Seen, counters};
use crate::process::{Pid, Tid};
use crate::text;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trimtab_core::ids::{OsCpu, OsNode, ThreadId};
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::balance;
use trimtab_core::time::Span;

/// So many threads are kept apart; more are summed up. Chosen: nobody reads a longer list.
const THREADS_MAX: usize = 8_192;
/// The memory of so many processes is remembered; the smallest are forgotten first. Chosen: what a
/// program that starts a process for each of its tasks leaves behind must not grow with its run.
const PROCESSES_MAX: usize = 1_024;

/// What is known of one thread at the end.
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
    /// Time on a CPU.
    pub run: Span,
    /// Time ready without one.
    pub wait: Option<Span>,
    /// How often it went to sleep.
    pub voluntary: Option<u64>,
    /// How often it was interrupted by another.
    pub involuntary: Option<u64>,
    /// How often it went from one CPU to another.
    pub migrations: Option<u64>,
    /// Time on each CPU, as far as it was looked where it ran.
    pub on: BTreeMap<OsCpu, Span>,
    /// Whether it has ended.
    pub ended: bool,
}

/// What is known of the memory of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryAudit {
    /// Its pages on each node, in bytes.
    pub nodes: BTreeMap<OsNode, u64>,
    /// Memory that belongs to no file, in bytes.
    pub anonymous: Option<u64>,
    /// How much of it in huge pages.
    pub huge: Option<u64>,
    /// Bytes in memory at the most.
    pub resident: Option<u64>,
    /// Bytes touched between two looks at the most; missing where nobody asked
    /// ([`Live::forget_touched`](super::Live::forget_touched)).
    pub touched: Option<u64>,
}

impl MemoryAudit {
    /// How much there is, as far as it was read.
    fn bytes(&self) -> u64 {
        self.nodes.values().copied().fold(0, u64::saturating_add).max(self.anonymous.unwrap_or(0))
    }
}

/// All that is known at the end.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Audit {
    /// The threads, ascending by their number.
    pub threads: Vec<ThreadAudit>,
    /// How many more there were, which are not kept apart.
    pub more: u64,
    /// The time on a CPU of those.
    pub more_run: Span,
    /// The processes' memory when it was looked at last; of very many, the largest.
    pub memory: BTreeMap<Pid, MemoryAudit>,
}

impl Audit {
    /// Time of all threads on each CPU, as far as it was looked where they ran.
    pub fn run_on(&self) -> BTreeMap<OsCpu, Span> {
        let mut sums = BTreeMap::new();
        for (cpu, span) in self.threads.iter().flat_map(|thread| &thread.on) {
            let sum = sums.entry(*cpu).or_insert(Span::ZERO);
            *sum = *sum + *span;
        }
        sums
    }

    /// The lowest time on a core over the highest, of these cores: 1 is perfect balance. `None`
    /// when none was used.
    pub fn balance(&self, cores: &[CpuSet]) -> Option<f64> {
        let on = self.run_on();
        let of = |core: &CpuSet| -> Span { core.iter().filter_map(|cpu| on.get(&cpu).copied()).sum() };
        balance(cores.iter().map(of))
    }

    /// The share of the time waited of the time that CPUs were wanted.
    pub fn wait_share(&self) -> Option<f64> {
        let counted: Vec<(Span, Span)> =
            self.threads.iter().filter_map(|thread| Some((thread.run, thread.wait?))).collect();
        let (run, wait): (Span, Span) =
            (counted.iter().map(|(run, _)| *run).sum(), counted.iter().map(|(_, wait)| *wait).sum());
        wait.share_of(run + wait)
    }

    /// The share of accesses that would go to another node than the thread's, if every thread used
    /// all pages of its process alike. `nodes` says which CPUs a node has.
    pub fn remote_share(&self, nodes: &BTreeMap<OsNode, CpuSet>) -> Option<f64> {
        let (mut all, mut remote) = (0.0, 0.0);
        for (pid, memory) in &self.memory {
            let pages: u64 = memory.nodes.values().sum();
            let threads = self.threads.iter().filter(|thread| thread.pid == *pid);
            for (cpu, span) in threads.flat_map(|thread| &thread.on) {
                let here = nodes.iter().find(|(_, cpus)| cpus.contains(*cpu)).map(|(node, _)| *node);
                let (Some(here), true) = (here, pages > 0) else { continue };
                let local = memory.nodes.get(&here).copied().unwrap_or(0) as f64 / pages as f64;
                all += span.seconds();
                remote += span.seconds() * (1.0 - local);
            }
        }
        (all > 0.0).then(|| remote / all)
    }

    /// Bytes that all processes had in memory, each at its most.
    pub fn resident(&self) -> Option<u64> {
        self.memory.values().filter_map(|memory| memory.resident).reduce(u64::saturating_add)
    }

    /// Bytes that all processes touched between two looks, each at its most.
    pub fn touched(&self) -> Option<u64> {
        self.memory.values().filter_map(|memory| memory.touched).reduce(u64::saturating_add)
    }

    /// The share of anonymous memory that is in huge pages.
    pub fn huge_share(&self) -> Option<f64> {
        let read = self.memory.values().filter_map(|memory| Some((memory.anonymous?, memory.huge?)));
        let (all, huge) = read.fold((0, 0), |(all, huge), (a, h)| (all + a, huge + h));
        (all > 0).then(|| huge as f64 / all as f64)
    }
}

/// Collects it.
#[derive(Debug, Default)]
pub(super) struct Auditor {
    found: BTreeMap<ThreadId, ThreadAudit>,
    memory: BTreeMap<Pid, MemoryAudit>,
    more: u64,
    more_run: Span,
    /// Processes whose marks of touched pages were taken away.
    forgot: BTreeSet<Pid>,
}

impl Auditor {
    /// The entry of a thread, if there is room for one more.
    fn entry(&mut self, id: ThreadId, thread: &Thread, seen: Seen) -> Option<&mut ThreadAudit> {
        if !self.found.contains_key(&id) && self.found.len() >= THREADS_MAX {
            return None;
        }
        let entry = self.found.entry(id).or_insert_with(|| ThreadAudit {
            id,
            pid: thread.pid,
            tid: thread.tid,
            name: String::new(),
            run: Span::ZERO,
            wait: None,
            voluntary: None,
            involuntary: None,
            migrations: None,
            on: BTreeMap::new(),
            ended: false,
        });
        entry.name.clone_from(&thread.name);
        if let Some(last) = seen.last.filter(|last| last.run >= entry.run) {
            (entry.run, entry.wait) = (last.run, last.wait);
        }
        entry.voluntary = seen.voluntary.max(entry.voluntary);
        Some(entry)
    }

    /// A thread ran for so long since it was last read, and was seen on this CPU at the end.
    pub(super) fn ran(&mut self, id: ThreadId, thread: &Thread, seen: Seen, (cpu, span): (OsCpu, Span)) {
        if let Some(entry) = self.entry(id, thread, seen) {
            let sum = entry.on.entry(cpu).or_insert(Span::ZERO);
            *sum = *sum + span;
        }
    }

    /// What was read last of a process's memory.
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

    pub(super) fn thread_ended(&mut self, id: ThreadId, thread: &Thread, seen: Seen) {
        match self.entry(id, thread, seen) {
            Some(entry) => entry.ended = true,
            None => {
                self.more += 1;
                self.more_run = self.more_run + seen.last.map_or(Span::ZERO, |last| last.run);
            }
        }
    }

    /// Reads all that an audit wants of the threads and processes under watch.
    pub(super) fn look_closely(&mut self, proc: &Path, table: &ThreadTable, seen: &dyn Fn(ThreadId) -> Seen) {
        for (id, thread) in table.threads() {
            let folder = proc.join(format!("{}/task/{}", thread.pid, thread.tid));
            let status = text::read(&folder.join("status")).unwrap_or_default();
            let (voluntary, involuntary) = counters::switches(&status);
            let migrations = text::read(&folder.join("sched")).ok().and_then(|sched| migrations(&sched));
            let counted = text::read(&folder.join("schedstat")).ok();
            let counted = counted.and_then(|text| counters::Counters::parse_schedstat(&text));
            let Some(entry) = self.entry(id, thread, seen(id)) else { continue };
            entry.voluntary = voluntary.or(entry.voluntary);
            entry.involuntary = involuntary.or(entry.involuntary);
            entry.migrations = migrations.or(entry.migrations);
            if let Some(counted) = counted.filter(|counted| counted.run > entry.run) {
                (entry.run, entry.wait) = (counted.run, counted.wait);
            }
        }
        for pid in table.processes() {
            if let Some(memory) = memory(proc, pid) {
                self.remember(pid, memory);
            }
        }
    }

    /// Takes away the kernel's marks of touched pages.
    pub(super) fn forget_touched(&mut self, proc: &Path, table: &ThreadTable) {
        for pid in table.processes() {
            let marks = proc.join(pid.to_string()).join("clear_refs");
            if self.forgot.len() < PROCESSES_MAX && std::fs::write(marks, "1").is_ok() {
                self.forgot.insert(pid);
            }
        }
    }

    /// All that is known by now.
    pub(super) fn audit(&self) -> Audit {
        Audit {
            threads: self.found.values().cloned().collect(),
            more: self.more,
            more_run: self.more_run,
            memory: self.memory.clone(),
        }
    }
}

/// `se.nr_migrations` of a sched file.
fn migrations(sched: &[u8]) -> Option<u64> {
    let line = text::field(sched, b"se.nr_migrations")?;
    text::number(line.strip_prefix(b":").unwrap_or(line).trim_ascii())
}

/// The memory of a process; `None` when nothing can be read, as of a process that has ended.
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

/// Bytes on each node, from lines like `7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4`.
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

    fn thread(id: u32, on: &[(u32, u64)]) -> ThreadAudit {
        ThreadAudit {
            id: ThreadId(id),
            pid: Pid(7),
            tid: Tid(7 + id),
            name: "x".into(),
            run: Span(on.iter().map(|(_, span)| span).sum()),
            wait: Some(Span(10)),
            voluntary: None,
            involuntary: None,
            migrations: None,
            on: on.iter().map(|(cpu, span)| (OsCpu(*cpu), Span(*span))).collect(),
            ended: false,
        }
    }

    #[test]
    fn balance_is_the_lowest_over_the_highest_core() {
        let audit = Audit {
            threads: vec![thread(0, &[(0, 30), (1, 10)]), thread(1, &[(2, 80)])],
            ..Audit::default()
        };
        let cores = ["0-1", "2-3"].map(|text| text.parse::<CpuSet>().unwrap());
        assert_eq!(audit.balance(&cores), Some(0.5));
        assert_eq!(audit.balance(&cores[..1]), Some(1.0));
        assert_eq!(audit.balance(&["4".parse().unwrap()]), None, "never used");
        assert_eq!(audit.balance(&[]), None);
        assert_eq!(audit.wait_share(), Some(20.0 / 140.0));
        assert_eq!(Audit::default().wait_share(), None);
    }

    #[test]
    fn pages_are_remote_to_the_time_spent_elsewhere() {
        let nodes =
            BTreeMap::from([(OsNode(0), "0-1".parse().unwrap()), (OsNode(1), "2-3".parse().unwrap())]);
        let maps =
            b"7f00 default anon=4 dirty=4 N0=3 N1=1 kernelpagesize_kB=4\n7e00 default file=/N9=1 stack\n";
        let memory = MemoryAudit {
            nodes: pages(maps),
            anonymous: Some(100),
            huge: Some(25),
            ..MemoryAudit::default()
        };
        assert_eq!(memory.nodes, BTreeMap::from([(OsNode(0), 12 << 10), (OsNode(1), 4 << 10)]));
        let audit = Audit {
            threads: vec![thread(0, &[(0, 50), (2, 50)])],
            memory: BTreeMap::from([(Pid(7), memory)]),
            ..Audit::default()
        };
        assert_eq!(audit.remote_share(&nodes), Some(0.5 * 0.25 + 0.5 * 0.75));
        assert_eq!(audit.huge_share(), Some(0.25));
        assert_eq!(Audit::default().remote_share(&nodes), None);
    }

    #[test]
    fn memory_is_remembered_of_so_many_processes_and_of_the_largest() {
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

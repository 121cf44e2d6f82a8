//! A host made by another project: it takes the parts of the live host that find and count threads,
//! and leaves the part that sets masks.
//!
//! The second test checks the wall with the linker: a program that uses discovery, sampler and
//! counter reader contains nothing of the writer.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

use object::{Object, ObjectSymbol};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trimtab_core::balance::Wanted;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{ProgramInfo, Sample};
use trimtab_core::time::{Moment, Span};
use trimtab_linux::host::{
    CounterReader, DescriptorBudget, Discovery, DiscoveryOptions, Procfs, Root, RootId, Sampler,
    ThreadListener, ThreadTable, Unread, WatchedThread,
};
use trimtab_linux::process::{Pid, Stat};

/// Events that the kernel counts by itself, available on machines whose hardware counts nothing for
/// us.
const SOFTWARE: &str = "busy=task-clock,requests=page-faults";
/// Time after which a test counts as hung.
const HANG: Duration = Duration::from_secs(180);

/// A program that computes until it is dropped.
struct Busy(Child);

impl Busy {
    fn new() -> Self {
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The threads that this host knows.
#[derive(Default)]
struct Members {
    programs: Vec<ProgramInfo>,
    living: BTreeSet<ThreadId>,
    ended: Vec<ThreadId>,
}

impl ThreadListener for Members {
    fn program_named(&mut self, info: ProgramInfo) {
        self.programs.push(info);
    }

    fn thread_found(&mut self, _table: &ThreadTable, id: ThreadId, _stat: &Stat) -> bool {
        self.living.insert(id)
    }

    fn thread_ended(&mut self, id: ThreadId, _thread: &WatchedThread, _told: bool) {
        self.living.remove(&id);
        self.ended.push(id);
    }
}

/// The host.
struct Readers {
    discovery: Discovery,
    sampler: Sampler,
    counters: CounterReader,
    members: Members,
    at: Moment,
}

impl Readers {
    fn new(roots: &[Root]) -> Self {
        let proc = Arc::new(Procfs::open(Path::new("/proc")).unwrap());
        let budget = DescriptorBudget::of_this_process(None);
        let options = DiscoveryOptions { find_every: Span::from_ms(10), hands_off: true, tags: false };
        let mut discovery = Discovery::new(proc.clone(), budget.clone(), options);
        let mut members = Members::default();
        discovery.begin(roots, &mut members).unwrap();
        let choice = SOFTWARE.parse().unwrap();
        let counters = CounterReader::new(proc.clone(), budget.clone(), choice, None);
        let sampler = Sampler::new(proc, budget);
        Self { discovery, sampler, counters, members, at: Moment(1) }
    }

    /// Takes one sample, 20 ms after the one before.
    fn look(&mut self) -> Sample {
        self.at = self.at + Span::from_ms(20);
        self.discovery.find(self.at, &mut self.members);
        let wanted = Wanted { places: true, counts: true, ..Wanted::default() };
        let mut sample = Sample { at: self.at, ..Sample::default() };
        let known: BTreeMap<ThreadId, WatchedThread> =
            self.discovery.table().threads().map(|(id, thread)| (id, thread.clone())).collect();
        for (id, thread) in known {
            match self.sampler.read(id, &thread, None, &wanted) {
                Ok(reading) => sample.threads.push(reading.sample),
                Err(Unread::Gone) => self.discovery.end_thread(id, &mut self.members),
                Err(Unread::Trouble) => {}
            }
        }
        self.counters.count(&wanted, self.discovery.table(), &|_| None, &mut sample);
        for id in std::mem::take(&mut self.members.ended) {
            self.sampler.forget(id);
            self.counters.forget(id);
        }
        sample
    }

    /// Waits for the end of a root.
    fn wait(&mut self) {
        let ends = self.discovery.ends();
        let mut waited: Vec<PollFd<'_>> =
            ends.iter().map(|(_, end)| PollFd::from_borrowed_fd(*end, PollFlags::IN)).collect();
        poll(&mut waited, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })).unwrap();
        let ready = waited.iter().map(|waited| !waited.revents().is_empty());
        let ended: Vec<RootId> =
            ends.iter().zip(ready).filter(|(_, ready)| *ready).map(|((id, _), _)| *id).collect();
        for id in ended {
            self.discovery.root_ended(id);
        }
    }
}

#[test]
fn threads_are_found_and_counted_without_the_writer_of_masks() {
    let program = Busy::new();
    let mut host = Readers::new(&[Root::Tree(program.pid())]);
    let begin = Instant::now();
    let (mut run, mut counted) = (Span::ZERO, false);
    // If nothing may be counted, the ladder ends without counters, and only the CPU time grows.
    while run == Span::ZERO || !counted {
        assert!(begin.elapsed() < HANG, "run {run:?}, standing {:?}", host.counters.standing());
        std::thread::sleep(Duration::from_millis(5));
        let sample = host.look();
        let read = sample.threads.first().expect("its thread is known from the first look on");
        run = run + read.run;
        let counts = host.counters.standing().is_some_and(|standing| standing.rung.counts());
        counted = read.counts.is_some() || (host.counters.standing().is_some() && !counts);
    }
    assert_eq!(host.members.living.len(), 1);
    assert_eq!(host.members.programs.iter().map(|info| info.pid).collect::<Vec<_>>(), [program.pid().0]);
    drop(program);
    while !host.members.living.is_empty() {
        assert!(begin.elapsed() < HANG, "its end is not seen");
        std::thread::sleep(Duration::from_millis(5));
        host.look();
    }
    assert_eq!(host.counters.counted_threads(), 0);
    host.wait();
    assert!(host.discovery.is_over(host.at));
}

#[test]
fn a_program_of_readers_has_no_writer_in_it() {
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = object::File::parse(&*file).unwrap();
    let names: Vec<&str> = file.symbols().filter_map(|symbol| symbol.name().ok()).collect();
    // Mangled names put the length before each part of a path.
    let of = |path: &[&str]| {
        let path: String = path.iter().map(|part| format!("{}{part}", part.len())).collect();
        names.iter().filter(|name| name.contains(&path)).count()
    };
    assert!(of(&["host", "discovery"]) > 0 && of(&["host", "sampler"]) > 0, "without names nothing is shown");
    for writer in [
        &["host", "affinity"][..],
        &["host", "affinity_journal"],
        &["host", "parts"],
        &["sys", "affinity", "set"],
    ] {
        assert_eq!(of(writer), 0, "{} is linked", writer.join("::"));
    }
}

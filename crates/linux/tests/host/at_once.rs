//! Threads that are read all at once by a program inside the kernel: the samples are those of the
//! files in `/proc`, and without the permission the files serve.

use crate::scene::{NO_COMPILER, Observations, PROC, TASK, Worker, eventually, is_root, need, usable};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use trimtab_core::balance::Wanted;
use trimtab_core::observe::ThreadSample;
use trimtab_core::time::Span;
use trimtab_linux::host::{HostOptions, Live, ReadAtOnce, Root};
use trimtab_linux::process::{Pid, State, Tid, thread_stat};

fn options(at_once: bool) -> HostOptions {
    HostOptions { at_once, find_every: Span::ZERO, ..HostOptions::default() }
}

/// Looks until the reader is open or refused.
fn settled(live: &mut Live, seen: &mut Observations) -> ReadAtOnce {
    eventually("the reader is open or refused", || {
        seen.look(live);
        !matches!(live.facts().at_once, ReadAtOnce::NotNeeded | ReadAtOnce::Opening)
    });
    live.facts().at_once
}

/// Returns a host whose reader is open. `None`, with a line, if the kernel does not permit it.
fn open(worker: &Worker) -> Option<(Live, Observations)> {
    let (mut live, mut seen) = worker.seen_with(options(true));
    match settled(&mut live, &mut seen) {
        ReadAtOnce::Open => Some((live, seen)),
        ReadAtOnce::Refused(why) => {
            eprintln!("SKIPPED: {} ({why})", why.word());
            None
        }
        state => panic!("{state:?}"),
    }
}

/// Returns the samples by the numbers of the kernel, without those of this host.
fn by_tid(seen: &Observations) -> BTreeMap<u32, ThreadSample> {
    let reads = seen.last.threads.iter();
    reads
        .map(|read| {
            (seen.threads[&read.id].tid, ThreadSample { id: trimtab_core::ids::ThreadId(0), ..read.clone() })
        })
        .collect()
}

#[test]
fn a_host_that_reads_at_once_sees_what_one_of_files_sees() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(40);
    let Some((mut live, mut seen)) = open(&worker) else { return };
    let (mut plain, mut read) = worker.seen_with(options(false));
    assert_eq!(plain.facts().at_once, ReadAtOnce::NotNeeded);
    // A stopped thread has the same values for both hosts.
    for _ in 0..3 {
        worker.signal(Signal::STOP);
        let is_stopped = |tid: &Tid| {
            let stat = thread_stat(Path::new(PROC), worker.pid(), *tid).unwrap();
            stat.state == State::Stopped
        };
        eventually("all stop", || tids.iter().all(is_stopped));
        // A thread that is shown as stopped may still have to leave its CPU.
        let (mut at_once, mut by_files) = (BTreeMap::new(), BTreeMap::new());
        eventually("two looks of each host see the same", || {
            seen.look(&mut live);
            read.look(&mut plain);
            let before = (std::mem::take(&mut at_once), std::mem::take(&mut by_files));
            (at_once, by_files) = (by_tid(&seen), by_tid(&read));
            before.0 == at_once && before.1 == by_files
        });
        assert_eq!(at_once.len(), 41);
        assert_eq!(at_once, by_files);
        assert!(at_once.values().all(|read| read.ready == Some(false) && read.voluntary.is_some()));
        worker.signal(Signal::CONT);
        let before = at_once[&tids[0].0].run;
        eventually("it runs", || {
            seen.look(&mut live);
            read.look(&mut plain);
            by_tid(&seen)[&tids[0].0].run > before
        });
    }
    assert_eq!(live.facts().at_once, ReadAtOnce::Open);
    assert!(live.facts().descriptors < plain.facts().descriptors + 3);
    seen.look_for(&mut live, &Wanted::default());
    assert!(seen.last.threads.iter().all(|read| read.voluntary.is_none()), "not requested");
}

#[test]
fn the_reader_is_opened_although_files_have_taken_all_descriptors() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.threads(200);
    let (mut live, mut seen) = worker.seen_with(HostOptions { descriptors: Some(128), ..options(true) });
    if let ReadAtOnce::Refused(why) = settled(&mut live, &mut seen) {
        eprintln!("SKIPPED: {} ({why})", why.word());
        return;
    }
    assert_eq!(live.facts().at_once, ReadAtOnce::Open);
    seen.look(&mut live);
    assert_eq!(seen.last.threads.len(), 201);
    let left = live.facts().descriptors;
    assert!(left <= 3, "files of threads with records are closed: {left}");
}

#[test]
fn threads_that_come_and_go_are_found_named_and_ended() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.threads(30);
    let Some((mut live, mut seen)) = open(&worker) else { return };
    let before = live.facts().descriptors;
    let late = worker.threads(5);
    assert_eq!(worker.ask("name painter"), "0");
    seen.look(&mut live);
    assert!(late.iter().all(|tid| seen.tids().contains(&tid.0)), "at the very next look");
    worker.tell("storm 3000");
    let done = std::thread::spawn(move || {
        let answer = worker.answer();
        (worker, answer)
    });
    while !done.is_finished() {
        seen.look(&mut live);
    }
    let (mut worker, answer) = done.join().unwrap();
    assert_eq!(answer, "over");
    eventually("all of the storm have ended", || seen.look(&mut live).threads.len() == 36);
    assert_eq!(seen.threads.len(), 36);
    assert_eq!(seen.info(late[4]).name, "painter");
    // Renamed once more, long after its start.
    assert_eq!(worker.ask("name sculptor"), "0");
    eventually("its new name", || {
        seen.look(&mut live);
        seen.info(late[4]).name == "sculptor"
    });
    worker.end();
    eventually("all have ended", || seen.look(&mut live).threads.is_empty() && seen.threads.is_empty());
    assert!(live.facts().descriptors <= before.min(1), "{} of {before}", live.facts().descriptors);
}

#[test]
fn only_many_wanted_threads_are_read_at_once() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.threads(10);
    let (mut live, mut seen) = worker.seen_with(options(true));
    for _ in 0..5 {
        seen.look(&mut live);
    }
    assert_eq!(live.facts().at_once, ReadAtOnce::NotNeeded, "11 threads are few");
    worker.threads(20);
    let elsewhere = Wanted { on: Some("9999".parse().unwrap()), places: true, ..Wanted::default() };
    for _ in 0..5 {
        seen.look_for(&mut live, &elsewhere);
    }
    assert_eq!((seen.threads.len(), seen.last.threads.len()), (31, 0));
    assert_eq!(live.facts().at_once, ReadAtOnce::NotNeeded, "none of 31 is on a wanted CPU");
    seen.look(&mut live);
    assert_ne!(live.facts().at_once, ReadAtOnce::NotNeeded);
}

/// Prints the state of a reader, and how much two looks read. The role of a child.
pub(crate) fn state_of(pid: u32) -> String {
    let mut live = Live::with(Path::new(PROC), &[Root::Tree(Pid(pid))], &usable(), options(true)).unwrap();
    let mut seen = Observations::default();
    let state = match settled(&mut live, &mut seen) {
        ReadAtOnce::Refused(why) => why.word(),
        state => panic!("{state:?}"),
    };
    let sleeps = seen.last.threads.iter().filter(|read| read.voluntary.is_some()).count();
    format!("{state}: {} read, {sleeps} with sleeps", seen.last.threads.len())
}

#[test]
fn without_the_capability_files_serve_and_the_reason_is_told() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.threads(30);
    let root = is_root().then_some(());
    need!(root, "only root has capabilities that can be dropped");
    if open(&worker).is_none() {
        return;
    }
    let mut child = Command::new("setpriv");
    // By number: CAP_BPF and CAP_PERFMON, for which older versions have no names.
    child.args(["--bounding-set", "-cap_39,-cap_38,-sys_admin"]).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "role", "--nocapture"]).env(TASK, format!("at-once {}", worker.pid()));
    let Ok(output) = child.output() else {
        eprintln!("SKIPPED: no setpriv");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix('@'));
    assert_eq!(line, Some("not-permitted: 31 read, 31 with sleeps"), "{text}");
}

/// Starts a thread of the worker with this number. `None` if another task took it first.
fn reborn(worker: &mut Worker, tid: Tid) -> Option<()> {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (tid.0 - 1).to_string()).unwrap();
    (worker.threads(1) == [tid]).then_some(())
}

#[test]
fn a_number_that_is_used_again_is_another_thread() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(30);
    let Some((mut live, mut seen)) = open(&worker) else { return };
    let old = *tids.last().unwrap();
    let known = seen.id(old);
    let writable = std::fs::OpenOptions::new().write(true).open("/proc/sys/kernel/ns_last_pid").ok();
    need!(writable, "no number can be chosen for a new thread here");
    let mut born = None;
    for _ in 0..50 {
        assert_eq!(worker.ask("end"), "0");
        born = reborn(&mut worker, old);
        if born.is_some() {
            break;
        }
    }
    need!(born, "other tasks took the number each time");
    eventually("the new thread is known under its own number", || {
        seen.look(&mut live);
        seen.tids().contains(&old.0) && seen.id(old) != known
    });
    assert!(seen.gone.contains(&known), "the earlier thread has ended");
    let read = seen.last.threads.iter().find(|read| read.id == seen.id(old));
    let schedstat = std::fs::read_to_string(format!("/proc/{}/task/{old}/schedstat", worker.pid())).unwrap();
    let run: u64 = schedstat.split(' ').next().unwrap().parse().unwrap();
    assert!(read.is_none_or(|read| read.run.0 <= run), "its counters are its own");
}

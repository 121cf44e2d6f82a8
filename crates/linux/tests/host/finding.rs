//! Discovery: threads and processes are found as they appear, and reported once when they end.

use crate::scene::{NO_COMPILER, Observations, PROC, Worker, eventually, need, usable};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use trimtab_core::balance::Wanted;
use trimtab_core::time::Span;
use trimtab_linux::host::HostOptions;
use trimtab_linux::process::{State, Tid, thread_stat};

fn eager() -> HostOptions {
    HostOptions { find_every: Span::ZERO, ..HostOptions::default() }
}

#[test]
fn threads_are_found_as_they_appear_with_names_and_masks() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let early = worker.threads(3);
    let (mut live, mut seen) = worker.seen();
    assert_eq!(seen.last.programs.len(), 1);
    assert_eq!((seen.last.programs[0].pid, seen.last.programs[0].name.as_str()), (worker.pid().0, "worker"));
    assert_eq!(seen.threads.len(), 4, "{:?}", seen.threads);
    for tid in early {
        let info = seen.info(tid);
        assert_eq!((info.pid, info.name.as_str(), &info.home), (worker.pid().0, "worker", &usable()));
        assert_eq!(info.left, None);
    }
    let late = worker.threads(2);
    seen.look(&mut live);
    assert!(late.iter().all(|tid| seen.tids().contains(&tid.0)), "at the very next look");
    assert!(seen.last.threads.iter().any(|read| read.id == seen.id(late[0])), "and read at once");
    assert!(seen.last.programs.is_empty());
}

#[test]
fn counters_grow_and_say_where_a_thread_ran() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.ask("busy 1");
    let mut live = worker.live();
    let mut seen = Observations::default();
    let first = seen.look(&mut live).threads.last().unwrap().clone();
    eventually("it runs", || seen.look(&mut live).threads.last().unwrap().run > first.run);
    let last = seen.last.threads.last().unwrap();
    assert!(usable().contains(last.cpu.unwrap()));
    if live.facts().counts_waiting {
        assert!(last.wait >= first.wait && last.slices >= first.slices && last.slices.is_some());
    }
    assert!(last.voluntary.is_some());
    assert!(seen.last.cpus.len() >= usable().len());
    // Values that were not asked for are not read.
    seen.look_for(&mut live, &Wanted::default());
    assert!(seen.last.cpus.is_empty());
    assert!(seen.last.threads.iter().all(|read| read.voluntary.is_none()));
}

#[test]
fn only_threads_on_the_wanted_cpus_are_read() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let cpu = usable().first().unwrap();
    assert_eq!(worker.ask(&format!("bind {} {cpu}", tids[0])), "0");
    let (mut live, mut seen) = worker.seen();
    let elsewhere = Wanted { on: Some("9999".parse().unwrap()), ..Wanted::default() };
    seen.look_for(&mut live, &elsewhere);
    assert!(seen.last.threads.is_empty(), "all were seen on other CPUs: {:?}", seen.last.threads);
    let here = Wanted { on: Some([cpu].into_iter().collect()), ..Wanted::default() };
    seen.look_for(&mut live, &here);
    assert!(seen.last.threads.iter().any(|read| read.id == seen.id(tids[0])));
}

#[test]
fn many_short_threads_are_bounded_and_reported_in_order() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let (mut live, mut seen) = worker.seen_with(eager());
    worker.tell("storm 10000");
    let done = std::thread::spawn(move || {
        let answer = worker.answer();
        (worker, answer)
    });
    let mut ids = BTreeSet::new();
    while !done.is_finished() {
        seen.look(&mut live);
        ids.extend(seen.last.news.iter().map(|info| info.id));
        assert!(live.facts().threads <= 4 && live.facts().descriptors <= 8, "{:?}", live.facts());
    }
    let (mut worker, answer) = done.join().unwrap();
    assert_eq!(answer, "over");
    eventually("all are gone", || {
        seen.look(&mut live);
        seen.threads.len() == 1
    });
    // Our numbers are never used again, though the kernel's are.
    assert!(seen.gone.iter().all(|id| ids.contains(id)));
    let next = worker.threads(1);
    eventually("the next thread is found", || {
        seen.look(&mut live);
        seen.tids().contains(&next[0].0)
    });
    assert!(ids.iter().all(|id| *id < seen.id(next[0])));
    let facts = live.facts();
    assert!((facts.threads..=2 * facts.threads).contains(&facts.descriptors), "{facts:?}");
}

#[test]
fn many_threads_at_once_keep_within_the_descriptors() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(200);
    let mut live = worker.live_with(HostOptions { descriptors: Some(50), ..HostOptions::default() });
    let mut seen = Observations::default();
    for _ in 0..3 {
        seen.look(&mut live);
        assert_eq!(seen.last.threads.len(), 201);
        assert_eq!(live.facts().descriptors, 50);
    }
    assert!(tids.iter().all(|tid| seen.tids().contains(&tid.0)));
    worker.end();
    eventually("the end of all", || {
        seen.look(&mut live);
        seen.threads.is_empty()
    });
    assert_eq!(seen.gone.len(), 201);
    assert_eq!((live.facts().descriptors, live.facts().processes), (0, 0));
}

#[test]
fn children_are_members_also_when_their_parent_has_ended() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let (mut live, mut seen) = worker.seen_with(eager());
    let child: u32 = worker.ask("fork").parse().unwrap();
    eventually("the child is found", || {
        seen.look(&mut live);
        seen.tids().contains(&child)
    });
    let pids = worker.ask("orphan");
    let (parent, orphan) = pids.split_once(' ').unwrap();
    let (parent, orphan): (u32, u32) = (parent.parse().unwrap(), orphan.parse().unwrap());
    eventually("the grandchild is found", || {
        seen.look(&mut live);
        seen.tids().contains(&orphan)
    });
    let program = seen.info(trimtab_linux::process::Tid(orphan)).program;
    assert_eq!(program, seen.threads.values().next().unwrap().program);
    worker.tell("");
    assert_eq!(worker.answer(), "reaped");
    eventually("its parent's end is told", || {
        seen.look(&mut live);
        !seen.tids().contains(&parent)
    });
    assert!(seen.tids().contains(&orphan), "still a member");
}

#[test]
fn names_follow_the_program() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(1);
    let (mut live, mut seen) = worker.seen();
    assert_eq!(worker.ask("name pool\x1b1"), "0");
    eventually("the new name is told", || {
        seen.look(&mut live);
        seen.info(tids[0]).name == "pool\\x1b1"
    });
}

#[test]
fn a_program_without_its_first_thread_is_still_watched() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let (mut live, mut seen) = worker.seen();
    worker.tell("headless");
    eventually("the first thread's end is told", || {
        seen.look(&mut live);
        seen.threads.len() == 2
    });
    assert!(tids.iter().all(|tid| seen.tids().contains(&tid.0)));
    let mut again = worker.live();
    let mut fresh = Observations::default();
    fresh.look(&mut again);
    assert_eq!(fresh.tids(), seen.tids(), "and it can be attached to");
}

#[test]
fn stopped_and_traced_programs_are_watched_without_trouble() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let (mut live, mut seen) = worker.seen();
    worker.signal(Signal::STOP);
    let stopped = |tid: &Tid| {
        let stat = thread_stat(Path::new(PROC), worker.pid(), *tid).unwrap();
        stat.state == State::Stopped
    };
    eventually("all have stopped", || tids.iter().all(stopped));
    for _ in 0..3 {
        seen.look(&mut live);
        assert_eq!(seen.last.threads.len(), 3);
    }
    let first = seen.last.threads.clone();
    seen.look(&mut live);
    assert_eq!(first, seen.last.threads, "its counters stand still");
    worker.signal(Signal::CONT);
    let mut strace = need!(
        std::process::Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-p", &worker.pid().to_string()])
            .stderr(std::process::Stdio::null())
            .spawn()
            .ok(),
        "no strace"
    );
    for _ in 0..3 {
        seen.look(&mut live);
        assert_eq!(seen.tids().len(), 3);
    }
    strace.kill().unwrap();
    strace.wait().unwrap();
    assert!(tids.iter().all(|tid| seen.tids().contains(&tid.0)));
}

//! Roots that are added and removed: a thread that no root covers is left alone, and gets its own
//! mask back.

use crate::scene::{
    NO_COMPILER, Observations, PROC, Worker, apply, eventually, is_root, mask, need, two_cpus, usable,
};
use std::path::Path;
use trimtab_core::balance::{Act, Refusal, Settled};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ProgramId;
use trimtab_core::observe::Left;
use trimtab_core::time::{Moment, Span};
use trimtab_linux::host::{HostOptions, Live, LiveError, Root, Watch};
use trimtab_linux::process::{self, Pid, StartTime, Tid};

fn daemon() -> Live {
    let options = HostOptions { tags: true, find_every: Span::from_ms(1), ..HostOptions::default() };
    Live::with(Path::new(PROC), &[], &usable(), options).unwrap()
}

fn for_all(program: u32) -> Watch {
    Watch { program: ProgramId(program), only: None, start: None }
}

#[test]
fn it_watches_no_root_and_continues() {
    let mut live = daemon();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!((seen.threads.len(), live.roots().len()), (0, 0));
    assert_eq!(live.wait(Moment(0)).unwrap(), Awake::Due);
    live.stopper().stop();
    assert_eq!(live.wait(Moment(u64::MAX)).unwrap(), Awake::Over);
}

#[test]
fn a_process_is_tagged_and_cleared() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let (mut live, mut seen) = (daemon(), Observations::default());
    let root = live.watch(&worker.root(), for_all(7)).unwrap();
    seen.look(&mut live);
    assert!(seen.threads.values().all(|info| info.tagged && info.program == ProgramId(7)));
    assert_eq!(live.tagged(), 3);
    for tid in &tids {
        assert_eq!(apply(&mut live, seen.id(*tid), Act::Confine(one.clone())), Settled::Applied);
    }
    // Started with a mask of ours, in the same process as the tagged threads.
    let facts = live.roots();
    assert_eq!((facts[0].id, facts[0].threads, facts[0].moves, facts[0].ended), (root, 3, 2, false));
    let restored = live.unwatch(root);
    assert_eq!((restored.given_back, restored.refused), (2, 0));
    assert!(tids.iter().all(|tid| mask(*tid) == usable()));
    seen.look(&mut live);
    assert_eq!((seen.threads.len(), seen.gone.len(), live.tagged()), (0, 3, 0));
    // A second time it is another root.
    assert_ne!(live.unwatch(root), restored);
    assert_ne!(live.watch(&worker.root(), for_all(8)).unwrap(), root);
    seen.look(&mut live);
    assert_eq!(seen.threads.len(), 3);
}

#[test]
fn of_one_thread_the_others_are_left_alone_and_children_get_their_masks_back() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let main = worker.pid().main_thread();
    let (mut live, mut seen) = (daemon(), Observations::default());
    let root = live.watch(&Root::Thread(worker.pid(), main), for_all(0)).unwrap();
    seen.look(&mut live);
    assert_eq!(live.tagged(), 1);
    assert_eq!((seen.info(main).tagged, seen.info(main).left.clone()), (true, None));
    assert_eq!((seen.info(tids[0]).tagged, seen.info(tids[0]).left.clone()), (false, Some(Left::Asked)));
    let refused = apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone()));
    assert_eq!(refused, Settled::Refused(Refusal::Other));
    assert_eq!(apply(&mut live, seen.id(main), Act::Confine(one.clone())), Settled::Applied);
    // The main thread starts others, and a child, which all begin with its mask.
    let born = worker.threads(1)[0];
    let child = Tid(worker.ask("fork").parse().unwrap());
    eventually("the newborn have their own masks", || {
        seen.look(&mut live);
        mask(born) == usable() && mask(child) == usable()
    });
    assert_eq!(mask(main), one);
    // Both are covered, and then one of them no more.
    let whole = live.watch(&worker.root(), for_all(1)).unwrap();
    seen.look(&mut live);
    assert!(seen.info(tids[0]).tagged);
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone())), Settled::Applied);
    live.unwatch(whole);
    assert_eq!((mask(main), mask(tids[0])), (one, usable()));
    live.unwatch(root);
    assert_eq!(mask(main), usable());
}

#[test]
fn a_root_that_does_not_match_is_not_watched() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let mut live = daemon();
    let other = Watch { start: Some(StartTime(1)), ..for_all(0) };
    assert!(matches!(live.watch(&worker.root(), other), Err(LiveError::NoProcess(_))));
    assert!(live.watch(&Root::Thread(worker.pid(), Tid(1)), for_all(0)).is_err());
    assert!(live.watch(&Root::Tree(Pid::own()), for_all(0)).is_err());
    assert!(live.watch(&Root::Cgroup("/no/such/group".into()), for_all(0)).is_err());
    let start = process::stat(Path::new(PROC), worker.pid()).unwrap().start;
    let root = live.watch(&worker.root(), Watch { start: Some(start), ..for_all(0) }).unwrap();
    assert_eq!(live.roots().len(), 1);
    worker.end();
    eventually("its end is seen", || {
        live.wait(Moment(0)).unwrap();
        live.roots()[0].ended
    });
    live.unwatch(root);
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!((seen.threads.len(), live.roots().len()), (0, 0));
}

#[test]
fn a_thread_that_ends_takes_its_root_with_it() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.threads(1)[0];
    let mut live = daemon();
    live.watch(&Root::Thread(worker.pid(), tid), for_all(0)).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    live.wait(Moment(0)).unwrap();
    assert_eq!((live.roots()[0].threads, live.roots()[0].ended), (1, false));
    worker.end();
    eventually("its end is seen", || {
        seen.look(&mut live);
        live.wait(Moment(0)).unwrap();
        live.roots()[0].ended
    });
}

#[test]
fn a_root_for_one_user_means_no_other_users_threads() {
    need!(is_root().then_some(()), "only root can start programs of others");
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let worker = need!(Worker::start_as(Some(65_534)), NO_COMPILER);
    let main = worker.pid().main_thread();
    let (mut live, mut seen) = (daemon(), Observations::default());
    let theirs = live.watch(&worker.root(), Watch { only: Some(1), ..for_all(0) }).unwrap();
    seen.look(&mut live);
    assert_eq!(live.tagged(), 0);
    assert_eq!(seen.info(main).left, Some(Left::Asked));
    assert_ne!(apply(&mut live, seen.id(main), Act::Confine(one.clone())), Settled::Applied);
    live.watch(&worker.root(), Watch { only: Some(65_534), ..for_all(0) }).unwrap();
    seen.look(&mut live);
    assert_eq!(apply(&mut live, seen.id(main), Act::Confine(one.clone())), Settled::Applied);
    live.unwatch(theirs);
    assert_eq!(mask(main), one, "who may is still there");
}

//! Masks are set, checked, respected and restored.

use crate::scene::{NO_COMPILER, Worker, apply, eventually, mask, need, set, two_cpus, usable};
use trimtab_core::balance::{Act, Refusal, Settled};
use trimtab_core::drive::Host;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::Left;
use trimtab_linux::host::{HostOptions, Restored};
use trimtab_linux::sys::affinity;

#[test]
fn threads_are_confined_nudged_and_released() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.threads(1)[0];
    let (mut live, mut seen) = worker.seen();
    let id = seen.id(tid);
    assert_eq!(apply(&mut live, id, Act::Confine(one.clone())), Settled::Applied);
    assert_eq!(mask(tid), one);
    assert_eq!(apply(&mut live, id, Act::Nudge(other.clone())), Settled::Applied);
    assert_eq!(mask(tid), one, "the mask that it had");
    assert_eq!(apply(&mut live, id, Act::Confine(other.clone())), Settled::Applied);
    assert_eq!(mask(tid), other);
    assert_eq!(apply(&mut live, id, Act::Release), Settled::Applied);
    assert_eq!(mask(tid), usable());
    assert_eq!(apply(&mut live, id, Act::Release), Settled::Applied, "nothing to do is done");
    assert_eq!(apply(&mut live, id, Act::Nudge(other)), Settled::Applied);
    assert_eq!(mask(tid), usable());
    seen.look(&mut live);
    assert_eq!(seen.info(tid).left, None);
}

#[test]
fn a_refused_move_has_a_reason() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.threads(1)[0];
    let (mut live, seen) = worker.seen();
    let id = seen.id(tid);
    assert_eq!(apply(&mut live, id, Act::Confine(set("9999"))), Settled::Refused(Refusal::Cpus));
    assert_eq!(apply(&mut live, id, Act::Confine(set(""))), Settled::Refused(Refusal::Cpus));
    assert_eq!(apply(&mut live, ThreadId(12_345), Act::Release), Settled::Vanished);
    worker.end();
    assert_eq!(apply(&mut live, id, Act::Confine(usable())), Settled::Vanished);
    assert_eq!(live.apply(&[]).unwrap(), []);
}

#[test]
fn restoring_is_exact() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(4);
    // A thread that its program bound before the host started.
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[3])), "0");
    let (mut live, seen) = worker.seen();
    assert_eq!(seen.info(tids[3]).home, other);
    for tid in &tids {
        assert_eq!(apply(&mut live, seen.id(*tid), Act::Confine(one.clone())), Settled::Applied);
        assert_eq!(mask(*tid), one);
    }
    let restored = live.restore();
    assert_eq!(restored, Restored { given_back: 4, ..Restored::default() });
    let masks = tids.iter().map(|tid| mask(*tid)).collect::<Vec<_>>();
    assert_eq!(masks, [usable(), usable(), usable(), other.clone()]);
    assert_eq!(live.restore(), Restored::default(), "once is enough");
    // And when the host is dropped.
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone())), Settled::Applied);
    drop(live);
    assert_eq!(mask(tids[0]), usable());
}

#[test]
fn a_mask_that_the_program_sets_itself_is_respected() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let (mut live, mut seen) = worker.seen();
    for tid in &tids {
        assert_eq!(apply(&mut live, seen.id(*tid), Act::Confine(one.clone())), Settled::Applied);
    }
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[0])), "0");
    // All masks are compared only occasionally.
    std::thread::sleep(std::time::Duration::from_millis(100));
    seen.look(&mut live);
    let info = seen.info(tids[0]);
    assert_eq!((info.left.clone(), &info.home), (Some(Left::MovedItself), &other));
    assert_eq!(seen.info(tids[1]).left, None);
    let refused = Settled::Refused(Refusal::MovedMeanwhile);
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone())), refused);
    // Noticed at the move too, if no sample was taken in between.
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[1])), "0");
    assert_eq!(apply(&mut live, seen.id(tids[1]), Act::Nudge(one)), refused);
    seen.look(&mut live);
    assert_eq!(seen.info(tids[1]).left, Some(Left::MovedItself));
    assert_eq!(live.restore(), Restored::default(), "neither is ours any more");
    assert_eq!([mask(tids[0]), mask(tids[1])], [other.clone(), other]);
}

#[test]
fn a_mask_set_before_we_moved_anything_is_where_the_thread_is_at_home() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.threads(1)[0];
    let (mut live, mut seen) = worker.seen();
    // A runtime that binds its threads does so after they were found.
    assert_eq!(worker.ask(&format!("bind {tid} {other}")), "0");
    let id = seen.id(tid);
    let refused = Settled::Refused(Refusal::MovedMeanwhile);
    assert_eq!(apply(&mut live, id, Act::Confine(one.clone())), refused);
    seen.look(&mut live);
    assert_eq!((&seen.info(tid).home, &seen.info(tid).left), (&other, &None));
    assert_eq!(apply(&mut live, id, Act::Confine(one)), Settled::Applied, "it can be freed");
    live.restore();
    assert_eq!(mask(tid), other);
}

#[test]
fn a_thread_that_binds_itself_after_it_was_found_is_reported_and_not_touched() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let (mut live, mut seen) = worker.seen();
    seen.look(&mut live);
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[0])), "0");
    eventually("the new mask is told", || {
        seen.look(&mut live);
        seen.info(tids[0]).home == other
    });
    assert_eq!(seen.info(tids[0]).left, None, "it is at home there");
    // A move on top of that restores the mask that the program set.
    assert_eq!(apply(&mut live, seen.id(tids[0]), Act::Confine(one.clone())), Settled::Applied);
    assert_eq!(mask(tids[0]), one);
    assert_eq!(live.restore().given_back, 1);
    assert_eq!([mask(tids[0]), mask(tids[1])], [other, usable()]);
}

#[test]
fn where_homes_differ_a_newborn_is_taken_for_the_first_threads() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.threads(1)[0];
    assert_eq!(worker.ask(&format!("bind {tid} {other}")), "0");
    let (mut live, mut seen) = worker.seen();
    // Two threads with masks of their own are moved to the same CPU.
    for tid in [worker.pid().main_thread(), tid] {
        assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(one.clone())), Settled::Applied);
    }
    let born = worker.threads(1)[0];
    seen.look(&mut live);
    assert_eq!((&seen.info(born).home, mask(born)), (&usable(), usable()));
}

#[test]
fn a_mask_changed_back_by_another_program_is_not_overwritten() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    let (mut live, seen) = worker.seen();
    for tid in &tids {
        assert_eq!(apply(&mut live, seen.id(*tid), Act::Confine(one.clone())), Settled::Applied);
    }
    affinity::set(Some(tids[1]), &usable()).unwrap();
    let restored = live.restore();
    assert_eq!(restored, Restored { given_back: 1, changed: 1, ..Restored::default() });
}

#[test]
fn with_hands_off_nothing_is_moved() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.threads(1)[0];
    let (mut live, seen) = worker.seen_with(HostOptions { hands_off: true, ..HostOptions::default() });
    assert_eq!(seen.info(tid).left, Some(Left::Asked));
    let end = apply(&mut live, seen.id(tid), Act::Confine(usable()));
    assert_eq!(end, Settled::Refused(Refusal::Other));
}

#[test]
fn threads_and_children_of_moved_threads_get_the_programs_mask_too() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let (mut live, mut seen) = worker
        .seen_with(HostOptions { find_every: trimtab_core::time::Span::ZERO, ..HostOptions::default() });
    let leader = worker.pid().main_thread();
    assert_eq!(apply(&mut live, seen.id(leader), Act::Confine(one.clone())), Settled::Applied);
    let born = worker.threads(2);
    assert_eq!(mask(born[0]), one, "masks are inherited");
    seen.look(&mut live);
    assert_eq!(seen.info(born[0]).home, usable(), "and are not its own");
    assert_eq!(mask(born[0]), usable(), "and are given back as soon as it is found");
    // One is found before the end, the others at the end.
    let late = worker.threads(2);
    let child = trimtab_linux::process::Tid(worker.ask("fork").parse().unwrap());
    assert_eq!(mask(child), one);
    let restored = live.restore();
    assert_eq!(restored, Restored { given_back: 1, ..Restored::default() }, "only one was moved");
    for tid in [leader, born[0], born[1], late[0], late[1], child] {
        assert_eq!(mask(tid), usable());
    }
}

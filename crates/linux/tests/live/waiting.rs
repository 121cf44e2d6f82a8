//! Waiting ends when it is time, when the programs end, and when it is told to.

use crate::scene::{NO_COMPILER, PROC, Seen, Worker, need, usable};
use rustix::process::Signal;
use std::path::Path;
use trimtab_core::balance::Wanted;
use trimtab_core::drive::{Awake, Host};
use trimtab_core::time::{Moment, Span};
use trimtab_linux::live::Live;

const FOREVER: Moment = Moment(u64::MAX);

#[test]
fn a_wait_lasts_until_its_moment() {
    let worker = need!(Worker::start(), NO_COMPILER);
    let mut live = worker.live();
    let begin = live.observe(&Wanted::default()).unwrap().at;
    let until = begin + Span::from_ms(20);
    assert_eq!(live.wait(until).unwrap(), Awake::Due);
    assert!(live.observe(&Wanted::default()).unwrap().at >= until);
    assert_eq!(live.wait(Moment(0)).unwrap(), Awake::Due, "what has passed is due");
}

#[test]
fn the_end_of_all_roots_ends_it_and_not_before() {
    let (mut one, mut other) = (need!(Worker::start(), NO_COMPILER), need!(Worker::start(), NO_COMPILER));
    let mut live = Live::new(Path::new(PROC), &[one.root(), other.root()], &usable()).unwrap();
    one.end();
    let soon = live.observe(&Wanted::default()).unwrap().at + Span::from_ms(20);
    assert_eq!(live.wait(soon).unwrap(), Awake::Due);
    let end = std::thread::spawn(move || other.end());
    assert_eq!(live.wait(FOREVER).unwrap(), Awake::Over);
    assert_eq!(live.wait(FOREVER).unwrap(), Awake::Over, "it stays over");
    end.join().unwrap();
}

#[test]
fn a_killed_program_that_nobody_collects_has_ended() {
    let worker = need!(Worker::start(), NO_COMPILER);
    let mut live = worker.live();
    worker.signal(Signal::KILL);
    assert_eq!(live.wait(FOREVER).unwrap(), Awake::Over);
}

#[test]
fn a_program_without_its_first_thread_has_not_ended() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.threads(1);
    let mut live = worker.live();
    worker.tell("headless");
    let mut seen = Seen::default();
    crate::scene::eventually("its first thread has ended", || {
        seen.look(&mut live);
        seen.threads.len() == 1
    });
    let soon = seen.last.at + Span::from_ms(20);
    assert_eq!(live.wait(soon).unwrap(), Awake::Due);
    worker.signal(Signal::KILL);
    assert_eq!(live.wait(FOREVER).unwrap(), Awake::Over);
}

#[test]
fn a_stopper_wakes_from_any_thread_and_for_good() {
    let worker = need!(Worker::start(), NO_COMPILER);
    let mut live = worker.live();
    let stopper = live.stopper();
    let other = std::thread::spawn(move || stopper.clone().stop());
    assert_eq!(live.wait(FOREVER).unwrap(), Awake::Over);
    other.join().unwrap();
    assert_eq!(live.wait(Moment(0)).unwrap(), Awake::Over);
    assert!(live.observe(&Wanted::all()).is_ok(), "a last look is still possible");
}

//! Waiting: it ends when it is time, when the programs end, and when it is told to.

use crate::scene::{NO_COMPILER, Observations, PROC, Worker, need, usable};
use rustix::process::Signal;
use std::path::Path;
use trimtab_core::balance::{Kind, Settings, Wanted, policy};
use trimtab_core::drive::{Awake, Go, Host, drive};
use trimtab_core::observe::Observer;
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::parse_synthetic;
use trimtab_linux::host::Live;

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
fn a_killed_program_that_is_still_a_zombie_has_ended() {
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
    let mut seen = Observations::default();
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
fn a_stopper_wakes_from_any_thread_and_permanently() {
    let worker = need!(Worker::start(), NO_COMPILER);
    let mut live = worker.live();
    let stopper = live.stopper();
    let other = std::thread::spawn(move || stopper.clone().stop());
    assert_eq!(live.wait(FOREVER).unwrap(), Awake::Over);
    other.join().unwrap();
    assert_eq!(live.wait(Moment(0)).unwrap(), Awake::Over);
    assert!(live.observe(&Wanted::all()).is_ok(), "a last look is still possible");
}

#[test]
fn the_loop_runs_over_it_until_the_program_ends() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.threads(2);
    let mut live = worker.live();
    let settings = Settings { interval: Span::from_ms(2), ..Settings::default() };
    let mut policy = policy(Kind::Float, &parse_synthetic("core:2").unwrap(), &settings);
    let mut observer = Observer::new(usable());
    let mut worker = Some(worker);
    let (mut steps, mut rated) = (0, false);
    drive(&mut live, policy.as_mut(), &mut observer, &mut |step| {
        steps += 1;
        rated |= step.seen.threads.iter().any(|thread| thread.rates.is_some());
        if steps == 5
            && let Some(mut worker) = worker.take()
        {
            worker.end();
        }
        Go::On
    })
    .unwrap();
    assert!(steps >= 5 && rated);
}

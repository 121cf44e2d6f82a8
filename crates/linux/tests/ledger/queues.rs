//! Queues: planning one at a time, and waiting in line.

use crate::actor::Actor;
use crate::scene::{
    HANG, MACHINE, Random, Scene, ahead, busy, claim, cpus, eventually, processes, set, take, users,
};
use rustix::process::Signal;
use std::sync::Barrier;
use std::time::Duration;
use std::{fs, thread};
use trimtab_linux::ledger::{LedgerError, Mode, Ticket};

#[test]
fn one_plans_at_a_time() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("planner 0"), "planning");
    let error = ledger.planner(MACHINE, Duration::from_millis(20)).unwrap_err();
    assert!(
        matches!(error, LedgerError::PlannerBusy { waited, .. } if waited >= Duration::from_millis(20)),
        "{error}"
    );
    actor.ask("planned");
    let planner = ledger.planner(MACHINE, Duration::ZERO).unwrap();
    assert_eq!(planner.level(), MACHINE);
    assert!(ledger.planner(MACHINE, Duration::ZERO).is_err(), "within a process too");
    actor.tell("planner 60000");
    drop(planner);
    assert_eq!(actor.answer(), "planning");
    actor.kill();
    assert!(ledger.planner(MACHINE, Duration::ZERO).is_ok(), "the dead do not plan");
}

#[test]
fn a_stopped_planner_blocks_no_process_and_overlaps_with_no_hold() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut stopped = scene.actor();
    assert_eq!(stopped.ask("planner 0"), "planning");
    stopped.signal(Signal::STOP);
    assert!(matches!(
        ledger.planner(MACHINE, Duration::from_millis(50)),
        Err(LedgerError::PlannerBusy { .. })
    ));
    // All processes continue without it, with the same plan: of four that want CPU 0 one gets it.
    let mut others: Vec<Actor> = (0..4).map(|_| scene.actor()).collect();
    for other in &mut others {
        other.tell("planner 50");
    }
    for other in &mut others {
        assert_eq!(other.answer(), "busy");
        other.tell("take 0-3");
    }
    let mut answers: Vec<String> = others.iter_mut().map(Actor::answer).collect();
    answers.sort();
    assert!(answers[..3].iter().all(|answer| answer.starts_with("busy")), "{answers:?}");
    assert_eq!(answers[3], "held");
    // The stopped process continues with a plan that is stale by now.
    stopped.signal(Signal::CONT);
    assert_eq!(stopped.ask("take 2-5"), "busy 2-3");
    assert_eq!(stopped.ask("planned"), "done");
    assert!(ledger.planner(MACHINE, HANG).is_ok());
}

#[test]
fn waiting_processes_form_a_queue() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actors: Vec<Actor> = (0..4).map(|_| scene.actor()).collect();
    for (place, actor) in actors.iter_mut().enumerate() {
        actor.ask("enqueue");
        assert_eq!(actor.ask("ahead"), place.to_string());
    }
    assert_eq!(ledger.waiting(MACHINE, &cpus()).unwrap(), 4);
    assert_eq!(actors[1].ask("leave"), "left");
    eventually("one less is ahead", || actors[2].ask("ahead") == "1");
    actors.remove(0).kill();
    eventually("none is ahead", || actors[1].ask("ahead") == "0");
    // Late comers stand behind, even if numbers have become free before.
    actors[0].ask("enqueue");
    assert_eq!((actors[0].ask("ahead"), actors[2].ask("ahead")), ("2".into(), "1".into()));
    for actor in &mut actors {
        actor.ask("leave");
    }
    assert_eq!(ledger.waiting(MACHINE, &cpus()).unwrap(), 0);
    let mut ticket = ledger.enqueue(MACHINE, &cpus(), &claim()).unwrap();
    assert_eq!(ahead(&mut ticket), 0);
    assert!(Ticket::pause(0) < Ticket::pause(3));
    // Another set has another line, and so has another level.
    let ahead_in = |level, set: &str| ahead(&mut ledger.enqueue(level, &self::set(set), &claim()).unwrap());
    assert_eq!(ahead_in(MACHINE, "8-15"), 0);
    assert_eq!(ahead_in(MACHINE.inner().unwrap(), "0-63"), 0);
    assert_eq!(ahead_in(MACHINE, "0-3"), 1);
}

#[test]
fn processes_that_enqueue_at_once_draw_different_tickets() {
    let scene = Scene::new();
    let start = Barrier::new(8);
    for _ in 0..200 {
        let draw = || {
            let ledger = scene.ledger();
            start.wait();
            ledger.enqueue(MACHINE, &cpus(), &claim()).unwrap()
        };
        let mut tickets: Vec<Ticket> = thread::scope(|threads| {
            let drawing: Vec<_> = (0..8).map(|_| threads.spawn(draw)).collect();
            drawing.into_iter().map(|drawing| drawing.join().unwrap()).collect()
        });
        let mut before: Vec<u64> = tickets.iter_mut().map(ahead).collect();
        before.sort();
        assert_eq!(before, (0..8).collect::<Vec<u64>>());
    }
}

#[test]
fn waiting_processes_are_served_in_order() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let held = take(&ledger, "0", Mode::Exclusive).unwrap();
    let log = scene.root().join("served");
    let mut actors: Vec<Actor> = (0..8).map(|_| scene.actor()).collect();
    for (place, actor) in actors.iter_mut().enumerate() {
        actor.ask("enqueue");
        actor.tell(&format!("serve {} {place}", log.display()));
    }
    assert_eq!(busy(take(&ledger, "0", Mode::Exclusive)), set("0"));
    actors.remove(5).kill();
    drop(held);
    for actor in &mut actors {
        assert_eq!(actor.answer(), "served");
    }
    assert_eq!(fs::read_to_string(log).unwrap(), "0\n1\n2\n3\n4\n6\n7\n");
    eventually("an empty line", || ledger.waiting(MACHINE, &cpus()).unwrap() == 0);
}

#[test]
fn a_stopped_waiter_is_passed_over_and_keeps_its_place() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let held = take(&ledger, "0", Mode::Exclusive).unwrap();
    let log = scene.root().join("served");
    let mut actors: Vec<Actor> = (0..4).map(|_| scene.actor()).collect();
    for (place, actor) in actors.iter_mut().enumerate() {
        actor.ask("enqueue");
        actor.tell(&format!("serve {} {place}", log.display()));
    }
    // The first and the third are stopped; the second and the fourth are served all the same.
    actors[0].signal(Signal::STOP);
    actors[2].signal(Signal::STOP);
    // On a loaded machine a process runs on for a while.
    eventually("both are stopped", || [0, 2].iter().all(|&at| processes().is_stopped(actors[at].pid())));
    drop(held);
    assert_eq!((actors[1].answer(), actors[3].answer()), ("served".into(), "served".into()));
    assert_eq!(fs::read_to_string(&log).unwrap(), "1\n3\n");
    assert_eq!(ledger.waiting(MACHINE, &cpus()).unwrap(), 2, "both have their places still");
    // Once continued, they are served in the order in which they came, though the later one is
    // continued first.
    let held = take(&ledger, "0", Mode::Exclusive).unwrap();
    actors[2].signal(Signal::CONT);
    actors[0].signal(Signal::CONT);
    let mut newcomer = ledger.enqueue(MACHINE, &cpus(), &claim()).unwrap();
    eventually("both look again", || ahead(&mut newcomer) == 2);
    drop(held);
    assert_eq!((actors[0].answer(), actors[2].answer()), ("served".into(), "served".into()));
    assert_eq!(fs::read_to_string(&log).unwrap(), "1\n3\n0\n2\n");
    eventually("both have left", || ahead(&mut newcomer) == 0);
}

#[test]
fn a_waiter_stopped_or_killed_at_any_instant_holds_up_no_other_user() {
    let test = "a_waiter_stopped_or_killed_at_any_instant_holds_up_no_other_user";
    let Some([stopping, waiting]) = users(test) else { return };
    let scene = Scene::new();
    let mut other = scene.actor_of(waiting);
    other.ask("open");
    let mut random = Random(2026);
    for round in 0..12 {
        let actor = {
            let mut actor = scene.actor_of(stopping);
            actor.ask(&format!("churn {round}"));
            actor
        };
        thread::sleep(Duration::from_micros(random.below(30_000)));
        actor.signal(if round % 4 == 3 { Signal::KILL } else { Signal::STOP });
        other.ask("enqueue");
        eventually("it is the first that looks", || other.ask("ahead") == "0");
        other.ask("leave");
    }
}

#[test]
fn a_ticket_of_a_version_without_pulses_is_waited_for() {
    use std::os::fd::AsFd;
    use trimtab_linux::sys::lock::{LockKind, try_lock};
    let scene = Scene::new();
    let ledger = scene.ledger();
    let earlier = fs::File::options().read(true).write(true).open(scene.file("locks")).unwrap();
    let ticket = 1u64 << 60;
    assert!(try_lock(earlier.as_fd(), ticket..ticket + 1, LockKind::Write).unwrap());
    let mut ours = ledger.enqueue(MACHINE, &cpus(), &claim()).unwrap();
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        assert_eq!(ahead(&mut ours), 1);
        thread::sleep(Duration::from_millis(50));
    }
    drop(earlier);
    eventually("the other has left", || ahead(&mut ours) == 0);
}

#[test]
fn a_blocked_line_is_an_error_and_not_a_hang() {
    use std::os::fd::AsFd;
    use trimtab_linux::sys::lock::{END, LockKind, try_lock};
    let scene = Scene::new();
    let ledger = scene.ledger();
    let hostile = fs::File::options().read(true).write(true).open(scene.file("locks")).unwrap();
    assert!(try_lock(hostile.as_fd(), 0..END, LockKind::Read).unwrap());
    assert!(matches!(ledger.enqueue(MACHINE, &cpus(), &claim()), Err(LedgerError::QueueBlocked { .. })));
    assert!(matches!(
        ledger.planner(MACHINE, Duration::from_millis(1)),
        Err(LedgerError::PlannerBusy { .. })
    ));
    assert_eq!(busy(take(&ledger, "0-3", Mode::Exclusive)), set("0-3"));
    let map = ledger.map(MACHINE, &cpus()).unwrap();
    assert_eq!(map.shared, cpus());
    assert_eq!(ledger.holders(MACHINE, &cpus()).unwrap().unknown, cpus());
    // Sharing with a read lock over everything is still possible, and has a name if an id can be
    // shared too.
    let held = take(&ledger, "0-3", Mode::Shared).unwrap();
    assert!(held.unnamed().is_some());
}

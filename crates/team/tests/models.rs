//! The flags and what is built of them, in all orders that threads and memory may take (`make test-models`).
//!
//! The code is the crate's own: stations, barriers, rounds and flags, with a model's atomics, fewer slots, and a model of the kernel's sleep
//! without a clock, so that whoever is forgotten hangs, and is found. Accesses to payloads are checked as those to plain memory are:
//! two that nothing orders fail. Each property is also seen to fail where the protocol leaves something out.
//!
//! How often threads may be interrupted is bounded (`LOOM_MAX_PREEMPTIONS`, 3 here unless set); without a bound these take hours.
#![cfg(trimtab_model)]
#![allow(clippy::unwrap_used, unsafe_code, reason = "tests of raw memory")]

use loom::sync::Arc;
use loom::thread;
use std::collections::BTreeMap;
use std::time::Instant;
use trimtab_team::algorithm_table::{Algorithm, Table, class};
use trimtab_team::barrier::Barrier;
use trimtab_team::endpoint::{Company, Endpoint, now};
use trimtab_team::flag::{Flag, reached};
use trimtab_team::shared_layout::{Area, CELLS, Lines, SLOTS};
use trimtab_team::sync::model::{Broken, forget, set_broken, touch, track};
use trimtab_team::wait::{Faults, Patience, Policy, linger, wake};
use trimtab_team::{Call, Element, Error, Kernel, Kind, Operator, Sync};

/// Nobody dies here.
struct Alive;

impl Company for Alive {
    fn dead(&self) -> Option<u32> {
        None
    }
    fn left(&self, _: u32) -> bool {
        false
    }

    fn gone(&self, _: u32) -> bool {
        false
    }
}

impl Faults for Alive {
    fn looked(&self, now: Instant) -> Instant {
        now
    }
    fn look(&self, _: Instant) -> Option<Error> {
        None
    }
}

/// Runs a model in every order, with something left out of the protocol.
fn model(broken: Broken, run: impl Fn() + Send + std::marker::Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(3);
    }
    set_broken(broken);
    builder.check(move || {
        forget();
        run();
    });
}

/// The lines of a team in plain memory.
struct Memory(Vec<Lines>);

/// Runs a function on each rank of a team.
fn team(ranks: u32, work: impl Fn(&Endpoint) + Send + std::marker::Sync + Copy + 'static) {
    let memory = Arc::new(Memory((0..ranks).map(|_| Lines::new()).collect()));
    for lines in &memory.0 {
        lines.slots.iter().for_each(Flag::track);
    }
    let run = move |memory: Arc<Memory>, rank: u32| {
        let control = memory.0.as_ptr().cast_mut().cast();
        // SAFETY: as many lines as ranks, which live until all threads are over; cells are not used.
        let area = unsafe { Area::at(control, std::ptr::null_mut(), ranks, 1024) };
        let patience = Patience::new(Policy::Park, true);
        let heap = (std::ptr::null_mut(), 0);
        work(&Endpoint::new(area, rank, true, true, patience, std::rc::Rc::new(Alive), heap));
    };
    let others: Vec<_> = (1..ranks)
        .map(|rank| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || run(memory, rank))
        })
        .collect();
    run(Arc::clone(&memory), 0);
    others.into_iter().for_each(|other| other.join().unwrap());
}

fn call(kind: Kind, root: u32, input: *const u64, output: *mut u64) -> Call {
    Call {
        kind,
        elements: u64::TYPE,
        operator: Some(Operator::Sum),
        kernel: Some(Kernel::of(u64::TYPE, Operator::Sum).unwrap()),
        count: 1,
        root,
        input: input.cast(),
        output: output.cast(),
        sync: Sync::MINE,
    }
}

fn allreduce(station: &Endpoint, value: u64) -> u64 {
    let mut sum = 0;
    let call = call(Kind::Allreduce, 0, &raw const value, &raw mut sum);
    // SAFETY: a number each, on the stack.
    now(unsafe { station.carry_out(&call, false) }).unwrap();
    sum
}

fn broadcast(station: &Endpoint, value: u64) -> u64 {
    let mut value = value;
    let buffer = &raw mut value;
    let call = call(Kind::Broadcast, 0, buffer, buffer);
    // SAFETY: as above.
    now(unsafe { station.carry_out(&call, false) }).unwrap();
    value
}

/// A model of which some order hangs. That ends the process, so it is another one.
fn hangs(name: &str) {
    let own = std::env::current_exe().unwrap();
    let ended = std::process::Command::new(own).args(["--exact", "--ignored", name]).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!ended.status.success() && said.contains("deadlock"), "{said}");
}

/// One raises, others sleep until then, and read what was written before.
fn sleepers(count: usize) {
    let flag = Arc::new(Flag::new());
    flag.track();
    let sleepers: Vec<_> = (0..count)
        .map(|_| {
            let flag = Arc::clone(&flag);
            thread::spawn(move || {
                let word = linger(&flag, 1, &Patience::new(Policy::Park, true), true, &Alive).unwrap();
                assert!(reached(word as u32, 1) && word >> 32 == 7);
                touch(flag.payload(), false);
                // SAFETY: the payload is there, and nobody writes it any more.
                assert_eq!(unsafe { flag.payload().read() }, 42);
            })
        })
        .collect();
    touch(flag.payload(), true);
    // SAFETY: nobody reads before the flag is raised.
    unsafe { flag.payload().write(42) };
    if flag.raise(1, 7) {
        wake(&flag, true);
    }
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
}

#[test]
fn no_wake_up_is_lost() {
    model(Broken::Nothing, || sleepers(1));
}

#[test]
fn no_wake_up_of_two_is_lost() {
    model(Broken::Nothing, || sleepers(2));
}

#[test]
#[should_panic = "Causality violation"]
fn relaxed_flags_would_show_unwritten_payloads() {
    model(Broken::RaisedRelaxed, || sleepers(1));
}

#[test]
fn without_a_fence_wake_ups_would_be_lost() {
    hangs("a_wake_up_without_a_fence");
}

#[test]
#[ignore = "hangs, as another test sees"]
fn a_wake_up_without_a_fence() {
    model(Broken::RaisedWithoutFence, || sleepers(1));
}

#[test]
fn without_another_look_wake_ups_would_be_lost() {
    hangs("a_wake_up_without_another_look");
}

#[test]
#[ignore = "hangs, as another test sees"]
fn a_wake_up_without_another_look() {
    model(Broken::NotLookedAgain, || sleepers(1));
}

/// How ranks meet; the first two are near each other.
fn table(barrier: Barrier, ranks: u32) -> Table {
    let groups = (0..ranks).map(|rank| u32::from(rank > 1)).collect();
    Table { barrier, groups, ..Table::usual(true) }
}

/// Barriers in a row: nobody is past one that somebody has not come to.
fn barriers(ranks: u32, how: Barrier, count: u32) {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    // Not the model's: only its schedule shows.
    let come = Box::leak(Box::new([const { AtomicU32::new(0) }; 4]));
    let come: &'static [AtomicU32; 4] = come;
    team_with(ranks, come, move |station, come| {
        station.install(table(how, ranks));
        for number in 1..=count {
            come[number as usize].fetch_add(1, Relaxed);
            now(station.barrier(how, 5)).unwrap();
            assert_eq!(come[number as usize].load(Relaxed), ranks, "barrier {number}");
        }
    });
}

fn team_with<T: Copy + Send + std::marker::Sync + 'static>(
    ranks: u32,
    with: T,
    work: impl Fn(&Endpoint, T) + Send + std::marker::Sync + Copy + 'static,
) {
    team(ranks, move |station| work(station, with));
}

#[test]
fn two_disseminate_twice() {
    model(Broken::Nothing, || barriers(2, Barrier::Dissemination, 2));
}

#[test]
fn three_disseminate() {
    model(Broken::Nothing, || barriers(3, Barrier::Dissemination, 1));
}

#[test]
fn two_meet_at_the_centre_twice() {
    model(Broken::Nothing, || barriers(2, Barrier::Central, 2));
}

#[test]
fn three_meet_at_the_centre() {
    model(Broken::Nothing, || barriers(3, Barrier::Central, 1));
}

#[test]
fn two_meet_flat() {
    model(Broken::Nothing, || barriers(2, Barrier::Flat, 1));
}

#[test]
fn three_meet_by_groups() {
    model(Broken::Nothing, || barriers(3, Barrier::Grouped, 1));
}

#[test]
fn a_barrier_without_fences_would_hang() {
    hangs("a_barrier_without_fences");
}

#[test]
#[ignore = "hangs, as another test sees"]
fn a_barrier_without_fences() {
    model(Broken::RaisedWithoutFence, || barriers(2, Barrier::Dissemination, 1));
}

/// More calls than slots, so that each is used again.
fn allreduces(ranks: u32, how: Barrier, count: u64) {
    team(ranks, move |station| {
        // In the middle of a call they meet at a centre, or wait for each other in turn.
        station.install(table(how, ranks));
        for round in 0..count {
            let all = u64::from(ranks);
            let sum = allreduce(station, u64::from(station.rank) + 10 * round);
            assert_eq!(sum, all * (all - 1) / 2 + all * 10 * round);
        }
    });
}

#[test]
fn two_combine_as_often_as_slots_come_round() {
    model(Broken::Nothing, || allreduces(2, Barrier::Dissemination, 3));
}

#[test]
fn two_combine_at_the_centre_as_often_as_slots_come_round() {
    model(Broken::Nothing, || allreduces(2, Barrier::Central, 3));
}

#[test]
#[should_panic = "Causality violation"]
fn relaxed_flags_would_combine_what_is_not_there() {
    model(Broken::RaisedRelaxed, || allreduces(2, Barrier::Dissemination, 1));
}

/// The root is ahead of who reads, as far as there are slots.
fn broadcasts(ranks: u32, count: u64) {
    team(ranks, move |station| {
        for round in 0..count {
            let value = if station.rank == 0 { round + 1 } else { 0 };
            assert_eq!(broadcast(station, value), round + 1);
        }
    });
}

#[test]
fn a_root_that_runs_ahead_overwrites_nothing() {
    model(Broken::Nothing, || broadcasts(2, 4));
}

#[test]
#[should_panic]
fn a_root_that_did_not_ask_would_overwrite() {
    model(Broken::NotVacant, || broadcasts(2, 3));
}

/// Calls through cells, each with what they make of each rank's input.
fn staged<const CELL: usize, const ELEMENTS: usize>(
    count: u32,
    way: Table,
    kind: Kind,
    input: fn(u32, u64) -> u64,
    output: fn(u64) -> u64,
) {
    let memory = Arc::new(Memory((0..2).map(|_| Lines::new()).collect()));
    memory.0.iter().flat_map(|lines| &lines.slots).for_each(Flag::track);
    // Cells, and what the model sees of each.
    let stage: &'static mut [u64] = vec![0_u64; 2 * CELLS * CELL / 8].leak();
    let stage = stage.as_mut_ptr().cast::<u8>();
    let cells: Vec<_> = (0..2 * CELLS).map(|_| loom::cell::UnsafeCell::new(())).collect();
    for (at, cell) in cells.iter().enumerate() {
        track(stage.wrapping_add(at * CELL), CELL, cell);
    }
    let stage = stage as usize;
    let run = move |memory: Arc<Memory>, rank: u32, way: Table| {
        let control = memory.0.as_ptr().cast_mut().cast();
        // SAFETY: as many lines and cells as ranks, which live until all threads are over.
        let area = unsafe { Area::at(control, stage as *mut u8, 2, CELL) };
        let patience = Patience::new(Policy::Park, true);
        let heap = (std::ptr::null_mut(), 0);
        let station = Endpoint::new(area, rank, true, true, patience, std::rc::Rc::new(Alive), heap);
        station.install(way);
        for round in 1..=u64::from(count) {
            let mut buffer = [input(rank, round); ELEMENTS];
            let at = buffer.as_mut_ptr();
            let call = Call { count: ELEMENTS, ..call(kind, 0, at, at) };
            // SAFETY: as many numbers, on the stack.
            now(unsafe { station.carry_out(&call, false) }).unwrap();
            assert_eq!(buffer, [output(round); ELEMENTS]);
        }
    };
    let ranks = [0, 1].map(|rank| {
        let (memory, way) = (Arc::clone(&memory), way.clone());
        // A model's threads have small stacks unless asked.
        let thread = thread::Builder::new().stack_size(1 << 20);
        thread.spawn(move || run(memory, rank, way)).unwrap()
    });
    ranks.into_iter().for_each(|rank| rank.join().unwrap());
}

/// Broadcasts in two pieces each: each cell is used again by the next call.
fn pieces(count: u32) {
    let table = Table::usual(true);
    staged::<128, 25>(
        count,
        table,
        Kind::Broadcast,
        |rank, round| if rank == 0 { round } else { 0 },
        |round| round,
    );
}

/// What goes through cells goes this way.
fn long(way: Algorithm) -> Table {
    let ways = BTreeMap::from([(Kind::Allreduce, BTreeMap::from([(class(2048), way)]))]);
    Table { ways, ..Table::usual(false) }
}

/// Allreduces in two pieces each, of which each rank combines a slice while the next piece is staged.
fn slices(count: u32) {
    staged::<1024, 256>(
        count,
        long(Algorithm::Slices(10)),
        Kind::Allreduce,
        |rank, round| u64::from(rank) + 10 * round,
        |round| 1 + 20 * round,
    );
}

#[test]
fn slices_in_five_slots_are_read_before_these_are_used_again() {
    assert_eq!(SLOTS, 5, "scripts/test-models builds these with more slots");
    model(Broken::Nothing, || slices(2));
}

#[test]
fn wide_pieces_in_five_slots_are_read_before_these_are_used_again() {
    assert_eq!(SLOTS, 5, "as above");
    let output = |round: u64| 1 + 20 * round;
    model(Broken::Nothing, move || {
        staged::<1024, 256>(
            2,
            long(Algorithm::Wide),
            Kind::Allreduce,
            |rank, round| u64::from(rank) + 10 * round,
            output,
        );
    });
}

#[test]
#[should_panic]
fn slices_in_two_slots_would_be_overwritten_by_ranks_that_did_not_ask() {
    model(Broken::NotVacant, || slices(1));
}

#[test]
fn pieces_are_read_before_their_cells_are_used_again() {
    model(Broken::Nothing, || pieces(2));
}

#[test]
#[should_panic]
fn pieces_would_be_overwritten_by_a_root_that_did_not_ask() {
    model(Broken::NotVacant, || pieces(2));
}

/// Rank 1 reads memory of rank 0's, which gives the team up and then writes it.
fn shown() {
    team(2, |station| {
        station.set_direct(true);
        let memory = station.area.slot(0, 1).payload();
        if station.rank == 0 {
            station.settle();
            touch(memory, true);
        } else if let Ok(_touch) = station.touch() {
            touch(memory, false);
        }
    });
}

#[test]
fn nobody_reads_what_was_shown_when_its_owner_has_settled() {
    model(Broken::Nothing, shown);
}

#[test]
#[should_panic = "Causality violation"]
fn without_fences_somebody_would() {
    model(Broken::RaisedWithoutFence, shown);
}

/// Rank 1 copies what rank 0 shows, as the kernel does, without asking first; rank 0 fails, and then writes it anew.
fn pulled() {
    use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let memory: &'static _ = Box::leak(Box::new(AtomicU64::new(1)));
    team(2, move |station| {
        if station.rank == 0 {
            station.give_up(trimtab_team::shared_layout::Cause::Timeout, 0);
            station.withdraw();
            memory.store(2, Relaxed);
            return;
        }
        let read = memory.load(Relaxed);
        match station.believe(0) {
            Ok(()) => assert_eq!(read, 1),
            Err(error) => assert_eq!(error, Error::Revoked(0)),
        }
    });
}

#[test]
fn nobody_believes_what_was_read_after_its_owner_has_failed() {
    model(Broken::Nothing, pulled);
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn without_fences_somebody_would_believe_it() {
    model(Broken::RaisedWithoutFence, pulled);
}

//! Models of the flags and everything built on them, in all orders that threads and memory may take
//! (`make test-models`).
//!
//! The code is the crate's own: endpoints, barriers, rounds and flags, with a model's atomics,
//! fewer slots, and a model of the kernel's sleep without a clock, so that a forgotten thread
//! hangs, and is found. Accesses to payloads are checked like accesses to plain memory: two
//! accesses that nothing orders fail. Each property is also seen to fail when a part of the
//! protocol is left out.
//!
//! The number of preemptions of threads is bounded (`LOOM_MAX_PREEMPTIONS`, 3 here unless set, and 1
//! for gathers of three ranks); without a bound these tests take hours.
#![cfg(trimtab_model)]
#![allow(clippy::unwrap_used, unsafe_code, reason = "tests of raw memory")]

use loom::sync::Arc;
use loom::thread;
use std::collections::BTreeMap;
use std::time::Instant;
use trimtab_team::algorithm_table::{Algorithm, AlgorithmTable, class};
use trimtab_team::barrier::Barrier;
use trimtab_team::endpoint::{BlocksView, Endpoint, PeerLiveness, now};
use trimtab_team::flag::{Flag, reached};
use trimtab_team::shared_layout::{Area, CELL_COUNT, Lines, SLOT_COUNT};
use trimtab_team::sync::model::{Broken, forget, set_broken, touch, track};
use trimtab_team::wait::{Faults, Patience, Policy, linger, wake};
use trimtab_team::{Block, CollectiveCall, Element, Error, Kernel, Kind, Operator, Sync, VariedCall};

/// A team in which no rank dies.
struct Alive;

impl PeerLiveness for Alive {
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
    fn last_checked(&self, now: Instant) -> Instant {
        now
    }
    fn check(&self, _: Instant) -> Option<Error> {
        None
    }
}

/// Runs a model in every order, with something left out of the protocol.
fn model(broken: Broken, run: impl Fn() + Send + std::marker::Sync + 'static) {
    model_bounded(usize::MAX, broken, run);
}

/// As [`model`], with at most this number of preemptions.
fn model_bounded(most: usize, broken: Broken, run: impl Fn() + Send + std::marker::Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3).min(most));
    set_broken(broken);
    builder.check(move || {
        forget();
        run();
    });
}

/// The lines of a team in plain memory.
struct ModelMemory(Vec<Lines>);

/// Runs a function on each rank of a team.
fn team(ranks: u32, work: impl Fn(&Endpoint) + Send + std::marker::Sync + Copy + 'static) {
    let memory = Arc::new(ModelMemory((0..ranks).map(|_| Lines::new()).collect()));
    for lines in &memory.0 {
        lines.slots.iter().for_each(Flag::track);
    }
    let run = move |memory: Arc<ModelMemory>, rank: u32| {
        let control = memory.0.as_ptr().cast_mut().cast();
        // SAFETY: one line for each rank, which live until all threads are over; cells are not
        // used.
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

fn call(kind: Kind, root: u32, input: *const u64, output: *mut u64) -> CollectiveCall {
    CollectiveCall {
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

fn allreduce(endpoint: &Endpoint, value: u64) -> u64 {
    let mut sum = 0;
    let call = call(Kind::Allreduce, 0, &raw const value, &raw mut sum);
    // SAFETY: a number each, on the stack.
    now(unsafe { endpoint.carry_out(&call, BlocksView::default()) }).unwrap();
    sum
}

fn broadcast(endpoint: &Endpoint, value: u64) -> u64 {
    let mut value = value;
    let buffer = &raw mut value;
    let call = call(Kind::Broadcast, 0, buffer, buffer);
    // SAFETY: as above.
    now(unsafe { endpoint.carry_out(&call, BlocksView::default()) }).unwrap();
    value
}

/// Checks that some order of a model hangs. That ends the process, so it runs in another one.
fn hangs(name: &str) {
    let own = std::env::current_exe().unwrap();
    let ended = std::process::Command::new(own).args(["--exact", "--ignored", name]).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!ended.status.success() && said.contains("deadlock"), "{said}");
}

/// One thread raises a flag. Others sleep until then, and read the data that was written before.
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
                // SAFETY: the payload is there, and no thread writes it any more.
                assert_eq!(unsafe { flag.payload().read() }, 42);
            })
        })
        .collect();
    touch(flag.payload(), true);
    // SAFETY: no thread reads before the flag is raised.
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
#[ignore = "hangs on purpose: another test starts it and checks that"]
fn a_wake_up_without_a_fence() {
    model(Broken::RaisedWithoutFence, || sleepers(1));
}

#[test]
fn without_a_second_read_wake_ups_would_be_lost() {
    hangs("a_wake_up_without_a_second_read");
}

#[test]
#[ignore = "hangs on purpose: another test starts it and checks that"]
fn a_wake_up_without_a_second_read() {
    model(Broken::NotReloaded, || sleepers(1));
}

/// Returns a table with this barrier; the first two ranks are near each other.
fn table(barrier: Barrier, ranks: u32) -> AlgorithmTable {
    let groups = (0..ranks).map(|rank| u32::from(rank > 1)).collect();
    AlgorithmTable { barrier, groups, ..AlgorithmTable::usual(true) }
}

/// Makes barriers in a row: no rank is past one to which another has not come.
fn barriers(ranks: u32, how: Barrier, count: u32) {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    // Not the model's atomics: these only follow its schedule.
    let come = Box::leak(Box::new([const { AtomicU32::new(0) }; 4]));
    let come: &'static [AtomicU32; 4] = come;
    team_with(ranks, come, move |endpoint, come| {
        endpoint.install(table(how, ranks));
        for number in 1..=count {
            come[number as usize].fetch_add(1, Relaxed);
            now(endpoint.barrier(how, 5)).unwrap();
            assert_eq!(come[number as usize].load(Relaxed), ranks, "barrier {number}");
        }
    });
}

fn team_with<T: Copy + Send + std::marker::Sync + 'static>(
    ranks: u32,
    with: T,
    work: impl Fn(&Endpoint, T) + Send + std::marker::Sync + Copy + 'static,
) {
    team(ranks, move |endpoint| work(endpoint, with));
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
fn two_ranks_pass_the_central_barrier_twice() {
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
#[ignore = "hangs on purpose: another test starts it and checks that"]
fn a_barrier_without_fences() {
    model(Broken::RaisedWithoutFence, || barriers(2, Barrier::Dissemination, 1));
}

/// Makes more calls than slots, so that each slot is used again.
fn allreduces(ranks: u32, how: Barrier, count: u64) {
    team(ranks, move |endpoint| {
        // Within a call they meet at a central barrier, or wait for each other in turn.
        endpoint.install(table(how, ranks));
        for round in 0..count {
            let all = u64::from(ranks);
            let sum = allreduce(endpoint, u64::from(endpoint.rank) + 10 * round);
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
fn relaxed_flags_would_combine_data_that_is_not_there() {
    model(Broken::RaisedRelaxed, || allreduces(2, Barrier::Dissemination, 1));
}

/// The root is ahead of the readers, by as many messages as there are slots.
fn broadcasts(ranks: u32, count: u64) {
    team(ranks, move |endpoint| {
        for round in 0..count {
            let value = if endpoint.rank == 0 { round + 1 } else { 0 };
            assert_eq!(broadcast(endpoint, value), round + 1);
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

/// Makes calls through cells; `output` is the expected result of each.
fn staged<const CELL: usize, const ELEMENTS: usize>(
    count: u32,
    way: AlgorithmTable,
    kind: Kind,
    input: fn(u32, u64) -> u64,
    output: fn(u64) -> u64,
) {
    let memory = Arc::new(ModelMemory((0..2).map(|_| Lines::new()).collect()));
    memory.0.iter().flat_map(|lines| &lines.slots).for_each(Flag::track);
    // Cells, with one tracked cell of the model for each.
    let stage: &'static mut [u64] = vec![0_u64; 2 * CELL_COUNT * CELL / 8].leak();
    let stage = stage.as_mut_ptr().cast::<u8>();
    let cells: Vec<_> = (0..2 * CELL_COUNT).map(|_| loom::cell::UnsafeCell::new(())).collect();
    for (at, cell) in cells.iter().enumerate() {
        track(stage.wrapping_add(at * CELL), CELL, cell);
    }
    let stage = stage as usize;
    let run = move |memory: Arc<ModelMemory>, rank: u32, way: AlgorithmTable| {
        let control = memory.0.as_ptr().cast_mut().cast();
        // SAFETY: lines and cells for all ranks, which live until all threads are over.
        let area = unsafe { Area::at(control, stage as *mut u8, 2, CELL) };
        let patience = Patience::new(Policy::Park, true);
        let heap = (std::ptr::null_mut(), 0);
        let endpoint = Endpoint::new(area, rank, true, true, patience, std::rc::Rc::new(Alive), heap);
        endpoint.install(way);
        for round in 1..=u64::from(count) {
            let mut buffer = [input(rank, round); ELEMENTS];
            let at = buffer.as_mut_ptr();
            let call = CollectiveCall { count: ELEMENTS, ..call(kind, 0, at, at) };
            // SAFETY: `ELEMENTS` numbers, on the stack.
            now(unsafe { endpoint.carry_out(&call, BlocksView::default()) }).unwrap();
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
    let table = AlgorithmTable::usual(true);
    staged::<128, 25>(
        count,
        table,
        Kind::Broadcast,
        |rank, round| if rank == 0 { round } else { 0 },
        |round| round,
    );
}

/// Returns a table by which calls through cells use this algorithm.
fn long(way: Algorithm) -> AlgorithmTable {
    let ways = BTreeMap::from([(Kind::Allreduce, BTreeMap::from([(class(2048), way)]))]);
    AlgorithmTable { ways, ..AlgorithmTable::usual(false) }
}

/// Allreduces in two pieces each, of which each rank combines a slice while the next piece is
/// staged.
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
    assert_eq!(SLOT_COUNT, 5, "scripts/test-models builds these with more slots");
    model(Broken::Nothing, || slices(2));
}

#[test]
fn wide_pieces_in_five_slots_are_read_before_these_are_used_again() {
    assert_eq!(SLOT_COUNT, 5, "as above");
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

/// Makes gathers with rank 0 as the root; `sizes` has the elements of each rank's block in each.
/// Then one broadcast by the last rank, which all find at the same ticket.
fn gathers<const RANKS: usize, const CALLS: usize>(sizes: [[usize; RANKS]; CALLS]) {
    const CELL: usize = 128;
    const MOST: usize = 40;
    let memory = Arc::new(ModelMemory((0..RANKS).map(|_| Lines::new()).collect()));
    memory.0.iter().flat_map(|lines| &lines.slots).for_each(Flag::track);
    let stage: &'static mut [u64] = vec![0_u64; RANKS * CELL_COUNT * CELL / 8].leak();
    let stage = stage.as_mut_ptr().cast::<u8>();
    let cells: Vec<_> = (0..RANKS * CELL_COUNT).map(|_| loom::cell::UnsafeCell::new(())).collect();
    for (at, cell) in cells.iter().enumerate() {
        track(stage.wrapping_add(at * CELL), CELL, cell);
    }
    let stage = stage as usize;
    let run = move |memory: Arc<ModelMemory>, rank: u32| {
        let control = memory.0.as_ptr().cast_mut().cast();
        // SAFETY: lines and cells for all ranks, which live until all threads are over.
        let area = unsafe { Area::at(control, stage as *mut u8, RANKS as u32, CELL) };
        let patience = Patience::new(Policy::Park, true);
        let heap = (std::ptr::null_mut(), 0);
        let endpoint = Endpoint::new(area, rank, true, true, patience, std::rc::Rc::new(Alive), heap);
        for (round, counts) in (1..).zip(sizes) {
            let input = [100 * round + u64::from(rank); MOST];
            let mut output = vec![0_u64; RANKS * MOST];
            let gets: Vec<_> = Block::packed(&counts).collect();
            let call = VariedCall {
                kind: Kind::Gather,
                elements: u64::TYPE,
                root: 0,
                input: input.as_ptr().cast(),
                gives: &[Block { place: 0, count: counts[rank as usize] }],
                output: output.as_mut_ptr().cast(),
                gets: if rank == 0 { &gets } else { &[] },
                sync: Sync::MINE,
            };
            // SAFETY: no block has more elements than the arrays have for it.
            now(unsafe { endpoint.carry_out_varied(&call, BlocksView::default()) }).unwrap();
            let given = (0..).zip(counts).flat_map(|(of, count)| vec![100 * round + of; count]);
            assert!(rank != 0 || given.eq(output.into_iter().take(counts.iter().sum())));
        }
        let (mut value, last) = (u64::from(rank) + 7, RANKS as u64 - 1);
        let buffer = &raw mut value;
        let call = call(Kind::Broadcast, last as u32, buffer, buffer);
        // SAFETY: a number on the stack.
        now(unsafe { endpoint.carry_out(&call, BlocksView::default()) }).unwrap();
        assert_eq!(value, last + 7);
    };
    let ranks: Vec<_> = (0..RANKS as u32)
        .map(|rank| {
            let memory = Arc::clone(&memory);
            // A model's threads have small stacks unless asked.
            let thread = thread::Builder::new().stack_size(1 << 20);
            thread.spawn(move || run(memory, rank)).unwrap()
        })
        .collect();
    ranks.into_iter().for_each(|rank| rank.join().unwrap());
}

#[test]
fn short_blocks_are_gathered_as_often_as_slots_come_round() {
    model(Broken::Nothing, || gathers([[1, 1], [1, 2], [1, 16]]));
}

#[test]
fn blocks_of_several_rounds_are_gathered() {
    model(Broken::Nothing, || gathers([[1, 40]]));
}

#[test]
fn a_rank_counts_the_rounds_of_a_gather_that_it_left_early() {
    // Three ranks with cells have too many orders for more.
    model_bounded(1, Broken::Nothing, || gathers([[1, 1, 33]]));
}

#[test]
#[should_panic]
fn gathered_blocks_would_be_overwritten_by_ranks_that_did_not_ask() {
    model(Broken::NotVacant, || gathers([[1, 40]]));
}

/// Rank 1 reads memory of rank 0, which gives the team up and then writes it.
fn shown() {
    team(2, |endpoint| {
        endpoint.set_direct(true);
        let memory = endpoint.area.slot(0, 1).payload();
        if endpoint.rank == 0 {
            endpoint.settle();
            touch(memory, true);
        } else if let Ok(_touch) = endpoint.touch() {
            touch(memory, false);
        }
    });
}

#[test]
fn no_buffer_is_read_after_its_owner_has_left_the_call() {
    model(Broken::Nothing, shown);
}

#[test]
#[should_panic = "Causality violation"]
fn without_fences_a_buffer_is_read_too_late() {
    model(Broken::RaisedWithoutFence, shown);
}

/// Rank 1 copies memory that rank 0 shows, as the kernel does, without checking first. Rank 0
/// fails, and then writes the memory again.
fn pulled() {
    use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let memory: &'static _ = Box::leak(Box::new(AtomicU64::new(1)));
    team(2, move |endpoint| {
        if endpoint.rank == 0 {
            endpoint.give_up(trimtab_team::shared_layout::Cause::Timeout, 0);
            endpoint.withdraw();
            memory.store(2, Relaxed);
            return;
        }
        let read = memory.load(Relaxed);
        match endpoint.check_shown(0) {
            Ok(()) => assert_eq!(read, 1),
            Err(error) => assert_eq!(error, Error::Revoked(0)),
        }
    });
}

#[test]
fn no_data_read_after_its_owner_has_failed_is_accepted() {
    model(Broken::Nothing, pulled);
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn without_fences_such_data_is_accepted() {
    model(Broken::RaisedWithoutFence, pulled);
}

//! Errors of ranks that make different calls, or not in time.
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test that starts calls on buffers")]
#![cfg(not(any(trimtab_model, miri)))]

use std::sync::Mutex;
use std::time::{Duration, Instant};
use trimtab_team::{
    CollectiveCall, Element, Error, Kernel, Kind, Operator, Options, Rank, Result, Sync, Team,
};

/// Runs a function on each rank, and returns the outcome of each.
fn team(options: Options, work: impl Fn(&Rank) -> Result<()> + std::marker::Sync) -> Vec<Result<()>> {
    let team = Team::new(options).unwrap();
    let told = Mutex::new(vec![Ok(()); options.ranks as usize]);
    let come = std::sync::Barrier::new(options.ranks as usize);
    std::thread::scope(|scope| {
        for number in 0..options.ranks {
            let (team, work, told, come) = (team.clone(), &work, &told, &come);
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                come.wait();
                let outcome = work(&rank);
                told.lock().unwrap()[number as usize] = outcome;
                // No rank leaves before all have their outcome.
                come.wait();
            });
        }
    });
    told.into_inner().unwrap()
}

fn options(ranks: u32) -> Options {
    Options { heap: 4096, cell: 1024, deadline: Some(Duration::from_secs(120)), ..Options::new(ranks) }
}

/// Makes further calls until the team is over: a rank without an error gets it then.
fn until_told(rank: &Rank, first: impl Fn(&Rank) -> Result<()>) -> Result<()> {
    first(rank)?;
    loop {
        rank.barrier()?;
    }
}

fn sum(rank: &Rank, count: usize) -> Result<()> {
    rank.mine().allreduce_in_place(&mut vec![0_u32; count], Operator::Sum)
}

#[test]
fn every_rank_gets_the_name_of_the_other_call() {
    for odd in 0..4 {
        for count in [3, 100, 5000] {
            let told = team(options(4), |rank| {
                until_told(rank, |rank| sum(rank, if rank.rank() == odd { count + 1 } else { count }))
            });
            for (me, told) in (0..).zip(told) {
                let Err(Error::Mismatch { rank, theirs, ours }) = &told else {
                    panic!("rank {me}: {told:?}")
                };
                let words = |count| format!("allreduce of {count} u32 by sum");
                let (odds, others) = (words(count + 1), words(count));
                if me == odd {
                    assert!(*rank != me && *theirs == others && *ours == odds, "rank {me}: {told:?}");
                } else {
                    assert!(*rank == odd && *theirs == odds && *ours == others, "rank {me}: {told:?}");
                }
            }
        }
    }
}

#[test]
fn a_skipped_call_and_a_different_synchronisation_are_mismatches() {
    let told = team(options(3), |rank| {
        until_told(rank, |rank| if rank.rank() == 1 { Ok(()) } else { sum(rank, 3) })
    });
    for (me, told) in told.iter().enumerate() {
        let Err(error @ Error::Mismatch { .. }) = told else { panic!("rank {me}: {told:?}") };
        assert!(error.to_string().contains("barrier"), "rank {me}: {error}");
    }
    let told = team(options(3), |rank| {
        let sync = if rank.rank() == 2 { Sync::STRICT } else { Sync::MINE };
        until_told(rank, |rank| rank.with(sync).allreduce_in_place(&mut [1_u8], Operator::Max))
    });
    for (me, told) in told.iter().enumerate() {
        let words = told.as_ref().unwrap_err().to_string();
        assert!(
            words.contains("waits for all before") && words.contains("its own data"),
            "rank {me}: {words}"
        );
    }
}

#[test]
fn a_root_that_only_gives_data_gets_the_mismatch_in_its_next_call() {
    let told = team(options(3), |rank| {
        let count = if rank.rank() == 2 { 5 } else { 4 };
        rank.mine().broadcast(&mut vec![0_u8; count], 0)?;
        until_told(rank, |_| Ok(()))
    });
    for (me, told) in told.iter().enumerate() {
        assert!(matches!(told, Err(Error::Mismatch { .. })), "rank {me}: {told:?}");
    }
}

/// A rank that makes a little progress occasionally: each wait for it is short, and the call does
/// not end.
#[test]
fn a_deadline_bounds_all_waits_of_a_call_together() {
    const COUNT: usize = 1 << 17;
    let deadline = Duration::from_millis(400);
    let told = team(options(2), |rank| {
        if rank.rank() == 0 {
            rank.set_deadline(Some(deadline));
            return sum(rank, COUNT);
        }
        let (input, mut output) = (vec![0_u32; COUNT], vec![0_u32; COUNT]);
        let call = CollectiveCall {
            kind: Kind::Allreduce,
            elements: u32::TYPE,
            operator: Some(Operator::Sum),
            kernel: Some(Kernel::of(u32::TYPE, Operator::Sum)?),
            count: COUNT,
            root: 0,
            input: input.as_ptr().cast(),
            output: output.as_mut_ptr().cast(),
            sync: Sync::MINE,
        };
        // SAFETY: both live until the call is over.
        let request = unsafe { rank.start(call) }?;
        let begin = Instant::now();
        while !rank.test(&request)? {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    });
    assert_eq!(told, [Err(Error::Timeout(deadline)), Err(Error::Revoked(0))]);
}

/// A rooted collective in which ranks 0 and 1 both act as the root.
fn with_two_roots(rank: &Rank, kind: Kind, count: usize, ranks: u32) -> Result<()> {
    let root = u32::from(rank.rank() == 1);
    let (gives, gets) = kind.shape(ranks, count, rank.rank() == root);
    let (input, mut output) = (vec![7_u8; gives], vec![0_u8; gets]);
    match kind {
        Kind::Broadcast => rank.mine().broadcast(&mut output, root),
        Kind::Reduce => rank.mine().reduce(&input, &mut output, Operator::Sum, root),
        Kind::Gather => rank.mine().gather(&input, &mut output, root),
        _ => rank.mine().scatter(&input, &mut output, root),
    }
}

#[test]
fn two_roots_are_a_mismatch_at_the_same_or_the_next_call() {
    for ranks in [2, 3, 5] {
        for kind in [Kind::Broadcast, Kind::Reduce, Kind::Gather, Kind::Scatter] {
            for count in [8, 1000, 100_000] {
                let told = team(options(ranks), |rank| {
                    with_two_roots(rank, kind, count, ranks)?;
                    rank.barrier()
                });
                let what = format!("{ranks} ranks, {} of {count}: {told:?}", kind.name());
                assert!(told.iter().any(|told| matches!(told, Err(Error::Mismatch { .. }))), "{what}");
                for error in told.iter().filter_map(|told| told.as_ref().err()) {
                    let words = error.to_string();
                    assert!(words.contains("with root 0") && words.contains("with root 1"), "{what}");
                }
            }
        }
    }
}

/// Makes a rooted call with a root of this rank's own choice, blocking or started.
fn rooted(rank: &Rank, kind: Kind, count: usize, root: u32, sync: Sync, started: bool) -> Result<()> {
    let (gives, gets) = kind.shape(rank.ranks(), count, rank.rank() == root);
    let (input, mut output) = (vec![7_u8; gives], vec![0_u8; gets]);
    let operator = kind.combines().then_some(Operator::Sum);
    let call = CollectiveCall {
        kind,
        elements: u8::TYPE,
        operator,
        kernel: operator.map(|operator| Kernel::of(u8::TYPE, operator)).transpose()?,
        count,
        root,
        input: if kind == Kind::Broadcast { output.as_ptr() } else { input.as_ptr() },
        output: output.as_mut_ptr(),
        sync,
    };
    // SAFETY: both live until the call is over, and have the lengths of the call.
    unsafe { if started { rank.wait(&rank.start(call)?) } else { rank.call(&call) } }
}

/// Runs one rooted call, and the same again after all ranks have returned from it: by then every
/// rank must have an error.
fn two_rooted_calls(ranks: u32, what: &str, call: impl Fn(&Rank) -> Result<()> + std::marker::Sync) {
    let turn = std::sync::Barrier::new(ranks as usize);
    let told = team(options(ranks), |rank| {
        let first = call(rank);
        turn.wait();
        first.and_then(|()| call(rank))
    });
    let mismatch = |told: &Result<()>| matches!(told, Err(Error::Mismatch { .. }));
    assert!(told.iter().all(mismatch), "{ranks} ranks, {what}: {told:?}");
}

const ROOTED: [Kind; 4] = [Kind::Broadcast, Kind::Reduce, Kind::Gather, Kind::Scatter];

#[test]
fn two_roots_get_the_mismatch_in_this_call_or_the_next_also_if_none_reads_data_of_others() {
    for (ranks, kind) in [2, 3].into_iter().flat_map(|ranks| ROOTED.map(|kind| (ranks, kind))) {
        for (count, sync) in [(8, Sync::MINE), (1000, Sync::LOOSE), (100_000, Sync::MINE)] {
            for started in [false, true] {
                let what = format!("{} of {count}, {sync:?}, started: {started}", kind.name());
                two_rooted_calls(ranks, &what, |rank| {
                    rooted(rank, kind, count, u32::from(rank.rank() == 1), sync, started)
                });
            }
        }
    }
}

#[test]
fn calls_in_which_no_rank_is_the_root_are_a_mismatch_in_this_call_or_the_next() {
    for (ranks, kind) in [2, 3].into_iter().flat_map(|ranks| ROOTED.map(|kind| (ranks, kind))) {
        for count in [8, 1000, 100_000] {
            two_rooted_calls(ranks, &format!("{} of {count}", kind.name()), |rank| {
                rooted(rank, kind, count, (rank.rank() + 1) % ranks, Sync::MINE, false)
            });
        }
    }
}

#[test]
fn blocks_of_different_sizes_are_a_mismatch_at_the_next_call() {
    let told = team(Options { heap: 1 << 20, ..options(3) }, |rank| {
        let _block = rank.alloc::<u8>(if rank.rank() == 1 { 200_000 } else { 1000 })?;
        until_told(rank, |rank| rank.barrier())
    });
    for (me, told) in told.iter().enumerate() {
        let words = told.as_ref().unwrap_err().to_string();
        assert!(words.contains("200000 bytes") && words.contains("of 1000 bytes"), "rank {me}: {words}");
    }
}

#[test]
fn blocks_that_are_freed_in_another_order_and_parts_of_other_sizes_are_a_mismatch() {
    let options = Options { heap: 1 << 20, ..options(2) };
    let told = team(options, |rank| {
        let (first, second) = (rank.alloc::<u8>(100)?, rank.alloc::<u8>(100)?);
        rank.barrier()?;
        rank.free(if rank.rank() == 0 { first } else { second })?;
        until_told(rank, |rank| sum(rank, 3))
    });
    assert!(told.iter().all(|told| matches!(told, Err(Error::Mismatch { .. }))), "{told:?}");
    let told = team(options, |rank| {
        until_told(rank, |rank| rank.split(Some(0), 0, 4096 << rank.rank()).map(|_| ()))
    });
    assert!(told.iter().all(|told| matches!(told, Err(Error::Mismatch { .. }))), "{told:?}");
}

#[test]
fn a_started_call_and_an_allocation_may_overlap() {
    let told = team(Options { heap: 1 << 20, ..options(3) }, |rank| {
        for round in 0..50_usize {
            let (input, mut output) = (vec![1_u32; 3000], vec![0_u32; 3000]);
            let call = CollectiveCall {
                kind: Kind::Allreduce,
                elements: u32::TYPE,
                operator: Some(Operator::Sum),
                kernel: Some(Kernel::of(u32::TYPE, Operator::Sum)?),
                count: 3000,
                root: 0,
                input: input.as_ptr().cast(),
                output: output.as_mut_ptr().cast(),
                sync: Sync::MINE,
            };
            // SAFETY: both live until the calls are over.
            let requests = unsafe { [rank.start(call)?, rank.start(call)?] };
            // The second call begins before or after the allocation, as the ranks' timing is.
            let block = rank.alloc::<u8>(100 + round)?;
            requests.iter().try_for_each(|request| rank.wait(request))?;
            assert!(output.iter().all(|sum| *sum == 3));
            rank.free(block)?;
        }
        rank.barrier()
    });
    assert_eq!(told, [Ok(()), Ok(()), Ok(())]);
}

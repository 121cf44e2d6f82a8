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
    Options { heap: 4096, cell: 1024, deadline: Some(Duration::from_secs(30)), ..Options::new(ranks) }
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
fn every_rank_is_told_what_another_called() {
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
fn who_leaves_a_call_out_and_who_waits_otherwise_is_told_so_too() {
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
fn a_root_that_only_gives_is_told_at_its_next_call() {
    let told = team(options(3), |rank| {
        let count = if rank.rank() == 2 { 5 } else { 4 };
        rank.mine().broadcast(&mut vec![0_u8; count], 0)?;
        until_told(rank, |_| Ok(()))
    });
    for (me, told) in told.iter().enumerate() {
        assert!(matches!(told, Err(Error::Mismatch { .. })), "rank {me}: {told:?}");
    }
}

/// A rank that makes a little progress now and then: each wait for it is short, and the call does
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

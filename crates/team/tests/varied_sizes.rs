//! Calls with blocks of different sizes: the ranks for which a rank waits, alltoalls that are in
//! place at some ranks alone, and ranks that do not agree on a size.
#![allow(clippy::unwrap_used, unsafe_code, reason = "tests with processes, and with buffers by address")]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{ended, inherited, number, spawn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trimtab_team::{Block, Element, Error, Kind, Operator, Options, Rank, Result, Sync, Team, VariedCall};

/// More than any machine needs: a call that waits for the wrong rank fails then.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a function on each rank of a team of threads, and returns the outcome of each.
fn threads(options: Options, work: impl Fn(&Rank) -> Result<()> + std::marker::Sync) -> Vec<Result<()>> {
    let team = Team::new(Options { deadline: Some(LIMIT), ..options }).unwrap();
    let told = Mutex::new(vec![Ok(()); options.ranks as usize]);
    let come = std::sync::Barrier::new(options.ranks as usize);
    std::thread::scope(|scope| {
        for number in 0..options.ranks {
            let (team, work, told, come) = (team.clone(), &work, &told, &come);
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                let outcome = catch_unwind(AssertUnwindSafe(|| work(&rank)));
                // No rank leaves before all have their outcome.
                come.wait();
                told.lock().unwrap()[number as usize] = outcome.unwrap_or_else(|why| resume_unwind(why));
            });
        }
    });
    told.into_inner().unwrap()
}

/// Waits, outside of the team, until so many ranks have come to a point.
fn await_count(count: &AtomicU32, wanted: u32) -> bool {
    let begin = Instant::now();
    while count.load(Ordering::SeqCst) < wanted && begin.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    count.load(Ordering::SeqCst) >= wanted
}

/// The element at a place of a rank's block.
fn element(rank: u32, at: usize) -> u32 {
    rank * 1_000_003 + at as u32 * 7 + 1
}

fn block(rank: u32, count: usize) -> Vec<u32> {
    (0..count).map(|at| element(rank, at)).collect()
}

fn blocks(counts: &[usize]) -> Vec<u32> {
    (0..).zip(counts).flat_map(|(rank, count)| block(rank, *count)).collect()
}

/// Calls of other kinds, whose rounds all ranks must count alike.
fn other_calls(rank: &Rank) -> Result<()> {
    for root in 0..rank.ranks() {
        let mut value = [if rank.rank() == root { 9 + root } else { 0 }; 40];
        rank.mine().broadcast(&mut value, root)?;
        assert_eq!(value, [9 + root; 40]);
    }
    let mut sums = [rank.rank() + 1; 500];
    rank.mine().allreduce_in_place(&mut sums, Operator::Sum)?;
    let all = rank.ranks();
    assert_eq!(sums, [all * (all + 1) / 2; 500]);
    Ok(())
}

/// Rank 1 gives a short block, rank 2 one of many rounds. Rank 0, the root, comes when rank 1 has
/// returned, and rank 1 makes its next call when the others have returned.
#[test]
fn a_gather_of_a_short_block_waits_for_no_rank_and_none_waits_for_its_next_call() {
    for (short, long) in [(0, 200_000), (1, 30_000), (26, 0), (27, 40_000), (8000, 100_000)] {
        let (returned, over) = (AtomicU32::new(0), AtomicU32::new(0));
        let told = threads(Options::new(3), |rank| {
            other_calls(rank)?;
            let counts = [3, short, long];
            let input = block(rank.rank(), counts[rank.rank() as usize]);
            if rank.rank() == 1 {
                rank.mine().gather_varied(&input, &mut [], &[], 0)?;
                returned.fetch_add(1, Ordering::SeqCst);
                assert!(await_count(&over, 2), "a rank waits for the next call of another");
            } else if rank.rank() == 2 {
                rank.mine().gather_varied(&input, &mut [], &[], 0)?;
                over.fetch_add(1, Ordering::SeqCst);
            } else {
                assert!(await_count(&returned, 1), "a rank with a short block waits");
                let mut output = vec![0; counts.iter().sum()];
                rank.mine().gather_varied(&input, &mut output, &counts, 0)?;
                assert!(output == blocks(&counts));
                over.fetch_add(1, Ordering::SeqCst);
            }
            other_calls(rank)
        });
        assert_eq!(told, [Ok(()), Ok(()), Ok(())], "blocks of {short} and {long}");
    }
}

/// As above, many times, while the root is the slowest rank and all slots are used again.
#[test]
fn gathers_in_a_row_with_roots_and_sizes_in_turn() {
    let told = threads(Options { cell: 1024, ..Options::new(4) }, |rank| {
        for step in 0..300_u32 {
            let counts = [0, 1, 2, 3].map(|of| [1, 0, 20, 400, 3][(step as usize + 3 * of) % 5]);
            let root = step / 3 % 4;
            let input = block(rank.rank() + step, counts[rank.rank() as usize]);
            if rank.rank() == root {
                let mut output = vec![0; counts.iter().sum()];
                rank.mine().gather_varied(&input, &mut output, &counts, root)?;
                let all = (0..).zip(counts).flat_map(|(of, count)| block(of + step, count));
                assert!(output == all.collect::<Vec<_>>(), "step {step}");
            } else {
                rank.mine().gather_varied(&input, &mut [], &[], root)?;
            }
            if step % 50 == 49 {
                other_calls(rank)?;
            }
        }
        rank.barrier()
    });
    assert_eq!(told, [Ok(()), Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_root_that_scatters_short_blocks_waits_for_no_rank() {
    for counts in [[3, 1, 0], [4, 9, 5], [8, 1000, 2000]] {
        let returned = AtomicU32::new(0);
        let told = threads(Options::new(3), |rank| {
            other_calls(rank)?;
            let mut output = vec![0; counts[rank.rank() as usize]];
            if rank.rank() == 0 {
                rank.mine().scatter_varied(&blocks(&counts), &counts, &mut output, 0)?;
                returned.fetch_add(1, Ordering::SeqCst);
            } else {
                assert!(await_count(&returned, 1), "the root of a scatter waits");
                rank.mine().scatter_varied(&[], &[], &mut output, 0)?;
            }
            assert_eq!(output, block(rank.rank(), counts[rank.rank() as usize]));
            other_calls(rank)
        });
        assert_eq!(told, [Ok(()), Ok(()), Ok(())], "{counts:?}");
    }
}

#[test]
fn the_root_of_a_scatter_may_have_its_own_block_in_place_and_no_other() {
    let told = threads(Options::new(2), |rank| {
        let scatter = |buffer: &mut [u8], place: usize| {
            let at = buffer.as_mut_ptr();
            let gives = [Block { place: 0, count: 3 }, Block { place: 3, count: 3 }];
            let gives: &[Block] = if rank.rank() == 0 { &gives } else { &[] };
            let gets: &[Block] = &[Block { place, count: 3 }];
            let (kind, elements, input, sync) = (Kind::Scatter, u8::TYPE, at.cast_const(), Sync::MINE);
            let call = VariedCall { kind, elements, root: 0, input, gives, output: at, gets, sync };
            // SAFETY: the blocks are within the buffer.
            unsafe { rank.call_varied(&call) }
        };
        let mut buffer = [1, 2, 3, 4, 5, 6];
        if rank.rank() == 0 {
            for place in 1..6 {
                let error = scatter(&mut buffer, place).unwrap_err();
                assert!(matches!(&error, Error::Argument(text) if text.contains("overlap")), "{error}");
            }
        }
        scatter(&mut buffer, 0)?;
        assert_eq!(buffer, if rank.rank() == 0 { [1, 2, 3, 4, 5, 6] } else { [4, 5, 6, 4, 5, 6] });
        rank.barrier()
    });
    assert_eq!(told, [Ok(()), Ok(())]);
}

/// Bytes of the blocks that two processes exchange: with the least size at which they are read at
/// their location, and more than all cells hold.
const EXCHANGED: [usize; 5] = [8 << 10, 32 << 10, 64 << 10, 100_000, 1 << 20];

/// Makes alltoalls of two ranks, in place where it is this rank's turn. The input is written again
/// as soon as a call returns.
fn exchange(rank: &Rank) {
    let (me, other) = (rank.rank(), 1 - rank.rank());
    for turn in 0..40_u32 {
        let count = EXCHANGED[turn as usize % 5];
        let in_place = turn / 5 % 2 == me;
        let byte = |from: u32| (turn * 2 + from) as u8;
        let (mut input, mut output) = (vec![byte(me); 2 * count], vec![byte(me); 2 * count]);
        let blocks = [Block { place: 0, count }, Block { place: count, count }];
        let at = output.as_mut_ptr();
        let call = VariedCall {
            kind: Kind::Alltoall,
            elements: u8::TYPE,
            root: 0,
            input: if in_place { at } else { input.as_ptr() },
            gives: &blocks,
            output: at,
            gets: &blocks,
            sync: Sync::MINE,
        };
        // SAFETY: the blocks are within both buffers.
        unsafe { rank.call_varied(&call) }.unwrap();
        input.fill(0xee);
        let got = [&output[me as usize * count..][..count], &output[other as usize * count..][..count]];
        let right = got[0].iter().all(|got| *got == byte(me)) && got[1].iter().all(|got| *got == byte(other));
        assert!(right, "turn {turn}: {count} bytes, in place: {in_place}: {:?}", got.map(|got| got[0]));
        std::hint::black_box(&input);
    }
}

/// A started process's part of the next test.
#[test]
fn a_process_exchanges() {
    if number("TRIMTAB_VARIED_EXCHANGES").is_none() {
        return;
    }
    let (team, number) = inherited(LIMIT, Some(LIMIT)).unwrap();
    show();
    exchange(&team.join(Some(number)).unwrap());
}

/// Lets any process of this user read this one; otherwise only its ancestors may (Yama).
fn show() {
    // SAFETY: a request to the kernel, which may not know it.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

#[test]
fn an_alltoall_may_be_in_place_at_one_of_two_processes() {
    show();
    for pull in [true, false] {
        let team = Team::new(Options { pull, deadline: Some(LIMIT), ..Options::new(2) }).unwrap();
        let mut other = spawn(&team, 1, "a_process_exchanges", &[("TRIMTAB_VARIED_EXCHANGES", 1)]);
        exchange(&team.join(Some(0)).unwrap());
        assert!(ended(&mut other, Instant::now() + LIMIT).is_some_and(|status| status.success()));
    }
}

#[test]
fn a_block_without_elements_may_be_named_anywhere_in_an_alltoall_in_place() {
    let told = threads(Options::new(2), |rank| {
        let (me, other) = (rank.rank(), 1 - rank.rank());
        let mut buffer = block(me, 8);
        let mut blocks = [Block { place: 0, count: 8 }; 2];
        blocks[me as usize] = Block { place: 3, count: 0 };
        let at = buffer.as_mut_ptr();
        let (kind, elements, sync) = (Kind::Alltoall, u32::TYPE, Sync::MINE);
        let (gives, gets): (&[Block], &[Block]) = (&blocks, &blocks);
        let (input, output) = (at.cast_const().cast(), at.cast());
        let call = VariedCall { kind, elements, root: 0, input, gives, output, gets, sync };
        // SAFETY: the blocks are within the buffer.
        unsafe { rank.call_varied(&call) }?;
        assert_eq!(buffer, block(other, 8));
        Ok(())
    });
    assert_eq!(told, [Ok(()), Ok(())]);
}

/// A call in which the block from rank 0 to rank 1 has `given` elements there and `expected` here;
/// in a gather it goes from rank 1 to rank 0.
fn differing(rank: &Rank, kind: Kind, given: usize, expected: usize) -> Result<()> {
    let (me, ranks) = (rank.rank() as usize, rank.ranks() as usize);
    let calls = rank.mine();
    let with = |at: usize, count: usize| (0..ranks).map(|of| if of == at { count } else { 2 }).collect();
    let sum = |counts: &Vec<usize>| counts.iter().sum::<usize>();
    match kind {
        Kind::Gather => {
            let counts: Vec<usize> = with(1, expected);
            let input = block(0, if me == 1 { given } else { 2 });
            let (mut output, at_root) = (vec![0; sum(&counts)], me == 0);
            let (output, counts): (&mut [u32], &[usize]) =
                if at_root { (&mut output, &counts) } else { (&mut [], &[]) };
            calls.gather_varied(&input, output, counts, 0)
        }
        Kind::Allgather => {
            let counts: Vec<usize> = with(0, if me == 1 { expected } else { given });
            calls.allgather_varied(&block(0, counts[me]), &mut vec![0; sum(&counts)], &counts)
        }
        Kind::Scatter => {
            let mut output = vec![0; if me == 1 { expected } else { 2 }];
            if me != 0 {
                return calls.scatter_varied(&[], &[], &mut output, 0);
            }
            let counts: Vec<usize> = with(1, given);
            calls.scatter_varied(&block(0, sum(&counts)), &counts, &mut output, 0)
        }
        _ => {
            let gives: Vec<usize> = if me == 0 { with(1, given) } else { with(1, 2) };
            let gets: Vec<usize> = if me == 1 { with(0, expected) } else { with(0, 2) };
            calls.alltoall_varied(&block(0, sum(&gives)), &gives, &mut vec![0; sum(&gets)], &gets)
        }
    }
}

const KINDS: [Kind; 4] = [Kind::Gather, Kind::Allgather, Kind::Scatter, Kind::Alltoall];
/// Sizes beside a flag, in a cell, and of several rounds: the giver has one and the receiver the
/// other.
const SIZES: [(usize, usize); 9] =
    [(5, 6), (0, 1), (1, 0), (5, 5000), (5000, 5), (5000, 4999), (60_000, 60_001), (60_000, 3), (3, 60_000)];

#[test]
fn both_sides_of_a_difference_in_size_are_named_in_this_call_or_the_next() {
    for (kind, ranks) in KINDS.into_iter().flat_map(|kind| [(kind, 2), (kind, 3), (kind, 5)]) {
        for (given, expected) in SIZES {
            let told = threads(Options::new(ranks), |rank| {
                differing(rank, kind, given, expected)?;
                rank.barrier()
            });
            let what = format!("{} of {given} and {expected}, {ranks} ranks: {told:?}", kind.name());
            for (me, told) in told.iter().enumerate() {
                let Err(error @ Error::Mismatch { .. }) = told else { panic!("rank {me}: {what}") };
                let text = error.to_string();
                assert!(text.contains(&format!("{}v of u32", kind.name())), "rank {me}: {what}");
                if me < 2 {
                    let digits =
                        |words: &str| words.split(|at: char| !at.is_ascii_digit()).next().unwrap().parse();
                    let named: Vec<usize> =
                        text.split("a block of ").skip(1).map(|words| digits(words).unwrap()).collect();
                    assert!(named.contains(&given) && named.contains(&expected), "rank {me}: {what}");
                }
            }
        }
    }
}

#[test]
fn a_difference_in_size_is_an_error_at_all_ranks_in_a_checked_call() {
    for (kind, (given, expected)) in KINDS.into_iter().flat_map(|kind| SIZES.map(|sizes| (kind, sizes))) {
        let told = threads(Options { check: true, ..Options::new(3) }, |rank| {
            rank.barrier()?;
            differing(rank, kind, given, expected)
        });
        let mismatch = |told: &Result<()>| matches!(told, Err(Error::Mismatch { .. }));
        assert!(told.iter().all(mismatch), "{} of {given} and {expected}: {told:?}", kind.name());
    }
}

/// Two ranks that both act as the root, or none.
#[test]
fn roots_on_which_ranks_differ_are_a_mismatch_in_this_call_or_the_next() {
    for (ranks, count) in [2, 3].into_iter().flat_map(|ranks| [1, 1000, 30_000].map(|count| (ranks, count))) {
        for (kind, none) in
            [Kind::Gather, Kind::Scatter].into_iter().flat_map(|kind| [(kind, false), (kind, true)])
        {
            let turn = std::sync::Barrier::new(ranks as usize);
            let told = threads(Options::new(ranks), |rank| {
                let me = rank.rank();
                let root = if none { (me + 1) % ranks } else { u32::from(me == 1) };
                let call = || {
                    let counts = vec![count; ranks as usize];
                    let (mine, mut all) = (block(me, count), vec![0; count * ranks as usize]);
                    let mut got = vec![0; count];
                    match kind {
                        Kind::Gather if me == root => {
                            rank.mine().gather_varied(&mine, &mut all, &counts, root)
                        }
                        Kind::Gather => rank.mine().gather_varied(&mine, &mut [], &[], root),
                        _ if me == root => rank.mine().scatter_varied(&all, &counts, &mut got, root),
                        _ => rank.mine().scatter_varied(&[], &[], &mut got, root),
                    }
                };
                let first = call();
                turn.wait();
                first.and_then(|()| call())
            });
            let mismatch = |told: &Result<()>| matches!(told, Err(Error::Mismatch { .. }));
            let what = format!("{ranks} ranks, {} of {count}, no root: {none}", kind.name());
            assert!(told.iter().all(mismatch), "{what}: {told:?}");
        }
    }
}

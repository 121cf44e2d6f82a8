//! Parts of teams, and the remainder of teams that lost ranks.

#![allow(clippy::unwrap_used)]

use std::time::Duration;
use trimtab_team::{Error, Operator, Options, Rank, Sync, Team};

fn team(ranks: u32, work: impl Fn(Rank) + Send + std::marker::Sync) {
    let team = Team::new(Options::new(ranks)).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (team, work) = (team.clone(), &work);
            scope.spawn(move || work(team.join(Some(rank)).unwrap()));
        }
    });
}

/// Returns the sum of all ranks' numbers, by a small, a medium and a large call.
fn sums(rank: &Rank, mine: u64) -> u64 {
    let mut small = [mine];
    rank.mine().allreduce_in_place(&mut small, Operator::Sum).unwrap();
    for count in [100, 50_000] {
        let mut more = vec![mine; count];
        rank.mine().allreduce_in_place(&mut more, Operator::Sum).unwrap();
        assert!(more.iter().all(|sum| *sum == small[0]));
    }
    small[0]
}

#[test]
fn parts_work_for_themselves_in_the_order_of_their_keys() {
    team(5, |rank| {
        let me = rank.rank();
        // Odd ranks in reverse order, even ones as they are, and the whole in between.
        let part =
            rank.split(Some(me % 2), if me % 2 == 1 { -(me as i32) } else { 0 }, 1 << 20).unwrap().unwrap();
        assert_eq!((part.rank(), part.ranks()), [(0, 3), (1, 2), (1, 3), (0, 2), (2, 3)][me as usize]);
        for round in 0..20 {
            assert_eq!(
                sums(&part, u64::from(me) + round),
                if me % 2 == 0 { 6 + 3 * round } else { 4 + 2 * round }
            );
            let mut from = [u64::from(me)];
            part.loose().broadcast(&mut from, 1).unwrap();
            assert_eq!(from, [if me % 2 == 0 { 2 } else { 1 }]);
            if round % 5 == 0 {
                assert_eq!(sums(&rank, 1), 5);
            }
        }
        let block = part.alloc::<u64>(1000).unwrap();
        block.store(0, &vec![u64::from(me); 1000]).unwrap();
        part.allreduce_shared(&block, &block, Operator::Max, Sync::MINE).unwrap();
        let mut out = [0; 1000];
        block.load(part.rank(), 0, &mut out).unwrap();
        assert_eq!(out, [if me % 2 == 0 { 4 } else { 3 }; 1000]);
        // Parts of parts.
        let alone = part.split(Some(part.rank()), 0, 0).unwrap().unwrap();
        assert_eq!((alone.ranks(), sums(&alone, 7)), (1, 7));
        part.barrier().unwrap();
        rank.barrier().unwrap();
    });
}

#[test]
fn a_rank_without_a_colour_gets_no_part() {
    team(3, |rank| {
        let part = rank.split((rank.rank() != 1).then_some(9), 0, 0).unwrap();
        assert_eq!(part.as_ref().map(Rank::ranks), (rank.rank() != 1).then_some(2));
        if let Some(part) = part {
            assert_eq!(sums(&part, 1), 2);
        }
        assert!(rank.split(Some(0), 0, usize::MAX).is_err());
        rank.barrier().unwrap();
    });
}

#[test]
fn the_remaining_team_continues_and_may_lose_more_ranks() {
    team(5, |rank| {
        assert_eq!(sums(&rank, 1), 5);
        if rank.rank() == 2 {
            return;
        }
        assert!(matches!(rank.barrier(), Err(Error::PeerLeft(2))));
        assert!(rank.mine().allreduce_in_place(&mut [0_u8; 100_000], Operator::Max).is_err());
        let old = rank.rank();
        let rank = rank.shrink(Duration::from_secs(120)).unwrap();
        assert_eq!((rank.rank(), rank.ranks()), (old - u32::from(old > 2), 4));
        for _ in 0..50 {
            assert_eq!(sums(&rank, u64::from(old)), 8);
        }
        if old == 0 {
            return;
        }
        while rank.barrier().is_ok() {}
        let rank = rank.shrink(Duration::from_secs(120)).unwrap();
        assert_eq!((rank.rank(), rank.ranks()), ([0, 0, 0, 1, 2][old as usize], 3));
        assert_eq!(sums(&rank, u64::from(old)), 8);
        let block = rank.alloc::<u32>(10_000).unwrap();
        block.store(0, &[1; 10_000]).unwrap();
        rank.allreduce_shared(&block, &block, Operator::Sum, Sync::STRICT).unwrap();
        let mut out = vec![0; 10_000];
        block.load(0, 0, &mut out).unwrap();
        assert!(out.iter().all(|sum| *sum == 3));
    });
}

#[test]
fn a_rank_that_does_not_regroup_is_named() {
    let come = std::sync::Barrier::new(2);
    team(2, |rank| {
        if rank.rank() == 0 {
            let error = rank.shrink(Duration::from_millis(50)).unwrap_err();
            assert!(error.to_string().contains("rank 1"), "{error}");
        }
        come.wait();
    });
}

#[test]
fn a_rank_that_gives_up_ends_the_calls_of_all_ranks() {
    team(3, |rank| {
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            rank.give_up();
        }
        // Some ranks may have passed the first barrier again before.
        while rank.barrier().is_ok() {}
        assert_eq!(rank.barrier(), Err(Error::Revoked(1)));
    });
}

#[test]
fn waits_in_a_part_are_interrupted_as_those_in_the_whole() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ASKED: AtomicBool = AtomicBool::new(false);
    let options = Options { interrupt: Some(|| ASKED.load(Ordering::Relaxed)), ..Options::new(2) };
    let team = Team::new(options).unwrap();
    let (parted, over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (team, parted, over) = (team.clone(), &parted, &over);
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                let part = rank.split(Some(0), 0, 0).unwrap().unwrap();
                parted.wait();
                if number == 0 {
                    ASKED.store(true, Ordering::Relaxed);
                    assert_eq!(part.barrier(), Err(Error::Interrupted));
                }
                over.wait();
            });
        }
    });
}

#[test]
fn a_team_is_usable_again_after_ranks_made_different_calls() {
    for ranks in [2, 3, 5] {
        team(ranks, move |mut rank| {
            for round in 0..3 {
                let block = rank.alloc::<u8>(if rank.rank() == 1 { 5000 } else { 100 }).unwrap();
                let error = loop {
                    let wrong = rank.rank() == round % ranks;
                    let outcome = if wrong {
                        rank.barrier()
                    } else {
                        rank.mine().allreduce_in_place(&mut vec![1_u64; 2000], Operator::Sum)
                    };
                    if let Err(error) = outcome {
                        break error;
                    }
                };
                assert!(matches!(error, Error::Mismatch { .. }), "{error}");
                drop(block);
                let before = (rank.rank(), rank.ranks());
                rank = rank.recover(Duration::from_secs(60)).unwrap();
                assert_eq!((rank.rank(), rank.ranks()), before);
                assert_eq!(sums(&rank, 1), u64::from(ranks));
                let block = rank.alloc::<u64>(100).unwrap();
                block.store(0, &[u64::from(rank.rank()); 100]).unwrap();
                rank.barrier().unwrap();
                for of in 0..ranks {
                    let mut there = [0];
                    block.load(of, 99, &mut there).unwrap();
                    assert_eq!(there, [u64::from(of)]);
                }
                rank.barrier().unwrap();
                rank.free(block).unwrap();
            }
        });
    }
}

#[test]
fn a_rank_that_does_not_come_to_recover_is_named() {
    let come = std::sync::Barrier::new(2);
    team(2, |rank| {
        if rank.rank() == 1 {
            // Alive, and elsewhere until the other has its answer.
            come.wait();
            return;
        }
        rank.give_up();
        let error = rank.recover(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(&error, Error::Refused(words) if words.contains("rank 1")), "{error}");
        come.wait();
    });
}

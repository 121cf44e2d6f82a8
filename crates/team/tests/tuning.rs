//! Teams that tune themselves: all ranks come to the same table, and calls stay right.

#![allow(clippy::unwrap_used)]

use std::time::Duration;
use trimtab_team::choice::{Table, Way, class};
use trimtab_team::tune::{Plan, Tuning, tune};
use trimtab_team::{Kind, Operator, Options, Rank, Team};

fn team<T: Send>(ranks: u32, work: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    let team = Team::new(Options { tables: trimtab_team::Tables::Usual, ..Options::new(ranks) }).unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..ranks)
            .map(|rank| {
                let (team, work) = (team.clone(), &work);
                scope.spawn(move || work(&team.join(Some(rank)).unwrap()))
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn is_right(rank: &Rank) {
    for count in [1, 1000, 9000, 70_000] {
        let mut sums = vec![u64::from(rank.rank()) + 1; count];
        rank.mine().allreduce_in_place(&mut sums, Operator::Sum).unwrap();
        assert!(
            sums.iter().all(|sum| *sum == u64::from(rank.ranks() * (rank.ranks() + 1) / 2)),
            "{:?}",
            rank.table()
        );
    }
}

#[test]
fn all_ranks_come_to_the_same_table() {
    let plan = Plan {
        kinds: vec![Kind::Barrier, Kind::Allreduce, Kind::Alltoall],
        sizes: vec![64, 4096, 100_000],
        budget: Duration::from_secs(20),
    };
    let found: Vec<Tuning> = team(2, |rank| {
        let tuning = tune(rank, &plan).unwrap();
        is_right(rank);
        assert_eq!(rank.table(), tuning.table);
        assert!(rank.explain(Kind::Allreduce, 100_000).contains("measured here"));
        tuning
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0].left, 0);
    // What fits beside a flag, or has one way alone, is no choice.
    let cells: Vec<(Kind, usize)> = found[0].cells.iter().map(|cell| (cell.kind, cell.bytes)).collect();
    assert_eq!(cells, [(Kind::Barrier, 0), (Kind::Allreduce, 100_000), (Kind::Alltoall, 100_000)]);
    for cell in &found[0].cells {
        let (_, winner) = &cell.candidates[cell.verdict.winner];
        assert_eq!(winner.len(), 24);
        // The usual one is measured as long as any.
        assert_eq!(cell.candidates[0].1.len(), 24);
    }
}

#[test]
fn when_time_is_over_the_rest_stays_usual() {
    let plan = Plan { budget: Duration::ZERO, ..Plan::default() };
    for tuning in team(2, |rank| tune(rank, &plan).unwrap()) {
        assert_eq!((tuning.cells.len(), tuning.table), (0, Table::usual(false)));
        assert!(tuning.left > 50);
    }
}

#[test]
fn every_way_gives_the_same() {
    for way in [
        Way::Whole,
        Way::Pieces(10),
        Way::Pieces(13),
        Way::Slices(10),
        Way::Slices(12),
        Way::Slices(15),
        Way::Wide,
        Way::Tree(1),
        Way::Relayed,
    ] {
        team(3, |rank| {
            let mut table = Table::usual(false);
            for class in class(1)..=class(1 << 20) {
                for kind in Kind::ALL {
                    table.ways.entry(kind).or_default().insert(class, way);
                }
            }
            // The first one's counts, whatever others think.
            let own = (rank.rank() == 0).then_some(&table);
            rank.install_of_first(own).unwrap();
            assert_eq!(rank.table(), table);
            is_right(rank);
            let mut long = vec![if rank.rank() == 1 { 7_u8 } else { 0 }; 100_000];
            rank.mine().broadcast(&mut long, 1).unwrap();
            assert!(long.iter().all(|value| *value == 7));
            let mut all = vec![0_u16; 30_000];
            rank.mine().allgather(&[rank.rank() as u16; 10_000], &mut all).unwrap();
            assert!(all.iter().enumerate().all(|(at, value)| *value as usize == at / 10_000));
        });
    }
}

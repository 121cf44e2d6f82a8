//! Teams that tune themselves: all ranks come to the same table, and calls stay right.

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code, reason = "calls that are started")]

use std::time::Duration;
use trimtab_team::algorithm_table::{Algorithm, AlgorithmTable, CallClass, class};
use trimtab_team::tune::{self, Cell, Job, Origin, Overseer, Plan, Tuning, lazy::CALLS_MAX, tune};
use trimtab_team::{BF16, Kind, Operator, Options, Rank, Tables, Team};

fn team<T: Send>(ranks: u32, work: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    team_with(Tables::Usual, ranks, work)
}

fn team_with<T: Send>(tables: Tables, ranks: u32, work: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    let team = Team::new(Options { tables, ..Options::new(ranks) }).unwrap();
    // As if other processes had the segment: threads among themselves take long messages from where
    // they are, which leaves no choice.
    let _ = team.fd();
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
        ..Plan::default()
    };
    let found: Vec<Tuning> = team(2, |rank| {
        let tuning = tune(rank, &plan).unwrap();
        is_right(rank);
        assert_eq!(rank.table(), tuning.table);
        let said = rank.explain(Kind::Allreduce, 100_000);
        assert!(said.contains("measured here beforehand") && said.contains(" us, "), "{said}");
        tuning
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0].left, 0);
    // Calls that fit beside a flag, or have only one algorithm, leave no choice.
    let cells: Vec<(Kind, usize)> =
        found[0].cells.iter().map(|cell| (cell.job.kind, cell.job.bytes)).collect();
    assert_eq!(cells, [(Kind::Barrier, 0), (Kind::Allreduce, 100_000), (Kind::Alltoall, 100_000)]);
    for cell in &found[0].cells {
        assert_eq!((cell.winner().batches, cell.origin, cell.judged), (24, Origin::Offline, true));
        // The usual one is measured as long as any.
        assert_eq!(cell.usual().batches, 24);
        assert!(cell.winner().best <= cell.winner().median);
    }
}

#[test]
fn when_time_is_over_the_rest_stays_usual() {
    let plan = Plan { budget: Duration::ZERO, ..Plan::default() };
    for tuning in team(2, |rank| tune(rank, &plan).unwrap()) {
        assert_eq!((tuning.cells.len(), tuning.table), (0, AlgorithmTable::usual(false)));
        assert!(tuning.left > 40);
    }
}

#[test]
fn every_way_gives_the_same() {
    for way in [
        Algorithm::Whole,
        Algorithm::Pieces(10),
        Algorithm::Pieces(13),
        Algorithm::Slices(10),
        Algorithm::Slices(12),
        Algorithm::Slices(15),
        Algorithm::Wide,
        Algorithm::Tree(1),
        Algorithm::Relayed,
    ] {
        team(3, |rank| {
            let mut table = AlgorithmTable::usual(false);
            for class in class(1)..=class(1 << 20) {
                for kind in Kind::ALL {
                    table.ways.entry(kind).or_default().insert(class, way);
                }
            }
            // The table of rank 0 counts, whatever the others pass.
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

#[test]
fn a_cell_for_each_manner_that_matters() {
    let plan = Plan {
        kinds: vec![Kind::Broadcast, Kind::ReduceScatter],
        sizes: vec![100_000],
        manners: vec![CallClass::Mine, CallClass::Strict, CallClass::Loose, CallClass::HeavyMine],
        ..Plan::default()
    };
    for tuning in team(2, |rank| {
        let tuning = tune(rank, &plan).unwrap();
        is_right(rank);
        tuning
    }) {
        let of = |kind| tuning.cells.iter().filter(|cell| cell.job.kind == kind).count();
        // A broadcast combines nothing.
        assert_eq!((of(Kind::Broadcast), of(Kind::ReduceScatter), tuning.left), (3, 4, 0));
        assert_eq!(tuning.table.others.len(), 3);
    }
}

/// Others use half of the machine, or none of it; a stop is requested after a number of cells.
struct Busy {
    share: f64,
    began: std::time::Instant,
    cells: std::cell::Cell<usize>,
}

impl Overseer for Busy {
    fn busy(&self) -> Option<f64> {
        // More than all ranks together can have used.
        Some(self.began.elapsed().as_secs_f64() * 100.0 * self.share)
    }

    fn processors(&self) -> f64 {
        100.0
    }

    fn stop(&self) -> bool {
        self.cells.get() == 0
    }

    fn ended(&self, _: &Cell) {
        self.cells.set(self.cells.get() - 1);
    }
}

#[test]
fn a_disturbed_cell_keeps_the_usual_algorithm_and_an_end_keeps_finished_cells() {
    let plan = Plan { kinds: vec![Kind::Barrier, Kind::Broadcast], accept_noise: false, ..Plan::default() };
    for (share, judged) in [(0.5, false), (0.0, true)] {
        let found = team(2, |rank| {
            // Only one rank sees the machine, and gets the stop request.
            let cells = std::cell::Cell::new(if rank.rank() == 0 { 3 } else { 1000 });
            let busy = Busy {
                share: if rank.rank() == 0 { share } else { 0.0 },
                began: std::time::Instant::now(),
                cells,
            };
            // Shares are computed over some time.
            std::thread::sleep(Duration::from_millis(60));
            tune::tune_watched(rank, &plan, &busy).unwrap()
        });
        assert_eq!(found[0], found[1]);
        let tuning = &found[0];
        assert_eq!(tuning.cells.len(), 3);
        assert!(tuning.left > 0);
        let last = tuning.cells.last().unwrap();
        assert_eq!(last.judged, judged, "{last:?}");
        assert_eq!(last.foreign.unwrap() > 0.4, !judged);
        // Earlier cells may have ended before any use by others was known.
        let ways = tuning.table.ways.get(&last.job.kind);
        assert_eq!(ways.is_some_and(|ways| ways.contains_key(&class(last.job.bytes))), judged, "{tuning:?}");
    }
}

#[test]
fn a_check_measures_all_candidates_for_the_same_time() {
    let plan = Plan { kinds: vec![Kind::Barrier, Kind::Allgather], sizes: vec![1 << 16], ..Plan::default() };
    for (checked, left) in team(2, |rank| {
        let before = rank.table();
        let checked = tune::check(rank, &plan, &()).unwrap();
        assert_eq!(rank.table(), before);
        checked
    }) {
        assert_eq!((checked.len(), left), (2, 0));
        for cell in checked {
            assert!(cell.candidates.iter().all(|one| one.batches == 30), "{cell:?}");
            assert!(cell.ratio >= 1.0 && (cell.kept != cell.best || cell.ratio == 1.0), "{cell:?}");
        }
    }
}

/// Makes calls of many kinds and sizes, blocking, started and loose, until all trials must be over.
fn work(rank: &Rank, rounds: usize) {
    let ranks = u64::from(rank.ranks());
    let sum = ranks * (ranks + 1) / 2;
    for round in 0..rounds {
        rank.barrier().unwrap();
        let mut sums = vec![u64::from(rank.rank()) + 1; 9000];
        rank.mine().allreduce_in_place(&mut sums, Operator::Sum).unwrap();
        assert!(sums.iter().all(|one| *one == sum), "{round}");
        let mut buffer = vec![if rank.rank() == 1 { round as u64 } else { 0 }; 3000];
        rank.strict().broadcast(&mut buffer, 1).unwrap();
        assert!(buffer.iter().all(|one| *one == round as u64), "{round}");
        rank.loose().broadcast(&mut buffer, 0).unwrap();
        let mut all = vec![0_u16; 10_000 * ranks as usize];
        rank.mine().allgather(&[rank.rank() as u16; 10_000], &mut all).unwrap();
        assert!(all.iter().enumerate().all(|(at, value)| *value as usize == at / 10_000), "{round}");
        let heavy = vec![BF16::from_f32(1.0); 20_000];
        let mut least = vec![BF16::from_f32(0.0); 20_000];
        rank.mine()
            .reduce(&heavy, &mut least[..if rank.rank() == 0 { 20_000 } else { 0 }], Operator::Min, 0)
            .unwrap();
        let mut small = [1_u32];
        rank.mine().allreduce_in_place(&mut small, Operator::Sum).unwrap();
        assert_eq!(u64::from(small[0]), ranks);
    }
}

#[test]
fn algorithms_are_measured_in_calls_and_all_ranks_choose_the_same() {
    for ranks in [2, 3] {
        let found = team_with(Tables::Lazy, ranks, |rank| {
            assert!(rank.is_lazy());
            work(rank, 3);
            let said = rank.explain(Kind::Allgather, 20_000);
            assert!(said.contains("as usual") && said.contains("were tried so far"), "{said}");
            // At most `CALLS_MAX` calls of each candidate, of which a class has ten.
            work(rank, 10 * CALLS_MAX);
            let said = rank.explain(Kind::Allgather, 20_000);
            assert!(said.contains("in this program's own calls"), "{said}");
            assert!(rank.explain(Kind::Barrier, 0).contains("in this program's own calls"));
            // Some calls are samples, and windows of them are exchanged.
            for _ in 0..if ranks == 2 { 20_000 } else { 0 } {
                rank.barrier().unwrap();
            }
            work(rank, 1);
            (rank.table(), rank.found())
        });
        for (table, tuning) in &found[1..] {
            assert_eq!((table, &tuning.cells), (&found[0].0, &found[0].1.cells));
        }
        let tuning = &found[0].1;
        let cells: Vec<(Kind, CallClass)> =
            tuning.cells.iter().map(|cell| (cell.job.kind, cell.job.manner)).collect();
        assert_eq!(
            cells,
            [
                (Kind::Barrier, CallClass::Mine),
                (Kind::Allreduce, CallClass::Mine),
                (Kind::Allgather, CallClass::Mine),
                (Kind::Broadcast, CallClass::Strict),
                (Kind::Reduce, CallClass::HeavyMine),
            ]
        );
        assert!(
            tuning.cells.iter().all(|cell| cell.origin == Origin::Lazy && cell.winner().batches <= CALLS_MAX)
        );
        let job = Job { kind: Kind::Allgather, bytes: 20_000, manner: CallClass::Mine };
        assert_eq!(
            tuning
                .table
                .chosen(job.manner, job.kind, class(job.bytes))
                .map(|(way, _)| tune::Tried::Algorithm(way)),
            tuning.cell(job).map(|cell| cell.winner().tried)
        );
    }
}

#[test]
fn started_calls_and_parts_of_a_team_try_ways_out_too() {
    team_with(Tables::Lazy, 4, |rank| {
        for round in 0..80_u64 {
            // The second fits beside a flag, in a class of which the third does not.
            let mut sums = vec![u64::from(rank.rank()); [6000, 14, 15][round as usize % 3]];
            let call = trimtab_team::CollectiveCall {
                kind: Kind::Allreduce,
                elements: trimtab_team::Type::U64,
                operator: Some(Operator::Sum),
                kernel: Some(trimtab_team::Kernel::of(trimtab_team::Type::U64, Operator::Sum).unwrap()),
                count: sums.len(),
                root: 0,
                input: sums.as_ptr().cast(),
                output: sums.as_mut_ptr().cast(),
                sync: trimtab_team::Sync::MINE,
            };
            // Some ranks start the call that others make.
            if round % 4 == u64::from(rank.rank()) {
                // SAFETY: the buffer lives until the call is over.
                let request = unsafe { rank.start(call).unwrap() };
                rank.wait(&request).unwrap();
            } else {
                // SAFETY: as above.
                unsafe { rank.call(&call).unwrap() };
            }
            assert!(sums.iter().all(|sum| *sum == 6), "{round}");
        }
        let part = rank.split(Some(rank.rank() % 2), 0, 1 << 20).unwrap().unwrap();
        assert!(part.is_lazy());
        work(&part, 30);
        part.barrier().unwrap();
        rank.barrier().unwrap();
    });
}

#[test]
fn teams_that_do_not_tune_try_nothing_out() {
    team(2, |rank| {
        work(rank, 40);
        assert!(!rank.is_lazy() && rank.found().cells.is_empty());
        assert_eq!(rank.keep().unwrap(), None);
        assert_eq!(rank.table(), AlgorithmTable::usual(rank.crowded()));
    });
}

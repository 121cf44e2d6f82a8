//! All collectives in teams of threads against their expected results, element by element, in long
//! sequences of all kinds, sizes, roots and modes: whatever the previous call was, the next must be
//! right.

#![allow(clippy::unwrap_used, unsafe_code, reason = "tests of raw memory")]

use proptest::prelude::*;
use trimtab_team::algorithm_table::{Algorithm, AlgorithmTable};
use trimtab_team::barrier::Barrier;
use trimtab_team::{
    CollectiveCall, Element, Kernel, Kind, Operator, Options, Policy, Rank, Sync, Team, When,
};

/// Runs a function on each rank of a team of threads.
fn team(options: Options, work: impl Fn(&Rank) + Send + std::marker::Sync) {
    let team = Team::new(options).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..options.ranks {
            let (team, work) = (team.clone(), &work);
            scope.spawn(move || work(&team.join(Some(rank)).unwrap()));
        }
    });
}

/// Returns the data that a rank gives in a step: any function that differs by all of these will do.
fn given(step: usize, rank: u32, at: usize) -> u64 {
    let mut x = (step as u64) << 40 ^ u64::from(rank) << 32 ^ at as u64;
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 7
}

trait Number: Element + PartialEq + std::fmt::Debug {
    fn make(from: u64) -> Self;
    fn sum(a: Self, b: Self) -> Self;
}
impl Number for u64 {
    fn make(from: u64) -> Self {
        from
    }
    fn sum(a: Self, b: Self) -> Self {
        a.wrapping_add(b)
    }
}
impl Number for f64 {
    fn make(from: u64) -> Self {
        // Of such different sizes that the order of additions shows.
        (from % 1000) as f64 * 10_f64.powi((from % 31) as i32 - 15)
    }
    fn sum(a: Self, b: Self) -> Self {
        a + b
    }
}
impl Number for u8 {
    fn make(from: u64) -> Self {
        from as u8
    }
    fn sum(a: Self, b: Self) -> Self {
        a.wrapping_add(b)
    }
}

#[derive(Debug, Clone, Copy)]
struct CollectiveStep {
    kind: Kind,
    count: usize,
    root: u32,
    sync: Sync,
    shared: bool,
    /// Ranks whose inputs lie in the segment, one bit each.
    lies: u8,
}

/// Returns what a rank gives in a step.
fn give<T: Number>(number: usize, rank: u32, len: usize) -> Vec<T> {
    (0..len).map(|at| T::make(given(number, rank, at))).collect()
}

/// Returns the expected result of a step on one rank.
fn expected<T: Number>(rank: &Rank, number: usize, step: CollectiveStep) -> Vec<T> {
    let (ranks, me, root) = (rank.ranks(), rank.rank(), step.root % rank.ranks());
    let n = step.count;
    let gets = step.kind.shape(ranks, n, me == root).1;
    // In the order of ranks, as promised.
    let folded = |at: usize, upto: u32| -> T {
        (0..=upto).map(|rank| T::make(given(number, rank, at))).reduce(T::sum).unwrap()
    };
    let last = ranks - 1;
    match step.kind {
        Kind::Barrier => vec![],
        Kind::Broadcast => give(number, root, n),
        Kind::Reduce | Kind::Allreduce => (0..gets).map(|at| folded(at, last)).collect(),
        Kind::Scan => (0..gets).map(|at| folded(at, me)).collect(),
        // Rank 0 keeps its output as it is.
        Kind::Exscan if me == 0 => vec![T::make(0); gets],
        Kind::Exscan => (0..gets).map(|at| folded(at, me - 1)).collect(),
        Kind::ReduceScatter => (0..gets).map(|at| folded(me as usize * n + at, last)).collect(),
        Kind::Gather | Kind::Allgather => {
            (0..gets).map(|at| T::make(given(number, (at / n.max(1)) as u32, at % n.max(1)))).collect()
        }
        Kind::Scatter => (0..n).map(|at| T::make(given(number, root, me as usize * n + at))).collect(),
        Kind::Alltoall => (0..gets)
            .map(|at| T::make(given(number, (at / n.max(1)) as u32, me as usize * n + at % n.max(1))))
            .collect(),
    }
}

/// Makes one step of one rank: gives, gets, and compares with the expected result.
fn step<T: Number>(rank: &Rank, number: usize, step: CollectiveStep) {
    let (ranks, me, root) = (rank.ranks(), rank.rank(), step.root % rank.ranks());
    let (gives, gets) = step.kind.shape(ranks, step.count, me == root);
    let input: Vec<T> = give(number, me, gives);
    let mut output = vec![T::make(0); gets];
    let calls = rank.with(step.sync);
    let sum = Operator::Sum;
    match step.kind {
        Kind::Barrier => rank.barrier().unwrap(),
        Kind::Broadcast | Kind::Allreduce if step.shared => by_blocks(rank, step, &input, &mut output),
        _ if step.lies != 0 => by_address(rank, step, &input, &mut output),
        Kind::Broadcast => {
            if me == root {
                output.copy_from_slice(&input);
            }
            calls.broadcast(&mut output, root).unwrap();
        }
        Kind::Reduce => calls.reduce(&input, &mut output, sum, root).unwrap(),
        Kind::Allreduce => calls.allreduce(&input, &mut output, sum).unwrap(),
        Kind::ReduceScatter => calls.reduce_scatter(&input, &mut output, sum).unwrap(),
        Kind::Gather => calls.gather(&input, &mut output, root).unwrap(),
        Kind::Allgather => calls.allgather(&input, &mut output).unwrap(),
        Kind::Scatter => calls.scatter(&input, &mut output, root).unwrap(),
        Kind::Alltoall => calls.alltoall(&input, &mut output).unwrap(),
        Kind::Scan => calls.scan(&input, &mut output, sum).unwrap(),
        Kind::Exscan => calls.exscan(&input, &mut output, sum).unwrap(),
    }
    let expected = expected::<T>(rank, number, step);
    assert_eq!(output, expected, "rank {me} of {ranks}, step {number}: {step:?}");
}

/// Makes a broadcast or an allreduce of blocks in the segment.
fn by_blocks<T: Number>(rank: &Rank, step: CollectiveStep, input: &[T], output: &mut [T]) {
    let (me, root, n) = (rank.rank(), step.root % rank.ranks(), step.count);
    let from = rank.alloc::<T>(n).unwrap();
    if step.kind == Kind::Broadcast {
        if me == root {
            from.store(0, input).unwrap();
        }
        rank.broadcast_shared(&from, root, step.sync).unwrap();
        from.load(me, 0, output).unwrap();
        rank.fence().unwrap();
    } else {
        let to = rank.alloc::<T>(n).unwrap();
        from.store(0, input).unwrap();
        rank.allreduce_shared(&from, &to, Operator::Sum, step.sync).unwrap();
        to.load(me, 0, output).unwrap();
        rank.fence().unwrap();
        rank.free(to).unwrap();
    }
    rank.free(from).unwrap();
}

/// Makes a call by addresses: all ranks allocate a block, and some have their input there.
fn by_address<T: Number>(rank: &Rank, step: CollectiveStep, input: &[T], output: &mut [T]) {
    let (kind, me, root, n) = (step.kind, rank.rank(), step.root % rank.ranks(), step.count);
    let block = rank.alloc::<T>(n * rank.ranks() as usize).unwrap();
    let here = step.lies >> me & 1 == 1;
    block.store(0, input).unwrap();
    if kind == Kind::Broadcast && me == root {
        output.copy_from_slice(input);
    }
    let call = CollectiveCall {
        kind,
        elements: T::TYPE,
        operator: kind.combines().then_some(Operator::Sum),
        kernel: kind.combines().then(|| Kernel::of(T::TYPE, Operator::Sum).unwrap()),
        count: n,
        root,
        input: if here { block.own().cast() } else { input.as_ptr().cast() },
        output: output.as_mut_ptr().cast(),
        sync: step.sync,
    };
    let call = match kind {
        Kind::Broadcast if here => CollectiveCall { output: block.own().cast(), ..call },
        Kind::Broadcast => CollectiveCall { input: call.output, ..call },
        _ => call,
    };
    // SAFETY: long enough by the shape, and used by no other rank until the fence.
    unsafe { rank.call(&call).unwrap() };
    if kind == Kind::Broadcast && here {
        block.load(me, 0, output).unwrap();
    }
    rank.fence().unwrap();
    rank.free(block).unwrap();
}

fn any_step() -> impl Strategy<Value = CollectiveStep> {
    let when = || prop::sample::select(vec![When::None, When::Mine, When::All]);
    // Beside a flag, in a cell, in several cells, and around the limits of each.
    let count = prop_oneof![
        4 => 0_usize..20,
        2 => prop::sample::select(vec![13_usize, 14, 15, 112, 113, 127, 128, 129, 255, 256, 1023, 1024, 1025]),
        1 => 0_usize..20_000,
    ];
    let lies = prop_oneof![2 => Just(0_u8), 1 => Just(u8::MAX), 1 => any::<u8>()];
    (0..Kind::ALL.len(), count, 0_u32..64, when(), when(), any::<bool>(), lies).prop_map(
        |(kind, count, root, enter, leave, shared, lies)| CollectiveStep {
            kind: Kind::ALL[kind],
            count,
            root,
            sync: Sync { enter, leave },
            shared,
            lies,
        },
    )
}

/// Returns a table of any algorithms, with ranks in groups.
fn any_table() -> impl Strategy<Value = AlgorithmTable> {
    let ways = prop::sample::select(vec![
        Algorithm::Whole,
        Algorithm::Pieces(11),
        Algorithm::Slices(12),
        Algorithm::Wide,
        Algorithm::Tree(1),
        Algorithm::Tree(2),
        Algorithm::Relayed,
    ]);
    let barrier = prop::sample::select(Barrier::ALL.to_vec());
    (barrier, prop::collection::vec(ways, 2), prop::collection::vec(0_u32..3, 5)).prop_map(
        |(barrier, ways, groups)| {
            let all = |way: Algorithm| {
                (0..trimtab_team::algorithm_table::SIZE_CLASSES).map(|class| (class, way)).collect()
            };
            let ways = [(Kind::Broadcast, all(ways[0])), (Kind::Allreduce, all(ways[1]))].into();
            AlgorithmTable { barrier, ways, groups, ..AlgorithmTable::usual(false) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 40, ..ProptestConfig::default() })]
    #[test]
    fn long_sequences_of_calls_give_the_right_results(
        ranks in 1_u32..6, cell in 10_u32..15, steps in prop::collection::vec((any_step(), 0..3), 1..60),
        wait in prop::sample::select(vec![Policy::Auto, Policy::Park, Policy::Yield]), table in any_table(),
    ) {
        let options = Options { cell: 1 << cell, wait, heap: 8 << 20, ..Options::new(ranks) };
        let groups = table.groups[..ranks as usize].to_vec();
        let table = AlgorithmTable { groups, ..table };
        team(options, |rank| {
            rank.install(table.clone()).unwrap();
            for (number, (what, elements)) in steps.iter().enumerate() {
                match elements {
                    0 => step::<u64>(rank, number, *what),
                    1 => step::<f64>(rank, number, *what),
                    _ => step::<u8>(rank, number, *what),
                }
            }
        });
    }
}

#[test]
fn a_rank_that_runs_ahead_overwrites_nothing() {
    // The root gives 200 messages before the others have taken one.
    team(Options::new(3), |rank| {
        for round in 0..200_u64 {
            if rank.rank() != 0 && round % 50 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let mut long =
                vec![if rank.rank() == 0 { round } else { 0 }; if round % 3 == 0 { 3 } else { 700 }];
            rank.loose().broadcast(&mut long, 0).unwrap();
            assert!(long.iter().all(|value| *value == round), "round {round}: {long:?}");
        }
    });
}

#[test]
fn started_calls_are_carried_out_in_order_while_others_go_on() {
    team(Options::new(3), |rank| {
        let me = u64::from(rank.rank());
        let block = rank.alloc::<u64>(4096).unwrap();
        let sum = rank.alloc::<u64>(4096).unwrap();
        for round in 0..50 {
            block.store(0, &vec![me + round; 4096]).unwrap();
            let call = trimtab_team::CollectiveCall {
                kind: Kind::Allreduce,
                elements: u64::TYPE,
                operator: Some(Operator::Sum),
                kernel: Some(trimtab_team::Kernel::of(u64::TYPE, Operator::Sum).unwrap()),
                count: 4096,
                root: 0,
                input: block.own().cast_const().cast(),
                output: sum.own().cast(),
                sync: Sync::MINE,
            };
            #[allow(unsafe_code, reason = "blocks of the segment outlive the request")]
            // SAFETY: both blocks live until the end, and no other rank uses them before the
            // request is over.
            let request = unsafe { rank.start(call) }.unwrap();
            let mut small = [me];
            rank.mine().allreduce_in_place(&mut small, Operator::Max).unwrap();
            assert_eq!(small, [2]);
            rank.wait(&request).unwrap();
            assert!(rank.test(&request).unwrap());
            let mut out = vec![0; 4096];
            sum.load(rank.rank(), 0, &mut out).unwrap();
            assert!(out.iter().all(|value| *value == 3 + 3 * round));
            rank.fence().unwrap();
        }
    });
}

#[test]
fn a_rank_that_calls_something_else_gets_the_name_of_the_others_call() {
    let errors = std::sync::Mutex::new(Vec::new());
    let run = |work: &(dyn Fn(&Rank) -> trimtab_team::Result<()> + std::marker::Sync)| {
        errors.lock().unwrap().clear();
        team(Options::new(2), |rank| {
            if let Err(error) = work(rank) {
                errors.lock().unwrap().push(error.to_string());
            }
        });
        errors.lock().unwrap().clone()
    };
    let other_sizes = run(&|rank| {
        let mut buffer = vec![0_u32; 3 + rank.rank() as usize];
        rank.mine().allreduce_in_place(&mut buffer, Operator::Sum)
    });
    assert!(
        other_sizes
            .iter()
            .any(|error| error.contains("allreduce of 3 u32 by sum") && error.contains("of 4 u32")),
        "{other_sizes:?}"
    );
    let other_calls = run(&|rank| {
        if rank.rank() == 0 {
            rank.barrier()
        } else {
            rank.mine().broadcast(&mut [0_u8; 8], 1)?;
            rank.barrier()
        }
    });
    assert!(
        other_calls
            .iter()
            .any(|error| error.contains("called barrier") || error.contains("barrier as its call")),
        "{other_calls:?}"
    );
    assert_eq!(other_calls.len(), 2);
    let other_roots = run(&|rank| {
        rank.mine().reduce(&[1_i64], &mut [0; 1], Operator::Sum, rank.rank()).and_then(|()| rank.barrier())
    });
    assert!(!other_roots.is_empty());
}

#[test]
fn impossible_arguments_are_refused_and_the_team_continues() {
    team(Options::new(2), |rank| {
        let mine = rank.mine();
        for error in [
            mine.broadcast(&mut [1_u8], 2).unwrap_err(),
            mine.allreduce(&[1_u8, 2], &mut [0], Operator::Sum).unwrap_err(),
            mine.allreduce(&[1_f32], &mut [0.0], Operator::Xor).unwrap_err(),
            mine.alltoall(&[1_u8; 3], &mut [0; 3]).unwrap_err(),
            rank.alloc::<u64>(usize::MAX / 4).unwrap_err(),
        ] {
            assert!(!error.to_string().is_empty());
        }
        rank.barrier().unwrap();
    });
    assert!(Team::new(Options::new(0)).is_err());
    assert!(Team::new(Options { cell: 1000, ..Options::new(2) }).is_err());
}

#[test]
fn a_rank_that_leaves_while_others_wait_is_named() {
    team(Options::new(3), |rank| {
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            return;
        }
        assert_eq!(rank.barrier(), Err(trimtab_team::Error::PeerLeft(1)));
        assert!(rank.mine().broadcast(&mut [0_u8; 4], 0).is_err());
    });
}

#[test]
fn deadlines_end_waits() {
    team(Options { deadline: Some(std::time::Duration::from_millis(30)), ..Options::new(2) }, |rank| {
        rank.barrier().unwrap();
        if rank.rank() == 0 {
            assert!(matches!(rank.barrier(), Err(trimtab_team::Error::Timeout(_))));
        } else {
            std::thread::sleep(std::time::Duration::from_millis(150));
            assert_eq!(rank.barrier(), Err(trimtab_team::Error::Revoked(0)));
        }
    });
}

#[test]
fn late_joiners_are_refused() {
    let team = Team::new(Options::new(1)).unwrap();
    let rank = team.join(None).unwrap();
    assert!(team.join(None).unwrap_err().to_string().contains("begun"));
    drop(rank);
    assert!(team.join(Some(0)).is_err());
}

#[test]
fn more_ranks_than_a_cell_has_room_for() {
    // An element of 8 bytes for each does not fit into 1024 bytes.
    team(Options { cell: 1024, wait: Policy::Park, heap: 4096, ..Options::new(130) }, |rank| {
        let me = u64::from(rank.rank());
        let mut got = vec![0; 130];
        rank.mine().alltoall(&vec![me; 130], &mut got).unwrap();
        assert!(got.iter().zip(0..).all(|(got, from)| *got == from));
    });
}

/// A waiting rank is interrupted; the other rank gets the error that the team is given up.
#[test]
fn interrupted() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let impatient = Options { interrupt: Some(|| true), ..Options::new(2) };
    // No other rank comes.
    let refused = Team::new(impatient).unwrap().join(None).unwrap_err();
    assert_eq!(refused, trimtab_team::Error::Interrupted);
    let team = Team::new(Options::new(2)).unwrap();
    std::thread::scope(|scope| {
        let mut hasty = team.clone();
        hasty.set_interrupt(Some(|| ENOUGH.load(Ordering::Relaxed)));
        let (gone, wait) = std::sync::mpsc::channel();
        let (joined, is_joined) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let rank = hasty.join(Some(0)).unwrap();
            joined.send(()).unwrap();
            assert_eq!(rank.barrier(), Err(trimtab_team::Error::Interrupted));
            gone.send(()).unwrap();
        });
        let rank = team.join(Some(1)).unwrap();
        // Until then rank 0 may still wait in its join, which the flag would interrupt, too.
        is_joined.recv().unwrap();
        ENOUGH.store(true, Ordering::Relaxed);
        wait.recv().unwrap();
        assert_eq!(rank.barrier(), Err(trimtab_team::Error::Revoked(0)));
    });
}

#[test]
fn blocks_go_through_every_collective_as_slices_do() {
    team(Options { heap: 8 << 20, ..Options::new(3) }, |rank| {
        for count in [5, 5000] {
            let (from, to) = (rank.alloc::<u64>(3 * count).unwrap(), rank.alloc::<u64>(3 * count).unwrap());
            let own: Vec<u64> = (0..3 * count).map(|at| given(count, rank.rank(), at)).collect();
            for kind in Kind::ALL {
                let operator = kind.combines().then_some(Operator::Sum);
                let (gives, gets) = kind.shape(3, count, rank.rank() == 1);
                from.store(0, &own).unwrap();
                to.store(0, &own).unwrap();
                rank.call_shared(kind, count, &from, &to, 1, operator, Sync::MINE).unwrap();
                let mut blocks = vec![0; gets];
                to.load(rank.rank(), 0, &mut blocks).unwrap();
                // Rank 0 of an exclusive scan keeps its output, which is `own` in the block.
                let (input, mut slices) = (&own[..gives], own[..gets].to_vec());
                match kind {
                    Kind::Barrier => {}
                    Kind::Broadcast => {
                        slices.copy_from_slice(&own[..count]);
                        rank.mine().broadcast(&mut slices, 1).unwrap();
                    }
                    Kind::Reduce => rank.mine().reduce(input, &mut slices, Operator::Sum, 1).unwrap(),
                    Kind::Allreduce => rank.mine().allreduce(input, &mut slices, Operator::Sum).unwrap(),
                    Kind::ReduceScatter => {
                        rank.mine().reduce_scatter(input, &mut slices, Operator::Sum).unwrap();
                    }
                    Kind::Gather => rank.mine().gather(input, &mut slices, 1).unwrap(),
                    Kind::Allgather => rank.mine().allgather(input, &mut slices).unwrap(),
                    Kind::Scatter => rank.mine().scatter(input, &mut slices, 1).unwrap(),
                    Kind::Alltoall => rank.mine().alltoall(input, &mut slices).unwrap(),
                    Kind::Scan => rank.mine().scan(input, &mut slices, Operator::Sum).unwrap(),
                    Kind::Exscan => rank.mine().exscan(input, &mut slices, Operator::Sum).unwrap(),
                }
                assert_eq!(blocks, slices, "{kind:?} of {count}");
            }
            let refused = |kind, count, operator| {
                let call = rank.call_shared(kind, count, &from, &to, 1, operator, Sync::MINE);
                matches!(call, Err(trimtab_team::Error::Argument(_)))
            };
            assert!(refused(Kind::Alltoall, count + 1, None), "longer than the blocks");
            assert!(refused(Kind::Alltoall, count, Some(Operator::Sum)) && refused(Kind::Scan, count, None));
            rank.fence().unwrap();
            rank.free(from).unwrap();
            rank.free(to).unwrap();
        }
    });
}

/// Threads take each other's buffers where they are. These buffers are so long that the C library
/// returns them to the kernel when they are freed: a thread that still read one would get SIGSEGV.
#[test]
fn buffers_of_failed_calls_are_never_read() {
    const LONG: usize = 100_000;
    for turn in 0..60_usize {
        team(Options::new(3), |rank| {
            let kinds = [Kind::Allreduce, Kind::Alltoall, Kind::Broadcast, Kind::Allgather, Kind::Scan];
            for (number, kind) in kinds.into_iter().cycle().enumerate() {
                // One of the ranks leaves, each time at another call.
                if rank.rank() as usize == turn % 3 && number == turn % 7 {
                    return;
                }
                let long = || vec![u64::from(rank.rank()); 3 * LONG];
                let (input, mut output) = (long(), long());
                let calls = rank.mine();
                let outcome = match kind {
                    Kind::Allreduce => calls.allreduce(&input, &mut output, Operator::Sum),
                    Kind::Alltoall => calls.alltoall(&input, &mut output),
                    Kind::Broadcast => calls.broadcast(&mut output, number as u32 % 3),
                    Kind::Allgather => calls.allgather(&input[..LONG], &mut output),
                    _ => calls.scan(&input, &mut output, Operator::Max),
                };
                let right: u64 = match kind {
                    Kind::Allreduce => 3,
                    Kind::Alltoall | Kind::Allgather => 2,
                    Kind::Broadcast => number as u64 % 3,
                    _ => u64::from(rank.rank()),
                };
                match outcome {
                    Ok(()) => assert_eq!(output[3 * LONG - 1], right, "{kind:?}"),
                    Err(error) => {
                        assert_eq!(error, trimtab_team::Error::PeerLeft(turn as u32 % 3));
                        return;
                    }
                }
            }
        });
    }
}

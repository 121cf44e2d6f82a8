//! Calls with blocks of different sizes and places, and calls in place, against results that are
//! computed apart, in random order among other calls: by threads, and by processes that read each
//! other's memory. Then ranks that do not agree on a size.
//!
//! `TRIMTAB_VARIED_SEED` is the seed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unsafe_code,
    reason = "tests with processes, and with buffers by address"
)]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{Lot, ended, inherited, number, seed, spawn};
use std::time::{Duration, Instant};
use trimtab_team::{Block, Element, Error, Kind, Operator, Options, Policy, Rank, Sync, Team, VariedCall};

const LIMIT: Duration = Duration::from_secs(30);
const STEPS: u64 = 150;

/// The element at a place of the block from one rank to another.
fn given(step: u64, from: u32, to: u32, at: usize) -> u16 {
    Lot(step << 40 ^ u64::from(from) << 32 ^ u64::from(to) << 24 ^ at as u64).next() as u16
}

/// The size of a block: all ranks know all.
fn size(step: u64, from: u32, to: u32, scale: usize) -> usize {
    let mut lot = Lot(!step << 20 ^ u64::from(from) << 10 ^ u64::from(to));
    if lot.below(4) == 0 { 0 } else { lot.below(scale as u64 + 1) as usize }
}

/// Blocks of these sizes in any order, with gaps, and the elements that they need together.
fn scattered(lot: &mut Lot, sizes: &[usize]) -> (Vec<Block>, usize) {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, lot.below(at as u64 + 1) as usize);
    }
    let (mut blocks, mut end) = (vec![Block::default(); sizes.len()], 0);
    for at in order {
        end += lot.below(3) as usize;
        blocks[at] = Block { place: end, count: sizes[at] };
        end += sizes[at];
    }
    (blocks, end + 2)
}

const UNTOUCHED: u16 = 0xabcd;

/// Fills the blocks of a buffer.
fn filled(len: usize, blocks: &[Block], element: impl Fn(usize, usize) -> u16) -> Vec<u16> {
    let mut buffer = vec![UNTOUCHED; len];
    for (of, block) in blocks.iter().enumerate() {
        for at in 0..block.count {
            buffer[block.place + at] = element(of, at);
        }
    }
    buffer
}

/// Draws whether a call is in place at some ranks, and at this one. MPI forbids that an allgather or
/// alltoall is in place at some ranks alone.
fn places(kind: Kind, lot: &mut Lot, own: &mut Lot) -> (bool, bool) {
    let (some, all_alike) = (lot.below(3) == 0, lot.below(2) == 0);
    let may_differ = matches!(kind, Kind::Allgather | Kind::Alltoall) && !all_alike;
    (some, some && (!may_differ || own.below(2) == 0))
}

/// A varied call of random blocks, in place or not. Gathers give the same block to all.
fn varied(rank: &Rank, lot: &mut Lot, own: &mut Lot, step: u64) {
    let (me, ranks) = (rank.rank(), rank.ranks());
    let kind = lot.of(&[Kind::Gather, Kind::Allgather, Kind::Scatter, Kind::Alltoall]);
    let scale = lot.of(&[0, 1, 7, 60, 3000, 20_000, 50_000]);
    let root = lot.below(ranks.into()) as u32;
    let sync = lot.of(&[Sync::MINE, Sync::LOOSE, Sync::STRICT]);
    let (some_in_place, in_place) = places(kind, lot, own);
    let at_root = me == root;
    let shares = matches!(kind, Kind::Scatter | Kind::Alltoall);
    // In place, an alltoall's two blocks of a pair have one size.
    let symmetric = some_in_place && kind == Kind::Alltoall;
    let bytes = |from: u32, to: u32| match () {
        () if symmetric => size(step, from.min(to), from.max(to), scale),
        () if shares => size(step, from, to, scale),
        () => size(step, from, 0, scale),
    };
    let data = |from: u32, to: u32, at: usize| given(step, from, if shares { to } else { 0 }, at);
    let all: Vec<u32> = (0..ranks).collect();
    let only = |are: bool, ranks: &[u32]| if are { ranks.to_vec() } else { Vec::new() };
    let (tos, froms) = match kind {
        Kind::Gather => (vec![0], only(at_root, &all)),
        Kind::Allgather => (vec![0], all.clone()),
        Kind::Scatter => (only(at_root, &all), vec![root]),
        _ => (all.clone(), all.clone()),
    };
    let gives: Vec<usize> = tos.iter().map(|to| bytes(me, *to)).collect();
    let gets: Vec<usize> = froms.iter().map(|from| bytes(*from, me)).collect();
    let (mut give_blocks, give_len) = scattered(own, &gives);
    let (mut get_blocks, get_len) = scattered(own, &gets);
    let mut input = filled(give_len, &give_blocks, |to, at| data(me, tos[to], at));
    let expected = filled(get_len, &get_blocks, |from, at| data(froms[from], me, at));
    let mut output = vec![UNTOUCHED; get_len];
    let (mut from, mut to) = (input.as_ptr(), output.as_mut_ptr());
    let mut result_is_input = false;
    match kind {
        _ if !in_place => {}
        Kind::Alltoall => {
            output = filled(get_len, &get_blocks, |to, at| data(me, all[to], at));
            to = output.as_mut_ptr();
            from = to;
            give_blocks.clone_from(&get_blocks);
        }
        Kind::Allgather => {
            for at in 0..gives[0] {
                output[get_blocks[me as usize].place + at] = data(me, 0, at);
            }
            from = to;
            give_blocks = vec![get_blocks[me as usize]];
        }
        Kind::Gather if at_root => {
            for at in 0..gives[0] {
                output[get_blocks[me as usize].place + at] = data(me, 0, at);
            }
            from = to;
            give_blocks = vec![get_blocks[me as usize]];
        }
        Kind::Scatter if at_root => {
            to = input.as_mut_ptr();
            from = to;
            get_blocks = vec![give_blocks[me as usize]];
            result_is_input = true;
        }
        _ => {}
    }
    let call = VariedCall {
        kind,
        elements: u16::TYPE,
        root,
        input: from.cast(),
        gives: &give_blocks,
        output: to.cast(),
        gets: &get_blocks,
        sync,
    };
    // SAFETY: the blocks are within the buffers, which live until the end of this function.
    unsafe { rank.call_varied(&call) }.unwrap();
    if result_is_input {
        let before = filled(give_len, &give_blocks, |to, at| data(me, tos[to], at));
        assert_eq!(input, before, "step {step}: a scatter in place changed its input");
    } else {
        assert!(output == expected, "step {step}: {kind:?} of {gives:?}, root {root}, in place {in_place}");
    }
}

/// A call in place by its safe function, of equal blocks.
fn in_place(rank: &Rank, lot: &mut Lot, step: u64) {
    let (me, ranks) = (rank.rank(), rank.ranks());
    let count = lot.of(&[0_usize, 1, 5, 61, 2000, 20_000]);
    let root = lot.below(ranks.into()) as u32;
    let calls = rank.with(lot.of(&[Sync::MINE, Sync::LOOSE, Sync::STRICT]));
    let all = count * ranks as usize;
    let of = |from: u32, len: usize| (0..len).map(|at| given(step, from, 0, at)).collect::<Vec<u16>>();
    let sum = |upto: u32, skip: usize, len: usize| {
        let at = |at| (0..=upto).fold(0_u16, |sum, from| sum.wrapping_add(given(step, from, 0, at)));
        (skip..skip + len).map(at).collect::<Vec<u16>>()
    };
    let gathered = || (0..ranks).flat_map(|from| of(from, count)).collect::<Vec<u16>>();
    let own_only = |own: u32| {
        let mut buffer = vec![UNTOUCHED; all];
        buffer[own as usize * count..][..count].copy_from_slice(&of(own, count));
        buffer
    };
    let skip = me as usize * count;
    let kind = lot.below(8);
    let (got, expected) = match kind {
        0 => {
            let mut buffer = of(me, count);
            calls.reduce_in_place(&mut buffer, Operator::Sum, root).unwrap();
            (buffer, if me == root { sum(ranks - 1, 0, count) } else { of(me, count) })
        }
        1 => {
            let mut buffer = of(me, all);
            calls.reduce_scatter_in_place(&mut buffer, Operator::Sum).unwrap();
            buffer.truncate(count);
            (buffer, sum(ranks - 1, skip, count))
        }
        2 => {
            let mut buffer = of(me, count);
            calls.scan_in_place(&mut buffer, Operator::Sum).unwrap();
            (buffer, sum(me, 0, count))
        }
        3 => {
            let mut buffer = if me == root { own_only(me) } else { of(me, count) };
            calls.gather_in_place(&mut buffer, root).unwrap();
            (buffer, if me == root { gathered() } else { of(me, count) })
        }
        4 => {
            let mut buffer = own_only(me);
            calls.allgather_in_place(&mut buffer).unwrap();
            (buffer, gathered())
        }
        5 => {
            let mut buffer = if me == root { of(me, all) } else { vec![UNTOUCHED; count] };
            calls.scatter_in_place(&mut buffer, root).unwrap();
            let all = of(root, all);
            (buffer, if me == root { all } else { all[skip..][..count].to_vec() })
        }
        6 => {
            let mut buffer = of(me, all);
            calls.alltoall_in_place(&mut buffer).unwrap();
            let block = |from: u32| of(from, all)[skip..][..count].to_vec();
            (buffer, (0..ranks).flat_map(block).collect())
        }
        _ => {
            let mut buffer = of(me, count);
            calls.allreduce_in_place(&mut buffer, Operator::Sum).unwrap();
            (buffer, sum(ranks - 1, 0, count))
        }
    };
    assert!(got == expected, "step {step}: call {kind} in place, of {count}, root {root}");
}

/// Random calls, the same at all ranks.
fn play(rank: &Rank, seed: u64) {
    let (mut lot, mut own) = (Lot(seed), Lot(seed ^ u64::from(rank.rank()) << 50));
    for step in 0..STEPS {
        match lot.below(6) {
            0 => rank.barrier().unwrap(),
            1 => {
                let root = lot.below(rank.ranks().into()) as u32;
                let mut value = if rank.rank() == root { [step] } else { [0] };
                rank.loose().broadcast(&mut value, root).unwrap();
                assert_eq!(value, [step]);
            }
            2 | 3 => in_place(rank, &mut lot, step),
            _ => varied(rank, &mut lot, &mut own, step),
        }
    }
}

/// Runs a function on each rank of a team of threads.
fn threads(team: &Team, ranks: u32, work: impl Fn(&Rank) + Send + std::marker::Sync) {
    std::thread::scope(|scope| {
        for number in 0..ranks {
            let work = &work;
            scope.spawn(move || work(&team.join(Some(number)).unwrap()));
        }
    });
}

#[test]
fn threads_get_what_was_given() {
    let seed = seed("TRIMTAB_VARIED_SEED");
    eprintln!("TRIMTAB_VARIED_SEED={seed}");
    for (ranks, wait, cell) in [
        (1, Policy::Auto, 32 << 10),
        (2, Policy::Auto, 32 << 10),
        (3, Policy::Yield, 1 << 10),
        (5, Policy::Park, 4 << 10),
        // Sizes of so many blocks do not fit beside a flag.
        (14, Policy::Park, 32 << 10),
    ] {
        let team = Team::new(Options { wait, cell, deadline: Some(LIMIT), ..Options::new(ranks) }).unwrap();
        threads(&team, ranks, |rank| play(rank, seed + u64::from(ranks)));
    }
}

/// A started process's part of the next test.
#[test]
fn a_process_plays() {
    let Some(seed) = number("TRIMTAB_VARIED_PLAYS") else { return };
    let (team, number) = inherited(LIMIT, Some(LIMIT)).unwrap();
    show();
    play(&team.join(Some(number)).unwrap(), seed);
}

/// Lets any process of this user read this one; otherwise only its ancestors may (Yama).
fn show() {
    // SAFETY: a request to the kernel, which may not know it.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

#[test]
fn processes_get_what_was_given_whether_they_read_each_other_or_not() {
    let seed = seed("TRIMTAB_VARIED_SEED");
    eprintln!("TRIMTAB_VARIED_SEED={seed}");
    show();
    for (ranks, pull) in [(2, true), (3, true), (3, false)] {
        let team = Team::new(Options { pull, deadline: Some(LIMIT), ..Options::new(ranks) }).unwrap();
        let words = [("TRIMTAB_VARIED_PLAYS", seed)];
        let others: Vec<_> = (1..ranks).map(|rank| spawn(&team, rank, "a_process_plays", &words)).collect();
        let rank = team.join(Some(0)).unwrap();
        play(&rank, seed);
        for mut other in others {
            assert!(ended(&mut other, Instant::now() + LIMIT).is_some_and(|status| status.success()));
        }
    }
}

#[test]
fn a_size_on_which_giver_and_receiver_differ_is_an_error_at_all_ranks() {
    let team = Team::new(Options { deadline: Some(LIMIT), ..Options::new(3) }).unwrap();
    threads(&team, 3, |rank| {
        let counts: &[usize] = if rank.rank() == 1 { &[4, 4, 6] } else { &[4, 4, 5] };
        let input = vec![7_u32; counts[rank.rank() as usize]];
        let mut output = vec![0; counts.iter().sum()];
        let error = loop {
            match rank.mine().allgather_varied(&input, &mut output, counts) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        let text = error.to_string();
        assert!(matches!(error, Error::Mismatch { .. }), "{text}");
        assert!(text.contains("allgatherv of u32"), "{text}");
        if rank.rank() == 1 {
            assert!(text.contains("a block of 5") && text.contains("a block of 6"), "{text}");
        }
    });
}

#[test]
fn a_call_that_cannot_be_is_refused_before_anything_moves() {
    let team = Team::new(Options::new(1)).unwrap();
    let rank = team.join(None).unwrap();
    let argument = |done: trimtab_team::Result<()>, says: &str| {
        let text = done.unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
    };
    argument(rank.mine().allgather_varied(&[1_u8], &mut [0; 2], &[1]), "2 elements");
    argument(rank.mine().alltoall_varied(&[1_u8], &[1], &mut [0; 2], &[2]), "another size");
    argument(rank.mine().gather_varied(&[1_u8], &mut [0], &[1], 1), "root 1");
    argument(rank.mine().scatter_varied(&[1_u8, 2], &[1, 1], &mut [0], 0), "1 blocks of input, not 2");
    let buffer = [1_u8; 8];
    let block = |place| [Block { place, count: 3 }];
    let call = |kind, gives: &[Block], gets: &[Block]| {
        let at = buffer.as_ptr().cast_mut();
        let (elements, sync) = (u8::TYPE, Sync::MINE);
        let call =
            VariedCall { kind, elements, root: 0, input: at.cast_const(), gives, output: at, gets, sync };
        // SAFETY: refused, or of blocks within the buffer.
        unsafe { rank.call_varied(&call) }
    };
    argument(call(Kind::Alltoall, &block(0), &block(2)), "overlap");
    argument(call(Kind::Scan, &block(0), &block(3)), "scan has no blocks");
    argument(call(Kind::Allgather, &block(usize::MAX), &block(0)), "beyond all addresses");
    assert_eq!(buffer, [1; 8]);
    // Blocks that are the same, or apart in one buffer, are allowed.
    let mut buffer = [1_u8, 2, 3, 0, 0, 0];
    for (to, expected) in [(0, [1, 2, 3, 0, 0, 0]), (3, [1, 2, 3, 1, 2, 3])] {
        let at = buffer.as_mut_ptr();
        let (elements, sync) = (u8::TYPE, Sync::MINE);
        let (gives, gets) = (&block(0), &block(to));
        let (kind, input) = (Kind::Alltoall, at.cast_const());
        let call = VariedCall { kind, elements, root: 0, input, gives, output: at, gets, sync };
        // SAFETY: both blocks are within the buffer.
        unsafe { rank.call_varied(&call) }.unwrap();
        assert_eq!(buffer, expected);
    }
}

//! Teams in plain memory of this process: tests for an interpreter of Rust's memory model (Miri)
//! and a detector of races, which do not support memory shared by processes.
//!
//!     MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-permissive-provenance' \
//!         cargo +nightly miri test -p trimtab-team --test plain
//!     RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std \
//!         --target x86_64-unknown-linux-gnu -p trimtab-team --test plain
#![allow(clippy::unwrap_used, unsafe_code, reason = "tests of raw memory")]
#![cfg(not(trimtab_model))]

use std::cell::UnsafeCell;
use trimtab_team::barrier::Barrier;
use trimtab_team::endpoint::{BlocksView, Endpoint, PeerLiveness, now};
use trimtab_team::shared_layout::{Area, CELL_COUNT, CONTROL_BYTES};
use trimtab_team::wait::{Patience, Policy};
use trimtab_team::{CollectiveCall, Element, Kernel, Kind, Operator, Sync, When};

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

/// An interpreter is too slow to spin.
const WAIT: Policy = if cfg!(miri) { Policy::Park } else { Policy::Auto };
const CELL: usize = 1024;
const HEAP: usize = 128 << 10;

/// A page with the alignment of a segment's pages.
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "through its address")] UnsafeCell<[u8; 4096]>);

/// Memory in place of a mapping.
struct PlainMemory(Vec<Page>);

// SAFETY: it is accessed through raw pointers alone, in the order that the endpoints ensure.
unsafe impl std::marker::Sync for PlainMemory {}

/// Runs a function on each rank of a team of threads, with the heap's address.
fn team(ranks: u32, wait: Policy, crowded: bool, work: impl Fn(&Endpoint, *mut u8) + std::marker::Sync) {
    let (control, stage) = (ranks as usize * CONTROL_BYTES, ranks as usize * CELL_COUNT * CELL);
    let pages = (control + stage + HEAP).div_ceil(4096);
    let memory = PlainMemory((0..pages).map(|_| Page(UnsafeCell::new([0; 4096]))).collect());
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (memory, work) = (&memory, &work);
            scope.spawn(move || {
                let base = memory.0.as_ptr().cast::<u8>().cast_mut();
                // SAFETY: zeroes of the size that the layout needs, which outlive the threads.
                let area = unsafe { Area::at(base, base.add(control), ranks, CELL) };
                // SAFETY: within the same memory.
                let heap = unsafe { base.add(control + stage) };
                let patience = Patience::new(wait, crowded);
                let endpoint =
                    Endpoint::new(area, rank, crowded, true, patience, std::rc::Rc::new(Alive), (heap, HEAP));
                work(&endpoint, heap);
            });
        }
    });
}

fn call(
    kind: Kind,
    count: usize,
    root: u32,
    input: *const u32,
    output: *mut u32,
    sync: Sync,
) -> CollectiveCall {
    CollectiveCall {
        kind,
        elements: u32::TYPE,
        operator: Some(Operator::Sum),
        kernel: Some(Kernel::of(u32::TYPE, Operator::Sum).unwrap()),
        count,
        root,
        input: input.cast(),
        output: output.cast(),
        sync,
    }
}

fn value(rank: u32, at: usize, step: u32) -> u32 {
    rank * 1000 + at as u32 % 71 + step
}

/// Makes one call of each kind, of a size, from and to private buffers at odd addresses.
fn each_kind(endpoint: &Endpoint, n: usize, sync: Sync) {
    let (ranks, me) = (endpoint.ranks(), endpoint.rank);
    for (step, kind) in (1..).zip(Kind::ALL) {
        let root = step % ranks;
        let (gives, gets) = kind.shape(ranks, n, me == root);
        let gives = if kind == Kind::Broadcast { n } else { gives };
        // One byte off, so that nothing is aligned.
        let mut input: Vec<u8> = vec![0; gives * 4 + 1];
        for at in 0..gives {
            input[1 + at * 4..][..4].copy_from_slice(&value(me, at, step).to_ne_bytes());
        }
        let mut output: Vec<u8> = vec![0; gets * 4 + 1];
        let call = if kind == Kind::Broadcast {
            let buffer = input.as_mut_ptr().wrapping_add(1);
            call(kind, n, root, buffer.cast(), buffer.cast(), sync)
        } else {
            let (from, to) = (input.as_ptr().wrapping_add(1), output.as_mut_ptr().wrapping_add(1));
            call(kind, n, root, from.cast(), to.cast(), sync)
        };
        // SAFETY: as long as the kind requires, and local to this function.
        now(unsafe { endpoint.carry_out(&call, BlocksView::default()) }).unwrap();
        let got = if kind == Kind::Broadcast { &input } else { &output };
        let got = |at: usize| u32::from_ne_bytes(got[1 + at * 4..][..4].try_into().unwrap());
        let sum = |at: usize, upto: u32| (0..=upto).map(|rank| value(rank, at, step)).sum::<u32>();
        let (last, mine) = (ranks - 1, me as usize * n);
        for at in 0..gets {
            let expected = match kind {
                Kind::Barrier => 0,
                Kind::Broadcast => value(root, at, step),
                Kind::Reduce | Kind::Allreduce => sum(at, last),
                Kind::ReduceScatter => sum(mine + at, last),
                Kind::Gather | Kind::Allgather => value((at / n) as u32, at % n, step),
                Kind::Scatter => value(root, mine + at, step),
                Kind::Alltoall => value((at / n) as u32, mine + at % n, step),
                Kind::Scan => sum(at, me),
                // Rank 0 keeps its output as it is.
                Kind::Exscan => me.checked_sub(1).map_or(0, |before| sum(at, before)),
            };
            assert_eq!(got(at), expected, "{kind:?} {at} of {n}, rank {me}");
        }
    }
}

#[test]
fn every_kind_of_every_length_from_unaligned_buffers() {
    // Beside the flag, in one cell, in several, and at sizes for which a call would announce
    // buffers in the segment.
    let sizes: &[usize] = if cfg!(miri) { &[3, 300] } else { &[0, 3, 28, 29, 90, 256, 300, 2100, 9000] };
    for wait in [WAIT, Policy::Park] {
        team(3, wait, wait == Policy::Park, |endpoint, _| {
            for (turn, n) in sizes.iter().enumerate() {
                each_kind(endpoint, *n, [Sync::MINE, Sync::LOOSE, Sync::STRICT][turn % 3]);
            }
        });
    }
}

#[test]
fn buffers_in_the_segment_are_used_where_they_lie() {
    const N: usize = 2500;
    team(2, WAIT, false, |endpoint, heap| {
        let me = endpoint.rank as usize;
        let block = |turn: usize| heap.wrapping_add((turn * 2 + me) * N * 4).cast::<u32>();
        for turn in 0..6 {
            let (input, output) = (block(0), block(1));
            // SAFETY: this rank's block, which no rank reads before the call or after the barrier.
            (0..N).for_each(|at| unsafe { input.add(at).write(value(endpoint.rank, at, turn)) });
            let leave = if turn % 2 == 0 { When::Mine } else { When::All };
            let sync = Sync { enter: When::Mine, leave };
            let all = call(Kind::Allreduce, N, 0, input, output, sync);
            // SAFETY: blocks of the heap, which all ranks use in the same way.
            now(unsafe { endpoint.carry_out(&all, BlocksView::default()) }).unwrap();
            let sum = |at| value(0, at, turn) + value(1, at, turn);
            // SAFETY: the call is over, and no rank writes it before the next.
            (0..N).for_each(|at| assert_eq!(unsafe { output.add(at).read() }, sum(at)));
            now(endpoint.barrier_call(BlocksView::default())).unwrap();
            let one = call(Kind::Broadcast, N, 1, output, output, Sync::STRICT);
            // SAFETY: as above.
            now(unsafe { endpoint.carry_out(&one, BlocksView::default()) }).unwrap();
        }
    });
}

#[test]
fn barriers_order_plain_memory() {
    for how in [Barrier::Dissemination, Barrier::Central, Barrier::Flat] {
        team(3, WAIT, false, |endpoint, heap| {
            let of = |rank: u32| heap.cast::<u32>().wrapping_add(rank as usize);
            for turn in 1..(if cfg!(miri) { 5 } else { 500 }) {
                // SAFETY: this rank's number; others read it only between two barriers.
                unsafe { of(endpoint.rank).write(turn) };
                now(endpoint.barrier(how, 1)).unwrap();
                // SAFETY: no rank writes between the two barriers.
                (0..3).for_each(|rank| assert_eq!(unsafe { of(rank).read() }, turn));
                now(endpoint.barrier(how, 1)).unwrap();
            }
        });
    }
}

//! Teams that lose ranks in the middle of any operation: every survivor gets the number of the dead
//! rank, and the survivors continue.
#![allow(clippy::unwrap_used, unsafe_code, reason = "tests with processes, and with buffers by address")]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{inherited, spawn};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trimtab_team::{
    CollectiveCall, Element, Error, Kernel, Kind, Operator, Options, Rank, Result, Sync, Team,
};

/// More than any machine needs: the test is that an answer comes at all.
const LIMIT: Duration = Duration::from_secs(120);

/// A rank that joins, and does nothing until it is killed.
#[test]
fn an_idle_rank() {
    let Some((team, rank)) = inherited(LIMIT, None) else { return };
    let _rank = team.join(Some(rank)).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// A rank that panics in the middle of its work.
#[test]
fn a_panicking_rank() {
    let Some((team, rank)) = inherited(LIMIT, None) else { return };
    let rank = team.join(Some(rank)).unwrap();
    rank.barrier().unwrap();
    // Not on the terminal of the user of these tests.
    std::panic::set_hook(Box::new(|_| ()));
    panic!("as it is meant to");
}

fn options(ranks: u32) -> Options {
    Options { heap: 64 << 10, cell: 1024, gather: LIMIT, deadline: Some(2 * LIMIT), ..Options::new(ranks) }
}

/// One kind of call, made by all ranks.
#[derive(Debug, Clone, Copy)]
struct LossCase {
    kind: Kind,
    started: bool,
    sync: Sync,
    root: u32,
    count: usize,
}

impl LossCase {
    /// Makes the call once.
    fn make(&self, rank: &Rank) -> Result<()> {
        let all = self.count * rank.ranks() as usize;
        let (input, mut output) = (vec![1_u64; all], vec![0_u64; all]);
        let call = CollectiveCall {
            kind: self.kind,
            elements: u64::TYPE,
            operator: self.kind.combines().then_some(Operator::Sum),
            kernel: Some(Kernel::of(u64::TYPE, Operator::Sum)?),
            count: self.count,
            root: self.root,
            input: if self.kind == Kind::Broadcast { output.as_ptr() } else { input.as_ptr() }.cast(),
            output: output.as_mut_ptr().cast(),
            sync: self.sync,
        };
        if !self.started {
            // SAFETY: both have a block for each rank, and live until the call is over.
            return unsafe { rank.call(&call) };
        }
        // SAFETY: as above: nothing is left under way.
        let request = unsafe { rank.start(call) }?;
        // Some ranks wait, and some test occasionally.
        if rank.rank().is_multiple_of(2) {
            return rank.wait(&request);
        }
        while !rank.test(&request)? {
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn cases() -> Vec<LossCase> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        for sync in [Sync::MINE, Sync::LOOSE, Sync::STRICT] {
            for started in [false, true] {
                let roots: &[u32] = if kind.rooted() { &[0, 2] } else { &[0] };
                for root in roots {
                    // Beside a flag, in a cell, in several cells.
                    let count = [3, 100, 3000][all.len() % 3];
                    all.push(LossCase { kind, started, sync, root: *root, count });
                }
            }
        }
    }
    all
}

/// Repeats the call until it fails.
fn until_told(rank: &Rank, case: &LossCase) -> Error {
    let begin = Instant::now();
    loop {
        if let Err(error) = case.make(rank) {
            return error;
        }
        assert!(begin.elapsed() < LIMIT, "nothing was noticed: {case:?}");
    }
}

/// Checks that the remaining team computes.
fn goes_on(rank: &Rank) {
    let mut sum = [1_u32; 300];
    rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
    assert_eq!(sum, [rank.ranks(); 300]);
    rank.barrier().unwrap();
}

/// Kills rank 2 while others wait for it, in one case after the other until none is left.
fn lose(cases: &[LossCase], next: &AtomicU32) {
    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
        let team = Team::new(options(3)).unwrap();
        let mut victim = spawn(&team, 2, "an_idle_rank", &[]);
        let come = Barrier::new(3);
        std::thread::scope(|scope| {
            for number in [0, 1] {
                let (team, come) = (&team, &come);
                scope.spawn(move || {
                    let rank = team.join(Some(number)).unwrap();
                    come.wait();
                    assert_eq!(until_told(&rank, case), Error::PeerDied(2), "rank {number}, {case:?}");
                    // It stays so, in every operation.
                    assert_eq!(rank.barrier(), Err(Error::PeerDied(2)), "rank {number}, {case:?}");
                    let rank = rank.shrink(LIMIT).unwrap();
                    assert_eq!((rank.rank(), rank.ranks()), (number, 2));
                    goes_on(&rank);
                });
            }
            come.wait();
            // Some ranks are asleep by then, and some not yet.
            std::thread::sleep(Duration::from_millis(u64::from(next.load(Ordering::Relaxed)) % 7));
            victim.kill().unwrap();
        });
        victim.wait().unwrap();
    }
}

#[test]
fn a_rank_killed_in_any_operation_is_named_and_the_others_continue() {
    let (cases, next) = (cases(), AtomicU32::new(0));
    assert_eq!(cases.len(), 11 * 6 + 4 * 6);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| lose(&cases, &next));
        }
    });
}

#[test]
fn several_that_are_killed_at_once_are_lost_at_once() {
    for dead in [&[1, 2][..], &[0, 3, 4], &[0, 1, 2, 3]] {
        let team = Team::new(options(5)).unwrap();
        let mut children: Vec<_> = dead.iter().map(|rank| spawn(&team, *rank, "an_idle_rank", &[])).collect();
        let left: Vec<u32> = (0..5).filter(|rank| !dead.contains(rank)).collect();
        let come = Barrier::new(left.len() + 1);
        std::thread::scope(|scope| {
            for number in &left {
                let (team, come, ranks) = (&team, &come, left.len() as u32);
                scope.spawn(move || {
                    let rank = team.join(Some(*number)).unwrap();
                    come.wait();
                    let Err(Error::PeerDied(named)) = rank.barrier() else { panic!("nobody was named") };
                    assert!(dead.contains(&named), "{named} of {dead:?}");
                    let rank = rank.shrink(LIMIT).unwrap();
                    assert_eq!(rank.ranks(), ranks);
                    goes_on(&rank);
                });
            }
            come.wait();
            children.iter_mut().for_each(|child| child.kill().unwrap());
        });
        assert!(children.iter_mut().all(|child| !child.wait().unwrap().success()));
    }
}

#[test]
fn a_rank_that_panics_has_left() {
    let team = Team::new(options(3)).unwrap();
    let mut other = spawn(&team, 2, "a_panicking_rank", &[]);
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| {
            // A call under way, whose buffers go with the stack, after the rank.
            let (buffer, mut output) = ([0_u64; 300], [0_u64; 300]);
            let rank = team.join(Some(1)).unwrap();
            rank.barrier().unwrap();
            let call = CollectiveCall {
                kind: Kind::Allreduce,
                elements: u64::TYPE,
                operator: Some(Operator::Sum),
                kernel: Some(Kernel::of(u64::TYPE, Operator::Sum).unwrap()),
                count: buffer.len(),
                root: 0,
                input: buffer.as_ptr().cast(),
                output: output.as_mut_ptr().cast(),
                sync: Sync::MINE,
            };
            // SAFETY: both live until the rank is dropped.
            let _request = unsafe { rank.start(call) }.unwrap();
            std::panic::resume_unwind(Box::new("as it is meant to"));
        });
        let rank = team.join(Some(0)).unwrap();
        rank.barrier().unwrap();
        let error = until_told(
            &rank,
            &LossCase { kind: Kind::Barrier, started: false, sync: Sync::MINE, root: 0, count: 0 },
        );
        assert!(matches!(error, Error::PeerLeft(1 | 2)), "{error:?}");
        let rank = rank.shrink(LIMIT).unwrap();
        assert_eq!(rank.ranks(), 1);
        goes_on(&rank);
        assert!(panics.join().is_err());
    });
    assert!(!other.wait().unwrap().success());
}

#[test]
fn a_forked_copy_of_a_rank_refuses_every_call_and_does_no_harm() {
    let team = Team::new(options(2)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let rank = team.join(Some(1)).unwrap();
            goes_on(&rank);
            goes_on(&rank);
        });
        let rank = team.join(Some(0)).unwrap();
        goes_on(&rank);
        // SAFETY: the parts of the C library that the child uses are safe after fork, and it ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let forked = |outcome: Result<()>| matches!(outcome, Err(Error::Forked(_)));
            let mut all = cases().iter().all(|case| forked(case.make(&rank)));
            all &= forked(rank.alloc::<u8>(1).map(drop));
            all &= forked(rank.split(Some(0), 0, 0).map(drop));
            all &= forked(rank.fence()) && forked(rank.batch(|_| Ok(())));
            all &= forked(rank.shrink(LIMIT).map(drop));
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(i32::from(!all)) };
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        goes_on(&rank);
    });
}

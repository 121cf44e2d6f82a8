//! The hook of waits: a rank comes out of every wait, by every
//! policy, and hangs without it.

#![allow(clippy::unwrap_used, unsafe_code, reason = "tests, of which one has a hook that calls its rank")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use trimtab_team::{Error, Operator, Options, Policy, Rank, Team};

/// Runs a function on each rank of a team of two threads with this policy.
fn two(policy: Policy, deadline: Duration, work: impl Fn(&Rank) + Send + Sync) {
    let mut team = Team::new(Options::new(2)).unwrap();
    team.set_wait(policy, Some(deadline));
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (team, work) = (team.clone(), &work);
            scope.spawn(move || work(&team.join(Some(number)).unwrap()));
        }
    });
}

/// A library that only makes progress when it is called, as MPI: rank 1 waits for it outside of the
/// team.
struct OtherLibrary {
    steps: AtomicU64,
}

impl OtherLibrary {
    const STEPS: u64 = 20;

    fn new() -> Self {
        Self { steps: AtomicU64::new(0) }
    }

    fn advance(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::Release)
    }

    fn wait(&self) {
        while self.steps.load(Ordering::Acquire) < Self::STEPS {
            std::thread::yield_now();
        }
    }
}

const POLICIES: [Policy; 4] = [Policy::Auto, Policy::Spin, Policy::Yield, Policy::Park];

#[test]
fn a_rank_that_waits_advances_the_other_library_by_every_policy() {
    static ALL: [OtherLibrary; 8] = [const { OtherLibrary { steps: AtomicU64::new(0) } }; 8];
    for (at, policy) in POLICIES.into_iter().enumerate() {
        for busy in [false, true] {
            let other = &ALL[2 * at + usize::from(busy)];
            two(policy, Duration::from_secs(60), |rank| {
                if rank.rank() == 0 {
                    rank.set_progress(Some(Rc::new(move || {
                        other.advance();
                        busy
                    })));
                } else {
                    other.wait();
                }
                rank.barrier().unwrap();
                let mut sum = [1_u64];
                rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
                assert_eq!(sum, [2]);
            });
            assert!(other.steps.load(Ordering::Relaxed) >= OtherLibrary::STEPS);
        }
    }
}

#[test]
fn without_a_hook_the_same_program_hangs_until_its_deadline() {
    let other = OtherLibrary::new();
    two(Policy::Auto, Duration::from_millis(50), |rank| {
        if rank.rank() == 0 {
            assert!(matches!(rank.barrier(), Err(Error::Timeout(_))));
            // Lets the other rank end.
            (0..OtherLibrary::STEPS).for_each(|_| {
                other.advance();
            });
        } else {
            other.wait();
            assert_eq!(rank.barrier(), Err(Error::Revoked(0)));
        }
    });
}

#[test]
fn parts_inherit_the_hook_and_it_can_be_removed() {
    static OTHER: OtherLibrary = OtherLibrary { steps: AtomicU64::new(0) };
    two(Policy::Auto, Duration::from_secs(60), |rank| {
        if rank.rank() == 0 {
            rank.set_progress(Some(Rc::new(|| {
                OTHER.advance();
                false
            })));
        }
        let part = rank.split(Some(0), 0, 0).unwrap().unwrap();
        if rank.rank() == 1 {
            OTHER.wait();
        }
        part.barrier().unwrap();
        // Both are past every wait of rank 0 with the hook.
        part.set_progress(None);
        part.barrier().unwrap();
        let before = OTHER.steps.load(Ordering::Relaxed);
        part.barrier().unwrap();
        if rank.rank() == 1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        part.barrier().unwrap();
        assert_eq!(OTHER.steps.load(Ordering::Relaxed), before);
    });
}

#[test]
fn a_hook_cannot_call_the_team_that_waits() {
    let other = OtherLibrary::new();
    two(Policy::Auto, Duration::from_secs(60), |rank| {
        if rank.rank() == 1 {
            other.wait();
            return rank.barrier().unwrap();
        }
        // The hook needs the rank itself, so it gets a pointer that lives as long as the calls.
        thread_local! {
            static RANK: Cell<*const Rank> = const { Cell::new(std::ptr::null()) };
            static SAID: RefCell<Option<Error>> = const { RefCell::new(None) };
            static OTHER: Cell<*const OtherLibrary> = const { Cell::new(std::ptr::null()) };
        }
        RANK.set(rank);
        OTHER.set(&raw const other);
        rank.set_progress(Some(Rc::new(|| {
            // SAFETY: the rank and the library outlive the calls in which the hook runs.
            let (rank, other) = unsafe { (&*RANK.get(), &*OTHER.get()) };
            if let Err(error) = rank.barrier() {
                SAID.replace(Some(error));
            }
            other.advance();
            false
        })));
        rank.barrier().unwrap();
        let said = SAID.take().unwrap().to_string();
        assert!(said.contains("a progress hook cannot call the team"), "{said}");
        rank.set_progress(None);
    });
}

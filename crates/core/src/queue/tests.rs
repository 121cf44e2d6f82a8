//! Laws of the queue, against simulations in which time passes and against all subsets of holds.

use super::*;
use crate::ids::{Id, OsCpu};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn set(cores: impl IntoIterator<Item = usize>) -> CpuSet {
    cores.into_iter().map(OsCpu::from_index).collect()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn waiter(ticket: u64, since: u64, cpus: CpuSet, cores: u32) -> Waiter {
    Waiter {
        ticket,
        since: Some(seconds(since)),
        user: Some(1000),
        demand: Some(Demand { cpus, cores: Some(cores) }),
        priority: 0,
        stopped: false,
    }
}

fn at(cores: usize, holds: &[BTreeSet<usize>]) -> Occupancy {
    Occupancy {
        cores: (0..cores).map(|core| set([core])).collect(),
        holds: holds
            .iter()
            .map(|hold| HeldTogether { cpus: set(hold.iter().copied()), user: Some(1000) })
            .collect(),
        loose: CpuSet::new(),
    }
}

/// A run of the simulation. The oracle knows the length; the queue does not.
#[derive(Clone, Debug)]
struct Job {
    arrival: u64,
    length: u64,
    cores: usize,
    eligible: BTreeSet<usize>,
    waits: bool,
}

/// Simulates the runs second by second; returns the start of each. `held` are holds from the
/// beginning, with their ends. With `strict`, only the first in line may start.
fn simulate(
    cores: usize,
    held: &[(BTreeSet<usize>, u64)],
    jobs: &[Job],
    rules: &QueueRules,
    strict: bool,
) -> Vec<Option<u64>> {
    let mut running: Vec<(BTreeSet<usize>, u64)> = held.to_vec();
    let mut start: Vec<Option<u64>> = vec![None; jobs.len()];
    let mut given_up: BTreeSet<usize> = BTreeSet::new();
    let horizon = 400;
    for second in 0..horizon {
        running.retain(|(_, end)| *end > second);
        loop {
            let holds: Vec<BTreeSet<usize>> = running.iter().map(|(hold, _)| hold.clone()).collect();
            let occupancy = at(cores, &holds);
            let waiting: Vec<usize> = (0..jobs.len())
                .filter(|&job| jobs[job].waits && jobs[job].arrival <= second && start[job].is_none())
                .collect();
            let waiters: Vec<Waiter> = waiting
                .iter()
                .map(|&job| {
                    let Job { arrival, cores, eligible, .. } = &jobs[job];
                    waiter(job as u64, *arrival, set(eligible.iter().copied()), *cores as u32)
                })
                .collect();
            let passing = (0..jobs.len()).filter(|&job| {
                !jobs[job].waits
                    && jobs[job].arrival == second
                    && start[job].is_none()
                    && !given_up.contains(&job)
            });
            let mut tries: Vec<(usize, Applicant)> =
                waiting.iter().map(|&job| (job, Applicant::Ticket(job as u64))).collect();
            if strict {
                tries.truncate(1);
            }
            tries.extend(passing.map(|job| (job, Applicant::Passing)));
            let mut started = false;
            for (job, applicant) in tries {
                let given = precedence(&waiters, applicant, &occupancy, rules, seconds(second));
                let used: BTreeSet<usize> = holds.iter().flatten().copied().collect();
                let can: Vec<usize> = jobs[job]
                    .eligible
                    .iter()
                    .copied()
                    .filter(|&core| !used.contains(&core) && !given.kept.contains(OsCpu::from_index(core)))
                    .collect();
                if can.len() >= jobs[job].cores {
                    let hold = can[..jobs[job].cores].iter().copied().collect();
                    running.push((hold, second + jobs[job].length));
                    start[job] = Some(second);
                    started = true;
                    break;
                }
                if applicant == Applicant::Passing {
                    given_up.insert(job);
                }
            }
            if !started {
                break;
            }
        }
    }
    start
}

const CORES: usize = 8;

prop_compose! {
    /// Holds that do not overlap, with their ends.
    fn holds()(owners in prop::collection::vec(0usize..5, CORES), ends in prop::collection::vec(1u64..30, 5))
        -> Vec<(BTreeSet<usize>, u64)> {
        (1..5).map(|owner| {
            let cores: BTreeSet<usize> = (0..CORES).filter(|&core| owners[core] == owner).collect();
            (cores, ends[owner])
        }).filter(|(cores, _)| !cores.is_empty()).collect()
    }
}

fn job(any_eligible: bool) -> impl Strategy<Value = Job> {
    (0u64..12, 1u64..30, 1usize..=CORES, prop::collection::btree_set(0..CORES, 1..=CORES)).prop_map(
        move |(arrival, length, cores, some)| {
            let eligible: BTreeSet<usize> = if any_eligible { some } else { (0..CORES).collect() };
            Job { arrival, length, cores: cores.min(eligible.len()), eligible, waits: true }
        },
    )
}

/// Jobs in the order of their arrival, so that a ticket is an index.
fn jobs(any_eligible: bool) -> impl Strategy<Value = Vec<Job>> {
    prop::collection::vec(job(any_eligible), 1..8).prop_map(|mut jobs| {
        jobs.sort_by_key(|job| job.arrival);
        jobs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn backfill_never_delays_the_first_waiter(held in holds(), mut jobs in jobs(true)) {
        jobs[0].arrival = 0;
        let rules = QueueRules::default();
        let with = simulate(CORES, &held, &jobs, &rules, false);
        let alone = simulate(CORES, &held, &jobs[..1], &rules, true);
        prop_assert_eq!(with[0], alone[0]);
    }

    #[test]
    fn backfill_delays_no_waiter_if_all_may_use_the_same_cores(held in holds(), jobs in jobs(false)) {
        let rules = QueueRules::default();
        let with = simulate(CORES, &held, &jobs, &rules, false);
        for count in 1..jobs.len() {
            let without_later = simulate(CORES, &held, &jobs[..count], &rules, false);
            prop_assert_eq!(&with[..count], &without_later[..]);
        }
    }

    #[test]
    fn every_waiter_starts(held in holds(), jobs in jobs(true)) {
        let starts = simulate(CORES, &held, &jobs, &QueueRules::default(), false);
        prop_assert!(starts.iter().all(Option::is_some), "{starts:?}");
    }

    /// A stream of small runs that do not wait never leaves enough cores free at once.
    #[test]
    fn a_large_request_does_not_starve(
        lengths in prop::collection::vec(1u64..20, 120), reserve_after in 0u64..20,
    ) {
        let all: BTreeSet<usize> = (0..CORES).collect();
        let mut jobs = vec![Job { arrival: 3, length: 5, cores: CORES, eligible: all.clone(), waits: true }];
        jobs.extend(lengths.iter().enumerate().map(|(number, &length)| Job {
            arrival: number as u64 / 2, length, cores: 1, eligible: all.clone(), waits: false,
        }));
        let rules = QueueRules { reserve_after: seconds(reserve_after), ..QueueRules::default() };
        let starts = simulate(CORES, &[], &jobs, &rules, false);
        // A run that is active when the bound is over ends within the longest length.
        prop_assert!(starts[0].is_some_and(|start| start <= 3 + reserve_after + 20), "{starts:?}");
    }

    /// The oracle tries every subset of the holds that may have ended by then.
    #[test]
    fn a_waiter_alone_keeps_exactly_as_many_cores_as_it_needs(
        held in holds(), eligible in prop::collection::btree_set(0..CORES, 1..=CORES), cores in 1usize..=CORES,
    ) {
        let holds: Vec<BTreeSet<usize>> = held.into_iter().map(|(hold, _)| hold).collect();
        let occupancy = at(CORES, &holds);
        let waiters = [waiter(0, 0, set(eligible.iter().copied()), cores as u32)];
        let kept = precedence(&waiters, Applicant::Ticket(9), &occupancy, &QueueRules::default(), seconds(9)).kept;
        let free: BTreeSet<usize> =
            eligible.iter().copied().filter(|core| holds.iter().all(|hold| !hold.contains(core))).collect();
        let harmless = |lost: usize| (0..1u32 << holds.len()).all(|ended| {
            let then = eligible.iter().filter(|core| {
                holds.iter().enumerate().all(|(number, hold)| ended >> number & 1 == 1 || !hold.contains(core))
            }).count();
            then < cores || then - lost >= cores
        });
        let most = (0..=free.len()).filter(|&lost| harmless(lost)).max().unwrap();
        prop_assert!(kept.iter().all(|cpu| free.contains(&cpu.index())));
        prop_assert_eq!(free.len() - kept.len(), most);
    }

    #[test]
    fn the_line_is_that_of_arrival_and_a_claim_cannot_change_it(
        claims in prop::collection::vec(prop::option::of(0u64..100), 1..12), now in 0u64..100,
    ) {
        let waiters: Vec<Waiter> = claims.iter().enumerate().map(|(ticket, &since)| Waiter {
            since: since.map(seconds), priority: 50, ..waiter(ticket as u64, 0, set(0..2), 1)
        }).collect();
        // The site grants no priority, so all priorities are the same.
        let order = line(&waiters, &at(2, &[]), &QueueRules::default(), seconds(now));
        prop_assert_eq!(order, (0..claims.len()).collect::<Vec<_>>());
    }

    /// The oracle compares pairs by their wait and priority.
    #[test]
    fn no_waiter_is_overtaken_later_than_the_bound(
        runs in prop::collection::vec((0u64..9_000, -5i32..=5, 1000u32..1003), 2..10),
        fair_share: bool, hold in 0usize..CORES,
    ) {
        let mut runs = runs;
        runs.sort_by_key(|run| run.0);
        let rules = QueueRules { priority_max: 5, fair_share, ..QueueRules::default() };
        let waiters: Vec<Waiter> = runs.iter().enumerate().map(|(ticket, &(since, priority, user))| Waiter {
            priority, user: Some(user), ..waiter(ticket as u64, since, set(0..CORES), 3)
        }).collect();
        let order = line(&waiters, &at(CORES, &[(0..hold).collect()]), &rules, seconds(10_000));
        let place = |index: usize| order.iter().position(|&other| other == index).unwrap();
        for early in 0..runs.len() {
            for late in early + 1..runs.len() {
                let levels = u32::try_from(runs[late].1 - runs[early].1).unwrap_or(0);
                let apart = seconds(runs[late].0 - runs[early].0);
                if apart > overtaking_bound(levels, &rules) {
                    prop_assert!(place(early) < place(late));
                }
                if !fair_share && levels > 0 && apart < PRIORITY_STEP * levels {
                    prop_assert!(place(late) < place(early));
                }
            }
        }
    }

    #[test]
    fn a_stopped_waiter_delays_no_other(held in holds(), jobs in jobs(true), stopped in 0usize..8) {
        let holds: Vec<BTreeSet<usize>> = held.into_iter().map(|(hold, _)| hold).collect();
        let all: Vec<Waiter> = jobs.iter().enumerate().map(|(ticket, job)| Waiter {
            stopped: ticket == stopped,
            ..waiter(ticket as u64, job.arrival, set(job.eligible.iter().copied()), job.cores as u32)
        }).collect();
        let others: Vec<Waiter> = all.iter().filter(|waiter| !waiter.stopped).cloned().collect();
        let (occupancy, rules) = (at(CORES, &holds), QueueRules::default());
        for applicant in others.iter().map(|waiter| Applicant::Ticket(waiter.ticket)).chain([Applicant::Passing]) {
            prop_assert_eq!(
                precedence(&all, applicant, &occupancy, &rules, seconds(60)),
                precedence(&others, applicant, &occupancy, &rules, seconds(60))
            );
        }
    }
}

#[test]
fn a_run_on_other_cores_may_start_first() {
    let waiters = [waiter(0, 0, set([0]), 1), waiter(1, 1, set(1..4), 1)];
    let given =
        precedence(&waiters, Applicant::Ticket(1), &at(4, &[[0].into()]), &QueueRules::default(), seconds(2));
    assert_eq!(given, Precedence { ahead: vec![0], ..Precedence::default() });
}

#[test]
fn holds_that_end_as_a_whole_leave_room() {
    // Two cores are needed, one is free, and four become free at once: the free one is not needed.
    let holds = [(0..4).collect()];
    let waiters = [waiter(0, 0, set(0..5), 2)];
    let kept = |occupancy: &Occupancy| {
        precedence(&waiters, Applicant::Ticket(1), occupancy, &QueueRules::default(), seconds(1)).kept
    };
    assert_eq!(kept(&at(5, &holds)), CpuSet::new());
    // If the four may become free one by one, it is needed.
    let shared = Occupancy { holds: Vec::new(), loose: set(0..4), ..at(5, &[]) };
    assert_eq!(kept(&shared), set([4]));
}

#[test]
fn a_run_that_does_not_wait_leaves_cores_only_to_long_waiters() {
    let waiters = [waiter(7, 10, set(0..4), 4)];
    let occupancy = at(4, &[[0].into()]);
    let after = |now| precedence(&waiters, Applicant::Passing, &occupancy, &QueueRules::default(), now);
    assert_eq!(after(seconds(19)), Precedence::default());
    let given = after(seconds(10) + RESERVE_AFTER);
    assert_eq!(given, Precedence { ahead: vec![7], kept: set(1..4), kept_for: Some(7) });
}

#[test]
fn an_unknown_demand_keeps_everything_and_root_may_have_any_priority() {
    let unknown = Waiter { demand: None, ..waiter(0, 0, set([]), 1) };
    let root = Waiter { user: Some(0), priority: 3, ..waiter(1, 5, set(0..2), 1) };
    let waiters = [unknown, root];
    let (occupancy, rules) = (at(2, &[]), QueueRules::default());
    assert_eq!(line(&waiters, &occupancy, &rules, seconds(6)), [1, 0]);
    assert_eq!(precedence(&waiters, Applicant::Ticket(2), &occupancy, &rules, seconds(6)).kept, set(0..2));
    assert_eq!(
        precedence(&waiters[..1], Applicant::Ticket(2), &occupancy, &rules, seconds(6)).kept,
        set(0..2)
    );
}

#[test]
fn a_user_with_many_cores_comes_later_under_fair_share() {
    let mut waiters = [waiter(0, 0, set(0..4), 1), waiter(1, 60, set(0..4), 1)];
    waiters[1].user = Some(1001);
    let occupancy = at(4, &[(0..4).collect()]);
    let order = |fair_share| {
        line(&waiters, &occupancy, &QueueRules { fair_share, ..QueueRules::default() }, seconds(90))
    };
    assert_eq!((order(false), order(true)), (vec![0, 1], vec![1, 0]));
}

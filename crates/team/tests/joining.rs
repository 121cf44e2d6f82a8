//! Ranks that join at the same time have the same data of each other, also many ranks; and masks
//! that change later.
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test that binds threads")]
#![cfg(target_os = "linux")]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{number, spawn};
use std::time::Duration;
use trimtab_team::endpoint::{PERIOD, PERIOD_READ};
use trimtab_team::segment::header::Header;
use trimtab_team::segment::memfd::Mapping;
use trimtab_team::segment::seat::SharedSeat;
use trimtab_team::{Operator, Options, Rank, Team};

/// Returns the CPUs that this thread may use.
fn allowed() -> Vec<usize> {
    // SAFETY: a set of bits, for which zeroes are valid, and which the kernel fills.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        set
    };
    // SAFETY: below the set's size.
    (0..1024).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

fn bind(cpu: usize) {
    // SAFETY: as above; it concerns this thread alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

#[test]
fn ranks_bound_apart_agree_on_whether_they_are_crowded() {
    let cpus = allowed();
    // The last rank to come may still be publishing its CPUs while the others count: they must not
    // use half of the data.
    for _ in 0..200 {
        let deadline = Some(Duration::from_secs(120));
        let team = Team::new(Options { heap: 4096, cell: 1024, deadline, ..Options::new(2) }).unwrap();
        let crowded = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..2)
                .map(|rank| {
                    let (team, cpu) = (team.clone(), cpus[rank as usize % cpus.len()]);
                    scope.spawn(move || {
                        bind(cpu);
                        let rank = team.join(Some(rank)).unwrap();
                        rank.crowded()
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(crowded, [cpus.len() < 2; 2]);
    }
}

/// Ranks of one process in the test of many.
const THREADS: u32 = 60;
const PROCESSES: u32 = 4;

/// Joins as some ranks of a large team, in a thread each, and lets all work together.
fn work_as(team: &Team, first: u32) {
    let work = |rank: u32| {
        let rank = team.join(Some(rank)).unwrap();
        let all = u64::from(rank.ranks());
        let mut sum = [u64::from(rank.rank()), 1];
        rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
        assert_eq!(sum, [all * (all - 1) / 2, all]);
        rank.barrier().unwrap();
    };
    std::thread::scope(|scope| {
        (first..first + THREADS).for_each(|rank| {
            scope.spawn(move || work(rank));
        });
    });
}

/// The program that the next test starts; alone it does nothing.
#[test]
fn as_many_ranks() {
    if number("TEAM_TEST_MANY").is_some()
        && let Some((team, first)) = Team::inherited().unwrap()
    {
        work_as(&team, first);
    }
}

#[test]
fn two_hundred_and_forty_ranks_of_four_processes_join_and_work() {
    let team = Team::new(Options { heap: 4096, cell: 1024, ..Options::new(PROCESSES * THREADS) }).unwrap();
    let children = (1..PROCESSES)
        .map(|process| spawn(&team, process * THREADS, "as_many_ranks", &[("TEAM_TEST_MANY", 1)]));
    let children: Vec<_> = children.collect();
    work_as(&team, 0);
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_rank_of_a_large_team_that_dies_before_all_have_joined_is_named() {
    let team = Team::new(Options { heap: 4096, cell: 1024, ..Options::new(200) }).unwrap();
    let mapping = Mapping::adopt(team.fd().try_clone_to_owned().unwrap()).unwrap();
    let geometry = Header::check(&mapping).unwrap();
    let mut child = spawn(&team, 7, "as_a_rank_alone", &[("TEAM_TEST_ALONE", 1)]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| team.join(Some(150)).map(|_| ()));
        while SharedSeat::holder(&mapping, &geometry, 7).is_none() {
            assert!(child.try_wait().unwrap().is_none());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(waiting.join().unwrap(), Err(trimtab_team::Error::PeerDied(7)));
    });
}

/// The program that the previous test starts; alone it does nothing.
#[test]
fn as_a_rank_alone() {
    if number("TEAM_TEST_ALONE").is_some()
        && let Some((team, rank)) = Team::inherited().unwrap()
    {
        let _ = team.join(Some(rank));
    }
}

/// Makes so many calls that a change of masks counts.
fn many_calls(rank: &Rank) {
    for round in 0..PERIOD + PERIOD_READ {
        let mut value = [if rank.rank() == 1 { round } else { 0 }];
        rank.mine().broadcast(&mut value, 1).unwrap();
        assert_eq!(value, [round]);
        rank.barrier().unwrap();
    }
}

/// Makes calls until the report of each rank shows its CPU, which a rank publishes when it waits.
fn until_it_shows(rank: &Rank, cpu: usize) {
    let begin = std::time::Instant::now();
    loop {
        let report = rank.report();
        // Known only where the C library registers with the kernel, or after a long wait.
        let known = format!("rank {} (this rank) is alive on CPU {cpu}", rank.rank());
        let mut all = [u32::from(report.contains(&known) || !report.contains("on CPU"))];
        rank.mine().allreduce_in_place(&mut all, Operator::Min).unwrap();
        if all == [1] {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{report}");
    }
}

#[test]
fn ranks_that_are_bound_later_decide_again_whether_they_are_crowded() {
    let cpus = allowed();
    let (one, other) = (cpus[0], cpus[cpus.len() - 1]);
    let team = Team::new(Options { heap: 4096, cell: 1024, ..Options::new(2) }).unwrap();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let team = team.clone();
            scope.spawn(move || {
                let apart = || bind(if number == 0 { one } else { other });
                apart();
                let rank = team.join(Some(number)).unwrap();
                assert_eq!(rank.crowded(), one == other);
                bind(one);
                many_calls(&rank);
                assert!(rank.crowded());
                apart();
                many_calls(&rank);
                assert_eq!(rank.crowded(), one == other);
                until_it_shows(&rank, if number == 0 { one } else { other });
                rank.barrier().unwrap();
            });
        }
    });
}

#[test]
fn a_team_that_shrinks_decides_again_whether_it_is_crowded() {
    let cpus = allowed().len() as u32;
    let team = Team::new(Options { heap: 4096, cell: 1024, ..Options::new(cpus + 1) }).unwrap();
    std::thread::scope(|scope| {
        for number in 0..=cpus {
            let team = team.clone();
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                assert!(rank.crowded());
                if number == cpus {
                    return;
                }
                while rank.barrier().is_ok() {}
                let rank = rank.shrink(Duration::from_secs(120)).unwrap();
                for _ in 0..PERIOD + PERIOD_READ {
                    rank.barrier().unwrap();
                }
                assert!(!rank.crowded());
            });
        }
    });
}

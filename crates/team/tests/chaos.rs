//! Ranks that are killed or stopped at any moment: every survivor ends, with all its work done or
//! with the number of the dead rank.
//!
//! `TRIMTAB_CHAOS_SECONDS` (3 unless set) is the duration, `TRIMTAB_CHAOS_SEED` the first schedule;
//! the seed is printed when something fails.
#![allow(clippy::unwrap_used, clippy::print_stderr, unsafe_code, reason = "tests with processes")]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{Lot, Player, belongings, ended, inherited, number, seed, spawn};
use std::process::Child;
use std::time::{Duration, Instant};
use trimtab_team::{Error, Options, Team};

/// Exit statuses of ranks: all steps done; others did not join; a wrong result; another error; a
/// leak; a dead rank (plus its number).
const DONE: i32 = 0;
const NOT_JOINED: i32 = 50;
const WRONG: i32 = 60;
const OTHER: i32 = 61;
const LEAK: i32 = 62;
const DIED: i32 = 100;

/// A rank, started by the test below; does nothing otherwise.
#[test]
fn a_rank() {
    let Some((team, number_of)) = inherited(Duration::from_secs(1), None) else { return };
    let before = belongings();
    let (seed, steps) = (number("CHAOS_SEED").unwrap(), number("CHAOS_STEPS").unwrap());
    let code = match team.join(Some(number_of)) {
        Err(error) => {
            eprintln!("rank {number_of}: {error}");
            NOT_JOINED
        }
        Ok(rank) => {
            let mut player = Player::new(&rank, seed).unwrap();
            let ended = (0..steps).find_map(|step| match player.play() {
                Ok(true) => None,
                Ok(false) => {
                    eprintln!("rank {number_of}: wrong at step {step}");
                    Some(WRONG)
                }
                Err(Error::PeerDied(rank)) => Some(DIED + rank as i32),
                Err(error) => {
                    eprintln!("rank {number_of}: {error}");
                    Some(OTHER)
                }
            });
            ended.unwrap_or(DONE)
        }
    };
    let with_team = belongings();
    drop(team);
    let kept = belongings() != (before.0 - 1, before.1 - 1) || with_team != before;
    std::process::exit(if kept && code != WRONG && code != OTHER { LEAK } else { code });
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a child that has not been waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Plays one schedule.
fn schedule(seed: u64) {
    let mut lot = Lot(seed);
    let ranks = 2 + lot.below(4) as u32;
    let steps = lot.of(&[20, 200, 1000]);
    let options = Options { heap: 1 << 20, cell: 1 << (10 + lot.below(4)), ..Options::new(ranks) };
    let team = Team::new(options).unwrap();
    let words = [("CHAOS_SEED", seed), ("CHAOS_STEPS", steps)];
    let mut children: Vec<Child> = (0..ranks).map(|rank| spawn(&team, rank, "a_rank", &words)).collect();
    let mut killed = Vec::new();
    let mut stopped = Vec::new();
    for _ in 0..lot.below(u64::from(ranks) + 2) {
        std::thread::sleep(Duration::from_micros(lot.of(&[10, 300, 3000, 20_000, 60_000])));
        let victim = lot.below(ranks.into()) as u32;
        if lot.below(3) == 0 {
            signal(&children[victim as usize], libc::SIGSTOP);
            stopped.push(victim);
        } else if killed.len() + 1 < ranks as usize && !killed.contains(&victim) {
            signal(&children[victim as usize], libc::SIGKILL);
            killed.push(victim);
        }
        if lot.below(2) == 0 {
            stopped.drain(..).for_each(|rank| signal(&children[rank as usize], libc::SIGCONT));
        }
    }
    stopped.drain(..).for_each(|rank| signal(&children[rank as usize], libc::SIGCONT));
    let until = Instant::now() + Duration::from_secs(120);
    let ends: Vec<_> = children.iter_mut().map(|child| ended(child, until)).collect();
    for (rank, end) in (0..).zip(&ends) {
        let told = format!(
            "rank {rank} of {ranks}: {end:?}, killed {killed:?}; all {ends:?}; TRIMTAB_CHAOS_SEED={seed}"
        );
        let Some(end) = end else { panic!("hung: {told}") };
        match end.code() {
            // A killed rank may have finished before.
            None => assert!(killed.contains(&rank), "{told}"),
            Some(DONE) => {}
            Some(NOT_JOINED) => assert!(!killed.is_empty(), "{told}"),
            Some(code) => assert!(code >= DIED && killed.contains(&((code - DIED) as u32)), "{told}"),
        }
    }
}

#[test]
fn the_surviving_ranks_get_the_result_or_the_name_of_the_dead_rank() {
    let seconds = Duration::from_secs(number("TRIMTAB_CHAOS_SECONDS").unwrap_or(3));
    let first = seed("TRIMTAB_CHAOS_SEED");
    let (begin, before) = (Instant::now(), belongings());
    let mut count = 0;
    while count == 0 || begin.elapsed() < seconds {
        schedule(first + count);
        count += 1;
    }
    assert_eq!(belongings(), before, "seed {first}, {count} schedules");
    eprintln!("{count} schedules from seed {first} on");
}

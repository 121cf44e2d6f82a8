//! Killed processes of a team leave nothing behind, neither in the survivors nor in the system.
#![allow(clippy::unwrap_used, unsafe_code, reason = "tests with processes")]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{belongings, ended, inherited, spawn};
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_team::{Error, Operator, Options, Team};

const LIMIT: Duration = Duration::from_secs(120);
const LEAK: i32 = 9;
const DIED: i32 = 20;

/// Computes until a rank is gone. Its exit status is the number of that rank, or a leak.
#[test]
fn a_rank() {
    let Some((team, number)) = inherited(LIMIT, None) else { return };
    let before = belongings();
    let rank = team.join(Some(number)).unwrap();
    let error = loop {
        if let Err(error) = rank.mine().allreduce_in_place(&mut [1_u64; 50], Operator::Sum) {
            break error;
        }
    };
    drop(rank);
    drop(team);
    // The descriptor that it was started with, and the mapping.
    let kept = belongings() != (before.0 - 1, before.1 - 1);
    let Error::PeerDied(dead) = error else { panic!("{error}") };
    std::process::exit(if kept { LEAK } else { DIED + dead as i32 });
}

/// Returns the names of everything that teams could have made here. Other programs may make things
/// there, too, except in `folder`.
fn traces(folder: &Path, pids: &[u32]) -> Vec<String> {
    let mut all = Vec::new();
    for (place, ours) in [(folder, true), (Path::new("/dev/shm"), false), (Path::new("/dev/mqueue"), false)] {
        let Ok(entries) = std::fs::read_dir(place) else { continue };
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        all.extend(names.filter(|name| ours || name.contains("trimtab-team")));
    }
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = sockets.lines().filter_map(|line| line.split_whitespace().nth(7));
    all.extend(names.filter(|name| name.starts_with('@') && name.contains("trimtab")).map(str::to_owned));
    // System V's, which outlive their processes; the fifth column is the creator.
    let old = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let made = |line: &&str| {
        line.split_whitespace().nth(4).and_then(|pid| pid.parse().ok()).is_some_and(|pid| pids.contains(&pid))
    };
    all.extend(old.lines().filter(made).map(str::to_owned));
    all
}

#[test]
fn nothing_is_left_of_any_that_are_killed() {
    let folder = std::env::temp_dir().join(format!("trimtab-leaks-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    // SAFETY: no other thread of this program reads the environment now.
    unsafe {
        std::env::set_var("TMPDIR", &folder);
        std::env::set_var("XDG_RUNTIME_DIR", &folder);
    }
    let before = belongings();
    for killed in 1..8_u32 {
        let team = Team::new(Options { heap: 4096, cell: 1024, gather: LIMIT, ..Options::new(4) }).unwrap();
        let mut children: Vec<_> = (1..4).map(|rank| spawn(&team, rank, "a_rank", &[])).collect();
        let pids: Vec<u32> =
            children.iter().map(std::process::Child::id).chain([std::process::id()]).collect();
        let is_killed = |rank: u32| killed >> (rank - 1) & 1 == 1;
        let rank = team.join(Some(0)).unwrap();
        for _ in 0..10 {
            rank.mine().allreduce_in_place(&mut [1_u64; 50], Operator::Sum).unwrap();
        }
        for rank in (1..4).filter(|rank| is_killed(*rank)) {
            children[rank as usize - 1].kill().unwrap();
        }
        let until = Instant::now() + LIMIT;
        let ends: Vec<_> = children.iter_mut().map(|child| ended(child, until).unwrap()).collect();
        drop(rank);
        drop(team);
        for (rank, end) in (1..).zip(ends) {
            match end.code() {
                None => assert!(is_killed(rank), "{rank} of {killed:b}"),
                // A rank that is killed last may have seen another's death before.
                Some(code) => assert!(code >= DIED, "{rank} of {killed:b}: {code}"),
            }
        }
        assert_eq!(belongings(), before, "{killed:b}");
        assert_eq!(traces(&folder, &pids), [""; 0], "{killed:b}");
    }
    std::fs::remove_dir(&folder).unwrap();
}

//! Ranks that join at the same time have the same data of each other.
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test that binds threads")]
#![cfg(target_os = "linux")]
#![cfg(not(any(trimtab_model, miri)))]

use std::time::Duration;
use trimtab_team::{Options, Team};

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
        let deadline = Some(Duration::from_secs(10));
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

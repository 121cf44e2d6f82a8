//! A rank that writes anything anywhere in the segment while others work. The others may get errors
//! and wrong data, but they end within their deadline and access nothing outside of the segment:
//! the pages around it in their address space cannot be touched.
//!
//! `TRIMTAB_HOSTILE_SECONDS` (3 unless set) and `TRIMTAB_HOSTILE_SEED`, as in `chaos.rs`.
#![allow(clippy::unwrap_used, clippy::print_stderr, unsafe_code, reason = "tests with processes")]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{Lot, Player, ended, inherited, number, seed, spawn};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use trimtab_team::flag::LINE_BYTES;
use trimtab_team::segment::header::Header;
use trimtab_team::segment::layout::Geometry;
use trimtab_team::segment::memfd::Mapping;
use trimtab_team::shared_layout::{Lines, SLOT_COUNT};
use trimtab_team::{Options, Rank, Team};

/// Longest wait of an honest rank for one event.
const DEADLINE: Duration = Duration::from_millis(200);
/// Longest wait for all ranks to join.
const GATHER: Duration = Duration::from_millis(1500);
const STEPS: u64 = 300;

fn guard(length: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new pages at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as usize
}

/// Leaves a hole into which only the segment fits, with inaccessible pages around it.
fn make_hole(length: usize) {
    const AROUND: usize = 64 << 20;
    // Holes that the kernel would fill first.
    for _ in 0..64 {
        guard(length);
    }
    let at = guard(length + 2 * AROUND);
    // SAFETY: the middle of the mapping just made, which is not in use.
    assert_eq!(unsafe { libc::munmap((at + AROUND) as *mut libc::c_void, length) }, 0);
}

/// Returns whether the pages right before and after the segment are inaccessible.
fn is_guarded() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines: Vec<(usize, usize, bool, bool)> = maps
        .lines()
        .map(|line| {
            let (from, rest) = line.split_once('-').unwrap();
            let (to, rest) = rest.split_once(' ').unwrap();
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            (address(from), address(to), rest.starts_with("---p"), line.contains("trimtab-team"))
        })
        .collect();
    let at = lines.iter().position(|line| line.3).unwrap();
    let (before, own, after) = (lines[at - 1], lines[at], lines[at + 1]);
    before.2 && before.1 == own.0 && after.2 && after.0 == own.1
}

/// An honest rank, started by the test below; does nothing otherwise.
#[test]
fn an_honest_rank() {
    if std::env::var_os("TRIMTAB_TEAM").is_none() {
        return;
    }
    make_hole(number("HOSTILE_LENGTH").unwrap() as usize);
    // The hostile rank may have overwritten the header by now.
    let Ok(Some((team, rank))) = std::panic::catch_unwind(|| inherited(GATHER, Some(DEADLINE))) else {
        std::process::exit(0);
    };
    assert!(is_guarded());
    if let Ok(rank) = team.join(Some(rank)) {
        let begin = Instant::now();
        let mut player = Player::new(&rank, number("HOSTILE_SEED").unwrap()).unwrap();
        for _ in 0..STEPS {
            let step = Instant::now();
            let over = player.play().is_err();
            // A call waits for several events, and this machine may be busy.
            assert!(step.elapsed() < 50 * DEADLINE, "{:?}", step.elapsed());
            if over || begin.elapsed() > 4 * DEADLINE {
                break;
            }
        }
    }
    std::process::exit(0);
}

/// Makes the same calls as the others, and meanwhile posts buffers that do not exist.
fn lie(mapping: &Mapping, geometry: &Geometry, rank: u32, lot: &mut Lot, joined: &Rank) {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    let over = AtomicBool::new(false);
    let heap = geometry.heap_bytes as u64;
    let lies = [
        heap,
        heap - 64,
        heap / 2,
        heap + 4096,
        1 << 40,
        u64::MAX,
        u64::MAX / 2,
        lot.next(),
        lot.below(heap),
    ];
    let lines = geometry.control + rank as usize * geometry.control_bytes;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lot = Lot(lies[7]);
            while !over.load(Relaxed) {
                for slot in 0..SLOT_COUNT {
                    let at = lines
                        + std::mem::offset_of!(Lines, slots)
                        + slot * LINE_BYTES
                        + 16
                        + 8 * (lot.below(2) as usize);
                    // SAFETY: within the mapping, aligned, and accessed atomically.
                    let word = unsafe { AtomicU64::from_ptr(mapping.base().add(at).cast()) };
                    word.store(lot.of(&lies), Relaxed);
                }
            }
        });
        // The same calls as the others make.
        let mut player = Player::new(joined, number("HOSTILE_SEED").unwrap()).unwrap();
        for _ in 0..STEPS {
            if player.play().is_err() {
                break;
            }
        }
        over.store(true, Relaxed);
    });
}

/// The hostile rank: takes its seat, makes calls for a while, and then writes at random.
#[test]
fn a_hostile_rank() {
    let Some((team, rank)) = inherited(GATHER, Some(DEADLINE)) else { return };
    let mut lot = Lot(number("HOSTILE_SEED").unwrap() ^ 0xbad);
    let mapping = Mapping::adopt(team.fd().try_clone_to_owned().unwrap()).unwrap();
    let geometry = Header::check(&mapping).unwrap();
    let early = lot.below(8) == 0;
    let joined = if early { None } else { team.join(Some(rank)).ok() };
    if let Some(joined) = joined.as_ref().filter(|_| lot.below(2) == 0) {
        lie(&mapping, &geometry, rank, &mut lot, joined);
    } else if let Some(joined) = &joined {
        let mut player = Player::new(joined, number("HOSTILE_SEED").unwrap()).unwrap();
        for _ in 0..lot.of(&[0, 1, 5, 40]) {
            let _ = player.play();
        }
    }
    let regions = [
        (0, 4096),
        (geometry.seats, geometry.control - geometry.seats),
        (geometry.control, geometry.stage - geometry.control),
        (geometry.control, 4096),
        (geometry.stage, geometry.heap - geometry.stage),
        (geometry.heap, geometry.heap_bytes),
        (0, mapping.len()),
    ];
    let region = lot.of(&regions);
    let sparing = lot.below(2) == 0;
    let begin = Instant::now();
    while begin.elapsed() < 2 * DEADLINE {
        for _ in 0..lot.of(&[1, 30, 3000]) {
            let at = region.0 + lot.below(region.1 as u64) as usize;
            // The alarm ends everything at once: half of the time it is spared.
            let alarm = geometry.control + std::mem::offset_of!(Lines, alarm);
            if sparing && (alarm..alarm + 128).contains(&at) {
                continue;
            }
            let at = at / 8 * 8;
            let value = lot.next();
            let old_low = lot.below(4) == 0;
            // SAFETY: within the mapping, and aligned.
            unsafe {
                let word = mapping.base().add(at).cast::<u64>();
                // Numbers that are nearly right get further than others.
                let value = match lot.below(5) {
                    0 => value,
                    1 => word.read_volatile().wrapping_add(lot.below(5)).wrapping_sub(2),
                    2 => value % (2 * geometry.heap_bytes as u64),
                    3 => (geometry.heap_bytes as u64).wrapping_sub(value % 64),
                    _ => word.read_volatile() ^ 1 << (value % 64),
                };
                word.write_volatile(if old_low {
                    value << 32 | u64::from(word.read_volatile() as u32)
                } else {
                    value
                });
            }
        }
        std::thread::sleep(Duration::from_micros(lot.of(&[0, 50, 1000])));
    }
    std::process::exit(0);
}

#[test]
fn a_hostile_rank_does_not_break_other_ranks() {
    let seconds = Duration::from_secs(number("TRIMTAB_HOSTILE_SECONDS").unwrap_or(3));
    let first = seed("TRIMTAB_HOSTILE_SEED");
    let begin = Instant::now();
    let mut count = 0;
    while count == 0 || begin.elapsed() < seconds {
        let seed = first + count;
        count += 1;
        let ranks = 2 + (seed % 3) as u32;
        let team = Team::new(Options { heap: 1 << 20, cell: 1024, ..Options::new(ranks) }).unwrap();
        // SAFETY: asks for the size of a descriptor that the team holds.
        let length = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(team.fd().as_raw_fd(), &raw mut stat), 0);
            stat.st_size as u64
        };
        let words = [("HOSTILE_SEED", seed), ("HOSTILE_LENGTH", length)];
        let hostile = (seed / 3 % u64::from(ranks)) as u32;
        let mut children: Vec<_> = (0..ranks)
            .map(|rank| {
                let test = if rank == hostile { "a_hostile_rank" } else { "an_honest_rank" };
                spawn(&team, rank, test, &words)
            })
            .collect();
        let until = Instant::now() + Duration::from_secs(120);
        for (rank, child) in (0..).zip(&mut children) {
            let end = ended(child, until);
            if rank != hostile {
                let fine = end.is_some_and(|end| end.success());
                assert!(fine, "rank {rank} of {ranks}: {end:?}; TRIMTAB_HOSTILE_SEED={seed}");
            }
        }
    }
    eprintln!("{count} teams from seed {first} on");
}

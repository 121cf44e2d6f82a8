//! Many processes at once, some of them killed.

use crate::actor::Actor;
use crate::scene::{HANG, MACHINE, Random, Scene, ahead, claim, cpus, location, set, take, us, users};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;
use trimtab_core::set::CpuSet;
use trimtab_linux::ledger::{Held, Ledger, LedgerError, Mode, TakeError, Ticket};

/// Holds random numbers of CPUs of the pretend machine, many times. For each CPU held it creates a
/// file that no other process may have created: the file system knows nothing of locks.
pub(crate) fn hold_many(directory: &Path, witness: &Path, seed: u64, holds: u64) -> String {
    let mut random = Random(seed);
    let mut ledger = Ledger::open(&location(directory)).unwrap();
    let (mut collisions, mut reopened) = (0, 0);
    for _ in 0..holds {
        let held = loop {
            match hold_some(&ledger, &mut random) {
                Ok(Some(held)) => break held,
                Ok(None) => thread::sleep(Duration::from_micros(300)),
                Err(TakeError::Busy { .. }) => collisions += 1,
                Err(TakeError::Ledger(LedgerError::Replaced { .. })) => {
                    reopened += 1;
                    ledger = loop {
                        match Ledger::open(&location(directory)) {
                            Ok(ledger) => break ledger,
                            Err(LedgerError::Unsettled { .. }) => {} // deleted as fast as it is made
                            Err(error) => return error.to_string(),
                        }
                    };
                }
                Err(error) => return error.to_string(),
            }
        };
        let mark = |cpu| witness.join(format!("cpu{cpu}"));
        for cpu in held.cpus().iter() {
            if let Err(error) = File::create_new(mark(cpu)) {
                return format!("CPU {cpu} is held twice: {error}");
            }
        }
        thread::sleep(Duration::from_micros(random.below(600)));
        for cpu in held.cpus().iter() {
            fs::remove_file(mark(cpu)).unwrap();
        }
    }
    format!("held {holds}, collided {collisions}, reopened {reopened}")
}

/// Plans and takes once; `None` if too few CPUs are free.
fn hold_some(ledger: &Ledger, random: &mut Random) -> Result<Option<Held>, TakeError> {
    let want = usize::try_from(1 + random.below(12)).unwrap();
    // One process in eight does not wait for its turn to plan.
    let _planner = if random.below(8) == 0 { None } else { Some(ledger.planner(MACHINE, HANG)?) };
    let free = cpus().difference(&ledger.map(MACHINE, &cpus())?.held());
    let skip = usize::try_from(random.below(1 + free.len().saturating_sub(want) as u64)).unwrap();
    let chosen: CpuSet = free.iter().skip(skip).take(want).collect();
    if chosen.len() < want {
        return Ok(None);
    }
    let taken = ledger.take(MACHINE, &chosen, Mode::Exclusive, &us("crowd", 0));
    if let Err(TakeError::Busy { cpus }) = &taken {
        assert!(!cpus.is_empty() && cpus.is_subset(&chosen));
    }
    taken.map(Some)
}

/// Waits for CPU 0 in line, holds it for a moment and signs the log.
pub(crate) fn be_served(ledger: &Ledger, mut ticket: Ticket, log: &Path, name: &str) {
    while ahead(&mut ticket) > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let held = loop {
        match take(ledger, "0", Mode::Exclusive) {
            Ok(held) => break held,
            Err(TakeError::Busy { .. }) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    };
    let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
    writeln!(log, "{name}").unwrap();
    drop(ticket);
    drop(held);
}

/// Makes every kind of call to a ledger, until killed.
pub(crate) fn churn(directory: &Path, seed: u64) -> ! {
    let mut random = Random(seed);
    let mut round = 0;
    loop {
        // A new ledger each time, so that the kill may hit its creation.
        let fresh = directory.join(format!("fresh-{seed}-{round}"));
        fs::create_dir(&fresh).unwrap();
        Ledger::open(&location(&fresh)).unwrap();
        round += 1;
        let ledger = Ledger::open(&location(directory)).unwrap();
        let ticket = ledger.enqueue(MACHINE, &cpus(), &claim()).unwrap();
        let planner = ledger.planner(MACHINE, HANG).unwrap();
        let free = cpus().difference(&ledger.map(MACHINE, &cpus()).unwrap().held());
        let want = usize::try_from(1 + random.below(20)).unwrap();
        let chosen: CpuSet = free.iter().take(want).collect();
        let held = ledger.take(MACHINE, &chosen, Mode::Exclusive, &us("churn", 0));
        drop(planner);
        let _ = ledger.holders(MACHINE, &cpus()).unwrap();
        drop(ticket);
        drop(held);
    }
}

#[test]
fn a_thousand_holds_of_two_users_never_share_a_cpu() {
    let Some([ann, bob]) = users("a_thousand_holds_of_two_users_never_share_a_cpu") else {
        return crowd_of(&[None; 16]);
    };
    crowd_of(&[[Some(ann); 8], [Some(bob); 8]].concat());
}

fn crowd_of(users: &[Option<u32>]) {
    let scene = Scene::new();
    let (collided, _) = crowd(&scene, users, 63, || thread::sleep(Duration::from_millis(5)));
    eprintln!("{} holds, {collided} collisions noticed", 63 * users.len());
}

/// A login manager does this to the files of a user who logs out, if that user created them and
/// they are in `/dev/shm`.
#[test]
fn deleting_the_ledger_under_living_holds_never_makes_a_cpu_shared() {
    let scene = Scene::new();
    scene.ledger();
    let mut deleted = 0;
    let (_, reopened) = crowd(&scene, &[None; 12], 25, || {
        thread::sleep(Duration::from_millis(3));
        // In bursts, or none would fall between an open and the following take; and not without
        // end, or on a loaded machine no process would get from the one to the other.
        for _ in 0..if deleted < 400 { 20 } else { 0 } {
            deleted += u64::from(fs::remove_file(scene.file("locks")).is_ok());
            thread::yield_now();
        }
    });
    eprintln!("deleted {deleted} times, opened again {reopened} times");
    assert!(deleted > 1 && reopened > 1);
}

/// Lets actors hold CPUs until all are done, and runs `meanwhile` during that. Returns how often
/// they collided and how often they had to open the ledger again.
fn crowd(scene: &Scene, users: &[Option<u32>], holds: u64, mut meanwhile: impl FnMut()) -> (u64, u64) {
    let witness = scene.root().join("witness");
    fs::create_dir(&witness).unwrap();
    scene.chmod(&witness, 0o1777);
    let mut actors: Vec<Actor> = users.iter().map(|&user| Actor::start(&scene.directory(), user)).collect();
    for actor in &mut actors {
        assert_eq!(actor.ask("open"), "open");
    }
    for (seed, actor) in actors.iter_mut().enumerate() {
        actor.tell(&format!("crowd {} {seed} {holds}", witness.display()));
    }
    let mut total = (0, 0);
    for actor in &mut actors {
        let answer = loop {
            match actor.answered() {
                Some(answer) => break answer,
                None => meanwhile(),
            }
        };
        let words: Vec<&str> = answer.split([',', ' ']).collect();
        let ["held", done, "", "collided", collided, "", "reopened", reopened] = words[..] else {
            panic!("{answer}")
        };
        assert_eq!(done, holds.to_string());
        total.0 += collided.parse::<u64>().unwrap();
        total.1 += reopened.parse::<u64>().unwrap();
    }
    let ledger = scene.ledger();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
    assert_eq!(fs::read_dir(witness).unwrap().count(), 0);
    assert!(take(&ledger, "0-63", Mode::Exclusive).is_ok());
    total
}

#[test]
fn kills_at_any_moment_leave_nothing_behind() {
    let seed = 20_260_101;
    eprintln!("seed {seed}");
    let scene = Scene::new();
    let mut random = Random(seed);
    for _ in 0..50 {
        let mut batch: Vec<Actor> = (0..6).map(|_| Actor::start(&scene.directory(), None)).collect();
        for actor in &mut batch {
            actor.tell(&format!("churn {}", random.below(u64::MAX)));
        }
        for mut actor in batch {
            assert_eq!(actor.answer(), "churning");
            thread::sleep(Duration::from_micros(random.below(4000)));
            actor.kill();
        }
    }
    let ledger = scene.ledger();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
    assert_eq!(ledger.waiting(MACHINE, &cpus()).unwrap(), 0);
    assert!(ledger.planner(MACHINE, Duration::ZERO).is_ok());
    assert!(take(&ledger, "0-63", Mode::Exclusive).is_ok());
    let mut made = 0;
    for entry in
        fs::read_dir(scene.directory()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir())
    {
        for file in fs::read_dir(entry.path()).unwrap().map(Result::unwrap) {
            if !file.file_name().to_string_lossy().starts_with('.') {
                made += 1;
                assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o666, "{file:?}");
            }
        }
        assert!(Ledger::open(&location(&entry.path())).is_ok());
    }
    assert!(made > 0);
}

//! Many at once, some of them killed.

use crate::actor::Actor;
use crate::scene::{HANG, MACHINE, Random, Scene, cpus, location, set, take, us, users};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;
use trimtab_core::set::CpuSet;
use trimtab_linux::ledger::{Ledger, Mode, TakeError, Ticket};

/// Holds random numbers of CPUs of the pretend machine, many times. For each CPU held it makes a file that nobody else
/// may have made: the file system knows nothing of locks.
pub(crate) fn hold_many(ledger: &Ledger, witness: &Path, seed: u64, holds: u64) -> String {
    let mut random = Random(seed);
    let holder = us("crowd", 0);
    let mut collisions = 0;
    for _ in 0..holds {
        let want = usize::try_from(1 + random.below(12)).unwrap();
        let held = loop {
            // One in eight does not wait for his turn to plan.
            let planner = (random.below(8) != 0).then(|| ledger.planner(MACHINE, HANG).unwrap());
            let free = cpus().difference(&ledger.map(MACHINE, &cpus()).unwrap().held());
            let skip = usize::try_from(random.below(1 + free.len().saturating_sub(want) as u64)).unwrap();
            let chosen: CpuSet = free.iter().skip(skip).take(want).collect();
            if chosen.len() < want {
                drop(planner);
                thread::sleep(Duration::from_micros(300));
                continue;
            }
            match ledger.take(MACHINE, &chosen, Mode::Exclusive, &holder) {
                Ok(held) => break held,
                Err(TakeError::Busy { cpus }) if cpus.is_subset(&chosen) => collisions += 1,
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
    format!("held {holds}, collided {collisions}")
}

/// Waits for CPU 0 in line, holds it for a moment and signs the log.
pub(crate) fn be_served(ledger: &Ledger, ticket: Ticket, log: &Path, name: &str) {
    while !ticket.is_first().unwrap() {
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

/// Does everything that can be done with a ledger, until killed.
pub(crate) fn churn(directory: &Path, seed: u64) -> ! {
    let mut random = Random(seed);
    let mut round = 0;
    loop {
        // A new ledger each time, so that the kill may fall into its making.
        let fresh = directory.join(format!("fresh-{seed}-{round}"));
        fs::create_dir(&fresh).unwrap();
        Ledger::open(&location(&fresh)).unwrap();
        round += 1;
        let ledger = Ledger::open(&location(directory)).unwrap();
        let ticket = ledger.enqueue(MACHINE, &cpus()).unwrap();
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
    let witness = scene.root().join("witness");
    fs::create_dir(&witness).unwrap();
    scene.chmod(&witness, 0o1777);
    let mut actors: Vec<Actor> = users.iter().map(|&user| Actor::start(&scene.directory(), user)).collect();
    for actor in &mut actors {
        assert_eq!(actor.ask("open"), "open");
    }
    for (seed, actor) in actors.iter_mut().enumerate() {
        actor.tell(&format!("crowd {} {seed} 63", witness.display()));
    }
    let mut collided = 0;
    for actor in &mut actors {
        let answer = actor.answer();
        let collisions = answer.strip_prefix("held 63, collided ").unwrap_or_else(|| panic!("{answer}"));
        collided += collisions.parse::<u64>().unwrap();
    }
    eprintln!("{} holds, {collided} collisions noticed", 63 * actors.len());
    let ledger = scene.ledger();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
    assert_eq!(fs::read_dir(witness).unwrap().count(), 0);
    assert!(take(&ledger, "0-63", Mode::Exclusive).is_ok());
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

//! Holders' names, as far as they can be known.

use crate::scene::{MACHINE, Random, Scene, busy, cpus, eventually, processes, set, take, us};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use trimtab_core::ids::OsNode;
use trimtab_linux::ledger::{Holder, Mode, RECORD_BYTES, Standing};
use trimtab_linux::sys::lock::{LockKind, try_lock};

fn holders_file(scene: &Scene) -> File {
    File::options().read(true).write(true).open(scene.file("holders")).unwrap()
}

#[test]
fn holders_are_listed_with_their_cpus() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let since = Duration::from_millis(12_345);
    let mine = ledger
        .take(
            MACHINE,
            &set("0-3,8"),
            Mode::Exclusive,
            &processes().this_process(0, since, "cg.C \x1b[2J").unwrap(),
        )
        .unwrap();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 4-7"), "held");
    let found = ledger.holders(MACHINE, &cpus()).unwrap();
    assert_eq!(found.unknown, set(""));
    let [first, second] = &found.known[..] else { panic!("{found:?}") };
    assert_eq!((&first.cpus, first.mode, Some(first.id)), (&set("0-3,8"), Mode::Exclusive, mine.id()));
    assert_eq!((first.holder.pid, first.holder.since), (std::process::id(), since));
    assert_eq!(first.holder.label, "cg.C \u{fffd}[2J");
    assert_eq!((&second.cpus, second.holder.pid), (&set("4-7"), actor.pid()));
    for hold in &found.known {
        assert_eq!(processes().standing(&hold.holder), Standing::Running);
    }
    assert_eq!(ledger.holders(MACHINE, &set("3-4")).unwrap().known[0].cpus, set("3"));
    actor.ask("drop");
    assert_eq!(ledger.holders(MACHINE, &cpus()).unwrap().known.len(), 1);
}

#[test]
fn survivors_of_a_named_process_are_distinguished() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-3"), "held");
    actor.ask("keep");
    // The shell's child keeps the hold; it ends with its standard input, which is ours.
    assert_eq!(actor.ask("exec sh -c exec 9<&0; cat <&9 >/dev/null & echo @on; wait"), "exec");
    assert_eq!(actor.answer(), "on");
    let holder = ledger.holders(MACHINE, &cpus()).unwrap().known[0].holder.clone();
    assert_eq!(processes().standing(&holder), Standing::Running, "unchanged by exec");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(actor.pid()).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    eventually("the shell's end", || processes().standing(&holder) == Standing::Outlived);
    assert_eq!(ledger.holders(MACHINE, &cpus()).unwrap().known[0].cpus, set("0-3"));
    actor.kill();
    eventually("the child's end", || ledger.map(MACHINE, &cpus()).unwrap().held().is_empty());
}

#[test]
fn records_left_behind_are_not_the_next_holders() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-3"), "held");
    actor.kill();
    // A process that locks and writes no record, or has not written it yet.
    let other = File::options().read(true).write(true).open(scene.file("locks")).unwrap();
    assert!(try_lock(other.as_fd(), 0..2, LockKind::Write).unwrap());
    let found = ledger.holders(MACHINE, &cpus()).unwrap();
    assert_eq!((found.known.len(), found.unknown), (0, set("0-1")));
}

#[test]
fn garbage_in_the_records_makes_unknown_holders_and_no_harm() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let held = take(&ledger, "0-63", Mode::Exclusive).unwrap();
    let file = holders_file(&scene);
    let good = fs::read(scene.file("holders")).unwrap();
    let mut random = Random(3);
    for round in 0..200 {
        // A third pure noise, a third damaged at one offset, a third cut short.
        let mut text = good.clone();
        match round % 3 {
            0 => text.iter_mut().for_each(|byte| *byte = u8::try_from(random.below(256)).unwrap()),
            1 => {
                for record in text.chunks_mut(RECORD_BYTES) {
                    let at = usize::try_from(random.below(RECORD_BYTES as u64)).unwrap();
                    record[at] ^= u8::try_from(1 + random.below(255)).unwrap();
                }
            }
            _ => text.truncate(usize::try_from(random.below(RECORD_BYTES as u64)).unwrap()),
        }
        file.set_len(0).unwrap();
        file.write_all_at(&text, 0).unwrap();
        let found = ledger.holders(MACHINE, &cpus()).unwrap();
        assert_eq!((found.known.len(), &found.unknown), (0, held.cpus()), "round {round}");
    }
    file.write_all_at(&good, 0).unwrap();
    assert_eq!(ledger.holders(MACHINE, &cpus()).unwrap().known[0].cpus, *held.cpus());
}

#[test]
fn holds_work_without_a_file_of_records() {
    let scene = Scene::new();
    fs::create_dir(scene.file("holders")).unwrap();
    let ledger = scene.ledger();
    assert!(ledger.names_missing().is_some_and(|why| why.to_string().contains("a directory of uid")));
    let held = take(&ledger, "0-3", Mode::Exclusive).unwrap();
    assert!(held.unnamed().is_some());
    assert_eq!(ledger.holders(MACHINE, &cpus()).unwrap().unknown, set("0-3"));
}

#[test]
fn processes_of_a_job_find_and_join_their_group() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let uid = us("x", 0).uid;
    let group = |job| ledger.find_group(MACHINE, &cpus(), job, uid, &processes()).unwrap();
    let find = |job| group(job).map(|group| group.cpus);
    assert_eq!(find(77), None);
    let mut first = scene.actor();
    let mut second = scene.actor();
    assert_eq!(first.ask("take 0-7 shared job=77"), "held");
    assert_eq!(find(77), Some(set("0-7")));
    assert_eq!(second.ask("take 0-7 shared job=77"), "held");
    assert_eq!((find(78), find(0)), (None, None));
    // One hold, whichever process wrote last and whichever is left.
    let holds = ledger.holders(MACHINE, &cpus()).unwrap();
    assert_eq!(
        (holds.known.len(), &holds.known[0].cpus, holds.known[0].holder.pid),
        (1, &set("0-7"), second.pid())
    );
    second.kill();
    assert_eq!(find(77), Some(set("0-7")));
    assert_eq!(busy(take(&ledger, "7-8", Mode::Exclusive)), set("7"));
    first.kill();
    assert_eq!(find(77), None);
    // An exclusive hold cannot be joined, for any job.
    let _alone = ledger.take(MACHINE, &set("1"), Mode::Exclusive, &us("alone", 77)).unwrap();
    assert_eq!(find(77), None);
}

#[test]
fn memory_is_named_by_the_hold_and_by_its_job() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let with = |job, gib: &[(u32, u64)]| {
        let memory = gib.iter().map(|&(node, gib)| (OsNode(node), gib << 30)).collect();
        Holder { memory, ..us("memory", job) }
    };
    let memory = |view: &trimtab_linux::ledger::LedgerView| {
        let holds = view.holders(MACHINE, &cpus()).unwrap().known;
        holds.into_iter().map(|hold| hold.holder.memory).collect::<Vec<_>>()
    };
    let alone =
        ledger.take(MACHINE, &set("0-1"), Mode::Exclusive, &with(0, &[(0, 3), (1, 3), (4, 1)])).unwrap();
    let plain = take(&ledger, "2", Mode::Exclusive).unwrap();
    assert_eq!(memory(&ledger), [with(0, &[(0, 3), (1, 3), (4, 1)]).memory, with(0, &[]).memory]);
    drop(alone);
    assert_eq!(memory(&ledger), [with(0, &[]).memory], "a hold that has ended holds nothing");
    drop(plain);
    // Ranks of a job join its memory with its CPUs.
    let first = ledger.take(MACHINE, &set("4-7"), Mode::Shared, &with(77, &[(0, 2)])).unwrap();
    let group = ledger.find_group(MACHINE, &cpus(), 77, us("x", 0).uid, &processes()).unwrap().unwrap();
    assert_eq!((&group.cpus, &group.memory), (&set("4-7"), &with(0, &[(0, 2)]).memory));
    let joined = Holder { memory: group.memory, ..us("second", 77) };
    let second = ledger.take(MACHINE, &group.cpus, Mode::Shared, &joined).unwrap();
    drop(first);
    assert_eq!(memory(&ledger), [with(0, &[(0, 2)]).memory]);
    drop(second);
    assert_eq!(memory(&ledger), []);
}

#[test]
fn a_group_in_anothers_name_is_not_joined() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let us = us("forged", 77);
    let victim = Holder { uid: us.uid + 1, ..us.clone() };
    let _held = ledger.take(MACHINE, &set("0-3"), Mode::Shared, &victim).unwrap();
    let found = ledger.holders(MACHINE, &cpus()).unwrap();
    assert_eq!(processes().standing(&found.known[0].holder), Standing::Impostor { uid: us.uid });
    assert_eq!(ledger.find_group(MACHINE, &cpus(), 77, victim.uid, &processes()).unwrap(), None);
    assert_eq!(ledger.find_group(MACHINE, &cpus(), 77, us.uid, &processes()).unwrap(), None);
}

#[test]
fn holds_on_a_deleted_ledger_are_found_and_respected() {
    let scene = Scene::new();
    let elsewhere = Scene::new();
    let _others = take(&elsewhere.ledger(), "40-43", Mode::Exclusive).unwrap();
    let mut old = take(&scene.ledger(), "0-3", Mode::Exclusive).unwrap();
    let group = take(&scene.ledger(), "6", Mode::Shared).unwrap();
    for part in ["locks", "holders"] {
        fs::remove_file(scene.file(part)).unwrap();
    }
    let ledger = scene.ledger();
    let map = ledger.map(MACHINE, &cpus()).unwrap();
    assert_eq!((map.lost.clone(), map.exclusive.clone()), (set("0-3,6"), set("")));
    assert_eq!(ledger.holders(MACHINE, &cpus()).unwrap().unknown, set("0-3,6"));
    assert_eq!(busy(take(&ledger, "2-5", Mode::Exclusive)), set("2-3"));
    let new = take(&ledger, "4-5", Mode::Exclusive).unwrap();
    // A second time: holds on both deleted files are found.
    fs::remove_file(scene.file("locks")).unwrap();
    let ledger = scene.ledger();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().lost, set("0-6"));
    // A run inside the first one still finds the hold that it was handed.
    let lent = old.lend().unwrap();
    assert_eq!(ledger.held_through(lent.as_raw_fd(), MACHINE, &cpus()).unwrap(), set("0-3"));
    drop((old, new, lent));
    let lost = || ledger.map(MACHINE, &cpus()).unwrap().lost;
    eventually("the end of what other tests' children inherited", || lost() == set("6"));
    drop(group);
    let _all = take(&ledger, "0-63", Mode::Exclusive).unwrap();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().lost, set(""));
}

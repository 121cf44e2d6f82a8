//! Holds of CPUs: taking, lifetime, and exclusion.

use crate::actor::Actor;
use crate::scene::{HANG, MACHINE, Scene, busy, cpus, eventually, set, take, us};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_linux::ledger::{LedgerError, Level, Mode, TakeError};

/// Returns the CPUs that `/proc/locks` shows as locked in the first `64` bytes of the ledger, read
/// by other code than the ledger's.
fn witness(scene: &Scene) -> CpuSet {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{}", fs::metadata(scene.file("locks")).unwrap().ino());
    let text = fs::read_to_string("/proc/locks").unwrap();
    let mut held = CpuSet::new();
    for line in text.lines().filter(|line| line.contains("OFDLCK")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, last): (u64, u64) = (words[6].parse().unwrap(), words[7].parse().unwrap_or(u64::MAX));
        if words[5].ends_with(&inode) && first < 64 {
            held.extend((first..=last.min(63)).map(|cpu| OsCpu(u32::try_from(cpu).unwrap())));
        }
    }
    held
}

#[test]
fn cores_are_held_until_the_hold_is_dropped() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let held = take(&ledger, "0-3,8,60-63", Mode::Exclusive).unwrap();
    assert_eq!(held.cpus(), &set("0-3,8,60-63"));
    assert!(held.unnamed().is_none(), "{:?}", held.unnamed());
    let map = ledger.map(MACHINE, &cpus()).unwrap();
    assert_eq!((&map.exclusive, &map.shared), (held.cpus(), &set("")));
    // The kernel's list is read in pieces, and the locks of other tests come and go.
    eventually("the kernel's list", || witness(&scene) == *held.cpus());
    assert_eq!(ledger.map(MACHINE, &set("2-9")).unwrap().exclusive, set("2-3,8"));
    drop(held);
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
    assert_eq!(witness(&scene), set(""));
}

#[test]
fn all_are_taken_or_none_and_those_in_the_way_are_named() {
    let scene = Scene::new();
    let mut other = scene.actor();
    assert_eq!(other.ask("take 5-6,20"), "held");
    let ledger = scene.ledger();
    assert_eq!(busy(take(&ledger, "0-3,5,7,20-21", Mode::Exclusive)), set("5,20"));
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set("5-6,20"));
    let mine = take(&ledger, "0-3,7,21", Mode::Exclusive).unwrap();
    // Our own other holds exclude as those of other processes do.
    assert_eq!(busy(take(&ledger, "3-4", Mode::Exclusive)), set("3"));
    assert_eq!(other.ask("take 4,7"), "busy 7");
    drop(mine);
    assert_eq!(other.ask("take 4,7"), "held");
}

#[test]
fn nothing_and_numbers_without_a_byte_are_refused() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    assert!(matches!(take(&ledger, "", Mode::Exclusive), Err(TakeError::Nothing)));
    let beyond: CpuSet = [OsCpu(3), OsCpu(1 << 20)].into_iter().collect();
    let error = ledger.take(MACHINE, &beyond, Mode::Exclusive, &us("x", 0)).unwrap_err();
    assert!(matches!(error, TakeError::Ledger(LedgerError::CpuOutOfRange { .. })), "{error}");
    assert!(ledger.map(MACHINE, &beyond).is_err());
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
    assert!(take(&ledger, "1048575", Mode::Exclusive).is_ok());
}

#[test]
fn the_kernel_releases_the_cores_of_a_killed_process() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-9"), "held");
    assert_eq!(actor.ask("planner 1000"), "planning");
    assert_eq!(actor.ask("enqueue"), "queued");
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().exclusive, set("0-9"));
    actor.kill();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
    assert_eq!(ledger.waiting(MACHINE, &cpus()).unwrap(), 0);
    assert!(ledger.planner(MACHINE, std::time::Duration::ZERO).is_ok());
}

fn runs(pid: u32, program: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == program)
}

#[test]
fn a_kept_hold_survives_exec_and_ends_with_the_program() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-3"), "held");
    actor.ask("keep");
    assert_eq!(actor.ask("exec sleep 100"), "exec");
    eventually("exec", || runs(actor.pid(), "sleep"));
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().exclusive, set("0-3"));
    actor.kill();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
}

#[test]
fn a_hold_that_is_not_kept_ends_at_exec() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-3"), "held");
    assert_eq!(actor.ask("planner 1000"), "planning");
    assert_eq!(actor.ask("exec sleep 100"), "exec");
    // A program has its name a moment before it loses its parent's descriptors.
    eventually("the end of the hold", || ledger.map(MACHINE, &cpus()).unwrap().held().is_empty());
    assert!(actor.runs());
    assert!(ledger.planner(MACHINE, HANG).is_ok());
}

#[test]
fn children_inherit_a_kept_hold_and_outlive_their_parent_with_it() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-3"), "held");
    actor.ask("keep");
    assert_eq!(actor.ask("exec sh -c sleep 100 & echo @$!; wait"), "exec");
    let child: i32 = actor.answer().parse().unwrap();
    actor.kill();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().exclusive, set("0-3"));
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    eventually("the child's end", || ledger.map(MACHINE, &cpus()).unwrap().held().is_empty());
}

#[test]
fn a_lent_hold_lasts_as_long_as_either_has_it() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut held = take(&ledger, "0-3", Mode::Exclusive).unwrap();
    let lent = held.lend().unwrap();
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    drop(lent);
    drop(held);
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().exclusive, set("0-3"));
    child.kill().unwrap();
    child.wait().unwrap();
    // The children of other tests may have inherited it as well.
    eventually("everybody's end", || ledger.map(MACHINE, &cpus()).unwrap().held().is_empty());
}

#[test]
fn scripts_that_number_their_own_files_do_not_close_a_kept_hold() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-3"), "held");
    let number: i32 = actor.ask("keep").parse().unwrap();
    assert!(number >= 256, "{number}");
    let script = "for n in 3 4 5 6 7 8 9; do eval \"exec $n>/dev/null\"; eval \"exec $n>&-\"; done; echo @ok; exec sleep 100";
    assert_eq!(actor.ask(&format!("exec sh -c {script}")), "exec");
    assert_eq!(actor.answer(), "ok");
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().exclusive, set("0-3"));
}

#[test]
fn a_program_that_closes_the_descriptor_gives_its_hold_up() {
    if !Path::new("/bin/bash").exists() {
        eprintln!("SKIPPED: a_program_that_closes_the_descriptor_gives_its_hold_up needs bash");
        return;
    }
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    assert_eq!(actor.ask("take 0-3"), "held");
    let number = actor.ask("keep");
    assert_eq!(
        actor.ask(&format!("exec /bin/bash -c exec {number}>&-; echo @closed; exec sleep 100")),
        "exec"
    );
    assert_eq!(actor.answer(), "closed");
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().held(), set(""));
}

#[test]
fn a_hold_is_kept_with_few_descriptors_allowed() {
    for (limit, at_least) in [("600", 256), ("64", 32), ("32", 16)] {
        let scene = Scene::new();
        let ledger = scene.ledger();
        let mut actor = scene.actor();
        actor.ask(&format!("files {limit}"));
        assert_eq!(actor.ask("take 0-3"), "held");
        let number: i32 = actor.ask("keep").parse().unwrap();
        assert!(number >= at_least, "{number} with a limit of {limit}");
        assert_eq!(actor.ask("exec sleep 100"), "exec");
        eventually("exec", || runs(actor.pid(), "sleep"));
        assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().exclusive, set("0-3"));
    }
}

#[test]
fn a_limit_on_file_sizes_costs_the_name_and_not_the_launch() {
    let scene = Scene::new();
    let mut first = Actor::start(&scene.directory(), None);
    first.ask("size 1");
    let answer = first.ask("open");
    assert!(answer.contains("File too large"), "{answer}");
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    actor.ask("size 4096");
    assert_eq!(actor.ask("take 0-3"), "held");
    let answer = actor.ask("take 40-41");
    assert!(answer.starts_with("held unnamed:") && answer.contains("ulimit -f"), "{answer}");
    let holders = ledger.holders(MACHINE, &cpus()).unwrap();
    assert_eq!((holders.known.len(), holders.unknown), (1, set("40-41")));
}

#[test]
fn shared_holds_overlap_each_other_and_exclude_the_others() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut other = scene.actor();
    assert_eq!(other.ask("take 0-3 shared"), "held");
    let mine = take(&ledger, "2-5", Mode::Shared).unwrap();
    let map = ledger.map(MACHINE, &cpus()).unwrap();
    assert_eq!((map.exclusive.clone(), map.shared.clone()), (set(""), set("0-5")));
    assert_eq!(busy(take(&ledger, "1-6", Mode::Exclusive)), set("1-5"));
    let _alone = take(&ledger, "6-7", Mode::Exclusive).unwrap();
    // Sharers do not exclude each other, only the exclusive hold does.
    assert_eq!(busy(take(&ledger, "5-6", Mode::Shared)), set("6"));
    other.kill();
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().shared, set("2-5"));
    drop(mine);
    assert!(take(&ledger, "0-5", Mode::Exclusive).is_ok());
}

#[test]
fn levels_divide_a_hold_without_touching_it() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let inner = MACHINE.inner().unwrap();
    let outer = take(&ledger, "0-7", Mode::Exclusive).unwrap();
    let first = ledger.take(inner, &set("0-3"), Mode::Exclusive, &us("inner", 0)).unwrap();
    let mut other = scene.actor();
    assert_eq!(other.ask("take 2-5 level=1"), "busy 2-3");
    assert_eq!(other.ask("take 4-5 level=1"), "held");
    assert_eq!(other.ask("take 0 level=15"), "held");
    assert_eq!(ledger.map(MACHINE, &cpus()).unwrap().exclusive, set("0-7"));
    assert_eq!(ledger.map(inner, outer.cpus()).unwrap().exclusive, set("0-5"));
    assert_eq!(ledger.holders(inner, &cpus()).unwrap().known.len(), 2);
    assert_eq!(ledger.holders(MACHINE, &cpus()).unwrap().known.len(), 1);
    let _planner = ledger.planner(inner, std::time::Duration::ZERO).unwrap();
    assert!(ledger.planner(MACHINE, std::time::Duration::ZERO).is_ok(), "each level has its planner");
    drop(first);
    assert_eq!(ledger.map(inner, outer.cpus()).unwrap().exclusive, set("4-5"));
    assert_eq!(Level::new(15).unwrap().inner(), None);
}

#[test]
fn an_inherited_hold_is_recognised_by_its_descriptor_only() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let _other = take(&ledger, "8-9", Mode::Exclusive).unwrap();
    let _group = take(&ledger, "4-5", Mode::Shared).unwrap();
    let alone = take(&ledger, "0-3", Mode::Exclusive).unwrap().keep().unwrap();
    let together = take(&ledger, "4-6", Mode::Shared).unwrap().keep().unwrap();
    assert_eq!(ledger.held_through(alone, MACHINE, &cpus()).unwrap(), set("0-3"));
    assert_eq!(ledger.held_through(alone, MACHINE, &set("2-9")).unwrap(), set("2-3"));
    assert_eq!(ledger.held_through(together, MACHINE, &cpus()).unwrap(), set("4-6"));
    assert_eq!(ledger.held_through(alone, MACHINE.inner().unwrap(), &cpus()).unwrap(), set(""));
    // Numbers of another file, or of none.
    for number in [0, 19_999, -1, i32::MAX] {
        assert_eq!(ledger.held_through(number, MACHINE, &cpus()).unwrap(), set(""), "{number}");
    }
}

#[test]
fn cpus_taken_with_the_right_to_plan_stay_held_and_the_right_is_given_back() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let planner = || ledger.planner(MACHINE, std::time::Duration::ZERO);
    let held_now = || ledger.map(MACHINE, &set("0-7")).unwrap().exclusive;
    let take = |cpus| ledger.take_planned(planner().unwrap(), &set(cpus), Mode::Exclusive, &us("planned", 0));
    let held = take("2-3").unwrap();
    assert!(planner().is_ok(), "the hold keeps the description, not the right");
    assert_eq!(held_now(), set("2-3"));
    assert!(matches!(take("3-4"), Err(TakeError::Busy { cpus }) if cpus == set("3")));
    assert!(planner().is_ok());
    assert_eq!(held_now(), set("2-3"), "nothing is left of CPUs that were refused");
    drop(held);
    assert_eq!(held_now(), set(""));
}

#[test]
fn cpus_taken_with_the_last_right_are_held_for_all_others_and_given_back_when_they_are_refused() {
    let scene = Scene::new();
    let (ledger, other) = (scene.ledger(), scene.ledger());
    let held_now = || other.map(MACHINE, &set("0-7")).unwrap().exclusive;
    let first = take(&other, "3", Mode::Exclusive).unwrap();
    let last = || ledger.last_planner(MACHINE, std::time::Duration::ZERO);
    let take = |cpus| ledger.take_planned(last().unwrap(), &set(cpus), Mode::Exclusive, &us("last", 0));

    let right = last().unwrap();
    assert!(matches!(
        other.planner(MACHINE, std::time::Duration::ZERO),
        Err(LedgerError::PlannerBusy { .. })
    ));
    assert_eq!(ledger.map(MACHINE, &set("0-7")).unwrap().exclusive, set("3"), "the map is read with it");
    drop(right);
    assert!(matches!(take("2-4"), Err(TakeError::Busy { cpus }) if cpus == set("3")));
    assert_eq!(held_now(), set("3"), "nothing is left of CPUs that were refused");
    let held = take("4-5").unwrap();
    assert!(other.planner(MACHINE, std::time::Duration::ZERO).is_ok(), "the right is given back");
    assert_eq!(held_now(), set("3-5"));
    drop(ledger);
    assert_eq!(held_now(), set("3-5"), "the hold outlives the value through which it was taken");
    drop((held, first));
    assert_eq!(held_now(), set(""));
}

//! Views: reading the ledger without taking part.

use crate::scene::{MACHINE, Scene, claim, cpus, set, take, users};
use std::fs;
use trimtab_linux::ledger::{LedgerView, Mode};

#[test]
fn a_view_creates_nothing() {
    let scene = Scene::new();
    assert!(LedgerView::open(&scene.location()).unwrap().is_none());
    assert_eq!(fs::read_dir(scene.directory()).unwrap().count(), 0);
}

#[test]
fn a_view_sees_each_change() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let view = LedgerView::open(&scene.location()).unwrap().unwrap();
    assert_eq!(view.map(MACHINE, &cpus()).unwrap().held(), set(""));
    let held = take(&ledger, "3-5", Mode::Exclusive).unwrap();
    let _ticket = ledger.enqueue(MACHINE, &cpus(), &claim()).unwrap();
    assert_eq!(view.map(MACHINE, &cpus()).unwrap().exclusive, set("3-5"));
    assert_eq!(view.holders(MACHINE, &cpus()).unwrap(), ledger.holders(MACHINE, &cpus()).unwrap());
    assert_eq!(view.holders(MACHINE, &cpus()).unwrap().known.len(), 1);
    assert_eq!(view.waiting(MACHINE, &cpus()).unwrap(), 1);
    drop(held);
    assert_eq!(view.map(MACHINE, &cpus()).unwrap().held(), set(""));
}

#[test]
fn reading_is_all_a_view_needs_and_not_even_that() {
    let Some([ann, _]) = users("reading_is_all_a_view_needs_and_not_even_that") else { return };
    let scene = Scene::new();
    let ledger = scene.ledger();
    let _held = take(&ledger, "3-5,9", Mode::Exclusive).unwrap();
    let _shared = take(&ledger, "11", Mode::Shared).unwrap();
    // 0644: the kernel answers through a descriptor for reading. 0600: the locks can only be looked
    // up in /proc/locks.
    for mode in [0o666, 0o644, 0o600] {
        scene.chmod(&scene.file("locks"), mode);
        scene.chmod(&scene.file("holders"), mode);
        assert_eq!(scene.actor_of(ann).ask("look"), "3-5,9,11", "mode {mode:o}");
    }
    scene.chmod(&scene.directory(), 0o700);
    let answer = scene.actor_of(ann).ask("look");
    assert!(answer.contains("ermission denied"), "{answer}");
}

//! CPUs on which threads are created, and reuse of slots.

mod common;

use common::{HostProgram, HostRun, pinned};

/// Returns the masks of the initial thread and of four threads started one after the other, all
/// alive.
fn born(run: HostRun, narrowed: Option<&str>) -> Option<String> {
    let run = run.arg("4");
    let run = if let Some(letters) = narrowed { run.arg(letters) } else { run };
    Some(run.run(&HostProgram::c("born.c")?)?.text())
}

#[track_caller]
fn expect(found: Option<String>, masks: &str) {
    if let Some(found) = found {
        assert_eq!(found, masks);
    }
}

#[test]
fn slots_are_given_out_in_order_with_slot_0_last_and_the_rest_float() {
    expect(born(pinned("B/A"), None), "AB: A B AB AB");
    expect(born(pinned("A/B"), None), "AB: B A AB AB");
    expect(born(pinned("A/B/B/A"), None), "AB: B B A A");
}

#[test]
fn a_slot_may_have_several_cpus() {
    expect(born(pinned("A/B/A,B"), None), "AB: B AB A AB");
}

#[test]
fn a_creator_on_a_slot_does_not_hand_it_down() {
    expect(born(pinned("A/B"), Some("A")), "A: B A AB AB");
    expect(born(pinned("A/B"), Some("B")), "B: B A AB AB");
}

#[test]
fn a_creator_placed_by_the_program_hands_its_place_down() {
    expect(born(pinned("A/A"), Some("B")), "B: B B B B");
    expect(born(pinned("A/A"), Some("A")), "A: A A AB AB");
}

#[test]
fn a_plan_without_slots_or_without_pinning_pins_nothing() {
    expect(born(pinned(""), None), "AB: AB AB AB AB");
    expect(born(pinned(""), Some("A")), "A: A A A A"); // no slot: the program's own place
    expect(born(HostRun::guest().plan("mask=A,B slots=B/A pin=mask"), None), "AB: AB AB AB AB");
    expect(born(HostRun::guest().plan("mask=A,B slots=B/A pin=mask"), Some("A")), "A: A A A A");
}

#[test]
fn a_floating_plan_gives_every_thread_the_mask_also_from_a_narrowed_creator() {
    let floating = || HostRun::guest().plan("mask=A,B slots=B/A pin=float");
    expect(born(floating(), None), "AB: AB AB AB AB");
    expect(born(floating(), Some("A")), "A: AB AB AB AB");
}

#[test]
fn without_a_plan_nothing_changes() {
    expect(born(HostRun::guest(), None), "AB: AB AB AB AB");
    expect(born(HostRun::guest(), Some("B")), "B: B B B B");
}

#[test]
fn a_plan_of_cpus_that_are_not_there_is_dropped_thread_by_thread() {
    let plan = "mask=8000-8003 slots=8000/8001/8002/8003 pin=born";
    expect(born(HostRun::guest().plan(plan), None), "AB: AB AB AB AB");
    expect(born(HostRun::guest().plan(plan), Some("A")), "A: A A A A");
    // One of three: the initial thread has less than the plan says, whatever the cause.
    expect(born(HostRun::guest().plan("mask=A,B,8000 slots=A/8000/B pin=born"), None), "AB: AB AB AB AB");
}

#[test]
fn threads_of_threads_take_their_turns_too() {
    let Some(program) = HostProgram::c("nested.c") else { return };
    expect(pinned("A/B").run(&program).map(|outcome| outcome.text()), "AB B A AB");
}

#[test]
fn the_initial_thread_leaves_the_cpu_of_a_thread_that_it_creates() {
    let Some(program) = HostProgram::c("leaves.c") else { return };
    for (slots, letter) in [("B/A", "A"), ("A/B", "B")] {
        let Some(outcome) = pinned(slots).arg(letter).run(&program) else { return };
        let text = outcome.text();
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(words[4..], ["same", "108"], "{text}");
        // The scheduler may move the thread, or move it back, before it asks.
        let left = |at: usize| words[at].parse::<u32>().unwrap();
        assert!(left(1) >= 4, "{slots}: {text}");
        assert!(left(3) <= 50, "{slots}: a move for each thread costs more than it gains: {text}");
    }
}

#[test]
fn ten_thousand_threads_leave_no_slot_behind() {
    let Some(program) = HostProgram::c("churn.c") else { return };
    expect(pinned("A/B").arg("B").run(&program).map(|outcome| outcome.text()), "then: B A AB");
}

#[test]
fn every_end_of_a_thread_gives_its_slot_back() {
    let Some(program) = HostProgram::c("ends.c") else { return };
    let ends = ["return", "exit", "deep exit", "cancel", "cancel at any time", "detached"];
    let masks: Vec<_> = ends.iter().map(|end| format!("{end}: A B")).collect();
    expect(pinned("B/A").run(&program).map(|outcome| outcome.text()), &masks.join("\n"));
}

#[test]
fn two_copies_of_the_library_agree() {
    let Some(program) = HostProgram::c("born.c") else { return };
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("other.so");
    std::fs::copy(common::library(), &copy).unwrap();
    let run = pinned("A/B").preload(&copy).arg("4");
    expect(run.run(&program).map(|outcome| outcome.text()), "AB: B A AB AB");
}

//! Mask that the C library reports for a thread: the plan's while it is on the slot that it was
//! created on, else its own.

mod common;

use common::{HostProgram, HostRun, pinned, two_cpus};

#[test]
fn a_thread_on_its_slot_reads_the_plans_mask_until_the_program_sets_one() {
    let (Some(program), Some(two)) = (HostProgram::c("asks.c"), two_cpus()) else { return };
    let online = |text: &str| text.split_whitespace().next_back().unwrap().parse::<u32>().unwrap();
    let Some(outcome) = pinned("B/A").run(&program) else { return };
    let text = outcome.text();
    let lines: Vec<_> = text.lines().collect();
    for line in lines.iter().filter(|line| line.contains(" online ")) {
        assert_eq!(online(line), online(lines[0]), "{line}");
        assert!(online(line) <= two[1] + 1, "{line}");
    }
    let without_counts: Vec<_> =
        lines.iter().map(|line| line.split_once(" online ").map_or(*line, |(line, _)| line)).collect();
    assert_eq!(
        without_counts,
        [
            "initial: AB told AB",
            "born: A told AB",
            "attribute: A told A", // the program's, though it is the slot
            "attribute: B told B",
            "set by task: A told A",
            "set by thread: A told A",
            "set by thread: B told B",
            "born later: A told AB", // on the turn of threads that were set
            "not set: A told AB",
            "moved: B told B",
            "restored: AB told AB", // the mask that it was told before
            "of another: A A",
            "set by another: A told A",
            "forked: AB told AB",
            "spawned: AB told AB",
            "forked: A told A",
            "spawned: A told A",
            "bound at once: 2000",
            "born last: A told AB",
        ]
    );
}

#[test]
fn without_a_plan_every_answer_is_the_kernels() {
    let Some(program) = HostProgram::c("asks.c") else { return };
    let (Some(native), Some(guest)) = (HostRun::native().run(&program), HostRun::guest().run(&program))
    else {
        return;
    };
    assert_eq!(native.text(), guest.text());
}

#[test]
fn a_plan_that_pins_nothing_leaves_every_answer_as_it_is() {
    let Some(program) = HostProgram::c("asks.c") else { return };
    let Some(native) = HostRun::native().run(&program) else { return };
    for pin in ["mask", "float"] {
        let run = HostRun::guest().plan(&format!("mask=A,B slots=B/A pin={pin}"));
        let Some(guest) = run.run(&program) else { return };
        let lines = |text: String| -> Vec<String> {
            text.lines().map(|line| line.split(" online ").next().unwrap().to_owned()).collect()
        };
        assert_eq!(lines(guest.text()), lines(native.clone().text()), "{pin}");
    }
}

#[test]
fn in_a_balanced_run_a_thread_reads_the_plans_mask_until_the_program_sets_one() {
    let (Some(program), Some(_)) = (HostProgram::c("balanced.c"), two_cpus()) else { return };
    let Some(run) = HostRun::guest().plan("mask=A,B slots=B/A pin=moved").run(&program) else { return };
    let text = run.text();
    let told = [
        "initial: AB told AB",
        "bound: A told AB",
        "thread: B told AB",
        "forked: A", // another process, which is no part of the plan
        "attribute: A told A",
        "after one was set: B told B",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), told);
}

/// Returns the masks reported to a thread before, inside and after a parallel region that it opens,
/// under this environment.
fn around_a_region(compiler: &str, environment: &[(&str, &str)]) -> Option<Vec<String>> {
    let program = HostProgram::built(compiler, "asks_openmp.c", &["-O1", "-fopenmp", "-pthread"])?;
    let run = environment.iter().fold(pinned("B/A"), |run, (name, value)| run.env(name, value));
    Some(run.run(&program)?.text().lines().map(str::to_owned).collect())
}

#[test]
fn a_region_that_binds_nothing_changes_no_answer() {
    for compiler in ["gcc", "clang"] {
        for environment in [&[][..], &[("OMP_PROC_BIND", "false")]] {
            let Some(said) = around_a_region(compiler, environment) else { continue };
            // LLVM's runtime counts CPUs by system calls when it starts, so the thread's mask is
            // widened.
            let after = if compiler == "gcc" { "A" } else { "AB" };
            let line = |when: &str| format!("{when}: {after} told AB");
            let lines = ["before: A told AB", &line("inside"), &line("behind"), "team: 2"];
            assert_eq!(said, lines, "{compiler} {environment:?}");
        }
    }
}

#[test]
fn a_region_that_binds_by_the_users_order_is_answered_with_the_place() {
    let Some([a, b]) = two_cpus() else { return };
    for compiler in ["gcc", "clang"] {
        for (place, letter) in [(a, "A"), (b, "B")] {
            let places = format!("{{{place}}}");
            let environment = [("OMP_PROC_BIND", "true"), ("OMP_PLACES", places.as_str())];
            let Some(said) = around_a_region(compiler, &environment) else { continue };
            assert_eq!(said[0], "before: A told AB", "{compiler}");
            for (line, when) in said[1..].iter().zip(["inside", "behind"]) {
                assert_eq!(*line, format!("{when}: {letter} told {letter}"), "{compiler}");
            }
        }
    }
}

//! Wait loops in the program's own code, with more threads than CPUs (`--spin yield`).

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "tests may")]

mod common;

use common::{HostProgram, HostRun, Outcome};
use trimtab_core::spin::{VARIABLE, handoff};

/// Returns whether this process may sample threads as the library does, by the kernel's setting.
fn may_sample() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    setting.and_then(|text| text.trim().parse::<i32>().ok()).is_some_and(|level| level <= 2)
}

/// Runs the program in a mode, with this text of the variable; `None` if the test cannot be run.
fn run(mode: &str, text: Option<&str>) -> Option<Outcome> {
    if !may_sample() {
        common::skip("the kernel permits no sampling");
        return None;
    }
    let program = HostProgram::c("spins.c")?;
    let run = HostRun::guest().arg(mode);
    text.into_iter().fold(run, |run, text| run.env(VARIABLE, text)).run(&program)
}

#[test]
fn a_loop_that_waits_yields_and_the_program_sees_no_signal_and_no_descriptor() {
    let Some(outcome) = run("signals", Some(handoff(false))) else { return };
    assert_eq!(outcome.text(), "changed 1 signals 0 descriptors 0 ended");
}

#[test]
fn system_calls_return_as_without_the_library() {
    let Some(outcome) = run("calls", Some(handoff(false))) else { return };
    assert_eq!(outcome.text(), "wrong 0 changed 1 ended");
}

#[test]
fn forked_children_and_programs_that_follow_run_as_usual() {
    let Some(outcome) = run("fork", Some(handoff(false))) else { return };
    assert_eq!(outcome.text(), "changed 1 child 5 exec 7 ended");
}

#[test]
fn a_process_ends_with_its_last_thread() {
    let Some(outcome) = run("last", Some(handoff(false))) else { return };
    assert_eq!(outcome.text(), "changed 1");
}

#[test]
fn the_report_names_the_loop() {
    let Some(outcome) = run("", Some(handoff(true))) else { return };
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "changed 1 ended"));
    let line = outcome.stderr;
    assert!(line.starts_with("trimtab: --spin yield: the wait loop at the program+0x"), "{line}");
    assert!(line.ends_with(" times") && !line.contains('\n'), "{line}");
}

//! The message about a program that fails within seconds of a launch that changed variables for it.

use crate::util::{Sandbox, built, need, text, two};

const LINE: &str = "trimtab: the program ended with status ";

#[test]
fn a_failure_at_the_start_is_reported_with_the_changed_variables() {
    need!(two(), "two cores are needed");
    let program = need!(built("gcc", "fails.c", &["-O1", "-fopenmp"]), "no gcc with OpenMP");
    let sandbox = Sandbox::new();
    let said = |options: &str, words: &[&str]| {
        let outcome = sandbox.run(options).arg(&program).args(words).ends();
        assert_eq!(outcome.code, words[0].parse().ok(), "{outcome}");
        outcome.stderr
    };
    let line = said("-c 2", &["3"]);
    assert!(line.starts_with(&format!("{LINE}3 after ")), "{line}");
    assert!(line.contains("Changed for it: OMP_PLACES OMP_PROC_BIND. "), "{line}");
    assert!(line.contains("--env keep") && line.contains("trimtab doctor"), "{line}");
    // Printed once, by the planned process alone.
    assert_eq!(said("-c 2", &["3", "child"]).matches(LINE).count(), 1);
    assert_eq!(said("-c 2", &["0", "child"]), "");
    for options in ["-c 2 --env keep", "-c 2 --pin mask", "-c 2 -q"] {
        assert_eq!(said(options, &["3"]), "", "{options}");
    }
}

#[test]
fn a_program_that_only_got_the_library_fails_silently() {
    need!(two(), "two cores are needed");
    let program = need!(built("gcc", "threads_fail.c", &["-O1", "-pthread"]), "no gcc");
    let sandbox = Sandbox::new();
    for status in ["1", "3", "0"] {
        let outcome = sandbox.run("-c 2").arg(&program).arg(status).ends();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (status.parse().ok(), ""), "{outcome}");
    }
}

#[test]
fn a_program_for_which_nothing_was_changed_fails_silently() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run("-c 1").args(["grep", "x", "/dev/null"]).ends();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), ""), "{outcome}");
}

#[test]
fn a_file_that_the_program_opened_in_place_of_its_errors_is_left_alone() {
    need!(two(), "two cores are needed");
    let program = need!(built("gcc", "fails.c", &["-O1", "-fopenmp"]), "no gcc with OpenMP");
    let sandbox = Sandbox::new();
    let data = sandbox.path("data");
    let outcome = sandbox.run("-c 2").arg(&program).args(["3", "data"]).arg(&data).ends();
    assert_eq!((outcome.code, text(&data).as_str()), (Some(3), ""), "{outcome}");
}

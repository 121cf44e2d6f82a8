//! Start of the laboratory by `trimtab`, and the error if it is missing.

use crate::util::{Sandbox, lab, trimtab};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies a program into a folder of the sandbox.
fn copy(sandbox: &Sandbox, program: &Path, place: &str) -> PathBuf {
    let copy = sandbox.path(place);
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
    copy
}

#[test]
fn trimtab_passes_on_the_output_and_status_of_the_laboratory() {
    let sandbox = Sandbox::new();
    for words in [
        "sim machines host-2",
        "sim machines pdp-11",
        "sim figures --list",
        "bench cost --list --only budget/brm",
        "bench cost --only nothing",
        "sim nowhere.toml",
        "tune-team --list --ranks 2",
        "report nowhere.trace",
        "tune-team --ranks 1",
    ] {
        let (by_trimtab, alone) = (sandbox.trimtab(words).ends(), sandbox.lab(words).ends());
        assert_eq!(by_trimtab.code, alone.code, "{by_trimtab}");
        assert_eq!(by_trimtab.out(), alone.out());
        assert_eq!(by_trimtab.stderr, alone.stderr);
    }
}

#[test]
fn help_and_usage_name_the_commands_as_they_were_typed() {
    let sandbox = Sandbox::new();
    for (words, usage) in [
        ("bench --help", "Usage: trimtab bench <COMMAND>"),
        ("bench nested --help", "Usage: trimtab bench nested [OPTIONS]"),
        ("tune-team --help", "Usage: trimtab tune-team [OPTIONS]"),
        ("sim -h", "Usage: trimtab sim [OPTIONS] [SCENARIO.toml]..."),
        ("help bench", "Usage: trimtab bench <COMMAND>"),
        ("help sim figures", "Usage: trimtab sim figures [OPTIONS] [NAME]..."),
        ("help tune-team", "Usage: trimtab tune-team [OPTIONS]"),
    ] {
        let help = sandbox.trimtab(words).ends().ok();
        assert!(help.contains(usage), "{words}: {help}");
    }
    let help = sandbox.lab("bench nested --help").ends().ok();
    assert!(help.contains("Usage: trimtab-lab bench nested [OPTIONS]"), "{help}");
    sandbox.trimtab("bench nested --rounds 0").ends().fails_with(2, "--rounds <N>");
    sandbox.trimtab("bench").ends().fails_with(2, "Usage: trimtab bench <COMMAND>");
    sandbox.trimtab("help bench nothing").ends().fails_with(2, "nothing");
}

#[test]
fn without_the_laboratory_its_commands_name_the_remedy() {
    let sandbox = Sandbox::new();
    let program = copy(&sandbox, trimtab(), "alone/trimtab");
    for words in ["sim machines", "bench nested --quick", "help sim"] {
        let outcome = sandbox.trimtab(words).copy(&program).ends();
        outcome.fails(2, &["trimtab-lab is neither in", "alone", "make install"]);
    }
    // The laboratory is also found in PATH.
    copy(&sandbox, lab(), "elsewhere/trimtab-lab");
    let call = sandbox.trimtab("sim machines").copy(&program).env("PATH", sandbox.path("elsewhere"));
    assert!(call.ends().ok().contains("host-2"));
    // Commands of `trimtab` itself work without the laboratory.
    sandbox.trimtab("--help").copy(&program).ends().ok();
}

#[test]
fn without_trimtab_the_laboratory_names_the_missing_program() {
    let sandbox = Sandbox::new();
    let program = copy(&sandbox, lab(), "alone/trimtab-lab");
    let discover = trimtab().with_file_name("trimtab-discover");
    copy(&sandbox, &discover, "alone/trimtab-discover");
    let outcome = sandbox.lab("bench nested --only solver --shape 1x1").copy(&program).ends();
    outcome.fails(2, &["trimtab is neither in", "make install"]);
    sandbox.lab("sim machines").copy(&program).ends().ok();
}

//! Programs with teams under tools that watch memory: valgrind's memcheck, and ThreadSanitizer.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Same value as in build.rs and the Makefile.
const SONAME: &str = "libtrimtab_team.so.0";

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Builds `exchange.c` into a folder; `None` if the compiler cannot do that.
fn built(compiler: &str, words: &[&str], folder: &Path) -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let libraries = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let (program, library) = (folder.join("exchange"), libraries.join("libtrimtab_team_c.so"));
    assert!(library.exists(), "cargo build -p trimtab-team-c makes {}", library.display());
    let _ = std::os::unix::fs::symlink(&library, folder.join(SONAME));
    let mut build = Command::new(compiler);
    build.args(["-g", "-O1", "-Wall", "-Werror", "-pthread"]).args(words).arg("-o").arg(&program);
    build.arg("-I").arg(top.join("include")).arg(top.join("crates/team-c/tests/exchange.c")).arg(library);
    build.output().is_ok_and(|output| output.status.success()).then_some(program)
}

fn run(folder: &Path, command: &mut Command) -> Output {
    command.env("LD_LIBRARY_PATH", folder).env_remove("TRIMTAB_TEAM").output().unwrap()
}

#[test]
fn memcheck_finds_no_error_in_a_program_with_a_team() {
    if !has("valgrind") || !has("gcc") {
        eprintln!("SKIPPED (1): memcheck_finds_no_error...: no valgrind or no gcc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = built("gcc", &[], folder.path()).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--error-exitcode=9", "--fair-sched=yes", "--quiet"]).arg(program);
    let output = run(folder.path(), &mut command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"done\n", "{:?}: {said}", output.status);
}

#[test]
fn thread_sanitizer_reports_the_races_of_a_program_with_a_team_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut any = false;
    for compiler in ["gcc", "clang"] {
        let Some(program) = built(compiler, &["-fsanitize=thread"], folder.path()) else { continue };
        any = true;
        let output = run(folder.path(), &mut Command::new(&program));
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("unexpected memory mapping") {
            eprintln!("SKIPPED (1): thread_sanitizer_reports...: {compiler}'s does not run on this kernel");
            return;
        }
        assert!(output.status.success() && !said.contains("WARNING"), "{compiler}: {said}");
        let output = run(folder.path(), Command::new(&program).arg("race"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("data race") && said.contains("unordered"), "{compiler}: {said}");
    }
    if !any {
        eprintln!("SKIPPED (1): thread_sanitizer_reports...: no compiler with its runtime");
    }
}

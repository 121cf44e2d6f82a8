//! Programs that mix teams with other parallel runtimes: MPI, OpenMP, SHMEM, coarrays, and
//! libraries that do not support threads.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "all of it is test")]

mod beside;
mod mpi;
mod openmp;
mod single;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Prints that a test is left out, and why.
pub(crate) fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED (1): {test}: {why}");
}

/// Returns whether a program is installed.
pub(crate) fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the folder of the libraries: a test lies in `deps`, next to them.
pub(crate) fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// Returns a path in this project.
pub(crate) fn top(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join(below)
}

/// Returns a folder in which the shared library has the name that programs load, as installing
/// gives it.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let library = libraries().join("libtrimtab_team_c.so");
        std::os::unix::fs::symlink(library, folder.path().join("libtrimtab_team.so.0")).unwrap();
        folder
    };
    FOLDER.get_or_init(make).path()
}

/// Limits of `timeout`: ends a command that hangs, and all its children that react to the signal.
const LIMIT: [&str; 3] = ["-k", "10", "120"];

/// Makes a command that finds the library, and that ends in bounded time.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    let program = program.as_ref();
    command.args(LIMIT).arg(program).env("LD_LIBRARY_PATH", installed()).env_remove("TRIMTAB_TEAM");
    command
}

/// Runs a command, which must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn well(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", words(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns everything that a command printed.
pub(crate) fn words(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Builds a program of this folder, with the shared library.
#[track_caller]
pub(crate) fn build(compiler: &str, source: &str, flags: &[&str], folder: &Path) -> PathBuf {
    let program = folder.join(source.replace('.', "-"));
    let mut build = Command::new(compiler);
    if source.ends_with(".c") {
        build.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]);
    }
    build.args(["-O1", "-pthread", "-o"]).arg(&program).arg("-I").arg(top("include"));
    build.arg(top("crates/team-c/tests/hybrid").join(source)).args(flags);
    well(build.arg(libraries().join("libtrimtab_team_c.so")));
    program
}

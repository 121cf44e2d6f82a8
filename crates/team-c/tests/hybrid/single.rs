//! A library that supports one caller in a process.

use crate::{build, command, has, skip, top, well};
use std::process::Command;

#[test]
fn a_library_for_one_caller_is_used_by_ranks_that_are_processes() {
    if !has("gcc") {
        return skip("a_library_for_one_caller_is_used_by_ranks_that_are_processes", "no gcc");
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libsingle.so");
    let source = top("crates/team-c/tests/hybrid/single.c");
    well(
        Command::new("gcc")
            .args(["-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source),
    );
    // The program itself checks that threads get wrong answers and processes right ones.
    well(command(build("gcc", "caller.c", &["-ldl"], folder.path())).arg(&library));
}

//! Programs with symmetric memory of another kind, and a team beside it.

use crate::{build, command, has, skip, well, words};
use std::process::Command;

fn start(launcher: &str) -> Command {
    let mut start = command(launcher);
    start.args(["-n", "3", "--oversubscribe"]);
    start.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    start
}

fn assert_all_agree(said: &str, what: &str, all: &str) {
    let mut lines: Vec<&str> = said.lines().map(str::trim).filter(|line| line.contains("agrees")).collect();
    lines.sort_unstable();
    let from = usize::from(what == "image");
    let right: Vec<String> = (from..from + 3).map(|number| format!("{what} {number} of 3 agrees")).collect();
    assert_eq!(lines, right, "{all}");
}

#[test]
fn the_elements_of_a_shmem_program_are_a_team_beside_their_symmetric_memory() {
    if !has("oshcc") || !has("oshrun") {
        return skip(
            "the_elements_of_a_shmem_program_are_a_team_beside_their_symmetric_memory",
            "no OpenSHMEM of Open MPI's",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build("oshcc", "shmem.c", &["-Wno-deprecated-declarations"], folder.path());
    let said = folder.path().join("said");
    let output = start("oshrun").arg(&program).arg(&said).output().unwrap();
    let said = std::fs::read_to_string(&said).unwrap_or_else(|e| panic!("{e}: {}", words(&output)));
    assert_all_agree(&said, "element", &words(&output));
    // The shmem_finalize of some versions faults in any program (Open MPI 4.1.4).
    if !output.status.success() {
        let empty = start("oshrun").arg(&program).output().unwrap();
        assert!(!empty.status.success(), "an empty program ends well, and this one not: {}", words(&output));
    }
}

#[test]
fn the_images_of_a_coarray_program_are_a_team_and_both_agree() {
    let test = "the_images_of_a_coarray_program_are_a_team_and_both_agree";
    let (compiler, launcher) = if has("caf.openmpi") && has("cafrun.openmpi") {
        ("caf.openmpi", "cafrun.openmpi")
    } else {
        ("caf", "cafrun")
    };
    if !has(compiler) || !has(launcher) {
        return skip(test, "no OpenCoarrays");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build(compiler, "images.f90", &["-J", &folder.path().display().to_string()], folder.path());
    let said = well(start(launcher).arg(&program));
    assert_all_agree(&said, "image", &said);
}

//! MPI around teams: the ranks of its communicators form a team, and both give the same results.

use crate::{build, command, has, skip, words};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiler, launcher, and the launcher's options: to start more ranks than cores, and to keep
/// others alive when one is killed.
struct Mpi {
    name: &'static str,
    compiler: &'static str,
    launcher: &'static str,
    usual: &'static [&'static str],
    bears_deaths: Option<&'static [&'static str]>,
}

const ALL: [Mpi; 2] = [
    Mpi {
        name: "Open MPI",
        compiler: "mpicc.openmpi",
        launcher: "mpirun.openmpi",
        usual: &["--oversubscribe", "--bind-to", "none"],
        bears_deaths: Some(&["--enable-recovery"]),
    },
    Mpi { name: "MPICH", compiler: "mpicc.mpich", launcher: "mpiexec.mpich", usual: &[], bears_deaths: None },
];

impl Mpi {
    fn program(&self, test: &str, folder: &Path) -> Option<PathBuf> {
        if has(self.compiler) && has(self.launcher) {
            return Some(build(self.compiler, "mpi.c", &[], folder));
        }
        skip(test, &format!("no {}", self.name));
        None
    }

    fn start(&self, ranks: u32) -> Command {
        let mut start = command(self.launcher);
        start.args(self.usual).args(["-n", &ranks.to_string()]);
        if self.name == "Open MPI" {
            start.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            // As in containers that forbid it: a large message then needs its sender's progress.
            start.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
        }
        start
    }
}

#[test]
fn the_ranks_of_a_communicator_are_a_team_and_both_agree() {
    for mpi in &ALL {
        let folder = tempfile::tempdir().unwrap();
        let test = "the_ranks_of_a_communicator_are_a_team_and_both_agree";
        let Some(program) = mpi.program(test, folder.path()) else { continue };
        for ranks in [1, 2, 3] {
            crate::well(mpi.start(ranks).arg(&program).arg("world"));
        }
    }
}

#[test]
fn every_communicator_has_a_team_of_its_own() {
    for mpi in &ALL {
        let folder = tempfile::tempdir().unwrap();
        let test = "every_communicator_has_a_team_of_its_own";
        let Some(program) = mpi.program(test, folder.path()) else { continue };
        crate::well(mpi.start(4).arg(&program).arg("parts"));
    }
}

/// Asserts that the survivors know that the last of three ranks is dead.
#[track_caller]
fn assert_all_know(mpi: &Mpi, options: &[&str], program: &Path, how: &str, folder: &Path) {
    let said = folder.join(how);
    let output = mpi.start(3).args(options).arg(program).arg(how).arg(&said).output().unwrap();
    let said = std::fs::read_to_string(&said).unwrap_or_else(|e| panic!("{e}: {}", words(&output)));
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0 of 3 knows", "rank 1 of 3 knows"], "{}: {}", mpi.name, words(&output));
}

#[test]
fn a_dead_rank_is_an_error_at_the_others_under_every_launcher() {
    for mpi in &ALL {
        let folder = tempfile::tempdir().unwrap();
        let test = "a_dead_rank_is_an_error_at_the_others_under_every_launcher";
        let Some(program) = mpi.program(test, folder.path()) else { continue };
        assert_all_know(mpi, &[], &program, "ends", folder.path());
        // Only if the launcher does not kill the others before they can report anything.
        if let Some(options) = mpi.bears_deaths {
            assert_all_know(mpi, options, &program, "killed", folder.path());
        }
    }
}

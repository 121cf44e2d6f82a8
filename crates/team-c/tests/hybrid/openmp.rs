//! OpenMP inside ranks, placed by the nested binding, and OpenMP's threads as ranks.

use crate::{build, command, has, libraries, skip, well};
use std::path::{Path, PathBuf};

/// Builds the program with each compiler that has OpenMP: libgomp and libomp.
fn programs(test: &str, folder: &Path) -> Vec<PathBuf> {
    let with = |compiler: &str| {
        let own = folder.join(compiler);
        std::fs::create_dir(&own).unwrap();
        let empty = own.join("empty.c");
        std::fs::write(&empty, "int main(void) { return 0; }").unwrap();
        let probe = std::process::Command::new(compiler)
            .arg("-fopenmp")
            .arg(&empty)
            .arg("-o")
            .arg(own.join("empty"))
            .output();
        if !probe.is_ok_and(|output| output.status.success()) {
            skip(test, &format!("no {compiler} with OpenMP"));
            return None;
        }
        Some(build(compiler, "openmp.c", &["-fopenmp"], &own))
    };
    ["gcc", "clang"].into_iter().filter_map(with).collect()
}

#[test]
fn the_threads_of_parallel_regions_are_ranks_of_a_team() {
    let folder = tempfile::tempdir().unwrap();
    for program in programs("the_threads_of_parallel_regions_are_ranks_of_a_team", folder.path()) {
        well(command(&program).arg("threads"));
    }
}

#[test]
fn nested_regions_inside_ranks_stay_on_their_ranks_cores() {
    let test = "nested_regions_inside_ranks_stay_on_their_ranks_cores";
    let trimtab = libraries().join("trimtab");
    let parts = ["trimtab", "trimtab-discover", "libtrimtab_shim.so"];
    if let Some(missing) = parts.iter().find(|part| !libraries().join(part).exists()) {
        return skip(test, &format!("{missing} is not built (cargo build --workspace)"));
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 || !has("timeout") {
        return skip(test, "two cores are needed");
    }
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    std::fs::create_dir(&ledger).unwrap();
    for program in programs(test, folder.path()) {
        let mut run = command(&trimtab);
        run.env("TRIMTAB_LEDGER", &ledger).env("XDG_CACHE_HOME", folder.path());
        run.args(["run", "--survey", "none", "-q", "--ranks", "2", "--nest", "2,scatter,2,scatter", "--"]);
        let said = well(run.arg(&program).arg("inside"));
        assert_eq!(said.lines().filter(|line| line.contains(": 4 threads on ")).count(), 2, "{said}");
    }
}

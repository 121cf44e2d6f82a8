//! A program in C that reserves cores for ranks by the header, on a ledger of its own and on one
//! CPU.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Same value as in build.rs and `scripts/install`.
const SONAME: &str = "libtrimtab.so.0";

/// The lines that the program says; `None` without a compiler.
fn lines(steps: &[&str]) -> Option<Vec<String>> {
    if !Command::new("gcc").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED (1): ranks by libtrimtab: no gcc");
        return None;
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A test lies in `deps`, next to the libraries.
    let target = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let bench = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { bench.path().join(name) };
    std::fs::create_dir(path("ledger")).unwrap();
    std::os::unix::fs::symlink(target.join("libtrimtab_hold_c.so"), path(SONAME)).unwrap();
    let built = Command::new("gcc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(path("program"))
        .arg("-I")
        .arg(top.join("include"))
        .arg(top.join("crates/hold-c/tests/ranks.c"))
        .arg(path(SONAME))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let first = list.trim().split([',', '-']).next().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", first]).arg(path("program")).args(steps);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRIMTAB_")) {
        command.env_remove(name);
    }
    let output = command
        .env("LD_LIBRARY_PATH", bench.path())
        .env("TRIMTAB_LEDGER", path("ledger"))
        .env("XDG_CACHE_HOME", path("cache"))
        .env("TRIMTAB_CONFIG", path("config"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{steps:?}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn a_launcher_holds_the_cores_and_its_child_enters_them() {
    let Some(said) = lines(&["one", "list", "enter", "one", "release", "list", "one"]) else { return };
    assert!(said[0].starts_with("task 0: CPUs ") && said[0].contains(", 1 thread, memory "), "{said:?}");
    assert_eq!(said[1], "holds: 1");
    // Seven threads on one CPU are too many; the variables of an outer torchrun do not number the
    // rank.
    assert_eq!(said[2], "OMP_NUM_THREADS=1", "{said:?}");
    assert!(said[3].starts_with("TRIMTAB_HOLD=0 -1 "), "{said:?}");
    assert_eq!(said[4], "CPUs: 1");
    assert!(said[5].starts_with("refused: ") && said[5].ends_with(" cannot be set"), "{said:?}");
    assert!(said[6].starts_with("error 1: "), "the cores are held: {said:?}");
    assert_eq!(said[7..9], ["released", "holds: 0"]);
    assert_eq!(said[9], said[0]);
}

#[test]
fn more_ranks_than_cores_get_no_order() {
    let Some(said) = lines(&["two", "order", "enter"]) else { return };
    assert!(said[0].starts_with("2 tasks on 1 core (CPUs "), "{said:?}");
    assert_eq!(said[1], "empty");
    assert!(said[2].starts_with("not entered: this is no order"), "{said:?}");
}

#[test]
fn cores_are_shared_with_holders_of_the_same_launcher_alone() {
    let Some(said) = lines(&["one", "one", "friends", "list"]) else { return };
    assert!(said[1].starts_with("error 1: "), "{said:?}");
    assert_eq!(said[2], format!("{}, shared with other steps", said[0]));
    assert_eq!(said[3], "holds: 1");
}

#[test]
fn invalid_arguments_are_refused() {
    let Some(said) = lines(&["bad", "settings", "list"]) else { return };
    assert_eq!(said, ["bad: 13", "accepted: 1", "holds: 0"]);
}

/// Programs built with today's header keep their meaning: the size of the structure is part of it.
#[test]
fn the_structure_has_the_size_of_its_first_version() {
    assert_eq!(size_of::<trimtab_hold_c::RanksWantedOf>(), 64);
}

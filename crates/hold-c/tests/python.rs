//! The Python module `trimtab` over this library, on a ledger of its own.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;
use std::process::Command;

#[test]
fn the_python_module_passes_its_tests() {
    let usable =
        Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).output();
    if !usable.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED (1): the_python_module_passes_its_tests: no python3 of version 3.9 or later");
        return;
    }
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("python");
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let command_line = Some(built.join("trimtab")).filter(|file| file.is_file());
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("ledger")).unwrap();
    let mut command = Command::new("python3");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRIMTAB_")) {
        command.env_remove(name);
    }
    if let Some(file) = &command_line {
        command.env("TRIMTAB_COMMAND", file);
    }
    let output = command
        .args(["-B", "-W", "error", "-m", "unittest", "-v", "test_cores"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"))
        .env("PYTHONPATH", &python)
        .env("TRIMTAB_LIBRARY", built.join("libtrimtab_hold_c.so"))
        .env("TRIMTAB_LEDGER", folder.path().join("ledger"))
        .env("TRIMTAB_CONFIG", folder.path().join("config"))
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("Ran 14 tests"), "{said}");
    if command_line.is_none() {
        eprintln!("SKIPPED (1): documents_are_those_of_the_command_line: trimtab is not built");
    }
    assert_eq!(said.contains("skipped"), command_line.is_none(), "{said}");
}

//! Programs in C and C++ that use the libraries as other projects do: by header, shared or static.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the project's top folder, and the folder of the libraries.
fn places() -> (PathBuf, PathBuf) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned();
    // A test lies in `deps`, next to the libraries.
    let libraries = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    (top, libraries)
}

/// Same value as in build.rs and the Makefile.
const SONAME: &str = "libtrimtab_team.so.0";

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn run(compiler: &str, words: &[&str], shared: bool) {
    let (top, libraries) = places();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut build = Command::new(compiler);
    build.args(words).args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    build.arg("-I").arg(top.join("include")).arg(top.join("crates/team-c/tests/team.c"));
    build.args(["-x", "none"]);
    if shared {
        let library = libraries.join("libtrimtab_team_c.so");
        // Programs load the library by the name that installing gives it.
        std::os::unix::fs::symlink(&library, folder.path().join(SONAME)).unwrap();
        build.arg(library);
    } else {
        build.arg(libraries.join("libtrimtab_team_c.a")).args(["-ldl", "-lm"]);
    }
    let built = build.output().unwrap();
    assert!(built.status.success(), "{build:?}: {}", String::from_utf8_lossy(&built.stderr));
    // Checked calls once: the compilers make no difference to them.
    let checks = if shared && compiler == "gcc" { &["off", "on"][..] } else { &["off"] };
    for check in checks {
        let ran = Command::new(&program)
            .env("LD_LIBRARY_PATH", folder.path())
            .env("TRIMTAB_TEAM_CHECK", check)
            .env_remove("TRIMTAB_TEAM")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{compiler}, check {check}: {:?} {said}", ran.status);
    }
}

#[test]
fn programs_in_c_and_cplusplus() {
    let mut any = false;
    for (compiler, words) in [
        ("gcc", &["-std=c11", "-D_GNU_SOURCE"][..]),
        ("clang", &["-std=c11", "-D_GNU_SOURCE"]),
        ("g++", &["-std=c++17", "-x", "c++"]),
        ("clang++", &["-std=c++17", "-x", "c++", "-Wno-missing-field-initializers"]),
    ] {
        if !has(compiler) {
            eprintln!("SKIPPED (1): programs_in_c_and_cplusplus: no {compiler}");
            continue;
        }
        any = true;
        run(compiler, words, true);
        run(compiler, words, false);
    }
    assert!(any, "no compiler at all");
}

#[test]
fn programs_need_a_version_of_the_library_that_installing_provides() {
    let (top, libraries) = places();
    let library = libraries.join("libtrimtab_team_c.so");
    let output = Command::new("readelf").arg("-d").arg(library).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("soname: [{SONAME}]")), "{text}");
    let installer = std::fs::read_to_string(top.join("scripts/install")).unwrap();
    let version = SONAME.rsplit('.').next().unwrap();
    assert!(installer.contains(&format!("\nsoversion={version}\n")));
}

/// The header declares exactly the entries that the library has.
#[test]
fn the_header_says_all_that_there_is() {
    let (top, libraries) = places();
    let header = std::fs::read_to_string(top.join("include/trimtab/team.h")).unwrap();
    let declared: Vec<String> = header
        .lines()
        .filter(|line| line.starts_with("int trimtab_") || line.starts_with("const char *trimtab_"))
        .map(|line| {
            let from = line.find("trimtab_").unwrap();
            line[from..line.find('(').unwrap()].to_owned()
        })
        .collect();
    assert!(declared.len() > 25, "{declared:?}");
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(libraries.join("libtrimtab_team_c.so"))
        .output()
        .unwrap();
    let mut exported: Vec<String> = String::from_utf8(symbols.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split(" T ").nth(1))
        .map(str::to_owned)
        .collect();
    let mut declared = declared;
    declared.sort();
    exported.sort();
    assert_eq!(exported, declared);
}

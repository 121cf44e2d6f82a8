//! Programs that cannot carry the library, or have no use for it, are started without it, in every
//! way, and as if it had never been there.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod common;

use common::{HostProgram, HostRun, pinned, skip};
use std::path::Path;
use std::process::Command;

/// Builds a program for other programs to start.
fn tells(compiler: &str, flags: &[&str]) -> Option<HostProgram> {
    HostProgram::built(compiler, "tells.c", flags)
}

/// Flag for a program that the library is of use for.
const BUSY: &str = "-DBUSY";

/// Starts `path` in every way and checks its output.
#[track_caller]
fn starts(run: HostRun, path: &Path, says: &str) {
    let Some(starter) = HostProgram::c("starts.c") else { return };
    let folder = path.parent().unwrap().to_str().unwrap();
    let run = run
        .env("MARK", "it")
        .env("PATH", &format!("/none:{folder}:/usr/bin:/bin"))
        .arg(path.to_str().unwrap())
        .arg(path.file_name().unwrap().to_str().unwrap())
        .arg(says);
    if let Some(outcome) = run.run(&starter) {
        assert_eq!(outcome.text(), "faults 0", "{}", path.display());
    }
}

#[track_caller]
fn goes_without(program: Option<HostProgram>) {
    let Some(program) = program else { return };
    starts(pinned("A/B"), &program.path, "mark it library none");
}

#[test]
fn a_program_that_can_carry_the_library_keeps_it() {
    if let Some(program) = tells("cc", &[BUSY]) {
        starts(pinned("A/B"), &program.path, "mark it library ours");
    }
}

#[test]
fn a_program_that_starts_nothing_is_started_without_the_library() {
    goes_without(tells("cc", &[]));
}

#[test]
fn a_program_of_musl_is_started_without_the_library() {
    goes_without(tells("musl-gcc", &[]));
}

#[test]
fn a_program_of_another_word_size_is_started_without_the_library() {
    goes_without(tells("gcc", &["-m32"]));
}

#[test]
fn a_static_program_is_started_without_the_library_which_it_could_not_take_out_for_others() {
    goes_without(tells("cc", &["-static"]));
    goes_without(tells("cc", &["-static-pie"]));
}

#[test]
fn a_program_with_an_address_sanitizer_is_started_without_the_library() {
    goes_without(tells("gcc", &["-fsanitize=address"]));
    let Ok(folder) = Command::new("clang").arg("-print-runtime-dir").output() else {
        return skip("clang is not installed");
    };
    let path = format!("-Wl,-rpath,{}", String::from_utf8_lossy(&folder.stdout).trim());
    goes_without(tells("clang", &["-fsanitize=address", "-shared-libsan", &path]));
}

#[test]
fn the_interpreter_of_a_script_is_examined() {
    for (compiler, flags, says) in [
        ("musl-gcc", &[][..], "library none"),
        ("gcc", &["-m32"], "library none"),
        ("cc", &[], "library none"),
        ("cc", &[BUSY], "library ours"),
    ] {
        let Some(program) = tells(compiler, flags) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let outer = folder.path().join("outer");
        // An interpreter's arguments are the rest of the line, the script and the script's.
        std::fs::write(&script, format!("#! {} x\n", program.path.display())).unwrap();
        std::fs::write(&outer, format!("#!{}\n", script.display())).unwrap();
        for path in [&script, &outer] {
            assert!(Command::new("chmod").arg("+x").arg(path).status().unwrap().success());
        }
        let Some(starter) = HostProgram::c("spawner.c") else { return };
        for (path, words) in [
            (&script, format!("x {}", script.display())),
            (&outer, format!("x {} {}", script.display(), outer.display())),
        ] {
            let run = pinned("A/B").env("MARK", "it").arg(path.to_str().unwrap()).arg("a");
            if let Some(outcome) = run.run(&starter) {
                assert_eq!(outcome.text(), format!("{words} a mark it {says}\nstatus 7"), "{compiler}");
            }
        }
    }
}

#[test]
fn a_large_environment_is_no_hindrance() {
    let Some(program) = tells("cc", &["-static"]) else { return };
    starts(pinned("A/B").env("VARIABLES", "3000"), &program.path, "mark it library none");
}

#[test]
fn other_preloaded_libraries_stay() {
    let (Some(program), Some(other)) = (tells("cc", &["-static"]), HostProgram::c_library("plugin.c")) else {
        return;
    };
    let other = other.path.clone();
    let says = format!("mark it library {}", other.display());
    starts(pinned("A/B").preload(&other), &program.path, &says);
}

#[test]
fn a_program_in_another_root_is_started_without_the_library() {
    let Ok(id) = Command::new("id").arg("-u").output() else { return };
    if id.stdout != b"0\n" {
        return skip("to change the root takes root");
    }
    let Some(program) = tells("cc", &[]) else { return };
    let root = tempfile::tempdir().unwrap();
    let Ok(libraries) = Command::new("ldd").args(["/bin/sh".as_ref(), program.path.as_path()]).output()
    else {
        return skip("ldd is not installed");
    };
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    for path in paths.chain(["/bin/sh"]) {
        let inside = root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
        std::fs::copy(path, &inside).unwrap();
    }
    std::fs::copy(&program.path, root.path().join("tells")).unwrap();
    let run = pinned("A/B").env("ROOT", root.path().to_str().unwrap());
    let run = run.env("MARK", "it").env("PATH", "/none:/:/bin").arg("/tells").arg("tells");
    let Some(starter) = HostProgram::c("starts.c") else { return };
    if let Some(outcome) = run.arg("mark it library none").run(&starter) {
        assert_eq!(outcome.text(), "faults 0");
    }
}

/// Returns a program of musl that carries the library all the same, as below a static shell.
fn in_musl(source: &str) -> Option<HostProgram> {
    HostProgram::built("musl-gcc", source, &["-O1", "-pthread"])
}

#[test]
fn a_program_of_musl_that_carries_the_library_runs_as_without() {
    if let Some(outcome) = in_musl("born.c").and_then(|program| pinned("B/A").arg("4").run(&program)) {
        assert_eq!(outcome.text(), "AB: AB AB AB AB");
    }
    for source in ["spawns.c", "counts.c", "ends.c"] {
        let Some(program) = in_musl(source) else { continue };
        let Some(native) = HostRun::native().run(&program) else { continue };
        for run in [pinned("B/A"), HostRun::guest().plan("mask=A slots=A pin=born"), HostRun::guest()] {
            assert_eq!(run.run(&program), Some(native.clone()), "{source}");
        }
    }
    if let Some(program) = tells("cc", &[BUSY])
        && let Some(starter) = in_musl("spawner.c")
    {
        let run = pinned("A/B").env("MARK", "it").arg(program.path.to_str().unwrap());
        if let Some(outcome) = run.run(&starter) {
            assert_eq!(outcome.text(), "mark it library ours\nstatus 7");
        }
    }
}

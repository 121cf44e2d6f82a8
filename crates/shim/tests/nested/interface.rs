//! Tests of `omp_set_nesting_info`: the header, the Fortran module, and the effect of calls.

use crate::common::{HostRun, skip};
use crate::runtimes::{CROSSED, Map, NOWHERE, PLAN, Runtime, checks, include, on, on_all};
use std::process::Command;

const FILES: [&str; 2] = ["info_other.c", "info.c"];

#[test]
fn the_header_suits_every_standard() {
    let source = format!("{}/tests/nested/info_other.c", env!("CARGO_MANIFEST_DIR"));
    let include = format!("-I{}", include().display());
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wmissing-declarations", "-Werror"];
    for (compiler, language, standards) in [
        ("gcc", "c", &["c89", "gnu89", "c99", "c11", "gnu17"][..]),
        ("clang", "c", &["c89", "gnu89", "c99", "c11", "gnu17"]),
        ("g++", "c++", &["c++98", "c++11", "c++17", "gnu++20"]),
        ("clang++", "c++", &["c++98", "c++11", "c++17", "gnu++20"]),
    ] {
        for standard in standards {
            let mut command = Command::new(compiler);
            command
                .args(["-x", language, &format!("-std={standard}"), "-fsyntax-only", &include])
                .args(warnings);
            match command.arg(&source).output() {
                Err(error) => skip(&format!("{compiler}: {error}")),
                Ok(output) => {
                    assert!(
                        output.status.success(),
                        "{compiler} {standard}: {}",
                        String::from_utf8_lossy(&output.stderr)
                    );
                }
            }
        }
    }
}

#[test]
fn the_module_suits_the_standard() {
    let source = include().join("trimtab/nesting.f90");
    let flags = ["-std=f2003", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    let folder = tempfile::tempdir().unwrap();
    match Command::new("gfortran").current_dir(folder.path()).args(flags).arg(source).output() {
        Err(error) => skip(&format!("gfortran: {error}")),
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn without_the_library_no_call_is_answered() {
    on_all(&FILES, 500, || [NOWHERE.expected(HostRun::native()).arg("-1")]);
}

#[test]
fn cxx_calls_it_from_several_files() {
    for runtime in [Runtime::gnu(), Runtime::llvm()] {
        let Some(program) = runtime.build_with(runtime.language[1], &["info_other.c"], &["-shared", "-fPIC"])
        else {
            continue;
        };
        // A C program that gets the other file from a C++ library: both have the weak definition.
        let Some(program_c) = runtime.build(&["info.c"], &[program.path.to_str().unwrap()]) else { continue };
        checks(runtime.name, CROSSED.run().arg("0"), &program_c);
        checks(runtime.name, NOWHERE.expected(HostRun::native()).arg("-1"), &program_c);
    }
}

#[test]
fn a_call_changes_the_map_of_later_regions() {
    on_all(&FILES, 1000, || [CROSSED.run().arg("0")]);
}

#[test]
fn a_call_may_give_the_first_map() {
    on_all(&FILES, 1000, || [Map { nest: "", ..CROSSED }.run().arg("0").arg("late")]);
}

#[test]
fn without_a_tree_there_is_no_map() {
    on_all(&FILES, 500, || {
        [HostRun::guest().plan(PLAN), HostRun::guest()].map(|run| NOWHERE.expected(run).arg("2"))
    });
}

#[test]
fn in_another_process_than_the_planned_one_there_is_no_map() {
    let told = "1 tree=[B,A] roots=alone report=no nest=2,scatter,2,scatter";
    let run = || NOWHERE.expected(HostRun::guest().text("1 pid=1 mask=A,B slots=B/A pin=float").nest(told));
    on_all(&FILES, 500, || [run().arg("2")]);
    on_all(&["constructs.c"], 1000, || [run()]);
}

#[test]
fn an_unreadable_plan_does_no_harm() {
    const TEXTS: [&str; 8] = [
        "",
        "2 tree=[B,A] roots=alone report=no nest=2,scatter",
        "1 tree=[B,A roots=alone report=no nest=2,scatter",
        "1 tree= roots=alone report=no nest=2,scatter",
        "1 tree=[B,A] roots=none report=no nest=2,scatter",
        "1 tree=[B,A] roots=alone report=no nest=0,scatter",
        "1 tree=[B,A]",
        "nonsense",
    ];
    on(&[Runtime::gnu(), Runtime::llvm()], &["deep.c"], 100, || {
        TEXTS.map(|told| NOWHERE.expected(HostRun::guest().plan(PLAN).nest(told)))
    });
}

#[test]
fn fortran_may_call_it_without_the_module() {
    let gnu = Runtime::gnu();
    let Some(stub) = gnu.build(&["fortran_stub.c"], &["-shared", "-fPIC"]) else { return };
    let Some(program) = gnu.build(&["fortran_implicit.f90"], &[stub.path.to_str().unwrap()]) else { return };
    if let Some(outcome) = HostRun::native().run(&program) {
        assert_eq!(outcome.text(), "-5 -5 -5");
    }
    if let Some(outcome) = CROSSED.run().run(&program) {
        assert_eq!(outcome.text(), "0 0 1");
    }
}

#[test]
fn a_report_is_written_to_its_requested_path() {
    let Some(program) = Runtime::gnu().program(&["deep.c"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report");
    let told = format!("1 tree=[B,A] roots=alone report={} nest=2,scatter,2,scatter", path.display());
    if checks("libgomp", CROSSED.run().nest(&told), &program).is_some() {
        assert!(!std::fs::read_to_string(&path).unwrap().is_empty());
    }
    let told = "1 tree=[B,A] roots=alone report=stderr nest=2,scatter,2,scatter";
    if let Some(outcome) = CROSSED.run().nest(told).run(&program) {
        assert!(outcome.stdout.ends_with(" wrong 0") && !outcome.stderr.is_empty(), "{outcome:?}");
    }
}

#[test]
fn make_install_copies_the_header() {
    let installer = std::fs::read_to_string(include().join("../scripts/install")).unwrap();
    let list = installer.lines().find_map(|line| line.trim().strip_prefix("for header in ")).unwrap();
    let headers: Vec<&str> = list.trim_end_matches("; do").split(' ').collect();
    for entry in std::fs::read_dir(include().join("trimtab")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(headers.contains(&name.as_str()), "make install leaves {name} out: {headers:?}");
    }
}

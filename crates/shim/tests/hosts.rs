//! Programs, languages and libraries of every kind run unharmed, and on their CPUs.

mod common;

use common::{HostProgram, HostRun, Outcome, pinned, two_cpus};
use std::path::Path;

fn odd(what: &str, masks: &str) {
    let Some(program) = HostProgram::c("odd.c") else { return };
    if let Some(outcome) = pinned("B/A").arg(what).run(&program) {
        assert_eq!(outcome.text(), masks, "{what}");
    }
}

#[test]
fn a_program_may_close_every_descriptor() {
    odd("descriptors", "AB: A B");
}

#[test]
fn a_program_may_overwrite_its_environment() {
    odd("environment", "AB: A B");
}

#[test]
fn a_program_without_a_key_to_spare_is_not_pinned() {
    odd("keys", "AB: AB AB");
}

#[test]
fn signals_amid_many_thread_starts_do_no_harm() {
    odd("signals", "AB: A B");
}

#[test]
fn a_creator_may_have_the_least_stack() {
    odd("stack", "AB: A B");
}

#[test]
fn threads_made_inside_the_c_library_do_no_harm() {
    odd("c11", "AB: A B");
    odd("timer", "AB: A B");
}

#[test]
fn a_library_may_start_threads_while_it_is_opened() {
    let (Some(program), Some(plugin)) = (HostProgram::c("plugs.c"), HostProgram::c_library("plugin.c"))
    else {
        return;
    };
    for (way, lines) in [("plain", ["A B", "A B", "A B", "A"]), ("deep", ["AB AB", "AB AB", "AB AB", "A"])] {
        let run = pinned("B/A").arg(plugin.path.to_str().unwrap()).arg(way);
        if let Some(outcome) = run.run(&program) {
            assert_eq!(outcome.text().lines().collect::<Vec<_>>(), lines, "{way}");
        }
    }
}

#[test]
fn a_library_may_start_threads_before_the_guest_is_set_up() {
    let Some(plugin) = HostProgram::c_library("plugin.c") else { return };
    let flags = ["-pthread", "-Wl,--no-as-needed", plugin.path.to_str().unwrap()];
    let Some(program) = HostProgram::built("cc", "born.c", &flags) else { return };
    if let Some(outcome) = pinned("B/A").arg("3").run(&program) {
        assert_eq!(outcome.text(), "AB: A B AB");
    }
}

#[test]
fn an_allocator_may_ask_while_it_starts_and_create_threads() {
    let Some(allocator) = HostProgram::c_library("allocator.c") else { return };
    let flags = ["-pthread", allocator.path.to_str().unwrap()];
    let Some(program) = HostProgram::built("cc", "allocates.c", &flags) else { return };
    if let Some(outcome) = HostRun::guest().plan("mask=A slots=A pin=born").run(&program) {
        let text = outcome.text();
        let [start, threads] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(start.starts_with("at start: cpus 1 page "), "{start}");
        assert_eq!(threads, "threads: A A");
    }
}

#[test]
fn allocators_that_are_preloaded_get_on_with_it() {
    let Some(program) = HostProgram::c("churn.c") else { return };
    for name in ["libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"] {
        let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
        let Some(path) =
            places.map(|place| Path::new(place).join(name)).into_iter().find(|path| path.exists())
        else {
            common::skip(&format!("{name} is not installed"));
            continue;
        };
        if let Some(outcome) = pinned("A/B").preload(&path).arg("B").run(&program) {
            assert_eq!(outcome.text(), "then: B A AB", "{name}");
        }
    }
}

#[test]
fn an_allocators_own_thread_takes_no_slot() {
    let Some(program) = HostProgram::c("born.c") else { return };
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = places.map(|place| Path::new(place).join("libjemalloc.so.2"));
    let Some(path) = found.into_iter().find(|path| path.exists()) else {
        return common::skip("libjemalloc.so.2 is not installed");
    };
    let run = HostRun::native().preload(&path).preload(&common::library());
    let run = run.plan("mask=A,B slots=A/B pin=born").env("MALLOC_CONF", "background_thread:true").arg("2");
    if let Some(outcome) = run.run(&program) {
        assert_eq!(outcome.text(), "AB: B A");
    }
}

#[test]
fn a_static_program_is_out_of_reach() {
    let Some(program) = HostProgram::built("cc", "born.c", &["-static", "-pthread"]) else { return };
    if let Some(outcome) = pinned("B/A").arg("2").arg("A").run(&program) {
        assert_eq!(outcome.text(), "A: A A");
    }
}

#[test]
fn cxx_threads_throw_and_catch() {
    let Some(program) = HostProgram::built("c++", "cxx.cpp", &["-O1", "-pthread"]) else { return };
    if let Some(outcome) = pinned("B/A").run(&program) {
        assert_eq!(outcome.text(), "A B cpus 2");
    }
    if let Some(outcome) = HostRun::guest().plan("mask=A slots=A pin=born").run(&program) {
        assert_eq!(outcome.text(), "A A cpus 1");
    }
}

#[test]
fn rust_threads_panic_and_are_joined() {
    let Some(program) = HostProgram::built("rustc", "threads.rs", &["--edition=2024"]) else { return };
    if let Some(outcome) = pinned("B/A").run(&program) {
        assert_eq!(outcome.text(), "A B worker 19900 cpus 2 2");
    }
}

fn python(run: HostRun, script: &str) -> Option<Outcome> {
    let script = format!("{}/tests/c/{script}", env!("CARGO_MANIFEST_DIR"));
    run.arg(script).run(&HostProgram::installed("python3")?)
}

#[test]
fn python_threads_are_pinned_and_read_the_count() {
    if let Some(outcome) = python(pinned("B/A"), "threads.py") {
        assert_eq!(outcome.text(), "AB A B AB cpus 2 child 2 told 2 2 2");
    }
    if let Some(outcome) = python(HostRun::guest().plan("mask=A slots=A pin=born"), "threads.py") {
        assert_eq!(outcome.text(), "AB A A A cpus 1 child 1 told 1 1 1");
    }
}

#[test]
fn a_blas_computes() {
    let Some(native) = python(HostRun::native(), "blas.py") else { return };
    if native.code != Some(0) {
        return common::skip("numpy is not installed");
    }
    if let Some(outcome) = python(pinned("B/A"), "blas.py") {
        assert_eq!(outcome.text(), native.stdout);
    }
}

fn openmp(compiler: &str) -> Option<(HostProgram, [u32; 2])> {
    Some((HostProgram::built(compiler, "openmp.c", &["-O1", "-fopenmp"])?, two_cpus()?))
}

#[test]
fn openmp_threads_are_bound_by_their_runtime_and_take_no_slot() {
    for compiler in ["gcc", "clang"] {
        let Some((program, [a, b])) = openmp(compiler) else { continue };
        for (slots, places, line) in [
            ("B/A", format!("{{{b}}},{{{a}}}"), "team: B A initial: B own: A B"),
            ("A/B", format!("{{{a}}},{{{b}}}"), "team: A B initial: A own: B A"),
        ] {
            let run = pinned(slots).env("OMP_PROC_BIND", "true").env("OMP_PLACES", &places);
            if let Some(outcome) = run.run(&program) {
                assert_eq!(outcome.text(), line, "{compiler}");
            }
        }
    }
}

#[test]
fn openmp_threads_without_a_binding_float() {
    for compiler in ["gcc", "clang"] {
        let Some((program, _)) = openmp(compiler) else { continue };
        if let Some(outcome) = pinned("B/A").env("OMP_PROC_BIND", "false").run(&program) {
            assert_eq!(outcome.text(), "team: AB AB initial: AB own: A B", "{compiler}");
        }
    }
    let Some((program, _)) = openmp("gcc") else { return };
    if let Some(outcome) = pinned("B/A").env("OMP_PROC_BIND", "false").arg("A").run(&program) {
        assert_eq!(
            outcome.text(),
            "team: A AB initial: A own: A B",
            "a worker is not stacked on its creator"
        );
    }
}

#[test]
fn a_race_detector_finds_nothing() {
    for compiler in ["clang", "gcc"] {
        let flags = ["-O1", "-g", "-pthread", "-fsanitize=thread"];
        let Some(program) = HostProgram::built(compiler, "churn.c", &flags) else { continue };
        if HostRun::native().arg("AB").run(&program).is_none_or(|outcome| outcome.code != Some(0)) {
            common::skip("a program under ThreadSanitizer does not run here");
        } else if let Some(outcome) = pinned("A/B").arg("B").run(&program) {
            // clang's detector has a thread of its own, which is created first and leaves the slots
            // to the program.
            assert_eq!(outcome.text(), "then: B A AB", "{compiler}");
        }
    }
}

//! Placement of threads: OpenMP's on their places, other threads created on slots, the rest inside
//! the mask.

use crate::util::{Sandbox, built, c, chmod, cpus, need, skip, two, two_users};
use std::collections::BTreeSet;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

/// Returns the slots of a plan for all of two CPUs, in thread order.
fn slots(sandbox: &Sandbox) -> [String; 2] {
    let plan = sandbox.plan("-c 2");
    let slots = plan["plan"]["slots"].as_array().unwrap().iter().map(|slot| slot["cpu"].to_string());
    slots.collect::<Vec<_>>().try_into().unwrap()
}

fn line<'a>(said: &'a str, name: &str) -> &'a str {
    said.lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")))
        .unwrap_or_else(|| panic!("{name}: {said}"))
}

fn openmp(compiler: &str) -> Option<PathBuf> {
    let program = built(compiler, "openmp.c", &["-O1", "-fopenmp"]);
    if program.is_none() {
        skip(&format!("no {compiler} with OpenMP"));
    }
    program
}

#[test]
fn every_openmp_thread_is_on_its_slot() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let slots = slots(&sandbox);
    for compiler in ["gcc", "clang"] {
        let Some(program) = openmp(compiler) else { continue };
        let said = sandbox.run("-c 2").arg(&program).ends().ok();
        let mut threads: Vec<&str> = said.lines().filter(|line| line.starts_with("thread")).collect();
        threads.sort_unstable();
        let wanted = |number: usize| format!("thread {number} mask {0} cpu {0}", slots[number]);
        let wanted = [wanted(0), wanted(0), wanted(1), wanted(1)];
        assert_eq!(threads, wanted, "{compiler}: {said}");
        assert_eq!(line(&said, "procs"), "2", "{compiler}: {said}");
    }
}

#[test]
fn openmp_threads_follow_the_order_of_slots() {
    let [a, b] = need!(two(), "two cores are needed");
    let program = need!(openmp("gcc"), "see above");
    let sandbox = Sandbox::new();
    // One core only: the other is held. Thread 0 is where the plan says, not on the machine's first
    // CPU.
    let _held = sandbox.hold(&format!("--cpus {a}"));
    let said = sandbox.run("-c 1").arg(&program).ends().ok();
    let threads: Vec<&str> = said.lines().filter(|line| line.starts_with("thread")).collect();
    assert_eq!(threads, [format!("thread 0 mask {b} cpu {b}").as_str(); 2], "{said}");
}

#[test]
fn other_threads_are_created_on_slots_and_the_initial_one_floats() {
    let all = BTreeSet::from(need!(two(), "two cores are needed"));
    let program = need!(c("pthreads.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let slots = slots(&sandbox);
    let said = sandbox.run("-c 2").arg(&program).ends().ok();
    let lines: Vec<&str> = said.lines().collect();
    // The initial thread ends up on slot 0, so that slot is given out last.
    for (line, slot) in lines.iter().zip([&slots[1], &slots[0]]) {
        assert_eq!(*line, format!("mask {slot} cpu {slot}"), "{said}");
    }
    let third = lines[2].strip_prefix("mask ").unwrap().split(' ').next().unwrap();
    assert_eq!(cpus(third), all, "more threads than slots float: {said}");
    assert_eq!(cpus(line(&said, "main")), all, "{said}");
    // Left free on request.
    let said = sandbox.run("-c 2 --pin mask").arg(&program).ends().ok();
    for line in said.lines().take(3) {
        assert_eq!(cpus(line.split(' ').nth(1).unwrap()), all, "{said}");
    }
}

/// Returns the outcome of a program with a team and its own thread, and the mask of that thread.
/// Its first lines are the counts.
fn mixed(sandbox: &Sandbox, compiler: &str) -> Option<(crate::util::Outcome, BTreeSet<u32>)> {
    let program = built(compiler, "mixed.c", &["-O1", "-pthread", "-fopenmp"])?;
    let outcome = sandbox.run("-c 2").arg(&program).ends();
    let said = outcome.out();
    assert_eq!([line(&said, "team"), line(&said, "online"), line(&said, "nprocs")], ["2"; 3], "{outcome}");
    let thread = cpus(line(&said, "thread"));
    Some((outcome, thread))
}

#[test]
fn the_threads_of_an_openmp_program_that_are_its_own_have_the_whole_mask() {
    let all = BTreeSet::from(need!(two(), "two cores are needed"));
    let sandbox = Sandbox::new();
    for compiler in ["gcc", "clang"] {
        let (outcome, thread) = need!(mixed(&sandbox, compiler), "no {compiler} with OpenMP");
        assert_eq!(thread, all, "{outcome}");
    }
}

#[test]
fn libraries_count_the_cpus_of_the_run_though_the_runtime_has_bound_the_initial_thread() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for compiler in ["gcc", "clang"] {
        let program = need!(built(compiler, "counts.c", &["-O1", "-fopenmp"]), "no {compiler} with OpenMP");
        let said = sandbox.run("-c 2").arg(&program).ends().ok();
        assert_eq!([line(&said, "before"), line(&said, "after")], ["2 2"; 2], "{compiler}: {said}");
        assert_eq!([line(&said, "team"), line(&said, "kernel")], ["2", "1"], "{compiler}: {said}");
        // For a binding of the user's, the answers are the kernel's.
        let own = sandbox.run("-c 2").arg(&program).env("OMP_PLACES", "cores").ends().ok();
        let plain = sandbox.run("-c 2 --env keep").arg(&program).env("OMP_PLACES", "cores").ends().ok();
        assert_eq!(line(&own, "after"), line(&plain, "after"), "{compiler}: {own}");
    }
}

#[test]
fn a_process_forked_by_an_openmp_program_has_the_whole_mask() {
    let all = BTreeSet::from(need!(two(), "two cores are needed"));
    let sandbox = Sandbox::new();
    let (outcome, _) = need!(mixed(&sandbox, "gcc"), "no gcc with OpenMP");
    let said = outcome.ok();
    assert_eq!(cpus(line(&said, "forked")), all, "{said}");
    assert_eq!(line(&said, "forked-nproc"), "2", "{said}");
}

#[test]
fn a_program_with_llvms_openmp_may_fork() {
    let all = BTreeSet::from(need!(two(), "two cores are needed"));
    let sandbox = Sandbox::new();
    let (outcome, _) = need!(mixed(&sandbox, "clang"), "no clang with OpenMP");
    let said = outcome.ok();
    assert_eq!(cpus(line(&said, "forked")), all, "{said}");
    assert_eq!(line(&said, "forked-nproc"), "2", "{said}");
}

#[test]
fn programs_that_an_openmp_program_spawns_have_the_whole_mask() {
    let all = BTreeSet::from(need!(two(), "two cores are needed"));
    let program = need!(built("gcc", "mixed.c", &["-O1", "-pthread", "-fopenmp"]), "no gcc with OpenMP");
    let sandbox = Sandbox::new();
    for pin in ["auto", "mask"] {
        let said = sandbox.run(&format!("-c 2 --pin {pin}")).arg(&program).ends().ok();
        assert_eq!(cpus(line(&said, "spawned")), all, "--pin {pin}: {said}");
    }
}

#[test]
fn a_static_programs_threads_float_inside_the_mask() {
    let all = BTreeSet::from(need!(two(), "two cores are needed"));
    let program = need!(built("cc", "pthreads.c", &["-O1", "-pthread", "-static"]), "no static C library");
    let sandbox = Sandbox::new();
    let said = sandbox.run("-c 2").arg(&program).ends().ok();
    for line in said.lines().take(3) {
        assert_eq!(cpus(line.split(' ').nth(1).unwrap()), all, "{said}");
    }
    let said = sandbox.run("-c 2 -v").arg(&program).ends().stderr;
    assert!(said.contains("statically linked"), "{said}");
}

#[test]
fn a_program_with_the_set_user_id_bit_runs_inside_the_mask() {
    let [a, _] = need!(two(), "two cores are needed");
    let [user, owner] = need!(two_users(), "to make such a program for another user a test needs root");
    let program = need!(c("seen.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let raised = sandbox.path("raised");
    assert!(Command::new("cp").arg(&program).arg(&raised).status().unwrap().success());
    chown(&raised, Some(owner), Some(owner)).unwrap();
    chmod(&raised, 0o4755);
    let said = sandbox.run(&format!("--cpus {a}")).arg(&raised).user(user).ends();
    if said.out().contains(&format!("uid {user} euid {user}")) {
        return skip("the set-user-id bit means nothing on the file system of temporary files");
    }
    let said = said.ok();
    assert_eq!(line(&said, "mask"), a.to_string());
    assert!(said.contains(&format!("uid {user} euid {owner}")), "{said}");
    let said = sandbox.run("-c 1 -v").arg(&raised).user(user).ends().stderr;
    assert!(said.contains("more privilege"), "{said}");
}

#[test]
fn the_c_library_reports_the_cpus_of_the_mask() {
    need!(two(), "two cores are needed");
    let program = need!(c("seen.c"), "no C compiler");
    let sandbox = Sandbox::new();
    for cores in ["1", "2"] {
        let said = sandbox.run(&format!("-c {cores}")).arg(&program).ends().ok();
        assert_eq!([line(&said, "online"), line(&said, "nprocs")], [cores; 2], "{said}");
        // Also in programs that the program starts.
        let call = sandbox.run(&format!("-c {cores}")).args(["env", "sh", "-c", "getconf _NPROCESSORS_ONLN"]);
        assert_eq!(call.ends().ok(), cores);
    }
    // A shell that trimtab execs has only the mask, and its children get the same answers as under
    // `taskset`.
    let script = "getconf _NPROCESSORS_ONLN";
    let plain = Command::new("sh").args(["-c", script]).output().unwrap();
    let said = sandbox.run("-c 1").sh(script).ends().ok();
    assert_eq!(said, String::from_utf8_lossy(&plain.stdout).trim());
}

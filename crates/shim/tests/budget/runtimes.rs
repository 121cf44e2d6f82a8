//! Teams of LLVM's and Intel's runtime, and of libraries that rely on their number.

use super::common::{HostProgram, intel_runtime, library, llvm_runtime, skip};
use super::hold::{Hold, finish};
use std::path::{Path, PathBuf};
use trimtab_core::budget::Rule;

const LLVM_FLAGS: [&str; 2] = ["-O1", "-fopenmp"];

/// Runs a program with this runtime in place of the one that it is linked to.
fn run_with(hold: &Hold, program: &HostProgram, runtime: Option<&Path>, steps: &str) -> String {
    let mut command = hold.command(program, steps);
    if let Some(runtime) = runtime {
        command.env("LD_PRELOAD", format!("{}:{}", library().display(), runtime.display()));
    }
    finish(command.spawn().unwrap())
}

/// Returns the runtimes for programs of Clang: its own, and Intel's if it is here.
fn runtimes() -> Vec<Option<PathBuf>> {
    let mut all = vec![None];
    match intel_runtime() {
        Some(path) => all.push(Some(path)),
        None => skip("Intel's libiomp5.so is not here (scripts/wheels fetches it)"),
    }
    all
}

#[test]
fn teams_of_clang_get_their_requested_threads_within_the_cores() {
    let Some(program) = HostProgram::built("clang", "budget.c", &LLVM_FLAGS) else { return };
    for runtime in runtimes() {
        for (cores, rule, steps, sizes) in [
            (4, Rule::Unnumbered, "flat 8 2 serial flat", "4 8 2 1 4"),
            (4, Rule::All, "flat 8 2 serial flat", "4 4 2 1 4"),
            (16, Rule::All, "flat 20 flat", "8 16 8"),
            (1, Rule::All, "flat 8 nest", "1 1 1:1"),
            (4, Rule::All, "nest flat", "4:1,1,1,1 4"),
            (8, Rule::Unnumbered, "nest flat", "8:1,1,1,1,1,1,1,1 8"),
            (3, Rule::All, "args flat args", "66 3 66"),
            // A number for a region that an `if` clause makes serial is used up.
            (4, Rule::Unnumbered, "unused flat", "1 4"),
        ] {
            let text = run_with(&Hold::of(cores, rule), &program, runtime.as_deref(), steps);
            assert_eq!(text, sizes, "{runtime:?} {rule:?} {steps}");
        }
    }
}

#[test]
fn teams_of_clang_count_for_other_processes_and_end() {
    let Some(program) = HostProgram::built("clang", "budget.c", &LLVM_FLAGS) else { return };
    let hold = Hold::of(4, Rule::All);
    let (held, size) = hold.start(&program, "hold flat nest flat");
    assert_eq!(size, "4", "alone");
    assert_eq!(hold.run(&program, "flat"), "2");
    assert_eq!(hold.content().members.iter().filter(|member| member.state.computing == 4).count(), 1);
    finish(held);
    let sums = hold.content().sums();
    // One that is held, two alone, one of the other process; a team of teams with four inner ones.
    assert_eq!(sums.teams, 9);
    assert!(hold.content().members.iter().all(|member| member.state.computing == 0));
    assert_eq!(hold.run(&program, "forkin 3"), "3");
    assert_eq!(hold.run(&program, "flat exec flat exec 8"), "4 4 4");
}

#[test]
fn programs_without_a_budget_keep_their_numbers_and_arguments() {
    let Some(program) = HostProgram::built("clang", "budget.c", &LLVM_FLAGS) else { return };
    for runtime in runtimes() {
        let hold = Hold::of(2, Rule::All);
        let mut command = hold.command(&program, "flat 8 args nest unused");
        command.env_remove(trimtab_core::budget::VARIABLE);
        if let Some(runtime) = &runtime {
            command.env("LD_PRELOAD", format!("{}:{}", library().display(), runtime.display()));
        }
        let inner = ["8"; 8].join(",");
        assert_eq!(finish(command.spawn().unwrap()), format!("8 8 66 8:{inner} 1"), "{runtime:?}");
        assert_eq!(hold.content().programs, 0);
    }
}

#[test]
fn leagues_count_when_their_teams_start() {
    let Some(program) = HostProgram::built("clang", "league.c", &LLVM_FLAGS) else { return };
    for runtime in runtimes() {
        let hold = Hold::of(3, Rule::All);
        let text = run_with(&hold, &program, runtime.as_deref(), "");
        // Every iteration is computed once, by at most as many threads as there are cores.
        let (sum, most) = text.split_once(' ').unwrap();
        assert_eq!(sum, "499500");
        assert!((1..=3).contains(&most.parse::<u32>().unwrap()), "{text}");
        assert!(hold.content().members.iter().all(|member| member.state.computing == 0));
    }
}

/// Returns the runtime that has to stay loaded.
fn kept(compiler: &str) -> &'static str {
    if compiler == "gcc" { "libgomp.so.1" } else { "libm.so.6" }
}

#[test]
fn libraries_that_are_opened_and_closed_get_their_teams_bounded() {
    let Some(program) = HostProgram::built("gcc", "plugged.c", &["-O1", "-ldl"]) else { return };
    for compiler in ["gcc", "clang"] {
        let flags = ["-O1", "-fopenmp", "-shared", "-fPIC"];
        let Some(plugin) = HostProgram::built(compiler, "teamlib.c", &flags) else { continue };
        let steps = format!("{} {}", plugin.path.display(), kept(compiler));
        assert_eq!(Hold::of(3, Rule::Unnumbered).run(&program, &steps), "3 3 3", "{compiler}");
    }
}

#[test]
fn libraries_that_rely_on_their_number_keep_it() {
    let Some(program) = HostProgram::built("gcc", "plugged.c", &["-O1", "-ldl"]) else { return };
    for compiler in ["gcc", "clang"] {
        let flags = ["-O1", "-fopenmp", "-shared", "-fPIC"];
        let Some(plugin) = HostProgram::built(compiler, "teamlib.c", &flags) else { continue };
        for (name, sizes) in [
            ("libxgboost.so", "8 8 8"),
            ("libopenblas.so.0", "8 8 8"),
            ("libblis.so.4", "8 8 8"),
            ("libxboost.so", "3 3 3"),
        ] {
            let library = plugin.path.with_file_name(name);
            std::fs::copy(&plugin.path, &library).unwrap();
            let hold = Hold::of(3, Rule::All);
            let steps = format!("{} {}", library.display(), kept(compiler));
            assert_eq!(hold.run(&program, &steps), sizes, "{compiler} {name}");
            assert_eq!(hold.content().sums().teams, 3, "they count");
        }
    }
}

#[test]
fn libraries_that_are_right_with_any_number_get_fewer_threads_than_they_state() {
    let Some(program) = HostProgram::built("gcc", "plugged.c", &["-O1", "-ldl"]) else { return };
    for compiler in ["gcc", "clang"] {
        let flags = ["-O1", "-fopenmp", "-shared", "-fPIC", "-DSTATED=8"];
        let Some(plugin) = HostProgram::built(compiler, "teamlib.c", &flags) else { continue };
        for (folder, rule, sizes) in [
            ("sklearn/ensemble/_hist_gradient_boosting", Rule::Unnumbered, "3 3 3"),
            ("sklearn/cluster", Rule::Unnumbered, "8 8 8"),
            ("sklearn/cluster", Rule::All, "3 3 3"),
            ("sklearn/metrics/_pairwise_distances_reduction", Rule::All, "8 8 8"),
        ] {
            let folder = plugin.path.with_file_name(folder);
            std::fs::create_dir_all(&folder).unwrap();
            let library = folder.join("part.so");
            std::fs::copy(&plugin.path, &library).unwrap();
            let steps = format!("{} {}", library.display(), kept(compiler));
            assert_eq!(Hold::of(3, rule).run(&program, &steps), sizes, "{compiler} {}", folder.display());
        }
    }
}

#[test]
fn libraries_of_llvm_take_the_same_sizes_from_programs_of_gcc() {
    let Some(program) = HostProgram::built("gcc", "budget.c", &["-O1", "-fopenmp"]) else { return };
    let Some(runtime) = llvm_runtime() else { return skip("no libomp is installed") };
    let hold = Hold::of(4, Rule::All);
    assert_eq!(run_with(&hold, &program, Some(&runtime), "flat 8 2 nest args"), "4 4 2 4:1,1,1,1 66");
}

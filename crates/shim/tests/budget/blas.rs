//! Calls of BLAS: as many threads as the budget grants, and the library's own number afterwards.

use super::common::{HostProgram, skip, wheel};
use super::hold::{Hold, finish};
use std::path::Path;
use trimtab_core::budget::Rule;

/// A program or a library, and its BLAS library, which is deleted with it.
struct BlasProgram {
    program: HostProgram,
    library: HostProgram,
}

impl BlasProgram {
    fn of(compiler: &str, flags: &[&str]) -> Option<Self> {
        Self::with(compiler, "blascalls.c", &["-O1", "-fopenmp", "-pthread"], flags)
    }

    fn with(compiler: &str, source: &str, own: &[&str], flags: &[&str]) -> Option<Self> {
        let library = [["-O1", "-shared", "-fPIC", "-pthread"].as_slice(), flags].concat();
        let library = HostProgram::built("gcc", "fakeblas.c", &library)?;
        let folder = library.path.parent().unwrap().to_owned();
        std::fs::rename(&library.path, folder.join("libfakeblas.so")).unwrap();
        let (search, run) = (format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display()));
        let link = [search.as_str(), "-lfakeblas", &run];
        let program = HostProgram::built(compiler, source, &[own, &link, flags].concat())?;
        Some(Self { program, library })
    }

    fn run(&self, hold: &Hold, steps: &str) -> String {
        assert!(self.library.path.parent().unwrap().exists());
        hold.run(&self.program, steps)
    }
}

#[test]
fn calls_share_the_cores_and_the_librarys_number_returns() {
    for compiler in ["gcc", "clang"] {
        let Some(linked) = BlasProgram::of(compiler, &[]) else { continue };
        for rule in Rule::ALL {
            for (cores, steps, sizes) in [
                (4, "one number", "4 8"),
                (16, "one number", "8 8"),
                // The first call gets the cores, the later ones a thread each.
                (4, "pool number pause one", "4,1,1 8 4"),
                // The members of a team divide them.
                (4, "team number one", "2,2 8 4"),
                (2, "team number one", "1,1 8 2"),
                (4, "solve number", "77:4 8"),
                // A call that an error handler left has ended.
                (4, "jump one number", "4 8"),
                // The program's own number is kept.
                (4, "set one number pool number", "3 3 3,1,1 3"),
                (2, "set one number pool number", "2 3 2,1,1 3"),
            ] {
                let hold = Hold::of(cores, rule);
                assert_eq!(linked.run(&hold, steps), sizes, "{compiler} {rule:?} {steps}");
                assert!(hold.content().members.iter().all(|member| member.state.computing == 0));
            }
        }
    }
}

#[test]
fn a_number_of_each_thread_is_set_for_the_calling_one() {
    let Some(linked) = BlasProgram::of("gcc", &["-DMKL"]) else { return };
    for (cores, steps, sizes) in [
        (4, "one number", "4 8"),
        (16, "one number", "8 8"),
        (4, "pool number pause one", "4,1,1 8 4"),
        (4, "team number one", "2,2 8 4"),
        (4, "solve number", "77:4 8"),
    ] {
        assert_eq!(linked.run(&Hold::of(cores, Rule::Unnumbered), steps), sizes, "{steps}");
    }
}

#[test]
fn blis_is_bounded_if_it_says_that_each_thread_has_a_number() {
    let bounded = ["4 8", "8 8", "4,1,1 8 4 8", "2,2 8 4", "77:4 8", "4 8", "3 3 4,1,1 3"];
    let own = ["8 8", "8 8", "8,8,8 8 8 8", "8,8 8 8", "77:8 8", "8 8"];
    for (flag, sizes, is_counted) in [
        ("-DBLIS=1", bounded.as_slice(), true),
        ("-DBLIS=0", &[&own[..], &["3 3 3,3,3 3"]].concat(), false),
        ("-DBLIS=2", &[&own[..], &["3 3 8,8,8 3"]].concat(), false),
    ] {
        let Some(linked) = BlasProgram::of("gcc", &[flag]) else { return };
        let steps = [
            (4, "one number"),
            (16, "one number"),
            (4, "pool number pause one number"),
            (4, "team number one"),
            (4, "solve number"),
            (4, "jump one number"),
            (4, "set one number pool number"),
        ];
        for ((cores, steps), sizes) in steps.into_iter().zip(sizes) {
            let hold = Hold::of(cores, Rule::Unnumbered);
            assert_eq!(linked.run(&hold, steps), *sizes, "{flag} {steps}");
            let is_team = |steps: &str| steps.starts_with("team");
            assert_eq!(hold.content().sums().teams > 0, is_counted || is_team(steps), "{flag} {steps}");
        }
    }
}

#[test]
fn two_processes_share_the_cores_by_their_calls() {
    let Some(linked) = BlasProgram::of("gcc", &[]) else { return };
    let Some(other) = HostProgram::built("gcc", "budget.c", &["-O1", "-fopenmp"]) else { return };
    let hold = Hold::of(4, Rule::Unnumbered);
    let (held, size) = hold.start(&other, "hold");
    assert_eq!(size, "4");
    assert_eq!(linked.run(&hold, "one number"), "2 8");
    finish(held);
}

#[test]
fn libraries_that_are_opened_and_closed_call_the_blas_that_they_are_linked_to() {
    let Some(program) = HostProgram::built("gcc", "plugged.c", &["-O1", "-ldl"]) else { return };
    let flags = ["-O1", "-shared", "-fPIC"];
    let Some(plugin) = BlasProgram::with("gcc", "blaslib.c", &flags, &[]) else { return };
    let hold = Hold::of(3, Rule::Unnumbered);
    assert_eq!(hold.run(&program, plugin.program.path.to_str().unwrap()), "3 3 3");
    assert_eq!(hold.content().sums().teams, 3);
}

#[test]
fn a_child_forked_during_a_call_begins_without_calls() {
    let Some(linked) = BlasProgram::of("gcc", &[]) else { return };
    for rule in Rule::ALL {
        let hold = Hold::of(4, rule);
        // The child has an equal part; the second call of its parent has what the first one leaves.
        assert_eq!(linked.run(&hold, "forked one number"), "2 8 4,1 8", "{rule:?}");
        assert!(hold.content().members.iter().all(|member| member.state.computing == 0));
    }
}

#[test]
fn a_process_that_is_killed_in_a_call_does_not_count() {
    let Some(linked) = BlasProgram::of("gcc", &[]) else { return };
    let hold = Hold::of(4, Rule::Unnumbered);
    let (mut held, number) = hold.start(&linked.program, "stay");
    assert_eq!(number, "4");
    assert_eq!(linked.run(&hold, "one"), "2", "an equal part");
    held.kill().unwrap();
    held.wait().unwrap();
    assert_eq!(linked.run(&hold, "one"), "4");
    assert_eq!(linked.run(&hold, "stay number"), "4 4,1 8 8");
}

#[test]
fn calls_without_a_budget_reach_the_library_unchanged() {
    for flags in [[].as_slice(), &["-DMKL"], &["-DBLIS=0"], &["-DBLIS=1"], &["-DBLIS=2"]] {
        let Some(linked) = BlasProgram::of("gcc", flags) else { return };
        let hold = Hold::of(2, Rule::All);
        let mut command = hold.command(&linked.program, "one pool team solve number");
        command.env_remove(trimtab_core::budget::VARIABLE);
        assert_eq!(finish(command.spawn().unwrap()), "8 8,8,8 8,8 77:8 8");
    }
}

/// OpenBLAS with OpenMP waits for ever if a team has fewer threads than parts of the matrix.
#[test]
fn an_openblas_with_openmp_computes_in_two_threads_at_once() {
    let path = "/usr/lib/x86_64-linux-gnu/openblas-openmp";
    if !Path::new(path).join("libopenblas.so.0").exists() {
        return skip("Debian's OpenBLAS with OpenMP is not installed");
    }
    let (search, run) = (format!("-L{path}"), format!("-Wl,-rpath,{path}"));
    let flags = ["-O1", "-pthread", &search, "-l:libopenblas.so.0", &run];
    let Some(program) = HostProgram::built("gcc", "products.c", &flags) else { return };
    for rule in Rule::ALL {
        let hold = Hold::of(2, rule);
        assert_eq!(hold.run(&program, ""), "300 300", "{rule:?}");
        let sums = hold.content().sums();
        assert!(sums.teams >= 40 && sums.bounded > 0, "{sums:?}");
    }
}

#[test]
fn numpys_openblas_gets_its_number_back() {
    let Some(packages) = wheel("scikit-learn") else {
        return skip("scikit-learn's wheel is not here (scripts/wheels fetches it)");
    };
    let Some(python) = HostProgram::installed("python3") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/pool.py");
    for rule in Rule::ALL {
        let hold = Hold::of(2, rule);
        let mut command = hold.command(&python, "");
        command.arg(&script).env("PYTHONPATH", &packages);
        let text = finish(command.spawn().unwrap());
        let number = text.strip_prefix("500.0 1.0 True ").unwrap_or_else(|| panic!("{text}"));
        if number == "1" {
            return skip("two CPUs are needed");
        }
        let sums = hold.content().sums();
        assert!(sums.teams >= 40 && sums.bounded > 0, "{sums:?}");
    }
}

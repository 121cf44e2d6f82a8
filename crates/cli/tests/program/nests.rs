//! Nested OpenMP teams from the command line.

use crate::util::{Outcome, Sandbox, built, cpus, need, python, text, two};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Returns a program of teams of two in teams of two that prints each thread's path and mask.
fn teams(compiler: &str, more: &[&str]) -> Option<PathBuf> {
    built(compiler, "teams.c", &[&["-O1", "-fopenmp"], more].concat())
}

/// Returns the mask printed after a path.
fn on(said: &str, path: &str) -> BTreeSet<u32> {
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("{path} ")));
    cpus(line.unwrap_or_else(|| panic!("{path}: {said}")))
}

fn one(cpu: u32) -> BTreeSet<u32> {
    BTreeSet::from([cpu])
}

#[test]
fn every_thread_of_every_team_is_in_its_place() {
    let all = need!(two(), "two cores are needed");
    for compiler in ["gcc", "clang"] {
        let program = need!(teams(compiler, &[]), "no {compiler} with OpenMP");
        let said = Sandbox::new().run("-q -c 2 --nest 2,scatter,2,scatter").arg(&program).ends().ok();
        assert_eq!(["0", "1"].map(|path| on(&said, path)), all.map(one), "{said}");
        assert_eq!(["0.0", "0.1"].map(|path| on(&said, path)), all.map(one), "{said}");
        assert_eq!(["1.1", "1.0"].map(|path| on(&said, path)), all.map(one), "{said}");
        assert_eq!(on(&said, "before"), BTreeSet::from(all), "{said}");
        assert_eq!(on(&said, "after"), BTreeSet::from(all), "{said}");
    }
}

#[test]
fn the_environment_asks_too_and_the_option_wins() {
    let [first, _] = need!(two(), "two cores are needed");
    let program = need!(teams("gcc", &[]), "no gcc with OpenMP");
    for (variable, options, teams) in [
        ("TRIMTAB_NESTING", "-v -c 2", "2,compact,2,subcompact"),
        ("OMP_NESTING_TEAM_SIZE", "-v -c 2", "2,compact,2,subcompact"),
        ("OMP_NESTING_TEAM_SIZE", "-v -c 2 --nest 2,scatter,2", "2,scatter,2,subcompact"),
    ] {
        let sandbox = Sandbox::new();
        let run = sandbox.run(options).env(variable, "2, Compact, 2").arg(&program).ends();
        assert!(run.stderr.contains(&format!("placed as {teams},")), "{run}");
        assert_eq!(on(&run.out(), "0.1"), one(first), "{run}");
    }
}

#[test]
fn a_shape_that_the_users_count_lists_is_placed_where_it_fits() {
    let all = need!(two(), "two cores are needed");
    let program = need!(teams("gcc", &[]), "no gcc with OpenMP");
    let sandbox = Sandbox::new();
    let placed = |options: &str, set: &[(&str, &str)]| {
        let call = sandbox.run(&format!("-c 2 -v {options}")).arg(&program);
        let run = set.iter().fold(call, |call, (name, value)| call.env(name, value)).ends();
        assert_eq!(run.code, Some(0), "{run}");
        run.stderr.contains("placed as 1,scatter,2,subcompact,")
    };
    let shape = ("OMP_NUM_THREADS", "1,2");
    assert!(placed("", &[shape]));
    // A list of one level, a binding of the user's, threads that must stay free.
    for set in [
        &[("OMP_NUM_THREADS", "2,1")][..],
        &[shape, ("OMP_PROC_BIND", "close")],
        &[shape, ("OMP_PLACES", "cores")],
    ] {
        assert!(!placed("", set), "{set:?}");
    }
    for options in ["--pin mask", "--env keep", "--balance"] {
        assert!(!placed(options, &[shape]), "{options}");
    }
    // A program without counts of its own has the listed teams, and each thread its CPU.
    let free = need!(teams("gcc", &["-DFREE"]), "no gcc with OpenMP");
    for (value, paths) in [("1,2", ["0.0", "0.1"]), ("2,1", ["0.0", "1.0"])] {
        let said = sandbox.run("-q -c 2").arg(&free).env("OMP_NUM_THREADS", value).ends().ok();
        assert_eq!(paths.map(|path| on(&said, path)), all.map(one), "{value}: {said}");
        assert_eq!(on(&said, "before"), BTreeSet::from(all), "{value}: {said}");
    }
    let print = sandbox.run("-c 2 --env print").arg(&program).env("OMP_NUM_THREADS", "1,2").ends().ok();
    assert!(print.contains("unchanged, set by you: 1,2"), "{print}");
    assert!(
        print.contains("the preload library places the nested teams that OMP_NUM_THREADS lists"),
        "{print}"
    );
}

#[test]
fn a_text_that_is_not_understood_stops_the_run_unless_it_may_be_meant_for_another_tool() {
    let sandbox = Sandbox::new();
    let wrong = [
        "\"scater\" is not a strategy (did you mean scatter?) at position 3 of \"2,scater\"",
        "expected compact, scatter, subcompact or subscatter, or the next team size",
    ];
    let run = sandbox.run("--nest 2,scater").arg("true").ends();
    run.fails(125, &["--nest: ", wrong[0], wrong[1]]);
    let run = sandbox.run("").env("TRIMTAB_NESTING", "2,scater").arg("true").ends();
    run.fails(125, &["TRIMTAB_NESTING: ", wrong[0], wrong[1]]);
    sandbox.trimtab("plan --nest 2,scater").ends().fails(2, &["--nest: ", wrong[0]]);
    sandbox
        .run("-s scater")
        .arg("true")
        .ends()
        .fails(125, &["\"scater\" is not a strategy (did you mean scatter?)"]);
    // The published name may be set for another tool.
    let run = sandbox.run("").env("OMP_NESTING_TEAM_SIZE", "2,scater").arg("true").ends();
    run.warns(&["OMP_NESTING_TEAM_SIZE: ", wrong[0], "the program runs without nested placement"]);
    let run = sandbox.run("--strict").env("OMP_NESTING_TEAM_SIZE", "0").arg("true").ends();
    run.fails(125, &["OMP_NESTING_TEAM_SIZE: a team of 0 threads at position 1", "--strict"]);
}

/// The message of a run in which no thread was placed.
const MISSED: &str = "no thread was placed, as no parallel region of the program was seen";

#[test]
fn a_program_in_which_no_thread_was_placed_says_so_once_and_fails_only_when_strict() {
    let sandbox = Sandbox::new();
    let program = need!(teams("gcc", &[]), "no gcc with OpenMP");
    let run = |options: &str| sandbox.run(&format!("--nest 1,scatter {options}"));
    let quiet = run("").arg("true").ends();
    quiet.warns(&["nested teams 1,scatter: ", MISSED]);
    let strict = run("--strict").arg("true").ends();
    strict.fails(125, &[MISSED, "--strict"]);
    // The program keeps its status and its last output.
    let own = run("--strict").arg("sort").arg("/no/such.file").ends();
    assert_eq!(own.code, Some(2), "{own}");
    let words = run("--strict").arg("printf").arg("last").ends();
    assert_eq!((words.code, words.out().as_str()), (Some(125), "last"), "{words}");
    // No message if threads were placed, if `--quiet` was given, or for another tool.
    for call in [run(""), run("--strict"), run("--report")] {
        let placed = call.arg(&program).ends();
        assert!(placed.code == Some(0) && !placed.stderr.contains(MISSED), "{placed}");
    }
    let silent =
        [run("-q").arg("true"), sandbox.run("").env("OMP_NESTING_TEAM_SIZE", "2,scatter").arg("true")];
    for call in silent {
        let silent = call.ends();
        assert!(silent.code == Some(0) && !silent.stderr.contains(MISSED), "{silent}");
    }
}

#[test]
fn the_line_about_threads_not_placed_harms_no_program() {
    let sandbox = Sandbox::new();
    let python = need!(python(), "no Python");
    let data = sandbox.path("data");
    let run =
        |script: String| sandbox.run("--nest 1,scatter").arg(&python).args(["-S", "-c"]).arg(script).ends();
    // Closed, and another file opened under its number.
    let closed = run("import os; os.close(2)".to_owned());
    assert!(closed.code == Some(0) && closed.stderr.is_empty(), "{closed}");
    let file = data.display();
    let other = run(format!(
        "import os; os.close(2); assert os.open('{file}', os.O_WRONLY | os.O_CREAT) == 2; os.write(2, b'x')"
    ));
    assert_eq!((other.code, text(&data).as_str()), (Some(0), "x"), "{other}");
    // A pipe without a reader.
    let gone = run("import os, signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL); r, w = os.pipe(); os.dup2(w, 2); os.close(r)".to_owned());
    assert_eq!((gone.code, gone.signal), (Some(0), None), "{gone}");
    // Child processes and forked processes print nothing about it.
    let forked =
        run("import os; pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0); os.system('true')"
            .to_owned());
    assert_eq!(forked.stderr.matches(MISSED).count(), 1, "{forked}");
    let child =
        run("import os, sys; pid = os.fork(); sys.exit(0) if pid == 0 else os.waitpid(pid, 0)".to_owned());
    assert_eq!(child.stderr.matches(MISSED).count(), 1, "{child}");
    // A program that it execs is still the planned process.
    let becomes = run("import os; os.execvp('true', ['true'])".to_owned());
    assert_eq!(becomes.stderr.matches(MISSED).count(), 1, "{becomes}");
}

#[test]
fn teams_that_cannot_be_placed_are_reported() {
    let sandbox = Sandbox::new();
    let program = need!(teams("gcc", &["-static"]), "no static OpenMP");
    let words = ["nested teams cannot be placed", "it is statically linked"];
    sandbox.run("--nest 2,scatter").arg(&program).ends().warns(&words);
    sandbox.run("--strict --nest 2,scatter").arg(&program).ends().fails(125, &words);
    sandbox
        .run("--nest 2,scatter")
        .sh("true")
        .ends()
        .warns(&["nested teams cannot be placed", "it is a shell"]);
    let both = sandbox.run("--pin mask --nest 2,scatter").arg("true").ends();
    both.fails(125, &["--pin mask leaves threads free", "drop one of the two"]);
}

#[test]
fn levels_that_the_runtime_may_not_open_are_said() {
    let program = need!(teams("gcc", &[]), "no gcc with OpenMP");
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let run =
        sandbox.run("-c 2 --nest 1,scatter,2,scatter").env("OMP_MAX_ACTIVE_LEVELS", "1").arg(&program).ends();
    run.warns(&["OMP_MAX_ACTIVE_LEVELS=1", "2 levels"]);
}

#[test]
fn the_runtimes_own_binding_is_taken_away_and_that_is_said() {
    let all = need!(two(), "two cores are needed");
    let program = need!(teams("clang", &[]), "no clang with OpenMP");
    let sandbox = Sandbox::new();
    let run = sandbox.run("-c 2 --nest 2,scatter,2,scatter").env("OMP_PLACES", "threads");
    let run = run.env("KMP_AFFINITY", "compact").env("OMP_PROC_BIND", "close").arg(&program).ends();
    for name in ["OMP_PLACES=threads", "KMP_AFFINITY=compact"] {
        assert!(run.stderr.contains(&format!("{name} is removed: the nested teams you asked for")), "{run}");
    }
    assert_eq!(on(&run.out(), "1.0"), one(all[1]), "{run}");
}

#[test]
fn a_report_says_where_each_thread_was() {
    let all = need!(two(), "two cores are needed");
    let program = need!(teams("gcc", &[]), "no gcc with OpenMP");
    let sandbox = Sandbox::new();
    let file = sandbox.path("report.txt");
    let option = format!("--report={}", file.display());
    let run = |option: &str| -> Outcome {
        let options = format!("-q -c 2 --nest 2,scatter,2,scatter {option}");
        sandbox.run(&options).arg(&program).ends()
    };
    run(&option).ok();
    let text = std::fs::read_to_string(&file).unwrap();
    for (path, cpu) in [("0", 0), ("1", 1), ("0.0", 0), ("0.1", 1), ("1.0", 1), ("1.1", 0)] {
        let row: Vec<&str> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row.first() == Some(&path))
            .unwrap_or_else(|| panic!("{path} in {text}"));
        let cpu = all[cpu].to_string();
        assert_eq!(row[1..4], [&cpu, &cpu, &cpu], "{text}");
        assert_eq!(row[6], "0", "{text}");
    }
    assert!(text.contains("3 regions of GNU's runtime, 0 of LLVM's or Intel's"), "{text}");
    assert!(run("--report").stderr.contains("3 regions of GNU's runtime"));
    let none = sandbox.run("-c 2 --nest 2,scatter --report").arg("true").ends();
    assert!(none.code == Some(0) && none.stderr.contains("no parallel region was seen"), "{none}");
    // The report of its threads is always beside it.
    for both in [&text, &none.stderr] {
        assert!(both.contains(" on CPUs"), "{both}");
    }
    let plain = sandbox.run("-c 2 --report").arg("true").ends();
    assert!(plain.code == Some(0) && !plain.stderr.contains("region"), "{plain}");
    assert!(plain.stderr.contains(" on CPUs"), "{plain}");
}

#[test]
fn a_plan_draws_teams_and_is_checked() {
    let sandbox = Sandbox::new();
    let plan =
        |options: &str| sandbox.trimtab(&format!("plan {options} --machine")).arg("pack:4 core:4").ends();
    let drawn = plan("--nest 4,scatter,4,scatter").ok();
    assert!(drawn.contains("level 2: 4 teams of 4, scatter\npackage 0  0.0 1.1 2.1 3.1\n"), "{drawn}");
    let document = plan("--nest 4,scatter,4,scatter --json").ok();
    let file = sandbox.write("plan.json", &document);
    assert_eq!(sandbox.trimtab("check").arg(&file).ends().ok(), "");
    let place = |cpu: u32| format!("\"path\": \"2.0\",\n            \"cpu\": {cpu}");
    let moved = document.replacen(&place(8), &place(9), 1);
    assert_ne!(moved, document);
    let file = sandbox.write("plan.json", moved);
    let run = sandbox.trimtab("check").arg(&file).ends();
    assert_eq!(run.code, Some(1), "{run}");
    assert!(
        run.out().contains("nested thread 2.0 is on CPU 9, and the thread that opens its team on CPU 8"),
        "{run}"
    );
    plan("--nest 4,x").fails(2, &["--nest: \"x\" is not a strategy at position 3"]);
}

/// A profiler that the user preloads comes first and calls the shim, which must call the next
/// library and not the profiler again.
#[test]
fn other_wrappers_of_the_runtime_are_asked_too() {
    let all = need!(two(), "two cores are needed");
    let wrapper = need!(built("gcc", "wrapper.c", &["-O1", "-shared", "-fPIC"]), "no gcc");
    let program = need!(teams("gcc", &[]), "no gcc with OpenMP");
    let sandbox = Sandbox::new();
    for options in ["-q -c 2", "-q -c 2 --nest 2,scatter,2,scatter"] {
        let run = sandbox.run(options).env("LD_PRELOAD", &wrapper).arg(&program).ends();
        assert_eq!(run.code, Some(0), "{run}");
        if options.contains("--nest") {
            assert_eq!(on(&run.out(), "1.0"), one(all[1]), "{run}");
        }
    }
}

#[test]
fn threads_may_open_regions_at_their_very_end() {
    need!(two(), "two cores are needed");
    let program = need!(built("g++", "late.cpp", &["-O1", "-fopenmp", "-pthread"]), "no g++ with OpenMP");
    let sandbox = Sandbox::new();
    for options in ["--nest 3,scatter", "--nest 3,scatter,2,scatter --nest-roots share"] {
        assert_eq!(sandbox.run(&format!("-q -c 2 {options}")).arg(&program).ends().ok(), "done");
    }
}

#[test]
fn a_mask_that_the_program_sets_itself_stays() {
    let [_, second] = need!(two(), "two cores are needed");
    for compiler in ["gcc", "clang"] {
        let program = need!(built(compiler, "own_mask.c", &["-O1", "-fopenmp"]), "no {compiler} with OpenMP");
        let run = Sandbox::new().run("-q -c 2 --nest 2,scatter").arg(&program).arg(second.to_string()).ends();
        assert_eq!(run.ok(), format!("set {second}\nasked {second}\nlater {second}"), "{compiler}");
    }
}

#[test]
fn a_report_that_could_not_be_written_is_refused() {
    let sandbox = Sandbox::new();
    let run = sandbox.run("--nest 2 --report=/nowhere/at/all.txt").arg("true").ends();
    run.fails(125, &["--report=/nowhere/at/all.txt", "there is no folder /nowhere/at"]);
}

//! Variables that a program finds.

use crate::util::{Call, Sandbox, built, installed, need, two};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const COUNTS: [&str; 11] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "JULIA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "GOMAXPROCS",
];

/// Returns the environment that a program finds.
fn inside(call: Call<'_>) -> BTreeMap<String, String> {
    parse(&call.args(["env", "-0"]).ends().ok())
}

fn parse(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim_start().to_owned(), value.to_owned())).collect()
}

fn openmp() -> Option<PathBuf> {
    built("gcc", "openmp.c", &["-O1", "-fopenmp"])
}

/// Counts that are an upper bound: a program that asks for more stops.
const BOUNDS: [&str; 2] = ["NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS"];

#[test]
fn the_mask_alone_carries_the_count() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for cores in ["1", "2"] {
        let found = inside(sandbox.run(&format!("-c {cores}")));
        let set: Vec<_> = COUNTS.iter().filter(|name| found.contains_key(**name)).collect();
        assert!(set.is_empty(), "{set:?}");
        assert!(
            !found.contains_key("OMP_PLACES") && !found.contains_key("OMP_PROC_BIND"),
            "env is no OpenMP program"
        );
        assert!(!found.contains_key("JAVA_TOOL_OPTIONS"));
    }
}

#[test]
fn a_count_that_is_asked_for_reaches_all_but_upper_bounds() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let found = inside(sandbox.run("-c 2 --threads 3"));
    for name in COUNTS {
        let expected = (!BOUNDS.contains(&name)).then_some("3");
        assert_eq!(found.get(name).map(String::as_str), expected, "{name}");
    }
}

#[test]
fn a_budget_goes_to_the_program_only_on_request() {
    let sandbox = Sandbox::new();
    let variable = trimtab_core::budget::VARIABLE;
    for options in ["-c 1", "-c 1 --fit keep"] {
        let found = inside(sandbox.run(options).env("OMP_DYNAMIC", "true"));
        assert_eq!(found.get(variable), None, "{options}");
    }
    for (options, words) in [("-c 1 --fit budget", " 1 unnumbered "), ("-c 1 --fit limit", " 1 all ")] {
        let found = inside(sandbox.run(options));
        assert!(found[variable].contains(words), "{options}: {}", found[variable]);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn wait_loops_are_asked_to_yield_only_on_request() {
    let sandbox = Sandbox::new();
    let variable = trimtab_core::spin::VARIABLE;
    for (options, value) in
        [("-c 1", None), ("-c 1 --spin keep", None), ("-c 1 --spin yield", Some("1 yield"))]
    {
        assert_eq!(inside(sandbox.run(options)).get(variable).map(String::as_str), value, "{options}");
    }
    let refused = sandbox.run("--spin sleep").arg("true").ends();
    assert!(refused.stderr.contains("keep, yield"), "{refused}");
    refused.fails_with(125, "'sleep'");
}

#[test]
fn teams_of_a_run_share_its_budget_and_the_report_counts_them() {
    let program = need!(openmp(), "gcc is needed");
    let sandbox = Sandbox::new();
    let call = sandbox.run("-c 1 --fit limit --report=budget.json").env("OMP_NUM_THREADS", "1");
    call.args([&program]).ends().ok();
    let report: serde_json::Value =
        serde_json::from_str(&crate::util::text(&sandbox.path("budget.json"))).unwrap();
    let budget = &report["budget"];
    assert_eq!(budget["cores"], 1, "{report}");
    assert!(budget["teams"].as_u64().unwrap() >= 1, "{report}");
}

#[test]
fn counts_that_exceed_the_run_are_fitted_and_said() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let of = |options: &str, value: &str| {
        let call = sandbox.run(options).args(["printenv", "OMP_NUM_THREADS"]).env("OMP_NUM_THREADS", value);
        let outcome = call.ends();
        assert_eq!(outcome.code, Some(0), "{outcome}");
        (outcome.out(), outcome.stderr.clone())
    };
    for (options, before, after) in
        [("-c 2", "4", "2"), ("-c 2", "2,2", "2,1"), ("-c 1", "2,2", "1,1"), ("-c 2", "4,1", "2,1")]
    {
        let (found, said) = of(options, before);
        assert_eq!(found, after, "{before}");
        let line = format!("trimtab: OMP_NUM_THREADS={before} is fitted to {after}: ");
        assert_eq!(said.lines().filter(|said| said.starts_with(&line)).count(), 1, "{said}");
        assert!(said.contains("--fit keep"), "{said}");
    }
    for (options, value) in
        [("-c 2", "2"), ("-c 2", "1,2"), ("-c 2 --fit keep", "2,2"), ("-c 2 --env keep", "4")]
    {
        assert_eq!(of(options, value), (value.to_owned(), String::new()), "{options}");
    }
    let (found, said) = of("-c 2 -q", "4");
    assert_eq!((found.as_str(), said.as_str()), ("2", ""));
    let refused = sandbox.run("--fit limits").arg("true").ends();
    assert!(refused.stderr.contains("auto, keep, budget, limit"), "{refused}");
    refused.fails_with(125, "'limit'");
}

#[test]
fn a_fitted_count_is_not_the_users_for_a_run_inside() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let inner = "\"$T\" run --survey none -c 1 -- env -0";
    let found = parse(&sandbox.run("-c 2").sh(inner).env("OMP_NUM_THREADS", "4").ends().out());
    assert!(!found.contains_key("OMP_NUM_THREADS"), "{found:?}");
}

#[test]
fn the_command_line_of_a_known_program_takes_precedence() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // A stand-in under the name of GROMACS that prints its variable.
    let gmx = sandbox.write("gmx", "#!/bin/sh\necho ${OMP_NUM_THREADS-none}\n");
    crate::util::chmod(&gmx, 0o755);
    let said = |options: &str, arguments: &str| {
        let call = sandbox.run(options).arg(&gmx).args(arguments.split(' ')).env("OMP_NUM_THREADS", "4");
        call.ends().out()
    };
    assert_eq!(said("-c 2", "mdrun -ntmpi 1 -ntomp 4"), "4");
    assert_eq!(said("-c 2", "mdrun -deffnm x"), "2", "nothing is stated");
    let why = sandbox.run("-c 2 --env print").arg(&gmx).args(["mdrun", "-nt", "2"]).ends().ok();
    assert!(why.contains("not set: the command line of GROMACS says -nt 2"), "{why}");
}

#[test]
fn the_users_values_stay() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for name in COUNTS {
        for value in ["7", "0", "", "4,2", "what ever"] {
            let found = inside(sandbox.run("-c 1 --fit keep").env(name, value));
            assert_eq!(found[name], value, "{name}");
        }
        for value in ["1", "0", "", "what ever"] {
            let found = parse(&sandbox.run("-c 1").args(["env", "-0"]).env(name, value).ends().ok());
            assert_eq!(found[name], value, "{name} fits or is no count");
        }
    }
    let java = "-Xmx1g -Dname='a b'";
    assert_eq!(inside(sandbox.run("-c 1").env("JAVA_TOOL_OPTIONS", java))["JAVA_TOOL_OPTIONS"], java);
    // Libraries that follow OpenMP's count follow the user's value.
    let found = inside(sandbox.run("-c 2 --threads 2").env("OMP_NUM_THREADS", "1"));
    assert!(!found.contains_key("OPENBLAS_NUM_THREADS") && found["RAYON_NUM_THREADS"] == "2", "{found:?}");
}

#[test]
fn an_inner_run_does_not_take_the_outers_values_for_the_users() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let inner = "\"$T\" run --survey none -c 1 -- env -0";
    let found = parse(&sandbox.run("-c 2 --threads 2").sh(inner).env("RAYON_NUM_THREADS", "7").ends().ok());
    assert!(!found.contains_key("OMP_NUM_THREADS"), "the outer's: {found:?}");
    assert_eq!(found["RAYON_NUM_THREADS"], "7");
    assert!(found["TRIMTAB_PLAN"].contains("slots=") && !found["TRIMTAB_PLAN"].contains('/'), "{found:?}");
    // A value that a program between the two sets is a user's value again.
    let inner_keeps = inner.replace("-c 1", "-c 1 --fit keep");
    let call = sandbox.run("-c 2 --threads 2").sh(&format!("export OMP_NUM_THREADS=3; {inner_keeps}"));
    assert_eq!(parse(&call.ends().ok())["OMP_NUM_THREADS"], "3");
    // Three levels, where the middle one only passes on.
    let deep =
        format!("\"$T\" run --survey none -c 2 -- sh -c '{}'", inner.replace("-c 1", "-c 1 --threads 1"));
    let found = parse(&sandbox.run("-c 2 --threads 2").sh(&deep).ends().ok());
    assert_eq!(found["OMP_NUM_THREADS"], "1");
    assert_eq!(found["LD_PRELOAD"].matches("libtrimtab_shim").count(), 1, "{found:?}");
}

#[test]
fn an_inner_run_without_guest_or_places_does_not_inherit_the_outers() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // Prints the environment like `env`, under a name for which the shim is not preloaded.
    let env = installed("env").unwrap();
    for name in ["node", "java"] {
        std::fs::create_dir_all(sandbox.path(name)).unwrap();
        let copy = sandbox.path(&format!("{name}/{name}"));
        assert!(Command::new("cp").arg("-L").arg(&env).arg(&copy).status().unwrap().success());
        let inner = format!("\"$T\" run --survey none -c 1 -- {} -0", copy.display());
        let found = parse(&sandbox.run("-c 2").sh(&inner).ends().ok());
        assert!(
            !found.contains_key("LD_PRELOAD") && !found.contains_key("TRIMTAB_PLAN"),
            "{name}: {found:?}"
        );
    }
    // The places of an outer OpenMP program do not apply to a program in a part of its cores.
    let outer = [("OMP_PLACES", "{0},{1}"), ("OMP_PROC_BIND", "close")];
    let set = outer.map(|(name, value)| format!("{name}={value}")).join("\n");
    let call = outer.iter().fold(sandbox.run("-c 1"), |call, (name, value)| call.env(name, value));
    let found = inside(call.env("TRIMTAB_SET", set));
    assert!(!found.contains_key("OMP_PLACES") && !found.contains_key("OMP_PROC_BIND"), "{found:?}");
}

#[test]
fn a_preload_of_the_users_is_asked_first() {
    let sandbox = Sandbox::new();
    let theirs = sandbox.path("theirs.so");
    let empty = sandbox.write("theirs.c", "int theirs;\n");
    let built = Command::new("cc").args(["-shared", "-o"]).arg(&theirs).arg(&empty).status();
    need!(built.ok().filter(std::process::ExitStatus::success), "no C compiler");
    let theirs = theirs.display().to_string();
    let other = sandbox.path("other.so");
    std::fs::copy(&theirs, &other).unwrap();
    let two = format!("{theirs} {}", other.display());
    for set in [&theirs, &two] {
        let found = inside(sandbox.run("-c 1").env("LD_PRELOAD", set));
        let rest = found["LD_PRELOAD"].strip_prefix(set).unwrap_or_else(|| panic!("{found:?}"));
        assert!(rest.starts_with(':') && rest.ends_with("/libtrimtab_shim.so"), "{found:?}");
    }
    // An inner run keeps the order and adds nothing.
    let script = "\"$T\" run --survey none -c 1 -- env -0";
    let found = parse(&sandbox.run("-c 1").sh(script).env("LD_PRELOAD", &theirs).ends().ok());
    assert_eq!(found["LD_PRELOAD"].split(':').count(), 2, "{found:?}");
    assert!(found["LD_PRELOAD"].starts_with(&theirs));
}

#[test]
fn a_preload_that_does_not_exist_is_the_loaders_to_complain_about() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run("-c 1").args(["echo", "ran"]).env("LD_PRELOAD", "/no/such.so").ends();
    assert_eq!((outcome.code, outcome.out().as_str()), (Some(0), "ran"), "{outcome}");
    assert!(outcome.stderr.lines().all(|line| line.contains("/no/such.so")), "{outcome}");
    let doctor = sandbox.trimtab("doctor").env("LD_PRELOAD", "/no/such.so").ends();
    assert!(doctor.out().contains("LD_PRELOAD names /no/such.so, which does not exist"), "{doctor}");
}

#[test]
fn env_print_shows_all_and_runs_nothing() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let file = sandbox.path("started");
    let call = sandbox.run("-c 2 --env print --threads 2").arg("touch").arg(&file).env("GOMAXPROCS", "9");
    let said = call.ends().ok();
    assert!(!file.exists());
    let row = |name: &str| {
        said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {said}"))
    };
    for name in COUNTS.iter().filter(|name| **name != "GOMAXPROCS") {
        let expected = if BOUNDS.contains(name) { "not set: it is an upper bound" } else { "set to 2" };
        assert!(row(name).contains(expected), "{said}");
    }
    assert!(row("GOMAXPROCS").ends_with("unchanged, set by you: 9"), "{said}");
    assert!(row("JAVA_TOOL_OPTIONS").contains("not set: "), "{said}");
    assert!(
        row("OMP_PLACES").contains("not set: the program does not itself link an OpenMP runtime"),
        "{said}"
    );
    assert!(row("LD_PRELOAD").contains("set to ") && row("TRIMTAB_PLAN").contains("set to 1 pid="), "{said}");
}

#[test]
fn env_keep_changes_none_of_them_and_holds_all_the_same() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut found = inside(sandbox.run("-c 1 --env keep").env("GOMAXPROCS", "9"));
    let hold = found.remove("TRIMTAB_HOLD");
    assert!(hold.is_some(), "runs inside it could not divide its cores");
    let ours: Vec<_> =
        found.keys().filter(|name| COUNTS.contains(&name.as_str()) || name.contains("PRELOAD")).collect();
    assert_eq!(ours, ["GOMAXPROCS"]);
    assert!(!found.contains_key("TRIMTAB_PLAN"), "{found:?}");
    let _held = sandbox.hold("-c 2 --env keep");
    sandbox.run("-c 1").arg("true").ends().fails(124, &["held by"]);
}

#[test]
fn places_are_for_openmp_programs_only_and_never_against_the_user() {
    need!(two(), "two cores are needed");
    let program = need!(openmp(), "no gcc with OpenMP");
    let sandbox = Sandbox::new();
    let print = |options: &str, set: &[(&str, &str)]| {
        let call = sandbox.run(&format!("{options} --env print")).arg(&program);
        set.iter().fold(call, |call, (name, value)| call.env(name, value)).ends().ok()
    };
    let cpu = |at: usize| sandbox.plan("-c 2")["plan"]["slots"][at]["cpu"].to_string();
    let places = format!("set to {{{}}},{{{}}}", cpu(0), cpu(1));
    assert!(print("-c 2", &[]).contains(&places));
    assert!(print("-c 2", &[("OMP_NUM_THREADS", "2")]).contains(&places));
    for set in [
        ("OMP_PLACES", "cores"),
        ("OMP_PROC_BIND", "false"),
        ("GOMP_CPU_AFFINITY", "0"),
        ("KMP_AFFINITY", "disabled"),
        ("OMP_NUM_THREADS", "1,2"),
        ("OMP_NUM_THREADS", "x"),
    ] {
        assert!(!print("-c 2", &[set]).contains(&places), "{set:?}");
    }
    assert!(!print("-c 2 --fit keep", &[("OMP_NUM_THREADS", "3")]).contains(&places));
    for fitted in ["3", "2,1", "2,2"] {
        assert!(print("-c 2", &[("OMP_NUM_THREADS", fitted)]).contains(&places), "{fitted}");
    }
    assert!(!print("-c 2 --pin mask", &[]).contains(&places));
    // A shell is not an OpenMP program, whatever it starts.
    let said = sandbox
        .run("-c 2")
        .sh(&format!("env -0 | tr -d '\\n' | tr '\\0' '\\n'; {} >&2", program.display()))
        .ends();
    assert!(!said.out().contains("OMP_PLACES"), "{said}");
    assert!(said.stderr.contains("procs 2"), "{said}");
}

#[test]
fn a_variable_that_is_no_text_is_passed_on() {
    use std::os::unix::ffi::OsStrExt;
    let sandbox = Sandbox::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff1");
    let outcome = sandbox.run("-c 1").args(["printenv", "GOMAXPROCS"]).env("GOMAXPROCS", odd).ends();
    assert_eq!(outcome.stdout, b"\xff1\n", "{outcome}");
    for name in ["TRIMTAB_HOLD", "TRIMTAB_SET", "TRIMTAB_PLAN", "LD_PRELOAD", "HOME"] {
        let outcome = sandbox.run("-c 1").args(["echo", "ran"]).env(name, odd).ends();
        assert_eq!((outcome.code, outcome.out().as_str()), (Some(0), "ran"), "{name}: {outcome}");
    }
}

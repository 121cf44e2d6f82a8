//! The shim is preloaded where it has something to do, and does not disturb any program that is
//! started with it or below it.

use crate::util::{Call, Outcome, Sandbox, built, c, installed, need, python, skip, trimtab, two};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns programs that cannot load the shim, with the reason that `-v` prints.
fn others() -> Vec<(PathBuf, &'static str)> {
    let ways: [(&str, &[&str], &str); 4] = [
        ("musl-gcc", &[], "its loader is ld-musl-"),
        ("gcc", &["-m32"], "it is for another processor or word size"),
        ("gcc", &["-static"], "it is statically linked"),
        ("gcc", &["-fsanitize=address"], "it is built with a sanitizer"),
    ];
    let built = ways.into_iter().filter_map(|(compiler, flags, why)| {
        let program = built(compiler, "hello.c", flags);
        if program.is_none() {
            skip(&format!("{compiler} {} builds nothing", flags.concat()));
        }
        Some((program?, why))
    });
    built.collect()
}

#[track_caller]
fn says_hello(outcome: &Outcome) {
    assert_eq!(
        (outcome.code, outcome.out().as_str(), outcome.stderr.as_str()),
        (Some(3), "hello", ""),
        "{outcome}"
    );
}

#[test]
fn a_program_that_cannot_carry_the_library_is_run_without_and_v_says_why() {
    let sandbox = Sandbox::new();
    for (program, why) in others() {
        says_hello(&sandbox.run("-c 1").arg(&program).ends());
        let said = sandbox.run("-c 1 -v").arg(&program).ends();
        assert!(said.stderr.contains(why), "{}: {said}", program.display());
        // A script with this program as its interpreter.
        let script = sandbox.script("script", format!("#!{}\n", program.display()));
        says_hello(&sandbox.run("-c 1").arg(&script).ends());
    }
}

#[test]
fn programs_start_others_that_cannot_carry_the_library() {
    let sandbox = Sandbox::new();
    let starter = need!(c("hello.c"), "no C compiler");
    let shell = |program: &Path| format!("'{}' || exit $?", program.display());
    for (program, _) in others() {
        says_hello(&sandbox.run("-c 1").arg(&starter).arg("start").arg(&program).ends());
        says_hello(&sandbox.run("-c 1").sh(&shell(&program)).ends());
        // A shell that loads the shim, because it was requested.
        says_hello(&sandbox.run("-c 1").args(["env", "sh", "-c"]).arg(shell(&program)).ends());
        let rules = format!("all:\n\t@'{}'; test $$? = 3\n", program.display());
        let make = sandbox.write("Makefile", rules);
        if installed("make").is_some() {
            let made = sandbox.run("-c 1").args(["env", "make", "-s", "-f"]).arg(&make).ends();
            assert_eq!(made.ok(), "hello");
        }
    }
}

#[test]
fn python_starts_programs_that_cannot_carry_the_library() {
    need!(python(), "Python is not installed");
    let sandbox = Sandbox::new();
    let script = "import os, subprocess, sys\n\
                  p = sys.argv[1]\n\
                  a = [subprocess.run([p]).returncode, subprocess.run([p], close_fds=False).returncode]\n\
                  a += [subprocess.run(p, shell=True).returncode, subprocess.run([p], preexec_fn=int).returncode]\n\
                  a += [os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(p, [p], os.environ), 0)[1])]\n\
                  a += [os.waitstatus_to_exitcode(os.system(p)), os.spawnl(os.P_WAIT, p, p)]\n\
                  print(a, flush=True)\n\
                  os.execl(p, p)";
    for (program, _) in others() {
        let outcome = sandbox.run("-c 1").python(script).arg(&program).ends();
        let lines = "hello\n".repeat(7) + "[3, 3, 3, 3, 3, 3, 3]\nhello";
        assert_eq!(
            (outcome.code, outcome.out(), outcome.stderr.as_str()),
            (Some(3), lines, ""),
            "{}: {outcome}",
            program.display()
        );
    }
}

/// Returns whether a program finds the shim and a plan in its environment.
#[track_caller]
fn carried(call: Call<'_>) -> [bool; 2] {
    let outcome = call.ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let said = outcome.out();
    let has = |text: &str| said.split('\0').any(|entry| entry.starts_with(text));
    [has("LD_PRELOAD="), has("TRIMTAB_PLAN=")]
}

#[test]
fn shells_make_and_mask_only_programs_carry_the_library_only_where_it_has_something_to_do() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let shell = |options: &str| carried(sandbox.run(options).sh("cat /proc/$$/environ"));
    let program = |options: &str| carried(sandbox.run(options).args(["cat", "/proc/self/environ"]));
    let all = sandbox.write("Makefile", "all:\n\t@cat /proc/self/environ\n");
    assert_eq!(shell("-c 2"), [false; 2]);
    assert_eq!(carried(sandbox.run("-c 2").args(["make", "-s", "-f"]).arg(&all)), [false; 2]);
    assert_eq!(program("-c 2"), [true; 2]);
    assert_eq!(program("-c 2 --pin mask"), [false; 2]);
    // Told the mask of the run while they are balanced.
    assert_eq!(program("-c 2 --balance"), [true; 2]);
    assert_eq!(program("-c 2 --balance --pin mask"), [false; 2]);
    assert_eq!(program("-c 2 --balance=float"), [false; 2]);
    assert_eq!(shell("-c 2 --balance"), [false; 2]);
    // Fewer threads than CPUs, nested teams, synchronisation counted.
    assert_eq!(shell("-c 2 --threads 1"), [true; 2]);
    assert_eq!(program("-c 2 --pin mask --threads 1"), [true; 2]);
    assert_eq!(shell("-q -c 2 --nest 2"), [true; 2]);
    let report = sandbox.path("report.txt");
    assert_eq!(shell(&format!("-c 2 --report={}", report.display())), [true, false]);
}

#[test]
fn programs_started_by_a_shell_have_the_mask() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for cores in ["1", "2"] {
        assert_eq!(sandbox.run(&format!("-c {cores}")).sh("env -u OMP_NUM_THREADS nproc").ends().ok(), cores);
    }
}

#[test]
fn line_based_tools_find_each_variable_once() {
    let sandbox = Sandbox::new();
    let lines = sandbox.run("-c 1").arg("env").ends().ok();
    let entries = sandbox.run("-c 1").args(["env", "-0"]).ends().ok();
    assert_eq!(lines.lines().count(), entries.split_terminator('\0').count(), "{lines}");
    let mut names = BTreeSet::new();
    for line in lines.lines() {
        let (name, _) = line.split_once('=').unwrap_or_else(|| panic!("{line:?} is no variable"));
        assert!(names.insert(name), "{name} stands there twice: {lines}");
    }
    assert!(names.contains("TRIMTAB_SET") && names.contains("LD_PRELOAD"), "{lines}");
    assert_eq!(lines.matches("LD_PRELOAD").count(), 1, "{lines}");
}

#[test]
fn arrays_of_as_many_elements_as_there_are_cpus_have_one_for_each_cpu() {
    let [a, b] = need!(two(), "two cores are needed");
    let program = need!(c("indexed.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let plain = Command::new(&program).output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    let machine: Vec<u32> = plain.split_whitespace().map(|word| word.parse().unwrap()).collect();
    for (cpus, last) in [(a.to_string(), a), (b.to_string(), b), (format!("{a},{b}"), b)] {
        let said = sandbox.run(&format!("--cpus {cpus}")).arg(&program).ends().ok();
        let expected = [machine[0], machine[1]].map(|number| number.min(last + 1));
        assert_eq!(said, format!("{} {} 1 1", expected[0], expected[1]), "CPUs {cpus}");
    }
}

#[test]
fn jemalloc_has_the_same_arenas_as_under_taskset() {
    let [a, b] = need!(two(), "two cores are needed");
    let program = need!(c("hello.c"), "no C compiler");
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let jemalloc = places.map(|place| Path::new(place).join("libjemalloc.so.2"));
    let jemalloc = need!(jemalloc.into_iter().find(|path| path.exists()), "libjemalloc is not installed");
    let library = trimtab().with_file_name("libtrimtab_shim.so");
    let sandbox = Sandbox::new();
    for cpus in [a.to_string(), b.to_string(), format!("{a},{b}")] {
        let plain = format!("LD_PRELOAD={}", jemalloc.display());
        let ours = format!("{plain}:{}", library.display());
        let words = ["MALLOC_CONF=percpu_arena:percpu", program.to_str().unwrap()];
        let taskset =
            Command::new("taskset").args(["-c", &cpus, "env", &plain]).args(words).output().unwrap();
        let run = sandbox.run(&format!("--cpus {cpus}")).args(["env", &ours]).args(words).ends();
        assert_eq!((run.code, run.out().as_str()), (Some(3), "hello"), "{run}");
        let complaint = String::from_utf8_lossy(&taskset.stderr);
        assert!(run.stderr.is_empty() || run.stderr == complaint, "CPUs {cpus}: {run}, taskset: {complaint}");
    }
}

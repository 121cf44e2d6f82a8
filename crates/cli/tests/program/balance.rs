//! `trimtab run --balance`: threads are moved while the program runs, and nothing else about it
//! changes; traces; reports.

pub(crate) use crate::util::masks;
use crate::util::{
    Orphan, Sandbox, built, c, eventually, installed, mask_of, need, skip, text, two, workers_are_bound,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the only child of a process.
pub(crate) fn child(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.trim().parse().unwrap_or(0)
}

/// Returns the lines of a trace, with their kinds.
pub(crate) fn lines(path: &Path) -> Vec<(String, Value)> {
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
        (kind.clone(), value.clone())
    };
    text(path).lines().map(line).collect()
}

#[test]
fn threads_are_moved_and_the_program_is_as_ever() {
    let [a, b] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let trace = sandbox.path("trace.jsonl");
    let options = format!("--cpus {a},{b} --balance=pinned --interval 10ms --trace {}", trace.display());
    let mut running = sandbox.run(&options).arg(&spins).arg("2").begins();
    assert_eq!(running.line(), "ready");
    let program = child(running.pid());
    // Two spinning threads, each on one CPU. The initial thread waits for them.
    eventually("each computing thread has a core", || workers_are_bound(program));
    // On a busy machine it may itself have computed for a moment, and been bound.
    eventually("a library that the initial thread loads counts two CPUs", || {
        mask_of(program, program).len() == 2
    });
    let outcome = running.ends();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(9), ""), "{outcome}");
    let lines = lines(&trace);
    assert_eq!((lines[0].0.as_str(), &lines[0].1["policy"]), ("header", &"pinned".into()));
    let (last, end) = lines.last().unwrap();
    assert_eq!((last.as_str(), &end["status"]), ("end", &9.into()));
    assert!(lines[1..lines.len() - 1].iter().all(|(kind, _)| kind == "step"));
    let moved = lines.iter().any(|(_, step)| step["turn"]["decisions"].is_array());
    assert!(moved, "{}", text(&trace));
}

#[test]
fn a_program_that_counts_cpus_while_it_is_balanced_counts_those_of_the_run() {
    let [a, b] = need!(two(), "two cores are needed");
    let counts = need!(c("counts_while_balanced.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let options = format!("--cpus {a},{b} --balance=pinned --interval 5ms");
    let outcome = sandbox.run(&options).arg(&counts).ends();
    assert_eq!((outcome.code, outcome.out().trim()), (Some(0), "bound to 1, told 2"), "{outcome}");
}

#[test]
fn every_policy_leaves_the_program_its_status() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    for policy in ["", "=auto", "=speed", "=exchange", "=nudge", "=pinned", "=float"] {
        let options = format!("-c 2 --or-fewer --balance{policy} --interval 5ms --seed 3 --across-nodes");
        let mut running = sandbox.run(&options).arg(&spins).arg("3").begins();
        running.line();
        let outcome = running.ends();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(9), ""), "{policy}: {outcome}");
    }
    sandbox.until_free();
}

#[test]
fn openmp_threads_are_free_to_be_moved_unless_the_user_binds_them() {
    need!(two(), "two cores are needed");
    let openmp = need!(built("cc", "openmp.c", &["-O1", "-fopenmp"]), "no OpenMP compiler");
    let sandbox = Sandbox::new();
    let table = |options: &str, binding: Option<&str>| {
        let mut call = sandbox.run(&format!("-c 2 --env print {options}")).arg(&openmp);
        if let Some(binding) = binding {
            call = call.env("OMP_PROC_BIND", binding);
        }
        call.ends().ok()
    };
    assert!(!table("", None).contains("OMP_PLACES                    OpenMP                    not set"));
    // The printed variables are those that a run sets.
    for option in ["--balance", "--balance=float"] {
        let said = table(option, None);
        let row = said.lines().find(|line| line.starts_with("OMP_PLACES")).unwrap();
        assert!(row.contains("not set: threads are to stay free"), "{row}");
    }
    let trace = sandbox.path("printed.jsonl");
    table(&format!("--balance --trace {}", trace.display()), None);
    assert!(!trace.exists(), "nothing runs, so nothing is recorded");
    let said = sandbox.run("-c 2 --balance=float").sh("env | grep -c -e OMP_PLACES -e OMP_PROC_BIND").ends();
    assert_eq!(said.out(), "0", "{said}");
    let bound = sandbox.run("-c 2 --balance=float").sh("echo $OMP_PROC_BIND").env("OMP_PROC_BIND", "close");
    assert_eq!(bound.ends().ok(), "close");
    let trace = sandbox.path("t.jsonl");
    // A recording alone changes nothing.
    let recorded = sandbox.run(&format!("-c 2 --trace {}", trace.display())).arg(&openmp).ends();
    let plain = sandbox.run("-c 2").arg(&openmp).ends();
    assert_eq!(placed(&recorded.out()), placed(&plain.out()));
}

/// Returns a program's report of its threads' masks, without the CPU on which each ran.
fn placed(said: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = said.lines().map(|line| line.split(" cpu").next().unwrap_or(line)).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn threads_that_share_their_only_cpu_are_said_to() {
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut running = sandbox.run("-c 1 --balance --interval 20ms -v").arg(&spins).arg("3").begins();
    running.line();
    eventually("it is found", || running.errors().contains("threads on the only CPU that they may use"));
    let outcome = running.ends();
    assert!(!outcome.stderr.contains("spreads the threads evenly"), "{outcome}");
}

#[test]
fn an_interrupted_run_leaves_a_whole_trace() {
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let trace = sandbox.path("trace.jsonl");
    let options = format!("-c 1 --balance --interval 5ms --trace {}", trace.display());
    let mut running = sandbox.run(&options).arg(&spins).arg("2").begins();
    running.line();
    eventually("three looks", || text(&trace).lines().count() > 3);
    running.signal(Signal::INT);
    // Its input is still open, so that nothing else ends it.
    eventually("it ends", || !running.lives());
    assert_eq!(running.ends().signal, Some(2));
    let lines = lines(&trace);
    assert_eq!((lines.last().unwrap().0.as_str(), &lines.last().unwrap().1["status"]), ("end", &130.into()));
    sandbox.trimtab("replay --check").arg(&trace).ends().ok();
}

#[test]
fn a_killed_balancer_leaves_a_program_that_runs_and_can_be_given_its_masks() {
    let [a, b] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let whole = BTreeSet::from([a, b]);
    for by in ["detach", "detach --all", "run"] {
        let trace = sandbox.path("trace.jsonl");
        let options = format!("--cpus {a},{b} --balance=pinned --interval 5ms --trace {}", trace.display());
        // Its input must stay open after its parent has ended.
        let mut running = sandbox.run(&options).sh(&format!("echo $$; exec {} 2", spins.display())).begins();
        let program: u32 = running.lines(2)[0].parse().unwrap();
        let orphan = Orphan::of(&program.to_string());
        eventually("threads are moved", || {
            let decided = text(&trace).matches("\"confine\"").count();
            decided >= 2 && workers_are_bound(program)
        });
        // Kills the guardian, too, like a kill of the whole control group.
        crate::guardian::kill_with_guardian(&running);
        eventually("we are gone", || !running.lives());
        assert!(workers_are_bound(program));
        match by {
            "detach" => {
                let said = sandbox.trimtab(&format!("detach {program}")).ends().ok();
                assert!(said.contains(" threads have their own masks again"), "{said}");
            }
            "detach --all" => assert!(crate::serve::ask(&sandbox, by).ends().ok().contains(" threads")),
            _ => _ = sandbox.run("--share -c 1").arg("true").ends().ok(),
        }
        assert!(masks(program).iter().all(|mask| *mask == whole), "{by}: {:?}", masks(program));
        // The trace of a killed run is complete up to its last line.
        let replayed = sandbox.trimtab("replay").arg(&trace).ends();
        assert_eq!(replayed.code, Some(0), "{replayed}");
        drop(orphan);
        drop(running);
        sandbox.until_free();
    }
}

#[test]
fn a_run_can_be_asked_to_stop_balancing_and_continues() {
    let [a, b] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let options = format!("--cpus {a},{b} --balance=pinned --interval 5ms");
    let mut running = sandbox.run(&options).arg(&spins).arg("2").begins();
    running.line();
    let program = child(running.pid());
    eventually("threads are moved", || workers_are_bound(program));
    let said = sandbox.trimtab(&format!("detach {program}")).ends().ok();
    assert!(said.contains("was asked to stop"), "{said}");
    let whole = BTreeSet::from([a, b]);
    eventually("threads have their masks", || masks(program).iter().all(|mask| *mask == whole));
    assert!(running.lives());
    assert_eq!(running.ends().code, Some(9));
    let again = sandbox.trimtab(&format!("detach {program}")).ends();
    again.fails(2, &["there is no process"]);
}

#[test]
fn a_program_that_sets_its_own_masks_is_respected() {
    need!(two(), "two cores are needed");
    let own = need!(c("own_mask.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let plain = sandbox.run("-c 2").arg(&own).ends();
    let balanced = sandbox.run("-c 2 --balance=speed --interval 1ms").arg(&own).ends();
    assert_eq!((balanced.code, balanced.stderr.as_str()), (plain.code, ""), "{balanced}");
}

#[test]
fn a_storm_of_threads_is_weathered() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    for policy in ["auto", "speed", "pinned"] {
        let options =
            format!("-c 2 --or-fewer --balance={policy} --interval 1ms --report=report-{policy}.json");
        let mut running = sandbox.run(&options).arg(&spins).args(["2", "10000"]).begins();
        running.line();
        let outcome = running.ends();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(9), ""), "{outcome}");
    }
}

#[test]
fn programs_of_every_kind_are_balanced_or_left_alone() {
    let sandbox = Sandbox::new();
    let options = "-c 2 --or-fewer --balance --interval 1ms";
    let said =
        sandbox.run(options).sh("for i in 1 2 3; do sh -c 'sleep 0.02' & done; wait; echo done").ends();
    assert_eq!(said.ok(), "done");
    if let Some(hello) = built("cc", "seen.c", &["-static"]) {
        assert_eq!(sandbox.run(options).arg(hello).ends().code, Some(0));
    }
    if installed("make").is_some() {
        sandbox.write("Makefile", "all: a b\na b:\n\t@sleep 0.02; echo $@\n");
        let said = sandbox.run(options).args(["make", "-s", "-j2"]).ends().ok();
        assert_eq!(said.lines().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b"]));
    }
    let Some(go) = installed("go") else { return skip("go is not installed") };
    let source = sandbox.write(
        "spin.go",
        "package main\nimport (\"fmt\"; \"sync\")\nfunc main() { var w sync.WaitGroup; for i := 0; i < 4; i++ { w.Add(1); \
         go func() { defer w.Done(); s := 0; for j := 0; j < 20000000; j++ { s += j } }() }; w.Wait(); fmt.Println(\"done\") }\n",
    );
    let built = Command::new(go)
        .args(["build", "-o"])
        .arg(sandbox.path("spin"))
        .arg(source)
        .env("HOME", sandbox.path("home"))
        .env("GOFLAGS", "-mod=mod")
        .output();
    match built {
        Ok(output) if output.status.success() => {
            assert_eq!(sandbox.run(options).arg(sandbox.path("spin")).ends().ok(), "done");
        }
        _ => skip("go builds nothing here"),
    }
}

#[test]
fn runs_inside_runs_and_ranks_are_balanced() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let inner = "$T run --survey none --balance=speed -- sh -c 'sleep 0.05; echo in; exit 4'; echo $?";
    assert_eq!(sandbox.run("-c 2 --balance=speed").sh(inner).ends().ok(), "in\n4");
    let mpirun = need!(installed("mpirun"), "mpirun is not installed");
    let script = "exec \"$1\" --allow-run-as-root --oversubscribe -n 2 --bind-to none \"$T\" run --survey none -c 2 \
                  --balance=speed --interval 5ms -- sh -c 'sleep 0.1; echo rank'";
    let outcome = sandbox.shell(script).arg("sh").arg(mpirun).ends();
    assert_eq!((outcome.code, outcome.out().as_str()), (Some(0), "rank\nrank"), "{outcome}");
    sandbox.until_free();
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_program() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run("-c 1 --trace /dev/full").sh("sleep 0.1; echo ran; exit 3").ends();
    assert_eq!((outcome.code, outcome.out().as_str()), (Some(3), "ran"), "{outcome}");
    assert_eq!(outcome.stderr.matches("warning: the trace ends here: /dev/full").count(), 1, "{outcome}");
    // A disk with little room: an incomplete last line is removed, so that every line is whole.
    if !rustix::process::geteuid().is_root() {
        return skip("only root can mount a small file system");
    }
    let disk = sandbox.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=32k", "none"]).arg(&disk).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("nothing can be mounted here");
    }
    let trace = disk.join("t.jsonl");
    let options = format!("-c 1 --trace {} --interval 1ms", trace.display());
    let running = sandbox.run(&options).sh("cat; exit 3").begins();
    eventually("it is full", || running.errors().contains("the trace ends here"));
    let outcome = running.ends();
    let replayed = sandbox.trimtab("replay --check").arg(&trace).ends();
    let _ = Command::new("umount").arg(&disk).status();
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(3), 1), "{outcome}");
    assert_eq!((replayed.code, replayed.stderr.as_str()), (Some(0), ""), "{replayed}");
}

#[test]
fn a_report_says_where_threads_were() {
    let [a, b] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    for (option, json) in [
        ("--report", false),
        ("--report=text", false),
        ("--report=json", true),
        ("--report=r.txt", false),
        ("--report=r.json", true),
    ] {
        let mut running = sandbox.run(&format!("--cpus {a},{b} {option}")).arg(&spins).arg("2").begins();
        running.line();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let outcome = running.ends();
        assert_eq!(outcome.code, Some(9), "{outcome}");
        let said = match option.strip_prefix("--report=r.") {
            Some(end) => {
                assert_eq!(outcome.stderr, "");
                text(&sandbox.path(&format!("r.{end}")))
            }
            None => outcome.stderr.clone(),
        };
        if !json {
            assert!(said.contains("balance ") && said.contains("RAN ON") && said.contains("spins"), "{said}");
            continue;
        }
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!(report["schema"], "trimtab.audit/1");
        let threads = report["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 3, "{said}");
        let shares = |thread: &Value| {
            let cpus = thread["cpus"].as_array().unwrap().clone();
            cpus.iter().map(|pair| pair[1].as_f64().unwrap()).sum::<f64>()
        };
        for thread in threads {
            assert!(thread["run"].is_u64() && thread["wait_share"].as_f64().is_none_or(|share| share <= 1.0));
            assert!(thread["cpus"].as_array().unwrap().is_empty() || (shares(thread) - 1.0).abs() < 1e-6);
        }
        let cpus: Vec<u64> =
            report["cpus"].as_array().unwrap().iter().map(|cpu| cpu["cpu"].as_u64().unwrap()).collect();
        assert_eq!(cpus, [u64::from(a), u64::from(b)]);
        assert!(report["balance"].as_f64().is_some_and(|balance| (0.0..=1.0).contains(&balance)), "{said}");
        assert!(report["covered"].as_f64().is_some_and(|share| share > 0.0), "{said}");
    }
}

#[test]
fn a_report_leaves_threads_where_a_run_puts_them() {
    let [a, b] = need!(two(), "two cores are needed");
    let pthreads = need!(c("pthreads.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let options = format!("--cpus {a},{b}");
    let plain = sandbox.run(&options).arg(&pthreads).ends();
    let reported = sandbox.run(&format!("{options} --report=r.txt")).arg(&pthreads).ends();
    assert_eq!((reported.code, placed(&reported.out())), (plain.code, placed(&plain.out())));
}

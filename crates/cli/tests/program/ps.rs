//! `trimtab ps`.

use crate::util::{Sandbox, built, eventually, installed, need, python, text, two};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Display;
use std::path::{Path, PathBuf};

#[test]
fn without_runs_ps_shows_no_holds() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.trimtab("ps").ends().ok(), "no run holds any core");
    let ps = sandbox.ps();
    assert_eq!(ps["schema"], "trimtab.ps/1");
    assert!(ps["holds"].as_array().unwrap().is_empty() && ps["ledger"].is_null(), "{ps}");
    assert!(std::fs::read_dir(sandbox.path("ledger")).unwrap().next().is_none(), "looking made a ledger");
}

#[test]
fn the_table_shows_the_process_and_cpus_of_each_hold() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let first = sandbox.hold(&format!("--cpus {a}"));
    let second = sandbox.hold(&format!("--share --cpus {b}"));
    let table = sandbox.trimtab("ps").ends().ok();
    let lines: Vec<&str> = table.lines().collect();
    let headings: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(headings, ["CPUS", "USER", "PID", "AGE", "LOAD", "HOLD", "COMMAND"]);
    for (line, cpu, run, mode) in [(lines[1], a, &first, "exclusive"), (lines[2], b, &second, "shared")] {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            (cells[0], cells[2], cells[5], cells[6]),
            (cpu.to_string().as_str(), run.pid().to_string().as_str(), mode, "sh"),
            "{table}"
        );
        assert!(cells[3].ends_with('s') && (cells[4].ends_with('%') || cells[4] == "-"), "{table}");
    }
    let ps = sandbox.ps();
    let hold = &ps["holds"][0];
    for key in
        ["cpus", "level", "mode", "user", "uid", "pid", "standing", "age_s", "load_permille", "command"]
    {
        assert!(hold.get(key).is_some(), "{key}: {ps}");
    }
    assert!(ps["ledger"].as_str().unwrap().ends_with(".locks"), "{ps}");
}

/// A cpuset of the kernel's, as Slurm makes it for a job; removed when the test ends.
struct SlurmJob {
    group: PathBuf,
}

impl SlurmJob {
    /// Makes the group; `None` without a hierarchy of cpusets or without the right to use it.
    fn new(cpu: impl Display) -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/cpuset/slurm/uid_0");
        let v2 = Path::new("/sys/fs/cgroup/system.slice/slurmstepd.scope");
        let parent = if v1.ancestors().nth(2)?.is_dir() { v1 } else { v2 };
        let group = parent.join("job_4242");
        std::fs::create_dir_all(&group).ok()?;
        let job = Self { group };
        let list = |group: &Path, cpus: &str| std::fs::write(group.join("cpuset.cpus"), cpus).ok();
        if parent == v1 {
            // In version 1 a group's CPUs must be among those of the groups above it.
            let all = std::fs::read_to_string(v1.ancestors().nth(2)?.join("cpuset.cpus")).ok()?;
            list(parent.parent()?, all.trim())?;
            list(parent, all.trim())?;
        }
        list(&job.group, &cpu.to_string())?;
        Some(job)
    }
}

impl Drop for SlurmJob {
    fn drop(&mut self) {
        for folder in self.group.ancestors().take(3) {
            // Folders that others use stay.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

#[test]
fn cpus_that_slurm_granted_to_a_job_are_held() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let job = need!(SlurmJob::new(b), "a cpuset that this user may make is needed");
    let grant = format!("Slurm granted CPUs {b} to job 4242");
    let table = sandbox.trimtab("ps").ends().ok();
    assert_eq!(table, format!("no run holds any core\nheld too: {grant}"));
    let granted = serde_json::json!([{ "manager": "slurm", "to": "job 4242", "cpus": b.to_string() }]);
    assert_eq!(sandbox.ps()["granted"], granted);

    let plan = sandbox.plan(&format!("--cpus {a},{b} -c 1"));
    assert_eq!(plan["plan"]["mask"], a.to_string(), "{plan}");
    let refused = sandbox.run(&format!("--cpus {b}")).arg("true").ends();
    assert_eq!(refused.code, Some(124), "{refused}");
    assert!(refused.stderr.contains("held by others"), "{refused}");
    let said = sandbox.run(&format!("-v --share --cpus {b}")).arg("true").ends();
    assert!(said.code == Some(0) && said.stderr.contains(&grant), "{said}");

    // A hold does not grow into the grant.
    let run = sandbox.hold(&format!("--cpus {a}"));
    let grown = sandbox.trimtab(&format!("resize {} -c 2 --survey none", run.pid())).ends();
    let kept = a.to_string();
    assert!(grown.code != Some(0) && sandbox.ps()["holds"][0]["cpus"] == kept.as_str(), "{grown}");
    drop(run);

    // The run waits for the end of the job.
    let waiting = sandbox.run(&format!("--wait --cpus {b}")).arg("true").begins();
    eventually("a run waits", || sandbox.ps()["waiting"] == 1);
    drop(job);
    waiting.ends().ok();
}

#[test]
fn the_map_marks_held_cores() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold(&format!("--cpus {a}"));
    let map = sandbox.trimtab("ps --map").ends().ok();
    assert!(map.contains("H held"), "{map}");
}

#[test]
fn waiting_runs_are_counted() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 2");
    let waiters = [1, 2].map(|_| sandbox.run("--wait -c 1").arg("true").begins());
    eventually("both wait", || sandbox.ps()["waiting"] == 2);
    assert!(sandbox.trimtab("ps").ends().ok().contains("2 waiting for cores"));
    held.ends().ok();
    for waiter in waiters {
        waiter.ends().ok();
    }
}

#[test]
fn a_daemon_of_an_ended_run_is_no_violator_and_a_foreign_group_is_one_line() {
    let [a, _] = need!(two(), "two cores are needed");
    need!(installed("setsid"), "no setsid");
    let python = need!(python(), "no Python");
    let sandbox = Sandbox::alone();
    // Daemons without a living parent: a has the hold and its name, b only the name, c only the
    // hold. Workers have neither: d is the child of the daemon s, and e of its session only.
    let closes = sandbox.path("shared").join("closes.py");
    let source = "import os, sys\nos.closerange(3, 4096)\nprint(os.getpid(), file=open(sys.argv[1], 'w'))\n\
                  os.close(1)\nos.execvp('sleep', ['sleep', '600'])\n";
    std::fs::write(&closes, source).unwrap();
    let closes = format!("{} -S {}", python.display(), closes.display());
    let script = format!(
        "cd {}; (setsid sh -c 'echo $$ >a; exec sleep 600 >&-' &); (setsid {closes} b &); \
         (setsid env -u TRIMTAB_HOLD sh -c 'echo $$ >c; exec sleep 600 >&-' &); \
         (setsid sh -c 'env -u TRIMTAB_HOLD {closes} d & (env -u TRIMTAB_HOLD {closes} e &); \
         echo $$ >s; exec sleep 600 >&-' &); echo up; exec cat",
        sandbox.path("shared").display(),
    );
    let mut running = sandbox.run(&format!("--cpus {a}")).sh(&script).begins();
    running.line();
    let daemon = |name: &str| -> u32 {
        let pid = || text(&sandbox.path("shared").join(name)).trim().parse::<u32>().ok();
        let sleeps = |pid: u32| text(Path::new(&format!("/proc/{pid}/comm"))).trim() == "sleep";
        eventually("the daemon sleeps", || pid().is_some_and(sleeps));
        pid().unwrap()
    };
    let daemons = ["a", "b", "c", "d", "e", "s"].map(daemon);
    let strangers = "sleep 600 & a=$!; sleep 600 & b=$!; echo $$ $a $b; cat; kill $a $b";
    let mut strangers = sandbox.shell(&format!("exec taskset -c {a} sh -c '{strangers}'")).begins();
    let group: Vec<u32> = strangers.line().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let (ps, said) = (sandbox.ps(), sandbox.trimtab("ps").ends().ok());
    for daemon in &daemons {
        let _ = kill_process(Pid::from_raw(i32::try_from(*daemon).unwrap()).unwrap(), Signal::KILL);
    }
    strangers.ends().ok();
    let violators = ps["violators"].as_array().unwrap();
    for daemon in &daemons {
        assert!(violators.iter().all(|violator| violator["pid"] != *daemon), "{daemon}: {ps}");
    }
    let of_strangers: Vec<_> =
        violators.iter().filter(|violator| group.iter().any(|pid| violator["pid"] == *pid)).collect();
    assert_eq!(of_strangers.len(), 1, "{group:?}: {ps}");
    assert!(of_strangers[0]["others"].as_u64() >= Some(2), "{ps}");
    assert!(said.contains("more of its process group are bound to CPUs"), "{said}");
}

#[test]
fn the_budget_of_a_run_shows_who_computes_and_what_was_refused() {
    need!(two(), "two cores are needed");
    let program = need!(built("gcc", "asks.c", &["-O2", "-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    // A team that asks for three threads, of a program in a run of two cores, looks from inside.
    let looks = "$T ps --json; echo; $T top --json -i 200ms $$; echo; $T ps; $T top --once -i 200ms $$";
    let script = format!("export LOOKS; OMP_NUM_THREADS=3 {} \"$LOOKS; exit 1\"; echo $$", program.display());
    let told = sandbox.run("-c 2 --fit budget").env("LOOKS", looks).sh(&script).ends().ok();
    let mut documents = serde_json::Deserializer::from_str(&told).into_iter::<serde_json::Value>();
    let run = told.lines().last().unwrap();
    for name in ["ps", "top"] {
        let document = documents.next().unwrap().unwrap();
        let hold = &document["holds"][0];
        assert_eq!(hold["pid"].to_string(), run, "{name}: {document}");
        let budget = &hold["budget"];
        let number = |field: &str| budget[field].as_u64().unwrap_or_else(|| panic!("{field}: {document}"));
        assert_eq!((number("cores"), number("teams"), number("bounded")), (2, 1, 1), "{document}");
        // The shell may count as a process that computes, just after it has started.
        let computing = number("computing");
        assert!((1..=2).contains(&computing), "{document}");
        assert_eq!(number("refused"), 3 - computing, "{document}");
        number("lent");
        let processes = budget["processes"].as_array().unwrap();
        assert_eq!(processes.len(), 1, "{document}");
        assert_eq!(
            (&processes[0]["computing"], &processes[0]["wants"]),
            (&computing.into(), &3.into()),
            "{document}"
        );
    }
    let lines: Vec<&str> =
        told.lines().filter(|line| line.starts_with(&format!("budget of pid {run}: "))).collect();
    assert_eq!(lines.len(), 2, "{told}");
    for line in lines {
        assert!(
            line.contains(" of 2 threads compute (pid ") && line.contains("1 smaller than asked"),
            "{line}"
        );
    }
    // A run without a budget has none.
    let _other = sandbox.hold("-c 1");
    assert!(sandbox.ps()["holds"][0].get("budget").is_none());
}

#[test]
fn commands_cannot_play_tricks_with_the_terminal() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut running = sandbox
        .run(&format!("--cpus {a}"))
        .sh("echo up; exec cat; : \x1b[2J\r\nforged row\t\u{202e}")
        .begins();
    running.line();
    let table = sandbox.trimtab("ps").ends().ok();
    assert!(!table.contains('\x1b') && !table.contains('\r'), "{table:?}");
    let rows = table.lines().filter(|line| !line.starts_with("warning: "));
    assert_eq!(rows.count(), 2, "a command makes one row: {table:?}");
}

#[test]
fn a_long_command_is_cut_and_not_lost() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let long = "\u{e9}".repeat(5_000);
    let mut running =
        sandbox.run(&format!("--cpus {a}")).sh(&format!("echo up; exec cat; : {long}")).begins();
    running.line();
    let ps = sandbox.ps();
    let command = ps["holds"][0]["command"].as_str().unwrap();
    assert!(command.starts_with("sh -c echo up; exec cat; : ") && command.len() < 5_000, "{ps}");
}

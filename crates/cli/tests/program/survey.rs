//! Programs outside the ledger: bound and busy ones. These tests need the machine for themselves;
//! on a busy machine they retry until a quiet moment, or report that there was none.

use crate::util::{MASK, Sandbox, eventually, installed, need, skip, text, two};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that computes without end, on one CPU if requested. Killed when dropped.
struct Stranger(Child);

impl Stranger {
    fn on(cpu: Option<u32>) -> Option<Self> {
        let spin = ["sh", "-c", "while :; do :; done"];
        let mut command = match cpu {
            Some(cpu) => {
                let mut command = Command::new(installed("taskset")?);
                command.args(["-c", &cpu.to_string()]).args(spin);
                command
            }
            None => {
                let mut command = Command::new(spin[0]);
                command.args(&spin[1..]);
                command
            }
        };
        let stranger = Self(command.stdin(Stdio::null()).spawn().unwrap());
        let comm = format!("/proc/{}/comm", stranger.0.id());
        eventually("it computes", || text(comm.as_ref()) == "sh\n");
        Some(stranger)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn full(sandbox: &Sandbox, options: &str) -> Value {
    serde_json::from_str(&sandbox.trimtab(&format!("plan --survey full --json {options}")).ends().ok())
        .unwrap()
}

fn has(list: &Value, cpu: u32) -> bool {
    crate::util::cpus(list.as_str().unwrap()).contains(&cpu)
}

/// Samples until the machine is in the state that a test needs.
fn quiet_moment(mut look: impl FnMut() -> Option<bool>) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(8) {
        if let Some(right) = look() {
            assert!(right);
            return;
        }
    }
    skip("other programs on this machine leave no quiet moment");
}

#[test]
fn a_cpu_with_a_bound_foreign_task_is_avoided() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let stranger = need!(Stranger::on(Some(a)), "taskset is not installed");
    quiet_moment(|| {
        let plan = full(&sandbox, "-c 1 --explain");
        // Whatever else runs: the test's own process is seen.
        if has(&plan["taken"]["pinned"], b) || !has(&plan["taken"]["pinned"], a) {
            return None;
        }
        let why = plan["explanation"].to_string();
        Some(
            plan["plan"]["mask"].as_str() == Some(&b.to_string())
                && why.contains(&format!("avoided CPUs {a}: other programs are bound to them")),
        )
    });
    // No other CPU is left: then it is used, and reported.
    let plan = full(&sandbox, "-c 2");
    assert_eq!(plan["plan"]["mask"].as_str().map(crate::util::cpus), Some([a, b].into()));
    drop(stranger);
}

#[test]
fn a_run_avoids_it_too() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let _stranger = need!(Stranger::on(Some(a)), "taskset is not installed");
    quiet_moment(|| {
        let free = |plan: &Value| has(&plan["taken"]["pinned"], a) && !has(&plan["taken"]["pinned"], b);
        let before = free(&full(&sandbox, "-c 1"));
        let mask = sandbox.trimtab("run -c 1 --").sh(MASK).ends().ok();
        (before && free(&full(&sandbox, "-c 1"))).then_some(mask == b.to_string())
    });
}

#[test]
fn one_survey_finds_held_pinned_and_busy_cpus() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let _stranger = need!(Stranger::on(Some(a)), "taskset is not installed");
    let _held = sandbox.hold(&format!("--cpus {b}"));
    let plan = full(&sandbox, "-c 1");
    assert!(has(&plan["taken"]["held"], b), "{plan}");
    assert_eq!(plan["plan"]["mask"], a.to_string(), "a held CPU is worse than one in use: {plan}");
    let text = sandbox.trimtab("plan --survey full -c 1 --explain --map").ends().ok();
    assert!(text.contains(&format!("avoided CPUs {b}: they are held for other programs")), "{text}");
    assert!(text.contains(&format!("uses CPUs {a} although")), "{text}");
    let topo = sandbox.trimtab("topo").ends().ok();
    assert!(topo.contains("held"), "{topo}");
}

#[test]
fn busy_cpus_are_seen_and_come_after_idle_ones() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let _stranger = Stranger::on(None);
    quiet_moment(|| {
        let plan = full(&sandbox, "-c 1");
        let load = |cpu: u32| plan["taken"]["busy"].get(cpu.to_string()).and_then(Value::as_u64).unwrap_or(0);
        if !plan["taken"]["pinned"].as_str().unwrap().is_empty()
            || (load(a) < 900) == (load(b) < 900)
            || load(a).min(load(b)) > 100
        {
            return None;
        }
        let idle = if load(a) < load(b) { a } else { b };
        Some(plan["plan"]["mask"].as_str() == Some(&idle.to_string()))
    });
}

#[test]
fn survey_none_examines_nothing() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let _stranger = need!(Stranger::on(Some(a)), "taskset is not installed");
    let plan = sandbox.plan("-c 1");
    assert_eq!(
        (plan["taken"]["pinned"].as_str(), plan["plan"]["mask"].as_str()),
        (Some(""), Some(a.to_string().as_str()))
    );
    assert!(plan["explanation"].to_string().contains("--survey none"), "{plan}");
}

#[test]
fn ps_names_programs_that_run_on_held_cores() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let stranger = need!(Stranger::on(Some(a)), "taskset is not installed");
    let _held = sandbox.hold(&format!("--cpus {a},{b}"));
    let ps = sandbox.ps();
    let violators = ps["violators"].as_array().unwrap();
    let ours = violators.iter().find(|violator| violator["pid"] == stranger.0.id());
    let ours = ours.unwrap_or_else(|| panic!("it is not named: {ps}"));
    assert_eq!(
        (ours["cpus"].as_str(), ours["command"].as_str()),
        (Some(a.to_string().as_str()), Some("sh")),
        "{ps}"
    );
    let text = sandbox.trimtab("ps").ends().ok();
    assert!(text.contains(&format!("warning: sh (pid {}, ", stranger.0.id())), "{text}");
    // The holder's own processes are not violators.
    let holder = ps["holds"][0]["pid"].clone();
    assert!(violators.iter().all(|violator| violator["pid"] != holder), "{ps}");
}

#[test]
fn ps_recognises_a_holder_in_a_container() {
    let [a, _] = need!(two(), "two cores are needed");
    let unshare = need!(installed("unshare"), "unshare(1) is not installed");
    let words = ["--pid", "--fork", "--mount-proc"];
    let works = std::process::Command::new(&unshare).args(words).arg("true").output();
    need!(
        works.is_ok_and(|done| done.status.success()).then_some(()),
        "no process-id namespace can be made here"
    );
    let sandbox = Sandbox::alone();
    let through: Vec<_> = [unshare.to_str().unwrap()].into_iter().chain(words).collect();
    let mut inside =
        sandbox.run(&format!("--cpus {a}")).sh("sleep 600 & echo up; exec cat").through(through).begins();
    inside.line();
    let ps = sandbox.ps();
    assert_eq!(ps["holds"][0]["standing"], "in a container", "{ps}");
    let violators = ps["violators"].as_array().unwrap();
    let ours =
        violators.iter().filter(|violator| ["cat", "sleep"].map(Value::from).contains(&violator["command"]));
    assert_eq!(ours.count(), 0, "{ps}");
    inside.ends().ok();
}

#[test]
fn a_start_beside_others_gets_their_load_from_an_earlier_start() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::alone();
    let _stranger = Stranger::on(None);
    let explained = || sandbox.trimtab("plan -c 1 --explain").ends().ok();
    // The first start has no counters and searches for the running tasks.
    let first = explained();
    assert!(first.contains("running tasks: no counters of the last 10 s are known"), "{first}");
    eventually("counters are old enough", || explained().contains("by counters of an earlier start"));
    // A file that anybody may have written is no reason to fail.
    for entry in std::fs::read_dir(sandbox.path("ledger")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".holders") {
            let file = std::fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 1 << 20], 1 << 32).unwrap();
        }
    }
    let told = explained();
    assert!(told.contains("no counters of the last 10 s are known"), "{told}");
}

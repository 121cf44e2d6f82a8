//! Tests of the monitor of a run without a front end. They do not use the usual runner: a process
//! with more than one thread cannot fork a second one here, so each case is a process of its own.

#![allow(clippy::disallowed_methods, reason = "a test is its own front end")]
#![allow(clippy::print_stdout, reason = "one line for each case")]
#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[path = "fixtures/lines.rs"]
mod lines;

use lines::Lines;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use trimtab_agent::monitor::announcement::{announce, retract};
use trimtab_agent::monitor::{MonitorOptions, MonitorOutputs, Monitored, MonitoredRun, stay};
use trimtab_agent::monitored_host::CountingOptions;
use trimtab_agent::narrator::{Narrator, Severity};
use trimtab_agent::paths::Paths;
use trimtab_agent::recorder::Recorder;
use trimtab_agent::sync_report::SyncPage;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_core::topology::{Machine, parse_synthetic};
use trimtab_linux::child::{self, End, Two, Word};
use trimtab_linux::program::Program;
use trimtab_linux::sys::affinity;

/// Variable that tells this program which case it is.
const CASE: &str = "TRIMTAB_TEST_CASE";

/// Script that computes for some tenths of a second.
const WORK: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3";

type TestCase = (&'static str, fn());

const CASES: [TestCase; 3] = [
    ("a_run_is_audited_profiled_and_recorded", a_run_is_audited_profiled_and_recorded),
    ("a_program_that_does_not_begin_has_no_record", a_program_that_does_not_begin_has_no_record),
    ("a_program_that_a_signal_ends_has_a_record", a_program_that_a_signal_ends_has_a_record),
];

fn main() {
    if let Some(case) = std::env::var_os(CASE) {
        let (_, run) = CASES.iter().find(|(name, _)| *name == case).unwrap();
        return run();
    }
    let begin = Instant::now();
    for (name, _) in CASES {
        let own = std::env::current_exe().unwrap();
        let status = Command::new(own).env(CASE, name).status().unwrap();
        assert!(status.success(), "{name}: {status}");
        println!("test {name} ... ok");
    }
    // In the words of the usual runner, so that these are counted and timed with all others.
    let seconds = begin.elapsed().as_secs_f64();
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; finished in {seconds:.2}s\n", CASES.len());
}

/// Returns a machine that has all CPUs of this process, in one package.
fn machine(usable: &CpuSet) -> Machine {
    let cpus = usable.iter().map(|cpu| cpu.0 + 1).max().unwrap();
    parse_synthetic(&format!("pack:1 core:{cpus} pu:1")).unwrap()
}

/// Monitors a program with the policy that only watches; `child` runs in the child process.
fn monitored(folder: &Path, child: fn(Word, &CpuSet) -> !) -> (Monitored, Arc<Lines>) {
    let usable = affinity::get(None).unwrap();
    let paths = Paths { root: "/".into(), ledger: Some(folder.to_owned()), ..Paths::default() };
    let options = MonitorOptions {
        kind: Kind::Float,
        settings: Settings::of(Kind::Float),
        at_leisure: true,
        counting: CountingOptions::default(),
        audits: true,
        profile: Some(Setting::default()),
        preempt: None,
    };
    let outputs = MonitorOutputs {
        recorder: Some(Recorder::open("--trace", &folder.join("trace.jsonl")).unwrap()),
        metrics: None,
        sync: Some(SyncPage::create(false)),
    };
    let run = MonitoredRun {
        machine: machine(&usable),
        label: "sh -c work".to_owned(),
        program: Program::look(Path::new("/bin/sh"), None).unwrap(),
        unreached: vec!["barriers and collectives: nothing is preloaded here".to_owned()],
    };
    match child::two().unwrap() {
        Two::Program(word) => child(word, &usable),
        Two::Parent(program) => {
            let lines = Arc::new(Lines::default());
            let narrator: Arc<dyn Narrator> = Arc::clone(&lines) as _;
            (stay(&paths, program, options, outputs, &run, &narrator).unwrap(), lines)
        }
    }
}

/// Executes this script.
fn becomes(mut word: Word, usable: &CpuSet, script: &str) -> ! {
    announce(&mut word, usable, None);
    panic!("{}", Command::new("/bin/sh").args(["-c", script]).exec());
}

fn a_run_is_audited_profiled_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (run, lines) = monitored(folder.path(), |word, usable| becomes(word, usable, WORK));
    assert_eq!(run.end, End::Exited(3));
    let record = run.record.unwrap();
    let summary = record.summary.unwrap();
    assert!(summary.seconds > 0.0 && summary.looks > 0, "{summary:?}");
    let profile = record.profile.unwrap();
    assert_eq!(profile.program, "sh");
    assert_eq!(profile.cpus as usize, affinity::get(None).unwrap().len());
    assert!(profile.user.0 > 0 && profile.wall.0 > 0, "{profile:?}");
    assert_eq!(record.sync.unseen, ["barriers and collectives: nothing is preloaded here"]);
    let trace = std::fs::read_to_string(folder.path().join("trace.jsonl")).unwrap();
    assert!(trace.starts_with("{\"header\":"), "{trace}");
    assert!(
        trace.ends_with("{\"end\":{\"why\":\"the program ended with status 3\",\"status\":3}}\n"),
        "{trace}"
    );
    assert_eq!(lines.of(Severity::Warning), [""; 0]);
}

fn a_program_that_does_not_begin_has_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let (run, lines) = monitored(folder.path(), |mut word, usable| {
        announce(&mut word, usable, None);
        retract(&mut word);
        std::process::exit(126)
    });
    assert_eq!(run.end, End::Exited(126));
    assert!(run.record.is_none(), "{:?}", run.record);
    assert_eq!(lines.of(Severity::Warning), [""; 0]);
    assert!(!folder.path().join("trace.jsonl").exists(), "no trace of a run that did not begin");
}

fn a_program_that_a_signal_ends_has_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let (run, _) = monitored(folder.path(), |word, usable| becomes(word, usable, "sleep 0.1; kill -KILL $$"));
    assert_eq!(run.end, End::Killed(9));
    assert!(run.record.unwrap().profile.is_some());
    let trace = std::fs::read_to_string(folder.path().join("trace.jsonl")).unwrap();
    assert!(trace.contains("the program ended by signal 9"), "{trace}");
}

//! Tests of attach without a front end: options in, lines meanwhile, a trace at the end.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[path = "fixtures/lines.rs"]
mod lines;

use lines::Lines;
use std::process::{Child, Command};
use std::sync::Arc;
use trimtab_agent::attach::{AttachOptions, Attached};
use trimtab_agent::monitored_host::CountingOptions;
use trimtab_agent::narrator::{Narrator, Severity};
use trimtab_agent::paths::Paths;
use trimtab_agent::recorder::TraceTarget;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::time::Span;
use trimtab_core::topology::parse_synthetic;
use trimtab_linux::sys::affinity;

/// Process that computes, ended with the test.
struct Worker(Child);

impl Worker {
    fn start() -> Self {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        // The kernel lets the parent go on before the new program has its command line.
        let line = format!("/proc/{}/cmdline", child.id());
        while std::fs::read(&line).unwrap().is_empty() {
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn options(pids: Vec<u32>) -> AttachOptions {
    AttachOptions {
        pids,
        vms: Vec::new(),
        cgroup: None,
        policy: Kind::Float,
        settings: Settings::of(Kind::Float),
        counting: CountingOptions::default(),
        cpus: None,
        respect_masks: false,
        whole_machine: false,
        time: Some(Span::from_ms(400)),
        trace: None,
        metrics: None,
    }
}

/// Begins on a machine that has all CPUs of this process.
fn begin(paths: &Paths, options: AttachOptions, lines: &Arc<Lines>) -> anyhow::Result<Attached> {
    let cpus = affinity::get(None).unwrap().iter().map(|cpu| cpu.0 + 1).max().unwrap();
    let machine = move || Ok(parse_synthetic(&format!("pack:1 core:{cpus} pu:1")).unwrap());
    let narrator: Arc<dyn Narrator> = Arc::clone(lines) as _;
    Attached::begin(paths, options, machine, &narrator)
}

#[test]
fn programs_are_watched_until_the_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let paths = Paths { root: "/".into(), ledger: Some(folder.path().to_owned()), ..Paths::default() };
    let trace = folder.path().join("trace.jsonl");
    let worker = Worker::start();
    let lines = Arc::new(Lines::default());
    let options =
        AttachOptions { trace: Some(TraceTarget::File(trace.clone())), ..options(vec![worker.0.id()]) };
    let mut attached = begin(&paths, options, &lines).unwrap();
    let (mut steps, mut alive) = (0, 0);
    let watched = attached.watch(&mut |tally| {
        steps += 1;
        alive = tally.alive;
    });
    attached.finish(watched).unwrap();
    assert!(steps > 0 && alive == 1, "{steps} steps, {alive} threads");
    let told = lines.of(Severity::Headline);
    assert!(told[0].starts_with(&format!("float: process {} (sh -c", worker.0.id())), "{told:?}");
    assert!(told[1].starts_with("stopped: 0 moves"), "{told:?}");
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.ends_with("{\"end\":{\"why\":\"stopped\"}}\n"), "{trace}");
}

#[test]
fn a_process_that_is_not_there_is_refused_and_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let paths = Paths { root: "/".into(), ledger: Some(folder.path().to_owned()), ..Paths::default() };
    let trace = folder.path().join("trace.jsonl");
    let lines = Arc::new(Lines::default());
    let options = AttachOptions { trace: Some(TraceTarget::File(trace.clone())), ..options(vec![4_194_999]) };
    let Err(refused) = begin(&paths, options, &lines) else { panic!("there is no such process") };
    assert!(refused.to_string().contains("4194999"), "{refused}");
    assert!(!trace.exists());
}

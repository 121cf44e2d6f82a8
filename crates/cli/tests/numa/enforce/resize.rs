//! Enforced holds that are resized.

use super::bed::{ANN, BOB, allowed, bed, python, run, serve, until_enforced};
use crate::shape::Cpus;
use crate::util::eventually;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// A hold that grows or shrinks keeps exactly its CPUs.
#[test]
fn a_hold_that_is_resized_keeps_its_group() {
    let (homes, shape, sandbox) = given!(bed());
    let (held, mask) = run(&sandbox, &homes, ANN, "-c 1");
    let service = serve(&sandbox, "--enforce");
    until_enforced(&sandbox, &mask);
    sandbox.trimtab(&format!("resize {} -c 2", held.pid())).ends().warns(&["1 thread bound"]);
    let wider = sandbox.held();
    assert!(wider.len() > mask.len() && wider.is_superset(&mask));
    let rest: Cpus = shape.cpus().difference(&wider).copied().collect();
    eventually("its group is wider", || allowed(service.pid()) == rest && allowed(held.pid()) == wider);
    held.ends().ok();
    homes.end(service, &shape);
}

/// A change of a hold waits for the service. Other changes and starts do not wait for that.
#[test]
fn a_resize_that_waits_for_the_service_keeps_nobody_from_planning() {
    let (homes, shape, sandbox) = given!(bed());
    let service = serve(&sandbox, "--enforce");
    let (one, its) = run(&sandbox, &homes, ANN, "-c 1");
    let (two, theirs) = run(&sandbox, &homes, BOB, "-c 2");
    until_enforced(&sandbox, &its);
    until_enforced(&sandbox, &theirs);
    service.signal(Signal::STOP);
    let growing = sandbox.trimtab(&format!("resize {} -c 2", one.pid())).begins();
    eventually("it has the cores in the ledger", || sandbox.held().len() == 4);
    sandbox.trimtab(&format!("resize {} -c 1", two.pid())).ends().warns(&["1 thread bound"]);
    assert_eq!(sandbox.held().len(), 3);
    service.signal(Signal::CONT);
    growing.ends().warns(&["1 thread bound"]);
    assert_eq!((allowed(one.pid()).len(), allowed(two.pid()).len()), (2, 1));
    eventually("their groups follow", || allowed(service.pid()).len() == shape.cpus().len() - 3);
    one.ends().ok();
    two.ends().ok();
    homes.end(service, &shape);
}

/// A launch that was stopped while it plans does not keep the threads of a hold from the cores that
/// were added to it.
#[test]
fn a_resize_beside_a_planner_that_is_stopped_binds_the_threads() {
    let (homes, shape, sandbox) = given!(bed());
    let python = given!(python());
    let service = serve(&sandbox, "--enforce");
    let (one, its) = run(&sandbox, &homes, ANN, "-c 1");
    until_enforced(&sandbox, &its);
    let mut ledger = fs::read_dir(sandbox.path("ledger")).unwrap().map(|entry| entry.unwrap().path());
    let ledger = ledger.find(|path| path.extension().is_some_and(|end| end == "locks")).unwrap();
    // Waits for the rights to plan beside the hold and inside it.
    let script = "\
import fcntl, struct, sys
file = open(sys.argv[1], 'r+b')
print('ready', flush=True)
sys.stdin.readline()
for byte in map(int, sys.argv[2:]):
    fcntl.fcntl(file, 38, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, byte, 1, 0))
print('planning', flush=True)
sys.stdin.read()
";
    let mut planner = Command::new(python)
        .args(["-c", script, &ledger.to_string_lossy()])
        .args([1u64 << 32, (1 << 32) + 1].map(|byte| byte.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(planner.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    service.signal(Signal::STOP);
    let growing = sandbox.trimtab(&format!("resize {} -c 2", one.pid())).begins();
    eventually("it has the cores in the ledger", || sandbox.held().len() == 2);
    // The resize gives the rights back while it waits for the service.
    planner.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "planning");
    service.signal(Signal::CONT);
    growing.ends().warns(&["1 thread bound"]);
    assert_eq!(allowed(one.pid()), sandbox.held());
    drop(planner.stdin.take());
    planner.wait().unwrap();
    one.ends().ok();
    homes.end(service, &shape);
}

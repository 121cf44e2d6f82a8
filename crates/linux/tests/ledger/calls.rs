//! System calls of a launch: their number, and calls that it never makes.

use crate::actor;
use crate::scene::{MACHINE, Scene, us};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use trimtab_linux::ledger::Mode;

/// Returns the system calls of an actor that runs these commands, without those of reading
/// commands, answering and allocating.
fn calls(scene: &Scene, commands: &[&str]) -> Option<Vec<String>> {
    let trace = scene.root().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "200", "-o"]).arg(&trace).arg(std::env::current_exe().unwrap());
    command.args(["role", "--exact", "--nocapture", "--test-threads=1"]).env(actor::SCENE, scene.directory());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let mut input = child.stdin.take()?;
    writeln!(input, "{}", commands.join("\n")).ok()?;
    drop(input);
    if !child.wait().ok()?.success() {
        return None; // tracing is forbidden here
    }
    let trace = fs::read_to_string(trace).unwrap();
    let begin = trace.find("read(0, ").unwrap();
    let chatter = [
        "read(0,",
        "write(1,",
        "mmap(",
        "munmap(",
        "mprotect(",
        "brk(",
        "madvise(",
        "futex(",
        "exit_group(",
        "+++",
    ];
    let lines = trace[begin..].lines().filter(|line| !chatter.iter().any(|call| line.contains(call)));
    Some(lines.map(str::to_owned).collect())
}

#[test]
fn a_launch_takes_a_few_tens_of_system_calls_and_never_creates_existing_files() {
    let scene = Scene::new();
    drop(scene.ledger());
    let _others = [0, 8, 16].map(|cpu| {
        let cpus = format!("{}-{}", cpu, cpu + 3).parse().unwrap();
        scene.ledger().take(MACHINE, &cpus, Mode::Exclusive, &us("other", 0)).unwrap()
    });
    let Some(calls) = calls(&scene, &["open", "planner 0", "map", "take 20-27", "planned", "keep"]) else {
        eprintln!(
            "SKIPPED: a_launch_takes_a_few_tens_of_system_calls_and_never_creates_existing_files needs strace"
        );
        return;
    };
    assert!(calls.iter().any(|call| call.contains("F_OFD_SETLK")), "{calls:#?}");
    assert!(calls.len() <= 60, "{} calls: {calls:#?}", calls.len());
    assert!(!calls.iter().any(|call| call.contains("O_CREAT")), "{calls:#?}");
}

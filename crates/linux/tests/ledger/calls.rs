//! Which system calls a launch makes: how many, and which never.

use crate::actor;
use crate::scene::{HANG, MACHINE, Scene, cpus, us};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;
use trimtab_linux::ledger::{Ledger, Mode};

/// The system calls of an actor that does as told, without those of being told, answering and allocating.
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
fn a_launch_takes_a_few_tens_of_system_calls_and_never_creates_what_is_there() {
    let scene = Scene::new();
    drop(scene.ledger());
    let _others = [0, 8, 16].map(|cpu| {
        let cpus = format!("{}-{}", cpu, cpu + 3).parse().unwrap();
        scene.ledger().take(MACHINE, &cpus, Mode::Exclusive, &us("other", 0)).unwrap()
    });
    let Some(calls) = calls(&scene, &["open", "planner 0", "map", "take 20-27", "planned", "keep"]) else {
        eprintln!(
            "SKIPPED: a_launch_takes_a_few_tens_of_system_calls_and_never_creates_what_is_there needs strace"
        );
        return;
    };
    assert!(calls.iter().any(|call| call.contains("F_OFD_SETLK")), "{calls:#?}");
    assert!(calls.len() <= 60, "{} calls: {calls:#?}", calls.len());
    assert!(!calls.iter().any(|call| call.contains("O_CREAT")), "{calls:#?}");
}

#[test]
#[ignore = "a measurement: run alone, in release, with --nocapture"]
fn the_time_a_launch_spends_here() {
    let scene = Scene::new();
    let holder = us("measured", 0);
    drop(scene.ledger());
    for others in [0, 16] {
        let ledger = scene.ledger();
        let held = (0..others).map(|other| {
            let cpus = format!("{}-{}", other * 4, other * 4 + 2).parse().unwrap();
            ledger.take(MACHINE, &cpus, Mode::Exclusive, &holder).unwrap()
        });
        let _held: Vec<_> = held.collect();
        let mut spent: Vec<_> = (0..2000)
            .map(|_| {
                let begin = Instant::now();
                let ledger = Ledger::open(&scene.location()).unwrap();
                let planner = ledger.planner(MACHINE, HANG).unwrap();
                let map = ledger.map(MACHINE, &cpus()).unwrap();
                let wanted = cpus().difference(&map.held()).iter().take(4).collect();
                let mut held = ledger.take(MACHINE, &wanted, Mode::Exclusive, &holder).unwrap();
                drop(planner);
                let kept = held.lend().unwrap(); // as keep does, but given back
                let spent = begin.elapsed();
                drop(kept);
                spent
            })
            .collect();
        spent.sort();
        eprintln!("{others} other holds: median {:?}, 99 of 100 within {:?}", spent[1000], spent[1980]);
    }
}

//! `trimtab sim swarm` and `trimtab sim FILE --check`: seeds, files that run again, invariants that
//! hold, and refused options.

use crate::util::Sandbox;
use rustix::process::Signal;
use serde_json::Value;

const FINE: &str = "machine = 'core:2'\nkernel = 'linux-6.12'\npolicy = 'speed'\nend = '2 s'\n\
    [[program]]\nname = 'app'\nthreads = 3\nwork = '200 ms'\n";

fn last(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn the_seed_comes_first_and_any_number_of_jobs_gives_the_same() {
    let sandbox = Sandbox::new();
    let swarm = |jobs: u32| {
        let command = format!("sim swarm --small --seed 1 --runs 12 --jobs {jobs}");
        sandbox.lab(&command).ends().ok()
    };
    let one = swarm(1);
    assert!(one.starts_with("seed 1\n") && one.contains("no invariant was broken"), "{one}");
    assert_eq!(swarm(3), one);
    let json = sandbox.lab("sim swarm --small --seed 1 --runs 3 --json").ends().ok();
    assert_eq!(json.lines().count(), 2);
    let end = last(&json);
    assert_eq!((&end["schema"], &end["runs"]), (&"trimtab.sim.swarm/1".into(), &3.into()));
    assert!(end["failure"].is_null());
}

#[test]
fn without_a_seed_there_is_one_that_does_the_same_again() {
    let sandbox = Sandbox::new();
    let drawn = sandbox.lab("sim swarm --small --runs 1").ends();
    let text = drawn.out();
    let seed = text.lines().next().unwrap().strip_prefix("seed ").unwrap();
    let again = sandbox.lab(&format!("sim swarm --small --runs 1 --seed {seed}")).ends();
    assert_eq!(again.out(), text);
}

#[test]
fn a_scenario_is_checked_in_each_of_its_runs() {
    let sandbox = Sandbox::new();
    let path = sandbox.write("fine.toml", format!("{FINE}[sweep]\npolicy = ['none', 'speed', 'exchange']\n"));
    let told = sandbox.lab("sim --check").arg(&path).ends().ok();
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(told.lines().all(|line| line.contains("no invariant is broken")), "{told}");
    let json = sandbox.lab("sim --check --json").arg(&path).ends().ok();
    let end = last(&json);
    assert_eq!((&end["schema"], &end["run"]), (&"trimtab.sim.check/1".into(), &3.into()));
    assert_eq!(end["violations"], Value::Array(Vec::new()));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::new();
    for (command, word) in [
        ("sim swarm --seconds 0", "--seconds"),
        ("sim swarm --runs 0", "--runs"),
        ("sim swarm --jobs 0", "--jobs"),
        ("sim swarm --seed x", "--seed"),
        ("sim swarm --runs 1 --first 18446744073709551614", "9223372036854775807"),
        ("sim swarm --runs 1 --out /nowhere/at/all", "no such folder"),
        ("sim --check /nowhere.toml", "/nowhere.toml"),
        ("sim --check", "SCENARIO.toml"),
    ] {
        let told = sandbox.lab(command).ends();
        assert_eq!(told.code, Some(2), "{command}");
        assert!(told.stderr.contains(word), "{command}: {}", told.stderr);
    }
}

#[test]
fn ctrl_c_ends_it_with_the_count_so_far() {
    let sandbox = Sandbox::new();
    let mut running = sandbox.lab("sim swarm --small --seed 1 --seconds 600").begins();
    running.lines(1);
    running.signal(Signal::INT);
    let ended = running.ends();
    assert_eq!(ended.code, Some(130), "{ended}");
    let told = ended.out();
    assert!(told.contains(" events: no invariant was broken until the interruption"), "{told}");
    let mut running = sandbox.lab("sim swarm --small --seed 1 --seconds 600 --json").begins();
    running.lines(1);
    running.signal(Signal::INT);
    let ended = running.ends();
    let end = last(&ended.out());
    assert_eq!((&end["schema"], &end["complete"]), (&"trimtab.sim.swarm/1".into(), &false.into()));
    assert!(ended.code == Some(130) && end["failure"].is_null(), "{ended}");
}

#[test]
fn the_last_numbers_of_a_seed_come_to_an_end() {
    let sandbox = Sandbox::new();
    let told = sandbox.lab("sim swarm --small --seed 1 --runs 2 --first 9223372036854775807").ends();
    assert!(told.code.is_some_and(|code| code < 2), "{told}");
}

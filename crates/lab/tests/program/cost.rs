//! `trimtab bench cost`, with a small program in place of the real one. Only values that hold on
//! any machine are asserted. Also tests how often the service itself samples, which is the subject
//! of the benchmark.

use crate::util::{Call, Sandbox, c, eventually, masks, need, text, two};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

/// Runs the benchmark with this program.
fn bench<'s>(sandbox: &'s Sandbox, program: &Path, options: &str) -> Call<'s> {
    let folder = sandbox.path("programs");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(program, folder.join("uncore_lists")).unwrap();
    sandbox.lab(&format!("bench cost {options} --programs")).arg(folder)
}

fn lines(sandbox: &Sandbox, record: &str) -> Vec<Value> {
    let all = text(&sandbox.path("record"));
    let all = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["record"] == record).collect()
}

#[test]
fn cases_are_listed_and_an_unknown_one_is_refused() {
    let sandbox = Sandbox::new();
    let all = sandbox.lab("bench cost --list").ends().ok();
    for name in
        ["looks/float/uncounted/working/100", "looks/brm/", "budget/serial/", "/1000", "slowing/meetings"]
    {
        assert!(all.contains(name), "{all}");
    }
    let some = sandbox.lab("bench cost --list --only budget/brm --only slowing").ends().ok();
    assert_eq!(some.lines().count(), 6, "{some}");
    let call = sandbox.lab("bench cost --only nothing");
    call.ends().fails(2, &["no case's name contains nothing", "--list"]);
    let call = sandbox.lab("bench cost --budget 99%");
    call.ends().fails(2, &["0.01% to 50%"]);
}

#[test]
fn all_threads_are_sampled_and_the_cost_is_recorded() {
    need!(two(), "two cores are needed");
    let program = need!(c("crowd.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let options = "--quick --repeats 1 --budget 50% --only looks/float --only budget/brm --json record";
    let outcome = bench(&sandbox, &program, options).ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let page = outcome.out();
    let start = &lines(&sandbox, "start")[0];
    assert_eq!((&start["bench"], &start["tick_ns"]), (&"cost".into(), &10_000_000.into()));
    let counts = start["counters"] != "none";
    let runs = lines(&sandbox, "run");
    assert_eq!(runs.len(), 2 + 1 + usize::from(counts), "{runs:?}");
    for run in &runs {
        let toll = &run["toll"];
        let wanted = run["threads"].as_f64().unwrap();
        // The main thread is seen, too; a sample may fall into the end of the threads.
        assert!(toll["threads"].as_f64().unwrap() >= wanted, "{run}");
        assert!(toll["looks"].as_u64().unwrap() >= 5 && toll["worked"].as_u64().unwrap() > 0, "{run}");
        let counted = toll["counted"].as_f64().unwrap();
        assert_eq!(counted > 0.0, run["counted"].as_bool().unwrap(), "{run}");
    }
    let results = lines(&sandbox, "result");
    assert!(
        results.iter().all(|result| result["figures"]["share"]["samples"].as_array().unwrap().len() == 1)
    );
    assert!(results.iter().all(|result| result["met"].is_null()), "one sample judges nothing");
    assert_eq!(
        (&lines(&sandbox, "end")[0]["complete"], page.matches("float ").count()),
        (&true.into(), if counts { 2 } else { 1 })
    );
    assert!(page.contains("Budget of 50 % of one core") && page.contains("400 working"), "{page}");
}

#[test]
fn a_program_is_slowed_in_pairs_of_windows() {
    need!(two(), "two cores are needed");
    let program = need!(c("crowd.c"), "no C compiler");
    let sandbox = Sandbox::new();
    // With the usual budget, an unoptimised program on a busy machine samples too rarely to finish
    // its warm-up soon.
    let options = "--quick --repeats 1 --budget 50% --only slowing/cached --json record";
    let outcome = bench(&sandbox, &program, options).ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let run = &lines(&sandbox, "run")[0];
    let ways = run["windows"].as_object().unwrap();
    let counts = lines(&sandbox, "start")[0]["counters"] != "none";
    assert_eq!(ways.len(), if counts { 3 } else { 2 }, "{run}");
    assert!(ways.values().all(|windows| windows.as_array().unwrap().len() == 4), "{run}");
    // Every window of this program takes equally long.
    let looked = &lines(&sandbox, "result")[0]["figures"]["looked"];
    assert_eq!(looked["samples"], serde_json::json!([0.0]), "{looked}");
    assert!(outcome.out().contains("cached"), "{outcome}");
}

#[test]
fn a_failing_case_is_reported_and_costs_only_itself() {
    let program = need!(c("crowd.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let call = bench(&sandbox, &program, "--quick --repeats 3 --only slowing/memory").env("mute", "1");
    let outcome = call.ends();
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert_eq!(outcome.stderr.matches("it said: no memory").count(), 1, "{outcome}");
    assert!(outcome.stderr.contains("slowing/memory failed, see above"), "{outcome}");
    assert!(outcome.out().contains("2 runs failed"), "the third is not tried: {outcome}");
    let call = bench(&sandbox, &program, "--quick --repeats 1 --only slowing/memory").env("wrong", "1");
    let outcome = call.ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("its result is wrong"), "{outcome}");
    std::fs::remove_file(sandbox.path("programs/uncore_lists")).unwrap();
    let call = sandbox.lab("bench cost --programs programs");
    call.ends().fails(2, &["uncore_lists is not in", "make -C bench"]);
}

#[test]
fn a_signal_ends_it_and_no_thread_stays_bound_or_behind() {
    need!(two(), "two cores are needed");
    let program = need!(c("crowd.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let options = "--quick --repeats 100 --only looks/brm --json record";
    let running = bench(&sandbox, &program, options).begins();
    let mut child = None;
    eventually("a crowd is looked at", || {
        let children = format!("/proc/{0}/task/{0}/children", running.pid());
        child = text(Path::new(&children)).split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok());
        child.is_some_and(|child| masks(child).len() > 100)
    });
    running.signal(Signal::TERM);
    let outcome = running.ends();
    assert_eq!(outcome.code, Some(143), "{outcome}");
    assert!(outcome.out().contains("Stopped early"), "{outcome}");
    assert_eq!(lines(&sandbox, "end")[0]["complete"], false);
    let gone = child.unwrap();
    eventually("the crowd is gone", || !Path::new(&format!("/proc/{gone}")).exists());
}

#[test]
fn the_service_samples_at_the_interval_of_its_policy_unless_one_is_set() {
    let sandbox = Sandbox::new();
    for (words, interval) in [
        ("--policy brm", 10_000_000),
        ("--policy float", 100_000_000),
        ("--policy brm --interval 1s", 1_000_000_000),
    ] {
        let _ = std::fs::remove_file(sandbox.path("trace"));
        let socket = sandbox.path("shared/socket");
        let running = sandbox.trimtab(&format!("serve {words} --trace trace --socket")).arg(&socket).begins();
        // The first line is written after the signal handlers are installed.
        let header = || std::fs::read_to_string(sandbox.path("trace")).unwrap_or_default();
        eventually("the trace begins", || header().contains('\n'));
        running.signal(Signal::TERM);
        running.ends().ok();
        let header: Value =
            serde_json::from_str(text(&sandbox.path("trace")).lines().next().unwrap()).unwrap();
        let found = header.to_string().contains(&format!("\"interval\":{interval}"));
        assert!(found, "{words}: {header}");
    }
}

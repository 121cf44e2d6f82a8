//! `--mem`: the kernel's policy afterwards, and the messages if the kernel refuses.

use crate::util::{Call, Sandbox, c, chmod, eventually, installed, need, skip, two};
use std::collections::BTreeSet;
use std::fs;

/// Returns the policies in a program's own `numa_maps`; `None` on a kernel without NUMA.
fn policies(call: Call<'_>) -> Option<BTreeSet<String>> {
    if fs::metadata("/proc/self/numa_maps").is_err() {
        skip("this kernel has no NUMA");
        return None;
    }
    let maps = call.args(["cat", "/proc/self/numa_maps"]).ends().ok();
    Some(maps.lines().map(|line| policy(line).to_owned()).collect())
}

/// `7f00 interleave:0 anon=1` and `7f00 weighted interleave:0 anon=1`.
fn policy(line: &str) -> &str {
    let policy = line.split_once(' ').map_or("", |(_, rest)| rest);
    let words = if policy.starts_with("weighted ") || policy.starts_with("prefer (many)") { 2 } else { 1 };
    let end = policy.match_indices(' ').nth(words - 1).map_or(policy.len(), |(at, _)| at);
    &policy[..end]
}

#[test]
fn each_policy_is_the_kernels() {
    let sandbox = Sandbox::new();
    let node = sandbox.plan("-c 1")["plan"]["nodes"].as_str().unwrap().to_owned();
    for (option, wanted) in [
        ("none", "default".to_owned()),
        ("local", "local".to_owned()),
        ("bind", format!("bind:{node}")),
        (&format!("bind:{node}"), format!("bind:{node}")),
        ("interleave", format!("interleave:{node}")),
    ] {
        let Some(found) = policies(sandbox.run(&format!("-c 1 --mem {option}"))) else { return };
        assert_eq!(found, BTreeSet::from([wanted]), "--mem {option}");
    }
    for option in ["preferred", "weighted"] {
        let Some(found) = policies(sandbox.run(&format!("-c 1 --mem {option}"))) else { return };
        let begins = if option == "preferred" { "prefer" } else { "weighted" };
        assert!(
            found.iter().all(|policy| policy.starts_with(begins) && policy.contains(&format!(":{node}"))),
            "{found:?}"
        );
    }
}

#[test]
fn on_one_node_the_policy_is_left_alone() {
    let sandbox = Sandbox::new();
    if sandbox.plan("-c 1")["plan"]["memory"]["policy"] != "none" {
        return skip("this machine has several nodes");
    }
    let Some(found) = policies(sandbox.run("-c 1")) else { return };
    assert_eq!(found, BTreeSet::from(["default".to_owned()]));
    // A policy that was set before is the user's.
    let numactl = need!(installed("numactl"), "numactl is not installed");
    let Some(found) =
        policies(sandbox.run("-c 1").through([numactl.as_os_str(), "--interleave=all".as_ref()]))
    else {
        return;
    };
    assert!(found.iter().all(|policy| policy.starts_with("interleave")), "{found:?}");
}

#[test]
fn numactl_sees_the_policy() {
    let numactl = need!(installed("numactl"), "numactl is not installed");
    let sandbox = Sandbox::new();
    let said = sandbox.run("-c 1 --mem interleave").arg(&numactl).arg("--show").ends().ok();
    assert!(said.contains("policy: interleave"), "{said}");
}

#[test]
fn if_policies_are_refused_a_run_continues_with_a_warning() {
    let refuse = need!(c("refuse.c"), "no C compiler");
    let sandbox = Sandbox::new();
    for option in ["bind", "interleave", "preferred", "weighted", "local"] {
        let said =
            sandbox.run(&format!("-c 1 --mem {option}")).args(["echo", "ran"]).through([&refuse]).ends();
        let said = said.warns(&[
            "warning: memory policy",
            "refused: blocked by a system-call filter",
            "the inherited policy stays",
            "trimtab doctor",
        ]);
        assert_eq!(said, "ran");
    }
    let quiet = sandbox.run("-c 1 -q --mem bind").args(["echo", "ran"]).through([&refuse]).ends().ok();
    assert_eq!(quiet, "ran");
    // No policy was requested, so nothing is missing.
    assert_eq!(sandbox.run("-c 1 --mem none").args(["echo", "ran"]).through([&refuse]).ends().ok(), "ran");
}

#[test]
fn a_machine_of_one_node_is_not_warned_about_by_default() {
    let refuse = need!(c("refuse.c"), "no C compiler");
    let sandbox = Sandbox::new();
    if sandbox.plan("-c 1")["plan"]["memory"]["policy"] != "none" {
        return skip("this machine has several nodes");
    }
    assert_eq!(sandbox.run("-c 1").args(["echo", "ran"]).through([&refuse]).ends().ok(), "ran");
}

#[test]
fn strict_runs_fail_where_policies_are_refused() {
    let refuse = need!(c("refuse.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let file = sandbox.path("started");
    let strict = sandbox.run("-c 1 --strict --mem bind").arg("touch").arg(&file).through([&refuse]).ends();
    strict.fails(125, &["blocked by a system-call filter", "--strict"]);
    assert!(!file.exists(), "the program was started");
    sandbox.until_free();
    // An available policy is not refused.
    sandbox.run("-c 1 --strict --mem none").arg("true").through([&refuse]).ends().ok();
    sandbox.run("-c 1 --strict --mem bind").arg("true").ends().ok();
}

#[test]
fn doctor_finds_refused_policies() {
    let refuse = need!(c("refuse.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("doctor").through([&refuse]).ends();
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.out().contains("FAULT memory policy") && outcome.out().contains("remedy"), "{outcome}");
}

#[test]
fn a_home_that_cannot_be_written_is_no_trouble() {
    let sandbox = Sandbox::new();
    let home = sandbox.path("home");
    chmod(&home, 0o555);
    // Root can write despite the mode, so there is also a cache that is a file and one below a
    // file.
    let file = sandbox.write("file", "");
    for cache in
        [home.join("cache"), file.clone(), file.join("below"), "/proc/nowhere".into(), "relative".into()]
    {
        let call = sandbox.run("-c 1").args(["echo", "ran"]).env("XDG_CACHE_HOME", &cache);
        assert_eq!(call.ends().ok(), "ran", "{}", cache.display());
    }
    let call = sandbox.run("-c 1").args(["echo", "ran"]).without("XDG_CACHE_HOME").without("HOME");
    assert_eq!(call.ends().ok(), "ran");
    if let Some([user, _]) = crate::util::two_users() {
        let call = sandbox.run("-c 1").args(["echo", "ran"]).user(user);
        assert_eq!(call.without("XDG_CACHE_HOME").env("HOME", "/nonexistent").ends().ok(), "ran");
    }
    chmod(&home, 0o755);
}

/// Returns sizes of seven and eight tenths of the free memory, and the bytes of the first; `None`
/// if this machine has several nodes, or says nothing about its memory.
fn most_of_the_memory(sandbox: &Sandbox) -> Option<(String, String, u64)> {
    let plan = sandbox.plan("-c 1 --mem-size 1M");
    let free = plan["taken"]["free_memory"].as_object().filter(|free| free.len() == 1);
    let mebibytes = free?.values().next()?.as_u64()? >> 20;
    let of = |tenths: u64| mebibytes * tenths / 10;
    Some((format!("{}M", of(7)), format!("{}M", of(8)), of(7) << 20))
}

#[test]
fn memory_that_a_run_holds_is_not_planned_for_another() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let (some, _, bytes) = need!(most_of_the_memory(&sandbox), "one node of known memory is needed");
    let first = sandbox.hold(&format!("--cpus {a} --mem-size {some}"));
    let ps = sandbox.ps();
    assert_eq!(ps["holds"][0]["memory"], serde_json::json!([{"node": 0, "bytes": bytes}]), "{ps}");
    let table = sandbox.trimtab("ps").ends().ok();
    assert!(table.contains("MEMORY") && table.contains(" on node 0  exclusive"), "{table}");
    // The cores are free, and the memory is not.
    let second = format!("--cpus {b} --mem-size {some}");
    let refused = sandbox.run(&second).arg("true").ends();
    refused.fails(124, &["of memory asked for (--mem-size)", "others hold", "trimtab ps", "--wait"]);
    let planned = sandbox.trimtab(&format!("plan --explain {second}")).ends();
    planned.fails(1, &["others hold"]);
    // A run without an amount, and one for the rest, are not refused.
    let plain = sandbox.plan(&format!("--cpus {b} --mem-size 1M"));
    assert!(plain["taken"]["held_memory"]["0"].as_u64().unwrap() > bytes / 2, "{plain}");
    assert_eq!(plain["plan"]["memory_hold"], serde_json::json!([{"node": 0, "bytes": 1 << 20}]), "{plain}");
    assert_eq!(sandbox.run(&format!("--cpus {b}")).args(["echo", "ran"]).ends().ok(), "ran");
    // One that waits gets it at the end of the first.
    let waiter = sandbox.run(&format!("--wait {second}")).args(["echo", "ran"]).begins();
    eventually("it stands in line", || sandbox.ps()["waiting"] == 1);
    first.ends().ok();
    assert_eq!(waiter.ends().ok().lines().last(), Some("ran"));
    sandbox.run(&second).arg("true").ends().ok();
}

#[test]
fn a_run_inside_a_hold_uses_the_memory_of_the_hold() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let (some, more, bytes) = need!(most_of_the_memory(&sandbox), "one node of known memory is needed");
    let inner = format!("$T run -q -c 1 --mem-size {more} -- sh -c '$T ps --json'");
    let outer = sandbox.run(&format!("--cpus {a},{b} --mem-size {some}"));
    let out = outer.sh(&inner).ends().ok();
    let ps: serde_json::Value = serde_json::from_str(&out).unwrap();
    let levels: Vec<_> = ps["holds"].as_array().unwrap().iter().map(|hold| &hold["level"]).collect();
    assert_eq!(levels, [0, 1], "{ps}");
    assert!(ps["holds"][1]["memory"][0]["bytes"].as_u64().unwrap() > bytes, "{ps}");
}

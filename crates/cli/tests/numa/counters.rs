//! Counting without hardware counters: the distance of a thread from its memory, from the location
//! of its pages and from the kernel's hint faults.

use crate::shape::{Shape, file, testbed};
use crate::util::{Sandbox, c, eventually, need, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A program whose memory is on one node while it runs on another, or on the same.
struct Elsewhere(Child);

impl Elsewhere {
    fn new(home: u32, cpu: u32) -> Option<Self> {
        let mut program = Command::new(c("elsewhere.c")?);
        program.args([home.to_string(), cpu.to_string()]).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        Some(Self(child))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn counted(sandbox: &Sandbox, rung: &str, pid: u32) -> Value {
    let said = sandbox.trimtab(&format!("counters --json --events {rung} --for 2s {pid}")).ends();
    serde_json::from_slice(&said.stdout).unwrap()
}

fn cpu_of(shape: &Shape, node: u32) -> u32 {
    *shape.of_node(node).iter().next().unwrap()
}

#[test]
fn pages_say_how_far_a_thread_is_from_its_memory() {
    let shape = given!(Shape::here());
    if testbed().is_some() {
        // Otherwise the pages would follow.
        let _ = std::fs::write("/proc/sys/kernel/numa_balancing", "0");
    }
    if file("/proc/sys/kernel/numa_balancing").trim() != "0" {
        return skip("the kernel moves pages after threads here (NUMA balancing)");
    }
    let sandbox = Sandbox::new();
    let [here, there] = [0, 1].map(|at| cpu_of(&shape, shape.homes()[at]));
    for (cpu, far) in [(here, 0.0..0.2), (there, 0.8..1.01)] {
        let program = need!(Elsewhere::new(here, cpu), "no C compiler");
        let mut said = Value::Null;
        // On a slow emulated processor, two seconds may be too short for two readings.
        eventually("its pages are asked for twice", || {
            said = counted(&sandbox, "residency", program.0.id());
            said["rung"] != "residency" || said["threads"][0]["far_share"].is_f64()
        });
        if said["rung"] != "residency" {
            return skip(&format!("pages cannot be asked for: {}", said["missing"]));
        }
        let share = said["threads"][0]["far_share"].as_f64().unwrap();
        assert!(far.contains(&share), "on CPU {cpu}: {said}");
    }
}

#[test]
fn a_machine_without_counters_uses_the_kernels_facts_about_memory() {
    given!(Shape::here());
    let sandbox = Sandbox::new();
    let said = sandbox.trimtab("counters --json").ends();
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let rung = said["rung"].as_str().unwrap();
    if !["hint-faults", "residency", "nothing"].contains(&rung) {
        return skip(&format!("this machine has counters ({rung})"));
    }
    // The kernel's own balancing, if it is active, is better than reading page locations, which
    // works everywhere.
    let balancing = file("/proc/sys/kernel/numa_balancing");
    let expected = if balancing.is_empty() || balancing.trim() == "0" { "residency" } else { "hint-faults" };
    assert_eq!(rung, expected, "{said}");
}

//! CPUs of a virtual machine, moved between nodes to its memory: threads named as QEMU names them,
//! in a process that resembles QEMU.

use crate::misses::{first, mask, until};
use crate::shape::{Cpus, Shape, testbed};
use crate::util::{Call, Running, Sandbox, c, eventually, installed, need, skip};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixStream;

/// Samples cost more on emulated processors.
const HOW: &str = "--budget 50%";

/// A machine of two CPUs whose memory is on another node than its CPUs.
struct Astray<'s> {
    program: Running<'s>,
    vcpus: [u32; 2],
    whole: Cpus,
    home: Cpus,
}

impl<'s> Astray<'s> {
    fn new(sandbox: &'s Sandbox) -> Option<Self> {
        let shape = Shape::here()?;
        testbed()?;
        let Some(program) = c("astray.c") else {
            skip("no C compiler");
            return None;
        };
        // Otherwise the kernel would move pages and threads by itself.
        fs::write("/proc/sys/kernel/numa_balancing", "0").unwrap();
        let [home, start] = [1, 0].map(|at| shape.homes()[at]);
        let pairs =
            shape.of_node(start).into_iter().take(2).map(|cpu| format!("{}:{cpu}", first(&shape, home)));
        let words = pairs.collect::<Vec<_>>().join(" ");
        let mut program = sandbox.shell(&format!("exec {} machine {words}", program.display())).begins();
        let tid = |line: &String| line.split(' ').next().unwrap().parse().unwrap();
        let tids: Vec<u32> = program.lines(2).iter().map(tid).collect();
        let vcpus = <[u32; 2]>::try_from(tids).unwrap();
        Some(Self { program, vcpus, whole: shape.cpus(), home: shape.nodes[&home].cpus.clone() })
    }

    fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Returns whether its CPUs are on the node of its memory, and its other thread was not moved.
    fn is_home(&self) -> bool {
        assert_eq!(mask(self.pid()), self.whole, "this thread is not a vCPU");
        self.vcpus.iter().all(|tid| mask(*tid) == self.home)
    }

    fn is_free(&self) -> bool {
        self.vcpus.iter().all(|tid| mask(*tid) == self.whole)
    }
}

#[test]
fn the_cpus_of_a_machine_move_to_the_node_of_its_memory_and_back() {
    let sandbox = Sandbox::new();
    let machine = given!(Astray::new(&sandbox));
    let trace = sandbox.path("trace.jsonl");
    let words = format!("attach --vm {} --balance brm {HOW} --trace", machine.pid());
    let attached = sandbox.trimtab(&words).arg(&trace).begins();
    until("its CPUs are near its memory", || machine.is_home());
    attached.signal(Signal::INT);
    attached.ends().warns(&["counters: residency"]);
    assert!(machine.is_free());
    let trace = fs::read_to_string(trace).unwrap();
    let header: Value = serde_json::from_str(trace.lines().next().unwrap()).unwrap();
    let command = header["header"]["command"].as_str().unwrap();
    assert!(command.starts_with("virtual machine ") && command.contains("2 CPUs found by"), "{command}");
    assert_eq!(machine.program.ends().code, Some(9));
}

#[test]
fn the_service_moves_the_cpus_of_a_tagged_machine_to_the_node_of_its_memory() {
    let sandbox = Sandbox::new();
    let machine = given!(Astray::new(&sandbox));
    let socket = sandbox.path("shared/socket");
    let ask = |words: &str| -> Call<'_> { sandbox.trimtab(words).env("TRIMTAB_SOCKET", &socket) };
    let daemon = ask(&format!("serve --policy brm {HOW}")).begins();
    eventually("the daemon answers", || UnixStream::connect(&socket).is_ok());
    ask(&format!("tag --vm {}", machine.pid())).ends().ok();
    until("its CPUs are near its memory", || machine.is_home());
    ask(&format!("untag --vm {}", machine.pid())).ends().ok();
    eventually("its CPUs may be anywhere again", || machine.is_free());
    daemon.signal(Signal::TERM);
    daemon.ends();
    assert_eq!(machine.program.ends().code, Some(9));
}

#[test]
fn a_thread_bound_to_cpus_of_two_nodes_moves_to_the_nearer_one_and_never_beyond() {
    let shape = given!(Shape::here());
    given!(testbed());
    let program = need!(c("astray.c"), "no C compiler");
    need!(installed("taskset"), "taskset is not installed");
    fs::write("/proc/sys/kernel/numa_balancing", "0").unwrap();
    let sandbox = Sandbox::new();
    let [home, start] = [1, 0].map(|at| first(&shape, shape.homes()[at]));
    let bound = Cpus::from([home, start]);
    let script = format!("exec {} threads {home}:{start}", program.display());
    let call = sandbox.shell(&script).through(["taskset", "-c", &format!("{home},{start}")]);
    let mut program = call.begins();
    let tid: u32 = program.line().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(mask(tid), bound);
    let socket = sandbox.path("shared/socket");
    let ask = |words: &str| -> Call<'_> { sandbox.trimtab(words).env("TRIMTAB_SOCKET", &socket) };
    let daemon = ask(&format!("serve --pinned --policy brm {HOW}")).begins();
    until("it is kept near its memory", || {
        let mask = mask(tid);
        assert!(mask.is_subset(&bound), "{mask:?}");
        mask == Cpus::from([home])
    });
    let told: Value = serde_json::from_str(&ask("status --json").ends().ok()).unwrap();
    let ours =
        |tag: &Value| tag["by"] == "pinned" && tag["mark"].to_string().contains(&program.pid().to_string());
    assert!(told["tags"].as_array().unwrap().iter().any(ours), "{told}");
    daemon.signal(Signal::TERM);
    daemon.ends();
    assert_eq!(mask(tid), bound);
    assert_eq!(program.ends().code, Some(9));
}

//! Memory that follows a thread to another node, and memory that stays because its place was set.

use crate::shape::{Shape, file, testbed};
use crate::util::{Sandbox, c, eventually, eventually_within, need, skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trimtab_core::balance::{Act, Decision, Outcome, Reason, Refusal, Settled, Wanted};
use trimtab_core::drive::Host;
use trimtab_core::ids::{OsNode, ThreadId};
use trimtab_core::observe::{Fetched, Notice, Unfetched};
use trimtab_linux::host::{Live, Root};
use trimtab_linux::memory::moving;
use trimtab_linux::process::{Pid, StartTime};

/// Longest wait: an emulated processor samples slowly, and the policy needs time to be sure.
const WAIT_MAX: Duration = Duration::from_secs(240);
/// Most restarts of a program whose memory the kernel, and not the policy, has moved.
const RESTARTS_MAX: u32 = 8;

/// A program with less memory on the node where it runs than on the other.
struct Program {
    child: Child,
    areas: Vec<String>,
}

impl Program {
    /// Starts a program whose memory is of this kind, if this machine has it.
    fn new(kind: &str, shape: &Shape) -> Option<Self> {
        let [first, second] = nodes(shape).map(|node| *shape.of_node(node.0).iter().next().unwrap());
        let mut program = Command::new(c("follows.c")?);
        program.args([kind, &first.to_string(), &second.to_string()]).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let areas: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let program = Self { child, areas };
        if program.areas.len() != 2 {
            skip(&format!("no {kind} memory here: {line}"));
            return None;
        }
        Some(program)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the number of its pages on each node, as the kernel counts them.
    fn pages(&self) -> BTreeMap<OsNode, u64> {
        let maps = file(&format!("/proc/{}/numa_maps", self.pid()));
        let lines =
            maps.lines().filter(|line| self.areas.iter().any(|area| line.starts_with(&format!("{area} "))));
        let mut pages = BTreeMap::new();
        for word in lines.flat_map(str::split_whitespace) {
            let Some((node, count)) = word.strip_prefix('N').and_then(|word| word.split_once('=')) else {
                continue;
            };
            *pages.entry(OsNode(node.parse().unwrap())).or_insert(0) += count.parse::<u64>().unwrap();
        }
        pages
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the first two nodes of a machine on which only trimtab moves pages.
fn nodes(shape: &Shape) -> [OsNode; 2] {
    [0, 1].map(|at| OsNode(shape.homes()[at]))
}

fn machine() -> Option<Shape> {
    let shape = Shape::here()?;
    if testbed().is_some() {
        let _ = std::fs::write("/proc/sys/kernel/numa_balancing", "0");
    }
    if file("/proc/sys/kernel/numa_balancing").trim() != "0" {
        skip("the kernel moves pages after threads here (NUMA balancing)");
        return None;
    }
    Some(shape)
}

/// Returns the immediate answers, and the final result.
fn fetched(program: &Program, to: OsNode) -> (Settled, Settled, Fetched) {
    let usable = "0-63".parse().unwrap();
    let mut live = Live::new(Path::new("/proc"), &[Root::Tree(Pid(program.pid()))], &usable).unwrap();
    let mut sample = live.observe(&Wanted::all()).unwrap();
    let thread = sample.news[0].id;
    let fetch = Decision { thread, act: Act::Fetch(to), reason: Reason::Stayed, gain: None };
    let at_once = live.apply(&[fetch]).unwrap()[0].end;
    let (mut settled, mut told): (Vec<Outcome>, Vec<Fetched>) = (Vec::new(), Vec::new());
    eventually("it is known what became of it", || {
        sample = live.observe(&Wanted::all()).unwrap();
        settled.extend(&sample.settled);
        told.extend(sample.notices.iter().filter_map(|notice| match notice {
            Notice::Memory(fetched) => Some(fetched.clone()),
            _ => None,
        }));
        !told.is_empty()
    });
    let end = settled.first().map_or(at_once, |outcome| outcome.end);
    assert_eq!((told.len(), told[0].thread, told[0].to), (1, ThreadId(thread.0), to));
    (at_once, end, told.remove(0))
}

#[test]
fn memory_is_brought_to_a_node_and_is_there_afterwards() {
    let shape = given!(machine());
    let [first, second] = nodes(&shape);
    for kind in ["own", "shared"] {
        let program = need!(Program::new(kind, &shape), "no C compiler, or no such memory");
        let (few, many) = (24 << 20, 72 << 20);
        assert_eq!(program.pages(), BTreeMap::from([(first, few / 4_096), (second, many / 4_096)]), "{kind}");
        for (to, bytes) in [(second, few), (first, few + many)] {
            let (at_once, end, told) = fetched(&program, to);
            assert_eq!((at_once, end), (Settled::Pending, Settled::Applied), "{kind}: {told:?}");
            assert_eq!(program.pages(), BTreeMap::from([(to, (few + many) / 4_096)]), "{kind}: {told:?}");
            // Includes the little other memory that it has, such as its stack.
            assert!((bytes..bytes + (8 << 20)).contains(&told.moved), "{kind}: {told:?}");
            assert!(told.left < 1 << 20, "{kind}: {told:?}");
        }
        let (_, end, told) = fetched(&program, first);
        assert_eq!(end, Settled::Applied, "{told:?}");
        assert!(told.moved < 1 << 20, "it is there already: {told:?}");
    }
}

#[test]
fn memory_with_a_policy_stays() {
    let shape = given!(machine());
    if testbed().is_some() {
        for node in shape.homes() {
            let pages = "hugepages/hugepages-2048kB/nr_hugepages";
            let _ = std::fs::write(format!("/sys/devices/system/node/node{node}/{pages}"), "8");
        }
    }
    for kind in ["policy", "area", "thread", "huge"] {
        let Some(program) = Program::new(kind, &shape) else { continue };
        let before = program.pages();
        let (at_once, end, told) = fetched(&program, nodes(&shape)[1]);
        assert_eq!((at_once, program.pages()), (Settled::Pending, before), "{kind}: {told:?}");
        match (kind, &told.why) {
            ("huge", Some(Unfetched::Huge)) => {}
            (_, Some(Unfetched::Policy(policy))) if kind != "huge" => {
                assert_eq!((end, told.moved), (Settled::Refused(Refusal::Memory), 0), "{kind}: {told:?}");
                assert!(policy.starts_with("bind") || policy.starts_with("prefer"), "{kind}: {told:?}");
            }
            _ => panic!("{kind}: {told:?}"),
        }
    }
}

#[test]
fn it_can_be_ended_between_two_steps() {
    let shape = given!(machine());
    let program = need!(Program::new("own", &shape), "no C compiler");
    let to = nodes(&shape)[1];
    let (proc, sys, pid) = (Path::new("/proc"), Path::new("/sys"), Pid(program.pid()));
    let start = trimtab_linux::process::stat(proc, pid).unwrap().start;
    let wanted = moving::Wanted { proc, sys, pid, start, to };
    let mut steps = 0;
    let brought = moving::bring(&wanted, &mut |_| {
        steps += 1;
        steps < 3
    });
    assert_eq!((steps, &brought.why), (3, &Some(Unfetched::Stopped)), "{brought:?}");
    assert!(brought.moved <= 3 * (2 << 20) && brought.left >= (24 << 20) - brought.moved, "{brought:?}");
    assert!(program.pages().len() == 2, "the rest stays where it was");
    // Another process with its number must not be touched.
    let later = StartTime(start.0 + 1);
    let brought = moving::bring(&moving::Wanted { start: later, ..wanted }, &mut |_| true);
    assert_eq!((brought.moved, brought.why), (0, Some(Unfetched::Ended)));
}

#[test]
fn a_policy_brings_memory_after_the_thread_that_it_moved() {
    let shape = given!(machine());
    let [_, to] = nodes(&shape);
    let sandbox = Sandbox::new();
    let trace = sandbox.path("trace");
    let options = "attach --verbose --balance brm --candidates all --move-memory --interval 200ms --budget 50% --counters residency";
    // The program begins where less of its memory is. If the kernel moves it to the other node
    // before the policy does, it is already there, and no move is made that memory could follow.
    // Then another program is started.
    let mut running = None;
    for _ in 0..RESTARTS_MAX {
        let program = need!(Program::new("own", &shape), "no C compiler");
        let all = program.pages().values().sum::<u64>();
        let words = ["--trace".into(), trace.clone(), program.pid().to_string().into()];
        let attached = sandbox.trimtab(options).args(words).begins();
        let mut is_home = false;
        eventually_within(WAIT_MAX, "its memory is where its thread was sent", || {
            let there = program.pages();
            is_home = std::fs::read_to_string(&trace).is_ok_and(|text| text.contains("\"reason\":\"near\""));
            // The kernel reports no node for pages that are being moved.
            is_home || there.len() == 1 && there.values().sum::<u64>() == all
        });
        if !is_home {
            assert_eq!(program.pages(), BTreeMap::from([(to, all)]));
            running = Some((attached, program));
            break;
        }
        attached.signal(rustix::process::Signal::INT);
        attached.ends();
        std::fs::remove_file(&trace).unwrap();
    }
    let (running, _program) = running.expect("the kernel is always quicker");
    let told = || {
        std::fs::read_to_string(&trace).is_ok_and(|text| text.contains(&format!("\"to\":{to},\"moved\":")))
    };
    eventually_within(WAIT_MAX, "it is told", told);
    running.signal(rustix::process::Signal::INT);
    let said = running.ends();
    let errors = said.stderr;
    assert!(errors.contains(&format!("were brought to node {to}")), "{errors}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let steps = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let steps: Vec<Value> = steps.filter_map(|line| line.get("step").cloned()).collect();
    let decisions = steps.iter().filter_map(|step| step["turn"]["decisions"].as_array());
    let fetched: Vec<&Value> = decisions.flatten().collect();
    let fetch = fetched.iter().find(|decision| decision["act"]["fetch"] == to.0);
    assert_eq!(fetch.unwrap()["reason"], "stayed");
    let settled = steps.iter().find_map(|step| step["sample"]["settled"].get(0)).unwrap();
    assert_eq!(settled["end"], "applied");
    let notices = steps.iter().filter_map(|step| step["sample"]["notices"].as_array()).flatten();
    let mut told = notices.filter_map(|notice| notice.get("memory"));
    assert!(told.any(|told| told["to"] == to.0 && told["moved"].as_u64() >= Some(24 << 20)), "{steps:?}");
    // Like other actions, it is in a report of the trace.
    let report = sandbox.trimtab("report -o -").arg(&trace).ends().out();
    assert!(report.contains(&format!("its memory brought to node {to}")), "{report}");
}

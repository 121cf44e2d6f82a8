//! Threads that run better on one memory node than on another, on a machine whose description
//! declares two nodes: each of two CPUs is a node. The kernel really counts their misses
//! (`c/homesick.c`), and the moves, masks and reports are real, too.

use crate::balance::{child, lines};
use crate::serve::{ask, socket, status};
use crate::util::{Call, Running, Sandbox, c, cpus, eventually, eventually_within, skip, text, two};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time on a CPU and page faults: both are counted by the kernel, and available wherever counting
/// is allowed.
const COUNTED: &str =
    "--counters busy=task-clock,requests=page-faults --candidates all --interval 20ms --budget 50%";
/// Longest wait: trials among the threads of other tests, on two CPUs, may take long.
const WAIT_MAX: Duration = Duration::from_secs(240);

/// Formats a set of one CPU or node as hwloc does.
fn set(bit: u32) -> String {
    let words: Vec<String> = (0..=bit / 32)
        .rev()
        .map(|word| format!("{:#010x}", if word == bit / 32 { 1_u32 << (bit % 32) } else { 0 }))
        .collect();
    words.join(",")
}

/// Writes a machine description in which each of these CPUs is a package, a core and a node of its
/// own.
pub(crate) fn machine(sandbox: &Sandbox, all: &[u32]) -> PathBuf {
    let sets = |cpu: u32, node: u32| {
        let (cpu, node) = (set(cpu), set(node));
        format!("cpuset=\"{cpu}\" complete_cpuset=\"{cpu}\" nodeset=\"{node}\" complete_nodeset=\"{node}\"")
    };
    let package = |(node, &cpu): (u32, &u32)| {
        let sets = sets(cpu, node);
        format!(
            "<object type=\"Package\" os_index=\"{node}\" {sets}>\
             <object type=\"NUMANode\" os_index=\"{node}\" {sets} local_memory=\"1073741824\"/>\
             <object type=\"Core\" os_index=\"{node}\" {sets}>\
             <object type=\"PU\" os_index=\"{cpu}\" {sets}/></object></object>"
        )
    };
    let packages: String = (0..).zip(all).map(package).collect();
    let whole = |of: &mut dyn Iterator<Item = u32>| {
        let bits = of.fold([0_u32; 32], |mut bits, bit| {
            bits[bit as usize / 32] |= 1 << (bit % 32);
            bits
        });
        let last = bits.iter().rposition(|word| *word != 0).unwrap();
        let words: Vec<String> = bits[..=last].iter().rev().map(|word| format!("{word:#010x}")).collect();
        words.join(",")
    };
    let (cpus, nodes) = (whole(&mut all.iter().copied()), whole(&mut (0..all.len() as u32)));
    let sets = format!(
        "cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" allowed_cpuset=\"{cpus}\" \
         nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\" allowed_nodeset=\"{nodes}\""
    );
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n\
         <topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" {sets}>{packages}</object></topology>\n"
    );
    sandbox.write("nodes.xml", text)
}

/// Returns whether the kernel counts its own events here.
fn counts(sandbox: &Sandbox) -> bool {
    let said = sandbox.trimtab("counters --json --events busy=task-clock,requests=page-faults").ends();
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    said["rung"] == "exact"
}

/// Returns two CPUs, the program, and a machine description in which each of the two is a node;
/// `None` with a printed reason if something is missing. `counted` for tests of what the kernel
/// counts.
fn scene(sandbox: &Sandbox, counted: bool) -> Option<([u32; 2], PathBuf, PathBuf)> {
    let found = two().ok_or("two cores are needed");
    let found = found.and_then(|both| Ok((both, c("homesick.c").ok_or("no C compiler")?)));
    let found = found.and_then(|found| match !counted || counts(sandbox) {
        true => Ok(found),
        false => Err("nothing may be counted here (perf_event_open is refused)"),
    });
    match found {
        Ok((both, program)) => Some((both, program, machine(sandbox, &both))),
        Err(why) => {
            skip(why);
            None
        }
    }
}

/// Parses the lines `TID HOME` of the program.
fn homes(said: &[String]) -> BTreeMap<u32, u32> {
    let pair = |line: &String| {
        let (tid, home) = line.split_once(' ')?;
        Some((tid.parse().ok()?, home.parse().ok()?))
    };
    said.iter().filter_map(pair).collect()
}

fn mask(tid: u32) -> BTreeSet<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    cpus(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default())
}

/// Returns whether each thread is on its home CPU.
fn at_home(homes: &BTreeMap<u32, u32>) -> bool {
    homes.iter().all(|(tid, home)| mask(*tid) == BTreeSet::from([*home]))
}

fn free(homes: &BTreeMap<u32, u32>, whole: &[u32]) -> bool {
    homes.keys().all(|tid| mask(*tid) == whole.iter().copied().collect())
}

/// Starts two threads, each on the home CPU of the other.
fn begun<'s>(sandbox: &'s Sandbox, program: &Path, [a, b]: [u32; 2]) -> (Running<'s>, BTreeMap<u32, u32>) {
    let mut program = sandbox.shell(&format!("exec {} {a}:{b} {b}:{a}", program.display())).begins();
    let homes = homes(&program.lines(3));
    (program, homes)
}

fn on<'s>(call: Call<'s>, machine: &Path) -> Call<'s> {
    call.env("TRIMTAB_MACHINE", machine)
}

#[test]
fn a_run_moves_threads_to_the_node_with_the_least_stalls_and_reports_the_reason() {
    let sandbox = Sandbox::new();
    let Some(([a, b], program, file)) = scene(&sandbox, true) else { return };
    for policy in ["brm", "serial"] {
        // The kernel may have moved both home before the first sample: then there is nothing to
        // move.
        let moved = (0..15).any(|_| is_brought_home(&sandbox, &program, &file, policy, [a, b]));
        assert!(moved, "{policy}: the kernel has put both where they belong each time");
    }
}

/// Runs it until each thread is at home. Returns whether that took trial moves, and checks all
/// reports of them.
fn is_brought_home(sandbox: &Sandbox, program: &Path, file: &Path, policy: &str, [a, b]: [u32; 2]) -> bool {
    let trace = sandbox.path(&format!("{policy}.jsonl"));
    let report = sandbox.path(&format!("{policy}.json"));
    let options = format!(
        "--cpus {a},{b} --mem none --balance={policy} {COUNTED} --trace {} --report={} -v",
        trace.display(),
        report.display()
    );
    let words = [format!("{a}:{b}"), format!("{b}:{a}")];
    let mut running = on(sandbox.run(&options), file).arg(program).args(words).begins();
    let homes = homes(&running.lines(3));
    assert_eq!(homes.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([a, b]));
    eventually_within(WAIT_MAX, "each is at home", || at_home(&homes));
    // The report covers what samples saw: wait for some more of them.
    std::thread::sleep(Duration::from_millis(300));
    // A better place is kept.
    let main = child(running.pid());
    assert_eq!(mask(main), BTreeSet::from([a, b]), "who does nothing is not moved");
    let ended = running.ends();
    assert_eq!(ended.code, Some(9), "{ended}");
    for told in ["counters: exact", "on memory: other nodes are tried", "TRIMTAB_MACHINE"] {
        assert!(ended.stderr.contains(told), "{told}: {ended}");
    }
    // The reason of each move is in the report of the trace, and the move in the report of the run.
    let page = sandbox.trimtab("report --json").arg(&trace).ends().ok();
    let page: Value = serde_json::from_str(&page).unwrap();
    let machine = page["machine"].as_str().unwrap();
    assert!(machine.contains("2 nodes, 2 cores, 2 CPUs"), "{machine}");
    let whys: Vec<String> =
        page["moves"].as_array().unwrap().iter().map(|one| one["reason"].to_string()).collect();
    let known = |why: &String| ["exchanged", "explore", "stalls"].iter().any(|word| why.contains(word));
    assert!(!whys.is_empty() && !whys.iter().any(|why| why == "null"), "{whys:?}");
    sandbox.trimtab("replay --check").arg(&trace).ends().ok();
    if !whys.iter().any(known) {
        assert!(whys.iter().all(|why| why.contains("steady")), "{whys:?}");
        return false;
    }
    let run: Value = serde_json::from_str(&text(&report)).unwrap();
    // Only of working threads: a thread that Linux wakes elsewhere has moved, too.
    let moved = run["threads"].as_array().unwrap().iter().filter(|thread| thread["tid"] != thread["pid"]);
    let moved = moved.filter(|thread| thread["moved_at_least"].as_u64() > Some(0)).count();
    assert_eq!((moved, run["threads"][1]["nodes"].as_array().map(Vec::is_empty)), (2, Some(false)), "{run}");
    true
}

#[test]
fn an_attached_program_is_moved_to_its_memory_and_gets_its_masks_back_at_any_end() {
    let sandbox = Sandbox::new();
    let Some(([a, b], program, machine)) = scene(&sandbox, true) else { return };
    let (program, homes) = begun(&sandbox, &program, [a, b]);
    let attach = format!("attach {} --balance brm {COUNTED} --trace", program.pid());
    let begin = |name: &str| on(sandbox.trimtab(&attach), &machine).arg(sandbox.path(name)).begins();
    let attached = begin("stopped.jsonl");
    eventually_within(WAIT_MAX, "each is at home", || at_home(&homes));
    attached.signal(Signal::INT);
    attached.ends().ok();
    assert!(free(&homes, &[a, b]));
    let stopped = lines(&sandbox.path("stopped.jsonl"));
    assert_eq!(stopped.last().unwrap().1["why"], "stopped");

    let killed = begin("killed.jsonl");
    eventually_within(WAIT_MAX, "each is at home", || at_home(&homes));
    crate::guardian::kill_with_guardian(&killed);
    killed.ends();
    assert!(homes.keys().all(|tid| mask(*tid).len() == 1), "masks outlive who set them");
    sandbox.trimtab(&format!("detach {}", program.pid())).ends().ok();
    assert!(free(&homes, &[a, b]));
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn the_service_moves_tagged_threads_home_until_it_is_killed_and_the_next_gives_masks_back() {
    let sandbox = Sandbox::new();
    let Some(([a, b], program, machine)) = scene(&sandbox, true) else { return };
    let (program, homes) = begun(&sandbox, &program, [a, b]);
    let counted = COUNTED.replace("all", "tagged");
    let begin = || {
        let daemon = on(ask(&sandbox, &format!("serve --policy brm {counted}")), &machine).begins();
        eventually("the daemon answers", || UnixStream::connect(socket(&sandbox)).is_ok());
        daemon
    };
    let first = begin();
    ask(&sandbox, &format!("tag {}", program.pid())).ends().ok();
    eventually_within(WAIT_MAX, "each is at home", || at_home(&homes));
    eventually("moves are told", || status(&sandbox)["tags"][0]["moves"].as_u64() >= Some(2));
    crate::guardian::kill_with_guardian(&first);
    first.ends();
    assert!(!free(&homes, &[a, b]));
    // The tag by hand is kept; without it, nothing moves the threads again.
    let _ = fs::remove_file(sandbox.path("shared/socket.tags"));
    let second = begin();
    assert_eq!(status(&sandbox)["tags"].as_array().map(Vec::len), Some(0));
    assert!(free(&homes, &[a, b]), "before it answers");
    second.signal(Signal::TERM);
    second.ends().ok();
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn without_counters_a_message_says_so_once_and_no_thread_is_moved() {
    let sandbox = Sandbox::new();
    let Some(([a, b], program, machine)) = scene(&sandbox, false) else { return };
    let found = sandbox.trimtab("counters --json").ends();
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    // `off` behaves like a machine without counters, and this may be one.
    let ways: &[&str] = if found["rung"] == "nothing" { &["off", "auto"] } else { &["off"] };
    let (program, homes) = begun(&sandbox, &program, [a, b]);
    let policies = ["brm", "serial", "brm-paper"];
    for (policy, way) in policies.iter().flat_map(|policy| ways.iter().map(move |way| (policy, way))) {
        let trace = sandbox.path(&format!("{policy}-{way}.jsonl"));
        let words = format!(
            "attach {} --balance {policy} --candidates all --counters {way} --interval 5ms --verbose --trace",
            program.pid()
        );
        let attached = on(sandbox.trimtab(&words), &machine).arg(&trace).begins();
        eventually("it is looked at ten times", || text(&trace).matches("\"step\"").count() > 10);
        assert!(free(&homes, &[a, b]), "{policy}, {way}");
        attached.signal(Signal::INT);
        let ended = attached.ends();
        assert_eq!(ended.code, Some(0), "{ended}");
        let said =
            |what: &str| lines(&trace).iter().filter(|(_, line)| line.to_string().contains(what)).count();
        assert_eq!(said("uncounted"), 1, "{policy}, {way}: {}", text(&trace));
        assert_eq!(said("\"confine\""), 0, "{policy}, {way}");
    }
}

#[test]
fn a_machine_file_with_cpus_that_do_not_exist_here_is_refused() {
    let sandbox = Sandbox::new();
    let file = machine(&sandbox, &[0, 900]);
    let said = format!("TRIMTAB_MACHINE={}: CPUs 900 are not on this machine, which has ", file.display());
    for words in ["run -c 1 true", "attach 1 --yes", "serve", "plan", "topo"] {
        let status = if words.starts_with("run") { 125 } else { 2 };
        on(ask(&sandbox, words), &file).ends().fails(status, &[&said]);
    }
    let of = |text: &str, words: &[&str]| {
        sandbox.trimtab("topo").env("TRIMTAB_MACHINE", text).ends().fails(2, words);
    };
    of("/no/such.xml", &["TRIMTAB_MACHINE=/no/such.xml", "No such file"]);
    of("numa:x", &["TRIMTAB_MACHINE=numa:x", "is not a count"]);
    // A set and empty variable counts as unset; a valid one is reported.
    sandbox.trimtab("topo").env("TRIMTAB_MACHINE", "").ends().ok();
    let told = sandbox.trimtab("doctor --json").env("TRIMTAB_MACHINE", "core:1 pu:1").ends();
    assert!(told.out().contains("the machine model is that of TRIMTAB_MACHINE=core:1 pu:1"), "{told}");
}

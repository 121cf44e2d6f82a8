//! `trimtab attach` and `trimtab detach`: programs that already run, whose masks are restored, and
//! programs that must not be touched.

use crate::balance::{child, lines, masks};
use crate::util::{Sandbox, c, eventually, need, text, two, two_users, workers_are_bound};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn a_program_is_balanced_until_we_stop() {
    let [a, b] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let whole = BTreeSet::from([a, b]);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut program = sandbox.shell(&format!("exec {} 2", spins.display())).begins();
        program.line();
        let before = masks(program.pid());
        let trace = sandbox.path("trace.jsonl");
        let attach = format!("attach {} --balance pinned --interval 5ms --trace", program.pid());
        let attached = sandbox.trimtab(&attach).arg(&trace).begins();
        eventually("threads are moved", || workers_are_bound(program.pid()));
        assert_eq!(before, [whole.clone(), whole.clone(), whole.clone()]);
        attached.signal(signal);
        assert_eq!(attached.ends().ok(), "");
        assert_eq!(masks(program.pid()), before);
        let lines = lines(&trace);
        assert_eq!(lines.last().unwrap().1["why"], "stopped");
        assert!(lines[0].1["command"].as_str().unwrap().contains("spins"), "{}", lines[0].1);
        assert_eq!(program.ends().code, Some(9));
    }
}

#[test]
fn it_ends_with_the_program_or_with_its_time() {
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 1", spins.display())).begins();
    program.line();
    let pid = program.pid();
    assert_eq!(sandbox.trimtab(&format!("attach {pid} --for 50ms --interval 5ms")).ends().ok(), "");
    let attached = sandbox.trimtab(&format!("attach {pid} --interval 5ms --json")).begins();
    eventually("two looks", || attached.said().lines().count() > 2);
    assert_eq!(program.ends().code, Some(9));
    let said = attached.ends().ok();
    let last = said.lines().last().unwrap();
    assert_eq!(last, "{\"end\":{\"why\":\"the programs ended\"}}");
}

#[test]
fn whole_trees_and_children_to_come_are_seen() {
    let sandbox = Sandbox::new();
    let mut program =
        sandbox.shell("sleep 1000 & echo $!; read x; sleep 1000 & echo $!; read x; kill %1 %2").begins();
    let first: u64 = program.line().parse().unwrap();
    let attached =
        sandbox.trimtab(&format!("attach {} --balance float --interval 5ms --json", program.pid())).begins();
    let seen = |pid: u64| attached.said().contains(&format!("\"pid\":{pid},"));
    eventually("the child is seen", || seen(first));
    program.tell("\n");
    let second: u64 = program.lines(2)[1].parse().unwrap();
    eventually("the new child is seen", || seen(second));
    drop(attached);
}

#[test]
fn a_process_that_cannot_be_balanced_is_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    let attach = |words: &str| sandbox.trimtab(&format!("attach {words}")).ends();
    attach("4194999").fails(2, &["there is no process 4194999"]);
    sandbox.shell("exec \"$T\" attach $$").ends().fails(2, &["is trimtab itself"]);
    attach("--cgroup /no/such/group").fails(2, &["no control group at"]);
    attach("").fails_with(2, "Usage");
    attach("0").fails_with(2, "0");
    attach("x").fails_with(2, "invalid value");
    if std::fs::read_to_string("/proc/2/stat").is_ok_and(|stat| stat.contains("kthreadd")) {
        attach("1 --for 10ms").fails(2, &["all processes of the machine", "auto would move", "--yes"]);
    }
    let own = std::process::id();
    attach(&format!("{own} --cpus 9999 --for 10ms")).fails(2, &["none of the CPUs of --cpus"]);
    attach(&format!("{own} --trace /nowhere/t --for 10ms")).fails(2, &["--trace /nowhere/t"]);
    if let Ok(stat) = std::fs::read_to_string("/proc/2/stat")
        && stat.contains("kthreadd")
    {
        attach("2").fails(2, &["is a thread of the kernel"]);
    }
    let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero()).join().unwrap();
    // It has ended by now; a living thread is reported with its process.
    attach(&thread.to_string()).fails(2, &["there is no process"]);
}

#[test]
fn another_users_program_is_left_alone() {
    let [user, _] = need!(two_users(), "only root can act as others");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell("echo on; exec cat").begins();
    program.line();
    let attached = sandbox.trimtab(&format!("attach {}", program.pid())).user(user).ends();
    attached.fails(2, &["belongs to root: only root may move its threads (sudo trimtab attach"]);
    let detached = sandbox.trimtab(&format!("detach {}", program.pid())).user(user).ends();
    assert_eq!(detached.code, Some(1), "{detached}");
}

#[test]
fn a_process_named_twice_is_one() {
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell("echo on; exec cat").begins();
    program.line();
    let pid = program.pid();
    let words = format!("attach {pid} {pid} --balance float --for 50ms --json");
    let said = sandbox.trimtab(&words).ends().ok();
    let header: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(header["header"]["command"].as_str().unwrap().matches(&pid.to_string()).count(), 1, "{said}");
    let look = sandbox.trimtab(&format!("top --json -i 50ms {pid} {pid}")).ends().ok();
    let look: serde_json::Value = serde_json::from_str(&look).unwrap();
    assert_eq!(look["programs"].as_array().unwrap().len(), 1, "{look}");
    assert_eq!(look["programs"][0]["threads"], 1, "{look}");
}

#[test]
fn masks_given_back_are_said_once_and_one_is_one() {
    let [_, _] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    for (threads, words) in
        [("1", "1 thread has its own mask again"), ("2", "2 threads have their own masks again")]
    {
        let mut program = sandbox.shell(&format!("exec {} {threads}", spins.display())).begins();
        program.line();
        let pid = program.pid();
        let attached = sandbox.trimtab(&format!("attach {pid} -v --balance pinned --interval 5ms")).begins();
        eventually("threads are moved", || workers_are_bound(pid));
        attached.signal(Signal::INT);
        let said = attached.ends();
        assert_eq!(said.stderr.matches(words).count(), 1, "{said}");
        assert!(!said.stderr.contains("1 threads") && !said.stderr.contains("1 samples,"), "{said}");
    }
}

#[test]
fn two_balancers_of_one_program_are_one_too_many() {
    let [_, _] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 2", spins.display())).begins();
    program.line();
    let pid = program.pid();
    let first = sandbox.trimtab(&format!("attach {pid} --balance pinned --interval 5ms")).begins();
    eventually("threads are moved", || workers_are_bound(pid));
    let second = sandbox.trimtab(&format!("attach {pid} --balance speed")).ends();
    second.fails(
        2,
        &[&format!("process {pid} is balanced by process {} already", first.pid()), "trimtab detach"],
    );
    let said = sandbox.trimtab(&format!("detach {pid}")).ends().ok();
    assert!(said.contains(&format!("balancer {} was asked to stop", first.pid())), "{said}");
    assert_eq!(first.ends().code, Some(0));
    assert!(masks(pid).iter().all(|mask| mask.len() == 2), "{:?}", masks(pid));
    let nothing = sandbox.trimtab(&format!("detach {pid}")).ends();
    assert_eq!((nothing.code, nothing.out().contains("no balancer has moved")), (Some(1), true), "{nothing}");
}

/// Returns a process's state as the kernel shows it: `T` is stopped.
fn state(pid: u32) -> char {
    let stat = text(Path::new(&format!("/proc/{pid}/stat")));
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?')
}

#[test]
fn a_stopped_balancer_restores_masks_and_continues_later() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 2", spins.display())).begins();
    program.line();
    let pid = program.pid();
    let before = masks(pid);
    let trace = sandbox.path("trace.jsonl");
    let attached = sandbox
        .trimtab(&format!("attach {pid} --balance pinned --interval 400ms --trace"))
        .arg(&trace)
        .begins();
    let moved = || workers_are_bound(pid);
    eventually("threads are moved", moved);
    for _ in 0..2 {
        attached.signal(Signal::TSTP);
        eventually("it is stopped", || state(attached.pid()) == 'T');
        assert_eq!(masks(pid), before);
        let nothing = sandbox.trimtab(&format!("detach {pid}")).ends();
        assert_eq!(nothing.code, Some(1), "{nothing}");
        attached.signal(Signal::CONT);
        eventually("threads are moved again", moved);
    }
    attached.signal(Signal::INT);
    attached.ends().ok();
    assert_eq!(masks(pid), before);
    sandbox.trimtab("replay --check").arg(&trace).ends().ok();
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn a_balancer_that_cannot_answer_is_woken_to_let_go() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 2", spins.display())).begins();
    program.line();
    let pid = program.pid();
    let before = masks(pid);
    let attached = sandbox.trimtab(&format!("attach {pid} --balance pinned --interval 5ms")).begins();
    eventually("threads are moved", || workers_are_bound(pid));
    attached.signal(Signal::STOP);
    eventually("it is stopped", || state(attached.pid()) == 'T');
    let said = sandbox.trimtab(&format!("detach {pid}")).ends().ok();
    assert!(said.contains("was stopped, and is continued"), "{said}");
    assert_eq!(attached.ends().code, Some(0));
    assert_eq!(masks(pid), before);
}

#[test]
fn a_run_that_is_stopped_as_a_whole_is_not_continued_by_detaching() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut running = sandbox.run("-c 2 --balance=pinned --interval 5ms").arg(&spins).arg("2").begins();
    running.line();
    let program = child(running.pid());
    eventually("threads are moved", || workers_are_bound(program));
    let group =
        |signal| kill_process_group(Pid::from_raw(running.pid().cast_signed()).unwrap(), signal).unwrap();
    group(Signal::STOP);
    eventually("both are stopped", || [program, running.pid()].map(state) == ['T', 'T']);
    let said = sandbox.trimtab(&format!("detach {program}")).ends().ok();
    assert!(said.contains("the whole run is stopped"), "{said}");
    assert_eq!([program, running.pid()].map(state), ['T', 'T']);
    group(Signal::CONT);
    eventually("masks are given back", || masks(program).iter().all(|mask| mask.len() == 2));
    assert_eq!(running.ends().code, Some(9));
}

#[test]
fn bound_threads_are_left_alone_on_request() {
    let [a, b] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    // The main thread is bound after the others were created.
    let mut program = sandbox.shell(&format!("exec {} 2", spins.display())).begins();
    program.line();
    let pid = program.pid();
    let bind = |list: &str| {
        let set = format!("taskset -pc {list} {pid} >/dev/null");
        assert_eq!(sandbox.shell(&set).ends().code, Some(0));
    };
    need!(crate::util::installed("taskset"), "taskset is not installed");
    bind(&a.to_string());
    let attached = sandbox
        .trimtab(&format!("attach {pid} --balance pinned --respect-masks --interval 5ms --json"))
        .begins();
    eventually("the others are moved", || masks(pid).iter().filter(|mask| mask.len() == 1).count() == 3);
    attached.signal(Signal::INT);
    let said = attached.ends().ok();
    assert!(said.contains("\"left\":\"asked\""), "{said}");
    let whole = BTreeSet::from([a, b]);
    let mut after = masks(pid);
    after.sort_by_key(BTreeSet::len);
    assert_eq!(after, [BTreeSet::from([a]), whole.clone(), whole]);
}

#[test]
fn threads_that_were_all_bound_to_one_cpu_are_freed_on_request_only() {
    let [a, b] = need!(two(), "two cores are needed");
    need!(crate::util::installed("taskset"), "taskset is not installed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let one = ["taskset".to_owned(), "-c".to_owned(), a.to_string()];
    let mut program = sandbox.shell(&format!("exec {} 3", spins.display())).through(one).begins();
    program.line();
    let pid = program.pid();
    let attach = |options: &str| {
        sandbox.trimtab(&format!("attach {pid} --cpus {a},{b} --interval 5ms --json {options}")).begins()
    };
    let attached = attach("");
    eventually("the masks are noticed", || {
        attached.said().contains("\"respected\":{\"threads\":3,\"cpus\":1}")
    });
    attached.signal(Signal::INT);
    let said = attached.ends().ok();
    assert!(!said.contains("\"confine\""), "{said}");
    let attached = attach("--free");
    let elsewhere = || masks(pid).iter().any(|mask| mask.contains(&b));
    eventually("a thread may use the other CPU", elsewhere);
    attached.signal(Signal::INT);
    attached.ends().ok();
    assert!(!elsewhere(), "each thread has its own mask again");
    let refused = sandbox.trimtab(&format!("attach {pid} --free --balance speed")).ends();
    refused.fails(2, &["--free has no effect with speed", "applies to auto"]);
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn a_reader_that_leaves_ends_it_in_silence() {
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 1", spins.display())).begins();
    program.line();
    let script = format!("\"$T\" attach --json --interval 5ms --balance float {} | head -n 2", program.pid());
    let said = sandbox.shell(&script).ends().ok();
    assert_eq!(said.lines().count(), 2);
    let full = sandbox
        .trimtab(&format!("attach {} --for 100ms --interval 5ms --trace /dev/full", program.pid()))
        .ends();
    full.warns(&["the trace ends here: /dev/full"]);
    // If the lines are the only output requested, it is a failure.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let call = sandbox.trimtab(&format!("attach --json --interval 5ms --balance float {}", program.pid()));
    call.onto(full).ends().fails(2, &["standard output cannot be written", "No space left"]);
    assert_eq!(text(&sandbox.path("nothing")), "");
}

#[test]
fn detaching_needs_something_to_detach() {
    let sandbox = Sandbox::new();
    // The machine may have its own service.
    assert_eq!(crate::serve::ask(&sandbox, "detach --all").ends().ok(), "");
    sandbox.trimtab("detach 4194999").ends().fails(2, &["there is no process 4194999"]);
    sandbox.trimtab("detach").ends().fails_with(2, "Usage");
}

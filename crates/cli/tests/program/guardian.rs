//! Guardians: masks are restored automatically when a balancer is killed.
//!
//! `TRIMTAB_KILLS` (24 unless set) is the number of attached balancers that are killed, and
//! `TRIMTAB_KILLS_SEED` (18 unless set) draws their policies and moments.

use crate::balance::{child, masks};
use crate::bounds::Group;
use crate::serve::{ask, daemon};
use crate::util::{Orphan, Random, Running, Sandbox, c, eventually, nap, need, two};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn raw(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// Returns the guardian of a process, found by its name in `ps`.
fn guardian(of: u32) -> Option<u32> {
    let called = format!("trimtab: guardian of {of}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == called.as_bytes()))
}

/// Kills a balancer and its guardian, like a kill of the whole control group. Masks stay as they
/// are.
pub(crate) fn kill_with_guardian(balancer: &Running<'_>) {
    let guardian = guardian(balancer.pid()).expect("threads were moved, so there is a guardian");
    kill_process(raw(guardian), Signal::KILL).unwrap();
    balancer.signal(Signal::KILL);
}

fn is_free(pid: u32) -> bool {
    masks(pid).iter().all(|mask| mask.len() == 2)
}

fn is_moved(pid: u32) -> bool {
    masks(pid).iter().any(|mask| mask.len() == 1)
}

/// Draws a policy, and the time that it works before it is killed.
fn chance(random: &mut Random) -> (&'static str, u64) {
    let policies = ["pinned", "exchange", "speed", "nudge", "auto"];
    let policy = policies[usize::try_from(random.below(5)).unwrap()];
    (policy, random.below(60))
}

/// Leaves a balancer some time; policies that move threads at once, until they have.
fn leave_to_work(policy: &str, pid: u32, ms: u64) {
    if policy == "pinned" {
        eventually("threads are moved", || is_moved(pid));
    }
    std::thread::sleep(Duration::from_millis(ms));
}

/// Returns a number of the environment, or another where it is not set.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The outcome of many kills.
#[derive(Default)]
struct Kills {
    /// Balancers that had a thread on one CPU immediately before they were killed.
    narrowed: usize,
    /// Time from each of these kills until every mask was back, as seen by a look every 5 ms.
    restored: Vec<Duration>,
}

impl Kills {
    /// Kills a balancer, or its whole process group, and waits until all masks are back.
    fn kill(&mut self, attached: Running<'_>, group: bool, pid: u32) {
        let narrowed = is_moved(pid);
        let begin = Instant::now();
        if group {
            // A test starts each call as the leader of a group.
            kill_process_group(raw(attached.pid()), Signal::KILL).unwrap();
        } else {
            attached.signal(Signal::KILL);
        }
        attached.ends();
        eventually("masks are back", || is_free(pid));
        if narrowed {
            self.narrowed += 1;
            self.restored.push(begin.elapsed());
        }
    }

    #[expect(clippy::print_stdout, reason = "a result of the test, shown where it is asked for")]
    fn tell(mut self, all: u64) {
        self.restored.sort();
        let (median, last) = (self.restored.get(self.restored.len() / 2), self.restored.last());
        println!(
            "{all} kills, {} with narrowed masks, 0 left; back after {median:?} (median), {last:?} (last)",
            self.narrowed
        );
    }
}

#[test]
fn whenever_an_attached_balancer_is_killed_masks_come_back_by_themselves() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec nice -n 19 {} 3", spins.display())).begins();
    program.line();
    let pid = program.pid();
    let (all, mut random) = (number("TRIMTAB_KILLS", 24), Random(number("TRIMTAB_KILLS_SEED", 18)));
    let mut kills = Kills::default();
    for round in 0..all {
        let (policy, ms) = chance(&mut random);
        let attached = sandbox.trimtab(&format!("attach {pid} --balance {policy} --interval 5ms")).begins();
        leave_to_work(policy, pid, ms);
        kills.kill(attached, round % 2 == 1, pid);
    }
    kills.tell(all);
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn whenever_the_parent_of_a_balanced_run_is_killed_masks_come_back_by_themselves() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut random = Random(19);
    for _ in 0..6 {
        let (policy, ms) = chance(&mut random);
        let options = format!("-c 2 --balance={policy} --interval 5ms");
        let mut running = sandbox.run(&options).sh(&format!("echo $$; exec {} 3", spins.display())).begins();
        let pid: u32 = running.lines(2)[0].parse().unwrap();
        let orphan = Orphan::of(&pid.to_string());
        leave_to_work(policy, pid, ms);
        running.signal(Signal::KILL);
        eventually("masks are back", || is_free(pid));
        drop(orphan);
        drop(running);
        sandbox.until_free();
    }
}

#[test]
fn after_a_kill_of_balancer_and_guardian_the_next_call_restores_masks() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 3", spins.display())).begins();
    program.line();
    let (pid, mut random) = (program.pid(), Random(20));
    for round in 0..12 {
        let policy = ["pinned", "exchange", "speed"][round % 3];
        let attached = sandbox.trimtab(&format!("attach {pid} --balance {policy} --interval 5ms")).begins();
        eventually("threads are moved", || is_moved(pid));
        std::thread::sleep(Duration::from_millis(random.below(40)));
        kill_with_guardian(&attached);
        attached.ends();
        // Any call that places threads, of any program.
        sandbox.run("-c 1 --share").arg("true").ends().ok();
        assert!(is_free(pid), "{policy}: {:?}", masks(pid));
    }
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn when_the_service_is_killed_masks_come_back_by_themselves() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 3", spins.display())).begins();
    program.line();
    for _ in 0..3 {
        let daemon = daemon(&sandbox, "");
        ask(&sandbox, &format!("tag {}", program.pid())).ends().ok();
        eventually("threads are moved", || is_moved(program.pid()));
        daemon.signal(Signal::KILL);
        daemon.ends();
        eventually("masks are back", || is_free(program.pid()));
    }
}

#[test]
fn threads_created_while_masks_are_restored_get_theirs_too() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    // Threads start and end all the time, each with the mask of the first.
    let program = sandbox.shell(&format!("exec {} 1 100000000", spins.display())).begins();
    let pid = program.pid();
    for _ in 0..4 {
        let attached = sandbox.trimtab(&format!("attach {pid} --balance pinned --interval 5ms")).begins();
        eventually("threads are moved", || is_moved(pid) || guardian(attached.pid()).is_some());
        attached.signal(Signal::KILL);
        attached.ends();
        eventually("masks are back", || is_free(pid));
    }
    // Otherwise its threads would start and end for hours.
    drop(program);
}

#[test]
fn a_guardian_holds_nothing_is_nobodys_child_and_ends_with_its_balancer() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let options = "-c 2 --balance=pinned --interval 5ms";
    let mut running = sandbox.run(options).arg(&spins).arg("2").begins();
    running.line();
    eventually("there is a guardian", || guardian(running.pid()).is_some());
    let found = guardian(running.pid()).unwrap();
    let descriptors = || -> BTreeSet<String> {
        let listed = fs::read_dir(format!("/proc/{found}/fd")).unwrap().flatten();
        let led = listed.map(|entry| fs::read_link(entry.path()).unwrap().display().to_string());
        led.map(|to| to.split(':').next().unwrap_or_default().to_owned()).collect()
    };
    // The descriptor of its balancer's process is an anonymous inode in older kernels.
    let process = ["pidfd", "anon_inode"].map(str::to_owned);
    eventually("it holds a pipe, its balancer's process and nothing else", || {
        let mut held = descriptors();
        let holds = process.iter().any(|one| held.remove(one));
        holds && held == BTreeSet::from(["pipe".to_owned(), "/dev/null".to_owned()])
    });
    assert_eq!(fs::read_link(format!("/proc/{found}/cwd")).unwrap(), Path::new("/"));
    let stat = fs::read_to_string(format!("/proc/{found}/stat")).unwrap();
    let words: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    // Of proc(5): state, parent, group, session, terminal.
    assert_ne!(words[1], running.pid().to_string());
    assert_eq!(words[2..5], [found.to_string().as_str(), found.to_string().as_str(), "0"]);
    let program = child(running.pid());
    assert!(program != 0 && program != found, "the program is the only child");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        kill_process(raw(found), signal).unwrap();
    }
    nap();
    assert_eq!(
        guardian(running.pid()),
        Some(found),
        "signals of terminals and service managers are not for it"
    );
    let pid = running.pid();
    assert_eq!(running.ends().code, Some(9));
    eventually("it has ended", || guardian(pid).is_none());
}

#[test]
fn where_no_mask_is_set_there_is_no_guardian() {
    let sandbox = Sandbox::new();
    let spins = need!(c("spins.c"), "no C compiler");
    let mut program = sandbox.shell(&format!("exec {} 2", spins.display())).begins();
    program.line();
    let attach = format!("attach {} --balance float --interval 5ms --json", program.pid());
    let attached = sandbox.trimtab(&attach).begins();
    eventually("some looks", || attached.said().lines().count() > 5);
    assert_eq!(guardian(attached.pid()), None);
    attached.signal(Signal::INT);
    attached.ends();
    let mut running = sandbox.run("-c 1 --report=r.txt --interval 5ms").arg(&spins).arg("2").begins();
    running.line();
    nap();
    assert_eq!(guardian(running.pid()), None);
    running.ends();
}

#[test]
fn a_guardian_that_is_killed_is_replaced() {
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 2", spins.display())).begins();
    program.line();
    let pid = program.pid();
    let attached = sandbox.trimtab(&format!("attach {pid} --balance pinned --interval 5ms")).begins();
    eventually("threads are moved", || is_moved(pid));
    let first = guardian(attached.pid()).unwrap();
    kill_process(raw(first), Signal::KILL).unwrap();
    eventually("there is another", || guardian(attached.pid()).is_some_and(|found| found != first));
    attached.signal(Signal::KILL);
    attached.ends();
    eventually("masks are back", || is_free(pid));
}

#[test]
fn a_process_in_a_cpuset_grows_with_it_after_every_end_of_balancing() {
    let [a, b] = need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let settings = [("cpuset.cpus", format!("{a},{b}")), ("cpuset.mems", "0".to_owned())];
    let group = need!(Group::new("cpuset", &settings), "no cpuset can be made here");
    let set = |list: &str| fs::write(group.0.join("cpuset.cpus"), list).unwrap();
    let sandbox = Sandbox::new();
    let mut program = sandbox.trimtab("").copy(&spins).arg("2").through(group.join()).begins();
    program.line();
    let pid = program.pid();
    let grows = |how: &str| {
        eventually("masks are back", || is_free(pid));
        for list in [a.to_string(), b.to_string()] {
            set(&list);
            assert!(masks(pid).iter().all(|mask| mask.len() == 1), "{how}");
            set(&format!("{a},{b}"));
            assert!(is_free(pid), "{how}: {:?}", masks(pid));
        }
    };
    grows("before it was ever balanced");
    for how in ["Ctrl-C", "detach", "kill", "kill with the guardian, then detach"] {
        let mut attached = sandbox.trimtab(&format!("attach {pid} --balance pinned --interval 5ms")).begins();
        eventually("threads are moved", || is_moved(pid));
        match how {
            "Ctrl-C" => attached.signal(Signal::INT),
            "detach" => drop(sandbox.trimtab(&format!("detach {pid}")).ends().ok()),
            "kill" => attached.signal(Signal::KILL),
            _ => {
                kill_with_guardian(&attached);
                eventually("it is gone", || !attached.lives());
                sandbox.trimtab(&format!("detach {pid}")).ends().ok();
            }
        }
        attached.ends();
        grows(how);
    }
    let daemon = daemon(&sandbox, "");
    // While it is balanced, the cpuset shrinks and grows.
    for cpus in [a.to_string(), format!("{a},{b}")] {
        set(&cpus);
        ask(&sandbox, &format!("tag {pid}")).ends().ok();
        eventually("threads are moved", || is_moved(pid));
        set(&format!("{a},{b}"));
        ask(&sandbox, &format!("untag {pid}")).ends().ok();
        grows("clear");
    }
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
    grows("the end of the service");
    assert_eq!(program.ends().code, Some(9));
}

//! Journal of masks, kept in case a balancer is killed, and the behaviour of two balancers towards
//! each other.

use crate::groups::{NO_GROUPS, cpuset};
use crate::scene::{
    NO_COMPILER, Observations, PROC, TASK, Worker, apply, eventually, is_root, mask, need, set, two_cpus,
    usable,
};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use trimtab_core::balance::{Act, Refusal, Settled};
use trimtab_core::ids::ProgramId;
use trimtab_core::observe::Left;
use trimtab_linux::host::affinity_journal::{LeftBehind, LeftEnd, restore_left_behind};
use trimtab_linux::host::{AffinityJournal, HostOptions, Live, Restored, Root, Watch};
use trimtab_linux::ledger::{BootId, Location};
use trimtab_linux::process::{Pid, Tid};
use trimtab_linux::sys::affinity;

const BOOT: &str = "00000000-1111-2222-3333-444444444444";

/// Returns one folder for all; or, if the folder has such below it, the usual folders of a machine.
fn location(folder: &Path) -> Location {
    let boot = BootId::parse(BOOT).unwrap();
    if folder.join(SHARED).is_dir() { Location::usual(folder, boot) } else { Location::named(folder, boot) }
}

const SHARED: &str = "dev/shm";
const OF_ROOT: &str = "run/trimtab-balance";

/// Makes folders that resemble a machine's, from the root down.
fn machine() -> tempfile::TempDir {
    let root = tempfile::Builder::new().prefix("live-test-").tempdir().unwrap();
    for (folder, mode) in [("", 0o755), ("dev", 0o755), ("run", 0o755), (SHARED, 0o1777)] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
        fs::set_permissions(root.path().join(folder), fs::Permissions::from_mode(mode)).unwrap();
    }
    root
}

/// Returns the file name of a process's record.
fn record_of(pid: Pid) -> String {
    let start = trimtab_linux::process::stat(Path::new(PROC), pid).unwrap().start;
    format!("trimtab-{}.balance-{pid}-{}", BootId::parse(BOOT).unwrap(), start.0)
}

fn give_to(path: &Path, uid: u32) {
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
}

/// Makes a directory like the shared ones of a real machine.
fn shared() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("live-test-").tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

fn keeping(folder: &Path) -> HostOptions {
    let keep = AffinityJournal::open(&location(folder), Path::new(PROC)).unwrap();
    HostOptions { keep: Some(keep), ..HostOptions::default() }
}

fn records(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn left(folder: &Path, only: Option<Pid>) -> Vec<LeftBehind> {
    restore_left_behind(&location(folder), Path::new(PROC), only).unwrap()
}

fn restored(given_back: u32, changed: u32, vanished: u32, refused: u32) -> LeftEnd {
    LeftEnd::Restored { given_back, changed, vanished, refused }
}

/// Copies this test to a path where any user can start it.
pub(crate) fn for_others() -> (PathBuf, tempfile::TempDir) {
    let folder = tempfile::Builder::new().prefix("live-actor-").tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("actor");
    // Copied by another program: while a file is open for writing here, a child that another test
    // starts at that moment has it open too.
    let own = std::env::current_exe().unwrap();
    assert!(Command::new("cp").args([own.as_path(), &copy]).status().unwrap().success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    (copy, folder)
}

/// Returns a host that watches a process by its number, and the results of its first sample.
fn watching(pid: &str, options: HostOptions) -> (Live, Observations) {
    let root = Root::Tree(Pid(pid.parse().unwrap()));
    let mut live = Live::with(Path::new(PROC), &[root], &usable(), options).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    (live, seen)
}

/// Carries out the role: `balance PID CPU FOLDER` moves all threads of a process to a CPU and stays
/// until it is killed; others are for tests with several users. Reports its result in a line that
/// begins with `@`.
pub(crate) fn balance(task: &str) {
    let say = |text: &str| println!("\n@{text}");
    let words: Vec<&str> = task.split(' ').collect();
    match words[..] {
        ["balance", pid, cpu, folder] => {
            let (mut live, seen) = watching(pid, keeping(Path::new(folder)));
            for id in seen.threads.keys().copied().collect::<Vec<_>>() {
                assert_eq!(apply(&mut live, id, Act::Confine(set(cpu))), Settled::Applied);
            }
            say("moved");
            loop {
                std::thread::park();
            }
        }
        ["nudge", pid, cpu, other, folder] => {
            let (mut live, seen) = watching(pid, keeping(Path::new(folder)));
            for id in seen.threads.keys().copied().collect::<Vec<_>>() {
                for act in [Act::Confine(set(cpu)), Act::Nudge(set(other))] {
                    assert_eq!(apply(&mut live, id, act), Settled::Applied);
                }
            }
            say("moved");
            loop {
                std::thread::park();
            }
        }
        ["claims", pid, folder] => {
            let (mut live, seen) = watching(pid, keeping(Path::new(folder)));
            let (id, info) = seen.threads.first_key_value().unwrap();
            let (id, left) = (*id, info.left.clone());
            let end = apply(&mut live, id, Act::Confine(usable()));
            say(&format!("{left:?} {end:?} {:?}", live.facts().keeper_fault));
        }
        ["refused", pid, ref proc @ ..] => {
            let root = Root::Tree(Pid(pid.parse().unwrap()));
            let proc = proc.first().copied().unwrap_or(PROC);
            say(&Live::new(Path::new(proc), &[root], &usable()).unwrap_err().to_string());
        }
        ["at-once", pid] => say(&crate::at_once::state_of(pid.parse().unwrap())),
        ["counted", pid] => say(&crate::counting::count_others(pid.parse().unwrap())),
        ["observed", pid] => {
            let (_live, seen) = watching(pid, HostOptions { hands_off: true, ..HostOptions::default() });
            let read = seen.last.threads.len();
            let left = seen.threads.values().all(|info| info.left.is_some());
            say(&format!("{read} read, all left: {left}"));
        }
        ["skipping", ref pids @ .., proc] => {
            let roots: Vec<Root> = pids.iter().map(|pid| Root::Tree(Pid(pid.parse().unwrap()))).collect();
            let options = HostOptions { hands_off: true, ..HostOptions::default() };
            match Live::with(Path::new(proc), &roots, &usable(), options) {
                Ok(live) => {
                    let facts = live.facts();
                    say(&format!("{} watched, {} unreadable", facts.processes, facts.unreadable));
                }
                Err(error) => say(&error.to_string()),
            }
        }
        ["others", _] => say(&crate::refusals::watch_others()),
        ["restore", folder] => say(&format!("{:?}", left(Path::new(folder), None))),
        _ => panic!("{words:?}"),
    }
}

/// Returns the report of this test as another user, in a role.
pub(crate) fn as_user(uid: u32, task: &str) -> String {
    let (program, _copy) = for_others();
    said_by(&program, uid, task)
}

/// Returns the report of that copy of this test as another user, in a role.
pub(crate) fn said_by(program: &Path, uid: u32, task: &str) -> String {
    let mut other = Command::new(program);
    other.args(["role", "--exact", "--nocapture", "--test-threads=1"]).env(TASK, task).current_dir("/");
    std::os::unix::process::CommandExt::uid(&mut other, uid);
    std::os::unix::process::CommandExt::gid(&mut other, uid);
    let output = other.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix('@'));
    line.unwrap_or_else(|| panic!("{task}: {said}")).to_owned()
}

/// Another balancer that has moved all threads of `worker` to `cpu`.
struct Balancer(Child);

impl Balancer {
    fn start(worker: &Worker, cpu: &str, folder: &Path) -> Self {
        Self::start_as(&format!("balance {} {cpu} {}", worker.pid(), folder.display()))
    }

    fn start_as(task: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "@moved"));
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_balancers_masks_are_given_back() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tids = worker.threads(3);
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[0])), "0");
    let balancer = Balancer::start(&worker, &one.to_string(), folder.path());
    assert!(tids.iter().all(|tid| mask(*tid) == one));
    let pid = Pid(balancer.0.id());
    let of = worker.pid();
    let about = |end| [LeftBehind { pid: of, balancer: Some(pid), socket: None, end }];
    let in_use = about(LeftEnd::InUse);
    assert_eq!(left(folder.path(), None), in_use, "while it lives nothing is touched");
    balancer.kill();
    assert!(tids.iter().all(|tid| mask(*tid) == one), "the program still runs as it was");
    assert_eq!(records(folder.path()).len(), 1);
    // One thread was rebound by its program since.
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[2])), "0");
    assert_eq!(left(folder.path(), Some(Pid(1))), [], "another's");
    // And one was started since, with the mask of the thread that made it.
    let born = worker.threads(1)[0];
    assert_eq!(mask(born), one);
    let found = left(folder.path(), Some(worker.pid()));
    let end = restored(4, 1, 0, 0);
    assert_eq!(mask(born), usable());
    assert_eq!(found, about(end));
    let masks: Vec<_> = tids.iter().map(|tid| mask(*tid)).collect();
    assert_eq!(masks, [other.clone(), usable(), other]);
    assert_eq!(records(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(left(folder.path(), None), []);
}

#[test]
fn masks_left_by_a_killed_balancer_in_a_cpuset_grow_with_it_again() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let both = one.union(&other);
    let group = need!(cpuset("left", &both), NO_GROUPS);
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tids = worker.threads(2);
    group.add(worker.pid());
    assert_eq!(worker.ask(&format!("bind {} {other}", tids[1])), "0");
    for meanwhile in [&both, &one, &other] {
        Balancer::start(&worker, &one.to_string(), folder.path()).kill();
        // The cpuset changes before the masks are restored; it removes the CPUs on which they are
        // held, or the rest.
        group.write("cpuset.cpus", &meanwhile.to_string()).unwrap();
        let end = left(folder.path(), None).remove(0).end;
        assert!(matches!(end, LeftEnd::Restored { changed: 0, refused: 0, .. }), "{meanwhile}: {end:?}");
        group.write("cpuset.cpus", &both.to_string()).unwrap();
        assert_eq!(mask(tids[0]), both, "{meanwhile}");
        assert!(other.is_subset(&mask(tids[1])), "{meanwhile}: its own mask was not lost: {}", mask(tids[1]));
        assert_eq!(worker.ask(&format!("bind {} {other}", tids[1])), "0");
    }
}

#[test]
fn children_that_a_killed_balancer_never_saw_get_the_programs_mask_too() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let balancer = Balancer::start(&worker, &one.to_string(), folder.path());
    let child = Tid(worker.ask("fork").parse().unwrap());
    assert_eq!(mask(child), one);
    balancer.kill();
    assert_eq!(left(folder.path(), None)[0].end, restored(2, 0, 0, 0));
    assert_eq!([mask(child), mask(worker.pid().main_thread())], [usable(), usable()]);
}

#[test]
fn a_nudge_does_not_hide_a_confinement() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tid = worker.threads(1)[0];
    Balancer::start_as(&format!("nudge {} {one} {other} {}", worker.pid(), folder.path().display())).kill();
    assert_eq!(mask(tid), one);
    assert_eq!(left(folder.path(), None)[0].end, restored(2, 0, 0, 0));
    assert_eq!(mask(tid), usable());
}

#[test]
fn a_user_stands_back_where_root_balances() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    let (folder, theirs) = (shared(), need!(Worker::start_as(Some(61_001)), NO_COMPILER));
    let task = format!("claims {} {}", theirs.pid(), folder.path().display());
    let balancer = Balancer::start(&theirs, &one.to_string(), folder.path());
    assert_eq!(as_user(61_001, &task), "Some(Balancer(0)) Refused(Other) None");
    assert_eq!(mask(theirs.pid().main_thread()), one);
    // Only root may clear up the record that a killed balancer left; until then no record can be
    // kept.
    balancer.kill();
    let said = as_user(61_001, &task);
    assert!(said.starts_with("None Applied Some(") && said.contains("belongs to user 0"), "{said}");
}

#[test]
fn root_stands_back_where_a_user_balances() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    let (folder, theirs) = (shared(), need!(Worker::start_as(Some(61_001)), NO_COMPILER));
    let balancer = Balancer::start(&theirs, &one.to_string(), folder.path());
    std::os::unix::fs::chown(&records(folder.path())[0], Some(61_001), Some(61_001)).unwrap();
    let (_live, seen) = theirs.seen_with(keeping(folder.path()));
    let by = Some(Left::Balancer(balancer.0.id()));
    assert!(seen.threads.values().all(|info| info.left == by), "{:?}", seen.threads);
    // A third user's record about it is not trusted.
    std::os::unix::fs::chown(&records(folder.path())[0], Some(61_002), Some(61_002)).unwrap();
    let (_live, seen) = theirs.seen_with(keeping(folder.path()));
    assert!(seen.threads.values().all(|info| info.left.is_none()), "{:?}", seen.threads);
}

#[test]
fn threads_that_ended_since_and_numbers_used_again_are_left_alone() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    worker.threads(1);
    Balancer::start(&worker, &one.to_string(), folder.path()).kill();
    worker.end();
    let found = left(folder.path(), None);
    assert_eq!(found[0].end, restored(0, 0, 2, 0));
    assert_eq!(records(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn the_next_balancer_takes_over_the_masks_of_a_killed_one() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tid = worker.threads(1)[0];
    Balancer::start(&worker, &one.to_string(), folder.path()).kill();
    // One thread is started since.
    let born = worker.threads(1)[0];
    assert_eq!(mask(born), one);
    let (mut live, mut seen) = worker.seen_with(keeping(folder.path()));
    assert_eq!(seen.info(tid).left, None, "nobody balances it any more");
    assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(other.clone())), Settled::Applied);
    assert_eq!(mask(tid), other);
    seen.look(&mut live);
    assert!(
        seen.threads.values().all(|info| info.home == usable()),
        "what is taken over is told: {:?}",
        seen.threads
    );
    assert_eq!(live.restore(), Restored { given_back: 3, ..Restored::default() });
    assert!([tid, born, worker.pid().main_thread()].iter().all(|tid| mask(*tid) == usable()));
    assert_eq!(records(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn of_two_balancers_the_second_stands_back() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tid = worker.threads(1)[0];
    // Neither has moved anything when both begin.
    let mut first = worker.live_with(keeping(folder.path()));
    let mut second = worker.live_with(keeping(folder.path()));
    let (mut seen, mut seen_too) = (Observations::default(), Observations::default());
    seen.look(&mut first);
    seen_too.look(&mut second);
    assert_eq!(seen_too.info(tid).left, None);
    assert_eq!(apply(&mut first, seen.id(tid), Act::Confine(one.clone())), Settled::Applied);
    let end = apply(&mut second, seen_too.id(tid), Act::Confine(other));
    assert_eq!(end, Settled::Refused(Refusal::Other));
    assert_eq!(mask(tid), one);
    seen_too.look(&mut second);
    let own = std::process::id();
    assert!(seen_too.threads.values().all(|info| info.left == Some(Left::Balancer(own))));
    // A balancer that comes later sees it at once.
    let mut third = worker.live_with(keeping(folder.path()));
    let mut seen_last = Observations::default();
    seen_last.look(&mut third);
    assert_eq!(seen_last.info(tid).left, Some(Left::Balancer(own)));
    drop((second, third));
    assert_eq!(mask(tid), one, "and gives nothing back that is not its own");
    drop(first);
    assert_eq!(mask(tid), usable());
    assert_eq!(records(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_record_stays_small_after_any_number_of_moves() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tid = worker.threads(1)[0];
    let (mut live, seen) = worker.seen_with(keeping(folder.path()));
    for _ in 0..2_000 {
        for cpu in [&one, &other] {
            assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(cpu.clone())), Settled::Applied);
        }
    }
    let size = fs::metadata(&records(folder.path())[0]).unwrap().len();
    assert!(size < 100_000, "{size}");
    assert_eq!(live.facts().keeper_fault, None);
}

#[test]
fn a_fault_of_the_record_is_one_warning_and_balancing_continues() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tids = worker.threads(2);
    let options = keeping(folder.path());
    // Another user made a link under the name that we would use.
    let name = folder.path().join(record_of(worker.pid()));
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &name).unwrap();
    let (mut live, seen) = worker.seen_with(options);
    for tid in &tids {
        assert_eq!(apply(&mut live, seen.id(*tid), Act::Confine(one.clone())), Settled::Applied);
    }
    let fault = live.facts().keeper_fault.unwrap();
    assert!(fault.starts_with("no record of masks is kept: ") && fault.contains("balance-"), "{fault}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(live.restore().given_back, 2);
    assert_eq!(left(folder.path(), None), []);
    assert_eq!(left(folder.path(), Some(worker.pid()))[0].end, LeftEnd::Unreadable, "to who asks for it");
    assert!(AffinityJournal::open(&location(Path::new("/nowhere")), Path::new(PROC)).is_err());
}

#[test]
fn a_name_made_by_another_user_costs_the_record_of_that_process_alone() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let (folder, worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let other = need!(Worker::start(), NO_COMPILER);
    symlink("/nowhere", folder.path().join(record_of(worker.pid()))).unwrap();
    let roots = [worker.root(), other.root()];
    let mut live = Live::with(Path::new(PROC), &roots, &usable(), keeping(folder.path())).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    for worker in [&worker, &other] {
        let id = seen.id(worker.pid().main_thread());
        assert_eq!(apply(&mut live, id, Act::Confine(one.clone())), Settled::Applied);
    }
    assert!(live.facts().keeper_fault.is_some());
    let kept = folder.path().join(record_of(other.pid()));
    assert!(fs::symlink_metadata(kept).is_ok_and(|meta| meta.is_file() && meta.len() > 0));
    // And balancers of others are seen as before.
    drop(live);
    let balancer = Balancer::start(&other, &one.to_string(), folder.path());
    let (mut live, mut seen) = worker.seen_with(keeping(folder.path()));
    apply(&mut live, seen.id(worker.pid().main_thread()), Act::Confine(one));
    assert!(live.facts().keeper_fault.is_some());
    let mut live = other.live_with(keeping(folder.path()));
    seen.look(&mut live);
    assert_eq!(seen.info(other.pid().main_thread()).left, Some(Left::Balancer(balancer.0.id())));
}

#[test]
fn root_takes_over_the_masks_of_a_users_killed_balancer() {
    let [one, other] = need!(two_cpus(), "two CPUs are needed");
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    for folder in [shared(), machine()] {
        let theirs = need!(Worker::start_as(Some(61_001)), NO_COMPILER);
        let tid = theirs.pid().main_thread();
        Balancer::start(&theirs, &one.to_string(), folder.path()).kill();
        let users = folder.path().join(if folder.path().join(SHARED).is_dir() { SHARED } else { "" });
        if users != folder.path() {
            let of_root = folder.path().join(OF_ROOT).join(record_of(theirs.pid()));
            fs::rename(of_root, users.join(record_of(theirs.pid()))).unwrap();
        }
        let record = users.join(record_of(theirs.pid()));
        give_to(&record, 61_001);
        let (mut live, mut seen) = theirs.seen_with(keeping(folder.path()));
        assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(other.clone())), Settled::Applied);
        assert_eq!(live.facts().keeper_fault, None);
        seen.look(&mut live);
        assert_eq!(seen.info(tid).home, usable(), "what is its own is taken over");
        let owner =
            |path: &Path| fs::metadata(path).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).ok();
        let now = if users == folder.path() { Some(0) } else { None };
        assert_eq!(owner(&record), now, "root keeps the record from now on, where users cannot write");
        // A balancer of its user stands back.
        let said = as_user(61_001, &format!("claims {} {}", theirs.pid(), folder.path().display()));
        assert_eq!(said, "Some(Balancer(0)) Refused(Other) None");
        assert_eq!(live.restore().given_back, 1);
        assert_eq!(mask(tid), usable());
        // A record of a third user about it is not trusted, and nothing is written to it.
        fs::write(&record, "precious").unwrap();
        give_to(&record, 61_002);
        let (mut live, seen) = theirs.seen_with(keeping(folder.path()));
        assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(other.clone())), Settled::Applied);
        assert_eq!(
            live.facts().keeper_fault.is_some(),
            users == folder.path(),
            "where root has a folder it does not even matter"
        );
        assert_eq!(fs::read_to_string(&record).unwrap(), "precious");
    }
}

#[test]
fn roots_records_are_in_a_folder_that_only_root_can_write() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    let (folder, worker) = (machine(), need!(Worker::start_as(Some(61_001)), NO_COMPILER));
    let (of_root, users) = (folder.path().join(OF_ROOT), folder.path().join(SHARED));
    // Another user has created the name in the folder of all users.
    fs::create_dir(users.join(record_of(worker.pid()))).unwrap();
    let balancer = Balancer::start(&worker, &one.to_string(), folder.path());
    assert_eq!(records(&of_root), [of_root.join(record_of(worker.pid()))]);
    fs::remove_dir(users.join(record_of(worker.pid()))).unwrap();
    let task = format!("claims {} {}", worker.pid(), folder.path().display());
    assert_eq!(as_user(61_001, &task), "Some(Balancer(0)) Refused(Other) None");
    balancer.kill();
    assert_eq!(as_user(61_001, &format!("restore {}", folder.path().display())), "[]", "root's, not theirs");
    assert_eq!(left(folder.path(), None)[0].end, restored(1, 0, 0, 0));
    assert_eq!(mask(worker.pid().main_thread()), usable());
    assert_eq!((records(&of_root).len(), records(&users).len()), (0, 0));
    // Once no balancer of root holds it, its user may balance it.
    assert_eq!(as_user(61_001, &task), "None Applied None");
    // A folder that others can write to is not accepted as root's.
    fs::set_permissions(&of_root, fs::Permissions::from_mode(0o777)).unwrap();
    let balancer = Balancer::start(&worker, &one.to_string(), folder.path());
    assert_eq!((records(&of_root).len(), records(&users).len()), (0, 1));
    balancer.kill();
}

#[test]
fn names_made_by_others_do_not_hide_masks_to_be_restored() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    let worker = need!(Worker::start(), NO_COMPILER);
    for owner in [61_002, 0] {
        let folder = shared();
        Balancer::start(&worker, &one.to_string(), folder.path()).kill();
        let stem = format!("trimtab-{}.balance-1-", BootId::parse(BOOT).unwrap());
        for start in 0..5_000 {
            let path = folder.path().join(format!("{stem}{start}"));
            fs::write(&path, "").unwrap();
            give_to(&path, owner);
        }
        assert_eq!(left(folder.path(), None).last().unwrap().end, restored(1, 0, 0, 0), "{owner}");
        assert_eq!(mask(worker.pid().main_thread()), usable());
    }
}

#[test]
fn only_masks_that_could_not_be_restored_stay_recorded() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    let (theirs, ours) = (need!(Worker::start_as(Some(61_001)), NO_COMPILER), Worker::start().unwrap());
    for tags in [false, true] {
        let folder = shared();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let roots = [ours.root(), theirs.root()];
        let mut live = Live::with(
            Path::new(PROC),
            if tags { &[] } else { &roots },
            &usable(),
            HostOptions { tags, ..keeping(folder.path()) },
        )
        .unwrap();
        let watch = |program| Watch { program: ProgramId(program), only: None, start: None };
        let group =
            tags.then(|| [&ours, &theirs].map(|worker| live.watch(&worker.root(), watch(1)).unwrap()));
        let mut seen = Observations::default();
        seen.look(&mut live);
        for worker in [&ours, &theirs] {
            let id = seen.id(worker.pid().main_thread());
            assert_eq!(apply(&mut live, id, Act::Confine(one.clone())), Settled::Applied);
        }
        // This thread alone becomes a user who may not do it.
        let (user, root) = (rustix::process::Uid::from_raw(61_001), rustix::process::Uid::ROOT);
        rustix::thread::set_thread_res_uid(root, user, root).unwrap();
        let restored = match group {
            Some(roots) => roots
                .map(|root| live.unwatch(root))
                .into_iter()
                .fold((0, 0), |sum, one| (sum.0 + one.given_back, sum.1 + one.refused)),
            None => {
                let all = live.restore();
                (all.given_back, all.refused)
            }
        };
        rustix::thread::set_thread_res_uid(root, root, root).unwrap();
        assert_eq!(restored, (1, 1));
        assert_eq!(records(folder.path()), [folder.path().join(record_of(ours.pid()))]);
        drop(live);
        left(folder.path(), None);
        assert_eq!(mask(ours.pid().main_thread()), usable());
        assert_eq!(records(folder.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn hostile_records_do_no_harm() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tid = worker.threads(1)[0];
    affinity::set(Some(tid), &one).unwrap();
    let stem = format!("trimtab-{}.balance-", BootId::parse(BOOT).unwrap());
    for (name, text) in [
        ("1-2", &b"rubbish\n\xff\xff"[..]),
        ("7-8", b""),
        ("x-y", b"names no process"),
        ("00007-8", b"nor does this"),
        ("1-2-3", b""),
    ] {
        fs::write(folder.path().join(format!("{stem}{name}")), text).unwrap();
    }
    fs::create_dir(folder.path().join(format!("{stem}5-5"))).unwrap();
    fs::File::create(folder.path().join(format!("{stem}6-6"))).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(left(folder.path(), None), []);
    assert_eq!(mask(tid), one);
}

#[test]
fn root_restores_a_users_record_only_on_that_users_threads() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tid = worker.threads(1)[0];
    Balancer::start(&worker, &one.to_string(), folder.path()).kill();
    // Another user makes a record about root's process.
    let record = &records(folder.path())[0];
    std::os::unix::fs::chown(record, Some(61_001), Some(61_001)).unwrap();
    let said = as_user(61_002, &format!("restore {}", folder.path().display()));
    assert_eq!(said, "[]", "a third user does not even see it");
    assert_eq!(left(folder.path(), None)[0].end, restored(0, 0, 0, 2));
    assert_eq!(mask(tid), one);
    // Masks that could not be restored stay recorded for a user who may.
    give_to(&records(folder.path())[0], 0);
    assert_eq!(left(folder.path(), None)[0].end, restored(2, 0, 0, 0));
    assert_eq!(mask(tid), usable());
    assert_eq!(records(folder.path()), Vec::<PathBuf>::new());
    affinity::set(Some(tid), &usable()).unwrap();
    assert_eq!(mask(Tid(tid.0)), usable());
}

#[test]
fn a_record_ends_with_its_process() {
    let [one, _] = need!(two_cpus(), "two CPUs are needed");
    let (folder, mut worker) = (shared(), need!(Worker::start(), NO_COMPILER));
    let tid = worker.threads(1)[0];
    let (mut live, mut seen) = worker.seen_with(keeping(folder.path()));
    assert_eq!(apply(&mut live, seen.id(tid), Act::Confine(one)), Settled::Applied);
    assert_eq!(records(folder.path()).len(), 1);
    worker.end();
    eventually("its record is gone", || {
        seen.look(&mut live);
        records(folder.path()).is_empty()
    });
}

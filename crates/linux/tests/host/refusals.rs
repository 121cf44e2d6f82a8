//! Refusals: a program that cannot be watched is refused in one line that names a remedy.

use crate::keeping::{as_user, said_by};
use crate::scene::{NO_COMPILER, PROC, Worker, apply, is_root, need, usable};
use std::path::Path;
use std::process::Command;
use trimtab_core::balance::{Act, Refusal, Settled};
use trimtab_core::ids::OsNode;
use trimtab_core::observe::{Left, Notice, Unfetched};
use trimtab_linux::host::{Live, Root};
use trimtab_linux::process::Pid;

fn refused(root: Root) -> String {
    Live::new(Path::new(PROC), &[root], &usable()).unwrap_err().to_string()
}

#[test]
fn a_root_that_is_no_program_is_refused_with_its_kind() {
    assert_eq!(refused(Root::Tree(Pid(4_000_000_000))), "there is no process 4000000000");
    assert!(refused(Root::Tree(Pid::own())).contains("is trimtab itself"));
    assert!(refused(Root::Cgroup("/nowhere".into())).starts_with("no control group at /nowhere"));
    assert!(Live::new(Path::new(PROC), &[], &usable()).unwrap_err().to_string().contains("nothing to watch"));
    let kernel = trimtab_linux::process::stat(Path::new(PROC), Pid(2));
    if kernel.is_ok_and(|stat| stat.kernel_thread) {
        assert!(refused(Root::Tree(Pid(2))).contains("thread of the kernel"));
    } else {
        eprintln!("SKIPPED: no thread of the kernel to be seen here");
    }
}

#[test]
fn a_thread_is_no_process() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tid = worker.threads(1)[0];
    let said = refused(Root::Tree(Pid(tid.0)));
    assert_eq!(said, format!("{tid} is a thread of process {}: name the process", worker.pid()));
}

#[test]
fn a_process_that_only_waits_to_be_collected_is_refused() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = Pid(child.id());
    crate::scene::eventually("it ends", || {
        trimtab_linux::process::stat(Path::new(PROC), pid)
            .is_ok_and(|stat| stat.state == trimtab_linux::process::State::Zombie)
    });
    assert!(refused(Root::Tree(pid)).contains("has ended"));
    child.wait().unwrap();
}

#[test]
fn another_users_program_is_refused_and_its_threads_are_left() {
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    let mut theirs = need!(Worker::start_as(Some(61_001)), NO_COMPILER);
    theirs.threads(1);
    // The test itself, as another user, tries to watch it.
    let said = as_user(61_002, &format!("refused {}", theirs.pid()));
    assert!(
        said.starts_with(&format!("process {} belongs to user 61001: only that user", theirs.pid())),
        "{said}"
    );
    // Watching moves nothing, and needs no right to move.
    assert_eq!(as_user(61_002, &format!("observed {}", theirs.pid())), "2 read, all left: true");
}

#[test]
fn a_process_hidden_by_procfs_is_distinguished_from_a_missing_one() {
    if !is_root() {
        eprintln!("SKIPPED: to hide processes of others a test needs root");
        return;
    }
    let theirs = need!(Worker::start_as(Some(61_001)), NO_COMPILER);
    let (program, folder) = crate::keeping::for_others();
    let hiding = folder.path().join("proc");
    std::fs::create_dir(&hiding).unwrap();
    let mount = ["-t", "proc", "-o", "hidepid=2", "proc", hiding.to_str().unwrap()];
    if !Command::new("mount").args(mount).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no second procfs can be mounted here");
        return;
    }
    let own = need!(Worker::start_as(Some(61_002)), NO_COMPILER);
    let ask =
        |task: &str, pids: &str| said_by(&program, 61_002, &format!("{task} {pids} {}", hiding.display()));
    let (hidden, missing) = (ask("refused", &theirs.pid().to_string()), ask("refused", "4000000"));
    let both = ask("skipping", &format!("{} {}", own.pid(), theirs.pid()));
    let alone = ask("skipping", &theirs.pid().to_string());
    let unmounted = Command::new("umount").arg(&hiding).status().unwrap();
    assert!(unmounted.success());
    assert!(hidden.starts_with(&format!("process {} is hidden from you", theirs.pid())), "{hidden}");
    assert!(missing.starts_with("there is no process 4000000"), "{missing}");
    assert_eq!(both, "1 watched, 1 unreadable", "of several those that can be read are watched");
    assert!(alone.starts_with(&format!("process {} is hidden from you", theirs.pid())), "{alone}");
}

#[test]
fn a_childs_thread_that_may_not_be_moved_is_left_and_said_once() {
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    need!(Worker::start(), NO_COMPILER);
    // Our own process, with a child of another user, as after `sudo` in a script.
    assert_eq!(as_user(0, "others 1"), "Refused(Permission) Refused(Permission) Some(Refused)");
}

/// Runs in a process that has given up its rights: watches a tree with another user's process in
/// it.
pub(crate) fn watch_others() -> String {
    let mut theirs = Worker::start_as(Some(61_001)).unwrap();
    let tid = theirs.threads(1)[0];
    let (mut live, mut seen) = theirs.seen();
    let id = seen.id(tid);
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(61_002)).unwrap();
    let [first, second] = [(), ()].map(|()| apply(&mut live, id, Act::Confine(usable())));
    seen.look(&mut live);
    let left = seen.info(tid).left.clone();
    // It could not be killed from here any more.
    theirs.end();
    assert!(matches!(first, Settled::Refused(Refusal::Permission)) && left == Some(Left::Refused));
    format!("{} {} {left:?}", plain(first), plain(second))
}

fn plain(end: Settled) -> String {
    format!("{end:?}")
}

#[test]
fn on_one_node_memory_stays_where_it_is_and_that_is_said_once() {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if nodes.contains([',', '-']) {
        eprintln!("SKIPPED: this machine has several nodes (crates/cli/tests/numa moves memory there)");
        return;
    }
    let worker = need!(Worker::start(), NO_COMPILER);
    let (mut live, mut seen) = worker.seen();
    let id = seen.id(worker.pid().main_thread());
    let mut told = Vec::new();
    for _ in 0..3 {
        let end = apply(&mut live, id, Act::Fetch(OsNode(0)));
        assert_eq!(end, Settled::Refused(Refusal::Memory), "at once: nothing is begun");
        let sample = seen.look(&mut live);
        assert!(sample.settled.is_empty());
        told.extend(sample.notices.iter().filter_map(|notice| match notice {
            Notice::Memory(fetched) => Some((fetched.thread, fetched.moved, fetched.why.clone())),
            _ => None,
        }));
    }
    assert_eq!(told, [(id, 0, Some(Unfetched::OneNode))]);
}

//! Places of the ledger: its path, the users who may create it, and obstacles.

use crate::actor::Actor;
use crate::scene::{BOOT, HANG, MACHINE, Scene, claim, cpus, eventually, location, set, take, us, users};
use rustix::fs::{CWD, FileType, Mode as FileMode, mknodat};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use trimtab_linux::ledger::{BootId, Fault, Ledger, LedgerError, LedgerView, Location, Mode};

/// Opens it in a thread, so that an endless wait is a failure and not a hang.
fn in_time<T: Send + 'static>(open: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    thread::spawn(move || drop(sender.send(open())));
    receiver.recv_timeout(HANG).expect("opening the ledger should not hang")
}

fn open(directory: &Path) -> Result<Ledger, LedgerError> {
    let location = location(directory);
    in_time(move || Ledger::open(&location))
}

fn refusal(directory: &Path) -> (Fault, String) {
    match open(directory) {
        Err(error @ LedgerError::Refused { .. }) => {
            let text = error.to_string();
            let LedgerError::Refused { fault, .. } = error else { unreachable!() };
            (fault, text)
        }
        other => panic!("{other:?} should have been refused"),
    }
}

#[test]
fn the_file_is_open_to_all_with_any_umask() {
    let scene = Scene::new();
    let mut actor = Actor::start(&scene.directory(), None);
    actor.ask("umask 077");
    assert_eq!(actor.ask("open"), "open");
    for part in ["locks", "holders"] {
        assert_eq!(fs::metadata(scene.file(part)).unwrap().permissions().mode() & 0o7777, 0o666, "{part}");
    }
    assert_eq!(fs::read_dir(scene.directory()).unwrap().count(), 2, "nothing temporary is left");
}

#[test]
fn two_users_share_a_ledger_that_either_created() {
    let Some([ann, bob]) = users("two_users_share_a_ledger_that_either_created") else { return };
    for (first, second) in [(ann, bob), (bob, ann), (0, ann), (ann, 0)] {
        for umask in ["umask 077", "umask 022"] {
            let scene = Scene::new();
            let mut actors = [first, second].map(|user| scene.actor_of(user));
            for actor in &mut actors {
                actor.ask(umask);
                assert_eq!(actor.ask("open"), "open");
            }
            assert_eq!(actors[0].ask("take 0-3"), "held");
            assert_eq!(actors[1].ask("take 2-5"), "busy 2-3");
            assert_eq!(actors[1].ask("take 4-5"), "held");
            assert_eq!(actors[0].ask("look"), "0-5");
        }
    }
}

/// With the setting at 1 or 2, `O_CREAT` on another user's file in a sticky directory is refused
/// although the file exists and is open to all. The test of system calls shows, with any setting,
/// that the ledger never makes such a call.
#[test]
fn another_users_file_is_opened_under_protected_regular() {
    let test = "another_users_file_is_opened_under_protected_regular";
    let setting = fs::read_to_string("/proc/sys/fs/protected_regular").unwrap_or_default();
    if !["1", "2"].contains(&setting.trim()) {
        eprintln!("SKIPPED: {test} needs fs.protected_regular at 1 or 2, here it is {:?}", setting.trim());
        return;
    }
    let Some([ann, bob]) = users(test) else { return };
    let scene = Scene::new();
    for user in [ann, bob, 0] {
        assert_eq!(scene.actor_of(user).ask("open"), "open");
    }
    assert_eq!(fs::metadata(scene.file("locks")).unwrap().uid(), ann);
}

#[test]
fn many_first_processes_at_once_make_one_ledger() {
    for _ in 0..50 {
        let scene = Scene::new();
        let start = Barrier::new(8);
        let come = &|cpu: u32| {
            start.wait();
            let ledger = scene.ledger();
            take(&ledger, &cpu.to_string(), Mode::Exclusive).unwrap()
        };
        let held: Vec<_> = thread::scope(|threads| {
            let comers: Vec<_> = (0..8).map(|cpu| threads.spawn(move || come(cpu))).collect();
            comers.into_iter().map(|comer| comer.join().unwrap()).collect()
        });
        assert_eq!(scene.ledger().map(MACHINE, &cpus()).unwrap().exclusive, set("0-7"));
        assert_eq!(fs::read_dir(scene.directory()).unwrap().count(), 2, "nothing temporary is left");
        drop(held);
    }
}

#[test]
fn a_symbolic_link_is_not_followed() {
    let scene = Scene::new();
    let target = scene.root().join("precious");
    fs::write(&target, "precious").unwrap();
    scene.chmod(&target, 0o666);
    symlink(&target, scene.file("locks")).unwrap();
    let (fault, text) = refusal(&scene.directory());
    assert_eq!(fault, Fault::Kind);
    assert!(text.contains("a symbolic link of uid"), "{text}");
    symlink(scene.root().join("nowhere"), scene.file("holders")).unwrap();
    fs::remove_file(scene.file("locks")).unwrap();
    let ledger = open(&scene.directory()).unwrap();
    assert!(matches!(ledger.names_missing(), Some(LedgerError::Refused { fault: Fault::Kind, .. })));
    assert!(!scene.root().join("nowhere").exists());
}

#[test]
fn a_named_pipe_is_refused_without_waiting_for_its_other_end() {
    let scene = Scene::new();
    mknodat(CWD, scene.file("locks"), FileType::Fifo, FileMode::from_raw_mode(0o666), 0).unwrap();
    let (fault, text) = refusal(&scene.directory());
    assert_eq!(fault, Fault::Kind);
    assert!(text.contains("a named pipe of uid"), "{text}");
    let location = scene.location();
    let view = in_time(move || LedgerView::open(&location));
    assert!(matches!(view, Err(LedgerError::Refused { fault: Fault::Kind, .. })), "{view:?}");
}

#[test]
fn a_directory_or_socket_is_refused() {
    let scene = Scene::new();
    fs::create_dir(scene.file("locks")).unwrap();
    let (fault, text) = refusal(&scene.directory());
    assert_eq!(fault, Fault::Kind);
    assert!(text.contains("a directory of uid"), "{text}");
    fs::remove_dir(scene.file("locks")).unwrap();
    let _socket = UnixListener::bind(scene.file("locks")).unwrap();
    let (fault, text) = refusal(&scene.directory());
    assert_eq!(fault, Fault::Kind);
    assert!(text.contains("a socket of uid"), "{text}");
}

#[test]
fn a_file_with_two_names_is_refused() {
    let scene = Scene::new();
    fs::write(scene.root().join("other"), "").unwrap();
    scene.chmod(&scene.root().join("other"), 0o666);
    fs::hard_link(scene.root().join("other"), scene.file("locks")).unwrap();
    let (fault, text) = refusal(&scene.directory());
    assert_eq!(fault, Fault::Linked);
    assert!(text.contains("with 2 names"), "{text}");
}

#[test]
fn a_private_file_is_refused_to_its_owner_too() {
    let scene = Scene::new();
    fs::write(scene.file("locks"), "").unwrap();
    for mode in [0o600, 0o644, 0o662] {
        scene.chmod(&scene.file("locks"), mode);
        let (fault, text) = refusal(&scene.directory());
        assert_eq!(fault, Fault::Private);
        assert!(text.contains(&format!("mode 0{mode:o}")) && text.contains("chmod"), "{text}");
    }
}

#[test]
fn another_users_private_file_is_refused_to_users_and_root() {
    let Some([ann, bob]) = users("another_users_private_file_is_refused_to_users_and_root") else { return };
    let scene = Scene::new();
    fs::write(scene.file("locks"), "").unwrap();
    scene.chmod(&scene.file("locks"), 0o600);
    std::os::unix::fs::chown(scene.file("locks"), Some(ann), Some(ann)).unwrap();
    for user in [bob, 0] {
        let answer = scene.actor_of(user).ask("open");
        assert!(answer.starts_with("refused Private"), "{answer}");
        assert!(answer.contains(&format!("a regular file of uid {ann}, mode 0600")), "{answer}");
    }
}

#[test]
fn a_directory_that_is_missing_or_no_directory_is_an_error_with_a_remedy() {
    let scene = Scene::new();
    let file = scene.root().join("file");
    fs::write(&file, "").unwrap();
    for directory in [scene.root().join("missing"), file, Path::new("/dev/null/x").to_owned()] {
        let error = open(&directory).unwrap_err();
        assert!(matches!(error, LedgerError::Directory { .. }), "{error}");
        assert!(error.to_string().contains("TRIMTAB_LEDGER"), "{error}");
    }
}

#[test]
fn a_directory_that_may_not_be_written_is_an_error_with_a_remedy() {
    let Some([ann, _]) = users("a_directory_that_may_not_be_written_is_an_error_with_a_remedy") else {
        return;
    };
    let scene = Scene::new();
    scene.chmod(&scene.directory(), 0o755);
    let answer = scene.actor_of(ann).ask("open");
    assert!(answer.starts_with("directory:") && answer.contains("systemd-tmpfiles"), "{answer}");
    // As the package installs it: files that all can use in a directory that only root can change.
    scene.ledger();
    assert_eq!(scene.actor_of(ann).ask("open"), "open");
    scene.chmod(&scene.directory(), 0o700);
    let answer = scene.actor_of(ann).ask("open");
    assert!(answer.contains("TRIMTAB_LEDGER"), "{answer}");
}

#[test]
fn files_the_package_made_are_used_as_they_are() {
    let scene = Scene::new();
    let packaged = scene.root().join("run/trimtab");
    fs::create_dir_all(&packaged).unwrap();
    let boot = BootId::parse(BOOT).unwrap();
    for part in ["locks", "holders"] {
        let file = packaged.join(format!("trimtab-{boot}.{part}"));
        fs::write(&file, "").unwrap();
        scene.chmod(&file, 0o666);
    }
    let ledger = Ledger::open(&Location::usual(scene.root(), boot)).unwrap();
    assert_eq!(ledger.path().parent(), Some(packaged.as_path()));
    let _held = take(&ledger, "3", Mode::Exclusive).unwrap();
    // Naming the usual directory makes no difference.
    let named = Ledger::open(&location(&packaged)).unwrap();
    assert_eq!(named.map(MACHINE, &cpus()).unwrap().exclusive, set("3"));
}

#[test]
fn another_boot_has_another_ledger() {
    let scene = Scene::new();
    let before = scene.ledger();
    let _held = take(&before, "0-7", Mode::Exclusive).unwrap();
    let boot = BootId::parse(&BOOT.replace('4', "5")).unwrap();
    let after = Ledger::open(&Location::named(&scene.directory(), boot)).unwrap();
    assert_ne!(before.path(), after.path());
    assert_eq!(after.map(MACHINE, &cpus()).unwrap().exclusive, set(""));
    assert!(
        after.map(MACHINE, &cpus()).unwrap().lost.is_subset(&set("0-7")),
        "{:?}",
        after.map(MACHINE, &cpus())
    );
}

#[test]
fn a_ledger_replaced_in_use_is_noticed_before_anything_is_taken() {
    let scene = Scene::new();
    let old = scene.ledger();
    fs::remove_file(scene.file("locks")).unwrap();
    let error = old.take(MACHINE, &set("1"), Mode::Exclusive, &us("late", 0)).unwrap_err();
    assert!(error.to_string().contains("open the ledger again"), "{error}");
    let new = scene.ledger();
    assert!(matches!(old.planner(MACHINE, HANG), Err(LedgerError::Replaced { .. })));
    assert!(matches!(old.enqueue(MACHINE, &cpus(), &claim()), Err(LedgerError::Replaced { .. })));
    assert!(take(&new, "1", Mode::Exclusive).is_ok());
}

#[test]
fn a_ledger_replaced_while_taking_is_noticed() {
    let scene = Scene::new();
    let ledger = scene.ledger();
    let mut actor = scene.actor();
    // The last check of the name is delayed, so that there is time to delete the file after its
    // bytes are locked.
    let delay = ["-e", "trace=newfstatat", "-e", "inject=newfstatat:delay_enter=2000000"];
    let tracer = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-p", &actor.pid().to_string()])
        .args(delay)
        .spawn();
    let Some(mut tracer) = tracer.ok().filter(|_| traced(actor.pid())) else {
        eprintln!(
            "SKIPPED: a_ledger_replaced_while_taking_is_noticed needs strace, and the right to attach it"
        );
        return;
    };
    actor.tell("take 0-3");
    eventually("the bytes are locked", || !ledger.map(MACHINE, &cpus()).unwrap().held().is_empty());
    fs::remove_file(scene.file("locks")).unwrap();
    let answer = actor.answer();
    assert!(answer.contains("open the ledger again"), "{answer}");
    tracer.kill().unwrap();
    tracer.wait().unwrap();
}

/// Waits until a process is traced; returns false if it will not be.
fn traced(pid: u32) -> bool {
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|thread| thread.unwrap().path());
    let traced =
        |thread: &Path| !fs::read_to_string(thread.join("status")).unwrap().contains("TracerPid:\t0\n");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        if threads().all(|thread| traced(&thread)) {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

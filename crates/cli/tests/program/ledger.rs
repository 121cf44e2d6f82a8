//! A ledger that cannot be used: the program runs nevertheless, with one line that gives the reason
//! and the remedy.

use crate::util::{Call, Sandbox, chmod, installed, need, python, skip, text, two, two_users};
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::PathBuf;

/// Returns the name of the ledger's file of this part.
fn file(part: &str) -> String {
    let boot = text("/proc/sys/kernel/random/boot_id".as_ref()).trim().replace('-', "");
    format!("ledger/trimtab-{boot}.{part}")
}

/// Checks the message of a run about a ledger that it cannot use, with and without `--strict` and
/// `--quiet`.
#[track_caller]
fn troubled<'s>(call: impl Fn(&str) -> Call<'s>, words: &[&str]) {
    let wanted = [&["cannot be the ledger", "cannot hold the ledger", "ledger"][2..], words].concat();
    let said = call("-c 1").args(["echo", "ran"]).ends();
    assert_eq!(said.warns(&[&["warning: the cores are not reserved"], &wanted[..]].concat()), "ran");
    call("-c 1 --strict")
        .args(["echo", "ran"])
        .ends()
        .fails(125, &[&["cannot be reserved"], &wanted[..]].concat());
    let silent = call("-c 1 -q").args(["echo", "ran"]).ends();
    assert_eq!(silent.warns(&[&["warning: the cores are not reserved"], &wanted[..]].concat()), "ran");
}

#[test]
fn a_process_that_locks_the_whole_ledger_is_named() {
    let python = need!(python(), "no Python");
    let sandbox = Sandbox::new();
    sandbox.run("-c 1").arg("true").ends().ok();
    let script = format!(
        "import fcntl, sys; f = open('{}', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); \
         print('locked', flush=True); sys.stdin.read()",
        sandbox.path(&file("locks")).display()
    );
    let mut hostile = sandbox.shell("exec \"$@\"").arg("sh").arg(&python).args(["-c", &script]).begins();
    hostile.line();
    let named = format!("PID {}", hostile.pid());
    for options in ["-c 1", "-c 1 -q", "-c 1 --strict"] {
        sandbox.run(options).arg("true").ends().fails(124, &["are locked by", &named]);
    }
    let ps = sandbox.ps();
    assert_eq!(ps["unknown_pids"], serde_json::json!([hostile.pid()]), "{ps}");
    assert!(sandbox.trimtab("ps").ends().ok().contains(&hostile.pid().to_string()));
    hostile.ends().ok();
    sandbox.run("-c 1").arg("true").ends().ok();
}

#[test]
fn a_directory_that_is_missing_or_none() {
    let sandbox = Sandbox::new();
    let plain = sandbox.write("plain", "");
    for (path, words) in [
        (sandbox.path("missing"), &["missing", "No such file", "TRIMTAB_LEDGER"]),
        (plain.clone(), &["plain", "Not a directory", "TRIMTAB_LEDGER"]),
        (plain.join("below"), &["below", "Not a directory", "TRIMTAB_LEDGER"]),
    ] {
        troubled(|options| sandbox.run(options).env("TRIMTAB_LEDGER", &path), words);
        let ps = sandbox.trimtab("ps").env("TRIMTAB_LEDGER", &path).ends();
        ps.fails(2, words);
        let plan = sandbox.trimtab("plan --survey none").env("TRIMTAB_LEDGER", &path).ends();
        assert!(plan.code == Some(0) && plan.stderr.contains("holds of other runs are unknown"), "{plan}");
        let doctor = sandbox.trimtab("doctor").env("TRIMTAB_LEDGER", &path).ends();
        assert!(doctor.code == Some(1) && doctor.out().contains("FAULT ledger"), "{doctor}");
    }
}

#[test]
fn something_else_in_place_of_the_file() {
    let sandbox = Sandbox::new();
    let locks = sandbox.path(&file("locks"));
    let secret = sandbox.write("secret", "untouched");
    let mkfifo = need!(installed("mkfifo"), "mkfifo is not installed");
    let remove = || fs::remove_file(&locks).unwrap();
    // Opening a fifo would wait for its other end.
    assert!(std::process::Command::new(mkfifo).args(["-m", "666"]).arg(&locks).status().unwrap().success());
    troubled(|options| sandbox.run(options), &["a named pipe", "should remove it"]);
    sandbox.trimtab("ps").ends().fails(2, &["a named pipe"]);
    remove();
    symlink(&secret, &locks).unwrap();
    troubled(|options| sandbox.run(options), &["a symbolic link", "should remove it"]);
    remove();
    symlink("/no/such", &locks).unwrap();
    troubled(|options| sandbox.run(options), &["a symbolic link", "should remove it"]);
    remove();
    fs::create_dir(&locks).unwrap();
    troubled(|options| sandbox.run(options), &["a directory", "should remove it"]);
    fs::remove_dir(&locks).unwrap();
    fs::hard_link(&secret, &locks).unwrap();
    chmod(&secret, 0o666);
    troubled(|options| sandbox.run(options), &["with 2 names", "should remove it"]);
    remove();
    assert_eq!(text(&secret), "untouched");
    sandbox.run("-c 1").arg("true").ends().ok();
}

#[test]
fn a_hostile_users_file_is_refused() {
    let [user, hostile] = need!(two_users(), "to act as two users a test needs root");
    let sandbox = Sandbox::new();
    let locks = sandbox.write(&file("locks"), "");
    chown(&locks, Some(hostile), Some(hostile)).unwrap();
    chmod(&locks, 0o600);
    troubled(
        |options| sandbox.run(options).user(user),
        &["which other users cannot read and write", "chmod it to 0666"],
    );
    fs::remove_file(&locks).unwrap();
    // Files of another user that root would follow or wait for.
    let secret = sandbox.write("secret", "untouched");
    symlink(&secret, &locks).unwrap();
    std::os::unix::fs::lchown(&locks, Some(hostile), Some(hostile)).unwrap();
    troubled(|options| sandbox.run(options), &["a symbolic link", "should remove it"]);
    fs::remove_file(&locks).unwrap();
    assert_eq!(text(&secret), "untouched");
    let made = std::process::Command::new("mkfifo").args(["-m", "666"]).arg(&locks).status();
    assert!(made.unwrap().success());
    chown(&locks, Some(hostile), Some(hostile)).unwrap();
    for call in [sandbox.run("-c 1"), sandbox.run("-c 1").user(user)] {
        assert_eq!(call.args(["echo", "ran"]).ends().warns(&["a named pipe", "should remove it"]), "ran");
    }
    // The other user's directory is no safer: its owner can replace the files in it.
    fs::remove_file(&locks).unwrap();
    let own = sandbox.path("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(hostile), Some(hostile)).unwrap();
    chmod(&own, 0o755);
    let call = |options: &str| sandbox.run(options).user(user).env("TRIMTAB_LEDGER", &own);
    troubled(call, &["own", "is not there and may not be made"]);
}

#[test]
fn a_directory_that_this_user_may_not_write() {
    let [user, _] = need!(two_users(), "to act as another user a test needs root");
    let sandbox = Sandbox::new();
    chmod(&sandbox.path("ledger"), 0o755);
    troubled(
        |options| sandbox.run(options).user(user),
        &["may not be made", "Permission denied", "TRIMTAB_LEDGER"],
    );
    chmod(&sandbox.path("ledger"), 0o700);
    troubled(|options| sandbox.run(options).user(user), &["Permission denied", "TRIMTAB_LEDGER"]);
    // Made by root as the package makes it: then the user needs nothing else.
    chmod(&sandbox.path("ledger"), 0o755);
    for part in ["locks", "holders"] {
        chmod(&sandbox.write(&file(part), ""), 0o666);
    }
    let mut running = sandbox.run("-c 1").sh("echo up; exec cat").user(user).begins();
    running.line();
    assert_eq!(sandbox.held().len(), 1);
}

#[test]
fn a_read_only_file_system() {
    let unshare = need!(installed("unshare"), "unshare(1) is not installed");
    if !geteuid().is_root() {
        return skip("to mount something read-only a test needs root");
    }
    if !std::process::Command::new(&unshare)
        .args(["--mount", "true"])
        .status()
        .is_ok_and(|done| done.success())
    {
        return skip("mount namespaces cannot be made here");
    }
    let sandbox = Sandbox::new();
    // With nothing there, and with files that were made before.
    for made in [false, true] {
        if made {
            sandbox.run("-c 1").arg("true").ends().ok();
        }
        let ledger = sandbox.path("ledger");
        let script =
            format!("mount --bind {0} {0} && mount -o remount,ro,bind {0} && exec \"$@\"", ledger.display());
        let through = [unshare.to_str().unwrap(), "--mount", "sh", "-c", &script, "sh"];
        let call = |options: &str| sandbox.run(options).through(through);
        troubled(call, &["Read-only file system"]);
        // Reading is still possible.
        let ps = sandbox.trimtab("ps").through(through).ends();
        assert_eq!(ps.code, Some(0), "{ps}");
    }
}

#[test]
fn a_ledger_that_only_this_container_sees() {
    let unshare = need!(installed("unshare"), "unshare(1) is not installed");
    if !geteuid().is_root() {
        return skip("to have a folder of its own in place of /dev/shm a test needs root");
    }
    if std::path::Path::new("/run/trimtab").exists() {
        return skip("/run/trimtab exists here, a folder that containers are meant to share");
    }
    let script = "mount -t tmpfs shm /dev/shm && exec \"$@\"";
    let through = [unshare.to_str().unwrap(), "--mount", "sh", "-c", script, "sh"];
    if !std::process::Command::new(&unshare)
        .args(&through[1..])
        .arg("true")
        .status()
        .is_ok_and(|done| done.success())
    {
        return skip("mount namespaces cannot be made here");
    }
    let sandbox = Sandbox::new();
    let call = |options: &str| {
        sandbox.run(options).without("TRIMTAB_LEDGER").env("container", "docker").through(through)
    };
    let words = ["exists only in this container"];
    for options in ["-c 1", "-c 1 -q"] {
        assert_eq!(call(options).args(["echo", "ran"]).ends().warns(&words), "ran");
    }
    call("-c 1 --strict").args(["echo", "ran"]).ends().fails(125, &words);
}

#[test]
fn damaged_records_cost_names_and_nothing_else() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold(&format!("--cpus {a}"));
    let holders = sandbox.path(&file("holders"));
    let size = fs::metadata(&holders).unwrap().len() as usize;
    let noise: Vec<u8> = (0..size).map(|at| (at * 31 + 7) as u8).collect();
    for (damage, bytes) in [
        ("cut to nothing", &[][..]),
        ("cut short", &fs::read(&holders).unwrap()[..size / 2 + 3]),
        ("noise", &noise),
    ] {
        // In place: replacing the file would be another test.
        fs::write(&holders, bytes).unwrap();
        let ps = sandbox.ps();
        assert_eq!(sandbox.held(), [a].into(), "{damage}: {ps}");
        let text = sandbox.trimtab("ps").ends().ok();
        assert!(text.contains(&a.to_string()), "{damage}: {text}");
        sandbox.run(&format!("--cpus {a}")).arg("true").ends().fails(124, &["held by"]);
    }
    // The next holder is named again.
    let _other = sandbox.hold("-c 1");
    assert!(sandbox.ps()["holds"].as_array().unwrap().iter().any(|hold| hold["standing"] == "running"));
}

#[test]
fn a_ledger_deleted_under_living_holds_is_noticed() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold(&format!("--cpus {a}"));
    fs::remove_file(sandbox.path(&file("locks"))).unwrap();
    fs::remove_file(sandbox.path(&file("holders"))).unwrap();
    sandbox.run(&format!("--cpus {a}")).arg("true").ends().fails(124, &["held by"]);
    sandbox.run(&format!("--cpus {b}")).arg("true").ends().ok();
    sandbox.run("-c 2").arg("true").ends().fails(124, &["held by"]);
    held.ends().ok();
    sandbox.run("-c 2").arg("true").ends().ok();
}

#[test]
fn a_limit_on_file_sizes_costs_the_name_only() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // The ledger exists already: making it takes a few bytes.
    sandbox.run("-c 1").arg("true").ends().ok();
    let limit = ["sh", "-c", "ulimit -f 0; exec \"$@\"", "sh"];
    // Its output cannot go to a file either, so it prints nothing.
    let script = format!("until [ -e {}.stop ]; do sleep 0.02; done", sandbox.path("it").display());
    let mut running = sandbox.run(&format!("--cpus {a}")).sh(&script).through(limit).begins();
    crate::util::eventually("it holds its core", || !running.lives() || sandbox.held().contains(&a));
    assert!(running.lives(), "{}", running.ends());
    sandbox.write("it.stop", "");
    running.ends().ok();
}

#[test]
fn a_damaged_model_of_the_machine_is_made_again() {
    let sandbox = Sandbox::new();
    let cache = sandbox.path("cache");
    let call = |options: &str| sandbox.run(options).args(["echo", "ran"]).env("XDG_CACHE_HOME", &cache);
    assert_eq!(call("-c 1").ends().ok(), "ran");
    let models: Vec<PathBuf> =
        fs::read_dir(cache.join("trimtab")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(models.len(), 1, "{models:?}");
    let model = fs::read(&models[0]).unwrap();
    let mut flipped = model.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    for damaged in [
        &b""[..],
        b"nonsense",
        &model[..model.len() / 2],
        &flipped,
        &[&model[..], b"more"].concat(),
        &vec![0xff; 100_000],
    ] {
        fs::write(&models[0], damaged).unwrap();
        assert_eq!(call("-c 1").ends().ok(), "ran");
        assert!(fs::read(&models[0]).unwrap() == model, "it was not made anew");
    }
    fs::remove_file(&models[0]).unwrap();
    fs::create_dir(&models[0]).unwrap();
    assert_eq!(call("-c 1").ends().ok(), "ran");
}

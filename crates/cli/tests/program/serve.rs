//! `trimtab serve`: one daemon, its files, and clients that attack it.

use crate::balance::masks;
use crate::guardian::kill_with_guardian;
use crate::util::{
    Call, Running, Sandbox, c, chmod, eventually, need, skip, two, two_users, workers_are_bound,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Returns the socket of a test's daemon.
pub(crate) fn socket(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("shared/socket")
}

/// Returns a call that talks to the daemon of the sandbox.
pub(crate) fn ask<'s>(sandbox: &'s Sandbox, words: &str) -> Call<'s> {
    sandbox.trimtab(words).env("TRIMTAB_SOCKET", socket(sandbox))
}

/// Starts a daemon and waits until it answers.
pub(crate) fn daemon<'s>(sandbox: &'s Sandbox, words: &str) -> Running<'s> {
    let words = format!("serve --policy pinned --interval 5ms --budget 50% {words}");
    let running = ask(sandbox, &words).begins();
    eventually("the daemon answers", || UnixStream::connect(socket(sandbox)).is_ok());
    running
}

pub(crate) fn status(sandbox: &Sandbox) -> Value {
    serde_json::from_str(&ask(sandbox, "status --json").ends().ok()).unwrap()
}

/// Returns the number of tags.
fn tags(sandbox: &Sandbox) -> usize {
    status(sandbox)["tags"].as_array().unwrap().len()
}

fn spins<'s>(sandbox: &'s Sandbox, program: &Path) -> Running<'s> {
    let mut program = sandbox.shell(&format!("exec {} 2", program.display())).begins();
    program.line();
    program
}

fn all_bound(pid: u32) -> bool {
    workers_are_bound(pid)
}

fn none_bound(pid: u32) -> bool {
    masks(pid).iter().all(|mask| mask.len() == 2)
}

#[test]
fn a_tagged_program_is_balanced_until_it_is_untagged() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let program = spins(&sandbox, &program);
    let pid = program.pid();
    let daemon = daemon(&sandbox, "");
    let said = |words: &str| ask(&sandbox, words).ends().ok();
    assert_eq!(said(&format!("tag {pid} --group solver")), format!("process {pid}: tagged"));
    assert_eq!(said(&format!("tag {pid} --group solver")), format!("process {pid}: tagged already"));
    eventually("its threads are moved", || all_bound(pid));
    eventually("that is told", || status(&sandbox)["tags"][0]["moves"].as_u64() >= Some(2));
    let told = status(&sandbox);
    assert_eq!(told["schema"], "trimtab.status/1");
    assert_eq!(
        (&told["pid"], &told["policy"], &told["threads"], &told["tags"][0]["group"]),
        (&daemon.pid().into(), &"pinned".into(), &3.into(), &"solver".into())
    );
    assert_eq!(told["tags"][0]["mark"]["process"]["pid"], pid);
    assert!(told["cost"]["total"].as_u64() > Some(0), "{told}");
    let text = said("status");
    assert!(
        text.contains("balances with policy pinned") && text.contains(&format!("process {pid}")),
        "{text}"
    );
    assert_eq!(said(&format!("untag {pid}")), format!("process {pid}: cleared 1 tag"));
    eventually("it has its own masks again", || none_bound(pid));
    assert_eq!(said(&format!("untag {pid}")), format!("process {pid}: was not tagged"));
    // One of its computing threads: the others are not moved.
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let mut tids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    let worker = tids.find(|tid| *tid != pid).unwrap();
    said(&format!("tag {pid}:{worker}"));
    eventually("it alone is moved", || {
        let mut sizes: Vec<usize> = masks(pid).iter().map(BTreeSet::len).collect();
        sizes.sort_unstable();
        sizes == [1, 2, 2]
    });
    assert_eq!(said("untag --all"), "all your tags: cleared 1 tag");
    eventually("it has its own masks again", || none_bound(pid));
    assert_eq!(program.ends().code, Some(9));
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
}

#[test]
fn a_daemon_that_ends_gives_masks_back_and_leaves_nothing_there() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let program = spins(&sandbox, &program);
    for signal in [Signal::INT, Signal::TERM] {
        let daemon = daemon(&sandbox, "");
        ask(&sandbox, &format!("tag {}", program.pid())).ends().ok();
        eventually("its threads are moved", || all_bound(program.pid()));
        daemon.signal(signal);
        daemon.ends().ok();
        assert!(none_bound(program.pid()));
        ask(&sandbox, "status").ends().fails(2, &["no daemon runs at"]);
        // After SIGTERM the next daemon has the tags by hand again.
        let left = fs::read_dir(sandbox.path("shared")).unwrap().flatten().map(|file| file.file_name());
        let left: Vec<_> = left.collect();
        assert_eq!(left, if signal == Signal::INT { vec![] } else { vec!["socket.tags"] });
        let _ = fs::remove_file(sandbox.path("shared/socket.tags"));
    }
}

#[test]
fn a_signal_right_after_the_socket_exists_leaves_no_socket() {
    let sandbox = Sandbox::new();
    let socket = socket(&sandbox);
    for signal in [Signal::INT, Signal::TERM, Signal::INT, Signal::TERM, Signal::TERM] {
        let daemon = ask(&sandbox, "serve --policy float").begins();
        // Without a pause: the daemon needs milliseconds for the rest.
        let begin = std::time::Instant::now();
        while !socket.exists() {
            assert!(begin.elapsed().as_secs() < 60, "no socket within a minute");
            std::hint::spin_loop();
        }
        daemon.signal(signal);
        daemon.ends().ok();
        assert_eq!(fs::read_dir(sandbox.path("shared")).unwrap().count(), 0);
    }
}

#[test]
fn after_a_kill_the_next_daemon_gives_masks_back_and_takes_the_place() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let program = spins(&sandbox, &program);
    let first = daemon(&sandbox, "");
    ask(&sandbox, &format!("tag {}", program.pid())).ends().ok();
    eventually("its threads are moved", || all_bound(program.pid()));
    kill_with_guardian(&first);
    assert_eq!(first.ends().signal, Some(9));
    assert!(all_bound(program.pid()), "masks outlive who set them");
    assert!(socket(&sandbox).exists(), "and so does the socket");
    ask(&sandbox, "status").ends().fails(2, &["no daemon runs at", "trimtab serve --socket"]);
    // The tag by hand is kept; without it, the masks stay as they were before it.
    let _ = fs::remove_file(sandbox.path("shared/socket.tags"));
    let _second = daemon(&sandbox, "");
    assert_eq!(tags(&sandbox), 0, "nobody has asked this one for anything");
    assert!(none_bound(program.pid()), "before it answers");
}

#[test]
fn a_hang_up_ends_only_a_service_with_a_terminal_and_not_with_success() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox, "");
    daemon.signal(Signal::HUP);
    if fs::File::open("/dev/tty").is_ok() {
        assert_eq!(daemon.ends().code, Some(129), "its terminal was closed");
        return;
    }
    eventually("that is said", || daemon.errors().contains("were read again: 0 declarations"));
    assert_eq!(tags(&sandbox), 0, "it answers");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ends().code, Some(0));
}

#[test]
fn declared_programs_are_tagged_until_the_files_change() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // A copy, since other tests run the program at the same time.
    let file = sandbox.copy("solver", &need!(c("spins.c"), "no C compiler"));
    let declare = |text: &str| {
        let path = sandbox.write("config/serve.d/solvers.toml", text);
        chmod(&path, 0o644);
        chmod(path.parent().unwrap(), 0o755);
    };
    let meant = format!("# Solvers.\n[[tag]]\nprogram = '{}'\ngroup = 'solvers'\n", file.display());
    // A file that cannot be used ends the start, and is named.
    declare("[[tag]]\nprogramm = 'x'\n");
    let refused = ask(&sandbox, "serve").ends();
    assert_eq!(refused.code, Some(2), "{refused}");
    for words in ["serve.d/solvers.toml, line 2", "programm"] {
        assert!(refused.stderr.contains(words), "{words}: {refused}");
    }
    declare(&meant);
    let daemon = daemon(&sandbox, "-v");
    let program = spins(&sandbox, &file);
    let pid = program.pid();
    eventually("its threads are moved", || all_bound(pid));
    let tag = status(&sandbox)["tags"][0].clone();
    assert_eq!(tag["by"], serde_json::json!({ "declared": "solvers.toml, line 2" }));
    assert_eq!((&tag["group"], &tag["mark"]["process"]["pid"]), (&"solvers".into(), &pid.into()));
    assert!(ask(&sandbox, "status").ends().ok().contains("the declaration in solvers.toml, line 2"));
    // It is not a user's tag.
    let said = ask(&sandbox, &format!("untag {pid}")).ends();
    assert!(!said.out().contains("cleared 1"), "{said}");
    assert_eq!(tags(&sandbox), 1);
    if fs::File::open("/dev/tty").is_ok() {
        return; // SIGHUP ends a service with a terminal.
    }
    declare("[[tag]]\n");
    daemon.signal(Signal::HUP);
    eventually("the fault is said", || {
        daemon.errors().contains("line 1: a tag needs at least one condition")
    });
    let faults = status(&sandbox)["faults"].to_string();
    assert!(faults.contains("the declared tags stay as they were"), "{faults}");
    assert!(all_bound(pid), "{faults}");
    declare(&meant.replace("/solver'", "/another'"));
    daemon.signal(Signal::HUP);
    eventually("it has its own masks again", || none_bound(pid));
    assert!(status(&sandbox)["faults"].is_null(), "{}", status(&sandbox));
    assert_eq!(tags(&sandbox), 0);
}

#[test]
fn detaching_takes_a_process_out_of_the_service_which_continues() {
    need!(two(), "two cores are needed");
    let file = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let (program, other) = (spins(&sandbox, &file), spins(&sandbox, &file));
    let daemon = daemon(&sandbox, "");
    let (pid, service) = (program.pid(), daemon.pid());
    ask(&sandbox, &format!("tag {pid} {}", other.pid())).ends().ok();
    eventually("threads are moved", || all_bound(pid) && all_bound(other.pid()));
    // The record names the service's socket; no variable does.
    let plain = |words: String| sandbox.trimtab(&words).ends();
    let attached = plain(format!("attach {pid}"));
    let advice = format!("trimtab detach {pid} takes it out, and the service continues");
    attached.fails(2, &[&format!("is balanced by the service already (process {service})"), &advice]);
    let said = plain(format!("detach {pid}")).ok();
    assert_eq!(
        said,
        format!("process {pid}: cleared 1 tag of the service (process {service}), which keeps running")
    );
    assert!(none_bound(pid) && all_bound(other.pid()));
    assert_eq!(tags(&sandbox), 1);
    let nothing = plain(format!("detach {pid}"));
    assert_eq!((nothing.code, nothing.out().contains("no balancer has moved")), (Some(1), true), "{nothing}");
    plain(format!("detach {service}")).fails(2, &["is the service", "detach --all"]);
    let said = ask(&sandbox, "detach --all").ends().ok();
    assert!(said.contains("all tags that you may clear: cleared 1 tag"), "{said}");
    assert!(none_bound(other.pid()) && tags(&sandbox) == 0);
    // A tag without moves has no record; the service knows it.
    let script = format!("exec 3<&0; {} 2 <&3 >/dev/null & echo $!; read x; kill $!", file.display());
    let mut sleeper = sandbox.shell(&script).begins();
    let child: u32 = sleeper.line().parse().unwrap();
    ask(&sandbox, &format!("tag {}", sleeper.pid())).ends().ok();
    eventually("the child is moved with its parent", || all_bound(child));
    let part = format!("as part of process {0}: trimtab untag {0} takes out both", sleeper.pid());
    plain(format!("detach {child}")).fails(2, &[&part]);
    assert!(ask(&sandbox, &format!("detach {}", sleeper.pid())).ends().ok().contains("cleared 1 tag"));
    eventually("both are let go", || none_bound(child) && none_bound(sleeper.pid()));
    assert_eq!(status(&sandbox)["pid"], service, "it is the same service to the end");
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
}

#[test]
fn users_detach_their_own_tagged_programs_only() {
    let [one, other] = need!(two_users(), "only root can act as others");
    need!(two(), "two cores are needed");
    let spins = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox, "");
    let mut ones = sandbox.run("-c 2 --or-fewer --pin mask").arg(&spins).arg("2").user(one).begins();
    ones.line();
    let pid = ones.pid();
    let by = |user: u32, words: &str| ask(&sandbox, words).user(user).ends();
    by(one, &format!("tag {pid}")).ok();
    eventually("it is moved", || all_bound(pid));
    let refused = by(other, &format!("detach {pid}"));
    assert_eq!((refused.code, tags(&sandbox)), (Some(2), 1), "{refused}");
    by(other, "detach --all");
    assert_eq!(tags(&sandbox), 1);
    by(one, &format!("attach {pid}"))
        .fails(2, &["is balanced by root already", &format!("trimtab detach {pid}")]);
    assert!(by(one, &format!("detach {pid}")).ok().contains("cleared 1 tag of the service"));
    eventually("it is let go", || none_bound(pid));
    by(one, &format!("tag {pid}")).ok();
    let said = ask(&sandbox, "detach --all").ends().ok();
    assert!(said.contains("cleared 1 tag") && tags(&sandbox) == 0, "root may clear everybody's: {said}");
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
}

#[test]
fn the_second_daemon_is_refused_and_gets_the_pid_of_the_first() {
    let sandbox = Sandbox::new();
    let first = daemon(&sandbox, "");
    let second = ask(&sandbox, "serve").ends();
    second.fails(2, &[&format!("a daemon runs already: process {}", first.pid()), "--socket"]);
    // Two daemons on two sockets do not move each other's threads: the record of masks keeps them
    // apart.
    assert_eq!(tags(&sandbox), 0);
}

#[test]
fn without_a_daemon_it_is_said_how_one_is_started() {
    let sandbox = Sandbox::new();
    for words in ["tag 1", "untag 1", "untag --all", "status", "status --json"] {
        ask(&sandbox, words).ends().fails(2, &["no daemon runs at", "trimtab serve --socket"]);
    }
    for words in ["tag", "untag", "tag 0", "tag 1:x", "tag --vm", "serve --budget 0.001", "serve --guest x"] {
        let outcome = ask(&sandbox, words).ends();
        assert!(outcome.code == Some(2) && !outcome.stderr.is_empty(), "{outcome}");
    }
    ask(&sandbox, "serve --cpus 9999").ends().fails(2, &["none of the CPUs of --cpus"]);
    // A file at the place of the socket is not removed.
    fs::write(socket(&sandbox), "mine").unwrap();
    ask(&sandbox, "serve").ends().fails(2, &["is not the socket of your daemon"]);
    assert_eq!(fs::read_to_string(socket(&sandbox)).unwrap(), "mine");
}

#[test]
fn something_else_that_listens_is_not_taken_for_a_daemon() {
    let sandbox = Sandbox::new();
    let listener = UnixListener::bind(socket(&sandbox)).unwrap();
    std::thread::spawn(move || {
        for answer in ["hello\n", "{\"version\":9,\"answer\":1}\n", ""] {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    });
    ask(&sandbox, "status").ends().fails(2, &["another version"]);
    ask(&sandbox, "tag 1").ends().fails(2, &["another version"]);
    ask(&sandbox, "status").ends().fails(2, &["does not answer", "closed the connection"]);
}

#[test]
fn tags_end_with_their_process_and_a_missing_process_is_refused() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox, "");
    let refused = |words: &str, why: &str| ask(&sandbox, words).ends().fails(2, &[why]);
    refused("tag 4194999", "there is no process 4194999");
    refused(&format!("tag {}", daemon.pid()), "is the daemon itself");
    refused("tag --cgroup /no/such", "no control group at");
    refused("tag --cgroup ../../etc", "without . or ..");
    refused("tag --vm no-such-machine", "no virtual machine no-such-machine was found");
    let own = std::process::id();
    refused(&format!("tag {own}:1"), &format!("process {own} has no thread 1"));
    // Of several targets, those that can be tagged are.
    let sleeper = sandbox.shell("exec sleep 1000").begins();
    let some = ask(&sandbox, &format!("tag 4194999 {}", sleeper.pid())).ends();
    assert!(some.code == Some(2) && some.out().contains("tagged"), "{some}");
    let program = spins(&sandbox, &program);
    ask(&sandbox, &format!("tag {} {}:{}", program.pid(), program.pid(), program.pid())).ends().ok();
    assert_eq!(tags(&sandbox), 3);
    drop(sleeper);
    eventually("the sleeper's tag has ended", || tags(&sandbox) == 2);
    program.signal(Signal::KILL);
    program.ends();
    eventually("all have ended", || tags(&sandbox) == 0);
    eventually("nothing is watched", || status(&sandbox)["threads"] == 0);
}

/// Sends bytes, and returns the answers until the connection ends.
fn say(sandbox: &Sandbox, bytes: &[u8]) -> Vec<Value> {
    let mut stream = UnixStream::connect(socket(sandbox)).unwrap();
    // It may have been closed already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

#[test]
fn garbage_and_floods_are_refused_and_others_are_served_all_the_while() {
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox, "");
    let refusal = |bytes: &[u8]| -> String {
        let answers = say(&sandbox, bytes);
        assert_eq!(answers.len(), 1, "{answers:?}");
        let refused = &answers[0]["answer"]["refused"];
        refused.as_object().map_or_else(
            || refused.as_str().unwrap_or("?").to_owned(),
            |object| object.keys().next().unwrap().clone(),
        )
    };
    assert_eq!(refusal(b"hello\n"), "garbage");
    assert_eq!(refusal(b"\n\n\n\n"), "garbage", "after one such line the connection is closed");
    assert_eq!(refusal(&[0xff, 0xfe, b'\n']), "garbage");
    assert_eq!(refusal(b"GET / HTTP/1.1\r\n\r\n"), "garbage");
    assert_eq!(refusal(b"{\"version\":99,\"ask\":\"status\"}\n"), "version");
    assert_eq!(refusal(&[b'x'; 100_000]), "too-long");
    assert_eq!(say(&sandbox, b"{\"version\":1,\"ask\":\"sta").len(), 0, "half a line is nothing");
    let foreign = b"{\"version\":1,\"namespace\":1,\"ask\":{\"tag\":{\"what\":{\"process\":{\"pid\":1}}}}}\n";
    assert_eq!(refusal(foreign), "namespace");
    let foreign =
        b"{\"version\":1,\"namespace\":1,\"ask\":{\"clear\":{\"what\":{\"process\":{\"pid\":1}}}}}\n";
    assert_eq!(refusal(foreign), "namespace");
    // Many silent connections; root is bounded only by the total limit.
    let crowd: Vec<UnixStream> =
        (0..400).filter_map(|_| UnixStream::connect(socket(&sandbox)).ok()).collect();
    drop(crowd);
    // More than the service accepts of one user.
    let question = b"{\"version\":1,\"ask\":{\"clear\":{}}}\n".repeat(3_000);
    // Until the service has closed the crowd's connections, it accepts no other.
    let mut answers = Vec::new();
    eventually("there is room for a connection", || {
        answers = say(&sandbox, &question);
        answers.len() != 1
    });
    assert_eq!(answers.len(), 3_000);
    let late = answers.iter().filter(|answer| answer["answer"]["refused"]["too-often"].is_object()).count();
    assert!(late > 0 && late < 3_000, "{late}");
    let told = status(&sandbox);
    assert!(told["clients"]["refused"].as_u64() > Some(5), "{told}");
    assert_eq!(told["tags"].as_array().unwrap().len(), 0);
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
}

#[test]
fn each_user_tags_and_sees_their_own_processes() {
    let [one, other] = need!(two_users(), "only root can act as others");
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _daemon = daemon(&sandbox, "");
    let theirs = sandbox.trimtab("").copy(Path::new("sh")).args(["-c", "echo on; exec cat"]);
    let mut roots = theirs.begins();
    roots.line();
    let by = |user: u32, words: &str| ask(&sandbox, words).user(user).ends();
    by(one, &format!("tag {}", roots.pid())).fails(2, &["belongs to user 0", "only that user and root"]);
    let mut ones = sandbox.run("-c 1").sh("echo on; exec cat").user(one).begins();
    ones.line();
    let pid = ones.pid();
    by(other, &format!("tag {pid}")).fails(2, &[&format!("belongs to user {one}")]);
    assert_eq!(by(one, &format!("tag {pid}")).ok(), format!("process {pid}: tagged"));
    let seen = |user: u32| -> Value { serde_json::from_str(&by(user, "status --json").ok()).unwrap() };
    let count = |told: &Value| (told["tags"].as_array().unwrap().len(), told["others"].as_u64().unwrap());
    assert_eq!(count(&seen(one)), (1, 0));
    assert_eq!(count(&seen(other)), (0, 1));
    assert_eq!(count(&status(&sandbox)), (1, 0));
    by(other, &format!("untag {pid}")).fails(2, &["1 tag of other users"]);
    assert_eq!(by(other, "untag --all").ok(), "all your tags: was not tagged");
    // The processes of a group may belong to several users: only the caller's own are untagged.
    assert_eq!(ask(&sandbox, &format!("untag {pid}")).ends().ok(), format!("process {pid}: cleared 1 tag"));
}

#[test]
fn control_groups_are_their_users() {
    let [one, _] = need!(two_users(), "only root can act as others");
    let group = need!(crate::bounds::Group::new("cpuset", &[]), "no control group can be made here");
    let sandbox = Sandbox::new();
    let _daemon = daemon(&sandbox, "");
    let path = group.0.display().to_string();
    let tag = || ask(&sandbox, &format!("tag --cgroup {path}")).user(one).ends();
    tag().fails(2, &["belongs to user 0", "tag processes of yours in it"]);
    std::os::unix::fs::chown(&group.0, Some(one), None).unwrap();
    assert_eq!(tag().ok(), format!("group {path}: tagged"));
    let clear = format!("untag --cgroup {path}//");
    assert_eq!(ask(&sandbox, &clear).user(one).ends().ok(), format!("group {path}: cleared 1 tag"));
}

/// Process numbers differ in a container, also without any option: the kernel reports no number
/// there for an outside process.
#[test]
fn a_daemon_in_a_container_takes_no_numbers_from_outside() {
    let unshare = need!(crate::util::installed("unshare"), "unshare(1) is not installed");
    let through = [unshare.to_str().unwrap(), "--pid", "--fork", "--mount-proc", "--kill-child"];
    let works = std::process::Command::new(&unshare).args(&through[1..]).arg("true").status();
    need!(works.is_ok_and(|status| status.success()).then_some(()), "no container can be made here");
    let sandbox = Sandbox::new();
    let words = "serve --policy pinned --interval 5ms --budget 50%";
    let _daemon = ask(&sandbox, words).through(through).begins();
    eventually("the daemon answers", || UnixStream::connect(socket(&sandbox)).is_ok());
    for ask in ["tag", "clear"] {
        let line =
            format!("{{\"version\":1,\"ask\":{{\"{ask}\":{{\"what\":{{\"process\":{{\"pid\":1}}}}}}}}}}\n");
        let answers = say(&sandbox, line.as_bytes());
        assert_eq!(answers[0]["answer"]["refused"], "namespace", "{answers:?}");
    }
    // A client inside sees a daemon without a number.
    ask(&sandbox, "tag 1").ends().fails(2, &["in another container"]);
    ask(&sandbox, "untag 1").ends().fails(2, &["in another container"]);
    ask(&sandbox, "status").ends().ok();
}

#[test]
fn a_socket_of_another_user_at_the_own_path_is_skipped() {
    let [one, other] = need!(two_users(), "only root can act as others");
    // A copy that other users may run, too.
    let python = Path::new("/usr/bin/python3");
    need!(python.exists().then_some(()), "no Python");
    let sandbox = Sandbox::new();
    let place = sandbox.path("shared/run");
    fs::create_dir_all(place.join("trimtab-serve")).unwrap();
    for folder in [&place, &place.join("trimtab-serve")] {
        std::os::unix::fs::chown(folder, Some(other), None).unwrap();
    }
    let socket = place.join("trimtab-serve/socket").display().to_string();
    let script = "import os, socket, sys\nos.umask(0)\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n\
                  print('up', flush=True)\nsys.stdin.read()";
    let mut stranger = sandbox.trimtab("").user(other).copy(python).args(["-c", script, &socket]).begins();
    stranger.line();
    std::os::unix::fs::chown(&place, Some(one), None).unwrap();
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let asked = sandbox.trimtab("status").env("XDG_RUNTIME_DIR", &place).user(one).ends();
    // If root's own daemon runs on this machine, it answers instead.
    assert!(
        asked.stderr.contains(&format!("is user {other}")) && asked.stderr.contains("not asked"),
        "{asked}"
    );
    stranger.ends();
}

const FLOOD: &str = r#"
import socket
sockets = []
line = b'{"version":1,"ask":"status"}\n' * 50
print("up", flush=True)
while True:
    if len(sockets) < 40:
        new = socket.socket(socket.AF_UNIX)
        new.setblocking(False)
        try:
            new.connect("SOCKET")
            sockets.append(new)
        except OSError:
            pass
    for one in list(sockets):
        try:
            one.send(line)
        except BlockingIOError:
            pass
        except OSError:
            sockets.remove(one)
"#;

#[test]
fn a_client_with_too_many_requests_waits_and_others_do_not() {
    let [one, other] = need!(two_users(), "only root can act as others");
    // A copy that other users may run, too.
    let python = Path::new("/usr/bin/python3");
    need!(python.exists().then_some(()), "no Python");
    let sandbox = Sandbox::new();
    let _daemon = daemon(&sandbox, "");
    // As fast as possible, without reading the answers, over all connections that it gets.
    let script = FLOOD.replace("SOCKET", &socket(&sandbox).display().to_string());
    let mut flood = sandbox.trimtab("").user(one).copy(python).args(["-c", &script]).begins();
    flood.line();
    for _ in 0..5 {
        ask(&sandbox, "untag --all").user(other).ends().ok();
        ask(&sandbox, "status").ends().ok();
    }
    let told = status(&sandbox);
    assert!(told["clients"]["now"].as_u64() <= Some(2 * 16 + 2), "{told}");
    flood.signal(Signal::KILL);
    flood.ends();
}

#[test]
fn a_users_own_daemon_serves_that_user() {
    let [one, other] = need!(two_users(), "only root can act as others");
    let sandbox = Sandbox::new();
    let daemon = ask(&sandbox, "serve --budget 50%").user(one).begins();
    eventually("the daemon answers", || socket(&sandbox).exists());
    let mut ones = sandbox.run("-c 1").sh("echo on; exec cat").user(one).begins();
    ones.line();
    let tag = format!("tag {}", ones.pid());
    eventually("it may be connected to", || ask(&sandbox, &tag).user(one).ends().code == Some(0));
    ask(&sandbox, &tag).user(other).ends().fails(2, &["only that user may connect"]);
    let roots = sandbox.shell("exec sleep 1000").begins();
    let refused = ask(&sandbox, &format!("tag {}", roots.pid())).ends();
    refused.fails(2, &["belongs to user 0", &format!("this daemon runs as user {one}")]);
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
}

#[test]
fn holds_are_enforced_only_by_root_with_control_groups_of_version_2() {
    let sandbox = Sandbox::new();
    let user = two_users().map(|[user, _]| user);
    for words in ["serve --enforce", "serve --enforce=isolated", "serve --give-back"] {
        let call = sandbox.trimtab(words);
        let call = match user {
            Some(user) => call.user(user),
            None => call,
        };
        call.ends().fails(2, &["only root can", "sudo trimtab serve"]);
    }
    sandbox.trimtab("serve --enforce=member").ends().fails(2, &["known: root, isolated"]);
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    if user.is_none() {
        return skip("the refusal of root needs root");
    }
    if controllers.split_whitespace().any(|name| name == "cpuset") {
        return skip("this machine can enforce holds: make test-numa tests how");
    }
    let refused = ask(&sandbox, "serve --enforce").ends();
    refused.fails(2, &["control groups of version 2", "systemd.unified_cgroup_hierarchy=1"]);
    // The launcher needs none of it.
    assert_eq!(sandbox.run("-c 1").args(["echo", "ran"]).ends().ok(), "ran");
}

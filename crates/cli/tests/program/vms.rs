//! `trimtab attach --vm` and `top --vm`: only the CPUs of virtual machines are moved.

use crate::balance::lines;
use crate::guest::{Guest, NO_QEMU, Setup, Work};
use crate::serve::{ask, daemon, status};
use crate::util::{Sandbox, cpus, eventually, need, text, two, two_users};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::net::UnixListener;

/// Returns the CPUs that each of these threads may use.
fn masks(tids: &[u32]) -> Vec<BTreeSet<u32>> {
    let mask = |tid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
        Some(cpus(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?))
    };
    tids.iter().filter_map(mask).collect()
}

fn is_bound(tids: &[u32]) -> bool {
    masks(tids).iter().all(|mask| mask.len() == 1)
}

/// Starts a guest of this name, with two CPUs.
fn guest(name: &str) -> Option<Guest> {
    let name = format!("guest={name},debug-threads=on");
    Guest::start(&Setup { name: Some(&name), ..Setup::default() })
}

#[test]
fn the_cpus_of_a_machine_are_moved_and_nothing_else_of_it() {
    let [a, b] = need!(two(), "two cores are needed");
    let name = format!("moved-{}", std::process::id());
    let guest = need!(guest(&name), "{NO_QEMU}");
    let sandbox = Sandbox::new();
    let vcpus = guest.cpu_threads();
    let others = || {
        guest.threads().into_iter().map(|(tid, _)| tid).filter(|tid| !vcpus.contains(tid)).collect::<Vec<_>>()
    };
    let whole = BTreeSet::from([a, b]);
    for named in [name.clone(), guest.pid().to_string(), guest.socket().display().to_string()] {
        let trace = sandbox.path("trace.jsonl");
        let words = ["attach", "--vm", &named, "--balance", "pinned", "--interval", "5ms", "--trace"];
        let attached = sandbox.trimtab("").args(words).arg(&trace).begins();
        eventually("its CPUs are moved", || is_bound(&vcpus));
        assert!(masks(&others()).iter().all(|mask| *mask == whole));
        attached.signal(Signal::INT);
        let said = attached.ends();
        assert_eq!(said.ok(), "");
        assert!(masks(&vcpus).iter().all(|mask| *mask == whole), "they have their own again");
        let lines = lines(&trace);
        let command = lines[0].1["command"].as_str().unwrap();
        assert_eq!(
            command,
            format!("virtual machine {name} (process {}, QEMU, 2 CPUs found by QMP)", guest.pid())
        );
        assert_eq!(lines.last().unwrap().1["why"], "stopped");
        let names = lines[1].1["sample"]["news"]
            .as_array()
            .unwrap()
            .iter()
            .map(|info| info["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["vcpu 0", "vcpu 1"], "{}", lines[1].1);
    }
}

#[test]
fn busy_cpus_change_places_and_get_their_own_masks_back() {
    let [a, b] = need!(two(), "two cores are needed");
    // Three threads on two CPUs, of which one is always behind.
    let name = format!("guest=busy-{},debug-threads=on", std::process::id());
    let setup = Setup { name: Some(&name), cpus: 3, work: Work::Spin, ..Setup::default() };
    let guest = need!(Guest::start(&setup), "{NO_QEMU}");
    let sandbox = Sandbox::new();
    let vcpus = guest.cpu_threads();
    let trace = sandbox.path("trace.jsonl");
    let words = format!("attach --vm {} --balance speed --interval 20ms --trace", guest.pid());
    let attached = sandbox.trimtab(&words).arg(&trace).begins();
    eventually("each has been moved, and one again", || {
        text(&trace).matches("\"applied\"").count() > vcpus.len()
    });
    attached.signal(Signal::TERM);
    attached.ends().ok();
    assert!(masks(&vcpus).iter().all(|mask| *mask == BTreeSet::from([a, b])));
}

#[test]
fn paused_it_stays_attached_and_killed_it_ends() {
    let [_, _] = need!(two(), "two cores are needed");
    let mut guest = need!(guest("ends"), "{NO_QEMU}");
    let sandbox = Sandbox::new();
    let vcpus = guest.cpu_threads();
    let words = format!("attach --vm {} --balance pinned --interval 5ms --json", guest.pid());
    let attached = sandbox.trimtab(&words).begins();
    eventually("its CPUs are moved", || is_bound(&vcpus));
    guest.qmp().tell(r#"{"execute":"stop"}"#);
    let looks = |said: &str| said.lines().count();
    let before = looks(&attached.said());
    eventually("it is looked at while it pauses", || looks(&attached.said()) > before + 5);
    assert!(is_bound(&vcpus));
    let mut qmp = guest.qmp();
    qmp.tell(r#"{"execute":"cont"}"#);
    qmp.plug(2);
    drop(qmp);
    eventually("the CPU that was plugged in is seen", || attached.said().contains("\"vcpu 2\""));
    guest.kill();
    let said = attached.ends().ok();
    assert_eq!(said.lines().last().unwrap(), "{\"end\":{\"why\":\"the programs ended\"}}");
}

#[test]
fn a_tagged_machine_is_balanced_through_pause_and_plug_until_it_is_killed() {
    let [a, b] = need!(two(), "two cores are needed");
    let name = format!("served-{}", std::process::id());
    let mut guest = need!(guest(&name), "{NO_QEMU}");
    let sandbox = Sandbox::new();
    let whole = BTreeSet::from([a, b]);
    let vcpus = guest.cpu_threads();
    let daemon = daemon(&sandbox, "");
    let by_name = ask(&sandbox, &format!("tag --vm {name}")).ends().ok();
    assert_eq!(by_name, format!("machine {name} (process {}): tagged", guest.pid()));
    let again = ask(&sandbox, &format!("tag --vm {}", guest.pid())).ends().ok();
    assert!(again.ends_with("tagged already"), "{again}");
    eventually("its CPUs are moved", || is_bound(&vcpus));
    let others: Vec<u32> =
        guest.threads().into_iter().map(|(tid, _)| tid).filter(|tid| !vcpus.contains(tid)).collect();
    assert!(masks(&others).iter().all(|mask| *mask == whole));
    let mut qmp = guest.qmp();
    qmp.tell(r#"{"execute":"stop"}"#);
    eventually("it is told that nothing changed", || status(&sandbox)["tags"][0]["threads"] == 2);
    assert!(is_bound(&vcpus));
    qmp.tell(r#"{"execute":"cont"}"#);
    qmp.plug(2);
    drop(qmp);
    eventually("the CPU that was plugged in is moved too", || {
        let all = guest.cpu_threads();
        all.len() == 3 && is_bound(&all)
    });
    ask(&sandbox, &format!("untag --vm {name}")).ends().ok();
    eventually("all have their own masks", || masks(&guest.cpu_threads()).iter().all(|mask| *mask == whole));
    ask(&sandbox, &format!("tag --vm {}", guest.socket().display())).ends().ok();
    eventually("its CPUs are moved again", || is_bound(&guest.cpu_threads()));
    guest.kill();
    eventually("the tag has ended with it", || status(&sandbox)["tags"].as_array().unwrap().is_empty());
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
}

#[test]
fn masks_left_by_a_killed_balancer_are_restored() {
    let [a, b] = need!(two(), "two cores are needed");
    let guest = need!(guest("left"), "{NO_QEMU}");
    let sandbox = Sandbox::new();
    let (pid, vcpus) = (guest.pid(), guest.cpu_threads());
    let attached = sandbox.trimtab(&format!("attach --vm {pid} --balance pinned --interval 5ms")).begins();
    eventually("its CPUs are moved", || is_bound(&vcpus));
    // Meanwhile no other process balances it.
    sandbox.trimtab(&format!("attach --vm {pid}")).ends().fails(2, &["is balanced by process"]);
    crate::guardian::kill_with_guardian(&attached);
    attached.ends();
    assert!(is_bound(&vcpus));
    sandbox.trimtab(&format!("detach {pid}")).ends().ok();
    assert!(masks(&vcpus).iter().all(|mask| *mask == BTreeSet::from([a, b])));
}

#[test]
fn an_unknown_machine_is_refused_with_the_known_forms() {
    let sandbox = Sandbox::new();
    let attach = |words: &str| sandbox.trimtab(&format!("attach --vm {words}")).ends();
    attach("/no/such/socket").fails(2, &["QMP socket /no/such/socket: cannot connect"]);
    attach("4194999").fails(2, &["there is no process 4194999"]);
    let own = std::process::id();
    attach(&own.to_string()).fails(2, &["is known to be a virtual CPU", "is it a virtual machine?"]);
    sandbox.trimtab("attach").args(["--vm", ""]).ends().fails_with(2, "a name, a process or a QMP socket");
    sandbox.trimtab("top --once --vm no-such-machine").ends().fails(2, &["no virtual machine here is named"]);
    // A silent socket, and one that is not QMP.
    let path = sandbox.path("silent");
    let _silent = UnixListener::bind(&path).unwrap();
    attach(&path.display().to_string()).fails(2, &["serves another client", "by its process"]);
    let path = sandbox.path("strange");
    let strange = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for client in strange.incoming() {
            let mut client = client.unwrap();
            let _ = std::io::Write::write_all(&mut client, b"220 mail ready\r\n");
            let _ = client.read(&mut [0]);
        }
    });
    attach(&path.display().to_string()).fails(2, &["is not QMP"]);

    let guest = need!(guest("seen"), "{NO_QEMU}");
    let pid = guest.pid();
    let listed = format!("seen (process {pid}, QEMU)");
    attach("no-such-machine").fails(2, &["no virtual machine here is named no-such-machine", &listed]);
    attach(&format!("{pid} {pid}")).fails(2, &["name it once"]);
    let [user, _] = need!(two_users(), "only root can act as others");
    let refused = sandbox.trimtab(&format!("attach --vm {pid}")).user(user).ends();
    refused.fails(2, &["belongs to root", &format!("sudo trimtab attach --vm {pid}")]);
}

#[test]
fn its_cpus_are_shown() {
    let guest = need!(guest("shown"), "{NO_QEMU}");
    let sandbox = Sandbox::new();
    let said = sandbox.trimtab(&format!("top --json -i 50ms --vm {}", guest.pid())).ends().ok();
    let look: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(look["programs"][0]["name"], "shown", "{look}");
    assert_eq!(look["programs"][0]["threads"], 2, "{look}");
}

#[test]
fn a_machine_is_cleared_by_the_socket_that_it_was_tagged_by() {
    need!(two(), "two cores are needed");
    let name = format!("tagged-{}", std::process::id());
    let guest = need!(guest(&name), "{NO_QEMU}");
    let sandbox = Sandbox::new();
    let _daemon = crate::serve::daemon(&sandbox, "");
    let ask = |words: &str, how: &str| crate::serve::ask(&sandbox, &format!("{words} --vm {how}"));
    let socket = guest.socket().display().to_string();
    for by in [&socket, &name, &guest.pid().to_string()] {
        // Under load a monitor may answer too late.
        let mut said = String::new();
        eventually("its monitor has answered", || {
            let asked = ask("tag", &socket).ends();
            said = asked.out();
            asked.code == Some(0)
        });
        assert_eq!(said.trim_end(), format!("machine {name} (process {}): tagged", guest.pid()));
        eventually("its CPUs are moved", || is_bound(&guest.cpu_threads()));
        eventually("its monitor has answered", || {
            let asked = ask("untag", by).ends();
            said = asked.out();
            asked.code == Some(0)
        });
        assert_eq!(said.trim_end(), format!("machine {by}: cleared 1 tag"));
        eventually("they have their own masks again", || {
            masks(&guest.cpu_threads()).iter().all(|mask| mask.len() == 2)
        });
    }
    eventually("its monitor has answered", || {
        ask("untag", &socket).ends().out() == format!("machine {socket}: was not tagged")
    });
    ask("untag", "/no/such/socket").ends().fails(2, &["/no/such/socket"]);
    // Root would connect to any socket that a user names.
    if let Some([one, _]) = two_users() {
        ask("tag", &socket).user(one).ends().fails(2, &["by a socket only root may"]);
        ask("untag", &socket).user(one).ends().fails(2, &["by a socket only root may"]);
        let told = ask("tag", &guest.pid().to_string()).user(one).ends();
        told.fails(2, &["belongs to user 0"]);
    }
}

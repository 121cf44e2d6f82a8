//! Targets of tags other than processes: control groups, virtual machines, CPUs that a guest names;
//! and the agent in the guest.

use crate::balance::masks;
use crate::bounds::Group;
use crate::serve::{ask, daemon, status};
use crate::util::{Running, Sandbox, c, chmod, cpus, eventually, installed, need, two, workers_are_bound};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Returns the masks of a process's threads, by their names.
fn named_masks(pid: u32) -> BTreeMap<String, BTreeSet<u32>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let one = |folder: &Path| {
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some((field("Name:")?.to_owned(), cpus(field("Cpus_allowed_list:")?)))
    };
    tasks.filter_map(|task| one(&task.path())).collect()
}

fn sizes(pid: u32) -> [usize; 3] {
    let masks = named_masks(pid);
    ["CPU 0/TCG", "CPU 1/TCG", "worker"].map(|name| masks.get(name).map_or(0, BTreeSet::len))
}

#[test]
fn the_cpus_of_a_machine_are_tagged_and_nothing_else_of_it() {
    need!(two(), "two cores are needed");
    let program = need!(c("vm.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut vm = sandbox.shell(&format!("exec {}", program.display())).begins();
    vm.line();
    let pid = vm.pid();
    let _daemon = daemon(&sandbox, "");
    let said = ask(&sandbox, &format!("tag --vm {pid}")).ends().ok();
    assert!(said.ends_with(&format!("(process {pid}): tagged")), "{said}");
    eventually("its CPUs are moved", || sizes(pid) == [1, 1, 2]);
    eventually("two threads are told", || status(&sandbox)["tags"][0]["threads"] == 2);
    ask(&sandbox, &format!("untag --vm {pid}")).ends().ok();
    eventually("they have their own masks again", || sizes(pid) == [2, 2, 2]);
    ask(&sandbox, &format!("tag --vm {pid}")).ends().ok();
    vm.signal(Signal::KILL);
    vm.ends();
    eventually("the tag has ended with it", || status(&sandbox)["tags"].as_array().unwrap().is_empty());
}

#[test]
fn a_declared_machine_is_tagged_each_time_it_runs() {
    need!(two(), "two cores are needed");
    let program = need!(c("vm.c"), "no C compiler");
    let sandbox = Sandbox::new();
    // Machines are known by the names of their monitors.
    let monitor = sandbox.path("shared/qemu-system-x86_64");
    std::fs::copy(&program, &monitor).unwrap();
    let name = format!("web-{}", std::process::id());
    let file =
        sandbox.write("config/serve.d/vms.toml", format!("[[tag]]\nvm = 'web-{}'\n", std::process::id()));
    chmod(&file, 0o644);
    chmod(file.parent().unwrap(), 0o755);
    let _daemon = daemon(&sandbox, "");
    for _ in 0..2 {
        let script = format!("exec {} -name {name},debug-threads=on", monitor.display());
        let mut vm = sandbox.shell(&script).begins();
        vm.line();
        let pid = vm.pid();
        eventually("its CPUs are moved", || sizes(pid) == [1, 1, 2]);
        let tag = status(&sandbox)["tags"][0].clone();
        assert_eq!(
            (&tag["mark"]["vm"]["name"], &tag["threads"]),
            (&name.as_str().into(), &2.into()),
            "{tag}"
        );
        vm.signal(Signal::KILL);
        vm.ends();
        eventually("the tag has ended with it", || status(&sandbox)["tags"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_guest_tags_cpus_of_its_own_machine_through_its_port() {
    need!(two(), "two cores are needed");
    let program = need!(c("vm.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut vm = sandbox.shell(&format!("exec {}", program.display())).begins();
    vm.line();
    let pid = vm.pid();
    // Listens as QEMU does for a port of a guest.
    let path = sandbox.path("shared/port");
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = daemon(&sandbox, &format!("--guest {pid}=unix:{}", path.display()));
    let (mut guest, _) = listener.accept().unwrap();
    let told = |field: &str| status(&sandbox)["guests"][0][field].clone();
    // The machine may not have been found yet; `trimtab guest-agent` repeats its lines.
    eventually("the first CPU is moved", || {
        guest.write_all(b"tag vcpu 0\n").unwrap();
        sizes(pid) == [1, 2, 2]
    });
    guest.write_all(b"tag vcpu 1\ntag vcpu 7\nnonsense\n").unwrap();
    eventually("both are moved", || sizes(pid) == [1, 1, 2]);
    guest.write_all(b"clear vcpu 0\r\nclear vcpu 0\n").unwrap();
    eventually("one is cleared", || sizes(pid) == [2, 1, 2]);
    assert_eq!((told("garbage"), told("state")), (1.into(), "open".into()));
    assert!(told("unknown").as_u64() >= Some(1), "{}", status(&sandbox));
    let tag = &status(&sandbox)["tags"][0];
    assert_eq!(
        (&tag["by"]["guest"], &tag["mark"]["vcpu"]["index"]),
        (&pid.to_string().into(), &1.into()),
        "{tag}"
    );
    // The guest floods the port: other clients are served, and the guest is read again later.
    let flood = b"tag vcpu 1\n".repeat(20_000);
    let mut writer = guest.try_clone().unwrap();
    let flooding = std::thread::spawn(move || writer.write_all(&flood).unwrap());
    assert_eq!(status(&sandbox)["tags"].as_array().unwrap().len(), 1);
    flooding.join().unwrap();
    eventually("too much was dropped", || told("dropped").as_u64() > Some(0));
    // The guest sends only meaningless lines.
    let mut writer = guest.try_clone().unwrap();
    std::thread::spawn(move || {
        // Until the service does not read it any more.
        while writer.write_all(&b"\n".repeat(100)).is_ok() {}
    });
    eventually("it is not listened to any more", || told("state") == "ignored");
    eventually("the port is closed", || matches!(guest.read(&mut [0]), Ok(0) | Err(_)));
    daemon.signal(Signal::TERM);
    let ended = daemon.ends();
    assert_eq!(ended.stderr.matches("not listened to any more").count(), 1, "{ended}");
    assert_eq!(sizes(pid), [2, 2, 2]);
}

#[test]
fn a_guest_reports_the_vcpus_of_bound_tasks() {
    let [a, _] = need!(two(), "two cores are needed");
    need!(installed("taskset"), "taskset is not installed");
    let sandbox = Sandbox::new();
    let bound = sandbox.shell("echo on; while :; do :; done").through(["taskset", "-c", &a.to_string()]);
    let mut bound = bound.begins();
    bound.line();
    let port = sandbox.path("port");
    fs::write(&port, "").unwrap();
    let guest = format!("guest-agent --port {} --interval 5ms", port.display());
    let running = sandbox.trimtab(&guest).begins();
    eventually("its CPU is told", || {
        fs::read_to_string(&port).unwrap().lines().any(|line| line == format!("tag vcpu {a}"))
    });
    running.signal(Signal::TERM);
    running.ends().ok();
    let said = fs::read_to_string(&port).unwrap();
    let mut tagged = BTreeSet::new();
    for line in said.lines() {
        match line.split_once(" vcpu ").unwrap() {
            ("tag", cpu) => assert!(tagged.insert(cpu), "{said}"),
            ("clear", cpu) => assert!(tagged.remove(cpu), "{said}"),
            _ => panic!("{said}"),
        }
    }
    assert_eq!(tagged, BTreeSet::new(), "at its end all is cleared");
    // It scans once an hour; nevertheless the host gets its lines before they expire.
    fs::write(&port, "").unwrap();
    let running = sandbox.trimtab(&format!("guest-agent --port {} --interval 1h", port.display())).begins();
    eventually("its CPU is told again", || {
        let said = fs::read_to_string(&port).unwrap();
        said.lines().filter(|line| *line == format!("tag vcpu {a}")).count() >= 2
    });
    running.signal(Signal::TERM);
    running.ends().ok();
    assert!(fs::read_to_string(&port).unwrap().contains(&format!("clear vcpu {a}\n")));
    sandbox.trimtab("guest-agent --port /no/such/port").ends().fails(2, &["there is no port /no/such/port"]);
    sandbox
        .trimtab("guest-agent --port /dev/full --scans 1000 --interval 5ms")
        .ends()
        .fails(2, &["cannot tell"]);
}

#[test]
fn a_guest_whose_monitor_connects_is_served() {
    need!(two(), "two cores are needed");
    let program = need!(c("vm.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut vm = sandbox.shell(&format!("exec {}", program.display())).begins();
    vm.line();
    let pid = vm.pid();
    // Connects as Firecracker does, for a guest that connects to port 7000 of machine 2.
    let path = sandbox.path("shared/v.sock_7000");
    let _daemon = daemon(&sandbox, &format!("--guest {pid}=listen:{}", path.display()));
    let call = || {
        let mut guest = None;
        eventually("it is listened", || {
            guest = UnixStream::connect(&path).ok();
            guest.is_some()
        });
        guest.unwrap()
    };
    let mut guest = call();
    eventually("the first CPU is moved", || {
        guest.write_all(b"tag vcpu 0\n").unwrap();
        sizes(pid) == [1, 2, 2]
    });
    let told = |field: &str| status(&sandbox)["guests"][0][field].clone();
    assert_eq!(
        (told("channel"), told("state")),
        (format!("listen:{}", path.display()).into(), "open".into())
    );
    // The guest was restarted.
    drop(guest);
    eventually("it is noticed", || told("state") == "closed");
    let mut guest = call();
    eventually("it is cleared by the new one", || {
        guest.write_all(b"clear vcpu 0\n").unwrap();
        sizes(pid) == [2, 2, 2]
    });
    // Another daemon cannot listen there, and reports it.
    let other = Sandbox::new();
    let _other = daemon(&other, &format!("--guest {pid}=listen:{}", path.display()));
    eventually("why it is not heard", || {
        status(&other)["faults"].to_string().contains("cannot listen at listen:")
    });
    assert!(guest.write_all(b"tag vcpu 1\n").is_ok(), "the first is not disturbed");
}

#[test]
fn a_missing_vsock_is_reported_and_one_without_a_listener_is_tried_again() {
    let sandbox = Sandbox::new();
    let running = sandbox.trimtab("guest-agent --port vsock:2:7000 --interval 50ms -v").begins();
    // Depends on the machine: no such socket, no listener, or a host that does not answer.
    std::thread::sleep(std::time::Duration::from_millis(300));
    running.signal(Signal::TERM);
    let end = running.ends();
    match end.code {
        Some(2) => assert!(end.stderr.contains("this guest has no vsock"), "{}", end.stderr),
        code => assert_eq!(code, Some(0), "{}", end.stderr),
    }
}

/// A guest that runs without further input: it ends when its program ends.
struct Emulated(std::process::Child);

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn an_emulated_guest_tags_the_cpu_that_its_bound_task_runs_on() {
    let testbed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/guest");
    let cache = std::env::var_os("XDG_CACHE_HOME").map(std::path::PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    // Its kernel must be downloaded, which only the tests of guests do.
    let kernel = cache.map(|cache| cache.join("trimtab/testbed/trixie")).filter(|kernel| kernel.is_dir());
    need!(kernel, "no kernel for guests was fetched here (make test-numa)");
    need!(installed("qemu-system-x86_64").and(installed("busybox")), "no QEMU, or no busybox");
    let sandbox = Sandbox::new();
    let port = sandbox.path("shared/port");
    let _daemon = daemon(&sandbox, &format!("--pinned --guest testbed=unix:{}", port.display()));
    // The task ends while the guest continues to run, and the agent reports it.
    let script = "timeout 60 taskset -c 1 sh -c 'while :; do :; done' & \
        exec \"$0\" guest-agent --port /dev/ttyS4 --interval 200ms --scans 300";
    let mut guest = std::process::Command::new(testbed);
    guest.args(["-t", "1n2c", "-p", "-l", "200", "-s"]).arg(&port).args(["bash", "-c", script]);
    guest.arg(crate::util::trimtab()).stdout(std::process::Stdio::null());
    let mut guest = Emulated(guest.spawn().unwrap());
    let long = std::time::Duration::from_secs(240);
    let tagged = || {
        let tags = status(&sandbox)["tags"].as_array().unwrap().clone();
        tags.into_iter().filter(|tag| tag["by"]["guest"] == "testbed").collect::<Vec<_>>()
    };
    let mut ended = None;
    let mut told = Vec::new();
    crate::util::eventually_within(long, "the CPU is tagged", || {
        ended = ended.or(guest.0.try_wait().unwrap());
        told = tagged();
        ended.is_some() || told.iter().any(|tag| tag["threads"] == 1)
    });
    if ended.is_some() {
        return crate::util::skip("guests break on this machine: testbed/guest says why");
    }
    // The kernel of a guest binds its own threads to CPUs, but they are not user tasks.
    let mark = &told[0]["mark"]["vcpu"];
    assert_eq!((told.len(), &mark["index"], &mark["vm"]), (1, &1.into(), &"testbed".into()), "{told:?}");
    assert_eq!(status(&sandbox)["guests"][0]["garbage"], 0);
    let monitor = u32::try_from(told[0]["mark"]["vcpu"]["pid"].as_u64().unwrap()).unwrap();
    let sizes = || {
        let masks = named_masks(monitor);
        ["CPU 0/TCG", "CPU 1/TCG"].map(|name| masks.get(name).map_or(0, BTreeSet::len))
    };
    eventually("the thread of that CPU is moved, and no other", || sizes() == [2, 1]);
    crate::util::eventually_within(long, "the CPU is cleared", || tagged().is_empty());
    assert!(guest.0.try_wait().unwrap().is_none(), "the guest is still there");
    eventually("its thread has its own mask again", || sizes() == [2, 2]);
    drop(guest);
    eventually("nothing is tagged", || tagged().is_empty());
}

/// A machine that is its own host: a kernel that talks to itself by vsock. Service and agent run in
/// the same emulated guest.
#[test]
fn a_guest_connects_to_its_host_by_vsock_until_it_is_accepted() {
    let program = need!(c("vm.c"), "no C compiler");
    let testbed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/guest");
    let cache = std::env::var_os("XDG_CACHE_HOME").map(std::path::PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let module = cache.map(|cache| cache.join("trimtab/testbed/trixie/modules/vsock_loopback.ko"));
    let module = module.filter(|module| module.exists());
    need!(
        module,
        "no kernel with vsock_loopback was fetched here (delete the one in ~/.cache/trimtab/testbed, make test-numa)"
    );
    need!(installed("qemu-system-x86_64").and(installed("busybox")), "no QEMU, or no busybox");
    // The agent connects before the service listens; its lines are checked in the registry.
    let script = "
        sleep 1000 | $1 >/run/vm & vm=$!
        taskset -c 1 sh -c 'while :; do :; done' &
        $0 guest --port vsock:1:7000 --interval 200ms & guest=$!
        sleep 3
        mkdir /run/service
        $0 serve --guest $vm=vsock:1:7000 --guest x=vsock:77:7001 --socket /run/service/socket & serve=$!
        for look in $(seq 60); do
            sleep 1
            $0 status --json --socket /run/service/socket >/run/status && grep -q '\"index\"' /run/status && break
        done
        kill $guest
        wait $guest
        echo $? >>/run/status
        kill $serve
        cat /run/status";
    let mut guest = std::process::Command::new(testbed);
    guest.args(["-t", "1n2c", "-l", "280", "bash", "-c", script]).arg(crate::util::trimtab()).arg(program);
    let end = guest.output().unwrap();
    let said = String::from_utf8_lossy(&end.stdout).into_owned();
    if matches!(end.status.code(), Some(124 | 125)) {
        return crate::util::skip("guests break on this machine: testbed/guest says why");
    }
    let words = String::from_utf8_lossy(&end.stderr).into_owned();
    assert!(words.contains("no service listens at vsock:1:7000 yet"), "{words}");
    let (told, status) = said.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(status, "0", "{said}{words}");
    let told: serde_json::Value = serde_json::from_str(told).unwrap();
    assert_eq!(told["tags"][0]["mark"]["vcpu"]["index"], 1, "{told}");
    let guests = told["guests"].as_array().unwrap();
    let state = |at: usize| (guests[at]["channel"].clone(), guests[at]["state"].clone());
    assert_eq!(state(0), ("vsock:1:7000".into(), "open".into()), "{told}");
    assert_eq!(state(1), ("vsock:77:7001".into(), "closed".into()), "{told}");
    assert_eq!(guests[0]["garbage"], 0, "{told}");
}

#[test]
fn a_group_is_tagged_within_its_cpuset() {
    let [a, b] = need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let settings = [("cpuset.cpus", format!("{a},{b}")), ("cpuset.mems", "0".to_owned())];
    let group = need!(Group::new("cpuset", &settings), "no cpuset can be made here");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 2", program.display())).through(group.join()).begins();
    program.line();
    let pid = program.pid();
    let _daemon = daemon(&sandbox, "");
    let path = group.0.display().to_string();
    ask(&sandbox, &format!("tag --cgroup {path}")).ends().ok();
    let bound = || workers_are_bound(pid);
    eventually("its threads are moved", bound);
    // Its cpuset is now smaller than the mask that it was given.
    fs::write(group.0.join("cpuset.cpus"), a.to_string()).unwrap();
    eventually("all are where they may be", || masks(pid).iter().all(|mask| *mask == BTreeSet::from([a])));
    fs::write(group.0.join("cpuset.cpus"), format!("{a},{b}")).unwrap();
    ask(&sandbox, &format!("untag --cgroup {path}")).ends().ok();
    eventually("they have their own masks again", || masks(pid).iter().all(|mask| mask.len() == 2));
    assert_eq!(program.ends().code, Some(9));
}

/// A thread that was balanced has no mask of its own afterwards, so that it grows with its cpuset
/// as any other thread does: after each way in which a tag, or the service, may end.
#[test]
fn threads_that_were_tagged_grow_with_their_cpuset() {
    let [a, b] = need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let settings = [("cpuset.cpus", format!("{a},{b}")), ("cpuset.mems", "0".to_owned())];
    let group = need!(Group::new("cpuset", &settings), "no cpuset can be made here");
    let sandbox = Sandbox::new();
    let mut program = sandbox.shell(&format!("exec {} 2", program.display())).through(group.join()).begins();
    program.line();
    let pid = program.pid();
    let cpuset = |cpus: &str| fs::write(group.0.join("cpuset.cpus"), cpus).unwrap();
    let all = |wanted: &[u32]| masks(pid).iter().all(|mask| mask.iter().eq(wanted));
    let both = [a.min(b), a.max(b)];
    let end = |daemon: Running<'_>, signal| {
        daemon.signal(signal);
        daemon.ends();
        let _ = fs::remove_file(sandbox.path("shared/socket.tags"));
    };
    for way in ["untag", "stop", "kill", "grow while tagged", "shrink while tagged"] {
        cpuset(&format!("{a},{b}"));
        let service = daemon(&sandbox, "");
        ask(&sandbox, &format!("tag {pid}")).ends().ok();
        eventually("its threads are moved", || workers_are_bound(pid));
        cpuset(&a.to_string());
        eventually("all are where they may be", || all(&[a]));
        match way {
            "untag" => {
                ask(&sandbox, &format!("untag {pid}")).ends().ok();
                eventually("nothing is tagged", || status(&sandbox)["threads"] == 0);
                end(service, Signal::TERM);
            }
            "stop" => end(service, Signal::TERM),
            "kill" => {
                // The guardian restores the masks of a service that was killed.
                end(service, Signal::KILL);
                ask(&sandbox, &format!("detach {pid}")).ends();
            }
            "grow while tagged" => {
                cpuset(&format!("{a},{b}"));
                eventually("they are moved again", || workers_are_bound(pid));
                ask(&sandbox, &format!("untag {pid}")).ends().ok();
                end(service, Signal::TERM);
                cpuset(&b.to_string());
            }
            _ => {
                cpuset(&b.to_string());
                eventually("all are where they may be", || all(&[b]));
                end(service, Signal::TERM);
            }
        }
        cpuset(&format!("{a},{b}"));
        eventually(&format!("{way}: they grow with it"), || all(&both));
    }
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn bound_threads_count_as_tagged_on_request() {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let all: Vec<u32> = cpus(&online).into_iter().collect();
    let [a, b] = need!(two(), "two cores are needed");
    need!((all.len() > 2).then_some(()), "of two CPUs a thread is bound to one or to none");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    // The test is bound to two of several CPUs, and its programs with it.
    let mut program = sandbox.shell(&format!("exec {} 2", program.display())).begins();
    program.line();
    let pid = program.pid();
    let _daemon = daemon(&sandbox, "--pinned");
    eventually("its threads are moved", || workers_are_bound(pid));
    let allowed = BTreeSet::from([a, b]);
    assert!(masks(pid).iter().all(|mask| mask.is_subset(&allowed)));
    assert!(status(&sandbox)["tags"].as_array().unwrap().iter().any(|tag| tag["by"] == "pinned"));
}

#[test]
fn a_port_that_appears_later_is_found() {
    let program = need!(c("vm.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let mut vm = sandbox.shell(&format!("exec {}", program.display())).begins();
    vm.line();
    let path = sandbox.path("shared/port");
    // The permission for a port depends on its machine alone.
    let _daemon = daemon(&sandbox, &format!("--guest {}=unix:{}", vm.pid(), path.display()));
    let state = || status(&sandbox)["guests"][0]["state"].clone();
    assert_eq!(state(), "closed");
    let listener = UnixListener::bind(&path).unwrap();
    let (guest, _): (UnixStream, _) = listener.accept().unwrap();
    eventually("it is heard", || state() == "open");
    drop(guest);
    eventually("it is closed", || state() == "closed");
    let (_guest, _) = listener.accept().unwrap();
    eventually("it is heard again", || state() == "open");
}

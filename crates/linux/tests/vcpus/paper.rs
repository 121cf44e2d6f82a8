//! Machines on paper: a procfs of files, with the threads, names, descriptors and system calls of
//! monitors.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use trimtab_linux::process::{Pid, Tid};
use trimtab_linux::vcpus::{
    Method, Monitor, VcpuSnapshot, VcpuWatcher, VirtualMachine, VmError, VmName, Vms,
};

struct Paper(tempfile::TempDir);

impl Paper {
    fn new() -> Self {
        let paper = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(paper.proc()).unwrap();
        paper
    }

    fn proc(&self) -> PathBuf {
        self.0.path().join("proc")
    }

    fn vms(&self) -> Vms {
        Vms::new(&self.proc())
    }

    /// Writes a process with this command line and these threads after its first.
    fn process(&self, pid: u32, command: &str, threads: &[&str]) {
        let root = self.proc().join(pid.to_string());
        fs::create_dir_all(root.join("fd")).unwrap();
        fs::write(root.join("cmdline"), command.replace(' ', "\0") + "\0").unwrap();
        let names = std::iter::once("monitor").chain(threads.iter().copied());
        for (tid, name) in (pid..).zip(names) {
            let task = root.join(format!("task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("stat"), stat(tid, name, 0)).unwrap();
            fs::write(task.join("syscall"), "202 0x7f 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n").unwrap();
            fs::write(
                task.join("status"),
                format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-3\n"),
            )
            .unwrap();
        }
        fs::copy(root.join(format!("task/{pid}/stat")), root.join("stat")).unwrap();
        fs::copy(root.join(format!("task/{pid}/status")), root.join("status")).unwrap();
    }

    fn descriptor(&self, pid: u32, number: u32, target: &str) {
        symlink(target, self.proc().join(format!("{pid}/fd/{number}"))).unwrap();
    }

    fn syscall(&self, pid: u32, tid: u32, line: &str) {
        fs::write(self.proc().join(format!("{pid}/task/{tid}/syscall")), line).unwrap();
    }

    fn debugfs(&self, machine: &str, vcpu: u32, text: &str) {
        let folder = self.0.path().join(format!("sys/kernel/debug/kvm/{machine}/vcpu{vcpu}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("pid"), text).unwrap();
    }

    fn find(&self, name: &str) -> Result<VirtualMachine, VmError> {
        self.vms().find(&name.parse().unwrap())
    }
}

fn stat(tid: u32, name: &str, guest: u32) -> String {
    let zeros = "0 ".repeat(16);
    format!("{tid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 9 9 0 0 20 0 2 0 77 {zeros}3 0 0 0 {guest} 0\n")
}

fn vcpus(vm: &VirtualMachine) -> Vec<(u32, u32)> {
    vm.vcpus.iter().map(|vcpu| (vcpu.index.expect("its number is known"), vcpu.tid.0)).collect()
}

#[test]
fn threads_with_the_names_of_each_monitor_are_its_cpus() {
    for (command, names, monitor, name) in [
        ("qemu-system-x86_64 -name guest=a,debug-threads=on", ["CPU 0/KVM", "CPU 1/KVM"], Monitor::Qemu, "a"),
        ("/usr/bin/firecracker --id b", ["fc_vcpu 0", "fc_vcpu 1"], Monitor::Firecracker, "b"),
        ("cloud-hypervisor --cpus boot=2", ["vcpu0", "vcpu1"], Monitor::CloudHypervisor, "monitor"),
        ("crosvm run --name c x", ["crosvm_vcpu0", "crosvm_vcpu1"], Monitor::Crosvm, "c"),
        ("lkvm run --name d", ["kvm-vcpu0", "kvm-vcpu1"], Monitor::Kvmtool, "d"),
        ("my-monitor", ["vcpu0", "vcpu1"], Monitor::Other, "monitor"),
    ] {
        let paper = Paper::new();
        paper.process(100, command, &["worker", names[1], names[0], "kvm-nx-lpage-re"]);
        let vm = paper.find("100").unwrap();
        assert_eq!((vm.monitor, vm.name.as_str(), vm.found), (monitor, name, Method::Names), "{command}");
        assert_eq!(vcpus(&vm), [(0, 103), (1, 102)], "{command}");
        assert_eq!((vm.pid, vm.start), (Pid(100), vm.vcpus[0].start));
        if name != "monitor" {
            assert_eq!(paper.find(name).unwrap(), vm);
        }
        assert_eq!(paper.vms().again(&vm).unwrap().vcpus, vm.vcpus);
    }
}

#[test]
fn one_thread_may_run_all_cpus_and_a_machine_may_have_one() {
    let paper = Paper::new();
    paper.process(100, "qemu-system-x86_64 -name a", &["ALL CPUs/TCG"]);
    assert_eq!(vcpus(&paper.find("a").unwrap()), [(0, 101)]);
    paper.process(200, "firecracker --id b", &["fc_vcpu 0"]);
    assert_eq!(vcpus(&paper.find("b").unwrap()), [(0, 201)]);
}

#[test]
fn debugfs_identifies_vcpus_with_any_thread_names() {
    let paper = Paper::new();
    paper.process(100, "qemu-system-x86_64 -name a", &["x", "y", "z"]);
    paper.process(200, "qemu-system-x86_64 -name b", &["x"]);
    // A vCPU made by a thread that has ended; one that never ran; one of another machine; files
    // that are not vCPUs.
    paper.debugfs("142-11", 0, "102\n");
    paper.debugfs("142-11", 1, "101\n");
    paper.debugfs("142-11", 2, "0\n");
    paper.debugfs("142-11", 3, "rubbish\n");
    paper.debugfs("200-9", 0, "201\n");
    let vm = paper.find("a").unwrap();
    assert_eq!((vcpus(&vm), vm.found), (vec![(0, 102), (1, 101)], Method::Debugfs));
    assert_eq!(vcpus(&paper.find("b").unwrap()), [(0, 201)]);
    // An unknown monitor is listed for its machine.
    paper.process(300, "unheard-of", &[]);
    paper.debugfs("300-5", 0, "301\n");
    let listed = paper.vms().list();
    assert_eq!(listed.iter().map(|vm| vm.pid.0).collect::<Vec<_>>(), [100, 200, 300]);
    assert_eq!((listed[2].monitor, listed[2].name.as_deref()), (Monitor::Other, None));
}

#[test]
fn a_thread_in_kvm_run_is_a_vcpu() {
    let paper = Paper::new();
    let run = |descriptor: u32| format!("16 {descriptor:#x} 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n");
    paper.process(100, "my-monitor", &["a", "b", "kvm-nx-lpage-re", "c"]);
    paper.descriptor(100, 5, "anon_inode:kvm-vm");
    paper.descriptor(100, 21, "anon_inode:kvm-vcpu:0");
    paper.descriptor(100, 22, "anon_inode:kvm-vcpu:1");
    paper.descriptor(100, 23, "socket:[77]");
    let said = paper.find("100").unwrap_err().to_string();
    assert!(said.contains("no thread was seen to run one"), "{said}");
    paper.syscall(100, 101, &run(22));
    // A kernel thread shows a stale copy, and another thread runs on another descriptor.
    paper.syscall(100, 103, &run(21));
    paper.syscall(100, 104, &run(23));
    let vm = paper.find("100").unwrap();
    assert_eq!((vcpus(&vm), vm.found), (vec![(1, 101)], Method::Descriptors));
    paper.syscall(100, 102, &run(21));
    assert_eq!(vcpus(&paper.find("100").unwrap()), [(0, 102), (1, 101)]);
}

#[test]
fn cpus_that_never_sleep_are_known_by_their_time_in_the_guest() {
    let paper = Paper::new();
    paper.process(100, "my-monitor", &["a", "b", "c"]);
    for (descriptor, index) in [(21, 0), (22, 1)] {
        paper.descriptor(100, descriptor, &format!("anon_inode:kvm-vcpu:{index}"));
    }
    for tid in [101, 102, 103] {
        paper.syscall(100, tid, "running\n");
    }
    let guest = |tid: u32, ticks| {
        fs::write(paper.proc().join(format!("100/task/{tid}/stat")), stat(tid, "x", ticks)).unwrap()
    };
    guest(103, 50);
    assert!(paper.find("100").is_err(), "one thread for two CPUs: nothing is guessed");
    guest(102, 50);
    // Which thread is which vCPU cannot be known.
    let vm = paper.find("100").unwrap();
    let known =
        |vm: &VirtualMachine| vm.vcpus.iter().map(|vcpu| (vcpu.index, vcpu.tid.0)).collect::<Vec<_>>();
    assert_eq!(known(&vm), [(None, 102), (None, 103)]);
    guest(101, 50);
    assert!(paper.find("100").is_err(), "three for two");
    // One sleeps and shows its vCPU; the other is the only one left.
    guest(101, 0);
    paper.syscall(100, 103, "16 0x15 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n");
    let vm = paper.find("100").unwrap();
    assert_eq!(known(&vm), [(Some(0), 103), (Some(1), 102)]);
}

#[test]
fn a_number_that_was_not_known_is_learned_and_one_that_was_is_kept() {
    let paper = Paper::new();
    // A machine's process must be one that can be inspected again.
    paper.process(100, "my-monitor", &["a", "b", "c"]);
    for (descriptor, index) in [(21, 0), (22, 1)] {
        paper.descriptor(100, descriptor, &format!("anon_inode:kvm-vcpu:{index}"));
    }
    let guest = |tid: u32, ticks| {
        fs::write(paper.proc().join(format!("100/task/{tid}/stat")), stat(tid, "x", ticks)).unwrap()
    };
    let run = |tid: u32, line: &str| paper.syscall(100, tid, line);
    for tid in [102, 103] {
        guest(tid, 50);
        run(tid, "running\n");
    }
    let watcher = VcpuWatcher::begin(paper.vms(), paper.find("100").unwrap()).unwrap();
    let until = |wanted: [(Option<u32>, u32); 2]| {
        let begin = std::time::Instant::now();
        let known =
            |seen: VcpuSnapshot| seen.vcpus.iter().map(|vcpu| (vcpu.index, vcpu.tid.0)).collect::<Vec<_>>();
        while watcher.news(None).map(known) != Some(wanted.to_vec()) {
            assert!(begin.elapsed().as_secs() < 60, "not within a minute: {:?}", watcher.news(None));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    until([(None, 102), (None, 103)]);
    run(102, "16 0x16 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n");
    until([(Some(0), 103), (Some(1), 102)]);
    // Now it runs all the time, as the other does; both are still known when everything is asked
    // again.
    run(102, "running\n");
    fs::create_dir_all(paper.proc().join("100/task/104")).unwrap();
    fs::write(paper.proc().join("100/task/104/stat"), stat(104, "y", 0)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    until([(Some(0), 103), (Some(1), 102)]);
}

#[test]
fn an_unplugged_vcpu_is_removed_and_the_others_stay() {
    let paper = Paper::new();
    paper.process(100, "firecracker --id a", &["fc_vcpu 0", "fc_vcpu 1", "fc_vcpu 2"]);
    let watcher = VcpuWatcher::begin(paper.vms(), paper.find("a").unwrap()).unwrap();
    let until = |wanted: &[u32]| {
        let begin = std::time::Instant::now();
        let known = |seen: VcpuSnapshot| seen.vcpus.iter().filter_map(|vcpu| vcpu.index).collect::<Vec<_>>();
        while watcher.news(None).map(known).as_deref() != Some(wanted) {
            assert!(begin.elapsed().as_secs() < 60, "not within a minute: {:?}", watcher.news(None));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    until(&[0, 1, 2]);
    fs::remove_dir_all(paper.proc().join("100/task/102")).unwrap();
    until(&[0, 2]);
    // All of them gone: the result is known, there is no vCPU.
    for tid in [101, 103] {
        fs::remove_dir_all(paper.proc().join(format!("100/task/{tid}"))).unwrap();
    }
    let begin = std::time::Instant::now();
    while watcher.news(None).is_some_and(|seen| seen.fault.is_none()) {
        assert!(begin.elapsed().as_secs() < 60, "not within a minute: {:?}", watcher.news(None));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_failed_search_names_the_attempts_and_the_remedy() {
    let paper = Paper::new();
    let said = |name: &str| paper.find(name).unwrap_err().to_string();
    assert!(said("x").contains("no virtual machine here is named x: none runs here"), "{}", said("x"));
    assert_eq!(said("100"), "there is no process 100");
    paper.process(100, "qemu-system-x86_64 -name web", &["qemu-system-x86"]);
    paper.process(101, "lkvm run", &[]);
    for part in ["web (process 100, QEMU)", "without a name (process 101, kvmtool)"] {
        assert!(said("x").contains(part), "{}", said("x"));
    }
    for part in [
        "process 100 (QEMU)",
        "QMP: its command line names no socket",
        "debugfs: not mounted",
        "none is named like",
        "holds none",
        "debug-threads=on",
    ] {
        assert!(said("web").contains(part), "{}", said("web"));
    }
    paper.process(102, "qemu-kvm -name guest=web", &["CPU 0/KVM"]);
    let ambiguous = said("web");
    assert!(
        ambiguous.starts_with("2 virtual machines are named web: web (process 100, QEMU), web (process 102"),
        "{ambiguous}"
    );
    assert_eq!(vcpus(&paper.find("102").unwrap()), [(0, 103)]);
    paper.process(300, "/usr/bin/make", &[]);
    assert!(said("300").contains("is it a virtual machine?"), "{}", said("300"));
    // Of many, only some are listed; and no name moves the cursor.
    for pid in 400..420 {
        paper.process(pid, &format!("firecracker --id evil\x1b[2J{pid}"), &[]);
    }
    assert!(said("x").contains("11 more") && !said("x").contains('\x1b'), "{}", said("x"));
    assert!(!said("\x1b[2J").contains('\x1b'));
}

#[test]
fn a_machine_that_ended_is_not_taken_for_its_successor() {
    let paper = Paper::new();
    paper.process(100, "firecracker --id a", &["fc_vcpu 0"]);
    let vm = paper.find("a").unwrap();
    let path = paper.proc().join("100/stat");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace(" 77 ", " 78 ")).unwrap();
    assert!(matches!(paper.vms().again(&vm), Err(VmError::NoProcess(Pid(100)))));
    fs::remove_dir_all(paper.proc().join("100")).unwrap();
    assert!(matches!(paper.vms().again(&vm), Err(VmError::NoProcess(Pid(100)))));
    assert_eq!(vm.vcpus[0].tid, Tid(101));
}

#[test]
fn a_name_is_a_number_a_path_or_a_name() {
    assert_eq!("12".parse(), Ok(VmName::Pid(Pid(12))));
    assert_eq!("./q".parse(), Ok(VmName::Socket("./q".into())));
    assert_eq!("q-1".parse(), Ok(VmName::Name("q-1".into())));
    assert_eq!("-1".parse(), Ok(VmName::Name("-1".into())));
}

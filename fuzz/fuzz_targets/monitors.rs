//! Files of /proc about a process that may run a virtual machine: the process chooses its command
//! line and names.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;
use trimtab_linux::perf::locality;
use trimtab_linux::process::{Pid, Tid};
use trimtab_linux::vcpus::{VmName, Vms};

static PROC: LazyLock<PathBuf> = LazyLock::new(|| {
    let proc = std::env::temp_dir().join(format!("trimtab-fuzz-{}", std::process::id())).join("proc");
    std::fs::create_dir_all(proc.join("7/task/7")).expect("a folder");
    std::fs::create_dir_all(proc.join("7/fd")).expect("a folder");
    std::os::unix::fs::symlink("anon_inode:kvm-vcpu:0", proc.join("7/fd/9")).expect("a link");
    proc
});

fuzz_target!(|files: (&[u8], &[u8], &[u8], &[u8], &[u8])| {
    let (arguments, stat, status, syscall, sched) = files;
    // A running thread would be asked repeatedly, for a tenth of a second.
    if syscall.trim_ascii() == b"running" {
        return;
    }
    let qemu = [b"qemu-system-x86_64\0-name\0".as_slice(), arguments].concat();
    for command in [arguments, &qemu] {
        for (name, text) in [("cmdline", command), ("stat", stat), ("status", status)] {
            std::fs::write(PROC.join("7").join(name), text).expect("it can be written");
        }
        let thread = [("stat", stat), ("status", status), ("syscall", syscall), ("sched", sched)];
        for (name, text) in thread {
            std::fs::write(PROC.join("7/task/7").join(name), text).expect("it can be written");
        }
        let vms = Vms::new(&PROC).patient(Duration::from_millis(1));
        for found in vms.list() {
            assert_eq!(found.pid, Pid(7));
        }
        if let Ok(vm) = vms.find(&VmName::Pid(Pid(7))) {
            assert!(vm.vcpus.iter().all(|vcpu| vcpu.tid == Tid(7)));
            let _ = vms.again(&vm);
        }
        let _ = locality::faults(&PROC, Pid(7), Tid(7));
    }
});

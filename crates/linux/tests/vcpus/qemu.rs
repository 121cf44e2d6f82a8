//! Real guests.

use crate::guest::{Guest, NO_QEMU, Setup, Work};
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_linux::perf::locality;
use trimtab_linux::process::Pid;
use trimtab_linux::vcpus::{Method, Monitor, VcpuWatcher, VirtualMachine, VmError, VmName, Vms};

fn vms() -> Vms {
    // As long as a loaded machine may take; a test that keeps a socket busy on purpose sets another
    // value.
    Vms::new(Path::new("/proc")).patient(Duration::from_secs(30))
}

fn tids(vm: &VirtualMachine) -> Vec<u32> {
    vm.vcpus.iter().map(|vcpu| vcpu.tid.0).collect()
}

#[test]
fn a_guest_is_found_by_name_process_and_socket() {
    let guest = need!(Guest::start(&Setup::default()), NO_QEMU);
    let name = format!("vcpus-{}", std::process::id());
    let named = Setup { name: Some(&format!("guest={name},debug-threads=on")), ..Setup::default() };
    let other = need!(Guest::start(&named), NO_QEMU);
    let vm = vms().find(&VmName::Socket(guest.socket())).unwrap();
    assert_eq!((vm.pid, vm.name.as_str(), vm.monitor), (Pid(guest.pid()), "x", Monitor::Qemu));
    assert_eq!((vm.found, tids(&vm)), (Method::Qmp, guest.cpu_threads()));
    assert_eq!(
        vm.vcpus.iter().map(|vcpu| (vcpu.index, vcpu.place.core)).collect::<Vec<_>>(),
        [(Some(0), Some(0)), (Some(1), Some(1))]
    );
    assert_eq!(vms().find(&VmName::Pid(Pid(guest.pid()))).unwrap(), vm);
    let by_name = vms().find(&VmName::Name(name.clone())).unwrap();
    assert_eq!((by_name.pid.0, tids(&by_name)), (other.pid(), other.cpu_threads()));
    let said = vms().find(&VmName::Name(format!("{name}-2"))).unwrap_err().to_string();
    assert!(said.contains(&format!("{name} (process {}, QEMU)", other.pid())), "{said}");
}

#[test]
fn a_busy_socket_says_so_and_names_help() {
    let guest = need!(Guest::start(&Setup::default()), NO_QEMU);
    let _client = guest.qmp();
    let short = vms().patient(Duration::from_millis(50));
    let said = short.find(&VmName::Socket(guest.socket())).unwrap_err().to_string();
    assert!(said.contains("serves another client") && said.contains("by its process"), "{said}");
    let vm = short.find(&VmName::Pid(Pid(guest.pid()))).unwrap();
    assert_eq!((vm.found, tids(&vm)), (Method::Names, guest.cpu_threads()));
    assert!(
        vm.tried.iter().any(|tried| tried.method == Method::Qmp && tried.why.contains("another client")),
        "{vm:?}"
    );
}

#[test]
fn without_names_and_socket_an_emulated_guest_is_not_found() {
    let guest = need!(Guest::start(&Setup { name: None, qmp: false, ..Setup::default() }), NO_QEMU);
    match vms().find(&VmName::Pid(Pid(guest.pid()))) {
        Err(error @ VmError::NoVcpus { .. }) => {
            assert!(error.to_string().contains("debug-threads=on"), "{error}")
        }
        // Newer versions name their threads unasked.
        Ok(vm) => assert_eq!((vm.found, vm.vcpus.len()), (Method::Names, 2)),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_guest_of_kvm_is_found_by_its_descriptors() {
    let setup = Setup { name: None, qmp: false, accel: "kvm", work: Work::Halt, ..Setup::default() };
    let guest = need!(Guest::start(&setup), "no QEMU that can use KVM");
    let begin = Instant::now();
    let vm = loop {
        match vms().find(&VmName::Pid(Pid(guest.pid()))) {
            Ok(vm) if vm.vcpus.len() == 2 => break vm,
            other => assert!(begin.elapsed() < Duration::from_secs(60), "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let first = guest.pid();
    assert!(tids(&vm).iter().all(|tid| *tid != first), "{vm:?}");
    assert_eq!(vm.vcpus.iter().map(|vcpu| vcpu.index).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn one_thread_for_all_cpus_is_one() {
    let setup = Setup { accel: "tcg,thread=single", ..Setup::default() };
    let guest = need!(Guest::start(&setup), NO_QEMU);
    for name in [VmName::Socket(guest.socket()), VmName::Pid(Pid(guest.pid()))] {
        assert_eq!(tids(&vms().find(&name).unwrap()), guest.cpu_threads());
    }
}

#[test]
fn cpus_that_are_plugged_in_are_seen_and_a_lost_socket_loses_none() {
    let guest = need!(Guest::start(&Setup::default()), NO_QEMU);
    let vm = vms().find(&VmName::Socket(guest.socket())).unwrap();
    let watcher = VcpuWatcher::begin(vms(), vm).unwrap();
    let wait = |what: &str, holds: &dyn Fn(&trimtab_linux::vcpus::VcpuSnapshot) -> bool| {
        let begin = Instant::now();
        while !watcher.news(None).is_some_and(|seen| holds(&seen)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    guest.qmp().plug(2);
    wait("the third CPU", &|seen| seen.vcpus.len() == 3);
    assert!(watcher.news(None).unwrap().vcpus.iter().all(|vcpu| vcpu.place.core == vcpu.index));
    let mut last = guest.qmp();
    std::fs::remove_file(guest.socket()).unwrap();
    last.plug(3);
    wait("the fourth CPU, by its name", &|seen| seen.vcpus.len() == 4 && seen.fault.is_some());
    let seen = watcher.news(None).unwrap();
    assert_eq!(
        seen.vcpus.iter().map(|vcpu| vcpu.found).collect::<Vec<_>>(),
        [Method::Qmp, Method::Qmp, Method::Qmp, Method::Names]
    );
    assert_eq!(watcher.news(Some(seen.version)), None);
}

#[test]
fn a_guests_memory_is_seen_also_where_it_is_shared() {
    let backend = "memory-backend-memfd,id=ram,size=512M,share=on,prealloc=on";
    let options = ["-m", "512", "-machine", "memory-backend=ram", "-object", backend];
    // Otherwise the emulator reserves a gigabyte for its translations of the guest's code.
    let accel = "tcg,thread=multi,tb-size=32";
    let guest = need!(Guest::start(&Setup { options: &options, accel, ..Setup::default() }), NO_QEMU);
    let pages = match locality::resident(Path::new("/proc"), Pid(guest.pid()), 1) {
        Ok(pages) => pages,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    // A thousand pages are queried, of all memory that it may write to; its own memory is most of
    // that, and all present.
    let found: u64 = pages.values().sum();
    assert!(found > 500, "{found} of about 1024 pages: {pages:?}");
}

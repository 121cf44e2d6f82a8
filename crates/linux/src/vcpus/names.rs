//! vCPUs from the names that monitors give their threads.
//!
//! QEMU names its threads only if it was started with `-name NAME,debug-threads=on`; the other
//! monitors always name theirs.

use super::{Answer, GuestPlace, Method, Threads, Vcpu};

/// Returns the number of the vCPU that a thread with this name runs.
fn index(name: &str) -> Option<u32> {
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().ok()).flatten()
    };
    // QEMU that emulates all CPUs by one thread.
    if name == "ALL CPUs/TCG" {
        return Some(0);
    }
    if let Some((cpu, how)) = name.strip_prefix("CPU ").and_then(|rest| rest.split_once('/')) {
        return number(cpu).filter(|_| !how.is_empty());
    }
    // Firecracker, crosvm, kvmtool, Cloud Hypervisor.
    let starts = ["fc_vcpu ", "crosvm_vcpu", "kvm-vcpu", "vcpu"];
    starts.iter().find_map(|start| name.strip_prefix(start)).and_then(number)
}

/// Finds the vCPUs among these threads.
pub(super) fn find(threads: &Threads) -> Answer {
    let vcpu = |(tid, (start, name)): (&_, &(_, String))| {
        let (place, found) = (GuestPlace::default(), Method::Names);
        Some(Vcpu { index: Some(index(name)?), tid: *tid, start: *start, place, found })
    };
    let found: Vec<Vcpu> = threads.iter().filter_map(vcpu).collect();
    if found.is_empty() {
        return Err("none is named like a virtual CPU".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_monitors_are_known() {
        for (name, expected) in [
            ("CPU 0/KVM", Some(0)),
            ("CPU 17/TCG", Some(17)),
            ("ALL CPUs/TCG", Some(0)),
            ("fc_vcpu 3", Some(3)),
            ("vcpu11", Some(11)),
            ("crosvm_vcpu2", Some(2)),
            ("crosvm_vcpu1023", Some(1023)),
            ("kvm-vcpu-4", None),
            ("kvm-vcpu4", Some(4)),
            ("CPU x/KVM", None),
            ("CPU 1", None),
            ("CPU 1/", None),
            ("CPU +1/KVM", None),
            ("CPU 99999999999/", None),
            ("fc_vcpu", None),
            ("vcpu", None),
            ("vcpu 1", None),
            ("vcpus1", None),
            ("xvcpu1", None),
            ("qemu-system-x86", None),
            ("kvm-nx-lpage-re", None),
            ("", None),
        ] {
            assert_eq!(index(name), expected, "{name:?}");
        }
    }
}

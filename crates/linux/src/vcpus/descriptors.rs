//! vCPUs from the descriptors of KVM: every monitor that uses KVM holds a descriptor for each vCPU,
//! and a thread sits in `ioctl(descriptor, KVM_RUN)`.
//!
//! The kernel shows the arguments of a system call while its thread sleeps in it. For a running
//! thread it shows only `running`, so running threads are sampled again for a while. Needs the
//! rights of a debugger. The time that a thread spent in a guest (a field of its stat line)
//! identifies threads that never sleep, if there are as many of them as CPUs left. The index of
//! each of these vCPUs stays unknown until its thread sleeps, unless it is the only one.

use super::{Answer, GuestPlace, Method, Threads, Vcpu};
use crate::process::{Pid, Tid};
use crate::text;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// `KVM_RUN`: `_IO(0xAE, 0x80)`.
const KVM_RUN: u64 = 0xae80;
/// Number of times that running threads are sampled, and the pause between two samples. Chosen: a
/// tenth of a second in all.
const SAMPLES_MAX: usize = 10;
const SAMPLE_PAUSE: Duration = Duration::from_millis(10);
/// Kernel threads in a machine's process, which show a stale copy of such a call.
const KERNEL_THREAD_PREFIXES: [&str; 2] = ["kvm-nx-lpage-re", "vhost-"];

/// Finds the vCPUs among the threads of a process.
pub(super) fn find(proc: &Path, pid: Pid, threads: &Threads) -> Answer {
    let mut left = descriptors(proc, pid)?;
    if left.is_empty() {
        return Err("it holds none of a virtual CPU".to_owned());
    }
    let mut asked: Vec<Tid> = threads
        .iter()
        .filter(|(_, (_, name))| !KERNEL_THREAD_PREFIXES.iter().any(|start| name.starts_with(start)))
        .map(|(tid, _)| *tid)
        .collect();
    let (mut found, mut refused) = (Vec::new(), false);
    let mut take = |index: Option<u32>, tid: Tid| {
        if let Some((start, _)) = threads.get(&tid) {
            let (place, found_by) = (GuestPlace::default(), Method::Descriptors);
            found.push(Vcpu { index, tid, start: *start, place, found: found_by });
        }
    };
    for round in 0..SAMPLES_MAX {
        let mut running = Vec::new();
        for tid in asked {
            match text::read(&proc.join(format!("{pid}/task/{tid}/syscall"))) {
                Ok(line) if line.trim_ascii() == b"running" => running.push(tid),
                Ok(line) => {
                    if let Some(index) = run_on(&line).and_then(|descriptor| left.remove(&descriptor)) {
                        take(Some(index), tid);
                    }
                }
                Err(error) => refused |= error.is_refused(),
            }
        }
        asked = running;
        if left.is_empty() || asked.is_empty() || round + 1 == SAMPLES_MAX {
            break;
        }
        std::thread::sleep(SAMPLE_PAUSE);
    }
    let in_guest: Vec<Tid> = asked.into_iter().filter(|tid| was_in_guest(proc, pid, *tid)).collect();
    if in_guest.len() == left.len() {
        let only = left.values().next().copied().filter(|_| left.len() == 1);
        for tid in in_guest {
            take(only, tid);
        }
    }
    match found.is_empty() {
        false => Ok(found),
        true if refused => {
            Err("the system calls of its threads are shown to the machine's user and root only".to_owned())
        }
        true => Err("it holds some, and no thread was seen to run one".to_owned()),
    }
}

/// Returns the descriptors of vCPUs, each with the number of the vCPU.
fn descriptors(proc: &Path, pid: Pid) -> Result<BTreeMap<u64, u32>, String> {
    let entries = fs::read_dir(proc.join(format!("{pid}/fd"))).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => "only the machine's user and root may see them".to_owned(),
        _ => error.to_string(),
    })?;
    let vcpu = |entry: fs::DirEntry| {
        let descriptor = entry.file_name().to_str()?.parse().ok()?;
        let link = fs::read_link(entry.path()).ok()?;
        let index = link.to_str()?.strip_prefix("anon_inode:kvm-vcpu:")?.parse().ok()?;
        Some((descriptor, index))
    };
    Ok(entries.flatten().filter_map(vcpu).collect())
}

/// Returns the descriptor on which a thread runs a vCPU, from the line of its system call.
fn run_on(line: &[u8]) -> Option<u64> {
    let mut words = text::words(line);
    // The number of `ioctl` differs by architecture; the second argument is sufficient.
    words.next().and_then(text::number::<u64>)?;
    let hex = |word: &[u8]| u64::from_str_radix(std::str::from_utf8(word).ok()?.strip_prefix("0x")?, 16).ok();
    let descriptor = words.next().and_then(hex)?;
    (words.next().and_then(hex)? == KVM_RUN).then_some(descriptor)
}

/// Returns whether a thread has spent time in a guest: field 43 of its stat line.
fn was_in_guest(proc: &Path, pid: Pid, tid: Tid) -> bool {
    let Ok(line) = text::read(&proc.join(format!("{pid}/task/{tid}/stat"))) else { return false };
    let Some(close) = line.iter().rposition(|&byte| byte == b')') else { return false };
    text::words(&line[close + 1..]).nth(43 - 3).and_then(text::number::<u64>).is_some_and(|ticks| ticks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_system_call_contains_the_descriptor() {
        assert_eq!(run_on(b"16 0x1b 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n"), Some(27));
        assert_eq!(run_on(b"29 0x1b 0xae80 0x0"), Some(27), "as on arm64");
        for other in
            ["running", "-1 0x7ffc 0x7f12", "16 0x1b 0xae81 0x0", "16 27 0xae80", "", "16", "16 0x1b", "x"]
        {
            assert_eq!(run_on(other.as_bytes()), None, "{other}");
        }
    }
}

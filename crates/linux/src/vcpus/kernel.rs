//! vCPUs from KVM's folder in debugfs: `kvm/<task>-<fd>/vcpu<n>/pid`, Linux 6.0 or newer, for root.

use super::{Answer, GuestPlace, Method, Threads, Vcpu};
use crate::process::Tid;
use crate::text;
use rustix::io::Errno;
use std::fs;
use std::path::Path;

/// Finds the vCPUs among these threads.
pub(super) fn find(debugfs: &Path, threads: &Threads) -> Answer {
    let machines =
        fs::read_dir(debugfs).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => "not mounted, or no KVM in use".to_owned(),
            Some(Errno::PERM | Errno::ACCESS) => "only root may read it".to_owned(),
            _ => error.to_string(),
        })?;
    // A folder is named after the thread that made the machine, which may have ended. The threads
    // of its CPUs identify the machine.
    let mut found = Vec::new();
    for machine in machines.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let Ok(entries) = fs::read_dir(machine.path()) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let index = name.to_str().and_then(|name| name.strip_prefix("vcpu")).and_then(|n| n.parse().ok());
            let Some(index) = index else { continue };
            // No number: a kernel before 6.0. Zero: the vCPU has never run.
            let Ok(text) = text::read(&entry.path().join("pid")) else { continue };
            let Some(tid) = text::number::<u32>(&text).map(Tid) else { continue };
            if let Some((start, _)) = threads.get(&tid) {
                let (place, found_by) = (GuestPlace::default(), Method::Debugfs);
                found.push(Vcpu { index: Some(index), tid, start: *start, place, found: found_by });
            }
        }
    }
    if found.is_empty() {
        return Err("it names no thread of the process".to_owned());
    }
    Ok(found)
}

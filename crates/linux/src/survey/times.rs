//! CPU time of each process of a user, for finding the processes that are busy now.

use crate::process::{self, Pid, StartTime};
use crate::text::ReadError;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// A process and its CPU time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessTime {
    /// Start time: together with the process number, its identity.
    pub start: StartTime,
    /// Its parent.
    pub parent: Pid,
    /// CPU time of all its threads, in steps of a clock tick, 10 ms.
    pub cpu: Duration,
}

/// Returns the processes of a user, without those that end meanwhile.
///
/// # Errors
/// `proc` cannot be listed.
pub fn process_times(proc: &Path, uid: u32) -> Result<BTreeMap<Pid, ProcessTime>, ReadError> {
    let mut times = BTreeMap::new();
    let listing = std::fs::read_dir(proc);
    let entries = listing.map_err(|source| ReadError::Io { path: proc.to_owned(), source })?;
    let numbered = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(Pid);
    for pid in entries.flatten().filter_map(numbered) {
        let owner = std::fs::metadata(proc.join(pid.to_string())).map(|meta| meta.uid());
        if owner.ok() != Some(uid) {
            continue;
        }
        let Ok(stat) = process::stat(proc, pid) else { continue };
        if !stat.kernel_thread {
            times.insert(pid, ProcessTime { start: stat.start, parent: stat.parent, cpu: stat.cpu_time() });
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_its_users() {
        let uid = rustix::process::geteuid().as_raw();
        let times = process_times(Path::new("/proc"), uid).unwrap();
        let own = &times[&Pid::own()];
        assert_eq!(own.start, process::stat(Path::new("/proc"), Pid::own()).unwrap().start);
        assert!(process_times(Path::new("/proc"), 4_000_000_000).unwrap().is_empty());
        assert!(process_times(Path::new("/no/such/folder"), uid).is_err());
    }
}

//! Check of a record's claim against the process that is running.

use super::error::LedgerError;
use super::record::Holder;
use crate::text::{self, ReadError};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process};

/// Result of comparing a record's claim with `/proc`. The lock shows that the CPUs are held; this
/// result concerns the holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The process runs, and its start time and its user are those of the record.
    Running,
    /// The process has ended; processes that it started still hold the CPUs.
    Outlived,
    /// The process runs but does not belong to the user in the record: the writer used another
    /// user's name, or the two live in different user namespaces.
    Impostor {
        /// Real user of the process.
        uid: u32,
    },
    /// The process lives in another pid namespace (a container), where its number belongs to
    /// another process.
    OtherNamespace,
    /// `/proc` does not show other users' processes here (`hidepid`).
    Hidden,
}

/// The processes visible under a `/proc`.
#[derive(Clone, Debug)]
pub struct ProcessTable {
    root: PathBuf,
    /// Our pid namespace; `None` when this `/proc` belongs to another namespace.
    namespace: Option<u64>,
    /// Number of this process.
    own: u32,
    /// Its start time in ticks; `None` when its own entry cannot be read.
    start_ticks: Option<u64>,
}

impl ProcessTable {
    /// Makes the table of processes under `root`, which is `/proc` outside of tests.
    pub fn at(root: &Path) -> Self {
        Self::of(root, process::id())
    }

    /// Does the same for a process that knows its number.
    pub fn of(root: &Path, own: u32) -> Self {
        let stat = text::read_piece(&root.join("self/stat")).ok();
        let number = stat.as_deref().and_then(own_number).or_else(|| linked_number(root));
        let namespace = (number == Some(own))
            .then(|| fs::metadata(root.join("self/ns/pid")).ok())
            .flatten()
            .map(|namespace| namespace.ino());
        let start_ticks = stat.as_deref().and_then(stat_fields).map(|(_, start)| start);
        Self { root: root.to_owned(), namespace, own, start_ticks }
    }

    /// Returns the running process as the holder of CPUs that it takes at `since` (time since
    /// boot), for `job` (0 for none).
    ///
    /// # Errors
    /// [`LedgerError::Io`] when this process's own entry cannot be read: `/proc` is not mounted.
    pub fn this_process(&self, job: u64, since: Duration, label: &str) -> Result<Holder, LedgerError> {
        let start_ticks = self.start_ticks.map_or_else(|| self.own_start(), Ok)?;
        Ok(Holder {
            pid: self.own,
            start_ticks,
            uid: rustix::process::getuid().as_raw(),
            pid_namespace: self.namespace.unwrap_or(0),
            job,
            since,
            label: label.to_owned(),
            delegated: false,
            memory: BTreeMap::new(),
        })
    }

    /// Reads the start time of this process.
    fn own_start(&self) -> Result<u64, LedgerError> {
        let path = self.root.join("self/stat");
        text::read_piece(&path)
            .map_err(|error| match error {
                ReadError::Io { source, .. } => source,
                other => io::Error::other(other),
            })
            .and_then(|stat| {
                stat_fields(&stat).map(|(_, start)| start).ok_or_else(|| ErrorKind::InvalidData.into())
            })
            .map_err(|source| LedgerError::Io {
                attempt: "reading the start time of this process from",
                path,
                source,
            })
    }

    /// Returns the state of the process that `holder` names.
    pub fn standing(&self, holder: &Holder) -> Standing {
        if self.namespace.is_none_or(|ours| ours != holder.pid_namespace) {
            return Standing::OtherNamespace;
        }
        let entry = self.root.join(holder.pid.to_string());
        match fs::read(entry.join("stat")).map(|stat| stat_fields(&stat)) {
            // A zombie has closed its descriptors: if the lock is there, another process holds it.
            Ok(Some((state, start))) if start != holder.start_ticks || matches!(state, b'Z' | b'X') => {
                return Standing::Outlived;
            }
            Ok(Some(_)) => {}
            Err(error) if gone(&error) => {
                return if self.hides_processes() { Standing::Hidden } else { Standing::Outlived };
            }
            Ok(None) | Err(_) => return Standing::Hidden,
        }
        // The owner of the /proc entry is the *effective* user, or root for undumpable programs;
        // the record has the real user.
        match fs::read_to_string(entry.join("status")).map(|status| real_uid(&status)) {
            Ok(Some(uid)) if uid == holder.uid => Standing::Running,
            Ok(Some(uid)) => Standing::Impostor { uid },
            Err(error) if gone(&error) => Standing::Outlived,
            Ok(None) | Err(_) => Standing::Hidden,
        }
    }

    /// Returns whether the process with this number is stopped (by a signal or a debugger), as far
    /// as `/proc` shows it.
    pub fn is_stopped(&self, pid: u32) -> bool {
        let stat = fs::read(self.root.join(pid.to_string()).join("stat"));
        stat.ok().and_then(|stat| stat_fields(&stat)).is_some_and(|(state, _)| matches!(state, b'T' | b't'))
    }

    /// Returns whether `/proc` hides processes. Process 1 always exists; if it is not shown, a
    /// missing entry proves nothing.
    fn hides_processes(&self) -> bool {
        !self.root.join("1").exists()
    }
}

/// Returns whether the error means an ended process. Reading the entry of a process that ends
/// meanwhile gives "no such process" instead of "no such file".
fn gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Returns the number of the process from the text of its `stat` file.
fn own_number(stat: &[u8]) -> Option<u32> {
    text::number(text::words(stat).next()?)
}

/// Returns the number of this process from the link to its entry.
fn linked_number(root: &Path) -> Option<u32> {
    fs::read_link(root.join("self")).ok()?.to_str()?.parse().ok()
}

/// Returns state and start time from the text of a `stat` file. The program's name in parentheses
/// may contain anything, so the fields are counted from the last parenthesis.
fn stat_fields(stat: &[u8]) -> Option<(u8, u64)> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = stat.get(name_end + 1..)?.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let start = fields.nth(18)?; // field 22 of the file; the state is field 3
    Some((state, std::str::from_utf8(start).ok()?.trim_end().parse().ok()?))
}

/// Returns the real user from the text of a `status` file.
fn real_uid(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) b) R 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";

    /// A made-up `/proc`: this process with its namespace inode, and process 7.
    fn table(stat: Option<&str>, uid: u32) -> (tempfile::TempDir, ProcessTable, Holder) {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(process::id().to_string());
        fs::create_dir_all(own.join("ns")).unwrap();
        fs::write(own.join("ns/pid"), "").unwrap();
        std::os::unix::fs::symlink(process::id().to_string(), root.path().join("self")).unwrap();
        fs::create_dir(root.path().join("1")).unwrap();
        if let Some(stat) = stat {
            fs::create_dir(root.path().join("7")).unwrap();
            fs::write(root.path().join("7/stat"), stat).unwrap();
            fs::write(root.path().join("7/status"), format!("Name:\ta) b\nUid:\t{uid}\t0\t0\t0\n")).unwrap();
        }
        let processes = ProcessTable::at(root.path());
        let pid_namespace = processes.namespace.unwrap();
        let holder = Holder { pid: 7, start_ticks: 4242, uid: 1000, pid_namespace, ..Holder::default() };
        (root, processes, holder)
    }

    #[test]
    fn the_named_process_is_running_as_the_named_user() {
        let (_root, processes, holder) = table(Some(STAT), 1000);
        assert_eq!(processes.standing(&holder), Standing::Running);
    }

    #[test]
    fn another_users_process_is_an_impostor() {
        let (_root, processes, holder) = table(Some(STAT), 1001);
        assert_eq!(processes.standing(&holder), Standing::Impostor { uid: 1001 });
    }

    #[test]
    fn an_ended_reused_or_zombie_process_is_outlived() {
        let (_root, processes, holder) = table(None, 1000);
        assert_eq!(processes.standing(&holder), Standing::Outlived);
        let (_root, processes, holder) = table(Some(&STAT.replace("4242", "4243")), 1000);
        assert_eq!(processes.standing(&holder), Standing::Outlived);
        let (_root, processes, holder) = table(Some(&STAT.replace(") R", ") Z")), 1000);
        assert_eq!(processes.standing(&holder), Standing::Outlived);
    }

    #[test]
    fn processes_of_other_namespaces_and_hidden_ones_are_unknown() {
        let (root, processes, mut holder) = table(None, 1000);
        fs::remove_dir(root.path().join("1")).unwrap();
        assert_eq!(processes.standing(&holder), Standing::Hidden);
        holder.pid_namespace += 1;
        assert_eq!(processes.standing(&holder), Standing::OtherNamespace);
    }

    #[test]
    fn damaged_entries_tell_nothing() {
        for stat in [
            "",
            "7",
            "7 (x",
            "7 (x)",
            "7 (x) R 1 2",
            "7 (x) R 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 soon",
        ] {
            let (_root, processes, holder) = table(Some(stat), 1000);
            assert_eq!(processes.standing(&holder), Standing::Hidden, "{stat:?}");
        }
    }

    #[test]
    fn this_process_is_running() {
        let processes = ProcessTable::at(Path::new("/proc"));
        let us = processes.this_process(3, Duration::from_secs(5), "test").unwrap();
        assert_eq!(processes.standing(&us), Standing::Running);
        assert_eq!((us.pid, us.job), (process::id(), 3));
    }
}

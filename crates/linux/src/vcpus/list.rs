//! List of the virtual machines on this host.

use super::command::CommandLine;
use super::{Listed, Monitor, Vms};
use crate::process::{self, Pid};
use std::collections::BTreeSet;
use std::fs;

impl Vms {
    /// Returns all visible virtual machines, by process: those of known monitors by their command
    /// lines, others by KVM's debugfs.
    pub fn list(&self) -> Vec<Listed> {
        self.list_of(|_| true)
    }

    /// Returns the same list for the selected processes only. Of other processes not even the
    /// command line is read, since that read may take as long as the process's owner likes.
    pub fn list_of(&self, meant: impl Fn(Pid) -> bool) -> Vec<Listed> {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(Pid);
        let all = fs::read_dir(&self.proc).into_iter().flatten().flatten().filter_map(number);
        let by_kvm = self.makers();
        let machine = |pid: Pid| {
            let command = CommandLine::of(&self.proc, pid);
            let monitor = command.monitor().or_else(|| by_kvm.contains(&pid).then_some(Monitor::Other))?;
            // A monitor that is being started is still its starter, with a copy of the starter's
            // command line; a monitor that has ended has no command line.
            process::stat(&self.proc, pid).ok().filter(|stat| !stat.kernel_thread)?;
            Some(Listed { pid, name: command.name(), monitor })
        };
        let found: BTreeSet<Pid> = all.collect();
        found.into_iter().filter(|pid| meant(*pid)).filter_map(machine).collect()
    }

    /// Returns the processes that made a machine with KVM, as far as debugfs shows them.
    fn makers(&self) -> BTreeSet<Pid> {
        let task = |entry: fs::DirEntry| entry.file_name().to_str()?.split_once('-')?.0.parse().ok().map(Pid);
        fs::read_dir(&self.debugfs).into_iter().flatten().flatten().filter_map(task).collect()
    }
}

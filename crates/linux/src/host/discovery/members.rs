//! The members of groups: who belongs to a cgroup, or to one below it.
//!
//! Properties: each group is listed once, however many roots name it; so many groups and members are looked at, at most, however deep they
//! lie; a group that vanishes meanwhile has nobody in it.

use crate::host::discovery::pace::Whose;
use crate::host::discovery::roots::{RootId, is_of};
use crate::host::procfs;
use crate::host::{Live, Root};
use crate::process::{self, Pid};
use crate::text;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// So many groups below a group, and so many members in all of them, are looked at.
const GROUPS_MAX: usize = 4_096;
const MEMBERS_MAX: usize = 32_768;
/// Groups below a group deeper than this are not looked for.
const DEPTH_MAX: usize = 32;

impl Live {
    /// Each group is listed once, however many roots name it.
    pub(in crate::host) fn find_groups(&mut self, whose: Whose) {
        let mut groups: BTreeMap<PathBuf, Vec<RootId>> = BTreeMap::new();
        for (id, watched) in self.roots.iter().filter(|(_, watched)| watched.only == whose) {
            if let Root::Cgroup(path) = &watched.root {
                groups.entry(path.clone()).or_default().push(*id);
            }
        }
        for (path, ids) in groups {
            let members = group_members(&path).unwrap_or_default();
            for id in ids {
                self.add_members(&members, id);
            }
        }
    }

    pub(in crate::host) fn add_members(&mut self, members: &BTreeSet<Pid>, id: RootId) {
        let Some((program, only)) = self.roots.get(&id).map(|watched| (watched.program, watched.only)) else {
            return;
        };
        for &pid in members {
            if self.is_own(pid) {
                continue;
            }
            if let Some(process) = self.table.processes.get(&pid) {
                if !process.covers.contains_key(&id) {
                    self.cover(pid, id);
                }
                continue;
            }
            if self.is_full(only) {
                return;
            }
            if only.is_some_and(|uid| !is_of(&self.proc, pid, pid.main_thread(), uid)) {
                continue;
            }
            if let Ok(stat) = process::stat(&self.proc, pid)
                && !stat.kernel_thread
                && self.table.add_process(pid, stat.start, program)
            {
                if let Some(group) = self.bounds.group_of(pid)
                    && let Some(process) = self.table.processes.get_mut(&pid)
                {
                    process.group = group;
                }
                self.cover(pid, id);
            }
        }
    }
}

/// The processes of a group and of all below it, as far as these are not too many.
pub(in crate::host) fn group_members(path: &Path) -> Result<BTreeSet<Pid>, Errno> {
    let mut members = BTreeSet::new();
    add_group(path, (0, &mut GROUPS_MAX.clone()), &mut members)?;
    Ok(members)
}

fn add_group(
    path: &Path,
    (depth, groups): (usize, &mut usize),
    members: &mut BTreeSet<Pid>,
) -> Result<(), Errno> {
    let file = |path: &Path| -> Result<Vec<u8>, Errno> {
        let name = path.join("cgroup.procs");
        let mut text = Vec::new();
        let file = procfs::open(rustix::fs::CWD, name.to_str().ok_or(Errno::ILSEQ)?)?;
        text::read_into(&file, &mut text)?;
        Ok(text)
    };
    let room = MEMBERS_MAX.saturating_sub(members.len());
    match file(path) {
        Ok(text) => members
            .extend(text::words(&text).filter_map(text::number).map(Pid).filter(|pid| pid.0 != 0).take(room)),
        // A threaded group: its processes are listed above it.
        Err(Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(errno),
    }
    if depth < DEPTH_MAX
        && let Ok(entries) = std::fs::read_dir(path)
    {
        let below: BTreeSet<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .take(*groups)
            .collect();
        for path in below {
            if *groups == 0 {
                break;
            }
            *groups -= 1;
            // One that vanishes meanwhile has nobody in it.
            let _ = add_group(&path, (depth + 1, groups), members);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn however_many_groups_and_members_there_are_the_listing_ends() {
        let folder = tempfile::tempdir().unwrap();
        let group = |path: &Path, pids: std::ops::Range<u32>| {
            fs::create_dir_all(path).unwrap();
            let text: String = pids.map(|pid| format!("{pid}\n")).collect();
            fs::write(path.join("cgroup.procs"), text).unwrap();
        };
        group(folder.path(), 1..3);
        group(&folder.path().join("a/b"), 3..5);
        group(&folder.path().join("a"), 0..0);
        let listed = group_members(folder.path()).unwrap();
        assert_eq!(listed, (1..5).map(Pid).collect());
        for at in 0..GROUPS_MAX + 100 {
            let pid = 1_000 + u32::try_from(at).unwrap();
            group(&folder.path().join(format!("wide/{at:05}")), pid..pid + 1);
        }
        group(&folder.path().join("wide"), 0..0);
        let listed = group_members(folder.path()).unwrap();
        assert!((GROUPS_MAX - 8..=GROUPS_MAX + 4).contains(&listed.len()), "{}", listed.len());
        let many = 10..10 + 2 * u32::try_from(MEMBERS_MAX).unwrap();
        group(folder.path(), many);
        assert_eq!(group_members(folder.path()).unwrap().len(), MEMBERS_MAX);
        assert!(group_members(&folder.path().join("none")).is_err());
    }
}

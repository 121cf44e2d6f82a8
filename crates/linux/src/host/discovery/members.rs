//! Members of control groups and of the groups below them.
//!
//! Properties: each group is listed once for all roots that name it; the numbers of groups and
//! members that are read are bounded at any depth; a group that vanishes meanwhile is empty.

use crate::host::procfs;
use crate::process::Pid;
use crate::text;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximal numbers of groups below a group, and of members of all of them, that are read.
const GROUPS_MAX: usize = 4_096;
const MEMBERS_MAX: usize = 32_768;
/// Maximal depth of the search for groups below a group.
const DEPTH_MAX: usize = 32;

/// Returns the processes of a group and of all groups below it, up to the limits.
pub(super) fn group_members(path: &Path) -> Result<BTreeSet<Pid>, Errno> {
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
            // A group that vanishes meanwhile is empty.
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
    fn the_listing_ends_with_any_number_of_groups_and_members() {
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

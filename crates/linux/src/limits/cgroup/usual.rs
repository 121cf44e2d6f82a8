//! Groups at the place where nearly every machine mounts them: `/sys/fs/cgroup`, and below it a
//! folder for each controller of version 1.
//!
//! `/proc/self/mountinfo` has a line for each mount, hundreds of them beside containers, and a
//! start needs one fact of it: which part of the hierarchy is mounted at that place. There are two
//! cases in which the place is right whatever the list says. The process is in the uppermost group
//! that it can see; then the mount point is its group. Or it is in the machine's own namespace of
//! groups and the whole hierarchy is mounted; then the path of its group leads there. In all other
//! cases, such as a container that sees its host's paths, the list is read. In the first case, a
//! container with its own namespace may have its host's whole hierarchy there. A group with a quota
//! is never the uppermost one of version 2, so this is examined where no quota is found.

use super::{GroupLocation, Hierarchy, membership};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Number of the uppermost group of a hierarchy, as a file: the kernel counts from it.
const UPPERMOST: u64 = 1;
/// Number of the first namespace of groups: `PROC_CGROUP_INIT_INO` in the kernel's
/// `include/linux/proc_ns.h`.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFB;
/// The namespace of the calling process.
const NAMESPACE: &str = "/proc/self/ns/cgroup";

/// Returns the location of the calling process in the hierarchy that has its quotas, if the usual
/// place is right; `None` if the list of mounts must tell. A hierarchy that is mounted elsewhere
/// has no files at this place ([`is_there`]).
pub(super) fn location(root: &Path, memberships: &[u8]) -> Option<GroupLocation> {
    // A copy of a machine's files has no namespaces.
    if root != Path::new("/") {
        return None;
    }
    let (hierarchy, path, mount) = match membership(memberships, b"cpu") {
        Some(path) => (Hierarchy::V1, path, Path::new("/sys/fs/cgroup/cpu")),
        None => (Hierarchy::V2, membership(memberships, b"")?, Path::new("/sys/fs/cgroup")),
    };
    let relative = path.strip_prefix("/").ok()?;
    let is_uppermost = relative.as_os_str().is_empty();
    (is_uppermost || leads_there(mount, relative)).then(|| GroupLocation {
        hierarchy,
        mount: mount.to_owned(),
        mounted: PathBuf::from("/"),
        relative: relative.to_owned(),
    })
}

/// Returns whether the hierarchy is at this place and has the group. For a group without files of
/// quotas.
pub(super) fn is_there(location: &GroupLocation) -> bool {
    let file = match location.hierarchy {
        Hierarchy::V1 => "cpu.shares",
        Hierarchy::V2 => "cgroup.controllers",
    };
    location.directory().join(file).exists()
        && (!location.relative.as_os_str().is_empty() || may_be_own(&location.mount, Path::new(NAMESPACE)))
}

/// Returns whether a mount point can be the group of a process that is in the uppermost group of
/// its namespace: the whole hierarchy is the group of the first namespace only.
fn may_be_own(mount: &Path, namespace: &Path) -> bool {
    !is_numbered(mount, UPPERMOST) || is_numbered(namespace, FIRST_NAMESPACE)
}

fn is_numbered(path: &Path, number: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.ino() == number)
}

/// Returns whether the path of a group that is not the uppermost one leads from this mount point to
/// the group.
fn leads_there(mount: &Path, relative: &Path) -> bool {
    relative.components().all(|part| matches!(part, Component::Normal(_)))
        && is_numbered(mount, UPPERMOST)
        && is_numbered(Path::new(NAMESPACE), FIRST_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::cgroup::{Groups, memberships, own_quota};

    fn folders(location: &GroupLocation) -> Vec<PathBuf> {
        // Bind mounts and links give a folder several paths.
        location.upwards().map(|group| group.dir.canonicalize().unwrap()).collect()
    }

    #[test]
    fn the_usual_place_has_the_groups_that_the_list_of_mounts_names() {
        let root = Path::new("/");
        let own = memberships(root, "self");
        let listed = Groups::among_mounts(root, &own);
        assert_eq!(own_quota(root), listed.quota());
        let Some(usual) = location(root, &own).filter(is_there) else {
            crate::skip::skipped("no control groups are at the usual place");
            return;
        };
        let listed = listed.cpu.or(listed.unified).unwrap();
        assert_eq!(folders(&usual), folders(&listed));
    }

    #[test]
    fn a_group_that_is_not_there_or_above_the_visible_ones_is_left_to_the_list() {
        let unusual =
            ["1:cpu:/../x\n", "1:cpu:/no/such/group\n", "0::/../..\n", "0::/no/such/group\n", "", "0"];
        for memberships in unusual {
            let found = location(Path::new("/"), memberships.as_bytes()).filter(is_there);
            assert!(found.is_none(), "{memberships}");
        }
        assert!(location(Path::new("/copy"), b"0::/\n").is_none());
    }

    #[test]
    fn a_whole_hierarchy_is_not_the_group_of_another_namespace_than_the_first() {
        // The root of procfs has the number of an uppermost group, and a folder has another.
        let (whole, folder) = (Path::new("/proc"), tempfile::tempdir().unwrap());
        let (first, other) = (Path::new(NAMESPACE), folder.path());
        assert!(may_be_own(folder.path(), other) && !may_be_own(whole, other));
        assert_eq!(may_be_own(whole, first), is_numbered(first, FIRST_NAMESPACE));
    }
}

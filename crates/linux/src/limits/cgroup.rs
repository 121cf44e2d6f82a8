//! Control groups of a process, and their limits.
//!
//! `/proc/self/cgroup` gives the path of a group inside its hierarchy, `/proc/self/mountinfo` which
//! part of the hierarchy is mounted where. In a container either may be cut down: the path may
//! begin above the mounted part, or name a group that only the host can see. In that case the mount
//! point itself is the best answer: container engines put the container's own group there.
//! The groups that have the quotas are mostly found without the list of mounts (`usual`).

mod usual;

use crate::text;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use trimtab_core::ids::{Id, OsCpu, OsNode};
use trimtab_core::set::Set;

/// Files that list a cpuset's CPUs, the better one first.
const CPUSET_V1: [&str; 2] = ["cpuset.effective_cpus", "cpuset.cpus"];
const CPUSET_V2: [&str; 1] = ["cpuset.cpus.effective"];

/// Kind of the hierarchy of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hierarchy {
    /// Version 1: one hierarchy for each controller.
    V1,
    /// Version 2: one hierarchy for all controllers.
    V2,
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "cgroup v1",
            Self::V2 => "cgroup v2",
        })
    }
}

/// A limit of CPU time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Quota {
    /// The CPU time that all threads together get, in thousandths of a CPU.
    pub milli_cpus: u32,
    /// The group that sets it, as a path inside the hierarchy.
    pub group: String,
    /// Whether it is a group of version 1 or 2.
    pub hierarchy: Hierarchy,
}

/// A cpuset list that is in force, and the group that has it.
pub(crate) struct Cpuset<T> {
    pub(crate) members: Set<T>,
    pub(super) group: String,
    pub(super) hierarchy: Hierarchy,
}

/// The groups of one process, as readable directories.
#[derive(Default)]
pub(crate) struct Groups {
    unified: Option<GroupLocation>,
    cpuset: Option<GroupLocation>,
    cpu: Option<GroupLocation>,
}

impl Groups {
    /// Returns the groups of the calling process; hierarchies that are not mounted, or not
    /// readable, are left out.
    pub(super) fn of_own_process(root: &Path) -> Self {
        Self::of(root, "self")
    }

    /// Returns the groups of a process, by its folder's name, as reached through the mounts of the
    /// calling process.
    pub(crate) fn of(root: &Path, process: &str) -> Self {
        Self::among_mounts(root, &memberships(root, process))
    }

    fn among_mounts(root: &Path, memberships: &[u8]) -> Self {
        if memberships.is_empty() {
            return Self::default();
        }
        let mounts = text::read(&root.join("proc/self/mountinfo")).unwrap_or_default();
        let mounts: Vec<Mount> = text_lines(&mounts).filter_map(Mount::parse).collect();
        let v1 = |controller: &str| {
            let path = membership(memberships, controller.as_bytes())?;
            GroupLocation::find(
                root,
                Hierarchy::V1,
                &path,
                mounts.iter().filter(|mount| mount.has(controller)),
            )
        };
        let unified = membership(memberships, b"").and_then(|path| {
            GroupLocation::find(
                root,
                Hierarchy::V2,
                &path,
                mounts.iter().filter(|mount| mount.hierarchy == Hierarchy::V2),
            )
        });
        Self { unified, cpuset: v1("cpuset"), cpu: v1("cpu") }
    }

    /// Returns the CPUs of the cpuset in force.
    pub(crate) fn cpuset_cpus(&self) -> Option<Cpuset<OsCpu>> {
        self.in_force(&CPUSET_V1, &CPUSET_V2)
    }

    /// Returns the lists of CPUs that were written to the group of version 2 and to its ancestors.
    pub(crate) fn listed_cpus(&self) -> Vec<Set<OsCpu>> {
        let groups = self.unified.iter().flat_map(GroupLocation::upwards);
        let lists =
            groups.filter_map(|group| text::list(&text::read_piece(&group.dir.join("cpuset.cpus")).ok()?));
        lists.filter(|list: &Set<OsCpu>| !list.is_empty()).collect()
    }

    /// Returns the memory nodes of the cpuset in force.
    pub(super) fn cpuset_mems(&self) -> Option<Cpuset<OsNode>> {
        self.in_force(&["cpuset.effective_mems", "cpuset.mems"], &["cpuset.mems.effective"])
    }

    /// Returns the file that lists the CPUs of the cpuset in force.
    pub(crate) fn cpuset_file(&self) -> Option<PathBuf> {
        let in_hierarchy = |place: &Option<GroupLocation>, files: &[&str]| {
            place.as_ref()?.upwards().find_map(|group| {
                files.iter().map(|name| group.dir.join(name)).find(|path| {
                    let set: Option<Set<OsCpu>> = text::read(path).ok().and_then(|text| text::list(&text));
                    set.is_some_and(|set| !set.is_empty())
                })
            })
        };
        in_hierarchy(&self.cpuset, &CPUSET_V1).or_else(|| in_hierarchy(&self.unified, &CPUSET_V2))
    }

    /// Returns the file that counts how long the tightest quota has kept its group off the CPUs;
    /// `None` without a quota.
    pub(crate) fn throttle_file(&self) -> Option<PathBuf> {
        self.quotas().min_by_key(|(quota, _)| quota.milli_cpus).map(|(_, dir)| dir.join("cpu.stat"))
    }

    /// Returns the tightest quota of the group and of all its visible ancestors.
    pub(super) fn quota(&self) -> Option<Quota> {
        self.quotas().map(|(quota, _)| quota).min_by_key(|quota| quota.milli_cpus)
    }

    /// Returns all quotas of the group and of its ancestors, each with its group's directory.
    fn quotas(&self) -> impl Iterator<Item = (Quota, PathBuf)> + '_ {
        // A controller is in one hierarchy: where version 1 has it, no group of version 2 has its
        // files.
        let location = self.cpu.as_ref().or(self.unified.as_ref()).into_iter();
        location.flat_map(GroupLocation::quotas).filter_map(|(quota, dir)| Some((quota?, dir)))
    }

    /// Returns the first of these lists that exists and is not empty, from the group upwards: a
    /// group of version 2 without the controller has no file of its own and uses its ancestor's.
    fn in_force<T: Id>(&self, v1: &[&str], v2: &[&str]) -> Option<Cpuset<T>> {
        let in_hierarchy = |place: &Option<GroupLocation>, files: &[&str]| {
            let place = place.as_ref()?;
            place.upwards().find_map(|group| {
                let read = |name: &&str| text::list(&text::read_piece(&group.dir.join(name)).ok()?);
                let members = files.iter().filter_map(read).find(|set: &Set<T>| !set.is_empty())?;
                Some(Cpuset { members, group: group.name, hierarchy: place.hierarchy })
            })
        };
        in_hierarchy(&self.cpuset, v1).or_else(|| in_hierarchy(&self.unified, v2))
    }
}

/// Returns the tightest quota of the calling process. The list of mounts, which is long on a
/// machine with containers, is read only if its groups are not at the usual place.
pub(super) fn own_quota(root: &Path) -> Option<Quota> {
    let memberships = memberships(root, "self");
    if let Some(location) = usual::location(root, &memberships) {
        let read: Vec<(Option<Quota>, PathBuf)> = location.quotas().collect();
        if !read.is_empty() || usual::is_there(&location) {
            return read.into_iter().filter_map(|(quota, _)| quota).min_by_key(|quota| quota.milli_cpus);
        }
    }
    Groups::among_mounts(root, &memberships).quota()
}

/// A group as a directory.
struct GroupDirectory {
    dir: PathBuf,
    /// Its path inside the hierarchy, printable.
    name: String,
}

/// Location of a process in one hierarchy: a mount, and the path from the mount point to its group.
struct GroupLocation {
    hierarchy: Hierarchy,
    /// The mount point below the given root.
    mount: PathBuf,
    /// The part of the hierarchy that is mounted there.
    mounted: PathBuf,
    /// Path from the mount point to the group; empty for the mount point itself.
    relative: PathBuf,
}

impl GroupLocation {
    /// Finds the mount through which the group at `path` can be reached: the one that begins
    /// closest to the group, the latest among equals; failing that, the latest mount point itself.
    fn find<'a>(
        root: &Path,
        hierarchy: Hierarchy,
        path: &Path,
        mounts: impl Iterator<Item = &'a Mount> + Clone,
    ) -> Option<Self> {
        let at = |mount: &Mount, relative: &Path| {
            let point = mount.point.strip_prefix("/").unwrap_or(&mount.point);
            Self {
                hierarchy,
                mount: root.join(point),
                mounted: mount.mounted.clone(),
                relative: relative.to_owned(),
            }
        };
        let reachable = |mount: &'a Mount| {
            let relative = path.strip_prefix(&mount.mounted).ok()?;
            let ordinary = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            ordinary.then_some((mount, relative))
        };
        mounts
            .clone()
            .filter_map(reachable)
            .max_by_key(|(mount, _)| mount.mounted.components().count())
            .map(|(mount, relative)| at(mount, relative))
            .filter(|place| place.relative.as_os_str().is_empty() || place.directory().is_dir())
            .or_else(|| mounts.last().map(|mount| at(mount, Path::new(""))))
    }

    fn directory(&self) -> PathBuf {
        self.mount.join(&self.relative)
    }

    /// Returns the directories of the group and its ancestors that have a file for a quota, each
    /// with the quota if there is one.
    fn quotas(&self) -> impl Iterator<Item = (Option<Quota>, PathBuf)> + '_ {
        self.upwards().filter_map(|group| {
            let quota = match self.hierarchy {
                Hierarchy::V1 => quota_v1(&group.dir)?,
                Hierarchy::V2 => quota_v2(&text::read_piece(&group.dir.join("cpu.max")).ok()?),
            };
            let GroupDirectory { dir, name } = group;
            Some((quota.map(|milli_cpus| Quota { milli_cpus, group: name, hierarchy: self.hierarchy }), dir))
        })
    }

    /// Returns the group and its ancestors up to the mount point.
    fn upwards(&self) -> impl Iterator<Item = GroupDirectory> + '_ {
        self.relative.ancestors().map(|relative| {
            let inside = if relative.as_os_str().is_empty() {
                self.mounted.clone()
            } else {
                self.mounted.join(relative)
            };
            let name = text::printable(inside.as_os_str().as_encoded_bytes());
            GroupDirectory { dir: self.mount.join(relative), name }
        })
    }
}

/// A line of `mountinfo` that mounts control groups.
struct Mount {
    hierarchy: Hierarchy,
    mounted: PathBuf,
    point: PathBuf,
    /// The controllers of a hierarchy of version 1, among other options.
    options: Vec<u8>,
}

impl Mount {
    /// Parses `36 35 0:31 /mounted /mount/point rw shared:9 - cgroup cgroup rw,cpuset`, with any
    /// number of words before the dash.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = text::words(line);
        let (mounted, point) = (words.nth(3)?, words.next()?);
        let mut words = words.skip_while(|&word| word != b"-").skip(1);
        let hierarchy = match words.next()? {
            b"cgroup" => Hierarchy::V1,
            b"cgroup2" => Hierarchy::V2,
            _ => return None,
        };
        let options = words.nth(1).unwrap_or_default().to_vec();
        Some(Self { hierarchy, mounted: unescaped(mounted), point: unescaped(point), options })
    }

    fn has(&self, controller: &str) -> bool {
        let mut options = self.options.split(|&byte| byte == b',');
        self.hierarchy == Hierarchy::V1 && options.any(|option| option == controller.as_bytes())
    }
}

/// Reads the groups of a process, by its folder's name; empty if they cannot be read.
fn memberships(root: &Path, process: &str) -> Vec<u8> {
    // One process is one piece, and the mounts are a file of lines.
    text::read_piece(&root.join("proc").join(process).join("cgroup")).unwrap_or_default()
}

/// Returns the path of the group in the hierarchy of a controller, or in the hierarchy of version 2
/// if the name is empty, from lines like `4:cpu,cpuacct:/user.slice` and `0::/user.slice`.
fn membership(memberships: &[u8], controller: &[u8]) -> Option<PathBuf> {
    text_lines(memberships).find_map(|line| {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let mut controllers = controllers.split(|&byte| byte == b',');
        controllers.any(|name| name == controller).then(|| OsString::from_vec(path.to_vec()).into())
    })
}

/// Reads the quota of a group of version 1. The outer `None` is that of a group without the file.
fn quota_v1(group: &Path) -> Option<Option<u32>> {
    let read = |name: &str| text::read_piece(&group.join(name)).ok();
    let quota = read("cpu.cfs_quota_us")?;
    // -1 for none, as in most groups: then the other file is not read.
    Some(
        text::number(&quota)
            .and_then(|quota_us| milli_cpus(quota_us, text::number(&read("cpu.cfs_period_us")?)?)),
    )
}

/// Parses `cpu.max`: `max 100000` or `250000 100000`, both in microseconds.
fn quota_v2(text: &[u8]) -> Option<u32> {
    let mut words = text::words(text);
    milli_cpus(text::number(words.next()?)?, text::number(words.next()?)?)
}

/// Rounds down, but never to zero: a program with a quota does run.
fn milli_cpus(quota_us: u64, period_us: u64) -> Option<u32> {
    let milli = u128::from(quota_us) * 1000;
    let milli = milli.checked_div(u128::from(period_us))?.max(1);
    Some(u32::try_from(milli).unwrap_or(u32::MAX))
}

fn text_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

/// Decodes a path of `mountinfo`, which writes blanks, line ends and backslashes as `\040`.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

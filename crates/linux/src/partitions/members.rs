//! The holds of the machine with their processes and users, from facts of the kernel alone.

use super::Partitions;
use crate::keeper::{self, Target};
use crate::ledger::{LedgerError, LedgerView, Level};
use crate::process::{self, Pid, Stat, State};
use crate::text;
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::enforce::{HoldGroup, HoldMember, SeenGroup, SeenHold};
use trimtab_core::hold_claim::HoldClaim;
use trimtab_core::set::CpuSet;

/// Most processes from which one descends.
const DEEPEST: usize = 1_000;

/// The processes of the machine at one moment.
struct Processes<'a> {
    proc: &'a Path,
    stats: BTreeMap<u32, Stat>,
}

/// A hold, and the processes that have it.
struct OwnedHold {
    id: u64,
    exclusive: CpuSet,
    shared: CpuSet,
    owners: Vec<u32>,
}

/// Returns the holds of the machine. A process is part of the hold of which it has a descriptor, or
/// else of that of the nearest process from which it descends. A process with descriptors of
/// several holds is part of none: it holds cores for others.
///
/// A program may close the hold's descriptor and keep its locks by a mapping, which does not show
/// the hold of the locks. Then the group that was made for the hold before shows its CPUs and its
/// processes.
///
/// # Errors
/// The ledger cannot be read.
pub fn seen(
    view: &LedgerView,
    proc: &Path,
    machine: &CpuSet,
    partitions: &Partitions,
    groups: &[SeenGroup],
) -> Result<Vec<SeenHold>, LedgerError> {
    let proven = view.proven(Level::MACHINE, machine)?;
    let locked =
        proven.iter().fold(CpuSet::new(), |all, hold| all.union(&hold.exclusive).union(&hold.shared));
    let mut owned: Vec<OwnedHold> = proven
        .into_iter()
        .map(|hold| OwnedHold {
            id: hold.id.number(),
            exclusive: hold.exclusive,
            shared: hold.shared,
            owners: hold.lockers.into_iter().filter(|pid| is_own(proc, *pid, hold.id.number())).collect(),
        })
        .collect();
    let shown: Vec<u64> = owned.iter().map(|hold| hold.id).collect();
    for seen in groups.iter().filter(|seen| !shown.contains(&seen.group.hold)) {
        // CPUs that a descriptor shows to be another hold's are not this hold's any more.
        if !seen.cpus.intersects(&locked) && view.vouches(seen.group.hold, Level::MACHINE, &seen.cpus)? {
            owned.push(OwnedHold {
                id: seen.group.hold,
                exclusive: seen.cpus.clone(),
                shared: CpuSet::new(),
                owners: partitions.threads(&seen.group),
            });
        }
    }
    if owned.is_empty() {
        return Ok(Vec::new());
    }
    let processes = Processes::read(proc);
    let roots = processes.roots(&owned);
    let mut members: BTreeMap<usize, Vec<HoldMember>> = BTreeMap::new();
    for (pid, stat) in &processes.stats {
        if let Some(hold) = processes.hold_of(*pid, &roots)
            && let Some((home, inside)) = home(proc, Pid(*pid))
        {
            let member = HoldMember { pid: *pid, start: stat.start.0, home, inside };
            members.entry(hold).or_default().push(member);
        }
    }
    let mut holds = Vec::new();
    for (at, hold) in owned.iter().enumerate() {
        let Some((uid, began)) = processes.oldest(&hold.owners) else { continue };
        holds.push(SeenHold {
            id: hold.id,
            uid,
            began,
            cpus: hold.exclusive.union(&hold.shared),
            shared: !hold.shared.is_empty(),
            members: members.remove(&at).unwrap_or_default(),
        });
    }
    Ok(holds)
}

impl<'a> Processes<'a> {
    fn read(proc: &'a Path) -> Self {
        let stats = process::all(proc)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|pid| process::stat(proc, pid).ok())
            .filter(|stat| !stat.kernel_thread && !matches!(stat.state, State::Zombie))
            .map(|stat| (stat.id, stat))
            .collect();
        Self { proc, stats }
    }

    /// Returns the processes from which the members of a hold descend, each with the place of its
    /// hold; `None` for a process that is part of no hold, with all that descends from it.
    fn roots(&self, holds: &[OwnedHold]) -> BTreeMap<u32, Option<usize>> {
        let mut roots: BTreeMap<u32, Option<usize>> = BTreeMap::new();
        let mut targets = Vec::new();
        for (at, hold) in holds.iter().enumerate() {
            for &pid in &hold.owners {
                let keeps = keeper::is_keeper(self.proc, Pid(pid));
                if keeps {
                    targets.extend(self.target(pid).map(|target| (target, at)));
                }
                let several = roots.get(&pid).is_some_and(|before| *before != Some(at));
                roots.insert(pid, (!several && !keeps).then_some(at));
            }
        }
        for (target, at) in targets {
            roots.entry(target).or_insert(Some(at));
        }
        // The service does not confine itself, if it was started in a hold.
        roots.insert(std::process::id(), None);
        roots
    }

    /// Returns the process for which a keeper keeps a hold, if the keeper's user may move it. The
    /// keeper's description is the claim of its user.
    fn target(&self, keeper: u32) -> Option<u32> {
        let Target::Process { pid, start } = keeper::description(self.proc, Pid(keeper))?.target else {
            return None;
        };
        let uid = process::status(self.proc, Pid(keeper)).ok()?.uid;
        let status = process::status(self.proc, pid).ok()?;
        let same = self.stats.get(&pid.0).is_some_and(|stat| stat.start == start);
        (same && (uid == 0 || status.uid == uid)).then_some(pid.0)
    }

    fn hold_of(&self, pid: u32, roots: &BTreeMap<u32, Option<usize>>) -> Option<usize> {
        let mut at = pid;
        // Process trees are shallow; the bound guards against an inconsistent /proc.
        for _ in 0..DEEPEST {
            if let Some(root) = roots.get(&at) {
                return *root;
            }
            at = self.stats.get(&at)?.parent.0;
        }
        None
    }

    /// Returns the user and the start of the oldest of these processes.
    fn oldest(&self, pids: &[u32]) -> Option<(u32, u64)> {
        let living = pids.iter().filter_map(|pid| self.stats.get(pid));
        let oldest = living.min_by_key(|stat| (stat.start, stat.id))?;
        let status = process::status(self.proc, Pid(oldest.id)).ok()?;
        Some((status.uid, oldest.start.0))
    }
}

/// Returns whether a process has a hold for itself: it keeps it for another process, was started in
/// it, or is in its group already. A descriptor alone may have been sent to a process that knows
/// nothing of it. Programs that write a title over their environment (nginx, PostgreSQL) stay known
/// by their group.
fn is_own(proc: &Path, pid: u32, hold: u64) -> bool {
    if keeper::is_keeper(proc, Pid(pid)) {
        return true;
    }
    let text = std::fs::read(proc.join(format!("{pid}/environ"))).unwrap_or_default();
    let named = HoldClaim::in_environment(&text).and_then(|claim| claim.hold);
    named == Some(hold) || home(proc, Pid(pid)).is_some_and(|(_, inside)| inside == Some(hold))
}

/// Returns the control group of a process in the hierarchy of version 2, and the hold of the group
/// in which it is there. `None` for a process that has ended, and for a group that cannot be named.
pub(super) fn home(proc: &Path, pid: Pid) -> Option<(String, Option<u64>)> {
    let text = text::read_piece(&proc.join(format!("{pid}/cgroup"))).ok()?;
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    let path = std::str::from_utf8(line).ok()?;
    is_plain(path).then(|| match HoldGroup::of_path(path) {
        Some(group) => (group.home, Some(group.hold)),
        None => (path.to_owned(), None),
    })
}

/// Returns whether a path names a group below the hierarchy's root. Outside this process's view of
/// the hierarchy it begins with `..`; of a removed group it ends in ` (deleted)`.
pub(super) fn is_plain(path: &str) -> bool {
    let removed = path.ends_with(" (deleted)");
    path.starts_with('/') && !removed && !path.split('/').any(|name| name == ".." || name == ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_a_group_inside_the_hierarchy() {
        let proc = tempfile::tempdir().unwrap();
        let of = |pid: u32, text: &[u8]| {
            std::fs::create_dir_all(proc.path().join(pid.to_string())).unwrap();
            std::fs::write(proc.path().join(format!("{pid}/cgroup")), text).unwrap();
            home(proc.path(), Pid(pid))
        };
        assert_eq!(of(5, b"4:cpuset:/x\n0::/user.slice/a\n"), Some(("/user.slice/a".to_owned(), None)));
        assert_eq!(of(5, b"0::/a/trimtab.1f\n"), Some(("/a".to_owned(), Some(0x1f))));
        assert_eq!(of(5, b"0::/trimtab.1f\n"), Some(("/".to_owned(), Some(0x1f))));
        for hostile in
            [&b"0::/../a\n"[..], b"0::/a/..\n", b"0::/a (deleted)\n", b"0::/\xff\n", b"1:name=x:/a\n", b""]
        {
            assert_eq!(of(5, hostile), None, "{hostile:?}");
        }
        assert_eq!(home(proc.path(), Pid(6)), None);
    }

    #[test]
    fn a_process_has_a_hold_by_its_environment_or_by_its_group() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, environment, group) in [
            (5, "A=1\0TRIMTAB_HOLD=0 600 31\0", "/a"),
            (6, "\0\0\0", "/a/trimtab.1f"),
            (7, "A=1\0", "/a"),
            (8, "TRIMTAB_HOLD=0 600 32\0", "/a/trimtab.20"),
        ] {
            let folder = proc.path().join(pid.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("environ"), environment).unwrap();
            std::fs::write(folder.join("cgroup"), format!("0::{group}\n")).unwrap();
        }
        let of = |pid| is_own(proc.path(), pid, 31);
        assert_eq!([5, 6, 7, 8, 9].map(of), [true, true, false, false, false]);
    }

    #[test]
    fn a_process_is_part_of_the_hold_of_the_nearest_process_that_has_one() {
        let stat = |pid: u32, parent: u32| {
            let mut fields = vec!["0".to_owned(); 50];
            fields[0] = "S".to_owned();
            fields[1] = parent.to_string();
            Stat::parse(format!("{pid} (a) {}", fields.join(" ")).as_bytes()).unwrap()
        };
        let tree = [(10, 1), (11, 10), (12, 11), (13, 12), (14, 10), (20, 21), (21, 20)];
        let stats = tree.map(|(pid, parent)| (pid, stat(pid, parent))).into_iter().collect();
        let processes = Processes { proc: Path::new("/nowhere"), stats };
        let roots = BTreeMap::from([(10, Some(0)), (12, Some(1)), (14, None)]);
        let of = |pid| processes.hold_of(pid, &roots);
        assert_eq!(
            [10, 11, 12, 13, 14, 20, 99].map(of),
            [Some(0), Some(0), Some(1), Some(1), None, None, None]
        );
    }
}

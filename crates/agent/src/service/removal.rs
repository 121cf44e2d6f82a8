//! Removal of processes from the service, which continues.

use super::client::Client;
use crate::paths::Paths;
use anyhow::anyhow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trimtab_core::tags::{Answer, Ask, By, Mark, Status, TagStatus, What};
use trimtab_core::words::plural;
use trimtab_linux::process::{Pid, stat};
use trimtab_linux::text::printable;

/// Result of a request to take something out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakenOut {
    /// Number of tags removed.
    pub cleared: u32,
    /// Number of tags that only other users may clear.
    pub others: u32,
    /// Another tag that still includes it, in words, with the command that would take it out.
    pub still: Option<String>,
}

impl TakenOut {
    /// Returns why it is still balanced, if it is.
    pub fn fault(&self, pid: Pid, service: u32) -> Option<String> {
        let why = match &self.still {
            Some(still) => still.clone(),
            None if self.others > 0 => {
                format!("by {} of others, which they and root may clear", plural(self.others, "tag"))
            }
            None => return None,
        };
        Some(format!("process {pid} is still balanced by the service (process {service}) {why}"))
    }
}

/// Asks a service for its status.
///
/// # Errors
/// The service does not answer.
pub fn status(service: &mut Client) -> Result<Status, anyhow::Error> {
    match service.ask_patiently(&Ask::Status)? {
        Answer::Status(status) => Ok(*status),
        Answer::Refused(refusal) => Err(refusal.into()),
        Answer::Tagged { .. } | Answer::Cleared { .. } | Answer::Reloaded { .. } => Err(strange()),
    }
}

fn strange() -> anyhow::Error {
    anyhow!("the answer of the daemon does not fit the request")
}

fn clear(service: &mut Client, what: Option<What>) -> Result<TakenOut, anyhow::Error> {
    match service.ask_patiently(&Ask::Clear { what })? {
        Answer::Cleared { tags, others } => Ok(TakenOut { cleared: tags, others, still: None }),
        Answer::Refused(refusal) => Err(refusal.into()),
        Answer::Tagged { .. } | Answer::Status(_) | Answer::Reloaded { .. } => Err(strange()),
    }
}

/// Takes one process out: its own tags, those of its threads, and those of the virtual machine that
/// it runs.
///
/// # Errors
/// The service does not answer.
pub fn take_out(paths: &Paths, service: &mut Client, pid: Pid) -> Result<TakenOut, anyhow::Error> {
    let mut taken = clear(service, Some(What::Process { pid: pid.0 }))?;
    let machine = |tag: &TagStatus| {
        matches!(tag.mark, Mark::Vm { .. } | Mark::Vcpu { .. }) && tag.mark.pid() == Some(pid.0)
    };
    let before = status(service)?;
    if before.tags.iter().any(machine) {
        let more = clear(service, Some(What::Vm(pid.to_string())))?;
        taken = TakenOut {
            cleared: taken.cleared + more.cleared,
            others: taken.others + more.others,
            still: None,
        };
    }
    taken.still = still_meant(paths, &before.tags, pid);
    Ok(taken)
}

/// Returns why a process is included by another tag: of an ancestor, or of its control group.
fn still_meant(paths: &Paths, tags: &[TagStatus], pid: Pid) -> Option<String> {
    let family = ancestors(paths, pid);
    let groups = std::fs::read_to_string(paths.proc().join(format!("{pid}/cgroup"))).unwrap_or_default();
    let groups = folders(&paths.cgroups(), &groups);
    tags.iter().find_map(|tag| match &tag.mark {
        Mark::Process { pid: of, .. } if family.contains(&Pid(*of)) => {
            Some(format!("as part of process {of}: trimtab untag {of} takes out both"))
        }
        Mark::Cgroup(path) if groups.iter().any(|group| group.starts_with(path)) => {
            let path = printable(path.as_bytes());
            Some(format!("as part of group {path}: trimtab untag --cgroup {path} takes out all of it"))
        }
        _ => None,
    })
}

/// Returns the folders of the groups that a process's `cgroup` file lists, if hierarchies are
/// mounted as usual.
fn folders(mounted: &Path, groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let below = path.trim_start_matches('/');
        let controllers = controllers.trim_start_matches("name=");
        let hierarchies = if controllers.is_empty() { vec!["", "unified"] } else { vec![controllers] };
        folders.extend(hierarchies.into_iter().map(|hierarchy| mounted.join(hierarchy).join(below)));
    }
    folders
}

/// Returns the ancestors of a process.
fn ancestors(paths: &Paths, pid: Pid) -> BTreeSet<Pid> {
    let mut found = BTreeSet::new();
    let mut at = pid;
    while let Ok(stat) = stat(&paths.proc(), at) {
        if stat.parent.0 == 0 || !found.insert(stat.parent) {
            break;
        }
        at = stat.parent;
    }
    found
}

/// Takes out all that the caller may: its own tags, or the tags of all users if it is root. Tags
/// that are the service's own (of guests, of bound threads, of declarations) stay, since it would
/// set them again; their number is the second result.
///
/// # Errors
/// The service does not answer.
pub fn take_out_all(service: &mut Client, root: bool) -> Result<(TakenOut, u32), anyhow::Error> {
    let mut taken = clear(service, None)?;
    let mut own = 0;
    for tag in status(service)?.tags {
        match tag.by {
            By::User(_) if root => {
                let more = clear(service, Some(what(&tag.mark)))?;
                taken.cleared += more.cleared;
            }
            By::User(_) => {}
            By::Guest(_) | By::Pinned | By::Declared(_) => own += 1,
        }
    }
    Ok((taken, own))
}

/// Returns the request that names a tagged thing.
fn what(mark: &Mark) -> What {
    match mark {
        Mark::Process { pid, .. } => What::Process { pid: *pid },
        Mark::Thread { pid, tid, .. } => What::Thread { pid: *pid, tid: *tid },
        Mark::Cgroup(path) => What::Cgroup(path.clone()),
        Mark::Vm { pid, .. } | Mark::Vcpu { pid, .. } => What::Vm(pid.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_both_versions_are_folders() {
        let folders =
            folders(Path::new("/cg"), "4:cpuset:/jobs/7\n1:name=systemd:/\n0::/user/a:b\nrubbish\n");
        let folders: Vec<&str> = folders.iter().filter_map(|folder| folder.to_str()).collect();
        assert_eq!(folders, ["/cg/cpuset/jobs/7", "/cg/systemd/", "/cg/user/a:b", "/cg/unified/user/a:b"]);
    }
}

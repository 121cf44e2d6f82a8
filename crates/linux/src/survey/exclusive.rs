//! CPUs that other managers of this machine granted exclusively, from their own records.
//!
//! | manager | record |
//! |---|---|
//! | kubelet | `/var/lib/kubelet/cpu_manager_state`, for pods that have a control group |
//! | Slurm | the cpusets of jobs, below `slurmstepd.scope` (cgroup v2) or `slurm` (v1) |
//! | libvirt | the cpusets of virtual CPUs, below `machine.slice` |
//!
//! A partition of cgroup v2 (`cpuset.cpus.partition`) needs no record: the kernel takes its CPUs
//! out of the cpusets of all others, so that a process outside may not use them anyway.
//!
//! Cost without any of these managers: six system calls, or three where a hierarchy of version 1
//! has no groups. Slurm's two places of the other version are left out.

use crate::text::{self, printable};
use rustix::fs::statfs;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use trimtab_core::place::{ContainerCpus, ExclusiveGrant, Manager, kubelet_record, vcpus_own};
use trimtab_core::set::CpuSet;

/// Folder of the kubelet, unless its option `--root-dir` names another.
const KUBELET: &str = "var/lib/kubelet/cpu_manager_state";
/// Most entries that are read of a folder: as many as the largest machines have CPUs.
const ENTRIES_MAX: usize = 8_192;

/// The grants, and the records that could not be used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExclusiveGrants {
    /// The grants, by manager and job.
    pub grants: Vec<ExclusiveGrant>,
    /// Records that could not be used, with reasons.
    pub notes: Vec<String>,
}

/// Types of the file systems of control groups, as `linux/magic.h` has them.
const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
/// Links of a folder in which there is no other: its name, and its own `.`.
const LINKS_OF_EMPTY: u64 = 2;

/// Version of the control groups that have the cpusets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Reads the grants of all managers below `root`, the root of the file system. `node` returns the
/// machine's name, which some sites have in the names of Slurm's groups.
pub fn exclusive_grants(root: &Path, node: impl FnOnce() -> String) -> ExclusiveGrants {
    let mut found = ExclusiveGrants::default();
    let cgroup = root.join("sys/fs/cgroup");
    // In version 1 each controller has a hierarchy of its own; a mixture has both.
    let v1 = cgroup.join("cpuset");
    let seen = fs::metadata(&v1).ok().filter(fs::Metadata::is_dir);
    let is_empty = seen.as_ref().is_some_and(|seen| seen.nlink() == LINKS_OF_EMPTY);
    let has_groups = !(is_empty && counts_links(&v1));
    let version = if seen.is_some() { Version::V1 } else { Version::V2 };
    let cpusets = if seen.is_some() { v1 } else { cgroup };
    kubelet(root, &cpusets, &mut found);
    if has_groups {
        slurm(version, &cpusets, &node(), &mut found);
        libvirt(&cpusets, &mut found);
    }
    found.grants.sort_unstable();
    found
}

/// Returns whether the file system counts the folders of a folder as links: the kernel's control
/// groups do, those that lxcfs shows to a container may not.
fn counts_links(folder: &Path) -> bool {
    let kind = statfs(folder).ok().and_then(|found| u64::try_from(found.f_type).ok());
    kind.is_some_and(|kind| [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC].contains(&kind))
}

/// Reads the kubelet's record. It stays when the kubelet is removed, so only pods that have a
/// control group count.
fn kubelet(root: &Path, cpusets: &Path, found: &mut ExclusiveGrants) {
    let path = root.join(KUBELET);
    let unusable = |cause: String| format!("CPUs granted by the kubelet are not known: {cause}");
    let text = match text::read_if_there(&path) {
        Ok(Some(text)) => text,
        Ok(None) => return,
        Err(error) => return found.notes.push(unusable(error.to_string())),
    };
    match kubelet_record(&text) {
        Ok(containers) => {
            let alive = containers.into_iter().filter(|one| is_pod_alive(cpusets, &one.pod));
            found.grants.extend(alive.map(|ContainerCpus { pod, container, cpus }| ExclusiveGrant {
                manager: Manager::Kubelet,
                to: printable(format!("container {container} of pod {pod}").as_bytes()),
                cpus,
            }));
        }
        Err(cause) => found.notes.push(unusable(format!("{}: {cause}", path.display()))),
    }
}

/// Returns whether a pod has a control group. Exclusive CPUs exist in the class `Guaranteed` only,
/// whose pods are directly below the kubelet's group; the two forms are those of its drivers.
fn is_pod_alive(cpusets: &Path, pod: &str) -> bool {
    let plain = pod.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let systemd = format!("kubepods.slice/kubepods-pod{}.slice", pod.replace('-', "_"));
    let cgroupfs = format!("kubepods/pod{pod}");
    plain && [systemd, cgroupfs].iter().any(|group| cpusets.join(group).is_dir())
}

/// Reads the cpusets of Slurm's jobs. Slurm has a plug-in for each version, with a place of its
/// own.
fn slurm(version: Version, cpusets: &Path, node: &str, found: &mut ExclusiveGrants) {
    let parents: Vec<PathBuf> = match version {
        Version::V1 => ["slurm".to_owned(), format!("slurm_{node}")]
            .iter()
            .flat_map(|top| folders(&cpusets.join(top), "uid_"))
            .map(|(_, path)| path)
            .collect(),
        Version::V2 => ["slurmstepd.scope".to_owned(), format!("{node}_slurmstepd.scope")]
            .iter()
            .map(|scope| cpusets.join("system.slice").join(scope))
            .collect(),
    };
    for parent in parents {
        for (job, path) in folders(&parent, "job_") {
            if let Some(cpus) = cpuset(&path) {
                let to = format!("job {}", printable(job.as_bytes()));
                found.grants.push(ExclusiveGrant { manager: Manager::Slurm, to, cpus });
            }
        }
    }
}

/// Reads the cpusets of the virtual CPUs of libvirt's machines.
fn libvirt(cpusets: &Path, found: &mut ExclusiveGrants) {
    for (scope, path) in folders(&cpusets.join("machine.slice"), "machine-qemu") {
        let inner = path.join("libvirt");
        let parent = if inner.is_dir() { inner } else { path };
        let masks: Option<Vec<CpuSet>> =
            folders(&parent, "vcpu").iter().map(|(_, path)| cpuset(path)).collect();
        if let Some(cpus) = masks.and_then(|masks| vcpus_own(&masks)) {
            let to = format!("virtual machine {}", printable(machine_name(&scope).as_bytes()));
            found.grants.push(ExclusiveGrant { manager: Manager::Libvirt, to, cpus });
        }
    }
}

/// Returns the name of the machine in the rest of a scope's name: of `\x2d3\x2dweb.scope`, which
/// stands for `-3-web`, it is `web`. Other names are returned as they are.
fn machine_name(scope: &str) -> String {
    let plain = scope.trim_end_matches(".scope").replace("\\x2d", "-");
    let mut parts = plain.splitn(3, '-');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(""), Some(number), Some(name)) if number.parse::<u32>().is_ok() => name.to_owned(),
        _ => plain,
    }
}

/// Returns the CPUs that a group lists for itself; `None` if it lists none, as a group without a
/// cpuset of its own.
fn cpuset(group: &Path) -> Option<CpuSet> {
    let list = text::read_piece(&group.join("cpuset.cpus")).ok().and_then(|text| text::list(&text))?;
    (!list.is_empty()).then_some(list)
}

/// Returns the folders whose names begin like this, each with the rest of its name.
fn folders(parent: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        Some((name.to_str()?.strip_prefix(prefix)?.to_owned(), entry.path()))
    });
    named.take(ENTRIES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "1f2e-77";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn said(root: &Path) -> Vec<String> {
        let found = exclusive_grants(root, || "n7".to_owned());
        found.grants.iter().map(ToString::to_string).chain(found.notes).collect()
    }

    #[test]
    fn a_machine_without_managers_has_no_grants() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(said(root.path()), Vec::<String>::new());
    }

    #[test]
    fn two_links_mean_no_groups_in_control_groups_only() {
        let root = tempfile::tempdir().unwrap();
        let cpusets = root.path().join("sys/fs/cgroup/cpuset");
        fs::create_dir_all(&cpusets).unwrap();
        assert!(!counts_links(&cpusets), "a folder of another file system");
        let mut asked = false;
        let found = exclusive_grants(root.path(), || {
            asked = true;
            "n7".to_owned()
        });
        assert_eq!((found, asked), (ExclusiveGrants::default(), true));
        let kernels = Path::new("/sys/fs/cgroup/cpuset");
        let kernels = if kernels.is_dir() { kernels } else { Path::new("/sys/fs/cgroup") };
        let is_kernels = fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| {
            mounts.lines().any(|line| {
                line.split(' ').nth(4).map(Path::new) == Some(kernels) && line.contains(" - cgroup")
            })
        });
        if is_kernels {
            assert!(counts_links(kernels), "{}", kernels.display());
        }
    }

    #[test]
    fn pods_count_while_they_have_a_group() {
        let root = tempfile::tempdir().unwrap();
        let record =
            format!(r#"{{"policyName":"static","entries":{{"{POD}":{{"web":"1-2"}},"../x":{{"a":"0"}}}}}}"#);
        write(root.path(), KUBELET, &record);
        assert_eq!(said(root.path()), Vec::<String>::new());
        fs::create_dir_all(root.path().join("sys/fs/cgroup/kubepods/x")).unwrap();
        for group in [
            "sys/fs/cgroup/kubepods.slice/kubepods-pod1f2e_77.slice",
            "sys/fs/cgroup/cpuset/kubepods/pod1f2e-77",
        ] {
            fs::create_dir_all(root.path().join(group)).unwrap();
            let expected = "the kubelet granted CPUs 1-2 to container web of pod 1f2e-77";
            assert_eq!(said(root.path()), [expected], "{group}");
        }
    }

    #[test]
    fn an_unusable_record_is_named() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), KUBELET, "{");
        let said = said(root.path());
        assert!(said.len() == 1 && said[0].contains("cpu_manager_state"), "{said:?}");
    }

    #[test]
    fn jobs_of_slurm_are_found_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let v2 = "sys/fs/cgroup/system.slice";
        write(root.path(), &format!("{v2}/slurmstepd.scope/job_42/cpuset.cpus"), "0-3\n");
        write(root.path(), &format!("{v2}/n7_slurmstepd.scope/job_9/cpuset.cpus"), "6\n");
        write(root.path(), &format!("{v2}/slurmstepd.scope/job_43/cpuset.cpus"), "\n");
        write(root.path(), &format!("{v2}/slurmstepd.scope/system/cpuset.cpus"), "7\n");
        assert_eq!(said(root.path()), ["Slurm granted CPUs 0-3 to job 42", "Slurm granted CPUs 6 to job 9"]);
        write(root.path(), "sys/fs/cgroup/cpuset/slurm/uid_1000/job_5/cpuset.cpus", "4-5\n");
        assert_eq!(said(root.path()), ["Slurm granted CPUs 4-5 to job 5"]);
    }

    #[test]
    fn pinned_virtual_machines_are_found() {
        let root = tempfile::tempdir().unwrap();
        let scopes = "sys/fs/cgroup/machine.slice";
        for (scope, vcpus) in [
            (r"machine-qemu\x2d1\x2dweb\x2d2.scope/libvirt", ["0-7", "0-7"]),
            (r"machine-qemu\x2d3\x2dbase.scope/libvirt", ["4", "5"]),
            (r"machine-qemu\x2d4\x2dold.scope", ["6", "7"]),
        ] {
            for (at, cpus) in vcpus.iter().enumerate() {
                write(root.path(), &format!("{scopes}/{scope}/vcpu{at}/cpuset.cpus"), cpus);
            }
        }
        let expected = [
            "libvirt granted CPUs 4-5 to virtual machine base",
            "libvirt granted CPUs 6-7 to virtual machine old",
        ];
        assert_eq!(said(root.path()), expected);
    }
}

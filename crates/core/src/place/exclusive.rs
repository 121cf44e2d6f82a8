//! CPUs that another manager of this machine granted exclusively: the kubelet to a container, Slurm
//! to a job, libvirt to a virtual machine.
//!
//! Problem: such a manager confines its own jobs and does not keep other programs out, so that
//! programs that are not its jobs must avoid these CPUs themselves. Its jobs often sleep, and a
//! mask of several CPUs looks like that of any container, so bound tasks do not tell. Idea: read
//! the manager's own record. These CPUs then count as held.
//!
//! Properties: A grant that includes all CPUs of the caller is the caller's own, or an enclosing
//! one, and does not count. Neither does one that covers the whole machine. The records belong to
//! other programs: a malformed one is an error, never a guess.
//!
//! Sources: Kubernetes, `pkg/kubelet/cm/cpumanager/state`; Slurm, cgroup.conf(5), "ConstrainCores";
//! libvirt, "Control Groups Resource Management".

use crate::set::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A manager that grants CPUs exclusively.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// The agent of Kubernetes on a machine, with the static policy of its CPU manager.
    Kubelet,
    /// Slurm, if it confines jobs to their CPUs.
    Slurm,
    /// libvirt, for a virtual machine with pinned virtual CPUs.
    Libvirt,
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubelet => "the kubelet",
            Self::Slurm => "Slurm",
            Self::Libvirt => "libvirt",
        })
    }
}

/// CPUs that a manager granted to one of its jobs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ExclusiveGrant {
    /// The manager.
    pub manager: Manager,
    /// The job, in the manager's terms and printable: `container web of pod 1234`, `job 42`.
    pub to: String,
    /// The CPUs.
    pub cpus: CpuSet,
}

impl fmt::Display for ExclusiveGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} granted CPUs {} to {}", self.manager, self.cpus, self.to)
    }
}

/// CPUs of a container, in the kubelet's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerCpus {
    /// The pod, by its unique id. Not checked: it may have any characters.
    pub pod: String,
    /// The container's name in the pod. Not checked either.
    pub container: String,
    /// The CPUs.
    pub cpus: CpuSet,
}

/// Parses the kubelet's record, `cpu_manager_state`. Only the static policy has exclusive CPUs.
///
/// # Errors
/// The text is not such a record, in words.
///
/// # Examples
/// ```
/// use trimtab_core::place::kubelet_record;
///
/// let text = r#"{"policyName":"static","entries":{"1f2e":{"web":"1-2"}},"checksum":7}"#;
/// let found = kubelet_record(text.as_bytes())?;
/// assert_eq!((found[0].container.as_str(), found[0].cpus.to_string()), ("web", "1-2".to_owned()));
/// # Ok::<(), String>(())
/// ```
pub fn kubelet_record(text: &[u8]) -> Result<Vec<ContainerCpus>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Record {
        policy_name: String,
        #[serde(default)]
        entries: Option<BTreeMap<String, BTreeMap<String, String>>>,
    }
    let record: Record = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if record.policy_name != "static" {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (pod, containers) in record.entries.unwrap_or_default() {
        for (container, list) in containers {
            let cpus =
                list.parse().map_err(|error| format!("CPUs of a container of pod {pod:?}: {error}"))?;
            found.push(ContainerCpus { pod: pod.clone(), container, cpus });
        }
    }
    Ok(found)
}

/// Returns the CPUs that the virtual CPUs of a machine have for themselves: these are at least as
/// many as the CPUs on which they may run. `None` if they share more CPUs.
///
/// # Examples
/// ```
/// use trimtab_core::place::vcpus_own;
///
/// let pinned = ["4".parse()?, "5".parse()?];
/// assert_eq!(vcpus_own(&pinned), Some("4-5".parse()?));
/// let floating = ["0-7".parse()?, "0-7".parse()?];
/// assert_eq!(vcpus_own(&floating), None);
/// # Ok::<(), trimtab_core::set::ListError>(())
/// ```
pub fn vcpus_own(masks: &[CpuSet]) -> Option<CpuSet> {
    let all: CpuSet = masks.iter().flat_map(CpuSet::iter).collect();
    (!all.is_empty() && all.len() <= masks.len()).then_some(all)
}

/// Returns the grants that count for a process which may use `allowed` of the machine's CPUs, each
/// with its CPUs of this machine: those of other jobs.
///
/// # Examples
/// ```
/// use trimtab_core::place::{ExclusiveGrant, Manager, foreign_grants};
///
/// let to = "job 42".to_owned();
/// let grant = ExclusiveGrant { manager: Manager::Slurm, to, cpus: "2-3".parse()? };
/// let (machine, all) = ("0-7".parse()?, "0-7".parse()?);
/// assert_eq!(foreign_grants(vec![grant.clone()], &machine, &all).len(), 1);
/// // A process of that job.
/// assert_eq!(foreign_grants(vec![grant], &machine, &"2".parse()?), []);
/// # Ok::<(), trimtab_core::set::ListError>(())
/// ```
pub fn foreign_grants(
    grants: Vec<ExclusiveGrant>,
    machine: &CpuSet,
    allowed: &CpuSet,
) -> Vec<ExclusiveGrant> {
    let here =
        grants.into_iter().map(|grant| ExclusiveGrant { cpus: grant.cpus.intersection(machine), ..grant });
    here.filter(|grant| !grant.cpus.is_empty() && !allowed.is_subset(&grant.cpus) && grant.cpus != *machine)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OsCpu;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_static_policy_has_exclusive_cpus() {
        let none = br#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
        assert_eq!(kubelet_record(none), Ok(Vec::new()));
        let fresh = br#"{"policyName":"static","defaultCpuSet":"0-3","checksum":1}"#;
        assert_eq!(kubelet_record(fresh), Ok(Vec::new()));
        let two =
            br#"{"policyName":"static","defaultCpuSet":"0","entries":{"a":{"x":"1","y":"2-3"}},"more":[]}"#;
        let cpus: Vec<String> =
            kubelet_record(two).unwrap().iter().map(|found| found.cpus.to_string()).collect();
        assert_eq!(cpus, ["1", "2-3"]);
    }

    #[test]
    fn malformed_records_are_errors() {
        for text in [
            "",
            "[]",
            "null",
            r#"{"entries":{}}"#,
            r#"{"policyName":"static","entries":{"a":{"x":"1-"}}}"#,
            r#"{"policyName":"static","entries":{"a":["1"]}}"#,
            r#"{"policyName":"static","entries":{"a":{"x":7}}}"#,
            r#"{"policyName":"static","entries":{"a":{"x":"0-4000000000"}}}"#,
        ] {
            assert!(kubelet_record(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_virtual_machine_owns_cpus_only_if_they_are_no_more_than_its_own() {
        assert_eq!(vcpus_own(&[]), None);
        assert_eq!(vcpus_own(&[CpuSet::new()]), None);
        assert_eq!(vcpus_own(&[set("0-3"), set("0-3")]), None);
        assert_eq!(vcpus_own(&[set("0-1"), set("0-1")]), Some(set("0-1")));
        assert_eq!(vcpus_own(&[set("3"), set("3"), set("5")]), Some(set("3,5")));
    }

    fn sets() -> impl proptest::strategy::Strategy<Value = CpuSet> {
        prop::collection::btree_set(0u32..8, 0..8).prop_map(|cpus| cpus.into_iter().map(OsCpu).collect())
    }

    proptest! {
        /// Whatever the records say, a process keeps CPUs that no grant has, or it is in a grant.
        #[test]
        fn the_own_grant_never_counts(grants in prop::collection::vec(sets(), 0..4), allowed in sets()) {
            let machine = set("0-7");
            let of = |cpus: CpuSet| ExclusiveGrant { manager: Manager::Slurm, to: "job 1".into(), cpus };
            let counted = foreign_grants(grants.iter().cloned().map(of).collect(), &machine, &allowed);
            for grant in &counted {
                prop_assert!(allowed.iter().any(|cpu| !grant.cpus.contains(cpu)));
                prop_assert!(grants.contains(&grant.cpus) && grant.cpus != machine);
            }
            let left_out = grants.len() - counted.len();
            let own = grants.iter().filter(|cpus| {
                cpus.is_empty() || **cpus == machine || allowed.iter().all(|cpu| cpus.contains(cpu))
            });
            prop_assert_eq!(left_out, own.count());
        }
    }
}

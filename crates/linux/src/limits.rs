//! Limits of a program that are in force before trimtab acts: CPUs, memory nodes, and CPU time.
//!
//! Of the machine's CPUs a program may use those that are online, inside the cpuset of its control
//! group, and in the mask it inherited; the kernel keeps the mask inside the cpuset. This module
//! distinguishes the three, so that the message "4 of 16" can name the cause of the missing twelve.
//! A quota removes no CPU but time, so it is a separate number.
//!
//! Cost: if the mask covers every online CPU, nothing was removed, and the cpuset's files are not
//! opened.

pub(crate) mod cgroup;

pub use cgroup::{Hierarchy, Quota};

use crate::process::{self, Pid, Status};
use crate::sys::mempolicy;
use crate::text::{self, ReadError};
use cgroup::{Cpuset, Groups};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use trimtab_core::ids::{Id, OsNode};
use trimtab_core::set::{CpuSet, NodeSet, Set};

/// Resources that a program started from here may use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// The machine's online CPUs; `None` if the kernel's list cannot be read.
    pub online: Option<CpuSet>,
    /// The CPUs that all limits permit.
    pub allowed: CpuSet,
    /// The memory nodes that all limits permit; `None` on a kernel without cpusets.
    pub mems: Option<NodeSet>,
    /// The tightest quota of CPU time of the control group and its ancestors.
    pub quota: Option<Quota>,
    /// CPUs kept from the scheduler at boot (`isolcpus=`); `None` if the kernel does not report
    /// them.
    pub isolated: Option<CpuSet>,
    /// CPUs whose clock is stopped while one task runs (`nohz_full=`); `None` if the kernel does
    /// not report them.
    pub nohz_full: Option<CpuSet>,
    /// Causes of missing CPUs or nodes, in this order; empty when everything is allowed.
    pub limiters: Vec<Limiter>,
}

/// Cause that removes part of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "limiter")]
pub enum Limiter {
    /// CPUs that are present but switched off.
    Offline {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// CPUs that the control group's cpuset withholds.
    Cpuset {
        /// The group that has the list, as a path inside the hierarchy.
        group: String,
        /// Whether it is a group of version 1 or 2.
        hierarchy: Hierarchy,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// CPUs that no task gets by default because they are isolated at boot.
    Isolated {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// CPUs missing from the mask that this process inherited: from `taskset`, an MPI launcher, a
    /// batch system.
    Mask {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Memory nodes that the control group's cpuset withholds.
    CpusetMems {
        /// The group that has the list; `None` when its file cannot be found.
        group: Option<String>,
        /// The nodes.
        nodes: NodeSet,
    },
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline { cpus } => write!(f, "offline: CPUs {cpus}"),
            Self::Cpuset { group, hierarchy, cpus } => {
                write!(f, "the cpuset of {hierarchy} group {group} leaves out CPUs {cpus}")
            }
            Self::Isolated { cpus } => write!(f, "isolated at boot: CPUs {cpus}"),
            Self::Mask { cpus } => write!(f, "the inherited CPU mask leaves out CPUs {cpus}"),
            Self::CpusetMems { group: Some(group), nodes } => {
                write!(f, "the cpuset of group {group} leaves out memory nodes {nodes}")
            }
            Self::CpusetMems { group: None, nodes } => {
                write!(f, "a cpuset leaves out memory nodes {nodes}")
            }
        }
    }
}

/// The part of the limits on which a launch is decided. It is read at every start, so it leaves out
/// the causes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The CPUs that all limits permit.
    pub allowed: CpuSet,
    /// The memory nodes that all limits permit; `None` on a kernel without cpusets.
    pub mems: Option<NodeSet>,
    /// The tightest quota of CPU time of the control group and its ancestors.
    pub quota: Option<Quota>,
}

impl Bounds {
    /// Reads the bounds of the calling process, which has the mask `inherited`. `online` and
    /// `nodes` are the kernel's lists of CPUs and nodes that are online, if they are known.
    ///
    /// # Errors
    /// As [`Limits::read`].
    pub fn read(
        root: &Path,
        inherited: &CpuSet,
        online: Option<CpuSet>,
        nodes: Option<NodeSet>,
    ) -> Result<Self, ReadError> {
        let system = root.join("sys/devices/system");
        let online = online.or_else(|| list(&system.join("cpu/online")));
        let nodes = nodes.or_else(|| list(&system.join("node/online")));
        // If one node is online, every process may use it.
        let only = nodes.clone().filter(|nodes| nodes.len() == 1);
        // A system-call filter may forbid the call; reading the status costs three calls and much
        // text.
        let ask = || (root == Path::new("/")).then(mempolicy::allowed).and_then(Result::ok);
        let mems = match only.or_else(ask) {
            Some(mems) => Some(mems),
            None => own_status(root)?.mems,
        };
        Ok(Self {
            allowed: online.map_or_else(|| inherited.clone(), |online| online.intersection(inherited)),
            mems: match (mems, nodes) {
                (Some(mems), Some(nodes)) => Some(mems.intersection(&nodes)),
                (mems, _) => mems,
            },
            quota: cgroup::own_quota(root),
        })
    }
}

/// Reads the status of the calling process.
fn own_status(root: &Path) -> Result<Status, ReadError> {
    let path = root.join("proc/self/status");
    let status = text::read_piece(&path)?;
    Status::parse(&status).map_err(|problem| ReadError::malformed(&path, problem))
}

impl Limits {
    /// Reads the limits of the calling process. `root` is the directory that holds `proc` and
    /// `sys`, `/` on a live machine. `inherited` is the mask of the calling thread if it was read
    /// by system call; otherwise the mask in the process's status is used.
    ///
    /// # Errors
    /// The status of the process cannot be read or is malformed. Everything else that cannot be
    /// read is left out, since a program without a control group, or in a container that hides its
    /// own, still runs.
    pub fn read(root: &Path, inherited: Option<&CpuSet>) -> Result<Self, ReadError> {
        let cpu = root.join("sys/devices/system/cpu");
        let Status { cpus: mask, mems, .. } = own_status(root)?;
        let mask = inherited.unwrap_or(&mask);
        let groups = Groups::of_own_process(root);
        let online: Option<CpuSet> = list(&cpu.join("online"));
        let isolated: Option<CpuSet> = list(&cpu.join("isolated"));

        let mut limiters = Vec::new();
        if let (Some(present), Some(online)) = (list(&cpu.join("present")), &online) {
            limiters.extend(took(CpuSet::difference(&present, online), |cpus| Limiter::Offline { cpus }));
        }
        let allowed = match &online {
            None => mask.clone(),
            Some(online) if online.is_subset(mask) => online.clone(),
            Some(online) => {
                limiters.extend(what_took_cpus(online, mask, isolated.as_ref(), &groups));
                online.intersection(mask)
            }
        };
        let mems = match (mems, list::<OsNode>(&root.join("sys/devices/system/node/online"))) {
            (Some(mems), Some(nodes)) => {
                limiters.extend(took(nodes.difference(&mems), |nodes| Limiter::CpusetMems {
                    group: groups.cpuset_mems().map(|cpuset| cpuset.group),
                    nodes,
                }));
                Some(mems.intersection(&nodes))
            }
            (mems, _) => mems,
        };
        let nohz_full = list(&cpu.join("nohz_full"));
        Ok(Self { online, allowed, mems, quota: groups.quota(), isolated, nohz_full, limiters })
    }
}

/// Returns the causes of the CPUs that are online but not in the mask: first the cpuset, then the
/// isolation at boot, then the inherited mask.
fn what_took_cpus(
    online: &CpuSet,
    mask: &CpuSet,
    isolated: Option<&CpuSet>,
    groups: &Groups,
) -> Vec<Limiter> {
    let missing = online.difference(mask);
    let by_cpuset = groups.cpuset_cpus().map(|Cpuset { members, group, hierarchy }| {
        (missing.difference(&members), move |cpus| Limiter::Cpuset { group, hierarchy, cpus })
    });
    let rest = by_cpuset.as_ref().map_or(missing.clone(), |(taken, _)| missing.difference(taken));
    let by_boot = isolated.map(|isolated| rest.intersection(isolated)).unwrap_or_default();
    let by_mask = rest.difference(&by_boot);
    [
        by_cpuset.and_then(|(cpus, limiter)| took(cpus, limiter)),
        took(by_boot, |cpus| Limiter::Isolated { cpus }),
        took(by_mask, |cpus| Limiter::Mask { cpus }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Makes a limiter of these members, unless there are none.
fn took<T: Id>(taken: Set<T>, limiter: impl FnOnce(Set<T>) -> Limiter) -> Option<Limiter> {
    (!taken.is_empty()).then(|| limiter(taken))
}

/// Returns the mask of the process that started this one: an MPI launcher that binds each rank has
/// a wider mask than its rank. `None` when the parent is outside the process-id namespace.
///
/// # Errors
/// The process or its parent cannot be read, or its files are malformed.
pub fn parent_mask(proc: &Path, pid: Pid) -> Result<Option<CpuSet>, ReadError> {
    match process::stat(proc, pid)?.parent {
        Pid(0) => Ok(None),
        parent => Ok(Some(process::status(proc, parent)?.cpus)),
    }
}

/// Reads a list of the kernel; `None` if it cannot be read or parsed.
fn list<T: Id>(path: &Path) -> Option<Set<T>> {
    text::list(&text::read_piece(path).ok()?)
}

//! Enforcement of holds: the control groups that holds become, and the changes that lead there.
//!
//! **Unit.** One exclusive hold of the machine, with its processes, as the kernel's locks show it.
//!
//! **Problem.** A hold is an agreement: a program that takes no part in it runs on held CPUs, and a
//! user can hold more than the site's limits allow.
//!
//! **Idea.** A granted hold becomes a control group with a cpuset, inside the group in which its
//! processes are already, so that their other limits (memory, number of processes) stay in force.
//! The group is a *partition*: the kernel takes its CPUs away from all other groups, and so from
//! every other task. A hold beyond the limits is refused: it gets no group, and its CPUs become
//! free in the ledger.
//!
//! **Terms.** The *home* of a process is its control group outside the groups of this module. A
//! group is *established* with its CPUs and nodes, processes *enter* it, and it is *sealed* when it
//! becomes a partition.
//!
//! **Properties** (`tests.rs`). The decision depends on the state alone: after its changes, another
//! decision has none. No two sealed groups share a CPU, and none do after any single change. A CPU
//! is left for all other tasks. No hold that is sealed breaks a limit. A process only moves between
//! its home and the group in it.
//!
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files", "Threads".

mod status;
mod text;

pub use status::{EnforcementStatus, HoldStatus};

use crate::set::{CpuSet, NodeSet};
use crate::topology::Machine;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Beginning of the name of a hold's group, before the number of the hold.
const PREFIX: &str = "trimtab.";
/// The user to which no limit applies.
const ROOT: u32 = 0;

/// PartitionKind of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionKind {
    /// The scheduler balances load among the CPUs of the group.
    #[default]
    Root,
    /// The scheduler balances no load: threads stay where their masks bind them.
    Isolated,
}

/// HoldLimits of a site that are enforced.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HoldLimits {
    /// Most cores of one hold.
    pub hold_cores: Option<u32>,
    /// Most cores of all holds of one user.
    pub user_cores: Option<u32>,
    /// CPUs that no hold may have.
    pub reserved: CpuSet,
    /// Whether processes of a hold may use memory of its own nodes only.
    pub memory: bool,
    /// PartitionKind of the partitions.
    pub kind: PartitionKind,
}

/// HoldGroup of a hold: its place, which also is its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct HoldGroup {
    /// The group in which it is, as a path inside the hierarchy.
    pub home: String,
    /// Number of its hold.
    pub hold: u64,
}

/// A process of a hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldMember {
    /// The process.
    pub pid: u32,
    /// Its start, in the kernel's ticks since boot: a later process may have its number.
    pub start: u64,
    /// Its control group, without the group of a hold.
    pub home: String,
    /// The hold that has the group in which it is.
    pub inside: Option<u64>,
}

/// A hold of the machine, with facts of the kernel alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenHold {
    /// Its number.
    pub id: u64,
    /// User of its oldest process.
    pub uid: u32,
    /// Start of its oldest process, in the kernel's ticks.
    pub began: u64,
    /// The CPUs that it has locked.
    pub cpus: CpuSet,
    /// Whether others may lock these CPUs too.
    pub shared: bool,
    /// Its processes.
    pub members: Vec<HoldMember>,
}

/// State of a group's partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seal {
    /// It is no partition.
    Open,
    /// It is one.
    Closed(PartitionKind),
    /// It should be one, and the kernel says why it is none.
    Broken(String),
}

/// A group of a hold, as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenGroup {
    /// The group.
    pub group: HoldGroup,
    /// Whether it has a cpuset and may have processes.
    pub usable: bool,
    /// CPUs that it was given.
    pub cpus: CpuSet,
    /// Nodes that it was given; empty if those of its home.
    pub mems: NodeSet,
    /// Whether it is a partition.
    pub seal: Seal,
}

/// Reason why a hold is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HoldRefusal {
    /// It has more cores than a hold may have.
    HoldCores {
        /// Its cores.
        cores: u32,
        /// The limit.
        most: u32,
    },
    /// With it, its user would have more cores than a user may have.
    UserCores {
        /// The cores of the user's granted holds and of this one.
        cores: u32,
        /// The limit.
        most: u32,
    },
    /// It has CPUs that the site reserves for the system.
    Reserved {
        /// These CPUs.
        cpus: CpuSet,
    },
    /// It has the number of an older hold of its user, as if it were that one.
    SameNumber,
}

/// Reason why a hold stays an agreement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unenforced {
    /// Others may use its CPUs too.
    Shared,
    /// No process of it can be given a group.
    NoProcess,
    /// Its processes are in several control groups.
    SeveralHomes {
        /// Two of them.
        homes: [String; 2],
    },
    /// No CPU would be left for all other tasks.
    NoCpuLeft,
    /// An older hold has some of its CPUs.
    Overlap {
        /// These CPUs.
        cpus: CpuSet,
    },
    /// An older hold of root or of another user has its number, and so the name of its group.
    SameNumber,
}

/// The decision about one hold: its group, or the reason for none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HoldOutcome {
    /// It has this group.
    Granted(HoldGroup),
    /// It has no group, and its CPUs become free.
    Refused(HoldRefusal),
    /// It has no group.
    Left(Unenforced),
}

/// The decision about a hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldVerdict {
    /// The hold.
    pub hold: u64,
    /// Its user.
    pub uid: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its group, or the reason for none.
    pub outcome: HoldOutcome,
}

/// Reason why a group is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupEnd {
    /// Its hold has ended.
    Hold,
    /// Its hold is refused, or stays an agreement from now on.
    Grant,
    /// The processes of its hold are in another control group now.
    Home,
}

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupChange {
    /// The partition ends, processes in the group return to their home, the group is removed.
    GiveBack {
        /// The group.
        group: HoldGroup,
        /// The reason.
        why: GroupEnd,
    },
    /// The partition ends, so that its CPUs can change.
    Unseal {
        /// The group.
        group: HoldGroup,
    },
    /// The CPUs of a refused hold become free in the ledger.
    Void {
        /// The hold.
        hold: u64,
        /// Its CPUs.
        cpus: CpuSet,
        /// The reason.
        why: HoldRefusal,
    },
    /// The group is made, or gets other CPUs or nodes.
    Establish {
        /// The group.
        group: HoldGroup,
        /// Its CPUs.
        cpus: CpuSet,
        /// Its nodes; empty for those of its home.
        mems: NodeSet,
    },
    /// Processes enter the group.
    Enter {
        /// The group.
        group: HoldGroup,
        /// The processes, each with its start.
        pids: BTreeMap<u32, u64>,
    },
    /// The group becomes a partition.
    Seal {
        /// The group.
        group: HoldGroup,
        /// Its CPUs.
        cpus: CpuSet,
        /// PartitionKind of the partition.
        kind: PartitionKind,
    },
}

impl GroupChange {
    /// Returns the hold that the change is for.
    pub fn hold(&self) -> u64 {
        match self {
            Self::Void { hold, .. } => *hold,
            Self::GiveBack { group, .. }
            | Self::Unseal { group }
            | Self::Establish { group, .. }
            | Self::Enter { group, .. }
            | Self::Seal { group, .. } => group.hold,
        }
    }
}

/// Decisions about all holds, and the changes in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Enforcement {
    /// One for each hold, the oldest first.
    pub verdicts: Vec<HoldVerdict>,
    /// The changes.
    pub changes: Vec<GroupChange>,
}

impl HoldGroup {
    /// Returns the path of the group inside the hierarchy.
    pub fn path(&self) -> String {
        let home = self.home.trim_end_matches('/');
        format!("{home}/{PREFIX}{:x}", self.hold)
    }

    /// Returns the group of a hold with this path; `None` for a path of another group.
    pub fn of_path(path: &str) -> Option<Self> {
        let (home, name) = path.rsplit_once('/')?;
        let digits = name.strip_prefix(PREFIX)?;
        let hold = u64::from_str_radix(digits, 16).ok().filter(|number| *number != 0)?;
        let home = if home.is_empty() { "/" } else { home };
        let group = Self { home: home.to_owned(), hold };
        // Only the spelling that `path` has: no sign, no zeros before the number.
        (group.path() == path).then_some(group)
    }
}

/// Decides about all holds of the machine. `groups` are all groups of holds.
///
/// # Examples
/// ```
/// use trimtab_core::enforce::{HoldLimits, HoldMember, HoldOutcome, SeenHold, GroupChange, decide};
/// use trimtab_core::topology::parse_synthetic;
///
/// let machine = parse_synthetic("core:4").unwrap();
/// let home = "/user.slice/session-3.scope".to_owned();
/// let hold = SeenHold {
///     id: 0x1a,
///     uid: 1000,
///     began: 7,
///     cpus: "1-2".parse().unwrap(),
///     shared: false,
///     members: vec![HoldMember { pid: 4711, start: 7, home, inside: None }],
/// };
/// let turn = decide(&machine, &HoldLimits::default(), &[hold], &[]);
/// let HoldOutcome::Granted(group) = &turn.verdicts[0].outcome else { panic!("{turn:?}") };
/// assert_eq!(group.path(), "/user.slice/session-3.scope/trimtab.1a");
/// assert!(matches!(
///     turn.changes[..],
///     [GroupChange::Establish { .. }, GroupChange::Enter { .. }, GroupChange::Seal { .. }]
/// ));
/// ```
pub fn decide(
    machine: &Machine,
    limits: &HoldLimits,
    holds: &[SeenHold],
    groups: &[SeenGroup],
) -> Enforcement {
    let mut oldest: Vec<&SeenHold> = holds.iter().collect();
    oldest.sort_by_key(|hold| (hold.began, hold.id));
    let mut granted = GrantedHolds::default();
    let verdicts: Vec<HoldVerdict> = oldest
        .iter()
        .map(|hold| {
            let outcome = outcome(machine, limits, hold, &mut granted);
            HoldVerdict { hold: hold.id, uid: hold.uid, cpus: hold.cpus.clone(), outcome }
        })
        .collect();
    let mut changes = endings(machine, limits, &verdicts, groups);
    for (hold, verdict) in oldest.iter().zip(&verdicts) {
        match &verdict.outcome {
            HoldOutcome::Granted(group) => changes.extend(advances(machine, limits, hold, group, groups)),
            HoldOutcome::Refused(why) => {
                changes.push(GroupChange::Void { hold: hold.id, cpus: hold.cpus.clone(), why: why.clone() });
            }
            HoldOutcome::Left(_) => {}
        }
    }
    Enforcement { verdicts, changes }
}

/// Holds that were granted so far in a decision.
#[derive(Default)]
struct GrantedHolds {
    /// CPUs of those that have a group.
    cpus: CpuSet,
    /// CPUs of all holds of each user. Shared holds may have the same ones.
    of_users: BTreeMap<u32, CpuSet>,
    /// Numbers of all holds, each with the users that have a hold of it.
    numbers: BTreeMap<u64, BTreeSet<u32>>,
}

fn outcome(
    machine: &Machine,
    limits: &HoldLimits,
    hold: &SeenHold,
    granted: &mut GrantedHolds,
) -> HoldOutcome {
    let users = granted.numbers.entry(hold.id).or_default();
    let (is_first, is_own) = (users.is_empty(), !users.insert(hold.uid));
    if is_own && !hold.shared && hold.uid != ROOT {
        // The kernel's locks show several holds where the launcher makes one: a pretence. Shared
        // holds may have one number, such as those of a job's ranks, of which one is resized.
        return HoldOutcome::Refused(HoldRefusal::SameNumber);
    }
    if let Some(refusal) = refusal(machine, limits, hold, granted) {
        return HoldOutcome::Refused(refusal);
    }
    let of_user = granted.of_users.entry(hold.uid).or_default();
    *of_user = of_user.union(&hold.cpus);
    let overlap = hold.cpus.intersection(&granted.cpus);
    let with_it = granted.cpus.union(&hold.cpus);
    let mut homes: Vec<&String> = hold.members.iter().map(|member| &member.home).collect();
    homes.sort_unstable();
    homes.dedup();
    let group = match homes[..] {
        _ if hold.shared => return HoldOutcome::Left(Unenforced::Shared),
        _ if !is_first => return HoldOutcome::Left(Unenforced::SameNumber),
        [] => return HoldOutcome::Left(Unenforced::NoProcess),
        [home] => HoldGroup { home: home.clone(), hold: hold.id },
        [one, other, ..] => {
            return HoldOutcome::Left(Unenforced::SeveralHomes { homes: [one.clone(), other.clone()] });
        }
    };
    if !overlap.is_empty() {
        return HoldOutcome::Left(Unenforced::Overlap { cpus: overlap });
    }
    if machine.cpus().is_subset(&with_it) {
        return HoldOutcome::Left(Unenforced::NoCpuLeft);
    }
    granted.cpus = with_it;
    HoldOutcome::Granted(group)
}

fn refusal(
    machine: &Machine,
    limits: &HoldLimits,
    hold: &SeenHold,
    granted: &GrantedHolds,
) -> Option<HoldRefusal> {
    if hold.uid == ROOT {
        return None;
    }
    let reserved = hold.cpus.intersection(&limits.reserved);
    if !reserved.is_empty() {
        return Some(HoldRefusal::Reserved { cpus: reserved });
    }
    let own = cores(machine, &hold.cpus);
    if let Some(most) = limits.hold_cores.filter(|most| own > *most) {
        return Some(HoldRefusal::HoldCores { cores: own, most });
    }
    let before = granted.of_users.get(&hold.uid);
    let all = before.map_or(own, |before| cores(machine, &before.union(&hold.cpus)));
    let most = limits.user_cores.filter(|most| all > *most)?;
    Some(HoldRefusal::UserCores { cores: all, most })
}

/// Returns the number of cores of which a set has a CPU. A CPU that the machine's model does not
/// have, plugged in since, counts as a core.
fn cores(machine: &Machine, cpus: &CpuSet) -> u32 {
    let (known, strange): (Vec<_>, Vec<_>) =
        cpus.iter().map(|cpu| machine.pu(cpu)).partition(Option::is_some);
    let cores: BTreeSet<_> = known.into_iter().flatten().map(|pu| machine.core_of(pu)).collect();
    u32::try_from(cores.len() + strange.len()).unwrap_or(u32::MAX)
}

/// Returns the nodes that a group gets.
fn nodes(machine: &Machine, limits: &HoldLimits, cpus: &CpuSet) -> NodeSet {
    if !limits.memory {
        return NodeSet::new();
    }
    let near = machine.nodes_of(cpus);
    let empty = |node: &&crate::topology::Node| node.bytes == Some(0);
    let without: NodeSet = machine.nodes().iter().filter(empty).map(|node| node.os).collect();
    // Of cores without memory of their own, the home's nodes stay.
    near.difference(&without)
}

/// Returns the ends of groups and of partitions. They come first, so that CPUs that go from one
/// hold to another are free in between.
fn endings(
    machine: &Machine,
    limits: &HoldLimits,
    verdicts: &[HoldVerdict],
    groups: &[SeenGroup],
) -> Vec<GroupChange> {
    let mut changes = Vec::new();
    for seen in groups {
        let verdict = verdicts.iter().find(|verdict| verdict.hold == seen.group.hold);
        let give_back = |why| GroupChange::GiveBack { group: seen.group.clone(), why };
        match verdict.map(|verdict| (&verdict.outcome, &verdict.cpus)) {
            None => changes.push(give_back(GroupEnd::Hold)),
            Some((HoldOutcome::Granted(group), cpus)) if *group == seen.group => {
                let differs = seen.cpus != *cpus || seen.mems != nodes(machine, limits, cpus);
                if (differs || !seen.usable) && seen.seal != Seal::Open {
                    changes.push(GroupChange::Unseal { group: seen.group.clone() });
                }
            }
            Some((HoldOutcome::Granted(_), _)) => changes.push(give_back(GroupEnd::Home)),
            Some(_) => changes.push(give_back(GroupEnd::Grant)),
        }
    }
    changes
}

/// Returns the changes that a granted hold still needs.
fn advances(
    machine: &Machine,
    limits: &HoldLimits,
    hold: &SeenHold,
    group: &HoldGroup,
    groups: &[SeenGroup],
) -> Vec<GroupChange> {
    let mut changes = Vec::new();
    let mems = nodes(machine, limits, &hold.cpus);
    let seen = groups.iter().find(|seen| seen.group == *group);
    let ready = seen.is_some_and(|seen| seen.usable && seen.cpus == hold.cpus && seen.mems == mems);
    if !ready {
        changes.push(GroupChange::Establish { group: group.clone(), cpus: hold.cpus.clone(), mems });
    }
    let outside = hold.members.iter().filter(|member| member.inside != Some(hold.id));
    let pids: BTreeMap<u32, u64> = outside.map(|member| (member.pid, member.start)).collect();
    if !pids.is_empty() {
        changes.push(GroupChange::Enter { group: group.clone(), pids });
    }
    if !ready || seen.is_none_or(|seen| seen.seal != Seal::Closed(limits.kind)) {
        changes.push(GroupChange::Seal { group: group.clone(), cpus: hold.cpus.clone(), kind: limits.kind });
    }
    changes
}

#[cfg(test)]
mod tests;

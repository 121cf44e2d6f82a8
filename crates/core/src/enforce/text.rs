//! Enforcement in words.

use super::{GroupChange, GroupEnd, HoldOutcome, HoldRefusal, PartitionKind, Unenforced};
use crate::words::plural;
use std::fmt;
use std::str::FromStr;

impl PartitionKind {
    /// Returns the kernel's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Isolated => "isolated",
        }
    }
}

impl FromStr for PartitionKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Root, Self::Isolated];
        let found = known.into_iter().find(|kind| kind.word() == text);
        found.ok_or_else(|| format!("\"{text}\" is no kind of partition (known: root, isolated)"))
    }
}

impl fmt::Display for HoldRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HoldCores { cores, most } => {
                write!(f, "it has {}, and a run may have {most} (max-cores)", plural(*cores, "core"))
            }
            Self::UserCores { cores, most } => write!(
                f,
                "with it its user would have {}, and a user may have {most} (max-cores-per-user)",
                plural(*cores, "core")
            ),
            Self::Reserved { cpus } => write!(f, "CPUs {cpus} are reserved for the system (reserved-cpus)"),
            Self::SameNumber => f.write_str("it has the number of an older hold of its user"),
        }
    }
}

impl fmt::Display for Unenforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("its CPUs are shared (ranks of a job, or --share)"),
            Self::NoProcess => f.write_str(
                "none of its processes can be given a group: it is kept for a container, a machine or a group, or its process holds cores for others",
            ),
            Self::SeveralHomes { homes: [one, other] } => {
                write!(f, "its processes are in several control groups ({one}, {other})")
            }
            Self::NoCpuLeft => f.write_str("no CPU would be left for all other tasks"),
            Self::Overlap { cpus } => write!(f, "an older hold has CPUs {cpus}"),
            Self::SameNumber => f.write_str("an older hold has its number"),
        }
    }
}

impl fmt::Display for HoldOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(group) => write!(f, "enforced by {}", group.path()),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Left(why) => write!(f, "only agreed: {why}"),
        }
    }
}

impl fmt::Display for GroupEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hold => "its hold has ended",
            Self::Grant => "its hold is not granted any more",
            Self::Home => "the processes of its hold are in another control group",
        })
    }
}

impl fmt::Display for GroupChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GiveBack { group, why } => write!(f, "give back {}: {why}", group.path()),
            Self::Unseal { group } => write!(f, "open {}: its CPUs or nodes change", group.path()),
            Self::Void { hold, cpus, why } => write!(f, "free CPUs {cpus} of hold {hold:#x}: {why}"),
            Self::Establish { group, cpus, mems } if mems.is_empty() => {
                write!(f, "give {} the CPUs {cpus}", group.path())
            }
            Self::Establish { group, cpus, mems } => {
                write!(f, "give {} the CPUs {cpus} and the memory nodes {mems}", group.path())
            }
            Self::Enter { group, pids } => {
                let pids: Vec<String> = pids.keys().map(u32::to_string).collect();
                write!(f, "move into {}: process {}", group.path(), pids.join(", "))
            }
            Self::Seal { group, cpus, kind } => {
                write!(
                    f,
                    "keep all others off CPUs {cpus}: {} becomes a partition ({})",
                    group.path(),
                    kind.word()
                )
            }
        }
    }
}

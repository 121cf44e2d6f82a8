//! State of a service that enforces holds, for its status.

use super::PartitionKind;
use crate::set::CpuSet;
use serde::{Deserialize, Serialize};

/// State of enforcement.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EnforcementStatus {
    /// Whether nothing is changed, and each change is only reported.
    pub observe: bool,
    /// Kind of the partitions.
    pub kind: PartitionKind,
    /// The holds of the machine, the oldest first.
    pub holds: Vec<HoldStatus>,
    /// Reason why the holds could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// State of a hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldStatus {
    /// Number of the hold, as `trimtab ps --json` shows it.
    pub hold: String,
    /// Its user.
    pub uid: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Whether other tasks are kept off its CPUs.
    pub enforced: bool,
    /// The decision about it, in words.
    pub outcome: String,
    /// Reason why the last change failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

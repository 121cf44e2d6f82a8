//! What a daemon says of itself.

use super::{By, Mark, PortState};
use crate::set::CpuSet;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What is tagged, by whom, what was done, and what that costs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: u32,
    /// The daemon's user.
    pub uid: u32,
    /// The policy, by its word.
    pub policy: String,
    /// How long it has run.
    pub up: Span,
    /// The CPUs that threads may be moved to.
    pub usable: CpuSet,
    /// Threads tagged now, of all users.
    pub threads: u32,
    /// Moves that were made.
    pub moves: u64,
    /// Moves that the kernel, or somebody's own binding, refused.
    pub refused: u64,
    /// Rounds of looking and deciding.
    pub looks: u64,
    /// What it costs.
    pub cost: Cost,
    /// The tags that whoever asks may see: one's own, and to root and the daemon's user all.
    pub tags: Vec<TagStatus>,
    /// How many more there are.
    pub others: u32,
    /// The guests that are listened to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<GuestStatus>,
    /// Who connected.
    pub clients: ClientStatus,
    /// What does not work, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// What a daemon costs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the whole process since it began.
    pub total: Span,
    /// The share of one core that the rounds took lately; missing before the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The share that they may take.
    pub budget: f64,
    /// Rounds that came later than the policy wanted, to stay within that.
    pub slowed: u64,
}

/// A tag, as it is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TagStatus {
    /// What.
    pub mark: Mark,
    /// By whom.
    pub by: By,
    /// As part of which group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Since when, before now.
    pub age: Span,
    /// How many threads that are now.
    pub threads: u32,
    /// How often they were moved.
    pub moves: u64,
    /// Why nothing is done about it, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A guest, as it is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Its machine.
    pub vm: String,
    /// Where it is heard.
    pub channel: String,
    /// Whether it is.
    pub state: PortState,
    /// Lines heard.
    pub lines: u64,
    /// Lines that meant nothing.
    pub garbage: u64,
    /// Lines that came too fast.
    pub dropped: u64,
    /// Lines about CPUs that the machine has not.
    pub unknown: u64,
}

/// Who connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Connections now.
    pub now: u32,
    /// Connections that were served.
    pub served: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Connections that were closed for being too many, too slow, or not speaking the protocol.
    pub dropped: u64,
}

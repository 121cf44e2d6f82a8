//! Status of a daemon.

use super::{By, Mark, PortState, Why};
use crate::enforce::EnforcementStatus;
use crate::set::CpuSet;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Status of a daemon: tags with their requesters, moves, and cost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Process of the daemon.
    pub pid: u32,
    /// User of the daemon.
    pub uid: u32,
    /// Policy, by its word.
    pub policy: String,
    /// Time since the start.
    pub up: Span,
    /// CPUs to which threads may be moved.
    pub usable: CpuSet,
    /// Number of tagged threads now, of all users.
    pub threads: u32,
    /// Number of moves made.
    pub moves: u64,
    /// Number of moves refused by the kernel, or because of the thread's own mask.
    pub refused: u64,
    /// Whether the daemon only observes: it says what it would have moved, and moves nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
    /// Number of moves that were withheld because they are only observed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub withheld: u64,
    /// Number of rounds of sampling and deciding.
    pub looks: u64,
    /// Cost of the daemon.
    pub cost: Cost,
    /// Tags visible to the requester: the user's own, or all for root and the daemon's user.
    pub tags: Vec<TagStatus>,
    /// Number of tags that are not visible.
    pub others: u32,
    /// Guests with a port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<GuestStatus>,
    /// Counts of connections.
    pub clients: ClientStatus,
    /// Faults, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// State of the enforcement of holds, if the daemon enforces them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<EnforcementStatus>,
}

/// Cost of a daemon.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the whole process since its start.
    pub total: Span,
    /// Share of one core that recent rounds took; missing before the second round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Share of one core that rounds may take.
    pub budget: f64,
    /// Number of rounds that were delayed to stay within the budget.
    pub slowed: u64,
}

/// Status of a tag.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TagStatus {
    /// Tagged object.
    pub mark: Mark,
    /// Requester.
    pub by: By,
    /// Group of the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Age of the tag.
    pub age: Span,
    /// Number of its threads now.
    pub threads: u32,
    /// Number of moves of its threads.
    pub moves: u64,
    /// Whether its threads are only observed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
    /// Reason why the tag has no effect, if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Last decision about its threads, and the reason why nothing is done.
    #[serde(default)]
    pub why: Why,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Status of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Name of the machine.
    pub vm: String,
    /// Channel of the port.
    pub channel: String,
    /// State of the port.
    pub state: PortState,
    /// Number of valid lines.
    pub lines: u64,
    /// Number of malformed lines.
    pub garbage: u64,
    /// Number of lines beyond the rate limit.
    pub dropped: u64,
    /// Number of lines about CPUs that the machine does not have.
    pub unknown: u64,
}

/// Counts of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Number of open connections.
    pub now: u32,
    /// Number of connections served.
    pub served: u64,
    /// Number of requests answered.
    pub requests: u64,
    /// Number of requests refused.
    pub refused: u64,
    /// Number of connections that were closed for being too many, too slow, or not speaking the
    /// protocol.
    pub dropped: u64,
}

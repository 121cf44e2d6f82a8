//! Which model of the kernel's scheduler runs below the policies, with which constants.

use serde::{Deserialize, Serialize};
use trimtab_core::time::Span;

/// The models.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Queue lengths, as kernels of 2008 to 2010 balanced them: never fixes a difference of one.
    Load,
    /// Today's: eligible virtual deadlines, idle pull, periodic balancing of domains, the odd thread rotates.
    #[default]
    Eevdf,
    /// Round slices with stealing from queues behind: Li, Baumberger and Hahn, PPoPP 2009.
    Dwrr,
    /// Threads stay where they start, round robin.
    Pinned,
    /// Xen's credits for virtual CPUs.
    Credit,
}

/// What a call of yield does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Yielding {
    /// To the tail of the queue: whoever computes goes first.
    #[default]
    Posix,
    /// A hint: the caller soon runs again, and keeps about its fair share.
    Hint,
}

/// A scheduler and its constants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// Which.
    pub kind: Kind,
    /// The timer tick: preemption happens at its multiples.
    pub tick: Span,
    /// How long a thread runs before another of equal right does.
    pub slice: Span,
    /// What yield does.
    pub yielding: Yielding,
    /// Periodic balancing: a domain of w CPUs is looked at every w times this when idle ...
    pub balance: Span,
    /// ... and this many times less often when busy.
    pub busy_factor: u32,
    /// Whether sessions share, instead of threads.
    pub groups: bool,
    /// Whether a CPU that falls idle looks for work elsewhere.
    pub idle_pull: bool,
}

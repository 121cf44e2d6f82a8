//! Reasons of a launch: messages of a decision for the user, in the order in which they are shown.

use serde::Serialize;

/// Importance of a reason to a user without any option about messages. [`LaunchReason`] has an
/// example.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Detail of the preceding note.
    Detail,
    /// Choice and its cause.
    Note,
    /// The single line with the amount and the location.
    Headline,
    /// Default that may surprise.
    Notice,
    /// A request is not met.
    Warning,
}

/// Part of a launch that a reason is about. [`LaunchReason`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// Machine, limits and rules.
    Machine,
    /// Saved tuning.
    Tuning,
    /// Rank of a parallel job.
    Rank,
    /// Reservation of the cores.
    Ledger,
    /// File of the program.
    Program,
    /// MPI launchers.
    Launcher,
    /// Nested OpenMP teams.
    Nesting,
    /// Cores and slots.
    Placement,
    /// Preload library and pinning.
    Threads,
    /// Environment variables.
    Environment,
    /// How threads wait.
    Waiting,
    /// Memory policy and huge pages.
    Memory,
}

/// Message about one aspect of a launch.
///
/// # Examples
/// ```
/// use trimtab_launch::reason::Topic;
/// use trimtab_launch::{LaunchReason, Level};
///
/// let reasons = [
///     LaunchReason::note(Topic::Memory, "memory is preferred on node 0"),
///     LaunchReason::notice(Topic::Ledger, "other runs hold 2 cores"),
///     LaunchReason::warning(Topic::Ledger, "nothing can be reserved"),
///     LaunchReason::new(Topic::Placement, Level::Headline, "4 cores: CPUs 0-3"),
/// ];
/// // The lines that a quiet run shows.
/// let loud = reasons.iter().filter(|reason| reason.level >= Level::Warning);
/// let texts: Vec<&str> = loud.map(|reason| reason.text.as_str()).collect();
/// assert_eq!(texts, ["nothing can be reserved"]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LaunchReason {
    /// Part of the launch.
    pub topic: Topic,
    /// Importance.
    pub level: Level,
    /// Text for the user.
    pub text: String,
}

impl LaunchReason {
    /// Creates a reason. [`LaunchReason`] has an example.
    pub fn new(topic: Topic, level: Level, text: impl Into<String>) -> Self {
        Self { topic, level, text: text.into() }
    }

    /// Creates a warning: a request is not met. [`LaunchReason`] has an example.
    pub fn warning(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(topic, Level::Warning, text)
    }

    /// Creates a notice: a default may surprise. [`LaunchReason`] has an example.
    pub fn notice(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(topic, Level::Notice, text)
    }

    /// Creates a note: a choice and its cause. [`LaunchReason`] has an example.
    pub fn note(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(topic, Level::Note, text)
    }
}

//! Reasons of a launch: what a decision says of itself, for people, in the order in which it is
//! told.

use serde::Serialize;

/// How important a reason is to a user who asked for nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// A detail of the note before it.
    Detail,
    /// A choice and its cause.
    Note,
    /// The one line that says how much and where.
    Headline,
    /// A default that may surprise.
    Notice,
    /// Something is not as asked.
    Warning,
}

/// The part of a launch that a reason is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// Machine, limits and rules.
    Machine,
    /// The kept tuning.
    Tuning,
    /// Rank of a parallel job.
    Rank,
    /// Reservation of the cores.
    Ledger,
    /// The program's file.
    Program,
    /// MPI launchers.
    Launcher,
    /// Nested OpenMP teams.
    Nesting,
    /// Cores and slots.
    Placement,
    /// Preload library and pins.
    Threads,
    /// Variables.
    Environment,
    /// How threads wait.
    Waiting,
    /// Memory policy and huge pages.
    Memory,
}

/// One reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LaunchReason {
    /// Its part of the launch.
    pub topic: Topic,
    /// Its importance.
    pub level: Level,
    /// The words.
    pub text: String,
}

impl LaunchReason {
    /// A reason.
    pub fn new(topic: Topic, level: Level, text: impl Into<String>) -> Self {
        Self { topic, level, text: text.into() }
    }

    /// Something that is not as asked.
    pub fn warning(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(topic, Level::Warning, text)
    }

    /// A default that may surprise.
    pub fn notice(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(topic, Level::Notice, text)
    }

    /// A choice and its cause.
    pub fn note(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(topic, Level::Note, text)
    }
}

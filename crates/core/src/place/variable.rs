//! Environment variable of a plan: a value, its reader, and what is done about the user's own.

use serde::Serialize;

/// Action on one variable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// The plan sets it.
    Set {
        /// The value.
        value: String,
    },
    /// The user set it, and it stays.
    Kept {
        /// The user's value.
        value: String,
    },
    /// The user set it to more threads than the run has CPUs, and it is lowered.
    Fitted {
        /// The lowered value.
        value: String,
        /// The user's value.
        from: String,
    },
    /// The user set it, and it is removed.
    Removed {
        /// The user's value.
        value: String,
        /// The reason, in words.
        why: String,
    },
    /// It is not set.
    Unset {
        /// The reason, in words.
        why: String,
    },
}

/// Environment variable of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// Runtime that reads it.
    pub reader: &'static str,
    /// Action on it.
    #[serde(flatten)]
    pub action: Action,
}

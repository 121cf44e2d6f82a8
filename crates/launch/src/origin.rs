//! Origin of a value of a launch request.

use serde::Serialize;

/// Source of a value. [`LaunchRequest::merge`](crate::LaunchRequest::merge) has an example.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "from", content = "of", rename_all = "kebab-case")]
pub enum ValueOrigin {
    /// The default.
    Default,
    /// Command-line option.
    Option,
    /// Environment variable of the user.
    Variable(String),
    /// Saved tuning with this name.
    Tuning(String),
    /// Rule for this pattern.
    Rule(String),
    /// MPI launcher that started this process.
    Launcher(String),
}

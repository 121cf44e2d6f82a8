//! Narrator: the front end's receiver of messages from long-lived work.
//!
//! This crate writes to no terminal. It composes a line and gives its severity; the front end
//! decides whether and where the line is shown.

use std::fmt::Debug;

/// Importance of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// A possible attack, or possible loss of work: shown also if only errors are wanted.
    Alert,
    /// A request is not met in full, and work continues.
    Warning,
    /// An automatic action that would surprise the user.
    Notice,
    /// The one line that sums up a command.
    Headline,
    /// A detail, for following each step.
    Detail,
}

/// Receiver of lines, in order, from any thread.
pub trait Narrator: Debug + Send + Sync {
    /// Takes one line, without its newline.
    fn say(&self, level: Severity, line: &str);

    /// Takes a [`Severity::Alert`].
    fn alert(&self, line: &str) {
        self.say(Severity::Alert, line);
    }

    /// Takes a [`Severity::Warning`].
    fn warning(&self, line: &str) {
        self.say(Severity::Warning, line);
    }

    /// Takes a [`Severity::Notice`].
    fn notice(&self, line: &str) {
        self.say(Severity::Notice, line);
    }

    /// Takes a [`Severity::Headline`].
    fn headline(&self, line: &str) {
        self.say(Severity::Headline, line);
    }

    /// Takes a [`Severity::Detail`].
    fn detail(&self, line: &str) {
        self.say(Severity::Detail, line);
    }
}

/// Narrator that drops every line.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Narrator for Silent {
    fn say(&self, _: Severity, _: &str) {}
}

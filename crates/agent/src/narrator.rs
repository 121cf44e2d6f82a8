//! The narrator: the front end's ear for what happens while something long-lived runs.
//!
//! This crate writes to no terminal. It composes a line and says how much it matters; the front end
//! decides whether and where the line is shown.

use std::fmt::Debug;

/// How much a line matters, and to which readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Something that may be an attack or cost work: said also where only errors are wanted.
    Alert,
    /// Something is not as asked, and work goes on.
    Warning,
    /// Something happens by itself and would surprise.
    Notice,
    /// The one line that sums up what a command does or did.
    Headline,
    /// A detail, for following each step.
    Detail,
}

/// Takes lines in the order in which they are said, from any thread.
pub trait Narrator: Debug + Send + Sync {
    /// Takes one line, without its end.
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

/// A narrator that drops every line.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Narrator for Silent {
    fn say(&self, _: Severity, _: &str) {}
}

//! Messages to the user on stderr, one line each; stdout is for results and for the child.
#![expect(clippy::print_stderr, reason = "this is the one place that writes there")]

use crate::exit::Exit;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal};
use trimtab_agent::narrator::{Narrator, Severity};

/// Amount of messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Volume {
    /// Errors only.
    Quiet,
    /// Messages that the user should know.
    Normal,
    /// Choices with their reasons, too.
    Verbose,
}

impl Volume {
    /// Converts the two flags.
    pub fn of(quiet: bool, verbose: bool) -> Self {
        match (quiet, verbose) {
            (true, _) => Self::Quiet,
            (_, true) => Self::Verbose,
            _ => Self::Normal,
        }
    }
}

impl Narrator for Volume {
    fn say(&self, level: Severity, line: &str) {
        match level {
            Severity::Alert => warning(Self::Normal, line),
            Severity::Warning => warning(*self, line),
            Severity::Notice => notice(*self, line),
            Severity::Headline => headline(*self, line),
            Severity::Detail => note(*self, line),
        }
    }
}

/// Prints a line in one write, so that the lines of several runs do not mix.
fn line(text: &dyn Display) {
    let line = format!("trimtab: {text}\n");
    eprint!("{line}");
}

/// Prints an error that ends the command.
pub fn error(error: &Exit) {
    line(&error);
}

/// Prints a warning: a request is not met in full, and work continues.
pub fn warning(volume: Volume, text: &str) {
    if volume > Volume::Quiet {
        line(&format_args!("warning: {text}"));
    }
}

/// Prints a remark.
pub fn note(volume: Volume, text: &str) {
    if volume == Volume::Verbose {
        line(&text);
    }
}

/// Prints a notice of an automatic action that would surprise the user.
pub fn notice(volume: Volume, text: &str) {
    if volume > Volume::Quiet {
        line(&text);
    }
}

/// Prints the one line that sums up a run: to a person at a terminal, or when asked.
pub fn headline(volume: Volume, text: &str) {
    if volume == Volume::Verbose || (volume == Volume::Normal && std::io::stderr().is_terminal()) {
        line(&text);
    }
}

/// Prints a requested report, on stderr: the program owns stdout.
pub fn report(text: &str) {
    eprint!("{text}");
}

/// Returns whether an error only means that the reader of our output is gone.
pub fn is_broken_pipe(error: &Exit) -> bool {
    let causes = error.cause.chain();
    causes
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == ErrorKind::BrokenPipe)
}

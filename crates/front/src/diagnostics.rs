//! Words for people, on stderr, one line each; stdout belongs to machine output and to the child.
#![expect(clippy::print_stderr, reason = "this is the one place that writes there")]

use crate::exit::Exit;
use std::io::{ErrorKind, IsTerminal};
use trimtab_agent::narrator::{Narrator, Severity};

/// How much is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Volume {
    /// Errors only.
    Quiet,
    /// What the user should know.
    Normal,
    /// What was chosen and why.
    Verbose,
}

impl Volume {
    /// From the two flags.
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

/// An error: the command ends.
pub fn error(error: &Exit) {
    eprintln!("trimtab: {error}");
}

/// Something is not as asked, and work goes on.
pub fn warning(volume: Volume, text: &str) {
    if volume > Volume::Quiet {
        eprintln!("trimtab: warning: {text}");
    }
}

/// A remark.
pub fn note(volume: Volume, text: &str) {
    if volume == Volume::Verbose {
        eprintln!("trimtab: {text}");
    }
}

/// Something that happens by itself and that nobody should be surprised by.
pub fn notice(volume: Volume, text: &str) {
    if volume > Volume::Quiet {
        eprintln!("trimtab: {text}");
    }
}

/// The one line that says what a run got: to a person at a terminal, or when asked.
pub fn headline(volume: Volume, text: &str) {
    if volume == Volume::Verbose || (volume == Volume::Normal && std::io::stderr().is_terminal()) {
        eprintln!("trimtab: {text}");
    }
}

/// A report that was asked for, on stderr: the program owns stdout.
pub fn report(text: &str) {
    eprint!("{text}");
}

/// Whether an error is only that nobody reads our output any more.
pub fn is_broken_pipe(error: &Exit) -> bool {
    let causes = error.cause.chain();
    causes
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == ErrorKind::BrokenPipe)
}

//! Exit statuses, and the errors that carry them.

use std::fmt;

/// Success, or the answer is yes.
pub const DONE: u8 = 0;
/// The answer is no: something to change, or a plan that is not good.
pub const NO: u8 = 1;
/// A command other than `run` failed.
pub const FAILED: u8 = 2;
/// `run`: not enough free cores now, or not within `--wait=TIME`.
pub const NO_CORES: u8 = 124;
/// `run`: trimtab itself failed before the program started.
pub const RUN_FAILED: u8 = 125;
/// `run`: the program was found but cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// `run`: the program was not found.
pub const NOT_FOUND: u8 = 127;

/// Returns the status that a shell shows for an end by a signal.
pub fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(FAILED, |signal| signal.saturating_add(128))
}

/// Error that ends the command with a status of its own.
#[derive(Debug)]
pub struct Exit {
    /// The status.
    pub status: u8,
    /// The cause, one line.
    pub cause: anyhow::Error,
}

impl Exit {
    /// Makes an error with this status.
    pub fn new(status: u8, cause: impl Into<anyhow::Error>) -> Self {
        Self { status, cause: cause.into() }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        for cause in self.cause.chain() {
            let text = cause.to_string();
            // Some errors quote their source; once is enough.
            if said.is_empty() {
                said = text;
            } else if !said.contains(&text) {
                said = format!("{said}: {text}");
            }
        }
        f.write_str(&said)
    }
}

impl std::error::Error for Exit {}

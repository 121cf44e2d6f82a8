//! Jobserver of a hold: the tokens that its build tools share.
//!
//! Unit: a *token*, the right of a build tool to run one more job than the job it always has.
//! Problem: each build tool counts the cores and starts as many jobs, so that two builds, or a
//! build inside a build, start twice as many. make, cargo and ninja can take their tokens from one
//! pipe instead, which GNU make calls a jobserver. Its protocol cannot lose a token by rule, but
//! does in fact: a tool that is killed takes its tokens along. And a token stands for a core also
//! while its job sleeps, or computes with a thread on each core.
//!
//! Idea: the run's parent observes how many tasks of the run compute and how many tokens are
//! unclaimed, and corrects the number of tokens ([`upkeep`]): jobs that compute plus tokens that
//! are unclaimed should be the cores.
//!
//! # Design
//!
//! - *Owner.* The pipe is made by the launcher, which stays as the parent of the program. The
//!   program inherits both ends, and so does each descendant that does not close them. The tokens
//!   last as long as one of these processes lives: if the parent is killed, the build goes on, and
//!   only the corrections end.
//! - *Place.* The pipe has no name in any folder. Its path is `/proc/PID/fd/N`, an entry of the
//!   process that becomes the program: the kernel opens it for the same user only, no other file
//!   can be put in its place, and nothing is left behind. The price: a tool in another process-id
//!   namespace, or after the end of the program, cannot open it, and falls back to one job.
//! - *Number.* A tool has one job without a token, so there are as many tokens as cores, less one.
//!   Each further tool that runs beside the first adds such a job; [`upkeep`] withholds tokens
//!   while more tasks compute than there are cores.
//! - *Form.* GNU make reads a path since 4.4, and stops with an error at it before; ninja reads
//!   nothing else. Each launch has one [`Form`], chosen by the tools that it finds.
//! - *Threads of OpenMP programs* in jobs are computing tasks like any other: tokens are withheld
//!   while they compute.
//!
//! Sources: GNU make's manual, "Sharing Job Slots with GNU make"; ninja 1.13's
//! `src/jobserver.cc`; the crate `jobserver`, which cargo uses.

pub mod flags;
pub mod upkeep;

#[cfg(test)]
mod tests;

use serde::Serialize;
use std::fmt;

/// Largest number of tokens. A pipe holds 65,536 bytes, and the crate `jobserver` makes no more
/// tokens than this either.
pub const TOKENS_MAX: u32 = 4096;

/// Form in which a tool is told where the tokens are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A path, which each tool opens for itself.
    Fifo,
    /// Two inherited descriptors.
    Pipe,
}

impl Form {
    /// Returns the text behind `--jobserver-auth=`, for the ends of the pipe in a process.
    pub fn auth(self, pid: u32, reads: i32, writes: i32) -> String {
        match self {
            Self::Fifo => format!("fifo:/proc/{pid}/fd/{reads}"),
            Self::Pipe => format!("{reads},{writes}"),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "fifo",
            Self::Pipe => "pipe",
        })
    }
}

/// Returns the number of tokens of a run on `cores` cores.
pub fn tokens(cores: u32) -> u32 {
    cores.saturating_sub(1).min(TOKENS_MAX)
}

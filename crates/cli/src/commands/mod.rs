//! One file per command: options in, an exit status out.

pub mod advise;
pub mod attach;
pub mod bench;
pub mod check;
pub mod counters;
pub mod detach;
pub mod doctor;
pub mod generate;
pub mod guest;
mod interrupt;
pub mod plan;
pub mod profile;
pub mod profiles;
mod progress;
pub mod ps;
mod ranks;
pub mod replay;
pub mod report;
pub mod run;
pub mod serve;
pub mod sim;
pub mod status;
mod svg;
pub mod tag;
pub mod top;
pub mod topo;
pub mod tune;
pub mod tune_team;

use std::io::{self, Write};

/// Writes machine output or a command's answer to stdout.
///
/// # Errors
/// Stdout cannot be written: nobody reads any more, or the disk is full.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

//! What else runs on the machine, cheap questions first.
//!
//! 1. [`Runnable`]: how many tasks want a CPU this instant, one short read. On a quiet machine the survey ends here.
//! 2. [`Pins`]: which CPUs living tasks of others are bound to. A claim, whether or not they compute this instant.
//! 3. [`Load`]: which CPUs were used between two moments. Dear only by the time between them.
//!
//! Nothing here weighs one answer against another.

mod load;
mod pins;
mod times;

pub use load::{CpuLoad, Load, LoadSample, Ticks};
pub use pins::{Masks, Pin, PinScan, Pins};
pub use times::{ProcessTime, process_times};

use crate::text::{self, ReadError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How many tasks there are and how many of them want a CPU, at one instant, on the whole machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Runnable {
    /// Tasks on a CPU or waiting for one, the asker included: 1 on a quiet machine.
    pub running: u32,
    /// All tasks of all process-id namespaces, threads of the kernel included.
    pub total: u32,
}

impl Runnable {
    /// Reads the text of `/proc/loadavg`, whose averages are of the last minutes and not used.
    ///
    /// # Errors
    /// What is missing.
    pub fn parse(loadavg: &[u8]) -> Result<Self, &'static str> {
        let counts = text::words(loadavg).nth(3).ok_or("no fourth word")?;
        let slash =
            counts.iter().position(|&byte| byte == b'/').ok_or("no '/' between running and all tasks")?;
        Ok(Self {
            running: text::number(&counts[..slash]).ok_or("running tasks are not a number")?,
            total: text::number(&counts[slash + 1..]).ok_or("tasks are not a number")?,
        })
    }

    /// Tasks other than the asker that want a CPU.
    pub fn others(self) -> u32 {
        self.running.saturating_sub(1)
    }
}

/// How many tasks want a CPU this instant.
///
/// # Errors
/// `loadavg` under `proc` cannot be read or is malformed.
pub fn runnable(proc: &Path) -> Result<Runnable, ReadError> {
    let path = proc.join("loadavg");
    Runnable::parse(&text::read(&path)?).map_err(|problem| ReadError::malformed(&path, problem))
}

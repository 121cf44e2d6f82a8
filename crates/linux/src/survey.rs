//! Survey of the other programs on the machine, cheapest query first.
//!
//! 1. [`Runnable`]: the number of tasks that are on a CPU or ready at this instant, by one short
//!    read. On a quiet machine the survey ends here.
//! 2. Counters that an earlier launch kept ([`crate::ledger::LoadSamples`]): the load since then.
//!    If there are none, the tasks that are runnable ([`running()`]).
//! 3. [`Pins`]: the CPUs to which living tasks of others are bound. A claim, whether or not they
//!    compute at this instant.
//! 4. [`Load`]: the CPUs that were used between two moments. Its only cost is the time between
//!    them.
//! 5. [`free_memory()`]: the memory of each node that is free, one short read for each.
//! 6. [`exclusive_grants()`]: the CPUs that the kubelet, Slurm or libvirt granted to their jobs.
//!
//! Nothing here weighs one answer against another.

mod exclusive;
mod free_memory;
mod load;
mod pins;
mod running;
mod times;

pub use exclusive::{ExclusiveGrants, exclusive_grants};
pub use free_memory::{free_memory, used_memory};
pub use load::{CpuLoad, Load, LoadSample, Ticks};
pub use pins::{Masks, Pin, PinScan, Pins, Processes};
pub use running::{Running, running};
pub use times::{ProcessTime, process_times};

use crate::sys::clock;
use crate::text::{self, ReadError};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Number of tasks, and of those that are on a CPU or ready, at one instant, on the whole machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Runnable {
    /// Tasks on a CPU or waiting for one, the caller included: 1 on a quiet machine.
    pub running: u32,
    /// All tasks of all process-id namespaces, kernel threads included.
    pub total: u32,
}

impl Runnable {
    /// Parses the text of `/proc/loadavg`. Its averages cover the last minutes and are not used.
    ///
    /// # Errors
    /// The missing or malformed part.
    pub fn parse(loadavg: &[u8]) -> Result<Self, &'static str> {
        let counts = text::words(loadavg).nth(3).ok_or("no fourth word")?;
        let slash =
            counts.iter().position(|&byte| byte == b'/').ok_or("no '/' between running and all tasks")?;
        Ok(Self {
            running: text::number(&counts[..slash]).ok_or("running tasks are not a number")?,
            total: text::number(&counts[slash + 1..]).ok_or("tasks are not a number")?,
        })
    }

    /// Returns the number of tasks other than the caller that are on a CPU or ready.
    pub fn others(self) -> u32 {
        self.running.saturating_sub(1)
    }
}

/// Reads the number of tasks that are on a CPU or ready at this instant.
///
/// # Errors
/// `loadavg` under `proc` cannot be read or is malformed.
pub fn runnable(proc: &Path) -> Result<Runnable, ReadError> {
    let path = proc.join("loadavg");
    Runnable::parse(&text::read_piece(&path)?).map_err(|problem| ReadError::malformed(&path, problem))
}

/// Reads the clock that counts from boot and through suspend (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Duration {
    clock::since_boot()
}

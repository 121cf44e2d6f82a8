//! Survey of the other programs on the machine, cheapest query first.
//!
//! 1. [`Runnable`]: the number of tasks that are on a CPU or ready at this instant, by one short
//!    read. On a quiet machine the survey ends here.
//! 2. Counters that an earlier launch kept ([`crate::ledger::LoadSamples`]): the load since then.
//!    If there are none, the tasks that are runnable ([`RunningSearch`]).
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
pub use running::RunningSearch;
pub use times::{ProcessTime, process_times};

use crate::sys::clock;
use crate::text::{self, ReadError};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
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

/// The kernel's count of runnable tasks, open for several readings.
#[derive(Debug)]
pub struct RunnableCount {
    file: OwnedFd,
    path: PathBuf,
}

impl RunnableCount {
    /// Opens `loadavg` under `proc`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(proc: &Path) -> Result<Self, ReadError> {
        let path = proc.join("loadavg");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => Ok(Self { file, path }),
            Err(errno) => Err(ReadError::io(&path, errno)),
        }
    }

    /// Reads the number of tasks that are on a CPU or ready at this instant.
    ///
    /// # Errors
    /// The file cannot be read or is malformed.
    pub fn read(&self) -> Result<Runnable, ReadError> {
        // A read from the beginning makes the text anew. The longest has some 60 bytes.
        let mut text = [0; 128];
        let length =
            rustix::io::pread(&self.file, &mut text, 0).map_err(|errno| ReadError::io(&self.path, errno))?;
        Runnable::parse(&text[..length]).map_err(|problem| ReadError::malformed(&self.path, problem))
    }
}

/// Reads the number of tasks that are on a CPU or ready at this instant, once.
///
/// # Errors
/// As [`RunnableCount`].
pub fn runnable(proc: &Path) -> Result<Runnable, ReadError> {
    RunnableCount::open(proc)?.read()
}

/// Reads the clock that counts from boot and through suspend (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Duration {
    clock::since_boot()
}

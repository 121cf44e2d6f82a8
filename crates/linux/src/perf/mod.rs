//! Hardware counters of threads: events by processor, the part that works here, the cost, and
//! groups of counters for threads.
//!
//! [`look`] climbs the ladder on this machine and returns the result; [`Group`] counts a thread
//! with the recipe found. Without counters, [`locality`] still finds the nodes on which the memory
//! of a process is. Nothing here decides how counts are used; [`trimtab_core::counter_budget`]
//! decides from their cost how often they run.

mod choice;
mod cpu;
mod event;
mod group;
mod here;
mod ladder;
pub mod locality;
mod price;
mod table;
#[cfg(test)]
mod testing;
mod walk;
mod why;

pub use choice::{Choice, ChoiceError};
pub use cpu::Cpu;
pub use event::{Event, EventError, Role, Spec};
pub use group::{Group, Recipe};
pub use here::Here;
pub use ladder::{CountingTrial, LadderMachine, Standing, climb};
pub use table::{Events, Processor, Table, TableError};
pub use why::{Missing, Why};

use std::path::Path;

/// Finds the events that this machine can count, by trying: some 5 ms if counters work, at most 50,
/// and microseconds if there are none. `barred` is the reason why hardware may not be counted any
/// more, if one has turned up.
pub fn look(proc: &Path, sys: &Path, choice: &Choice, barred: Option<&Why>) -> Standing {
    // A test checks that the table is sound; on a machine that is not in it the kernel's events
    // still work.
    let table = Table::built_in().unwrap_or_default();
    climb(&mut Here::new(proc, sys), &table, choice, barred)
}

//! What hardware counts of threads: events by processor, what of it works here, what it costs, and groups of counters for threads.
//!
//! [`look`] climbs the ladder on the machine at hand and says where it stands; [`Group`] counts a thread by the recipe found so.
//! Without counters, [`locality`] tells at least on which nodes the memory of a process lies. Nothing here chooses what to do
//! with what is counted, and what follows from its cost is [`trimtab_core::counter_budget`]'s.

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
pub use ladder::{Ground, Standing, Trial, climb};
pub use table::{Events, Processor, Table, TableError};
pub use why::{Missing, Why};

use std::path::Path;

/// What can be counted on this machine, found out by trying: some 5 ms where counters work, at most 50, and microseconds where there are
/// none. `barred` is why hardware is not to be counted any more, if that has turned out.
pub fn look(proc: &Path, sys: &Path, choice: &Choice, barred: Option<&Why>) -> Standing {
    // That the table is sound is tested; a machine it says nothing about has still the kernel's events.
    let table = Table::built_in().unwrap_or_default();
    climb(&mut Here::new(proc, sys), &table, choice, barred)
}

//! One hold of the ledger, by a process or by its number, with the processes that have it.

use crate::masks::family;
use crate::membership::is_part;
use crate::site_facts::location;
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::str::FromStr;
use trimtab_core::set::CpuSet;
use trimtab_core::words::plural;
use trimtab_front::process_env::World;
use trimtab_linux::keeper::{self, Description, Target};
use trimtab_linux::ledger::{Hold, Ledger, LedgerError, LedgerView, Level, Mode};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::sys::affinity;

/// How a hold is named: by a process that has it, or by its number (`0x...`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoldName {
    /// The holder, or a process of its run.
    Process(u32),
    /// The hold's number, as `trimtab ps --json` shows it.
    Number(u64),
}

impl FromStr for HoldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is neither a process (4711) nor the number of a hold (0x1a2b)");
        match text.strip_prefix("0x") {
            Some(number) => u64::from_str_radix(number, 16).map(Self::Number).map_err(|_| bad()),
            None => text.parse().ok().filter(|&pid| pid > 0).map(Self::Process).ok_or_else(bad),
        }
    }
}

/// A hold, and the processes that have its descriptor.
#[derive(Debug)]
pub struct Selected {
    /// The hold.
    pub hold: Hold,
    /// All holds of the machine, this one among them.
    pub all: Vec<Hold>,
    /// Processes that have the descriptor, as far as this user may see them.
    pub lockers: Vec<u32>,
    /// The description of the keeper, if there is one, and its process.
    pub keeper: Option<(Pid, Description)>,
}

/// Returns the holds of all levels.
///
/// # Errors
/// The ledger cannot be read.
pub fn all_holds(ledger: &LedgerView, machine: &CpuSet) -> Result<Vec<Hold>, LedgerError> {
    let mut holds = Vec::new();
    for level in (0..).map_while(Level::new) {
        let holders = ledger.holders(level, machine)?;
        if holders.known.is_empty() && holders.unknown.is_empty() {
            break; // a hold inside another needs that other
        }
        holds.extend(holders.known);
    }
    Ok(holds)
}

/// Opens the ledger for a change of a hold.
///
/// # Errors
/// It cannot be used.
pub fn open(world: &World) -> Result<Ledger> {
    let ledger = location(world).and_then(|location| Ledger::open(&location));
    ledger.context("the ledger cannot be used")
}

impl Selected {
    /// Finds a hold.
    ///
    /// # Errors
    /// There is none of this name, there are several, or the ledger cannot be read.
    pub fn find(world: &World, ledger: &Ledger, machine: &CpuSet, name: HoldName) -> Result<Self> {
        let all = all_holds(ledger, machine).context("cannot read the holders")?;
        let proc = world.proc();
        let found: Vec<&Hold> = match name {
            HoldName::Number(number) => all.iter().filter(|hold| hold.id.number() == number).collect(),
            HoldName::Process(pid) => {
                let own: Vec<&Hold> = all.iter().filter(|hold| hold.holder.pid == pid).collect();
                let inner = || {
                    let its: Vec<&Hold> =
                        all.iter().filter(|hold| is_part(&proc, ledger, Pid(pid), hold, &all)).collect();
                    let deepest = its.iter().map(|hold| hold.level).max();
                    its.into_iter().filter(|hold| Some(hold.level) == deepest).collect()
                };
                if own.is_empty() { inner() } else { own }
            }
        };
        let hold = match found[..] {
            [one] => one.clone(),
            [] => match name {
                HoldName::Process(pid) => bail!("process {pid} holds no cores; trimtab ps lists the holds"),
                HoldName::Number(number) => {
                    bail!("there is no hold {number:#x}; trimtab ps --json lists the numbers")
                }
            },
            ref several => {
                let numbers: Vec<String> =
                    several.iter().map(|hold| format!("{} (CPUs {})", hold.id.name(), hold.cpus)).collect();
                let count = plural(several.len(), "hold");
                bail!("this process has {count}; name one by its number: {}", numbers.join(", "));
            }
        };
        Self::of(world, ledger, hold, all)
    }

    /// Finds the processes that have a hold.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn of(world: &World, ledger: &Ledger, hold: Hold, all: Vec<Hold>) -> Result<Self> {
        let proc = world.proc();
        let lockers = ledger.lockers(hold.level, &hold.cpus).context("cannot read the ledger")?;
        let lockers: Vec<u32> = lockers.into_iter().filter(|pid| *pid != std::process::id()).collect();
        let kept = lockers.iter().map(|&pid| Pid(pid)).filter(|&pid| keeper::is_keeper(&proc, pid));
        let keeper = kept.filter_map(|pid| Some((pid, keeper::description(&proc, pid)?))).next();
        Ok(Self { hold, all, lockers, keeper })
    }

    /// Returns an error unless this hold can be changed: it is exclusive.
    ///
    /// # Errors
    /// It is shared.
    pub fn exclusive(&self) -> Result<()> {
        if self.hold.mode == Mode::Exclusive {
            return Ok(());
        }
        Err(anyhow!(
            "the hold of PID {} is shared (ranks of a job, or --share): it cannot be resized",
            self.hold.holder.pid
        ))
    }

    /// Returns the processes of the hold whose threads may need new masks.
    pub fn members(&self, proc: &Path, ledger: &Ledger) -> Vec<Pid> {
        match self.keeper.as_ref().map(|(_, about)| &about.target) {
            Some(Target::Process { pid, start }) => {
                if process::stat(proc, *pid).is_ok_and(|stat| stat.start == *start) {
                    family(proc, *pid)
                } else {
                    Vec::new()
                }
            }
            Some(Target::Cgroup(folder)) => keeper::cgroup_processes(folder),
            None => {
                // This process has a copy of the descriptor, which makes it no part of the hold.
                let own = (self.hold.holder.pid != std::process::id()).then(Pid::own);
                let within = |pid: &Pid| {
                    if Some(*pid) == own {
                        return false;
                    }
                    let threads = process::threads(proc, *pid).unwrap_or_default();
                    threads
                        .into_iter()
                        .any(|tid| affinity::get(Some(tid)).is_ok_and(|mask| mask.is_subset(&self.hold.cpus)))
                };
                let all = process::all(proc).unwrap_or_default().into_iter();
                all.filter(within).filter(|pid| is_part(proc, ledger, *pid, &self.hold, &self.all)).collect()
            }
        }
    }

    /// Returns whether a thread with this mask belongs to another hold than this one: it is part of
    /// that one and within its CPUs. Such threads are left alone.
    pub fn is_elsewhere(&self, proc: &Path, ledger: &Ledger, pid: Pid, mask: &CpuSet) -> bool {
        let other = |hold: &&Hold| {
            hold.id != self.hold.id && hold.level >= self.hold.level && mask.is_subset(&hold.cpus)
        };
        self.all.iter().filter(other).any(|hold| is_part(proc, ledger, pid, hold, &self.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_named_by_a_process_or_its_number() {
        assert_eq!("4711".parse(), Ok(HoldName::Process(4711)));
        assert_eq!("0x1a".parse(), Ok(HoldName::Number(26)));
        for text in ["", "0", "-1", "0x", "1a", "0xg", "4294967296"] {
            assert!(text.parse::<HoldName>().unwrap_err().contains("neither a process"), "{text}");
        }
    }
}

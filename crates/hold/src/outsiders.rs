//! Programs outside of all holds to which a hold yields: their threads that want to compute.
//!
//! Unit: a thread that is on a CPU or ready for one. A program that is part of any hold does not
//! count: its run waits in the queue if it wants more. Neither do programs of users who were not
//! named, wherever they compute. [`trimtab_core::resize::outsiders`] counts the cores that these
//! threads lack.

use crate::escapes::processes;
use crate::membership::is_part;
use crate::room::HoldRoom;
use anyhow::Result;
use trimtab_core::resize::outsiders::{Outsider, OutsiderCores, outsider_cores};
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::set::CpuSet;
use trimtab_front::process_env::World;
use trimtab_linux::ledger::{Hold, Level};
use trimtab_linux::process::{self, Pid, Stat, State, Tid};
use trimtab_linux::sys::affinity;

/// Threads of these programs, by their masks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outsiders(Vec<Outsider>);

impl Outsiders {
    /// Finds them. `holds` are all holds of the machine. `None` if the hold yields to none: only a
    /// hold of the machine does.
    pub(crate) fn look(room: &HoldRoom<'_>, holds: &[Hold], to: &YieldTo) -> Option<Self> {
        if *to == YieldTo::Runs || room.hold.level != Level::MACHINE {
            return None;
        }
        let proc = room.world.proc();
        let mut found = Self(Vec::new());
        for stat in processes(&proc).iter().filter(|stat| Pid(stat.id) != Pid::own()) {
            let pid = Pid(stat.id);
            let is_one = stat.threads <= 1;
            if is_one && stat.state != State::Running
                || !process::status(&proc, pid).is_ok_and(|status| to.includes(status.uid))
            {
                continue;
            }
            let masks =
                if is_one { mask(pid.main_thread()).into_iter().collect() } else { wanting(room, stat) };
            let is_member = |hold: &Hold| is_part(&proc, room.ledger, pid, hold, holds);
            if !masks.is_empty() && !holds.iter().any(is_member) {
                masks.into_iter().for_each(|mask| found.add(mask));
            }
        }
        Some(found)
    }

    fn add(&mut self, mask: CpuSet) {
        match self.0.iter_mut().find(|known| known.mask == mask) {
            Some(known) => known.threads += 1,
            None => self.0.push(Outsider { mask, threads: 1 }),
        }
    }

    /// Returns their cores with the holds as they are now; `inside` is held by runs inside the
    /// hold.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(crate) fn cores(&self, room: &HoldRoom<'_>, inside: &CpuSet) -> Result<OutsiderCores> {
        let outside = room.outside()?;
        Ok(outsider_cores(room.machine, &outside, &room.hold.cpus, inside, &self.0))
    }
}

fn mask(tid: Tid) -> Option<CpuSet> {
    affinity::get(Some(tid)).ok()
}

/// Returns the masks of the threads of a process that want to compute.
fn wanting(room: &HoldRoom<'_>, stat: &Stat) -> Vec<CpuSet> {
    let (proc, pid) = (room.world.proc(), Pid(stat.id));
    let threads = process::threads(&proc, pid).unwrap_or_default().into_iter();
    let wants =
        |tid: &Tid| process::thread_stat(&proc, pid, *tid).is_ok_and(|stat| stat.state == State::Running);
    threads.filter(wants).filter_map(mask).collect()
}

/// Returns the sentence about programs to which a run of this level is to yield and cannot; `None`
/// if it can. `private` is the reason why its ledger is that of a container only.
pub fn unseen(world: &World, level: Level, to: &YieldTo, private: Option<&str>) -> Option<String> {
    let own = rustix::process::getuid().as_raw();
    if *to == YieldTo::Runs {
        return None;
    }
    if level != Level::MACHINE {
        return Some("no cores are given back to programs of others by a run inside another hold".to_owned());
    }
    if *to != YieldTo::user(own) && process::hides_others(&world.proc()) {
        let text = "cores are given back to your own programs only: those of other users are hidden \
            from this run (/proc is mounted with hidepid)";
        return Some(text.to_owned());
    }
    private.map(|why| format!("cores are given back to programs of this container only: {why}"))
}

//! End of a hold from outside: of one that a keeper keeps, or that waits without a program.

use crate::masks::restore;
use crate::select::{HoldName, Selected, open};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use trimtab_core::set::CpuSet;
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_linux::keeper::is_keeper;
use trimtab_linux::process::Pid;

/// Longest wait for the end of a keeper that was told to end.
const END_WAIT_MAX: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// A hold that was ended: `trimtab.release/1`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Released {
    schema: &'static str,
    /// Number of the hold.
    pub hold: String,
    /// The process for which it was.
    pub pid: u32,
    /// Its CPUs, which are free now.
    pub cpus: CpuSet,
    /// Number of threads that got the masks back that they had before.
    pub threads: usize,
    /// The holder's name.
    pub command: String,
}

/// Ends a hold.
///
/// # Errors
/// There is no such hold, it is that of a program, or of another user.
pub fn release(world: &World, name: HoldName) -> Result<Released> {
    let (machine, _) = Which::Live.load(world)?;
    let ledger = open(world)?;
    let selected = Selected::find(world, &ledger, &machine.cpus(), name)?;
    let hold = &selected.hold;
    let proc = world.proc();
    if selected.lockers.is_empty() {
        bail!(
            "the hold of PID {} belongs to another user: only that user and root can end it",
            hold.holder.pid
        );
    }
    if !selected.lockers.iter().all(|&pid| is_keeper(&proc, Pid(pid))) {
        bail!(
            "CPUs {} are held by a run (PID {}, {}), and are free when it ends: end the program, or give some back with trimtab resize",
            hold.cpus,
            hold.holder.pid,
            hold.holder.label
        );
    }
    let threads = selected.keeper.as_ref().map_or(0, |(_, about)| restore(world, about, &hold.cpus));
    end_keeper(world, &selected)?;
    Ok(Released {
        schema: "trimtab.release/1",
        hold: hold.id.name(),
        pid: hold.holder.pid,
        cpus: hold.cpus.clone(),
        threads,
        command: hold.holder.label.clone(),
    })
}

/// Ends the keeper of a hold, and waits until it has ended.
///
/// # Errors
/// It belongs to another user, or does not end.
pub fn end_keeper(world: &World, selected: &Selected) -> Result<()> {
    for &pid in &selected.lockers {
        let Some(number) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { continue };
        let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { continue };
        if !is_keeper(&world.proc(), Pid(pid)) {
            continue; // it ended, and the number is another process's
        }
        pidfd_send_signal(&process, Signal::TERM)
            .with_context(|| format!("PID {pid}, which keeps the hold, cannot be ended"))?;
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        if !matches!(poll(&mut ended, Some(&END_WAIT_MAX)), Ok(1..)) {
            bail!("PID {pid}, which keeps the hold, does not end; kill -9 {pid} ends it");
        }
    }
    Ok(())
}

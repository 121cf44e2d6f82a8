//! `trimtab bench team-cell`: one cell of the comparison, with a team. This module creates the
//! ranks; [`super::measure`] measures.
//!
//! Ranks that are processes are this program again, with the same options and `TRIMTAB_TEAM` in the
//! environment. They end with their parent. A rank that fails ends its process: the team itself
//! reports that to the other ranks.

use super::super::harness;
use super::measure;
use crate::args::{Mode, Operation, TeamCellArgs};
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use trimtab_front::exit::{self, Exit};
use trimtab_team::segment::meet::{VARIABLE, keep_over_exec};
use trimtab_team::{Options, Team};

/// Period at which the parent checks whether all child processes still live.
const CHECK_PERIOD: Duration = Duration::from_millis(2);

/// Measures the cell.
///
/// # Errors
/// [`exit::NO`] if the cell cannot be run, [`exit::FAILED`] for invalid options; a wrong result
/// ends with status 3.
pub(super) fn run(args: &TeamCellArgs) -> Result<u8, Exit> {
    check(args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    ranks(args).map_err(|cause| Exit::new(exit::NO, cause))
}

fn check(args: &TeamCellArgs) -> Result<()> {
    let TeamCellArgs { ranks, op, bytes, kind, milliseconds, .. } = *args;
    if kind.split(ranks).is_none() {
        bail!("{kind} does not give {ranks} ranks");
    }
    if op == Operation::Allreduce && !bytes.is_multiple_of(8) {
        bail!("allreduce adds doubles of 8 bytes: {bytes} bytes are not a multiple of 8");
    }
    if bytes == 0 || bytes > 1 << 30 || !(0.01..=3_600_000.0).contains(&milliseconds) {
        bail!("not from 1 to 2^30 bytes, or not from 0.01 to 3600000 milliseconds");
    }
    Ok(())
}

fn ranks(args: &TeamCellArgs) -> Result<u8> {
    let (processes, threads) = args.kind.split(args.ranks).unwrap_or((1, args.ranks));
    if let Some((team, first)) = Team::inherited()? {
        if team.ranks() != args.ranks || first.checked_add(threads).is_none_or(|end| end > args.ranks) {
            bail!("this process was started into another team");
        }
        set_parent_process_death_signal(Some(Signal::KILL))
            .context("cannot request a signal at the end of the parent")?;
        return in_threads(args, &team, first, threads);
    }
    // Two blocks for each rank in the segment, each rounded up to whole pages.
    let resident = if args.mode == Mode::Resident {
        let parts = if args.op == Operation::Alltoall { args.ranks as usize } else { 1 };
        args.ranks as usize * ((args.bytes * parts).next_multiple_of(4096) + 4096) * 2
    } else {
        0
    };
    let team = Team::new(Options { heap: resident.max(1 << 20), ..Options::new(args.ranks) })?;
    if processes == 1 {
        return in_threads(args, &team, 0, threads);
    }
    keep_over_exec(team.fd())?;
    let program = harness::own()?;
    let mut children = Children(Vec::new());
    for process in 0..processes {
        let (name, value) = team.invitation(process * threads);
        debug_assert_eq!(name, VARIABLE);
        let child = Command::new(&program).args(std::env::args_os().skip(1)).env(name, value).spawn();
        children.0.push(child.context("cannot start all processes")?);
    }
    let worst = children.end()?;
    Ok(worst)
}

fn in_threads(args: &TeamCellArgs, team: &Team, first: u32, threads: u32) -> Result<u8> {
    let allowed = measure::allowed()?;
    std::thread::scope(|scope| {
        // The first rank's thread is as new as the others: if it had been bound before, the others
        // would inherit its binding.
        let running: Vec<_> = (first..first + threads)
            .map(|rank| {
                let allowed = &allowed;
                std::thread::Builder::new()
                    .spawn_scoped(scope, move || measure::rank(args, team, rank, allowed))
            })
            .collect::<std::io::Result<_>>()
            .context("cannot start all threads")?;
        let mut worst = exit::DONE;
        for thread in running {
            let status = thread.join().map_err(|_| anyhow!("a rank panicked"))??;
            worst = worst.max(status);
        }
        Ok(worst)
    })
}

/// Processes that are killed when this value is dropped.
struct Children(Vec<Child>);

impl Children {
    /// Waits for all processes, and returns the worst status. If one ended early, the others are
    /// killed: they may wait for it.
    fn end(&mut self) -> Result<u8> {
        let mut worst = exit::DONE;
        while !self.0.is_empty() {
            let mut ended: Vec<ExitStatus> = Vec::new();
            let mut trouble = None;
            self.0.retain_mut(|child| match child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) => {
                    ended.push(status);
                    false
                }
                Err(error) => {
                    trouble = Some(error);
                    false
                }
            });
            if let Some(error) = trouble {
                return Err(error).context("cannot wait for the processes");
            }
            for status in ended {
                match status.code() {
                    Some(code) if code != i32::from(exit::NO) => {
                        worst = worst.max(u8::try_from(code).unwrap_or(exit::NO));
                    }
                    _ => bail!("a rank ended early: {status}"),
                }
            }
            std::thread::sleep(CHECK_PERIOD);
        }
        Ok(worst)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

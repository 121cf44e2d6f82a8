//! `trimtab detach`: the end of balancing, from outside.

use crate::args::{DetachArgs, distinct};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::leftovers::{give_back, only as only_for, own_masks, user};
use crate::world::World;
use anyhow::{Context, anyhow};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use trimtab_linux::child::let_go;
use trimtab_linux::live::keeper::{LeftBehind, LeftEnd};
use trimtab_linux::process::{Pid, stat};

/// So long a balancer may take to give masks back after it was told to. Chosen: it takes microseconds a thread.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the command: 0 when something was ended or given back (with --all also when there was nothing), 1 when there was
/// nothing.
///
/// # Errors
/// [`exit::FAILED`]: no such process, somebody else's, or it does not let go.
pub fn run(world: &World, args: &DetachArgs) -> Result<u8, Exit> {
    detach(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn detach(world: &World, args: &DetachArgs) -> Result<u8, anyhow::Error> {
    let mut said = String::new();
    let mut nothing = false;
    if args.all {
        one(world, None, &mut said)?;
    }
    for pid in distinct(&args.pids) {
        let pid = Pid(pid);
        if !one(world, Some(pid), &mut said)? {
            if stat(&world.proc(), pid).is_err_and(|error| error.is_gone()) {
                return Err(anyhow!(
                    "there is no process {pid}, and no balancer has left anything behind for it"
                ));
            }
            nothing = true;
            let _ = writeln!(
                said,
                "process {pid}: nobody balances it, or has moved nothing yet, and no killed balancer has left anything behind"
            );
        }
    }
    if !args.quiet && !said.is_empty() {
        print(&said)?;
    }
    Ok(if nothing { exit::NO } else { exit::DONE })
}

/// Ends what there is; of one process or of all. Whether there was anything.
fn one(world: &World, only: Option<Pid>, said: &mut String) -> Result<bool, anyhow::Error> {
    let begin = Instant::now();
    let mut told: Vec<Pid> = Vec::new();
    loop {
        let found = give_back(world, only)?;
        let mut waiting = false;
        let mut any = !told.is_empty();
        for LeftBehind { pid, balancer, end } in found {
            match (end, balancer) {
                (LeftEnd::InUse, Some(balancer)) => {
                    any = true;
                    waiting = true;
                    if !told.contains(&balancer) {
                        match let_go(balancer) {
                            Ok(()) => {
                                let _ = writeln!(said, "process {pid}: balancer {balancer} was told to stop");
                            }
                            // Gone just now.
                            Err(Errno::SRCH) => {}
                            Err(error) => {
                                return Err(error).with_context(|| {
                                    format!("process {pid} is balanced by process {balancer}, which cannot be told to stop")
                                });
                            }
                        }
                        told.push(balancer);
                    }
                }
                (LeftEnd::InUse, None) => {
                    return Err(anyhow!("process {pid} is balanced, and its record does not say by whom"));
                }
                (LeftEnd::Restored { given_back, changed, vanished, refused }, _) => {
                    any = true;
                    let _ = write!(said, "process {pid}: {}", own_masks(given_back));
                    for (count, what) in [
                        (changed, "bound by others since"),
                        (vanished, "ended"),
                        (refused, "not ours to move"),
                    ] {
                        if count > 0 {
                            let _ = write!(said, ", {count} {what}");
                        }
                    }
                    let _ = writeln!(said);
                }
                (LeftEnd::Foreign(uid), _) if only.is_some() => {
                    let (name, only) = (user(world, uid), only_for(world, uid));
                    return Err(anyhow!(
                        "what is recorded of process {pid} belongs to {name}: {only} may use it (sudo trimtab detach {pid})"
                    ));
                }
                (LeftEnd::Unreadable, _) if only.is_some() => {
                    return Err(anyhow!(
                        "what is recorded of process {pid} cannot be read, or is of another container"
                    ));
                }
                (LeftEnd::Foreign(_) | LeftEnd::Unreadable, _) => {}
            }
        }
        if !waiting {
            return Ok(any);
        }
        if begin.elapsed() > PATIENCE {
            let balancers: Vec<String> = told.iter().map(ToString::to_string).collect();
            return Err(anyhow!(
                "process {} was told to stop balancing and has not: it may be stopped itself (kill -CONT), or busy",
                balancers.join(", ")
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

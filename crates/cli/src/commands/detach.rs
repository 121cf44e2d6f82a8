//! `trimtab detach`: the end of balancing, from outside.

use crate::args::{DetachArgs, distinct};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::leftovers::{give_back, only as only_for, own_masks, user};
use crate::say::{self, Volume};
use crate::world::World;
use anyhow::{Context, anyhow};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use trimtab_linux::child::let_go;
use trimtab_linux::live::keeper::{LeftBehind, LeftEnd};
use trimtab_linux::process::{Pid, State, stat};

/// So long a balancer may take to give masks back after it was told to. Chosen: it takes microseconds a thread.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this it is said what is waited for.
const SAID: Duration = Duration::from_secs(1);

/// Runs the command: 0 when something was ended or given back (with --all also when there was nothing), 1 when there was
/// nothing.
///
/// # Errors
/// [`exit::FAILED`]: no such process, somebody else's, or it does not let go.
pub fn run(world: &World, args: &DetachArgs) -> Result<u8, Exit> {
    detach(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn detach(world: &World, args: &DetachArgs) -> Result<u8, anyhow::Error> {
    let volume = Volume::of(args.quiet, false);
    let mut said = String::new();
    let mut nothing = false;
    if args.all {
        one(world, None, volume, &mut said)?;
    }
    for pid in distinct(&args.pids) {
        let pid = Pid(pid);
        if !one(world, Some(pid), volume, &mut said)? {
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

/// The process that this balancer started and that `pid` comes from, if there is one.
fn program_of(world: &World, balancer: Pid, pid: Pid) -> Option<Pid> {
    let mut at = pid;
    // Process trees are shallow; the bound only guards against tables that change meanwhile.
    for _ in 0..1_000 {
        match stat(&world.proc(), at).ok()?.parent {
            parent if parent == balancer => return Some(at),
            parent if parent.0 > 1 => at = parent,
            _ => return None,
        }
    }
    None
}

fn is_stopped(world: &World, pid: Pid) -> bool {
    stat(&world.proc(), pid).is_ok_and(|stat| stat.state == State::Stopped)
}

/// Continues a process that was told to end and is stopped.
fn wake(pid: Pid) {
    let raw = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw);
    // It may have ended, or have been continued by others.
    let _ = raw.map(|raw| rustix::process::kill_process(raw, rustix::process::Signal::CONT));
}

/// Ends what there is; of one process or of all. Whether there was anything.
fn one(world: &World, only: Option<Pid>, volume: Volume, said: &mut String) -> Result<bool, anyhow::Error> {
    let begin = Instant::now();
    let (mut told, mut woken, mut asleep): (Vec<Pid>, Vec<Pid>, Vec<Pid>) = Default::default();
    let mut waits_said = false;
    loop {
        let found = give_back(world, only)?;
        let mut waiting = false;
        let mut any = !told.is_empty();
        for LeftBehind { pid, balancer, end, socket: _ } in found {
            match (end, balancer) {
                (LeftEnd::InUse, Some(balancer)) => {
                    any = true;
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
                    if is_stopped(world, balancer) {
                        let program = program_of(world, balancer, pid);
                        if program.is_some_and(|program| is_stopped(world, program)) {
                            // A job that somebody stopped is not ours to continue, and nothing of it runs.
                            if !asleep.contains(&balancer) {
                                asleep.push(balancer);
                                let _ = writeln!(
                                    said,
                                    "process {pid}: its run is stopped as a whole; balancer {balancer} lets go when it is continued (fg, kill -CONT)"
                                );
                            }
                            continue;
                        }
                        if !woken.contains(&balancer) {
                            woken.push(balancer);
                            let _ = writeln!(
                                said,
                                "process {pid}: balancer {balancer} was stopped, and is continued to let go"
                            );
                        }
                        wake(balancer);
                    }
                    waiting = true;
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
                "process {} was told to stop balancing and has not: it may be held by a debugger, or busy; kill -KILL ends it, and trimtab detach then gives masks back",
                balancers.join(", ")
            ));
        }
        if begin.elapsed() > SAID && !waits_said {
            waits_said = true;
            let balancers: Vec<String> = told.iter().map(ToString::to_string).collect();
            say::warning(
                volume,
                &format!(
                    "process {} was told to stop balancing and has not yet: waiting up to {} s",
                    balancers.join(", "),
                    PATIENCE.as_secs()
                ),
            );
        }
        std::thread::sleep(Duration::from_millis(if waits_said { 50 } else { 5 }));
    }
}

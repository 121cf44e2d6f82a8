//! `trimtab detach`: ends balancing from outside.

use crate::args::{DetachArgs, distinct};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::say::Volume;
use crate::world::World;
use anyhow::{Result, anyhow};
use std::fmt::Write as _;
use trimtab_agent::detach::{DetachEvent, detach};
use trimtab_agent::restoration::own_masks;
use trimtab_core::words::plural;
use trimtab_linux::process::{Pid, stat};

/// Runs the command. Returns 0 when a balancer was ended or masks were restored (with --all also
/// when there was nothing to do), and 1 when there was nothing to do.
///
/// # Errors
/// [`exit::FAILED`]: no such process, another user's process, or a balancer that does not let go.
pub fn run(world: &World, args: &DetachArgs) -> Result<u8, Exit> {
    all(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn all(world: &World, args: &DetachArgs) -> Result<u8> {
    let (paths, volume) = (world.paths(), Volume::of(args.quiet, false));
    let mut said = String::new();
    let mut nothing = false;
    let one = |only, said: &mut String| -> Result<bool> {
        let mut events = Vec::new();
        let any = detach(&paths, only, &volume, &mut events)?;
        for event in &events {
            let _ = writeln!(said, "{}", words(event));
        }
        Ok(any)
    };
    if args.all {
        one(None, &mut said)?;
    }
    for pid in distinct(&args.pids) {
        let pid = Pid(pid);
        if !one(Some(pid), &mut said)? {
            if stat(&world.proc(), pid).is_err_and(|error| error.is_gone()) {
                return Err(anyhow!(
                    "there is no process {pid}, and no balancer left masks of it to restore"
                ));
            }
            nothing = true;
            let _ = writeln!(
                said,
                "process {pid}: no balancer has moved its threads, and no killed balancer left masks to restore"
            );
        }
    }
    if !args.quiet && !said.is_empty() {
        print(&said)?;
    }
    Ok(if nothing { exit::NO } else { exit::DONE })
}

/// Formats one event as a line.
fn words(event: &DetachEvent) -> String {
    match event {
        DetachEvent::Restored { pid, given_back, changed, vanished, refused } => {
            let mut line = format!("process {pid}: {}", own_masks(*given_back));
            let others =
                [(changed, "bound by other programs since"), (vanished, "ended"), (refused, "not permitted")];
            for (count, what) in others.into_iter().filter(|(count, _)| **count > 0) {
                let _ = write!(line, ", {count} {what}");
            }
            line
        }
        DetachEvent::Told { pid, balancer } => {
            format!("process {pid}: balancer {balancer} was asked to stop")
        }
        DetachEvent::StoppedWithRun { pid, balancer } => format!(
            "process {pid}: the whole run is stopped; balancer {balancer} restores the masks when it is continued (fg, kill -CONT)"
        ),
        DetachEvent::Continued { pid, balancer } => {
            format!(
                "process {pid}: balancer {balancer} was stopped, and is continued so that it restores the masks"
            )
        }
        DetachEvent::Cleared { pid, tags, service } => {
            let what = match pid {
                Some(pid) => format!("process {pid}"),
                None => "all tags that you may clear".to_owned(),
            };
            let tags = plural(*tags, "tag");
            format!("{what}: cleared {tags} of the service (process {service}), which keeps running")
        }
        DetachEvent::KeptOwn { tags, service } => {
            let tags = plural(*tags, "tag");
            format!("{tags} of the service itself (guests, --pinned) remain (process {service})")
        }
        DetachEvent::KeptOthers { tags, service } => {
            let tags = plural(*tags, "tag");
            format!("{tags} of other users remain (process {service})")
        }
    }
}

//! `trimtab hold`, `resize` and `release`: cores for programs that run already, and changes of
//! holds.

use crate::args::{HoldArgs, ReleaseArgs, ResizeArgs};
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::io::Write;
use std::time::Duration;
use trimtab_core::words::plural;
use trimtab_front::diagnostics::{self as say, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_front::sibling::{LAB, find};
use trimtab_front::stdout::print;
use trimtab_hold::cores::{CoresDocument, CoresRequest};
use trimtab_hold::release::release as end;
use trimtab_hold::reserve::ReserveError;
use trimtab_hold::resize::resize as change;
use trimtab_linux::keeper::{WatchedTarget, take_name};
use trimtab_linux::process::Pid;

fn failed(cause: impl Into<anyhow::Error>) -> Exit {
    Exit::new(exit::FAILED, cause)
}

/// Runs `trimtab hold`.
///
/// # Errors
/// The cores are not available, or cannot be held for the target.
pub fn hold(world: &World, args: &HoldArgs) -> Result<u8, Exit> {
    if let Some(program) = args.command.first() {
        let program = program.to_string_lossy();
        return Err(failed(anyhow!(
            "hold starts no program: use trimtab run -c {} {program}, which holds the cores until it ends",
            args.cores
        )));
    }
    let request = request(args)?;
    let watched = match (args.pid, &args.cgroup) {
        (Some(pid), _) => Some(WatchedTarget::process(&world.proc(), Pid(pid))),
        (None, Some(folder)) => Some(WatchedTarget::cgroup(&world.proc(), folder)),
        (None, None) => None,
    };
    match watched {
        Some(watched) => for_target(world, args, &request, watched.map_err(failed)?),
        None => alone(world, args, &request),
    }
}

fn request(args: &HoldArgs) -> Result<CoresRequest, ReserveError> {
    let mut request = CoresRequest::cores(&args.cores)?.with_settings(&args.set.join(" "))?;
    if let Some(cpus) = &args.cpus {
        request = request.within(cpus)?;
    }
    if let Some(device) = &args.near {
        request = request.near(device)?;
    }
    request.options.or_fewer = args.or_fewer;
    request.wait = args.wait.map(|wait| wait.0);
    request.priority = args.priority.unwrap_or(0);
    request.label = args.label.clone().unwrap_or_default();
    request.rules = !args.no_rules;
    request.survey = args.survey;
    Ok(request)
}

/// Holds cores for a process or a control group.
fn for_target(
    world: &World,
    args: &HoldArgs,
    request: &CoresRequest,
    watched: WatchedTarget,
) -> Result<u8, Exit> {
    let keeper = find(LAB).map_err(failed)?;
    let tell = |line: &str| say::headline(Volume::of(false, false), line);
    let done = request.hold_for(world, watched, &keeper, &tell, &|| true)?;
    for warning in done.warnings() {
        say::warning(Volume::of(false, false), warning);
    }
    show(args.json, &done.document(), &done.cpus().to_string())?;
    let (threads, kept) = (done.rebound.changed.len(), done.rebound.kept.len());
    let (changed, number) = (plural(threads, "thread"), done.number());
    say::notice(
        Volume::of(args.json, false),
        &format!("hold {number}: {changed} bound to CPUs {}, {kept} kept their masks", done.cpus()),
    );
    Ok(exit::DONE)
}

/// Holds cores until this process ends.
fn alone(world: &World, args: &HoldArgs, request: &CoresRequest) -> Result<u8, Exit> {
    let label = args.label.clone().unwrap_or_else(|| format!("trimtab hold -c {}", args.cores));
    let request = CoresRequest { label, ..request.clone() };
    // The name is set before, so that a hold that can be seen can be released.
    take_name();
    let tell = |line: &str| say::headline(Volume::of(false, false), line);
    let cores = request.reserve(world, &tell, &|| true)?;
    for warning in cores.warnings() {
        say::warning(Volume::of(false, false), warning);
    }
    if cores.reserved().is_empty() {
        return Err(failed(anyhow!("no cores are reserved, so there is nothing to hold")));
    }
    // Not on cores that it does not hold; a mask that is refused matters to nothing else.
    let _ = cores.bind_thread();
    show(args.json, &CoresDocument::of(&cores), &cores.cpus().to_string())?;
    match args.lasting {
        Some(time) => std::thread::sleep(Duration::from_nanos(time.0)),
        // A signal ends this process, and the kernel gives the cores back.
        None => loop {
            std::thread::park();
        },
    }
    Ok(exit::DONE)
}

/// Prints a document or a line, at once: a script may read it while this process goes on.
fn show(json: bool, document: &impl Serialize, line: &str) -> Result<(), Exit> {
    let text = if json {
        serde_json::to_string_pretty(document).context("no JSON").map_err(failed)?
    } else {
        line.to_owned()
    };
    print(&text).and_then(|()| std::io::stdout().flush()).map_err(failed)
}

/// Runs `trimtab resize`.
///
/// # Errors
/// There is no such hold, or it cannot be changed.
pub fn resize(world: &World, args: &ResizeArgs) -> Result<u8, Exit> {
    let done = change(world, args.hold, args.cores, args.survey).map_err(failed)?;
    let cores = plural(done.cores, "core");
    let line = format!("{} of PID {} ({cores}, before CPUs {})", done.reserved, done.pid, done.before);
    show(args.json, &done, &line)?;
    let (changed, kept) = (plural(done.rebound, "thread"), done.kept);
    let quiet = Volume::of(args.json, false);
    say::notice(quiet, &format!("{changed} bound to CPUs {}, {kept} kept their masks", done.cpus));
    for pid in &done.stale {
        say::warning(
            quiet,
            &format!(
                "threads that process {pid} creates later may use the CPUs that were given back: its preload library places them by the plan of its start"
            ),
        );
    }
    Ok(exit::DONE)
}

/// Runs `trimtab release`.
///
/// # Errors
/// There is no such hold, or it is a program's or another user's.
pub fn release(world: &World, args: &ReleaseArgs) -> Result<u8, Exit> {
    let done = end(world, args.hold).map_err(failed)?;
    let line =
        format!("CPUs {} are free; {} got their masks back", done.cpus, plural(done.threads, "thread"));
    show(args.json, &done, &line)?;
    Ok(exit::DONE)
}

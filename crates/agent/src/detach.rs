//! `trimtab detach`: the end of balancing, from outside.

use crate::args::{DetachArgs, distinct};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::leftovers::{give_back, only as only_for, own_masks, user};
use crate::say::{self, Volume};
use crate::service::Service;
use crate::tagged;
use crate::world::World;
use anyhow::{Context, anyhow};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trimtab_core::words::plural;
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
    let mut work = Detaching {
        world,
        only,
        volume,
        said,
        begin: Instant::now(),
        any: false,
        told: Vec::new(),
        woken: Vec::new(),
        asleep: Vec::new(),
        services: BTreeMap::new(),
        unreadable: None,
        waits_said: false,
    };
    // A service that moved nothing yet has no record, and root's are not for users to read.
    while work.turn()? {
        work.wait()?;
    }
    work.reachable_service()?;
    match work.unreadable.filter(|_| !work.any) {
        Some(why) => Err(why),
        None => Ok(work.any),
    }
}

/// One wish to detach, under way.
struct Detaching<'a> {
    world: &'a World,
    /// Of this process; `None` for all.
    only: Option<Pid>,
    volume: Volume,
    said: &'a mut String,
    begin: Instant,
    /// Whether there was anything to end or to give back.
    any: bool,
    /// Balancers that were told to stop.
    told: Vec<Pid>,
    /// Those of them that were stopped by a signal, and continued.
    woken: Vec<Pid>,
    /// Those that are stopped with their program.
    asleep: Vec<Pid>,
    /// Services that were asked, and whether all that they balanced was taken out.
    services: BTreeMap<Pid, bool>,
    /// A record of what was asked for, and why it is not for us to read.
    unreadable: Option<anyhow::Error>,
    waits_said: bool,
}

impl Detaching<'_> {
    /// Looks at all records, and does what can be done at once. Whether something is to be waited for.
    fn turn(&mut self) -> Result<bool, anyhow::Error> {
        let mut waiting = false;
        for LeftBehind { pid, balancer, socket, end } in give_back(self.world, self.only)? {
            match (end, balancer, socket) {
                (LeftEnd::InUse, Some(balancer), Some(socket)) => {
                    // A child may be balanced on by a tag of its own.
                    waiting |= self.taken_out(balancer, socket)? && self.only.is_none_or(|only| only == pid);
                }
                (LeftEnd::InUse, Some(balancer), None) => waiting |= self.told_to_stop(pid, balancer)?,
                (LeftEnd::InUse, None, _) => {
                    return Err(anyhow!("process {pid} is balanced, and its record does not say by whom"));
                }
                (LeftEnd::Restored { given_back, changed, vanished, refused }, ..) => {
                    self.any = true;
                    self.restored(pid, given_back, [changed, vanished, refused]);
                }
                (LeftEnd::Foreign(uid), ..) if self.only.is_some() => {
                    let (name, only) = (user(self.world, uid), only_for(self.world, uid));
                    self.unreadable = Some(anyhow!(
                        "what is recorded of process {pid} belongs to {name}: {only} may use it (sudo trimtab detach {pid})"
                    ));
                }
                (LeftEnd::Unreadable, ..) if self.only.is_some() => {
                    self.unreadable = Some(anyhow!(
                        "what is recorded of process {pid} cannot be read, or is of another container"
                    ));
                }
                (LeftEnd::Foreign(_) | LeftEnd::Unreadable, ..) => {}
            }
        }
        Ok(waiting)
    }

    fn restored(&mut self, pid: Pid, given_back: u32, others: [u32; 3]) {
        let _ = write!(self.said, "process {pid}: {}", own_masks(given_back));
        for (count, what) in others.into_iter().zip(["bound by others since", "ended", "not ours to move"]) {
            if count > 0 {
                let _ = write!(self.said, ", {count} {what}");
            }
        }
        let _ = writeln!(self.said);
    }

    /// Takes what is asked for out of a service, which goes on. Whether its masks are to be waited for.
    fn taken_out(&mut self, balancer: Pid, socket: PathBuf) -> Result<bool, anyhow::Error> {
        if let Some(all) = self.services.get(&balancer) {
            return Ok(*all);
        }
        if self.only == Some(balancer) {
            return Err(anyhow!(
                "process {balancer} is the service: trimtab detach --all takes out what is yours; as a whole it ends by systemctl stop \
                 trimtab, or kill {balancer}"
            ));
        }
        let mut service = Service::at(self.world, &socket).with_context(|| {
            format!("the service (process {balancer}) balances it, and cannot be asked to leave it alone")
        })?;
        self.take_out_of(&mut service, balancer)
    }

    /// The same of one that was found; whether all that was asked for is out.
    fn take_out_of(&mut self, service: &mut Service, balancer: Pid) -> Result<bool, anyhow::Error> {
        let Some(pid) = self.only else {
            let (taken, own) = tagged::take_out_all(service, geteuid().is_root())?;
            self.any |= taken.cleared > 0;
            self.said.push_str(&taken.words("all that is yours to clear", balancer.0));
            let others = tagged::status(service)?.others;
            for (count, whose) in
                [(own, "that are the service's own (guests, --pinned)"), (others, "of other users")]
            {
                if count > 0 {
                    let tags = plural(count, "tag");
                    let _ = writeln!(self.said, "{tags} {whose} stay with the service (process {balancer})");
                }
            }
            self.services.insert(balancer, own == 0 && others == 0);
            return Ok(own == 0 && others == 0);
        };
        let taken = tagged::take_out(self.world, service, pid)?;
        self.any |= taken.cleared > 0;
        self.said.push_str(&taken.words(&format!("process {pid}"), balancer.0));
        self.services.insert(balancer, true);
        match taken.fault(pid, balancer.0) {
            Some(fault) => Err(anyhow!("{fault}")),
            None => Ok(true),
        }
    }

    /// Asks the service that is found, where no record led to it: it may have moved nothing yet, and root's records are not for users to read.
    fn reachable_service(&mut self) -> Result<(), anyhow::Error> {
        let Some(mut service) = Service::any(self.world) else { return Ok(()) };
        // One that does not answer has nothing to do with what was done.
        let Ok(status) = tagged::status(&mut service) else { return Ok(()) };
        let balancer = Pid(status.pid);
        let meant = |pid: Pid| status.tags.iter().any(|tag| tag.mark.pid() == Some(pid.0));
        if self.services.contains_key(&balancer) || !self.only.map_or(!status.tags.is_empty(), meant) {
            return Ok(());
        }
        self.take_out_of(&mut service, balancer).map(drop)
    }

    /// Tells a balancer to stop. Whether it is to be waited for.
    fn told_to_stop(&mut self, pid: Pid, balancer: Pid) -> Result<bool, anyhow::Error> {
        self.any = true;
        if !self.told.contains(&balancer) {
            match let_go(balancer) {
                Ok(()) => {
                    let _ = writeln!(self.said, "process {pid}: balancer {balancer} was told to stop");
                }
                // Gone just now.
                Err(Errno::SRCH) => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "process {pid} is balanced by process {balancer}, which cannot be told to stop"
                        )
                    });
                }
            }
            self.told.push(balancer);
        }
        if !is_stopped(self.world, balancer) {
            return Ok(true);
        }
        let program = program_of(self.world, balancer, pid);
        if program.is_some_and(|program| is_stopped(self.world, program)) {
            // A job that somebody stopped is not ours to continue, and nothing of it runs.
            if !self.asleep.contains(&balancer) {
                self.asleep.push(balancer);
                let _ = writeln!(
                    self.said,
                    "process {pid}: its run is stopped as a whole; balancer {balancer} lets go when it is continued (fg, kill -CONT)"
                );
            }
            return Ok(false);
        }
        if !self.woken.contains(&balancer) {
            self.woken.push(balancer);
            let _ = writeln!(
                self.said,
                "process {pid}: balancer {balancer} was stopped, and is continued to let go"
            );
        }
        wake(balancer);
        Ok(true)
    }

    /// Waits for a moment, as long as there is patience.
    fn wait(&mut self) -> Result<(), anyhow::Error> {
        let who = || {
            let balancers: Vec<String> =
                self.told.iter().chain(self.services.keys()).map(ToString::to_string).collect();
            balancers.join(", ")
        };
        if self.begin.elapsed() > PATIENCE {
            let what = if self.told.is_empty() {
                "was asked to leave it alone and has not: it may be held by a debugger, or busy"
            } else {
                "was told to stop balancing and has not: it may be held by a debugger, or busy; kill -KILL ends it, and masks come back"
            };
            return Err(anyhow!("process {} {what}", who()));
        }
        if self.begin.elapsed() > SAID && !self.waits_said {
            let waits =
                format!("process {} has not let go yet: waiting up to {} s", who(), PATIENCE.as_secs());
            say::warning(self.volume, &waits);
            self.waits_said = true;
        }
        std::thread::sleep(Duration::from_millis(if self.waits_said { 50 } else { 5 }));
        Ok(())
    }
}

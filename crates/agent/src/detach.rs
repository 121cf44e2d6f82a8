//! Detach: the end of balancing, requested from outside.
//!
//! Masks that a killed balancer left behind are given back. A live balancer gets the request to
//! stop, and its end is waited for. The service gets the request to release processes, and
//! continues.

use crate::narrator::Narrator;
use crate::paths::Paths;
use crate::restoration::{give_back, only as only_for, user};
use crate::service::client::Client;
use crate::service::removal;
use anyhow::{Context, Result, anyhow};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trimtab_linux::child::let_go;
use trimtab_linux::host::affinity_journal::{LeftBehind, LeftEnd};
use trimtab_linux::process::{Pid, State, stat};

/// Longest time that a balancer may take to restore masks after the request to stop. Chosen: it
/// takes microseconds a thread.
const LET_GO_MAX: Duration = Duration::from_secs(10);
/// Time after which a warning names the balancer that is waited for.
const WARNED_AFTER: Duration = Duration::from_secs(1);

/// Action that ended balancing, or a reason why it continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DetachEvent {
    /// Threads of a killed balancer's process have their own masks again.
    Restored {
        /// The process.
        pid: Pid,
        /// Threads that got their masks back.
        given_back: u32,
        /// Threads that another program has bound since.
        changed: u32,
        /// Threads that have ended.
        vanished: u32,
        /// Threads that this user may not move.
        refused: u32,
    },
    /// A balancer got the request to stop.
    Told {
        /// The process it balances.
        pid: Pid,
        /// The balancer.
        balancer: Pid,
    },
    /// The balancer is stopped with its whole run, and releases the threads when the run is
    /// continued.
    StoppedWithRun {
        /// The process it balances.
        pid: Pid,
        /// The balancer.
        balancer: Pid,
    },
    /// The balancer alone was stopped, and was continued so that it releases the threads.
    Continued {
        /// The process it balances.
        pid: Pid,
        /// The balancer.
        balancer: Pid,
    },
    /// The service cleared tags.
    Cleared {
        /// The process that was named; `None` for all of the caller's.
        pid: Option<Pid>,
        /// Number of tags.
        tags: u32,
        /// The service.
        service: Pid,
    },
    /// The service keeps tags of its own: for guests, and for bound threads.
    KeptOwn {
        /// Number of tags.
        tags: u32,
        /// The service.
        service: Pid,
    },
    /// The service keeps tags of other users.
    KeptOthers {
        /// Number of tags.
        tags: u32,
        /// The service.
        service: Pid,
    },
}

/// Ends balancing of one process, or of all of the caller's. Appends the actions to `events`.
/// Returns whether any balancing was ended or any mask restored.
///
/// # Errors
/// A balancer cannot be asked to stop or does not release its threads, the service does not answer,
/// or this user may not use a record of the journal.
pub fn detach(
    paths: &Paths,
    only: Option<Pid>,
    narrator: &dyn Narrator,
    events: &mut Vec<DetachEvent>,
) -> Result<bool> {
    let mut work = Detaching {
        paths,
        only,
        narrator,
        events,
        begin: Instant::now(),
        any: false,
        told: Vec::new(),
        woken: Vec::new(),
        asleep: Vec::new(),
        services: BTreeMap::new(),
        unreadable: None,
        has_warned: false,
    };
    while work.turn()? {
        work.wait()?;
    }
    // A service that has moved nothing yet has no record, and users cannot read root's records.
    work.reachable_service()?;
    match work.unreadable.filter(|_| !work.any) {
        Some(why) => Err(why),
        None => Ok(work.any),
    }
}

/// Returns the child of this balancer from which `pid` descends, if there is one.
fn program_of(paths: &Paths, balancer: Pid, pid: Pid) -> Option<Pid> {
    let mut at = pid;
    // Process trees are shallow; the bound only guards against tables that change meanwhile.
    for _ in 0..1_000 {
        match stat(&paths.proc(), at).ok()?.parent {
            parent if parent == balancer => return Some(at),
            parent if parent.0 > 1 => at = parent,
            _ => return None,
        }
    }
    None
}

fn is_stopped(paths: &Paths, pid: Pid) -> bool {
    stat(&paths.proc(), pid).is_ok_and(|stat| stat.state == State::Stopped)
}

/// Continues a stopped process that got the request to end.
fn wake(pid: Pid) {
    let raw = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw);
    // It may have ended, or another program may have continued it.
    let _ = raw.map(|raw| rustix::process::kill_process(raw, rustix::process::Signal::CONT));
}

/// Request to detach, in progress.
struct Detaching<'a> {
    paths: &'a Paths,
    /// The process; `None` for all.
    only: Option<Pid>,
    narrator: &'a dyn Narrator,
    events: &'a mut Vec<DetachEvent>,
    begin: Instant,
    /// Whether any balancing was ended or any mask restored.
    any: bool,
    /// Balancers that got the request to stop.
    told: Vec<Pid>,
    /// Balancers of `told` that were stopped by a signal, and continued.
    woken: Vec<Pid>,
    /// Balancers that are stopped with their program.
    asleep: Vec<Pid>,
    /// Services that got a request, and whether all their processes of this user were taken out.
    services: BTreeMap<Pid, bool>,
    /// Reason why a requested record cannot be read by this user.
    unreadable: Option<anyhow::Error>,
    has_warned: bool,
}

impl Detaching<'_> {
    /// Reads all records, and acts on those that it can at once. Returns whether to wait for a
    /// balancer.
    fn turn(&mut self) -> Result<bool> {
        let mut waiting = false;
        for LeftBehind { pid, balancer, socket, end } in give_back(self.paths, self.only)? {
            match (end, balancer, socket) {
                (LeftEnd::InUse, Some(balancer), Some(socket)) => {
                    // A child may be balanced further by a tag of its own.
                    waiting |= self.taken_out(balancer, socket)? && self.only.is_none_or(|only| only == pid);
                }
                (LeftEnd::InUse, Some(balancer), None) => waiting |= self.told_to_stop(pid, balancer)?,
                (LeftEnd::InUse, None, _) => {
                    return Err(anyhow!(
                        "process {pid} is balanced, but its record does not name the balancer"
                    ));
                }
                (LeftEnd::Restored { given_back, changed, vanished, refused }, ..) => {
                    self.any = true;
                    self.events.push(DetachEvent::Restored { pid, given_back, changed, vanished, refused });
                }
                (LeftEnd::Foreign(uid), ..) if self.only.is_some() => {
                    let (name, only) = (user(self.paths, uid), only_for(self.paths, uid));
                    self.unreadable = Some(anyhow!(
                        "the record of process {pid} belongs to {name}: {only} may use it (sudo trimtab detach {pid})"
                    ));
                }
                (LeftEnd::Unreadable, ..) if self.only.is_some() => {
                    self.unreadable = Some(anyhow!(
                        "the record of process {pid} cannot be read, or belongs to another container"
                    ));
                }
                (LeftEnd::Foreign(_) | LeftEnd::Unreadable, ..) => {}
            }
        }
        Ok(waiting)
    }

    /// Takes the requested processes out of a service, which continues. Returns whether to wait for
    /// their masks.
    fn taken_out(&mut self, balancer: Pid, socket: PathBuf) -> Result<bool> {
        if let Some(all) = self.services.get(&balancer) {
            return Ok(*all);
        }
        if self.only == Some(balancer) {
            return Err(anyhow!(
                "process {balancer} is the service: trimtab detach --all takes out your programs; to end the whole service use systemctl stop \
                 trimtab, or kill {balancer}"
            ));
        }
        let mut client = Client::at(self.paths, &socket).with_context(|| {
            format!("the service (process {balancer}) balances it, and cannot be asked to leave it alone")
        })?;
        self.take_out_of(&mut client, balancer)
    }

    /// Does the same with an open connection. Returns whether all requested processes are out.
    fn take_out_of(&mut self, client: &mut Client, balancer: Pid) -> Result<bool> {
        let Some(pid) = self.only else {
            let (taken, own) = removal::take_out_all(client, geteuid().is_root())?;
            self.cleared(None, taken.cleared, balancer);
            let others = removal::status(client)?.others;
            if own > 0 {
                self.events.push(DetachEvent::KeptOwn { tags: own, service: balancer });
            }
            if others > 0 {
                self.events.push(DetachEvent::KeptOthers { tags: others, service: balancer });
            }
            self.services.insert(balancer, own == 0 && others == 0);
            return Ok(own == 0 && others == 0);
        };
        let taken = removal::take_out(self.paths, client, pid)?;
        self.cleared(Some(pid), taken.cleared, balancer);
        self.services.insert(balancer, true);
        match taken.fault(pid, balancer.0) {
            Some(fault) => Err(anyhow!("{fault}")),
            None => Ok(true),
        }
    }

    fn cleared(&mut self, pid: Option<Pid>, tags: u32, service: Pid) {
        if tags > 0 {
            self.any = true;
            self.events.push(DetachEvent::Cleared { pid, tags, service });
        }
    }

    /// Sends the request to the service that is reachable, if no record led to it: it may have
    /// moved nothing yet, and users cannot read root's records.
    fn reachable_service(&mut self) -> Result<()> {
        let Some(mut client) = Client::any(self.paths, self.narrator) else { return Ok(()) };
        // A service that does not answer does not affect the result so far.
        let Ok(status) = removal::status(&mut client) else { return Ok(()) };
        let balancer = Pid(status.pid);
        let meant = |pid: Pid| status.tags.iter().any(|tag| tag.mark.pid() == Some(pid.0));
        if self.services.contains_key(&balancer) || !self.only.map_or(!status.tags.is_empty(), meant) {
            return Ok(());
        }
        self.take_out_of(&mut client, balancer).map(drop)
    }

    /// Sends a balancer the request to stop. Returns whether to wait for it.
    fn told_to_stop(&mut self, pid: Pid, balancer: Pid) -> Result<bool> {
        self.any = true;
        if !self.told.contains(&balancer) {
            match let_go(balancer) {
                Ok(()) => {
                    self.events.push(DetachEvent::Told { pid, balancer });
                }
                // It has just ended.
                Err(Errno::SRCH) => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "process {pid} is balanced by process {balancer}, which cannot be asked to stop"
                        )
                    });
                }
            }
            self.told.push(balancer);
        }
        if !is_stopped(self.paths, balancer) {
            return Ok(true);
        }
        let program = program_of(self.paths, balancer, pid);
        if program.is_some_and(|program| is_stopped(self.paths, program)) {
            // A job that was stopped on purpose must not be continued here, and none of its threads
            // runs.
            if !self.asleep.contains(&balancer) {
                self.asleep.push(balancer);
                self.events.push(DetachEvent::StoppedWithRun { pid, balancer });
            }
            return Ok(false);
        }
        if !self.woken.contains(&balancer) {
            self.woken.push(balancer);
            self.events.push(DetachEvent::Continued { pid, balancer });
        }
        wake(balancer);
        Ok(true)
    }

    /// Waits for a moment. Fails after [`LET_GO_MAX`].
    fn wait(&mut self) -> Result<()> {
        let balancers = || {
            let pids: Vec<String> =
                self.told.iter().chain(self.services.keys()).map(ToString::to_string).collect();
            pids.join(", ")
        };
        if self.begin.elapsed() > LET_GO_MAX {
            let what = if self.told.is_empty() {
                "was asked to leave it alone and has not: it may be held by a debugger, or busy"
            } else {
                "was asked to stop balancing and has not: it may be stopped by a debugger, or busy; kill -KILL ends it, and masks are restored"
            };
            return Err(anyhow!("process {} {what}", balancers()));
        }
        if self.begin.elapsed() > WARNED_AFTER && !self.has_warned {
            let waits = format!(
                "process {} has not let go yet: waiting up to {} s",
                balancers(),
                LET_GO_MAX.as_secs()
            );
            self.narrator.warning(&waits);
            self.has_warned = true;
        }
        std::thread::sleep(Duration::from_millis(if self.has_warned { 50 } else { 5 }));
        Ok(())
    }
}

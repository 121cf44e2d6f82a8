//! Enforcement of holds by the service: a thread that reads the holds, has core decide, and carries
//! the changes out, until the service ends. Then everything is given back.
//!
//! If the service is killed, a guardian gives everything back: this program once more, which waits
//! at a pipe for the end of the service. A later service does the same first of all.

use super::SharedState;
use crate::narrator::Narrator;
use crate::paths::Paths;
use anyhow::{Context, Result, bail};
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trimtab_core::enforce::{
    Enforcement, EnforcementStatus, GroupChange, HoldGroup, HoldLimits, HoldOutcome, HoldStatus, SeenGroup,
    decide,
};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_core::words::plural;
use trimtab_linux::ledger::{Hold, Holder, Ledger, LedgerView, Level, Location, Mode, ProvenHold};
use trimtab_linux::partitions::{PartitionError, Partitions, seen};
use trimtab_linux::sys::{orphan, signals};

/// Argument of this program that makes it a guardian of enforcement.
pub const GUARDIAN: &str = "enforcement-guardian";
/// Byte by which a service reports that it gave everything back.
const DONE_BYTE: u8 = b'.';
/// Pause between two looks at the ledger. Chosen: a start may wait so long until foreign tasks
/// leave its CPUs. A look costs some system calls for each hold.
const PAUSE: Duration = Duration::from_secs(1);
/// A full reading, of all processes, follows the last one after so many times as long as that took:
/// 5 % of a CPU while holds come and go, 1/2 % while they do not.
const PAUSE_CHANGED: u32 = 20;
const PAUSE_UNCHANGED: u32 = 200;
/// Longest time for which a change of the holds waits, however long a reading takes.
const PAUSE_CHANGED_MAX: Duration = Duration::from_secs(5);
/// Least time after which holds that did not change are read anew: processes of a hold may have
/// appeared outside its group.
const READ_ANEW: Duration = Duration::from_secs(10);
/// Longest wait of a guardian for the lock of a service that is gone.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait of a service for the guardian of a killed one.
const TAKEOVER_MAX: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(10);
/// State of a hold without known processes.
const NOT_SHOWN: &str = "only agreed: no process shows its descriptor (a program may have closed it before the service saw the hold)";

/// Settings of enforcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnforceOptions {
    /// The site's limits.
    pub limits: HoldLimits,
}

/// Enforcement that is ready to begin.
#[derive(Debug)]
pub(super) struct Enforcer {
    partitions: Partitions,
    /// Keeps other services from enforcing; `None` if nothing is changed.
    lock: Option<File>,
    guardian: Option<ChildStdin>,
    location: Location,
    proc: PathBuf,
    machine: Machine,
    limits: HoldLimits,
    shared: SharedState,
    narrator: Arc<dyn Narrator>,
    /// Groups that were made, or found at the start.
    known: BTreeSet<HoldGroup>,
    last: Option<LastReading>,
    /// The last report about each hold, by its number, user and CPUs in words.
    told: BTreeMap<String, String>,
}

/// The holds as they were read last.
#[derive(Debug)]
struct LastReading {
    at: Instant,
    /// How long it took, with the changes.
    took: Duration,
    /// Whether nothing had to be changed.
    settled: bool,
    /// The groups after it.
    groups: Vec<SeenGroup>,
    /// The locked CPUs and the claims of their holders: cheap to read, and enough to notice a
    /// change.
    claims: Vec<Claim>,
}

impl LastReading {
    /// Returns whether another full reading can wait.
    fn is_fresh(&self, claims: &[Claim], groups: &[SeenGroup]) -> bool {
        let since = self.at.elapsed();
        let same = self.settled && self.claims == claims && self.groups == groups;
        let least = if same {
            READ_ANEW.max(self.took * PAUSE_UNCHANGED)
        } else {
            PAUSE_CHANGED_MAX.min(self.took * PAUSE_CHANGED)
        };
        since < least
    }
}

/// A hold as its record shows it. The number and the user are what some process wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    cpus: CpuSet,
    hold: u64,
    uid: u32,
}

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct Enforcing {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Enforcing {
    /// Ends enforcement: everything is given back.
    pub(super) fn end(self, narrator: &dyn Narrator) {
        // The thread may have ended by a panic; its guardian gives everything back then.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            narrator.warning("the thread that enforces holds has failed");
        }
    }
}

impl Enforcer {
    /// Makes enforcement ready. Groups that a killed service left are found, and kept as long as
    /// their holds are granted. With `observe`, nothing is changed.
    ///
    /// # Errors
    /// Holds cannot be enforced here.
    pub(super) fn new(
        paths: &Paths,
        options: &EnforceOptions,
        observe: bool,
        machine: &Machine,
        shared: &SharedState,
        narrator: &Arc<dyn Narrator>,
    ) -> Result<Self> {
        let partitions = Partitions::open(&paths.cgroups())?;
        let (mut lock, mut guardian) = (None, None);
        if !observe {
            // Made by root, so that no other user owns it.
            drop(Ledger::open(&paths.location()?)?);
            lock = Some(lock_soon(&partitions)?);
            partitions.probe()?;
            guardian = Some(guard(&paths.cgroups()).context("no guardian can be started")?);
        }
        let known = partitions.find();
        Ok(Self {
            partitions,
            lock,
            guardian,
            location: paths.location()?,
            proc: paths.proc(),
            machine: machine.clone(),
            limits: options.limits.clone(),
            shared: shared.clone(),
            narrator: Arc::clone(narrator),
            known,
            last: None,
            told: BTreeMap::new(),
        })
    }

    /// Begins, in a thread of its own.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn begin(mut self) -> Result<Enforcing> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("enforcer".to_owned())
            .spawn(move || self.run(&stopped))
            .context("cannot start a thread (enforcer)")?;
        Ok(Enforcing { stop, thread })
    }

    fn observes(&self) -> bool {
        self.lock.is_none()
    }

    fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            if let Err(error) = self.turn() {
                self.publish_fault(&format!("{error:#}"));
            }
            match stopped.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.observes() {
            return;
        }
        let (count, fault) = self.partitions.give_back_all();
        match fault {
            // The guardian tries again when this process has ended.
            Some(error) => self.narrator.warning(&format!("not all of enforcement is given back: {error}")),
            None => {
                if let Some(mut guardian) = self.guardian.take() {
                    let _ = guardian.write_all(&[DONE_BYTE]);
                }
                self.narrator.detail(&format!("gave {} of holds back", plural(count, "group")));
            }
        }
    }

    /// Reads the holds, decides and carries the changes out, unless nothing has changed.
    fn turn(&mut self) -> Result<()> {
        let view = LedgerView::open(&self.location)?;
        if let Some(view) = view.as_ref().filter(|view| !view.is_of_root().unwrap_or(false)) {
            bail!(
                "{} or its folder is not root's: whoever owns it could pretend any hold. Remove it as root while no run holds cores; the package's tmpfiles.d entry makes a folder of root's",
                view.path().display()
            );
        }
        let claims = match &view {
            Some(view) => claims(view, &self.machine.cpus())?,
            None => Vec::new(),
        };
        let begin = Instant::now();
        let groups = self.groups();
        if self.last.as_ref().is_some_and(|last| last.is_fresh(&claims, &groups)) {
            return Ok(());
        }
        self.known = groups.iter().map(|seen| seen.group.clone()).collect();
        let holds = match &view {
            Some(view) => seen(view, &self.proc, &self.machine.cpus(), &self.partitions, &groups)?,
            None => Vec::new(),
        };
        let decided = decide(&self.machine, &self.limits, &holds, &groups);
        let faults = if self.observes() { BTreeMap::new() } else { self.carry_out(&decided.changes) };
        self.tell(&decided, &faults);
        // Failures, and changes meanwhile, are looked at again at once.
        let settled = faults.is_empty() && decided.changes.is_empty() || self.observes();
        self.publish(&decided, &faults, &claims);
        let groups = self.groups();
        self.last = Some(LastReading { at: Instant::now(), took: begin.elapsed(), settled, groups, claims });
        Ok(())
    }

    fn groups(&self) -> Vec<SeenGroup> {
        self.known.iter().filter_map(|group| self.partitions.read(group)).collect()
    }

    /// Carries changes out. Returns the first failure for each hold; later changes for it are left
    /// to the next turn.
    fn carry_out(&mut self, changes: &[GroupChange]) -> BTreeMap<u64, String> {
        let mut faults = BTreeMap::new();
        for change in changes {
            let hold = change.hold();
            if faults.contains_key(&hold) {
                continue;
            }
            let done = match change {
                GroupChange::Void { cpus, .. } => self.void(hold, cpus).map_err(|error| format!("{error:#}")),
                _ => {
                    if let GroupChange::Establish { group, .. } = change {
                        self.known.insert(group.clone());
                    }
                    self.partitions.apply(change).map_err(|error: PartitionError| error.to_string())
                }
            };
            match done {
                Ok(()) => self.narrator.detail(&change.to_string()),
                Err(error) => {
                    faults.insert(hold, error);
                }
            }
        }
        faults
    }

    /// Frees the CPUs of a refused hold in the ledger: its own descriptor is copied, and its locks
    /// are given back through the copy.
    fn void(&self, id: u64, cpus: &CpuSet) -> Result<()> {
        let ledger = Ledger::open(&self.location)?;
        let proven = ledger.proven(Level::MACHINE, &self.machine.cpus())?;
        // The number alone is a claim: another description may lock the same one.
        let is_it = |hold: &ProvenHold| hold.id.number() == id && hold.exclusive.union(&hold.shared) == *cpus;
        let Some(hold) = proven.into_iter().find(is_it) else { return Ok(()) };
        let mode = if hold.shared.is_empty() { Mode::Exclusive } else { Mode::Shared };
        // Names are not needed to give locks back.
        let holder = Holder::default();
        let its = Hold { id: hold.id, level: Level::MACHINE, mode, cpus: cpus.clone(), holder };
        let mut borrowed = ledger.borrow_from(&hold.lockers, &its)?;
        borrowed.give_back(&ledger, cpus)?;
        Ok(())
    }

    /// Reports decisions that are new, one line for each hold.
    fn tell(&mut self, decided: &Enforcement, faults: &BTreeMap<u64, String>) {
        let mut told = BTreeMap::new();
        for verdict in &decided.verdicts {
            let hold = format!("hold {:#x} of user {}, CPUs {}", verdict.hold, verdict.uid, verdict.cpus);
            let line = match faults.get(&verdict.hold) {
                Some(fault) => format!("{hold}: not enforced: {fault}"),
                None if self.observes() => format!("{hold} would be {}", verdict.outcome),
                None => format!("{hold}: {}", verdict.outcome),
            };
            if self.told.get(&hold) != Some(&line) {
                let granted = matches!(verdict.outcome, HoldOutcome::Granted(_));
                match (faults.contains_key(&verdict.hold), granted) {
                    (true, _) => self.narrator.warning(&line),
                    (false, true) => self.narrator.detail(&line),
                    (false, false) => self.narrator.notice(&line),
                }
                if self.observes() {
                    let changes = decided.changes.iter().filter(|change| change.hold() == verdict.hold);
                    changes.for_each(|change| self.narrator.headline(&format!("would {change}")));
                }
            }
            told.insert(hold, line);
        }
        self.told = told;
    }

    fn publish(&self, decided: &Enforcement, faults: &BTreeMap<u64, String>, claims: &[Claim]) {
        let decided_holds: BTreeSet<u64> = decided.verdicts.iter().map(|verdict| verdict.hold).collect();
        let unknown = claims.iter().filter(|claim| !decided_holds.contains(&claim.hold));
        let unknown = unknown.filter(|claim| !claim.cpus.is_empty()).map(|claim| HoldStatus {
            hold: format!("{:#x}", claim.hold),
            uid: claim.uid,
            cpus: claim.cpus.clone(),
            enforced: false,
            outcome: NOT_SHOWN.to_owned(),
            fault: None,
        });
        let holds = decided.verdicts.iter().map(|verdict| {
            let fault = faults.get(&verdict.hold).cloned();
            let granted = matches!(verdict.outcome, HoldOutcome::Granted(_));
            HoldStatus {
                hold: format!("{:#x}", verdict.hold),
                uid: verdict.uid,
                cpus: verdict.cpus.clone(),
                enforced: granted && fault.is_none() && !self.observes(),
                outcome: verdict.outcome.to_string(),
                fault,
            }
        });
        let status = EnforcementStatus {
            observe: self.observes(),
            kind: self.limits.kind,
            holds: holds.chain(unknown).collect(),
            fault: None,
        };
        self.shared.lock().enforcement = Some(status);
    }

    /// Publishes that the holds could not be read; the last state of them stays.
    fn publish_fault(&self, fault: &str) {
        let mut state = self.shared.lock();
        let status = state.enforcement.get_or_insert_default();
        if status.fault.as_deref() != Some(fault) {
            self.narrator.warning(&format!("holds cannot be read: {fault}"));
        }
        status.observe = self.observes();
        status.fault = Some(fault.to_owned());
    }
}

/// Takes the lock of enforcement. The guardian of a service that has just been killed may have it
/// for a moment.
fn lock_soon(partitions: &Partitions) -> Result<File, PartitionError> {
    let begin = Instant::now();
    loop {
        match partitions.lock() {
            Err(PartitionError::InUse) if begin.elapsed() < TAKEOVER_MAX => std::thread::sleep(LOCK_RETRY),
            done => return done,
        }
    }
}

/// Makes sure that this process may enforce holds.
///
/// # Errors
/// It is not root's.
pub(super) fn check_right() -> Result<()> {
    if !geteuid().is_root() {
        bail!("only root can enforce holds: sudo trimtab serve --enforce, or run it without --enforce");
    }
    Ok(())
}

/// Returns the facts that show a change of holds first: the locked CPUs with the numbers of their
/// holds.
fn claims(view: &LedgerView, machine: &CpuSet) -> Result<Vec<Claim>> {
    let holders = view.holders(Level::MACHINE, machine)?;
    let known = holders.known.into_iter().map(|hold| Claim {
        cpus: hold.cpus,
        hold: hold.id.number(),
        uid: hold.holder.uid,
    });
    Ok(known.chain([Claim { cpus: holders.unknown, hold: 0, uid: 0 }]).collect())
}

/// Gives back everything that a killed service left, unless a service enforces now.
pub fn tidy(paths: &Paths, narrator: &dyn Narrator) {
    if !geteuid().is_root() {
        return;
    }
    let Ok(partitions) = Partitions::open(&paths.cgroups()) else { return };
    let Ok(_lock) = partitions.lock() else { return };
    match partitions.give_back_all() {
        (_, Some(fault)) => {
            narrator.warning(&format!("what a killed service left is not given back: {fault}"))
        }
        (0, None) => {}
        (count, None) => {
            narrator.detail(&format!("a killed service left {}: given back", plural(count, "group")));
        }
    }
}

/// Gives back everything that a killed service left, at a request.
///
/// # Errors
/// The caller is not root, there are no such control groups, a service enforces holds, or the
/// kernel refuses.
pub fn give_back(paths: &Paths, narrator: &dyn Narrator) -> Result<()> {
    if !geteuid().is_root() {
        bail!("only root can give control groups of holds back: sudo trimtab serve --give-back");
    }
    let partitions = Partitions::open(&paths.cgroups())?;
    let _lock = partitions.lock()?;
    let (count, fault) = partitions.give_back_all();
    narrator.notice(&format!("gave {} of holds back", plural(count, "group")));
    fault.map_or(Ok(()), |fault| Err(fault.into()))
}

/// Starts a guardian, and returns its pipe.
fn guard(groups: &Path) -> std::io::Result<ChildStdin> {
    // The file that this process runs, even if another file has its name now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("trimtab: guardian of holds").arg(GUARDIAN).arg(groups);
    command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let (pipe, _) = orphan::spawn(&mut command)?;
    pipe.ok_or_else(|| std::io::Error::other("it has no pipe"))
}

/// The work of a guardian's process: waits at standard input for the end of the service, and gives
/// back what that could not.
pub fn stand_guard(groups: &Path) {
    // Signals of a terminal or a service manager are for the service, which ends the guardian.
    let _ = signals::block();
    let _ = rustix::thread::set_name(c"guardian");
    let _ = orphan::close_from(3);
    let mut last = None;
    for byte in std::io::stdin().lock().bytes() {
        match byte {
            Ok(byte) => last = Some(byte),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    if last == Some(DONE_BYTE) {
        return;
    }
    let Ok(partitions) = Partitions::open(groups) else { return };
    let begin = Instant::now();
    // The kernel closes the files of a killed process one after the other. If another service has
    // the lock instead, that has taken over.
    while begin.elapsed() < LOCK_WAIT_MAX {
        if let Ok(_lock) = partitions.lock() {
            partitions.give_back_all();
            return;
        }
        std::thread::sleep(LOCK_RETRY);
    }
}

//! Live machine as a source of events: programs at every interval, the rest of the machine every
//! few seconds.

use super::choose::choose;
use super::event::Event;
use super::scene::{Around, Scene};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trimtab_agent::spawn::spawn;
use trimtab_agent::targets::vm_roots;
use trimtab_cli::args::SurveyMode;
use trimtab_core::balance::{Kind, Settings, policy};
use trimtab_core::drive::{Go, drive};
use trimtab_core::observe::Observer;
use trimtab_core::queue::QueueRules;
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::account::{Account, Keep};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_front::diagnostics::Volume;
use trimtab_front::process_env::World;
use trimtab_hold::foreign_load::Surroundings;
use trimtab_hold::holds::{self, Holds};
use trimtab_hold::site_facts::{Situation, location};
use trimtab_linux::host::{HostOptions, Live, LiveError, Root};
use trimtab_linux::ledger::LedgerView;
use trimtab_linux::process::Pid;
use trimtab_linux::survey::process_times;
use trimtab_linux::users::Users;
use trimtab_linux::vcpus::VmName;

/// Time between two scans of the machine; each reads all tasks.
const MACHINE_SCAN_INTERVAL: Duration = Duration::from_secs(3);
/// Time over which the CPU time of processes is compared: it is counted in steps of 10 ms.
const CHOICE_WINDOW: Duration = Duration::from_millis(250);
/// Time between two choices of programs.
const CHOICE_INTERVAL: Duration = Duration::from_secs(5);

/// The programs to watch, and their machine.
pub(super) struct Source {
    world: World,
    pub(super) machine: Machine,
    usable: CpuSet,
    /// Programs that were named.
    named: Vec<Root>,
    interval: Span,
    /// The processes watched now: their bindings are not foreign.
    watched: Arc<Mutex<BTreeSet<u32>>>,
    /// Processes that cannot be watched, with the reason: they are skipped and reported.
    unseen: Mutex<BTreeMap<Pid, String>>,
}

impl Source {
    /// Opens this machine.
    ///
    /// # Errors
    /// The machine cannot be discovered, or a named process does not exist.
    pub(super) fn new(pids: &[u32], machines: &[VmName], interval: Span) -> Result<Self> {
        let world = World::current();
        let situation = Situation::live(&world, false)?;
        for &pid in pids {
            match trimtab_linux::process::stat(&world.proc(), Pid(pid)) {
                Err(error) if error.is_gone() => bail!("there is no process {pid} to watch"),
                other => other.with_context(|| format!("cannot watch process {pid}"))?,
            };
        }
        let machines = vm_roots(&world.paths(), machines, pids, &Volume::Normal)?;
        Ok(Self {
            usable: situation.taken.allowed,
            machine: situation.machine,
            named: pids.iter().map(|&pid| Root::Tree(Pid(pid))).chain(machines).collect(),
            interval,
            watched: Arc::default(),
            unseen: Mutex::default(),
            world,
        })
    }

    /// Takes one sample: programs over one interval, and the machine around them.
    ///
    /// # Errors
    /// Nothing can be watched.
    pub(super) fn once(&self) -> Result<(Account, Around)> {
        let mut last = self.empty();
        let roots = self.roots();
        if !roots.is_empty() {
            self.watch(&roots, &mut |account| {
                last = account.clone();
                if account.steps() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok((last, self.around()))
    }

    /// Sends events until the receiver is dropped.
    pub(super) fn send(self, events: &SyncSender<Event>) -> Result<()> {
        let this = Arc::new(self);
        let (around, to) = (Arc::clone(&this), events.clone());
        spawn("around", move || {
            while to.send(Event::Around(Box::new(around.around()))).is_ok() {
                thread::sleep(MACHINE_SCAN_INTERVAL);
            }
        })?;
        let to = events.clone();
        spawn("watcher", move || {
            let _ = to.send(match this.send_scenes(&to) {
                Ok(()) => Event::Over("all watched programs have ended".to_owned()),
                Err(error) => Event::Failed(format!("{error:#}")),
            });
        })
    }

    /// Sends samples until the named programs have ended; without named programs, without end.
    fn send_scenes(&self, events: &SyncSender<Event>) -> Result<()> {
        let empty = Scene { account: Arc::new(self.empty()) };
        loop {
            let roots = self.roots();
            let mut closed = false;
            let mut chosen = Instant::now();
            if roots.is_empty() {
                closed = events.send(Event::Scene(Box::new(empty.clone()))).is_err();
                thread::sleep(Duration::from(self.interval).max(CHOICE_WINDOW));
            } else {
                self.watch(&roots, &mut |account| {
                    let scene = Scene { account: Arc::new(account.clone()) };
                    closed = events.send(Event::Scene(Box::new(scene))).is_err();
                    let again = self.named.is_empty() && chosen.elapsed() >= CHOICE_INTERVAL;
                    if again {
                        chosen = Instant::now();
                    }
                    // A new program restarts the watch; programs that ended are shown as ended.
                    let new = again && self.roots().iter().any(|root| !roots.contains(root));
                    if closed || new { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
            if closed || !self.named.is_empty() {
                return Ok(());
            }
        }
    }

    fn empty(&self) -> Account {
        Account::new(&self.machine, Settings::default().metric, Keep::default())
    }

    /// Watches until the request to stop, or until no program is left.
    fn watch(&self, roots: &[Root], shown: &mut dyn FnMut(&Account) -> ControlFlow<()>) -> Result<()> {
        let settings = Settings { interval: self.interval, ..Settings::default() };
        let Some(mut host) = self.host(roots)? else { return Ok(()) };
        let mut observer = Observer::new(self.usable.clone());
        let mut float = policy(Kind::Float, &self.machine, &settings);
        let mut account = Account::new(&self.machine, settings.metric, Keep::default());
        drive(&mut host, &mut *float, &mut observer, &mut |step| {
            account.take(step);
            let pids = account.threads().map(|thread| thread.info.pid).collect();
            *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = pids;
            if shown(&account).is_break() { Go::Stop } else { Go::On }
        })?;
        Ok(())
    }

    /// Opens a host on these programs. Of programs that were not named, only those that can be
    /// watched; `None` if there are none.
    fn host(&self, roots: &[Root]) -> Result<Option<Live>> {
        let open = |roots: &[Root]| {
            let hands_off = HostOptions { hands_off: true, ..HostOptions::default() };
            Live::with(&self.world.proc(), roots, &self.usable, hands_off)
        };
        match open(roots) {
            Ok(live) => return Ok(Some(live)),
            Err(error @ LiveError::System { .. }) => return Err(error.into()),
            Err(error) if !self.named.is_empty() => return Err(error.into()),
            Err(_) => {}
        }
        let seen: Vec<Root> =
            roots.iter().filter(|root| self.can(root, open(&[(*root).clone()]))).cloned().collect();
        if seen.is_empty() { Ok(None) } else { Ok(Some(open(&seen)?)) }
    }

    /// Returns whether a program can be watched; if not, stores the reason for the report.
    fn can(&self, root: &Root, opened: Result<Live, LiveError>) -> bool {
        match (root, opened) {
            (_, Ok(_)) => true,
            // The program has ended since it was chosen.
            (_, Err(LiveError::Ended(_) | LiveError::NoProcess(_))) => false,
            (Root::Tree(pid), Err(error)) => {
                let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
                unseen.insert(*pid, format!("not watched: {error}"));
                false
            }
            (Root::Cgroup(_) | Root::Vm(_) | Root::Thread(..), Err(_)) => false,
        }
    }

    /// Returns the named programs, or the holders of cores and the busiest processes.
    fn roots(&self) -> Vec<Root> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        let (proc, uid) = (self.world.proc(), rustix::process::geteuid().as_raw());
        let before = process_times(&proc, uid).unwrap_or_default();
        let begin = Instant::now();
        thread::sleep(CHOICE_WINDOW);
        let after = process_times(&proc, uid).unwrap_or_default();
        let holders: Vec<u32> = self.ledger(&Surroundings::default()).iter().flat_map(holders).collect();
        let chosen = choose(&holders, &before, &after, begin.elapsed(), Pid::own());
        let there = |pid: &Pid| trimtab_linux::process::stat(&proc, *pid).is_ok();
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        unseen.retain(|pid, _| there(pid));
        chosen.into_iter().filter(|pid| there(pid) && !unseen.contains_key(pid)).map(Root::Tree).collect()
    }

    fn ledger(&self, seen: &Surroundings) -> Option<Holds> {
        let view = LedgerView::open(&location(&self.world).ok()?).ok()??;
        let users = Users::read(&self.world.root.join("etc/passwd")).unwrap_or_default();
        // The order of the queue is not shown here.
        let rules = QueueRules::default();
        holds::gather(&self.world, &self.machine, Some(&view), seen, &users, rules).ok()
    }

    fn around(&self) -> Around {
        let seen = Surroundings::look(&self.world, SurveyMode::Full, &self.machine, &self.usable, None);
        let ledger = self.ledger(&seen);
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut around = Around::of(&self.machine, &self.usable, seen, ledger, &watched);
        let unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        around.notes.extend(unseen.values().cloned());
        around
    }
}

fn holders(ledger: &Holds) -> Vec<u32> {
    ledger.holds.iter().filter(|row| row.level == 0).map(|row| row.pid).collect()
}

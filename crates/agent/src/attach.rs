//! Attach: balancing of programs that are already running, until they end or the user stops the
//! balancing.

use crate::metrics::{Address, Figures};
use crate::monitored_host::{CountingOptions, MonitoredHost};
use crate::narrator::Narrator;
use crate::paths::Paths;
use crate::recorder::{Recorder, TraceTarget};
use crate::restoration;
use crate::spawn::spawn;
use crate::step_sinks::StepSinks;
use crate::targets::{self, cgroup, vm_label, vm_roots};
use crate::unix_seconds;
use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trimtab_core::balance::{Kind, Policy, Settings, Wanted, policy};
use trimtab_core::drive::{Go, Host};
use trimtab_core::observe::{Left, Sample};
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::account::Tally;
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_core::trace::{Header, VERSION};
use trimtab_linux::host::{AffinityJournal, HostOptions, Live, LiveError, Root, Stopper};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::sys::signals::is_ignored;
use trimtab_linux::text;
use trimtab_linux::vcpus::VmName;

/// Longest command line in a trace, in bytes.
const COMMAND_MAX: usize = 400;

/// Targets and settings of an attach.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Processes, each with all its descendants. No process is listed twice.
    pub pids: Vec<u32>,
    /// Virtual machines, of which only the virtual CPUs are balanced.
    pub vms: Vec<VmName>,
    /// Control group, including the groups below it.
    pub cgroup: Option<PathBuf>,
    /// The policy; [`Kind::Float`] only watches.
    pub policy: Kind,
    /// Settings of the policy.
    pub settings: Settings,
    /// Hardware counters to read.
    pub counting: CountingOptions,
    /// CPUs to which threads may be moved; `None` for all that the programs' threads may use
    /// together.
    pub cpus: Option<CpuSet>,
    /// Whether threads bound to fewer CPUs than the others are not moved.
    pub respect_masks: bool,
    /// Whether the machine's first process, the ancestor of all others, may be named.
    pub whole_machine: bool,
    /// Time after which balancing ends.
    pub time: Option<Span>,
    /// Target of the recorded steps.
    pub trace: Option<TraceTarget>,
    /// Address at which metrics are offered to Prometheus.
    pub metrics: Option<Address>,
}

/// Balancing of running programs.
pub struct Attached {
    host: MonitoredHost,
    sinks: StepSinks,
    policy: Box<dyn Policy>,
    usable: CpuSet,
    /// Whether a signal or the time limit ended it.
    stopped: Arc<AtomicBool>,
    narrator: Arc<dyn Narrator>,
}

impl Attached {
    /// Finds the programs, and records the head of the trace. `machine` is called when the programs
    /// are known.
    ///
    /// # Errors
    /// The programs cannot be watched, or an output cannot be written.
    pub fn begin(
        paths: &Paths,
        options: AttachOptions,
        machine: impl FnOnce() -> Result<Machine>,
        narrator: &Arc<dyn Narrator>,
    ) -> Result<Self> {
        refuse_the_whole_machine(paths, &options)?;
        let recorder = options.trace.as_ref().map(|trace| Recorder::to("--trace", trace)).transpose()?;
        let roots = roots(paths, &options, &**narrator)?;
        restoration::tidy(paths, &**narrator);
        let machine = machine()?;
        let keeper =
            (options.policy != Kind::Float).then(|| restoration::keeper(paths, &**narrator)).flatten();
        let first = sample_once(paths, &roots, &machine.cpus(), keeper.as_ref())?;
        let usable = usable(options.cpus.as_ref(), options.settings.free, &machine, &first)?;
        let CountingOptions { choice, always } = options.counting;
        let live = HostOptions { keep: keeper, counting: choice, ..HostOptions::default() };
        let live = Live::with(&paths.proc(), &roots, &usable, live)
            .map_err(|error| explain(paths, &roots, &error))?;
        let StopFlags { stopped, pause } = listen(live.stopper(), options.time)?;
        let host = MonitoredHost::new(live)
            .respecting(options.respect_masks.then(|| usable.clone()))
            .pausing(pause)
            .counting(always, Arc::clone(narrator));
        let label = label(paths, &roots);
        let figures = options.metrics.as_ref();
        let figures =
            figures.map(|address| Figures::offer(address, &machine, &options.settings, &**narrator));
        let figures = figures.transpose()?;
        narrator.headline(&format!("{}: {label} on CPUs {usable}; Ctrl-C ends it", options.policy));
        let policy = policy(options.policy, &machine, &options.settings);
        let header = Header {
            version: VERSION,
            policy: options.policy,
            settings: options.settings,
            command: label,
            began: unix_seconds(),
            usable: usable.clone(),
            machine,
        };
        let sinks = StepSinks::begin(header, recorder, figures, Arc::clone(narrator));
        Ok(Self { host, sinks, policy, usable, stopped, narrator: Arc::clone(narrator) })
    }

    /// Balances until the programs end, the user stops it, or the reader of the trace has closed
    /// it. After every step, `each` gets the tally so far. [`Attached::finish`] reports the cause
    /// of the end.
    ///
    /// # Errors
    /// The programs can no longer be watched.
    pub fn watch(&mut self, each: &mut dyn FnMut(&Tally)) -> Result<(), LiveError> {
        self.sinks.watch(&mut self.host, &mut *self.policy, &self.usable, &mut |tally, recorder| {
            each(tally);
            if recorder.is_some_and(Recorder::is_unread) { Go::Stop } else { Go::On }
        })
    }

    /// Gives all masks back, and ends the trace.
    ///
    /// # Errors
    /// The error that ended the watching, or the trace on standard output is incomplete.
    pub fn finish(mut self, watched: Result<(), LiveError>) -> Result<()> {
        let (restored, fault) = self.host.restore();
        let stopped = self.stopped.load(Ordering::Relaxed);
        let why = match (&watched, stopped) {
            (Err(error), _) => format!("watching failed: {error}"),
            (Ok(()), true) => "stopped".to_owned(),
            (Ok(()), false) => "the programs ended".to_owned(),
        };
        self.sinks.record(|recorder| recorder.end(&why, None));
        restoration::warn(restored, fault, &*self.narrator);
        if let Some(fault) = self.host.vm_fault().filter(|_| stopped) {
            let late = "virtual CPUs that came later may have been left out";
            self.narrator.warning(&format!("{late}: {fault}"));
        }
        let given_back = match restored.given_back {
            0 => String::new(),
            threads => format!("; {}", restoration::own_masks(threads)),
        };
        self.narrator.headline(&format!("{why}: {}{given_back}", self.sinks.summary()));
        watched?;
        match self.sinks.fault() {
            // The requested trace is not complete.
            Some(why) => Err(anyhow!("{why}")),
            None => Ok(()),
        }
    }
}

/// Describes the effect of an attach that would move all threads of the machine; `None` if it would
/// not. The first process of a container is a program like any other.
pub fn whole_machine(paths: &Paths, pids: &[u32], policy: Kind) -> Option<String> {
    let first = pids.contains(&1) && policy != Kind::Float;
    // The second process of a machine is the kernel's.
    let of_machine = || process::stat(&paths.proc(), Pid(2)).is_ok_and(|second| second.kernel_thread);
    if !first || !of_machine() {
        return None;
    }
    let count = process::all(&paths.proc()).map_or(0, |all| all.len());
    Some(format!(
        "process 1 is the machine's first: all processes of the machine ({count} now) come from it, and {policy} would move their threads"
    ))
}

/// Refuses to move all threads of the machine unless this was confirmed.
fn refuse_the_whole_machine(paths: &Paths, options: &AttachOptions) -> Result<()> {
    match whole_machine(paths, &options.pids, options.policy).filter(|_| !options.whole_machine) {
        Some(effect) => Err(anyhow!(
            "{effect}; name the processes that are meant, add --yes for all, or --balance float to watch only"
        )),
        None => Ok(()),
    }
}

/// Returns the roots to be watched.
fn roots(paths: &Paths, options: &AttachOptions, narrator: &dyn Narrator) -> Result<Vec<Root>> {
    let group = |path: &PathBuf| Root::Cgroup(cgroup(paths, path));
    let machines = vm_roots(paths, &options.vms, &options.pids, narrator)?;
    let whole = options.pids.iter().map(|&pid| Root::Tree(Pid(pid)));
    // Before a control group, which may contain them too.
    Ok(whole.chain(machines).chain(options.cgroup.as_ref().map(group)).collect())
}

/// Samples the programs once, to find the CPUs on which their threads may run.
fn sample_once(
    paths: &Paths,
    roots: &[Root],
    cpus: &CpuSet,
    keeper: Option<&AffinityJournal>,
) -> Result<Sample> {
    let options = HostOptions { keep: keeper.cloned(), ..HostOptions::default() };
    let mut live =
        Live::with(&paths.proc(), roots, cpus, options).map_err(|error| explain(paths, roots, &error))?;
    let sample = live.observe(&Wanted::default())?;
    let balancer = |info: &trimtab_core::observe::ThreadInfo| match info.left {
        Some(Left::Balancer(pid)) => Some((info.pid, pid)),
        _ => None,
    };
    let balanced: Vec<_> = sample.news.iter().filter_map(balancer).collect();
    match balanced.first() {
        Some((pid, by)) if balanced.len() == sample.news.len() => {
            Err(anyhow!("{}", balanced_already(paths, *pid, *by)))
        }
        _ => Ok(sample),
    }
}

/// Names the balancer of a process, and the command that ends its work.
fn balanced_already(paths: &Paths, pid: u32, by: u32) -> String {
    let left = restoration::give_back(paths, Some(Pid(pid))).unwrap_or_default();
    let of_service = left.iter().any(|left| left.pid == Pid(pid) && left.socket.is_some());
    match by {
        _ if of_service => format!(
            "process {pid} is balanced by the service already (process {by}): trimtab detach {pid} takes it out, and the service continues"
        ),
        // The journal belongs to root, so users cannot read it.
        0 => format!(
            "process {pid} is balanced by root already: trimtab detach {pid} takes it out if the service balances it by one of your tags; else \
             only root may end it (sudo trimtab detach {pid})"
        ),
        _ => format!("process {pid} is balanced by process {by} already: trimtab detach {pid} ends that"),
    }
}

/// Returns the CPUs to which threads may be moved: those they may use together, unless CPUs are
/// named; all CPUs of the machine if threads may leave their masks (the host keeps each within its
/// cpuset).
fn usable(cpus: Option<&CpuSet>, free: bool, machine: &Machine, first: &Sample) -> Result<CpuSet> {
    let together = first.news.iter().fold(CpuSet::new(), |all, info| all.union(&info.home));
    let (usable, what) = match cpus {
        None if free => (machine.cpus(), "this machine has no CPU that can be used"),
        Some(cpus) => (cpus.intersection(&machine.cpus()), "none of the CPUs of --cpus is on this machine"),
        None if first.news.is_empty() => {
            (CpuSet::new(), "no thread is left: the programs have ended, or the control group is empty")
        }
        None => {
            (together.intersection(&machine.cpus()), "the programs' threads may use no CPU of this machine")
        }
    };
    if usable.is_empty() { Err(anyhow!(what)) } else { Ok(usable) }
}

/// Adds advice to an error.
fn explain(paths: &Paths, roots: &[Root], error: &LiveError) -> anyhow::Error {
    match error {
        LiveError::NotYours { pid, uid } => {
            let (name, only) = (restoration::user(paths, *uid), restoration::only(paths, *uid));
            let vm = if targets::is_vm(roots, *pid) { "--vm " } else { "" };
            anyhow!(
                "process {pid} belongs to {name}: {only} may move its threads (sudo trimtab attach {vm}{pid})"
            )
        }
        other => anyhow!("{other}"),
    }
}

/// Requests by signals or the time limit.
struct StopFlags {
    /// Balancing is to end.
    stopped: Arc<AtomicBool>,
    /// Balancing is to pause.
    pause: Arc<AtomicBool>,
}

/// Ends balancing at a signal or after a time, and sets `stopped`; requests a pause at Ctrl-Z.
fn listen(stopper: Stopper, time: Option<Span>) -> Result<StopFlags> {
    let (stopped, pause) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    // Signals that were ignored at our start (as by nohup) stay ignored. A file that may not grow
    // is an error and does not end the process.
    let heard = [SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGTSTP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(heard.chain([SIGXFSZ])).context("cannot listen for signals")?;
    let (ended, pauses, end) = (Arc::clone(&stopped), Arc::clone(&pause), stopper.clone());
    spawn("signals", move || {
        for signal in signals.forever() {
            match signal {
                SIGXFSZ => {}
                SIGTSTP => pauses.store(true, Ordering::Relaxed),
                _ => {
                    ended.store(true, Ordering::Relaxed);
                    end.stop();
                }
            }
        }
    })?;
    if let Some(time) = time {
        let ended = Arc::clone(&stopped);
        spawn("end", move || {
            std::thread::sleep(Duration::from(time));
            ended.store(true, Ordering::Relaxed);
            stopper.stop();
        })?;
    }
    Ok(StopFlags { stopped, pause })
}

/// Describes the targets for messages.
fn label(paths: &Paths, roots: &[Root]) -> String {
    let one = |root: &Root| match root {
        Root::Tree(pid) => {
            let command = process::command_line(&paths.proc(), *pid, COMMAND_MAX).unwrap_or_default();
            if command.is_empty() { format!("process {pid}") } else { format!("process {pid} ({command})") }
        }
        Root::Thread(pid, tid) => format!("thread {pid}:{tid}"),
        Root::Vm(vm) => vm_label(vm),
        Root::Cgroup(path) => format!("group {}", text::printable(path.as_os_str().as_encoded_bytes())),
    };
    roots.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_have_ended_are_no_programs_without_cpus() {
        let machine = trimtab_core::topology::parse_synthetic("core:2").unwrap();
        let fault = |cpus: Option<&CpuSet>| usable(cpus, false, &machine, &Sample::default());
        assert!(fault(None).unwrap_err().to_string().contains("the programs have ended"));
        // CPUs that are named are used, whatever comes into a control group later.
        assert_eq!(fault(Some(&machine.cpus())).unwrap(), machine.cpus());
    }
}

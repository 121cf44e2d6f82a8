//! `trimtab attach`: balancing of programs that run already.

use crate::args::{AttachArgs, distinct};
use crate::aside;
use crate::exit::{self, Exit};
use crate::leftovers;
use crate::metrics::Figures;
use crate::recorder::Recorder;
use crate::say::{self, Volume};
use crate::situation::Situation;
use crate::vms;
use crate::watched::Watched;
use crate::watching::Watching;
use crate::world::World;
use crate::wrapper::now;
use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trimtab_core::balance::{Kind, Settings, Wanted, policy};
use trimtab_core::drive::{Go, Host};
use trimtab_core::observe::{Left, Sample};
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::account::Tally;
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_core::trace::{Header, VERSION};
use trimtab_core::words::plural;
use trimtab_linux::live::{Keeper, Live, LiveError, Options, Root, Stopper};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::sys::signals::is_ignored;
use trimtab_linux::text;

/// So much of a command line is kept in a trace.
const COMMAND_MAX: usize = 400;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: the programs cannot be watched, or nothing can be written where it should be.
pub fn run(world: &World, args: &AttachArgs) -> Result<u8, Exit> {
    attach(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn attach(world: &World, args: &AttachArgs) -> Result<u8, anyhow::Error> {
    if let Some(why) = args.policy.unfit(args.balance) {
        return Err(anyhow!("{why}"));
    }
    refuse_the_whole_machine(world, args)?;
    let volume = Volume::of(args.quiet, args.verbose);
    let to_stdout = args.json || args.trace.as_deref() == Some(Path::new("-"));
    let recorder = match &args.trace {
        _ if to_stdout => Some(Recorder::stdout()),
        Some(path) => Some(Recorder::open("--trace", path)?),
        None => None,
    };
    let roots = roots(world, args, volume)?;
    leftovers::tidy(world, volume);
    let machine = Situation::live(world, false)?.machine;
    let keeper = (args.balance != Kind::Float).then(|| leftovers::keeper(world, volume)).flatten();
    let first = look(world, &roots, &machine.cpus(), keeper.as_ref())?;
    let usable = usable(args, &machine, &first)?;
    let settings = args.policy.over(Settings::of(args.balance));

    let options = Options { keep: keeper, counting: args.counting.choice(), ..Options::default() };
    let live = Live::with(&world.proc(), &roots, &usable, options)
        .map_err(|error| explain(world, &roots, &error))?;
    let Heard { stopped, pause } = listen(live.stopper(), args.time)?;
    let respected = args.respect_masks.then(|| usable.clone());
    let mut host =
        Watched::new(live).respecting(respected).pausing(pause).counting(args.counting.always(), volume);
    let label = label(world, &roots);
    let figures = args.metrics.as_ref().map(|address| Figures::offer(address, &machine, &settings, volume));
    let figures = figures.transpose()?;
    say::headline(volume, &format!("{}: {label} on CPUs {usable}; Ctrl-C ends it", args.balance));
    let mut policy = policy(args.balance, &machine, &settings);
    let header = Header {
        version: VERSION,
        policy: args.balance,
        settings,
        command: label,
        began: now(),
        usable: usable.clone(),
        machine,
    };
    let mut watching = Watching::begin(header, recorder, figures, volume);
    let bar = progress(volume, to_stdout);
    let ended = watching.watch(&mut host, &mut *policy, &usable, &mut |tally, recorder| {
        bar.set_message(status(tally));
        if recorder.is_some_and(|recorder| recorder.is_unread()) { Go::Stop } else { Go::On }
    });
    bar.finish_and_clear();
    let (restored, fault) = host.restore();
    let why = match (&ended, stopped.load(Ordering::Relaxed)) {
        (Err(error), _) => format!("watching failed: {error}"),
        (Ok(()), true) => "stopped".to_owned(),
        (Ok(()), false) => "the programs ended".to_owned(),
    };
    watching.record(|recorder| recorder.end(&why, None));
    leftovers::warn(restored, fault, volume);
    if let Some(fault) = host.vm_fault().filter(|_| stopped.load(Ordering::Relaxed)) {
        say::warning(volume, &format!("virtual CPUs that came later may have been left out: {fault}"));
    }
    let given_back = match restored.given_back {
        0 => String::new(),
        threads => format!("; {}", leftovers::own_masks(threads)),
    };
    say::headline(volume, &format!("{why}: {}{given_back}", watching.summary()));
    ended?;
    match watching.fault() {
        // What was asked for is not there.
        Some(why) => Err(anyhow!("{why}")),
        None => Ok(exit::DONE),
    }
}

/// Refuses to move all threads of the machine where that was not said twice. The first process of a container is a program like any other.
fn refuse_the_whole_machine(world: &World, args: &AttachArgs) -> Result<(), anyhow::Error> {
    let first = args.pids.contains(&1) && args.balance != Kind::Float && !args.yes;
    // The second process of a machine is the kernel's.
    if first && process::stat(&world.proc(), Pid(2)).is_ok_and(|second| second.kernel_thread) {
        return Err(anyhow!(
            "process 1 is the machine's first: all processes of the machine come from it, and their threads would be moved; name those that \
             are meant, add --yes for all, or --balance float to watch only"
        ));
    }
    Ok(())
}

/// What is to be watched.
fn roots(world: &World, args: &AttachArgs, volume: Volume) -> Result<Vec<Root>, anyhow::Error> {
    let group = |path: &PathBuf| Root::Cgroup(cgroup(world, path));
    let pids = distinct(&args.pids);
    let machines = vms::roots(world, &args.vm, &pids, volume)?;
    let whole = pids.into_iter().map(|pid| Root::Tree(Pid(pid)));
    // Before a group, which may hold them too.
    Ok(whole.chain(machines).chain(args.cgroup.as_ref().map(group)).collect())
}

/// The folder of a control group that is named by it, or by the kernel's path.
pub(crate) fn cgroup(world: &World, path: &Path) -> PathBuf {
    let mounted = world.sys().join("fs/cgroup");
    if path.starts_with(&mounted) {
        return path.to_owned();
    }
    // As the kernel writes it, from the root of the groups; and relative to it.
    mounted.join(path.strip_prefix("/").unwrap_or(path))
}

/// One look at the programs, to know where their threads may run.
fn look(
    world: &World,
    roots: &[Root],
    cpus: &CpuSet,
    keeper: Option<&Keeper>,
) -> Result<Sample, anyhow::Error> {
    let options = Options { keep: keeper.cloned(), ..Options::default() };
    let mut live =
        Live::with(&world.proc(), roots, cpus, options).map_err(|error| explain(world, roots, &error))?;
    let sample = live.observe(&Wanted::default())?;
    let balancer = |info: &trimtab_core::observe::ThreadInfo| match info.left {
        Some(Left::Balancer(pid)) => Some((info.pid, pid)),
        _ => None,
    };
    let balanced: Vec<_> = sample.news.iter().filter_map(balancer).collect();
    match balanced.first() {
        Some((pid, by)) if balanced.len() == sample.news.len() => {
            Err(anyhow!("{}", balanced_already(world, *pid, *by)))
        }
        _ => Ok(sample),
    }
}

/// Says who balances a process, and how that ends.
fn balanced_already(world: &World, pid: u32, by: u32) -> String {
    let left = leftovers::give_back(world, Some(Pid(pid))).unwrap_or_default();
    let of_service = left.iter().any(|left| left.pid == Pid(pid) && left.socket.is_some());
    match by {
        _ if of_service => format!(
            "process {pid} is balanced by the service already (process {by}): trimtab detach {pid} takes it out, and the service goes on"
        ),
        // Root's record, which users cannot read.
        0 => format!(
            "process {pid} is balanced by root already: trimtab detach {pid} takes it out where the service does that by a tag of yours; else \
             only root may end it (sudo trimtab detach {pid})"
        ),
        _ => format!("process {pid} is balanced by process {by} already: trimtab detach {pid} ends that"),
    }
}

/// The CPUs that threads may be moved to: what they may use together, unless CPUs are named.
fn usable(args: &AttachArgs, machine: &Machine, first: &Sample) -> Result<CpuSet, anyhow::Error> {
    let together = first.news.iter().fold(CpuSet::new(), |all, info| all.union(&info.home));
    let (usable, what) = match &args.cpus {
        Some(cpus) => (cpus.intersection(&machine.cpus()), "none of the CPUs of --cpus is on this machine"),
        None => {
            (together.intersection(&machine.cpus()), "the programs' threads may use no CPU of this machine")
        }
    };
    if usable.is_empty() { Err(anyhow!(what)) } else { Ok(usable) }
}

/// An error with what would help.
fn explain(world: &World, roots: &[Root], error: &LiveError) -> anyhow::Error {
    match error {
        LiveError::NotYours { pid, uid } => {
            let (name, only) = (leftovers::user(world, *uid), leftovers::only(world, *uid));
            let vm = if vms::is_one(roots, *pid) { "--vm " } else { "" };
            anyhow!(
                "process {pid} belongs to {name}: {only} may move its threads (sudo trimtab attach {vm}{pid})"
            )
        }
        other => anyhow!("{other}"),
    }
}

/// What signals, or the time, want.
struct Heard {
    /// The watching was ended.
    stopped: Arc<AtomicBool>,
    /// It is to stop for a while.
    pause: Arc<AtomicBool>,
}

/// Ends the watching at a signal or after a time, and tells of it; asks it to pause at Ctrl-Z.
fn listen(stopper: Stopper, time: Option<Span>) -> Result<Heard, anyhow::Error> {
    let (stopped, pause) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    // What was ignored when we were started (as by nohup) stays so; a file that may not grow is an error and no end.
    let heard = [SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGTSTP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(heard.chain([SIGXFSZ])).context("cannot listen for signals")?;
    let (told, pauses, bell) = (Arc::clone(&stopped), Arc::clone(&pause), stopper.clone());
    aside::begin("signals", move || {
        for signal in signals.forever() {
            match signal {
                SIGXFSZ => {}
                SIGTSTP => pauses.store(true, Ordering::Relaxed),
                _ => {
                    told.store(true, Ordering::Relaxed);
                    bell.stop();
                }
            }
        }
    })?;
    if let Some(time) = time {
        let told = Arc::clone(&stopped);
        aside::begin("end", move || {
            std::thread::sleep(Duration::from(time));
            told.store(true, Ordering::Relaxed);
            stopper.stop();
        })?;
    }
    Ok(Heard { stopped, pause })
}

/// What was attached to, for people.
fn label(world: &World, roots: &[Root]) -> String {
    let one = |root: &Root| match root {
        Root::Tree(pid) => {
            let command = process::command_line(&world.proc(), *pid, COMMAND_MAX).unwrap_or_default();
            if command.is_empty() { format!("process {pid}") } else { format!("process {pid} ({command})") }
        }
        Root::Thread(pid, tid) => format!("thread {pid}:{tid}"),
        Root::Vm(vm) => vms::label(vm),
        Root::Cgroup(path) => format!("group {}", text::printable(path.as_os_str().as_encoded_bytes())),
    };
    roots.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// One line that changes, on a terminal.
fn progress(volume: Volume, to_stdout: bool) -> ProgressBar {
    // Where more is said, a line that changes would be in the way.
    let quiet = volume != Volume::Normal || to_stdout;
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(
        ProgressStyle::with_template("{elapsed}  {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

fn status(tally: &Tally) -> String {
    let speeds = tally.speeds.map_or_else(String::new, |(slowest, fastest)| {
        format!(", speed {:.0} to {:.0} %", 100.0 * slowest, 100.0 * fastest)
    });
    let finding = tally.findings.first().map_or_else(String::new, |finding| format!("; {finding}"));
    let (threads, moves) = (plural(tally.alive, "thread"), plural(tally.applied, "move"));
    format!("{threads}, {moves}{speeds}{finding}")
}

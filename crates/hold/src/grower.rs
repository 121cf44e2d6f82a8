//! Growth of a run's hold while its program runs: the process that watches it.
//!
//! `trimtab run --grow` starts it. It runs on the cores of the hold, has no descriptor of the
//! ledger, and changes the hold from outside as `trimtab resize` does. It ends with the hold. If it
//! is killed, the hold keeps the cores that it has. [`trimtab_core::resize::grow`] decides.

use crate::foreign_load::Surroundings;
use crate::outsiders::Outsiders;
use crate::resize::{WantedSize, allowed, change};
use crate::room::HoldRoom;
use crate::select::{Selected, all_holds, open};
use crate::site_facts::{HOLD, Situation};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trimtab_core::budget::page::Owner;
use trimtab_core::hold_claim::HoldClaim;
use trimtab_core::resize::grow::{GrowObservation, GrowPolicy, GrowRules, GrowStep};
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::resize::{cores_of, cores_to_get};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};
use trimtab_core::words::plural;
use trimtab_front::args::SurveyMode;
use trimtab_front::process_env::World;
use trimtab_front::sibling::{LAB, find};
use trimtab_launch::options::GrowMost;
use trimtab_linux::budget::BudgetPage;
use trimtab_linux::ledger::{Held, Hold, Ledger, QueuedRun};
use trimtab_linux::process::{self, Pid, State};
use trimtab_linux::sys::clock::of_this_thread;
use trimtab_linux::sys::orphan;

/// First argument of a grower; the others are those of [`GrowthOrder`].
pub const ARGUMENT: &str = "grow";
/// Setting of Yama, below `/proc`: above 0, only root may copy descriptors of a process that is no
/// descendant.
const PTRACE_SCOPE: &str = "sys/kernel/yama/ptrace_scope";
/// Name of a grower's process.
const COMM: &str = "trimtab-grower";
/// Argument 0 of a grower, before the number of its hold.
const NAME: &str = "trimtab: grower of hold ";
/// Most bytes of a command line that are read.
const LINE_MAX: usize = 256;
/// Shortest time between two observations.
const INTERVAL_MIN: Duration = Duration::from_millis(500);
/// Share of the time that observing may take, as a divisor: one hundredth. On a machine with many
/// tasks the time between two observations becomes longer.
const COST_DIVISOR: u32 = 100;

/// What a grower is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrowthOrder {
    /// Number of the hold.
    pub hold: u64,
    /// Cores that it may have, at most.
    pub most: GrowMost,
    /// How the load of other programs is examined.
    pub survey: SurveyMode,
    /// CPUs that it may get.
    pub within: CpuSet,
    /// Programs outside of holds to which it gives cores back; users by number.
    pub yield_to: YieldTo,
}

impl GrowthOrder {
    /// Reads the arguments of a grower after [`ARGUMENT`].
    fn read(words: &[OsString]) -> Option<Self> {
        let [hold, most, survey, within, yield_to] = words else { return None };
        Some(Self {
            hold: u64::from_str_radix(hold.to_str()?.strip_prefix("0x")?, 16).ok()?,
            most: most.to_str()?.parse().ok()?,
            survey: SurveyMode::of_word(survey.to_str()?)?,
            within: within.to_str()?.parse().ok()?,
            yield_to: yield_to.to_str()?.parse().ok()?,
        })
    }

    fn words(&self) -> [String; 5] {
        let most = match self.most {
            GrowMost::Free => "free".to_owned(),
            GrowMost::Cores(cores) => cores.to_string(),
        };
        let (within, yield_to) = (self.within.to_string(), self.yield_to.to_string());
        [format!("{:#x}", self.hold), most, self.survey.word().to_owned(), within, yield_to]
    }
}

/// Starts the grower of a hold of this process, before the program begins. `tells`: its changes are
/// printed on standard error.
///
/// # Errors
/// The laboratory is not installed, or no process can be started.
pub fn start(world: &World, held: &Held, order: &GrowthOrder, tells: bool) -> Result<()> {
    let restricted =
        std::fs::read_to_string(world.proc().join(PTRACE_SCOPE)).is_ok_and(|text| text.trim() != "0");
    if restricted && !rustix::process::geteuid().is_root() {
        bail!(
            "kernel.yama.ptrace_scope protects programs from debugging, so that only root can change a hold"
        );
    }
    let mut command = Command::new(find(LAB)?);
    command.arg0(format!("{NAME}{:#x}", order.hold)).arg(ARGUMENT).args(order.words());
    // It works for the hold, on its cores. Without the hold's descriptor it does not keep it.
    let claim = HoldClaim { depth: held.level().depth(), descriptor: 0, hold: Some(order.hold) };
    command.env(HOLD, claim.to_string());
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(if tells { Stdio::inherit() } else { Stdio::null() });
    orphan::spawn(&mut command).context("the process that lets the hold grow cannot be started")?;
    Ok(())
}

/// Returns whether a hold of this ledger grows: a grower names its hold in argument 0. A process of
/// a user who could not change the hold does not count, whatever its name.
pub fn is_any(proc: &Path, ledger: &Ledger, machine: &CpuSet) -> bool {
    let growers = process::all(proc).unwrap_or_default().into_iter().filter_map(|pid| {
        process::stat(proc, pid).ok().filter(|stat| stat.comm == COMM)?;
        let line = process::command_line(proc, pid, LINE_MAX).ok()?;
        let number = line.strip_prefix(NAME)?.split(' ').next()?.strip_prefix("0x")?;
        Some((u64::from_str_radix(number, 16).ok()?, process::status(proc, pid).ok()?.uid))
    });
    let growers: Vec<(u64, u32)> = growers.collect();
    let grows = |hold: &Hold| {
        let (number, holder) = (hold.id.number(), hold.holder.uid);
        growers.iter().any(|&(of, uid)| of == number && (uid == holder || uid == 0))
    };
    !growers.is_empty() && all_holds(ledger, machine).is_ok_and(|holds| holds.iter().any(grows))
}

/// The life of a grower, with its arguments after [`ARGUMENT`]. `tell` gets a line for each change.
///
/// # Errors
/// The arguments are no grower's, or the ledger cannot be read.
pub fn run(world: &World, words: &[OsString], tell: &dyn Fn(&str)) -> Result<()> {
    // The name only tells others what this process is.
    let _ = rustix::thread::set_name(c"trimtab-grower");
    orphan::close_from(3)?;
    let order = GrowthOrder::read(words).context("not the arguments of a grower")?;
    let begin = Instant::now();
    let mut policy = None;
    let mut refused = String::new();
    let mut end: Option<Option<OwnedFd>> = None;
    loop {
        let before = of_this_thread();
        let Some(observed) = observe(world, &order)? else { return Ok(()) };
        let Observed { seen, outsiders, to_get, selected, situation, ledger } = observed;
        let policy = policy.get_or_insert_with(|| {
            let most = match order.most {
                GrowMost::Free => usize::MAX,
                GrowMost::Cores(cores) => cores as usize,
            };
            GrowPolicy::new(GrowRules::usual(seen.cores, most))
        });
        let now = Moment(Span::from(begin.elapsed()).0);
        let step = policy.step(now, &seen);
        let holder = selected.hold.holder.pid;
        if let Some(to) = step.to() {
            let within = match step {
                // The other free cores are left to these programs.
                GrowStep::Grow { .. } if outsiders.is_some() => to_get,
                _ => order.within.clone(),
            };
            let yields = outsiders.as_ref().filter(|_| matches!(step, GrowStep::Crowded { .. }));
            let wanted = WantedSize { cores: to, survey: order.survey, within: Some(within), yields };
            let Selected { hold, all, .. } = selected;
            let selected = Selected::of(world, &ledger, hold, all)?;
            match change(world, &situation, &ledger, selected, None, &wanted) {
                Ok((done, _)) => {
                    let cores = plural(done.cores, "core");
                    tell(&format!("the run has CPUs {} now, {cores}: {step}", done.reserved));
                }
                // Another launch may have been faster, which the next observation shows. A cause
                // that stays is told once.
                Err(error) => {
                    let why = format!("the size of the run was not changed as planned: {error:#}");
                    if refused != why {
                        tell(&why);
                        refused = why;
                    }
                }
            }
        }
        let end = end.get_or_insert_with(|| {
            let pid = i32::try_from(holder).ok().and_then(rustix::process::Pid::from_raw);
            pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        });
        pause(end, (of_this_thread().saturating_sub(before) * COST_DIVISOR).max(INTERVAL_MIN));
    }
}

/// Waits, but not beyond the end of the holder, with which the hold usually ends. A holder whose
/// end was seen is not waited for again: others may have the hold.
fn pause(end: &mut Option<OwnedFd>, time: Duration) {
    let Some(holder) = end.as_ref() else { return std::thread::sleep(time) };
    let limit = Timespec::try_from(time).ok();
    if let Ok(1..) = poll(&mut [PollFd::new(holder, PollFlags::IN)], limit.as_ref()) {
        *end = None;
        // The processes of the run release the hold one after the other.
        std::thread::sleep(INTERVAL_MIN / 10);
    }
}

/// A hold as it was observed.
struct Observed {
    seen: GrowObservation,
    /// Programs to which it yields; `None` if it yields to none.
    outsiders: Option<Outsiders>,
    /// CPUs that it could get.
    to_get: CpuSet,
    selected: Selected,
    situation: Situation,
    ledger: Ledger,
}

/// Observes a hold; `None` if it has ended.
fn observe(world: &World, order: &GrowthOrder) -> Result<Option<Observed>> {
    let situation = Situation::live(world, true)?;
    let machine = &situation.machine;
    let ledger = open(world)?;
    let all = all_holds(&ledger, &machine.cpus())?;
    let Some(hold) = all.iter().find(|hold| hold.id.number() == order.hold).cloned() else { return Ok(None) };
    // Its lockers are searched for, in all processes, when the hold is changed.
    let selected = Selected { hold, all, lockers: Vec::new(), keeper: None };
    selected.exclusive()?;
    let allowed = allowed(&world.root, &situation).intersection(&order.within);
    let room = HoldRoom { world, machine, ledger: &ledger, hold: &selected.hold };
    let free = room.free(&allowed, &situation)?;
    let quiet = match free.is_empty() {
        true => CpuSet::new(),
        false => {
            room.quiet(&free, &Surroundings::look(world, order.survey, machine, &allowed, Some(&ledger)))
        }
    };
    let hold = &selected.hold;
    let outsiders = Outsiders::look(&room, &selected.all, &order.yield_to)?;
    let lacking = outsiders.as_ref().map(|found| found.cores(&room, &room.inside()?, &quiet)).transpose()?;
    // A core is left for each of their threads, also for one that computes elsewhere now.
    let to_get = match &lacking {
        Some(cores) => quiet.intersection(&cores.spare),
        None => quiet,
    };
    let seen = GrowObservation {
        cores: cores_of(machine, &hold.cpus).len(),
        free: cores_to_get(machine, &hold.cpus, &to_get),
        wanting: wanting(world, &ledger, &selected),
        asked_back: asked_back(&room, &free)?,
        outsiders: lacking.map_or(0, |cores| cores.lacking),
    };
    Ok(Some(Observed { seen, outsiders, to_get, selected, situation, ledger }))
}

/// Returns the threads of the hold that compute or want to: those that the kernel runs now, or
/// those that the teams of its budget asked for, which a small budget does not let run.
fn wanting(world: &World, ledger: &Ledger, selected: &Selected) -> usize {
    let proc = world.proc();
    let runs = |pid: Pid| {
        let threads = process::threads(&proc, pid).unwrap_or_default();
        let runs = |tid: &_| process::thread_stat(&proc, pid, *tid).is_ok_and(|s| s.state == State::Running);
        threads.iter().filter(|&tid| runs(tid)).count()
    };
    let running: usize = selected.members(&proc, ledger).into_iter().map(runs).sum();
    let page = BudgetPage::of_run(&proc, Pid(selected.hold.holder.pid)).and_then(|page| page.read());
    let lives = |owner: Owner| {
        process::stat(&proc, Pid(owner.pid)).is_ok_and(|stat| stat.start.0 as u32 == owner.started)
    };
    let members = page.into_iter().flat_map(|page| page.members).filter(|member| lives(member.owner));
    let asked: u32 = members.map(|member| member.state.wants.max(member.state.computing)).sum();
    running.max(asked as usize)
}

/// Returns the number of cores of the hold for which runs wait.
fn asked_back(room: &HoldRoom<'_>, free: &CpuSet) -> Result<usize> {
    let Hold { cpus, .. } = room.hold;
    let count = |cpus: &CpuSet| cores_of(room.machine, cpus).len();
    let waiting = room.waiting()?;
    let waiters = waiting.iter().map(QueuedRun::waiter).filter(|waiter| !waiter.stopped);
    let missing = waiters.map(|waiter| {
        let Some(demand) = waiter.demand else { return count(cpus) };
        let (ours, others) = (count(&demand.cpus.intersection(cpus)), count(&demand.cpus.intersection(free)));
        demand.cores.map_or(ours, |cores| ours.min((cores as usize).saturating_sub(others)))
    });
    Ok(missing.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_arguments_of_a_grower_are_taken() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for whole in ["0x1a 8 auto 0-3 runs", "0xffffffffffffffff free none 0,2 0,1000"] {
            assert_eq!(GrowthOrder::read(&words(whole)).unwrap().words().join(" "), whole);
        }
        for bad in [
            "",
            "0x1a",
            "0x1a 8 auto 0-3",
            "26 8 auto 0-3 all",
            "0x1a 0 auto 0-3 all",
            "0x1a 8 what 0-3 all",
            "0x1a 8 auto 0-3 ,",
            "0x1a 8 auto 0-3 all 1",
        ] {
            assert_eq!(GrowthOrder::read(&words(bad)), None, "{bad}");
        }
    }
}

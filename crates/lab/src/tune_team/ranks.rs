//! Teams that are measured: threads of this process, or processes of this program with the same
//! options, a plan and `TRIMTAB_TEAM` in their environment. Rank 0 is always a thread of this
//! process; it shows progress and receives signals for all ranks.

use crate::args::TuneTeamArgs;
use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trimtab_front::exit;
use trimtab_front::interrupt::Interrupt;
use trimtab_team::segment::meet::keep_over_exec;
use trimtab_team::tune::{self, Cell, Checked, Job, Overseer, Plan, Tuning};
use trimtab_team::{Options, Rank, Tables, Team};

/// The kernel counts a machine's CPU time in ticks.
const TICKS_PER_SECOND: f64 = 100.0;

/// Result of a team.
pub(super) enum TeamFindings {
    /// The fastest algorithms.
    Tuned(Tuning),
    /// The quality of the algorithms in use.
    Checked { crowded: bool, cells: Vec<Checked>, left: usize },
}

/// Returns the CPUs that this thread may use.
///
/// # Errors
/// The kernel does not answer.
pub(super) fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot ask which CPUs are allowed")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Returns CPU seconds of all CPUs since boot, and the number of CPUs.
fn machine() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = line.split_whitespace().take(7).map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _wait, interrupts, soft] = ticks[..] else { return None };
    let cpus = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    Some(((user + nice + system + interrupts + soft) / TICKS_PER_SECOND, cpus.max(1) as f64))
}

/// Returns the share of the machine that other programs use, measured over `time`.
pub(super) fn others(time: Duration) -> Option<f64> {
    let begin = Instant::now();
    let (before, cpus) = machine()?;
    std::thread::sleep(time);
    let (after, _) = machine()?;
    Some(((after - before) / (begin.elapsed().as_secs_f64() * cpus)).clamp(0.0, 1.0))
}

/// Supervises a tuning at rank 0.
struct ProgressOverseer<'a> {
    interrupt: &'a Interrupt,
    bar: &'a ProgressBar,
    ranks: u32,
}

impl Overseer for ProgressOverseer<'_> {
    fn stop(&self) -> bool {
        self.interrupt.came().is_some()
    }

    fn busy(&self) -> Option<f64> {
        machine().map(|(busy, _)| busy)
    }

    fn processors(&self) -> f64 {
        machine().map_or(1.0, |(_, cpus)| cpus)
    }

    fn begins(&self, job: Job, _done: usize, _of: usize) {
        let size = if job.bytes == 0 { String::new() } else { format!(" of {} bytes", job.bytes) };
        self.bar.set_message(format!(
            "{} ranks, {}{size}, {}",
            self.ranks,
            super::named(job.kind),
            job.manner.word()
        ));
        self.bar.tick();
    }

    fn ended(&self, _: &Cell) {
        self.bar.inc(1);
    }
}

/// Makes a team of `ranks` ranks that measures. Returns the key of its tables, and its result.
///
/// # Errors
/// The team cannot be made, or a rank fails.
pub(super) fn measure(
    args: &TuneTeamArgs,
    plan: &Plan,
    ranks: u32,
    interrupt: &Interrupt,
    bar: &ProgressBar,
) -> Result<(String, TeamFindings)> {
    // The usual algorithms must not include tables that were stored before.
    let tables = if args.check { Tables::Kept } else { Tables::Usual };
    let team = Team::new(Options { tables, ..Options::new(ranks) })?;
    let (processes, threads) = args.kind.split(ranks).unwrap_or((1, ranks));
    let mut children = Children(Vec::new());
    if processes > 1 {
        keep_over_exec(team.fd())?;
        let program = std::env::current_exe().context("cannot find trimtab itself")?;
        let plan = serde_json::to_string(plan)?;
        for process in 1..processes {
            let (name, value) = team.invitation(process * threads);
            let child = Command::new(&program)
                .args(std::env::args_os().skip(1))
                .args(["--as-rank", &plan])
                .env(name, value)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            children.0.push(child.context("cannot start all processes")?);
        }
    }
    let found = in_threads(args, &team, 0, threads, |rank| {
        let watch = ProgressOverseer { interrupt, bar, ranks };
        let found = work(args, rank, plan, &watch)?;
        Ok(Some((rank.key(), found)))
    })?;
    children.end()?;
    found.ok_or_else(|| anyhow!("rank 0 found nothing"))
}

/// Runs one or several ranks in their own process.
///
/// # Errors
/// No team can be joined, or it fails.
pub(super) fn as_rank(args: &TuneTeamArgs, plan: &str) -> Result<u8> {
    let plan: Plan = serde_json::from_str(plan).context("invalid plan")?;
    let Some((team, first)) = Team::inherited()? else {
        bail!("--as-rank is only for processes that trimtab starts")
    };
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot ask to end with the parent")?;
    // All processes of a terminal get Ctrl-C; rank 0 handles it for all.
    let _deaf = Interrupt::listen()?;
    let Some((_, threads)) = args.kind.split(team.ranks()) else {
        bail!("{} cannot make this number of ranks", args.kind)
    };
    in_threads(args, &team, first, threads, |rank| work(args, rank, &plan, &()).map(|_| None::<()>))?;
    Ok(exit::DONE)
}

fn work(args: &TuneTeamArgs, rank: &Rank, plan: &Plan, overseer: &dyn Overseer) -> Result<TeamFindings> {
    let found = if args.check {
        let (cells, left) = tune::check(rank, plan, overseer)?;
        TeamFindings::Checked { crowded: rank.crowded(), cells, left }
    } else {
        let mut tuning = tune::tune_watched(rank, plan, overseer)?;
        tuning.how = format!("ranks by {}{}", args.kind, if args.pin { ", bound" } else { "" });
        TeamFindings::Tuned(tuning)
    };
    // No rank leaves while another one still waits for something.
    rank.barrier()?;
    Ok(found)
}

/// Runs ranks as new threads, so that each has its own binding. Returns the result of the first
/// rank.
fn in_threads<T: Send>(
    args: &TuneTeamArgs,
    team: &Team,
    first: u32,
    threads: u32,
    work: impl Fn(&Rank) -> Result<Option<T>> + Sync,
) -> Result<Option<T>> {
    let allowed = allowed()?;
    std::thread::scope(|scope| {
        let (allowed, work) = (&allowed, &work);
        let running: Vec<_> = (first..first + threads)
            .map(|number| {
                std::thread::Builder::new().spawn_scoped(scope, move || {
                    let cpu = allowed.get(number as usize % allowed.len().max(1)).filter(|_| args.pin);
                    if let Some(cpu) = cpu {
                        let mut one = CpuSet::new();
                        one.set(*cpu);
                        sched_setaffinity(None, &one).context("cannot bind a rank to its CPU")?;
                    }
                    work(&team.join(Some(number))?)
                })
            })
            .collect::<std::io::Result<_>>()
            .context("cannot start all threads")?;
        let mut said = None;
        let mut trouble = None;
        for (at, thread) in running.into_iter().enumerate() {
            match thread.join().map_err(|_| anyhow!("a rank panicked")).flatten() {
                Ok(found) if at == 0 => said = found,
                Ok(_) => {}
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        trouble.map_or(Ok(said), Err)
    })
}

/// Processes that are killed on drop.
struct Children(Vec<Child>);

impl Children {
    fn end(&mut self) -> Result<()> {
        for mut child in self.0.drain(..) {
            let status = child.wait().context("cannot wait for the processes")?;
            if !status.success() {
                bail!("a rank ended early: {status}");
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

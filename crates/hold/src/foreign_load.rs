//! Survey of the other programs on the machine, as cheap as the question allows.
//!
//! A start must not sleep for long, and must not read every task of a large machine. So `auto`
//! first reads one number, the tasks that are runnable at this instant. If there are others, it
//! takes the load from counters that an earlier start kept, or from the runnable tasks
//! ([`trimtab_core::place::load_estimate()`]), and searches for bound tasks for a bounded time. A
//! search of the runnable tasks goes on for at most `STAY_MAX` if counters show a busy CPU that no
//! task explains. A start sleeps for this time only where processes cannot be listed.
//! `full` measures: it samples load for a tenth of a second and examines every task.

use crate::site_facts::location;
use serde::Serialize;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::ids::OsCpu;
use trimtab_core::place::load_estimate::{AGE_MAX, AGE_MIN, is_any_busy};
use trimtab_core::place::{Binding, LoadEvidence, RunnableTasks, load_estimate, pinned_cpus};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_front::args::SurveyMode;
use trimtab_front::process_env::World;
use trimtab_linux::ledger::{Ledger, LoadSamples};
use trimtab_linux::process::{Pid, State};
use trimtab_linux::survey::{Load, LoadSample, Masks, Pin, PinScan, Processes, RunnableCount};
use trimtab_linux::survey::{RunningSearch, since_boot};
use trimtab_linux::text::ReadError;

/// Time for which `full` samples load: ten timer ticks of the slowest common kernel, so that one
/// tick is at most 10 %.
const SAMPLE_TIME: Duration = Duration::from_millis(100);
/// Longest search of `full` for bound tasks: on a machine with more tasks than fit, the youngest
/// are examined.
const FULL_SEARCH_MAX: Duration = Duration::from_millis(250);
/// Longest search of `auto` for bound tasks, and longest search for runnable ones. Chosen: both
/// together stay below the millisecond that the rest of a start costs.
const AUTO_SEARCH_MAX: Duration = Duration::from_micros(250);

/// Longest time for which a search that was cut goes on, while counters show a busy CPU and fewer
/// tasks are known to compute than are runnable. Tasks that run for a moment end meanwhile: a shell
/// that starts a pipeline, a daemon that wakes. Chosen: such tasks run for one to two milliseconds.
const STAY_MAX: Duration = Duration::from_millis(3);
/// Time of the search between two counts of the runnable tasks meanwhile.
const STAY_STEP: Duration = Duration::from_micros(200);

/// Number of tasks that are examined for bindings in any case; bound processes come first.
const TASKS_MIN: usize = 32;

/// The processes, or why they cannot be listed.
type Listed = Result<Processes, ReadError>;

/// The other programs, as far as they were examined.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Surroundings {
    /// Busy share of each CPU, in permille; empty if the load is not known.
    pub busy: BTreeMap<OsCpu, u16>,
    /// CPUs to which tasks of other programs are bound.
    pub pinned: CpuSet,
    /// The bound tasks.
    pub pins: Vec<Pin>,
    /// Origin of the load, and parts of the survey that were left out, with reasons.
    pub notes: Vec<String>,
}

impl Surroundings {
    /// Surveys the machine. Counters of earlier starts are read from `ledger`; without it, the
    /// ledger is opened for them.
    pub fn look(
        world: &World,
        mode: SurveyMode,
        machine: &Machine,
        allowed: &CpuSet,
        ledger: Option<&Ledger>,
    ) -> Self {
        let mut seen = Self::default();
        match mode {
            SurveyMode::None => {
                seen.notes.push("the load of other programs was not examined (--survey none)".to_owned());
            }
            SurveyMode::Auto => match count_others(&world.proc()) {
                Ok((_, 0)) => seen.notes.push("no other program runs on this machine".to_owned()),
                Ok((count, others)) => {
                    let processes = LazyCell::new(|| Processes::list(&world.proc()));
                    seen.estimate(world, (&count, others), &processes, ledger);
                    seen.find_pins(world, machine, allowed, &processes, AUTO_SEARCH_MAX);
                }
                Err(error) => seen.notes.push(format!("the running tasks cannot be counted: {error}")),
            },
            SurveyMode::Full => seen.measure(world, machine, allowed),
        }
        seen
    }

    /// Estimates the load without waiting, and keeps the counters for later starts.
    fn estimate(
        &mut self,
        world: &World,
        (count, mut others): (&RunnableCount, usize),
        processes: &impl Deref<Target = Listed>,
        ledger: Option<&Ledger>,
    ) {
        let now = since_boot();
        let counters = LoadSample::read(&world.proc());
        let kept = match ledger {
            Some(ledger) => LoadSamples::beside(ledger),
            None => location(world).and_then(|location| LoadSamples::open(&location)).ok(),
        };
        let ages = Duration::from_nanos(AGE_MIN.0)..=Duration::from_nanos(AGE_MAX.0);
        let before = kept.and_then(|kept| kept.exchange(counters.as_ref().ok(), now, &ages));
        let proc = world.proc();
        let begun = || processes.as_ref().ok().map(|processes| RunningSearch::new(&proc, processes));
        let evidence = match (before, counters) {
            (Some((before, age)), Ok(counters)) => {
                let load = permille(&Load::between(&before, &counters));
                let tasks = is_any_busy(&load).then(|| {
                    let mut search = begun();
                    let mut tasks = searched(search.as_mut(), others, AUTO_SEARCH_MAX);
                    others = staying(count, others, &mut tasks, || {
                        if search.is_none() {
                            std::thread::sleep(STAY_STEP);
                        }
                        // All that are left: of the tasks that were found, some may have ended.
                        searched(search.as_mut(), usize::MAX, STAY_STEP)
                    });
                    tasks
                });
                LoadEvidence::Kept { load, age: Span(u64::try_from(age.as_nanos()).unwrap_or(0)), tasks }
            }
            _ => LoadEvidence::Tasks(searched(begun().as_mut(), others, AUTO_SEARCH_MAX)),
        };
        let estimate = load_estimate(evidence, others);
        self.notes.push(estimate.origin.to_string());
        self.busy = estimate.busy;
    }

    /// Samples the load for [`SAMPLE_TIME`], and meanwhile examines every task.
    fn measure(&mut self, world: &World, machine: &Machine, allowed: &CpuSet) {
        let begin = Instant::now();
        let before = LoadSample::read(&world.proc());
        let processes = LazyCell::new(|| Processes::list(&world.proc()));
        self.find_pins(world, machine, allowed, &processes, FULL_SEARCH_MAX);
        std::thread::sleep(SAMPLE_TIME.saturating_sub(begin.elapsed()));
        match (before, LoadSample::read(&world.proc())) {
            (Ok(before), Ok(after)) => self.busy = permille(&Load::between(&before, &after)),
            (Err(error), _) | (_, Err(error)) => {
                self.notes.push(format!("the load cannot be measured: {error}"));
            }
        }
    }

    /// Searches for tasks of other programs that are bound to some of the CPUs, for at most this
    /// time and at least [`TASKS_MIN`] tasks.
    fn find_pins(
        &mut self,
        world: &World,
        machine: &Machine,
        allowed: &CpuSet,
        processes: &impl Deref<Target = Listed>,
        longest: Duration,
    ) {
        let (proc, begin) = (world.proc(), Instant::now());
        let scan = PinScan { proc: &proc, cpus: allowed, own: Pid::own(), masks: masks(&proc) };
        let mut examined = 0;
        let go_on = |_| {
            examined += 1;
            examined <= TASKS_MIN || begin.elapsed() < longest
        };
        match &**processes {
            Ok(processes) => {
                let found = scan.run_among(processes, go_on);
                if found.cut {
                    self.notes
                        .push(format!("only the {} youngest tasks were examined for bindings", found.seen));
                }
                self.pins = found.pins;
            }
            Err(error) => self.notes.push(format!("bound tasks cannot be found: {error}")),
        }
        let bindings = self
            .pins
            .iter()
            .map(|pin| Binding { cpus: pin.cpus.clone(), running: pin.state == State::Running });
        self.pinned = pinned_cpus(machine, &bindings.collect::<Vec<_>>());
    }
}

/// Goes on with the search for the runnable tasks for this time. Without a list of processes
/// nothing is found.
fn searched(search: Option<&mut RunningSearch<'_>>, wanted: usize, longest: Duration) -> RunnableTasks {
    let begin = Instant::now();
    match search {
        Some(search) => search.go_on(wanted, || begin.elapsed() < longest).clone(),
        None => RunnableTasks { found: Vec::new(), cut: true },
    }
}

/// Opens the count of runnable tasks, and returns it with the number of those of others.
fn count_others(proc: &Path) -> Result<(RunnableCount, usize), ReadError> {
    let count = RunnableCount::open(proc)?;
    let others = count.read()?.others() as usize;
    Ok((count, others))
}

/// Returns the smallest number of tasks of others that are runnable within [`STAY_MAX`], and goes
/// on with a search that was cut meanwhile, [`STAY_STEP`] at a time. It ends when the tasks that
/// were found explain that number, as they do when all processes were examined.
fn staying(
    count: &RunnableCount,
    others: usize,
    tasks: &mut RunnableTasks,
    mut search_on: impl FnMut() -> RunnableTasks,
) -> usize {
    let begin = Instant::now();
    let mut least = others;
    while !tasks.explain(least) && begin.elapsed() < STAY_MAX {
        *tasks = search_on();
        // Tasks that run for a moment may wait for this CPU. Beside a program that computes on it a
        // yield may take that program's slice.
        if !tasks.explain(least) {
            std::thread::yield_now();
        }
        let Ok(now) = count.read() else { break };
        least = least.min(now.others() as usize);
    }
    least
}

/// Busy share of each CPU, in permille.
fn permille(load: &Load) -> BTreeMap<OsCpu, u16> {
    load.cpus.iter().map(|(&cpu, load)| (cpu, load.busy_permille)).collect()
}

/// Method of reading masks: system calls are several times cheaper than files, and correct if
/// `/proc` numbers processes as this process does.
fn masks(proc: &Path) -> Masks {
    let own = std::fs::read_link(proc.join("self"));
    let same = own.is_ok_and(|link| link.to_str() == Some(std::process::id().to_string().as_str()));
    if same { Masks::Kernel } else { Masks::Files }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Makes a machine on which this many tasks are runnable, the caller among them.
    fn machine(running: u32) -> (tempfile::TempDir, RunnableCount) {
        let proc = tempfile::tempdir().unwrap();
        fs::write(proc.path().join("loadavg"), format!("0.00 0.00 0.00 {running}/90 7\n")).unwrap();
        let count = RunnableCount::open(proc.path()).unwrap();
        (proc, count)
    }

    #[test]
    fn tasks_that_end_meanwhile_do_not_count_and_those_that_stay_do() {
        let unknown = || RunnableTasks { found: Vec::new(), cut: true };
        for (running, stay) in [(1, 0), (2, 1), (3, 2), (9, 3)] {
            let (_root, count) = machine(running);
            assert_eq!(staying(&count, 3, &mut unknown(), unknown), stay, "{running}");
        }
    }

    #[test]
    fn a_search_does_not_go_on_where_all_processes_were_examined() {
        let (_root, count) = machine(1);
        let mut examined = RunnableTasks { found: Vec::new(), cut: false };
        let least = staying(&count, 3, &mut examined, || panic!("nothing is left to examine"));
        assert_eq!(least, 3, "the count is not read again");
    }

    #[test]
    fn a_search_that_was_cut_ends_when_all_processes_are_examined() {
        let (_root, count) = machine(9);
        let mut tasks = RunnableTasks { found: Vec::new(), cut: true };
        let mut steps = 0;
        let least = staying(&count, 3, &mut tasks, || {
            steps += 1;
            RunnableTasks { found: Vec::new(), cut: false }
        });
        assert_eq!((least, steps, tasks.cut), (3, 1, false));
    }

    /// Writes a process with one thread that has run on the CPU of its number for this share of its
    /// life, in percent.
    fn process(proc: &Path, pid: u32, state: &str, percent: u128) {
        let ticks = (since_boot().as_millis() / 10 * percent / 100).to_string();
        let cpu = pid.to_string();
        // The numbers of the fields are those of proc(5).
        let field = |number| match number {
            3 => state,
            14 => &ticks,
            39 => &cpu,
            22 => "0",
            _ => "1",
        };
        let line = format!("{pid} (x) {}\n", (3..=39).map(field).collect::<Vec<_>>().join(" "));
        fs::create_dir_all(proc.join(pid.to_string())).unwrap();
        fs::write(proc.join(format!("{pid}/stat")), line).unwrap();
    }

    #[test]
    fn a_cpu_stays_busy_after_tasks_that_were_found_beside_it_have_ended() {
        // Two tasks have run for a moment, and of three that were runnable one is left.
        let (root, count) = machine(2);
        let proc = root.path();
        for (pid, state, percent) in
            [(4_000_040, "R", 0), (4_000_030, "R", 0), (4_000_020, "S", 0), (4_000_010, "R", 99)]
        {
            process(proc, pid, state, percent);
        }
        let processes = Processes::list(proc).unwrap();
        let mut search = RunningSearch::new(proc, &processes);
        let mut searched = |examined: usize| {
            let mut asked = 0;
            let may_go_on = || {
                asked += 1;
                asked <= examined
            };
            search.go_on(usize::MAX, may_go_on).clone()
        };
        let mut tasks = searched(2);
        assert_eq!((tasks.found.len(), tasks.cut), (2, true));
        let least = staying(&count, 3, &mut tasks, || searched(1));
        assert_eq!(least, 1);
        let load = BTreeMap::from([(OsCpu(0), 900), (OsCpu(1), 0)]);
        let evidence = LoadEvidence::Kept { load: load.clone(), age: AGE_MIN, tasks: Some(tasks) };
        assert_eq!(load_estimate(evidence, least).busy, load);
    }
}

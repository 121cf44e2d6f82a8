//! Survey of the other programs on the machine, as cheap as the question allows.
//!
//! A start must not sleep for long, and must not read every task of a large machine. So `auto`
//! first reads one number, the tasks that are runnable at this instant. If there are others, it
//! takes the load from counters that an earlier start kept, or from the runnable tasks
//! ([`trimtab_core::place::load_estimate()`]), and searches for bound tasks for a bounded time. It
//! waits for at most `STAY_MAX`, and only if counters show a busy CPU that no task explains; places
//! of computing tasks that earlier starts kept make that rare.
//! `full` measures: it samples load for a tenth of a second and examines every task.

use crate::site_facts::location;
use serde::Serialize;
use std::collections::BTreeMap;
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
use trimtab_linux::ledger::{KeptTasks, Ledger, LoadSamples};
use trimtab_linux::process::{Pid, State};
use trimtab_linux::survey::{Load, LoadSample, Masks, Pin, PinScan, Processes, RunnableCount};
use trimtab_linux::survey::{RunningSearch, TaskPlace, since_boot};
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

/// Longest wait for tasks that run for a moment to end: a shell that starts a pipeline, a daemon
/// that wakes. A start waits only if counters show a busy CPU, not all processes could be examined,
/// and fewer tasks are known to compute than are runnable. Chosen: such tasks run for one to two
/// milliseconds.
const STAY_MAX: Duration = Duration::from_millis(3);
/// Time between two counts of the runnable tasks meanwhile.
const STAY_STEP: Duration = Duration::from_micros(200);
/// Longest part of the search after each of these counts. Chosen: a third of the wait is computed at
/// most, and a search among some hundred processes ends in it.
const STAY_SEARCH: Duration = Duration::from_micros(100);

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
                    let kept = match ledger {
                        Some(ledger) => LoadSamples::beside(ledger),
                        None => location(world).and_then(|location| LoadSamples::open(&location)).ok(),
                    };
                    let processes = Processes::list(&world.proc());
                    seen.estimate(world, (&count, others), &processes, kept.as_ref());
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
        processes: &Listed,
        kept: Option<&LoadSamples>,
    ) {
        let now = since_boot();
        let counters = LoadSample::read(&world.proc());
        let ages = Duration::from_nanos(AGE_MIN.0)..=Duration::from_nanos(AGE_MAX.0);
        let before = kept.and_then(|kept| kept.exchange(counters.as_ref().ok(), now, &ages));
        let proc = world.proc();
        let search = || TaskSearch::new(&proc, processes, kept.map(LoadSamples::tasks));
        let evidence = match (before, counters) {
            (Some((before, age)), Ok(counters)) => {
                let load = permille(&Load::between(&before, &counters));
                let tasks = is_any_busy(&load).then(|| {
                    let mut search = search();
                    others = search.staying(count, others);
                    search.end()
                });
                LoadEvidence::Kept { load, age: Span(u64::try_from(age.as_nanos()).unwrap_or(0)), tasks }
            }
            _ => {
                let mut search = search();
                search.go_on(others, AUTO_SEARCH_MAX);
                LoadEvidence::Tasks(search.end())
            }
        };
        let estimate = load_estimate(evidence, others);
        self.notes.push(estimate.origin.to_string());
        self.busy = estimate.busy;
    }

    /// Samples the load for [`SAMPLE_TIME`], and meanwhile examines every task.
    fn measure(&mut self, world: &World, machine: &Machine, allowed: &CpuSet) {
        let begin = Instant::now();
        let before = LoadSample::read(&world.proc());
        let processes = Processes::list(&world.proc());
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
        processes: &Listed,
        longest: Duration,
    ) {
        let (proc, begin) = (world.proc(), Instant::now());
        let scan = PinScan { proc: &proc, cpus: allowed, own: Pid::own(), masks: masks(&proc) };
        let mut examined = 0;
        let go_on = |_| {
            examined += 1;
            examined <= TASKS_MIN || begin.elapsed() < longest
        };
        match processes {
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

/// Search for the runnable tasks of other programs.
struct TaskSearch<'a> {
    /// `None` if the processes cannot be listed.
    running: Option<RunningSearch<'a>>,
    /// Keeps the tasks that compute for later starts; `None` without a file for it.
    kept: Option<KeptTasks>,
    /// Places of the tasks that earlier starts found to compute.
    known: Vec<TaskPlace>,
}

impl<'a> TaskSearch<'a> {
    /// Prepares a search that begins with the tasks of earlier starts.
    fn new(proc: &'a Path, processes: &'a Listed, kept: Option<KeptTasks>) -> Self {
        let known = kept.as_ref().map(KeptTasks::read).unwrap_or_default();
        let running = processes.as_ref().ok().map(|processes| RunningSearch::new(proc, processes, &known));
        Self { running, kept, known }
    }

    /// Searches on for this time, or until this many tasks are found. The time begins after the
    /// known places, so that a list that is false costs no part of the search.
    fn go_on(&mut self, wanted: usize, longest: Duration) {
        let mut begin = None;
        if let Some(running) = &mut self.running {
            running.go_on(wanted, || begin.get_or_insert_with(Instant::now).elapsed() < longest);
        }
    }

    /// Returns the tasks that were found so far.
    fn tasks(&self) -> RunnableTasks {
        let none = RunnableTasks { found: Vec::new(), cut: true };
        self.running.as_ref().map_or(none, RunningSearch::tasks)
    }

    /// Searches for [`AUTO_SEARCH_MAX`]. If that leaves a question, waits for tasks that run for a
    /// moment, and searches on meanwhile. Returns the smallest number of tasks of others that were
    /// runnable within [`STAY_MAX`]; the wait ends when the tasks that were found explain it.
    fn staying(&mut self, count: &RunnableCount, others: usize) -> usize {
        self.go_on(others, AUTO_SEARCH_MAX);
        let begin = Instant::now();
        let mut least = others;
        while !self.tasks().explain(least) && begin.elapsed() < STAY_MAX {
            std::thread::sleep(STAY_STEP);
            let Ok(now) = count.read() else { break };
            least = least.min(now.others() as usize);
            self.go_on(least, STAY_SEARCH);
        }
        least
    }

    /// Returns the tasks that were found, and keeps those that compute.
    fn end(self) -> RunnableTasks {
        if let (Some(running), Some(kept)) = (&self.running, &self.kept) {
            let computing = running.computing();
            if computing != self.known {
                kept.keep(&computing);
            }
        }
        self.tasks()
    }
}

/// Opens the count of runnable tasks, and returns it with the number of those of others.
fn count_others(proc: &Path) -> Result<(RunnableCount, usize), ReadError> {
    let count = RunnableCount::open(proc)?;
    let others = count.read()?.others() as usize;
    Ok((count, others))
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

    fn search(processes: &Listed, kept: Option<KeptTasks>) -> TaskSearch<'_> {
        TaskSearch::new(Path::new("/proc"), processes, kept)
    }

    #[test]
    fn tasks_that_end_meanwhile_do_not_count_and_those_that_stay_do() {
        let unknown = Err(RunnableCount::open(Path::new("/no/such/folder")).unwrap_err());
        for (running, stay) in [(1, 0), (2, 1), (3, 2), (9, 3)] {
            let (_root, count) = machine(running);
            assert_eq!(search(&unknown, None).staying(&count, 3), stay, "{running}");
        }
    }

    #[test]
    fn a_start_does_not_wait_where_all_processes_were_examined() {
        let (_root, count) = machine(1);
        let none = Processes::list(tempfile::tempdir().unwrap().path());
        assert_eq!(search(&none, None).staying(&count, 3), 3, "the count is not read again");
    }

    /// The next start finds the program without any list of the processes.
    #[test]
    fn the_place_of_a_computing_task_is_kept_for_the_next_start() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("10");
        fs::create_dir(&folder).unwrap();
        // Ten seconds old, of which it has computed nine, on CPU 1.
        let born = (since_boot().as_millis() / 10).saturating_sub(1_000);
        let zeros = " 0".repeat(16);
        let line = format!("10 (hog) R 1 1 1 0 -1 0 0 0 0 0 900 0 0 0 20 0 1 0 {born}{zeros} 1");
        fs::write(folder.join("stat"), line).unwrap();
        let ledger = tempfile::tempfile().unwrap();
        let kept = || KeptTasks::in_file(std::sync::Arc::new(ledger.try_clone().unwrap().into()));
        let listed = Processes::list(root.path());
        let find = |processes: &Listed| {
            let mut search = TaskSearch::new(root.path(), processes, Some(kept()));
            search.go_on(1, Duration::from_secs(60));
            search.end()
        };
        assert_eq!(find(&listed).found.len(), 1);
        let place = TaskPlace { pid: Pid(10), tid: Pid(10).main_thread() };
        assert_eq!(kept().read(), [place]);
        let none = Processes::list(tempfile::tempdir().unwrap().path());
        let found = find(&none).found;
        assert_eq!(found.iter().map(|task| task.cpu).collect::<Vec<_>>(), [OsCpu(1)]);
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(find(&none).found, [], "it has ended");
        assert_eq!(kept().read(), []);
    }
}

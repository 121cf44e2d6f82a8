//! Search for the tasks that are on a CPU or ready, in steps.
//!
//! Problem: a launch may search for a fraction of a millisecond, and a program that has computed for
//! hours is one process among hundreds. Idea: tasks that an earlier launch found to compute come
//! first ([`crate::ledger::KeptTasks`]), then the youngest process, since programs that people start
//! come after daemons. The search ends when as many tasks are found as the kernel counts.
//!
//! Property: a task that was found before is a place to look at, never evidence. It counts once, and
//! only if the search among the processes would find it too and it computes. So a search that is
//! not cut short finds the same computing tasks with any list of earlier ones, also a hostile one.

use super::processes::Processes;
use crate::process::{self, Pid, Stat, State, Tid};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use trimtab_core::place::{RunnableTask, RunnableTasks};
use trimtab_core::time::Span;

/// Number of places without a computing task, after which the other places are left out. Chosen: a
/// list that is false or out of date then costs less than a tenth of a millisecond.
const MISSES_MAX: usize = 8;

/// Place of a task in `/proc`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskPlace {
    /// Its process.
    pub pid: Pid,
    /// The task.
    pub tid: Tid,
}

/// A search, which can go on after it was cut short. The caller and kernel threads are not found. Of
/// a process with several threads, the threads are examined only if the process has computed for
/// half of its life.
#[derive(Debug)]
pub struct RunningSearch<'a> {
    proc: &'a Path,
    own: Pid,
    /// Tasks that an earlier launch found, to be examined first.
    known: Vec<TaskPlace>,
    /// Number of such places in which no task was found that computes.
    misses: usize,
    /// Threads of the process that was examined last, to be examined before the next one.
    threads: Vec<TaskPlace>,
    /// Processes that are not examined yet.
    processes: std::slice::Iter<'a, Pid>,
    /// The runnable tasks that were found. The number of a task is unique.
    found: BTreeMap<Tid, (Pid, RunnableTask)>,
    /// Whether the search ended before all processes were examined or enough tasks were found.
    cut: bool,
}

/// Tasks of a process that can count.
enum Candidates {
    /// None.
    None,
    /// Its only thread, with its state.
    Only(Stat),
    /// Its threads.
    Threads,
}

impl<'a> RunningSearch<'a> {
    /// Prepares a search; nothing is read yet.
    pub fn new(proc: &'a Path, processes: &'a Processes, known: &[TaskPlace]) -> Self {
        Self {
            proc,
            own: Pid::own(),
            known: known.iter().rev().copied().collect(),
            misses: 0,
            threads: Vec::new(),
            processes: processes.youngest_first.iter(),
            found: BTreeMap::new(),
            cut: true,
        }
    }

    /// Examines the known places, and then searches on until `wanted` tasks are found, as long as
    /// `go_on` agrees, which is called before each task and each process. Of the tasks that were
    /// found before, those that compute count: the others ran for a moment, and are forgotten.
    pub fn go_on(&mut self, wanted: usize, mut go_on: impl FnMut() -> bool) {
        let now = super::since_boot();
        self.found.retain(|_, (_, task)| task.computes());
        self.cut = false;
        while self.found.len() < wanted && self.misses < MISSES_MAX {
            let Some(place) = self.known.pop() else { break };
            self.examine_known(place, now);
        }
        while self.found.len() < wanted && !self.is_done() {
            if !go_on() {
                self.cut = true;
                return;
            }
            self.step(now);
        }
    }

    /// Returns the tasks that were found.
    pub fn tasks(&self) -> RunnableTasks {
        RunnableTasks { found: self.found.values().map(|(_, task)| *task).collect(), cut: self.cut }
    }

    /// Returns the places of the tasks that compute, by number.
    pub fn computing(&self) -> Vec<TaskPlace> {
        let computing = self.found.iter().filter(|(_, (_, task))| task.computes());
        computing.map(|(&tid, &(pid, _))| TaskPlace { pid, tid }).collect()
    }

    /// Returns whether all processes were examined.
    fn is_done(&self) -> bool {
        self.threads.is_empty() && self.processes.len() == 0
    }

    /// Examines one task, or a process.
    fn step(&mut self, now: Duration) {
        if let Some(place) = self.threads.pop() {
            self.found.extend(self.thread(place, now));
        } else if let Some(&pid) = self.processes.next() {
            match self.candidates(pid, now) {
                Candidates::None => {}
                Candidates::Only(stat) => self.found.extend(runnable(pid, &stat, now)),
                Candidates::Threads => {
                    let threads = process::threads(self.proc, pid).unwrap_or_default();
                    self.threads = threads.into_iter().map(|tid| TaskPlace { pid, tid }).collect();
                }
            }
        }
    }

    /// Examines a place that an earlier launch named, in the way in which the process's own turn
    /// would.
    fn examine_known(&mut self, place: TaskPlace, now: Duration) {
        if self.found.contains_key(&place.tid) {
            return;
        }
        let found = match self.candidates(place.pid, now) {
            Candidates::None => None,
            Candidates::Only(stat) => runnable(place.pid, &stat, now),
            Candidates::Threads => self.thread(place, now),
        };
        let is_new = match found.filter(|(_, (_, task))| task.computes()) {
            Some((tid, found)) => self.found.insert(tid, found).is_none(),
            None => false,
        };
        self.misses += usize::from(!is_new);
    }

    /// Returns the tasks of a process that can count.
    fn candidates(&self, pid: Pid, now: Duration) -> Candidates {
        if pid == self.own {
            return Candidates::None;
        }
        match process::stat(self.proc, pid) {
            Ok(stat) if stat.kernel_thread => Candidates::None,
            Ok(stat) if stat.threads <= 1 => Candidates::Only(stat),
            Ok(stat) if 2 * stat.cpu_time() >= stat.start.age(now) => Candidates::Threads,
            // The threads have not computed, or the process has ended meanwhile.
            _ => Candidates::None,
        }
    }

    /// Returns a thread, if it is on a CPU or ready.
    fn thread(&self, place: TaskPlace, now: Duration) -> Option<(Tid, (Pid, RunnableTask))> {
        runnable(place.pid, &process::thread_stat(self.proc, place.pid, place.tid).ok()?, now)
    }
}

/// The task of a stat line, if it is on a CPU or ready.
fn runnable(pid: Pid, stat: &Stat, now: Duration) -> Option<(Tid, (Pid, RunnableTask))> {
    let cpu = stat.last_cpu.filter(|_| stat.state == State::Running)?;
    let span = |time: Duration| Span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let task = RunnableTask { cpu, used: span(stat.cpu_time()), life: span(stat.start.age(now)) };
    Some((Tid(stat.id), (pid, task)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::fs;
    use std::process::{Command, Stdio};
    use trimtab_core::ids::OsCpu;
    use trimtab_core::place::{LoadEvidence, load_estimate};

    #[test]
    fn a_task_that_computes_is_found_and_the_search_ends_there() {
        let mut spin =
            Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let (begin, proc) = (std::time::Instant::now(), Path::new("/proc"));
        let found = loop {
            // The youngest process is the shell; it is runnable all the time.
            let processes = Processes::list(proc).unwrap();
            let mut search = RunningSearch::new(proc, &processes, &[]);
            search.go_on(1, || true);
            if !search.tasks().found.is_empty() || begin.elapsed() > Duration::from_secs(20) {
                break search.tasks();
            }
        };
        spin.kill().unwrap();
        spin.wait().unwrap();
        assert_eq!((found.found.len(), found.cut), (1, false));
    }

    #[test]
    fn a_search_that_may_not_go_on_says_so() {
        let proc = Path::new("/proc");
        let processes = Processes::list(proc).unwrap();
        let mut cut = RunningSearch::new(proc, &processes, &[]);
        cut.go_on(1, || false);
        assert_eq!(cut.tasks(), RunnableTasks { found: Vec::new(), cut: true });
        // Processes that are gone are passed over.
        let mut gone = RunningSearch::new(Path::new("/no/such/folder"), &processes, &[]);
        gone.go_on(1, || true);
        assert_eq!(gone.tasks(), RunnableTasks::default());
    }

    /// A task of a drawn machine.
    #[derive(Clone, Copy, Debug)]
    struct Task {
        runs: bool,
        /// Whether it has computed for nearly all of its life, or for nearly none of it.
        computes: bool,
        cpu: u32,
    }

    /// A process of a drawn machine; its first task has its number.
    #[derive(Clone, Debug)]
    struct Process {
        kernel: bool,
        tasks: Vec<Task>,
    }

    fn process() -> impl Strategy<Value = Process> {
        let task = (any::<bool>(), any::<bool>(), 0u32..4).prop_map(|(runs, computes, cpu)| Task {
            runs,
            computes,
            cpu,
        });
        let tasks = prop_oneof![prop::collection::vec(task.clone(), 1), prop::collection::vec(task, 2..5)];
        (prop::bool::weighted(0.2), tasks).prop_map(|(kernel, tasks)| Process { kernel, tasks })
    }

    /// Number of a task; numbers of processes are ten apart.
    fn number(process: usize, task: usize) -> u32 {
        u32::try_from(10 * (process + 1) + task).unwrap()
    }

    /// Life of every task, in clock ticks.
    const LIFE: u64 = 1_000;

    fn stat(id: u32, kernel: bool, threads: usize, used: u64, task: Task, born: u64) -> String {
        let (state, flags) = (if task.runs { 'R' } else { 'S' }, if kernel { 0x0020_0000 } else { 0 });
        let mut line =
            format!("{id} (task) {state} 1 1 1 0 -1 {flags} 0 0 0 0 {used} 0 0 0 20 0 {threads} 0 {born}");
        line.push_str(&" 0".repeat(16));
        write!(line, " {}", task.cpu).unwrap();
        line
    }

    fn used(task: Task) -> u64 {
        if task.computes { LIFE * 95 / 100 } else { LIFE / 100 }
    }

    /// Writes the files of a machine, as the kernel would.
    fn write(proc: &Path, machine: &[Process]) {
        let now = u64::try_from(crate::survey::since_boot().as_millis() / 10).unwrap();
        let born = now.saturating_sub(LIFE);
        for (at, process) in machine.iter().enumerate() {
            let threads = process.tasks.len();
            let all: u64 = process.tasks.iter().copied().map(used).sum();
            for (nth, &task) in process.tasks.iter().enumerate() {
                let id = number(at, nth);
                // The kernel has a folder for each thread too, with the sums of its process.
                let whole = proc.join(id.to_string());
                fs::create_dir_all(whole.join("task")).unwrap();
                fs::write(whole.join("stat"), stat(id, process.kernel, threads, all, task, born)).unwrap();
                for (other, &of) in process.tasks.iter().enumerate() {
                    let other = number(at, other);
                    let folder = whole.join(format!("task/{other}"));
                    fs::create_dir_all(&folder).unwrap();
                    fs::write(folder.join("stat"), stat(other, process.kernel, threads, used(of), of, born))
                        .unwrap();
                }
            }
        }
    }

    /// The runnable tasks of user programs in processes that compute, straight from the drawn machine.
    fn oracle(machine: &[Process]) -> Vec<RunnableTask> {
        let counts = |process: &&Process| {
            let all: u64 = process.tasks.iter().copied().map(used).sum();
            !process.kernel && (process.tasks.len() == 1 || 2 * all >= LIFE)
        };
        let tasks = machine.iter().filter(counts).flat_map(|process| &process.tasks).filter(|task| task.runs);
        let span = |ticks: u64| Span(ticks * 10_000_000);
        tasks
            .map(|&task| RunnableTask { cpu: OsCpu(task.cpu), used: span(used(task)), life: span(LIFE) })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The full look is the oracle: it examines everything, and knows no earlier tasks.
        #[test]
        fn earlier_tasks_however_false_and_pauses_change_no_estimate(
            machine in prop::collection::vec(process(), 1..8),
            known in prop::collection::vec((0usize..10, 0usize..5, 0usize..5), 0..12),
            kept in prop::collection::vec(0u16..=1000, 4),
            pace in 1usize..20,
        ) {
            let proc = tempfile::tempdir().unwrap();
            write(proc.path(), &machine);
            // The folder of the processes alone, as the kernel lists it: threads are not in the list.
            let first = (0..machine.len()).rev().map(|at| Pid(number(at, 0))).collect::<Vec<_>>();
            let processes = Processes { youngest_first: first, ..Processes::list(proc.path()).unwrap() };
            let known: Vec<TaskPlace> = known
                .into_iter()
                .map(|(at, pid, tid)| TaskPlace { pid: Pid(number(at, pid)), tid: Tid(number(at, tid)) })
                .collect();
            let runnable = machine.iter().flat_map(|process| &process.tasks).filter(|task| task.runs).count();
            let mut search = RunningSearch::new(proc.path(), &processes, &known);
            for _ in 0..200 {
                let mut steps = 0;
                search.go_on(runnable, || { steps += 1; steps <= pace });
                if !search.tasks().cut {
                    break;
                }
            }
            let (tasks, full) = (search.tasks(), RunnableTasks { found: oracle(&machine), cut: false });
            prop_assert!(!tasks.cut);
            let load = (0u32..).map(OsCpu).zip(kept).collect::<BTreeMap<_, _>>();
            let by_counters = |tasks: &RunnableTasks| {
                let evidence =
                    LoadEvidence::Kept { load: load.clone(), age: Span::from_ms(500), tasks: Some(tasks.clone()) };
                load_estimate(evidence, runnable)
            };
            prop_assert_eq!(by_counters(&tasks), by_counters(&full));
            let by_tasks = |tasks: &RunnableTasks| load_estimate(LoadEvidence::Tasks(tasks.clone()), runnable).busy;
            prop_assert_eq!(by_tasks(&tasks), by_tasks(&full));
            // Each place is a task of its own.
            let numbers: BTreeSet<Tid> = search.computing().iter().map(|place| place.tid).collect();
            prop_assert_eq!(numbers.len(), tasks.found.iter().filter(|task| task.computes()).count());
        }
    }
}

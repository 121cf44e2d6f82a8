//! Search for the tasks that are on a CPU or ready, within a bound of time.
//!
//! Tasks that an earlier launch found come first, then the youngest process: programs that people
//! start come after daemons. The search ends when as many tasks are found as the kernel counts, so
//! that on a machine where little runs, and on one where the same programs run on, it ends early.

use super::pins::Processes;
use crate::process::{self, Pid, Stat, State, TaskName, Tid};
use crate::text;
use std::fs;
use std::path::Path;
use std::time::Duration;
use trimtab_core::place::RunnableTask;
use trimtab_core::time::Span;

/// A runnable task of another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundTask {
    /// The task.
    pub name: TaskName,
    /// Its use of CPU time.
    pub task: RunnableTask,
}

/// Outcome of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Running {
    /// The runnable tasks of other programs that were found.
    pub tasks: Vec<FoundTask>,
    /// Whether the search ended before all processes were examined or `wanted` tasks were found.
    pub cut: bool,
}

impl Running {
    /// Examines tasks that were found before: those that are still runnable.
    pub fn again(proc: &Path, known: &[TaskName]) -> Self {
        let now = super::since_boot();
        let own = Pid::own();
        let still = known.iter().filter(|name| name.pid != own).filter_map(|name| {
            let stat = process::thread_stat(proc, name.pid, name.tid).ok()?;
            // The numbers may be another task's by now.
            (stat.start == name.start && !stat.kernel_thread).then(|| runnable(name.pid, &stat, now))?
        });
        Self { tasks: still.collect(), cut: false }
    }

    /// Searches on, for at most `wanted` runnable tasks together with those that were found, as long
    /// as `go_on` agrees, which is called before each task. The caller and kernel threads are not
    /// counted. Of a process with several threads, the threads are examined only if the process has
    /// computed for half of its life.
    #[must_use]
    pub fn and_among(
        mut self,
        proc: &Path,
        processes: &Processes,
        wanted: usize,
        mut go_on: impl FnMut() -> bool,
    ) -> Self {
        let now = super::since_boot();
        let own = Pid::own();
        for pid in processes.youngest_first.iter().copied().filter(|pid| *pid != own) {
            if self.tasks.len() >= wanted {
                break;
            }
            if !go_on() {
                self.cut = true;
                break;
            }
            let Ok(stat) = process::stat(proc, pid) else { continue };
            if stat.kernel_thread {
                continue;
            }
            if stat.threads <= 1 {
                self.add(runnable(pid, &stat, now));
            } else if 2 * stat.cpu_time() >= stat.start.age(now) {
                self.examine_threads(proc, pid, now, wanted, &mut go_on);
            }
        }
        self
    }

    /// Adds the runnable threads of a process.
    fn examine_threads(
        &mut self,
        proc: &Path,
        pid: Pid,
        now: Duration,
        wanted: usize,
        go_on: &mut impl FnMut() -> bool,
    ) {
        let Ok(entries) = fs::read_dir(proc.join(format!("{pid}/task"))) else { return };
        for tid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Tid) {
            if self.tasks.len() >= wanted {
                return;
            }
            if !go_on() {
                self.cut = true;
                return;
            }
            let line = text::read(&proc.join(format!("{pid}/task/{tid}/stat"))).unwrap_or_default();
            self.add(Stat::parse(&line).ok().and_then(|stat| runnable(pid, &stat, now)));
        }
    }

    /// Adds a task that was not found before.
    fn add(&mut self, found: Option<FoundTask>) {
        let is_new = |found: &FoundTask| self.tasks.iter().all(|known| known.name != found.name);
        self.tasks.extend(found.filter(is_new));
    }
}

/// The task of a stat line, if it is on a CPU or ready.
fn runnable(pid: Pid, stat: &Stat, now: Duration) -> Option<FoundTask> {
    let cpu = stat.last_cpu.filter(|_| stat.state == State::Running)?;
    let span = |time: Duration| Span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let name = TaskName { pid, tid: Tid(stat.id), start: stat.start };
    let task = RunnableTask { cpu, used: span(stat.cpu_time()), life: span(stat.start.age(now)) };
    Some(FoundTask { name, task })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_task_that_computes_is_found_and_the_search_ends_there() {
        let mut spin =
            Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let (begin, proc) = (std::time::Instant::now(), Path::new("/proc"));
        let processes = || Processes::list(proc).unwrap();
        let found = loop {
            // The youngest process is the shell; it is runnable all the time.
            let found = Running::default().and_among(proc, &processes(), 1, || true);
            if !found.tasks.is_empty() || begin.elapsed() > Duration::from_secs(20) {
                break found;
            }
        };
        assert_eq!((found.tasks.len(), found.cut), (1, false));
        // The next search needs no processes, and counts it once. Other programs may compute too.
        let spins = |found: &FoundTask| found.name.pid == Pid(spin.id());
        let name = loop {
            let all = Running::default().and_among(proc, &processes(), usize::MAX, || true);
            match all.tasks.into_iter().find(spins) {
                Some(found) => break found.name,
                None => assert!(begin.elapsed() < Duration::from_secs(20), "it is never runnable"),
            }
        };
        let again = Running::again(proc, &[name]);
        assert_eq!(again.tasks.iter().map(|task| task.name).collect::<Vec<_>>(), [name]);
        let more = again.and_among(proc, &processes(), 2, || true);
        assert_eq!(more.tasks.iter().filter(|task| task.name == name).count(), 1);
        let later = TaskName { start: process::StartTime(name.start.0 + 1), ..name };
        assert_eq!(Running::again(proc, &[later]), Running::default(), "another task with its numbers");
        spin.kill().unwrap();
        spin.wait().unwrap();
        assert_eq!(Running::again(proc, &[name]), Running::default(), "it has ended");
    }

    #[test]
    fn a_search_that_may_not_go_on_says_so() {
        let proc = Path::new("/proc");
        let processes = Processes::list(proc).unwrap();
        let found = Running::default().and_among(proc, &processes, 1, || false);
        assert_eq!(found, Running { tasks: Vec::new(), cut: true });
        // Processes that are gone are passed over.
        let none = Running::default().and_among(Path::new("/no/such/folder"), &processes, 1, || true);
        assert_eq!(none, Running::default());
    }
}

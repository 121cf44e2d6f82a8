//! Search for the tasks that are on a CPU or ready, within a bound of time.
//!
//! Youngest process first: programs that people start come after daemons. The search ends when as
//! many tasks are found as the kernel counts, so that on a machine where little runs it ends early.

use super::pins::Processes;
use crate::process::{self, Pid, Stat, State, Tid};
use crate::text;
use std::fs;
use std::path::Path;
use std::time::Duration;
use trimtab_core::place::RunnableTask;
use trimtab_core::time::Span;

/// Outcome of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Running {
    /// The runnable tasks of other programs that were found.
    pub tasks: Vec<RunnableTask>,
    /// Whether the search ended before all processes were examined or `wanted` tasks were found.
    pub cut: bool,
}

/// Searches for at most `wanted` runnable tasks, as long as `go_on` agrees, which is called before
/// each task. The caller and kernel threads are not counted. Of a process with several threads, the
/// threads are examined only if the process has computed for half of its life.
pub fn running(
    proc: &Path,
    processes: &Processes,
    wanted: usize,
    mut go_on: impl FnMut() -> bool,
) -> Running {
    let now = super::since_boot();
    let own = Pid::own();
    let mut found = Running::default();
    for pid in processes.youngest_first.iter().copied().filter(|pid| *pid != own) {
        if found.tasks.len() >= wanted {
            return found;
        }
        if !go_on() {
            found.cut = true;
            return found;
        }
        let Ok(stat) = process::stat(proc, pid) else { continue };
        if stat.kernel_thread {
            continue;
        }
        if stat.threads <= 1 {
            found.tasks.extend(runnable(&stat, now));
        } else if 2 * stat.cpu_time() >= stat.start.age(now) {
            examine_threads(proc, pid, now, wanted, &mut found, &mut go_on);
        }
    }
    found
}

/// Adds the runnable threads of a process.
fn examine_threads(
    proc: &Path,
    pid: Pid,
    now: Duration,
    wanted: usize,
    found: &mut Running,
    go_on: &mut impl FnMut() -> bool,
) {
    let Ok(entries) = fs::read_dir(proc.join(format!("{pid}/task"))) else { return };
    for tid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Tid) {
        if found.tasks.len() >= wanted {
            return;
        }
        if !go_on() {
            found.cut = true;
            return;
        }
        let line = text::read(&proc.join(format!("{pid}/task/{tid}/stat"))).unwrap_or_default();
        found.tasks.extend(Stat::parse(&line).ok().and_then(|stat| runnable(&stat, now)));
    }
}

/// The task of a stat line, if it is on a CPU or ready.
fn runnable(stat: &Stat, now: Duration) -> Option<RunnableTask> {
    let cpu = stat.last_cpu.filter(|_| stat.state == State::Running)?;
    let span = |time: Duration| Span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    Some(RunnableTask { cpu, used: span(stat.cpu_time()), life: span(stat.start.age(now)) })
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
        let found = loop {
            // The youngest process is the shell; it is runnable all the time.
            let found = running(proc, &Processes::list(proc).unwrap(), 1, || true);
            if !found.tasks.is_empty() || begin.elapsed() > Duration::from_secs(20) {
                break found;
            }
        };
        spin.kill().unwrap();
        spin.wait().unwrap();
        assert_eq!((found.tasks.len(), found.cut), (1, false));
    }

    #[test]
    fn a_search_that_may_not_go_on_says_so() {
        let proc = Path::new("/proc");
        let processes = Processes::list(proc).unwrap();
        let found = running(proc, &processes, 1, || false);
        assert_eq!(found, Running { tasks: Vec::new(), cut: true });
        // Processes that are gone are passed over.
        assert_eq!(running(Path::new("/no/such/folder"), &processes, 1, || true), Running::default());
    }
}

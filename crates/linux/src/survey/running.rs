//! Search for the tasks that are on a CPU or ready, within a bound of time.
//!
//! Youngest process first: programs that people start come after daemons. The search ends when as
//! many tasks that compute are found as the kernel counts runnable ones, so that on a machine where
//! little runs it ends early. Tasks that run for a moment do not end it, since the kernel may not
//! have counted them. A search that has ended goes on where it ended.

use super::pins::Processes;
use crate::process::{self, Pid, Stat, State, Tid};
use crate::text;
use std::fs;
use std::path::Path;
use std::time::Duration;
use trimtab_core::place::{RunnableTask, RunnableTasks};
use trimtab_core::time::Span;

/// A search for the runnable tasks of other programs. The caller and kernel threads are not
/// counted. Of a process with several threads, the threads are examined only if the process has
/// computed for half of its life.
#[derive(Debug)]
pub struct RunningSearch<'a> {
    proc: &'a Path,
    /// Processes that were not examined yet.
    rest: &'a [Pid],
    /// The last process, and the list of its threads that were not examined yet. It is read in
    /// parts: a process may have very many.
    threads: Option<(Pid, fs::ReadDir)>,
    found: RunnableTasks,
}

impl<'a> RunningSearch<'a> {
    /// Makes a search among these processes, in which nothing was examined yet.
    pub fn new(proc: &'a Path, processes: &'a Processes) -> Self {
        Self { proc, rest: &processes.youngest_first, threads: None, found: RunnableTasks::default() }
    }

    /// Searches until `wanted` tasks that compute are known, as long as `may_go_on` agrees: it is
    /// called before each task. Returns all that were found until now. The search counts as cut
    /// until all processes are examined.
    pub fn go_on(&mut self, wanted: usize, mut may_go_on: impl FnMut() -> bool) -> &RunnableTasks {
        let (now, own) = (super::since_boot(), Pid::own());
        while self.found.computing() < wanted && !self.is_at_end() && may_go_on() {
            match self.next_thread() {
                Some((pid, tid)) => self.examine_thread(pid, tid, now),
                None => self.examine_process(own, now),
            }
        }
        self.found.cut = !self.is_at_end();
        &self.found
    }

    fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.threads.is_none()
    }

    /// Returns the next thread of the last process.
    fn next_thread(&mut self) -> Option<(Pid, Tid)> {
        let (pid, entries) = self.threads.as_mut()?;
        let number = entries.flatten().find_map(|entry| entry.file_name().to_str()?.parse().ok());
        let thread = number.map(|number| (*pid, Tid(number)));
        if thread.is_none() {
            self.threads = None;
        }
        thread
    }

    /// Examines the next process, or opens the list of its threads.
    fn examine_process(&mut self, own: Pid, now: Duration) {
        let Some((&pid, rest)) = self.rest.split_first() else { return };
        self.rest = rest;
        let Some(stat) = process::stat(self.proc, pid).ok().filter(|stat| pid != own && !stat.kernel_thread)
        else {
            return;
        };
        if stat.threads <= 1 {
            self.found.found.extend(runnable(&stat, now));
        } else if 2 * stat.cpu_time() >= stat.start.age(now) {
            let entries = fs::read_dir(self.proc.join(format!("{pid}/task")));
            self.threads = entries.ok().map(|entries| (pid, entries));
        }
    }

    fn examine_thread(&mut self, pid: Pid, tid: Tid, now: Duration) {
        let line = text::read(&self.proc.join(format!("{pid}/task/{tid}/stat"))).unwrap_or_default();
        self.found.found.extend(Stat::parse(&line).ok().and_then(|stat| runnable(&stat, now)));
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
    use trimtab_core::place::{LoadEvidence, load_estimate};

    #[test]
    fn a_task_that_computes_is_found_and_the_search_ends_there() {
        let mut spin =
            Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let (begin, proc) = (std::time::Instant::now(), Path::new("/proc"));
        let found = loop {
            // The youngest process is the shell. It counts once it has lived for a moment.
            let processes = Processes::list(proc).unwrap();
            let found = RunningSearch::new(proc, &processes).go_on(1, || true).clone();
            if found.computing() > 0 || begin.elapsed() > Duration::from_secs(20) {
                break found;
            }
        };
        spin.kill().unwrap();
        spin.wait().unwrap();
        assert_eq!((found.computing(), found.cut), (1, true), "older processes were not examined");
    }

    #[test]
    fn a_search_that_may_not_go_on_says_so() {
        let proc = Path::new("/proc");
        let processes = Processes::list(proc).unwrap();
        let found = RunningSearch::new(proc, &processes).go_on(1, || false).clone();
        assert_eq!(found, RunnableTasks { found: Vec::new(), cut: true });
        // Processes that are gone are passed over.
        let mut gone = RunningSearch::new(Path::new("/no/such/folder"), &processes);
        assert_eq!(*gone.go_on(1, || true), RunnableTasks::default());
    }

    /// Writes a process that has computed for all of its life, with one runnable thread of two.
    fn computes(proc: &Path, pid: u32) {
        let ticks = (super::super::since_boot().as_millis() / 10).to_string();
        let cpu = pid.to_string();
        // The numbers of the fields are those of proc(5).
        let line = |state: &str| {
            let field = |number| match number {
                3 => state,
                14 => &ticks,
                20 => "2",
                39 => &cpu,
                _ => "1",
            };
            format!("{pid} (x) {}\n", (3..=39).map(field).collect::<Vec<_>>().join(" "))
        };
        let folder = proc.join(pid.to_string());
        for (tid, state) in [(pid, "R"), (pid + 1, "S")] {
            let thread = folder.join(format!("task/{tid}"));
            fs::create_dir_all(&thread).unwrap();
            fs::write(thread.join("stat"), line(state)).unwrap();
        }
        fs::write(folder.join("stat"), line("S")).unwrap();
    }

    #[test]
    fn a_search_that_is_cut_anywhere_finds_each_task_once_when_it_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let pids = [4_000_010, 4_000_020, 4_000_030];
        pids.iter().for_each(|&pid| computes(root.path(), pid));
        let processes = Processes::list(root.path()).unwrap();
        for step in 1..=10 {
            let mut search = RunningSearch::new(root.path(), &processes);
            let mut found = RunnableTasks { found: Vec::new(), cut: true };
            let mut parts = 0;
            while found.cut {
                let mut examined = 0;
                let go_on = || {
                    examined += 1;
                    examined <= step
                };
                found = search.go_on(9, go_on).clone();
                parts += 1;
            }
            let cpus: Vec<u32> = found.found.iter().map(|task| task.cpu.0).collect();
            // Youngest first: each task last ran on the CPU of its number.
            assert_eq!(cpus, [4_000_030, 4_000_020, 4_000_010], "{step}");
            // Three processes, their six threads, and the end of the last list of threads.
            assert_eq!(parts, 10_u32.div_ceil(step), "{step}");
        }
        let mut search = RunningSearch::new(root.path(), &processes);
        assert_eq!(search.go_on(1, || true).found.len(), 1, "no more are wanted");
        assert_eq!(search.go_on(2, || true).found.len(), 2);
        // The second thread of the last process is left.
        assert!(search.go_on(3, || true).cut);
        assert!(!search.go_on(usize::MAX, || true).cut);
    }

    #[test]
    fn a_task_that_runs_for_a_moment_does_not_end_the_search_before_one_that_computes() {
        let root = tempfile::tempdir().unwrap();
        computes(root.path(), 4_000_010);
        let momentary = root.path().join("4000030");
        fs::create_dir_all(&momentary).unwrap();
        let stat = fs::read_to_string(root.path().join("4000010/task/4000010/stat")).unwrap();
        let mut fields: Vec<&str> = stat.split_whitespace().collect();
        // The time in user code and in the kernel, and the number of threads.
        (fields[13], fields[14], fields[19]) = ("0", "0", "1");
        fs::write(momentary.join("stat"), fields.join(" ")).unwrap();
        let processes = Processes::list(root.path()).unwrap();
        // The kernel counted one task, since the younger one had ended before.
        let found = RunningSearch::new(root.path(), &processes).go_on(1, || true).clone();
        let estimate = load_estimate(LoadEvidence::Tasks(found), 1);
        assert_eq!(estimate.busy.into_values().filter(|&busy| busy > 0).count(), 1);
    }

    #[test]
    fn a_search_that_was_cut_explains_nothing_by_tasks_that_may_have_ended() {
        let root = tempfile::tempdir().unwrap();
        [4_000_010, 4_000_020].iter().for_each(|&pid| computes(root.path(), pid));
        let processes = Processes::list(root.path()).unwrap();
        let mut search = RunningSearch::new(root.path(), &processes);
        let mut left = 3;
        let found = search.go_on(2, || {
            left -= 1;
            left >= 0
        });
        assert_eq!((found.found.len(), found.cut), (1, true));
        let found = search.go_on(1, || true);
        assert_eq!((found.found.len(), found.cut), (1, true), "one more process was not examined");
        let found = search.go_on(usize::MAX, || true);
        assert_eq!((found.found.len(), found.cut), (2, false));
    }
}

//! Processes below a process: their threads as samples, their libraries, and their end.

use rustix::process::{Pid as Killed, Signal, WaitOptions, kill_process, wait};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::advise::early::{ThreadSample, TreeSample};
use trimtab_core::advise::libraries::{self, JAVA, Library};
use trimtab_linux::process::{self, Pid, StartTime, State, threads};
use trimtab_linux::program::Program;

/// Time that a tree has to end after SIGKILL: a process in a system call of a device ends late.
const KILL_TIME_MAX: Duration = Duration::from_secs(5);
/// Time between two checks for the end.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Largest file of a library that is read for its version.
const LIBRARY_BYTES_MAX: u64 = 256 << 20;

/// Returns all processes below a process.
pub(super) fn below(proc: &Path, root: Pid) -> Vec<Pid> {
    let mut all = Vec::new();
    let mut next = vec![root];
    while let Some(process) = next.pop() {
        let children: Vec<Pid> =
            children(proc, process).into_iter().filter(|child| !all.contains(child)).collect();
        next.extend(&children);
        all.extend(children);
    }
    all
}

/// Returns the children of a process, from the kernel's lists; without them, by the parents of all
/// processes.
fn children(proc: &Path, process: Pid) -> Vec<Pid> {
    let tasks = threads(proc, process).unwrap_or_default();
    let lists: Vec<String> = tasks
        .iter()
        .filter_map(|task| std::fs::read_to_string(proc.join(format!("{process}/task/{task}/children"))).ok())
        .collect();
    if !lists.is_empty() || tasks.is_empty() {
        let numbers = lists.iter().flat_map(|list| list.split_whitespace());
        return numbers.filter_map(|number| number.parse().ok().map(Pid)).collect();
    }
    let parent = |pid: &Pid| process::stat(proc, *pid).map(|stat| stat.parent).ok();
    process::all(proc).unwrap_or_default().into_iter().filter(|pid| parent(pid) == Some(process)).collect()
}

/// Returns the processes below a process that run another program than it: the user's.
pub(super) fn programs(proc: &Path, root: Pid) -> Vec<Pid> {
    let file = |pid: Pid| std::fs::read_link(proc.join(format!("{pid}/exe"))).ok();
    let own = file(root);
    below(proc, root).into_iter().filter(|pid| file(*pid) != own).collect()
}

/// Returns a sample of the threads of these processes.
pub(super) fn sample(proc: &Path, processes: &[Pid], at: Duration) -> TreeSample {
    let mut sample = TreeSample { at: at.into(), threads: Vec::new() };
    for &process in processes {
        for thread in threads(proc, process).unwrap_or_default() {
            let Ok(stat) = process::thread_stat(proc, process, thread) else { continue };
            let running = stat.state == State::Running;
            let voluntary = voluntary(proc, process, thread.0);
            let service = libraries::is_java_service(&stat.comm);
            sample.threads.push(ThreadSample {
                id: thread.0,
                process: process.0,
                running,
                voluntary,
                service,
            });
        }
    }
    sample
}

/// Returns the number of voluntary switches of a thread.
fn voluntary(proc: &Path, process: Pid, thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(proc.join(format!("{process}/task/{thread}/status"))).ok()?;
    text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// Libraries with pools of their own that were seen in computing processes.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// Libraries of each process that was examined, by the variable that sets their threads.
    of: BTreeMap<u32, Vec<(&'static libraries::Known, String)>>,
    found: BTreeMap<&'static str, Library>,
}

impl Libraries {
    /// Takes in a sample: examines processes that compute.
    pub(super) fn take(&mut self, proc: &Path, sample: &TreeSample) {
        let computing = sample.by_process();
        let mut together: BTreeMap<&'static str, [u32; 4]> = BTreeMap::new();
        for (&process, &threads) in &computing {
            // A process that has just begun has not mapped all of its libraries.
            let known = self.of.entry(process).or_default();
            if known.is_empty() {
                *known = mapped(proc, process);
            }
            for (library, file) in known.iter() {
                let service = if library.name == JAVA { service_threads(sample, process) } else { 0 };
                let [processes, most, most_service, workers] = together.entry(library.name).or_default();
                *processes += 1;
                *most = threads.max(*most);
                *most_service = service.max(*most_service);
                *workers = threads.saturating_sub(service).max(*workers);
                self.found.entry(library.name).or_insert_with(|| Library {
                    name: library.name.to_owned(),
                    version: version(library, Path::new(file)),
                    variable: library.variable.to_owned(),
                    ..Library::default()
                });
            }
        }
        for (name, [processes, threads, service, workers]) in together {
            if let Some(library) = self.found.get_mut(name) {
                library.processes = library.processes.max(processes);
                library.threads = library.threads.max(threads);
                library.service = library.service.max(service);
                library.workers = library.workers.max(workers);
            }
        }
    }

    /// Returns the libraries.
    pub(super) fn all(self) -> Vec<Library> {
        self.found.into_values().collect()
    }
}

/// Returns the number of running threads of a process that serve a Java machine.
fn service_threads(sample: &TreeSample, process: u32) -> u32 {
    let serves = |thread: &&ThreadSample| thread.process == process && thread.running && thread.service;
    u32::try_from(sample.threads.iter().filter(serves).count()).unwrap_or(u32::MAX)
}

/// Returns the known libraries that a process has mapped, with their files. The runtime of a Go
/// program is in its own file.
fn mapped(proc: &Path, process: u32) -> Vec<(&'static libraries::Known, String)> {
    let maps = std::fs::read_to_string(proc.join(format!("{process}/maps"))).unwrap_or_default();
    let mut all: Vec<(&'static libraries::Known, String)> = Vec::new();
    for path in maps.lines().filter_map(|line| Some(&line[line.find('/')?..])) {
        let file = path.rsplit('/').next().unwrap_or(path);
        let known = libraries::known(file).filter(|known| all.iter().all(|(one, _)| one != known));
        all.extend(known.map(|known| (known, path.to_owned())));
    }
    let own = proc.join(format!("{process}/exe"));
    let is_go =
        || Program::look(&own, None).is_ok_and(|program| program.binary.is_some_and(|binary| binary.go));
    if all.is_empty() && is_go() {
        all.push((&libraries::GO, own.to_string_lossy().into_owned()));
    }
    all
}

/// Returns the version that the file of a library, or of a Go program, tells.
fn version(library: &libraries::Known, path: &Path) -> Option<String> {
    let small = std::fs::metadata(path).is_ok_and(|data| data.len() <= LIBRARY_BYTES_MAX);
    if !small || library.mark.is_empty() && *library != libraries::GO {
        return None;
    }
    let contents = std::fs::read(path).ok()?;
    if *library == libraries::GO {
        return libraries::go(&contents).flatten();
    }
    libraries::version(library.mark, &contents)
}

/// Returns these processes with their starts, which tell them from later ones of the same number.
pub(super) fn identified(proc: &Path, processes: Vec<Pid>) -> Vec<(Pid, StartTime)> {
    let start = |pid: Pid| Some((pid, process::stat(proc, pid).ok()?.start));
    processes.into_iter().filter_map(start).collect()
}

/// Returns those of these processes that still exist.
pub(super) fn remaining(proc: &Path, processes: &[(Pid, StartTime)]) -> Vec<Pid> {
    let lives =
        |&&(pid, start): &&(Pid, StartTime)| process::stat(proc, pid).is_ok_and(|stat| stat.start == start);
    processes.iter().filter(lives).map(|&(pid, _)| pid).collect()
}

/// Ends these processes at once.
pub(super) fn kill(processes: &[Pid]) {
    for process in processes {
        let number = i32::try_from(process.0).ok().and_then(Killed::from_raw);
        if let Some(number) = number {
            let _ = kill_process(number, Signal::KILL);
        }
    }
}

/// Ends all processes below this one except for those that are spared, and collects them. This
/// process adopts the processes whose parents have ended (it is a subreaper), so none is missed.
pub(super) fn end_all(proc: &Path, spared: &[Pid]) {
    let begin = Instant::now();
    loop {
        let left = below(proc, Pid::own());
        let alive: Vec<Pid> = left
            .into_iter()
            .filter(|pid| !spared.contains(pid))
            .filter(|pid| process::stat(proc, *pid).is_ok_and(|stat| stat.state != State::Zombie))
            .collect();
        kill(&alive);
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if alive.is_empty() || begin.elapsed() > KILL_TIME_MAX {
            return;
        }
        std::thread::sleep(KILL_POLL_INTERVAL);
    }
}

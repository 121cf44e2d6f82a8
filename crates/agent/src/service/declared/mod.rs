//! Declared tags: programs and virtual machines that the files of an administrator tag, without a
//! request and again after each restart.
//!
//! A scan compares each process with the declarations. It runs beside the thread that serves
//! requests, in a thread of its own each time, and rarely enough to take little of a CPU. If the
//! same declaration means an ancestor, a process needs no tag: a tag covers descendants. A tag
//! ends when its process is not meant any more: it has become another program, has moved to another
//! control group, or the files have changed.

mod file;

pub(super) use file::{Candidate, Declaration, read};

use super::resolve::Resolver;
use super::{SharedState, spent};
use rustix::time::ClockId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use trimtab_core::tags::{By, Mark, Owner, Reach, Terms};
use trimtab_linux::process::{self, Pid};
use trimtab_linux::vcpus::Vms;

/// Least time between two scans. Chosen: a program that is to be balanced runs longer.
const SCAN_PERIOD_MIN: Duration = Duration::from_secs(2);
/// Least ratio of elapsed time to scanning time in the long run: 1/200 of a CPU.
const SCAN_COST_RATIO: u32 = 200;
/// Most ancestors of a process that are looked at.
const ANCESTORS_MAX: usize = 64;

/// A process and its start.
pub(super) type ProcessId = (u32, u64);

/// Processes and virtual machines that declarations mean.
#[derive(Debug, Default)]
pub(super) struct Meant {
    /// Processes, each with the index of its declaration.
    processes: BTreeSet<(usize, ProcessId)>,
    /// Monitors of virtual machines, each with the index of its declaration.
    machines: BTreeSet<(usize, ProcessId)>,
}

/// Changes of the declarations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Changes {
    /// Number of declarations now.
    pub(super) declarations: usize,
    /// Declarations that went (`- ...`) and came (`+ ...`).
    pub(super) lines: Vec<String>,
}

/// Compares declarations, apart from their places. Also returns the new places of those that stay,
/// by their earlier ones.
fn compare(before: Vec<Declaration>, now: &[Declaration]) -> (Changes, BTreeMap<String, String>) {
    let mut left: Vec<Declaration> = before;
    let (mut moved, mut came) = (BTreeMap::new(), Vec::new());
    for one in now {
        // Of equal ones, that at the same place first.
        let equal = |other: &&(usize, &Declaration)| other.1.is_like(one);
        let all: Vec<(usize, &Declaration)> = left.iter().enumerate().collect();
        let same = all.iter().filter(equal).find(|(_, other)| other.place == one.place);
        match same.or_else(|| all.iter().find(equal)).map(|(at, _)| *at) {
            Some(at) => {
                let earlier = left.remove(at);
                moved.insert(earlier.place, one.place.clone());
            }
            None => came.push(format!("+ {one}")),
        }
    }
    let went = left.iter().map(|one| format!("- {one}"));
    (Changes { declarations: now.len(), lines: went.chain(came).collect() }, moved)
}

/// The declarations, and the scan for what they mean.
#[derive(Debug)]
pub(super) struct Declared {
    resolver: Resolver,
    reach: Reach,
    declarations: Vec<Declaration>,
    next: Instant,
    /// Time at which the cost of all scans is amortised.
    paid: Instant,
    /// The scan in progress; it returns its CPU time too.
    scan: Option<JoinHandle<(Meant, Duration)>>,
    /// Monitors that are looked up, with their declarations; they are tagged when found.
    asked: BTreeSet<(usize, ProcessId)>,
}

impl Declared {
    pub(super) fn new(resolver: Resolver, reach: Reach, declarations: Vec<Declaration>) -> Self {
        let now = Instant::now();
        Self { resolver, reach, declarations, next: now, paid: now, scan: None, asked: BTreeSet::new() }
    }

    /// Replaces the declarations. Tags that they do not mean end with the next scan; those of a
    /// declaration that only has another line now stay.
    pub(super) fn replace(&mut self, declarations: Vec<Declaration>, shared: &SharedState) -> Changes {
        let before = std::mem::replace(&mut self.declarations, declarations);
        let (changes, moved) = compare(before, &self.declarations);
        shared.lock().registry.rename(&moved);
        // The indices of a running scan belong to the earlier declarations.
        self.scan = None;
        self.asked.clear();
        self.next = Instant::now();
        if self.declarations.is_empty() {
            clear(shared, |_, _| false);
        }
        changes
    }

    /// Starts a scan, if it is time, and takes the result of a finished one. Returns the monitors
    /// of virtual machines that are to be looked up. Does not block.
    pub(super) fn tend(&mut self, shared: &SharedState) -> Vec<(usize, ProcessId)> {
        let mut wanted = Vec::new();
        if let Some(scan) = self.scan.take_if(|scan| scan.is_finished()) {
            let now = Instant::now();
            if let Ok((meant, cost)) = scan.join() {
                wanted = self.take(shared, &meant);
                self.paid = self.paid.max(now) + cost * SCAN_COST_RATIO;
            }
            self.next = self.paid.max(now + SCAN_PERIOD_MIN);
        }
        if self.scan.is_none() && !self.declarations.is_empty() && Instant::now() >= self.next {
            let (resolver, reach, declarations) =
                (self.resolver.clone(), self.reach, self.declarations.clone());
            let work = move || {
                let meant = find(&resolver, reach, &declarations);
                (meant, Duration::from(spent(ClockId::ThreadCPUTime)))
            };
            match Builder::new().name("declared".to_owned()).spawn(work) {
                Ok(scan) => self.scan = Some(scan),
                // The limit of threads may be reached now; later it may not.
                Err(_) => self.next = Instant::now() + SCAN_PERIOD_MIN,
            }
        }
        wanted
    }

    /// Returns the requester and the terms of a declaration's tags; `None` after it was removed.
    pub(super) fn tag_of(&self, declaration: usize) -> Option<(By, Terms)> {
        let one = self.declarations.get(declaration)?;
        let terms = Terms { only: None, group: one.group.clone(), observe: one.observe };
        Some((By::Declared(one.place.clone()), terms))
    }

    /// Forgets that a monitor is looked up: it was found, or is asked for again.
    pub(super) fn answered(&mut self, declaration: usize, monitor: ProcessId) {
        self.asked.remove(&(declaration, monitor));
    }

    /// Tags the processes that were found, and ends the tags of others. Returns the monitors that
    /// are neither tagged nor looked up.
    fn take(&mut self, shared: &SharedState, meant: &Meant) -> Vec<(usize, ProcessId)> {
        let now = shared.now();
        let places: BTreeMap<&str, usize> =
            self.declarations.iter().enumerate().map(|(at, one)| (one.place.as_str(), at)).collect();
        clear(shared, |place, mark| {
            let Some(&at) = places.get(place) else { return false };
            match *mark {
                Mark::Process { pid, start } => meant.processes.contains(&(at, (pid, start))),
                Mark::Vm { pid, start, .. } => meant.machines.contains(&(at, (pid, start))),
                _ => false,
            }
        });
        let mut state = shared.lock();
        for &(at, (pid, start)) in &meant.processes {
            if let Some((by, terms)) = self.tag_of(at) {
                // If there are too many tags already, this one is dropped.
                let _ = state.registry.declare(by, Mark::Process { pid, start }, terms, now);
            }
        }
        let tagged: BTreeSet<(usize, ProcessId)> = state
            .registry
            .tags()
            .filter_map(|(_, tag)| match (&tag.by, &tag.mark) {
                (By::Declared(place), Mark::Vm { pid, start, .. }) => {
                    Some((*places.get(place.as_str())?, (*pid, *start)))
                }
                _ => None,
            })
            .collect();
        let wanted: Vec<(usize, ProcessId)> = meant
            .machines
            .iter()
            .filter(|one| !tagged.contains(one) && !self.asked.contains(one))
            .copied()
            .collect();
        self.asked.extend(wanted.iter().copied());
        wanted
    }
}

/// Ends the declared tags that are not meant any more; `stays` gets the place of the declaration.
fn clear(shared: &SharedState, stays: impl Fn(&str, &Mark) -> bool) {
    let mut state = shared.lock();
    let over: Vec<_> = state
        .registry
        .tags()
        .filter(|(_, tag)| matches!(&tag.by, By::Declared(place) if !stays(place, &tag.mark)))
        .map(|(id, _)| id)
        .collect();
    for id in over {
        state.registry.end(id);
    }
}

/// Finds the processes and machines that declarations mean.
fn find(resolver: &Resolver, reach: Reach, declarations: &[Declaration]) -> Meant {
    let mut meant = Meant::default();
    let paths = declarations.iter().any(|one| one.program.is_some());
    let groups = declarations.iter().any(|one| one.cgroup.is_some());
    let mut by_pid: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for pid in process::all(&resolver.proc).unwrap_or_default() {
        let Ok((owner, start)) = resolver.process(pid.0) else { continue };
        if matches!(reach, Reach::User(uid) if !owner.is(uid)) {
            continue;
        }
        let process = candidate(&resolver.proc, pid, owner, paths, groups);
        let of_processes = declarations.iter().enumerate().filter(|(_, one)| one.vm.is_none());
        for (at, _) in of_processes.filter(|(_, one)| one.means(&process)) {
            by_pid.entry(pid.0).or_default().insert(at);
            meant.processes.insert((at, (pid.0, start)));
        }
    }
    let covered = |at: usize, pid: u32| {
        let parent = |pid: u32| process::stat(&resolver.proc, Pid(pid)).ok().map(|stat| stat.parent.0);
        std::iter::successors(parent(pid), |pid| parent(*pid))
            .take(ANCESTORS_MAX)
            .any(|above| by_pid.get(&above).is_some_and(|declared| declared.contains(&at)))
    };
    meant.processes.retain(|(at, (pid, _))| !covered(*at, *pid));
    if declarations.iter().any(|one| one.vm.is_some()) {
        meant.machines = machines(resolver, reach, declarations);
    }
    meant
}

/// Finds the monitors of the virtual machines that declarations mean.
fn machines(resolver: &Resolver, reach: Reach, declarations: &[Declaration]) -> BTreeSet<(usize, ProcessId)> {
    let mut found = BTreeSet::new();
    let reached = |pid: Pid| match (reach, resolver.process(pid.0)) {
        (Reach::All, Ok(_)) => true,
        (Reach::User(uid), Ok((owner, _))) => owner.is(uid),
        (_, Err(_)) => false,
    };
    for vm in Vms::new(&resolver.proc).list_of(reached) {
        let (Some(name), Ok((owner, start))) = (vm.name, resolver.process(vm.pid.0)) else { continue };
        let process = candidate(&resolver.proc, vm.pid, owner, true, true);
        for (at, one) in declarations.iter().enumerate() {
            if one.vm.as_ref().is_some_and(|pattern| pattern.matches(&name)) && one.means(&process) {
                found.insert((at, (vm.pid.0, start)));
            }
        }
    }
    found
}

/// Reads what declarations ask for of a process.
fn candidate(proc: &Path, pid: Pid, owner: Owner, paths: bool, groups: bool) -> Candidate {
    let folder = proc.join(pid.to_string());
    let path = paths.then(|| std::fs::read_link(folder.join("exe")).ok()).flatten();
    let text = groups.then(|| std::fs::read_to_string(folder.join("cgroup")).ok()).flatten();
    let cgroups = text.iter().flat_map(|text| text.lines()).filter_map(|line| line.splitn(3, ':').nth(2));
    let name = process::stat(proc, pid).map(|stat| stat.comm).unwrap_or_default();
    // The kernel adds this word when the file was replaced, as an upgrade does.
    let path = path.map(|path| path.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    Candidate { name, path, user: owner.effective, cgroups: cgroups.map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use trimtab_core::tags::Registry;
    use trimtab_linux::users::Users;

    /// Children that end with the test.
    struct Children(Vec<Child>);

    impl Drop for Children {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    fn declarations(text: &str) -> Vec<Declaration> {
        file::parse(text, Path::new("t.toml"), &Users::default()).unwrap()
    }

    /// Runs a scan and waits for it.
    fn scanned(declared: &mut Declared, shared: &SharedState) -> Vec<(String, u32)> {
        declared.next = Instant::now();
        while declared.scan.is_none() {
            declared.tend(shared);
        }
        while declared.scan.is_some() {
            declared.next = Instant::now() + SCAN_PERIOD_MIN;
            declared.tend(shared);
            std::thread::yield_now();
        }
        let state = shared.lock();
        state.registry.tags().map(|(_, tag)| (tag.by.to_string(), tag.mark.pid().unwrap())).collect()
    }

    #[test]
    fn processes_are_tagged_while_they_are_meant() {
        let folder = tempfile::tempdir().unwrap();
        // A copy with a name of its own: other tests have sleeping children too.
        let program = folder.path().join("declared-sleep");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let start = || Command::new(&program).arg("1000").spawn().unwrap();
        let resolver =
            Resolver { proc: "/proc".into(), sys: "/sys".into(), cgroups: "/sys/fs/cgroup".into() };
        let shared = SharedState::new(Registry::new(Reach::All));
        let first = declarations("[[tag]]\nprogram = 'declared-sl*'\ngroup = 'g'\n");
        let mut declared = Declared::new(resolver, Reach::All, first);
        assert_eq!(scanned(&mut declared, &shared), []);
        let children = Children(vec![start(), start()]);
        let pids: Vec<u32> = children.0.iter().map(Child::id).collect();
        let by = "the declaration in t.toml, line 1".to_owned();
        let both: Vec<(String, u32)> = pids.iter().map(|pid| (by.clone(), *pid)).collect();
        assert_eq!(scanned(&mut declared, &shared), both);
        let generation = shared.lock().registry.generation();
        assert_eq!(scanned(&mut declared, &shared), both);
        assert_eq!(shared.lock().registry.generation(), generation, "nothing changes");
        declared.replace(declarations("[[tag]]\nprogram = 'declared-sleep'\nuser = 4000000000\n"), &shared);
        assert_eq!(scanned(&mut declared, &shared), [], "they are another user's");
        declared.replace(Vec::new(), &shared);
        drop(children);
    }

    #[test]
    fn a_tag_covers_descendants_that_are_meant_too() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("declared-shell");
        std::fs::copy("/bin/sh", &program).unwrap();
        // The inner shell waits for its input, and the outer one for the inner.
        let script = "\"$0\" -c 'echo in; read line'; true";
        let mut outer = Command::new(&program)
            .args(["-c", script])
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(outer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "in\n");
        let resolver =
            Resolver { proc: "/proc".into(), sys: "/sys".into(), cgroups: "/sys/fs/cgroup".into() };
        let shared = SharedState::new(Registry::new(Reach::All));
        let text = declarations("[[tag]]\nprogram = 'declared-shell'\n");
        let mut declared = Declared::new(resolver, Reach::All, text);
        let pids: Vec<u32> = scanned(&mut declared, &shared).into_iter().map(|(_, pid)| pid).collect();
        assert_eq!(pids, [outer.id()]);
        drop(outer.stdin.take());
        outer.wait().unwrap();
    }
}

//! Machines on paper: rare behaviour of real machines, in folders that resemble their procfs.

use crate::scene::{Observations, set};
use std::fs;
use std::path::{Path, PathBuf};
use trimtab_core::balance::{Act, Refusal, Settled, Wanted};
use trimtab_core::observe::Notice;
use trimtab_core::time::Span;
use trimtab_linux::host::{HostOptions, Live, LiveError, Root};
use trimtab_linux::process::Pid;

struct Paper(tempfile::TempDir);

impl Paper {
    fn new() -> Self {
        let paper = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(paper.proc().join("self")).unwrap();
        fs::create_dir_all(paper.0.path().join("sys/devices/system/cpu")).unwrap();
        fs::write(paper.0.path().join("sys/devices/system/cpu/online"), "0-3\n").unwrap();
        fs::write(paper.proc().join("self/schedstat"), "5 5 5\n").unwrap();
        paper
    }

    fn proc(&self) -> PathBuf {
        self.0.path().join("proc")
    }

    /// Writes a thread, new or replaced.
    fn thread(&self, pid: u32, tid: u32, start: u64, schedstat: &str) {
        let stat = |id: u32| {
            let zeros = "0 ".repeat(16);
            format!("{id} (paper) S 1 1 1 0 -1 0 0 0 0 0 120 30 0 0 20 0 2 0 {start} {zeros}3 0 0\n")
        };
        let uid = rustix::process::getuid().as_raw();
        let status =
            format!("Name:\tpaper\nTgid:\t{pid}\nUid:\t{uid}\t{uid}\t0\t0\nCpus_allowed_list:\t0-3\n");
        let task = self.proc().join(format!("{pid}/task/{tid}"));
        fs::create_dir_all(&task).unwrap();
        // A replaced file is another file to a reader that has the old one open, as with the
        // kernel's.
        let replace = |path: &Path, text: &str| {
            let _ = fs::remove_file(path);
            fs::write(path, text).unwrap();
        };
        replace(&task.join("stat"), &stat(tid));
        replace(&task.join("status"), &status);
        replace(&task.join("children"), "");
        replace(&task.join("schedstat"), schedstat);
        if pid == tid {
            replace(&self.proc().join(format!("{pid}/stat")), &stat(pid));
            replace(&self.proc().join(format!("{pid}/status")), &status);
        }
    }

    fn live(&self, options: HostOptions) -> Result<Live, LiveError> {
        Live::with(&self.proc(), &[Root::Tree(Pid(900_000))], &set("0-3"), options)
    }
}

/// Returns options without open descriptors, so that a file is opened for each reading, as a
/// machine on paper requires.
fn opened_each_time() -> HostOptions {
    HostOptions { descriptors: Some(0), find_every: Span::ZERO, ..HostOptions::default() }
}

#[test]
fn a_number_used_again_is_another_thread() {
    let paper = Paper::new();
    paper.thread(900_000, 900_000, 10, "100 10 1\n");
    paper.thread(900_000, 900_001, 20, "700 10 1\n");
    let mut live = paper.live(opened_each_time()).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    let before = seen.id(trimtab_linux::process::Tid(900_001));
    paper.thread(900_000, 900_001, 30, "800 10 1\n");
    seen.look(&mut live);
    assert!(seen.gone.contains(&before), "though its counters only grew");
    let after = seen.id(trimtab_linux::process::Tid(900_001));
    assert!(after > before);
    assert_eq!(
        seen.last.threads.iter().map(|read| read.id).collect::<Vec<_>>(),
        [seen.id(trimtab_linux::process::Tid(900_000)), after]
    );
}

#[test]
fn a_kernel_that_does_not_count_waiting_is_read_by_ticks() {
    let paper = Paper::new();
    fs::write(paper.proc().join("self/schedstat"), "0 0 0\n").unwrap();
    paper.thread(900_000, 900_000, 10, "0 0 0\n");
    let mut live = paper.live(HostOptions::default()).unwrap();
    let mut seen = Observations::default();
    let read = seen.look(&mut live).threads[0].clone();
    assert_eq!((read.run, read.wait, read.slices), (Span::from_ms(1_500), None, None));
    assert!(!live.facts().counts_waiting);
    fs::remove_file(paper.proc().join("self/schedstat")).unwrap();
    assert!(!paper.live(HostOptions::default()).unwrap().facts().counts_waiting);
}

#[test]
fn without_lists_of_children_parents_are_asked() {
    let paper = Paper::new();
    paper.thread(900_000, 900_000, 10, "1 1 1\n");
    fs::remove_file(paper.proc().join("900000/task/900000/children")).unwrap();
    paper.thread(900_005, 900_005, 11, "1 1 1\n");
    let child = paper.proc().join("900005/stat");
    let text = fs::read_to_string(&child).unwrap().replace("S 1 ", "S 900000 ");
    fs::write(&child, text).unwrap();
    let mut live = paper.live(HostOptions::default()).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!(seen.tids(), [900_000, 900_005]);
}

#[test]
fn processes_of_another_procfs_are_watched_and_never_moved() {
    let paper = Paper::new();
    paper.thread(900_000, 900_000, 10, "1 1 1\n");
    let mut live = paper.live(HostOptions::default()).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    let id = seen.last.news[0].id;
    assert_eq!(seen.last.news[0].home, set("0-3"));
    let end = crate::scene::apply(&mut live, id, Act::Confine(set("0")));
    assert_eq!(end, Settled::Refused(Refusal::Other), "its numbers may mean other tasks to the kernel");
}

#[test]
fn hidden_and_missing_processes_are_distinguished_from_damaged_ones() {
    let paper = Paper::new();
    assert!(matches!(paper.live(HostOptions::default()).unwrap_err(), LiveError::NoProcess(Pid(900_000))));
    paper.thread(900_000, 900_000, 10, "1 1 1\n");
    fs::write(paper.proc().join("900000/stat"), "rubbish").unwrap();
    assert!(matches!(paper.live(HostOptions::default()).unwrap_err(), LiveError::Read(_)));
}

#[test]
fn counters_that_make_no_sense_are_missing_and_counted() {
    let paper = Paper::new();
    paper.thread(900_000, 900_000, 10, "1 1 1\n");
    let mut live = paper.live(opened_each_time()).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    paper.thread(900_000, 900_000, 10, "rubbish\n");
    seen.look(&mut live);
    assert!(seen.last.threads.is_empty() && seen.gone.is_empty());
    assert_eq!(seen.last.notices, [Notice::Unread(1)]);
    paper.thread(900_000, 900_000, 10, "9 1 1\n");
    assert_eq!(seen.look(&mut live).threads[0].run, Span(9));
}

#[test]
fn cpus_that_go_offline_and_loaded_schedulers_are_reported() {
    let paper = Paper::new();
    paper.thread(900_000, 900_000, 10, "1 1 1\n");
    let mut live = paper.live(HostOptions::default()).unwrap();
    let mut seen = Observations::default();
    seen.look(&mut live);
    assert_eq!(seen.notices, []);
    fs::write(paper.0.path().join("sys/devices/system/cpu/online"), "0-1\n").unwrap();
    seen.look(&mut live);
    assert_eq!(seen.last.notices, [Notice::Usable(set("0-1"))]);
    let folder = paper.0.path().join("sys/kernel/sched_ext");
    fs::create_dir_all(folder.join("root")).unwrap();
    fs::write(folder.join("root/ops"), "rusty\n").unwrap();
    fs::write(folder.join("state"), "enabled\n").unwrap();
    crate::scene::eventually("the scheduler is told", || {
        seen.look(&mut live);
        seen.notices.contains(&Notice::Scheduler(Some("rusty".into())))
    });
    let left = seen.threads.values().next().unwrap().left.clone().unwrap();
    assert_eq!(left.to_string(), "the loaded scheduler rusty places it");
    fs::write(folder.join("state"), "disabled\n").unwrap();
    crate::scene::eventually("its end is told", || {
        seen.look(&mut live);
        seen.notices.last() == Some(&Notice::Scheduler(None))
    });
    assert_eq!(seen.threads.values().next().unwrap().left, None);
}

#[test]
fn a_thread_that_did_not_run_since_keeps_its_cpu_without_a_read() {
    let paper = Paper::new();
    paper.thread(900_000, 900_000, 10, "100 10 1\n");
    let mut live = paper.live(opened_each_time()).unwrap();
    let mut seen = Observations::default();
    let mut look = |cpu: u32, schedstat: &str, places: bool| {
        paper.thread(900_000, 900_000, 10, schedstat);
        for file in ["900000/stat", "900000/task/900000/stat"] {
            let file = paper.proc().join(file);
            let text = fs::read_to_string(&file).unwrap().replace(" 3 0 0\n", &format!(" {cpu} 0 0\n"));
            fs::write(&file, text).unwrap();
        }
        let wanted = Wanted { places, ..Wanted::default() };
        seen.look_for(&mut live, &wanted).threads[0].cpu.map(|cpu| cpu.0)
    };
    assert_eq!(look(2, "100 10 1\n", true), Some(2));
    // The file has another content, and is not read.
    assert_eq!(look(1, "200 10 1\n", true), Some(2), "it ran on and on");
    assert_eq!(look(1, "300 10 2\n", true), Some(1), "it was put on a CPU");
    // No sample asked for the time of that; since then the thread only ran.
    assert_eq!(look(0, "400 10 3\n", false), Some(1));
    assert_eq!(look(0, "500 10 3\n", true), Some(0), "it may have gone while nobody looked");
    assert_eq!(look(2, "600 10 3\n", true), Some(0));
}

//! Survey of foreign load: on captured text and trees, and on this machine with bound and busy
//! children.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "what this machine cannot show is said aloud")]

use proptest::prelude::*;
use std::cell::Cell;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_linux::process::{Pid, State, Tid};
use trimtab_linux::survey::{CpuLoad, Load, LoadSample, Masks, PinScan, Pins, Runnable, Ticks, runnable};
use trimtab_linux::sys::affinity;

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

// ---- tasks that want a CPU ----

#[test]
fn runnable_tasks_include_the_asker() {
    let seen = Runnable::parse(b"0.66 0.40 0.18 3/95 8082\n").unwrap();
    assert_eq!((seen.running, seen.total, seen.others()), (3, 95, 2));
    assert_eq!(Runnable::parse(b"0 0 0 0/95 1").unwrap().others(), 0);
    for (bad, problem) in [
        ("", "no fourth word"),
        ("0.66 0.40 0.18", "no fourth word"),
        ("0.66 0.40 0.18 395 1", "no '/' between running and all tasks"),
        ("0.66 0.40 0.18 /95 1", "running tasks are not a number"),
        ("0.66 0.40 0.18 3/x 1", "tasks are not a number"),
    ] {
        let root = tree(&[("loadavg", bad)]);
        let error = runnable(root.path()).unwrap_err().to_string();
        assert!(error.ends_with(&format!("loadavg: {problem}")), "{error}");
    }
    assert!(runnable(Path::new("/nowhere")).unwrap_err().is_gone());
    let here = runnable(Path::new("/proc")).unwrap();
    assert!(here.running >= 1 && here.total >= here.running, "{here:?}");
}

// ---- CPU load ----

const STAT: &str = "\
    cpu  300 0 30 9000 70 1 2 3 0 0\n\
    cpu0 100 0 10 3000 20 1 0 1 0 0\n\
    cpu3 200 0 20 6000 50 0 2 2 0 0\n\
    intr 12345 0 0 7\n\
    ctxt 99\n";

fn one(ticks: Ticks) -> LoadSample {
    LoadSample { cpus: [(OsCpu(0), ticks)].into() }
}

fn between(before: Ticks, after: Ticks) -> Option<CpuLoad> {
    Load::between(&one(before), &one(after)).cpus.get(&OsCpu(0)).copied()
}

#[test]
fn counters_are_read_by_cpu_and_the_sum_is_left_out() {
    let sample = LoadSample::parse(STAT.as_bytes()).unwrap();
    assert_eq!(sample.cpus.keys().copied().collect::<Vec<_>>(), [OsCpu(0), OsCpu(3)]);
    let expected =
        Ticks { user: 200, system: 20, idle: 6000, iowait: 50, softirq: 2, steal: 2, ..Ticks::default() };
    assert_eq!(sample.cpus[&OsCpu(3)], expected);
    let old_kernel = LoadSample::parse(b"cpu 1 2 3 4\ncpu0 1 2 3 4\n").unwrap();
    let expected = Ticks { user: 1, nice: 2, system: 3, idle: 4, ..Ticks::default() };
    assert_eq!(old_kernel.cpus[&OsCpu(0)], expected);
    for bad in [
        "",
        "intr 1\n",
        "cpu 1 2 3 4\n",
        "cpux 1 2 3 4\n",
        "cpu0 1 2 3\n",
        "cpu0 1 2 3 -4\n",
        "cpu0 1 2 3 4 x",
    ] {
        assert!(LoadSample::parse(bad.as_bytes()).is_err(), "{bad:?}");
    }
    let root = tree(&[("stat", "cpu0 1")]);
    let error = LoadSample::read(root.path()).unwrap_err().to_string();
    assert!(error.ends_with("stat: a CPU's counters are not numbers"), "{error}");
}

#[test]
fn waiting_for_a_disk_is_idle_and_stolen_time_is_busy() {
    let before = Ticks { user: 50, idle: 1000, iowait: 10, steal: 5, ..Ticks::default() };
    let after =
        Ticks { user: 52, system: 1, irq: 1, softirq: 1, idle: 1004, iowait: 16, steal: 10, ..before };
    assert_eq!(between(before, after), Some(CpuLoad { busy_permille: 500, stolen_permille: 250 }));
    let idle = Ticks { idle: 1010, ..before };
    assert_eq!(between(before, idle), Some(CpuLoad { busy_permille: 0, stolen_permille: 0 }));
}

#[test]
fn cpus_that_come_go_stand_still_or_run_back_are_missing() {
    let ticks = |user, idle| Ticks { user, idle, ..Ticks::default() };
    let sample = |cpus: &[(u32, Ticks)]| LoadSample {
        cpus: cpus.iter().map(|&(cpu, ticks)| (OsCpu(cpu), ticks)).collect(),
    };
    let before = sample(&[(0, ticks(5, 10)), (1, ticks(5, 10)), (2, ticks(5, 10)), (3, ticks(5, 10))]);
    let after = sample(&[(0, ticks(6, 10)), (2, ticks(5, 10)), (3, ticks(4, 90)), (4, ticks(9, 9))]);
    let load = Load::between(&before, &after);
    // CPU 1 went offline, 2 stood still, 3 ran backwards, 4 came online.
    let busy = CpuLoad { busy_permille: 1000, stolen_permille: 0 };
    assert_eq!(load.cpus, [(OsCpu(0), busy)].into());
}

#[test]
fn idle_estimates_that_run_back_count_as_no_time() {
    let before = Ticks { user: 5, idle: 1000, iowait: 50, ..Ticks::default() };
    let after = Ticks { user: 8, idle: 999, iowait: 51, ..Ticks::default() };
    assert_eq!(between(before, after), Some(CpuLoad { busy_permille: 750, stolen_permille: 0 }));
}

// ---- bound tasks ----

fn stat(pid: u32, comm: &str, state: char, parent: u32, flags: u32, last_cpu: u32) -> String {
    let zeros = "0 ".repeat(16);
    format!(
        "{pid} ({comm}) {state} {parent} 1 1 0 -1 {flags} 0 0 0 0 120 30 0 0 20 0 2 0 4242 {zeros}{last_cpu} 0 0\n"
    )
}

fn status(uid: u32, list: &str) -> String {
    format!(
        "Name:\tx\nUid:\t{uid}\t0\t0\t0\nCpus_allowed:\tf\nCpus_allowed_list:\t{list}\nMems_allowed_list:\t0\n"
    )
}

struct Task {
    pid: u32,
    tid: u32,
    stat: String,
    status: String,
}

fn task(pid: u32, tid: u32, comm: &str, parent: u32, list: &str) -> Task {
    Task { pid, tid, stat: stat(tid, comm, 'S', parent, 0x40_0000, 1), status: status(1000, list) }
}

fn captured(tasks: &[Task]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for Task { pid, tid, stat, status } in tasks {
        let dir = root.path().join(format!("{pid}/task/{tid}"));
        std::fs::create_dir_all(&dir).unwrap();
        for (name, text) in [("stat", stat), ("status", status)] {
            std::fs::write(dir.join(name), text).unwrap();
            if pid == tid {
                std::fs::write(root.path().join(format!("{pid}/{name}")), text).unwrap();
            }
        }
    }
    std::fs::create_dir(root.path().join("sys")).unwrap();
    root
}

fn scan(root: &TempDir, machine: &str, own: u32) -> Pins {
    let machine = cpus(machine);
    let scan = PinScan { proc: root.path(), cpus: &machine, own: Pid(own), masks: Masks::Files };
    scan.run(|_| true).unwrap()
}

#[test]
fn tasks_bound_to_part_of_the_machine_are_found() {
    let kernel_thread = |pid, list| Task {
        stat: stat(pid, "ksoftirqd/1", 'S', 2, 0x0420_8040, 1),
        ..task(pid, pid, "", 2, list)
    };
    let root = captured(&[
        task(1, 1, "init", 0, "0-7"),
        kernel_thread(2, "0-7"),
        kernel_thread(15, "1"),
        task(300, 300, "solver", 1, "0-7"),
        task(300, 301, "a (b) c\nd", 1, "2-3,6"),
        task(400, 400, "wide", 1, "0-63"),
        task(500, 500, "elsewhere", 1, "32-63"),
        task(600, 600, "offset", 1, "4-63"),
        Task { stat: stat(700, "ended", 'Z', 1, 0x40_0000, 1), ..task(700, 700, "", 1, "3") },
    ]);
    let found = scan(&root, "0-7", 99);
    let pinned: Vec<_> = found.pins.iter().map(|pin| (pin.pid.0, pin.tid.0, pin.cpus.to_string())).collect();
    assert_eq!(pinned, [(300, 301, "2-3,6".into()), (600, 600, "4-63".into())]);
    let pin = &found.pins[0];
    assert_eq!(
        (pin.uid, &*pin.comm, pin.state, pin.last_cpu),
        (1000, "a (b) c\\nd", State::Sleeping, Some(OsCpu(1)))
    );
    assert_eq!((found.seen, found.refused, found.cut), (9, 0, false));
    assert_eq!((found.hidden(11), found.hidden(7)), (Some(2), Some(0)));
}

#[test]
fn the_asker_and_its_ancestors_are_not_foreign() {
    let root = captured(&[
        task(1, 1, "init", 0, "0-7"),
        task(50, 50, "shell", 1, "0-3"),
        task(60, 60, "asker", 50, "0-3"),
        task(70, 70, "sibling", 50, "0-3"),
    ]);
    let found = scan(&root, "0-7", 60);
    assert_eq!(found.pins.iter().map(|pin| pin.pid).collect::<Vec<_>>(), [Pid(70)]);
    assert_eq!(found.seen, 7, "three that are passed over with two threads each, and the sibling");
}

#[test]
fn ancestors_in_a_circle_end_the_search() {
    let root =
        captured(&[task(50, 50, "a", 60, "0"), task(60, 60, "b", 50, "0"), task(70, 70, "c", 50, "0")]);
    assert_eq!(scan(&root, "0-7", 60).pins.len(), 1);
}

#[test]
fn kernel_threads_are_passed_over_where_the_kernel_lists_them() {
    let root = captured(&[
        Task { stat: stat(2, "kthreadd", 'S', 0, 0x0020_8040, 0), ..task(2, 2, "", 0, "0-7") },
        // No flag in these: only the list can tell.
        task(15, 15, "listed", 2, "1"),
        task(16, 16, "not listed", 1, "1"),
    ]);
    std::fs::write(root.path().join("2/task/2/children"), "15 17 ").unwrap();
    assert_eq!(scan(&root, "0-7", 99).pins.iter().map(|pin| pin.pid.0).collect::<Vec<_>>(), [16]);
    // In a process-id namespace process 2 can be any process, and its children are not kernel
    // threads.
    std::fs::write(root.path().join("2/stat"), stat(2, "sh", 'S', 0, 0x40_0000, 0)).unwrap();
    assert_eq!(scan(&root, "0-7", 99).pins.len(), 2);
}

#[test]
fn tasks_that_vanish_or_make_no_sense_are_passed_over() {
    let root = captured(&[
        task(10, 10, "fine", 1, "0"),
        Task { status: String::new(), ..task(20, 20, "empty", 1, "0") },
        Task { stat: "20 (half".into(), ..task(30, 30, "", 1, "0") },
        task(40, 40, "bad list", 1, "0-"),
        task(50, 51, "gone", 1, "0"),
    ]);
    std::fs::create_dir_all(root.path().join("60/task/60")).unwrap();
    std::fs::create_dir_all(root.path().join("70")).unwrap();
    std::fs::remove_file(root.path().join("50/task/51/stat")).unwrap();
    assert_eq!(scan(&root, "0-7", 99).pins.iter().map(|pin| pin.pid.0).collect::<Vec<_>>(), [10]);
    let nowhere = tempfile::tempdir().unwrap();
    let missing = nowhere.path().join("proc");
    let all = cpus("0-7");
    let scan = PinScan { proc: &missing, cpus: &all, own: Pid(1), masks: Masks::Files };
    assert!(scan.run(|_| true).unwrap_err().is_gone());
}

#[test]
fn a_stopped_scan_has_examined_the_youngest_processes() {
    let root = captured(&[
        task(10, 10, "old", 1, "0"),
        task(200, 200, "b", 1, "1"),
        task(200, 201, "b's second", 1, "1"),
        task(1000, 1000, "young", 1, "2"),
    ]);
    let (all, asked) = (cpus("0-7"), Cell::new(Vec::new()));
    let scan = PinScan { proc: root.path(), cpus: &all, own: Pid(99), masks: Masks::Files };
    let found = scan
        .run(|seen| {
            let mut before = asked.take();
            before.push(seen);
            asked.set(before);
            seen < 2
        })
        .unwrap();
    assert_eq!(asked.take(), [0, 1, 2]);
    assert_eq!(found.pins.iter().map(|pin| &*pin.comm).collect::<Vec<_>>(), ["b", "young"]);
    assert!(found.cut);
    assert_eq!((found.seen, found.hidden(3)), (2, None));
}

#[test]
fn processes_hidden_from_this_user_are_counted() {
    use std::os::unix::fs::PermissionsExt;
    let root = captured(&[task(10, 10, "seen", 1, "0"), task(20, 20, "hidden", 1, "0")]);
    let mode =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(root.path(), 0o755);
    mode(&root.path().join("20"), 0o000);
    let path = root.path().to_owned();
    // Root may read everything, so the scan runs as user `nobody`.
    let found = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let all = cpus("0-7");
        PinScan { proc: &path, cpus: &all, own: Pid(99), masks: Masks::Files }.run(|_| true).unwrap()
    })
    .join()
    .unwrap();
    mode(&root.path().join("20"), 0o755);
    assert_eq!((found.pins.len(), found.refused), (1, 1));
}

// ---- this machine ----

/// A child that the test ends.
struct Guest(Child);

impl Guest {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn bind(&self, cpu: OsCpu) {
        affinity::set(Some(Tid(self.0.id())), &[cpu].into_iter().collect()).unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the CPUs of this machine, if it has several; otherwise reports that nothing can be bound
/// to a part of one.
fn several_cpus() -> Option<CpuSet> {
    let all = affinity::get(None).unwrap();
    if all.len() < 2 {
        eprintln!("SKIPPED: this test needs two CPUs");
        return None;
    }
    Some(all)
}

#[test]
fn a_bound_child_is_found_by_files_and_by_the_kernel() {
    let Some(all) = several_cpus() else { return };
    let guest = Guest::start(Command::new("sleep").arg("60"));
    let last = all.last().unwrap();
    guest.bind(last);
    for masks in [Masks::Files, Masks::Kernel] {
        let scan = PinScan { proc: Path::new("/proc"), cpus: &all, own: Pid::own(), masks };
        let found = scan.run(|_| true).unwrap();
        let pin = found.pins.iter().find(|pin| pin.pid.0 == guest.0.id()).unwrap();
        assert_eq!(pin.cpus, [last].into_iter().collect(), "{masks:?}");
        assert_eq!(pin.uid, rustix::process::getuid().as_raw());
        assert!(found.seen > 1 && !found.cut);
    }
    let as_child =
        PinScan { proc: Path::new("/proc"), cpus: &all, own: Pid(guest.0.id()), masks: Masks::Kernel };
    let found = as_child.run(|_| true).unwrap();
    assert!(!found.pins.iter().any(|pin| pin.pid == Pid(guest.0.id()) || pin.pid == Pid::own()), "{found:?}");
}

#[test]
fn a_busy_child_is_seen_on_its_cpu() {
    let all = affinity::get(None).unwrap();
    let last = all.last().unwrap();
    let guest = Guest::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    guest.bind(last);
    // Other work may delay the child; it needs a third of the CPU in one of several intervals.
    let busiest = (0..20)
        .map(|_| {
            let before = LoadSample::read(Path::new("/proc")).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            let load = Load::between(&before, &LoadSample::read(Path::new("/proc")).unwrap());
            load.cpus.get(&last).map_or(0, |load| load.busy_permille)
        })
        .find(|&busy| busy > 300);
    assert!(busiest.is_some());
    assert!(runnable(Path::new("/proc")).unwrap().running >= 1);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_without_harm(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "(cpu[0-9]{0,3}( [0-9]{0,21}){0,10}\n){0,3}".prop_map(String::into_bytes),
            "([0-9.]{0,5} ?){0,3} [0-9]{0,12}/[0-9]{0,12}".prop_map(String::into_bytes),
        ],
    ) {
        let _ = Runnable::parse(&bytes);
        if let Ok(sample) = LoadSample::parse(&bytes) {
            prop_assert!(Load::between(&sample, &sample).cpus.is_empty());
            let boot = LoadSample { cpus: sample.cpus.keys().map(|&cpu| (cpu, Ticks::default())).collect() };
            for load in Load::between(&boot, &sample).cpus.values() {
                prop_assert!(load.busy_permille <= 1000 && load.stolen_permille <= load.busy_permille);
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_processes_are_scanned_without_harm(
        stat in prop::collection::vec(any::<u8>(), 0..60),
        status in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            "Cpus_allowed_list:[0-9,-]{0,9}\n".prop_map(String::into_bytes),
        ],
        children in "[0-9a-z ]{0,12}",
    ) {
        let root = captured(&[task(2, 2, "kthreadd", 0, "0-7"), task(9, 9, "sh", 0, "0")]);
        for (name, bytes) in [("9/task/9/stat", &stat), ("9/task/9/status", &status), ("2/stat", &stat)] {
            std::fs::write(root.path().join(name), bytes).unwrap();
        }
        std::fs::write(root.path().join("2/task/2/children"), children).unwrap();
        prop_assert!(scan(&root, "0-7", 99).seen <= 2);
    }
}

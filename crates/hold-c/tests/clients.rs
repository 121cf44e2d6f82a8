//! Clients of the Python module: the plug-in for pytest-xdist, with the real one, and the queue of
//! jobs in `examples/queue`. `scripts/wheels` fetches pytest-xdist.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// A folder with a ledger, and calls of Python in it.
struct Bench {
    folder: tempfile::TempDir,
    xdist: PathBuf,
}

impl Bench {
    fn new() -> Option<Self> {
        let built = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("wheels/pytest-xdist");
        let candidates = [built, top().join("target/wheels/pytest-xdist")];
        let xdist = candidates.into_iter().find(|folder| folder.join("xdist").is_dir()).unwrap_or_default();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ledger")).unwrap();
        let two = "import sys, os; sys.exit(sys.version_info < (3, 9) or len(os.sched_getaffinity(0)) < 2)";
        let usable = Command::new("python3").args(["-c", two]).status();
        usable.is_ok_and(|status| status.success()).then_some(Self { folder, xdist })
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn python(&self, words: &[&str]) -> Output {
        let library =
            std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("libtrimtab_hold_c.so");
        let mut command = Command::new("python3");
        let all = std::env::vars_os().map(|(name, _)| name);
        for name in all.filter(|name| {
            ["TRIMTAB_", "OMP_", "PYTEST"].iter().any(|start| name.to_string_lossy().starts_with(start))
        }) {
            command.env_remove(name);
        }
        let path = std::env::join_paths([&top().join("python"), &self.xdist]).unwrap();
        command
            .arg("-B")
            .args(words)
            .current_dir(self.folder.path())
            .env("PYTHONPATH", path)
            .env("TRIMTAB_LIBRARY", library)
            .env("TRIMTAB_LEDGER", self.folder.path().join("ledger"))
            .env("TRIMTAB_CONFIG", self.folder.path().join("config"))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .output()
            .unwrap()
    }

    /// Runs pytest with the plug-in, and returns its output and status.
    fn pytest(&self, options: &str) -> (String, Option<i32>) {
        let first =
            ["-m", "pytest", "-p", "trimtab.pytest_plugin", "-p", "xdist", "-p", "no:cacheprovider", "-q"];
        let words: Vec<&str> = first.into_iter().chain(options.split_whitespace()).collect();
        let output = self.python(&words);
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        (String::from_utf8_lossy(&said).into_owned(), output.status.code())
    }
}

/// Tests that note the CPUs and variables of their worker; each worker runs one of them.
const NOTES: &str = "
import json, os, time, pathlib, pytest, trimtab
HERE = pathlib.Path(__file__).parent
@pytest.mark.parametrize('number', range(2))
def test_note(number, request):
    worker = os.environ.get('PYTEST_XDIST_WORKER', 'alone')
    holds = [(row['level'], row['cpus']) for row in trimtab.holds()['holds']]
    note = {'cpus': sorted(os.sched_getaffinity(0)), 'threads': os.environ.get('OMP_NUM_THREADS'), 'hold': os.environ['TRIMTAB_HOLD'], 'holds': holds}
    (HERE / f'note-{worker}').write_text(json.dumps(note))
    end = time.monotonic() + 60
    while worker != 'alone' and len(list(HERE.glob('note-*'))) < 2 and time.monotonic() < end:
        time.sleep(0.01)
";

/// A test that ends its worker once.
const CRASH: &str = "
import os, pathlib
HERE = pathlib.Path(__file__).parent
def test_crash():
    if not (HERE / 'crashed').exists():
        (HERE / 'crashed').write_text('')
        os._exit(1)
def test_after():
    (HERE / 'after').write_text(str(len(os.sched_getaffinity(0))))
";

#[test]
fn each_worker_of_pytest_xdist_has_cores_of_its_own() {
    let Some(bench) = Bench::new().filter(|bench| bench.xdist.is_dir()) else {
        eprintln!(
            "SKIPPED (1): each_worker_of_pytest_xdist_has_cores_of_its_own: no pytest-xdist (scripts/wheels), or one CPU"
        );
        return;
    };
    bench.write("test_notes.py", NOTES);
    let (said, code) = bench.pytest("-n 2 --dist each --trimtab-cores 1 test_notes.py");
    assert_eq!(code, Some(0), "{said}");
    let note = |worker: &str| {
        let text = std::fs::read_to_string(bench.folder.path().join(format!("note-{worker}"))).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let notes = ["gw0", "gw1"].map(note);
    assert_ne!(notes[0]["cpus"], notes[1]["cpus"], "{notes:?}");
    for note in &notes {
        assert_eq!(note["cpus"].as_array().unwrap().len(), 1, "{note}");
        assert!(note["hold"].as_str().unwrap().starts_with("1 "), "inner runs divide the part: {note}");
        assert_eq!(note["holds"].as_array().unwrap().len(), 3, "the whole and its two parts: {note}");
    }
    // Too many, and none.
    let (said, code) = bench.pytest("-n 2 --trimtab-cores 2000 test_notes.py");
    assert!(
        code == Some(4) && said.contains("--trimtab-cores 2000, 2 workers: 4000 cores asked for"),
        "{code:?} {said}"
    );
    let (said, code) = bench.pytest("-n 2 --trimtab-cores 0 test_notes.py");
    assert!(code == Some(4) && said.contains("at least 1 core"), "{said}");
    // Without pytest-xdist's workers: this process.
    let (said, code) = bench.pytest("--trimtab-cores 1 test_notes.py");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(note("alone")["cpus"].as_array().unwrap().len(), 1);
    // A worker that replaces another one gets its part.
    bench.write("test_crash.py", CRASH);
    let (said, _) = bench.pytest("-n 1 --trimtab-cores 1 test_crash.py");
    let after = std::fs::read_to_string(bench.folder.path().join("after")).unwrap_or_default();
    assert_eq!(after, "1", "{said}");
    let left = bench.python(&["-c", "import trimtab; print(trimtab.holds()['holds'])"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout).trim(), "[]");
}

#[test]
fn the_queue_of_jobs_gives_each_job_its_cores() {
    let Some(bench) = Bench::new() else {
        eprintln!(
            "SKIPPED (1): the_queue_of_jobs_gives_each_job_its_cores: no python3 of version 3.9, or one CPU"
        );
        return;
    };
    let queue = top().join("examples/queue/jobs.py");
    let queue = queue.to_str().unwrap();
    // Two jobs of one core wait for each other, so they run at once; the one of two cores alone.
    let meet = |own: u32, other: u32| {
        format!(
            "1 grep Cpus_allowed_list /proc/self/status > job-{own}; while [ ! -e job-{other} ]; do sleep 0.01; done"
        )
    };
    let all = "2 grep Cpus_allowed_list /proc/self/status > job-3";
    let jobs =
        format!("# jobs\\n{}\\n{}\\n\\n{all}\\n1 exit 3\\n", meet(1, 2), meet(2, 1)).replace("\\n", "\n");
    bench.write("jobs.txt", &jobs);
    let output = bench.python(&[queue, "jobs.txt"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said} {}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("3 of 4 jobs succeeded\n") && said.contains("ended with status 3"), "{said}");
    let mask = |job: u32| std::fs::read_to_string(bench.folder.path().join(format!("job-{job}"))).unwrap();
    assert_ne!(mask(1), mask(2), "{said}");
    assert_ne!(mask(3), mask(1));
    // No job at all, none that can run, and no file.
    bench.write("never.txt", "4000 true\n");
    let output = bench.python(&[queue, "never.txt"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no cores: 4000 cores asked for"));
    bench.write("bad.txt", "many true\n");
    for file in ["bad.txt", "missing.txt"] {
        let output = bench.python(&[queue, file]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("jobs.py: "), "{output:?}");
    }
}

//! A program to be watched, and the calls to the host that nearly every test makes.

use rustix::process::{Pid as Process, Signal, geteuid, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trimtab_core::balance::{Act, Decision, Outcome, Reason, Settled, Wanted};
use trimtab_core::drive::Host;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Sample, ThreadInfo};
use trimtab_core::set::CpuSet;
use trimtab_linux::host::{HostOptions, Live, Root};
use trimtab_linux::process::{Pid, Tid};
use trimtab_linux::sys::affinity;

pub(crate) const TASK: &str = "TRIMTAB_TEST_BALANCE";
pub(crate) const PROC: &str = "/proc";
/// Time after which a test counts as hung. No test asserts that anything is faster.
const HANG: Duration = Duration::from_secs(180);

macro_rules! need {
    ($what:expr, $why:expr) => {
        match $what {
            Some(found) => found,
            None => {
                eprintln!("SKIPPED: {}", $why);
                return;
            }
        }
    };
}
pub(crate) use need;

pub(crate) const NO_COMPILER: &str = "no C compiler (cc)";

pub(crate) fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// Returns the CPUs of this test.
pub(crate) fn usable() -> CpuSet {
    affinity::get(None).unwrap()
}

/// Returns two different CPUs, as sets.
pub(crate) fn two_cpus() -> Option<[CpuSet; 2]> {
    let usable = usable();
    let mut cpus = usable.iter().map(|cpu| set(&cpu.to_string()));
    Some([cpus.next()?, cpus.next()?])
}

pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Returns the path of the compiled program.
fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (path, new) = (folder.join("worker"), folder.join(format!("worker.{}", std::process::id())));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host/c/worker.c");
        let made = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&new).arg(source).status().ok()?;
        // In one step, since another run of the tests may be starting it.
        (made.success() && std::fs::rename(&new, &path).is_ok()).then_some(path)
    };
    BUILT.get_or_init(build).as_deref()
}

/// Makes a copy that any user can start.
fn copy_for_others(program: &Path) -> (PathBuf, TempDir) {
    let folder = tempfile::Builder::new().prefix("live-test-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.path().join("worker");
    // Copied by another program: while a file is open for writing here, a child that another test
    // starts at that moment has it open too.
    assert!(Command::new("cp").args([program, &copy]).status().unwrap().success());
    (copy, folder)
}

/// A program that is watched. Dropping it kills it.
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _copy: Option<TempDir>,
}

impl Worker {
    pub(crate) fn start() -> Option<Self> {
        Self::start_as(None)
    }

    pub(crate) fn start_as(user: Option<u32>) -> Option<Self> {
        let program = program()?;
        let (path, copy) = match user.map(|_| copy_for_others(program)) {
            Some((path, folder)) => (path, Some(folder)),
            None => (program.to_owned(), None),
        };
        let mut command = Command::new(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).current_dir("/");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Some(Self { child, input, output: BufReader::new(output), _copy: copy })
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// Starts threads; returns their numbers.
    pub(crate) fn threads(&mut self, count: usize) -> Vec<Tid> {
        self.ask(&format!("threads {count}")).split(' ').map(|tid| Tid(tid.parse().unwrap())).collect()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    pub(crate) fn root(&self) -> Root {
        Root::Tree(self.pid())
    }

    pub(crate) fn live(&self) -> Live {
        Live::new(Path::new(PROC), &[self.root()], &usable()).unwrap()
    }

    pub(crate) fn live_with(&self, options: HostOptions) -> Live {
        Live::with(Path::new(PROC), &[self.root()], &usable(), options).unwrap()
    }

    /// Returns a host that watches it, and the results of its first sample.
    pub(crate) fn seen(&self) -> (Live, Observations) {
        self.seen_with(HostOptions::default())
    }

    /// Returns the same, with options.
    pub(crate) fn seen_with(&self, options: HostOptions) -> (Live, Observations) {
        let (mut live, mut seen) = (self.live_with(options), Observations::default());
        seen.look(&mut live);
        (live, seen)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Process::from_child(&self.child), signal).unwrap();
    }

    /// Lets it end.
    pub(crate) fn end(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // With all processes that it started.
        let _ = rustix::process::kill_process_group(Process::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Results of a series of samples.
#[derive(Default)]
pub(crate) struct Observations {
    pub(crate) threads: BTreeMap<ThreadId, ThreadInfo>,
    pub(crate) gone: Vec<ThreadId>,
    pub(crate) last: Sample,
    pub(crate) notices: Vec<trimtab_core::observe::Notice>,
}

impl Observations {
    pub(crate) fn look(&mut self, live: &mut Live) -> &Sample {
        self.look_for(live, &Wanted::all())
    }

    pub(crate) fn look_for(&mut self, live: &mut Live, wanted: &Wanted) -> &Sample {
        let sample = live.observe(wanted).unwrap();
        assert!(sample.threads.is_sorted_by_key(|read| read.id));
        for info in &sample.news {
            self.threads.insert(info.id, info.clone());
        }
        for id in &sample.gone {
            assert!(!self.gone.contains(id), "{id} ends twice");
            self.threads.remove(id);
            self.gone.push(*id);
        }
        for read in &sample.threads {
            assert!(self.threads.contains_key(&read.id), "{} is read and was never told", read.id);
        }
        self.notices.extend(sample.notices.iter().cloned());
        self.last = sample;
        &self.last
    }

    pub(crate) fn id(&self, tid: Tid) -> ThreadId {
        let found = self.threads.values().find(|info| info.tid == tid.0);
        found.unwrap_or_else(|| panic!("thread {tid} was not found")).id
    }

    pub(crate) fn info(&self, tid: Tid) -> &ThreadInfo {
        &self.threads[&self.id(tid)]
    }

    pub(crate) fn tids(&self) -> Vec<u32> {
        self.threads.values().map(|info| info.tid).collect()
    }
}

pub(crate) fn decision(thread: ThreadId, act: Act) -> Decision {
    Decision { thread, act, reason: Reason::Start, gain: None }
}

pub(crate) fn apply(live: &mut Live, thread: ThreadId, act: Act) -> Settled {
    let outcomes = live.apply(&[decision(thread, act)]).unwrap();
    let [Outcome { thread: about, end }] = outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(about, thread);
    end
}

pub(crate) fn mask(tid: Tid) -> CpuSet {
    affinity::get(Some(tid)).unwrap()
}

/// Waits for a condition that a program fulfils in its own time.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < HANG, "not within {HANG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

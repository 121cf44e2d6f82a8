//! What makes a test a few lines: a sandbox with a ledger of its own, calls of the program in it, what came of them.

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// After this much time something hangs. Nothing is asserted about being quicker.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// A line of shell that prints the CPUs the shell may use, without starting anything.
pub(crate) const MASK: &str = "while read -r key list; do case $key in Cpus_allowed_list:) echo \"$list\";; esac; done </proc/self/status";

/// Says, past the test runner that would swallow it, what was not tested and why.
pub(crate) fn skip(why: &str) {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(io::stderr(), "SKIPPED ({count}): {test}: {why}");
}

/// Skips the rest of a test for want of something.
macro_rules! need {
    ($what:expr, $($why:tt)+) => {
        match $what {
            Some(what) => what,
            None => {
                crate::util::skip(&format!($($why)+));
                return;
            }
        }
    };
}
pub(crate) use need;

/// The program under test, with its siblings beside it.
pub(crate) fn trimtab() -> &'static Path {
    static BUILT: OnceLock<&Path> = OnceLock::new();
    BUILT.get_or_init(|| {
        let trimtab = Path::new(env!("CARGO_BIN_EXE_trimtab"));
        let missing = |names: &[&str]| names.iter().any(|name| !trimtab.with_file_name(name).exists());
        if missing(&SIBLINGS) {
            let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
            cargo.args(["build", "--quiet", "-p", "trimtab-discover", "-p", "trimtab-shim"]);
            cargo.arg("--target-dir").arg(trimtab.parent().unwrap().parent().unwrap());
            cargo.args((!cfg!(debug_assertions)).then_some("--release"));
            let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status();
            assert!(
                !missing(&SIBLINGS),
                "{SIBLINGS:?} should lie beside {}: run cargo build --workspace ({built:?})",
                trimtab.display()
            );
        }
        trimtab
    })
}

const SIBLINGS: [&str; 2] = ["trimtab-discover", "libtrimtab_shim.so"];

/// Calls that look at what else runs need the machine for themselves; all others share it.
static MACHINE: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "held, not read")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// A place for one test: a ledger, a home and a configuration of its own. One a test: a second would wait for the first.
pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
    _turn: Turn,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::with(Turn::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// While no other test of this program runs.
    pub(crate) fn alone() -> Self {
        Self::with(Turn::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn with(turn: Turn) -> Self {
        let dir = tempfile::Builder::new().prefix("trimtab-test-").tempdir().unwrap();
        let sandbox = Self { dir, _turn: turn };
        chmod(&sandbox.path(""), 0o755);
        for (name, mode) in [("ledger", 0o1777), ("home", 0o777), ("config", 0o755), ("shared", 0o1777)] {
            fs::create_dir(sandbox.path(name)).unwrap();
            chmod(&sandbox.path(name), mode);
        }
        sandbox
    }

    /// A file of the sandbox.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of the sandbox, and makes the folders it is in.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes a file that may be executed.
    pub(crate) fn script(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        // A file that some other thread's child has open for writing cannot be executed, so it is made elsewhere.
        let draft = self.write(&format!("{name}.draft"), text);
        chmod(&draft, 0o755);
        let status = Command::new("cp").arg(&draft).arg(self.path(name)).status().unwrap();
        assert!(status.success());
        self.path(name)
    }

    /// The folder with the program under test, where every user may go. A copy where that is not so of the original.
    pub(crate) fn public(&self) -> PathBuf {
        let folder = trimtab().parent().unwrap();
        let open = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o5 == 0o5);
        if folder.ancestors().all(open) {
            return folder.to_owned();
        }
        let copy = self.path("bin");
        if !copy.exists() {
            fs::create_dir(&copy).unwrap();
            let files = SIBLINGS.iter().chain(&["trimtab"]).map(|name| folder.join(name));
            assert!(Command::new("cp").args(files).arg(&copy).status().unwrap().success());
        }
        copy
    }

    /// `trimtab` with these words.
    pub(crate) fn trimtab(&self, words: &str) -> Call<'_> {
        Call {
            sandbox: self,
            prefix: Vec::new(),
            words: words.split_whitespace().map(OsString::from).collect(),
            program: trimtab().to_owned(),
            variables: self.variables(),
            user: None,
            input: None,
            output: None,
        }
    }

    /// `trimtab run` with these options and the program still to come; without a look at what else runs, so that the
    /// answer does not depend on it.
    pub(crate) fn run(&self, options: &str) -> Call<'_> {
        self.trimtab(&format!("run --survey none {options} --"))
    }

    /// A shell, for what is easier said there; `$T` is trimtab.
    pub(crate) fn shell(&self, script: &str) -> Call<'_> {
        let mut call = self.trimtab("");
        call.program = "sh".into();
        call.args(["-c", script])
    }

    /// A plan, as JSON.
    pub(crate) fn plan(&self, options: &str) -> serde_json::Value {
        let text = self.trimtab(&format!("plan --survey none --json {options}")).ends().ok();
        serde_json::from_str(&text).unwrap()
    }

    /// What `trimtab ps --json` says.
    pub(crate) fn ps(&self) -> serde_json::Value {
        serde_json::from_str(&self.trimtab("ps --json").ends().ok()).unwrap()
    }

    /// Starts a run that holds what these options ask for until it is told to end.
    pub(crate) fn hold(&self, options: &str) -> Running<'_> {
        let mut running = self.run(options).sh(&format!("{MASK}; exec cat")).begins();
        running.line();
        running
    }

    /// The CPUs that runs hold now: of the machine, not inside other holds.
    pub(crate) fn held(&self) -> BTreeSet<u32> {
        let ps = self.ps();
        let holds = ps["holds"].as_array().unwrap().iter().filter(|hold| hold["level"] == 0);
        let named = holds.flat_map(|hold| cpus(hold["cpus"].as_str().unwrap()));
        named.chain(cpus(ps["unknown"].as_str().unwrap())).collect()
    }

    /// Waits until nothing is held: what a killed process held is given back in the kernel's own time.
    pub(crate) fn until_free(&self) {
        eventually("nothing is held", || self.held().is_empty());
    }

    fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), search_path()),
            ("HOME".into(), self.path("home").into()),
            ("XDG_CACHE_HOME".into(), cache().into()),
            ("TRIMTAB_CONFIG".into(), self.path("config").into()),
            ("TRIMTAB_LEDGER".into(), self.path("ledger").into()),
            ("LC_ALL".into(), "C.UTF-8".into()),
            ("T".into(), trimtab().into()),
        ];
        variables
            .extend(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE".into(), file)));
        variables
    }
}

/// A call of the program, to be added to.
pub(crate) struct Call<'s> {
    sandbox: &'s Sandbox,
    prefix: Vec<OsString>,
    words: Vec<OsString>,
    program: PathBuf,
    variables: Vec<(OsString, OsString)>,
    user: Option<u32>,
    input: Option<Vec<u8>>,
    output: Option<OwnedFd>,
}

impl<'s> Call<'s> {
    pub(crate) fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    pub(crate) fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// A line of shell for a program; `$T` is trimtab.
    pub(crate) fn sh(self, script: &str) -> Self {
        self.args(["sh", "-c", script])
    }

    /// A Python program.
    pub(crate) fn python(self, script: &str) -> Self {
        self.arg(python().expect("asked before")).args(["-c", script])
    }

    /// Something that execs trimtab, such as `taskset -c 0`.
    pub(crate) fn through<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        self.prefix.extend(words);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self = self.without(name);
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.retain(|(set, _)| set != name);
        self
    }

    /// As another user, with a cache of its own.
    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.program = self.sandbox.public().join("trimtab");
        self.user = Some(uid);
        let (program, cache) = (self.program.clone(), self.sandbox.path(&format!("home/{uid}")));
        self.env("T", program).env("XDG_CACHE_HOME", cache)
    }

    pub(crate) fn input(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.input = Some(bytes.as_ref().to_owned());
        self
    }

    /// With its standard output here, and not where the test can read it.
    pub(crate) fn onto(mut self, output: impl Into<OwnedFd>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Another copy of the program.
    pub(crate) fn copy(mut self, program: &Path) -> Self {
        self.program = program.to_owned();
        self
    }

    fn command(&self) -> Command {
        let mut words = self.prefix.iter().cloned().chain([self.program.clone().into()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(&self.words);
        command.env_clear().envs(self.variables.iter().cloned()).current_dir(self.sandbox.path(""));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Starts it, with its input open.
    pub(crate) fn begins(self) -> Running<'s> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Files and not pipes: what a program leaves running behind itself must not keep a test waiting.
        let [out, err] = ["out", "err"].map(|name| self.sandbox.path(&format!("{name}-{number}")));
        let create = |path: &Path| {
            let file = File::create(path).unwrap();
            // Its own programs open it again, by /dev/stdout.
            chmod(path, 0o666);
            file
        };
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(create(&out)).stderr(create(&err)).process_group(0);
        if let Some(output) = self.output {
            command.stdout(output);
        }
        let words: Vec<_> =
            self.prefix.iter().chain(&self.words).map(|word| word.to_string_lossy()).collect();
        let what = words.join(" ");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut stdin = child.stdin.take();
        if let Some(bytes) = self.input {
            let mut pipe = stdin.take().unwrap();
            // The program may end before it has read it all.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        Running { _sandbox: self.sandbox, child, stdin, out, err, what, over: false }
    }

    /// Runs it to its end.
    pub(crate) fn ends(self) -> Outcome {
        let mut running = self.begins();
        running.stdin = None;
        running.ends()
    }
}

/// A call under way. Killed with its whole process group when dropped.
pub(crate) struct Running<'s> {
    _sandbox: &'s Sandbox,
    child: Child,
    stdin: Option<ChildStdin>,
    out: PathBuf,
    err: PathBuf,
    what: String,
    over: bool,
}

impl Running<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Types something.
    pub(crate) fn tell(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// What it has written to its standard output so far.
    pub(crate) fn said(&self) -> String {
        text(&self.out)
    }

    /// What it has written to its standard error so far.
    pub(crate) fn errors(&self) -> String {
        text(&self.err)
    }

    /// Waits for its first line.
    pub(crate) fn line(&mut self) -> String {
        self.lines(1).remove(0)
    }

    /// Waits for so many lines.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let ended = self.child.try_wait().unwrap();
            let said = self.said();
            if said.matches('\n').count() >= count {
                return said.lines().map(str::to_owned).collect();
            }
            if ended.is_some() || begin.elapsed() > HANG {
                panic!("{} said {said:?} and {:?}, {ended:?}", self.what, text(&self.err));
            }
            nap();
        }
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn ends(mut self) -> Outcome {
        self.stdin = None;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                begin.elapsed() < HANG,
                "{} hangs, having said {:?} and {:?}",
                self.what,
                self.said(),
                text(&self.err)
            );
            nap();
        };
        self.over = true;
        let (stdout, stderr) = (fs::read(&self.out).unwrap(), text(&self.err));
        // It may have left others in its group; they are the test's.
        Outcome {
            code: status.code(),
            signal: status.signal(),
            stdout,
            stderr,
            what: std::mem::take(&mut self.what),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.over {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    what: String,
}

impl Outcome {
    /// Standard output, as text without the last line feed.
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    /// The output of a call that ended well and had nothing to say.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.code == Some(0) && self.stderr.is_empty(), "{self}");
        self.out()
    }

    /// The output of a call that ended well, and the one line it had to say.
    #[track_caller]
    pub(crate) fn warns(self, words: &[&str]) -> String {
        assert!(self.code == Some(0), "{self}");
        self.one_line(words);
        self.out()
    }

    /// A call that failed with this status, with nothing on stdout and one line on stderr in which these words stand.
    #[track_caller]
    pub(crate) fn fails(self, status: i32, words: &[&str]) {
        assert!(self.code == Some(status), "not {status}: {self}");
        assert!(self.stdout.is_empty(), "{self}");
        self.one_line(words);
    }

    /// As [`Self::fails`], in the parser's words, which may take more lines.
    #[track_caller]
    pub(crate) fn fails_with(self, status: i32, words: &str) {
        assert!(self.code == Some(status) && self.stdout.is_empty(), "not {status}: {self}");
        assert!(self.stderr.contains(words), "\"{words}\" is missing: {self}");
    }

    #[track_caller]
    fn one_line(&self, words: &[&str]) {
        // The parser of the options adds these two.
        let extra = |line: &&str| line.is_empty() || *line == "For more information, try '--help'.";
        let lines: Vec<&str> = self.stderr.lines().filter(|line| !extra(line)).collect();
        assert_eq!(lines.len(), 1, "one line was wanted: {self}");
        for word in words {
            assert!(lines[0].contains(word), "\"{word}\" is missing: {self}");
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, signal, stderr, what, .. } = self;
        write!(
            f,
            "{what}\n  status {code:?}, signal {signal:?}\n  stdout {:?}\n  stderr {stderr}",
            self.out()
        )
    }
}

/// A process that a program left behind. Killed when dropped.
pub(crate) struct Orphan(Pid);

impl Orphan {
    /// The process with this number.
    pub(crate) fn of(pid: &str) -> Self {
        Self(Pid::from_raw(pid.trim().parse().unwrap()).unwrap())
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Waits for what others do in their own time.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < HANG, "not within a minute: {what}");
        nap();
    }
}

pub(crate) fn nap() {
    std::thread::sleep(Duration::from_millis(5));
}

pub(crate) fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A list of CPUs as the kernel writes it.
pub(crate) fn cpus(list: &str) -> BTreeSet<u32> {
    let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("{list:?} is no list of CPUs"));
    let ranges = list.trim().split(',').filter(|range| !range.is_empty());
    ranges
        .flat_map(|range| match range.split_once('-') {
            Some((first, last)) => number(first)..=number(last),
            None => number(range)..=number(range),
        })
        .collect()
}

/// Confines this test, and all it starts, to one CPU of each of `count` cores, whatever the machine is like. The CPUs,
/// ascending, or none when there are not as many cores.
pub(crate) fn confined(count: usize) -> Option<Vec<u32>> {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cores = BTreeSet::new();
    let mut chosen = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
        let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        if cores.insert(fs::read_to_string(topology).unwrap_or_else(|_| cpu.to_string())) {
            chosen.push(cpu);
        }
    }
    chosen.truncate(count);
    if chosen.len() < count {
        return None;
    }
    let mut mask = CpuSet::new();
    chosen.iter().for_each(|&cpu| mask.set(cpu));
    sched_setaffinity(None, &mask).unwrap();
    Some(chosen.iter().map(|&cpu| u32::try_from(cpu).unwrap()).collect())
}

/// As [`confined`], for the many tests that are about two CPUs.
pub(crate) fn two() -> Option<[u32; 2]> {
    confined(2).map(|cpus| [cpus[0], cpus[1]])
}

/// Numbers of ordinary users, when we may act as them.
pub(crate) fn two_users() -> Option<[u32; 2]> {
    geteuid().is_root().then_some([65_534, 1])
}

/// A program that is installed.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Python itself, and not a script that looks for it.
pub(crate) fn python() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let output =
            Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        (output.status.success() && path.is_file()).then_some(path)
    };
    FOUND.get_or_init(find).clone()
}

/// Where programs are looked for: where this user may look, since a directory closed to him is another test's matter.
fn search_path() -> OsString {
    let all = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::join_paths(std::env::split_paths(&all).filter(|folder| fs::read_dir(folder).is_ok())).unwrap()
}

/// A program of `c/`, built with this compiler and these flags, where an empty one can be.
pub(crate) fn built(compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/c").join(source);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    fs::create_dir_all(&folder).unwrap();
    let name = format!("{}-{compiler}{}", source.file_stem().unwrap().to_string_lossy(), flags.concat());
    let built = folder.join(name);
    let age = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    // Of all sources, since some include others.
    let sources = fs::read_dir(source.parent().unwrap()).unwrap();
    if age(&built) > sources.map(|entry| age(&entry.unwrap().path())).max().flatten() {
        return Some(built);
    }
    let draft = folder.join(format!("draft-{}", std::process::id()));
    let build = |source: &Path| Command::new(compiler).arg("-o").arg(&draft).arg(source).args(flags).output();
    let output = build(&source).ok()?;
    if !output.status.success() {
        let empty = folder.join(format!("empty-{}.c", std::process::id()));
        fs::write(&empty, "int main(void) { return 0; }").unwrap();
        let probe = build(&empty).unwrap();
        assert!(!probe.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    fs::rename(&draft, &built).unwrap();
    Some(built)
}

/// A C program with threads.
pub(crate) fn c(source: &str) -> Option<PathBuf> {
    built("cc", source, &["-O1", "-pthread"])
}

/// The folder in which all tests keep the machine's model, so that it is discovered once.
fn cache() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64, Steele, Lea and Flood 2014
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

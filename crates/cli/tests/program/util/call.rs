//! A call of the program: its construction, the running process, and its outcome.

use super::{HANG_TIME_MAX, Sandbox, chmod, nap, python, text};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A call of the program, under construction.
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
    pub(super) fn of(
        sandbox: &'s Sandbox,
        program: &Path,
        words: Vec<OsString>,
        variables: Vec<(OsString, OsString)>,
    ) -> Self {
        let program = program.to_owned();
        Self { sandbox, prefix: Vec::new(), words, program, variables, user: None, input: None, output: None }
    }

    pub(crate) fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    pub(crate) fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Adds a line of shell as the program; `$T` is trimtab.
    pub(crate) fn sh(self, script: &str) -> Self {
        self.args(["sh", "-c", script])
    }

    /// Adds a Python program.
    pub(crate) fn python(self, script: &str) -> Self {
        self.arg(python().expect("asked before")).args(["-c", script])
    }

    /// Runs it through a program that execs trimtab, such as `taskset -c 0`.
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

    /// Runs it as another user, with a separate cache.
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

    /// Sends its standard output to `output` instead of to the test.
    pub(crate) fn onto(mut self, output: impl Into<OwnedFd>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Uses another copy of the program.
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
        self.starts(Stdio::piped())
    }

    fn starts(self, input: Stdio) -> Running<'s> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Files instead of pipes: processes that a program leaves running must not keep a test
        // waiting.
        let [out, err] = ["out", "err"].map(|name| self.sandbox.path(&format!("{name}-{number}")));
        let create = |path: &Path| {
            let file = File::create(path).unwrap();
            // Its own programs open the file again, by /dev/stdout.
            chmod(path, 0o666);
            file
        };
        let mut command = self.command();
        command.stdin(input).stdout(create(&out)).stderr(create(&err)).process_group(0);
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
            // The program may end before it has read everything.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        Running { _sandbox: self.sandbox, child, stdin, out, err, what, over: false }
    }

    /// Runs it to its end, with its input open and empty. For launchers: SIGPIPE ends MPICH's
    /// mpiexec when its input ends at a certain moment, also without trimtab.
    pub(crate) fn ends_by_itself(self) -> Outcome {
        let mut running = self.begins();
        let begin = std::time::Instant::now();
        while running.child.try_wait().unwrap().is_none() && begin.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        running.ends()
    }

    /// Runs it to its end, with the given input or none.
    pub(crate) fn ends(self) -> Outcome {
        let input = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut running = self.starts(input);
        running.stdin = None;
        running.ends()
    }
}

/// A running call. Killed with its whole process group when dropped.
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

    /// Writes to its input.
    pub(crate) fn tell(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Returns its standard output so far.
    pub(crate) fn said(&self) -> String {
        text(&self.out)
    }

    /// Returns its standard error so far.
    pub(crate) fn errors(&self) -> String {
        text(&self.err)
    }

    /// Waits for its first line.
    pub(crate) fn line(&mut self) -> String {
        self.lines(1).remove(0)
    }

    /// Waits for `count` lines.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let ended = self.child.try_wait().unwrap();
            let said = self.said();
            if said.matches('\n').count() >= count {
                return said.lines().map(str::to_owned).collect();
            }
            if ended.is_some() || begin.elapsed() > HANG_TIME_MAX {
                panic!("{} said {said:?} and {:?}, {ended:?}", self.what, text(&self.err));
            }
            nap();
        }
    }

    /// Returns whether it still runs.
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
                begin.elapsed() < HANG_TIME_MAX,
                "{} hangs, having said {:?} and {:?}",
                self.what,
                self.said(),
                text(&self.err)
            );
            nap();
        };
        self.over = true;
        let (stdout, stderr) = (fs::read(&self.out).unwrap(), text(&self.err));
        // It may have left other processes in its group; they belong to the test.
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

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    what: String,
}

impl Outcome {
    /// Returns standard output as text without the last line feed.
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    /// Returns the output of a call that succeeded without messages.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.code == Some(0) && self.stderr.is_empty(), "{self}");
        self.out()
    }

    /// Returns the output of a call that succeeded with one message line that contains these words.
    #[track_caller]
    pub(crate) fn warns(self, words: &[&str]) -> String {
        assert!(self.code == Some(0), "{self}");
        self.one_line(words);
        self.out()
    }

    /// Asserts that a call failed with this status, with nothing on stdout and one line on stderr
    /// that contains these words.
    #[track_caller]
    pub(crate) fn fails(self, status: i32, words: &[&str]) {
        assert!(self.code == Some(status), "not {status}: {self}");
        assert!(self.stdout.is_empty(), "{self}");
        self.one_line(words);
    }

    /// As [`Self::fails`], for messages of the parser, which may have more lines.
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

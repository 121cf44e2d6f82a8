//! Actor: another process, which reads commands from its standard input and answers each with one
//! line that begins with `@`.

use crate::crowd;
use crate::scene::{HANG, MACHINE, ahead, claim, location, set, us};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit, umask};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;
use std::{fs, thread};
use trimtab_core::set::CpuSet;
use trimtab_linux::ledger::{Held, Ledger, LedgerError, LedgerView, Level, Mode, Planner, TakeError, Ticket};

pub(crate) const SCENE: &str = "TRIMTAB_TEST_SCENE";

/// Handle of the actor in the process that started it. Dropping it kills the actor.
pub(crate) struct Actor {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    _program: TestProgram,
}

impl Actor {
    pub(crate) fn start(directory: &Path, user: Option<u32>) -> Self {
        let program = TestProgram::new(user.is_some());
        let mut command = Command::new(&program.path);
        command
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(SCENE, directory)
            .current_dir("/");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test runner writes here too, and does not always end its line.
                if let Some((_, answer)) = line.split_once('@') {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        Self { child, commands, answers, _program: program }
    }

    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        self.answers.recv_timeout(HANG).expect("the actor should answer")
    }

    /// Returns the answer if there is one by now.
    pub(crate) fn answered(&mut self) -> Option<String> {
        match self.answers.try_recv() {
            Err(TryRecvError::Disconnected) => panic!("the actor ended without an answer"),
            answer => answer.ok(),
        }
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills the actor with SIGKILL; afterwards the kernel has closed its descriptors.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This test program at a path where the actor's user can start it.
struct TestProgram {
    path: PathBuf,
    _copy: Option<tempfile::TempDir>,
}

impl TestProgram {
    fn new(for_others: bool) -> Self {
        let path = std::env::current_exe().unwrap();
        let open =
            |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o001 != 0);
        if !for_others || path.ancestors().all(open) {
            return Self { path, _copy: None };
        }
        let directory = tempfile::Builder::new().prefix("ledger-actor-").tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = directory.path().join("actor");
        fs::copy(path, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        Self { path: copy, _copy: Some(directory) }
    }
}

/// State in the actor's own process.
#[derive(Default)]
struct ActorState {
    ledger: Option<Ledger>,
    held: Vec<Held>,
    planner: Option<Planner>,
    ticket: Option<Ticket>,
}

pub(crate) fn play(directory: &Path) {
    let mut state = ActorState::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = state.obey(directory, &words);
        say(&answer);
    }
    std::process::exit(0);
}

pub(crate) fn say(answer: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "\n@{answer}").unwrap();
    output.flush().unwrap();
}

impl ActorState {
    fn obey(&mut self, directory: &Path, words: &[&str]) -> String {
        match words {
            ["umask" | "files" | "size" | "exec", ..] => obey_as_process(words),
            ["planner" | "planned" | "enqueue" | "ahead" | "leave" | "serve", ..] => {
                self.obey_in_queue(words)
            }
            ["crowd", witness, seed, holds] => {
                let (seed, holds) = (seed.parse().unwrap(), holds.parse().unwrap());
                crowd::hold_many(directory, Path::new(witness), seed, holds)
            }
            ["churn", seed] => {
                say("churning");
                crowd::churn(directory, seed.parse().unwrap())
            }
            _ => self.obey_with_holds(directory, words),
        }
    }

    /// Carries out a command about holds and the map of them.
    fn obey_with_holds(&mut self, directory: &Path, words: &[&str]) -> String {
        match words {
            ["open"] => match Ledger::open(&location(directory)) {
                Ok(ledger) => {
                    self.ledger = Some(ledger);
                    "open".into()
                }
                Err(error) => describe(&error),
            },
            ["look"] => match LedgerView::open(&location(directory)) {
                Ok(Some(view)) => view.map(MACHINE, &set("0-63")).unwrap().held().to_string(),
                Ok(None) => "none".into(),
                Err(error) => describe(&error),
            },
            ["map"] => self.ledger().map(MACHINE, &set("0-63")).unwrap().held().to_string(),
            ["take", cpus, rest @ ..] => self.take(&set(cpus), rest),
            ["drop"] => {
                self.held.clear();
                "dropped".into()
            }
            ["keep"] => self.held.pop().unwrap().keep().unwrap().to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self, cpus: &CpuSet, words: &[&str]) -> String {
        let mode = if words.contains(&"shared") { Mode::Shared } else { Mode::Exclusive };
        let number = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
        let level = Level::new(u8::try_from(number("level=").unwrap_or(0)).unwrap()).unwrap();
        let holder = us("actor", number("job=").unwrap_or(0));
        match self.ledger().take(level, cpus, mode, &holder) {
            Ok(held) => {
                let unnamed = held.unnamed().map(|error| format!(" unnamed: {error}")).unwrap_or_default();
                self.held.push(held);
                format!("held{unnamed}")
            }
            Err(TakeError::Busy { cpus }) => format!("busy {cpus}"),
            Err(error) => error.to_string(),
        }
    }

    /// Carries out a command about the right to plan and the queue.
    fn obey_in_queue(&mut self, words: &[&str]) -> String {
        match words {
            ["planner", patience] => {
                let patience = Duration::from_millis(patience.parse().unwrap());
                match self.ledger().planner(MACHINE, patience) {
                    Ok(planner) => {
                        self.planner = Some(planner);
                        "planning".into()
                    }
                    Err(LedgerError::PlannerBusy { .. }) => "busy".into(),
                    Err(error) => error.to_string(),
                }
            }
            ["planned"] => {
                self.planner = None;
                "done".into()
            }
            ["enqueue"] => {
                self.ticket = Some(self.ledger().enqueue(MACHINE, &set("0-63"), &claim()).unwrap());
                "queued".into()
            }
            ["ahead"] => ahead(self.ticket.as_mut().unwrap()).to_string(),
            ["leave"] => {
                self.ticket = None;
                "left".into()
            }
            ["serve", log, name] => {
                let ticket = self.ticket.take().unwrap();
                crowd::be_served(self.ledger(), ticket, Path::new(log), name);
                "served".into()
            }
            other => panic!("{other:?}"),
        }
    }

    fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().unwrap()
    }
}

/// Carries out a command about this process itself.
fn obey_as_process(words: &[&str]) -> String {
    match words {
        ["umask", mask] => {
            umask(u32::from_str_radix(mask, 8).unwrap().into());
        }
        ["files", limit] => {
            let current = limit.parse().ok();
            let maximum = getrlimit(Resource::Nofile).maximum;
            setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
        }
        ["size", limit] => {
            let current = limit.parse().ok();
            setrlimit(Resource::Fsize, Rlimit { current, maximum: current }).unwrap();
        }
        ["exec", program, flag, script @ ..] => {
            say("exec");
            let error =
                Command::new(program).arg(flag).args((!script.is_empty()).then(|| script.join(" "))).exec();
            panic!("{error}");
        }
        other => panic!("{other:?}"),
    }
    "done".into()
}

fn describe(error: &LedgerError) -> String {
    match error {
        LedgerError::Refused { fault, .. } => format!("refused {fault:?}: {error}"),
        LedgerError::Directory { .. } => format!("directory: {error}"),
        other => other.to_string(),
    }
}

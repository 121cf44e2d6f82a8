//! A guardian: a small process that gives masks back when its balancer is killed.
//!
//! Problem: SIGKILL leaves a balancer no moment to give masks back, and the record of them is read only when trimtab is called again.
//! Idea: a second process of this program that holds nothing but the end of a pipe. The kernel closes the other end when the balancer has
//! ended, however it ended; then the guardian carries out what the balancer's records say, and ends.
//!
//! Properties: it is started before the first mask is set, and not at all where none is. It is no child of the balancer, has a
//! session of its own, blocks all signals, and keeps no descriptor and no folder of whoever started the balancer. A balancer that ended
//! in order says so through the pipe, and the guardian ends without a look. One that is killed itself is replaced within some seconds.
//! Where none can be started the records remain for the next call of trimtab, which is told. A kill of the whole control group ends both.

use super::{LeftBehind, LeftEnd, restore_left_behind};
use crate::ledger::Location;
use crate::process::Pid;
use crate::sys::{orphan, signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What a guardian is called, before the number of its balancer.
const NAME: &str = "trimtab: guardian of ";
/// What the kernel calls it: nothing that a kill by the balancer's name means too.
const COMM: &std::ffi::CStr = c"guardian";
/// Says that the balancer ended in order.
const DONE: u8 = b'.';
/// How long the start of a guardian is waited for. Chosen: it takes some milliseconds, and a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// So often one that ended is replaced.
const REPLACED_MAX: u32 = 16;
/// How long records are waited for that are locked by a balancer that is gone: the kernel closes its files one after the other.
const UNLOCKED: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);
/// Variables that the program may need to start at all.
const NEEDED: [&str; 1] = ["LD_LIBRARY_PATH"];

/// Why there is no guardian.
#[derive(Debug, Error)]
pub enum GuardError {
    /// It could not be started.
    #[error("no guardian can be started: {0}")]
    Start(#[from] io::Error),
    /// It ended, or did not say that it is there.
    #[error("a guardian was started and is not there")]
    Silent,
    /// Each that was started ended.
    #[error("guardians are killed again and again")]
    Killed,
}

/// The guardian of this process, started when it is needed.
#[derive(Debug)]
pub struct Guard {
    variables: Vec<(OsString, OsString)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    started: u32,
    fault: Option<String>,
}

/// A guardian that waits.
#[derive(Debug)]
struct Running {
    pid: Pid,
    pipe: ChildStdin,
}

impl Guard {
    /// A guardian to be, with these variables and no others in its environment. This program must call [`stand`] first of all when
    /// [`balancer`](Guard::balancer) says that it is one.
    pub fn new(variables: Vec<(OsString, OsString)>) -> Self {
        Self { variables, state: Mutex::default() }
    }

    /// The balancer, where this process is a guardian, by how it was called.
    pub fn balancer(called: Option<&OsString>) -> Option<Pid> {
        called?.to_str()?.strip_prefix(NAME)?.parse().ok().map(Pid)
    }

    /// Starts it, if it was not.
    pub(super) fn start(&self) {
        let mut state = self.lock();
        if state.running.is_none() && state.fault.is_none() {
            self.start_anew(&mut state);
        }
    }

    /// Replaces one that has ended.
    pub(super) fn tend(&self) {
        let mut state = self.lock();
        if state.running.as_ref().is_some_and(Running::has_ended) {
            state.running = None;
            if state.started <= REPLACED_MAX {
                self.start_anew(&mut state);
            } else {
                state.fault = Some(GuardError::Killed.to_string());
            }
        }
    }

    /// Why there is none, if there should be one.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// Its process, if it runs.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.lock().running.as_ref().map(|running| running.pid)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_anew(&self, state: &mut State) {
        state.started += 1;
        match self.begin() {
            Ok(running) => state.running = Some(running),
            Err(error) => state.fault = Some(error.to_string()),
        }
    }

    fn begin(&self) -> Result<Running, GuardError> {
        // The very file that this process runs, also where another has taken its name.
        let mut command = Command::new("/proc/self/exe");
        let needed = NEEDED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        command.arg0(format!("{NAME}{}", Pid::own())).env_clear().envs(needed).envs(self.variables.clone());
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let (Some(pipe), Some(said)) = orphan::spawn(&mut command)? else { return Err(GuardError::Silent) };
        let pid = heard(said).ok_or(GuardError::Silent)?;
        Ok(Running { pid, pipe })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut running) = self.lock().running.take() {
            // Masks were given back before.
            let _ = running.pipe.write_all(&[DONE]);
        }
    }
}

impl Running {
    /// Whether nobody has the other end of the pipe any more.
    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.pipe, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

/// The number that a guardian says once it is ready.
fn heard(mut said: ChildStdout) -> Option<Pid> {
    let begin = Instant::now();
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        let left = PATIENCE.checked_sub(begin.elapsed())?;
        let time =
            Timespec { tv_sec: i64::try_from(left.as_secs()).ok()?, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&said, PollFlags::IN)], Some(&time)) {
            Ok(0) => return None,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let mut buffer = [0; 32];
        match said.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => text.extend(&buffer[..read]),
        }
    }
    std::str::from_utf8(&text).ok()?.trim().parse().ok().map(Pid)
}

/// Stands guard over a balancer: waits at standard input for its end, and gives back what it could not. The work of a whole process.
pub fn stand(location: &Location, proc: &Path, balancer: Pid) {
    // A terminal's and a service manager's signals are for the balancer, which ends it.
    let _ = signals::block();
    let _ = rustix::thread::set_name(COMM);
    // Whatever whoever started the balancer left open is theirs.
    let _ = orphan::close_from(3);
    // Small as it is, its end would help nobody who is short of memory. Only root may ask for that.
    let _ = fs::write(proc.join("self/oom_score_adj"), "-1000");
    // A balancer that was killed while this guardian started hears nothing, and its masks are to be
    // given back all the same.
    let _ = say_ready();
    if ended_in_order() {
        return;
    }
    let begin = Instant::now();
    let ours = |left: &LeftBehind| left.balancer == Some(balancer) && left.end == LeftEnd::InUse;
    while restore_left_behind(location, proc, Some(balancer)).is_ok_and(|left| left.iter().any(ours))
        && begin.elapsed() < UNLOCKED
    {
        std::thread::sleep(PAUSE);
    }
}

/// Says that all is set up, and lets standard output go.
fn say_ready() -> io::Result<()> {
    let mut said = io::stdout();
    writeln!(said, "{}", Pid::own())?;
    said.flush()?;
    let nothing = fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(nothing.as_fd())?;
    Ok(())
}

/// Waits for the end of the balancer. Whether it said that it gave everything back.
fn ended_in_order() -> bool {
    let mut last = None;
    for byte in io::stdin().lock().bytes() {
        match byte {
            Ok(byte) => last = Some(byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    last == Some(DONE)
}

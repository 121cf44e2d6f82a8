//! Guardian: a small process that gives masks back when its balancer is killed.
//!
//! Problem: SIGKILL leaves a balancer no time to give masks back, and the record of them is read
//! only when trimtab is called again. Idea: a second process of this program whose only resource is
//! the end of a pipe. The kernel closes the other end when the balancer has ended in any way; then
//! the guardian carries out the balancer's records, and ends.
//!
//! The guardian runs before fairly scheduled threads where that is permitted, and in the shortest
//! slices elsewhere: masks come back about a millisecond after the balancer has ended. A killed
//! balancer ends only when the kernel runs it; for that, it has short slices too.
//!
//! Properties: the guardian is started before the first mask is set, and not at all if no mask is
//! set. It is not a child of the balancer, has a session of its own, blocks all signals, and keeps
//! no descriptor and no folder of the process that started the balancer. A balancer that ended in
//! order reports this through the pipe, and the guardian ends without reading records. A guardian
//! that is killed itself is replaced within some seconds. If no guardian can be started, the
//! records remain for the next call of trimtab, and a note reports that. A kill of the whole
//! control group ends both.

use super::{LeftBehind, LeftEnd, restore_left_behind};
use crate::ledger::Location;
use crate::process::{self, Pid};
use crate::sys::{orphan, realtime, signals, slice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use trimtab_core::time::Span;

/// Argument 0 of a guardian, before the number of its balancer.
const NAME: &str = "trimtab: guardian of ";
/// Thread name of a guardian: a name that a kill by the balancer's name does not match.
const COMM: &std::ffi::CStr = c"guardian";
/// Byte by which a balancer reports that it ended in order.
const DONE_BYTE: u8 = b'.';
/// Longest wait for the start of a guardian. Chosen: a start takes some milliseconds, and the
/// machine may be busy.
const START_WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximal number of replacements of guardians that ended.
const REPLACEMENTS_MAX: u32 = 16;
/// Longest wait for records that are locked by a balancer that is gone: the kernel closes its files
/// one after the other.
const UNLOCK_WAIT_MAX: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Slice of a guardian that may not be scheduled in real time: the shortest that the kernel has.
const GUARDIAN_SLICE: Span = Span::from_us(100);
/// Slice of a balancer: with it, a thread that wakes up comes before threads with the usual slice
/// of 3 ms. Chosen: the end of a killed process needs somewhat less than this time.
const BALANCER_SLICE: Span = Span::from_ms(1);
/// Variables without which the program may be unable to start.
const VARIABLES_NEEDED: [&str; 1] = ["LD_LIBRARY_PATH"];

/// Reason for the lack of a guardian.
#[derive(Debug, Error)]
pub enum GuardError {
    /// It could not be started.
    #[error("no guardian can be started: {0}")]
    Start(#[from] io::Error),
    /// It ended, or did not report that it is ready.
    #[error("a guardian was started and did not report")]
    Silent,
    /// Every guardian that was started has ended.
    #[error("guardians are killed repeatedly")]
    Killed,
}

/// The guardian of this process, started on demand.
#[derive(Debug)]
pub struct Guard {
    variables: Vec<(OsString, OsString)>,
    state: Mutex<GuardState>,
}

#[derive(Debug, Default)]
struct GuardState {
    running: Option<Running>,
    started: u32,
    fault: Option<String>,
}

/// A running guardian.
#[derive(Debug)]
struct Running {
    pid: Pid,
    pipe: ChildStdin,
}

impl Guard {
    /// Makes a guard that is not started yet. Its guardian has these variables and no others in its
    /// environment. The program must call [`stand`] first of all when
    /// [`balancer`](Guard::balancer) returns a process.
    pub fn new(variables: Vec<(OsString, OsString)>) -> Self {
        Self { variables, state: Mutex::default() }
    }

    /// Returns the balancer if this process is a guardian, from its argument 0.
    pub fn balancer(called: Option<&OsString>) -> Option<Pid> {
        called?.to_str()?.strip_prefix(NAME)?.parse().ok().map(Pid)
    }

    /// Starts the guardian, if it was not started.
    pub(super) fn start(&self) {
        let mut state = self.lock();
        if state.running.is_none() && state.fault.is_none() {
            hurry_own_threads();
            self.start_anew(&mut state);
        }
    }

    /// Replaces a guardian that has ended.
    pub(super) fn tend(&self) {
        let mut state = self.lock();
        if state.running.as_ref().is_some_and(Running::has_ended) {
            state.running = None;
            if state.started <= REPLACEMENTS_MAX {
                self.start_anew(&mut state);
            } else {
                state.fault = Some(GuardError::Killed.to_string());
            }
        }
    }

    /// Returns the reason for the lack of a guardian, if there should be one.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// Returns the guardian's process, if it runs.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.lock().running.as_ref().map(|running| running.pid)
    }

    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_anew(&self, state: &mut GuardState) {
        state.started += 1;
        match self.begin() {
            Ok(running) => state.running = Some(running),
            Err(error) => state.fault = Some(error.to_string()),
        }
    }

    fn begin(&self) -> Result<Running, GuardError> {
        // The file that this process runs, even if another file has its name now.
        let mut command = Command::new("/proc/self/exe");
        let needed = VARIABLES_NEEDED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        command.arg0(format!("{NAME}{}", Pid::own())).env_clear().envs(needed).envs(self.variables.clone());
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let (Some(pipe), Some(output)) = orphan::spawn(&mut command)? else { return Err(GuardError::Silent) };
        let pid = ready_pid(output).ok_or(GuardError::Silent)?;
        Ok(Running { pid, pipe })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut running) = self.lock().running.take() {
            // Masks were given back before.
            let _ = running.pipe.write_all(&[DONE_BYTE]);
        }
    }
}

impl Running {
    /// Returns whether the other end of the pipe is closed.
    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.pipe, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

/// Returns the process number that a guardian reports once it is ready.
fn ready_pid(mut output: ChildStdout) -> Option<Pid> {
    let begin = Instant::now();
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        let left = START_WAIT_MAX.checked_sub(begin.elapsed())?;
        let time =
            Timespec { tv_sec: i64::try_from(left.as_secs()).ok()?, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&time)) {
            Ok(0) => return None,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let mut buffer = [0; 32];
        match output.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => text.extend(&buffer[..read]),
        }
    }
    std::str::from_utf8(&text).ok()?.trim().parse().ok().map(Pid)
}

/// Guards a balancer: waits at standard input for the balancer's end, and gives back the masks that
/// it could not. The work of a whole process.
pub fn stand(location: &Location, proc: &Path, balancer: Pid) {
    // Signals of a terminal or a service manager are for the balancer, which ends the guardian.
    let _ = signals::block();
    let _ = rustix::thread::set_name(COMM);
    // Descriptors left open by the process that started the balancer belong to that process.
    let _ = orphan::close_from(3);
    hurry();
    // The end of the guardian would free too little memory. Only root may request this protection.
    let _ = fs::write(proc.join("self/oom_score_adj"), "-1000");
    let process = descriptor(balancer);
    // If the balancer was killed while this guardian started, it does not read this line, and its
    // masks must be given back nevertheless.
    let _ = say_ready();
    if ended_in_order() {
        return;
    }
    wait_for_end(process);
    let begin = Instant::now();
    let ours = |left: &LeftBehind| left.balancer == Some(balancer) && left.end == LeftEnd::InUse;
    while restore_left_behind(location, proc, Some(balancer)).is_ok_and(|left| left.iter().any(ours))
        && begin.elapsed() < UNLOCK_WAIT_MAX
    {
        std::thread::sleep(RETRY_PAUSE);
    }
}

/// Makes this thread run soon after it wakes up, on a machine where all CPUs are busy: before all
/// fairly scheduled threads if that is permitted, otherwise in short slices, whose deadlines come
/// first.
fn hurry() {
    if realtime::set_first().is_err() {
        // Best effort: with the usual slice, masks come back some milliseconds later.
        let _ = slice::set(GUARDIAN_SLICE);
    }
}

/// Gives the threads of this balancer a short slice. A thread that is killed ends only when it
/// runs: among threads that it balances, in its own session, it would wait for a turn first, and
/// the guardian would wait with it.
fn hurry_own_threads() {
    for tid in process::threads(Path::new("/proc"), Pid::own()).unwrap_or_default() {
        // Best effort, as above.
        let _ = slice::set_alone(tid, BALANCER_SLICE);
    }
}

/// Reports that all is set up, and closes standard output.
fn say_ready() -> io::Result<()> {
    let mut output = io::stdout();
    writeln!(output, "{}", Pid::own())?;
    output.flush()?;
    let nothing = fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(nothing.as_fd())?;
    Ok(())
}

/// Opens a descriptor of the balancer, which tells when all of it has ended. `None` if it is gone,
/// or the kernel (before 5.3) has none.
fn descriptor(balancer: Pid) -> Option<OwnedFd> {
    let raw = rustix::process::Pid::from_raw(balancer.0.cast_signed())?;
    let opened = pidfd_open(raw, PidfdFlags::empty()).ok()?;
    // As long as the pipe is open, the process of this number is the balancer.
    let input = std::io::stdin();
    let mut polled = [PollFd::new(&input, PollFlags::empty())];
    let lives = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended == 0);
    lives.then_some(opened)
}

/// Waits until the balancer has ended. The kernel closes its files one after the other: the pipe is
/// closed before the records are unlocked, and a guardian that wakes up in between would have to
/// wait for a time that it can only guess.
fn wait_for_end(process: Option<OwnedFd>) {
    let (Some(process), Ok(seconds)) = (process, i64::try_from(UNLOCK_WAIT_MAX.as_secs())) else { return };
    // An interruption cannot occur, since signals are blocked; after it, records are retried.
    let _ =
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&Timespec { tv_sec: seconds, tv_nsec: 0 }));
}

/// Waits for the end of the balancer. Returns whether it reported that it gave everything back.
fn ended_in_order() -> bool {
    let mut last = None;
    for byte in io::stdin().lock().bytes() {
        match byte {
            Ok(byte) => last = Some(byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    last == Some(DONE_BYTE)
}

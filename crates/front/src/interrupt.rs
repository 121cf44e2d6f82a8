//! Ctrl-C while many runs are made: the running program, if any, is ended, and the results so far
//! are kept.

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trimtab_agent::spawn::spawn;

/// State shared with the thread that handles signals.
#[derive(Debug, Default)]
struct InterruptState {
    /// The signal that arrived.
    came: Option<i32>,
    /// The running program. A descriptor, because a process id may belong to another program by the
    /// time it is used.
    running: Option<OwnedFd>,
}

/// Handler of SIGINT, SIGTERM and SIGHUP.
#[derive(Debug)]
pub struct Interrupt {
    shared: Arc<Mutex<InterruptState>>,
}

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn listen() -> Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
        let interrupt = Self { shared: Arc::default() };
        let shared = Arc::clone(&interrupt.shared);
        // Ends with the process; it sleeps until a signal arrives.
        spawn("signals", move || {
            for signal in signals.forever() {
                let mut shared = lock(&shared);
                shared.came = Some(signal);
                // At a terminal the program has had the signal already; sent to trimtab alone it
                // has not.
                if let Some(running) = &shared.running {
                    let _ = pidfd_send_signal(running, Signal::TERM);
                }
            }
        })?;
        Ok(interrupt)
    }

    /// Returns the signal that arrived, if any.
    pub fn came(&self) -> Option<i32> {
        lock(&self.shared).came
    }

    /// Returns whether a signal arrives within this time.
    pub fn comes_within(&self, time: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < time {
            if self.came().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Registers the program that now runs.
    pub fn runs(&self, child: &Child) {
        self.runs_process(Pid::from_child(child));
    }

    /// Registers the process that now runs a program: a child that is not collected yet.
    pub fn runs_process(&self, process: Pid) {
        let descriptor = pidfd_open(process, PidfdFlags::empty()).ok();
        let mut shared = lock(&self.shared);
        // The signal may have come before the program existed.
        if let (Some(_), Some(descriptor)) = (shared.came, &descriptor) {
            let _ = pidfd_send_signal(descriptor, Signal::TERM);
        }
        shared.running = descriptor;
    }

    /// Registers that the program has ended.
    pub fn ended(&self) {
        lock(&self.shared).running = None;
    }
}

fn lock(shared: &Mutex<InterruptState>) -> MutexGuard<'_, InterruptState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

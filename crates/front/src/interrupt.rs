//! Ctrl-C while many runs are made: the program that runs, if one does, is ended, and what is known is kept.

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trimtab_agent::spawn::spawn;

/// Who is told.
#[derive(Debug, Default)]
struct Shared {
    /// The signal that came.
    came: Option<i32>,
    /// The program that runs. A descriptor, because a number may be another's by the time it is used.
    running: Option<OwnedFd>,
}

/// Hears SIGINT, SIGTERM and SIGHUP from now on.
#[derive(Debug)]
pub struct Interrupt {
    shared: Arc<Mutex<Shared>>,
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
        // Ends with the process; it sleeps until a signal comes.
        spawn("signals", move || {
            for signal in signals.forever() {
                let mut shared = lock(&shared);
                shared.came = Some(signal);
                // At a terminal the program has had the signal already; sent to trimtab alone it has not.
                if let Some(running) = &shared.running {
                    let _ = pidfd_send_signal(running, Signal::TERM);
                }
            }
        })?;
        Ok(interrupt)
    }

    /// The signal that came, if one did.
    pub fn came(&self) -> Option<i32> {
        lock(&self.shared).came
    }

    /// Whether one comes before so much time has passed.
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

    /// From now on this program runs.
    pub fn runs(&self, child: &Child) {
        let descriptor = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
        let mut shared = lock(&self.shared);
        // The signal may have come before the program was there.
        if let (Some(_), Some(descriptor)) = (shared.came, &descriptor) {
            let _ = pidfd_send_signal(descriptor, Signal::TERM);
        }
        shared.running = descriptor;
    }

    /// It has ended.
    pub fn ended(&self) {
        lock(&self.shared).running = None;
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Preemption of fairly scheduled threads between the kernel's ticks.
//!
//! Problem: a thread that spins on a flag in the program's own code keeps its CPU to the end of its
//! slice, some milliseconds, while the thread that would set the flag waits for that CPU. No wait
//! policy reaches such code.
//!
//! Idea: a thread on each CPU of the program sleeps for a period of some tens of microseconds, over
//! and over. Each time it wakes it preempts the program's thread, and when it sleeps again the
//! kernel selects the thread that has had least of its share: the next one, and not the one that
//! ran. So the program's threads take turns of one period.
//!
//! The program receives no signal, is not stopped or traced, and none of its system calls is
//! interrupted: to it, this is another program that runs occasionally. A signal to the spinning
//! thread was tried and rejected: it was slower, and the runtime of GNU Fortran has a handler of
//! its own for the only signal that interrupts no system call (`SIGTRAP` of a sampling event).

use crate::sys::{affinity, realtime, slice};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;
use trimtab_launch::preempt;

/// Time between two looks at the number of runnable threads.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Slice of a preempting thread without the right to real-time scheduling: the kernel's shortest.
const SLICE: Span = Span::from_us(100);

/// Threads that preempt, one on each CPU, and one that looks whether they are needed. They end when
/// this value is dropped.
#[derive(Debug)]
pub struct Preemption {
    state: Arc<SharedState>,
    threads: Vec<JoinHandle<()>>,
    right: Right,
}

/// Means by which the threads preempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Real-time scheduling: they preempt at once.
    RealTime,
    /// A shorter slice than the program's threads have: they preempt mostly.
    ShortSlice,
}

/// Reason why threads cannot be preempted.
#[derive(Debug)]
pub enum PreemptionError {
    /// A thread could not be started.
    Thread(io::Error),
    /// A thread could not be bound to its CPU.
    Bind(OsCpu, Errno),
    /// Neither real-time scheduling nor a short slice is available.
    Right(Errno),
}

impl std::error::Error for PreemptionError {}

impl fmt::Display for PreemptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "no thread could be started ({error})"),
            Self::Bind(cpu, error) => write!(f, "no thread could be bound to CPU {} ({error})", cpu.0),
            Self::Right(error) => write!(
                f,
                "real-time scheduling is not permitted ({error}) and this kernel has no slices for threads: \
                 give trimtab CAP_SYS_NICE or a limit of real-time priorities (ulimit -r 1), or use Linux 6.12"
            ),
        }
    }
}

#[derive(Debug, Default)]
struct SharedState {
    ends: AtomicBool,
    is_needed: AtomicBool,
}

impl Preemption {
    /// Starts to preempt the threads on these CPUs whenever more threads are runnable than `cpus`
    /// has CPUs. `proc` is the directory of the process file system.
    ///
    /// # Errors
    /// Nothing is preempted; no thread is left behind.
    pub fn start(proc: &Path, cpus: &CpuSet, period: Span) -> Result<Self, PreemptionError> {
        let (sender, answers) = channel();
        let mut made = Self { state: Arc::default(), threads: Vec::new(), right: Right::RealTime };
        for cpu in cpus.iter() {
            let (state, sender) = (Arc::clone(&made.state), sender.clone());
            made.spawn("preempt", move || preempt_on(cpu, period.into(), &state, sender))?;
        }
        drop(sender);
        made.right = least_right(&answers)?;
        let (state, load) = (Arc::clone(&made.state), proc.join("loadavg"));
        let count = cpus.len();
        made.spawn("preempt-look", move || look(&load, count, &state))?;
        Ok(made)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), PreemptionError> {
        let thread = Builder::new().name(name.to_owned()).spawn(work).map_err(PreemptionError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Returns the weakest right that a thread has.
    pub fn right(&self) -> Right {
        self.right
    }
}

impl Drop for Preemption {
    fn drop(&mut self) {
        self.state.ends.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, which is all that is wanted here.
            let _ = thread.join();
        }
    }
}

fn least_right(answers: &Receiver<Result<Right, PreemptionError>>) -> Result<Right, PreemptionError> {
    answers.iter().try_fold(Right::RealTime, |least, answer| {
        Ok(if answer? == Right::ShortSlice { Right::ShortSlice } else { least })
    })
}

/// Runs on one CPU until the end; the work is to wake.
fn preempt_on(
    cpu: OsCpu,
    period: Duration,
    state: &SharedState,
    sender: Sender<Result<Right, PreemptionError>>,
) {
    let answer = prepare(cpu);
    let failed = answer.is_err();
    // The receiver is there until it has one answer of each thread, or the first failure.
    let _ = sender.send(answer);
    // The receiver waits until no sender is left.
    drop(sender);
    while !failed && !state.ends.load(Relaxed) {
        std::thread::sleep(if state.is_needed.load(Relaxed) { period } else { LOOK_PERIOD });
    }
}

fn prepare(cpu: OsCpu) -> Result<Right, PreemptionError> {
    affinity::set(None, &[cpu].into_iter().collect()).map_err(|error| PreemptionError::Bind(cpu, error))?;
    // Without it, the kernel may delay each wake-up by 50 us: longer periods, no failure.
    let _ = realtime::set_least_timer_slack();
    let Err(refused) = realtime::set_first() else { return Ok(Right::RealTime) };
    match slice::set(SLICE) {
        Ok(Some(_)) => Ok(Right::ShortSlice),
        _ => Err(PreemptionError::Right(refused)),
    }
}

/// Looks at the number of runnable threads until the end.
fn look(load: &Path, cpus: usize, state: &SharedState) {
    while !state.ends.load(Relaxed) {
        let runnable = std::fs::read_to_string(load).ok().and_then(|text| runnable(&text));
        // This thread is one of them.
        let others = runnable.map(|runnable| runnable.saturating_sub(1));
        state.is_needed.store(preempt::is_needed(others, cpus), Relaxed);
        std::thread::sleep(LOOK_PERIOD);
    }
}

/// Returns the number of runnable threads in the text of `loadavg`; `None` for another text.
fn runnable(text: &str) -> Option<usize> {
    text.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn runnable_threads_are_read_or_unknown() {
        assert_eq!(runnable("0.10 0.20 0.30 5/163 1234\n"), Some(5));
        for bad in ["", "0.1 0.2 0.3", "0.1 0.2 0.3 x/7 1", "0.1 0.2 0.3 5 1"] {
            assert_eq!(runnable(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn threads_end_with_the_value() {
        let own = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
            names.filter(|name| name.trim_end() == "preempt").count()
        };
        let cpus = affinity::get(None).unwrap();
        match Preemption::start(Path::new("/proc"), &cpus, Span::from_us(50)) {
            Ok(made) => {
                // Each has answered, and so has its name. The thread that looks has another name.
                assert_eq!(own(), cpus.len());
                drop(made);
            }
            Err(error) => assert!(matches!(error, PreemptionError::Right(_)), "{error}"),
        }
        // The kernel wakes the join a little before it takes the task out of /proc.
        let end = Instant::now() + Duration::from_secs(10);
        while own() != 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(own(), 0);
    }
}

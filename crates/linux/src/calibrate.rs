//! Measurements of this kernel's behaviour. It does not follow from the version, since
//! distributions change and configure their kernels.
//!
//! [`yield_share`] costs some 10 ms of one CPU, [`wake_time`] 10 ms of two, [`costs`] less than
//! one. Nothing is measured without a call.

use crate::process::Pid;
use crate::sys::affinity;
use crate::sys::clock::{monotonic, of_this_thread as thread_time};
use rustix::io::Errno;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

/// Length of the contest of the two threads.
const CONTEST_TIME: Duration = Duration::from_millis(10);
/// Smallest share of the contest that both threads together must run. Below it other threads ran on
/// the CPU too, and the result is unknown.
const CPU_SHARE_MIN: f64 = 0.8;
/// Smallest share of the computing thread at which a yield counts as one. Measured: 0.50 on Linux
/// 6.1, 0.985 on 6.12.117, 0.997 on 6.18.44.
const POSIX_SHARE_MIN: f64 = 0.9;

/// Effect of `sched_yield` on a thread that calls it beside a thread that computes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum YieldKind {
    /// The other thread runs, as POSIX requires.
    Posix,
    /// The yielding thread keeps a share of its own.
    Weak {
        /// Share of the time that the computing thread got, 0 to 1.
        share: f64,
    },
}

impl YieldKind {
    /// Judges the CPU times of the two threads in a contest of this length; `None` if other threads
    /// ran too long.
    fn of(computing: Span, yielding: Span, contest: Span) -> Option<Self> {
        let both = computing + yielding;
        if both.share_of(contest)? < CPU_SHARE_MIN {
            return None;
        }
        let share = computing.share_of(both)?;
        Some(if share >= POSIX_SHARE_MIN { Self::Posix } else { Self::Weak { share } })
    }
}

/// Lets two threads compete on one of these CPUs: one computes, the other yields. `None` if other
/// threads ran on that CPU meanwhile, if the threads cannot be bound to it, or if no more threads
/// can be started.
pub fn yield_share(cpus: &CpuSet) -> Option<YieldKind> {
    // The last CPU: interrupts and daemons prefer the first.
    let cpu = cpus.last()?;
    let (gate, stop) = (Gate::default(), AtomicBool::new(false));
    let (computing, yielding, contest) = thread::scope(|scope| {
        let start = |work: fn()| {
            let (gate, stop) = (&gate, &stop);
            thread::Builder::new().spawn_scoped(scope, move || on_cpu(cpu, gate, stop, work)).ok()
        };
        let both = start(compute).and_then(|computing| Some((computing, start(thread::yield_now)?)));
        let Some((computing, yielding)) = both else {
            // This user may have no more threads; the thread that waits at the gate ends.
            gate.call_off();
            return None;
        };
        gate.arrive();
        let begin = monotonic();
        thread::sleep(CONTEST_TIME);
        stop.store(true, Ordering::Release);
        let contest = monotonic() - begin;
        Some((computing.join().ok().flatten(), yielding.join().ok().flatten(), contest))
    })?;
    YieldKind::of(computing?, yielding?, contest.into())
}

/// Barrier of three threads that can be cancelled.
#[derive(Debug, Default)]
struct Gate {
    /// Number of threads that have arrived, and whether the barrier was cancelled.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the others; returns false if the barrier was called off.
    fn arrive(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        self.changed.notify_all();
        while state.0 < 3 && !state.1 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.1
    }

    fn call_off(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }
}

/// Repeats `work` on a CPU until the stop flag is set. Returns the CPU time used.
fn on_cpu(cpu: OsCpu, gate: &Gate, stop: &AtomicBool, work: fn()) -> Option<Span> {
    let bound = affinity::set(None, &[cpu].into_iter().collect());
    if !gate.arrive() {
        return None;
    }
    let begin = thread_time();
    while !stop.load(Ordering::Acquire) {
        work();
    }
    let took = thread_time() - begin;
    bound.ok().map(|()| took.into())
}

/// Computes for about a microsecond, in dependent arithmetic.
fn compute() {
    let mut value = black_box(1u64);
    for _ in 0..1_000 {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(value);
}

/// Number of times that a sleeper is woken.
const WAKE_COUNT: u32 = 48;
/// Pause before each wake. In it the sleeper's CPU enters the same idle state as between the steps
/// of a program.
const WAKE_PAUSE: Duration = Duration::from_micros(150);
/// Longest wait for all wakes together: on a busy machine the sleeper runs late.
const WAKES_TIME_MAX: Duration = Duration::from_millis(100);

/// Returns the time from waking a thread that sleeps on another of these CPUs until it runs: the
/// median of several wakes. A few microseconds on real machines; ten times that if the idle CPU is
/// a vCPU that its host has descheduled. `None` with one CPU, if threads cannot be started or
/// bound, or if other threads keep the sleeper from its CPU.
pub fn wake_time(cpus: &CpuSet) -> Option<Span> {
    let (here, there) = (cpus.first()?, cpus.last().filter(|last| Some(*last) != cpus.first())?);
    // Number of the last wake, and the time at which the sleeper saw it.
    let (turn, seen) = (AtomicU32::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (turn, seen) = (&turn, &seen);
        let sleeper = thread::Builder::new().spawn_scoped(scope, move || {
            let bound = affinity::set(None, &[there].into_iter().collect());
            let mut last = 0;
            while last != u32::MAX {
                while turn.load(Ordering::Acquire) == last {
                    thread::park();
                }
                last = turn.load(Ordering::Acquire);
                seen.store(nanoseconds(monotonic()), Ordering::Release);
            }
            bound.is_ok()
        });
        let sleeper = sleeper.ok()?;
        let handle = sleeper.thread().clone();
        let waker = thread::Builder::new().spawn_scoped(scope, move || {
            affinity::set(None, &[here].into_iter().collect()).ok()?;
            let begin = Instant::now();
            let mut times = Vec::new();
            for number in 1..=WAKE_COUNT {
                let idle = Instant::now();
                while idle.elapsed() < WAKE_PAUSE {
                    std::hint::spin_loop();
                }
                seen.store(0, Ordering::Release);
                let woken = monotonic();
                turn.store(number, Ordering::Release);
                handle.unpark();
                while seen.load(Ordering::Acquire) == 0 {
                    if begin.elapsed() > WAKES_TIME_MAX {
                        return None;
                    }
                    std::hint::spin_loop();
                }
                times.push(seen.load(Ordering::Acquire).saturating_sub(nanoseconds(woken)));
            }
            times.sort_unstable();
            Some(Span(times[times.len() / 2]))
        });
        let took = waker.ok().and_then(|waker| waker.join().ok()).flatten();
        turn.store(u32::MAX, Ordering::Release);
        sleeper.thread().unpark();
        took.filter(|_| sleeper.join().unwrap_or(false))
    })
}

/// Cost of one reading and of one setting on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// One reading of a thread's `schedstat` through an open descriptor.
    pub read: Span,
    /// One setting of a thread's mask.
    pub set: Span,
}

/// Number of repetitions of each operation; the fastest counts, since the others were disturbed.
const COST_TRIES: u32 = 64;

/// Measures on the calling thread and keeps its mask. `proc` is the mount point of procfs.
///
/// # Errors
/// The kernel's error: it has no `schedstat`, or refuses to set masks.
pub fn costs(proc: &Path) -> Result<Costs, Errno> {
    let path = proc.join(format!("{}/schedstat", Pid::own()));
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?;
    let mut buffer = [0; 80];
    let read = fastest(|| rustix::io::pread(&file, &mut buffer[..], 0).map(drop))?;
    let own = affinity::get(None)?;
    let set = fastest(|| affinity::set(None, &own))?;
    Ok(Costs { read, set })
}

fn fastest(mut action: impl FnMut() -> Result<(), Errno>) -> Result<Span, Errno> {
    let mut best = Span(u64::MAX);
    for _ in 0..COST_TRIES {
        let begin = monotonic();
        action()?;
        best = best.min((monotonic() - begin).into());
    }
    Ok(best)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_distinguished_and_noise_is_rejected() {
        let ms = Span::from_ms;
        assert_eq!(YieldKind::of(ms(99), ms(1), ms(105)), Some(YieldKind::Posix));
        assert_eq!(YieldKind::of(ms(5), ms(5), ms(10)), Some(YieldKind::Weak { share: 0.5 }));
        assert_eq!(YieldKind::of(ms(5), ms(1), ms(10)), None, "somebody else had 40 %");
        assert_eq!(YieldKind::of(ms(0), ms(0), ms(10)), None);
        assert_eq!(YieldKind::of(ms(0), ms(0), ms(0)), None);
    }

    #[test]
    fn at_the_limit_of_threads_the_calibration_gives_no_answer_and_does_not_wait() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
        let own = affinity::get(None).unwrap();
        let answer = thread::spawn(move || {
            // As at the limit of a user's processes, for this thread alone.
            let rules = [libc::SYS_clone, libc::SYS_clone3].map(|call| (call, vec![])).into();
            let here = std::env::consts::ARCH.try_into().unwrap();
            let again = SeccompAction::Errno(Errno::AGAIN.raw_os_error().unsigned_abs());
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, again, here).unwrap();
            let filter: BpfProgram = filter.try_into().unwrap();
            seccompiler::apply_filter(&filter).unwrap();
            yield_share(&own)
        });
        assert_eq!(answer.join().unwrap(), None);
        // Only one of two expected threads comes.
        let gate = Gate::default();
        thread::scope(|scope| {
            let first = scope.spawn(|| gate.arrive());
            gate.call_off();
            assert!(!first.join().unwrap());
        });
        assert!(!gate.arrive());
    }

    #[test]
    fn this_kernel_answers_or_the_machine_is_too_busy() {
        let own = affinity::get(None).unwrap();
        match yield_share(&own) {
            Some(YieldKind::Weak { share }) => assert!((0.0..POSIX_SHARE_MIN).contains(&share)),
            Some(YieldKind::Posix) | None => {}
        }
        assert_eq!((yield_share(&CpuSet::new()), wake_time(&CpuSet::new())), (None, None));
        assert_eq!(wake_time(&own.iter().take(1).collect()), None, "nobody sleeps on another CPU");
        if let Some(wake) = wake_time(&own) {
            assert!(wake > Span::ZERO && wake < WAKES_TIME_MAX.into(), "{wake:?}");
        }
        assert_eq!(affinity::get(None).unwrap(), own);
        match costs(Path::new("/proc")) {
            Ok(costs) => assert!(costs.read < Span(u64::MAX) && costs.set < Span(u64::MAX)),
            Err(errno) => assert_eq!(errno, Errno::NOENT),
        }
        assert_eq!(affinity::get(None).unwrap(), own);
    }
}

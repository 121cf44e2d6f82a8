//! What this kernel does when it is tried, since versions do not say: distributions change and configure it.
//!
//! [`yield_share`] costs some 10 ms of one CPU, [`wake_time`] 10 ms of two, [`costs`] less than one. Nothing is measured unless asked.

use crate::process::Pid;
use crate::sys::affinity;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

/// How long the two threads compete.
const CONTEST: Duration = Duration::from_millis(10);
/// Less CPU time than this part of the contest, and others ran there too: nothing can be said.
const QUIET: f64 = 0.8;
/// From this share of a yielder's partner on, a yield is one. Measured: 0.50 on Linux 6.1, 0.985 on 6.12.117, 0.997 on 6.18.44.
const POSIX_MIN: f64 = 0.9;

/// What `sched_yield` does to whoever calls it beside a thread that computes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum YieldKind {
    /// It lets the other run, as POSIX says.
    Posix,
    /// It goes on having a share of its own.
    Weak {
        /// The share of the time that the computing thread got.
        share: f64,
    },
}

impl YieldKind {
    /// From the CPU time of the two, of a contest of this length; `None` when others had too much of it.
    fn of(computing: Span, yielding: Span, contest: Span) -> Option<Self> {
        let both = computing + yielding;
        if both.share_of(contest)? < QUIET {
            return None;
        }
        let share = computing.share_of(both)?;
        Some(if share >= POSIX_MIN { Self::Posix } else { Self::Weak { share } })
    }
}

/// Lets two threads compete on one CPU of these, one that computes and one that yields. `None` when that CPU was not theirs alone
/// meanwhile, or cannot be had, or where there may be no more threads.
pub fn yield_share(cpus: &CpuSet) -> Option<YieldKind> {
    // The last one: interrupts and daemons prefer the first.
    let cpu = cpus.last()?;
    let (gate, stop) = (Gate::default(), AtomicBool::new(false));
    let (computing, yielding, contest) = thread::scope(|scope| {
        let start = |work: fn()| {
            let (gate, stop) = (&gate, &stop);
            thread::Builder::new().spawn_scoped(scope, move || on_cpu(cpu, gate, stop, work)).ok()
        };
        let both = start(compute).and_then(|computing| Some((computing, start(thread::yield_now)?)));
        let Some((computing, yielding)) = both else {
            // This user may have no more threads: whoever waits for the other goes home.
            gate.call_off();
            return None;
        };
        gate.arrive();
        let begin = monotonic();
        thread::sleep(CONTEST);
        stop.store(true, Ordering::Release);
        let contest = monotonic() - begin;
        Some((computing.join().ok().flatten(), yielding.join().ok().flatten(), contest))
    })?;
    YieldKind::of(computing?, yielding?, contest.into())
}

/// Three wait here for each other, unless it is called off.
#[derive(Debug, Default)]
struct Gate {
    /// How many have arrived, and whether it was called off.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the others; false when they will not come.
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

/// Does something again and again on a CPU; the CPU time that took.
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

/// A microsecond or so of dependent arithmetic.
fn compute() {
    let mut value = black_box(1u64);
    for _ in 0..1_000 {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(value);
}

/// So often a sleeper is woken ...
const WAKES: u32 = 48;
/// ... after so long, in which its CPU goes as idle as it does between the steps of a program ...
const PAUSE: Duration = Duration::from_micros(150);
/// ... and for so long it is waited for all in all: on a busy machine it comes late.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long it takes from waking a thread that sleeps on another CPU of these until it runs: the median of some times. A few microseconds on real
/// machines, ten times that where an idle CPU is a virtual one that its host has put away. `None` with one CPU, where threads cannot be had or
/// bound, and where others keep the sleeper from its CPU.
pub fn wake_time(cpus: &CpuSet) -> Option<Span> {
    let (here, there) = (cpus.first()?, cpus.last().filter(|last| Some(*last) != cpus.first())?);
    // How often it was woken, and when it saw that.
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
            for number in 1..=WAKES {
                let idle = Instant::now();
                while idle.elapsed() < PAUSE {
                    std::hint::spin_loop();
                }
                seen.store(0, Ordering::Release);
                let woken = monotonic();
                turn.store(number, Ordering::Release);
                handle.unpark();
                while seen.load(Ordering::Acquire) == 0 {
                    if begin.elapsed() > PATIENCE {
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

/// What one reading and one setting cost here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// One reading of a thread's `schedstat` through a kept descriptor.
    pub read: Span,
    /// One setting of a thread's mask.
    pub set: Span,
}

/// So often each is tried; the fastest counts, since the others were disturbed.
const TRIES: u32 = 64;

/// Measures on the calling thread, whose mask stays as it is. `proc` is where procfs is mounted.
///
/// # Errors
/// What the kernel answered: it has no `schedstat`, or refuses to set masks.
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
    for _ in 0..TRIES {
        let begin = monotonic();
        action()?;
        best = best.min((monotonic() - begin).into());
    }
    Ok(best)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn monotonic() -> Duration {
    duration(ClockId::Monotonic)
}

fn thread_time() -> Duration {
    duration(ClockId::ThreadCPUTime)
}

fn duration(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_apart_and_noise_is_not_believed() {
        let ms = Span::from_ms;
        assert_eq!(YieldKind::of(ms(99), ms(1), ms(105)), Some(YieldKind::Posix));
        assert_eq!(YieldKind::of(ms(5), ms(5), ms(10)), Some(YieldKind::Weak { share: 0.5 }));
        assert_eq!(YieldKind::of(ms(5), ms(1), ms(10)), None, "somebody else had 40 %");
        assert_eq!(YieldKind::of(ms(0), ms(0), ms(10)), None);
        assert_eq!(YieldKind::of(ms(0), ms(0), ms(0)), None);
    }

    #[test]
    fn where_no_more_threads_may_be_nothing_is_said_and_nobody_waits() {
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
        // Of two that were to come only one could.
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
            Some(YieldKind::Weak { share }) => assert!((0.0..POSIX_MIN).contains(&share)),
            Some(YieldKind::Posix) | None => {}
        }
        assert_eq!((yield_share(&CpuSet::new()), wake_time(&CpuSet::new())), (None, None));
        assert_eq!(wake_time(&own.iter().take(1).collect()), None, "nobody sleeps on another CPU");
        if let Some(wake) = wake_time(&own) {
            assert!(wake > Span::ZERO && wake < PATIENCE.into(), "{wake:?}");
        }
        assert_eq!(affinity::get(None).unwrap(), own);
        match costs(Path::new("/proc")) {
            Ok(costs) => assert!(costs.read < Span(u64::MAX) && costs.set < Span(u64::MAX)),
            Err(errno) => assert_eq!(errno, Errno::NOENT),
        }
        assert_eq!(affinity::get(None).unwrap(), own);
    }
}

//! Sampler: the service's loop over the live machine, in a thread of this process, with the CPU
//! time that each sample used.
//!
//! All parts are those of the service: tags that name threads, the live machine, the policy, and
//! the budget that extends the time between samples. Only the request thread of `trimtab serve` is
//! missing, which sleeps until a request arrives.

use anyhow::{Context, Result, anyhow, bail};
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trimtab_agent::narrator::Silent;
use trimtab_agent::service::SharedState;
use trimtab_agent::service::host::ServiceHost;
use trimtab_core::balance::{Decision, Kind, Outcome, PenaltySettings, Settings, Wanted, policy};
use trimtab_core::drive::{Awake, Go, Host, Step, drive};
use trimtab_core::observe::{Observer, Sample};
use trimtab_core::sampling_overhead::CumulativeSample;
use trimtab_core::tags::{By, Mark, Reach, Registry};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;
use trimtab_linux::host::{HostOptions, Live, LiveError, Stopper};
use trimtab_linux::perf::Choice;
use trimtab_linux::process::{self, Pid};

/// Interval at which samples are due.
pub(super) const SAMPLE_INTERVAL: Span = Span::from_ms(10);
/// Warm-up before the measurement: at least this number of samples over at least this time.
/// Descriptors and counters are open then.
const WARMUP_SAMPLES_MIN: usize = 5;
const WARMUP_MIN: Span = Span::from_ms(500);
/// Fewest samples of a measurement, ...
const SAMPLES_MIN: usize = 5;
/// ... unless it takes longer than the intended time by more than this.
const OVERRUN_MAX: Span = Span::from_ms(60_000);

/// Options of a sampler.
#[derive(Clone, Debug)]
pub(super) struct SamplerOptions {
    pub(super) kind: Kind,
    /// Counters that are read; `None` for no counters.
    pub(super) counting: Option<Choice>,
    /// Share of one core that sampling may use.
    pub(super) budget: f64,
    /// Number of threads that must be visible before the measurement begins.
    pub(super) threads: u32,
    /// Duration of the measurement; `None` until [`Sampler::end`].
    pub(super) lasting: Option<Span>,
    /// The machine as the policy sees it.
    pub(super) machine: Machine,
    pub(super) proc: PathBuf,
}

/// A running sampler, in its own thread.
#[derive(Debug)]
pub(super) struct Sampler {
    thread: JoinHandle<Result<Vec<CumulativeSample>>>,
    stopper: Stopper,
    warm: Arc<AtomicBool>,
}

impl Sampler {
    /// Starts to sample a process.
    ///
    /// # Errors
    /// The process cannot be sampled.
    pub(super) fn start(pid: Pid, how: SamplerOptions) -> Result<Self> {
        let (tell, told) = mpsc::channel();
        let warm = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&warm);
        let work = move || look(pid, how, &tell, &heard);
        let thread = std::thread::Builder::new().name("sampler".to_owned()).spawn(work);
        let thread = thread.context("cannot start a thread (sampler)")?;
        match told.recv() {
            Ok(stopper) => Ok(Self { thread, stopper, warm }),
            Err(_) => Err(joined(thread).err().unwrap_or_else(|| anyhow!("sampling ended before it began"))),
        }
    }

    /// Waits until the sampler is past its warm-up.
    ///
    /// # Errors
    /// The warm-up does not end.
    pub(super) fn warm_up(&self) -> Result<()> {
        let begin = Instant::now();
        while !self.warm.load(Ordering::Relaxed) {
            if self.thread.is_finished() || begin.elapsed() > Duration::from(OVERRUN_MAX) {
                bail!("the warm-up did not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns whether the sampler has ended by itself.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the sampler and returns its samples after the warm-up.
    ///
    /// # Errors
    /// Sampling the machine failed.
    pub(super) fn end(self) -> Result<Vec<CumulativeSample>> {
        self.stopper.stop();
        joined(self.thread)
    }
}

fn joined(thread: JoinHandle<Result<Vec<CumulativeSample>>>) -> Result<Vec<CumulativeSample>> {
    thread.join().map_err(|_| anyhow!("sampling has panicked"))?
}

/// The service's host, which also reads counters for policies that do not request them.
struct CountingHost {
    served: ServiceHost,
    counts: bool,
}

impl Host for CountingHost {
    type Error = LiveError;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, LiveError> {
        self.served.observe(&Wanted { counts: self.counts || wanted.counts, ..wanted.clone() })
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, LiveError> {
        self.served.apply(decisions)
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, LiveError> {
        self.served.wait(until)
    }
}

fn look(
    pid: Pid,
    how: SamplerOptions,
    tell: &mpsc::Sender<Stopper>,
    warm: &AtomicBool,
) -> Result<Vec<CumulativeSample>> {
    let SamplerOptions { kind, counting, budget, threads, lasting, machine, proc } = how;
    let usable = machine.cpus();
    let counts = counting.is_some();
    let options =
        HostOptions { tags: true, counting: counting.unwrap_or(Choice::Off), ..HostOptions::default() };
    let live = Live::with(&proc, &[], &usable, options)?;
    let stopper = live.stopper();
    let shared = SharedState::new(Registry::new(Reach::All));
    let start = process::stat(&proc, pid)?.start;
    let mark = Mark::Process { pid: pid.0, start: start.0 };
    shared.tag(By::User(rustix::process::geteuid().as_raw()), mark)?;
    let settings = Settings {
        interval: SAMPLE_INTERVAL,
        penalty: PenaltySettings { budget, ..PenaltySettings::default() },
        ..Settings::of(kind)
    };
    let served = ServiceHost::new(live, shared, proc, budget, false, Arc::new(Silent));
    let mut host = CountingHost { served, counts };
    tell.send(stopper).map_err(|_| anyhow!("the receiver is gone"))?;

    let mut policy = policy(kind, &machine, &settings);
    let mut observer = Observer::new(usable);
    let mut looks: Vec<CumulativeSample> = Vec::new();
    let mut before: Vec<CumulativeSample> = Vec::new();
    let looked = drive(&mut host, &mut *policy, &mut observer, &mut |step| {
        let look = note(step);
        if looks.is_empty() {
            before.push(look);
            let lasted = before.first().map_or(Span::ZERO, |first| look.at.since(first.at));
            if before.len() < WARMUP_SAMPLES_MIN || lasted < WARMUP_MIN || look.threads < threads {
                return if lasted < OVERRUN_MAX { Go::On } else { Go::Stop };
            }
            warm.store(true, Ordering::Relaxed);
        }
        looks.push(look);
        let lasted = looks.first().map_or(Span::ZERO, |first| look.at.since(first.at));
        match lasting {
            Some(wanted)
                if lasted >= wanted && looks.len() > SAMPLES_MIN || lasted >= wanted + OVERRUN_MAX =>
            {
                Go::Stop
            }
            _ => Go::On,
        }
    });
    let (restored, _) = host.served.restore();
    looked?;
    if restored.refused > 0 {
        bail!("{} threads could not be given their own masks back", restored.refused);
    }
    if looks.is_empty() {
        let seen = before.last().map_or(0, |look| look.threads);
        bail!("the warm-up did not end: {} samples, {seen} of {threads} threads seen", before.len());
    }
    Ok(looks)
}

fn note(step: &Step<'_>) -> CumulativeSample {
    let many = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    CumulativeSample {
        at: step.sample.at,
        worked: now(ClockId::ProcessCPUTime),
        threads: many(step.sample.threads.len()),
        counted: many(step.sample.threads.iter().filter(|thread| thread.counts.is_some()).count()),
    }
}

/// Reads a clock of the kernel.
fn now(clock: ClockId) -> Span {
    Span::from(Duration::try_from(clock_gettime(clock)).unwrap_or_default())
}

//! Who looks: the service's loop over the live machine, in this process, with what each look has used up.
//!
//! The desk of `trimtab serve`, which sleeps unless it is asked something, is not there; all else is the service's own: tags that name
//! threads, the live machine, the policy, and the budget that stretches the time between looks.

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
use trimtab_core::sampling_overhead::Look;
use trimtab_core::tags::{By, Mark, Reach, Registry};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;
use trimtab_linux::host::{Live, LiveError, Options, Stopper};
use trimtab_linux::perf::Choice;
use trimtab_linux::process::{self, Pid};

/// A look at the machine is due so often.
pub(super) const TICK: Span = Span::from_ms(10);
/// Before anything is measured so many looks have been made, for so long: descriptors and counters are open then.
const WARM_LOOKS: usize = 5;
const WARM: Span = Span::from_ms(500);
/// At least so many looks are measured, ...
const LOOKS: usize = 5;
/// ... unless that takes longer than so much more than was wanted.
const PATIENCE: Span = Span::from_ms(60_000);

/// How it looks.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) kind: Kind,
    /// What is counted, if anything is.
    pub(super) counting: Option<Choice>,
    /// The share of a core that it may take.
    pub(super) budget: f64,
    /// At least so many threads are to be seen before it is measured.
    pub(super) threads: u32,
    /// For so long; `None` until it is ended.
    pub(super) lasting: Option<Span>,
    /// The machine as the policy sees it.
    pub(super) machine: Machine,
    pub(super) proc: PathBuf,
}

/// It looks, in a thread of its own.
#[derive(Debug)]
pub(super) struct Looker {
    thread: JoinHandle<Result<Vec<Look>>>,
    stopper: Stopper,
    warm: Arc<AtomicBool>,
}

impl Looker {
    /// Begins to look at a process.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(super) fn start(pid: Pid, how: How) -> Result<Self> {
        let (tell, told) = mpsc::channel();
        let warm = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&warm);
        let work = move || look(pid, how, &tell, &heard);
        let thread = std::thread::Builder::new().name("looker".to_owned()).spawn(work);
        let thread = thread.context("cannot start a thread (looker)")?;
        match told.recv() {
            Ok(stopper) => Ok(Self { thread, stopper, warm }),
            Err(_) => Err(joined(thread).err().unwrap_or_else(|| anyhow!("looking ended before it began"))),
        }
    }

    /// Waits until it has looked often enough to be steady.
    ///
    /// # Errors
    /// That does not come about.
    pub(super) fn warm_up(&self) -> Result<()> {
        let begin = Instant::now();
        while !self.warm.load(Ordering::Relaxed) {
            if self.thread.is_finished() || begin.elapsed() > Duration::from(PATIENCE) {
                bail!("looking did not become steady");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether it has ended by itself.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it; its looks after the first steady one.
    ///
    /// # Errors
    /// The machine could not be looked at any more.
    pub(super) fn end(self) -> Result<Vec<Look>> {
        self.stopper.stop();
        joined(self.thread)
    }
}

fn joined(thread: JoinHandle<Result<Vec<Look>>>) -> Result<Vec<Look>> {
    thread.join().map_err(|_| anyhow!("looking has failed"))?
}

/// The service's host, which reads counts also for policies that do not ask for them.
struct Asked {
    served: ServiceHost,
    counts: bool,
}

impl Host for Asked {
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

fn look(pid: Pid, how: How, tell: &mpsc::Sender<Stopper>, warm: &AtomicBool) -> Result<Vec<Look>> {
    let How { kind, counting, budget, threads, lasting, machine, proc } = how;
    let usable = machine.cpus();
    let counts = counting.is_some();
    let options = Options { tags: true, counting: counting.unwrap_or(Choice::Off), ..Options::default() };
    let live = Live::with(&proc, &[], &usable, options)?;
    let stopper = live.stopper();
    let shared = SharedState::new(Registry::new(Reach::All));
    let start = process::stat(&proc, pid)?.start;
    let mark = Mark::Process { pid: pid.0, start: start.0 };
    shared.tag(By::User(rustix::process::geteuid().as_raw()), mark)?;
    let settings = Settings {
        interval: TICK,
        penalty: PenaltySettings { budget, ..PenaltySettings::default() },
        ..Settings::of(kind)
    };
    let served = ServiceHost::new(live, shared, proc, budget, false, Arc::new(Silent));
    let mut host = Asked { served, counts };
    tell.send(stopper).map_err(|_| anyhow!("nobody waits for it"))?;

    let mut policy = policy(kind, &machine, &settings);
    let mut observer = Observer::new(usable);
    let mut looks: Vec<Look> = Vec::new();
    let mut before: Vec<Look> = Vec::new();
    let looked = drive(&mut host, &mut *policy, &mut observer, &mut |step| {
        let look = note(step);
        if looks.is_empty() {
            before.push(look);
            let lasted = before.first().map_or(Span::ZERO, |first| look.at.since(first.at));
            if before.len() < WARM_LOOKS || lasted < WARM || look.threads < threads {
                return if lasted < PATIENCE { Go::On } else { Go::Stop };
            }
            warm.store(true, Ordering::Relaxed);
        }
        looks.push(look);
        let lasted = looks.first().map_or(Span::ZERO, |first| look.at.since(first.at));
        match lasting {
            Some(wanted) if lasted >= wanted && looks.len() > LOOKS || lasted >= wanted + PATIENCE => {
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
        bail!("looking did not become steady: {} looks, {seen} of {threads} threads seen", before.len());
    }
    Ok(looks)
}

fn note(step: &Step<'_>) -> Look {
    let many = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Look {
        at: step.sample.at,
        worked: now(ClockId::ProcessCPUTime),
        threads: many(step.sample.threads.len()),
        counted: many(step.sample.threads.iter().filter(|thread| thread.counts.is_some()).count()),
    }
}

/// A clock of the kernel's.
fn now(clock: ClockId) -> Span {
    Span::from(Duration::try_from(clock_gettime(clock)).unwrap_or_default())
}

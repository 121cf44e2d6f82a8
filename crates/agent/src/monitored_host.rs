//! The monitored host: the live machine as the monitor of a run and attach need it, with close
//! samples now and then, threads left alone by request, and a pause on Ctrl-Z.

use crate::narrator::{Narrator, Silent};
use crate::restoration::RestorationFaults;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trimtab_core::balance::{Act, Decision, Outcome, Reason, Settled, Wanted};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Left, Notice, Sample, Unfetched};
use trimtab_core::sampling_budget::CLOSE_SAMPLES;
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::run_summary::{CloseSample, SwitchCounts};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;
use trimtab_linux::host::{Live, LiveError, Restored};
use trimtab_linux::perf::{Choice, Missing, Why};

/// The next close sample comes when the age of the run has grown to this many per cent.
const CLOSE_AGE_PERCENT: u32 = 110;
/// The longest time between two close samples, unless their cost asks for more. Chosen.
const CLOSE_PERIOD_MAX: Duration = Duration::from_secs(5);
/// The longest time until a request to pause is noticed. Chosen: people do not notice it.
const PAUSE_LATENCY: Span = Span::from_ms(100);

/// What hardware counts.
#[derive(Clone, Debug, Default)]
pub struct CountingOptions {
    /// What is to be counted.
    pub choice: Choice,
    /// Whether it is counted also where no policy asks for it.
    pub always: bool,
}

/// The live host, as it is asked for here.
#[derive(Debug)]
pub struct MonitoredHost {
    live: Live,
    /// Since when, and how old the run is at the next close sample; `None` if none is wanted.
    closely: Option<(Instant, Duration)>,
    /// Whether close samples also find out what memory is touched between them.
    touching: bool,
    /// Threads that may run on fewer CPUs than these are left alone.
    respected: Option<CpuSet>,
    /// Whether hardware counts also where the policy does not ask for it.
    counts: bool,
    /// Hears what is counted, and what became of memory that was to follow threads.
    narrator: Arc<dyn Narrator>,
    pause: Option<Pause>,
}

/// A pause on request, as by Ctrl-Z: masks are given back before, and set again after.
#[derive(Debug)]
struct Pause {
    asked: Arc<AtomicBool>,
    /// Where threads are held.
    held: BTreeMap<ThreadId, CpuSet>,
    /// Time of the last sample.
    at: Moment,
}

impl Pause {
    fn note(&mut self, decisions: &[Decision], outcomes: &[Outcome]) {
        for (decision, outcome) in decisions.iter().zip(outcomes) {
            match &decision.act {
                _ if outcome.end != Settled::Applied => {}
                Act::Confine(to) => drop(self.held.insert(decision.thread, to.clone())),
                Act::Release => drop(self.held.remove(&decision.thread)),
                Act::Nudge(_) | Act::Fetch(_) => {}
            }
        }
    }
}

impl MonitoredHost {
    /// The host, as it is.
    pub fn new(live: Live) -> Self {
        Self {
            live,
            closely: None,
            touching: false,
            respected: None,
            counts: false,
            narrator: Arc::new(Silent),
            pause: None,
        }
    }

    /// With close samples now and then, for a report.
    pub fn closely(mut self, wanted: bool) -> Self {
        self.closely = wanted.then(|| (Instant::now(), Duration::ZERO));
        self
    }

    /// With what memory is touched between two close samples, if `wanted`.
    pub fn touching(mut self, wanted: bool) -> Self {
        self.touching = wanted;
        self
    }

    /// With what hardware counts in every sample, if `always`, or when the policy asks for it. What
    /// can be counted, and why not more, is said once.
    pub fn counting(mut self, always: bool, narrator: Arc<dyn Narrator>) -> Self {
        (self.counts, self.narrator) = (always, narrator);
        self
    }

    /// Says what can be counted when that is known, and when it changes.
    fn tell_counting(&self, sample: &Sample) {
        let told = |notice: &Notice| matches!(notice, Notice::Counting(_));
        let Some(standing) = self.live.counting().filter(|_| sample.notices.iter().any(told)) else { return };
        let why = standing.missing.iter().find(|missing| missing.why != Why::NotAsked);
        let but = standing.recipe.as_ref().is_some_and(|recipe| recipe.no_guests);
        let but = if but { " but for virtual machines, to which KVM lends the counters" } else { "" };
        match why {
            Some(Missing { rung, why }) => {
                self.narrator.warning(&format!("counted is {}{but}, not {rung}: {why}", standing.rung));
            }
            None => self.narrator.detail(&format!("counted is {}{but}", standing.rung)),
        }
    }

    /// Leaves threads alone that may run on fewer CPUs than these.
    pub fn respecting(mut self, usable: Option<CpuSet>) -> Self {
        self.respected = usable;
        self
    }

    /// Stops this process when that is asked for by this flag, and goes on when it is continued.
    pub fn pausing(mut self, asked: Arc<AtomicBool>) -> Self {
        self.pause = Some(Pause { asked, held: BTreeMap::new(), at: Moment::default() });
        self
    }

    /// Stops this process; meanwhile every thread has its own mask.
    fn sleep(&mut self) -> Result<(), LiveError> {
        let Some(pause) = &self.pause else { return Ok(()) };
        let again = |(thread, cpus): (&ThreadId, &CpuSet)| Decision {
            thread: *thread,
            act: Act::Confine(cpus.clone()),
            reason: Reason::Start,
            gain: None,
        };
        let again: Vec<Decision> = pause.held.iter().map(again).collect();
        self.live.restore();
        // Of the signal alone it is known that it stops: what the terminal sends is ours by now.
        let _ = emulate_default_handler(SIGTSTP);
        // A mask that cannot be set any more is reported with the next sample.
        self.live.apply(&again).map(drop)
    }

    /// What close samples found.
    pub fn close(&self, machine: &Machine) -> CloseSample {
        let audit = self.live.audit();
        let nodes = machine.nodes().iter().map(|node| (node.os, machine.cpus_of(&node.near))).collect();
        let counted = |thread: &trimtab_linux::host::ThreadAudit| SwitchCounts {
            sleeps: thread.voluntary,
            preempted: thread.involuntary,
            migrations: thread.migrations,
        };
        CloseSample {
            threads: audit.threads.iter().map(|thread| (thread.id, counted(thread))).collect(),
            remote: audit.remote_share(&nodes),
            huge: audit.huge_share(),
            resident: audit.resident(),
            touched: audit.touched(),
        }
    }

    /// Why a virtual machine could not be asked for its CPUs again.
    pub fn vm_fault(&self) -> Option<String> {
        self.live.facts().vm_fault
    }

    /// Gives all masks back; says too why no record of them was kept, if so.
    pub fn restore(&mut self) -> (Restored, RestorationFaults) {
        let restored = self.live.restore();
        (restored, RestorationFaults::of(&self.live))
    }
}

/// The CPU time of this thread: what a sample costs, however busy the machine is.
fn spent() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// Says what became of memory that was to follow threads.
pub(crate) fn tell_memory(sample: &Sample, narrator: &dyn Narrator) {
    for notice in &sample.notices {
        let Notice::Memory(fetched) = notice else { continue };
        match &fetched.why {
            // A few pages are always in use.
            None | Some(Unfetched::Ended | Unfetched::Stopped) => narrator.detail(&fetched.to_string()),
            Some(Unfetched::Busy) if fetched.moved >= fetched.left => narrator.detail(&fetched.to_string()),
            Some(Unfetched::OneNode) => {
                let why = fetched.why.iter().map(ToString::to_string).collect::<String>();
                narrator.warning(&format!("--move-memory moves nothing here: {why}"));
            }
            Some(_) => narrator.warning(&fetched.to_string()),
        }
    }
}

impl Host for MonitoredHost {
    type Error = LiveError;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, LiveError> {
        let counted = Wanted { counts: wanted.counts || self.counts, ..wanted.clone() };
        let mut sample = self.live.observe(&counted)?;
        self.tell_counting(&sample);
        tell_memory(&sample, &*self.narrator);
        if let Some((began, due)) = &mut self.closely
            && began.elapsed() >= *due
        {
            let before = spent();
            self.live.look_closely();
            if self.touching {
                self.live.forget_touched();
            }
            let (now, cost) = (began.elapsed(), spent().saturating_sub(before));
            let later = (now * CLOSE_AGE_PERCENT / 100).min(now + CLOSE_PERIOD_MAX);
            *due = later.max(now + Duration::from(CLOSE_SAMPLES.payoff(cost.into())));
        }
        if let Some(usable) = &self.respected {
            for info in &mut sample.news {
                if info.left.is_none() && info.home != *usable && info.home.is_subset(usable) {
                    info.left = Some(Left::Asked);
                }
            }
        }
        if let Some(pause) = &mut self.pause {
            pause.at = sample.at;
            for thread in &sample.gone {
                pause.held.remove(thread);
            }
        }
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, LiveError> {
        let outcomes = self.live.apply(decisions)?;
        if let Some(pause) = &mut self.pause {
            pause.note(decisions, &outcomes);
        }
        Ok(outcomes)
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, LiveError> {
        let Some(pause) = &self.pause else { return self.live.wait(until) };
        let mut next = pause.at;
        loop {
            if self.pause.as_ref().is_some_and(|pause| pause.asked.swap(false, Ordering::Relaxed)) {
                self.sleep()?;
            }
            next = (next + PAUSE_LATENCY).min(until);
            match self.live.wait(next)? {
                Awake::Due if next < until => {}
                awake => return Ok(awake),
            }
        }
    }
}

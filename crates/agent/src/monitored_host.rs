//! Monitored host: the live machine for the monitor of a run and for attach, with close samples at
//! intervals, threads left alone by request, and a pause on Ctrl-Z. A *close sample* reads data of
//! an audit ([`Live::look_closely`]), which is too expensive to read in every sample.

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
use trimtab_linux::host::{Live, LiveError, ReadAtOnce, Restored};
use trimtab_linux::perf::{Choice, Missing, Why};

/// Age of the run at the next close sample, in per cent of its present age.
const CLOSE_AGE_PERCENT: u32 = 110;
/// Longest time between two close samples, unless their cost requires more. Chosen.
const CLOSE_PERIOD_MAX: Duration = Duration::from_secs(5);
/// Longest time until a request to pause is noticed. Chosen: too short for a user to notice.
const PAUSE_LATENCY: Span = Span::from_ms(100);

/// Hardware counters to read.
#[derive(Clone, Debug, Default)]
pub struct CountingOptions {
    /// The counters.
    pub choice: Choice,
    /// Whether they are read also if no policy requests them.
    pub always: bool,
}

/// Live host with these additions.
#[derive(Debug)]
pub struct MonitoredHost {
    live: Live,
    /// Start of the run, and its age at the next close sample; `None` if none is wanted.
    closely: Option<(Instant, Duration)>,
    /// Whether close samples also find the memory that is touched between them.
    touching: bool,
    /// Threads that may run only on a part of these CPUs are not moved.
    respected: Option<CpuSet>,
    /// Whether hardware counters are read also if the policy does not request them.
    counts: bool,
    /// Gets notices of the counters in use, and of page migrations after threads.
    narrator: Arc<dyn Narrator>,
    /// Whether threads are read all at once, as last told.
    at_once: ReadAtOnce,
    pause: Option<Pause>,
}

/// Pause on request, as by Ctrl-Z: masks are given back before, and set again after.
#[derive(Debug)]
struct Pause {
    asked: Arc<AtomicBool>,
    /// CPUs to which threads are confined.
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
    /// Wraps the live host without additions.
    pub fn new(live: Live) -> Self {
        Self {
            live,
            closely: None,
            touching: false,
            respected: None,
            counts: false,
            narrator: Arc::new(Silent),
            at_once: ReadAtOnce::NotNeeded,
            pause: None,
        }
    }

    /// Takes close samples at intervals, for a report.
    pub fn closely(mut self, wanted: bool) -> Self {
        self.closely = wanted.then(|| (Instant::now(), Duration::ZERO));
        self
    }

    /// Finds the memory that is touched between two close samples, if `wanted`.
    pub fn touching(mut self, wanted: bool) -> Self {
        self.touching = wanted;
        self
    }

    /// Reads hardware counters in every sample, if `always`, or if the policy requests them. The
    /// rung that is reached, and the reason why not a better one, is reported once.
    pub fn counting(mut self, always: bool, narrator: Arc<dyn Narrator>) -> Self {
        (self.counts, self.narrator) = (always, narrator);
        self
    }

    /// Reports the rung of counting when it is known, and when it changes.
    fn tell_counting(&self, sample: &Sample) {
        let told = |notice: &Notice| matches!(notice, Notice::Counting(_));
        let Some(standing) = self.live.counting().filter(|_| sample.notices.iter().any(told)) else { return };
        let why = standing.missing.iter().find(|missing| missing.why != Why::NotAsked);
        let but = standing.recipe.as_ref().is_some_and(|recipe| recipe.no_guests);
        let but = if but { " but for virtual machines, to which KVM lends the counters" } else { "" };
        match why {
            Some(Missing { rung, why }) => {
                self.narrator.warning(&format!("counters: {}{but}, not {rung}: {why}", standing.rung));
            }
            None => self.narrator.detail(&format!("counters: {}{but}", standing.rung)),
        }
    }

    /// Does not move threads that may run only on a part of these CPUs.
    pub fn respecting(mut self, usable: Option<CpuSet>) -> Self {
        self.respected = usable;
        self
    }

    /// Stops this process when the flag requests it, and returns when the process is continued.
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
        // Only the default action stops the process: a SIGTSTP of the terminal meets our own
        // handler.
        let _ = emulate_default_handler(SIGTSTP);
        // A mask that can no longer be set is reported with the next sample.
        self.live.apply(&again).map(drop)
    }

    /// Returns the results of close samples.
    pub fn close(&self) -> CloseSample {
        let audit = self.live.audit();
        let counted = |thread: &trimtab_linux::host::ThreadAudit| SwitchCounts {
            sleeps: thread.voluntary,
            preempted: thread.involuntary,
            migrations: thread.migrations,
        };
        CloseSample {
            threads: audit.threads.iter().map(|thread| (thread.id, counted(thread))).collect(),
            huge: audit.huge_share(),
            resident: audit.resident(),
            touched: audit.touched(),
            memory: audit.memory.into_iter().map(|(pid, memory)| (pid.0, memory.nodes)).collect(),
        }
    }

    /// Returns why a virtual machine could not be asked for its CPUs again.
    pub fn vm_fault(&self) -> Option<String> {
        self.live.facts().vm_fault
    }

    /// Gives all masks back. Also returns the reason if no journal of them was kept.
    pub fn restore(&mut self) -> (Restored, RestorationFaults) {
        let restored = self.live.restore();
        (restored, RestorationFaults::of(&self.live))
    }
}

/// Returns the CPU time of this thread, which measures a sample's cost however busy the machine is.
fn spent() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// Reports how the threads of large processes are read, when it changes. `told` is the state
/// that was told last.
pub(crate) fn tell_at_once(told: &mut ReadAtOnce, now: ReadAtOnce, narrator: &dyn Narrator) {
    if std::mem::replace(told, now) == now {
        return;
    }
    match now {
        ReadAtOnce::NotNeeded | ReadAtOnce::Opening => {}
        ReadAtOnce::Open => {
            narrator.detail("threads of large processes are read all at once, inside the kernel")
        }
        ReadAtOnce::Refused(why) => {
            narrator.detail(&format!("threads are read one by one, which costs more: {why}"));
        }
    }
}

/// Reports the result of a page migration after threads.
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
        tell_at_once(&mut self.at_once, self.live.at_once(), &*self.narrator);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narrator::Severity;
    use std::sync::Mutex;
    use trimtab_linux::task_iterator::NotAtOnce;

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<String>>);

    impl Narrator for Told {
        fn say(&self, _: Severity, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    #[test]
    fn a_change_of_reading_is_told_once_and_with_its_reason() {
        let (lines, mut told) = (Told::default(), ReadAtOnce::NotNeeded);
        let refused = ReadAtOnce::Refused(NotAtOnce::NotPermitted);
        for state in [ReadAtOnce::NotNeeded, ReadAtOnce::Opening, refused, refused, ReadAtOnce::Open] {
            tell_at_once(&mut told, state, &lines);
        }
        let lines = lines.0.into_inner().unwrap();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("one by one") && lines[0].contains("CAP_BPF"), "{lines:?}");
        assert!(lines[1].contains("all at once"), "{lines:?}");
    }
}

//! A live host that is watched for `run` and `attach`: with a closer look now and then, and threads left alone by request.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use trimtab_core::audit::{Close, Counted};
use trimtab_core::balance::{Decision, Outcome, Wanted};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::observe::{Left, Sample};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;
use trimtab_core::topology::Machine;
use trimtab_linux::live::{Live, LiveError, Restored};

/// How much longer than a close look the time until the next one is at least: a hundredth of one core goes into looking.
const PATIENCE: u32 = 100;
/// The next close look comes when the run is so much older, in hundredths, than at the last.
const LATER_PERCENT: u32 = 110;
/// And never later than this after the last. Chosen.
const SELDOM: Duration = Duration::from_secs(5);

/// The live host, as it is asked for here.
#[derive(Debug)]
pub struct Watched {
    live: Live,
    /// Since when, and when the next close look is due; `None` when nobody wants one.
    closely: Option<(Instant, Duration)>,
    /// Threads that may run on fewer CPUs than these are left alone.
    respected: Option<CpuSet>,
}

impl Watched {
    /// The host, as it is.
    pub fn new(live: Live) -> Self {
        Self { live, closely: None, respected: None }
    }

    /// With a closer look now and then, for a report.
    pub fn closely(mut self, wanted: bool) -> Self {
        self.closely = wanted.then(|| (Instant::now(), Duration::ZERO));
        self
    }

    /// Leaves threads alone that may run on fewer CPUs than these.
    pub fn respecting(mut self, usable: Option<CpuSet>) -> Self {
        self.respected = usable;
        self
    }

    /// What closer looks found.
    pub fn close(&self, machine: &Machine) -> Close {
        let audit = self.live.audit();
        let nodes = machine.nodes().iter().map(|node| (node.os, machine.cpus_of(&node.near))).collect();
        let counted = |thread: &trimtab_linux::live::ThreadAudit| Counted {
            sleeps: thread.voluntary,
            preempted: thread.involuntary,
            migrations: thread.migrations,
        };
        Close {
            threads: audit.threads.iter().map(|thread| (thread.id, counted(thread))).collect(),
            remote: audit.remote_share(&nodes),
            huge: audit.huge_share(),
        }
    }

    /// Gives all masks back; says too why no record of them was kept, if so.
    pub fn restore(&mut self) -> (Restored, Option<String>) {
        let restored = self.live.restore();
        (restored, self.live.facts().keeper_fault)
    }
}

/// The CPU time of this thread: what looking costs, however busy the machine is.
fn spent() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

impl Host for Watched {
    type Error = LiveError;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, LiveError> {
        let mut sample = self.live.observe(wanted)?;
        if let Some((began, due)) = &mut self.closely
            && began.elapsed() >= *due
        {
            let before = spent();
            self.live.look_closely();
            let (now, cost) = (began.elapsed(), spent().saturating_sub(before));
            let later = (now * LATER_PERCENT / 100).min(now + SELDOM);
            *due = later.max(now + cost * PATIENCE);
        }
        if let Some(usable) = &self.respected {
            for info in &mut sample.news {
                if info.left.is_none() && info.home != *usable && info.home.is_subset(usable) {
                    info.left = Some(Left::Asked);
                }
            }
        }
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, LiveError> {
        self.live.apply(decisions)
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, LiveError> {
        self.live.wait(until)
    }
}

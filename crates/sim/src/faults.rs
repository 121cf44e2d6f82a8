//! Fault injection between a policy and the machine: a host over a host.
//!
//! Problem: live machines lose readings, return old readings, refuse moves or apply them late, and
//! their clocks jump. Policies must remain correct, and must recover. Idea: each fault is a
//! probability per sample or per decision, drawn from a stream of its own, so that switching one
//! fault on does not change the draws for others. The inner host remains correct.
//!
//! Properties: without faults everything passes unchanged. Equal settings and seed give equal
//! faults. Every decision is answered once; a decision that is applied late is first answered with
//! [`Settled::Pending`], and its end is in a later sample.

use crate::rng::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trimtab_core::balance::{Decision, Outcome, Refusal, Settled, Wanted};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Notice, Sample, ThreadSample};
use trimtab_core::time::{Moment, Span};

/// Longest jump of the clock.
const CLOCK_JUMP_MAX: Span = Span::from_ms(1_000);

/// How often each fault happens. All zero: no faults.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Probability per sample and thread that the thread's reading is lost.
    pub lost: f64,
    /// Probability per sample and thread that the thread's reading is that of the previous sample.
    pub stale: f64,
    /// Probability per decision that it is refused.
    pub refused: f64,
    /// Probability per decision that it is applied, and reported, only at the next sample.
    pub delayed: f64,
    /// Longest delay of each sample.
    pub late: Span,
    /// Probability per sample that the clock jumps forward, by up to a second.
    pub jumps: f64,
    /// Time from which there are no faults, so that the policy can settle.
    pub until: Option<Moment>,
}

/// One stream of random numbers per kind of fault.
#[derive(Debug)]
struct Draws {
    lost: Rng,
    stale: Rng,
    refused: Rng,
    delayed: Rng,
    late: Rng,
    jumps: Rng,
}

/// Host with injected faults.
#[derive(Debug)]
pub struct Faulty<'a, H> {
    host: &'a mut H,
    faults: Faults,
    draws: Draws,
    /// Whether faults can still happen.
    active: bool,
    /// Last reading of each thread.
    last: BTreeMap<ThreadId, ThreadSample>,
    /// Decisions to be done at the next sample.
    pending: Vec<Decision>,
    /// Lead of the reported clock over the true one.
    ahead: Span,
}

impl<'a, H: Host> Faulty<'a, H> {
    /// Returns a faulty host over another host.
    pub fn new(host: &'a mut H, faults: Faults, rng: &Rng) -> Self {
        let draws = Draws {
            lost: rng.fork("lost"),
            stale: rng.fork("stale"),
            refused: rng.fork("refused"),
            delayed: rng.fork("delayed"),
            late: rng.fork("late"),
            jumps: rng.fork("jumps"),
        };
        Self {
            host,
            faults,
            draws,
            active: true,
            last: BTreeMap::new(),
            pending: Vec::new(),
            ahead: Span::ZERO,
        }
    }

    /// Applies the moves that were put off, and adds their outcomes to the sample.
    fn catch_up(&mut self, sample: &mut Sample) -> Result<(), H::Error> {
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            sample.settled.extend(self.host.apply(&pending)?);
        }
        Ok(())
    }

    fn spoil(&mut self, sample: &mut Sample) {
        let (faults, draws, last) = (self.faults, &mut self.draws, &self.last);
        sample.threads.retain(|_| draws.lost.unit() >= faults.lost);
        for read in &mut sample.threads {
            if draws.stale.unit() < faults.stale
                && let Some(before) = last.get(&read.id)
            {
                read.clone_from(before);
            }
        }
        if draws.jumps.unit() < faults.jumps {
            let by = Span(draws.jumps.below(CLOCK_JUMP_MAX.0));
            self.ahead = self.ahead + by;
            sample.notices.push(Notice::ClockJump(by));
        }
    }
}

impl<H: Host> Host for Faulty<'_, H> {
    type Error = H::Error;

    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, H::Error> {
        let mut sample = self.host.observe(wanted)?;
        self.active &= self.faults.until.is_none_or(|until| sample.at < until);
        self.catch_up(&mut sample)?;
        let read = sample.threads.clone();
        if self.active {
            self.spoil(&mut sample);
        }
        for id in &sample.gone {
            self.last.remove(id);
        }
        self.last.extend(read.into_iter().map(|read| (read.id, read)));
        sample.at = sample.at + self.ahead;
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, H::Error> {
        let mut answers: Vec<Option<Settled>> = Vec::new();
        let mut now = Vec::new();
        for decision in decisions {
            let refused = self.draws.refused.unit() < self.faults.refused && self.active;
            let delayed = self.draws.delayed.unit() < self.faults.delayed && self.active;
            answers.push(if refused {
                Some(Settled::Refused(Refusal::Other))
            } else if delayed {
                self.pending.push(decision.clone());
                Some(Settled::Pending)
            } else {
                now.push(decision.clone());
                None
            });
        }
        let mut done = self.host.apply(&now)?.into_iter();
        let answer = |(decision, answer): (&Decision, Option<Settled>)| match answer {
            Some(end) => Some(Outcome { thread: decision.thread, end }),
            None => done.next(),
        };
        Ok(decisions.iter().zip(answers).filter_map(answer).collect())
    }

    fn wait(&mut self, until: Moment) -> Result<Awake, H::Error> {
        let late = if self.active { Span(self.draws.late.below(self.faults.late.0)) } else { Span::ZERO };
        self.host.wait(until - self.ahead + late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Simulated;
    use crate::kernel::Kernel;
    use crate::model::Model;
    use crate::program::{ProgramSpec, WaitMode};
    use crate::world::World;
    use trimtab_core::balance::{Act, Reason};
    use trimtab_core::topology::parse_synthetic;

    fn host() -> Simulated {
        let model = Model::plain(parse_synthetic("core:2").unwrap());
        let kernel = Kernel::preset("linux-6.12", 2).unwrap();
        let program = ProgramSpec::spmd("app", 3, Span::from_ms(2_000), WaitMode::Spin);
        Simulated::new(World::new(model, &kernel, vec![program], 1), Moment(5_000_000_000))
    }

    fn samples(faults: Faults, count: u64) -> Vec<Sample> {
        let mut host = host();
        let mut faulty = Faulty::new(&mut host, faults, &Rng::new(3));
        let mut samples = Vec::new();
        for turn in 1..=count {
            samples.push(faulty.observe(&Wanted::all()).unwrap());
            let next = samples.last().map_or(Moment(0), |sample| sample.at) + Span::from_ms(10);
            assert_eq!(faulty.wait(next).unwrap(), Awake::Due, "{turn}");
        }
        samples
    }

    fn confine(thread: u32) -> Decision {
        let act = Act::Confine("1".parse().unwrap());
        Decision { thread: ThreadId(thread), act, reason: Reason::Start, gain: None }
    }

    #[test]
    fn without_faults_everything_passes() {
        let mut plain = host();
        let mut expected = Vec::new();
        for turn in 1..=5 {
            expected.push(plain.observe(&Wanted::all()).unwrap());
            plain.wait(Moment(turn * 10_000_000)).unwrap();
        }
        assert_eq!(samples(Faults::default(), 5), expected);
        let over = Faults { lost: 1.0, refused: 1.0, until: Some(Moment(0)), ..Faults::default() };
        assert_eq!(samples(over, 5), expected, "the time of faults is over");
    }

    #[test]
    fn readings_are_lost_or_old_and_clocks_jump() {
        assert!(
            samples(Faults { lost: 1.0, ..Faults::default() }, 3)
                .iter()
                .all(|sample| sample.threads.is_empty())
        );
        let stale = samples(Faults { stale: 1.0, ..Faults::default() }, 3);
        let sound = samples(Faults::default(), 3);
        assert_eq!(stale[2].threads, sound[1].threads);
        assert_ne!(stale[2].threads, sound[2].threads);
        let jumped = samples(Faults { jumps: 1.0, ..Faults::default() }, 3);
        assert!(jumped.iter().all(|sample| matches!(sample.notices[..], [Notice::ClockJump(_)])));
        assert!(jumped[2].at > Moment(20_000_000));
        let late = samples(Faults { late: Span::from_ms(5), ..Faults::default() }, 3);
        assert!(late[2].at > Moment(20_000_000) && late[2].at < Moment(30_000_000), "{:?}", late[2].at);
    }

    #[test]
    fn moves_are_refused_or_applied_at_the_next_sample() {
        let mut host = host();
        let refuses = Faults { refused: 1.0, ..Faults::default() };
        let mut faulty = Faulty::new(&mut host, refuses, &Rng::new(3));
        faulty.observe(&Wanted::all()).unwrap();
        let ends = faulty.apply(&[confine(0), confine(1)]).unwrap();
        assert!(ends.iter().all(|outcome| outcome.end == Settled::Refused(Refusal::Other)));
        let mut faulty = Faulty::new(&mut host, Faults { delayed: 1.0, ..Faults::default() }, &Rng::new(3));
        let ends = faulty.apply(&[confine(0)]).unwrap();
        assert_eq!(ends, [Outcome { thread: ThreadId(0), end: Settled::Pending }]);
        faulty.wait(Moment(10_000_000)).unwrap();
        let sample = faulty.observe(&Wanted::all()).unwrap();
        assert_eq!(sample.settled, [Outcome { thread: ThreadId(0), end: Settled::Applied }]);
    }
}

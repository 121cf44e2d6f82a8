//! What goes wrong between a policy and the machine: a host over a host.
//!
//! Problem: live machines lose readings, tell old ones, refuse moves, do them late, and their clocks jump; policies must stay sound,
//! and recover. Idea: each fault is a probability per look or per decision, drawn from a stream of its own, so that a fault that is
//! switched on does not change what others draw. The host below stays sound.
//!
//! Properties: without faults everything passes unchanged; equal faults and seed, equal trouble; every decision is answered once, those
//! that are done late with [`Settled::Pending`] first and their end with a later sample.

use crate::rng::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trimtab_core::balance::{Decision, Outcome, Refusal, Settled, Wanted};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Notice, Sample, ThreadSample};
use trimtab_core::time::{Moment, Span};

/// The longest jump of the clock.
const JUMP: Span = Span::from_ms(1_000);

/// How often what goes wrong. All zero: nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Per look and thread: its reading is lost.
    pub lost: f64,
    /// Per look and thread: its reading is that of the look before.
    pub stale: f64,
    /// Per decision: refused.
    pub refused: f64,
    /// Per decision: done only at the next look, and told then.
    pub delayed: f64,
    /// Each look comes late by up to this.
    pub late: Span,
    /// Per look: the clock jumps forward by up to a second.
    pub jumps: f64,
    /// No faults from here on, so that the policy can settle.
    pub until: Option<Moment>,
}

/// A stream per kind of fault.
#[derive(Debug)]
struct Draws {
    lost: Rng,
    stale: Rng,
    refused: Rng,
    delayed: Rng,
    late: Rng,
    jumps: Rng,
}

/// A host to which things happen.
#[derive(Debug)]
pub struct Faulty<'a, H> {
    host: &'a mut H,
    faults: Faults,
    draws: Draws,
    /// Whether faults are still to happen.
    active: bool,
    /// What was read last of each thread.
    last: BTreeMap<ThreadId, ThreadSample>,
    /// Decisions to be done at the next look.
    pending: Vec<Decision>,
    /// By how much the told clock is ahead.
    ahead: Span,
}

impl<'a, H: Host> Faulty<'a, H> {
    /// Over another host.
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

    /// What became of the moves that were put off.
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
            let by = Span(draws.jumps.below(JUMP.0));
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
    use crate::program::{Program, Wait};
    use crate::world::World;
    use trimtab_core::balance::{Act, Reason};
    use trimtab_core::topology::parse_synthetic;

    fn host() -> Simulated {
        let model = Model::plain(parse_synthetic("core:2").unwrap());
        let kernel = Kernel::preset("linux-6.12", 2).unwrap();
        let program = Program::spmd("app", 3, Span::from_ms(2_000), Wait::Spin);
        Simulated::new(World::new(model, &kernel, vec![program], 1), Moment(5_000_000_000))
    }

    fn looks(faults: Faults, count: u64) -> Vec<Sample> {
        let mut host = host();
        let mut faulty = Faulty::new(&mut host, faults, &Rng::new(3));
        let mut samples = Vec::new();
        for look in 1..=count {
            samples.push(faulty.observe(&Wanted::all()).unwrap());
            let next = samples.last().map_or(Moment(0), |sample| sample.at) + Span::from_ms(10);
            assert_eq!(faulty.wait(next).unwrap(), Awake::Due, "{look}");
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
        for look in 1..=5 {
            expected.push(plain.observe(&Wanted::all()).unwrap());
            plain.wait(Moment(look * 10_000_000)).unwrap();
        }
        assert_eq!(looks(Faults::default(), 5), expected);
        let over = Faults { lost: 1.0, refused: 1.0, until: Some(Moment(0)), ..Faults::default() };
        assert_eq!(looks(over, 5), expected, "the time of faults is over");
    }

    #[test]
    fn readings_are_lost_or_old_and_clocks_jump() {
        assert!(
            looks(Faults { lost: 1.0, ..Faults::default() }, 3)
                .iter()
                .all(|sample| sample.threads.is_empty())
        );
        let stale = looks(Faults { stale: 1.0, ..Faults::default() }, 3);
        let sound = looks(Faults::default(), 3);
        assert_eq!(stale[2].threads, sound[1].threads);
        assert_ne!(stale[2].threads, sound[2].threads);
        let jumped = looks(Faults { jumps: 1.0, ..Faults::default() }, 3);
        assert!(jumped.iter().all(|sample| matches!(sample.notices[..], [Notice::ClockJump(_)])));
        assert!(jumped[2].at > Moment(20_000_000));
        let late = looks(Faults { late: Span::from_ms(5), ..Faults::default() }, 3);
        assert!(late[2].at > Moment(20_000_000) && late[2].at < Moment(30_000_000), "{:?}", late[2].at);
    }

    #[test]
    fn moves_are_refused_or_done_at_the_next_look() {
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

//! Replay of a recorded run as a [`Host`]: its samples are fed to a policy once more, the same
//! policy or another.
//!
//! Problem: users ask about a finished run: what would another policy have done? Idea: the host
//! gives the recorded samples in order, whatever is requested, and applies nothing. A decision that
//! was also taken in the record gets its recorded outcome; any other is refused as
//! [`Refusal::Replayed`]: if it were answered "applied", the policy would assume places that no
//! later sample shows.
//!
//! Limit: the recorded world does not react. A replay shows where a policy *begins* to differ and
//! why, not how a run under it would have gone: after the first decision that differs, samples show
//! the recorded policy's moves. Samples come at the recorded moments, and hold the counters that
//! the recorded policy requested; others are missing.
//!
//! Properties: the recorded policy with the recorded settings decides as it did, turn for turn
//! ([`Replayed::same`]), since policies are functions of settings and observations. A replay reads
//! nothing except the trace.

use crate::balance::{Act, Decision, Finding, Outcome, Policy, Refusal, Settled, Turn, Wanted};
use crate::drive::{Awake, Go, Host, drive};
use crate::ids::{OsNode, ThreadId};
use crate::observe::{Observer, Sample};
use crate::set::CpuSet;
use crate::time::Moment;
use crate::trace::{StepRecord, Trace};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

/// Host that plays back recorded steps.
#[derive(Debug)]
struct Recorded<'t> {
    steps: &'t [StepRecord],
    /// Step that was observed last, counted from one.
    at: usize,
    /// Threads with a pending decision that the record has too: their outcomes in later samples are
    /// passed on.
    pending: BTreeSet<ThreadId>,
}

impl Host for Recorded<'_> {
    type Error = Infallible;

    fn observe(&mut self, _wanted: &Wanted) -> Result<Sample, Infallible> {
        let mut sample = self.steps.get(self.at).map(|step| step.sample.clone()).unwrap_or_default();
        self.at += 1;
        sample.settled.retain(|outcome| self.pending.remove(&outcome.thread));
        Ok(sample)
    }

    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, Infallible> {
        let step = self.at.checked_sub(1).and_then(|at| self.steps.get(at));
        // Of several equal decisions, the first counts.
        let then = step.map(|step| step.turn.decisions.iter().zip(&step.outcomes).rev());
        let then: BTreeMap<_, _> =
            then.into_iter().flatten().map(|(then, end)| (action_key(then), *end)).collect();
        let outcome = |decision: &Decision| {
            let recorded = then.get(&action_key(decision)).copied();
            recorded.unwrap_or(Outcome { thread: decision.thread, end: Settled::Refused(Refusal::Replayed) })
        };
        let outcomes: Vec<Outcome> = decisions.iter().map(outcome).collect();
        let pending = outcomes.iter().filter(|outcome| outcome.end == Settled::Pending);
        self.pending.extend(pending.map(|outcome| outcome.thread));
        Ok(outcomes)
    }

    fn wait(&mut self, _until: Moment) -> Result<Awake, Infallible> {
        Ok(if self.at < self.steps.len() { Awake::Due } else { Awake::Over })
    }
}

/// Returns thread and action of a decision without its reason: equal for equal actions on the same
/// thread.
fn action_key(decision: &Decision) -> (ThreadId, u8, Option<&CpuSet>, Option<OsNode>) {
    let (kind, node) = match decision.act {
        Act::Confine(_) => (0, None),
        Act::Nudge(_) => (1, None),
        Act::Release => (2, None),
        Act::Fetch(node) => (3, Some(node)),
    };
    (decision.thread, kind, decision.act.to(), node)
}

/// One step as recorded, and as the policy decides it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Moment of the step.
    pub at: Moment,
    /// Number of the step, from 1.
    pub step: usize,
    /// Decisions of the record only.
    pub recorded: Vec<Decision>,
    /// Decisions of the replay only.
    pub replayed: Vec<Decision>,
    /// Decisions of both.
    pub both: Vec<Decision>,
    /// Findings of the record.
    pub found_then: Vec<Finding>,
    /// Findings of the replay.
    pub found_now: Vec<Finding>,
    /// Whether the two turns are equal in everything, including reasons and times.
    pub same: bool,
}

impl Compared {
    fn new(step: usize, record: &StepRecord, turn: &Turn) -> Self {
        let (then, now) = (&record.turn.decisions, &turn.decisions);
        let all = |decisions| -> BTreeSet<_> { <[Decision]>::iter(decisions).map(action_key).collect() };
        let (did, does) = (all(then), all(now));
        Self {
            at: record.sample.at,
            step,
            recorded: then.iter().filter(|one| !does.contains(&action_key(one))).cloned().collect(),
            replayed: now.iter().filter(|one| !did.contains(&action_key(one))).cloned().collect(),
            both: now.iter().filter(|one| did.contains(&action_key(one))).cloned().collect(),
            found_then: record.turn.findings.clone(),
            found_now: turn.findings.clone(),
            same: record.turn == *turn,
        }
    }

    /// Returns whether both took the same actions on the same threads.
    pub fn agrees(&self) -> bool {
        self.recorded.is_empty() && self.replayed.is_empty()
    }
}

/// Result of a replay.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Replayed {
    /// Number of steps.
    pub steps: usize,
    /// Number of steps with the same actions on the same threads.
    pub agreeing: usize,
    /// Number of decisions in both.
    pub both: usize,
    /// Number of decisions in the record only.
    pub only_recorded: usize,
    /// Number of decisions in the replay only.
    pub only_replayed: usize,
    /// First step in which the two differ in anything, from 1.
    pub first_difference: Option<usize>,
}

impl Replayed {
    /// Returns whether every turn was equal in everything.
    pub fn same(&self) -> bool {
        self.first_difference.is_none()
    }

    fn add(&mut self, step: &Compared) {
        self.steps += 1;
        self.agreeing += usize::from(step.agrees());
        self.both += step.both.len();
        self.only_recorded += step.recorded.len();
        self.only_replayed += step.replayed.len();
        if !step.same && self.first_difference.is_none() {
            self.first_difference = Some(step.step);
        }
    }
}

/// Feeds a trace to a policy. `watch` gets every step as a comparison, and as it would be recorded.
pub fn replay(
    trace: &Trace,
    policy: &mut dyn Policy,
    watch: &mut dyn FnMut(&Compared, &StepRecord) -> Go,
) -> Replayed {
    let mut replayed = Replayed::default();
    if trace.steps.is_empty() {
        return replayed;
    }
    let mut host = Recorded { steps: &trace.steps, at: 0, pending: BTreeSet::new() };
    let mut observer = Observer::new(trace.header.usable.clone());
    let mut records = trace.steps.iter();
    let Ok(()) = drive(&mut host, policy, &mut observer, &mut |step| {
        let Some(record) = records.next() else { return Go::Stop };
        let compared = Compared::new(replayed.steps + 1, record, step.turn);
        replayed.add(&compared);
        let again = StepRecord {
            sample: step.sample.clone(),
            turn: step.turn.clone(),
            outcomes: step.outcomes.to_vec(),
        };
        watch(&compared, &again)
    });
    replayed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::{Kind, Reason, Settings};
    use crate::time::Span;
    use crate::topology::parse_synthetic;
    use crate::trace::{Header, VERSION};

    /// Policy that returns the given turns, and keeps the observations.
    struct Scripted {
        turns: Vec<Turn>,
        at: usize,
        seen: Vec<(Moment, Vec<Outcome>)>,
    }

    impl Policy for Scripted {
        fn kind(&self) -> Kind {
            Kind::Float
        }

        fn first(&self) -> Wanted {
            Wanted::all()
        }

        fn decide(&mut self, seen: &crate::observe::Observation<'_>) -> Turn {
            self.seen.push((seen.at, seen.outcomes.to_vec()));
            self.at += 1;
            self.turns.get(self.at - 1).cloned().unwrap_or_default()
        }
    }

    fn confine(thread: u32, cpu: &str) -> Decision {
        let act = Act::Confine(cpu.parse().unwrap());
        Decision { thread: ThreadId(thread), act, reason: Reason::Start, gain: None }
    }

    fn turn(decisions: Vec<Decision>) -> Turn {
        Turn { decisions, ..Turn::default() }
    }

    fn trace(turns: Vec<(Turn, Vec<Outcome>, Vec<Outcome>)>) -> Trace {
        let header = Header {
            version: VERSION,
            policy: Kind::Float,
            settings: Settings::default(),
            command: "x".into(),
            began: None,
            usable: "0-1".parse().unwrap(),
            machine: parse_synthetic("core:2 pu:1").unwrap(),
        };
        let steps = turns.into_iter().enumerate().map(|(at, (turn, outcomes, settled))| {
            let at = Moment(at as u64 * Span::from_ms(100).0);
            StepRecord { sample: Sample { at, settled, ..Sample::default() }, turn, outcomes }
        });
        Trace { header, steps: steps.collect(), end: None, cut: false }
    }

    fn outcome(thread: u32, end: Settled) -> Outcome {
        Outcome { thread: ThreadId(thread), end }
    }

    #[test]
    fn a_repeated_decision_ends_as_recorded_and_any_other_is_refused() {
        let pending = outcome(1, Settled::Pending);
        let recorded = trace(vec![
            (
                turn(vec![confine(1, "0"), confine(2, "1")]),
                vec![pending, outcome(2, Settled::Applied)],
                vec![],
            ),
            (turn(vec![]), vec![], vec![outcome(1, Settled::Applied), outcome(2, Settled::Applied)]),
            (turn(vec![]), vec![], vec![]),
        ]);
        let turns = vec![turn(vec![confine(3, "1"), confine(1, "0")]), turn(vec![]), turn(vec![])];
        let mut policy = Scripted { turns, at: 0, seen: vec![] };
        let mut steps = Vec::new();
        let replayed = replay(&recorded, &mut policy, &mut |compared, _| {
            steps.push(compared.clone());
            Go::On
        });
        assert_eq!(
            replayed,
            Replayed {
                steps: 3,
                agreeing: 2,
                both: 1,
                only_recorded: 1,
                only_replayed: 1,
                first_difference: Some(1)
            }
        );
        assert_eq!(
            (&steps[0].recorded, &steps[0].replayed),
            (&vec![confine(2, "1")], &vec![confine(3, "1")])
        );
        // Of the outcomes in later samples, only those of decisions that were taken again are
        // passed on.
        let refused = outcome(3, Settled::Refused(Refusal::Replayed));
        assert_eq!(policy.seen[1].1, [refused, pending, outcome(1, Settled::Applied)]);
        assert_eq!(policy.seen[2].1, []);
    }

    #[test]
    fn the_same_decisions_are_the_same_run() {
        let turns = [turn(vec![confine(1, "0")]), turn(vec![confine(1, "1"), confine(2, "0")])];
        let recorded = trace(turns.iter().map(|turn| (turn.clone(), vec![], vec![])).collect());
        let mut policy = Scripted { turns: turns.to_vec(), at: 0, seen: vec![] };
        let replayed = replay(&recorded, &mut policy, &mut |_, _| Go::On);
        assert!(replayed.same());
        assert_eq!((replayed.steps, replayed.both), (2, 3));
    }

    /// A comparison in quadratic time would not finish here.
    #[test]
    fn many_decisions_in_one_turn_are_compared() {
        let many = |cpu: &str| turn((0..100_000).map(|thread| confine(thread, cpu)).collect());
        let outcomes = (0..100_000).map(|thread| outcome(thread, Settled::Applied)).collect();
        let recorded = trace(vec![(many("0"), outcomes, vec![]), (many("1"), vec![], vec![])]);
        let mut policy = Scripted { turns: vec![many("0"), many("0")], at: 0, seen: vec![] };
        let replayed = replay(&recorded, &mut policy, &mut |_, _| Go::On);
        assert_eq!(
            (replayed.both, replayed.only_recorded, replayed.only_replayed),
            (100_000, 100_000, 100_000)
        );
        assert!(policy.seen[1].1.iter().all(|outcome| outcome.end == Settled::Applied));
    }

    #[test]
    fn a_trace_without_steps_is_replayed_in_no_time() {
        let mut policy = Scripted { turns: vec![], at: 0, seen: vec![] };
        let replayed = replay(&trace(vec![]), &mut policy, &mut |_, _| Go::On);
        assert_eq!((replayed, policy.at), (Replayed::default(), 0));
    }
}

//! Explanation of a daemon's work: for each program the last decision about its threads, the reason
//! why nothing is done now, and the figures of its threads.
//!
//! Problem: a policy reports findings about all threads together, and a user asks about one tag.
//! "0 moves" may mean that the threads sleep, that they are bound, that another party places them,
//! or that the policy sees nothing to gain. Idea: an [`Explainer`] takes each step of the loop and
//! keeps for each program, which is a tag or a group of tags, the last decision and what its
//! threads did. Facts about the program itself explain more than findings about all programs, so
//! they come first.
//!
//! Properties: without a reading, nothing is said about a program but that. Times and memory that
//! were not read are missing, never zero. The state of a program is kept while the caller says so
//! ([`Explainer::keep`]), so it is bounded by the number of tags. Equal steps give equal answers.

use crate::balance::{Act, Decision, Finding, Outcome, Refusal, Settled};
use crate::drive::Step;
use crate::ids::{Id, OsCpu, OsNode, ProgramId, Pu, ThreadId};
use crate::observe::{ACTIVE_MIN, Observation, ThreadView};
use crate::time::{Moment, Span};
use crate::topology::Machine;
use crate::words::plural;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Explanation of the work on one tag.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Why {
    /// The last decision about a thread; missing if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastDecision>,
    /// Reason why nothing is done, in words; missing while decisions are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still: Option<String>,
    /// Time for which this reason has held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still_for: Option<Span>,
    /// Number of moves that were withheld because they are only observed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub withheld: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A decision about a thread, in words.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LastDecision {
    /// Time since the decision.
    pub age: Span,
    /// Process of the thread.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Name of the thread.
    pub thread: String,
    /// The action: `moved to CPU 3`.
    pub act: String,
    /// The reason.
    pub reason: String,
    /// The outcome: `done`, `not done: only observed`.
    pub end: String,
}

/// Reason why no decision is made about a program.
#[derive(Clone, PartialEq, Debug)]
pub enum Stillness {
    /// It has no threads of its own now.
    NoThreads,
    /// None of its threads was read twice yet.
    Unread,
    /// None of its threads may be moved.
    Left {
        /// Number of threads.
        threads: u32,
        /// Reason, for the first of them.
        why: String,
    },
    /// All of its threads sleep.
    Sleeps {
        /// Number of threads.
        threads: u32,
    },
    /// Each thread that wants a CPU may use a single one.
    OneCpu {
        /// Number of these threads.
        threads: u32,
    },
    /// The policy found this.
    Found(Finding),
    /// The policy found nothing to gain in the last sample.
    Nothing,
}

impl Stillness {
    /// Returns whether two reasons are the same apart from their numbers.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Found(one), Self::Found(other)) => one.word() == other.word(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Stillness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThreads => {
                f.write_str("no thread counts to this tag now: another tag covers its threads")
            }
            Self::Unread => f.write_str("its threads have not been sampled twice yet"),
            Self::Left { threads: 1, why } => write!(f, "its thread may not be moved: {why}"),
            Self::Left { threads, why } => write!(f, "none of its {threads} threads may be moved: {why}"),
            Self::Sleeps { threads: 1 } => f.write_str("its thread sleeps and wants no CPU"),
            Self::Sleeps { threads } => write!(f, "its {threads} threads sleep and want no CPU"),
            Self::OneCpu { threads } => {
                let (threads, may) =
                    (plural(*threads, "computing thread"), if *threads == 1 { "" } else { "each " });
                write!(
                    f,
                    "its {threads} may {may}use one CPU only, by a mask of their own: there is nowhere to move them"
                )
            }
            Self::Found(Finding::OneUnit) => {
                write!(f, "nothing can be gained by moves between nodes: {}", Finding::OneUnit)
            }
            Self::Found(finding) => finding.fmt(f),
            Self::Nothing => f.write_str("the policy saw nothing to gain in the last sample"),
        }
    }
}

/// Figures of a program's threads.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProgramFigures {
    /// Number of living threads.
    pub threads: u32,
    /// Number of threads that wanted a CPU in the last sample in which any was read.
    pub active: u32,
    /// CPU time of its threads while they were watched.
    pub run: Span,
    /// Time that they were ready without a CPU; `None` if it was never read.
    pub wait: Option<Span>,
    /// Share of their memory (lines, faults or pages) on other nodes than theirs, as last read.
    pub far: Option<f64>,
    /// Uncore penalty: busy cycles per request, over all its threads, as last counted.
    pub penalty: Option<f64>,
    /// Moves and releases that were carried out.
    pub moves: u64,
    /// Moves and releases that were refused.
    pub refused: u64,
    /// Moves and releases that were withheld because they are only observed.
    pub withheld: u64,
}

/// Decision as it was made.
#[derive(Clone, Debug)]
struct Made {
    at: Moment,
    thread: ThreadId,
    pid: u32,
    tid: u32,
    name: String,
    decision: Decision,
    end: Settled,
}

/// State of one program.
#[derive(Clone, Debug, Default)]
struct Explained {
    figures: ProgramFigures,
    last: Option<Made>,
    still: Option<(Moment, Stillness)>,
}

/// What the threads of a program did in one sample.
#[derive(Clone, Debug, Default)]
struct Seen {
    threads: u32,
    read: u32,
    active: u32,
    /// Active threads with a home of one CPU.
    confined: u32,
    left: u32,
    why: Option<String>,
    run: Span,
    wait: Option<Span>,
    /// Near and far counts, or pages.
    counted: Option<(u64, u64)>,
    pages: Option<(u64, u64)>,
    /// Busy cycles and requests.
    penalty: Option<(u64, u64)>,
}

/// Explanations of all programs.
#[derive(Clone, Debug, Default)]
pub struct Explainer {
    nodes: BTreeMap<OsCpu, OsNode>,
    /// Whether the machine has a single node, so that no memory is far.
    one_node: bool,
    programs: BTreeMap<ProgramId, Explained>,
    /// Program of each thread with a pending decision.
    pending: BTreeMap<ThreadId, ProgramId>,
    findings: Vec<Finding>,
}

impl Explainer {
    /// Creates an explainer for a machine.
    pub fn new(machine: &Machine) -> Self {
        let node = |(at, &cpu): (usize, &OsCpu)| {
            let core = machine.core_of(Pu::from_index(at));
            Some((cpu, machine.nodes()[machine.core(core).node?.index()].os))
        };
        Self {
            nodes: machine.parts().pus.iter().enumerate().filter_map(node).collect(),
            one_node: machine.nodes().len() == 1,
            programs: BTreeMap::new(),
            pending: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    /// Takes one round of the loop.
    pub fn take(&mut self, step: &Step<'_>, now: Moment) {
        if !step.turn.findings.is_empty() {
            self.findings.clone_from(&step.turn.findings);
        }
        let seen = self.look(step.seen);
        let settled: Vec<Outcome> = step.sample.settled.clone();
        self.settle(&settled);
        let decided = self.decided(step, now);
        // Programs without threads in this sample are kept by the caller's word.
        for id in self.programs.keys().copied().collect::<Vec<_>>() {
            let seen = seen.get(&id).cloned().unwrap_or_default();
            self.update(id, &seen, decided.contains(&id), now);
        }
        for (id, seen) in &seen {
            if !self.programs.contains_key(id) {
                self.programs.insert(*id, Explained::default());
                self.update(*id, seen, decided.contains(id), now);
            }
        }
    }

    /// Drops the state of all programs but these.
    pub fn keep(&mut self, programs: &BTreeSet<ProgramId>) {
        self.programs.retain(|id, _| programs.contains(id));
        self.pending.retain(|_, id| programs.contains(id));
    }

    /// Returns the figures of a program; `None` before its first sample.
    pub fn figures(&self, program: ProgramId) -> Option<&ProgramFigures> {
        Some(&self.programs.get(&program)?.figures)
    }

    /// Returns the policy's latest findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Explains the work on a program.
    pub fn why(&self, program: ProgramId, now: Moment) -> Why {
        let Some(explained) = self.programs.get(&program) else {
            return Why { still: Some(Stillness::Unread.to_string()), ..Why::default() };
        };
        let last = explained.last.as_ref().map(|made| LastDecision {
            age: now.since(made.at),
            pid: made.pid,
            tid: made.tid,
            thread: made.name.clone(),
            act: made.decision.act.to_string(),
            reason: made.decision.reason.to_string(),
            end: made.end.to_string(),
        });
        let still = explained.still.as_ref();
        Why {
            last,
            still: still.map(|(_, why)| why.to_string()),
            still_for: still.map(|(since, _)| now.since(*since)),
            withheld: explained.figures.withheld,
        }
    }

    /// Sums the sample up for each program.
    fn look(&self, seen: &Observation<'_>) -> BTreeMap<ProgramId, Seen> {
        let mut programs: BTreeMap<ProgramId, Seen> = BTreeMap::new();
        for view in &seen.threads {
            // A service also watches threads that no tag covers, because they inherit masks.
            if view.info.tagged {
                programs.entry(view.info.program).or_default().add(view, &self.nodes);
            }
        }
        programs
    }

    fn update(&mut self, id: ProgramId, seen: &Seen, decided: bool, now: Moment) {
        let (one_node, findings) = (self.one_node, &self.findings);
        let Some(explained) = self.programs.get_mut(&id) else { return };
        let figures = &mut explained.figures;
        figures.threads = seen.threads;
        figures.run = figures.run + seen.run;
        if let Some(wait) = seen.wait {
            figures.wait = Some(figures.wait.unwrap_or_default() + wait);
        }
        let share = |(near, far): (u64, u64)| (near + far > 0).then(|| far as f64 / (near + far) as f64);
        figures.far = match (one_node, seen.counted.and_then(share), seen.pages.and_then(share)) {
            (true, _, _) => Some(0.0),
            (false, Some(counted), _) => Some(counted),
            (false, None, pages) => pages.or(figures.far),
        };
        let ratio = |(busy, requests): (u64, u64)| (requests > 0).then(|| busy as f64 / requests as f64);
        figures.penalty = seen.penalty.and_then(ratio).or(figures.penalty);
        if seen.read > 0 || seen.threads == 0 {
            figures.active = seen.active;
        } else if decided || explained.still.is_some() {
            // Nothing was read of it in this sample: what was said before still holds.
            if decided {
                explained.still = None;
            }
            return;
        }
        let still = (!decided).then(|| seen.stillness(findings));
        explained.still = match (explained.still.take(), still) {
            (Some((since, before)), Some(why)) if before.is_like(&why) => Some((since, why)),
            (_, Some(why)) => Some((now, why)),
            (_, None) => None,
        };
    }

    /// Records the decisions of a step. Returns the programs that they concern.
    fn decided(&mut self, step: &Step<'_>, now: Moment) -> BTreeSet<ProgramId> {
        let mut programs = BTreeSet::new();
        if step.turn.decisions.is_empty() {
            return programs;
        }
        let infos: BTreeMap<ThreadId, &ThreadView<'_>> =
            step.seen.threads.iter().map(|view| (view.id(), view)).collect();
        for (decision, outcome) in step.turn.decisions.iter().zip(step.outcomes) {
            let Some(view) = infos.get(&decision.thread) else { continue };
            let program = view.info.program;
            programs.insert(program);
            let explained = self.programs.entry(program).or_default();
            let made = Made {
                at: now,
                thread: decision.thread,
                pid: view.info.pid,
                tid: view.info.tid,
                name: view.info.name.clone(),
                decision: decision.clone(),
                end: outcome.end,
            };
            let is_repeated = |last: &Made| {
                (last.thread, &last.decision.act) == (made.thread, &made.decision.act) && last.end == made.end
            };
            // A policy that is not obeyed may decide the same again in each step.
            let repeated = explained.last.as_ref().is_some_and(is_repeated);
            let observed = outcome.end == Settled::Refused(Refusal::Observed);
            if !(repeated && observed) {
                count(&mut explained.figures, outcome.end);
                explained.last = Some(made);
            }
            if outcome.end == Settled::Pending {
                self.pending.insert(decision.thread, program);
            }
        }
        programs
    }

    /// Records outcomes that have become known later.
    fn settle(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.end != Settled::Pending) {
            let Some(program) = self.pending.remove(&outcome.thread) else { continue };
            let Some(explained) = self.programs.get_mut(&program) else { continue };
            count(&mut explained.figures, outcome.end);
            if let Some(last) = explained.last.as_mut().filter(|last| last.thread == outcome.thread) {
                last.end = outcome.end;
            }
        }
    }
}

fn count(figures: &mut ProgramFigures, end: Settled) {
    match end {
        Settled::Applied => figures.moves += 1,
        Settled::Refused(Refusal::Observed) => figures.withheld += 1,
        Settled::Refused(_) => figures.refused += 1,
        Settled::Vanished | Settled::Pending => {}
    }
}

impl Seen {
    fn add(&mut self, view: &ThreadView<'_>, nodes: &BTreeMap<OsCpu, OsNode>) {
        self.threads += 1;
        if let Some(left) = &view.info.left {
            self.left += 1;
            self.why.get_or_insert_with(|| left.to_string());
        }
        let sum = |sum: &mut Option<(u64, u64)>, one: u64, other: u64| {
            let (a, b) = sum.unwrap_or_default();
            *sum = Some((a.saturating_add(one), b.saturating_add(other)));
        };
        if let Some(counts) = &view.counted {
            if let (Some(near), Some(far)) = (counts.near, counts.far) {
                sum(&mut self.counted, near, far);
            }
            if let (Some(busy), Some(requests)) = (counts.busy, counts.requests) {
                sum(&mut self.penalty, busy, requests);
            }
        }
        if let (Some(pages), Some(own)) = (view.pages, view.cpu.and_then(|cpu| nodes.get(&cpu))) {
            let (near, far): (Vec<_>, Vec<_>) = pages.iter().partition(|(node, _)| *node == own);
            let total =
                |part: Vec<(&OsNode, &u64)>| part.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(**n));
            sum(&mut self.pages, total(near), total(far));
        }
        let Some(rates) = view.rates else { return };
        self.read += 1;
        self.run = self.run + rates.span.times(rates.run);
        if let Some(wait) = rates.wait {
            self.wait = Some(self.wait.unwrap_or_default() + rates.span.times(wait));
        }
        if rates.run + rates.wait.unwrap_or(0.0) >= ACTIVE_MIN {
            self.active += 1;
            self.confined += u32::from(view.info.home.len() == 1);
        }
    }

    /// Returns the reason why a program with such threads is left as it is.
    fn stillness(&self, findings: &[Finding]) -> Stillness {
        if self.threads == 0 {
            return Stillness::NoThreads;
        }
        if self.left == self.threads
            && let Some(why) = self.why.clone()
        {
            return Stillness::Left { threads: self.threads, why };
        }
        if self.read == 0 {
            return Stillness::Unread;
        }
        if self.active == 0 {
            return Stillness::Sleeps { threads: self.threads };
        }
        if self.confined == self.active {
            return Stillness::OneCpu { threads: self.active };
        }
        // Findings that name why nothing can be gained, before those that only describe.
        let explains = |finding: &&Finding| !matches!(finding, Finding::Slowed { .. } | Finding::NoWaitTimes);
        findings.iter().find(explains).cloned().map_or(Stillness::Nothing, Stillness::Found)
    }
}

/// Formats a decision that was only observed: `would be moved to CPU 3`.
pub fn would(act: &Act) -> String {
    match act {
        Act::Fetch(node) => format!("would have its memory brought to node {node}"),
        act => format!("would be {act}"),
    }
}

#[cfg(test)]
mod tests;

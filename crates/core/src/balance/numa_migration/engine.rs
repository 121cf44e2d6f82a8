//! Common engine of `brm` and `serial`: everything except the choice of moves.
//!
//! At a sample the engine takes in the observation, corrects masks after the usable CPUs changed,
//! continues the trials, lets the *proposer* propose moves and begins them as far as units and
//! moves are free, moves memory after threads that stayed, and sets the time of the next sample.
//! The proposer is called only if something can be counted and there are at least two units, and it
//! gets the outcome of each of its trials.
//!
//! Properties: a unit takes part in one trial at a time, so that its changes are effects of that
//! move. A thread goes alone only if there is room, else it exchanges places. Nothing is moved in
//! the first second, or in a pause after a failed minute, during which all threads have their own
//! masks. A thread that waits for a CPU in its unit while other CPUs are idle is released. So is a
//! kept thread that was not a candidate for [`CALM_TIME`], unless it stalls no longer only because
//! it is kept.

use super::super::thread_state::{Binding, ThreadState};
use super::super::{Act, Decision, Finding, Kind, Policy, Reason, Settings, Settled, Turn, Wanted};
use super::limits::{BenefitTest, MoveBudget, SampleInterval};
use super::move_cost::CostAccount;
use super::move_evaluation::{SAMPLES_MIN, SamplesMin};
use super::move_trial::{MoveTrial, Mover, TrialEnd, TrialTerms};
use super::page_migration::PageMigrations;
use super::proposer::{Candidate, Proposal, Proposer, ProposerInput};
use super::thread_stats::{CALM_TIME, ThreadStats, sum};
use super::trial_pins::TrialPins;
use super::units::UnitLoad;
use crate::counts::Rung;
use crate::ids::ThreadId;
use crate::observe::{Observation, ThreadView};
use crate::penalty::{Index, level};
use crate::set::CpuSet;
use crate::stats::Random;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// Nothing is moved before this time: short programs gain nothing, and there must be a measurement
/// to compare with.
const WARMUP: Span = Span::from_ms(1_000);

/// A kept thread is released if it waits for this share of the time more than threads elsewhere,
/// over [`CROWDED_SECONDS`], and there is room elsewhere.
const CROWDED_WAIT_SHARE: f64 = 0.2;
/// Seconds of wanted time over which the waiting of a kept thread is measured.
const CROWDED_SECONDS: f64 = 1.0;

/// Memory locations are reported twice a second (on the rungs without counters): more frequent
/// samples contain no new information, and trials count samples.
const RESIDENCY_PERIOD: Span = Span::from_ms(500);

/// Period of reading the load of the CPUs, and the CPUs of threads that do not compute.
const CPU_LOAD_PERIOD: Span = Span::from_ms(200);
/// Period of samples while nothing is to be done.
const IDLE_PERIOD: Span = Span::from_ms(500);

/// Period of samples after [`QUIET_AFTER`] without a candidate: the check for stalls runs once a
/// second anyway.
const QUIET_PERIOD: Span = Span::from_ms(100);
/// Time without a candidate after which samples become rarer.
const QUIET_AFTER: Span = Span::from_ms(2_000);

/// Policy with its proposer.
#[derive(Debug)]
pub(super) struct Engine<W> {
    stats: ThreadStats,
    proposer: W,
    random: Random,
    trials: Vec<MoveTrial>,
    pace: SampleInterval,
    moves: MoveBudget,
    account: CostAccount,
    gain: BenefitTest,
    migrations: PageMigrations,
    pins: TrialPins,
    began: Option<Moment>,
    sampled_at: Option<Moment>,
    /// Kept threads that are not candidates, and since when.
    idle: BTreeMap<ThreadId, Moment>,
    /// CPUs on which threads were put, and CPUs requested since; `None` is their own mask.
    put: BTreeMap<ThreadId, CpuSet>,
    asked: BTreeMap<ThreadId, Option<CpuSet>>,
    /// Seconds in which threads wanted a CPU where they were put, and seconds of these in which
    /// they had none.
    waits: BTreeMap<ThreadId, (f64, f64)>,
    busy_read: Option<Moment>,
    /// Time of the last candidate; `None` before the first sample.
    last_candidate: Option<Moment>,
    /// Index by which threads were compared last.
    index: Option<Index>,
}

impl<W: Proposer> Engine<W> {
    /// Creates the policy for a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings, proposer: W) -> Self {
        Self {
            stats: ThreadStats::new(machine, settings),
            proposer,
            random: Random(settings.seed),
            trials: Vec::new(),
            pace: SampleInterval::new(settings.interval, settings.penalty.budget),
            moves: MoveBudget::new(settings.penalty.moves),
            account: CostAccount::default(),
            gain: BenefitTest::default(),
            migrations: PageMigrations::default(),
            pins: TrialPins::default(),
            began: None,
            sampled_at: None,
            idle: BTreeMap::new(),
            put: BTreeMap::new(),
            asked: BTreeMap::new(),
            waits: BTreeMap::new(),
            busy_read: None,
            last_candidate: None,
            index: None,
        }
    }

    /// Returns the time between two samples.
    fn tick(&self) -> Span {
        match self.stats.rung() {
            Some(Rung::HintFaults | Rung::Residency) => self.pace.tick().max(RESIDENCY_PERIOD),
            _ => self.pace.tick(),
        }
    }

    /// Returns whether there has been no candidate for a while.
    fn quiet(&self, at: Moment) -> bool {
        self.last_candidate.is_some_and(|last| at.since(last) >= QUIET_AFTER)
    }

    /// Records whether there is a candidate.
    fn note_candidates(&mut self, some: bool, at: Moment) {
        if some && self.quiet(at) {
            // Long samples scatter less than short ones, and the two are not compared.
            self.stats.forget_samples();
        }
        if some || self.last_candidate.is_none() {
            self.last_candidate = Some(at);
        }
    }

    /// Processes the outcomes of decisions.
    fn believe(&mut self, seen: &Observation<'_>) {
        for outcome in seen.outcomes.iter().filter(|outcome| outcome.end != Settled::Pending) {
            match self.asked.remove(&outcome.thread).filter(|_| outcome.end == Settled::Applied) {
                Some(Some(to)) => {
                    self.put.insert(outcome.thread, to);
                }
                Some(None) => {
                    self.put.remove(&outcome.thread);
                }
                None => {}
            }
        }
        self.put.retain(|id, _| seen.thread(*id).is_some());
        self.asked.retain(|id, _| seen.thread(*id).is_some());
        self.idle.retain(|id, _| seen.thread(*id).is_some());
    }

    /// Corrects the masks of kept threads after their unit lost or regained usable CPUs.
    fn follow(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for i in 0..self.stats.len() {
            let thread = self.stats.thread(i);
            let (id, Binding::Within(unit)) = (thread.id, thread.binding) else { continue };
            let usable = self.stats.cpu_table().usable();
            let stranded = self.put.get(&id).is_some_and(|put| !put.intersects(usable));
            // A thread without a usable CPU is asked again, even if it was refused many times.
            if !(thread.stale && thread.free() || stranded && thread.reachable()) {
                continue;
            }
            let room = self.stats.room(i, unit);
            if room.is_empty() {
                decisions.push(self.stats.context.table.release(i, Reason::Changed));
            } else if stranded || self.put.get(&id) != Some(&room) {
                decisions.push(self.stats.context.table.keep_within(i, unit, room, Reason::Changed));
            } else {
                self.stats.context.table.threads[i].stale = false;
            }
        }
        decisions
    }

    /// Releases a thread that waits for a CPU where it was put, if there is room elsewhere.
    fn uncrowd(&mut self, seen: &Observation<'_>, loads: &[UnitLoad], busy: &[u16]) -> Vec<Decision> {
        self.waits.retain(|id, _| seen.thread(*id).is_some());
        let mut decisions = Vec::new();
        for (i, view) in seen.threads.iter().enumerate() {
            let Some((run, wait, seconds)) =
                view.rates.and_then(|rates| Some((rates.run, rates.wait?, rates.span.seconds())))
            else {
                continue;
            };
            let (wanted, waited) = self.waits.entry(view.id()).or_default();
            *wanted += (run + wait) * seconds;
            *waited += wait * seconds;
            let Binding::Within(unit) = self.stats.thread(i).binding else {
                // The weight of earlier waiting elsewhere decreases.
                if *wanted >= 2.0 * CROWDED_SECONDS {
                    (*wanted, *waited) = (*wanted / 2.0, *waited / 2.0);
                }
                continue;
            };
            if *wanted < CROWDED_SECONDS {
                continue;
            }
            let waits = (*waited / *wanted).clamp(0.0, 1.0);
            (*wanted, *waited) = (0.0, 0.0);
            // If there are enough CPUs, or all threads wait equally (the CPUs of an emulated
            // machine take turns on one CPU), the thread would wait elsewhere too.
            let full = loads.get(usize::from(unit)).is_some_and(UnitLoad::shares_cpus);
            let usual = self.waits_beyond(unit, seen);
            let elsewhere =
                loads.iter().enumerate().any(|(at, load)| at != usize::from(unit) && load.has_cpu());
            let free = !busy.contains(&unit) && self.stats.movable(i) && self.moves.allow(1);
            if full && waits >= usual + CROWDED_WAIT_SHARE && elsewhere && free {
                self.moves.spend(1);
                decisions.push(self.stats.context.table.release(i, Reason::Crowded { waits }));
                // One per sample: after it the next thread may get a CPU.
                break;
            }
        }
        decisions
    }

    /// Returns the share of their wanted time in which threads outside a unit recently waited; 0 if
    /// they wanted too little time for a measurement.
    fn waits_beyond(&self, unit: u16, seen: &Observation<'_>) -> f64 {
        let beyond = seen
            .threads
            .iter()
            .enumerate()
            .filter(|(i, _)| !matches!(self.stats.thread(*i).binding, Binding::Within(at) if at == unit));
        let (wanted, waited) = beyond
            .filter_map(|(_, view)| self.waits.get(&view.id()))
            .fold((0.0, 0.0), |(wanted, waited), (more, waits)| (wanted + more, waited + waits));
        if wanted < CROWDED_SECONDS / 2.0 { 0.0 } else { (waited / wanted).clamp(0.0, 1.0) }
    }

    /// Releases kept threads that have not been candidates for long, because their place no longer
    /// matters.
    fn let_go(&mut self, candidates: &[Candidate], busy: &[u16], at: Moment) -> Vec<Decision> {
        let all: BTreeSet<ThreadId> = candidates.iter().map(|candidate| candidate.id).collect();
        let moved =
            |id: ThreadId| self.trials.iter().flat_map(|trial| &trial.movers).any(|mover| mover.id == id);
        // A thread that does not stall has no effect on a trial of others.
        let felt = |id: ThreadId, unit: u16| moved(id) || busy.contains(&unit) && self.stats.weighs(id);
        let mut due = Vec::new();
        let mut decisions = Vec::new();
        for i in 0..self.stats.len() {
            let (id, binding) = (self.stats.thread(i).id, self.stats.thread(i).binding);
            let Binding::Within(unit) = binding else {
                self.idle.remove(&id);
                continue;
            };
            if all.contains(&id) || self.stats.near(i) || self.pins.holds(id) || self.stats.thread(i).taken()
            {
                self.idle.remove(&id);
                continue;
            }
            let since = *self.idle.entry(id).or_insert(at);
            if at.since(since) >= CALM_TIME && !felt(id, unit) && self.stats.movable(i) {
                due.push((i, id));
            }
        }
        for (i, id) in due {
            self.idle.remove(&id);
            decisions.push(self.stats.context.table.release(i, Reason::Done));
        }
        decisions
    }

    /// Keeps candidates in place that are nearest to their memory already: no other unit can be
    /// better for them, and without this only a trial would keep the kernel from moving them.
    fn hold(&mut self, candidates: &[Candidate], busy: &[u16]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for one in candidates.iter().filter(|one| one.ready && !busy.contains(&one.unit)) {
            let loose = !matches!(self.stats.thread(one.i).binding, Binding::Within(_));
            let room = self.stats.room(one.i, one.unit);
            if loose && self.stats.near(one.i) && !room.is_empty() {
                decisions.push(self.stats.context.table.keep_within(one.i, one.unit, room, Reason::Near));
            }
        }
        decisions
    }

    /// Gives all kept threads their own masks back.
    fn release(&mut self) -> Vec<Decision> {
        self.pins.clear();
        self.migrations.let_go();
        let kept = |thread: &ThreadState| matches!(thread.binding, Binding::Within(_)) && thread.free();
        let kept: Vec<usize> = (0..self.stats.len()).filter(|i| kept(self.stats.thread(*i))).collect();
        kept.into_iter().map(|i| self.stats.context.table.release(i, Reason::Done)).collect()
    }

    fn candidates(&self, seen: &Observation<'_>) -> Vec<Candidate> {
        let candidate = |(i, view): (usize, &ThreadView<'_>)| {
            if self.stats.thread(i).taken() || !self.stats.is_candidate(i, view) {
                return None;
            }
            let unit = self.stats.unit(i)?;
            let history = self.stats.histories.get(&view.id());
            let known = history.is_some_and(|history| history.recent.len() >= SAMPLES_MIN);
            let weight = history.and_then(super::thread_stats::ThreadHistory::weight).unwrap_or(0.0);
            let ready = known && self.stats.movable(i);
            Some(Candidate { i, id: view.id(), unit, ready, weight })
        };
        seen.threads.iter().enumerate().filter_map(candidate).collect()
    }

    /// Continues the trials.
    fn run_trials(&mut self, index: Index, at: Moment) -> Vec<Decision> {
        let (mean, margin, tick) = (self.stats.mean(), self.stats.settings().margin, self.tick());
        let terms =
            TrialTerms { index, mean, margin, at, tick, samples_min: SamplesMin::on(self.stats.rung()) };
        let mut decisions = Vec::new();
        for mut trial in std::mem::take(&mut self.trials) {
            let before = trial.moved();
            let (more, end) = trial.step(&mut self.stats, terms);
            if before {
                self.moves.spend(more.len());
            } else if trial.moved() {
                // These moves were paid for when the trial began.
                self.gain.moved(at);
                self.stats.moved = true;
                trial.movers.iter().for_each(|mover| self.pins.remove(mover.id));
            }
            decisions.extend(more);
            match end {
                Some(_) if trial.moved() => self.account.spend(trial.movers.len(), trial.cost),
                Some(_) => self.moves.give_back(trial.movers.len()),
                None => {}
            }
            match end {
                None => self.trials.push(trial),
                Some(end) => {
                    if let TrialEnd::Kept(_) = end {
                        self.gain.kept();
                        let of = |mover: &Mover| [mover.from, mover.to];
                        let units: Vec<u16> = trial.movers.iter().flat_map(of).collect();
                        self.pins.stay(&self.stats, &units);
                        for mover in &trial.movers {
                            self.migrations.kept(mover.id, at);
                        }
                    }
                    self.proposer.learned(&trial.movers, end, at);
                }
            }
        }
        decisions
    }

    /// Begins the proposals, as far as units and moves are free.
    fn begin(&mut self, proposals: Vec<Proposal>, seen: &Observation<'_>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for proposal in proposals {
            if !self.account.allows() {
                break;
            }
            let moves = 1 + usize::from(proposal.partner.is_some());
            let partner = proposal.partner.filter(|&j| self.stats.movable(j));
            let Some(from) = self.stats.unit(proposal.i).filter(|_| self.stats.movable(proposal.i)) else {
                continue;
            };
            let busy = self.busy();
            let blocked =
                if W::ALL { !busy.is_empty() } else { busy.contains(&from) || busy.contains(&proposal.to) };
            if blocked || partner.is_none() && proposal.partner.is_some() || !self.moves.allow(moves) {
                continue;
            }
            let id = self.stats.thread(proposal.i).id;
            let [first, second] = match partner {
                None => [proposal.reason.clone(), proposal.reason],
                Some(j) => [self.stats.thread(j).id, id].map(|partner| Reason::Exchanged { partner }),
            };
            let mut movers = vec![Mover { id, from, to: proposal.to, reason: first }];
            if let Some(j) = partner {
                let id = self.stats.thread(j).id;
                movers.push(Mover { id, from: proposal.to, to: from, reason: second });
            }
            let units = if W::ALL {
                (0..self.stats.units.all.len()).filter_map(|unit| u16::try_from(unit).ok()).collect()
            } else {
                vec![from, proposal.to]
            };
            decisions.extend(self.pins.pin(&mut self.stats, seen, &units));
            let trial = MoveTrial::new(&self.stats, movers, units, seen.at);
            self.moves.spend(moves);
            self.proposer.began(&trial.movers);
            self.trials.push(trial);
        }
        decisions
    }

    fn busy(&self) -> Vec<u16> {
        self.trials.iter().flat_map(|trial| trial.units.iter().copied()).collect()
    }

    /// Reports the stalling threads, when that changed from none to some or back.
    fn tell(&mut self, candidates: &[Candidate], at: Moment) -> Option<Finding> {
        if self.began.is_none_or(|began| at.since(began) < WARMUP.times(2.0)) && candidates.is_empty() {
            return None;
        }
        let stalls =
            |share| Finding::Stalls { threads: u32::try_from(candidates.len()).unwrap_or(u32::MAX), share };
        if candidates.is_empty() {
            self.stats.withdraw(&stalls(None));
            return self.stats.report_once(Finding::NothingStalls);
        }
        self.stats.withdraw(&Finding::NothingStalls);
        let histories = candidates.iter().filter_map(|candidate| self.stats.histories.get(&candidate.id));
        let all = sum(histories.flat_map(|history| &history.recent));
        self.stats.report_once(stalls(all.and_then(|counts| counts.share())))
    }

    /// Makes all decisions, while moving is allowed.
    fn moves(&mut self, seen: &Observation<'_>, findings: &mut Vec<Finding>) -> Vec<Decision> {
        let at = seen.at;
        let Some(index) = self.stats.index() else { return Vec::new() };
        if self.index.replace(index).is_some_and(|before| before != index) {
            // Earlier memories were measured by another index.
            self.proposer.forget(None);
        }
        let mut decisions = self.run_trials(index, at);
        let mean = self.stats.mean();
        let touched = self.stats.touched().saturating_sub(self.pins.len());
        if self.gain.brought_nothing(&mut self.stats, index, mean, touched, at) {
            findings.push(Finding::NoGain);
            self.proposer.forget(None);
            self.trials.clear();
            decisions.extend(self.release());
            return decisions;
        }
        let loads = self.stats.loads();
        let candidates = self.candidates(seen);
        self.note_candidates(!candidates.is_empty() || !self.trials.is_empty(), at);
        findings.extend(self.tell(&candidates, at));
        self.moves.fill(at, candidates.len());
        let long = self.sampled_at.replace(at).map_or(Span::ZERO, |before| at.since(before));
        self.account.fill(candidates.len(), long);
        let busy = self.busy();
        decisions.extend(self.uncrowd(seen, &loads, &busy));
        decisions.extend(self.let_go(&candidates, &busy, at));
        decisions.extend(self.hold(&candidates, &busy));
        let alive = |id: ThreadId| seen.thread(id).is_some();
        if !seen.gone.is_empty() {
            self.proposer.forget(Some(&alive));
        }
        if self.began.is_some_and(|began| at.since(began) >= WARMUP) {
            let input = ProposerInput {
                stats: &self.stats,
                seen,
                at,
                candidates: &candidates,
                loads: &loads,
                level: level(index, mean, self.stats.histories.values().map(|history| history.now)),
                margin: self.stats.settings().margin,
                busy: &busy,
                tick: self.tick(),
                samples_min: SamplesMin::on(self.stats.rung()),
            };
            let proposals = self.proposer.propose(&input, &mut self.random);
            decisions.extend(self.begin(proposals, seen));
        }
        let busy = self.busy();
        decisions.extend(self.pins.unpin(&mut self.stats, at, &busy));
        if self.stats.settings().move_memory {
            self.migrations.observe(seen);
            if let Some((decision, unit)) = self.migrations.next(&mut self.stats, seen, &busy) {
                // Counts from now on include the moved memory.
                self.stats.disturb(&[unit]);
                decisions.push(decision);
            }
        }
        decisions
    }

    fn wanted(&mut self, at: Moment, counts: bool) -> Wanted {
        let cpus = counts && self.busy_read.is_none_or(|read| at.since(read) >= CPU_LOAD_PERIOD);
        if cpus {
            self.busy_read = Some(at);
        }
        // Reading where a thread runs is the most expensive part of a sample. The place of a thread
        // that does not compute has no effect.
        let felt = |i: usize| cpus || self.stats.thread(i).active();
        let loose = |i: usize| felt(i) && !matches!(self.stats.thread(i).binding, Binding::Within(_));
        let places = counts && (0..self.stats.len()).any(loose) || self.stats.len() == 0;
        Wanted { on: None, places, cpus, sleeps: false, counts }
    }
}

impl<W: Proposer> Policy for Engine<W> {
    fn kind(&self) -> Kind {
        W::KIND
    }

    fn first(&self) -> Wanted {
        Wanted { places: true, cpus: true, counts: true, ..Wanted::default() }
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let at = seen.at;
        let slower = self.pace.observe(seen);
        let mut findings = self.stats.observe(seen);
        self.believe(seen);
        if !seen.threads.is_empty() {
            self.began.get_or_insert(at);
        }
        if slower {
            findings.push(Finding::Slowed { tick: self.pace.tick() });
        }
        let (rests, rested) = self.gain.rests(at);
        if rested {
            self.stats.begin_again();
            self.stats.moved = false;
            self.began = Some(at);
            self.last_candidate = Some(at);
        }
        let mut decisions = self.follow();
        let nothing = rests || self.stats.one_unit() || self.stats.rung() == Some(Rung::Nothing);
        if nothing {
            self.trials.clear();
            decisions.extend(self.release());
        } else {
            decisions.extend(self.moves(seen, &mut findings));
        }
        for decision in &decisions {
            if !matches!(decision.act, Act::Fetch(_)) {
                self.asked.insert(decision.thread, decision.act.to().cloned());
            }
        }
        let tick = match () {
            () if nothing => self.tick().max(IDLE_PERIOD),
            () if self.quiet(at) => self.tick().max(QUIET_PERIOD),
            () => self.tick(),
        };
        // The host reports whether anything can be counted only while counts are requested.
        let wanted = self.wanted(at + tick, !rests && !self.stats.one_unit());
        Turn { decisions, findings, next: at + tick, wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bias::Bias;
    use super::super::testing::met;
    use super::*;
    use crate::balance::Act;
    use crate::topology::parse_synthetic;

    #[test]
    fn memory_does_not_follow_released_threads() {
        let machine = parse_synthetic("numa:2 l3:1 core:2 pu:1").unwrap();
        let fetched = |let_go: bool| {
            let mut engine = Engine::new(&machine, &Settings::default(), Bias::default());
            let observer = met(&machine, &mut engine.stats, &[2]);
            engine.migrations.kept(ThreadId(0), Moment(0));
            if let_go {
                engine.release();
            }
            let next = engine.migrations.next(&mut engine.stats, &observer.observation(), &[]);
            next.map(|(decision, unit)| (decision.act, unit))
        };
        assert!(matches!(fetched(false), Some((Act::Fetch(_), 1))));
        assert_eq!(fetched(true), None);
    }
}

//! What `brm` and `serial` do alike: everything but choosing whom to move where.
//!
//! A look: take in what was read; put right who was put where he may not be any more; go on with what is on trial; let the *way* propose
//! moves and begin them as far as units and moves are free; bring memory after who stayed; say when to look next. A way is asked only
//! when something can be counted and there are at least two units, and it learns how each of its trials ended.
//!
//! Properties: a unit takes part in one trial at a time, so that what changes there changes by that move; a thread goes alone only
//! where there is room, else it exchanges places; nothing is moved in the first second, nor by who rests after a minute in vain,
//! whereafter all have their own masks; threads that wait for a CPU where they were put while others idle are let go, and so is who was
//! put somewhere and has been no candidate for [`CALM_LONG`], unless it only suffers no more because of that.

use super::super::sitter::{Sitter, Standing};
use super::super::{Act, Decision, Finding, Kind, Policy, Reason, Settings, Settled, Turn, Wanted};
use super::fence::Fences;
use super::fetch::Fetches;
use super::guard::{Gain, Moves, SampleInterval};
use super::herd::{CALM_LONG, Herd, sum};
use super::judge::{Least, SAMPLES_MIN};
use super::ledger::Ledger;
use super::trial::{End, Mover, Terms, Trial};
use super::units::Load;
use super::way::{Candidate, Proposal, Scene, Way};
use crate::counts::Rung;
use crate::ids::ThreadId;
use crate::observe::{Observation, ThreadView};
use crate::penalty::{Index, level};
use crate::set::CpuSet;
use crate::stats::Random;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// Nothing is moved before this: short programs gain nothing, and there must be something to compare with.
const FIRST: Span = Span::from_ms(1_000);

/// Who waits this much more of the time than those elsewhere, over [`CROWDED_LONG`], where it was put, is let go when there is room elsewhere.
const CROWDED: f64 = 0.2;
const CROWDED_LONG: f64 = 1.0;

/// Where memory lies is told twice a second (the rungs without counters): who looks more often sees nothing new, and trials count looks.
const TOLD: Span = Span::from_ms(500);

/// How busy CPUs are is read this far apart, and where threads run that do not compute; and threads are looked at so while nothing is to
/// be done.
const BUSY: Span = Span::from_ms(200);
const IDLE: Span = Span::from_ms(500);

/// Threads of which none was a candidate for the second of these are looked at this far apart: whether one has begun to suffer is asked
/// once a second anyway.
const QUIET: Span = Span::from_ms(100);
const QUIET_AFTER: Span = Span::from_ms(2_000);

/// A policy by its way.
#[derive(Debug)]
pub(super) struct Engine<W> {
    herd: Herd,
    way: W,
    random: Random,
    trials: Vec<Trial>,
    pace: SampleInterval,
    moves: Moves,
    ledger: Ledger,
    gain: Gain,
    fetches: Fetches,
    fences: Fences,
    began: Option<Moment>,
    looked: Option<Moment>,
    /// Since when who was put somewhere is no candidate.
    idle: BTreeMap<ThreadId, Moment>,
    /// Where threads were put, and what was asked for since; `None` is their own mask.
    put: BTreeMap<ThreadId, CpuSet>,
    asked: BTreeMap<ThreadId, Option<CpuSet>>,
    /// For how long threads wanted a CPU where they were put, and for how much of that they had none.
    waits: BTreeMap<ThreadId, (f64, f64)>,
    busy_read: Option<Moment>,
    /// When there was a candidate last, or nothing yet.
    stirred: Option<Moment>,
    /// By what threads were compared last.
    index: Option<Index>,
}

impl<W: Way> Engine<W> {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings, way: W) -> Self {
        Self {
            herd: Herd::new(machine, settings),
            way,
            random: Random(settings.seed),
            trials: Vec::new(),
            pace: SampleInterval::new(settings.interval, settings.penalty.budget),
            moves: Moves::new(settings.penalty.moves),
            ledger: Ledger::default(),
            gain: Gain::default(),
            fetches: Fetches::default(),
            fences: Fences::default(),
            began: None,
            looked: None,
            idle: BTreeMap::new(),
            put: BTreeMap::new(),
            asked: BTreeMap::new(),
            waits: BTreeMap::new(),
            busy_read: None,
            stirred: None,
            index: None,
        }
    }

    /// The time between two looks.
    fn tick(&self) -> Span {
        match self.herd.rung() {
            Some(Rung::HintFaults | Rung::Residency) => self.pace.tick().max(TOLD),
            _ => self.pace.tick(),
        }
    }

    /// Whether there has been nobody to move for a while.
    fn quiet(&self, at: Moment) -> bool {
        self.stirred.is_some_and(|last| at.since(last) >= QUIET_AFTER)
    }

    /// Notes whether there is anybody to move.
    fn stir(&mut self, some: bool, at: Moment) {
        if some && self.quiet(at) {
            // Long looks scatter less than short ones, and the two are not compared.
            self.herd.forget_looks();
        }
        if some || self.stirred.is_none() {
            self.stirred = Some(at);
        }
    }

    /// Believes what was done.
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

    /// Puts right who is where he may not be any more, or may be in more places again.
    fn follow(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for i in 0..self.herd.len() {
            let sitter = self.herd.sitter(i);
            let (id, Standing::Within(unit)) = (sitter.id, sitter.standing) else { continue };
            let usable = self.herd.ground().usable();
            let stranded = self.put.get(&id).is_some_and(|put| !put.intersects(usable));
            // Who has no CPU left is asked again however often it was refused.
            if !(sitter.stale && sitter.free() || stranded && sitter.reachable()) {
                continue;
            }
            let room = self.herd.room(i, unit);
            if room.is_empty() {
                decisions.push(self.herd.base.seating.release(i, Reason::Changed));
            } else if stranded || self.put.get(&id) != Some(&room) {
                decisions.push(self.herd.base.seating.keep_within(i, unit, room, Reason::Changed));
            } else {
                self.herd.base.seating.sitters[i].stale = false;
            }
        }
        decisions
    }

    /// Lets go who waits for a CPU where it was put, while there is room elsewhere.
    fn uncrowd(&mut self, seen: &Observation<'_>, loads: &[Load], busy: &[u16]) -> Vec<Decision> {
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
            let Standing::Within(unit) = self.herd.sitter(i).standing else {
                // What it says of waiting elsewhere is of late.
                if *wanted >= 2.0 * CROWDED_LONG {
                    (*wanted, *waited) = (*wanted / 2.0, *waited / 2.0);
                }
                continue;
            };
            if *wanted < CROWDED_LONG {
                continue;
            }
            let waits = (*waited / *wanted).clamp(0.0, 1.0);
            (*wanted, *waited) = (0.0, 0.0);
            // Where there are CPUs enough, or all wait alike (an emulated machine's CPUs take turns on one), it would elsewhere too.
            let full = loads.get(usize::from(unit)).is_some_and(Load::shares_cpus);
            let usual = self.waits_beyond(unit, seen);
            let elsewhere =
                loads.iter().enumerate().any(|(at, load)| at != usize::from(unit) && load.has_cpu());
            let free = !busy.contains(&unit) && self.herd.movable(i) && self.moves.allow(1);
            if full && waits >= usual + CROWDED && elsewhere && free {
                self.moves.spend(1);
                decisions.push(self.herd.base.seating.release(i, Reason::Crowded { waits }));
                // One a look: the next may have a CPU for it.
                break;
            }
        }
        decisions
    }

    /// The part of what they wanted that threads outside of a unit had not, lately; nothing where too few of them wanted too little.
    fn waits_beyond(&self, unit: u16, seen: &Observation<'_>) -> f64 {
        let beyond =
            seen.threads.iter().enumerate().filter(
                |(i, _)| !matches!(self.herd.sitter(*i).standing, Standing::Within(at) if at == unit),
            );
        let (wanted, waited) = beyond
            .filter_map(|(_, view)| self.waits.get(&view.id()))
            .fold((0.0, 0.0), |(wanted, waited), (more, waits)| (wanted + more, waited + waits));
        if wanted < CROWDED_LONG / 2.0 { 0.0 } else { (waited / wanted).clamp(0.0, 1.0) }
    }

    /// Lets go who was put somewhere and has long been no candidate: where it is matters no more.
    fn let_go(&mut self, candidates: &[Candidate], busy: &[u16], at: Moment) -> Vec<Decision> {
        let all: BTreeSet<ThreadId> = candidates.iter().map(|candidate| candidate.id).collect();
        let moved =
            |id: ThreadId| self.trials.iter().flat_map(|trial| &trial.movers).any(|mover| mover.id == id);
        // Who suffers not is not felt by a trial of others.
        let felt = |id: ThreadId, unit: u16| moved(id) || busy.contains(&unit) && self.herd.weighs(id);
        let mut due = Vec::new();
        let mut decisions = Vec::new();
        for i in 0..self.herd.len() {
            let (id, standing) = (self.herd.sitter(i).id, self.herd.sitter(i).standing);
            let Standing::Within(unit) = standing else {
                self.idle.remove(&id);
                continue;
            };
            if all.contains(&id) || self.herd.near(i) || self.fences.holds(id) || self.herd.sitter(i).taken()
            {
                self.idle.remove(&id);
                continue;
            }
            let since = *self.idle.entry(id).or_insert(at);
            if at.since(since) >= CALM_LONG && !felt(id, unit) && self.herd.movable(i) {
                due.push((i, id));
            }
        }
        for (i, id) in due {
            self.idle.remove(&id);
            decisions.push(self.herd.base.seating.release(i, Reason::Done));
        }
        decisions
    }

    /// Keeps candidates where they are that are nowhere nearer to their memory: there is nothing to try for them, and only a trial would keep
    /// them from being taken away.
    fn hold(&mut self, candidates: &[Candidate], busy: &[u16]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for one in candidates.iter().filter(|one| one.ready && !busy.contains(&one.unit)) {
            let loose = !matches!(self.herd.sitter(one.i).standing, Standing::Within(_));
            let room = self.herd.room(one.i, one.unit);
            if loose && self.herd.near(one.i) && !room.is_empty() {
                decisions.push(self.herd.base.seating.keep_within(one.i, one.unit, room, Reason::Near));
            }
        }
        decisions
    }

    /// Gives everybody his own mask back who is still kept somewhere.
    fn release(&mut self) -> Vec<Decision> {
        self.fences.clear();
        self.fetches.let_go();
        let kept = |sitter: &Sitter| matches!(sitter.standing, Standing::Within(_)) && sitter.free();
        let kept: Vec<usize> = (0..self.herd.len()).filter(|i| kept(self.herd.sitter(*i))).collect();
        kept.into_iter().map(|i| self.herd.base.seating.release(i, Reason::Done)).collect()
    }

    fn candidates(&self, seen: &Observation<'_>) -> Vec<Candidate> {
        let candidate = |(i, view): (usize, &ThreadView<'_>)| {
            if self.herd.sitter(i).taken() || !self.herd.is_candidate(i, view) {
                return None;
            }
            let unit = self.herd.unit(i)?;
            let book = self.herd.books.get(&view.id());
            let known = book.is_some_and(|book| book.recent.len() >= SAMPLES_MIN);
            let weight = book.and_then(super::herd::Book::weight).unwrap_or(0.0);
            let ready = known && self.herd.movable(i);
            Some(Candidate { i, id: view.id(), unit, ready, weight })
        };
        seen.threads.iter().enumerate().filter_map(candidate).collect()
    }

    /// Goes on with what is on trial.
    fn trials(&mut self, index: Index, at: Moment) -> Vec<Decision> {
        let (mean, margin, tick) = (self.herd.mean(), self.herd.settings().margin, self.tick());
        let terms = Terms { index, mean, margin, at, tick, least: Least::on(self.herd.rung()) };
        let mut decisions = Vec::new();
        for mut trial in std::mem::take(&mut self.trials) {
            let before = trial.moved();
            let (more, end) = trial.step(&mut self.herd, terms);
            if before {
                self.moves.spend(more.len());
            } else if trial.moved() {
                // These were paid for when it began.
                self.gain.moved(at);
                self.herd.moved = true;
                trial.movers.iter().for_each(|mover| self.fences.remove(mover.id));
            }
            decisions.extend(more);
            match end {
                Some(_) if trial.moved() => self.ledger.spend(trial.movers.len(), trial.cost),
                Some(_) => self.moves.give_back(trial.movers.len()),
                None => {}
            }
            match end {
                None => self.trials.push(trial),
                Some(end) => {
                    if let End::Kept(_) = end {
                        self.gain.kept();
                        let of = |mover: &Mover| [mover.from, mover.to];
                        let units: Vec<u16> = trial.movers.iter().flat_map(of).collect();
                        self.fences.stay(&self.herd, &units);
                        for mover in &trial.movers {
                            self.fetches.kept(mover.id, at);
                        }
                    }
                    self.way.learned(&trial.movers, end, at);
                }
            }
        }
        decisions
    }

    /// Begins what is proposed, as far as units and moves are free.
    fn begin(&mut self, proposals: Vec<Proposal>, seen: &Observation<'_>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for proposal in proposals {
            if !self.ledger.allows() {
                break;
            }
            let moves = 1 + usize::from(proposal.partner.is_some());
            let partner = proposal.partner.filter(|&j| self.herd.movable(j));
            let Some(from) = self.herd.unit(proposal.i).filter(|_| self.herd.movable(proposal.i)) else {
                continue;
            };
            let busy = self.busy();
            let blocked =
                if W::ALL { !busy.is_empty() } else { busy.contains(&from) || busy.contains(&proposal.to) };
            if blocked || partner.is_none() && proposal.partner.is_some() || !self.moves.allow(moves) {
                continue;
            }
            let id = self.herd.sitter(proposal.i).id;
            let [first, second] = match partner {
                None => [proposal.reason.clone(), proposal.reason],
                Some(j) => [self.herd.sitter(j).id, id].map(|partner| Reason::Exchanged { partner }),
            };
            let mut movers = vec![Mover { id, from, to: proposal.to, reason: first }];
            if let Some(j) = partner {
                let id = self.herd.sitter(j).id;
                movers.push(Mover { id, from: proposal.to, to: from, reason: second });
            }
            let units = if W::ALL {
                (0..self.herd.units.all.len()).filter_map(|unit| u16::try_from(unit).ok()).collect()
            } else {
                vec![from, proposal.to]
            };
            decisions.extend(self.fences.raise(&mut self.herd, seen, &units));
            let trial = Trial::new(&self.herd, movers, units, seen.at);
            self.moves.spend(moves);
            self.way.began(&trial.movers);
            self.trials.push(trial);
        }
        decisions
    }

    fn busy(&self) -> Vec<u16> {
        self.trials.iter().flat_map(|trial| trial.units.iter().copied()).collect()
    }

    /// Says who stalls, when that changed from none to some or back.
    fn tell(&mut self, candidates: &[Candidate], at: Moment) -> Option<Finding> {
        if self.began.is_none_or(|began| at.since(began) < FIRST.times(2.0)) && candidates.is_empty() {
            return None;
        }
        let stalls =
            |share| Finding::Stalls { threads: u32::try_from(candidates.len()).unwrap_or(u32::MAX), share };
        if candidates.is_empty() {
            self.herd.unsay(&stalls(None));
            return self.herd.say(Finding::NothingStalls);
        }
        self.herd.unsay(&Finding::NothingStalls);
        let books = candidates.iter().filter_map(|candidate| self.herd.books.get(&candidate.id));
        let all = sum(books.flat_map(|book| &book.recent));
        self.herd.say(stalls(all.and_then(|counts| counts.share())))
    }

    /// All that may be moved, decided.
    fn moves(&mut self, seen: &Observation<'_>, findings: &mut Vec<Finding>) -> Vec<Decision> {
        let at = seen.at;
        let Some(index) = self.herd.index() else { return Vec::new() };
        if self.index.replace(index).is_some_and(|before| before != index) {
            // What was remembered was measured by something else.
            self.way.forget(None);
        }
        let mut decisions = self.trials(index, at);
        let mean = self.herd.mean();
        let touched = self.herd.touched().saturating_sub(self.fences.len());
        if self.gain.vain(&mut self.herd, index, mean, touched, at) {
            findings.push(Finding::NoGain);
            self.way.forget(None);
            self.trials.clear();
            decisions.extend(self.release());
            return decisions;
        }
        let loads = self.herd.loads();
        let candidates = self.candidates(seen);
        self.stir(!candidates.is_empty() || !self.trials.is_empty(), at);
        findings.extend(self.tell(&candidates, at));
        self.moves.fill(at, candidates.len());
        let long = self.looked.replace(at).map_or(Span::ZERO, |before| at.since(before));
        self.ledger.fill(candidates.len(), long);
        let busy = self.busy();
        decisions.extend(self.uncrowd(seen, &loads, &busy));
        decisions.extend(self.let_go(&candidates, &busy, at));
        decisions.extend(self.hold(&candidates, &busy));
        let alive = |id: ThreadId| seen.thread(id).is_some();
        if !seen.gone.is_empty() {
            self.way.forget(Some(&alive));
        }
        if self.began.is_some_and(|began| at.since(began) >= FIRST) {
            let scene = Scene {
                herd: &self.herd,
                seen,
                at,
                candidates: &candidates,
                loads: &loads,
                level: level(index, mean, self.herd.books.values().map(|book| book.now)),
                margin: self.herd.settings().margin,
                busy: &busy,
                tick: self.tick(),
                least: Least::on(self.herd.rung()),
            };
            let proposals = self.way.propose(&scene, &mut self.random);
            decisions.extend(self.begin(proposals, seen));
        }
        let busy = self.busy();
        decisions.extend(self.fences.lower(&mut self.herd, at, &busy));
        if self.herd.settings().move_memory {
            self.fetches.look(seen);
            if let Some((decision, unit)) = self.fetches.next(&mut self.herd, seen, &busy) {
                // What is counted from now on is with the memory there.
                self.herd.disturb(&[unit]);
                decisions.push(decision);
            }
        }
        decisions
    }

    fn wanted(&mut self, at: Moment, counts: bool) -> Wanted {
        let cpus = counts && self.busy_read.is_none_or(|read| at.since(read) >= BUSY);
        if cpus {
            self.busy_read = Some(at);
        }
        // Reading where a thread runs is the dearest part of a look. Who does not compute is not felt wherever it is.
        let felt = |i: usize| cpus || self.herd.sitter(i).active();
        let loose = |i: usize| felt(i) && !matches!(self.herd.sitter(i).standing, Standing::Within(_));
        let places = counts && (0..self.herd.len()).any(loose) || self.herd.len() == 0;
        Wanted { on: None, places, cpus, sleeps: false, counts }
    }
}

impl<W: Way> Policy for Engine<W> {
    fn kind(&self) -> Kind {
        W::KIND
    }

    fn first(&self) -> Wanted {
        Wanted { places: true, cpus: true, counts: true, ..Wanted::default() }
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let at = seen.at;
        let slower = self.pace.look(seen);
        let mut findings = self.herd.look(seen);
        self.believe(seen);
        if !seen.threads.is_empty() {
            self.began.get_or_insert(at);
        }
        if slower {
            findings.push(Finding::Slowed { tick: self.pace.tick() });
        }
        let (rests, rested) = self.gain.rests(at);
        if rested {
            self.herd.begin_again();
            self.herd.moved = false;
            self.began = Some(at);
            self.stirred = Some(at);
        }
        let mut decisions = self.follow();
        let nothing = rests || self.herd.one_unit() || self.herd.rung() == Some(Rung::Nothing);
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
            () if nothing => self.tick().max(IDLE),
            () if self.quiet(at) => self.tick().max(QUIET),
            () => self.tick(),
        };
        // Whether anything can be counted is heard only while counts are asked for.
        let wanted = self.wanted(at + tick, !rests && !self.herd.one_unit());
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
    fn memory_follows_nobody_who_was_let_go() {
        let machine = parse_synthetic("numa:2 l3:1 core:2 pu:1").unwrap();
        let fetched = |let_go: bool| {
            let mut engine = Engine::new(&machine, &Settings::default(), Bias::default());
            let observer = met(&machine, &mut engine.herd, &[2]);
            engine.fetches.kept(ThreadId(0), Moment(0));
            if let_go {
                engine.release();
            }
            let next = engine.fetches.next(&mut engine.herd, &observer.observation(), &[]);
            next.map(|(decision, unit)| (decision.act, unit))
        };
        assert!(matches!(fetched(false), Some((Act::Fetch(_), 1))));
        assert_eq!(fetched(true), None);
    }
}

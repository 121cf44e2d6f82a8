//! What is known of all threads at a look: what was counted of them lately, who stalls, who may be moved, and in which unit each is.
//!
//! Problem: a single look of 10 ms says little (the index had the wrong sign in up to two fifths of the comparisons that were
//! measured), counts may come seldom or not at all, and a thread that computes from its caches cannot gain by moving. Idea: one
//! *book* a thread. It keeps the looks since its unit was last disturbed, which is what a trial compares with, and asks once a second
//! whether the thread stalls: it does from [`STALLS`] of its cycles and [`REQUESTS`] a second on, and no more after five seconds
//! below [`CALM`]. Who is tagged is a candidate whatever its counts say.
//!
//! Properties: missing is not zero: a look without counts adds nothing; when what can be counted changes, all books begin anew; a
//! candidate that is somebody else's to place is none.

use super::super::base::Base;
use super::super::ground::Ground;
use super::super::sitter::{Sitter, Standing};
use super::super::{Finding, Settings};
use super::settings::{Candidates, PenaltySettings};
use super::units::{Load, Units};
use crate::counts::{Counts, Rung};
use crate::ids::{ProgramId, ThreadId};
use crate::observe::{Notice, Observation, ThreadView};
use crate::penalty::{Index, Mean};
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// From this share of its cycles on a thread stalls (W), and below this one it does not any more; and so many requests a second.
const STALLS: f64 = 0.1;
const CALM: f64 = 0.05;
const REQUESTS: f64 = 1e5;

/// Over how long that is asked, and for how long a thread must be calm.
const ASKED: Span = Span::from_ms(1_000);
const CALM_LONG: Span = Span::from_ms(5_000);

/// So many looks are kept.
pub(super) const KEPT: usize = 64;

/// A thread that runs this much of the time and yet stalls less than [`CALM`], in a program of which others stall, spins.
const SPINS_RUN: f64 = 0.5;

/// Who spins in this share of the looks makes its program one that spins; below the second it is one no more.
const SPINS: f64 = 0.05;
const SPINS_NOT: f64 = 0.01;

/// Without any counts for this long nothing can be counted.
const UNCOUNTED: Span = Span::from_ms(2_000);

/// One look at a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    /// Which look.
    pub(super) look: u64,
    /// What was counted.
    pub(super) counts: Counts,
    /// Seconds on a CPU and seconds it wanted one; `None` where that was not read.
    pub(super) ran: Option<(f64, f64)>,
}

/// Several looks together.
pub(super) fn sum<'a>(ticks: impl IntoIterator<Item = &'a Tick>) -> Option<Counts> {
    ticks.into_iter().map(|tick| tick.counts).reduce(|all, more| all.plus(&more))
}

/// What is known of one thread.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// What was counted at this look, and when it was counted last.
    pub(super) now: Option<Counts>,
    pub(super) last: Option<Counts>,
    /// The looks since its unit was last disturbed, newest last.
    pub(super) recent: VecDeque<Tick>,
    /// What was counted in the first whole second, and in the last.
    pub(super) first: Option<Counts>,
    pub(super) second: Option<Counts>,
    /// Whether it stalls.
    stalls: bool,
    asked: Option<(Moment, Option<Counts>)>,
    calm: Span,
    unit: Option<u16>,
}

impl Book {
    /// The share of its time that stalling costs, as far as known.
    pub(super) fn weight(&self) -> Option<f64> {
        self.second.as_ref().or(self.now.as_ref()).and_then(stall_share)
    }

    /// Takes a second's counts in.
    fn ask(&mut self, at: Moment, counts: Option<Counts>) {
        let (since, all) = self.asked.get_or_insert((at, None));
        *all = match (*all, counts) {
            (Some(all), Some(more)) => Some(all.plus(&more)),
            (all, more) => all.or(more),
        };
        let long = at.since(*since);
        if long < ASKED {
            return;
        }
        let all = all.take();
        self.asked = Some((at, None));
        let Some(all) = all else { return };
        self.second = Some(all);
        self.first = self.first.or(self.second);
        let Some(share) = stall_share(&all) else { return };
        let ran = all.enabled.seconds() / all.running.seconds().max(1e-9);
        let often = all
            .requests
            .or(all.llc_misses)
            .is_none_or(|requests| requests as f64 * ran >= REQUESTS * long.seconds());
        if share >= STALLS && often {
            self.stalls = true;
        }
        self.calm = if share < CALM { self.calm + long } else { Span::ZERO };
        if self.calm >= CALM_LONG {
            self.stalls = false;
        }
    }
}

/// What part of its time a thread loses beyond its caches: W, else what instructions do not explain, else the far share.
fn stall_share(counts: &Counts) -> Option<f64> {
    let unexplained = || {
        let (stalled, _) = Index::Estimate.parts(counts)?;
        let cycles = counts.cycles.filter(|cycles| *cycles > 0)? as f64;
        Some((stalled / cycles).min(1.0))
    };
    // Two counters are all that some machines afford: then busy cycles are a part of the time it ran, at about 2 GHz at least.
    let by_time = || Some((counts.busy? as f64 / (counts.running.seconds() * 2e9)).min(1.0));
    counts.share().or_else(unexplained).or_else(by_time).or_else(|| counts.far_share())
}

/// All threads.
#[derive(Debug)]
pub(super) struct Herd {
    pub(super) base: Base,
    pub(super) units: Units,
    pub(super) books: BTreeMap<ThreadId, Book>,
    /// How many looks there were.
    pub(super) look: u64,
    /// What can be counted, as the host said or as was seen.
    rung: Option<Rung>,
    told: bool,
    since: Option<Moment>,
    /// Looks at running threads, and those of them that spun, lately.
    spins: BTreeMap<ProgramId, (f64, f64)>,
    spinning: bool,
    said: BTreeSet<&'static str>,
}

impl Herd {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        let base = Base::new(machine, settings);
        Self {
            units: Units::new(machine, &base.seating.ground),
            base,
            books: BTreeMap::new(),
            look: 0,
            rung: None,
            told: false,
            since: None,
            spins: BTreeMap::new(),
            spinning: false,
            said: BTreeSet::new(),
        }
    }

    pub(super) fn settings(&self) -> &PenaltySettings {
        &self.base.settings.penalty
    }

    pub(super) fn ground(&self) -> &Ground {
        &self.base.seating.ground
    }

    /// How many threads there are.
    pub(super) fn len(&self) -> usize {
        self.base.seating.sitters.len()
    }

    pub(super) fn sitter(&self, i: usize) -> &Sitter {
        &self.base.seating.sitters[i]
    }

    /// Where a thread is in the seating.
    pub(super) fn find(&self, id: ThreadId) -> Option<usize> {
        self.base.seating.sitters.binary_search_by_key(&id, |sitter| sitter.id).ok()
    }

    /// Takes an observation in.
    pub(super) fn look(&mut self, seen: &Observation<'_>) -> Vec<Finding> {
        self.look += 1;
        let mut findings = self.base.look(seen);
        for notice in seen.notices {
            if let Notice::Counting(rung) = notice
                && self.rung.replace(*rung) != Some(*rung)
            {
                self.told = true;
                self.said.remove(Finding::Uncounted.word());
                self.begin_again();
            }
        }
        for id in seen.gone {
            self.books.remove(id);
        }
        let mut counted = false;
        for (i, view) in seen.threads.iter().enumerate() {
            counted |= view.counted.is_some();
            self.read(i, view, seen.at);
        }
        if counted && !self.told {
            self.rung =
                self.rung.or_else(|| seen.threads.iter().find_map(|view| view.counted.as_ref().map(rung_of)));
        }
        // Threads that did not run were not counted either.
        let ran = |view: &ThreadView<'_>| view.rates.is_some_and(|rates| rates.run > SPINS_RUN);
        if counted || !seen.threads.iter().any(ran) {
            self.since = Some(seen.at);
        }
        self.spins(seen);
        if self.one_unit() {
            findings.extend(self.say(Finding::OneUnit));
        } else if self.uncounted(seen.at) {
            findings.extend(self.say(Finding::Uncounted));
        }
        findings
    }

    fn read(&mut self, i: usize, view: &ThreadView<'_>, at: Moment) {
        let unit = self.unit(i);
        let book = self.books.entry(view.id()).or_default();
        if unit.is_some() && book.unit != unit {
            // What was counted elsewhere is no measure for here.
            book.recent.clear();
            book.unit = unit;
        }
        // Counters that were not there at one of the two readings make no difference.
        let told = |counts: &Counts| counts.busy.is_some() || counts.cycles.is_some() || counts.far.is_some();
        let counted = view.counted.filter(told);
        book.now = counted;
        book.last = counted.or(book.last);
        if let Some(counts) = counted {
            let ran = view.rates.and_then(|rates| {
                let seconds = rates.span.seconds();
                Some((rates.run * seconds, (rates.run + rates.wait?) * seconds))
            });
            book.recent.push_back(Tick { look: self.look, counts, ran });
            if book.recent.len() > KEPT {
                book.recent.pop_front();
            }
        }
        book.ask(at, counted);
    }

    /// Who runs and makes no requests while others of its program stall waits for them.
    fn spins(&mut self, seen: &Observation<'_>) {
        let mut programs: BTreeMap<ProgramId, (f64, f64, bool)> = BTreeMap::new();
        for view in &seen.threads {
            let runs = view.rates.is_some_and(|rates| rates.run >= SPINS_RUN);
            let Some(share) = view.counted.as_ref().filter(|_| runs).and_then(stall_share) else { continue };
            let (all, spin, stall) = programs.entry(view.info.program).or_default();
            *all += 1.0;
            *spin += f64::from(u8::from(share < CALM));
            *stall |= share >= STALLS;
        }
        for (program, (all, spin, stall)) in programs {
            let (seen, spun) = self.spins.entry(program).or_default();
            let keep = 0.99;
            *seen = *seen * keep + all;
            *spun = *spun * keep + if stall { spin } else { 0.0 };
        }
        let least = if self.spinning { SPINS_NOT } else { SPINS };
        // A hundred looks make a habit.
        self.spinning = self.spins.values().any(|(seen, spun)| *seen > 50.0 && *spun > least * seen);
    }

    /// Forgets what was counted.
    pub(super) fn begin_again(&mut self) {
        self.books.clear();
        self.spins.clear();
        self.since = None;
    }

    /// Says something once, until it is unsaid.
    pub(super) fn say(&mut self, finding: Finding) -> Option<Finding> {
        self.said.insert(finding.word()).then_some(finding)
    }

    /// Lets something be said again.
    pub(super) fn unsay(&mut self, finding: &Finding) {
        self.said.remove(finding.word());
    }

    /// Whether there is only one place.
    pub(super) fn one_unit(&self) -> bool {
        self.units.open(self.ground()) < 2
    }

    fn uncounted(&self, at: Moment) -> bool {
        self.rung == Some(Rung::Nothing) || self.since.is_some_and(|since| at.since(since) >= UNCOUNTED)
    }

    /// By what threads are compared now; `None` where nothing tells.
    pub(super) fn index(&self) -> Option<Index> {
        let rung = self.rung.filter(|rung| *rung != Rung::Nothing)?;
        match self.settings().index {
            Some(index) => Some(index.on(rung)),
            None => {
                let usual = Index::usual(rung, self.spinning)?;
                let instructions = |book: &Book| book.now.is_none_or(|counts| counts.instructions.is_some());
                // Where only two counters are read, they are those of the penalty.
                let two = usual == Index::Busy && !self.books.values().all(instructions);
                Some(if two { Index::Penalty } else { usual })
            }
        }
    }

    /// The rung that the machine stands on, as far as known.
    pub(super) fn rung(&self) -> Option<Rung> {
        self.rung
    }

    /// How one number is made of many.
    pub(super) fn mean(&self) -> Mean {
        self.settings().mean.unwrap_or(Mean::Weighted)
    }

    /// In which unit thread `i` is, as far as known.
    pub(super) fn unit(&self, i: usize) -> Option<u16> {
        let sitter = self.sitter(i);
        match sitter.standing {
            Standing::Within(unit) => Some(unit),
            _ => sitter.seat.map(|seat| self.units.of(seat)),
        }
    }

    /// How crowded the units are.
    pub(super) fn loads(&self) -> Vec<Load> {
        self.units.loads(&self.base.seating, &self.base.shares, |i| self.unit(i))
    }

    /// The CPUs of a unit to which thread `i` may go.
    pub(super) fn room(&self, i: usize, unit: u16) -> CpuSet {
        self.units.room(&self.base.seating, i, unit)
    }

    /// How many threads are kept in a unit.
    pub(super) fn touched(&self) -> usize {
        (0..self.len()).filter(|i| matches!(self.sitter(*i).standing, Standing::Within(_))).count()
    }

    /// Whether thread `i` may be asked to move now.
    pub(super) fn movable(&self, i: usize) -> bool {
        let sitter = self.sitter(i);
        sitter.free() && sitter.standing != Standing::Held
    }

    /// Whether thread `i` is one that may be moved on account of its memory.
    pub(super) fn is_candidate(&self, i: usize, view: &ThreadView<'_>) -> bool {
        let stalls = || self.books.get(&view.id()).is_some_and(|book| book.stalls);
        match self.settings().candidates {
            Candidates::Auto => view.info.tagged || self.sitter(i).active() && stalls(),
            Candidates::Tagged => view.info.tagged,
            Candidates::All => self.sitter(i).active(),
        }
    }

    /// Whether thread `i` may make room for another.
    pub(super) fn may_yield(&self, i: usize, view: &ThreadView<'_>) -> bool {
        self.movable(i) && (self.settings().candidates != Candidates::Tagged || view.info.tagged)
    }

    /// The threads of some units are not what they were: what was counted of them is no measure any more.
    pub(super) fn disturb(&mut self, units: &[u16]) {
        for book in self.books.values_mut() {
            if book.unit.is_some_and(|unit| units.contains(&unit)) {
                book.recent.clear();
            }
        }
    }
}

/// The rung that counts stand for, where the host did not say.
fn rung_of(counts: &Counts) -> Rung {
    if counts.busy.is_some() {
        Rung::Exact
    } else if counts.cycles.is_some() {
        Rung::Generic
    } else {
        Rung::Residency
    }
}

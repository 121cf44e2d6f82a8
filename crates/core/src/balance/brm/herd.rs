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
use super::units::{Load, Others, Units};
use crate::counts::{Counts, Rung};
use crate::ids::{OsNode, ProgramId, ThreadId};
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
pub(super) const CALM_LONG: Span = Span::from_ms(5_000);

/// So many looks are kept.
pub(super) const KEPT: usize = 64;

/// So many looks are left out after a unit was disturbed: caches are cold.
pub(super) const COLD: u64 = 2;

/// How much of what was learnt of a unit is left at the next look there, and after how many looks it is worth something.
const HINT_KEEPS: f64 = 0.99;
const HINT_LOOKS: f64 = 5.0;

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
    /// The looks since its unit was last disturbed and had warmed up again, newest last.
    pub(super) recent: VecDeque<Tick>,
    /// Looks up to this one are cold.
    cold: u64,
    /// The look in which it was counted last.
    counted: u64,
    /// By unit: what its index was there, numerator and denominator, and over how many looks.
    there: BTreeMap<u16, [f64; 3]>,
    /// What was counted in the last whole second before the first move, and in the last.
    pub(super) first: Option<Counts>,
    pub(super) second: Option<Counts>,
    /// Whether it stalls.
    stalls: bool,
    asked: Option<(Moment, Option<Counts>)>,
    calm: Span,
    unit: Option<u16>,
    /// On which nodes its memory lies, as far as that is told.
    pages: BTreeMap<OsNode, u64>,
}

impl Book {
    /// The share of its time that stalling costs, as far as known.
    pub(super) fn weight(&self) -> Option<f64> {
        self.second.as_ref().or(self.now.as_ref()).and_then(stall_share)
    }

    /// Takes a second's counts in. Until somebody was `moved` the newest second is the one to compare with: the first ones are cold.
    fn ask(&mut self, at: Moment, counts: Option<Counts>, moved: bool) {
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
        self.first = if moved { self.first.or(self.second) } else { self.second };
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

/// What is known of a unit before a thread tries it: by what factor the index is higher there than the thread's where it is; its own, if it
/// was there, else that of its program's threads. They often share their data, so that what one of them met the others may expect.
pub(super) type Hint = f64;

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
    others: Others,
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
    /// Whether a move was made since there is anything to compare with.
    pub(super) moved: bool,
    /// By what threads were compared at the last look.
    compared: Option<Index>,
    /// Who computes and suffers, in which unit; and by unit the look since which that is so.
    suffer: BTreeMap<ThreadId, u16>,
    quiet: BTreeMap<u16, u64>,
    /// By program and unit: what the index was there, as of a thread.
    hints: BTreeMap<ProgramId, BTreeMap<u16, [f64; 3]>>,
}

impl Herd {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        let base = Base::new(machine, settings);
        Self {
            units: Units::new(machine, &base.seating.ground),
            others: Others::default(),
            base,
            books: BTreeMap::new(),
            look: 0,
            rung: None,
            told: false,
            since: None,
            spins: BTreeMap::new(),
            spinning: false,
            said: BTreeSet::new(),
            moved: false,
            compared: None,
            suffer: BTreeMap::new(),
            quiet: BTreeMap::new(),
            hints: BTreeMap::new(),
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
        let index = self.index();
        if self.compared != index {
            self.compared = index;
            self.books.values_mut().for_each(|book| book.there.clear());
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
        let mut others = std::mem::take(&mut self.others);
        others.look(&self.units, self.ground(), seen, |i| self.unit(i));
        self.others = others;
        self.gather(seen);
        self.meet();
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
            book.cold = if book.unit.is_some() { self.look + COLD } else { 0 };
            book.unit = unit;
        }
        // Counters that were not there at one of the two readings make no difference.
        let told = |counts: &Counts| counts.busy.is_some() || counts.cycles.is_some() || counts.far.is_some();
        let counted = view.counted.filter(told);
        if let Some(pages) = view.pages.filter(|pages| **pages != book.pages) {
            book.pages.clone_from(pages);
        }
        book.now = counted;
        book.last = counted.or(book.last);
        if counted.is_some() {
            book.counted = self.look;
        }
        if let Some(counts) = counted.filter(|_| self.look > book.cold) {
            if let Some(((above, below), unit)) =
                self.compared.and_then(|index| index.parts(&counts)).zip(book.unit)
            {
                let there = book.there.entry(unit).or_default();
                for (sum, more) in there.iter_mut().zip([above, below, 1.0]) {
                    *sum = *sum * HINT_KEEPS + more;
                }
            }
            let ran = view.rates.and_then(|rates| {
                let seconds = rates.span.seconds();
                Some((rates.run * seconds, (rates.run + rates.wait?) * seconds))
            });
            book.recent.push_back(Tick { look: self.look, counts, ran });
            if book.recent.len() > KEPT {
                book.recent.pop_front();
            }
        }
        book.ask(at, counted, self.moved);
    }

    /// Who suffers where, and in which units that is not as it was.
    fn meet(&mut self) {
        let suffers = |i: usize| {
            let sitter = self.sitter(i);
            let unit = self.unit(i).filter(|_| sitter.active() && self.weighs(sitter.id))?;
            Some((sitter.id, unit))
        };
        let now: BTreeMap<ThreadId, u16> = (0..self.len()).filter_map(suffers).collect();
        for (id, unit) in &now {
            let before = self.suffer.get(id);
            if before != Some(unit) {
                self.quiet.extend(before.into_iter().chain([unit]).map(|unit| (*unit, self.look)));
            }
        }
        for (id, unit) in &self.suffer {
            if !now.contains_key(id) {
                self.quiet.insert(*unit, self.look);
            }
        }
        self.suffer = now;
    }

    /// The look since which those who suffer in these units are the same.
    pub(super) fn quiet(&self, units: &[u16]) -> u64 {
        units.iter().filter_map(|unit| self.quiet.get(unit)).copied().max().unwrap_or(0)
    }

    /// What is known of a thread that is counted now and then.
    pub(super) fn counted(&self, id: ThreadId) -> Option<&Book> {
        self.books.get(&id).filter(|book| book.last.is_some() && self.look <= book.counted + KEPT as u64)
    }

    /// What programs' threads met in each unit.
    fn gather(&mut self, seen: &Observation<'_>) {
        self.hints.clear();
        for view in &seen.threads {
            let Some(book) = self.books.get(&view.id()) else { continue };
            let all = self.hints.entry(view.info.program).or_default();
            for (unit, there) in &book.there {
                let sum = all.entry(*unit).or_default();
                sum.iter_mut().zip(there).for_each(|(sum, more)| *sum += more);
            }
        }
    }

    /// By what factor more of its memory would be far from thread `i` in a unit than is where it is. Known where far memory is all by which
    /// threads are compared, and it is told node by node.
    pub(super) fn farther(&self, i: usize, unit: u16) -> Option<f64> {
        let pages = &self.books.get(&self.sitter(i).id)?.pages;
        let whole = pages.values().copied().fold(0, u64::saturating_add);
        if self.index() != Some(Index::Far) || whole == 0 {
            return None;
        }
        let far = |unit: u16| {
            let node = self.units.all.get(usize::from(unit))?.node?;
            Some(whole.saturating_sub(pages.get(&node).copied().unwrap_or(0)))
        };
        let (here, there) = (far(self.unit(i)?)?, far(unit)?);
        // Nowhere is better than here.
        if here == 0 { Some(f64::INFINITY) } else { Some(there as f64 / here as f64) }
    }

    /// Whether thread `i` computes where more of its memory is than on any other node, so that it would be farther from it anywhere else. Where
    /// that is all that is known, who is there suffers from nothing, and yet it matters where it is.
    pub(super) fn near(&self, i: usize) -> bool {
        let farther = |unit: u16| self.farther(i, unit).is_some_and(|ratio| ratio > 1.0);
        let here = self.unit(i);
        let node = |unit: u16| self.units.all.get(usize::from(unit)).and_then(|unit| unit.node);
        let units = (0..self.units.all.len()).filter_map(|unit| u16::try_from(unit).ok());
        let mut others = units.filter(|unit| here.and_then(node) != node(*unit)).peekable();
        self.sitter(i).active() && others.peek().is_some() && others.all(farther)
    }

    /// What is known of a unit before thread `i` tries it.
    pub(super) fn hint(&self, i: usize, unit: u16) -> Option<Hint> {
        if let Some(ratio) = self.farther(i, unit) {
            return Some(ratio);
        }
        let sitter = self.sitter(i);
        let ratio =
            |[above, below, looks]: &[f64; 3]| (*looks >= HINT_LOOKS && *below > 0.0).then(|| above / below);
        let own = &self.books.get(&sitter.id)?.there;
        let here = own.get(&self.unit(i)?).and_then(ratio)?;
        let others = || self.hints.get(&sitter.program)?.get(&unit).and_then(ratio);
        let there = own.get(&unit).and_then(ratio).or_else(others)?;
        (here > 0.0).then(|| there / here)
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

    /// Forgets single looks.
    pub(super) fn forget_looks(&mut self) {
        self.books.values_mut().for_each(|book| book.recent.clear());
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
        self.units.loads(&self.base.seating, &self.others, |i| self.unit(i))
    }

    /// The CPUs of a unit to which thread `i` may go.
    pub(super) fn room(&self, i: usize, unit: u16) -> CpuSet {
        self.units.room(&self.base.seating, i, unit)
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

    /// How many threads are kept in a unit.
    pub(super) fn touched(&self) -> usize {
        (0..self.len()).filter(|i| matches!(self.sitter(*i).standing, Standing::Within(_))).count()
    }

    /// The threads of some units are not what they were: what was counted of them is no measure any more, nor is what is counted while
    /// caches are cold.
    pub(super) fn disturb(&mut self, units: &[u16]) {
        for book in self.books.values_mut() {
            if book.unit.is_some_and(|unit| units.contains(&unit)) {
                book.recent.clear();
                book.cold = self.look + COLD;
            }
        }
    }

    /// Whether a thread suffers enough for others to feel where it is.
    pub(super) fn weighs(&self, id: ThreadId) -> bool {
        let weight = self.books.get(&id).and_then(Book::weight);
        weight.is_some_and(|weight| weight >= CALM)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_before_the_first_move_is_the_one_to_compare_with() {
        let mut book = Book::default();
        let counts = |busy| {
            let long = ASKED;
            Some(Counts {
                enabled: long,
                running: long,
                busy: Some(busy),
                cycles: Some(1_000_000),
                requests: Some(1_000_000),
                ..Counts::default()
            })
        };
        let mut at = Moment(0);
        book.ask(at, counts(0), false);
        for (busy, moved, first) in [(900, false, 900), (500, false, 500), (400, true, 500), (300, true, 500)]
        {
            at = at + ASKED;
            book.ask(at, counts(busy), moved);
            assert_eq!(book.first.and_then(|counts| counts.busy), Some(first), "{busy}");
        }
    }
}

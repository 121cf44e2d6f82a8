//! State of all threads at a sample: recent counts, stalling threads, movable threads, and the unit
//! of each thread.
//!
//! Problem: a single sample of 10 ms says little: the index had the wrong sign in up to two fifths
//! of the measured comparisons. Counts may come rarely or not at all. A thread that computes from
//! its caches cannot gain by moving.
//!
//! Idea: one history per thread. It keeps the samples since its unit was last disturbed, which a
//! trial compares, and checks once a second whether the thread stalls. A thread counts as stalling
//! from [`STALL_SHARE_ENTER`] of its cycles and [`REQUEST_RATE_MIN`] requests a second on, and
//! stops counting after five seconds below [`STALL_SHARE_LEAVE`]. A tagged thread is a candidate
//! whatever its counts say.
//!
//! Properties: missing is not zero: a sample without counts adds nothing. When the available
//! counters change, all histories start again. A thread that another party places is not a
//! candidate.

use super::super::cpu_table::CpuTable;
use super::super::thread_state::{Binding, ThreadState};
use super::super::turn_context::TurnContext;
use super::super::{Finding, Settings};
use super::settings::{Candidates, PenaltySettings};
use super::units::{ForeignLoad, UnitLoad, Units};
use crate::counts::{Counts, Rung};
use crate::ids::{OsNode, ProgramId, ThreadId};
use crate::observe::{Notice, Observation, ThreadView};
use crate::penalty::{Index, Mean};
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Share of its cycles (W) from which a thread counts as stalling.
const STALL_SHARE_ENTER: f64 = 0.1;
/// Share of its cycles below which a thread is calm, and stops counting as stalling after
/// [`CALM_TIME`].
const STALL_SHARE_LEAVE: f64 = 0.05;
/// Fewest requests per second of a stalling thread.
const REQUEST_RATE_MIN: f64 = 1e5;

/// Period of the check for stalls.
const STALL_CHECK_PERIOD: Span = Span::from_ms(1_000);
/// Time for which a thread must be calm before it stops counting as stalling.
pub(super) const CALM_TIME: Span = Span::from_ms(5_000);

/// Largest number of samples that are kept.
pub(super) const SAMPLES_MAX: usize = 64;

/// Samples that are skipped after a unit was disturbed, because caches are cold.
pub(super) const COLD_SAMPLES: u64 = 2;

/// Share of the experience with a unit that is left at the next sample there.
const HINT_DECAY: f64 = 0.99;
/// Fewest samples of a unit from which its experience counts.
const HINT_SAMPLES_MIN: f64 = 5.0;

/// A thread that runs for at least this share of the time but stalls less than
/// [`STALL_SHARE_LEAVE`] spins, if other threads of its program stall.
const SPIN_RUN_SHARE_MIN: f64 = 0.5;

/// A program counts as spinning when its threads spin in more than this share of the samples.
const SPIN_SHARE_ENTER: f64 = 0.05;
/// A spinning program stops counting as spinning at this share of the samples.
const SPIN_SHARE_LEAVE: f64 = 0.01;

/// Time without any counts after which nothing counts as countable.
const UNCOUNTED_AFTER: Span = Span::from_ms(2_000);

/// One sample of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountSample {
    /// Number of the sample.
    pub(super) sample_number: u64,
    /// Its counts.
    pub(super) counts: Counts,
    /// Seconds on a CPU and seconds in which it wanted one; `None` if not read.
    pub(super) ran: Option<(f64, f64)>,
}

/// Adds the counts of several samples.
pub(super) fn sum<'a>(samples: impl IntoIterator<Item = &'a CountSample>) -> Option<Counts> {
    samples.into_iter().map(|sample| sample.counts).reduce(|all, more| all.plus(&more))
}

/// History of one thread.
#[derive(Debug, Default)]
pub(super) struct ThreadHistory {
    /// Counts of this sample, and the last counts.
    pub(super) now: Option<Counts>,
    pub(super) last: Option<Counts>,
    /// Samples since its unit was last disturbed and warmed up again, newest last.
    pub(super) recent: VecDeque<CountSample>,
    /// Samples up to this number are cold.
    cold: u64,
    /// Number of the last sample with counts.
    counted: u64,
    /// By unit: numerator and denominator of its index there, and the number of samples.
    there: BTreeMap<u16, [f64; 3]>,
    /// Counts in the last whole second before the first move, and in the last whole second.
    pub(super) first: Option<Counts>,
    pub(super) second: Option<Counts>,
    /// Whether it stalls.
    stalls: bool,
    checked: Option<(Moment, Option<Counts>)>,
    calm: Span,
    unit: Option<u16>,
    /// Pages of its memory on each node, as far as reported.
    pages: BTreeMap<OsNode, u64>,
}

impl ThreadHistory {
    /// Returns the share of its time that stalls cost, as far as known.
    pub(super) fn weight(&self) -> Option<f64> {
        self.second.as_ref().or(self.now.as_ref()).and_then(stall_share)
    }

    /// Adds the counts of a sample to the current second. While no thread was `moved`, the newest
    /// whole second is the one to compare with: the first seconds are cold.
    fn check_stalls(&mut self, at: Moment, counts: Option<Counts>, moved: bool) {
        let (since, all) = self.checked.get_or_insert((at, None));
        *all = match (*all, counts) {
            (Some(all), Some(more)) => Some(all.plus(&more)),
            (all, more) => all.or(more),
        };
        let long = at.since(*since);
        if long < STALL_CHECK_PERIOD {
            return;
        }
        let all = all.take();
        self.checked = Some((at, None));
        let Some(all) = all else { return };
        self.second = Some(all);
        self.first = if moved { self.first.or(self.second) } else { self.second };
        let Some(share) = stall_share(&all) else { return };
        let ran = all.enabled.seconds() / all.running.seconds().max(1e-9);
        let often = all
            .requests
            .or(all.llc_misses)
            .is_none_or(|requests| requests as f64 * ran >= REQUEST_RATE_MIN * long.seconds());
        if share >= STALL_SHARE_ENTER && often {
            self.stalls = true;
        }
        self.calm = if share < STALL_SHARE_LEAVE { self.calm + long } else { Span::ZERO };
        if self.calm >= CALM_TIME {
            self.stalls = false;
        }
    }
}

/// Expected factor of the index in a unit over the index in the thread's present unit, before the
/// thread tries the unit. The thread's own experience is used if it was there, else that of its
/// program's threads: they often share data, so their experience is likely to be similar.
pub(super) type Hint = f64;

/// Returns the share of its time that a thread loses beyond its caches: W, else the cycles that
/// instructions do not explain, else the far share.
fn stall_share(counts: &Counts) -> Option<f64> {
    let unexplained = || {
        let (stalled, _) = Index::Estimate.parts(counts)?;
        let cycles = counts.cycles.filter(|cycles| *cycles > 0)? as f64;
        Some((stalled / cycles).min(1.0))
    };
    // Some machines afford only two counters: then busy cycles are a share of the time that the
    // thread ran, at 2 GHz or more.
    let by_time = || Some((counts.busy? as f64 / (counts.running.seconds() * 2e9)).min(1.0));
    counts.share().or_else(unexplained).or_else(by_time).or_else(|| counts.far_share())
}

/// State of all threads.
#[derive(Debug)]
pub(super) struct ThreadStats {
    pub(super) context: TurnContext,
    pub(super) units: Units,
    foreign_load: ForeignLoad,
    pub(super) histories: BTreeMap<ThreadId, ThreadHistory>,
    /// Number of samples.
    pub(super) sample_number: u64,
    /// Available counters, as the host reported or as was seen.
    rung: Option<Rung>,
    rung_reported: bool,
    since: Option<Moment>,
    /// Recent samples of running threads, and those in which they spun.
    spin_samples: BTreeMap<ProgramId, (f64, f64)>,
    spinning: bool,
    reported: BTreeSet<&'static str>,
    /// Whether a move was made since the start of the comparison.
    pub(super) moved: bool,
    /// Index by which threads were compared at the last sample.
    compared: Option<Index>,
    /// Threads that compute and stall, with their units; and by unit, the sample since which these
    /// are unchanged.
    stalling: BTreeMap<ThreadId, u16>,
    quiet: BTreeMap<u16, u64>,
    /// By program and unit: the index there, with the same fields as for a thread.
    hints: BTreeMap<ProgramId, BTreeMap<u16, [f64; 3]>>,
}

impl ThreadStats {
    /// Creates the state for a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        let context = TurnContext::new(machine, settings);
        Self {
            units: Units::new(machine, &context.table.cpu_table),
            foreign_load: ForeignLoad::default(),
            context,
            histories: BTreeMap::new(),
            sample_number: 0,
            rung: None,
            rung_reported: false,
            since: None,
            spin_samples: BTreeMap::new(),
            spinning: false,
            reported: BTreeSet::new(),
            moved: false,
            compared: None,
            stalling: BTreeMap::new(),
            quiet: BTreeMap::new(),
            hints: BTreeMap::new(),
        }
    }

    pub(super) fn settings(&self) -> &PenaltySettings {
        &self.context.settings.penalty
    }

    pub(super) fn cpu_table(&self) -> &CpuTable {
        &self.context.table.cpu_table
    }

    /// Returns the number of threads.
    pub(super) fn len(&self) -> usize {
        self.context.table.threads.len()
    }

    pub(super) fn thread(&self, i: usize) -> &ThreadState {
        &self.context.table.threads[i]
    }

    /// Returns the index of a thread in the thread table.
    pub(super) fn find(&self, id: ThreadId) -> Option<usize> {
        self.context.table.threads.binary_search_by_key(&id, |thread| thread.id).ok()
    }

    /// Processes an observation.
    pub(super) fn observe(&mut self, seen: &Observation<'_>) -> Vec<Finding> {
        self.sample_number += 1;
        let mut findings = self.context.observe(seen);
        for notice in seen.notices {
            if let Notice::Counting(rung) = notice
                && self.rung.replace(*rung) != Some(*rung)
            {
                self.rung_reported = true;
                self.reported.remove(Finding::Uncounted.word());
                self.begin_again();
            }
        }
        for id in seen.gone {
            self.histories.remove(id);
        }
        let index = self.index();
        if self.compared != index {
            self.compared = index;
            self.histories.values_mut().for_each(|history| history.there.clear());
        }
        let mut counted = false;
        for (i, view) in seen.threads.iter().enumerate() {
            counted |= view.counted.is_some();
            self.read(i, view, seen.at);
        }
        if counted && !self.rung_reported {
            self.rung =
                self.rung.or_else(|| seen.threads.iter().find_map(|view| view.counted.as_ref().map(rung_of)));
        }
        // Threads that did not run were not counted either.
        let ran = |view: &ThreadView<'_>| view.rates.is_some_and(|rates| rates.run > SPIN_RUN_SHARE_MIN);
        if counted || !seen.threads.iter().any(ran) {
            self.since = Some(seen.at);
        }
        self.update_spinning(seen);
        let mut others = std::mem::take(&mut self.foreign_load);
        others.observe(&self.units, self.cpu_table(), seen, |i| self.unit(i));
        self.foreign_load = others;
        self.sum_hints(seen);
        self.update_stalling();
        if self.one_unit() {
            findings.extend(self.report_once(Finding::OneUnit));
        } else if self.uncounted(seen.at) {
            findings.extend(self.report_once(Finding::Uncounted));
        }
        findings
    }

    fn read(&mut self, i: usize, view: &ThreadView<'_>, at: Moment) {
        let unit = self.unit(i);
        let history = self.histories.entry(view.id()).or_default();
        if unit.is_some() && history.unit != unit {
            // Counts from another unit are not comparable.
            history.recent.clear();
            history.cold = if history.unit.is_some() { self.sample_number + COLD_SAMPLES } else { 0 };
            history.unit = unit;
        }
        // Counters that were missing in one of two readings give no difference.
        let told = |counts: &Counts| counts.busy.is_some() || counts.cycles.is_some() || counts.far.is_some();
        let counted = view.counted.filter(told);
        if let Some(pages) = view.pages.filter(|pages| **pages != history.pages) {
            history.pages.clone_from(pages);
        }
        history.now = counted;
        history.last = counted.or(history.last);
        if counted.is_some() {
            history.counted = self.sample_number;
        }
        if let Some(counts) = counted.filter(|_| self.sample_number > history.cold) {
            if let Some(((above, below), unit)) =
                self.compared.and_then(|index| index.parts(&counts)).zip(history.unit)
            {
                let there = history.there.entry(unit).or_default();
                for (sum, more) in there.iter_mut().zip([above, below, 1.0]) {
                    *sum = *sum * HINT_DECAY + more;
                }
            }
            let ran = view.rates.and_then(|rates| {
                let seconds = rates.span.seconds();
                Some((rates.run * seconds, (rates.run + rates.wait?) * seconds))
            });
            history.recent.push_back(CountSample { sample_number: self.sample_number, counts, ran });
            if history.recent.len() > SAMPLES_MAX {
                history.recent.pop_front();
            }
        }
        history.check_stalls(at, counted, self.moved);
    }

    /// Updates the stalling threads and their units, and marks the units in which they changed.
    fn update_stalling(&mut self) {
        let suffers = |i: usize| {
            let thread = self.thread(i);
            let unit = self.unit(i).filter(|_| thread.active() && self.weighs(thread.id))?;
            Some((thread.id, unit))
        };
        let now: BTreeMap<ThreadId, u16> = (0..self.len()).filter_map(suffers).collect();
        for (id, unit) in &now {
            let before = self.stalling.get(id);
            if before != Some(unit) {
                self.quiet.extend(before.into_iter().chain([unit]).map(|unit| (*unit, self.sample_number)));
            }
        }
        for (id, unit) in &self.stalling {
            if !now.contains_key(id) {
                self.quiet.insert(*unit, self.sample_number);
            }
        }
        self.stalling = now;
    }

    /// Returns the number of the sample since which the stalling threads in these units are
    /// unchanged.
    pub(super) fn quiet(&self, units: &[u16]) -> u64 {
        units.iter().filter_map(|unit| self.quiet.get(unit)).copied().max().unwrap_or(0)
    }

    /// Returns the history of a thread that is counted at least occasionally.
    pub(super) fn counted(&self, id: ThreadId) -> Option<&ThreadHistory> {
        self.histories.get(&id).filter(|history| {
            history.last.is_some() && self.sample_number <= history.counted + SAMPLES_MAX as u64
        })
    }

    /// Sums the experience of programs' threads in each unit.
    fn sum_hints(&mut self, seen: &Observation<'_>) {
        self.hints.clear();
        for view in &seen.threads {
            let Some(history) = self.histories.get(&view.id()) else { continue };
            let all = self.hints.entry(view.info.program).or_default();
            for (unit, there) in &history.there {
                let sum = all.entry(*unit).or_default();
                sum.iter_mut().zip(there).for_each(|(sum, more)| *sum += more);
            }
        }
    }

    /// Returns the ratio of thread `i`'s far memory in a unit to its far memory now. Known only if
    /// threads are compared by far memory alone and memory is reported per node.
    pub(super) fn farther(&self, i: usize, unit: u16) -> Option<f64> {
        let pages = &self.histories.get(&self.thread(i).id)?.pages;
        let whole = pages.values().copied().fold(0, u64::saturating_add);
        if self.index() != Some(Index::Far) || whole == 0 {
            return None;
        }
        let far = |unit: u16| {
            let node = self.units.all.get(usize::from(unit))?.node?;
            Some(whole.saturating_sub(pages.get(&node).copied().unwrap_or(0)))
        };
        let (here, there) = (far(self.unit(i)?)?, far(unit)?);
        // No unit is better than this one.
        if here == 0 { Some(f64::INFINITY) } else { Some(there as f64 / here as f64) }
    }

    /// Returns whether thread `i` computes on the node that holds more of its memory than any other
    /// node, so that it would be farther from its memory anywhere else. If nothing else is known,
    /// such a thread has no stalls, but its place still matters.
    pub(super) fn near(&self, i: usize) -> bool {
        let farther = |unit: u16| self.farther(i, unit).is_some_and(|ratio| ratio > 1.0);
        let here = self.unit(i);
        let node = |unit: u16| self.units.all.get(usize::from(unit)).and_then(|unit| unit.node);
        let units = (0..self.units.all.len()).filter_map(|unit| u16::try_from(unit).ok());
        let mut others = units.filter(|unit| here.and_then(node) != node(*unit)).peekable();
        self.thread(i).active() && others.peek().is_some() && others.all(farther)
    }

    /// Returns the expected factor of the index if thread `i` goes to a unit.
    pub(super) fn hint(&self, i: usize, unit: u16) -> Option<Hint> {
        if let Some(ratio) = self.farther(i, unit) {
            return Some(ratio);
        }
        let thread = self.thread(i);
        let ratio = |[above, below, samples]: &[f64; 3]| {
            (*samples >= HINT_SAMPLES_MIN && *below > 0.0).then(|| above / below)
        };
        let own = &self.histories.get(&thread.id)?.there;
        let here = own.get(&self.unit(i)?).and_then(ratio)?;
        let others = || self.hints.get(&thread.program)?.get(&unit).and_then(ratio);
        let there = own.get(&unit).and_then(ratio).or_else(others)?;
        (here > 0.0).then(|| there / here)
    }

    /// Updates the spinning programs: a thread that runs without requests while others of its
    /// program stall waits for them.
    fn update_spinning(&mut self, seen: &Observation<'_>) {
        let mut programs: BTreeMap<ProgramId, (f64, f64, bool)> = BTreeMap::new();
        for view in &seen.threads {
            let runs = view.rates.is_some_and(|rates| rates.run >= SPIN_RUN_SHARE_MIN);
            let Some(share) = view.counted.as_ref().filter(|_| runs).and_then(stall_share) else { continue };
            let (all, spin, stall) = programs.entry(view.info.program).or_default();
            *all += 1.0;
            *spin += f64::from(u8::from(share < STALL_SHARE_LEAVE));
            *stall |= share >= STALL_SHARE_ENTER;
        }
        for (program, (all, spin, stall)) in programs {
            let (seen, spun) = self.spin_samples.entry(program).or_default();
            let keep = 0.99;
            *seen = *seen * keep + all;
            *spun = *spun * keep + if stall { spin } else { 0.0 };
        }
        let least = if self.spinning { SPIN_SHARE_LEAVE } else { SPIN_SHARE_ENTER };
        // A hundred samples decide.
        self.spinning = self.spin_samples.values().any(|(seen, spun)| *seen > 50.0 && *spun > least * seen);
    }

    /// Drops all counts.
    pub(super) fn begin_again(&mut self) {
        self.histories.clear();
        self.spin_samples.clear();
        self.since = None;
    }

    /// Removes single samples.
    pub(super) fn forget_samples(&mut self) {
        self.histories.values_mut().for_each(|history| history.recent.clear());
    }

    /// Returns a finding the first time; `None` until it is withdrawn.
    pub(super) fn report_once(&mut self, finding: Finding) -> Option<Finding> {
        self.reported.insert(finding.word()).then_some(finding)
    }

    /// Withdraws a finding, so that it can be reported again.
    pub(super) fn withdraw(&mut self, finding: &Finding) {
        self.reported.remove(finding.word());
    }

    /// Returns whether there is only one usable unit.
    pub(super) fn one_unit(&self) -> bool {
        self.units.open(self.cpu_table()) < 2
    }

    fn uncounted(&self, at: Moment) -> bool {
        self.rung == Some(Rung::Nothing) || self.since.is_some_and(|since| at.since(since) >= UNCOUNTED_AFTER)
    }

    /// Returns the index by which threads are compared now; `None` if nothing can be compared.
    pub(super) fn index(&self) -> Option<Index> {
        let rung = self.rung.filter(|rung| *rung != Rung::Nothing)?;
        match self.settings().index {
            Some(index) => Some(index.on(rung)),
            None => {
                let usual = Index::usual(rung, self.spinning)?;
                let instructions =
                    |history: &ThreadHistory| history.now.is_none_or(|counts| counts.instructions.is_some());
                // If only two counters are read, they are those of the penalty.
                let two = usual == Index::Busy && !self.histories.values().all(instructions);
                Some(if two { Index::Penalty } else { usual })
            }
        }
    }

    /// Returns the rung of the machine, as far as known.
    pub(super) fn rung(&self) -> Option<Rung> {
        self.rung
    }

    /// Returns the rule by which the indices of many threads become one number.
    pub(super) fn mean(&self) -> Mean {
        self.settings().mean.unwrap_or(Mean::Weighted)
    }

    /// Returns the unit of thread `i`, as far as known.
    pub(super) fn unit(&self, i: usize) -> Option<u16> {
        let thread = self.thread(i);
        match thread.binding {
            Binding::Within(unit) => Some(unit),
            _ => thread.cpu.map(|cpu| self.units.of(cpu)),
        }
    }

    /// Returns the load of each unit.
    pub(super) fn loads(&self) -> Vec<UnitLoad> {
        self.units.loads(&self.context.table, &self.foreign_load, |i| self.unit(i))
    }

    /// Returns the CPUs of a unit to which thread `i` may go.
    pub(super) fn room(&self, i: usize, unit: u16) -> CpuSet {
        self.units.room(&self.context.table, i, unit)
    }

    /// Returns whether thread `i` may be moved now.
    pub(super) fn movable(&self, i: usize) -> bool {
        let thread = self.thread(i);
        thread.free() && thread.binding != Binding::Held
    }

    /// Returns whether thread `i` may be moved because of its memory.
    pub(super) fn is_candidate(&self, i: usize, view: &ThreadView<'_>) -> bool {
        let stalls = || self.histories.get(&view.id()).is_some_and(|history| history.stalls);
        match self.settings().candidates {
            Candidates::Auto => view.info.tagged || self.thread(i).active() && stalls(),
            Candidates::Tagged => view.info.tagged,
            Candidates::All => self.thread(i).active(),
        }
    }

    /// Returns whether thread `i` may make room for another.
    pub(super) fn may_yield(&self, i: usize, view: &ThreadView<'_>) -> bool {
        self.movable(i) && (self.settings().candidates != Candidates::Tagged || view.info.tagged)
    }

    /// Returns the number of threads that are kept in a unit.
    pub(super) fn touched(&self) -> usize {
        (0..self.len()).filter(|i| matches!(self.thread(*i).binding, Binding::Within(_))).count()
    }

    /// Discards the samples of these units' threads, because the threads of the units changed, and
    /// skips samples while caches are cold.
    pub(super) fn disturb(&mut self, units: &[u16]) {
        for history in self.histories.values_mut() {
            if history.unit.is_some_and(|unit| units.contains(&unit)) {
                history.recent.clear();
                history.cold = self.sample_number + COLD_SAMPLES;
            }
        }
    }

    /// Returns whether a thread stalls enough for its place to affect others.
    pub(super) fn weighs(&self, id: ThreadId) -> bool {
        let weight = self.histories.get(&id).and_then(ThreadHistory::weight);
        weight.is_some_and(|weight| weight >= STALL_SHARE_LEAVE)
    }
}

/// Returns the rung that the counts belong to, if the host did not report it.
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
        let mut history = ThreadHistory::default();
        let counts = |busy| {
            let long = STALL_CHECK_PERIOD;
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
        history.check_stalls(at, counts(0), false);
        for (busy, moved, first) in [(900, false, 900), (500, false, 500), (400, true, 500), (300, true, 500)]
        {
            at = at + STALL_CHECK_PERIOD;
            history.check_stalls(at, counts(busy), moved);
            assert_eq!(history.first.and_then(|counts| counts.busy), Some(first), "{busy}");
        }
    }
}

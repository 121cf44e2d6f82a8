//! Counter reader: hardware counters of threads, opened for threads that run, switched and read at
//! a bounded cost, and closed if the cost is too high.
//!
//! No event is opened or tried unless counts are requested. Counts that most samples request
//! continue through a sample that does not; after two seconds without a request the counters are
//! closed.
//!
//! The rung is selected by the ladder. It is left for a lower one when counting costs more than it
//! may, when most threads may not be counted, when there is no room for their descriptors, or when
//! others hold the counters: a notice reports each, and [`CounterReader::standing`] has the reason.
//! A rung that was left is not tried again: its cause would return with it.
//!
//! Virtual machines that own the counters while they run (KVM's mediated PMU) are the exception.
//! The work of their vCPUs cannot be counted from here: counters that leave guests out see only the
//! monitor's work of such a thread, which would be mistaken for the guest's. Therefore such threads
//! then have no counts; if there are no others, hardware is left until there are. A sign that such
//! a machine has started is that a thread's counters are refused although the ladder had got them
//! for its own thread: the ladder is climbed again.

mod memory;

use super::clock::Clock;
use super::discovery::{Interest, ThreadTable, WatchedThread};
use super::procfs::{DescriptorBudget, Procfs};
use crate::perf::{self, Choice, Group, Recipe, Standing, Why};
use crate::process::Tid;
use memory::MemoryReader;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use trimtab_core::balance::Wanted;
use trimtab_core::counter_budget::{
    self, CounterActions, CounterActivity, CounterThrottle, CountingChange, Price, Spent,
};
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Notice, Sample, ThreadSample};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Time that counters stay open after the last request. Chosen: longer than any policy's pause
/// between two samples.
const OPEN_UNWANTED_MAX: Span = Span::from_ms(2_000);
/// Maximal number of threads that get counters in one sample: 10 to 100 us each. Chosen.
const OPENED_PER_SAMPLE: usize = 128;
/// Time over which the cost of counting is summed before it is judged.
const JUDGE_PERIOD: Span = Span::from_ms(1_000);
/// Run time of a thread with its counters on from which "never counted" means that others hold
/// them. Chosen: several rounds in which the kernel rotates counters.
const STARVED_MIN: Span = Span::from_ms(20);
/// Shortest time between two climbs of the ladder, each of which takes some milliseconds. Chosen.
const CLIMB_PERIOD_MIN: Span = Span::from_ms(60_000);
/// Price that replaces an unknown one: the price of the most expensive counters seen.
const PRICE_UNKNOWN: Price =
    Price { read: Span::from_us(20), one: Span::from_us(26), two: Span::from_us(92) };

/// Reading of the kernel's scheduler counters that comes with a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SchedCounters {
    run: Span,
    slices: Option<u64>,
}

impl SchedCounters {
    fn of(read: &ThreadSample) -> Self {
        Self { run: read.run, slices: read.slices }
    }
}

/// State of counting one thread.
#[derive(Debug, Default)]
struct Counted {
    group: Option<Group>,
    /// Error by which the kernel refused to count it.
    refused: Option<Errno>,
    /// Whether it is put on a CPU too often to be counted cheaply.
    restless: bool,
    /// Scheduler counters when the group was opened: counts cover the time since then.
    from: Option<SchedCounters>,
    /// Scheduler counters at the last sample here.
    last: Option<(Moment, SchedCounters)>,
    /// Its run time when its counts were last read.
    read_at: Option<Span>,
    /// Without hardware counters: near and far pages or accesses so far, and the sample at which
    /// they were last counted.
    tally: (u64, u64),
    tallied: Option<Moment>,
}

impl Counted {
    /// Closes its counters.
    fn close(&mut self, recipe: Option<&Recipe>, budget: &DescriptorBudget) {
        if self.group.take().is_some() {
            for _ in 0..recipe.map_or(0, Group::descriptors) {
                budget.give_back();
            }
        }
        *self = Self { refused: self.refused, ..Self::default() };
    }
}

/// The part of a host that counts by hardware, or, if hardware does not count, by the kernel's
/// knowledge of memory.
#[derive(Debug)]
pub struct CounterReader {
    proc: Arc<Procfs>,
    budget: DescriptorBudget,
    sys: PathBuf,
    choice: Choice,
    threads: BTreeMap<ThreadId, Counted>,
    standing: Option<Standing>,
    /// The rung that was reported last.
    told: Option<Rung>,
    wanted_at: Option<Moment>,
    duty: CounterActivity,
    /// Switching and reading at the last sample.
    beat: CounterActions,
    /// Cost limits that the caller requested.
    asked: Option<CounterThrottle>,
    /// The cost that is judged, and the time since which it is summed.
    spent: Spent,
    spent_from: Moment,
    /// Numbers of readings of counters that ran, and of counters that should have run and never
    /// did.
    counted: u32,
    starved: u32,
    /// Number of threads without a descriptor in the last sample.
    crowded: usize,
    /// Whether hardware was left only because all threads to be counted were vCPUs.
    left_for_guests: bool,
    /// Time of the last repeated climb of the ladder.
    climbed_again: Option<Moment>,
    memory: MemoryReader,
}

impl CounterReader {
    /// Makes a reader that has tried nothing yet.
    pub fn new(
        proc: Arc<Procfs>,
        budget: DescriptorBudget,
        choice: Choice,
        thrift: Option<CounterThrottle>,
    ) -> Self {
        let sys = proc.root().join("sys");
        Self {
            proc,
            budget,
            memory: MemoryReader::default(),
            sys,
            choice,
            threads: BTreeMap::new(),
            standing: None,
            told: None,
            wanted_at: None,
            duty: CounterActivity::Off(Moment::default()),
            beat: CounterActions::default(),
            asked: thrift,
            spent: Spent::default(),
            spent_from: Moment::default(),
            counted: 0,
            starved: 0,
            crowded: 0,
            left_for_guests: false,
            climbed_again: None,
        }
    }

    /// Returns the events that are counted for each thread; `None` while none are.
    fn recipe(&self) -> Option<&Recipe> {
        self.standing.as_ref()?.recipe.as_ref()
    }

    fn thrift(&self) -> CounterThrottle {
        self.standing.as_ref().map_or(CounterThrottle::FREE, Standing::thrift)
    }

    fn begin_judging(&mut self, at: Moment) {
        (self.spent, self.spent_from) = (Spent::default(), at);
        (self.counted, self.starved) = (0, 0);
    }

    /// Returns which events can be counted here and why no more; `None` as long as no counts were
    /// requested.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// Returns the number of threads that have counters open now.
    pub fn counted_threads(&self) -> usize {
        self.threads.values().filter(|counted| counted.group.is_some()).count()
    }

    /// Adds counts to a sample after its threads were read, if counts are requested. `mask` returns
    /// the mask of a thread, if the host has it.
    pub fn count<'m>(
        &mut self,
        wanted: &Wanted,
        table: &ThreadTable,
        mask: &dyn Fn(ThreadId) -> Option<&'m CpuSet>,
        sample: &mut Sample,
    ) {
        let at = sample.at;
        if !wanted.counts {
            if self.wanted_at.is_some_and(|last| at.since(last) > OPEN_UNWANTED_MAX) {
                self.close_counters();
                self.wanted_at = None;
            }
            return;
        }
        let begin = Clock::worked();
        if self.wanted_at.replace(at).is_none() {
            self.begin_judging(at);
            self.duty = CounterActivity::Off(at);
        }
        if self.left_for_guests && !only_guests(table) && self.may_climb_again(at) {
            self.climb_again(at);
        }
        if self.standing.is_none() {
            let mut standing = perf::look(self.proc.path(), &self.sys, &self.choice, None);
            standing.thrift = self.asked.unwrap_or(standing.thrift);
            self.standing = Some(standing);
            // A single attempt is not part of the cost of counting.
            self.begin_judging(at);
        } else {
            self.count_threads(wanted, table, mask, sample);
            self.spent.reading = self.spent.reading + Clock::worked().less(begin);
        }
        self.judge_counting(at, table);
        let rung = self.standing.as_ref().map(|standing| standing.rung);
        if let Some(rung) = rung.filter(|rung| self.told != Some(*rung)) {
            self.told = Some(rung);
            sample.notices.push(Notice::Counting(rung));
        }
    }

    fn count_threads<'m>(
        &mut self,
        wanted: &Wanted,
        table: &ThreadTable,
        mask: &dyn Fn(ThreadId) -> Option<&'m CpuSet>,
        sample: &mut Sample,
    ) {
        let rung = self.standing.as_ref().map_or(Rung::Nothing, |standing| standing.rung);
        match rung {
            Rung::Nothing => {}
            Rung::HintFaults | Rung::Residency => self.count_memory(rung, wanted, table, mask, sample),
            _ => self.count_hardware(table, sample),
        }
    }

    /// Counts by hardware: counters are opened for threads that run, read when due, and switched if
    /// they are not always on.
    fn count_hardware(&mut self, table: &ThreadTable, sample: &mut Sample) {
        let (at, thrift) = (sample.at, self.thrift());
        let Some(recipe) = self.recipe().cloned() else { return };
        let was_on = matches!(self.duty, CounterActivity::On(_));
        let beat = self.duty.beat(at, &thrift);
        self.beat = beat;
        let mut room = OPENED_PER_SAMPLE;
        self.crowded = 0;
        let (may_climb, mut climb) = (self.may_climb_again(at), false);
        for read in &mut sample.threads {
            let Some(thread) = table.threads.get(&read.id) else { continue };
            let now = SchedCounters::of(read);
            if recipe.no_guests && table.is_virtual_machine(thread.pid) {
                continue;
            }
            let counted = self.threads.entry(read.id).or_default();
            let ran = mark(counted, at, now, was_on, &thrift, &mut self.spent);
            if counted.restless && counted.group.is_some() {
                counted.close(Some(&recipe), &self.budget);
                continue;
            }
            match &counted.group {
                Some(group) if beat.reads && ran_since(counted.read_at, now) => {
                    let counts = counts(group, &recipe, counted.from, now);
                    counted.read_at = Some(now.run);
                    match counts {
                        Some(_) => self.counted += 1,
                        None => {
                            let starved = group.enabled().is_ok_and(|enabled| enabled >= STARVED_MIN);
                            self.starved += u32::from(starved);
                        }
                    }
                    read.counts = counts;
                }
                // A sleeping thread has nothing to count.
                None if ran && counted.refused.is_none() && !counted.restless && room > 0 => {
                    room -= 1;
                    let opened = open(counted, thread.tid, &recipe, &self.budget);
                    match opened {
                        Opened::Yes if beat.runs => {
                            let _ = counted.group.as_ref().map(Group::on);
                        }
                        Opened::Yes | Opened::Gone => {}
                        Opened::Refused(Errno::OPNOTSUPP) if may_climb && !recipe.no_guests => climb = true,
                        Opened::Refused(errno) => counted.refused = Some(errno),
                        Opened::Crowded => {
                            self.crowded += 1;
                            // There is no room for the other threads either.
                            room = 0;
                        }
                    }
                    counted.from = Some(now);
                    counted.read_at = Some(now.run);
                }
                _ => {}
            }
        }
        if climb {
            return self.climb_again(at);
        }
        if beat.begins || beat.ends {
            // This includes threads that were not read now.
            for group in self.threads.values().filter_map(|counted| counted.group.as_ref()) {
                // A thread that has ended meanwhile is noticed when it is read.
                let _ = if beat.ends { group.off() } else { group.on() };
            }
        }
    }

    /// Judges whether counting is worth its cost, and possible at all.
    fn judge_counting(&mut self, at: Moment, table: &ThreadTable) {
        let Some(standing) = &self.standing else { return };
        if !standing.rung.counts() {
            return;
        }
        if self.recipe().is_some_and(|recipe| recipe.no_guests) && only_guests(table) {
            self.step_down(&Why::GuestsHidden, at);
            self.left_for_guests = true;
            return;
        }
        let mut open = 0_usize;
        let mut refused: BTreeMap<i32, usize> = BTreeMap::new();
        for counted in self.threads.values() {
            open += usize::from(counted.group.is_some());
            if let Some(errno) = counted.refused {
                *refused.entry(errno.raw_os_error()).or_insert(0) += 1;
            }
        }
        if self.crowded > 0 && self.recipe().is_some_and(|recipe| recipe.events.len() > 2) {
            return self.count_less(at);
        }
        let wanting = self.threads.values().filter(|counted| counted.last.is_some()).count();
        if self.crowded > 0 && 2 * open < wanting {
            return self.step_down(&Why::NoDescriptors, at);
        }
        self.spent.span = at.since(self.spent_from);
        if self.spent.span < JUDGE_PERIOD {
            return;
        }
        if refused.values().sum::<usize>() > 2 * open
            && let Some((errno, _)) = refused.into_iter().max_by_key(|(_, threads)| *threads)
        {
            return self.step_down(&why_refused(Errno::from_raw_os_error(errno)), at);
        }
        if self.counted == 0 && self.starved > 0 {
            return self.step_down(&Why::Taken, at);
        }
        let thrift = self.thrift();
        let Some(standing) = &mut self.standing else { return };
        if !self.spent.is_due(&self.beat, &thrift) {
            return;
        }
        let price = standing.price.unwrap_or(PRICE_UNKNOWN);
        match counter_budget::judge(&self.spent, &price, &thrift) {
            Some(CountingChange::GiveUp) => return self.step_down(&Why::TooDear, at),
            Some(CountingChange::Thin { one_in, rests }) => {
                standing.thrift = CounterThrottle { one_in, rests, ..standing.thrift };
            }
            Some(CountingChange::Keep) | None => {}
        }
        self.begin_judging(at);
    }

    /// Halves the number of counters, to at least two, since there is no room for more.
    fn count_less(&mut self, at: Moment) {
        self.close_counters();
        if let Some(standing) = &mut self.standing
            && let Some(recipe) = &mut standing.recipe
        {
            let most = (recipe.events.len() / 2).max(2);
            *recipe = recipe.at_most(most);
            standing.thrift.counters = u32::try_from(most).ok();
        }
        self.begin_judging(at);
    }

    /// Abandons hardware from now on, and selects a lower rung.
    fn step_down(&mut self, why: &Why, at: Moment) {
        self.close_counters();
        let standing = perf::look(self.proc.path(), &self.sys, &self.choice, Some(why));
        self.standing = Some(standing);
        self.begin_judging(at);
    }

    fn may_climb_again(&self, at: Moment) -> bool {
        self.climbed_again.is_none_or(|last| at.since(last) >= CLIMB_PERIOD_MIN)
    }

    /// Makes the next sample find out again which events can be counted.
    fn climb_again(&mut self, at: Moment) {
        self.close_counters();
        for counted in self.threads.values_mut() {
            counted.refused = counted.refused.filter(|errno| *errno != Errno::OPNOTSUPP);
        }
        self.standing = None;
        self.left_for_guests = false;
        self.climbed_again = Some(at);
    }

    /// Removes a thread, and closes its counters.
    pub fn forget(&mut self, id: ThreadId) {
        if let Some(mut counted) = self.threads.remove(&id) {
            counted.close(self.recipe(), &self.budget);
        }
    }

    /// Closes all counters.
    fn close_counters(&mut self) {
        let recipe = self.recipe().cloned();
        for counted in self.threads.values_mut() {
            counted.close(recipe.as_ref(), &self.budget);
        }
        self.memory.clear();
        self.duty = CounterActivity::Off(Moment::default());
    }
}

/// Records the progress of a thread since its last sample here; returns whether it ran.
fn mark(
    counted: &mut Counted,
    at: Moment,
    now: SchedCounters,
    was_on: bool,
    thrift: &CounterThrottle,
    spent: &mut Spent,
) -> bool {
    let Some((before_at, before)) = counted.last.replace((at, now)) else {
        return false;
    };
    let ran = now.run.less(before.run);
    spent.ran = spent.ran + ran;
    let switches = now.slices.zip(before.slices).map(|(now, before)| now.saturating_sub(before));
    if let Some(switches) = switches {
        if was_on && counted.group.is_some() {
            spent.switches = spent.switches.saturating_add(switches);
        }
        let elapsed = at.since(before_at).seconds();
        if elapsed > 0.0 {
            // At half that rate, the thread may be counted again.
            let factor = if counted.restless { 2.0 } else { 1.0 };
            counted.restless = !thrift.counts(Some(switches as f64 / elapsed * factor));
        }
    }
    ran > Span::ZERO
}

/// Returns whether a thread ran since its counts were read.
fn ran_since(read_at: Option<Span>, now: SchedCounters) -> bool {
    read_at.is_none_or(|before| now.run > before)
}

/// Returns the counts of a group, with the time that its thread ran while it could have counted.
fn counts(group: &Group, recipe: &Recipe, from: Option<SchedCounters>, now: SchedCounters) -> Option<Counts> {
    let counts = group.read(recipe).ok().flatten()?;
    let ran = from.map_or(Span::ZERO, |from| now.run.less(from.run));
    Some(Counts { enabled: counts.enabled.max(ran), ..counts })
}

/// Returns whether there are threads, and all of them are CPUs of virtual machines.
fn only_guests(table: &ThreadTable) -> bool {
    let wanted = |thread: &&WatchedThread| thread.interest != Interest::Untagged;
    let mut threads = table.threads.values().filter(wanted).peekable();
    threads.peek().is_some() && threads.all(|thread| table.is_virtual_machine(thread.pid))
}

/// Returns the reason why most threads may not be counted, from the kernel's answer.
fn why_refused(errno: Errno) -> Why {
    match errno {
        Errno::ACCESS | Errno::PERM => Why::ThreadsRefused,
        // Our own thread was counted by the same events: the refusal concerns threads that run
        // guests.
        Errno::OPNOTSUPP => Why::GuestsHidden,
        errno => Why::of(errno),
    }
}

/// Outcome of opening a thread's counters.
enum Opened {
    Yes,
    Gone,
    Refused(Errno),
    Crowded,
}

fn open(counted: &mut Counted, tid: Tid, recipe: &Recipe, budget: &DescriptorBudget) -> Opened {
    let many = Group::descriptors(recipe);
    let taken = (0..many).take_while(|_| budget.take_spare()).count();
    let opened = if taken < many {
        Opened::Crowded
    } else {
        match Group::open(recipe, Some(tid)) {
            Ok(group) => {
                counted.group = Some(group);
                return Opened::Yes;
            }
            Err(Errno::SRCH) => Opened::Gone,
            Err(Errno::MFILE | Errno::NFILE) => Opened::Crowded,
            Err(errno) => Opened::Refused(errno),
        }
    };
    for _ in 0..taken {
        budget.give_back();
    }
    opened
}

#[cfg(test)]
mod tests;

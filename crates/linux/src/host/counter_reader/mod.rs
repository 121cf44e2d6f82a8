//! What hardware counts of threads, in samples: counters opened as threads run, switched and read so that it stays cheap, and given up
//! where it does not.
//!
//! Nothing here is done, opened or tried unless counts are wanted. What is wanted at most looks and not at one of them goes on; two
//! seconds without are an end, and the counters are closed.
//!
//! The rung is the ladder's. It is left for a lower one when counting costs more than it may, when most threads may not be counted,
//! when there is no room for their descriptors, or when others hold the counters: each is told by a notice, and why by
//! [`Live::counting`]. Once left, it is not tried again: what made it fail would come again with it.
//!
//! Virtual machines that own the counters while they run (KVM's mediated PMU) are the exception. What their CPUs do cannot be counted from
//! here: counters that leave guests out see of such a thread only its monitor's work, which would be taken for the guest's. So such
//! threads have no counts then; where there are no others, hardware is left until there are. That such a machine has begun shows when a
//! thread's counters are refused which the ladder had got for its own: it is climbed again.

use crate::host::clock::Clock;
use crate::host::discovery::thread_table::{Process, Thread, Wish};
use crate::host::procfs::Budget;
use crate::host::sampler::counters::Counters;
use crate::host::{Live, Options};
use crate::perf::locality::{self, Pages};
use crate::perf::{self, Choice, Group, Recipe, Standing, Why};
use crate::process::{self, Pid};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trimtab_core::balance::Wanted;
use trimtab_core::counting::{self, Beat, Duty, Price, Spent, Thrift, Verdict};
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::ids::{OsCpu, OsNode};
use trimtab_core::observe::{MemorySample, Notice, Sample};
use trimtab_core::time::{Moment, Span};

/// Counters stay open so long after they were last wanted. Chosen: longer than any policy's pause between two looks.
const KEPT: Span = Span::from_ms(2_000);
/// So many threads' counters are opened at one look: 10 to 100 us each. Chosen.
const OPENED_MAX: usize = 128;
/// Where memory lies is asked anew so often for each process, ...
const MEMORY_EVERY: Span = Span::from_ms(500);
/// ... for so many processes at a look (0.3 ms each), and for so many threads where each has its own file (20 us).
const PROCESSES_MAX: usize = 8;
const FILES_MAX: usize = 256;
/// What we are judged by is summed over this long.
const JUDGED: Span = Span::from_ms(1_000);
/// A thread must have run for so long with its counters on before "never counted" means that others hold them. Chosen: several turns
/// in which the kernel deals counters out.
const STARVED: Span = Span::from_ms(20);
/// The ladder is climbed again no more often than this: it takes some milliseconds. Chosen.
const CLIMBED_AGAIN: Span = Span::from_ms(60_000);
/// Where a price is not known it is taken for that of the dearest counters seen.
const DEAREST: Price = Price { read: Span::from_us(20), one: Span::from_us(26), two: Span::from_us(92) };

/// What is kept of one thread.
#[derive(Debug, Default)]
pub(in crate::host) struct Counted {
    group: Option<Group>,
    /// Why it may not be counted.
    refused: Option<Errno>,
    /// It is put on a CPU too often to be counted cheaply.
    restless: bool,
    /// The counters when the group was opened: what is counted is of since then.
    from: Option<Counters>,
    /// The counters when they were last looked at here.
    last: Option<(Moment, Counters)>,
    /// How long it had run when its counts were last read.
    read_at: Option<Span>,
    /// Without counters: what was found near and far so far, and of which look that was.
    tally: (u64, u64),
    tallied: Option<Moment>,
}

impl Counted {
    /// Closes its counters.
    pub(in crate::host) fn close(&mut self, recipe: Option<&Recipe>, budget: &mut Budget) {
        if self.group.take().is_some() {
            for _ in 0..recipe.map_or(0, Group::descriptors) {
                budget.give_back();
            }
        }
        *self = Self { refused: self.refused, ..Self::default() };
    }
}

/// What is kept for all threads.
#[derive(Debug)]
pub(in crate::host) struct Counting {
    choice: Choice,
    standing: Option<Standing>,
    told: Option<Rung>,
    wanted_at: Option<Moment>,
    duty: Duty,
    /// What was done at the last look.
    beat: Beat,
    /// How to be thrifty, if somebody said so.
    asked: Option<Thrift>,
    /// What is judged, and since when.
    spent: Spent,
    spent_from: Moment,
    /// Readings of counters that ran, and of those that should have and never did.
    counted: u32,
    starved: u32,
    /// Threads for which there was no descriptor left at the last look.
    crowded: usize,
    /// Hardware was left only because of whom there was to be counted.
    left_for_guests: bool,
    /// When the ladder was last climbed once more.
    climbed_again: Option<Moment>,
    nodes: BTreeMap<OsCpu, OsNode>,
    memory: BTreeMap<Pid, (Moment, Pages)>,
    round: u64,
    sys: PathBuf,
}

impl Counting {
    pub(in crate::host) fn new(options: &Options, sys: PathBuf) -> Self {
        Self {
            choice: options.counting.clone(),
            standing: None,
            told: None,
            wanted_at: None,
            duty: Duty::Off(Moment::default()),
            beat: Beat::default(),
            asked: options.thrift,
            spent: Spent::default(),
            spent_from: Moment::default(),
            counted: 0,
            starved: 0,
            crowded: 0,
            left_for_guests: false,
            climbed_again: None,
            nodes: BTreeMap::new(),
            memory: BTreeMap::new(),
            round: 0,
            sys,
        }
    }

    /// What is counted of each thread, while anything is.
    pub(in crate::host) fn recipe(&self) -> Option<&Recipe> {
        self.standing.as_ref()?.recipe.as_ref()
    }

    fn thrift(&self) -> Thrift {
        self.standing.as_ref().map_or(Thrift::FREE, Standing::thrift)
    }

    fn begin_judging(&mut self, at: Moment) {
        (self.spent, self.spent_from) = (Spent::default(), at);
        (self.counted, self.starved) = (0, 0);
    }
}

impl Live {
    /// What can be counted here and why not more; `None` as long as counts were not wanted.
    pub fn counting(&self) -> Option<&Standing> {
        self.counting.standing.as_ref()
    }

    /// How many threads have counters open now.
    pub fn counted_threads(&self) -> usize {
        self.table.threads.values().filter(|thread| thread.counted.group.is_some()).count()
    }

    /// Puts counts into a sample whose threads were read, if they are wanted.
    pub(in crate::host) fn count(&mut self, wanted: &Wanted, sample: &mut Sample) {
        let at = sample.at;
        if !wanted.counts {
            if self.counting.wanted_at.is_some_and(|last| at.since(last) > KEPT) {
                self.close_counters();
                self.counting.wanted_at = None;
            }
            return;
        }
        let begin = Clock::worked();
        if self.counting.wanted_at.replace(at).is_none() {
            self.counting.begin_judging(at);
            self.counting.duty = Duty::Off(at);
        }
        if self.counting.left_for_guests && !self.only_guests() && self.may_climb_again(at) {
            self.climb_again(at);
        }
        if self.counting.standing.is_none() {
            let mut standing = perf::look(&self.proc, &self.counting.sys, &self.counting.choice, None);
            standing.thrift = self.counting.asked.unwrap_or(standing.thrift);
            self.counting.standing = Some(standing);
            // What is tried once is no part of what counting costs.
            self.counting.begin_judging(at);
        } else {
            self.count_threads(wanted, sample);
            self.counting.spent.reading = self.counting.spent.reading + Clock::worked().less(begin);
        }
        self.judge_counting(at);
        let rung = self.counting.standing.as_ref().map(|standing| standing.rung);
        if let Some(rung) = rung.filter(|rung| self.counting.told != Some(*rung)) {
            self.counting.told = Some(rung);
            sample.notices.push(Notice::Counting(rung));
        }
    }

    fn count_threads(&mut self, wanted: &Wanted, sample: &mut Sample) {
        let rung = self.counting.standing.as_ref().map_or(Rung::Nothing, |standing| standing.rung);
        match rung {
            Rung::Nothing => {}
            Rung::HintFaults | Rung::Residency => self.count_memory(rung, wanted, sample),
            _ => self.count_hardware(sample),
        }
    }

    /// Counters: opened for those who run, read when it is time, switched where they are not always on.
    fn count_hardware(&mut self, sample: &mut Sample) {
        let (at, thrift) = (sample.at, self.counting.thrift());
        let Some(recipe) = self.counting.recipe().cloned() else { return };
        let was_on = matches!(self.counting.duty, Duty::On(_));
        let beat = self.counting.duty.beat(at, &thrift);
        self.counting.beat = beat;
        let mut room = OPENED_MAX;
        self.counting.crowded = 0;
        let (may_climb, mut climb) = (self.may_climb_again(at), false);
        for read in &mut sample.threads {
            let Some(thread) = self.table.threads.get_mut(&read.id) else { continue };
            let Some(now) = thread.last else { continue };
            if recipe.no_guests && is_guest(&self.table.processes, thread.pid) {
                continue;
            }
            let ran = mark(thread, at, now, was_on, &thrift, &mut self.counting.spent);
            if thread.counted.restless && thread.counted.group.is_some() {
                thread.counted.close(Some(&recipe), &mut self.budget);
                continue;
            }
            match &thread.counted.group {
                Some(group) if beat.reads && ran_since(thread.counted.read_at, now) => {
                    let counts = counts(group, &recipe, thread.counted.from, now);
                    thread.counted.read_at = Some(now.run);
                    match counts {
                        Some(_) => self.counting.counted += 1,
                        None => {
                            let starved = group.enabled().is_ok_and(|enabled| enabled >= STARVED);
                            self.counting.starved += u32::from(starved);
                        }
                    }
                    read.counts = counts;
                }
                // Who sleeps has nothing to count.
                None if ran && thread.counted.refused.is_none() && !thread.counted.restless && room > 0 => {
                    room -= 1;
                    let opened = open(thread, &recipe, &mut self.budget);
                    match opened {
                        Opened::Yes if beat.runs => {
                            let _ = thread.counted.group.as_ref().map(Group::on);
                        }
                        Opened::Yes | Opened::Gone => {}
                        Opened::Refused(Errno::OPNOTSUPP) if may_climb && !recipe.no_guests => climb = true,
                        Opened::Refused(errno) => thread.counted.refused = Some(errno),
                        Opened::Crowded => {
                            self.counting.crowded += 1;
                            // The others will find no room either.
                            room = 0;
                        }
                    }
                    thread.counted.from = Some(now);
                    thread.counted.read_at = Some(now.run);
                }
                _ => {}
            }
        }
        if climb {
            return self.climb_again(at);
        }
        if beat.begins || beat.ends {
            // Also of those that were not read now.
            for group in self.table.threads.values().filter_map(|thread| thread.counted.group.as_ref()) {
                // One that has ended meanwhile is noticed when it is read.
                let _ = if beat.ends { group.off() } else { group.on() };
            }
        }
    }

    /// Without counters: where memory lies, or was used, against where its threads ran.
    fn count_memory(&mut self, rung: Rung, wanted: &Wanted, sample: &mut Sample) {
        let at = sample.at;
        if self.counting.nodes.is_empty() {
            self.counting.nodes = locality::nodes_of_cpus(&self.counting.sys);
        }
        let table = &self.table;
        self.counting.memory.retain(|pid, _| table.processes.contains_key(pid));
        let (mut processes, mut files) = (PROCESSES_MAX, FILES_MAX);
        for read in &mut sample.threads {
            let Some(thread) = self.table.threads.get_mut(&read.id) else { continue };
            let Some(now) = thread.last else { continue };
            let ran = mark(thread, at, now, true, &Thrift::FREE, &mut self.counting.spent);
            let due = thread.counted.tallied.is_none_or(|last| at.since(last) >= MEMORY_EVERY);
            if !due || (!ran && thread.counted.tallied.is_some()) {
                continue;
            }
            let pages = if rung == Rung::HintFaults {
                if files == 0 {
                    continue;
                }
                files -= 1;
                locality::faults(&self.proc, thread.pid, thread.tid).ok()
            } else {
                let known = self.counting.memory.get(&thread.pid);
                let fresh = known.is_some_and(|(asked, _)| at.since(*asked) < MEMORY_EVERY);
                if !fresh {
                    if processes == 0 {
                        continue;
                    }
                    processes -= 1;
                    self.counting.round = self.counting.round.wrapping_add(1);
                    // Whoever may not be asked is asked again like the others, and has none.
                    let pages = locality::resident(&self.proc, thread.pid, self.counting.round);
                    self.counting.memory.insert(thread.pid, (at, pages.unwrap_or_default()));
                }
                self.counting.memory.get(&thread.pid).map(|(_, pages)| pages.clone())
            };
            thread.counted.tallied = Some(at);
            let from = *thread.counted.from.get_or_insert(now);
            let Some(pages) = pages.filter(|pages| !pages.is_empty()) else { continue };
            let here = node_of(thread, &self.counting.nodes, || {
                // Of who is kept where it may not leave nobody asks on which CPU it is: the last known may be of another node.
                let known = read.cpu.filter(|_| wanted.places);
                known.or_else(|| process::thread_stat(&self.proc, thread.pid, thread.tid).ok()?.last_cpu)
            });
            let Some(node) = here else { continue };
            let (near, far) = locality::split(&pages, node);
            let tally = &mut thread.counted.tally;
            *tally = (tally.0.saturating_add(near), tally.1.saturating_add(far));
            let ran_for = now.run.less(from.run);
            read.counts = Some(Counts {
                enabled: ran_for,
                running: ran_for,
                near: Some(tally.0),
                far: Some(tally.1),
                ..Counts::default()
            });
            sample.memory.push(MemorySample { thread: read.id, pages });
        }
    }

    /// Whether counting is worth its cost, and possible at all.
    fn judge_counting(&mut self, at: Moment) {
        let Some(standing) = &self.counting.standing else { return };
        if !standing.rung.counts() {
            return;
        }
        if self.counting.recipe().is_some_and(|recipe| recipe.no_guests) && self.only_guests() {
            self.step_down(&Why::GuestsHidden, at);
            self.counting.left_for_guests = true;
            return;
        }
        let mut open = 0_usize;
        let mut refused: BTreeMap<i32, usize> = BTreeMap::new();
        for thread in self.table.threads.values() {
            open += usize::from(thread.counted.group.is_some());
            if let Some(errno) = thread.counted.refused {
                *refused.entry(errno.raw_os_error()).or_insert(0) += 1;
            }
        }
        if self.counting.crowded > 0 && self.counting.recipe().is_some_and(|recipe| recipe.events.len() > 2) {
            return self.count_less(at);
        }
        let wanting = self.table.threads.values().filter(|thread| thread.counted.last.is_some()).count();
        if self.counting.crowded > 0 && 2 * open < wanting {
            return self.step_down(&Why::NoDescriptors, at);
        }
        self.counting.spent.span = at.since(self.counting.spent_from);
        if self.counting.spent.span < JUDGED {
            return;
        }
        if refused.values().sum::<usize>() > 2 * open
            && let Some((errno, _)) = refused.into_iter().max_by_key(|(_, threads)| *threads)
        {
            return self.step_down(&why_refused(Errno::from_raw_os_error(errno)), at);
        }
        if self.counting.counted == 0 && self.counting.starved > 0 {
            return self.step_down(&Why::Taken, at);
        }
        let thrift = self.counting.thrift();
        let Some(standing) = &mut self.counting.standing else { return };
        if !self.counting.spent.is_due(&self.counting.beat, &thrift) {
            return;
        }
        let price = standing.price.unwrap_or(DEAREST);
        match counting::judge(&self.counting.spent, &price, &thrift) {
            Some(Verdict::GiveUp) => return self.step_down(&Why::TooDear, at),
            Some(Verdict::Thin { one_in, rests }) => {
                standing.thrift = Thrift { one_in, rests, ..standing.thrift };
            }
            Some(Verdict::Keep) | None => {}
        }
        self.counting.begin_judging(at);
    }

    /// Half as many counters, at least two, since there is no room for more.
    fn count_less(&mut self, at: Moment) {
        self.close_counters();
        if let Some(standing) = &mut self.counting.standing
            && let Some(recipe) = &mut standing.recipe
        {
            let most = (recipe.events.len() / 2).max(2);
            *recipe = recipe.at_most(most);
            standing.thrift.counters = u32::try_from(most).ok();
        }
        self.counting.begin_judging(at);
    }

    /// Leaves hardware alone from now on, and looks what there is besides.
    fn step_down(&mut self, why: &Why, at: Moment) {
        self.close_counters();
        let standing = perf::look(&self.proc, &self.counting.sys, &self.counting.choice, Some(why));
        self.counting.standing = Some(standing);
        self.counting.begin_judging(at);
    }

    /// Whether there are threads, and all of them are CPUs of virtual machines.
    fn only_guests(&self) -> bool {
        let mut threads =
            self.table.threads.values().filter(|thread| thread.wish != Wish::Untagged).peekable();
        threads.peek().is_some() && threads.all(|thread| is_guest(&self.table.processes, thread.pid))
    }

    fn may_climb_again(&self, at: Moment) -> bool {
        self.counting.climbed_again.is_none_or(|last| at.since(last) >= CLIMBED_AGAIN)
    }

    /// Finds out at the next look what can be counted by now.
    fn climb_again(&mut self, at: Moment) {
        self.close_counters();
        for thread in self.table.threads.values_mut() {
            thread.counted.refused = thread.counted.refused.filter(|errno| *errno != Errno::OPNOTSUPP);
        }
        self.counting.standing = None;
        self.counting.left_for_guests = false;
        self.counting.climbed_again = Some(at);
    }

    /// Closes all counters.
    fn close_counters(&mut self) {
        let recipe = self.counting.recipe().cloned();
        for thread in self.table.threads.values_mut() {
            thread.counted.close(recipe.as_ref(), &mut self.budget);
        }
        self.counting.memory.clear();
        self.counting.duty = Duty::Off(Moment::default());
    }
}

/// Looks at how a thread went on since it was last looked at here; whether it ran.
fn mark(
    thread: &mut Thread,
    at: Moment,
    now: Counters,
    was_on: bool,
    thrift: &Thrift,
    spent: &mut Spent,
) -> bool {
    let Some((before_at, before)) = thread.counted.last.replace((at, now)) else {
        return false;
    };
    let ran = now.run.less(before.run);
    spent.ran = spent.ran + ran;
    let switches = now.slices.zip(before.slices).map(|(now, before)| now.saturating_sub(before));
    if let Some(switches) = switches {
        if was_on && thread.counted.group.is_some() {
            spent.switches = spent.switches.saturating_add(switches);
        }
        let elapsed = at.since(before_at).seconds();
        if elapsed > 0.0 {
            // Half as often, it may be counted again.
            let factor = if thread.counted.restless { 2.0 } else { 1.0 };
            thread.counted.restless = !thrift.counts(Some(switches as f64 / elapsed * factor));
        }
    }
    ran > Span::ZERO
}

/// Whether a thread ran since its counts were read.
fn ran_since(read_at: Option<Span>, now: Counters) -> bool {
    read_at.is_none_or(|before| now.run > before)
}

/// What a group counted, with the time that its thread ran while it could have.
fn counts(group: &Group, recipe: &Recipe, from: Option<Counters>, now: Counters) -> Option<Counts> {
    let counts = group.read(recipe).ok().flatten()?;
    let ran = from.map_or(Span::ZERO, |from| now.run.less(from.run));
    Some(Counts { enabled: counts.enabled.max(ran), ..counts })
}

/// Whether a process is a virtual machine, of which only the CPUs' threads are watched.
fn is_guest(processes: &BTreeMap<Pid, Process>, pid: Pid) -> bool {
    processes.get(&pid).is_some_and(|process| process.only.is_some())
}

/// Why most threads may not be counted, by what the kernel answered.
fn why_refused(errno: Errno) -> Why {
    match errno {
        Errno::ACCESS | Errno::PERM => Why::ThreadsRefused,
        // Our own thread was counted by the same events: it is about those that run guests.
        Errno::OPNOTSUPP => Why::GuestsHidden,
        errno => Why::of(errno),
    }
}

/// What became of opening a thread's counters.
enum Opened {
    Yes,
    Gone,
    Refused(Errno),
    Crowded,
}

fn open(thread: &mut Thread, recipe: &Recipe, budget: &mut Budget) -> Opened {
    let many = Group::descriptors(recipe);
    let taken = (0..many).take_while(|_| budget.take_spare()).count();
    let opened = if taken < many {
        Opened::Crowded
    } else {
        match Group::open(recipe, Some(thread.tid)) {
            Ok(group) => {
                thread.counted.group = Some(group);
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

/// The node of a thread: that of all CPUs on which it may run, else that of the CPU where it ran last.
fn node_of(
    thread: &Thread,
    nodes: &BTreeMap<OsCpu, OsNode>,
    cpu: impl FnOnce() -> Option<OsCpu>,
) -> Option<OsNode> {
    let node = |cpu: OsCpu| nodes.get(&cpu).copied();
    let mut mask = thread.expected().iter().map(node);
    let first = mask.next().flatten();
    if first.is_some() && mask.all(|node| node == first) { first } else { cpu().and_then(node) }
}

#[cfg(test)]
mod tests;

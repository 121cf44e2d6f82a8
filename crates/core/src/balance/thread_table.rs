//! Thread table of a policy: the state of each thread, and the pending decision about it.
//!
//! Unit: seconds of work, which is CPU time weighted by the speed of the core.
//!
//! Problem: between a decision and the next sample, threads start, end, are refused, migrate, and
//! lose their CPUs. A policy that misses any of these events doubles threads up or moves threads
//! that have ended.
//!
//! Idea: one entry per living thread, in the order of the observation. A move counts as done only
//! when its outcome confirms it.
//!
//! Properties: after [`ThreadTable::update`], entry `i` is thread `i` of the observation. A thread
//! has at most one pending decision. A thread that its program, another balancer or the kernel
//! places is not touched as long as the host reports that. Nothing is kept of a thread that ended.
//! A thread that was not read keeps its last state. A thread that slept is credited with the work
//! that it would have done, so that it does not count as behind.

use super::cpu_table::{CpuIndex, CpuTable, NodeIndex};
use super::thread_state::{Binding, ThreadState};
use super::{Act, Decision, Outcome, Reason};
use crate::ids::{OsNode, ProgramId};
use crate::observe::{Observation, ThreadView};
use crate::set::CpuSet;
use crate::time::Moment;
use crate::topology::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// A set of CPUs in which threads may run, stored once for all of them.
#[derive(Clone, Debug)]
struct HomeSet {
    cpus: CpuSet,
    open: CpuSet,
}

/// All threads and the CPU table.
#[derive(Clone, Debug)]
pub(super) struct ThreadTable {
    /// The CPU table.
    pub(super) cpu_table: CpuTable,
    /// The threads, in the order of the last observation.
    pub(super) threads: Vec<ThreadState>,
    /// Whether an observation was processed.
    began: bool,
    homes: Vec<HomeSet>,
    numbers: BTreeMap<CpuSet, usize>,
}

impl ThreadTable {
    /// Creates an empty table.
    pub(super) fn new(machine: &Machine) -> Self {
        Self {
            cpu_table: CpuTable::new(machine),
            threads: Vec::new(),
            began: false,
            homes: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Processes an observation. Returns true when the usable CPUs changed.
    pub(super) fn update(&mut self, seen: &Observation<'_>) -> bool {
        let changed = self.cpu_table.follow(seen.usable);
        if changed {
            for home in &mut self.homes {
                home.open = home.cpus.intersection(seen.usable);
            }
        }
        let mut threads = std::mem::take(&mut self.threads);
        let same = threads.len() == seen.threads.len()
            && threads.iter().zip(&seen.threads).all(|(thread, view)| thread.id == view.id());
        // Threads rarely start or end; in other samples all entries keep their place in memory.
        if !same {
            let mut before = threads.into_iter().peekable();
            let now = seen.threads.iter().map(|view| {
                while before.next_if(|thread| thread.id < view.id()).is_some() {}
                let known = before.next_if(|thread| thread.id == view.id());
                known.unwrap_or_else(|| ThreadState::new(view.id(), view.info.program, view.info.pid))
            });
            threads = now.collect();
        }
        let first = !std::mem::replace(&mut self.began, true);
        for (thread, view) in threads.iter_mut().zip(&seen.threads) {
            thread.early |= first;
            self.update_one(thread, view, seen.at);
        }
        self.threads = threads;
        self.settle(seen.outcomes);
        if changed {
            // After the outcomes, because earlier decisions were made for the earlier usable CPUs.
            for thread in &mut self.threads {
                thread.stale = true;
                thread.placed &= thread.displaced.is_none();
            }
        }
        self.work();
        changed
    }

    fn update_one(&mut self, thread: &mut ThreadState, view: &ThreadView<'_>, at: Moment) {
        thread.initial = view.info.tid == view.info.pid;
        let now = &view.info.home;
        if self.homes.get(thread.home).is_none_or(|home| home.cpus != *now) {
            // If the kernel cut the mask to the usable CPUs, or restored it, the program did not
            // change the mask.
            let same = |home: &HomeSet| home.open == *now || home.cpus.is_subset(now);
            thread.widened = thread.widened.filter(|_| self.homes.get(thread.home).is_some_and(same));
            thread.home = self.home(now);
        }
        thread.observe(at, view.movable(), view.rates);
        if thread.binding != Binding::Held {
            thread.cpu = view.cpu.and_then(|cpu| self.cpu_table.find(cpu)).or(thread.cpu);
        }
    }

    /// Returns the number of a set of CPUs, and stores the set if it is new.
    pub(super) fn home(&mut self, cpus: &CpuSet) -> usize {
        if let Some(number) = self.numbers.get(cpus) {
            return *number;
        }
        let open = cpus.intersection(self.cpu_table.usable());
        self.homes.push(HomeSet { cpus: cpus.clone(), open });
        self.numbers.insert(cpus.clone(), self.homes.len() - 1);
        self.homes.len() - 1
    }

    /// Returns the CPUs on which thread `i` may be put: the usable part of its home, or of the
    /// wider set that it was given.
    pub(super) fn room(&self, i: usize) -> &CpuSet {
        let thread = &self.threads[i];
        &self.homes[thread.widened.unwrap_or(thread.home)].open
    }

    /// Returns the number of that set, equal for threads that may be put on the same CPUs.
    pub(super) fn room_number(&self, i: usize) -> usize {
        self.threads[i].widened.unwrap_or(self.threads[i].home)
    }

    /// Returns whether a set of CPUs, by its number, is one CPU, usable or not.
    pub(super) fn is_single(&self, home: usize) -> bool {
        self.homes.get(home).is_some_and(|home| home.cpus.len() == 1)
    }

    /// Returns a node outside `open` on which thread `i` may be put, if there is one.
    pub(super) fn shut(&self, i: usize, open: &BTreeSet<NodeIndex>) -> Option<NodeIndex> {
        let home = &self.homes[self.room_number(i)];
        if home.cpus == home.open {
            return None;
        }
        let mut nodes = home
            .cpus
            .iter()
            .filter_map(|os| self.cpu_table.find(os))
            .map(|cpu| self.cpu_table.entry(cpu).node);
        nodes.find(|node| !open.contains(node))
    }

    /// Returns whether thread `i` may be put outside its own mask, on at least one usable CPU.
    pub(super) fn is_widened(&self, i: usize) -> bool {
        self.threads[i].widened.is_some_and(|widened| !self.homes[widened].open.is_empty())
    }

    /// Returns whether no CPU of thread `i`'s own mask may be used now.
    pub(super) fn is_homeless(&self, i: usize) -> bool {
        self.homes[self.threads[i].home].open.is_empty()
    }

    /// Returns the CPUs on which at least one thread may be put.
    pub(super) fn reach(&self) -> CpuSet {
        let rooms: BTreeSet<usize> = (0..self.threads.len()).map(|i| self.room_number(i)).collect();
        rooms.iter().fold(CpuSet::new(), |all, room| all.union(&self.homes[*room].open))
    }

    /// Returns whether thread `i` may be put on a CPU.
    pub(super) fn may(&self, i: usize, cpu: CpuIndex) -> bool {
        self.cpu_table.is_open(cpu) && self.room(i).contains(self.cpu_table.entry(cpu).os)
    }

    /// Allows thread `i` to be put on these CPUs from now on, beyond its own mask.
    pub(super) fn widen_to(&mut self, i: usize, home: usize) {
        self.threads[i].widened = Some(home);
    }

    /// Returns the threads that we hold on a CPU that may not be used any more.
    pub(super) fn lost(&self) -> Vec<usize> {
        let lost = |(i, thread): (usize, &ThreadState)| {
            let gone = thread.cpu.is_some_and(|cpu| !self.may(i, cpu));
            // Refusals do not matter here: the thread must leave its CPU.
            (thread.binding == Binding::Held && thread.reachable() && gone).then_some(i)
        };
        self.threads.iter().enumerate().filter_map(lost).collect()
    }

    /// Binds thread `i` to a CPU.
    pub(super) fn confine(&mut self, i: usize, cpu: CpuIndex, reason: Reason) -> Decision {
        self.ask(i, Some(cpu), Binding::Held, Act::Confine(self.cpu_table.only(cpu)), reason)
    }

    /// Binds thread `i` to these CPUs of a unit.
    pub(super) fn keep_within(&mut self, i: usize, unit: u16, cpus: CpuSet, reason: Reason) -> Decision {
        self.ask(i, None, Binding::Within(unit), Act::Confine(cpus), reason)
    }

    /// Moves thread `i` to one of these CPUs, and restores its mask at once.
    pub(super) fn nudge_to(&mut self, i: usize, cpus: CpuSet, reason: Reason) -> Decision {
        let binding = self.threads[i].binding;
        self.ask(i, None, binding, Act::Nudge(cpus), reason)
    }

    /// Moves the memory of thread `i`'s process to a node.
    pub(super) fn migrate_pages(&mut self, i: usize, node: OsNode, reason: Reason) -> Decision {
        let binding = self.threads[i].binding;
        self.ask(i, None, binding, Act::Fetch(node), reason)
    }

    /// Moves thread `i` to a CPU, and restores its mask at once.
    pub(super) fn nudge(&mut self, i: usize, cpu: CpuIndex, reason: Reason) -> Decision {
        let binding = self.threads[i].binding;
        self.ask(i, Some(cpu), binding, Act::Nudge(self.cpu_table.only(cpu)), reason)
    }

    /// Widens the mask of thread `i` to the set that it was given.
    pub(super) fn widen(&mut self, i: usize, reason: Reason) -> Decision {
        let room = self.room(i).clone();
        self.ask(i, None, Binding::Wide, Act::Confine(room), reason)
    }

    /// Gives thread `i` its own mask back.
    pub(super) fn release(&mut self, i: usize, reason: Reason) -> Decision {
        self.threads[i].widened = None;
        self.ask(i, None, Binding::Own, Act::Release, reason)
    }

    /// Stops holding thread `i` on its CPU. A thread with a widened mask keeps the wide mask.
    pub(super) fn let_go(&mut self, i: usize, reason: Reason) -> Decision {
        if self.is_widened(i) { self.widen(i, reason) } else { self.release(i, reason) }
    }

    /// Gives thread `i` its own mask back if a CPU of that mask may be used; otherwise the thread
    /// keeps the wide mask.
    pub(super) fn restore(&mut self, i: usize, reason: Reason) -> Decision {
        if self.is_homeless(i) { self.let_go(i, reason) } else { self.release(i, reason) }
    }

    /// Releases thread `i` from its CPU because it was light for long.
    pub(super) fn release_light(&mut self, i: usize) -> Decision {
        self.threads[i].release_light();
        self.let_go(i, Reason::Done)
    }

    fn ask(
        &mut self,
        i: usize,
        cpu: Option<CpuIndex>,
        binding: Binding,
        act: Act,
        reason: Reason,
    ) -> Decision {
        let thread = &mut self.threads[i];
        thread.ask(cpu, binding);
        Decision { thread: thread.id, act, reason, gain: None }
    }

    /// Processes the outcomes of decisions.
    fn settle(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            if let Ok(at) = self.threads.binary_search_by_key(&outcome.thread, |thread| thread.id) {
                self.threads[at].settle(outcome.end);
            }
        }
        self.threads.iter_mut().for_each(ThreadState::wait);
    }

    /// Adds the work of the last step.
    fn work(&mut self) {
        let mut programs: BTreeMap<ProgramId, ProgramSums> = BTreeMap::new();
        for thread in &self.threads {
            let program = programs.entry(thread.program).or_default();
            if !thread.new && thread.active() {
                program.work += thread.work;
                program.threads += 1.0;
            }
            if let Some(rates) = &thread.rates {
                program.run += rates.run * thread.cpu.map_or(1.0, |cpu| self.cpu_table.entry(cpu).weight);
                program.wanted += rates.run + rates.wait.unwrap_or(0.0);
            }
        }
        for thread in &mut self.threads {
            let Some(program) = programs.get(&thread.program) else { continue };
            if thread.new {
                thread.new = false;
                thread.work = if program.threads > 0.0 { program.work / program.threads } else { 0.0 };
            }
            thread.last_work = 0.0;
            if let Some(rates) = &thread.rates {
                let weight = thread.cpu.map_or(1.0, |cpu| self.cpu_table.entry(cpu).weight);
                let pace = if program.wanted > 0.0 { program.run / program.wanted } else { 0.0 };
                let slept = rates.idle().unwrap_or(0.0) * pace;
                thread.last_work = (rates.run * weight + slept) * rates.span.seconds();
                thread.work += thread.last_work;
            }
        }
    }
}

/// Sums over the threads of a program.
#[derive(Clone, Copy, Default)]
struct ProgramSums {
    work: f64,
    threads: f64,
    run: f64,
    wanted: f64,
}

#[cfg(test)]
mod tests {
    use super::super::thread_state::PENDING_SAMPLES_MAX;
    use super::super::{Refusal, Settled};
    use super::*;
    use crate::ids::{OsCpu, ThreadId};
    use crate::observe::{Left, Observer, Sample, ThreadInfo, ThreadSample};
    use crate::time::Span;
    use crate::topology::parse_synthetic;

    struct Harness {
        table: ThreadTable,
        observer: Observer,
        ms: u64,
    }

    impl Harness {
        fn new(threads: u32) -> Self {
            let machine = parse_synthetic("core:4 pu:1").unwrap();
            let mut harness =
                Self { table: ThreadTable::new(&machine), observer: Observer::new(machine.cpus()), ms: 0 };
            harness.born(0..threads);
            harness.observe(&[], &[]);
            harness
        }

        fn born(&mut self, threads: std::ops::Range<u32>) {
            let info = |id| ThreadInfo {
                id: ThreadId(id),
                program: ProgramId(0),
                pid: 1,
                tid: id,
                name: String::new(),
                home: "0-3".parse().unwrap(),
                left: None,
                tagged: false,
            };
            let at = Moment(self.ms * 1_000_000);
            self.observer.take(&Sample { at, news: threads.map(info).collect(), ..Sample::default() }, &[]);
        }

        /// Takes a sample after a tenth of a second. `did` holds the milliseconds that threads ran
        /// and waited since they started.
        fn observe(&mut self, did: &[(u32, u64, u64)], outcomes: &[Outcome]) {
            self.ms += 100;
            let thread = |(id, run, wait): &(u32, u64, u64)| ThreadSample {
                id: ThreadId(*id),
                run: Span::from_ms(*run),
                wait: Some(Span::from_ms(*wait)),
                slices: None,
                ready: None,
                voluntary: None,
                cpu: Some(OsCpu(*id % 4)),
                counts: None,
            };
            let at = Moment(self.ms * 1_000_000);
            let threads = did.iter().map(thread).collect();
            self.observer.take(&Sample { at, threads, ..Sample::default() }, outcomes);
            self.table.update(&self.observer.observation());
        }

        fn end(end: Settled) -> [Outcome; 1] {
            [Outcome { thread: ThreadId(0), end }]
        }
    }

    #[test]
    fn a_move_counts_when_it_is_done() {
        for (end, cpu, free) in [
            (Some(Settled::Applied), 2, true),
            (Some(Settled::Refused(Refusal::Other)), 0, true),
            (Some(Settled::Refused(Refusal::MovedMeanwhile)), 0, false),
            (Some(Settled::Refused(Refusal::Permission)), 0, false),
            (Some(Settled::Vanished), 0, false),
            (Some(Settled::Pending), 0, false),
            (None, 0, true),
        ] {
            let mut harness = Harness::new(1);
            harness.observe(&[(0, 0, 0)], &[]);
            harness.table.confine(0, CpuIndex::at(2), Reason::Start);
            assert!(!harness.table.threads[0].free(), "asked once, not twice");
            let outcomes = end.map(Harness::end);
            harness.observe(&[], outcomes.as_ref().map_or(&[], |outcomes| outcomes.as_slice()));
            let thread = &harness.table.threads[0];
            assert_eq!((thread.cpu, thread.free()), (Some(CpuIndex::at(cpu)), free), "{end:?}");
        }
    }

    #[test]
    fn a_decision_that_stays_pending_is_given_up() {
        let mut harness = Harness::new(1);
        harness.table.confine(0, CpuIndex::at(2), Reason::Start);
        harness.observe(&[], &Harness::end(Settled::Pending));
        for _ in 0..=PENDING_SAMPLES_MAX {
            harness.observe(&[], &[]);
        }
        assert!(harness.table.threads[0].free());
        assert_eq!(harness.table.threads[0].cpu, None, "and not taken for done");
    }

    fn info(id: u32, home: &str, left: Option<Left>) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(0),
            pid: 1,
            tid: id,
            name: String::new(),
            home: home.parse().unwrap(),
            left,
            tagged: false,
        }
    }

    /// Reports thread 0 again, with another home.
    fn news(harness: &mut Harness, home: &str, left: Option<Left>, usable: &str) {
        harness.ms += 100;
        let (at, news) = (Moment(harness.ms * 1_000_000), vec![info(0, home, left)]);
        let notices = vec![crate::observe::Notice::Usable(usable.parse().unwrap())];
        harness.observer.take(&Sample { at, news, notices, ..Sample::default() }, &[]);
        harness.table.update(&harness.observer.observation());
    }

    #[test]
    fn a_lost_race_does_not_exclude_a_thread_permanently() {
        let mut harness = Harness::new(1);
        let moved = Settled::Refused(Refusal::MovedMeanwhile);
        let mut asked = Vec::new();
        for sample in 0..3_000 {
            let end = if harness.table.threads[0].free() {
                harness.table.confine(0, CpuIndex::at(2), Reason::Start);
                asked.push(sample);
                Some(Harness::end(moved))
            } else {
                None
            };
            harness.observe(&[], end.as_ref().map_or(&[], |end| end.as_slice()));
        }
        // Asked at every second sample at first, then after one, two, four... seconds; a sample is
        // a tenth of a second.
        assert_eq!(asked[..6], [0, 2, 4, 15, 36, 77]);
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 641) && asked.len() < 14, "{asked:?}");
    }

    #[test]
    fn the_owner_of_a_thread_is_checked_at_each_sample() {
        let mut harness = Harness::new(1);
        harness.table.confine(0, CpuIndex::at(2), Reason::Start);
        harness.observe(&[], &Harness::end(Settled::Applied));
        assert_eq!(harness.table.threads[0].binding, Binding::Held);
        harness.table.confine(0, CpuIndex::at(1), Reason::Start);
        news(&mut harness, "0-3", Some(Left::Scheduler("rusty".into())), "0-3");
        harness.observe(&[], &Harness::end(Settled::Applied));
        let thread = &harness.table.threads[0];
        assert_eq!((thread.binding, thread.kept()), (Binding::Own, true), "what was held is given back");
        news(&mut harness, "0-3", None, "0-3");
        let thread = &harness.table.threads[0];
        assert!(thread.back && thread.free() && !thread.placed);
        harness.observe(&[], &[]);
        assert!(!harness.table.threads[0].back);
    }

    #[test]
    fn a_home_that_the_kernel_cuts_is_no_new_will_of_the_program() {
        let mut harness = Harness::new(1);
        news(&mut harness, "0-1", None, "0-3");
        let all = harness.table.home(&"0-3".parse().unwrap());
        harness.table.widen_to(0, all);
        news(&mut harness, "0", None, "0,2");
        assert_eq!(harness.table.room(0).to_string(), "0,2", "cut to what may be used");
        news(&mut harness, "0-1", None, "0-3");
        assert_eq!(harness.table.room(0).to_string(), "0-3");
        news(&mut harness, "2", None, "0-3");
        assert_eq!(harness.table.room(0).to_string(), "2", "its program bound it elsewhere");
    }

    #[test]
    fn a_mask_is_restored_while_any_of_its_cpus_is_usable() {
        let mut harness = Harness::new(1);
        let all = harness.table.home(&"0-3".parse().unwrap());
        news(&mut harness, "1", None, "0-3");
        harness.table.widen_to(0, all);
        assert_eq!(harness.table.clone().restore(0, Reason::Undo).act, Act::Release);
        news(&mut harness, "1", None, "2-3");
        assert_eq!(harness.table.restore(0, Reason::Undo).act, Act::Confine("2-3".parse().unwrap()));
    }

    #[test]
    fn a_light_thread_is_released_later_each_time() {
        let mut harness = Harness::new(1);
        let (mut run, mut light_releases) = (0, Vec::new());
        for sample in 0..400_u64 {
            let end = match harness.table.threads[0].binding {
                Binding::Held if harness.table.threads[0].light_for_long() => {
                    harness.table.release_light(0);
                    light_releases.push(sample);
                    Some(Harness::end(Settled::Applied))
                }
                Binding::Held => None,
                _ => {
                    harness.table.confine(0, CpuIndex::at(2), Reason::Start);
                    Some(Harness::end(Settled::Applied))
                }
            };
            // Two tenths of a second of work after each placement, then none.
            run += if end.is_some() { 100 } else { 1 };
            harness.observe(&[(0, run, 0)], end.as_ref().map_or(&[], |end| end.as_slice()));
        }
        let gaps: Vec<u64> = light_releases.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            light_releases[0] >= 10 && gaps.windows(2).all(|pair| pair[1] > pair[0] * 3 / 2),
            "{light_releases:?}"
        );
    }

    #[test]
    fn newcomers_begin_where_the_others_are_and_sleepers_are_credited() {
        let mut harness = Harness::new(2);
        harness.observe(&[(0, 0, 0), (1, 0, 0)], &[]);
        harness.observe(&[(0, 100, 0), (1, 50, 0)], &[]);
        let work =
            |harness: &Harness| harness.table.threads.iter().map(|thread| thread.work).collect::<Vec<_>>();
        let near = |found: Vec<f64>, wanted: &[f64]| {
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}, not {wanted:?}");
        };
        near(work(&harness), &[0.1, 0.1]);
        harness.observe(&[(0, 200, 0), (1, 100, 50)], &[]);
        near(work(&harness), &[0.2, 0.15]);
        harness.born(2..3);
        harness.observe(&[], &[]);
        near(work(&harness), &[0.2, 0.15, 0.175]);
        // The next reading makes up for a lost one: no part of the time between is missed.
        harness.observe(&[(0, 400, 0)], &[]);
        near(work(&harness), &[0.4, 0.15, 0.175]);
    }
}

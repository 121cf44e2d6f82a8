//! Who sits where: what a policy remembers of each thread, and what it has asked for.
//!
//! Unit: seconds of work: CPU time weighted by the speed of the core it was had on. Problem: between a decision and the next
//! look threads are born, end, are refused, move by themselves, and lose their CPUs; a policy that forgets any of it doubles
//! threads up or moves the dead. Idea: one entry per living thread, in the order of the observation, and a move is believed only
//! when its outcome says so.
//!
//! Properties: after [`Seating::update`] entry `i` is thread `i` of the observation; a thread is asked for at most one
//! thing until the outcome of that is known; a thread that its program, somebody else or the kernel keeps is not touched as
//! long as the host says so; nothing is remembered of a thread that ended; a thread that was not read keeps what was known of it, and a thread
//! that slept is credited with what it would have had, so that it is not "behind".

use super::ground::{Ground, Region, Seat};
use super::sitter::{Sitter, Standing};
use super::{Act, Decision, Outcome, Reason};
use crate::ids::{OsNode, ProgramId};
use crate::observe::{Observation, ThreadView};
use crate::set::CpuSet;
use crate::time::Moment;
use crate::topology::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// A set of CPUs that threads call home, kept once for all of them.
#[derive(Clone, Debug)]
struct Home {
    cpus: CpuSet,
    open: CpuSet,
}

/// All threads and the seats.
#[derive(Clone, Debug)]
pub(super) struct Seating {
    /// The seats.
    pub(super) ground: Ground,
    /// The threads, as the last observation has them.
    pub(super) sitters: Vec<Sitter>,
    homes: Vec<Home>,
    numbers: BTreeMap<CpuSet, usize>,
}

impl Seating {
    /// Nobody yet.
    pub(super) fn new(machine: &Machine) -> Self {
        Self {
            ground: Ground::new(machine),
            sitters: Vec::new(),
            homes: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Takes an observation in; true when the CPUs that may be used changed.
    pub(super) fn update(&mut self, seen: &Observation<'_>) -> bool {
        let changed = self.ground.follow(seen.usable);
        if changed {
            for home in &mut self.homes {
                home.open = home.cpus.intersection(seen.usable);
            }
        }
        let mut sitters = std::mem::take(&mut self.sitters);
        let same = sitters.len() == seen.threads.len()
            && sitters.iter().zip(&seen.threads).all(|(sitter, view)| sitter.id == view.id());
        // Births and ends are rare: else everybody stays where they are in memory.
        if !same {
            let mut before = sitters.into_iter().peekable();
            let now = seen.threads.iter().map(|view| {
                while before.next_if(|sitter| sitter.id < view.id()).is_some() {}
                let known = before.next_if(|sitter| sitter.id == view.id());
                known.unwrap_or_else(|| Sitter::new(view.id(), view.info.program, view.info.pid))
            });
            sitters = now.collect();
        }
        for (sitter, view) in sitters.iter_mut().zip(&seen.threads) {
            self.meet(sitter, view, seen.at);
        }
        self.sitters = sitters;
        self.settle(seen.outcomes);
        if changed {
            // After the outcomes: what was done before was done for the CPUs that there were then.
            for sitter in &mut self.sitters {
                sitter.stale = true;
                sitter.dealt &= sitter.exiled.is_none();
            }
        }
        self.work();
        changed
    }

    fn meet(&mut self, sitter: &mut Sitter, view: &ThreadView<'_>, at: Moment) {
        let now = &view.info.home;
        if self.homes.get(sitter.home).is_none_or(|home| home.cpus != *now) {
            // The kernel cut it to what may be used, or gave it back: that is no will of its program's.
            let same = |home: &Home| home.open == *now || home.cpus.is_subset(now);
            sitter.freed = sitter.freed.filter(|_| self.homes.get(sitter.home).is_some_and(same));
            sitter.home = self.home(now);
        }
        sitter.look(at, view.movable(), view.rates);
        if sitter.standing != Standing::Held {
            sitter.seat = view.cpu.and_then(|cpu| self.ground.seat(cpu)).or(sitter.seat);
        }
    }

    /// The number of a set of CPUs as a home.
    pub(super) fn home(&mut self, cpus: &CpuSet) -> usize {
        if let Some(number) = self.numbers.get(cpus) {
            return *number;
        }
        let open = cpus.intersection(self.ground.usable());
        self.homes.push(Home { cpus: cpus.clone(), open });
        self.numbers.insert(cpus.clone(), self.homes.len() - 1);
        self.homes.len() - 1
    }

    /// Where thread `i` may be put: its home as far as usable, or what it was freed to.
    pub(super) fn room(&self, i: usize) -> &CpuSet {
        let sitter = &self.sitters[i];
        &self.homes[sitter.freed.unwrap_or(sitter.home)].open
    }

    /// The same as a number, equal for threads that may be put in the same places.
    pub(super) fn room_number(&self, i: usize) -> usize {
        self.sitters[i].freed.unwrap_or(self.sitters[i].home)
    }

    /// A node of where thread `i` may be put that is none of these, if there is one.
    pub(super) fn shut(&self, i: usize, open: &BTreeSet<Region>) -> Option<Region> {
        let home = &self.homes[self.room_number(i)];
        if home.cpus == home.open {
            return None;
        }
        let mut nodes =
            home.cpus.iter().filter_map(|os| self.ground.seat(os)).map(|seat| self.ground.place(seat).node);
        nodes.find(|node| !open.contains(node))
    }

    /// Whether thread `i` may be put beyond its own mask, and can be.
    pub(super) fn is_freed(&self, i: usize) -> bool {
        self.sitters[i].freed.is_some_and(|freed| !self.homes[freed].open.is_empty())
    }

    /// Whether nothing of thread `i`'s own mask may be used now.
    pub(super) fn is_homeless(&self, i: usize) -> bool {
        self.homes[self.sitters[i].home].open.is_empty()
    }

    /// Where any thread may be put.
    pub(super) fn reach(&self) -> CpuSet {
        let rooms: BTreeSet<usize> = (0..self.sitters.len()).map(|i| self.room_number(i)).collect();
        rooms.iter().fold(CpuSet::new(), |all, room| all.union(&self.homes[*room].open))
    }

    /// Whether thread `i` may be put on a seat.
    pub(super) fn may(&self, i: usize, seat: Seat) -> bool {
        self.ground.is_open(seat) && self.room(i).contains(self.ground.place(seat).os)
    }

    /// From now on thread `i` may be put anywhere in these CPUs, its own mask notwithstanding.
    pub(super) fn free_to(&mut self, i: usize, home: usize) {
        self.sitters[i].freed = Some(home);
    }

    /// The threads that we hold on a CPU that may not be used any more.
    pub(super) fn lost(&self) -> Vec<usize> {
        let lost = |(i, sitter): (usize, &Sitter)| {
            let gone = sitter.seat.is_some_and(|seat| !self.may(i, seat));
            // However often it was refused: it must go somewhere.
            (sitter.standing == Standing::Held && sitter.reachable() && gone).then_some(i)
        };
        self.sitters.iter().enumerate().filter_map(lost).collect()
    }

    /// Puts thread `i` on a seat and keeps it there.
    pub(super) fn confine(&mut self, i: usize, seat: Seat, reason: Reason) -> Decision {
        self.ask(i, Some(seat), Standing::Held, Act::Confine(self.ground.only(seat)), reason)
    }

    /// Keeps thread `i` on these CPUs, which are those of a unit.
    pub(super) fn keep_within(&mut self, i: usize, unit: u16, cpus: CpuSet, reason: Reason) -> Decision {
        self.ask(i, None, Standing::Within(unit), Act::Confine(cpus), reason)
    }

    /// Moves thread `i` to any of these CPUs, and lets it go at once.
    pub(super) fn nudge_to(&mut self, i: usize, cpus: CpuSet, reason: Reason) -> Decision {
        let standing = self.sitters[i].standing;
        self.ask(i, None, standing, Act::Nudge(cpus), reason)
    }

    /// Brings the memory of thread `i`'s process to a node.
    pub(super) fn fetch(&mut self, i: usize, node: OsNode, reason: Reason) -> Decision {
        let standing = self.sitters[i].standing;
        self.ask(i, None, standing, Act::Fetch(node), reason)
    }

    /// Moves thread `i` to a seat, and lets it go at once.
    pub(super) fn nudge(&mut self, i: usize, seat: Seat, reason: Reason) -> Decision {
        let standing = self.sitters[i].standing;
        self.ask(i, Some(seat), standing, Act::Nudge(self.ground.only(seat)), reason)
    }

    /// Lets thread `i` go anywhere in the room it was freed to.
    pub(super) fn widen(&mut self, i: usize, reason: Reason) -> Decision {
        let room = self.room(i).clone();
        self.ask(i, None, Standing::Wide, Act::Confine(room), reason)
    }

    /// Gives thread `i` its own mask back.
    pub(super) fn release(&mut self, i: usize, reason: Reason) -> Decision {
        self.sitters[i].freed = None;
        self.ask(i, None, Standing::Own, Act::Release, reason)
    }

    /// Takes thread `i` off its seat, and nothing else: who was freed of its own mask keeps the wide one.
    pub(super) fn let_go(&mut self, i: usize, reason: Reason) -> Decision {
        if self.is_freed(i) { self.widen(i, reason) } else { self.release(i, reason) }
    }

    /// Gives thread `i` back what it had, if there is a CPU left of that; else it keeps the wide mask.
    pub(super) fn restore(&mut self, i: usize, reason: Reason) -> Decision {
        if self.is_homeless(i) { self.let_go(i, reason) } else { self.release(i, reason) }
    }

    /// Lets thread `i` off its seat for having been light for long.
    pub(super) fn ease(&mut self, i: usize) -> Decision {
        self.sitters[i].ease();
        self.let_go(i, Reason::Done)
    }

    fn ask(
        &mut self,
        i: usize,
        seat: Option<Seat>,
        standing: Standing,
        act: Act,
        reason: Reason,
    ) -> Decision {
        let sitter = &mut self.sitters[i];
        sitter.ask(seat, standing);
        Decision { thread: sitter.id, act, reason, gain: None }
    }

    /// Believes outcomes.
    fn settle(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            if let Ok(at) = self.sitters.binary_search_by_key(&outcome.thread, |sitter| sitter.id) {
                self.sitters[at].settle(outcome.end);
            }
        }
        self.sitters.iter_mut().for_each(Sitter::wait);
    }

    /// Adds up what was done.
    fn work(&mut self) {
        let mut programs: BTreeMap<ProgramId, Program> = BTreeMap::new();
        for sitter in &self.sitters {
            let program = programs.entry(sitter.program).or_default();
            if !sitter.new && sitter.active() {
                program.work += sitter.work;
                program.threads += 1.0;
            }
            if let Some(rates) = &sitter.rates {
                program.run += rates.run * sitter.seat.map_or(1.0, |seat| self.ground.place(seat).weight);
                program.wanted += rates.run + rates.wait.unwrap_or(0.0);
            }
        }
        for sitter in &mut self.sitters {
            let Some(program) = programs.get(&sitter.program) else { continue };
            if sitter.new {
                sitter.new = false;
                sitter.work = if program.threads > 0.0 { program.work / program.threads } else { 0.0 };
            }
            sitter.last_work = 0.0;
            if let Some(rates) = &sitter.rates {
                let weight = sitter.seat.map_or(1.0, |seat| self.ground.place(seat).weight);
                let pace = if program.wanted > 0.0 { program.run / program.wanted } else { 0.0 };
                let slept = rates.idle().unwrap_or(0.0) * pace;
                sitter.last_work = (rates.run * weight + slept) * rates.span.seconds();
                sitter.work += sitter.last_work;
            }
        }
    }
}

/// Sums over the threads of a program.
#[derive(Clone, Copy, Default)]
struct Program {
    work: f64,
    threads: f64,
    run: f64,
    wanted: f64,
}

#[cfg(test)]
mod tests {
    use super::super::sitter::PENDING_MAX;
    use super::super::{Refusal, Settled};
    use super::*;
    use crate::ids::{OsCpu, ThreadId};
    use crate::observe::{Left, Observer, Sample, ThreadInfo, ThreadSample};
    use crate::time::Span;
    use crate::topology::parse_synthetic;

    struct Table {
        seating: Seating,
        observer: Observer,
        ms: u64,
    }

    impl Table {
        fn new(threads: u32) -> Self {
            let machine = parse_synthetic("core:4 pu:1").unwrap();
            let mut table =
                Self { seating: Seating::new(&machine), observer: Observer::new(machine.cpus()), ms: 0 };
            table.born(0..threads);
            table.look(&[], &[]);
            table
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

        /// A tenth of a second in which threads ran and waited for so many milliseconds since they were born.
        fn look(&mut self, did: &[(u32, u64, u64)], outcomes: &[Outcome]) {
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
            self.seating.update(&self.observer.observation());
        }

        fn end(end: Settled) -> [Outcome; 1] {
            [Outcome { thread: ThreadId(0), end }]
        }
    }

    #[test]
    fn a_move_is_believed_when_it_is_done() {
        for (end, seat, free) in [
            (Some(Settled::Applied), 2, true),
            (Some(Settled::Refused(Refusal::Other)), 0, true),
            (Some(Settled::Refused(Refusal::MovedMeanwhile)), 0, false),
            (Some(Settled::Refused(Refusal::Permission)), 0, false),
            (Some(Settled::Vanished), 0, false),
            (Some(Settled::Pending), 0, false),
            (None, 0, true),
        ] {
            let mut table = Table::new(1);
            table.look(&[(0, 0, 0)], &[]);
            table.seating.confine(0, Seat::at(2), Reason::Start);
            assert!(!table.seating.sitters[0].free(), "asked once, not twice");
            let outcomes = end.map(Table::end);
            table.look(&[], outcomes.as_ref().map_or(&[], |outcomes| outcomes.as_slice()));
            let sitter = &table.seating.sitters[0];
            assert_eq!((sitter.seat, sitter.free()), (Some(Seat::at(seat)), free), "{end:?}");
        }
    }

    #[test]
    fn what_stays_pending_is_given_up_in_the_end() {
        let mut table = Table::new(1);
        table.seating.confine(0, Seat::at(2), Reason::Start);
        table.look(&[], &Table::end(Settled::Pending));
        for _ in 0..=PENDING_MAX {
            table.look(&[], &[]);
        }
        assert!(table.seating.sitters[0].free());
        assert_eq!(table.seating.sitters[0].seat, None, "and not taken for done");
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

    /// News of thread 0.
    fn news(table: &mut Table, home: &str, left: Option<Left>, usable: &str) {
        table.ms += 100;
        let (at, news) = (Moment(table.ms * 1_000_000), vec![info(0, home, left)]);
        let notices = vec![crate::observe::Notice::Usable(usable.parse().unwrap())];
        table.observer.take(&Sample { at, news, notices, ..Sample::default() }, &[]);
        table.seating.update(&table.observer.observation());
    }

    #[test]
    fn a_race_that_was_lost_does_not_exclude_a_thread_for_ever() {
        let mut table = Table::new(1);
        let moved = Settled::Refused(Refusal::MovedMeanwhile);
        let mut asked = Vec::new();
        for look in 0..3_000 {
            let end = if table.seating.sitters[0].free() {
                table.seating.confine(0, Seat::at(2), Reason::Start);
                asked.push(look);
                Some(Table::end(moved))
            } else {
                None
            };
            table.look(&[], end.as_ref().map_or(&[], |end| end.as_slice()));
        }
        // At every second look at first, then a second, two, four... later; a look is a tenth of a second.
        assert_eq!(asked[..6], [0, 2, 4, 15, 36, 77]);
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 641) && asked.len() < 14, "{asked:?}");
    }

    #[test]
    fn whose_a_thread_is_is_asked_at_each_look() {
        let mut table = Table::new(1);
        table.seating.confine(0, Seat::at(2), Reason::Start);
        table.look(&[], &Table::end(Settled::Applied));
        assert_eq!(table.seating.sitters[0].standing, Standing::Held);
        table.seating.confine(0, Seat::at(1), Reason::Start);
        news(&mut table, "0-3", Some(Left::Scheduler("rusty".into())), "0-3");
        table.look(&[], &Table::end(Settled::Applied));
        let sitter = &table.seating.sitters[0];
        assert_eq!((sitter.standing, sitter.kept()), (Standing::Own, true), "what was held is given back");
        news(&mut table, "0-3", None, "0-3");
        let sitter = &table.seating.sitters[0];
        assert!(sitter.back && sitter.free() && !sitter.dealt);
        table.look(&[], &[]);
        assert!(!table.seating.sitters[0].back);
    }

    #[test]
    fn a_home_that_the_kernel_cuts_is_no_new_will_of_the_program() {
        let mut table = Table::new(1);
        news(&mut table, "0-1", None, "0-3");
        let all = table.seating.home(&"0-3".parse().unwrap());
        table.seating.free_to(0, all);
        news(&mut table, "0", None, "0,2");
        assert_eq!(table.seating.room(0).to_string(), "0,2", "cut to what may be used");
        news(&mut table, "0-1", None, "0-3");
        assert_eq!(table.seating.room(0).to_string(), "0-3");
        news(&mut table, "2", None, "0-3");
        assert_eq!(table.seating.room(0).to_string(), "2", "its program bound it elsewhere");
    }

    #[test]
    fn what_was_there_is_put_back_while_any_of_it_may_be_used() {
        let mut table = Table::new(1);
        let all = table.seating.home(&"0-3".parse().unwrap());
        news(&mut table, "1", None, "0-3");
        table.seating.free_to(0, all);
        assert_eq!(table.seating.clone().restore(0, Reason::Undo).act, Act::Release);
        news(&mut table, "1", None, "2-3");
        assert_eq!(table.seating.restore(0, Reason::Undo).act, Act::Confine("2-3".parse().unwrap()));
    }

    #[test]
    fn who_is_light_for_long_is_let_off_its_seat_ever_later() {
        let mut table = Table::new(1);
        let (mut run, mut eased) = (0, Vec::new());
        for look in 0..400_u64 {
            let end = match table.seating.sitters[0].standing {
                Standing::Held if table.seating.sitters[0].idles() => {
                    table.seating.ease(0);
                    eased.push(look);
                    Some(Table::end(Settled::Applied))
                }
                Standing::Held => None,
                _ => {
                    table.seating.confine(0, Seat::at(2), Reason::Start);
                    Some(Table::end(Settled::Applied))
                }
            };
            // Two tenths of a second of work when it is seated, and then none.
            run += if end.is_some() { 100 } else { 1 };
            table.look(&[(0, run, 0)], end.as_ref().map_or(&[], |end| end.as_slice()));
        }
        let gaps: Vec<u64> = eased.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(eased[0] >= 10 && gaps.windows(2).all(|pair| pair[1] > pair[0] * 3 / 2), "{eased:?}");
    }

    #[test]
    fn newcomers_begin_where_the_others_are_and_sleepers_are_credited() {
        let mut table = Table::new(2);
        table.look(&[(0, 0, 0), (1, 0, 0)], &[]);
        table.look(&[(0, 100, 0), (1, 50, 0)], &[]);
        let work = |table: &Table| table.seating.sitters.iter().map(|sitter| sitter.work).collect::<Vec<_>>();
        let near = |found: Vec<f64>, wanted: &[f64]| {
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}, not {wanted:?}");
        };
        near(work(&table), &[0.1, 0.1]);
        table.look(&[(0, 200, 0), (1, 100, 50)], &[]);
        near(work(&table), &[0.2, 0.15]);
        table.born(2..3);
        table.look(&[], &[]);
        near(work(&table), &[0.2, 0.15, 0.175]);
        // A reading that was lost is made good by the next: nothing of the time between is missed.
        table.look(&[(0, 400, 0)], &[]);
        near(work(&table), &[0.4, 0.15, 0.175]);
    }
}

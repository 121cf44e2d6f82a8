//! Who sits where: what a policy remembers of each thread, and what it has asked for.
//!
//! Unit: seconds of work: CPU time weighted by the speed of the core it was had on. Problem: between a decision and the next
//! look threads are born, end, are refused, move by themselves, and lose their CPUs; a policy that forgets any of it doubles
//! threads up or moves the dead. Idea: one entry per living thread, in the order of the observation, and a move is believed only
//! when its outcome says so.
//!
//! Properties: after [`Seating::update`] entry `i` is thread `i` of the observation; a thread is asked for at most one
//! thing until the outcome of that is known; a thread that its program, somebody else or the kernel keeps is never touched
//! again; nothing is remembered of a thread that ended; a thread that was not read keeps what was known of it, and a thread
//! that slept is credited with what it would have had, so that it is not "behind".

use super::ground::{Ground, Seat};
use super::{Act, Decision, Outcome, Reason, Refusal, Settled};
use crate::ids::{ProgramId, ThreadId};
use crate::observe::{Metric, Observation, Rates, ThreadView};
use crate::set::CpuSet;
use crate::topology::Machine;
use std::collections::BTreeMap;

/// Below this share of the time on a CPU or waiting for one, a thread only looks after things (timers, progress
/// threads, a thread in a serial part) and is not balanced. Chosen; waiters of a barrier want more than twice as much.
pub(super) const LIGHT_MAX: f64 = 0.2;

/// Seconds over which it is told what a thread wants: several of the kernel's slices.
const STEADY: f64 = 0.1;

/// So many refusals that may pass (no CPU, anything else) are taken before a thread is left alone.
const REFUSALS_MAX: u8 = 3;

/// So many looks a pending move is waited for.
const PENDING_MAX: u8 = 50;

/// What a thread's mask is by our doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Its own.
    Own,
    /// Wider than its own: it may go anywhere in its program's CPUs.
    Wide,
    /// One CPU.
    Held,
}

/// A set of CPUs that threads call home, kept once for all of them.
#[derive(Clone, Debug)]
struct Home {
    cpus: CpuSet,
    open: CpuSet,
}

/// What was asked for and is not known to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    seat: Option<Seat>,
    standing: Standing,
    looks: u8,
    pending: bool,
}

/// What is remembered of a thread.
#[derive(Clone, Debug)]
pub(super) struct Sitter {
    /// Which.
    pub(super) id: ThreadId,
    /// Whose.
    pub(super) program: ProgramId,
    /// Where it sits: where it was put, else where it was last seen.
    pub(super) seat: Option<Seat>,
    /// What its mask is.
    pub(super) standing: Standing,
    /// How often it was moved.
    pub(super) moves: u32,
    /// The work it has done, in seconds, on its program's scale: newcomers begin where the others are.
    pub(super) work: f64,
    /// The part of it that was done in the last step.
    pub(super) last_work: f64,
    /// What it did in the last step; `None` when it was not read.
    pub(super) rates: Option<Rates>,
    /// The share of the time it wanted a CPU, over the last tenth of a second; `None` before it was read.
    pub(super) wanted: Option<f64>,
    /// What it did since that was last summed up.
    pub(super) lately: Lately,
    /// Whether a seat was dealt to it.
    pub(super) dealt: bool,
    /// Whether the CPUs that may be used changed since it was last told where it may go.
    pub(super) stale: bool,
    home: usize,
    freed: Option<usize>,
    asked: Option<Asked>,
    kept: bool,
    refusals: u8,
    new: bool,
}

impl Sitter {
    fn new(id: ThreadId, program: ProgramId) -> Self {
        Self {
            id,
            program,
            seat: None,
            standing: Standing::Own,
            moves: 0,
            work: 0.0,
            last_work: 0.0,
            rates: None,
            wanted: None,
            lately: Lately::default(),
            dealt: false,
            stale: false,
            home: usize::MAX,
            freed: None,
            asked: None,
            kept: false,
            refusals: 0,
            new: true,
        }
    }

    /// Whether it may be asked for something now.
    pub(super) fn free(&self) -> bool {
        !self.kept() && self.asked.is_none()
    }

    /// Whether it is not known yet what became of the last thing it was asked for.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether it is somebody else's to place, or was refused too often to be asked again for gain.
    pub(super) fn kept(&self) -> bool {
        self.kept || self.refusals >= REFUSALS_MAX
    }

    /// Whether it computes, as far as known. A newcomer is taken to.
    pub(super) fn active(&self) -> bool {
        self.wanted.is_none_or(|wanted| wanted >= LIGHT_MAX)
    }

    /// Its speed in the last step; elapsed time serves where waiting is not counted.
    pub(super) fn speed(&self, metric: Metric) -> Option<f64> {
        let rates = self.rates.as_ref()?;
        match rates.wait {
            None => rates.speed(Metric::CpuShare),
            Some(_) => rates.speed(metric),
        }
    }
}

/// What a thread did over several looks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lately {
    /// Seconds that were seen.
    pub(super) span: f64,
    /// Seconds of them in which it ran or waited; `None` where waiting is not counted.
    pub(super) wants: Option<f64>,
    /// How often it went to sleep in them; `None` unless that was read all along.
    pub(super) sleeps: Option<f64>,
}

impl Lately {
    /// Takes one look in.
    pub(super) fn add(&mut self, rates: &Rates) {
        let seconds = rates.span.seconds();
        let first = self.span == 0.0;
        let sum = |before: Option<f64>, now: Option<f64>| {
            let before = if first { Some(0.0) } else { before };
            before.zip(now).map(|(before, now)| before + now * seconds)
        };
        self.wants = sum(self.wants, rates.wait.map(|wait| rates.run + wait));
        self.sleeps = sum(self.sleeps, rates.sleeps);
        self.span += seconds;
    }
}

/// All threads and the seats.
#[derive(Clone, Debug)]
pub(super) struct Seating {
    /// The seats.
    pub(super) ground: Ground,
    /// The threads, as the last observation has them.
    pub(super) sitters: Vec<Sitter>,
    homes: Vec<Home>,
}

impl Seating {
    /// Nobody yet.
    pub(super) fn new(machine: &Machine) -> Self {
        Self { ground: Ground::new(machine), sitters: Vec::new(), homes: Vec::new() }
    }

    /// Takes an observation in; true when the CPUs that may be used changed.
    pub(super) fn update(&mut self, seen: &Observation<'_>) -> bool {
        let changed = self.ground.follow(seen.usable);
        if changed {
            for home in &mut self.homes {
                home.open = home.cpus.intersection(seen.usable);
            }
            for sitter in &mut self.sitters {
                sitter.stale = true;
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
                known.unwrap_or_else(|| Sitter::new(view.id(), view.info.program))
            });
            sitters = now.collect();
        }
        for (sitter, view) in sitters.iter_mut().zip(&seen.threads) {
            self.meet(sitter, view);
        }
        self.sitters = sitters;
        self.settle(seen.outcomes);
        self.work();
        changed
    }

    fn meet(&mut self, sitter: &mut Sitter, view: &ThreadView<'_>) {
        if self.homes.get(sitter.home).is_none_or(|home| home.cpus != view.info.home) {
            sitter.home = self.home(&view.info.home);
            sitter.freed = None;
        }
        sitter.kept |= !view.movable();
        if sitter.standing != Standing::Held {
            sitter.seat = view.cpu.and_then(|cpu| self.ground.seat(cpu)).or(sitter.seat);
        }
        sitter.rates = view.rates;
        if let Some(rates) = &view.rates {
            sitter.lately.add(rates);
            let now = rates.run + rates.wait.unwrap_or(0.0);
            // A wait is counted when it is over: one short look says little. Only who neither ran nor waits sleeps for sure.
            let weight = if now > 0.0 { (rates.span.seconds() / STEADY).min(1.0) } else { 1.0 };
            let before = sitter.wanted.unwrap_or(now);
            sitter.wanted = Some(before + (now - before) * weight);
        }
    }

    /// The number of a set of CPUs as a home.
    pub(super) fn home(&mut self, cpus: &CpuSet) -> usize {
        if let Some(at) = self.homes.iter().position(|home| home.cpus == *cpus) {
            return at;
        }
        let open = cpus.intersection(self.ground.usable());
        self.homes.push(Home { cpus: cpus.clone(), open });
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

    /// Whether thread `i` may be put beyond its own mask.
    pub(super) fn is_freed(&self, i: usize) -> bool {
        self.sitters[i].freed.is_some()
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
            let ours = !sitter.kept && sitter.asked.is_none();
            (sitter.standing == Standing::Held && ours && gone).then_some(i)
        };
        self.sitters.iter().enumerate().filter_map(lost).collect()
    }

    /// Puts thread `i` on a seat and keeps it there.
    pub(super) fn confine(&mut self, i: usize, seat: Seat, reason: Reason) -> Decision {
        self.ask(i, Some(seat), Standing::Held, Act::Confine(self.ground.only(seat)), reason)
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

    fn ask(
        &mut self,
        i: usize,
        seat: Option<Seat>,
        standing: Standing,
        act: Act,
        reason: Reason,
    ) -> Decision {
        let sitter = &mut self.sitters[i];
        sitter.asked = Some(Asked { seat, standing, looks: 0, pending: false });
        Decision { thread: sitter.id, act, reason, gain: None }
    }

    /// Believes outcomes.
    fn settle(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let Ok(at) = self.sitters.binary_search_by_key(&outcome.thread, |sitter| sitter.id) else {
                continue;
            };
            let sitter = &mut self.sitters[at];
            let Some(asked) = &mut sitter.asked else { continue };
            match outcome.end {
                Settled::Pending => {
                    asked.pending = true;
                    continue;
                }
                Settled::Applied => {
                    if asked.seat.is_some() {
                        sitter.seat = asked.seat;
                        sitter.moves += 1;
                    }
                    sitter.standing = asked.standing;
                    sitter.stale = false;
                    sitter.refusals = 0;
                }
                Settled::Refused(Refusal::Permission | Refusal::MovedMeanwhile) | Settled::Vanished => {
                    sitter.kept = true;
                }
                Settled::Refused(Refusal::Cpus | Refusal::Other) => {
                    sitter.refusals = sitter.refusals.saturating_add(1);
                }
                Settled::Refused(Refusal::Replayed) => {}
            }
            sitter.asked = None;
        }
        for sitter in &mut self.sitters {
            // What nobody says anything about is not known to be done.
            let over = |asked: &mut Asked| {
                asked.looks += 1;
                !asked.pending || asked.looks > PENDING_MAX
            };
            if sitter.asked.as_mut().is_some_and(over) {
                sitter.asked = None;
            }
        }
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
    use super::*;
    use crate::ids::OsCpu;
    use crate::observe::{Observer, Sample, ThreadInfo, ThreadSample};
    use crate::time::{Moment, Span};
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

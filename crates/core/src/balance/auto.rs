//! `auto`: find out what holds each program back, do what helps, or nothing.
//!
//! Unit: shares of the time, and seconds of work. Problem: no single rule is right. Modern kernels rotate threads well where
//! nothing binds them; binding sleepers costs up to 40 %; bound programs lose up to 88 %; a hog is best met by standing
//! still on one core each. A balancer that is on by default must never be worse than none. Idea: every program is a case of its own, and
//! a case is in one of three states.
//!
//! - *Watched*: one or some tenths of a second, everything is read, nothing is done; then a [`diagnosis`](super::diagnosis) is made.
//! - *Still*: left alone, or spread by the kernel after being freed of crowding masks, and looked at more and more seldom, cheaply. A
//!   new finding, or another number of computing threads, leads back to being watched; the more often, the more seldom.
//! - *In turns*: each thread has one core, and [`Rotation`] exchanges places. The interval is the shortest at which looking (at
//!   every thread that is there, computing or not) and moving cost at most [`TURNS_BUDGET`] of a core, within [`PERIOD_MIN`] and the settings'
//!   interval, which holds even where it costs more: a thread should be a per cent behind at the end of a short run, not a tenth.
//!
//! Both treatments, spreading and taking turns, are trials ([`trial`]): after a while the pace of all and the pace of the last are compared
//! with what they were before. What did not help is undone (everybody gets back the mask that was there, as far as a CPU of it may be
//! used), and not tried again for a time that doubles with each failure. If another number of threads computes by then, nothing
//! can be compared: the program gets its masks back and is watched anew, at once the first time, then after times that double
//! while it goes on changing. Let go without judging are threads that were light for a second or more, programs that turn out to sleep in their barriers, and
//! those in which nothing waits any more; who was freed of a crowding mask then keeps the wide one.
//!
//! Properties: nobody is touched before being watched, and nobody while one of the findings that forbid it holds (sleepers, quota,
//! fine barriers, hands off); threads leave their own masks only if these crowd them, only to CPUs of their own
//! program, and not to other nodes unless that is allowed; a program that somebody else placed and places no more is met as if new;
//! equal observations, equal decisions; nothing is drawn at random.

use super::base::Base;
use super::case::{Case, PERIOD_MIN, State};
use super::cost::Costs;
use super::deal::deal_out;
use super::diagnosis::{Freed, Sight, Treatment, diagnose};
use super::lone;
use super::rotation::{PAIRS_MIN, Rotation, Terms};
use super::sitter::{Sitter, Standing};
use super::trial::{self, ALIKE, Course, TRIAL};
use super::{Decision, Finding, Kind, Policy, Reason, Settings, Turn, Wanted};
use crate::ids::ProgramId;
use crate::observe::Observation;
use crate::sampling_budget::SamplingBudget;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use std::collections::BTreeMap;

/// How long a program is watched before anything is done. Three busy intervals of the kernel on 16 CPUs.
const WATCH: Span = Span::from_ms(250);

/// How long where it is plain: somebody else takes part of the CPUs, and no thread ever sleeps. Others are met with one core each, which
/// costs a program that computes nothing if it was wrong.
const WATCH_PLAIN: Span = Span::from_ms(150);

/// How often it is looked at while it is watched.
const WATCH_STEP: Span = Span::from_ms(50);

/// What sampling and moving may cost while taking turns, and sampling while standing still.
const TURNS_BUDGET: SamplingBudget = SamplingBudget::share(0.004);

/// The same while a program is watched, which is for some tenths of a second.
const WATCH_BUDGET: SamplingBudget = SamplingBudget::share(0.04);

/// A program that is left alone is looked at this many times the interval apart at most.
const STILL_MAX: u32 = 5;

/// The default policy.
#[derive(Debug)]
pub(super) struct Auto {
    base: Base,
    costs: Costs,
    cases: BTreeMap<ProgramId, Case>,
}

impl Auto {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self { base: Base::new(machine, settings), costs: Costs::new(Wanted::all()), cases: BTreeMap::new() }
    }

    /// What must be put right whatever the case: threads that are held on lost CPUs, or though nobody wants them held any
    /// more (a release was refused), and wide masks since the CPUs that may be used changed.
    fn follow(&mut self, case: &Case, members: &[usize], lost: &[usize]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if case.state == State::Turns {
            let ours = |i: &usize| members.binary_search(i).is_ok();
            let lost: Vec<usize> = lost.iter().copied().filter(ours).collect();
            decisions.extend(deal_out(&mut self.base.seating, &mut self.base.shares, &[], &lost, false));
        }
        for &i in members {
            let sitter = &self.base.seating.sitters[i];
            let (standing, stale, open) =
                (sitter.standing, sitter.stale, !self.base.seating.room(i).is_empty());
            // Who is held on a lost CPU is asked again however often it was refused.
            if !sitter.free() && lost.binary_search(&i).is_err() {
                continue;
            }
            match standing {
                Standing::Held if case.state != State::Turns => {
                    decisions.push(self.base.seating.restore(i, Reason::Done));
                }
                Standing::Held if sitter.idles() => decisions.push(self.base.seating.ease(i)),
                Standing::Wide if stale && open => {
                    let cpus = u32::try_from(self.base.seating.room(i).len()).unwrap_or(u32::MAX);
                    decisions.push(self.base.seating.widen(i, Reason::Free { threads: 1, cpus }));
                }
                Standing::Wide if stale => decisions.push(self.base.seating.release(i, Reason::Done)),
                _ => {}
            }
        }
        decisions
    }

    /// Begins anew when threads come back from somebody else who placed them, or have all gone there.
    fn whose(&self, case: &mut Case, members: &[usize], at: Moment) {
        let mut sitters = members.iter().map(|&i| &self.base.seating.sitters[i]);
        match case.state {
            // In turns, who comes back is dealt a seat.
            State::Turns if sitters.all(Sitter::taken) => case.watch_again(at),
            State::Watched | State::Still if sitters.any(|sitter| sitter.back) => case.begin_again(at),
            _ => {}
        }
    }

    /// One program's turn.
    fn treat(
        &mut self,
        program: ProgramId,
        case: &mut Case,
        members: &[usize],
        seen: &Observation<'_>,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        self.whose(case, members, at);
        case.window.add(&self.base.seating, members, seen.throttled);
        let sleeps = self.base.dozes.sleeps(program);
        if sleeps && case.state == State::Turns {
            let decisions = self.let_go(members, Reason::Sleeps);
            let share = self.base.dozes.share(program);
            case.before = None;
            case.failed(at);
            case.enter(State::Still, at);
            case.next = at + self.pause(0);
            return (decisions, Some(vec![Finding::Sleepers { idle: share }]));
        }
        if at < case.next {
            return (Vec::new(), None);
        }
        match case.state {
            State::Watched => self.watched(case, seen, sleeps),
            State::Still => self.still(case, members, seen, sleeps),
            State::Turns => self.turns(case, members, seen),
        }
    }

    fn diagnosed(
        &self,
        case: &Case,
        sight: &Sight,
        seen: &Observation<'_>,
        sleeps: bool,
    ) -> (Vec<Finding>, Treatment) {
        let period = self.period(sight);
        let why = |i: usize| {
            let left = seen.threads.get(i).and_then(|view| view.info.left.as_ref());
            left.map_or_else(|| "the kernel refuses".to_owned(), ToString::to_string)
        };
        let (findings, treatment) =
            diagnose(sight, &self.base.seating, sleeps, period, self.base.settings.across_nodes, why);
        match treatment {
            Treatment::Still => (findings, Treatment::Still),
            // What was tried and did not help stays said until it is tried again.
            _ if seen.at < case.rests => (vec![Finding::NoGain], Treatment::Still),
            treatment => (findings, treatment),
        }
    }

    /// The interval at which turns are taken: the shortest that is worth its cost.
    fn period(&self, sight: &Sight) -> Span {
        let (threads, cpus) = (sight.threads.len(), (sight.cpus as usize).max(1));
        let (rest, each) = (threads % cpus, threads / cpus);
        let pairs = (rest * (each + 1)).min((cpus - rest) * each).clamp(1, PAIRS_MIN);
        let cost = self.costs.of_look() + self.costs.of_moves(2 * pairs);
        TURNS_BUDGET.payoff(cost).max(PERIOD_MIN).min(self.base.settings.interval)
    }

    /// The time to the next look at a program that is left alone, which was looked at so often.
    fn pause(&self, calm: u32) -> Span {
        let times = (1 + calm / 4).min(STILL_MAX);
        self.base.settings.interval.times(f64::from(times)).max(TURNS_BUDGET.payoff(self.costs.of_look()))
    }

    /// The time between two looks at a program that is watched.
    fn watch_step(&self) -> Span {
        WATCH_STEP.max(WATCH_BUDGET.payoff(self.costs.of_full_look()))
    }

    fn watched(
        &mut self,
        case: &mut Case,
        seen: &Observation<'_>,
        sleeps: bool,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        case.next = at + self.watch_step();
        let long = case.window.span(at);
        let early = case.said.is_empty().then(|| vec![Finding::TooEarly]);
        if long < WATCH_PLAIN {
            return (Vec::new(), early);
        }
        let Some(sight) = case.window.sum_up(&self.base.seating) else {
            if long < WATCH {
                return (Vec::new(), early);
            }
            case.enter(State::Still, at);
            case.next = at + self.pause(0);
            return (Vec::new(), Some(vec![Finding::NothingWaits]));
        };
        let (findings, treatment) = self.diagnosed(case, &sight, seen, sleeps);
        let plain = matches!(treatment, Treatment::Turns { fence: true, .. }) && sight.sleepless();
        if long < WATCH && !plain {
            return (Vec::new(), early);
        }
        case.threads = sight.threads.len();
        case.watched = long;
        let decisions = match treatment {
            Treatment::Still => {
                case.enter(State::Still, at);
                case.next = at + self.pause(0);
                Vec::new()
            }
            Treatment::Spread(freed) => {
                case.before = Some(sight);
                case.enter(State::Still, at);
                case.next = at + self.pause(0);
                self.spread(&freed)
            }
            Treatment::Turns { fence, freed } => {
                case.period = self.period(&sight);
                case.passed = false;
                let decisions = self.take_seats(&sight, fence, &freed);
                case.before = Some(sight);
                case.rotation = Rotation::default();
                case.enter(State::Turns, at);
                case.next = at + case.period;
                decisions
            }
        };
        (decisions, Some(findings))
    }

    fn still(
        &mut self,
        case: &mut Case,
        members: &[usize],
        seen: &Observation<'_>,
        sleeps: bool,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        case.calm += 1;
        case.next = at + self.pause(case.calm);
        if case.window.looks() < 2 {
            return (Vec::new(), None);
        }
        let Some(sight) = case.window.sum_up(&self.base.seating) else {
            return (Vec::new(), Some(vec![Finding::NothingWaits]));
        };
        let long = case.window.span(at);
        if let Some(before) = case.before.take_if(|_| long >= TRIAL) {
            // Spreading bound threads is on trial.
            match trial::spread(&before, &sight) {
                Course::End(reason, finding) => {
                    case.failed(at);
                    case.enter(State::Still, at);
                    return (self.restore(members, reason), Some(vec![finding]));
                }
                Course::Unlike if case.stirs(at) => {
                    case.watch_again(at);
                    return (self.restore(members, Reason::Done), None);
                }
                Course::Unlike => case.before = Some(before),
                Course::On => {}
            }
        }
        if case.before.is_some() {
            if long >= TRIAL {
                case.window.restart(at);
            }
            return (Vec::new(), None);
        }
        let (findings, treatment) = self.diagnosed(case, &sight, seen, sleeps);
        let same = case.threads == sight.threads.len();
        case.threads = sight.threads.len();
        if (!same || treatment != Treatment::Still) && case.stirs(at) {
            case.watch_again(at);
            case.next = at + self.watch_step();
            return (Vec::new(), None);
        }
        // Old looks must not hide new trouble, nor tell of threads that are not there any more.
        if !same || long >= TRIAL.times(2.0) {
            case.window.restart(at);
        }
        if same && long >= TRIAL.times(2.0) && treatment == Treatment::Still {
            case.settles();
        }
        (Vec::new(), Some(findings).filter(|_| treatment == Treatment::Still))
    }

    fn turns(
        &mut self,
        case: &mut Case,
        members: &[usize],
        seen: &Observation<'_>,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        case.next = at + case.period;
        if case.window.span(at) >= TRIAL.max(case.period.times(8.0)) {
            match self.judge(case) {
                Course::End(reason, finding) => {
                    let undo = reason == Reason::Undo;
                    if undo {
                        case.failed(at);
                    }
                    case.before = None;
                    case.enter(State::Still, at);
                    case.next = at + self.pause(0);
                    let decisions =
                        if undo { self.restore(members, reason) } else { self.let_go(members, reason) };
                    return (decisions, Some(vec![finding]));
                }
                Course::Unlike if case.stirs(at) => {
                    case.watch_again(at);
                    case.next = at + self.watch_step();
                    return (self.restore(members, Reason::Done), None);
                }
                Course::Unlike => {}
                Course::On => {
                    case.passed = true;
                    case.settles();
                }
            }
            case.window.restart(at);
        }
        // Newcomers once they have been seen for a whole step: many end before that.
        let sitters = &self.base.seating.sitters;
        let computing: Vec<usize> = members.iter().copied().filter(|&i| sitters[i].active()).collect();
        let lone = lone::stay_free(sitters, &computing);
        let new: Vec<usize> = computing
            .into_iter()
            .filter(|&i| {
                let sitter = &self.base.seating.sitters[i];
                lone.binary_search(&i).is_err()
                    && sitter.wanted.is_some()
                    && sitter.free()
                    && sitter.standing != Standing::Held
                    && !self.base.seating.room(i).is_empty()
            })
            .collect();
        let mut decisions = deal_out(
            &mut self.base.seating,
            &mut self.base.shares,
            &new,
            &[],
            !self.base.settings.across_nodes,
        );
        let held: Vec<usize> = members
            .iter()
            .copied()
            .filter(|&i| {
                let sitter = &self.base.seating.sitters[i];
                sitter.active() && sitter.standing == Standing::Held
            })
            .collect();
        let terms = Terms { across_nodes: self.base.settings.across_nodes, interval: case.period };
        decisions.extend(case.rotation.turn(&mut self.base.seating, &mut self.base.shares, &held, &terms));
        (decisions, None)
    }

    /// Whether taking turns should go on. The period follows the threads that are there.
    fn judge(&self, case: &mut Case) -> Course {
        let Some(sight) = case.window.sum_up(&self.base.seating) else {
            return Course::End(Reason::Done, Finding::NothingWaits);
        };
        let verdict = trial::turns(case.before.as_ref(), &sight, case.passed, case.period, case.watched);
        case.period = self.period(&sight);
        verdict
    }

    /// One core for each thread. Lone threads stay free, and leave masks that crowd them.
    fn take_seats(&mut self, sight: &Sight, fence: bool, freed: &Freed) -> Vec<Decision> {
        let lone = |i: &usize| sight.lone.binary_search(i).is_ok();
        let (wide, freed): (Freed, Freed) = freed.iter().cloned().partition(|(i, _)| lone(i));
        let widened = self.spread(&wide);
        self.free(&freed);
        let new: Vec<usize> = sight
            .threads
            .iter()
            .copied()
            .filter(|i| !lone(i))
            .filter(|&i| self.base.seating.sitters[i].free() && !self.base.seating.room(i).is_empty())
            .collect();
        let mut decisions = deal_out(
            &mut self.base.seating,
            &mut self.base.shares,
            &new,
            &[],
            !self.base.settings.across_nodes,
        );
        let reason =
            Reason::Free { threads: u32::try_from(freed.len()).unwrap_or(u32::MAX), cpus: sight.cpus };
        for decision in &mut decisions {
            let at = self.base.seating.sitters.binary_search_by_key(&decision.thread, |sitter| sitter.id);
            if at.is_ok_and(|at| freed.binary_search_by_key(&at, |(i, _)| *i).is_ok()) {
                decision.reason = reason.clone();
            } else if fence {
                decision.reason = Reason::Fence { foreign: sight.waited.unwrap_or(0.0) };
            }
        }
        decisions.extend(widened);
        decisions
    }

    /// Who was told something else in this very turn stays as bound as it is.
    fn free(&mut self, freed: &Freed) {
        for (i, cpus) in freed {
            if self.base.seating.sitters[*i].free() {
                let home = self.base.seating.home(cpus);
                self.base.seating.free_to(*i, home);
            }
        }
    }

    /// Lets bound threads go anywhere in their program's CPUs.
    fn spread(&mut self, freed: &Freed) -> Vec<Decision> {
        let threads = u32::try_from(freed.len()).unwrap_or(u32::MAX);
        self.free(freed);
        let mut decisions = Vec::new();
        for (i, room) in freed {
            if self.base.seating.sitters[*i].free() {
                let cpus = u32::try_from(room.len()).unwrap_or(u32::MAX);
                decisions.push(self.base.seating.widen(*i, Reason::Free { threads, cpus }));
            }
        }
        decisions
    }

    /// Ends holding threads: who was freed of its mask keeps the wide one, which is why it was freed.
    fn let_go(&mut self, members: &[usize], reason: Reason) -> Vec<Decision> {
        let held = |sitter: &Sitter| sitter.standing == Standing::Held && sitter.free();
        let held: Vec<usize> =
            members.iter().copied().filter(|&i| held(&self.base.seating.sitters[i])).collect();
        held.into_iter().map(|i| self.base.seating.let_go(i, reason.clone())).collect()
    }

    /// Gives everybody back what was there.
    fn restore(&mut self, members: &[usize], reason: Reason) -> Vec<Decision> {
        let touched = |i: usize| {
            let sitter = &self.base.seating.sitters[i];
            // Who has no CPU of its own left stays as wide as it is.
            let stays = sitter.standing == Standing::Wide && self.base.seating.is_homeless(i);
            sitter.standing != Standing::Own && sitter.free() && !stays
        };
        let touched: Vec<usize> = members.iter().copied().filter(|&i| touched(i)).collect();
        touched.into_iter().map(|i| self.base.seating.restore(i, reason.clone())).collect()
    }
}

impl Policy for Auto {
    fn kind(&self) -> Kind {
        Kind::Auto
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        self.costs.look(seen);
        let findings = self.base.look(seen);
        self.base.dozes.look(&mut self.base.seating);
        let mut members: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
        for (i, sitter) in self.base.seating.sitters.iter().enumerate() {
            members.entry(sitter.program).or_default().push(i);
        }
        let mut cases = std::mem::take(&mut self.cases);
        cases.retain(|program, _| members.contains_key(program));
        let lost = self.base.seating.lost();
        let mut turn = Turn { findings, ..Turn::default() };
        for (program, members) in &members {
            let case = cases.entry(*program).or_insert_with(|| Case::new(seen.at));
            turn.decisions.extend(self.follow(case, members, &lost));
            let (decisions, findings) = self.treat(*program, case, members, seen);
            turn.decisions.extend(decisions);
            if let Some(findings) = findings.filter(|findings| news(&case.said, findings)) {
                case.said.clone_from(&findings);
                turn.findings.extend(findings);
            }
        }
        self.cases = cases;
        let any = |state: State| self.cases.values().any(|case| case.state == state);
        let uneven =
            self.base.seating.ground.open().any(|seat| self.base.seating.ground.place(seat).weight < 1.0);
        let watched = any(State::Watched) || self.cases.is_empty();
        turn.next =
            self.cases.values().map(|case| case.next).min().unwrap_or(seen.at + self.base.settings.interval);
        turn.wanted = Wanted {
            on: None,
            places: watched || uneven,
            cpus: watched
                || any(State::Turns)
                    && self.base.seating.ground.open().any(|seat| self.base.shares.ours(seat) == 0),
            sleeps: watched || self.base.dozes.suspects(),
            counts: false,
        };
        self.costs.decided(turn.decisions.len(), &turn.wanted);
        turn
    }
}

/// Whether findings differ in kind: numbers that drift are no news, but a spread that grew or shrank is.
fn news(said: &[Finding], now: &[Finding]) -> bool {
    let kinds = |findings: &[Finding]| findings.iter().map(std::mem::discriminant).collect::<Vec<_>>();
    let spread = |findings: &[Finding]| {
        findings.iter().find_map(|finding| match finding {
            Finding::KernelRotates { spread } => Some(*spread),
            _ => None,
        })
    };
    let moved = spread(said).zip(spread(now)).is_some_and(|(said, now)| (said - now).abs() > ALIKE);
    kinds(said) != kinds(now) || moved
}

//! `auto`: find out what holds each program back, do what helps, or nothing.
//!
//! Unit: shares of the time, and seconds of work. Problem: no single rule is right. Modern kernels rotate threads well where
//! nothing binds them; binding sleepers costs up to 40 %; bound programs lose up to 88 %; a hog is best met by standing
//! still on one core each. A balancer that is on by default must never be worse than none. Idea: every program is a case of its own, and
//! a case is in one of three states.
//!
//! - *Watched*: some tenths of a second, everything is read, nothing is done; then a [`diagnosis`](super::diagnosis) is made.
//! - *Still*: left alone, and looked at more and more seldom, cheaply. A new finding leads back to being watched.
//! - *In turns*: each thread has one core, and [`Rotation`] exchanges places, at the shortest interval whose cost stays below
//!   [`COST_MAX`] of a core, but not above the settings' interval: a thread should be a per cent behind at the end of a short run, not a tenth.
//!
//! Every treatment is a trial: after a while the pace of all and the pace of the last are compared with what they were before. What
//! did not help is undone, and not tried again for a time that doubles with each failure. A trial during which the number of computing threads
//! changed is not judged. Programs that begin to sleep in their barriers are let go as soon as that is sure. When nothing waits any more, threads get their masks back.
//!
//! Properties: nobody is touched before being watched, and nobody while one of the findings that forbid it holds (sleepers, quota,
//! fine barriers, hands off); threads leave their own masks only if these crowd them, only to CPUs of their own
//! program, and not to other nodes unless that is allowed; equal observations, equal decisions; nothing is drawn at random.

use super::case::{Case, PERIOD_MIN, State};
use super::deal::deal_out;
use super::diagnosis::{Freed, Sight, Treatment, diagnose};
use super::doze::Dozes;
use super::rotation::{PAIRS_MIN, Rotation, Terms};
use super::seating::{Seating, Standing};
use super::shares::Shares;
use super::{Decision, Finding, Kind, Policy, Reason, Settings, Turn, Wanted};
use crate::ids::ProgramId;
use crate::observe::Observation;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use std::collections::BTreeMap;

/// How long a program is watched before anything is done. Three busy intervals of the kernel on 16 CPUs.
const WATCH: Span = Span::from_ms(250);

/// How often it is looked at while it is watched.
const WATCH_STEP: Span = Span::from_ms(50);

/// How long a treatment has before it is judged: several times round for a few threads.
const TRIAL: Span = Span::from_ms(500);

/// The share of a core that looking and moving may cost while taking turns.
const COST_MAX: f64 = 0.004;

/// What a look costs, per thread and at all, and what a move costs, caches that went
/// cold meanwhile included: measured, 1 to 2, 40 to 80 and 20 microseconds.
const COST_THREAD: Span = Span::from_us(1);
const COST_LOOK: Span = Span::from_us(50);
const COST_MOVE: Span = Span::from_us(20);

/// A program that is left alone is looked at this many times the interval apart at most.
const STILL_MAX: u32 = 5;

/// Paces this near to each other are alike: what half a second's measurement cannot tell apart.
const ALIKE: f64 = 0.02;

/// How long a thread sits on a slow seat before the kernel moves it on, about.
const BLUR: Span = Span::from_ms(20);

/// The default policy.
#[derive(Debug)]
pub(super) struct Auto {
    settings: Settings,
    seating: Seating,
    shares: Shares,
    dozes: Dozes,
    cases: BTreeMap<ProgramId, Case>,
}

impl Auto {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            seating: Seating::new(machine),
            shares: Shares::default(),
            dozes: Dozes::default(),
            cases: BTreeMap::new(),
        }
    }

    /// What must be put right whatever the case: threads that are held on lost CPUs, or though nobody wants them held any
    /// more (a release was refused), and wide masks since the CPUs that may be used changed.
    fn follow(&mut self, case: &Case, members: &[usize]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let lost: Vec<usize> =
            self.seating.lost().into_iter().filter(|i| members.binary_search(i).is_ok()).collect();
        if case.state == State::Turns {
            decisions.extend(deal_out(&mut self.seating, &mut self.shares, &[], &lost, false));
        }
        for &i in members {
            let sitter = &self.seating.sitters[i];
            let (standing, stale, open) = (sitter.standing, sitter.stale, !self.seating.room(i).is_empty());
            if !sitter.free() {
                continue;
            }
            match standing {
                Standing::Held if case.state != State::Turns => {
                    decisions.push(self.seating.release(i, Reason::Done));
                }
                Standing::Wide if stale && open => {
                    let cpus = u32::try_from(self.seating.room(i).len()).unwrap_or(u32::MAX);
                    decisions.push(self.seating.widen(i, Reason::Free { threads: 1, cpus }));
                }
                Standing::Wide if stale => decisions.push(self.seating.release(i, Reason::Done)),
                _ => {}
            }
        }
        decisions
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
        case.window.add(&self.seating, members, seen.throttled);
        let sleeps = self.dozes.sleeps(program);
        if sleeps && case.state == State::Turns {
            let decisions = self.let_go(members, Reason::Sleeps);
            let share = self.dozes.share(program);
            case.before = None;
            case.failed(at);
            case.enter(State::Still, at);
            case.next = at + self.settings.interval;
            return (decisions, Some(vec![Finding::Sleepers { idle: share }]));
        }
        if at < case.next {
            return (Vec::new(), None);
        }
        match case.state {
            State::Watched => self.watched(case, members, seen, sleeps),
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
            diagnose(sight, &self.seating, sleeps, period, self.settings.across_nodes, why);
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
        let cost = COST_LOOK + COST_THREAD.times(threads as f64) + COST_MOVE.times(2.0 * pairs as f64);
        Span((cost.0 as f64 / COST_MAX) as u64).max(PERIOD_MIN).min(self.settings.interval)
    }

    fn watched(
        &mut self,
        case: &mut Case,
        members: &[usize],
        seen: &Observation<'_>,
        sleeps: bool,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        case.next = at + WATCH_STEP;
        if case.window.span(at) < WATCH {
            let finding = case.said.is_empty().then(|| vec![Finding::TooEarly]);
            return (Vec::new(), finding);
        }
        let Some(sight) = case.window.sum_up(&self.seating) else {
            case.enter(State::Still, at);
            case.next = at + self.settings.interval;
            return (Vec::new(), Some(vec![Finding::NothingWaits]));
        };
        let (findings, treatment) = self.diagnosed(case, &sight, seen, sleeps);
        let decisions = match treatment {
            Treatment::Still => {
                case.enter(State::Still, at);
                case.next = at + self.settings.interval;
                Vec::new()
            }
            Treatment::Spread(freed) => {
                case.before = Some(sight);
                case.enter(State::Still, at);
                case.next = at + self.settings.interval;
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
        case.threads = members.len();
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
        let times = (1 + case.calm / 4).min(STILL_MAX);
        case.next = at + self.settings.interval.times(f64::from(times));
        if case.window.looks() < 2 {
            return (Vec::new(), None);
        }
        let Some(sight) = case.window.sum_up(&self.seating) else {
            return (Vec::new(), Some(vec![Finding::NothingWaits]));
        };
        if let Some(before) = case.before.take_if(|_| case.window.span(at) >= TRIAL) {
            // Spreading bound threads is on trial.
            if sight.last_pace < before.last_pace * (1.0 - ALIKE) && sight.pace < before.pace * (1.0 - ALIKE)
            {
                case.failed(at);
                case.enter(State::Still, at);
                return (self.restore(members, Reason::Undo), Some(vec![Finding::NoGain]));
            }
        }
        let (findings, treatment) = self.diagnosed(case, &sight, seen, sleeps);
        if treatment != Treatment::Still && case.before.is_none() || case.threads != members.len() {
            case.threads = members.len();
            case.enter(State::Watched, at);
            case.next = at + WATCH_STEP;
            return (Vec::new(), None);
        }
        // Old looks must not hide new trouble.
        if case.window.span(at) >= TRIAL.times(2.0) && case.before.is_none() {
            case.window.restart(at);
        }
        (Vec::new(), Some(findings).filter(|_| case.before.is_none()))
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
            if let Some((end, finding)) = self.judge(case, at) {
                let decisions = self.let_go(members, end);
                case.before = None;
                case.enter(State::Still, at);
                case.next = at + self.settings.interval;
                return (decisions, Some(vec![finding]));
            }
            case.window.restart(at);
        }
        // Newcomers once they have been seen for a whole step: many end before that.
        let new: Vec<usize> = members
            .iter()
            .copied()
            .filter(|&i| {
                let sitter = &self.seating.sitters[i];
                sitter.active()
                    && sitter.wanted.is_some()
                    && sitter.free()
                    && sitter.standing != Standing::Held
                    && !self.seating.room(i).is_empty()
            })
            .collect();
        let mut decisions =
            deal_out(&mut self.seating, &mut self.shares, &new, &[], !self.settings.across_nodes);
        let held: Vec<usize> = members
            .iter()
            .copied()
            .filter(|&i| {
                let sitter = &self.seating.sitters[i];
                sitter.active() && sitter.standing == Standing::Held
            })
            .collect();
        let terms = Terms { across_nodes: self.settings.across_nodes, interval: case.period };
        decisions.extend(case.rotation.turn(&mut self.seating, &mut self.shares, &held, &terms));
        (decisions, None)
    }

    /// Whether taking turns should end, and why.
    fn judge(&self, case: &mut Case, at: Moment) -> Option<(Reason, Finding)> {
        let Some(sight) = case.window.sum_up(&self.seating) else {
            return Some((Reason::Done, Finding::NothingWaits));
        };
        let alike = sight.slowest > 1.0 - ALIKE;
        let threads = u32::try_from(sight.threads.len()).unwrap_or(u32::MAX);
        if sight.waited.is_some() && !sight.others() && alike {
            return Some((Reason::Done, Finding::NothingWaits));
        }
        let before = case.before.as_ref()?;
        let worse = |now: f64, before: f64| now < before * (1.0 - ALIKE);
        // Who is last changes hands while they take turns, in the kernel's and in ours: over a short time that blurs its pace.
        let much_worse =
            |now: f64, before: f64| now < before * (1.0 - ALIKE - BLUR.seconds() / WATCH.seconds());
        let better = |now: f64, before: f64| now > before * (1.0 + ALIKE / 2.0);
        let same_threads = before.threads.len() == sight.threads.len();
        let last_better = better(sight.last_pace, before.last_pace);
        let lost =
            worse(sight.pace, before.pace) && !last_better || much_worse(sight.last_pace, before.last_pace);
        let vain = !case.passed && !last_better && !better(sight.pace, before.pace);
        if same_threads && (lost || vain) {
            case.failed(at);
            return Some((Reason::Undo, Finding::NoGain));
        }
        case.passed = true;
        // As many on each core, and nobody else there: the kernel keeps that by itself.
        let even = threads.is_multiple_of(sight.cpus.max(1)) && alike;
        let own = f64::from(threads) / f64::from(sight.cpus.max(1));
        let alone = sight.waited.is_some_and(|waited| waited < 1.0 - 1.0 / own + ALIKE);
        let settled = sight.lag < case.period.seconds().max(ALIKE * sight.work);
        (even && alone && settled)
            .then_some((Reason::Done, Finding::KernelRotates { spread: sight.lag / sight.work.max(1e-9) }))
    }

    /// One core for each thread.
    fn take_seats(&mut self, sight: &Sight, fence: bool, freed: &Freed) -> Vec<Decision> {
        self.free(freed);
        let new: Vec<usize> = sight
            .threads
            .iter()
            .copied()
            .filter(|&i| self.seating.sitters[i].free() && !self.seating.room(i).is_empty())
            .collect();
        let mut decisions =
            deal_out(&mut self.seating, &mut self.shares, &new, &[], !self.settings.across_nodes);
        let reason =
            Reason::Free { threads: u32::try_from(freed.len()).unwrap_or(u32::MAX), cpus: sight.cpus };
        for decision in &mut decisions {
            let at = self.seating.sitters.binary_search_by_key(&decision.thread, |sitter| sitter.id);
            if at.is_ok_and(|at| freed.binary_search_by_key(&at, |(i, _)| *i).is_ok()) {
                decision.reason = reason.clone();
            } else if fence {
                decision.reason = Reason::Fence { foreign: sight.waited.unwrap_or(0.0) };
            }
        }
        decisions
    }

    fn free(&mut self, freed: &Freed) {
        for (i, cpus) in freed {
            let home = self.seating.home(cpus);
            self.seating.free_to(*i, home);
        }
    }

    /// Lets bound threads go anywhere in their program's CPUs.
    fn spread(&mut self, freed: &Freed) -> Vec<Decision> {
        let threads = u32::try_from(freed.len()).unwrap_or(u32::MAX);
        self.free(freed);
        let mut decisions = Vec::new();
        for (i, room) in freed {
            if self.seating.sitters[*i].free() {
                let cpus = u32::try_from(room.len()).unwrap_or(u32::MAX);
                decisions.push(self.seating.widen(*i, Reason::Free { threads, cpus }));
            }
        }
        decisions
    }

    /// Ends holding threads: who was freed of its mask keeps the wide one, which is why it was freed.
    fn let_go(&mut self, members: &[usize], reason: Reason) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for &i in members {
            let sitter = &self.seating.sitters[i];
            if sitter.standing == Standing::Held && sitter.free() {
                let freed = self.seating.is_freed(i) && !self.seating.room(i).is_empty();
                decisions.push(if freed {
                    self.seating.widen(i, reason.clone())
                } else {
                    self.seating.release(i, reason.clone())
                });
            }
        }
        decisions
    }

    /// Gives everybody the own mask back.
    fn restore(&mut self, members: &[usize], reason: Reason) -> Vec<Decision> {
        let touched = |i: &&usize| {
            self.seating.sitters[**i].standing != Standing::Own && self.seating.sitters[**i].free()
        };
        let touched: Vec<usize> = members.iter().filter(touched).copied().collect();
        touched.into_iter().map(|i| self.seating.release(i, reason.clone())).collect()
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
        self.seating.update(seen);
        self.shares.look(&self.seating, seen);
        self.dozes.look(&mut self.seating);
        let mut members: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
        for (i, sitter) in self.seating.sitters.iter().enumerate() {
            members.entry(sitter.program).or_default().push(i);
        }
        let mut cases = std::mem::take(&mut self.cases);
        cases.retain(|program, _| members.contains_key(program));
        let mut turn = Turn::default();
        for (program, members) in &members {
            let case = cases.entry(*program).or_insert_with(|| Case::new(seen.at));
            turn.decisions.extend(self.follow(case, members));
            let (decisions, findings) = self.treat(*program, case, members, seen);
            turn.decisions.extend(decisions);
            if let Some(findings) = findings.filter(|findings| news(&case.said, findings)) {
                case.said.clone_from(&findings);
                turn.findings.extend(findings);
            }
        }
        self.cases = cases;
        let any = |state: State| self.cases.values().any(|case| case.state == state);
        let uneven = self.seating.ground.open().any(|seat| self.seating.ground.place(seat).weight < 1.0);
        let watched = any(State::Watched) || self.cases.is_empty();
        turn.next =
            self.cases.values().map(|case| case.next).min().unwrap_or(seen.at + self.settings.interval);
        turn.wanted = Wanted {
            on: None,
            places: watched || uneven,
            cpus: watched
                || any(State::Turns) && self.seating.ground.open().any(|seat| self.shares.ours(seat) == 0),
            sleeps: watched || self.dozes.suspects(),
        };
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

//! `auto`: diagnoses each program and applies the treatment that helps, or none.
//!
//! Unit: shares of the time, and seconds of work.
//!
//! Problem: no single rule is right. Modern kernels rotate threads well if no mask binds them.
//! Binding threads that sleep costs up to 40 %. Bound programs lose up to 88 %. Against another
//! program that occupies a core, one fixed core per thread is best. A balancer that is on by
//! default must never make a program slower.
//!
//! Idea: every program is treated separately and is in one of three states.
//!
//! - *Watched*: for some tenths of a second all data is read and nothing is done; then a
//!   [`diagnosis`](super::diagnosis) is made.
//! - *Still*: the program is left alone, or is spread by the kernel after its crowding masks were
//!   widened. It is sampled cheaply, at growing intervals. A new finding, or another number of
//!   computing threads, leads back to *watched*; each return doubles the pause before the next.
//! - *In turns*: each thread has one core, and [`Rotation`] exchanges their places. The interval is
//!   the shortest at which sampling (of every thread, computing or not) and moving cost at most
//!   [`TURNS_BUDGET`] of a core. It lies between [`PERIOD_MIN`] and the settings' interval; the
//!   latter holds even if it costs more, so that a thread is one per cent behind at the end of a
//!   short run and not a tenth.
//!
//! Both treatments, spreading and taking turns, are trials ([`treatment_trial`]): after a while the
//! mean pace and the pace of the last thread are compared with their values before the treatment. A
//! treatment that did not help is undone: all threads get back their masks, if a CPU of the mask
//! may be used. It is not tried again for a time that doubles with each failure. If another number
//! of threads computes by then, nothing can be compared: the program gets its masks back and is
//! watched again, the first time at once, then after times that double while the program keeps
//! changing. Three cases end without a comparison: threads that were light for a second or more,
//! programs that turn out to sleep in their barriers, and programs in which no thread waits any
//! more. A thread with a widened mask then keeps the wide mask.
//!
//! Properties: no thread is touched before it was watched, or while a finding forbids it (sleepers,
//! quota, fine barriers, hands off). Threads leave their own masks only if the settings allow that
//! and the masks crowd them, and go to other nodes only if that is allowed, too. A program that
//! another balancer placed and placed no longer is treated as new. Equal observations give equal
//! decisions; nothing is random.

use super::diagnosis::{ProgramSummary, Treatment, Widened, diagnose};
use super::initial_placement::assign_cpus;
use super::lone;
use super::program_state::{PERIOD_MIN, ProgramState, Stage};
use super::rotation::{PAIRS_MIN, Rotation, RotationTerms};
use super::round_cost::RoundCosts;
use super::thread_state::{Binding, ThreadState};
use super::treatment_trial::{self, DIFFERENCE_MIN, TRIAL_TIME, TrialVerdict};
use super::turn_context::TurnContext;
use super::{Decision, Finding, Kind, Policy, Reason, Settings, Turn, Wanted};
use crate::ids::ProgramId;
use crate::observe::Observation;
use crate::sampling_budget::SamplingBudget;
use crate::time::{Moment, Span};
use crate::topology::Machine;
use std::collections::BTreeMap;

/// Time for which a program is watched before the first treatment: three busy intervals of the
/// kernel on 16 CPUs.
const WATCH_TIME: Span = Span::from_ms(250);

/// The same in the plain case: other programs take part of the CPUs, and no thread ever sleeps. The
/// treatment is one core per thread, which costs a computing program nothing if the diagnosis was
/// wrong.
const WATCH_TIME_PLAIN: Span = Span::from_ms(150);

/// Time between two samples of a watched program.
const WATCH_PERIOD: Span = Span::from_ms(50);

/// CPU budget of sampling and moving in turns, and of sampling while still.
const TURNS_BUDGET: SamplingBudget = SamplingBudget::share(0.004);

/// CPU budget of sampling while a program is watched, which lasts some tenths of a second.
const WATCH_BUDGET: SamplingBudget = SamplingBudget::share(0.04);

/// Longest time between two samples of a program that is left alone, in intervals.
const STILL_INTERVALS_MAX: u32 = 5;

/// The default policy.
#[derive(Debug)]
pub(super) struct Auto {
    context: TurnContext,
    costs: RoundCosts,
    states: BTreeMap<ProgramId, ProgramState>,
}

impl Auto {
    /// Creates the policy for a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self {
            context: TurnContext::new(machine, settings),
            costs: RoundCosts::new(Wanted::all()),
            states: BTreeMap::new(),
        }
    }

    /// Corrects masks in any state: threads held on lost CPUs, threads still held without need
    /// because a release was refused, and wide masks that are older than a change of the usable
    /// CPUs.
    fn follow(&mut self, state: &ProgramState, members: &[usize], lost: &[usize]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if state.stage == Stage::Turns {
            let ours = |i: &usize| members.binary_search(i).is_ok();
            let lost: Vec<usize> = lost.iter().copied().filter(ours).collect();
            decisions.extend(assign_cpus(
                &mut self.context.table,
                &mut self.context.shares,
                &[],
                &lost,
                false,
            ));
        }
        for &i in members {
            let thread = &self.context.table.threads[i];
            let (binding, stale, open) =
                (thread.binding, thread.stale, !self.context.table.room(i).is_empty());
            // A thread on a lost CPU is asked again, even if it was refused many times.
            if !thread.free() && lost.binary_search(&i).is_err() {
                continue;
            }
            match binding {
                Binding::Held if state.stage != Stage::Turns => {
                    decisions.push(self.context.table.restore(i, Reason::Done));
                }
                Binding::Held if thread.light_for_long() => {
                    decisions.push(self.context.table.release_light(i))
                }
                Binding::Wide if stale && open => {
                    let cpus = u32::try_from(self.context.table.room(i).len()).unwrap_or(u32::MAX);
                    decisions.push(self.context.table.widen(i, Reason::Free { threads: 1, cpus }));
                }
                Binding::Wide if stale => decisions.push(self.context.table.release(i, Reason::Done)),
                _ => {}
            }
        }
        decisions
    }

    /// Restarts a program when threads come back from another balancer that placed them, or when
    /// all of them are placed by another balancer.
    fn follow_owner(&self, state: &mut ProgramState, members: &[usize], at: Moment) {
        let mut threads = members.iter().map(|&i| &self.context.table.threads[i]);
        match state.stage {
            // In turns, a thread that comes back is assigned a CPU.
            Stage::Turns if threads.all(ThreadState::taken) => state.watch_again(at),
            Stage::Watched | Stage::Still if threads.any(|thread| thread.back) => state.begin_again(at),
            _ => {}
        }
    }

    /// Runs one program's part of the turn.
    fn treat(
        &mut self,
        program: ProgramId,
        state: &mut ProgramState,
        members: &[usize],
        seen: &Observation<'_>,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        self.follow_owner(state, members, at);
        state.window.add(&self.context.table, members, seen.throttled);
        let sleeps = self.context.sleep_detector.sleeps(program);
        if sleeps && state.stage == Stage::Turns {
            let decisions = self.let_go(members, Reason::Sleeps);
            let share = self.context.sleep_detector.share(program);
            state.before = None;
            state.failed(at);
            state.enter(Stage::Still, at);
            state.next = at + self.pause(0);
            return (decisions, Some(vec![Finding::Sleepers { idle: share }]));
        }
        if at < state.next {
            return (Vec::new(), None);
        }
        match state.stage {
            Stage::Watched => self.watched(state, seen, sleeps),
            Stage::Still => self.still(state, members, seen, sleeps),
            Stage::Turns => self.turns(state, members, seen),
        }
    }

    fn diagnosed(
        &self,
        state: &ProgramState,
        summary: &ProgramSummary,
        seen: &Observation<'_>,
        sleeps: bool,
    ) -> (Vec<Finding>, Treatment) {
        let period = self.period(summary);
        let why = |i: usize| {
            let left = seen.threads.get(i).and_then(|view| view.info.left.as_ref());
            left.map_or_else(|| "the kernel refuses".to_owned(), ToString::to_string)
        };
        let (findings, treatment) =
            diagnose(summary, &self.context.table, sleeps, period, &self.context.settings, why);
        match treatment {
            Treatment::Still => (findings, Treatment::Still),
            // A failed treatment remains the finding until it is tried again.
            _ if seen.at < state.rests => (vec![Finding::NoGain], Treatment::Still),
            treatment => (findings, treatment),
        }
    }

    /// Returns the interval of exchanges: the shortest that is worth its cost.
    fn period(&self, summary: &ProgramSummary) -> Span {
        let (threads, cpus) = (summary.threads.len(), (summary.cpus as usize).max(1));
        let (rest, each) = (threads % cpus, threads / cpus);
        let pairs = (rest * (each + 1)).min((cpus - rest) * each).clamp(1, PAIRS_MIN);
        let cost = self.costs.of_counter_sample() + self.costs.of_moves(2 * pairs);
        TURNS_BUDGET.payoff(cost).max(PERIOD_MIN).min(self.context.settings.interval)
    }

    /// Returns the time to the next sample of a program that is left alone, after `calm` samples
    /// that gave no cause to act.
    fn pause(&self, calm: u32) -> Span {
        let times = (1 + calm / 4).min(STILL_INTERVALS_MAX);
        self.context
            .settings
            .interval
            .times(f64::from(times))
            .max(TURNS_BUDGET.payoff(self.costs.of_counter_sample()))
    }

    /// Returns the time between two samples of a watched program.
    fn watch_step(&self) -> Span {
        WATCH_PERIOD.max(WATCH_BUDGET.payoff(self.costs.of_full_sample()))
    }

    fn watched(
        &mut self,
        state: &mut ProgramState,
        seen: &Observation<'_>,
        sleeps: bool,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        state.next = at + self.watch_step();
        let long = state.window.span(at);
        let early = state.reported.is_empty().then(|| vec![Finding::TooEarly]);
        if long < WATCH_TIME_PLAIN {
            return (Vec::new(), early);
        }
        let Some(summary) = state.window.sum_up(&self.context.table) else {
            if long < WATCH_TIME {
                return (Vec::new(), early);
            }
            state.enter(Stage::Still, at);
            state.next = at + self.pause(0);
            return (Vec::new(), Some(vec![Finding::NothingWaits]));
        };
        let (findings, treatment) = self.diagnosed(state, &summary, seen, sleeps);
        let plain = matches!(treatment, Treatment::Turns { fence: true, .. }) && summary.sleepless();
        if long < WATCH_TIME && !plain {
            return (Vec::new(), early);
        }
        state.threads = summary.threads.len();
        state.watched = long;
        let decisions = match treatment {
            Treatment::Still => {
                state.enter(Stage::Still, at);
                state.next = at + self.pause(0);
                Vec::new()
            }
            Treatment::Spread(widened) => {
                state.before = Some(summary);
                state.enter(Stage::Still, at);
                state.next = at + self.pause(0);
                self.spread(&widened)
            }
            Treatment::Turns { fence, widened } => {
                state.period = self.period(&summary);
                state.passed = false;
                let decisions = self.assign_cores(&summary, fence, &widened);
                state.before = Some(summary);
                state.rotation = Rotation::default();
                state.enter(Stage::Turns, at);
                state.next = at + state.period;
                decisions
            }
        };
        (decisions, Some(findings))
    }

    fn still(
        &mut self,
        state: &mut ProgramState,
        members: &[usize],
        seen: &Observation<'_>,
        sleeps: bool,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        state.calm += 1;
        state.next = at + self.pause(state.calm);
        if state.window.samples() < 2 {
            return (Vec::new(), None);
        }
        let Some(summary) = state.window.sum_up(&self.context.table) else {
            return (Vec::new(), Some(vec![Finding::NothingWaits]));
        };
        let long = state.window.span(at);
        if let Some(before) = state.before.take_if(|_| long >= TRIAL_TIME) {
            // Widening the masks of bound threads is on trial.
            match treatment_trial::spread(&before, &summary) {
                TrialVerdict::End(reason, finding) => {
                    state.failed(at);
                    state.enter(Stage::Still, at);
                    return (self.restore(members, reason), Some(vec![finding]));
                }
                TrialVerdict::Unlike if state.may_watch_again(at) => {
                    state.watch_again(at);
                    return (self.restore(members, Reason::Done), None);
                }
                TrialVerdict::Unlike => state.before = Some(before),
                TrialVerdict::On => {}
            }
        }
        if state.before.is_some() {
            if long >= TRIAL_TIME {
                state.window.restart(at);
            }
            return (Vec::new(), None);
        }
        let (findings, treatment) = self.diagnosed(state, &summary, seen, sleeps);
        let same = state.threads == summary.threads.len();
        state.threads = summary.threads.len();
        if (!same || treatment != Treatment::Still) && state.may_watch_again(at) {
            state.watch_again(at);
            state.next = at + self.watch_step();
            return (Vec::new(), None);
        }
        // Old samples are dropped, since they describe earlier states and threads that have ended.
        if !same || long >= TRIAL_TIME.times(2.0) {
            state.window.restart(at);
        }
        if same && long >= TRIAL_TIME.times(2.0) && treatment == Treatment::Still {
            state.calms_down();
        }
        (Vec::new(), Some(findings).filter(|_| treatment == Treatment::Still))
    }

    fn turns(
        &mut self,
        state: &mut ProgramState,
        members: &[usize],
        seen: &Observation<'_>,
    ) -> (Vec<Decision>, Option<Vec<Finding>>) {
        let at = seen.at;
        state.next = at + state.period;
        if state.window.span(at) >= TRIAL_TIME.max(state.period.times(8.0)) {
            match self.judge(state) {
                TrialVerdict::End(reason, finding) => {
                    let undo = reason == Reason::Undo;
                    if undo {
                        state.failed(at);
                    }
                    state.before = None;
                    state.enter(Stage::Still, at);
                    state.next = at + self.pause(0);
                    let decisions =
                        if undo { self.restore(members, reason) } else { self.let_go(members, reason) };
                    return (decisions, Some(vec![finding]));
                }
                TrialVerdict::Unlike if state.may_watch_again(at) => {
                    state.watch_again(at);
                    state.next = at + self.watch_step();
                    return (self.restore(members, Reason::Done), None);
                }
                TrialVerdict::Unlike => {}
                TrialVerdict::On => {
                    state.passed = true;
                    state.calms_down();
                }
            }
            state.window.restart(at);
        }
        // A newcomer takes part after one whole interval: many threads end before that.
        let threads = &self.context.table.threads;
        let computing: Vec<usize> = members.iter().copied().filter(|&i| threads[i].active()).collect();
        let lone = lone::stay_free(threads, &computing);
        let new: Vec<usize> = computing
            .into_iter()
            .filter(|&i| {
                let thread = &self.context.table.threads[i];
                lone.binary_search(&i).is_err()
                    && thread.wanted.is_some()
                    && thread.free()
                    && thread.binding != Binding::Held
                    && !self.context.table.room(i).is_empty()
            })
            .collect();
        let mut decisions = assign_cpus(
            &mut self.context.table,
            &mut self.context.shares,
            &new,
            &[],
            !self.context.settings.across_nodes,
        );
        let held: Vec<usize> = members
            .iter()
            .copied()
            .filter(|&i| {
                let thread = &self.context.table.threads[i];
                thread.active() && thread.binding == Binding::Held
            })
            .collect();
        let terms =
            RotationTerms { across_nodes: self.context.settings.across_nodes, interval: state.period };
        decisions.extend(state.rotation.turn(
            &mut self.context.table,
            &mut self.context.shares,
            &held,
            &terms,
        ));
        (decisions, None)
    }

    /// Judges whether taking turns should continue. The period follows the current threads.
    fn judge(&self, state: &mut ProgramState) -> TrialVerdict {
        let Some(summary) = state.window.sum_up(&self.context.table) else {
            return TrialVerdict::End(Reason::Done, Finding::NothingWaits);
        };
        let verdict = treatment_trial::turns(
            state.before.as_ref(),
            &summary,
            state.passed,
            state.period,
            state.watched,
        );
        state.period = self.period(&summary);
        verdict
    }

    /// Assigns one core to each thread. Lone threads stay free, but leave masks that crowd them.
    fn assign_cores(&mut self, summary: &ProgramSummary, fence: bool, widened: &Widened) -> Vec<Decision> {
        let lone = |i: &usize| summary.lone.binary_search(i).is_ok();
        let (wide, widened): (Widened, Widened) = widened.iter().cloned().partition(|(i, _)| lone(i));
        let spread_decisions = self.spread(&wide);
        self.widen_rooms(&widened);
        let new: Vec<usize> = summary
            .threads
            .iter()
            .copied()
            .filter(|i| !lone(i))
            .filter(|&i| self.context.table.threads[i].free() && !self.context.table.room(i).is_empty())
            .collect();
        let mut decisions = assign_cpus(
            &mut self.context.table,
            &mut self.context.shares,
            &new,
            &[],
            !self.context.settings.across_nodes,
        );
        let reason =
            Reason::Free { threads: u32::try_from(widened.len()).unwrap_or(u32::MAX), cpus: summary.cpus };
        for decision in &mut decisions {
            let at = self.context.table.threads.binary_search_by_key(&decision.thread, |thread| thread.id);
            if at.is_ok_and(|at| widened.binary_search_by_key(&at, |(i, _)| *i).is_ok()) {
                decision.reason = reason.clone();
            } else if fence {
                decision.reason = Reason::Fence { foreign: summary.waited.unwrap_or(0.0) };
            }
        }
        decisions.extend(spread_decisions);
        decisions
    }

    /// Widens where threads may run. A thread with another pending decision of this turn keeps its
    /// mask.
    fn widen_rooms(&mut self, widened: &Widened) {
        for (i, cpus) in widened {
            if self.context.table.threads[*i].free() {
                let home = self.context.table.home(cpus);
                self.context.table.widen_to(*i, home);
            }
        }
    }

    /// Lets bound threads run on all CPUs of their program.
    fn spread(&mut self, widened: &Widened) -> Vec<Decision> {
        let threads = u32::try_from(widened.len()).unwrap_or(u32::MAX);
        self.widen_rooms(widened);
        let mut decisions = Vec::new();
        for (i, room) in widened {
            if self.context.table.threads[*i].free() {
                let cpus = u32::try_from(room.len()).unwrap_or(u32::MAX);
                decisions.push(self.context.table.widen(*i, Reason::Free { threads, cpus }));
            }
        }
        decisions
    }

    /// Stops holding threads. A thread with a widened mask keeps the wide mask, because its own
    /// mask crowded it.
    fn let_go(&mut self, members: &[usize], reason: Reason) -> Vec<Decision> {
        let held = |thread: &ThreadState| thread.binding == Binding::Held && thread.free();
        let held: Vec<usize> =
            members.iter().copied().filter(|&i| held(&self.context.table.threads[i])).collect();
        held.into_iter().map(|i| self.context.table.let_go(i, reason.clone())).collect()
    }

    /// Gives all threads back the masks that they had.
    fn restore(&mut self, members: &[usize], reason: Reason) -> Vec<Decision> {
        let touched = |i: usize| {
            let thread = &self.context.table.threads[i];
            // A thread without a usable CPU in its own mask keeps the wide mask.
            let stays = thread.binding == Binding::Wide && self.context.table.is_homeless(i);
            thread.binding != Binding::Own && thread.free() && !stays
        };
        let touched: Vec<usize> = members.iter().copied().filter(|&i| touched(i)).collect();
        touched.into_iter().map(|i| self.context.table.restore(i, reason.clone())).collect()
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
        self.costs.observe(seen);
        let findings = self.context.observe(seen);
        self.context.sleep_detector.observe(&mut self.context.table);
        let mut members: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
        for (i, thread) in self.context.table.threads.iter().enumerate() {
            members.entry(thread.program).or_default().push(i);
        }
        let mut states = std::mem::take(&mut self.states);
        states.retain(|program, _| members.contains_key(program));
        let lost = self.context.table.lost();
        let mut turn = Turn { findings, ..Turn::default() };
        for (program, members) in &members {
            let state = states.entry(*program).or_insert_with(|| ProgramState::new(seen.at));
            turn.decisions.extend(self.follow(state, members, &lost));
            let (decisions, findings) = self.treat(*program, state, members, seen);
            turn.decisions.extend(decisions);
            if let Some(findings) = findings.filter(|findings| news(&state.reported, findings)) {
                state.reported.clone_from(&findings);
                turn.findings.extend(findings);
            }
        }
        self.states = states;
        let any = |stage: Stage| self.states.values().any(|state| state.stage == stage);
        let uneven = self
            .context
            .table
            .cpu_table
            .open()
            .any(|cpu| self.context.table.cpu_table.entry(cpu).weight < 1.0);
        let watched = any(Stage::Watched) || self.states.is_empty();
        turn.next = self
            .states
            .values()
            .map(|state| state.next)
            .min()
            .unwrap_or(seen.at + self.context.settings.interval);
        turn.wanted = Wanted {
            on: None,
            places: watched || uneven,
            cpus: watched
                || any(Stage::Turns)
                    && self.context.table.cpu_table.open().any(|cpu| self.context.shares.ours(cpu) == 0),
            sleeps: watched || self.context.sleep_detector.suspects(),
            counts: false,
        };
        self.costs.decided(turn.decisions.len(), &turn.wanted);
        turn
    }
}

/// Returns whether findings differ in kind, or whether the spread changed. Other changes of numbers
/// are not reported.
fn news(reported: &[Finding], now: &[Finding]) -> bool {
    let kinds = |findings: &[Finding]| findings.iter().map(std::mem::discriminant).collect::<Vec<_>>();
    let spread = |findings: &[Finding]| {
        findings.iter().find_map(|finding| match finding {
            Finding::KernelRotates { spread } => Some(*spread),
            _ => None,
        })
    };
    let moved = spread(reported)
        .zip(spread(now))
        .is_some_and(|(reported, now)| (reported - now).abs() > DIFFERENCE_MIN);
    kinds(reported) != kinds(now) || moved
}

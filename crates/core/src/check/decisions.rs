//! Independent checker of a policy's turns: reports errors in them without sharing code with the
//! policies.
//!
//! Unit: one turn. The checker keeps its own account of the positions of threads and of the threads
//! freed from their masks, derived only from decisions and outcomes. It tests every turn: decisions
//! concern living threads that may be moved, each thread once; they place threads only on permitted
//! CPUs; no thread stays on a lost CPU; every exchange has two halves. Tests run the checker over
//! every step, and it can process any recorded trace.

use crate::balance::{Act, Decision, Outcome, Reason, Refusal, Settled, Turn};
use crate::ids::{OsCpu, ProgramId, ThreadId};
use crate::observe::{Observation, ThreadView};
use crate::set::CpuSet;
use crate::time::Moment;
use crate::topology::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// Error in a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A decision concerns a thread that does not exist.
    NoSuchThread(ThreadId),
    /// Two decisions concern one thread.
    Twice(ThreadId),
    /// A decision concerns a thread that others place, that must not be moved, or that was just
    /// found to have been moved. In the last case, the originator and the intention are unknown
    /// before the host's next sample.
    HandsOff(ThreadId),
    /// A decision concerns a thread whose last move is not known to be completed.
    Unsettled(ThreadId),
    /// A move has an empty set of CPUs.
    Nowhere(ThreadId),
    /// A move has CPUs that must not be used.
    NotUsable(ThreadId, CpuSet),
    /// A move leaves the thread's own mask, although the policy did not free the thread from it.
    NotHome(ThreadId, CpuSet),
    /// A freed thread moves outside the masks of all threads of its program, including ended ones,
    /// and no two of its threads had the same single CPU when one was freed.
    NotProgram(ThreadId, CpuSet),
    /// A move goes to another memory node although this is not allowed.
    OtherNode(ThreadId),
    /// A thread is left on CPUs that must not be used any more.
    Stranded(ThreadId),
    /// A nudge concerns a thread that the balancer holds on one CPU: the thread would return there.
    NudgedHeld(ThreadId),
    /// A thread is moved, kept or moved back because of its memory, and the target is not a whole
    /// unit (a last-level cache of a node, or the node if it has only one), as far as the thread
    /// may use it.
    NoUnit(ThreadId, CpuSet),
    /// The memory of a process is to be moved to a node that the machine does not have.
    NoNode(ThreadId),
    /// One half of an exchange lacks the other.
    Half(ThreadId),
    /// A number in a reason or a gain is not a share.
    NoShare(ThreadId),
    /// The next sample is not later than this one.
    NoTime(Moment),
}

/// State of the checker between turns.
#[derive(Debug, Clone, Default)]
pub struct Account {
    asked: BTreeMap<ThreadId, Decision>,
    bound: BTreeMap<ThreadId, CpuSet>,
    freed: BTreeSet<ThreadId>,
    /// Programs of which several threads had the same single CPU when one was freed.
    unbound: BTreeSet<ProgramId>,
    /// Threads on the unit to which they were moved because of their memory.
    sent: BTreeSet<ThreadId>,
    forbidden: BTreeSet<ThreadId>,
    meanwhile: BTreeSet<ThreadId>,
    pending: BTreeSet<ThreadId>,
    /// Home masks of living threads; and the united home masks of ended threads, by program.
    homes: BTreeMap<ThreadId, (ProgramId, CpuSet)>,
    ended: BTreeMap<ProgramId, CpuSet>,
}

impl Account {
    /// Checks the next turn of a run. The caller must pass every turn, in order.
    pub fn check_turn(
        &mut self,
        machine: &Machine,
        across_nodes: bool,
        seen: &Observation<'_>,
        turn: &Turn,
    ) -> Vec<Fault> {
        self.believe(seen);
        let mut faults = Vec::new();
        let mut met = BTreeSet::new();
        for decision in &turn.decisions {
            if !met.insert(decision.thread) {
                faults.push(Fault::Twice(decision.thread));
            }
            match seen.thread(decision.thread) {
                None => faults.push(Fault::NoSuchThread(decision.thread)),
                Some(view) => self.one(machine, across_nodes, seen, view, decision, &mut faults),
            }
            if !whole(decision, turn) {
                faults.push(Fault::Half(decision.thread));
            }
        }
        for (thread, on) in &self.bound {
            let movable = seen.thread(*thread).is_some_and(ThreadView::movable);
            let mine = movable && !self.refused(*thread) && !self.pending.contains(thread);
            if mine && !on.intersects(seen.usable) && !met.contains(thread) {
                faults.push(Fault::Stranded(*thread));
            }
        }
        if turn.next <= seen.at {
            faults.push(Fault::NoTime(turn.next));
        }
        for decision in &turn.decisions {
            self.asked.insert(decision.thread, decision.clone());
        }
        faults
    }

    /// Takes over the outcomes of earlier decisions.
    fn believe(&mut self, seen: &Observation<'_>) {
        self.meanwhile.clear();
        for Outcome { thread, end } in seen.outcomes {
            if *end == Settled::Pending {
                self.pending.insert(*thread);
                continue;
            }
            self.pending.remove(thread);
            let Some(decision) = self.asked.remove(thread) else { continue };
            // A thread that was announced as freed stays freed, even if this move was refused.
            if matches!((end, &decision.reason), (Settled::Refused(_), Reason::Free { .. })) {
                self.freed.insert(*thread);
            }
            match (end, decision.act) {
                (Settled::Applied, Act::Confine(to)) => {
                    self.bound.insert(*thread, to);
                    if for_memory(&decision.reason) {
                        self.sent.insert(*thread);
                    } else {
                        self.sent.remove(thread);
                    }
                    if matches!(decision.reason, Reason::Free { .. }) {
                        self.freed.insert(*thread);
                    }
                }
                (Settled::Applied, Act::Release) => {
                    self.bound.remove(thread);
                    self.freed.remove(thread);
                    self.sent.remove(thread);
                }
                (Settled::Refused(Refusal::Permission), _) => {
                    self.forbidden.insert(*thread);
                }
                // Valid for this sample only: later samples show whether the thread was bound on
                // purpose.
                (Settled::Refused(Refusal::MovedMeanwhile), _) => {
                    self.meanwhile.insert(*thread);
                }
                _ => {}
            }
        }
        for thread in seen.gone {
            self.asked.remove(thread);
            self.bound.remove(thread);
            self.pending.remove(thread);
            self.sent.remove(thread);
            if let Some((program, home)) = self.homes.remove(thread) {
                let all = self.ended.entry(program).or_default();
                *all = all.union(&home);
            }
        }
        for view in &seen.threads {
            self.homes.insert(view.id(), (view.info.program, view.info.home.clone()));
        }
        // The mask of a thread that others place is not the balancer's work, whatever the balancer
        // did before.
        let ours = |thread: &ThreadId| seen.thread(*thread).is_some_and(ThreadView::movable);
        self.bound.retain(|thread, _| ours(thread));
        self.freed.retain(ours);
        self.sent.retain(ours);
        for view in seen.threads.iter().filter(|view| !view.movable()) {
            self.forbidden.remove(&view.id());
        }
    }

    /// Returns whether the kernel refused to move a thread, or the thread was just found to have
    /// been moved.
    fn refused(&self, thread: ThreadId) -> bool {
        self.forbidden.contains(&thread) || self.meanwhile.contains(&thread)
    }

    fn one(
        &mut self,
        machine: &Machine,
        across_nodes: bool,
        seen: &Observation<'_>,
        view: &ThreadView<'_>,
        decision: &Decision,
        faults: &mut Vec<Fault>,
    ) {
        let thread = decision.thread;
        if !view.movable() || self.refused(thread) {
            faults.push(Fault::HandsOff(thread));
        }
        if self.pending.contains(&thread) {
            faults.push(Fault::Unsettled(thread));
        }
        if !shares(decision) {
            faults.push(Fault::NoShare(thread));
        }
        if let Act::Fetch(node) = decision.act
            && !machine.nodes().iter().any(|known| known.os == node)
        {
            faults.push(Fault::NoNode(thread));
        }
        let Some(to) = decision.act.to() else { return };
        let undone_there = decision.reason == Reason::Undo && self.sent.contains(&thread);
        if (for_memory(&decision.reason) || undone_there)
            && !is_unit(machine, to, &view.info.home.intersection(seen.usable))
        {
            faults.push(Fault::NoUnit(thread, to.clone()));
        }
        if to.is_empty() {
            faults.push(Fault::Nowhere(thread));
        }
        let held = self.bound.get(&thread).is_some_and(|on| on.len() == 1);
        if held && matches!(decision.act, Act::Nudge(_)) {
            faults.push(Fault::NudgedHeld(thread));
        }
        if !to.is_subset(seen.usable) {
            faults.push(Fault::NotUsable(thread, to.difference(seen.usable)));
        }
        let freed = self.freed.contains(&thread) || matches!(decision.reason, Reason::Free { .. });
        // An undone move goes back to the thread's own mask; a wider mask is only for threads
        // without a usable CPU of their own.
        let undone =
            decision.reason == Reason::Undo && to.len() > 1 && view.info.home.intersects(seen.usable);
        if freed && !undone {
            let program = seen.threads.iter().filter(|other| other.info.program == view.info.program);
            // The program's masks include those of its ended threads.
            let ended = self.ended.get(&view.info.program).cloned().unwrap_or_default();
            let (homes, same) = program.fold((ended, 0), |(homes, same), other| {
                let home = &other.info.home;
                (homes.union(home), same + usize::from(*home == view.info.home))
            });
            // Threads that have the same single CPU may be freed to any other.
            if view.info.home.len() == 1 && same > 1 {
                self.unbound.insert(view.info.program);
            }
            if !to.is_subset(&homes) && !self.unbound.contains(&view.info.program) {
                faults.push(Fault::NotProgram(thread, to.difference(&homes)));
            }
        } else if !to.is_subset(&view.info.home) {
            faults.push(Fault::NotHome(thread, to.difference(&view.info.home)));
        }
        let balances = matches!(
            decision.reason,
            Reason::Slow { .. } | Reason::Behind { .. } | Reason::Ahead { .. } | Reason::Room { .. }
        );
        if balances && !across_nodes {
            let node = |cpu: OsCpu| machine.pu(cpu).map(|pu| machine.core(machine.core_of(pu)).node);
            let from = self.bound.get(&thread).and_then(CpuSet::first).or(view.cpu);
            if let Some(from) = from.and_then(node)
                && to.iter().any(|cpu| node(cpu) != Some(from))
            {
                faults.push(Fault::OtherNode(thread));
            }
        }
    }
}

/// Returns whether `cpus` are all CPUs of a unit that a thread may use. A unit is a last-level
/// cache of a memory node; this is the whole node if it has only one.
fn is_unit(machine: &Machine, cpus: &CpuSet, may: &CpuSet) -> bool {
    let place = |cpu: OsCpu| {
        let core = machine.core(machine.core_of(machine.pu(cpu)?));
        Some((core.node, core.llc))
    };
    let Some((node, llc)) = cpus.first().and_then(place) else { return false };
    may.iter().filter(|cpu| place(*cpu) == Some((node, llc))).collect::<CpuSet>() == *cpus
}

/// Returns whether the reason concerns memory.
fn for_memory(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Explore | Reason::Stalls { .. } | Reason::Exchanged { .. } | Reason::Steady | Reason::Near
    )
}

/// Returns whether an exchange has its other half: a partner in the same turn with a reason that
/// names this thread.
fn whole(decision: &Decision, turn: &Turn) -> bool {
    let names = |partner: &ThreadId| {
        turn.decisions.iter().any(|other| {
            let back = match &other.reason {
                Reason::Behind { partner, .. }
                | Reason::Ahead { partner, .. }
                | Reason::Exchanged { partner } => *partner == decision.thread,
                // A thread that pulls another one gives one of its own back: the pulled thread has
                // the reason of the paper.
                Reason::Slow { .. } => true,
                _ => false,
            };
            other.thread == *partner && back
        })
    };
    match &decision.reason {
        Reason::Behind { partner, .. } | Reason::Ahead { partner, .. } | Reason::Exchanged { partner } => {
            names(partner)
        }
        _ => true,
    }
}

/// Returns whether the numbers of a decision are within their ranges.
fn shares(decision: &Decision) -> bool {
    let share = |value: f64| (-1e-9..=1.0 + 1e-9).contains(&value);
    let reason = match &decision.reason {
        Reason::Slow { speed, mean } => share(*speed) && share(*mean),
        Reason::Room { speed, expected } => share(*speed) && share(*expected),
        Reason::Fence { foreign } => share(*foreign),
        Reason::Crowded { waits } => share(*waits),
        Reason::Stalls { more } => more.is_finite() && *more >= 0.0,
        _ => true,
    };
    reason && decision.gain.is_none_or(|gain| gain.is_finite() && gain >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Settled;
    use crate::ids::OsNode;
    use crate::observe::{Left, Notice, Observer, Sample, ThreadInfo, ThreadSample};
    use crate::time::Span;
    use crate::topology::parse_synthetic;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn observer(left: Option<Left>) -> Observer {
        let mut observer = Observer::new(set("0-3"));
        let info = |id: u32, home: &str, left: Option<Left>| ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(0),
            pid: 1,
            tid: id,
            name: String::new(),
            home: set(home),
            left,
            tagged: false,
        };
        let read = |id: u32| ThreadSample {
            id: ThreadId(id),
            run: Span::ZERO,
            wait: None,
            slices: None,
            ready: None,
            voluntary: None,
            cpu: Some(OsCpu(0)),
            counts: None,
        };
        let news = vec![info(0, "0-1", left), info(1, "0-3", None)];
        let sample = Sample { at: Moment(5), news, threads: vec![read(0), read(1)], ..Sample::default() };
        observer.take(&sample, &[]);
        observer
    }

    fn confine(thread: u32, to: &str, reason: Reason) -> Decision {
        Decision { thread: ThreadId(thread), act: Act::Confine(set(to)), reason, gain: None }
    }

    fn faults(observer: &Observer, decisions: Vec<Decision>) -> Vec<Fault> {
        let machine = parse_synthetic("numa:2 core:2 pu:1").unwrap();
        let turn = Turn { decisions, next: Moment(9), ..Turn::default() };
        Account::default().check_turn(&machine, false, &observer.observation(), &turn)
    }

    #[test]
    fn a_correct_turn_passes() {
        let free = Reason::Free { threads: 1, cpus: 2 };
        assert_eq!(
            faults(&observer(None), vec![confine(0, "1", Reason::Start), confine(1, "3", Reason::Start)]),
            []
        );
        assert_eq!(faults(&observer(None), vec![confine(0, "3", free)]), []);
        let halves = |thread: u32, partner: u32, to: &str| {
            confine(thread, to, Reason::Exchanged { partner: ThreadId(partner) })
        };
        assert_eq!(faults(&observer(None), vec![halves(0, 1, "0-1"), halves(1, 0, "2-3")]), []);
        let fetch = Decision { act: Act::Fetch(OsNode(1)), ..confine(0, "", Reason::Stayed) };
        assert_eq!(faults(&observer(None), vec![fetch]), []);
    }

    #[test]
    fn each_wrong_is_named() {
        let room = Reason::Room { speed: 0.5, expected: 1.0 };
        let behind = Reason::Behind { by: Span::ZERO, partner: ThreadId(1) };
        let t = ThreadId;
        for (decisions, expected) in [
            (vec![confine(7, "1", Reason::Start)], Fault::NoSuchThread(t(7))),
            (vec![confine(0, "1", Reason::Start), confine(0, "0", Reason::Start)], Fault::Twice(t(0))),
            (vec![confine(0, "", Reason::Start)], Fault::Nowhere(t(0))),
            (vec![confine(1, "7", Reason::Start)], Fault::NotUsable(t(1), set("7"))),
            (vec![confine(0, "3", Reason::Start)], Fault::NotHome(t(0), set("3"))),
            (vec![confine(0, "7", Reason::Free { threads: 1, cpus: 1 })], Fault::NotProgram(t(0), set("7"))),
            (vec![confine(1, "2", room)], Fault::OtherNode(t(1))),
            (vec![confine(0, "1", behind)], Fault::Half(t(0))),
            (vec![confine(0, "1", Reason::Fence { foreign: 2.0 })], Fault::NoShare(t(0))),
        ] {
            let found = faults(&observer(None), decisions.clone());
            assert!(found.contains(&expected), "{decisions:?}: {found:?}");
        }
        let exchanged = || Reason::Exchanged { partner: t(0) };
        for (decision, expected) in [
            (confine(1, "2", Reason::Explore), Fault::NoUnit(t(1), set("2"))),
            (confine(1, "1-2", Reason::Explore), Fault::NoUnit(t(1), set("1-2"))),
            (confine(1, "2-3", Reason::Stalls { more: f64::INFINITY }), Fault::NoShare(t(1))),
            (confine(1, "2-3", exchanged()), Fault::Half(t(1))),
            (Decision { act: Act::Fetch(OsNode(7)), ..confine(1, "", Reason::Stayed) }, Fault::NoNode(t(1))),
        ] {
            assert_eq!(faults(&observer(None), vec![decision.clone()]), [expected], "{decision:?}");
        }
        // A node with two last-level caches consists of two units.
        let machine = parse_synthetic("numa:1 l3:2 core:2 pu:1").unwrap();
        let of = |to: &str, reason: Reason| {
            let turn = Turn { decisions: vec![confine(1, to, reason)], next: Moment(9), ..Turn::default() };
            Account::default().check_turn(&machine, false, &observer(None).observation(), &turn)
        };
        for reason in [Reason::Explore, Reason::Steady, Reason::Near] {
            assert_eq!(of("0-3", reason.clone()), [Fault::NoUnit(t(1), set("0-3"))], "{reason:?}");
            assert_eq!(of("2-3", reason), []);
        }
        let kept = faults(&observer(Some(Left::Asked)), vec![confine(0, "1", Reason::Start)]);
        assert_eq!(kept, [Fault::HandsOff(t(0))]);
    }

    /// Checks two turns about thread 1, given the outcome of the first decision.
    fn twice(first: Decision, end: Settled, news: Sample, second: Decision) -> Vec<Fault> {
        let machine = parse_synthetic("core:4 pu:1").unwrap();
        let (mut account, mut observer, next) = (Account::default(), observer(None), Moment(99));
        let outcome = Outcome { thread: first.thread, end };
        let turn = Turn { decisions: vec![first], next, ..Turn::default() };
        assert_eq!(account.check_turn(&machine, false, &observer.observation(), &turn), []);
        observer.take(&Sample { at: Moment(10), ..news }, &[outcome]);
        let turn = Turn { decisions: vec![second], next, ..Turn::default() };
        account.check_turn(&machine, false, &observer.observation(), &turn)
    }

    #[test]
    fn effects_of_earlier_decisions_are_checked() {
        let t = ThreadId;
        let start = |to: &str| confine(1, to, Reason::Start);
        let quiet = Sample::default;
        for (refusal, left) in
            [(Refusal::Permission, true), (Refusal::MovedMeanwhile, true), (Refusal::Other, false)]
        {
            let found = twice(start("3"), Settled::Refused(refusal), quiet(), start("2"));
            assert_eq!(found == [Fault::HandsOff(t(1))], left, "{refusal:?}: {found:?}");
        }
        let nudge = Decision { act: Act::Nudge(set("2")), ..start("2") };
        assert_eq!(twice(start("3"), Settled::Applied, quiet(), nudge), [Fault::NudgedHeld(t(1))]);
        // Thread 0 has its home on CPUs 0 and 1, and is freed.
        let free = confine(0, "2", Reason::Free { threads: 1, cpus: 2 });
        let undo = confine(0, "0-3", Reason::Undo);
        assert_eq!(
            twice(free.clone(), Settled::Applied, quiet(), undo.clone()),
            [Fault::NotHome(t(0), set("2-3"))]
        );
        // A thread that was moved to a unit is moved back to a unit; other moves are undone
        // regardless of their origin.
        let sent = confine(1, "0-3", Reason::Explore);
        assert_eq!(
            twice(sent, Settled::Applied, quiet(), confine(1, "1-2", Reason::Undo)),
            [Fault::NoUnit(t(1), set("1-2"))]
        );
        assert_eq!(twice(start("3"), Settled::Applied, quiet(), confine(1, "1-2", Reason::Undo)), []);
        let usable = Sample { notices: vec![Notice::Usable(set("2-3"))], ..quiet() };
        assert_eq!(twice(free, Settled::Applied, usable, confine(0, "2-3", Reason::Undo)), []);
    }

    #[test]
    fn where_a_program_was_does_not_shrink_when_its_threads_end() {
        let free = |to: &str| confine(0, to, Reason::Free { threads: 1, cpus: 2 });
        let gone =
            |gone: &[u32]| Sample { gone: gone.iter().copied().map(ThreadId).collect(), ..Sample::default() };
        assert_eq!(twice(confine(0, "0", Reason::Start), Settled::Applied, gone(&[1]), free("3")), []);
        let beyond = twice(confine(0, "0", Reason::Start), Settled::Applied, gone(&[1]), free("7"));
        assert!(beyond.contains(&Fault::NotProgram(ThreadId(0), set("7"))), "{beyond:?}");
    }

    #[test]
    fn a_decision_that_raced_once_may_be_repeated_at_the_next_sample() {
        let machine = parse_synthetic("core:4 pu:1").unwrap();
        let (mut account, mut observer, next) = (Account::default(), observer(None), Moment(99));
        let turn = Turn { decisions: vec![confine(1, "3", Reason::Start)], next, ..Turn::default() };
        let outcome = Outcome { thread: ThreadId(1), end: Settled::Refused(Refusal::MovedMeanwhile) };
        account.check_turn(&machine, false, &observer.observation(), &turn);
        observer.take(&Sample { at: Moment(10), ..Sample::default() }, &[outcome]);
        account.check_turn(&machine, false, &observer.observation(), &Turn { next, ..Turn::default() });
        observer.take(&Sample { at: Moment(11), ..Sample::default() }, &[]);
        assert_eq!(account.check_turn(&machine, false, &observer.observation(), &turn), []);
    }

    #[test]
    fn a_thread_with_a_mask_left_behind_is_named() {
        let machine = parse_synthetic("core:4 pu:1").unwrap();
        let mut account = Account::default();
        let mut observer = observer(None);
        let next = Moment(99);
        let turn = Turn { decisions: vec![confine(1, "3", Reason::Start)], next, ..Turn::default() };
        assert_eq!(account.check_turn(&machine, false, &observer.observation(), &turn), []);
        let outcome = Outcome { thread: ThreadId(1), end: Settled::Applied };
        let notices = vec![Notice::Usable(set("0-1"))];
        observer.take(&Sample { at: Moment(10), notices, ..Sample::default() }, &[outcome]);
        let seen = observer.observation();
        let still = Turn { next, ..Turn::default() };
        assert_eq!(
            account.clone().check_turn(&machine, false, &seen, &still),
            [Fault::Stranded(ThreadId(1))]
        );
        let turn = Turn { decisions: vec![confine(1, "1", Reason::Gone(OsCpu(3)))], next, ..Turn::default() };
        assert_eq!(account.check_turn(&machine, false, &seen, &turn), []);
        assert_eq!(
            account.check_turn(&machine, false, &seen, &Turn::default()),
            [Fault::NoTime(Moment(0))],
            "it was put where it may be; but a turn must say when it looks next"
        );
    }
}

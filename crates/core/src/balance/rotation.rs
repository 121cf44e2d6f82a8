//! Rotation of threads over CPUs of unequal speed, so that all threads progress equally.
//!
//! Unit: work, in seconds; a period B.
//!
//! Problem: if CPUs give unequal shares (one thread more than cores, another program on a core, a
//! slow core), no placement is fair, but taking turns is. Moving one thread at a time is the wrong
//! primitive: it leaves CPUs empty or crowded in between, and the naive form always moves the same
//! thread (measured: 1.11 and 1.33 times the ideal, for 3 threads on 2 cores).
//!
//! Idea: an *exchange*. Once a period, threads that are behind on slow CPUs exchange places with
//! threads that are ahead on fast CPUs. The number of threads on each CPU never changes.
//!
//! - Slow and fast mean below and above the mean share of the program's threads ([`ShareModel`]),
//!   so crowded cores, other programs and slow cores are treated in the same way.
//! - The thread furthest behind chooses first. It takes the partner in its own cache if that thread
//!   is at least half as far ahead as the best thread in reach, else in its node, else anywhere
//!   that is allowed.
//! - A pair is exchanged only if the lead is at least half of the change in one period; otherwise
//!   the next period would reverse the exchange. If another program makes the CPU slow, it must
//!   usually do so ([`STAY_SHARE_MAX`]), and the lead must be larger: the kernel may move that
//!   program, and chasing it can keep it permanently beside one of our threads.
//! - Before the exchanges, a thread moves alone to a CPU with *room*: the two CPUs together are
//!   predicted to give more, or the same with the slower CPU clearly faster.
//! - An exchange of which one half was refused is undone in the next period, because it left two
//!   threads on one CPU.
//!
//! Properties: with exact measurement, no thread is further behind the mean than the loss on a slow
//! CPU in ⌈slow/fast⌉ + 1 periods. If all CPUs give the same share, nothing moves. The cost is O(n
//! log n) for n threads and CPUs. A period has at most [`PAIRS_MIN`] exchanges, or a tenth of the
//! threads.
//!
//! Source: Hofmeyr, Colmenares, Iancu, Kubiatowicz, "Juggle: proactive load balancing on multicore
//! computers", HPDC 2011, for the exchange of threads ahead and behind. The choice of partners by
//! cache and the prediction are our own.

use super::cpu_table::{CpuIndex, Nearness};
use super::share_model::{MoveEffect, ShareModel, fits};
use super::thread_table::ThreadTable;
use super::{Decision, Reason};
use crate::ids::{Id, ThreadId};
use crate::time::Span;

/// Number of exchanges per period that is always allowed: 16 moves of 20 microseconds are 0.32 % of
/// a core at 100 ms.
pub(super) const PAIRS_MIN: usize = 8;

/// Partners that are tried if masks differ, and CPUs with room that are tried.
const TRIES_MAX: usize = 8;

/// CPUs from which a lone move fails before the rest of the period is skipped.
const FAILED_CPUS_MAX: usize = 64;

/// If other programs make a CPU slow, it counts as slow only if it usually gives less than this
/// share of the fast CPU: then those programs stay there. A roaming hog makes all CPUs equal in the
/// mean.
const STAY_SHARE_MAX: f64 = 0.85;

/// Smallest lead in that case: a roaming hog costs each thread in turn about half a busy interval
/// of the kernel (16 ms on few CPUs), a hog that stays costs one of them more.
const ROAM_LEAD: Span = Span::from_ms(25);

/// Two threads that were asked to exchange places, and their CPUs before.
#[derive(Clone, Copy, Debug)]
struct PendingExchange {
    behind: (ThreadId, CpuIndex),
    ahead: (ThreadId, CpuIndex),
}

/// Pending exchanges of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Rotation {
    asked: Vec<PendingExchange>,
}

/// Reach and period of exchanges.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotationTerms {
    /// Whether threads may move to other nodes.
    pub(super) across_nodes: bool,
    /// The period.
    pub(super) interval: Span,
}

impl RotationTerms {
    fn reach(&self) -> Nearness {
        if self.across_nodes { Nearness::Machine } else { Nearness::Node }
    }
}

/// Thread that can take part.
#[derive(Clone, Copy)]
struct Participant {
    i: usize,
    cpu: CpuIndex,
    work: f64,
    pace: f64,
    alone: f64,
    usual: Option<f64>,
}

impl Rotation {
    /// Decides one period's moves for a program's computing threads, given as indices into the
    /// thread table.
    pub(super) fn turn(
        &mut self,
        table: &mut ThreadTable,
        shares: &mut ShareModel,
        members: &[usize],
        terms: &RotationTerms,
    ) -> Vec<Decision> {
        let mut decisions = self.repair(table, shares);
        decisions.extend(room(table, shares, members, terms));
        decisions.extend(self.exchange(table, shares, members, terms));
        decisions
    }

    /// Undoes half-done exchanges, of which the other half was refused.
    fn repair(&mut self, table: &mut ThreadTable, shares: &mut ShareModel) -> Vec<Decision> {
        let find =
            |table: &ThreadTable, id: ThreadId| table.threads.binary_search_by_key(&id, |thread| thread.id);
        let mut decisions = Vec::new();
        let mut waiting = Vec::new();
        for pair in std::mem::take(&mut self.asked) {
            let (Ok(behind), Ok(ahead)) = (find(table, pair.behind.0), find(table, pair.ahead.0)) else {
                continue;
            };
            if table.threads[behind].waits() || table.threads[ahead].waits() {
                waiting.push(pair);
                continue;
            }
            let moved = |i: usize, from: CpuIndex| table.threads[i].cpu != Some(from);
            let back = match (moved(behind, pair.behind.1), moved(ahead, pair.ahead.1)) {
                (true, false) => Some((behind, pair.behind.1, pair.ahead.1)),
                (false, true) => Some((ahead, pair.ahead.1, pair.behind.1)),
                _ => None,
            };
            if let Some((i, home, now)) = back.filter(|(i, home, _)| fits(&table.cpu_table, table, *i, *home))
            {
                shares.moved(now, home);
                decisions.push(table.confine(i, home, Reason::Undo));
            }
        }
        self.asked = waiting;
        decisions
    }

    fn exchange(
        &mut self,
        table: &mut ThreadTable,
        shares: &mut ShareModel,
        members: &[usize],
        terms: &RotationTerms,
    ) -> Vec<Decision> {
        let participant = |&i: &usize| {
            let thread = &table.threads[i];
            let cpu = thread.cpu.filter(|_| thread.free())?;
            Some(Participant {
                i,
                cpu,
                work: thread.work,
                pace: shares.now(cpu),
                alone: shares.alone(cpu),
                usual: shares.usual(cpu),
            })
        };
        let participants: Vec<Participant> = members.iter().filter_map(participant).collect();
        let mean = participants.iter().map(|participant| participant.pace).sum::<f64>()
            / participants.len().max(1) as f64;
        let by_work = |a: &Participant, b: &Participant| a.work.total_cmp(&b.work).then(a.i.cmp(&b.i));
        let side = |slow: bool| -> Vec<Participant> {
            // A thread with the mean share is on neither side; the margin covers rounding errors of
            // sums.
            let on = |pace: f64| if slow { pace < mean * (1.0 - 1e-9) } else { pace > mean * (1.0 + 1e-9) };
            participants.iter().copied().filter(|participant| on(participant.pace)).collect()
        };
        let (mut behind, mut ahead) = (side(true), side(false));
        behind.sort_by(by_work);
        ahead.sort_by(|a, b| by_work(b, a));
        let pairs_max = PAIRS_MIN.max(participants.len() / 10);
        let mut partners = Partners::new(table, ahead);
        let mut decisions = Vec::new();
        for slow in behind {
            if self.asked.len() >= pairs_max {
                break;
            }
            let Some(fast) = partners.take(table, &slow, mean, terms) else { continue };
            shares.exchanged(slow.cpu, fast.cpu);
            decisions.extend(self.swap(table, &slow, &fast));
        }
        decisions
    }

    fn swap(&mut self, table: &mut ThreadTable, slow: &Participant, fast: &Participant) -> [Decision; 2] {
        let (behind, ahead) = (table.threads[slow.i].id, table.threads[fast.i].id);
        self.asked.push(PendingExchange { behind: (behind, slow.cpu), ahead: (ahead, fast.cpu) });
        let by = Span::from_us((1e6 * (fast.work - slow.work)).max(0.0) as u64);
        // Gain of the slower thread after both have taken turns.
        let gain = Some(((slow.pace + fast.pace) / 2.0 / slow.pace - 1.0).max(0.0));
        let to_fast = table.confine(slow.i, fast.cpu, Reason::Behind { by, partner: ahead });
        let to_slow = table.confine(fast.i, slow.cpu, Reason::Ahead { by, partner: behind });
        [Decision { gain, ..to_fast }, Decision { gain, ..to_slow }]
    }
}

/// Threads that are ahead, the furthest ahead first, per cache, node and machine.
struct Partners {
    participants: Vec<Participant>,
    used: Vec<bool>,
    all: Queue,
    nodes: Vec<Queue>,
    caches: Vec<Queue>,
}

/// Indices into [`Partners::participants`], of which the first `done` are used up.
#[derive(Clone, Default)]
struct Queue {
    indices: Vec<usize>,
    done: usize,
}

impl Partners {
    fn new(table: &ThreadTable, participants: Vec<Participant>) -> Self {
        let cpu_table = &table.cpu_table;
        let mut all = Queue::default();
        let mut nodes = vec![Queue::default(); cpu_table.nodes()];
        let mut caches = vec![Queue::default(); cpu_table.llcs()];
        for (at, participant) in participants.iter().enumerate() {
            let entry = cpu_table.entry(participant.cpu);
            all.indices.push(at);
            nodes[entry.node.index()].indices.push(at);
            caches[entry.llc.index()].indices.push(at);
        }
        Self { used: vec![false; participants.len()], participants, all, nodes, caches }
    }

    /// Takes the partner for a thread that is behind: as near as possible, but far enough ahead.
    fn take(
        &mut self,
        table: &ThreadTable,
        slow: &Participant,
        mean: f64,
        terms: &RotationTerms,
    ) -> Option<Participant> {
        let entry = *table.cpu_table.entry(slow.cpu);
        let (participants, used) = (&self.participants, &self.used);
        let near = [Nearness::Cache, Nearness::Node, Nearness::Machine].into_iter();
        let near = near.filter(|near| *near <= terms.reach()).map(|near| {
            let queue = match near {
                Nearness::Cache => &mut self.caches[entry.llc.index()],
                Nearness::Node => &mut self.nodes[entry.node.index()],
                Nearness::Machine => &mut self.all,
            };
            first(queue, used, |at| {
                let fast = &participants[at];
                fits(&table.cpu_table, table, fast.i, slow.cpu)
                    && fits(&table.cpu_table, table, slow.i, fast.cpu)
            })
        });
        let found: Vec<usize> = near.flatten().collect();
        // The CPU would not be slow without the other programs.
        let roams = slow.alone >= mean;
        let lead = |at: usize| participants[at].work - slow.work;
        let most = found.iter().map(|&at| lead(at)).fold(0.0, f64::max);
        let enough = |&at: &usize| {
            let change = (participants[at].pace - slow.pace) * terms.interval.seconds();
            // A lead below the resolution of the measurement does not count.
            let stays = slow
                .usual
                .zip(participants[at].usual)
                .is_some_and(|(slow, fast)| slow < STAY_SHARE_MAX * fast);
            let least = if roams { ROAM_LEAD.seconds() } else { 1e-6 };
            lead(at) >= (change / 2.0).max(most / 2.0).max(least) && (stays || !roams)
        };
        let at = found.into_iter().find(enough)?;
        self.used[at] = true;
        Some(self.participants[at])
    }
}

/// Returns the first unused index in a queue that suits.
fn first(queue: &mut Queue, used: &[bool], suits: impl Fn(usize) -> bool) -> Option<usize> {
    while queue.indices.get(queue.done).is_some_and(|&at| used[at]) {
        queue.done += 1;
    }
    let rest = queue.indices[queue.done..].iter().copied();
    rest.filter(|&at| !used[at]).take(TRIES_MAX).find(|&at| suits(at))
}

/// Decides lone moves to CPUs with room, per period at most one more than an eighth of the CPUs.
fn room(
    table: &mut ThreadTable,
    shares: &mut ShareModel,
    members: &[usize],
    terms: &RotationTerms,
) -> Vec<Decision> {
    let cpu_table = &table.cpu_table;
    let scope = |cpu: CpuIndex| if terms.across_nodes { 0 } else { cpu_table.entry(cpu).node.index() };
    let mut from: Vec<(usize, f64, CpuIndex)> = members
        .iter()
        .filter_map(|&i| table.threads[i].cpu)
        .map(|cpu| (scope(cpu), shares.now(cpu), cpu))
        .collect();
    let mut to: Vec<(usize, f64, CpuIndex)> =
        cpu_table.open().map(|cpu| (scope(cpu), -shares.each(cpu, shares.ours(cpu) + 1), cpu)).collect();
    // By node; within it, the slowest source and the roomiest target first.
    let order = |a: &(usize, f64, CpuIndex), b: &(usize, f64, CpuIndex)| {
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
    };
    from.sort_by(order);
    from.dedup();
    to.sort_by(order);
    let most = 1 + to.len() / 8;
    let (mut next, mut failed) = (0, 0);
    let mut decisions = Vec::new();
    for (node, speed, slow) in from {
        while to.get(next).is_some_and(|cpu| cpu.0 < node) {
            (next, failed) = (next + 1, 0);
        }
        if failed > FAILED_CPUS_MAX || decisions.len() >= most {
            continue;
        }
        let reach = to.iter().enumerate().skip(next).take(TRIES_MAX).take_while(|(_, cpu)| cpu.0 == node);
        let found = reach.filter(|(_, cpu)| cpu.2 != slow).find_map(|(at, (_, _, cpu))| {
            if shares.worth(slow, *cpu) != MoveEffect::Better {
                return None;
            }
            let here = shares.on(slow).iter().copied();
            let suits =
                |&i: &usize| members.binary_search(&i).is_ok() && fits(&table.cpu_table, table, i, *cpu);
            let work = |i: &usize| table.threads[*i].work;
            let behind = here.filter(suits).min_by(|a, b| work(a).total_cmp(&work(b)).then(a.cmp(b)))?;
            Some((behind, at, *cpu))
        });
        let Some((i, at, cpu)) = found else {
            failed += 1;
            continue;
        };
        let expected = shares.each(cpu, shares.ours(cpu) + 1);
        shares.moved(slow, cpu);
        let gain = (expected > speed).then(|| expected / speed - 1.0);
        let decision = table.confine(i, cpu, Reason::Room { speed, expected });
        decisions.push(Decision { gain, ..decision });
        // One newcomer per CPU and period: its effect is measured first.
        next = at + 1;
    }
    decisions
}

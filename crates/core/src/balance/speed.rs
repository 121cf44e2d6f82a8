//! `speed`: the published rule, by which fast cores pull threads from slow cores so that all
//! threads run at the same speed.
//!
//! Unit: speed, which is the share of the time in which a thread that wants a CPU has one, times
//! the weight of the core; interval B.
//!
//! Problem: with 3 threads on 2 cores, two threads always run at half speed, and the third waits
//! for them.
//!
//! Idea: every core has an *agent* that wakes by itself, B and a random part of B after its last
//! wake-up. It publishes its core's speed, the mean of its threads' speeds. If that is above the
//! mean of all published speeds, the agent pulls one thread from a core that is slower than T_s
//! (0.9) of the mean. It pulls the thread that was moved least often, so that no thread is moved
//! again and again. Both cores then rest for 2 B, which allows a clean measurement. There are no
//! locks and no waiting: agents read the last published speeds, however old. After a pull both
//! cores publish their expected speeds until they have measured them.
//!
//! The paper leaves these points open; this implementation does the following:
//! - A core without our threads is not "fast": its speed is the prediction of
//!   [`ShareModel`](super::share_model::ShareModel) for a thread that moves there.
//! - A pull that would waste capacity (an empty core beside a doubled-up core) becomes an exchange:
//!   the puller gives back the thread of its own that was moved least often. Otherwise one thread
//!   would always share with another program.
//! - Threads that sleep have no speed. If a program's threads sleep in barriers
//!   ([`SleepDetector`](super::barrier_sleep::SleepDetector)), masks of one CPU cost more than
//!   balancing gains: the threads get their own masks back, and are moved as by `nudge`.
//! - Agents wake on a grid of B/4, so that one sample serves all agents that are due, and only
//!   their threads are read. There is one agent per CPU on machines of every size: slow cores are
//!   sorted once per wake-up, by cache, node and machine, so an agent examines only a few.
//! - Newcomers are assigned CPUs when they are first seen, later ones when they were first read; a
//!   thread that loses its CPU is assigned another.
//! - The initial thread of a process is not bound while it waits for the others or computes alone
//!   ([`lone`]): it may be about to count CPUs. It is moved as by `nudge`.
//! - An agent pulls across caches every second time it wakes, and across nodes only if the settings
//!   allow it.
//!
//! Properties: one move (or exchange) per wake-up; no core takes part in two within 2 B; equal
//! seeds give equal moves; no thread leaves the mask that it had. With ⌊N/M⌋ of 5 or more (2 cores;
//! 9 on many) no core falls below T_s and nothing moves: at most a tenth is at stake.
//!
//! `nudge` is the same rule with another move: the mask is widened again at once, and no thread is
//! bound at the start.
//!
//! Source: Hofmeyr, Iancu, Blagojević, "Load Balancing on Speed", PPoPP 2010.

use super::cpu_table::{CpuIndex, Nearness};
use super::initial_placement::{assign_cpus, newcomers, release_initial};
use super::share_model::{MoveEffect, fits};
use super::thread_state::Binding;
use super::turn_context::TurnContext;
use super::{Decision, Kind, Policy, Reason, Settings, Turn, Wanted, lone};
use crate::ids::Id;
use crate::observe::Observation;
use crate::set::CpuSet;
use crate::stats::Random;
use crate::time::{Moment, Span};
use crate::topology::Machine;

/// How a thread is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MoveStyle {
    /// Bound to the new CPU.
    Bind,
    /// Put there and released.
    Nudge,
}

/// Slow cores that an agent tries when the threads there may not move to it.
const TRIES_MAX: usize = 16;

/// Moments per interval at which agents wake.
const WAKES_PER_INTERVAL: u64 = 4;

/// Balancer of one core.
#[derive(Debug)]
struct Agent {
    random: Random,
    /// Next wake-up; `None` while no thread may be put on the core.
    wakes: Option<Moment>,
    turns: u32,
    speed: Option<f64>,
    rests: Moment,
}

/// Agents of all cores.
#[derive(Debug)]
pub(super) struct Speed {
    style: MoveStyle,
    context: TurnContext,
    agents: Vec<Agent>,
    /// Initial threads that are not bound now.
    initial: Vec<usize>,
}

impl Speed {
    /// Creates the policy for a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings, style: MoveStyle) -> Self {
        let context = TurnContext::new(machine, settings);
        let agent = |at: usize| Agent {
            // Each agent draws from its own stream, so that one more draw of one agent does not
            // shift the others.
            random: Random(settings.seed ^ (at as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)),
            wakes: None,
            turns: 0,
            speed: None,
            rests: Moment::default(),
        };
        let agents = (0..context.table.cpu_table.len()).map(agent).collect();
        Self { style, context, agents, initial: Vec::new() }
    }

    /// Sets an agent's next wake-up: after B and a random part of B, on the grid.
    fn sleep(&mut self, cpu: CpuIndex, at: Moment) {
        let interval = self.context.settings.interval.0.max(WAKES_PER_INTERVAL);
        let agent = &mut self.agents[cpu.index()];
        let extra = agent.random.below(usize::try_from(interval).unwrap_or(usize::MAX)) as u64;
        let step = interval / WAKES_PER_INTERVAL;
        // The nearest moment of the grid: rounding up would make every interval longer than drawn.
        let wakes = at.0.saturating_add(interval).saturating_add(extra);
        let wakes = (wakes.saturating_add(step / 2) / step).saturating_mul(step);
        agent.wakes = Some(Moment(wakes.max(at.0 + 1)));
    }

    /// Assigns CPUs to newcomers and to threads that lost theirs.
    fn assign(&mut self) -> Vec<Decision> {
        let lost = self.context.table.lost();
        let new: Vec<usize> = match self.style {
            MoveStyle::Nudge => Vec::new(),
            MoveStyle::Bind => {
                let sleeps = |program| self.context.sleep_detector.sleeps(program);
                newcomers(&self.context.table, &self.initial, sleeps)
            }
        };
        assign_cpus(&mut self.context.table, &mut self.context.shares, &new, &lost, false)
    }

    /// Publishes the speed of a core.
    fn publish(&mut self, cpu: CpuIndex) {
        let weight = self.context.table.cpu_table.entry(cpu).weight;
        let on = self.context.shares.on(cpu).iter().map(|&i| &self.context.table.threads[i]);
        let (mut sum, mut count, mut unread) = (0.0, 0, false);
        for thread in on.filter(|thread| thread.active()) {
            // A measurement that began before the last move mixes two states; the prediction stays.
            let clean = |span: Span| self.context.shares.clean(cpu, span);
            match thread
                .speed(self.context.settings.metric)
                .filter(|_| thread.rates.is_some_and(|rates| clean(rates.span)))
            {
                Some(speed) => {
                    sum += speed;
                    count += 1;
                }
                None => unread |= thread.rates.is_none_or(|rates| !clean(rates.span)),
            }
        }
        if count > 0 {
            self.agents[cpu.index()].speed = Some(weight * sum / f64::from(count));
        } else if !unread {
            self.agents[cpu.index()].speed =
                self.context.shares.foreign(cpu).map(|_| self.context.shares.each(cpu, 1));
        }
    }

    /// Runs one agent: at most one pull.
    fn pull(&mut self, cpu: CpuIndex, mean: f64, slow: &SlowCores, at: Moment) -> Vec<Decision> {
        let agent = &self.agents[cpu.index()];
        let (Some(mine), true) = (agent.speed, agent.rests <= at) else { return Vec::new() };
        if mine <= mean {
            return Vec::new();
        }
        let far = match (agent.turns.is_multiple_of(2), self.context.settings.across_nodes) {
            (false, _) => Nearness::Cache,
            (true, false) => Nearness::Node,
            (true, true) => Nearness::Machine,
        };
        let entry = *self.context.table.cpu_table.entry(cpu);
        let others = match far {
            Nearness::Cache => &slow.caches[entry.llc.index()],
            Nearness::Node => &slow.nodes[entry.node.index()],
            Nearness::Machine => &slow.all,
        };
        let rested = |other: &CpuIndex| *other != cpu && self.agents[other.index()].rests <= at;
        let others: Vec<CpuIndex> = others.iter().copied().filter(rested).take(TRIES_MAX).collect();
        others
            .into_iter()
            .map(|from| self.pull_from(cpu, from, mean, at))
            .find(|turn| !turn.is_empty())
            .unwrap_or_default()
    }

    fn pull_from(&mut self, cpu: CpuIndex, from: CpuIndex, mean: f64, at: Moment) -> Vec<Decision> {
        let least_moved = |on: CpuIndex, to: CpuIndex| -> Option<usize> {
            let here = self.context.shares.on(on).iter().copied();
            let can = |&i: &usize| {
                let thread = &self.context.table.threads[i];
                // A held thread that should not be held is released first: a nudge would return it
                // to its one CPU.
                let held = thread.binding == Binding::Held && self.nudges(i);
                thread.active()
                    && thread.settled()
                    && !held
                    && fits(&self.context.table.cpu_table, &self.context.table, i, to)
            };
            here.filter(can)
                .min_by_key(|&i| (self.context.table.threads[i].moves, self.context.table.threads[i].id))
        };
        let Some(pulled) = least_moved(from, cpu) else { return Vec::new() };
        let speed = self.agents[from.index()].speed.unwrap_or(0.0);
        let reason = Reason::Slow { speed, mean };
        let mut decisions = Vec::new();
        if self.context.shares.worth(from, cpu) >= MoveEffect::Same {
            self.context.shares.moved(from, cpu);
        } else {
            let Some(returned) = least_moved(cpu, from) else { return Vec::new() };
            self.context.shares.exchanged(from, cpu);
            let (ahead, behind) =
                (&self.context.table.threads[returned], &self.context.table.threads[pulled]);
            let by = Span::from_us((1e6 * (ahead.work - behind.work)).max(0.0) as u64);
            let partner = behind.id;
            decisions.push(self.put(returned, from, Reason::Ahead { by, partner }));
        }
        decisions.insert(0, self.put(pulled, cpu, reason));
        let rests = at + self.context.settings.interval.times(2.0);
        for moved in [cpu, from] {
            let expected = self.context.shares.each(moved, self.context.shares.ours(moved));
            let agent = &mut self.agents[moved.index()];
            (agent.rests, agent.speed) = (rests, Some(expected));
        }
        decisions
    }

    fn put(&mut self, i: usize, cpu: CpuIndex, reason: Reason) -> Decision {
        if self.nudges(i) {
            self.context.table.nudge(i, cpu, reason)
        } else {
            self.context.table.confine(i, cpu, reason)
        }
    }

    /// Returns whether a thread is released at once after a move.
    fn nudges(&self, i: usize) -> bool {
        self.style == MoveStyle::Nudge
            || self.initial.binary_search(&i).is_ok()
            || self.context.sleep_detector.sleeps(self.context.table.threads[i].program)
    }

    /// Returns the time of the next sample and its request.
    fn next(&self, at: Moment, cpus: &[CpuIndex]) -> (Moment, Wanted) {
        let open = || cpus.iter().copied();
        let next = open().filter_map(|cpu| self.agents[cpu.index()].wakes).min();
        let next = next.unwrap_or(at + self.context.settings.interval);
        let due = open().filter(|cpu| self.agents[cpu.index()].wakes.is_some_and(|wakes| wakes <= next));
        let on: CpuSet = due.map(|cpu| self.context.table.cpu_table.entry(cpu).os).collect();
        let places = self.context.table.threads.iter().any(|thread| thread.binding != Binding::Held);
        let cpus = open().any(|cpu| self.context.shares.ours(cpu) == 0);
        // A thread that was not seen on any CPU is missing in every subset: while such a thread
        // exists, all threads are read.
        let nowhere = self.context.table.threads.iter().any(|thread| thread.cpu.is_none());
        (
            next,
            Wanted {
                on: (!nowhere).then_some(on),
                places,
                cpus,
                sleeps: self.context.sleep_detector.suspects(),
                counts: false,
            },
        )
    }
}

/// Slow cores, the slowest first, per cache, node and machine.
struct SlowCores {
    all: Vec<CpuIndex>,
    nodes: Vec<Vec<CpuIndex>>,
    caches: Vec<Vec<CpuIndex>>,
}

impl Policy for Speed {
    fn kind(&self) -> Kind {
        match self.style {
            MoveStyle::Bind => Kind::Speed,
            MoveStyle::Nudge => Kind::Nudge,
        }
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let at = seen.at;
        let mut findings = self.context.observe(seen);
        findings.extend(self.context.sleep_detector.observe(&mut self.context.table));
        let mut decisions = self.context.sleep_detector.release(&mut self.context.table);
        self.initial = lone::initial_threads(&self.context.table.threads);
        decisions.extend(release_initial(&mut self.context.table, &self.initial));
        decisions.extend(self.assign());
        // A core that no thread may use is fast, and must not count in the mean.
        let reach = self.context.table.reach();
        let cpu_table = &self.context.table.cpu_table;
        let cpus: Vec<CpuIndex> =
            cpu_table.open().filter(|cpu| reach.contains(cpu_table.entry(*cpu).os)).collect();
        let mut reached = vec![false; self.agents.len()];
        for &cpu in &cpus {
            reached[cpu.index()] = true;
            if self.agents[cpu.index()].wakes.is_none() {
                self.sleep(cpu, at);
            }
        }
        for (agent, _) in self.agents.iter_mut().zip(&reached).filter(|(_, reached)| !**reached) {
            agent.wakes = None;
        }
        let wakes = |cpu: &CpuIndex| self.agents[cpu.index()].wakes.is_some_and(|wakes| wakes <= at);
        let due: Vec<CpuIndex> = cpus.iter().copied().filter(wakes).collect();
        for &cpu in &due {
            self.publish(cpu);
        }
        let speeds: Vec<(f64, CpuIndex)> =
            cpus.iter().filter_map(|&cpu| Some((self.agents[cpu.index()].speed?, cpu))).collect();
        let mean = speeds.iter().map(|(speed, _)| speed).sum::<f64>() / (speeds.len().max(1) as f64);
        let slow = self.slow(speeds, mean);
        for &cpu in &due {
            decisions.extend(self.pull(cpu, mean, &slow, at));
            self.agents[cpu.index()].turns += 1;
            self.sleep(cpu, at);
        }
        let (next, wanted) = self.next(at, &cpus);
        Turn { decisions, findings, next, wanted }
    }
}

impl Speed {
    fn slow(&self, mut speeds: Vec<(f64, CpuIndex)>, mean: f64) -> SlowCores {
        let cpu_table = &self.context.table.cpu_table;
        speeds.retain(|(speed, cpu)| {
            *speed < self.context.settings.threshold * mean && self.context.shares.ours(*cpu) > 0
        });
        speeds.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut slow = SlowCores {
            all: Vec::new(),
            nodes: vec![Vec::new(); cpu_table.nodes()],
            caches: vec![Vec::new(); cpu_table.llcs()],
        };
        for (_, cpu) in speeds {
            let entry = cpu_table.entry(cpu);
            slow.all.push(cpu);
            slow.nodes[entry.node.index()].push(cpu);
            slow.caches[entry.llc.index()].push(cpu);
        }
        slow
    }
}

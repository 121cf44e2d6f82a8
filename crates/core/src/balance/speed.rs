//! `speed`: the published rule. Fast cores pull threads from slow ones, so that all threads run at the same speed.
//!
//! Unit: speed, the share of the time in which a thread that wants a CPU has one, times the weight of the core; interval B.
//! Problem: with 3 threads on 2 cores, two of them run at half speed for ever, and the third waits for them. Idea: every core
//! has an *agent* that wakes by itself, B and a random part of B after its last time. It publishes its core's speed (the
//! mean of its threads'); if that is above the mean of all cores' published speeds, it pulls one thread from a
//! core that is slower than T_s (0.9) of the mean: the one that was moved least often, so that no thread is passed on and on.
//! Both cores then rest for 2 B, in which a clean measurement becomes possible. Nothing is locked and nobody waits: agents read
//! what others published last, however old. After a pull both cores publish what is
//! expected of them, until they measured it.
//!
//! What the paper leaves open, and what is done here:
//! - A core without our threads is not "fast": its speed is what [`Shares`](super::shares::Shares) predicts for a thread that came there.
//! - A pull that would waste something (leave a core empty beside a doubled-up one) is made a return: the puller gives the thread
//!   of its own that was moved least in exchange. Else one thread shares with another program for ever.
//! - Threads that sleep have no speed. Where a program's threads sleep in barriers ([`Dozes`](super::doze::Dozes)), one-CPU masks cost more than
//!   balancing brings: they get their own masks back, and are moved as `nudge` does.
//! - Agents wake on a grid of B/4, so that a sample serves all that are due, and only their threads are read. One agent per CPU
//!   on machines of every size: who is slow is sorted once a wake-up, per cache, node and machine, so an agent looks at a few.
//! - Newcomers are dealt seats when they are seen; a thread whose CPU is lost is dealt another.
//! - Across caches an agent pulls every second time it wakes; across nodes only if the settings allow it.
//!
//! Properties: one move (or return) per wake-up; no core takes part in two within 2 B; equal seeds, equal moves; no thread
//! leaves its mask as found. With ⌊N/M⌋ of 5 or more (2 cores; 9 on many) T_s is never undercut and nothing moves: at most
//! a tenth is at stake.
//!
//! `nudge` is the same rule with another move: the mask is widened again at once, and nobody is bound at the start.
//!
//! Source: Hofmeyr, Iancu, Blagojević, "Load Balancing on Speed", PPoPP 2010.

use super::base::Base;
use super::deal::{deal_out, newcomers};
use super::ground::{Nearness, Seat};
use super::shares::{Worth, fits};
use super::sitter::Standing;
use super::{Decision, Kind, Policy, Reason, Settings, Turn, Wanted};
use crate::ids::{Id, ProgramId};
use crate::observe::Observation;
use crate::set::CpuSet;
use crate::stats::Random;
use crate::time::{Moment, Span};
use crate::topology::Machine;

/// How a thread is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grip {
    /// Bound to the new CPU.
    Firm,
    /// Put there and let go.
    Soft,
}

/// So many slow cores an agent tries when threads there may not come to it.
const TRIES_MAX: usize = 16;

/// The wake-ups of an interval fall on this many moments.
const GRID: u64 = 4;

/// A core's own balancer.
#[derive(Debug)]
struct Agent {
    random: Random,
    /// `None` while nobody may be put on its core.
    wakes: Option<Moment>,
    turns: u32,
    speed: Option<f64>,
    rests: Moment,
}

/// The agents of all cores.
#[derive(Debug)]
pub(super) struct Speed {
    grip: Grip,
    base: Base,
    agents: Vec<Agent>,
}

impl Speed {
    /// For a machine.
    pub(super) fn new(machine: &Machine, settings: &Settings, grip: Grip) -> Self {
        let base = Base::new(machine, settings);
        let agent = |at: usize| Agent {
            // Each agent draws from a stream of its own, so that one more draw of one does not shift the others'.
            random: Random(settings.seed ^ (at as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)),
            wakes: None,
            turns: 0,
            speed: None,
            rests: Moment::default(),
        };
        let agents = (0..base.seating.ground.len()).map(agent).collect();
        Self { grip, base, agents }
    }

    /// When an agent wakes next: after B and a random part of B, on the grid.
    fn sleep(&mut self, seat: Seat, at: Moment) {
        let interval = self.base.settings.interval.0.max(GRID);
        let agent = &mut self.agents[seat.index()];
        let extra = agent.random.below(usize::try_from(interval).unwrap_or(usize::MAX)) as u64;
        let step = interval / GRID;
        // The nearest moment of the grid: rounding up would make every interval longer than drawn.
        let wakes = at.0.saturating_add(interval).saturating_add(extra);
        let wakes = (wakes.saturating_add(step / 2) / step).saturating_mul(step);
        agent.wakes = Some(Moment(wakes.max(at.0 + 1)));
    }

    /// Seats for newcomers and for threads whose CPU was lost.
    fn seat(&mut self) -> Vec<Decision> {
        let lost = self.base.seating.lost();
        let new: Vec<usize> = match self.grip {
            Grip::Soft => Vec::new(),
            Grip::Firm => newcomers(&self.base.seating, |program| self.base.dozes.sleeps(program)),
        };
        deal_out(&mut self.base.seating, &mut self.base.shares, &new, &lost, false)
    }

    /// Publishes the speed of a core.
    fn publish(&mut self, seat: Seat) {
        let weight = self.base.seating.ground.place(seat).weight;
        let on = self.base.shares.on(seat).iter().map(|&i| &self.base.seating.sitters[i]);
        let (mut sum, mut count, mut unread) = (0.0, 0, false);
        for sitter in on.filter(|sitter| sitter.active()) {
            // What began before the last move here tells of both states; what was predicted stays.
            let clean = |span: Span| self.base.shares.clean(seat, span);
            match sitter
                .speed(self.base.settings.metric)
                .filter(|_| sitter.rates.is_some_and(|rates| clean(rates.span)))
            {
                Some(speed) => {
                    sum += speed;
                    count += 1;
                }
                None => unread |= sitter.rates.is_none_or(|rates| !clean(rates.span)),
            }
        }
        if count > 0 {
            self.agents[seat.index()].speed = Some(weight * sum / f64::from(count));
        } else if !unread {
            self.agents[seat.index()].speed =
                self.base.shares.foreign(seat).map(|_| self.base.shares.each(seat, 1));
        }
    }

    /// One agent's turn: at most one pull.
    fn pull(&mut self, seat: Seat, mean: f64, slow: &Slow, at: Moment) -> Vec<Decision> {
        let agent = &self.agents[seat.index()];
        let (Some(mine), true) = (agent.speed, agent.rests <= at) else { return Vec::new() };
        if mine <= mean {
            return Vec::new();
        }
        let far = match (agent.turns.is_multiple_of(2), self.base.settings.across_nodes) {
            (false, _) => Nearness::Cache,
            (true, false) => Nearness::Node,
            (true, true) => Nearness::Machine,
        };
        let place = *self.base.seating.ground.place(seat);
        let others = match far {
            Nearness::Cache => &slow.caches[place.llc.index()],
            Nearness::Node => &slow.nodes[place.node.index()],
            Nearness::Machine => &slow.all,
        };
        let rested = |other: &Seat| *other != seat && self.agents[other.index()].rests <= at;
        let others: Vec<Seat> = others.iter().copied().filter(rested).take(TRIES_MAX).collect();
        others
            .into_iter()
            .map(|from| self.pull_from(seat, from, mean, at))
            .find(|turn| !turn.is_empty())
            .unwrap_or_default()
    }

    fn pull_from(&mut self, seat: Seat, from: Seat, mean: f64, at: Moment) -> Vec<Decision> {
        let least_moved = |on: Seat, to: Seat| -> Option<usize> {
            let here = self.base.shares.on(on).iter().copied();
            let can = |&i: &usize| {
                let sitter = &self.base.seating.sitters[i];
                // A thread that is held and should not be is let go first: nudged, it would come back to its one CPU.
                let held = sitter.standing == Standing::Held && self.nudges(sitter.program);
                sitter.active() && !held && fits(&self.base.seating.ground, &self.base.seating, i, to)
            };
            here.filter(can)
                .min_by_key(|&i| (self.base.seating.sitters[i].moves, self.base.seating.sitters[i].id))
        };
        let Some(pulled) = least_moved(from, seat) else { return Vec::new() };
        let speed = self.agents[from.index()].speed.unwrap_or(0.0);
        let reason = Reason::Slow { speed, mean };
        let mut decisions = Vec::new();
        if self.base.shares.worth(from, seat) >= Worth::Same {
            self.base.shares.moved(from, seat);
        } else {
            let Some(returned) = least_moved(seat, from) else { return Vec::new() };
            self.base.shares.exchanged(from, seat);
            let (ahead, behind) = (&self.base.seating.sitters[returned], &self.base.seating.sitters[pulled]);
            let by = Span::from_us((1e6 * (ahead.work - behind.work)).max(0.0) as u64);
            let partner = behind.id;
            decisions.push(self.put(returned, from, Reason::Ahead { by, partner }));
        }
        decisions.insert(0, self.put(pulled, seat, reason));
        let rests = at + self.base.settings.interval.times(2.0);
        for moved in [seat, from] {
            let expected = self.base.shares.each(moved, self.base.shares.ours(moved));
            let agent = &mut self.agents[moved.index()];
            (agent.rests, agent.speed) = (rests, Some(expected));
        }
        decisions
    }

    fn put(&mut self, i: usize, seat: Seat, reason: Reason) -> Decision {
        if self.nudges(self.base.seating.sitters[i].program) {
            self.base.seating.nudge(i, seat, reason)
        } else {
            self.base.seating.confine(i, seat, reason)
        }
    }

    /// Whether a program's threads are moved and let go at once.
    fn nudges(&self, program: ProgramId) -> bool {
        self.grip == Grip::Soft || self.base.dozes.sleeps(program)
    }

    /// When to look next, and at what.
    fn next(&self, at: Moment, seats: &[Seat]) -> (Moment, Wanted) {
        let open = || seats.iter().copied();
        let next = open().filter_map(|seat| self.agents[seat.index()].wakes).min();
        let next = next.unwrap_or(at + self.base.settings.interval);
        let due = open().filter(|seat| self.agents[seat.index()].wakes.is_some_and(|wakes| wakes <= next));
        let on: CpuSet = due.map(|seat| self.base.seating.ground.place(seat).os).collect();
        let places = self.base.seating.sitters.iter().any(|sitter| sitter.standing != Standing::Held);
        let cpus = open().any(|seat| self.base.shares.ours(seat) == 0);
        // A thread that nobody has seen anywhere is on no CPU: while there is one, all are read.
        let nowhere = self.base.seating.sitters.iter().any(|sitter| sitter.seat.is_none());
        (
            next,
            Wanted {
                on: (!nowhere).then_some(on),
                places,
                cpus,
                sleeps: self.base.dozes.suspects(),
                counts: false,
            },
        )
    }
}

/// Slow cores, the slowest first, per cache, node and machine.
struct Slow {
    all: Vec<Seat>,
    nodes: Vec<Vec<Seat>>,
    caches: Vec<Vec<Seat>>,
}

impl Policy for Speed {
    fn kind(&self) -> Kind {
        match self.grip {
            Grip::Firm => Kind::Speed,
            Grip::Soft => Kind::Nudge,
        }
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let at = seen.at;
        let mut findings = self.base.look(seen);
        findings.extend(self.base.dozes.look(&mut self.base.seating));
        let mut decisions = self.base.dozes.release(&mut self.base.seating);
        decisions.extend(self.seat());
        // A core that nobody may come to is fast, and no measure for anybody.
        let reach = self.base.seating.reach();
        let ground = &self.base.seating.ground;
        let seats: Vec<Seat> = ground.open().filter(|seat| reach.contains(ground.place(*seat).os)).collect();
        let mut reached = vec![false; self.agents.len()];
        for &seat in &seats {
            reached[seat.index()] = true;
            if self.agents[seat.index()].wakes.is_none() {
                self.sleep(seat, at);
            }
        }
        for (agent, _) in self.agents.iter_mut().zip(&reached).filter(|(_, reached)| !**reached) {
            agent.wakes = None;
        }
        let wakes = |seat: &Seat| self.agents[seat.index()].wakes.is_some_and(|wakes| wakes <= at);
        let due: Vec<Seat> = seats.iter().copied().filter(wakes).collect();
        for &seat in &due {
            self.publish(seat);
        }
        let speeds: Vec<(f64, Seat)> =
            seats.iter().filter_map(|&seat| Some((self.agents[seat.index()].speed?, seat))).collect();
        let mean = speeds.iter().map(|(speed, _)| speed).sum::<f64>() / (speeds.len().max(1) as f64);
        let slow = self.slow(speeds, mean);
        for &seat in &due {
            decisions.extend(self.pull(seat, mean, &slow, at));
            self.agents[seat.index()].turns += 1;
            self.sleep(seat, at);
        }
        let (next, wanted) = self.next(at, &seats);
        Turn { decisions, findings, next, wanted }
    }
}

impl Speed {
    fn slow(&self, mut speeds: Vec<(f64, Seat)>, mean: f64) -> Slow {
        let ground = &self.base.seating.ground;
        speeds.retain(|(speed, seat)| {
            *speed < self.base.settings.threshold * mean && self.base.shares.ours(*seat) > 0
        });
        speeds.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut slow = Slow {
            all: Vec::new(),
            nodes: vec![Vec::new(); ground.nodes()],
            caches: vec![Vec::new(); ground.llcs()],
        };
        for (_, seat) in speeds {
            let place = ground.place(seat);
            slow.all.push(seat);
            slow.nodes[place.node.index()].push(seat);
            slow.caches[place.llc.index()].push(seat);
        }
        slow
    }
}

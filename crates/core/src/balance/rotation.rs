//! Rotating threads over seats that give unequally, so that all of them get on alike.
//!
//! Unit: work, in seconds; a period B. Problem: where seats give unequally (one thread more than cores, another program on a
//! core, a slow core), no placement is fair, but taking turns is. Moving one thread at a time is the wrong primitive for
//! that: it leaves seats empty or crowded in between, and the naive form moves the same thread for ever (measured: 1.11 and 1.33
//! times the ideal, for 3 threads on 2 cores). Idea: an *exchange*. Once a period, threads that sit on slow seats and are behind
//! change places with threads that sit on fast seats and are ahead; how many threads each seat holds never changes.
//!
//! - Slow and fast are below and above the mean of what the program's threads get ([`Shares`]), so crowded cores, other
//!   programs and slow cores are one case.
//! - The one furthest behind chooses first. It takes the partner in its own cache if that one is at least half as far ahead as the
//!   best in reach, else in its node, else anywhere that is allowed.
//! - A pair is exchanged only if the one is ahead of the other by half of what a period will change: else it would be
//!   changed back. Where another program makes the seat slow, it must usually do so ([`STAYS`]), and the lead
//!   must be more: the kernel may move that program on, and chasing it can keep it beside one of us for ever.
//! - Before that, a thread moves alone where a seat has *room*: where by prediction the two seats together give more, or
//!   as much and the slower one clearly more.
//! - An exchange of which one half was refused is undone in the next period: it left two threads on one seat.
//!
//! Properties: with exact measurement no thread is further behind the mean than what a slow seat costs in
//! ⌈slow/fast⌉ + 1 periods; when all seats give alike nothing moves; O(n log n) for n threads and seats; at most
//! [`PAIRS_MIN`] exchanges a period, or a tenth of the threads.
//!
//! Source: Hofmeyr, Colmenares, Iancu, Kubiatowicz, "Juggle: proactive load balancing on multicore computers", HPDC 2011, for the
//! exchange of ahead and behind; the choice of partners by cache and the prediction are from here.

use super::ground::{Nearness, Seat};
use super::seating::Seating;
use super::shares::{Shares, Worth, fits};
use super::{Decision, Reason};
use crate::ids::{Id, ThreadId};
use crate::time::Span;

/// So many exchanges a period are always allowed: 16 moves of 20 microseconds are 0.32 % of a core at 100 ms.
pub(super) const PAIRS_MIN: usize = 8;

/// Partners that are tried where masks differ, and seats with room.
const TRIES_MAX: usize = 8;

/// Seats from which a lone move is tried in vain before the rest is given up for this period.
const VAIN_MAX: usize = 64;

/// Where others make a seat slow, it counts only if it usually gives less than this part of what the fast one gives: then
/// those others stay. A hog that roams makes all seats alike in the mean.
const STAYS: f64 = 0.85;

/// And so far must one be ahead: a hog that roams costs each thread about half a busy interval of the kernel in turn (16 ms
/// on few CPUs), one that stays costs one of them more.
const ROAM_LEAD: Span = Span::from_ms(25);

/// Two threads that were asked to change places, and where they were.
#[derive(Clone, Copy, Debug)]
struct Pair {
    behind: (ThreadId, Seat),
    ahead: (ThreadId, Seat),
}

/// A program's turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Rotation {
    asked: Vec<Pair>,
}

/// How far threads may go, and how soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Whether to other nodes.
    pub(super) across_nodes: bool,
    /// The period.
    pub(super) interval: Span,
}

impl Terms {
    fn reach(&self) -> Nearness {
        if self.across_nodes { Nearness::Machine } else { Nearness::Node }
    }
}

/// A thread that could take part.
#[derive(Clone, Copy)]
struct Player {
    i: usize,
    seat: Seat,
    work: f64,
    pace: f64,
    alone: f64,
    usual: Option<f64>,
}

impl Rotation {
    /// One period's moves for a program's computing threads, given as places in the seating.
    pub(super) fn turn(
        &mut self,
        seating: &mut Seating,
        shares: &mut Shares,
        members: &[usize],
        terms: &Terms,
    ) -> Vec<Decision> {
        let mut decisions = self.repair(seating, shares);
        decisions.extend(room(seating, shares, members, terms));
        decisions.extend(self.exchange(seating, shares, members, terms));
        decisions
    }

    /// Takes back the halves of exchanges whose other half was refused.
    fn repair(&mut self, seating: &mut Seating, shares: &mut Shares) -> Vec<Decision> {
        let find =
            |seating: &Seating, id: ThreadId| seating.sitters.binary_search_by_key(&id, |sitter| sitter.id);
        let mut decisions = Vec::new();
        let mut waiting = Vec::new();
        for pair in std::mem::take(&mut self.asked) {
            let (Ok(behind), Ok(ahead)) = (find(seating, pair.behind.0), find(seating, pair.ahead.0)) else {
                continue;
            };
            if seating.sitters[behind].waits() || seating.sitters[ahead].waits() {
                waiting.push(pair);
                continue;
            }
            let moved = |i: usize, from: Seat| seating.sitters[i].seat != Some(from);
            let back = match (moved(behind, pair.behind.1), moved(ahead, pair.ahead.1)) {
                (true, false) => Some((behind, pair.behind.1, pair.ahead.1)),
                (false, true) => Some((ahead, pair.ahead.1, pair.behind.1)),
                _ => None,
            };
            if let Some((i, home, now)) =
                back.filter(|(i, home, _)| fits(&seating.ground, seating, *i, *home))
            {
                shares.moved(now, home);
                decisions.push(seating.confine(i, home, Reason::Undo));
            }
        }
        self.asked = waiting;
        decisions
    }

    fn exchange(
        &mut self,
        seating: &mut Seating,
        shares: &mut Shares,
        members: &[usize],
        terms: &Terms,
    ) -> Vec<Decision> {
        let player = |&i: &usize| {
            let sitter = &seating.sitters[i];
            let seat = sitter.seat.filter(|_| sitter.free())?;
            Some(Player {
                i,
                seat,
                work: sitter.work,
                pace: shares.now(seat),
                alone: shares.alone(seat),
                usual: shares.usual(seat),
            })
        };
        let players: Vec<Player> = members.iter().filter_map(player).collect();
        let mean = players.iter().map(|player| player.pace).sum::<f64>() / players.len().max(1) as f64;
        let by_work = |a: &Player, b: &Player| a.work.total_cmp(&b.work).then(a.i.cmp(&b.i));
        let side = |slow: bool| -> Vec<Player> {
            // A thread that gets the mean is on neither side; the margin is for sums of fractions.
            let on = |pace: f64| if slow { pace < mean * (1.0 - 1e-9) } else { pace > mean * (1.0 + 1e-9) };
            players.iter().copied().filter(|player| on(player.pace)).collect()
        };
        let (mut behind, mut ahead) = (side(true), side(false));
        behind.sort_by(by_work);
        ahead.sort_by(|a, b| by_work(b, a));
        let pairs_max = PAIRS_MIN.max(players.len() / 10);
        let mut partners = Partners::new(seating, ahead);
        let mut decisions = Vec::new();
        for slow in behind {
            if self.asked.len() >= pairs_max {
                break;
            }
            let Some(fast) = partners.take(seating, &slow, mean, terms) else { continue };
            shares.exchanged(slow.seat, fast.seat);
            decisions.extend(self.swap(seating, &slow, &fast));
        }
        decisions
    }

    fn swap(&mut self, seating: &mut Seating, slow: &Player, fast: &Player) -> [Decision; 2] {
        let (behind, ahead) = (seating.sitters[slow.i].id, seating.sitters[fast.i].id);
        self.asked.push(Pair { behind: (behind, slow.seat), ahead: (ahead, fast.seat) });
        let by = Span::from_us((1e6 * (fast.work - slow.work)).max(0.0) as u64);
        // What the slower of the two gets more, once they have taken turns.
        let gain = Some(((slow.pace + fast.pace) / 2.0 / slow.pace - 1.0).max(0.0));
        let to_fast = seating.confine(slow.i, fast.seat, Reason::Behind { by, partner: ahead });
        let to_slow = seating.confine(fast.i, slow.seat, Reason::Ahead { by, partner: behind });
        [Decision { gain, ..to_fast }, Decision { gain, ..to_slow }]
    }
}

/// Threads that are ahead, the furthest first, per cache, node and machine.
struct Partners {
    players: Vec<Player>,
    used: Vec<bool>,
    all: Queue,
    nodes: Vec<Queue>,
    caches: Vec<Queue>,
}

/// Places in [`Partners::players`], of which the first `done` are used up.
#[derive(Clone, Default)]
struct Queue {
    places: Vec<usize>,
    done: usize,
}

impl Partners {
    fn new(seating: &Seating, players: Vec<Player>) -> Self {
        let ground = &seating.ground;
        let mut all = Queue::default();
        let mut nodes = vec![Queue::default(); ground.nodes()];
        let mut caches = vec![Queue::default(); ground.llcs()];
        for (at, player) in players.iter().enumerate() {
            let place = ground.place(player.seat);
            all.places.push(at);
            nodes[place.node.index()].places.push(at);
            caches[place.llc.index()].places.push(at);
        }
        Self { used: vec![false; players.len()], players, all, nodes, caches }
    }

    /// The partner for a thread that is behind: as near as possible, but far enough ahead.
    fn take(&mut self, seating: &Seating, slow: &Player, mean: f64, terms: &Terms) -> Option<Player> {
        let place = *seating.ground.place(slow.seat);
        let (players, used) = (&self.players, &self.used);
        let near = [Nearness::Cache, Nearness::Node, Nearness::Machine].into_iter();
        let near = near.filter(|near| *near <= terms.reach()).map(|near| {
            let queue = match near {
                Nearness::Cache => &mut self.caches[place.llc.index()],
                Nearness::Node => &mut self.nodes[place.node.index()],
                Nearness::Machine => &mut self.all,
            };
            first(queue, used, |at| {
                let fast = &players[at];
                fits(&seating.ground, seating, fast.i, slow.seat)
                    && fits(&seating.ground, seating, slow.i, fast.seat)
            })
        });
        let found: Vec<usize> = near.flatten().collect();
        // Without the others it would not be slow.
        let roams = slow.alone >= mean;
        let lead = |at: usize| players[at].work - slow.work;
        let most = found.iter().map(|&at| lead(at)).fold(0.0, f64::max);
        let enough = |&at: &usize| {
            let change = (players[at].pace - slow.pace) * terms.interval.seconds();
            // What sampling cannot tell apart is no lead.
            let stays = slow.usual.zip(players[at].usual).is_some_and(|(slow, fast)| slow < STAYS * fast);
            let least = if roams { ROAM_LEAD.seconds() } else { 1e-6 };
            lead(at) >= (change / 2.0).max(most / 2.0).max(least) && (stays || !roams)
        };
        let at = found.into_iter().find(enough)?;
        self.used[at] = true;
        Some(self.players[at])
    }
}

/// The first place in a queue that is not used and suits.
fn first(queue: &mut Queue, used: &[bool], suits: impl Fn(usize) -> bool) -> Option<usize> {
    while queue.places.get(queue.done).is_some_and(|&at| used[at]) {
        queue.done += 1;
    }
    let rest = queue.places[queue.done..].iter().copied();
    rest.filter(|&at| !used[at]).take(TRIES_MAX).find(|&at| suits(at))
}

/// Lone moves to seats that have room, at most an eighth of the seats a period.
fn room(seating: &mut Seating, shares: &mut Shares, members: &[usize], terms: &Terms) -> Vec<Decision> {
    let ground = &seating.ground;
    let scope = |seat: Seat| if terms.across_nodes { 0 } else { ground.place(seat).node.index() };
    let mut from: Vec<(usize, f64, Seat)> = members
        .iter()
        .filter_map(|&i| seating.sitters[i].seat)
        .map(|seat| (scope(seat), shares.now(seat), seat))
        .collect();
    let mut to: Vec<(usize, f64, Seat)> =
        ground.open().map(|seat| (scope(seat), -shares.each(seat, shares.ours(seat) + 1), seat)).collect();
    // By node, the slowest first and the roomiest first.
    let order = |a: &(usize, f64, Seat), b: &(usize, f64, Seat)| {
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
    };
    from.sort_by(order);
    from.dedup();
    to.sort_by(order);
    let most = 1 + to.len() / 8;
    let (mut next, mut vain) = (0, 0);
    let mut decisions = Vec::new();
    for (node, speed, slow) in from {
        while to.get(next).is_some_and(|seat| seat.0 < node) {
            (next, vain) = (next + 1, 0);
        }
        if vain > VAIN_MAX || decisions.len() >= most {
            continue;
        }
        let reach = to.iter().enumerate().skip(next).take(TRIES_MAX).take_while(|(_, seat)| seat.0 == node);
        let found = reach.filter(|(_, seat)| seat.2 != slow).find_map(|(at, (_, _, seat))| {
            if shares.worth(slow, *seat) != Worth::Better {
                return None;
            }
            let here = shares.on(slow).iter().copied();
            let suits =
                |&i: &usize| members.binary_search(&i).is_ok() && fits(&seating.ground, seating, i, *seat);
            let work = |i: &usize| seating.sitters[*i].work;
            let behind = here.filter(suits).min_by(|a, b| work(a).total_cmp(&work(b)).then(a.cmp(b)))?;
            Some((behind, at, *seat))
        });
        let Some((i, at, seat)) = found else {
            vain += 1;
            continue;
        };
        let expected = shares.each(seat, shares.ours(seat) + 1);
        shares.moved(slow, seat);
        let gain = (expected > speed).then(|| expected / speed - 1.0);
        let decision = seating.confine(i, seat, Reason::Room { speed, expected });
        decisions.push(Decision { gain, ..decision });
        // One newcomer a seat and period: what comes of it is measured first.
        next = at + 1;
    }
    decisions
}

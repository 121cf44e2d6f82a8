//! What fair schedulers do between queues: CPUs pull, when they fall idle and every so often at a tick.
//!
//! Each CPU looks at the domains around it, the smallest first, each at its own interval: short while the CPU is idle, much longer while
//! it is busy. Of a group of CPUs only one looks outside for all: the first idle one, or the first. What is imbalance, and how often is
//! looked, is the rule's business: [`balance_2_6`] or [`balance_eevdf`]. Here is what both share: which
//! thread is taken, and that a thread that ran a moment ago is left where its data are.
//!
//! A CPU that falls idle looks while somebody was seen to wait somewhere. Kernels since 6.12.65 and 6.18.5 throw a die first, loaded
//! with how often such looks have brought something, starting with one in two; so runs differ by what the machine did before.
//!
//! Sources: kernel/sched.c of 2.6.28 and kernel/sched/fair.c of 6.1 to 6.18: rebalance_domains, should_we_balance, load_balance,
//! can_migrate_task, newidle_balance, nohz_balancer_kick, set_rd_overloaded; commit 33cf66d88306 for the die.

use super::imbalance::Memory;
use super::{Seats, balance_2_6, balance_eevdf};
use crate::kernel::Kernel;
use crate::rng::Rng;
use std::ops::Range;

/// Which rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spread {
    /// 2008.
    Load,
    /// Since 5.10.
    Modern,
    /// None: threads stay.
    Nothing,
}

/// A thread that ran this short a time ago has its data where it was: `sysctl_sched_migration_cost`.
const HOT: u64 = 500_000;

/// So many failed looks, and even such threads are taken: `sd->cache_nice_tries`.
const NICE_TRIES: u32 = 1;

/// With masks in the way, so many CPUs are tried before a look is given up (`sched_nr_migrate_break` bounds the kernel's).
const TRIES: usize = 32;

/// Looks in which a die decides are counted in these: after so many, what they brought is reckoned anew.
pub(crate) const DICE: u32 = 1024;

/// What looking when falling idle has brought a CPU in one domain: `update_newidle_stats`.
#[derive(Clone, Copy, Debug)]
struct Luck {
    calls: u32,
    found: u32,
    /// Of [`DICE`] looks, so many are made.
    ratio: u32,
}

impl Luck {
    fn note(&mut self, found: u32) {
        self.calls += 1;
        self.found += found;
        if self.calls >= DICE {
            self.ratio = self.found;
            self.calls /= 2;
            self.found /= 2;
        }
    }
}

/// The state of it.
#[derive(Clone, Debug)]
pub(crate) struct LoadBalance {
    pub(crate) spread: Spread,
    pub(crate) unit: u64,
    pub(crate) busy_factor: u64,
    idle_pull: bool,
    idle_least: u64,
    depth: usize,
    memories: Vec<Memory>,
    /// As `memories`, where a die is thrown; else empty.
    luck: Vec<Luck>,
    dice: Rng,
    /// Somebody was seen to wait, and nobody has looked at the whole machine since: `rd->overloaded`.
    crowded: bool,
}

impl LoadBalance {
    pub(crate) fn new(kernel: &Kernel, seats: &Seats, spread: Spread) -> Self {
        let depth = seats.domains.depth;
        let mut rng = seats.rng.fork("balancing");
        let mut memories = Vec::with_capacity(depth * seats.cpus.len());
        let mut new = Self {
            spread,
            unit: kernel.balance.0.max(1),
            busy_factor: u64::from(kernel.busy_factor.max(1)),
            idle_pull: kernel.idle_pull,
            idle_least: kernel.idle_least.0,
            depth,
            memories: Vec::new(),
            luck: Vec::new(),
            dice: seats.rng.fork("falling idle"),
            crowded: false,
        };
        let odds = kernel.idle_odds;
        if odds < DICE {
            // sd_init: half of DICE calls, so many of them good.
            let luck = Luck { calls: DICE / 2, found: odds / 2, ratio: odds };
            new.luck = vec![luck; depth * seats.cpus.len()];
        }
        for cpu in 0..seats.cpus.len() {
            let mut domains = seats.domains.up(cpu);
            for _ in 0..depth {
                // A machine that has been up for a while looks at any time: `last` is in a past before the beginning.
                let interval = domains.next().map_or(0, |at| new.least(seats, at));
                let ago = rng.below((interval * new.busy_factor).max(1));
                memories.push(Memory { last: ago, interval, failed: 0 });
            }
        }
        new.memories = memories;
        new
    }

    /// The shortest interval of a domain, while idle.
    fn least(&self, seats: &Seats, domain: u32) -> u64 {
        let domain = &seats.domains.all[domain as usize];
        match self.spread {
            Spread::Load => balance_2_6::shortest(domain, self.unit),
            _ => balance_eevdf::shortest(domain, self.unit),
        }
    }

    /// When a CPU looks at a domain next.
    fn due(&self, seats: &Seats, memory: &Memory, domain: u32, busy: bool) -> u64 {
        let interval = if busy {
            match self.spread {
                Spread::Load => {
                    memory.interval * balance_2_6::busy_factor(&seats.domains.all[domain as usize])
                }
                _ => {
                    // e4d32e4d5444: a tick less, so that domains do not look together.
                    let whole = (memory.interval * self.busy_factor).div_ceil(seats.tick) * seats.tick;
                    whole.saturating_sub(seats.tick).max(seats.tick)
                }
            }
        } else {
            memory.interval
        };
        // max_load_balance_interval: a tenth of a second per CPU.
        memory.last + interval.min(100_000_000 * seats.cpus.len() as u64)
    }

    /// Somebody joined or left a CPU.
    pub(crate) fn changed(&mut self, seats: &Seats, cpu: usize) {
        self.crowded |= seats.load(cpu) > 1;
    }

    /// Whom a CPU that just fell idle pulls.
    pub(crate) fn pull(&mut self, seats: &Seats, now: u64, cpu: usize) -> Option<usize> {
        let worth = self.idle_pull && seats.cpus[cpu].idle_mean >= self.idle_least;
        let somebody = seats.waiting.top() > 0;
        // Looks in vain change nothing but luck.
        let any = if self.luck.is_empty() { somebody } else { self.crowded };
        if self.spread == Spread::Nothing || !worth || !any {
            return None;
        }
        for (level, at) in (cpu * self.depth..).zip(seats.domains.up(cpu)) {
            let domain = &seats.domains.all[at as usize];
            if self.spread == Spread::Load && domain.numa {
                continue;
            }
            let mut counts = 1;
            if let Some(luck) = self.luck.get_mut(level).filter(|luck| luck.ratio < DICE) {
                let odds = 1 + luck.ratio;
                if self.dice.below(u64::from(DICE)) as u32 > odds {
                    luck.note(0);
                    continue;
                }
                // One that is made stands for those that are not.
                counts = (DICE + odds / 2) / odds;
            }
            let found = if somebody { take(seats, now, cpu, &domain.cpus, 0) } else { None };
            if let Some(luck) = self.luck.get_mut(level) {
                luck.note(if found.is_some() { counts } else { 0 });
            }
            if at == seats.domains.root {
                self.crowded = somebody;
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The looks that are due at a tick.
    pub(crate) fn balance(&mut self, seats: &Seats, now: u64, cpu: usize, pulled: &mut Vec<usize>) -> u64 {
        if self.spread == Spread::Nothing {
            return u64::MAX;
        }
        let busy = seats.load(cpu) > 0;
        let mut next = u64::MAX;
        let (mut inner, mut around) = (cpu as u32, seats.domains.all[cpu].parent);
        let mut level = cpu * self.depth;
        while let Some(domain) = around {
            let mut memory = self.memories[level];
            // Half a tick of tolerance: intervals are counted in ticks.
            if self.due(seats, &memory, domain, busy) <= now + seats.tick / 2 && pulled.is_empty() {
                memory.last = now;
                if domain == seats.domains.root {
                    self.crowded = seats.waiting.top() > 0;
                }
                let shortest = self.least(seats, domain);
                if looks_for(seats, now, cpu, inner, domain) {
                    let count = self.look(seats, now, cpu, inner, domain, &mut memory, pulled);
                    memory.interval = match count {
                        // Balanced: half as often, up to a limit.
                        None => (memory.interval * 2).min(2 * shortest.max(seats.tick)),
                        Some(_) => shortest,
                    };
                }
            }
            next = next.min(self.due(seats, &memory, domain, busy));
            self.memories[level] = memory;
            level += 1;
            (inner, around) = (domain, seats.domains.all[domain as usize].parent);
        }
        seats.tick_at(next).max(seats.tick_after(now))
    }

    /// One look: `None` where all is balanced, else how many threads were taken.
    #[expect(clippy::too_many_arguments, reason = "a look is at one domain of one CPU at one time")]
    fn look(
        &self,
        seats: &Seats,
        now: u64,
        cpu: usize,
        inner: u32,
        domain: u32,
        memory: &mut Memory,
        pulled: &mut Vec<usize>,
    ) -> Option<usize> {
        if seats.load(cpu) == 0 {
            let cpus = &seats.domains.all[domain as usize].cpus;
            let task = take(seats, now, cpu, cpus, memory.failed).or_else(|| {
                let active = self.spread == Spread::Modern;
                active.then(|| balance_eevdf::active(seats, cpu, cpus, memory)).flatten()
            });
            if task.is_none() && seats.waiting.most(cpus) > 0 {
                memory.failed += 1;
            }
            pulled.extend(task);
            return task.map(|_| 1);
        }
        let excess = match self.spread {
            Spread::Load => balance_2_6::excess(seats, inner, domain),
            _ => balance_eevdf::excess(seats, now, inner, domain),
        };
        let Some(mut excess) = excess else {
            memory.failed = 0;
            return None;
        };
        let before = pulled.len();
        // load_balance moves at most `sched_nr_migrate` threads, 32.
        while pulled.len() < before + 32 {
            let most = match self.spread {
                Spread::Load if excess.threads < 1.0 => break,
                Spread::Load => f64::INFINITY,
                // detach_tasks: a thread is lighter the more often nobody could be moved (shr_bound).
                _ => excess.threads * 2.0_f64.powi(memory.failed.min(30) as i32),
            };
            let chosen = Chosen { failed: memory.failed, but: pulled, most };
            let Some(task) = take_of(seats, now, cpu, &excess.cpus, &chosen) else { break };
            pulled.push(task);
            excess.threads -= if self.spread == Spread::Load { 1.0 } else { seats.burden_of(task, now) };
        }
        let count = pulled.len() - before;
        memory.failed = if count > 0 { 0 } else { memory.failed.saturating_add(1) };
        Some(count)
    }
}

/// Whether a CPU is the one of its group that looks outside, at this domain: the first idle one. Where masks keep all that wait
/// away from that one, it takes somebody for the next (`LBF_DST_PINNED`, `new_dst_cpu`); here the next looks itself.
fn looks_for(seats: &Seats, now: u64, cpu: usize, group: u32, domain: u32) -> bool {
    let cpus = &seats.domains.all[group as usize].cpus;
    let outside = &seats.domains.all[domain as usize].cpus;
    match seats.idle.first(cpus, 1) {
        Some(first) if first == cpu => true,
        Some(_) => {
            let mut before = seats.idle.each(cpus, cpus.start, 1).take_while(|&idle| idle != cpu).take(TRIES);
            seats.load(cpu) == 0
                && seats.waiting.most(outside) > 0
                && before.all(|idle| take(seats, now, idle, outside, NICE_TRIES + 1).is_none())
        }
        None => cpus.clone().find(|&cpu| seats.cpus[cpu].usable) == Some(cpu),
    }
}

/// Which waiting threads are taken.
struct Chosen<'a> {
    /// How often in a row nobody was.
    failed: u32,
    /// These are already.
    but: &'a [usize],
    /// None that counts for more threads than this.
    most: f64,
}

/// A waiting thread of a range of CPUs that may go to another one: from the most crowded CPU, who waits longest in its list.
pub(crate) fn take(seats: &Seats, now: u64, to: usize, from: &Range<usize>, failed: u32) -> Option<usize> {
    take_of(seats, now, to, from, &Chosen { failed, but: &[], most: f64::INFINITY })
}

fn take_of(seats: &Seats, now: u64, to: usize, from: &Range<usize>, of: &Chosen<'_>) -> Option<usize> {
    let most = seats.waiting.most(from);
    if most == 0 {
        return None;
    }
    let best = seats.waiting.around(from, to, most)?;
    let found = candidate(seats, now, to, best, of);
    if found.is_some() || seats.cpus[best].movable as usize > seats.cpus[best].queue.len() {
        return found;
    }
    // Masks or hot data are in the way there: the next crowded ones.
    let mut cpu = from.start;
    for _ in 0..TRIES {
        cpu = seats.waiting.first(&(cpu..from.end), 1)?;
        if let Some(task) = candidate(seats, now, to, cpu, of) {
            return Some(task);
        }
        cpu += 1;
    }
    None
}

fn candidate(seats: &Seats, now: u64, to: usize, from: usize, of: &Chosen<'_>) -> Option<usize> {
    let can = |&task: &usize| {
        let seat = &seats.tasks[task];
        let hot = seat.last > 0 && now.saturating_sub(seat.last) < HOT && of.failed <= NICE_TRIES;
        !hot && !of.but.contains(&task) && seats.burden_of(task, now) <= of.most && seats.allowed(task, to)
    };
    let waiting = seats.cpus[from].queue.iter().map(|&task| task as usize);
    waiting.filter(can).min_by_key(|&task| (seats.tasks[task].since, task))
}

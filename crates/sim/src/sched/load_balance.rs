//! Load balancing of fair schedulers: CPUs pull threads when they fall idle, and periodically at a
//! tick.
//!
//! Each CPU balances the domains around it, the smallest first, each at its own interval: short
//! while the CPU is idle, much longer while it is busy. Of a group of CPUs only one balances for
//! all: the first idle one, or the first. The rule, [`balance_2_6`] or [`balance_eevdf`], defines
//! imbalance and the intervals. This module has the common part: the choice of the thread that is
//! taken, and the rule that a thread which ran just now stays with its cached data.
//!
//! A CPU that falls idle searches while a thread is known to wait on any run queue. Kernels since
//! 6.12.65 and 6.18.5 first decide at random, with odds by how often such searches were successful,
//! starting with one in two; so the history of a machine changes its runs.
//!
//! Sources: kernel/sched.c of 2.6.28 and kernel/sched/fair.c of 6.1 to 6.18: rebalance_domains,
//! should_we_balance, load_balance, can_migrate_task, newidle_balance, nohz_balancer_kick,
//! set_rd_overloaded; commit 33cf66d88306 for the random decision.

use super::imbalance::BalancingHistory;
use super::{Seats, balance_2_6, balance_eevdf};
use crate::kernel::Kernel;
use crate::rng::Rng;
use std::ops::Range;

/// Balancing rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BalanceRule {
    /// The rule of 2008.
    Load,
    /// The rule since 5.10.
    Modern,
    /// No balancing: threads stay.
    Nothing,
}

/// Time since a thread last ran, ns, below which its data are still in the caches where it was:
/// `sysctl_sched_migration_cost`.
const CACHE_HOT_NS: u64 = 500_000;

/// Number of failed passes after which such threads are taken too: `sd->cache_nice_tries`.
const NICE_TRIES: u32 = 1;

/// Highest number of CPUs that are tried before a pass is given up, when masks exclude threads
/// (`sched_nr_migrate_break` bounds the kernel's).
const CPU_TRIES_MAX: usize = 32;

/// Denominator of the odds of an idle search, and number of searches after which the odds are
/// computed again.
pub(crate) const ODDS_SCALE: u32 = 1024;

/// Success of one CPU's idle searches in one domain: `update_newidle_stats`.
#[derive(Clone, Copy, Debug)]
struct PullOdds {
    calls: u32,
    found: u32,
    /// Odds of a search, in units of 1 / [`ODDS_SCALE`].
    ratio: u32,
}

impl PullOdds {
    fn note(&mut self, found: u32) {
        self.calls += 1;
        self.found += found;
        if self.calls >= ODDS_SCALE {
            self.ratio = self.found;
            self.calls /= 2;
            self.found /= 2;
        }
    }
}

/// State of load balancing.
#[derive(Clone, Debug)]
pub(crate) struct LoadBalance {
    pub(crate) spread: BalanceRule,
    pub(crate) unit: u64,
    pub(crate) busy_factor: u64,
    idle_pull: bool,
    idle_least: u64,
    depth: usize,
    histories: Vec<BalancingHistory>,
    /// By CPU and level as `histories`, if searches are decided at random; else empty.
    pull_odds: Vec<PullOdds>,
    dice: Rng,
    /// Whether a thread was seen to wait, and no search of the whole machine has followed:
    /// `rd->overloaded`.
    crowded: bool,
}

impl LoadBalance {
    pub(crate) fn new(kernel: &Kernel, seats: &Seats, spread: BalanceRule) -> Self {
        let depth = seats.domains.depth;
        let mut rng = seats.rng.fork("balancing");
        let mut histories = Vec::with_capacity(depth * seats.cpus.len());
        let mut new = Self {
            spread,
            unit: kernel.balance.0.max(1),
            busy_factor: u64::from(kernel.busy_factor.max(1)),
            idle_pull: kernel.idle_pull,
            idle_least: kernel.idle_least.0,
            depth,
            histories: Vec::new(),
            pull_odds: Vec::new(),
            dice: seats.rng.fork("falling idle"),
            crowded: false,
        };
        let odds = kernel.idle_odds;
        if odds < ODDS_SCALE {
            // sd_init: half of `ODDS_SCALE` calls, of which this share was successful.
            let pull_odds = PullOdds { calls: ODDS_SCALE / 2, found: odds / 2, ratio: odds };
            new.pull_odds = vec![pull_odds; depth * seats.cpus.len()];
        }
        for cpu in 0..seats.cpus.len() {
            let mut domains = seats.domains.up(cpu);
            for _ in 0..depth {
                // On a machine that has been up for a while, the first passes are due at random
                // times, not all at once.
                let interval = domains.next().map_or(0, |at| new.least(seats, at));
                let ago = rng.below((interval * new.busy_factor).max(1));
                histories.push(BalancingHistory { last: ago, interval, failed: 0 });
            }
        }
        new.histories = histories;
        new
    }

    /// Returns the shortest interval of a domain, while idle, ns.
    fn least(&self, seats: &Seats, domain: u32) -> u64 {
        let domain = &seats.domains.all[domain as usize];
        match self.spread {
            BalanceRule::Load => balance_2_6::shortest(domain, self.unit),
            _ => balance_eevdf::shortest(domain, self.unit),
        }
    }

    /// Returns when a CPU balances a domain next, ns.
    fn due(&self, seats: &Seats, history: &BalancingHistory, domain: u32, busy: bool) -> u64 {
        let interval = if busy {
            match self.spread {
                BalanceRule::Load => {
                    history.interval * balance_2_6::busy_factor(&seats.domains.all[domain as usize])
                }
                _ => {
                    // e4d32e4d5444: a tick less, so that domains are not balanced together.
                    let whole = (history.interval * self.busy_factor).div_ceil(seats.tick) * seats.tick;
                    whole.saturating_sub(seats.tick).max(seats.tick)
                }
            }
        } else {
            history.interval
        };
        // max_load_balance_interval: a tenth of a second per CPU.
        history.last + interval.min(100_000_000 * seats.cpus.len() as u64)
    }

    /// Notes that a thread joined or left a CPU.
    pub(crate) fn changed(&mut self, seats: &Seats, cpu: usize) {
        self.crowded |= seats.load(cpu) > 1;
    }

    /// Returns the thread that a CPU pulls when it has just fallen idle.
    pub(crate) fn pull(&mut self, seats: &Seats, now: u64, cpu: usize) -> Option<usize> {
        let worth = self.idle_pull && seats.cpus[cpu].idle_mean >= self.idle_least;
        let any_waits = seats.waiting.top() > 0;
        // Searches without success change nothing except the odds.
        let any = if self.pull_odds.is_empty() { any_waits } else { self.crowded };
        if self.spread == BalanceRule::Nothing || !worth || !any {
            return None;
        }
        for (level, at) in (cpu * self.depth..).zip(seats.domains.up(cpu)) {
            let domain = &seats.domains.all[at as usize];
            if self.spread == BalanceRule::Load && domain.numa {
                continue;
            }
            let mut counts = 1;
            if let Some(pull_odds) =
                self.pull_odds.get_mut(level).filter(|pull_odds| pull_odds.ratio < ODDS_SCALE)
            {
                let odds = 1 + pull_odds.ratio;
                if self.dice.below(u64::from(ODDS_SCALE)) as u32 > odds {
                    pull_odds.note(0);
                    continue;
                }
                // A search that is made represents those that are not.
                counts = (ODDS_SCALE + odds / 2) / odds;
            }
            let found = if any_waits { take(seats, now, cpu, &domain.cpus, 0) } else { None };
            if let Some(pull_odds) = self.pull_odds.get_mut(level) {
                pull_odds.note(if found.is_some() { counts } else { 0 });
            }
            if at == seats.domains.root {
                self.crowded = any_waits;
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Runs the balancing passes that are due at a tick. Returns when the next one is due, ns.
    pub(crate) fn balance(&mut self, seats: &Seats, now: u64, cpu: usize, pulled: &mut Vec<usize>) -> u64 {
        if self.spread == BalanceRule::Nothing {
            return u64::MAX;
        }
        let busy = seats.load(cpu) > 0;
        let mut next = u64::MAX;
        let (mut inner, mut around) = (cpu as u32, seats.domains.all[cpu].parent);
        let mut level = cpu * self.depth;
        while let Some(domain) = around {
            let mut history = self.histories[level];
            // Half a tick of tolerance: intervals are counted in ticks.
            if self.due(seats, &history, domain, busy) <= now + seats.tick / 2 && pulled.is_empty() {
                history.last = now;
                if domain == seats.domains.root {
                    self.crowded = seats.waiting.top() > 0;
                }
                let shortest = self.least(seats, domain);
                if balances_for_group(seats, now, cpu, inner, domain) {
                    let count = self.balance_domain(seats, now, cpu, inner, domain, &mut history, pulled);
                    history.interval = match count {
                        // Balanced: half as often, up to a limit.
                        None => (history.interval * 2).min(2 * shortest.max(seats.tick)),
                        Some(_) => shortest,
                    };
                }
            }
            next = next.min(self.due(seats, &history, domain, busy));
            self.histories[level] = history;
            level += 1;
            (inner, around) = (domain, seats.domains.all[domain as usize].parent);
        }
        seats.tick_at(next).max(seats.tick_after(now))
    }

    /// Runs one pass. Returns the number of threads taken, or `None` if all is balanced.
    #[expect(clippy::too_many_arguments, reason = "a pass balances one domain of one CPU at one time")]
    fn balance_domain(
        &self,
        seats: &Seats,
        now: u64,
        cpu: usize,
        inner: u32,
        domain: u32,
        history: &mut BalancingHistory,
        pulled: &mut Vec<usize>,
    ) -> Option<usize> {
        if seats.load(cpu) == 0 {
            let cpus = &seats.domains.all[domain as usize].cpus;
            let task = take(seats, now, cpu, cpus, history.failed).or_else(|| {
                let active = self.spread == BalanceRule::Modern;
                active.then(|| balance_eevdf::active(seats, cpu, cpus, history)).flatten()
            });
            if task.is_none() && seats.waiting.most(cpus) > 0 {
                history.failed += 1;
            }
            pulled.extend(task);
            return task.map(|_| 1);
        }
        let excess = match self.spread {
            BalanceRule::Load => balance_2_6::excess(seats, inner, domain),
            _ => balance_eevdf::excess(seats, now, inner, domain),
        };
        let Some(mut excess) = excess else {
            history.failed = 0;
            return None;
        };
        let before = pulled.len();
        // load_balance moves at most `sched_nr_migrate` threads, 32.
        while pulled.len() < before + 32 {
            let most = match self.spread {
                BalanceRule::Load if excess.threads < 1.0 => break,
                BalanceRule::Load => f64::INFINITY,
                // detach_tasks: each failed pass makes a thread count as lighter (shr_bound).
                _ => excess.threads * 2.0_f64.powi(history.failed.min(30) as i32),
            };
            let chosen = PullFilter { failed: history.failed, except: pulled, most };
            let Some(task) = take_of(seats, now, cpu, &excess.cpus, &chosen) else { break };
            pulled.push(task);
            excess.threads -= if self.spread == BalanceRule::Load { 1.0 } else { seats.burden_of(task, now) };
        }
        let count = pulled.len() - before;
        history.failed = if count > 0 { 0 } else { history.failed.saturating_add(1) };
        Some(count)
    }
}

/// Returns whether a CPU is the one of its group that balances for the group in this domain: the
/// first idle one. If masks exclude all waiting threads from the first idle CPU, the kernel takes a
/// thread for the next (`LBF_DST_PINNED`, `new_dst_cpu`); here the next CPU balances itself.
fn balances_for_group(seats: &Seats, now: u64, cpu: usize, group: u32, domain: u32) -> bool {
    let cpus = &seats.domains.all[group as usize].cpus;
    let outside = &seats.domains.all[domain as usize].cpus;
    match seats.idle.first(cpus, 1) {
        Some(first) if first == cpu => true,
        Some(_) => {
            let mut before =
                seats.idle.each(cpus, cpus.start, 1).take_while(|&idle| idle != cpu).take(CPU_TRIES_MAX);
            seats.load(cpu) == 0
                && seats.waiting.most(outside) > 0
                && before.all(|idle| take(seats, now, idle, outside, NICE_TRIES + 1).is_none())
        }
        None => cpus.clone().find(|&cpu| seats.cpus[cpu].usable) == Some(cpu),
    }
}

/// Conditions on the waiting threads that are taken.
struct PullFilter<'a> {
    /// Number of failed passes in a row.
    failed: u32,
    /// Threads that are already taken.
    except: &'a [usize],
    /// Highest weight of a thread, in threads.
    most: f64,
}

/// Returns a waiting thread of a range of CPUs that may go to another CPU: from the most crowded
/// CPU, the one that has waited longest.
pub(crate) fn take(seats: &Seats, now: u64, to: usize, from: &Range<usize>, failed: u32) -> Option<usize> {
    take_of(seats, now, to, from, &PullFilter { failed, except: &[], most: f64::INFINITY })
}

fn take_of(seats: &Seats, now: u64, to: usize, from: &Range<usize>, of: &PullFilter<'_>) -> Option<usize> {
    let most = seats.waiting.most(from);
    if most == 0 {
        return None;
    }
    let best = seats.waiting.around(from, to, most)?;
    let found = candidate(seats, now, to, best, of);
    if found.is_some() || seats.cpus[best].movable as usize > seats.cpus[best].queue.len() {
        return found;
    }
    // Masks or hot data exclude the threads there: try the next crowded CPUs.
    let mut cpu = from.start;
    for _ in 0..CPU_TRIES_MAX {
        cpu = seats.waiting.first(&(cpu..from.end), 1)?;
        if let Some(task) = candidate(seats, now, to, cpu, of) {
            return Some(task);
        }
        cpu += 1;
    }
    None
}

fn candidate(seats: &Seats, now: u64, to: usize, from: usize, of: &PullFilter<'_>) -> Option<usize> {
    let can = |&task: &usize| {
        let seat = &seats.tasks[task];
        let hot = seat.last > 0 && now.saturating_sub(seat.last) < CACHE_HOT_NS && of.failed <= NICE_TRIES;
        !hot && !of.except.contains(&task) && seats.burden_of(task, now) <= of.most && seats.allowed(task, to)
    };
    let waiting = seats.cpus[from].queue.iter().map(|&task| task as usize);
    waiting.filter(can).min_by_key(|&task| (seats.tasks[task].since, task))
}

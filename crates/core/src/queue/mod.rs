//! Queue of runs that wait for cores: their order, and the cores that later runs leave to earlier
//! ones.
//!
//! **Unit.** One core, as a set of CPUs. It is free if no run holds any of its CPUs.
//!
//! **Problem.** A run that waits for many cores must get them, although small requests arrive all
//! the time and could take each core that becomes free. Cores that the large request cannot use yet
//! should not stay idle. The run lengths are unknown.
//!
//! **Idea.** A run may start before the runs ahead of it (*backfill*) only on cores whose loss
//! cannot delay any of them. Holds end as a whole, in an unknown order, so the numbers of cores
//! that can be free for a waiter at some moment are the sums of subsets of the holds. A waiter that
//! needs `c` cores loses nothing by `g` cores if no such number is from `c` to `c + g - 1`: as soon
//! as it could start with these cores, it can start without them.
//!
//! **Terms.** The *line* is the order of the waiters. Cores are *kept* for a waiter if the runs
//! behind it must not take them. A waiter is *stopped* if its process no longer polls.
//!
//! **Properties** (tests.rs compares them with simulations and with all subsets of holds):
//! - The first waiter starts at the time at which it would start if there were no later waiter.
//! - If all waiters may use the same cores, this is true of each of them: it starts at the time at
//!   which it would start without those behind it.
//! - One waiter alone keeps as few cores as this permits.
//! - A waiter is overtaken in the line only by runs that arrive within a bounded time after it
//!   ([`overtaking_bound`]), so ageing needs no changes of the line.
//! - Runs that do not wait leave these cores to each waiter that has waited for
//!   [`QueueRules::reserve_after`]. A request that can be met on an empty machine therefore starts
//!   as soon as the runs that hold its cores at that time have ended.
//! - A stopped waiter keeps no cores and delays no other run.

use crate::set::CpuSet;
use std::time::Duration;

/// Head start that one level of priority gives. Chosen: a run of the next lower priority waits ten
/// minutes longer at most.
pub const PRIORITY_STEP: Duration = Duration::from_secs(600);

/// Delay in the line of a user who uses as many cores as the machine has, under
/// [`QueueRules::fair_share`]. Chosen: one level of priority.
pub const SHARE_STEP: Duration = PRIORITY_STEP;

/// Largest use that counts under [`QueueRules::fair_share`], in machines. Chosen: bounds the delay
/// of a user with many requests to one hour.
pub const SHARE_MAX: u32 = 6;

/// Largest priority, and the negative of the smallest.
pub const PRIORITY_MAX: i32 = 100;

/// Default of [`QueueRules::reserve_after`]. Chosen: longer than a short run, shorter than the
/// patience of a user.
pub const RESERVE_AFTER: Duration = Duration::from_secs(10);

/// Cores that a waiting run needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Demand {
    /// CPUs on which it may run.
    pub cpus: CpuSet,
    /// Number of cores; `None` if the request is not a plain number (units of the machine, a
    /// stride, one kind of core). All of `cpus` are then kept.
    pub cores: Option<u32>,
}

/// A run in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Number of its ticket. Tickets are drawn in ascending order.
    pub ticket: u64,
    /// Claimed time of arrival since boot; `None` if unknown. See [`line()`] for its use.
    pub since: Option<Duration>,
    /// Number of its user; `None` if unknown.
    pub user: Option<u32>,
    /// Cores that it needs; `None` if unknown: all cores are then kept.
    pub demand: Option<Demand>,
    /// Priority that it claims; larger ones come earlier.
    pub priority: i32,
    /// Whether its process no longer polls.
    pub stopped: bool,
}

/// CPUs that are given back together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldTogether {
    /// The CPUs.
    pub cpus: CpuSet,
    /// Number of the user; `None` if unknown.
    pub user: Option<u32>,
}

/// Cores of the machine and their holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// The cores, each with all its CPUs.
    pub cores: Vec<CpuSet>,
    /// Holds that end as a whole.
    pub holds: Vec<HeldTogether>,
    /// Held CPUs that may become free in any parts: of shared holds and of unknown holders.
    pub loose: CpuSet,
}

/// Rules of a site for its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueRules {
    /// Time after which runs that do not wait leave the cores of a waiter to it.
    pub reserve_after: Duration,
    /// Largest priority of users other than root.
    pub priority_max: i32,
    /// Whether users who use many cores come later in the line.
    pub fair_share: bool,
}

impl Default for QueueRules {
    fn default() -> Self {
        Self { reserve_after: RESERVE_AFTER, priority_max: 0, fair_share: false }
    }
}

/// A run that would like to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applicant {
    /// The waiter with this ticket.
    Ticket(u64),
    /// A run that is not in the queue.
    Passing,
}

/// Cores that a run must leave to others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Precedence {
    /// Tickets of the runs ahead, in the order of the line, without the stopped ones. For a run
    /// that is not in the queue: those that have waited long enough.
    pub ahead: Vec<u64>,
    /// Free CPUs that it must not take.
    pub kept: CpuSet,
    /// Ticket of the first run for which CPUs are kept.
    pub kept_for: Option<u64>,
}

/// Returns the indices of the waiters in the order of the line, the stopped ones included.
///
/// The order is that of arrival, earlier by [`PRIORITY_STEP`] for each level of priority and, under
/// [`QueueRules::fair_share`], later by the user's share of the cores. Tickets prove the order of
/// arrival and claims do not: no waiter is taken to be earlier than one with a lower ticket, or
/// later than `now`.
pub fn line(waiters: &[Waiter], at: &Occupancy, rules: &QueueRules, now: Duration) -> Vec<usize> {
    let mut order: Vec<usize> = (0..waiters.len()).collect();
    order.sort_by_key(|&index| waiters[index].ticket);
    let mut keys: Vec<(i128, u64, usize)> = Vec::new();
    for (index, arrived) in arrivals(waiters, now) {
        let waiter = &waiters[index];
        let priority = i128::from(granted_priority(waiter, rules));
        let earlier: Vec<&Waiter> = order
            .iter()
            .map(|&index| &waiters[index])
            .take_while(|other| other.ticket < waiter.ticket)
            .collect();
        let delay = if rules.fair_share { share_delay(waiter, &earlier, at) } else { 0 };
        let key = nanos(arrived) - priority * nanos(PRIORITY_STEP) + delay;
        keys.push((key, waiter.ticket, index));
    }
    keys.sort_unstable();
    keys.into_iter().map(|(_, _, index)| index).collect()
}

/// Returns the longest time after a waiter's arrival in which a later run can arrive and come
/// before it, if their granted priorities differ by `levels`.
pub fn overtaking_bound(levels: u32, rules: &QueueRules) -> Duration {
    let share = if rules.fair_share { SHARE_STEP * SHARE_MAX } else { Duration::ZERO };
    PRIORITY_STEP * levels + share
}

/// Returns the priority that a waiter's user may have.
fn granted_priority(waiter: &Waiter, rules: &QueueRules) -> i32 {
    let most = if waiter.user == Some(0) { PRIORITY_MAX } else { rules.priority_max.clamp(0, PRIORITY_MAX) };
    waiter.priority.clamp(-PRIORITY_MAX, most)
}

/// Returns the indices of the waiters in the order of their tickets, with their times of arrival.
fn arrivals(waiters: &[Waiter], now: Duration) -> Vec<(usize, Duration)> {
    let mut order: Vec<usize> = (0..waiters.len()).collect();
    order.sort_by_key(|&index| waiters[index].ticket);
    let mut latest = Duration::ZERO;
    let arrival = |index: usize| {
        latest = waiters[index].since.unwrap_or(latest).min(now).max(latest);
        (index, latest)
    };
    order.into_iter().map(arrival).collect()
}

/// Returns the delay of a waiter in nanoseconds that its user's share of the cores causes: the
/// cores that the user holds, and those that the user's earlier tickets want.
fn share_delay(waiter: &Waiter, earlier: &[&Waiter], at: &Occupancy) -> i128 {
    let Some(user) = waiter.user else { return 0 };
    let held: CpuSet =
        at.holds.iter().filter(|hold| hold.user == Some(user)).flat_map(|hold| hold.cpus.iter()).collect();
    let held = at.cores.iter().filter(|core| core.intersects(&held)).count() as u128;
    let of_user = earlier.iter().filter(|other| other.user == Some(user));
    let wanted: u128 = of_user.map(|other| wanted_cores(other, at) as u128).sum();
    let all = at.cores.len().max(1) as u128;
    let most = SHARE_STEP.as_nanos() * u128::from(SHARE_MAX);
    i128::try_from((SHARE_STEP.as_nanos() * (held + wanted) / all).min(most)).unwrap_or(0)
}

fn nanos(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX / 4)
}

/// Returns the largest number of cores that a waiter may take.
fn wanted_cores(waiter: &Waiter, at: &Occupancy) -> usize {
    let Some(demand) = &waiter.demand else { return at.cores.len() };
    demand.cores.map_or_else(|| eligible(&demand.cpus, at).count(), |cores| cores as usize)
}

fn eligible<'a>(cpus: &'a CpuSet, at: &'a Occupancy) -> impl Iterator<Item = &'a CpuSet> {
    at.cores.iter().filter(|core| core.intersects(cpus))
}

/// Returns the cores that an applicant must leave to the waiting runs.
pub fn precedence(
    waiters: &[Waiter],
    applicant: Applicant,
    at: &Occupancy,
    rules: &QueueRules,
    now: Duration,
) -> Precedence {
    let arrived: Vec<(usize, Duration)> = arrivals(waiters, now);
    let waits_long = |index: usize| {
        let since = arrived.iter().find(|(other, _)| *other == index).map_or(now, |(_, since)| *since);
        now.saturating_sub(since) >= rules.reserve_after
    };
    let mut ahead: Vec<&Waiter> = Vec::new();
    for index in line(waiters, at, rules, now) {
        let waiter = &waiters[index];
        if applicant == Applicant::Ticket(waiter.ticket) {
            break;
        }
        if !waiter.stopped && (applicant != Applicant::Passing || waits_long(index)) {
            ahead.push(waiter);
        }
    }
    let mut result = Precedence::default();
    let mut wanted_before = 0;
    for waiter in ahead {
        let kept = kept(waiter.demand.as_ref(), wanted_before, at);
        if result.kept_for.is_none() && !kept.is_empty() {
            result.kept_for = Some(waiter.ticket);
        }
        result.kept = result.kept.union(&kept);
        result.ahead.push(waiter.ticket);
        wanted_before += wanted_cores(waiter, at);
    }
    result
}

/// Returns the free CPUs that are kept for one waiter. The runs ahead of it may take up to
/// `wanted_before` cores first.
fn kept(demand: Option<&Demand>, wanted_before: usize, at: &Occupancy) -> CpuSet {
    let everything = at.cores.iter().fold(CpuSet::new(), |sum, core| sum.union(core));
    let cpus = demand.map_or(&everything, |demand| &demand.cpus);
    let held = at.holds.iter().fold(at.loose.clone(), |sum, hold| sum.union(&hold.cpus));
    let free: Vec<&CpuSet> = eligible(cpus, at).filter(|core| !core.intersects(&held)).collect();
    let spare = match demand.and_then(|demand| demand.cores) {
        Some(cores) => spare(cores as usize, &possible_counts(cpus, wanted_before, at)).min(free.len()),
        None => 0,
    };
    free[..free.len() - spare].iter().fold(CpuSet::new(), |sum, core| sum.union(core))
}

/// Returns how many cores a waiter for `cores` cores can lose without a delay: the distance to the
/// smallest possible number of free cores that is enough.
fn spare(cores: usize, possible: &[bool]) -> usize {
    match possible.iter().skip(cores).position(|&possible| possible) {
        Some(distance) => distance,
        None => usize::MAX, // It cannot be met here at all.
    }
}

/// Returns for each number whether that number of eligible cores can be free at some moment: now,
/// or after any of the holds have ended, less up to `wanted_before` cores that others took
/// meanwhile.
fn possible_counts(cpus: &CpuSet, wanted_before: usize, at: &Occupancy) -> Vec<bool> {
    let mut free = 0;
    let mut loose = 0;
    let mut together = vec![0; at.holds.len()];
    let mut all = 0;
    for core in eligible(cpus, at) {
        all += 1;
        let mut holders = at.holds.iter().enumerate().filter(|(_, hold)| hold.cpus.intersects(core));
        match (holders.next(), holders.next(), core.intersects(&at.loose)) {
            (None, _, false) => free += 1,
            (Some((holder, _)), None, false) => together[holder] += 1,
            _ => loose += 1,
        }
    }
    let mut possible = vec![false; all + 1];
    possible[free] = true;
    for count in together.into_iter().chain(std::iter::repeat_n(1, loose)).filter(|&count| count > 0) {
        for sum in (count..=all).rev() {
            possible[sum] |= possible[sum - count];
        }
    }
    let mut taken = usize::MAX;
    for possible in possible.iter_mut().rev() {
        taken = if *possible { 0 } else { taken.saturating_add(1) };
        *possible = taken <= wanted_before;
    }
    possible
}

#[cfg(test)]
mod tests;

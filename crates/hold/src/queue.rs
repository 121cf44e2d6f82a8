//! Queue of a launch: its claim, the occupancy that the ledger shows, and the lines that name the
//! cores for which it waits. The decisions are [`trimtab_core::queue`]'s and
//! [`trimtab_launch::demand()`]'s.

use crate::site_facts::LedgerPosition;
use std::time::Duration;
use trimtab_core::place::Amount;
use trimtab_core::queue::{Applicant, Demand, HeldTogether, Occupancy, Precedence, QueueRules, precedence};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_core::words::plural;
use trimtab_front::process_env::World;
use trimtab_launch::LaunchRequest;
use trimtab_linux::ledger::{Hold, Holder, LedgerError, LedgerView, Mode, QueuedRun, TicketClaim};
use trimtab_linux::users::Users;

/// Returns the record of a waiting launch.
pub fn claim(request: &LaunchRequest, demand: Demand, priority: i32, holder: Holder) -> TicketClaim {
    let cores = match request.place.amount {
        Amount::Cores(count) => Some(count),
        _ => None,
    };
    TicketClaim { holder, demand: Some(demand), cores, priority }
}

/// Returns the warning about a priority that the site's rules do not grant.
pub fn priority_beyond(asked: Option<i32>, rules: &QueueRules) -> Option<String> {
    let most = rules.priority_max;
    let beyond = asked.filter(|asked| *asked > most && !rustix::process::getuid().is_root())?;
    Some(format!(
        "priority {beyond} counts as {most}: the site's rules (max-priority in site.toml) grant no more"
    ))
}

/// The queue at a position in the ledger, and the rules in force.
#[derive(Debug)]
pub struct Line<'a> {
    /// The environment.
    pub world: &'a World,
    /// The machine.
    pub machine: &'a Machine,
    /// The position.
    pub stand: &'a LedgerPosition,
    /// The site's rules.
    pub rules: QueueRules,
}

impl Line<'_> {
    /// Returns the cores that an applicant must leave to the runs in the queue.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn precedence(
        &self,
        view: &LedgerView,
        runs: &[QueuedRun],
        applicant: Applicant,
    ) -> Result<Precedence, LedgerError> {
        let waiters: Vec<_> = runs.iter().map(QueuedRun::waiter).collect();
        let at = self.occupancy(view)?;
        Ok(precedence(&waiters, applicant, &at, &self.rules, self.world.now()))
    }

    /// Returns the cores at this position and their holds.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn occupancy(&self, view: &LedgerView) -> Result<Occupancy, LedgerError> {
        let holders = view.holders(self.stand.level, &self.stand.within)?;
        let mut at = Occupancy { loose: holders.unknown, ..Occupancy::default() };
        for Hold { mode, cpus, holder, .. } in holders.known {
            match mode {
                Mode::Exclusive => at.holds.push(HeldTogether { cpus, user: Some(holder.uid) }),
                Mode::Shared => at.loose = at.loose.union(&cpus),
            }
        }
        let cores = self.machine.cores().iter().map(|core| self.machine.cpus_of(&core.pus));
        at.cores =
            cores.map(|core| core.intersection(&self.stand.within)).filter(|core| !core.is_empty()).collect();
        Ok(at)
    }

    /// Returns the line for a run that waits behind `ahead` others: its position, and the holds
    /// that it waits for.
    pub fn estimate(&self, view: &LedgerView, ahead: usize, wanted: &CpuSet) -> String {
        let place =
            if ahead == 0 { "first in line".to_owned() } else { format!("{} in line", ordinal(ahead + 1)) };
        let holders = view.holders(self.stand.level, &self.stand.within).unwrap_or_default();
        let mut holds: Vec<&Hold> =
            holders.known.iter().filter(|hold| hold.cpus.intersects(wanted)).collect();
        holds.sort_by_key(|hold| hold.holder.since);
        let Some(first) = holds.first() else { return place };
        let users = Users::read(&self.world.root.join("etc/passwd")).unwrap_or_default();
        let holder = &first.holder;
        let age = in_words(self.world.now().saturating_sub(holder.since));
        let named = format!(
            "CPUs {} are held since {age} by PID {} ({}, {})",
            first.cpus,
            holder.pid,
            users.name(holder.uid),
            holder.label
        );
        match holds.len() - 1 {
            0 => format!("{place}; {named}"),
            more => format!("{place}; {named}, others by {}", plural(more, "more run")),
        }
    }

    /// Returns the reason why free cores are not given to a launch.
    pub fn kept_for(&self, runs: &[QueuedRun], given: &Precedence) -> String {
        let cpus = &given.kept;
        let claim =
            runs.iter().find(|run| Some(run.ticket) == given.kept_for).and_then(|run| run.claim.as_ref());
        let Some(TicketClaim { holder, cores, .. }) = claim else {
            return format!("CPUs {cpus} are free, and kept for a run that waits");
        };
        let users = Users::read(&self.world.root.join("etc/passwd")).unwrap_or_default();
        let age = in_words(self.world.now().saturating_sub(holder.since));
        let wanted =
            cores.map_or_else(String::new, |cores| format!(" for {}", plural(cores as usize, "core")));
        format!(
            "CPUs {cpus} are free, and kept for PID {} ({}, {}), which waits{wanted} since {age}",
            holder.pid,
            users.name(holder.uid),
            holder.label
        )
    }
}

/// Returns the order of the runs in the queue for people: each with its position, from 1, or `None`
/// if it is stopped.
pub fn positions(
    runs: &[QueuedRun],
    at: &Occupancy,
    rules: &QueueRules,
    now: Duration,
) -> Vec<(usize, Option<usize>)> {
    let waiters: Vec<_> = runs.iter().map(QueuedRun::waiter).collect();
    let mut place = 0;
    let position = |index: usize| {
        let moving = !runs[index].stopped;
        place += usize::from(moving);
        (index, moving.then_some(place))
    };
    trimtab_core::queue::line(&waiters, at, rules, now).into_iter().map(position).collect()
}

/// Returns the reason why no run is known that holds some of the CPUs at a position, with the
/// processes that lock them; `None` if all holders are known.
pub fn unknown_lockers(view: &LedgerView, stand: &LedgerPosition) -> Option<String> {
    let unknown = view.holders(stand.level, &stand.within).ok()?.unknown;
    if unknown.is_empty() {
        return None;
    }
    let own = std::process::id();
    let pids = view.lockers(stand.level, &unknown).unwrap_or_default();
    let pids: Vec<String> = pids.iter().filter(|&&pid| pid != own).map(ToString::to_string).collect();
    Some(match pids.len() {
        0 => format!(
            "CPUs {unknown} are locked by a process that is not known as a run; root sees its PID in trimtab ps"
        ),
        _ => format!("CPUs {unknown} are locked by PID {}, which is not known as a run", pids.join(", ")),
    })
}

/// `2nd`, `3rd`, `11th`.
fn ordinal(number: usize) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

/// `42 s`, `3 min`, `2 h`, `3 d`.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_ages_are_read_aloud() {
        let words: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111].map(ordinal).to_vec();
        assert_eq!(words.join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 101st 111th");
        let ages = [0, 119, 120, 7_199, 7_200, 172_799, 172_800]
            .map(|seconds| in_words(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    }
}

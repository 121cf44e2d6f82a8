//! Budget of a run as text and JSON: the processes that take part, the teams that were made
//! smaller, and the cores that processes lent each other.

use serde::Serialize;
use std::path::Path;
use trimtab_core::budget::page::{Content, Owner, Sums};
use trimtab_core::words::plural;
use trimtab_linux::budget::{BudgetPage, lives};
use trimtab_linux::process::Pid;

/// Most processes that a line names.
const NAMED_MAX: usize = 4;

/// Budget of a run, up to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BudgetReport {
    /// Threads that the processes of the run may compute with together.
    pub cores: u32,
    /// Programs that took part so far.
    pub programs: u64,
    /// Teams that were opened.
    pub teams: u64,
    /// Teams that were made smaller than their program requested.
    pub bounded: u64,
    /// Requested threads that these teams did not get.
    pub refused: u64,
    /// Threads that teams got beyond their process's equal part: lent by other processes.
    pub lent: u64,
}

impl BudgetReport {
    /// Returns the report of a page at the end of the run.
    pub fn of(page: &Content) -> Self {
        let Sums { teams, bounded, refused, borrowed } = page.sums();
        Self { cores: page.cores, programs: page.programs, teams, bounded, refused, lent: borrowed }
    }

    /// Returns the line of a report after a run.
    pub fn summary(&self) -> String {
        format!("budget of {}: {}", plural(self.cores, "thread"), self.so_far())
    }

    fn so_far(&self) -> String {
        format!("{} in {}; {}", plural(self.teams, "team"), plural(self.programs, "program"), self.changes())
    }

    fn changes(&self) -> String {
        let Self { bounded, refused, lent, .. } = self;
        let smaller = match bounded {
            0 => "none smaller than asked for".to_owned(),
            _ => format!("{bounded} smaller than asked for ({} refused)", plural(*refused, "thread")),
        };
        if *lent == 0 {
            smaller
        } else {
            format!("{smaller}, {} lent between processes", plural(*lent, "thread"))
        }
    }
}

/// Budget of a run that lives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LiveBudget {
    /// Sums up to now.
    #[serde(flatten)]
    pub sums: BudgetReport,
    /// Threads in the open teams of its processes.
    pub computing: u32,
    /// Processes that have open teams, or wanted threads lately.
    pub processes: Vec<BudgetProcess>,
}

/// Part of a process in the budget of its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct BudgetProcess {
    /// The process.
    pub pid: u32,
    /// Threads in its open teams.
    pub computing: u32,
    /// Threads that it wanted lately at a time, if it got all.
    pub wants: u32,
}

impl LiveBudget {
    /// Reads the budget of the run that began with this process. `None` if it has none, or if this
    /// process may not read it: it is another user's.
    pub fn of_run(proc: &Path, holder: Pid) -> Option<Self> {
        let page = BudgetPage::of_run(proc, holder)?.read()?;
        Some(Self::of(&page, |owner| lives(proc, owner)))
    }

    /// Returns the budget of a page. `lives`: whether a process lives; others have no part in it.
    fn of(page: &Content, lives: impl Fn(Owner) -> bool) -> Self {
        let takes_part = page.members.iter().filter(|member| lives(member.owner));
        let part = takes_part.map(|member| BudgetProcess {
            pid: member.owner.pid,
            computing: member.state.computing,
            wants: member.state.wants,
        });
        let processes: Vec<_> = part.filter(|part| part.computing > 0 || part.wants > 0).collect();
        let computing = processes.iter().fold(0u32, |sum, part| sum.saturating_add(part.computing));
        Self { sums: BudgetReport::of(page), computing, processes }
    }

    /// Returns the phrase for people.
    pub fn phrase(&self) -> String {
        let Self { sums, computing, processes } = self;
        let computes = processes.iter().filter(|part| part.computing > 0);
        let mut each: Vec<String> =
            computes.map(|part| format!("pid {}: {}", part.pid, part.computing)).collect();
        let more = each.len().saturating_sub(NAMED_MAX);
        each.truncate(NAMED_MAX);
        if more > 0 {
            each.push(format!("{more} more"));
        }
        let each = if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) };
        let so_far = sums.so_far();
        format!("{computing} of {} compute{each}; {so_far}", plural(sums.cores, "thread"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::budget::page::{Member, State};

    #[test]
    fn a_budget_is_printed_in_one_line() {
        let member = |pid, computing| Member {
            owner: Owner { pid, started: 1 },
            state: State { computing, wants: 4, teams: 3 },
            sums: Sums { teams: 3, bounded: 2, refused: 5, borrowed: 1 },
        };
        let members = vec![member(1, 2), member(2, 0), member(3, 4)];
        let page = Content { cores: 4, members, ended: Sums { teams: 1, ..Sums::default() }, programs: 5 };
        assert_eq!(
            BudgetReport::of(&page).summary(),
            "budget of 4 threads: 10 teams in 5 programs; 6 smaller than asked for (15 threads refused), 3 threads lent between processes"
        );
        let live = LiveBudget::of(&page, |owner| owner.pid != 3);
        let part = |pid, computing| BudgetProcess { pid, computing, wants: 4 };
        assert_eq!((live.computing, &live.processes[..]), (2, &[part(1, 2), part(2, 0)][..]));
        assert_eq!(
            live.phrase(),
            "2 of 4 threads compute (pid 1: 2); 10 teams in 5 programs; 6 smaller than asked for (15 threads refused), 3 threads lent between processes"
        );
        let many = Content { members: (1..8).map(|pid| member(pid, 1)).collect(), ..page.clone() };
        let phrase = LiveBudget::of(&many, |_| true).phrase();
        let named = "7 of 4 threads compute (pid 1: 1, pid 2: 1, pid 3: 1, pid 4: 1, 3 more); ";
        assert!(phrase.starts_with(named), "{phrase}");
        let none = Content { members: vec![], programs: 1, ..page };
        assert!(
            LiveBudget::of(&none, |_| true)
                .phrase()
                .starts_with("0 of 4 threads compute; 1 team in 1 program; ")
        );
        assert_eq!(
            BudgetReport::of(&none).summary(),
            "budget of 4 threads: 1 team in 1 program; none smaller than asked for"
        );
    }
}

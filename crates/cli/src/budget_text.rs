//! Budget of a run as text and JSON: the processes that take part, the teams that were made smaller,
//! and the cores that processes lent each other.

use serde::Serialize;
use trimtab_core::budget::page::{Content, Sums};
use trimtab_core::words::plural;

/// Budget of a run, up to now or up to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BudgetReport {
    /// Threads that the processes of the run may compute with together.
    pub cores: u32,
    /// Programs that took part so far.
    pub programs: u64,
    /// Threads in teams now; 0 when the run has ended.
    pub computing: u32,
    /// Processes with a team now.
    pub processes: usize,
    /// Teams that were opened.
    pub teams: u64,
    /// Teams that were made smaller than their program asked for.
    pub bounded: u64,
    /// Threads that these did not get.
    pub refused: u64,
    /// Threads that teams got beyond their process's equal part: lent by other processes.
    pub lent: u64,
}

impl BudgetReport {
    /// Returns the report of a page, at the end of the run: processes that ended inside a team
    /// compute no more.
    pub fn of(page: &Content) -> Self {
        Self::with(page, |_| false)
    }

    /// Returns the report of a page while the run lasts. `lives` says whether a process does.
    pub fn now(page: &Content, lives: impl Fn(u32) -> bool) -> Self {
        Self::with(page, lives)
    }

    fn with(page: &Content, lives: impl Fn(u32) -> bool) -> Self {
        let Sums { teams, bounded, refused, borrowed } = page.sums();
        let computing: Vec<u32> = page
            .members
            .iter()
            .filter(|member| member.state.computing > 0 && lives(member.owner.pid))
            .map(|member| member.state.computing)
            .collect();
        Self {
            cores: page.cores,
            programs: page.programs,
            computing: computing.iter().fold(0, |sum, threads| sum.saturating_add(*threads)),
            processes: computing.len(),
            teams,
            bounded,
            refused,
            lent: borrowed,
        }
    }

    /// Returns the line of a report after a run.
    pub fn summary(&self) -> String {
        format!(
            "budget of {}: {} in {}; {}",
            plural(self.cores, "thread"),
            plural(self.teams, "team"),
            plural(self.programs, "program"),
            self.changes()
        )
    }

    /// Returns the line of a run that lasts.
    pub fn line(&self) -> String {
        format!(
            "budget of {}: {} in {}; {}",
            plural(self.cores, "thread"),
            plural(self.computing, "computing thread"),
            plural(self.processes as u64, "process"),
            self.changes()
        )
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

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::budget::page::{Member, Owner, State};

    #[test]
    fn a_budget_is_told_in_one_line() {
        let member = |pid, computing| Member {
            owner: Owner { pid, started: 1 },
            state: State { computing, wants: 4, teams: 3 },
            sums: Sums { teams: 3, bounded: 2, refused: 5, borrowed: 1 },
        };
        let members = vec![member(1, 2), member(2, 0), member(3, 4)];
        let page = Content { cores: 4, members, ended: Sums { teams: 1, ..Sums::default() }, programs: 5 };
        assert_eq!(
            BudgetReport::now(&page, |pid| pid != 3).line(),
            "budget of 4 threads: 2 computing threads in 1 process; 6 smaller than asked for (15 threads refused), 3 threads lent between processes"
        );
        assert_eq!(
            BudgetReport::of(&page).summary(),
            "budget of 4 threads: 10 teams in 5 programs; 6 smaller than asked for (15 threads refused), 3 threads lent between processes"
        );
        let none = Content { members: vec![], programs: 1, ..page };
        assert_eq!(
            BudgetReport::of(&none).summary(),
            "budget of 4 threads: 1 team in 1 program; none smaller than asked for"
        );
    }
}

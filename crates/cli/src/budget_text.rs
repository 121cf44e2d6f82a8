//! Budget of a run as text and JSON: the processes that take part, the teams that were made
//! smaller, and the cores that processes lent each other.

use serde::Serialize;
use trimtab_core::budget::page::{Content, Sums};
use trimtab_core::words::plural;

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
        format!(
            "budget of {}: {} in {}; {}",
            plural(self.cores, "thread"),
            plural(self.teams, "team"),
            plural(self.programs, "program"),
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
        let none = Content { members: vec![], programs: 1, ..page };
        assert_eq!(
            BudgetReport::of(&none).summary(),
            "budget of 4 threads: 1 team in 1 program; none smaller than asked for"
        );
    }
}

//! Agenda of a world: its programs, when each starts, and how many must still end.

use super::Started;
use crate::program::{Body, Program};
use std::ops::{Index, IndexMut};

/// The programs, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    programs: Vec<Started>,
    /// Programs to start, the last one first.
    due: Vec<(u64, u32)>,
    /// Programs that must end for the run to be over, and have not.
    open: u32,
}

impl Agenda {
    /// Takes a program in that starts then; its number. [`Self::insert`] or [`Self::extend`] plans
    /// its start.
    fn enroll(&mut self, started: Started) -> u32 {
        self.open += u32::from(finite(&started.program));
        self.programs.push(started);
        (self.programs.len() - 1) as u32
    }

    /// Adds a program to start at this moment; its number.
    pub(super) fn insert(&mut self, start: u64, started: Started) -> usize {
        let at = self.enroll(started);
        // The last one first; of equal ones, the one added first comes first.
        let place = self.due.partition_point(|&(when, _)| when > start);
        self.due.insert(place, (start, at));
        at as usize
    }

    /// Adds many programs, in no more time than it takes to sort them.
    pub(super) fn extend(&mut self, programs: impl IntoIterator<Item = (u64, Started)>) {
        for (start, started) in programs {
            let at = self.enroll(started);
            self.due.push((start, at));
        }
        self.due.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Programs to start, the last one first.
    #[cfg(test)]
    pub(super) fn due(&self) -> &[(u64, u32)] {
        &self.due
    }

    /// When the next program starts.
    pub(super) fn next(&self) -> Option<u64> {
        self.due.last().map(|&(when, _)| when)
    }

    /// The next program that is to start by now.
    pub(super) fn take_due(&mut self, now: u64) -> Option<usize> {
        self.due.pop_if(|&mut (when, _)| when <= now).map(|(_, at)| at as usize)
    }

    /// The run is not over before this many more are let go: programs that end are still to be
    /// added.
    pub(super) fn hold(&mut self, programs: u32) {
        self.open += programs;
    }

    /// A program that was waited for has been added.
    pub(super) fn let_go(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Whether all programs that can end have ended.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0
    }

    /// A program has ended.
    pub(super) fn end(&mut self, at: usize, now: u64) {
        let started = &mut self.programs[at];
        if started.ended.is_none() {
            started.ended = Some(now);
            self.open -= u32::from(finite(&started.program));
        }
    }

    /// A program, if there are so many.
    pub(super) fn get(&self, at: usize) -> Option<&Started> {
        self.programs.get(at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Started> {
        self.programs.iter()
    }
}

impl Index<usize> for Agenda {
    type Output = Started;

    fn index(&self, at: usize) -> &Started {
        &self.programs[at]
    }
}

impl IndexMut<usize> for Agenda {
    fn index_mut(&mut self, at: usize) -> &mut Started {
        &mut self.programs[at]
    }
}

/// Whether a program ends by itself.
pub(crate) fn finite(program: &Program) -> bool {
    !matches!(program.body, Body::Hog { .. } | Body::Churn { jobs: None, .. })
}

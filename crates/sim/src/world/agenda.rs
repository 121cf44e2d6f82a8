//! Agenda of a world: its programs, their start times, and the number of programs that must still
//! end.

use super::AddedProgram;
use crate::program::{Body, ProgramSpec};
use std::ops::{Index, IndexMut};

/// The programs, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    programs: Vec<AddedProgram>,
    /// Programs to start, with their start times in ns, the last one first.
    due: Vec<(u64, u32)>,
    /// Programs that must end for the run to be over, and have not.
    open: u32,
}

impl Agenda {
    /// Adds a program without planning its start, which [`Self::insert`] or [`Self::extend`] does.
    /// Returns its number.
    fn enroll(&mut self, started: AddedProgram) -> u32 {
        self.open += u32::from(finite(&started.program));
        self.programs.push(started);
        (self.programs.len() - 1) as u32
    }

    /// Adds a program to start at this moment. Returns its number.
    pub(super) fn insert(&mut self, start: u64, started: AddedProgram) -> usize {
        let at = self.enroll(started);
        // The last one first; of programs with equal starts, the one added first starts first.
        let place = self.due.partition_point(|&(when, _)| when > start);
        self.due.insert(place, (start, at));
        at as usize
    }

    /// Adds many programs in the time of one sort.
    pub(super) fn extend(&mut self, programs: impl IntoIterator<Item = (u64, AddedProgram)>) {
        for (start, started) in programs {
            let at = self.enroll(started);
            self.due.push((start, at));
        }
        self.due.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Returns the programs to start, the last one first.
    #[cfg(test)]
    pub(super) fn due(&self) -> &[(u64, u32)] {
        &self.due
    }

    /// Returns when the next program starts, ns.
    pub(super) fn next(&self) -> Option<u64> {
        self.due.last().map(|&(when, _)| when)
    }

    /// Takes the next program that is to start by now.
    pub(super) fn take_due(&mut self, now: u64) -> Option<usize> {
        self.due.pop_if(|&mut (when, _)| when <= now).map(|(_, at)| at as usize)
    }

    /// Keeps the run from being over until this many programs are let go: programs that end are
    /// still to be added.
    pub(super) fn hold(&mut self, programs: u32) {
        self.open += programs;
    }

    /// Notes that an awaited program has been added.
    pub(super) fn let_go(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Returns whether all programs that can end have ended.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Notes that a program has ended.
    pub(super) fn end(&mut self, at: usize, now: u64) {
        let started = &mut self.programs[at];
        if started.ended.is_none() {
            started.ended = Some(now);
            self.open -= u32::from(finite(&started.program));
        }
    }

    /// Returns a program; `None` if the number is too large.
    pub(super) fn get(&self, at: usize) -> Option<&AddedProgram> {
        self.programs.get(at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AddedProgram> {
        self.programs.iter()
    }
}

impl Index<usize> for Agenda {
    type Output = AddedProgram;

    fn index(&self, at: usize) -> &AddedProgram {
        &self.programs[at]
    }
}

impl IndexMut<usize> for Agenda {
    fn index_mut(&mut self, at: usize) -> &mut AddedProgram {
        &mut self.programs[at]
    }
}

/// Returns whether a program ends by itself.
pub(crate) fn finite(program: &ProgramSpec) -> bool {
    !matches!(program.body, Body::Hog { .. } | Body::Churn { jobs: None, .. })
}

//! Contest: cells measured by teams and by their peers, and the comparison of the results.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Display};
use trimtab_core::stats::{self, Estimate};
use trimtab_front::args::ranks::RankLayout;

/// A task that all contestants carry out: an operation or a kernel, by a number of ranks, in one
/// call mode.
pub(super) trait ContestCell: Copy + PartialEq + Display {
    /// Returns the cell of the peers that this cell is compared with.
    fn of_peers(self) -> Self;
}

/// A team or a peer that is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Contestant {
    /// A team.
    Team(RankLayout),
    /// A peer, and whether its ranks are processes where the default is threads.
    Peer { name: String, processes: bool },
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Team(ways) => write!(f, "team-{ways}"),
            Self::Peer { name, processes: false } => f.write_str(name),
            Self::Peer { name, processes: true } => write!(f, "{name}-process"),
        }
    }
}

/// All runs of a cell by one contestant.
pub(super) trait ContestSamples {
    /// Returns the times of the runs that are shown.
    fn times(&self) -> Vec<f64>;
}

/// Runs of a contest.
#[derive(Debug)]
pub(super) struct ContestMatrix<C> {
    pub(super) cells: Vec<C>,
    pub(super) contestants: Vec<Contestant>,
    /// Indices into `cells` and `contestants`.
    pub(super) runs: Vec<(usize, usize)>,
    /// Cells and contestants that cannot run here, with reasons.
    pub(super) left_out: Vec<String>,
}

impl<C: ContestCell> ContestMatrix<C> {
    /// Creates the matrix of all cells by all contestants that are `measured` in them.
    pub(super) fn of(
        cells: Vec<C>,
        contestants: Vec<Contestant>,
        left_out: Vec<String>,
        measured: impl Fn(&Contestant, C) -> bool,
    ) -> Self {
        let each = |at: usize| (0..contestants.len()).map(move |contestant| (at, contestant));
        let wanted = |&(cell, contestant): &(usize, usize)| measured(&contestants[contestant], cells[cell]);
        let runs = (0..cells.len()).flat_map(each).filter(wanted).collect();
        Self { cells, contestants, runs, left_out }
    }

    /// Returns all runs.
    pub(super) fn each(&self) -> impl Iterator<Item = (C, &Contestant)> {
        self.runs.iter().map(|&(cell, contestant)| (self.cells[cell], &self.contestants[contestant]))
    }

    /// Returns the names of all runs.
    pub(super) fn names(&self) -> Vec<String> {
        self.each().map(|(cell, contestant)| format!("{cell} {contestant}")).collect()
    }

    /// Returns the runs with their commands.
    pub(super) fn listing(&self, command: impl Fn(C, &Contestant) -> Vec<OsString>) -> Vec<String> {
        let words = |cell, contestant| super::super::harness::words(&command(cell, contestant)).join(" ");
        self.each()
            .map(|(cell, contestant)| format!("{cell} {contestant}: {}", words(cell, contestant)))
            .collect()
    }

    /// Returns the names of the contestants.
    pub(super) fn columns(&self) -> Vec<String> {
        self.contestants.iter().map(ToString::to_string).collect()
    }
}

/// Findings of a contest.
#[derive(Debug)]
pub(super) struct ContestFindings<'a, C, S> {
    pub(super) cells: &'a [C],
    pub(super) contestants: &'a [Contestant],
    /// By cell and contestant.
    samples: &'a BTreeMap<(usize, usize), S>,
    pub(super) seed: u64,
}

impl<C, S> Clone for ContestFindings<'_, C, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C, S> Copy for ContestFindings<'_, C, S> {}

impl<'a, C: ContestCell, S: ContestSamples> ContestFindings<'a, C, S> {
    /// Creates the findings of these samples.
    pub(super) fn new(
        matrix: &'a ContestMatrix<C>,
        samples: &'a BTreeMap<(usize, usize), S>,
        seed: u64,
    ) -> Self {
        Self { cells: &matrix.cells, contestants: &matrix.contestants, samples, seed }
    }

    /// Returns the samples of a cell by a contestant; `None` if nothing was measured.
    pub(super) fn of(&self, cell: C, contestant: &Contestant) -> Option<&'a S> {
        let cell = self.cells.iter().position(|one| *one == cell)?;
        let contestant = self.contestants.iter().position(|one| one == contestant)?;
        self.samples.get(&(cell, contestant)).filter(|samples| !samples.times().is_empty())
    }

    /// Returns the fastest peer of a cell.
    pub(super) fn best_peer(&self, cell: C) -> Option<(&'a Contestant, &'a S)> {
        let cell = cell.of_peers();
        let peers =
            self.contestants.iter().filter(|contestant| matches!(contestant, Contestant::Peer { .. }));
        let measured = peers.filter_map(|contestant| Some((contestant, self.of(cell, contestant)?)));
        measured.min_by(|(_, one), (_, other)| {
            let median = |samples: &S| stats::median(&samples.times()).unwrap_or(f64::INFINITY);
            median(one).total_cmp(&median(other))
        })
    }

    /// Returns the time over that of the fastest peer.
    pub(super) fn ratio(&self, cell: C, contestant: &Contestant) -> Option<Estimate> {
        self.ratio_of(self.of(cell, contestant)?, self.best_peer(cell)?.1)
    }

    /// Returns the ratio of the times of two samples.
    pub(super) fn ratio_of(&self, above: &S, below: &S) -> Option<Estimate> {
        stats::ratio_of_medians(&above.times(), &below.times(), self.seed)
    }
}

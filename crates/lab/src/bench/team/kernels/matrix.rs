//! What is run: kernels of a class by so many ranks, and who runs them.

use super::super::super::harness;
use super::super::contest::{self, Matrix};
use super::super::matrix::{Who, or, teams};
use super::super::peers::{self, Peers};
use crate::args::{BenchTeamArgs, Class, Mode, NasKernel};
use anyhow::Result;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use trimtab_front::args::ranks::RankLayout;

/// The peers that have kernels.
const PEERS: [&str; 4] = ["openmpi", "mpich", "libgomp", "libomp"];
/// What teams are called by there.
const TEAM: &str = "team";
const QUICK_RANKS: [u32; 2] = [1, 2];
/// Repetitions in a run, of which the median counts: as many as fit into some seconds.
const REPEATS: u32 = 3;
/// Milliseconds that a repetition lasts, at least: what others used meanwhile is told in ticks of ten.
const LEAST: u32 = 200;

/// A kernel, its class, so many ranks, and how they exchange data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(super) struct Cell {
    pub(super) kernel: NasKernel,
    pub(super) class: Class,
    pub(super) ranks: u32,
    pub(super) mode: Mode,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, class, ranks, mode } = self;
        write!(f, "{ranks}/{}/{}/{}", kernel.word(), class.word(), mode.word())
    }
}

impl contest::Cell for Cell {
    /// Resident teams, which peers are not, are set beside them as well.
    fn of_peers(self) -> Self {
        Self { mode: Mode::Stream, ..self }
    }
}

/// What is run, and how.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) matrix: Matrix<Cell>,
    pub(super) peers: Peers,
    pinned: bool,
    repeats: u32,
}

impl Plan {
    /// The words of a run.
    pub(super) fn command(&self, cell: Cell, who: &Who) -> Vec<OsString> {
        let Cell { kernel, class, ranks, mode } = cell;
        let name = if let Who::Peer { name, .. } = who { name } else { TEAM };
        let mut words = self.peers.words(name);
        let mut add = |option: &str, value: &str| words.extend([option.into(), value.into()]);
        add("kernels", "-n");
        add(&ranks.to_string(), "-K");
        add(kernel.word(), "-c");
        add(class.word(), "-m");
        add(mode.word(), "-B");
        words.extend([self.repeats.to_string().into(), "-T".into(), LEAST.to_string().into()]);
        if let Who::Team(ways) = who {
            let kind = match ways.split(ranks) {
                Some((processes, threads)) if matches!(ways, RankLayout::Spread(_)) => {
                    RankLayout::Mixed(processes, threads)
                }
                _ => *ways,
            };
            words.extend(["-k".into(), kind.to_string().into()]);
        }
        if self.pinned {
            words.push("-p".into());
        }
        words
    }
}

/// Whether this is measured so.
fn measures(who: &Who, cell: Cell) -> bool {
    match who {
        Who::Team(ways) => ways.split(cell.ranks).is_some(),
        // What ranks of MPI exchange is copied, and what threads of OpenMP exchange never.
        Who::Peer { .. } => cell.mode == Mode::Stream,
    }
}

/// What to measure.
///
/// # Errors
/// An option names what there is not.
pub(super) fn plan(args: &BenchTeamArgs) -> Result<Plan> {
    let peers = Peers::find(args.peer.as_deref(), args.programs.as_deref(), &harness::own()?)?;
    let mut left_out = Vec::new();
    let mut whos = Vec::new();
    match peers.lacks(TEAM, &["kernels"]) {
        Some(why) => left_out.push(format!("teams cannot be run here: {why}")),
        None => whos = teams(args, &[RankLayout::Threads, RankLayout::Processes, RankLayout::Spread(2)]),
    }
    for name in peers::chosen(args.peers.as_deref(), &PEERS)? {
        match peers.lacks(&name, &["kernels"]) {
            Some(why) => left_out.push(format!("{name} cannot be run here: {why}")),
            None => whos.push(Who::Peer { name, processes: false }),
        }
    }
    let class = args.class.unwrap_or(if args.quick { Class::S } else { Class::W });
    let ranks: &[u32] = if args.quick { &QUICK_RANKS } else { &super::super::matrix::RANKS };
    let mut cells = Vec::new();
    for kernel in or(&args.kernels, &[]) {
        for ranks in or(&args.ranks, ranks) {
            for mode in or(&args.modes, &[Mode::Stream, Mode::Resident]) {
                if matches!(mode, Mode::Stream | Mode::Resident) {
                    cells.push(Cell { kernel, class, ranks, mode });
                }
            }
        }
    }
    let matrix = Matrix::of(cells, whos, left_out, measures);
    let repeats = if args.quick { 1 } else { REPEATS };
    Ok(Plan { matrix, peers, pinned: args.pin, repeats })
}

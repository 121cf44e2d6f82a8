//! Matrix of the kernels: kernels of a class by numbers of ranks, and the contestants.

use super::super::super::harness;
use super::super::contest::Contestant;
use super::super::contest::{self, ContestMatrix};
use super::super::matrix::{or, teams};
use super::super::peers::{self, Peers};
use crate::args::{BenchTeamArgs, Class, Mode, NasKernel};
use anyhow::Result;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use trimtab_front::args::ranks::RankLayout;

/// Peers that have kernels.
const PEERS: [&str; 4] = ["openmpi", "mpich", "libgomp", "libomp"];
/// Name of teams in the script.
const TEAM: &str = "team";
const QUICK_RANKS: [u32; 2] = [1, 2];
/// Repetitions in a run, whose median counts: as many as fit into some seconds.
const REPETITIONS_PER_RUN: u32 = 3;
/// Shortest duration of a repetition, in milliseconds: the foreign load is measured in ticks of
/// ten.
const REPETITION_MS_MIN: u32 = 200;

/// A kernel, its class, a number of ranks, and the mode of exchange.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(super) struct KernelsCell {
    pub(super) kernel: NasKernel,
    pub(super) class: Class,
    pub(super) ranks: u32,
    pub(super) mode: Mode,
}

impl fmt::Display for KernelsCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, class, ranks, mode } = self;
        write!(f, "{ranks}/{}/{}/{}", kernel.word(), class.word(), mode.word())
    }
}

impl contest::ContestCell for KernelsCell {
    /// Resident teams are also compared with the peers' stream mode, the only one they have.
    fn of_peers(self) -> Self {
        Self { mode: Mode::Stream, ..self }
    }
}

/// Runs and their options.
#[derive(Debug)]
pub(super) struct KernelsPlan {
    pub(super) matrix: ContestMatrix<KernelsCell>,
    pub(super) peers: Peers,
    pinned: bool,
    repeats: u32,
}

impl KernelsPlan {
    /// Returns the command line of a run.
    pub(super) fn command(&self, cell: KernelsCell, contestant: &Contestant) -> Vec<OsString> {
        let KernelsCell { kernel, class, ranks, mode } = cell;
        let name = if let Contestant::Peer { name, .. } = contestant { name } else { TEAM };
        let mut words = self.peers.words(name);
        let mut add = |option: &str, value: &str| words.extend([option.into(), value.into()]);
        add("kernels", "-n");
        add(&ranks.to_string(), "-K");
        add(kernel.word(), "-c");
        add(class.word(), "-m");
        add(mode.word(), "-B");
        words.extend([self.repeats.to_string().into(), "-T".into(), REPETITION_MS_MIN.to_string().into()]);
        if let Contestant::Team(ways) = contestant {
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

/// Returns whether a contestant is measured in a cell.
fn measures(contestant: &Contestant, cell: KernelsCell) -> bool {
    match contestant {
        Contestant::Team(ways) => ways.split(cell.ranks).is_some(),
        // Exchanges of MPI ranks are always copied, those of OpenMP threads never.
        Contestant::Peer { .. } => cell.mode == Mode::Stream,
    }
}

/// Plans the measurement.
///
/// # Errors
/// An option names an unknown item.
pub(super) fn plan(args: &BenchTeamArgs) -> Result<KernelsPlan> {
    let peers = Peers::find(args.peer.as_deref(), args.programs.as_deref(), &harness::own()?)?;
    let mut left_out = Vec::new();
    let mut contestants = Vec::new();
    match peers.lacks(TEAM, &["kernels"]) {
        Some(why) => left_out.push(format!("teams cannot run here: {why}")),
        None => {
            contestants = teams(args, &[RankLayout::Threads, RankLayout::Processes, RankLayout::Spread(2)])
        }
    }
    for name in peers::chosen(args.peers.as_deref(), &PEERS)? {
        match peers.lacks(&name, &["kernels"]) {
            Some(why) => left_out.push(format!("{name} cannot run here: {why}")),
            None => contestants.push(Contestant::Peer { name, processes: false }),
        }
    }
    let class = args.class.unwrap_or(if args.quick { Class::S } else { Class::W });
    let ranks: &[u32] = if args.quick { &QUICK_RANKS } else { &super::super::matrix::RANKS };
    let mut cells = Vec::new();
    for kernel in or(&args.kernels, &[]) {
        for ranks in or(&args.ranks, ranks) {
            for mode in or(&args.modes, &[Mode::Stream, Mode::Resident]) {
                if matches!(mode, Mode::Stream | Mode::Resident) {
                    cells.push(KernelsCell { kernel, class, ranks, mode });
                }
            }
        }
    }
    let matrix = ContestMatrix::of(cells, contestants, left_out, measures);
    let repeats = if args.quick { 1 } else { REPETITIONS_PER_RUN };
    Ok(KernelsPlan { matrix, peers, pinned: args.pin, repeats })
}

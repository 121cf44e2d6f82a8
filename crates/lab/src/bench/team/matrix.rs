//! Matrix of `bench team`: cells and contestants.

use super::super::harness;
use super::contest::{self, ContestMatrix, Contestant};
use super::peers::{self, Peers};
use crate::args::{BenchTeamArgs, Mode, Operation};
use anyhow::Result;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use trimtab_front::args::ranks::RankLayout;

/// Chosen: one rank, the number of cores of the smallest machines, and two degrees of
/// oversubscription there.
pub(super) const RANKS: [u32; 4] = [1, 2, 4, 8];
const QUICK_RANKS: [u32; 2] = [2, 4];
const BYTES: [usize; 4] = [8, 4096, 65536, 1 << 20];
const QUICK_BYTES: [usize; 2] = [8, 65536];
/// Duration of a batch, in milliseconds.
pub(super) const BATCH_MS: f64 = 2.0;
/// Largest number of batches: more output would not fit into a pipe that is read at the end.
const BATCHES_MAX: u32 = 200;

/// A number of ranks, one operation, one size, one call mode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(super) struct TeamCell {
    pub(super) ranks: u32,
    pub(super) op: Operation,
    /// Bytes of the array; for alltoall, of the block from each rank to each rank; 0 for a barrier.
    pub(super) bytes: usize,
    pub(super) mode: Mode,
}

impl fmt::Display for TeamCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, op, bytes, mode } = self;
        match op {
            Operation::Barrier => write!(f, "{ranks}/barrier"),
            _ => write!(f, "{ranks}/{}/{bytes}/{}", op.word(), mode.word()),
        }
    }
}

impl Contestant {
    /// Returns whether the contestant is measured in this cell.
    fn measures(&self, cell: TeamCell) -> bool {
        match self {
            Self::Team(ways) => ways.split(cell.ranks).is_some() && cell.mode.fits(cell.op),
            // OpenMP's threads and MPI's ranks have no other call modes.
            Self::Peer { .. } => matches!(cell.mode, Mode::Stream | Mode::Strict) && cell.mode.fits(cell.op),
        }
    }
}

impl contest::ContestCell for TeamCell {
    /// Loose and resident calls, which peers do not have, are compared with the peers' stream calls
    /// of the same operation and size.
    fn of_peers(self) -> Self {
        let mode = if self.mode == Mode::Strict { Mode::Strict } else { Mode::Stream };
        Self { mode, ..self }
    }
}

/// Runs and tools.
#[derive(Debug)]
pub(super) struct TeamPlan {
    pub(super) matrix: ContestMatrix<TeamCell>,
    pub(super) tools: TeamTools,
}

/// Tools that start the programs.
#[derive(Debug)]
pub(super) struct TeamTools {
    own: PathBuf,
    pub(super) peers: Peers,
    batches: u32,
    milliseconds: f64,
    pinned: bool,
}

impl TeamTools {
    /// Returns the command line of a run.
    pub(super) fn command(&self, cell: TeamCell, contestant: &Contestant) -> Vec<OsString> {
        let mut words: Vec<OsString> = match contestant {
            Contestant::Team(_) => vec![self.own.clone().into(), "bench".into(), "team-cell".into()],
            Contestant::Peer { name, .. } => self.peers.words(name),
        };
        let TeamCell { ranks, op, bytes, mode } = cell;
        let mut add = |option: &str, value: &str| words.extend([option.into(), value.into()]);
        add("-n", &ranks.to_string());
        add("-o", op.word());
        add("-z", &bytes.max(8).to_string());
        add("-m", mode.word());
        add("-B", &self.batches.to_string());
        add("-T", &self.milliseconds.to_string());
        match contestant {
            Contestant::Team(ways) => add("-k", &ways.to_string()),
            Contestant::Peer { processes: true, .. } => add("-k", "process"),
            Contestant::Peer { .. } => {}
        }
        if self.pinned {
            words.push("-p".into());
        }
        words
    }
}

/// Plans the measurement.
///
/// # Errors
/// An option names an unknown item.
pub(super) fn plan(args: &BenchTeamArgs) -> Result<TeamPlan> {
    let own = harness::own()?;
    let batches = (args.seconds * 1e3 / BATCH_MS).ceil().clamp(3.0, f64::from(BATCHES_MAX));
    let (batches, milliseconds) =
        if args.quick { (5, BATCH_MS) } else { (batches as u32, args.seconds * 1e3 / batches) };
    let tools = TeamTools {
        peers: Peers::find(args.peer.as_deref(), args.programs.as_deref(), &own)?,
        own,
        batches,
        milliseconds,
        pinned: args.pin,
    };
    let mut left_out = Vec::new();
    let mut contestants = teams(args, &[RankLayout::Threads, RankLayout::Processes]);
    for name in peers::chosen(args.peers.as_deref(), &peers::ALL)? {
        if let Some(why) = tools.peers.lacks(&name, &[]) {
            left_out.push(format!("{name} cannot run here: {why}"));
            continue;
        }
        contestants.push(Contestant::Peer { name: name.clone(), processes: false });
        if name == "pthread" {
            contestants.push(Contestant::Peer { name, processes: true });
        }
    }
    let matrix = ContestMatrix::of(cells(args), contestants, left_out, Contestant::measures);
    Ok(TeamPlan { matrix, tools })
}

/// Returns the teams that are measured: the named ones, or else the usual ones.
pub(super) fn teams(args: &BenchTeamArgs, usual: &[RankLayout]) -> Vec<Contestant> {
    let mut teams = Vec::new();
    for ways in if args.kinds.is_empty() { usual } else { &args.kinds } {
        if !teams.contains(&Contestant::Team(*ways)) {
            teams.push(Contestant::Team(*ways));
        }
    }
    teams
}

/// Returns the named items, or else the usual ones, each once and in order.
pub(super) fn or<T: Clone + Ord>(named: &[T], usual: &[T]) -> Vec<T> {
    let mut chosen = if named.is_empty() { usual.to_vec() } else { named.to_vec() };
    chosen.sort();
    chosen.dedup();
    chosen
}

fn cells(args: &BenchTeamArgs) -> Vec<TeamCell> {
    let quick = args.quick;
    let modes = or(&args.modes, if quick { &[Mode::Stream] } else { &Mode::ALL });
    let sizes = or(&args.bytes, if quick { &QUICK_BYTES } else { &BYTES });
    let mut cells = Vec::new();
    for ranks in or(&args.ranks, if quick { &QUICK_RANKS } else { &RANKS }) {
        for op in or(&args.ops, &Operation::ALL) {
            if op == Operation::Barrier {
                // A barrier is the same in all modes.
                cells.push(TeamCell { ranks, op, bytes: 0, mode: Mode::Stream });
                continue;
            }
            for &bytes in &sizes {
                let of = |mode: &Mode| TeamCell { ranks, op, bytes, mode: *mode };
                cells.extend(modes.iter().filter(|mode| mode.fits(op)).map(of));
            }
        }
    }
    cells
}

//! Options of `trimtab bench team` and of its cell program, which measures one team.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use trimtab_front::args::numbers::bytes_of_doubles;
use trimtab_front::args::ranks::RankLayout;

/// Benchmark barriers and collectives of teams.
///
/// Compares teams of threads and processes with MPI, OpenMP, pthreads and Python. A cell is a
/// number of ranks, an operation, a size and a call mode. Teams of threads, teams of processes and
/// each peer built here run in a random order in each round, so that other load on the machine
/// affects all. A run verifies its results, then measures batches of calls. The tables show the
/// fastest batch, the median batch with its 95 % bootstrap interval over the runs, CPU time, the
/// ratio to the best peer, and the goals that trimtab sets itself. Batches in which other processes
/// used more than 5 % of the machine are noisy, and no goal is judged on them. Use an otherwise
/// idle machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchTeamArgs {
    /// Runs of each cell in each variant; fewer than 5 give no intervals, and no goal is judged.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Shortest measuring time of a run, in seconds; as many short batches as fit.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.05, value_parser = seconds)]
    pub seconds: f64,
    /// Run two numbers of ranks, two sizes and one call mode briefly, for a first impression.
    #[arg(long)]
    pub quick: bool,
    /// Numbers of ranks.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=512))]
    pub ranks: Vec<u32>,
    /// Operations.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub ops: Vec<Operation>,
    /// Sizes of the array in bytes, multiples of 8; for alltoall, of the block from each rank to
    /// each rank.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes_of_doubles)]
    pub bytes: Vec<usize>,
    /// Call modes.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub modes: Vec<Mode>,
    /// Run the NAS kernels FT (transposing) and IS (sorting) instead of single operations: ft, is
    /// or both. Teams read the exchanged data in place (resident) or have it copied (stream).
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_values = ["ft", "is"],
        conflicts_with_all = ["ops", "bytes", "seconds"])]
    pub kernels: Vec<NasKernel>,
    /// Class of the kernels: S, W, A, B or C (default W; with --quick S).
    #[arg(long, value_name = "CLASS", requires = "kernels")]
    pub class: Option<Class>,
    /// Peers to compare with: openmpi, mpich, libgomp, libomp, pthread, multiprocessing, mpi4py,
    /// gloo (kernels: the first four), or none. Default: all that can run here.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,
    /// Kinds of ranks of teams: thread, process, PxT for P processes of T threads each, or PxN for
    /// P processes with as many threads as needed. Default: thread and process; for kernels also
    /// 2xN.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(hide_short_help = true)]
    pub kinds: Vec<RankLayout>,
    /// Bind rank i to CPU i modulo the number of CPUs, for teams and peers.
    #[arg(long)]
    #[arg(hide_short_help = true)]
    pub pin: bool,
    /// Script that runs the peers. Default: bench/team/peer in the source tree.
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = true)]
    pub peer: Option<PathBuf>,
    /// Folder of the peers' programs. Default: bench/build/gcc in the source tree.
    #[arg(long, value_name = "DIR")]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
    /// List cells, commands and the cells that cannot run here, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// Seed of the order of runs and of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(hide_short_help = true)]
    pub seed: u64,
    /// Write each sample and result to FILE as a JSON line as soon as it is known. With -, write to
    /// standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a chart to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab bench team --quick                             a first impression\n  \
    trimtab bench team --list                              the runs with their commands\n  \
    trimtab bench team --ranks 2,4 --ops allreduce --peers openmpi,mpich   one operation compared with MPI\n  \
    trimtab bench team --rounds 9 --json t.jsonl --svg t.svg   a measurement to keep\n  \
    trimtab bench team --kernels --class A                 NAS kernels: processes, threads, MPI and OpenMP\n\n\
    Peers are built by: make -C bench team\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

/// Measure one cell with a team, like the peers' programs (bench/team/measure.h).
///
/// Prints one JSON line per batch.
#[derive(Args, Debug, Clone)]
pub struct TeamCellArgs {
    /// Number of ranks.
    #[arg(short = 'n', value_name = "RANKS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub ranks: u32,
    /// Operation.
    #[arg(short = 'o', value_name = "OP", default_value = "barrier")]
    pub op: Operation,
    /// Bytes of the array; for alltoall, of the block from each rank to each rank; ignored for
    /// barrier.
    #[arg(short = 'z', value_name = "BYTES", default_value_t = 8)]
    pub bytes: usize,
    /// Call mode.
    #[arg(short = 'm', value_name = "MODE", default_value = "stream")]
    pub mode: Mode,
    /// Number of batches.
    #[arg(short = 'B', value_name = "BATCHES", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batches: u32,
    /// Intended duration of a batch in milliseconds.
    #[arg(short = 'T', value_name = "MS", default_value_t = 2.0)]
    pub milliseconds: f64,
    /// Kind of ranks: thread, process, or PxT for P processes of T threads each.
    #[arg(short = 'k', value_name = "KIND", default_value = "thread")]
    pub kind: RankLayout,
    /// Bind rank i to allowed CPU i modulo their number.
    #[arg(short = 'p')]
    pub pinned: bool,
}

/// An operation that all ranks of a team carry out together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// No rank continues before all have arrived.
    Barrier,
    /// Copies the array of rank 0 to all ranks.
    #[value(alias = "broadcast")]
    Bcast,
    /// Gives all ranks the sum of their doubles.
    Allreduce,
    /// Sends a block from each rank to each rank.
    Alltoall,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Barrier, Self::Bcast, Self::Allreduce, Self::Alltoall];

    /// Returns the word used in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Allreduce => "allreduce",
            Self::Alltoall => "alltoall",
        }
    }
}

/// A NAS kernel that the ranks of a team carry out together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NasKernel {
    /// Diffusion equation by 3-D Fourier transforms: large all-to-all exchanges.
    Ft,
    /// Ranking of integer keys: sums over all ranks, and exchanges of unequal parts.
    Is,
}

impl NasKernel {
    /// Returns the word used in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ft => "ft",
            Self::Is => "is",
        }
    }
}

/// Problem size of a NAS kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// Sample: for tests.
    S,
    /// Workstation of the nineties.
    W,
    /// The smallest class used for measurements.
    A,
    /// At least four times class A.
    B,
    /// At least four times class B.
    C,
}

impl Class {
    /// Returns the word used in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::W => "W",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        }
    }
}

/// Call mode of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Calls follow each other; the caller may reuse its buffers after each call.
    Stream,
    /// All ranks wait for all before and after each call.
    Strict,
    /// Calls follow each other and wait for data only; teams only.
    Loose,
    /// As stream, with buffers in the team's segment; teams only.
    Resident,
}

impl Mode {
    /// All call modes.
    pub const ALL: [Self; 4] = [Self::Stream, Self::Strict, Self::Loose, Self::Resident];

    /// Returns the word used in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Strict => "strict",
            Self::Loose => "loose",
            Self::Resident => "resident",
        }
    }

    /// Returns whether teams support this mode for the operation, and the mode differs from stream.
    pub fn fits(self, op: Operation) -> bool {
        match self {
            Self::Stream => true,
            Self::Strict | Self::Loose => op != Operation::Barrier,
            Self::Resident => op != Operation::Barrier,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.001..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("not a number of seconds from 0.001 to 3600".to_owned())
    }
}

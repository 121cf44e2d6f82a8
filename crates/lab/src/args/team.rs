//! Options of `trimtab bench team` and of the program that it measures teams with.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use trimtab_front::args::numbers::bytes_of_doubles;
use trimtab_front::args::ranks::RankLayout;

/// Teams against others: barriers and collectives of threads and processes, beside MPI, OpenMP, pthreads and Python.
///
/// Each cell is so many ranks, one operation, one size and one way of calling it. Teams of threads and of processes, and each peer
/// that is built here, take turns in a random order, round by round, so that what else happens on the machine strikes all. A run
/// verifies its results, then measures batches of calls. Shown are the least and the median batch with its 95 % bootstrap interval
/// over the runs, CPU time, the ratio to the best peer, and the goals that trimtab sets itself. Batches in which others used more
/// than 5 % of the machine are noisy, and no goal is judged on them. Use a machine that is otherwise idle.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchTeamArgs {
    /// How often each cell is run each way; fewer than 5 give no intervals and judge no goal.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds that a run measures for, at least: short batches, as many as fit.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.05, value_parser = seconds)]
    pub seconds: f64,
    /// Two counts of ranks, two sizes, one way of calling, short runs: for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Counts of ranks.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=512))]
    pub ranks: Vec<u32>,
    /// Operations.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub ops: Vec<Operation>,
    /// Sizes in bytes, multiples of 8: of the array; for alltoall of the block from each rank to each.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes_of_doubles)]
    pub bytes: Vec<usize>,
    /// Ways of calling.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub modes: Vec<Mode>,
    /// Run NAS kernels FT (transposing) and IS (sorting) instead of single operations: ft, is, or both. Teams read what is exchanged where
    /// its sender wrote it (resident) or have it copied (stream).
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_values = ["ft", "is"],
        conflicts_with_all = ["ops", "bytes", "seconds"])]
    pub kernels: Vec<NasKernel>,
    /// Class of the kernels: S, W, A, B or C. Without it W, and S for a first look.
    #[arg(long, value_name = "CLASS", requires = "kernels")]
    pub class: Option<Class>,
    /// Whom to compare with: openmpi, mpich, libgomp, libomp, pthread, multiprocessing, mpi4py, gloo (for kernels the first four); none
    /// for teams alone. Without it: all that can run here.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,
    /// How ranks of teams come to be: thread, process, PxT for P processes of T threads each, or PxN for P processes and as many threads
    /// as it takes. Without it: thread and process, and for kernels 2xN.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub kinds: Vec<RankLayout>,
    /// Bind rank i to the CPU i modulo their number, teams and peers alike.
    #[arg(long)]
    pub pin: bool,
    /// The script that runs peers, instead of the source tree's bench/team/peer.
    #[arg(long, value_name = "FILE")]
    pub peer: Option<PathBuf>,
    /// The folder of the peers' programs, instead of the source tree's bench/build/gcc.
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// List cells and commands, say what cannot be run here, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// Seed of the order and of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all samples and results to FILE as JSON lines, each as soon as it is known; - for standard output, instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a chart to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab bench team --quick                             a first look\n  \
    trimtab bench team --list                              what would be measured, and by which commands\n  \
    trimtab bench team --ranks 2,4 --ops allreduce --peers openmpi,mpich   one operation beside MPI\n  \
    trimtab bench team --rounds 9 --json t.jsonl --svg t.svg   a measurement to keep\n  \
    trimtab bench team --kernels --class A                 NAS kernels: processes against threads, beside MPI and OpenMP\n\n\
    Peers are built by: make -C bench team\n\
    Ctrl-C ends it early: what was measured until then is shown and written.";

/// Measures one cell with a team, as the peers' programs do it (bench/team/measure.h). Prints a line of JSON a batch.
#[derive(Args, Debug, Clone)]
pub struct TeamCellArgs {
    /// Ranks.
    #[arg(short = 'n', value_name = "RANKS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub ranks: u32,
    /// Operation.
    #[arg(short = 'o', value_name = "OP", default_value = "barrier")]
    pub op: Operation,
    /// Bytes of the array; for alltoall of the block from each rank to each; ignored for barrier.
    #[arg(short = 'z', value_name = "BYTES", default_value_t = 8)]
    pub bytes: usize,
    /// Way of calling.
    #[arg(short = 'm', value_name = "MODE", default_value = "stream")]
    pub mode: Mode,
    /// Batches.
    #[arg(short = 'B', value_name = "BATCHES", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batches: u32,
    /// Milliseconds that a batch shall last.
    #[arg(short = 'T', value_name = "MS", default_value_t = 2.0)]
    pub milliseconds: f64,
    /// How ranks come to be: thread, process, or PxT for P processes of T threads each.
    #[arg(short = 'k', value_name = "KIND", default_value = "thread")]
    pub kind: RankLayout,
    /// Bind rank i to the CPU i modulo their number, of those allowed.
    #[arg(short = 'p')]
    pub pinned: bool,
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Nobody goes on before all have come.
    Barrier,
    /// Rank 0's array to all.
    #[value(alias = "broadcast")]
    Bcast,
    /// The sum of doubles of all, to all.
    Allreduce,
    /// A block of each to each.
    Alltoall,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Barrier, Self::Bcast, Self::Allreduce, Self::Alltoall];

    /// As in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Allreduce => "allreduce",
            Self::Alltoall => "alltoall",
        }
    }
}

/// A NAS kernel that ranks carry out together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NasKernel {
    /// A diffusion equation by 3-D Fourier transforms: large exchanges of all with all.
    Ft,
    /// Ranks of integer keys: sums over all ranks, and exchanges of unequal parts.
    Is,
}

impl NasKernel {
    /// As in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ft => "ft",
            Self::Is => "is",
        }
    }
}

/// How large a NAS kernel's problem is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// Samples.
    S,
    /// Workstations, of the nineties.
    W,
    /// The least that is measured with.
    A,
    /// Four times that, or more.
    B,
    /// And again.
    C,
}

impl Class {
    /// As in options and records.
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

/// How an operation is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One call after another; own buffers may be used again after each.
    Stream,
    /// All wait for all before each call and after it.
    Strict,
    /// One call after another, that wait for no more than data: teams alone.
    Loose,
    /// As stream, with buffers in the team's segment: teams alone.
    Resident,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Stream, Self::Strict, Self::Loose, Self::Resident];

    /// As in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Strict => "strict",
            Self::Loose => "loose",
            Self::Resident => "resident",
        }
    }

    /// Whether teams can call this operation so, and whether that is another way than stream.
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
        Err("not from 0.001 to 3600 seconds".to_owned())
    }
}

//! Options of `trimtab bench`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use trimtab_front::args::numbers::{cpu_share, product};

/// Measure placement and balancing on this machine.
///
/// Each benchmark runs real programs in several variants, in turns, and prints medians with
/// confidence intervals.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub what: BenchCommand,
}

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    Nested(NestedArgs),
    Balance(BenchBalanceArgs),
    Uncore(UncoreArgs),
    Nodes(super::NodesArgs),
    Cost(CostArgs),
    Team(super::BenchTeamArgs),
    Oversub(Box<super::OversubArgs>),
    Misses(super::MissesArgs),
    #[command(hide = true)]
    TeamCell(super::TeamCellArgs),
    #[command(hide = true)]
    OversubCell(super::OversubCellArgs),
}

/// Benchmark nested OpenMP teams, bound and unbound.
///
/// Runs three programs (bandwidth, synchronisation, a solver) in which Y threads each open a team
/// of Z: plain, and under `trimtab run --nest Y,scatter,Z,subscatter` (subcompact for
/// synchronisation). The two variants alternate in each round, so that other load on the machine
/// affects both. Each round gives one sample. The table shows medians with 95 % bootstrap intervals
/// beside the numbers published for three machines; it says "no difference" if the interval of the
/// gain contains 1. Takes minutes; use an otherwise idle machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NestedArgs {
    /// Runs of each program in each variant; fewer than 5 give no intervals.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Use small problems: seconds instead of minutes, for a first impression.
    #[arg(long)]
    pub quick: bool,
    /// Y outer threads, each with a team of Z; can be repeated. Default: the published shapes that
    /// fit the allowed cores, and one that fills them.
    #[arg(long = "shape", value_name = "YxZ")]
    pub shapes: Vec<Shape>,
    /// Run only this program; can be repeated.
    #[arg(long = "only", value_name = "PROGRAM")]
    pub only: Vec<NestedProgram>,
    /// First writer of the arrays of stream and solver: each team, or its master thread alone.
    #[arg(long, value_name = "WRITER", default_value = "team")]
    #[arg(hide_short_help = true)]
    pub init: Init,
    /// Folder of the benchmark programs. Default: the installed ones, or bench/build/gcc in the
    /// source tree.
    #[arg(long, value_name = "DIR")]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
    /// Seed of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(hide_short_help = true)]
    pub seed: u64,
    /// Write each sample and result to FILE as a JSON line as soon as it is known (schema in
    /// docs/json.md). With -, write to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a bar chart to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab bench nested --quick                      a first impression\n  \
    trimtab bench nested --rounds 15 --json n.jsonl --svg n.svg   a measurement to keep\n  \
    trimtab bench nested --only stream --shape 8x4    one program in one shape\n  \
    trimtab bench nested --init master                data near each team's master\n\n\
    The programs are built by: make -C bench\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

/// Benchmark equal threads on too few cores.
///
/// Runs a program whose threads all do the same work, under Linux alone, bound, and under trimtab's
/// policies. There are more threads than cores, with one barrier at the end or many, beside
/// competitors, or bound and to be freed. Waiting threads spin, yield, sleep, or spin briefly and
/// then sleep. The variants run in a random order in each round. The table shows run time over the
/// ideal time, in which all threads share the cores evenly, as medians with 95 % bootstrap
/// intervals, and the goals that trimtab sets itself. Each run measures the other load on the
/// machine; runs with more than 5 % are noisy, and no goal is judged on them. A full measurement
/// takes about half an hour, --quick two to three minutes; use an otherwise idle machine.
#[derive(Args, Debug)]
#[command(after_help = BALANCE_EXAMPLES)]
pub struct BenchBalanceArgs {
    /// Runs of each case; fewer than 5 give no intervals, and no goal is judged.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Run a few representative cases with less work: minutes instead of half an hour.
    #[arg(long)]
    pub quick: bool,
    /// Run only cases whose name contains this, as in final-3, hog, /sleep/ or /auto (see --list);
    /// can be repeated.
    #[arg(long = "only", value_name = "PATTERN")]
    pub only: Vec<String>,
    /// List the names of the cases, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// Folder of the benchmark programs. Default: the installed ones, or bench/build/gcc in the
    /// source tree.
    #[arg(long, value_name = "DIR")]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
    /// Seed of the order of runs and of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(hide_short_help = true)]
    pub seed: u64,
    /// Write each sample and result to FILE as a JSON line as soon as it is known (schema in
    /// docs/json.md). With -, write to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Continue the record in the file of --json; runs that it contains are not repeated.
    #[arg(long, requires = "json")]
    pub resume: bool,
    /// Also write the table to FILE, updated after each round.
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = true)]
    pub table: Option<PathBuf>,
}

const BALANCE_EXAMPLES: &str = "Examples:\n  trimtab bench balance --quick                          a first impression\n  \
    trimtab bench balance --repeats 9 --json b.jsonl       a measurement to keep\n  \
    trimtab bench balance --json b.jsonl --resume          continue after an interruption\n  \
    trimtab bench balance --only barrier-1ms --only omp    the cost of waiting\n\n\
    The programs are built by: make -C bench\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

/// Benchmark memory locality, cache contention and data sharing.
///
/// Runs a micro-benchmark (private linked lists, and cache lines that all threads add to) in pairs
/// that differ in placement alone: near and far memory, one last-level cache or several, threads
/// close together or apart. On a machine with one node or one last-level cache, pairs of alone and
/// beside other threads replace them, and a note names the pairs left out. Threads are counted in
/// exactly the measured window. The tables show the time of an access and how each hardware index
/// changes with it: the uncore penalty P (busy cycles per request), busy cycles per instruction,
/// their share W, cycles per instruction, the miss rate of the last-level cache, and an estimate of
/// P from generic counters. For each index they show its correlation with time: in proportion, in
/// order, and in sign for changes above 5 %. Takes about ten minutes, --quick one; use an otherwise
/// idle machine.
#[derive(Args, Debug)]
#[command(after_help = UNCORE_EXAMPLES)]
pub struct UncoreArgs {
    /// Runs of each case in each variant.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Use a few sizes and short windows: a minute, for a first impression.
    #[arg(long)]
    pub quick: bool,
    /// Run only this experiment; can be repeated.
    #[arg(long = "only", value_name = "EXPERIMENT")]
    pub only: Vec<Experiment>,
    /// List cases, commands and the experiments that this machine does not support, and run
    /// nothing.
    #[arg(long)]
    pub list: bool,
    /// Largest number of threads in a run (default 4, or 12 if the number of threads is varied, as
    /// published).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Option<u32>,
    /// Folder of the benchmark programs. Default: the installed ones, or bench/build/gcc in the
    /// source tree.
    #[arg(long, value_name = "DIR")]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
    /// Seed of the order of runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(hide_short_help = true)]
    pub seed: u64,
    /// Write each sample and result to FILE as a JSON line as soon as it is known (schema in
    /// docs/json.md). With -, write to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Show the record in FILE, which --json wrote, and run nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "list"])]
    #[arg(hide_short_help = true)]
    pub from: Option<PathBuf>,
    /// Write a chart to FILE: the change of each index over the change of time.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const UNCORE_EXAMPLES: &str = "Examples:\n  trimtab bench uncore --list                            the cases of this machine\n  \
    trimtab bench uncore --quick                           a first impression\n  \
    trimtab bench uncore --repeats 9 --json u.jsonl --svg u.svg   a measurement to keep\n\n\
    The program is built by: make -C bench. Available counters: trimtab counters\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

/// Benchmark the cost of sampling and counting.
///
/// The loop of `trimtab serve` samples programs of a hundred to a thousand threads in this process.
/// Part `looks` samples every 10 ms, with and without counters, under policies that observe and
/// policies that balance. Part `budget` samples as often as the given share of a core allows, and
/// reports the resulting time between samples. Part `slowing` runs programs in windows that
/// alternate: alone, sampled, and sampled and counted. The tables show medians with 95 % bootstrap
/// intervals. If no hardware counter works, kernel software events replace them, and a note says
/// so. Takes about ten minutes, or two to three for each part; use an otherwise idle machine.
#[derive(Args, Debug)]
#[command(after_help = COST_EXAMPLES)]
pub struct CostArgs {
    /// Measurements of each case; fewer than 5 give no intervals, and no goal is judged.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Use short windows and few cases: a minute, for a first impression.
    #[arg(long)]
    pub quick: bool,
    /// Run only cases whose name contains this, as in looks, budget/brm or slowing (see --list);
    /// can be repeated.
    #[arg(long = "only", value_name = "PATTERN")]
    pub only: Vec<String>,
    /// List the names of the cases, and measure nothing.
    #[arg(long)]
    pub list: bool,
    /// Share of one core that sampling may use in the parts budget and slowing: 0.5%, 2%.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = cpu_share)]
    pub budget: f64,
    /// Folder of the benchmark programs. Default: the installed ones, or bench/build/gcc in the
    /// source tree.
    #[arg(long, value_name = "DIR")]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
    /// Seed of the order of runs and of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(hide_short_help = true)]
    pub seed: u64,
    /// Write each sample and result to FILE as a JSON line as soon as it is known (schema in
    /// docs/json.md). With -, write to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

const COST_EXAMPLES: &str = "Examples:\n  trimtab bench cost --quick                     a first impression\n  \
    trimtab bench cost --only looks --json c.jsonl   the cost of samples, to keep\n  \
    trimtab bench cost --only budget --budget 0.5%   adherence to half a per cent\n\n\
    The program is built by: make -C bench. Available counters: trimtab counters\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

/// An experiment with one or several factors, as in the published measurement.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Experiment {
    /// One thread with near or far memory.
    Locality,
    /// Private data sets in one last-level cache or in several.
    Contention,
    /// Shared lines, and one line for 2 to 12 threads, with threads close together or apart.
    Sharing,
    /// Far memory against a crowded cache.
    LocalityContention,
    /// A crowded cache against distant shared lines.
    ContentionSharing,
    /// All three factors.
    All,
    /// Threads that spin at barriers while one of them waits for memory.
    Spinning,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NestedProgram {
    Stream,
    Syncbench,
    Solver,
    BtMz,
    LuMz,
    SpMz,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Init {
    Team,
    Master,
}

/// Y outer threads, each with a team of Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shape {
    pub outer: u32,
    pub inner: u32,
}

impl Shape {
    /// Returns the number of threads of all teams.
    pub fn threads(self) -> u64 {
        u64::from(self.outer) * u64::from(self.inner)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.outer, self.inner)
    }
}

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (outer, inner) = product(text).ok_or_else(|| {
            format!("\"{text}\" is not a shape such as 4x2: 4 threads, each with a team of 2")
        })?;
        Ok(Self { outer, inner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_two_numbers() {
        assert_eq!("13x4".parse(), Ok(Shape { outer: 13, inner: 4 }));
        for bad in ["", "4", "x", "4x", "x4", "0x1", "1x0", "+1x2", "-1x2", "1x2x3", "4294967296x1", " 1x1"] {
            assert!(bad.parse::<Shape>().is_err(), "{bad:?}");
        }
    }
}

//! Options of `trimtab bench`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use trimtab_front::args::numbers::{cpu_share, product};

/// Measure what placement does to benchmark programs on this machine.
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
    Cost(CostArgs),
    Team(super::BenchTeamArgs),
    Oversub(Box<super::OversubArgs>),
    #[command(hide = true)]
    TeamCell(super::TeamCellArgs),
    #[command(hide = true)]
    OversubCell(super::OversubCellArgs),
}

/// Nested OpenMP teams, bound and unbound: bandwidth, synchronisation, a solver.
///
/// Runs three programs in which Y threads each open a team of Z: plain, and under `trimtab run --nest
/// Y,scatter,Z,subscatter` (subcompact for the synchronisation). Both take turns, round by round, so that what else happens
/// on the machine strikes both. Each round gives one sample; the table shows medians with 95 % bootstrap intervals beside
/// the numbers that were published for three machines, and says "no difference" where the interval of the gain holds 1.
/// Takes minutes; use a machine that is otherwise idle.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NestedArgs {
    /// How often each program is run each way; fewer than 5 give no intervals.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Small problems: seconds instead of minutes, for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Y outer threads, each with a team of Z; can be repeated. Without it: the published shapes that fit the allowed
    /// cores, and one that fills them.
    #[arg(long = "shape", value_name = "YxZ")]
    pub shapes: Vec<Shape>,
    /// Only this program; can be repeated.
    #[arg(long = "only", value_name = "PROGRAM")]
    pub only: Vec<NestedProgram>,
    /// Who writes to the arrays of stream and solver first: every team, or its master alone.
    #[arg(long, value_name = "WHO", default_value = "team")]
    pub init: Init,
    /// The folder of the programs, instead of the installed ones or the source tree's bench/build/gcc.
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Seed of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all samples and results to FILE as JSON lines, each as soon as it is known (schema in docs/json.md);
    /// - for standard output, instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a bar chart to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab bench nested --quick                      a first look\n  \
    trimtab bench nested --rounds 15 --json n.jsonl --svg n.svg   a measurement to keep\n  \
    trimtab bench nested --only stream --shape 8x4    one program in one shape\n  \
    trimtab bench nested --init master                data near each team's master\n\n\
    The programs are built by: make -C bench\n\
    Ctrl-C ends it early: what was measured until then is shown and written.";

/// Equal threads on too few cores: balanced by Linux alone, bound, by trimtab's policies; waiting in four ways.
///
/// Runs a program whose threads all do the same work: more of them than cores, with one barrier at the end or many, beside
/// competitors, bound and to be freed; its waiters spin, yield, sleep, or spin for a moment and sleep. The ways of running
/// take turns in a random order, round by round. Shown is the time of the ideal in which all share the cores evenly, as
/// medians with 95 % bootstrap intervals, beside the goals that trimtab sets itself. Each run measures what else used the
/// machine meanwhile; runs with more than 5 % are noisy, and no goal is judged on them. A full measurement takes about half
/// an hour, --quick two to three minutes; use a machine that is otherwise idle.
#[derive(Args, Debug)]
#[command(after_help = BALANCE_EXAMPLES)]
pub struct BenchBalanceArgs {
    /// How often each case is run each way; fewer than 5 give no intervals and judge no goal.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// A few telling cases with less work each: minutes instead of half an hour.
    #[arg(long)]
    pub quick: bool,
    /// Only cases whose name contains this, as in final-3, hog, /sleep/ or /auto; can be repeated. See --list.
    #[arg(long = "only", value_name = "PATTERN")]
    pub only: Vec<String>,
    /// List the cases by name, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// The folder of the programs, instead of the installed ones or the source tree's bench/build/gcc.
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Seed of order and bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all samples and results to FILE as JSON lines, each as soon as it is known (schema in docs/json.md);
    /// - for standard output, instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Go on with the record in --json's file: what it holds is not run again.
    #[arg(long, requires = "json")]
    pub resume: bool,
    /// Write the table to FILE too, anew after each round.
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
}

const BALANCE_EXAMPLES: &str = "Examples:\n  trimtab bench balance --quick                          a first look\n  \
    trimtab bench balance --repeats 9 --json b.jsonl       a measurement to keep\n  \
    trimtab bench balance --json b.jsonl --resume          go on after an interruption\n  \
    trimtab bench balance --only barrier-1ms --only omp    how waiting costs\n\n\
    The programs are built by: make -C bench\n\
    Ctrl-C ends it early: what was measured until then is shown and written.";

/// What far memory, crowded caches and shared lines cost, and which hardware index shows it.
///
/// Runs a micro-benchmark (private linked lists, lines that all threads add to) in pairs of ways that differ in placement alone:
/// near and far memory, one last-level cache or several, threads close together or apart. On a machine with one node or one
/// last-level cache, alone against beside others takes their place, and it is said what was left out. Threads are counted
/// in exactly the measured window. Shown are the time of an access and how each index changes with it: the uncore penalty P (busy
/// cycles a request), busy cycles an instruction, their share W, cycles an instruction, the last cache's miss rate, and an estimate
/// of P from generic counters; and for each index its correlation with time, in proportion, in order, and in sign for changes above 5
/// %. Takes some ten minutes, --quick one; use a machine that is otherwise idle.
#[derive(Args, Debug)]
#[command(after_help = UNCORE_EXAMPLES)]
pub struct UncoreArgs {
    /// How often each case is run each way.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// A few sizes, short windows: a minute, for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Only this experiment; can be repeated.
    #[arg(long = "only", value_name = "EXPERIMENT")]
    pub only: Vec<Experiment>,
    /// List cases and commands, say what this machine cannot show, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// At most so many threads in a run (default 4, and 12 where their number is varied, as published).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Option<u32>,
    /// The folder of the programs, instead of the installed ones or the source tree's bench/build/gcc.
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Seed of the order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all samples and results to FILE as JSON lines, each as soon as it is known (schema in docs/json.md);
    /// - for standard output, instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Show the record in FILE again, as --json wrote it, and run nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "list"])]
    pub from: Option<PathBuf>,
    /// Write a chart to FILE: each index's changes over those of time.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const UNCORE_EXAMPLES: &str = "Examples:\n  trimtab bench uncore --list                            what can be shown here\n  \
    trimtab bench uncore --quick                           a first look\n  \
    trimtab bench uncore --repeats 9 --json u.jsonl --svg u.svg   a measurement to keep\n\n\
    The program is built by: make -C bench. What can be counted here: trimtab counters\n\
    Ctrl-C ends it early: what was measured until then is shown and written.";

/// What looking costs, whether the budget is kept, and how much counting slows a program.
///
/// The loop of `trimtab serve` looks at programs of a hundred to a thousand threads in this process: for `looks` every 10 ms, with and
/// without counters, under policies that watch and that balance; for `budget` as often as the stated share of a core allows, so that the time
/// between looks is what is found out; for `slowing` beside programs that run in windows alone, looked at, and looked at and
/// counted, taking turns. Shown are medians with 95 % bootstrap intervals. Where hardware counts nothing the kernel's own events
/// stand in, which is said. Takes some ten minutes, or two to three for each part; use a machine that is otherwise idle.
#[derive(Args, Debug)]
#[command(after_help = COST_EXAMPLES)]
pub struct CostArgs {
    /// How often each case is measured; fewer than 5 give no intervals and judge no goal.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Short windows, few cases: a minute, for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Only cases whose name contains this, as in looks, budget/brm or slowing; can be repeated. See --list.
    #[arg(long = "only", value_name = "PATTERN")]
    pub only: Vec<String>,
    /// List the cases by name, and measure nothing.
    #[arg(long)]
    pub list: bool,
    /// The share of one core that looking may take in the part `budget`, and beside programs that are slowed.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = cpu_share)]
    pub budget: f64,
    /// The folder of the programs, instead of the installed ones or the source tree's bench/build/gcc.
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Seed of order and bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all samples and results to FILE as JSON lines, each as soon as it is known (schema in docs/json.md);
    /// - for standard output, instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

const COST_EXAMPLES: &str = "Examples:\n  trimtab bench cost --quick                     a first look\n  \
    trimtab bench cost --only looks --json c.jsonl   what looks cost, to keep\n  \
    trimtab bench cost --only budget --budget 0.5%   whether half a per cent is kept\n\n\
    The program is built by: make -C bench. What can be counted here: trimtab counters\n\
    Ctrl-C ends it early: what was measured until then is shown and written.";

/// One or several factors, as in the published measurement.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Experiment {
    /// One thread, its memory near or far.
    Locality,
    /// Private sets, in one last-level cache or several.
    Contention,
    /// Shared lines, and one line for 2 to 12 threads, close together or apart.
    Sharing,
    /// Far memory against a crowded cache.
    LocalityContention,
    /// A crowded cache against shared lines far apart.
    ContentionSharing,
    /// All three.
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
    /// All threads together.
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
        let (outer, inner) = product(text)
            .ok_or_else(|| format!("\"{text}\" is no shape such as 4x2: 4 threads, each with a team of 2"))?;
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

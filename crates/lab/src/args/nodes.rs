//! Options of `trimtab bench nodes`.

use clap::Args;
use std::path::PathBuf;

/// Benchmark memory between nodes, and brm on crossed programs.
///
/// First, one thread reads memory of each node from a CPU of each node (latency), and the cores of
/// a node together do (bandwidth). Then programs begin on the wrong node: one program whose memory
/// is elsewhere, and two programs on each other's nodes. They run under Linux alone, under `brm`,
/// and under `brm` with memory that follows its threads. The variants run in a random order in each
/// round. The tables show medians with 95 % bootstrap intervals. On a machine with one node only
/// near memory is measured, and a note says so. Takes minutes; use an otherwise idle machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NodesArgs {
    /// Runs of each case in each variant; fewer than 5 give no intervals.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Use less memory and shorter windows, for a first impression.
    #[arg(long)]
    pub quick: bool,
    /// Run only cases whose name contains this, as in latency, bandwidth, crossed or far (see
    /// --list); can be repeated.
    #[arg(long = "only", value_name = "PATTERN")]
    pub only: Vec<String>,
    /// List the names of the cases and those that are left out, and run nothing.
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
}

const EXAMPLES: &str = "Examples:\n  trimtab bench nodes --quick                    a first impression\n  \
    trimtab bench nodes --only crossed --repeats 9 --json n.jsonl   brm, to keep\n\n\
    The program is built by: make -C bench\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

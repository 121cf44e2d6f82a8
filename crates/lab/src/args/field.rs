//! Options of `trimtab field`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Measure this machine for a while, and write one file to send.
///
/// Runs the benchmarks that a machine with several nodes is needed for, each for a share of the
/// time: memory near and far, brm against Linux, the value of each hardware index, nested teams
/// placed and plain, balancing against Linux. Rounds are interleaved, and the file has every
/// sample. It also has the machine's structure, the kernel's settings that matter, and the hardware
/// counters that are permitted. It has no name of host, user or file, no address, and nothing about
/// other programs. A part that this machine does not support says why, and the others go on. No
/// root is needed. Ctrl-C ends it early and keeps the results so far. Use an otherwise idle
/// machine; `trimtab report FILE` shows the file.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FieldArgs {
    /// Longest time of the measurement, in minutes.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub minutes: u32,
    /// Take two minutes, with small problems: for a first impression.
    #[arg(long, conflicts_with = "minutes")]
    pub quick: bool,
    /// Measure only this part; can be repeated.
    #[arg(long = "only", value_name = "PART")]
    pub only: Vec<FieldPart>,
    /// File of the results, which is replaced if it is an earlier one. With the ending .gz it is
    /// compressed.
    #[arg(short, long, value_name = "FILE", default_value = "trimtab-field.json", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Folder of the benchmark programs. Default: the installed ones, or bench/build/gcc in the
    /// source tree.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab field                      20 minutes; writes trimtab-field.json\n  \
    trimtab field --quick              two minutes, a first impression\n  \
    trimtab field -o mine.json.gz      compressed\n  \
    trimtab report trimtab-field.json  a summary, and a page\n\n\
    The programs are built by: make -C bench\n\
    Exit status: 0 if done, also if a part could not be measured; 2 if nothing could be; 130 after Ctrl-C.";

/// A part of the measurement.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FieldPart {
    /// Memory near and far, and brm against Linux.
    Nodes,
    /// The value of each hardware index.
    Index,
    /// Nested teams, placed and plain.
    Nested,
    /// Balancing against Linux.
    Balance,
}

//! Options of `trimtab each`.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Run a command for each of many values, each run on cores of its own.
///
/// Each value gives one job, which starts as `trimtab run --wait -c N COMMAND`. As many jobs run at
/// once as cores suffice for; they wait for cores that other programs hold. In the words of the
/// command, {} stands for the value, {.} for the value without its last ending, {/} for its last
/// part after a slash, {/.} for that part without its ending, and {#} for the job's number from 1.
/// If none of them occurs, the value is appended. No shell reads the words.
///
/// The values follow `:::` behind the command; otherwise they are the lines of standard input or of
/// a file. The output of a job is printed when the job ends. Jobs read nothing from standard input.
///
/// Ctrl-C ends the running jobs, a second one kills them. With --log, --resume goes on later.
///
/// Exit status 0 if all jobs succeeded, 1 if some failed, 2 if trimtab failed, 128 plus the
/// signal's number after Ctrl-C.
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES)]
pub struct EachArgs {
    /// Number of cores for each job.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub cores: u32,
    /// Most jobs at once; by default, as many as the usable cores suffice for.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Options of `trimtab run` for each job, as in --run '-s scatter --mem bind'. They are divided
    /// at spaces.
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    pub run: String,
    /// Read the values from a file, one in each line.
    #[arg(short = 'a', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub values: Option<PathBuf>,
    /// Values end with a zero byte instead of a line feed, as find -print0 writes them.
    #[arg(short = '0', long)]
    pub null: bool,
    /// Print the outputs of the jobs in the order of the values.
    #[arg(short = 'k', long)]
    pub in_order: bool,
    /// Let the jobs write to the terminal or file directly: nothing is collected.
    #[arg(long, conflicts_with = "in_order")]
    pub live: bool,
    /// Write a line of JSON for each job that has ended (schema in docs/json.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Leave out values whose jobs succeeded according to --log, and append to it.
    #[arg(long, requires = "log")]
    pub resume: bool,
    /// Start no further job after one has failed.
    #[arg(long)]
    pub fail_fast: bool,
    /// Print the commands, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print errors only: no progress, no summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// The command, and behind `:::` the values.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n\
    \u{20}   trimtab each -c 4 ./simulate --seed {} ::: 1 2 3 4 5     five jobs of four cores\n\
    \u{20}   ls *.fa | trimtab each -c 2 sh -c 'blastp -query \"$1\" > \"$2\"' sh {} {.}.out\n\
    \u{20}   trimtab each --log jobs.jsonl --resume -a cases.txt ./case {}     goes on where it ended";

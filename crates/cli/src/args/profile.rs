//! What `trimtab profile` takes.

use super::{CountingArgs, PlaceArgs, words};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::setting::Setting;
use trimtab_launch::PinMode;

/// Run a program once under observation, and say what its surroundings should know.
///
/// The program is placed as `trimtab run` places it, and its exit status is trimtab's. While it runs a guest library counts how often its threads
/// meet (OpenMP barriers and ends of regions, MPI collectives, POSIX barriers) and how long they wait there; from outside it is seen
/// how evenly cores were used, how long threads were kept waiting, and what memory they had. What that costs is measured too.
///
/// How long threads work between two meetings tells most: below a millisecond, anything that delays one thread delays all. What
/// could not be seen is listed. A program that is killed still has a profile of what was seen.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Print the profile as JSON (schema in docs/json.md).
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write it to FILE, and not to standard error: standard output is the program's.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Run it in this setting, as in 'threads=4 wait=sleep': threads, cores, smt, strategy, memory, thp, wait, pin, balance or slice, each instead of its own option.
    #[arg(long, value_name = "SETTING", help_heading = "What")]
    pub set: Option<Setting>,
    /// How threads wait for each other: auto, spin, yield, sleep or keep, as for trimtab run.
    #[arg(long, value_name = "HOW", value_parser = words::Words::<WaitPolicy>::of(WaitPolicy::ALL.map(WaitPolicy::word)),
          hide_possible_values = true, help_heading = "Otherwise")]
    pub wait_policy: Option<WaitPolicy>,
    /// Pin threads: auto (as the program's kind suggests) or mask (leave them free inside the cores).
    #[arg(long, value_name = "HOW", value_parser = words::Words::<PinMode>::of(PinMode::words()),
          help_heading = "Otherwise")]
    pub pin: Option<PinMode>,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// Say on stderr what was chosen and why.
    #[arg(short, long, help_heading = "Otherwise")]
    pub verbose: bool,
    /// Say nothing but errors and the profile.
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Otherwise")]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  trimtab profile ./app                        in words, on standard error\n  \
    trimtab profile --json -o app.json ./app     for other programs\n  \
    trimtab profile --set 'threads=4 wait=sleep' ./app\n  \
    trimtab profile mpirun -n 2 ./app            ranks on this machine are seen\n\n\
    Exit status: the program's own; 124 to 127 as of trimtab run.";

//! Options of `trimtab profile`.

use super::{CountingArgs, PlaceArgs, words};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::setting::Setting;
use trimtab_launch::PinMode;

/// Measure one run: barriers, waiting, balance, memory.
///
/// Places the program as `trimtab run` does, and ends with its exit status. While the program runs,
/// the preload library counts its barriers (OpenMP barriers and ends of regions, MPI collectives,
/// POSIX barriers) and how long threads wait there. From outside, trimtab samples how evenly cores
/// are used, how long threads wait for a CPU, and which memory they have. The profile also contains
/// the cost of the measurement.
///
/// The most important number is the time between two barriers: if it is below a millisecond, any
/// delay of one thread delays all threads. Quantities that could not be measured are listed. A
/// program that is killed still leaves a profile.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Print the profile as JSON (schema in docs/json.md).
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write the profile to FILE instead of standard error; standard output belongs to the program.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Run the program with this setting, as in 'threads=4 wait=sleep': threads, cores, smt,
    /// strategy, memory, thp, wait, pin, balance or slice, each in place of its option.
    #[arg(long, value_name = "SETTING", help_heading = "Settings")]
    pub set: Option<Setting>,
    /// How threads wait for each other: auto, spin, yield, sleep or keep, as for trimtab run.
    #[arg(long, value_name = "HOW", value_parser = super::run::wait_policies(),
          hide_possible_values = true, help_heading = "Control")]
    pub wait_policy: Option<WaitPolicy>,
    /// Pin threads: auto (by the kind of program) or mask (the threads float inside the cores).
    #[arg(long, value_name = "HOW", value_parser = words::Words::<PinMode>::of(PinMode::words()),
          hide_possible_values = true, help_heading = "Control")]
    pub pin: Option<PinMode>,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// Print the choices and their reasons on stderr.
    #[arg(short, long, help_heading = "Control")]
    pub verbose: bool,
    /// Print errors and the profile only.
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Control")]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  trimtab profile ./app                        as text, on standard error\n  \
    trimtab profile --json -o app.json ./app     for other programs\n  \
    trimtab profile --set 'threads=4 wait=sleep' ./app\n  \
    trimtab profile mpirun -n 2 ./app            all ranks on this machine\n\n\
    Exit status: the program's own; 124 to 127 as for trimtab run.";

//! Options of `trimtab sim swarm`.

use clap::Args;
use std::path::PathBuf;

/// Look for faults of policies, kernels' models and the simulator: scenarios drawn at random, each run under all checkers.
///
/// Each run has a phase in which CPUs vanish and return, other programs come and go, readings are lost or old, moves are refused or late and
/// clocks jump, and then one in which nothing changes any more. What breaks a law (docs/simulator.md, "What is checked") is made
/// small and written as a scenario file. Run number i of a seed is the same on every machine, with any number of jobs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SwarmArgs {
    /// How long to look, and to make small what was found. Without it and --runs: 60 seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub seconds: Option<u64>,
    /// How many scenarios to run.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub runs: Option<u64>,
    /// What scenarios are drawn from; by default from the clock.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The number of the first scenario of the seed, up to 9223372036854775807.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub first: u64,
    /// Small machines and short runs only.
    #[arg(long)]
    pub small: bool,
    /// So many runs at a time, instead of one a core.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Print lines of JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Where a failing scenario is written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

const EXAMPLES: &str = "Examples:\n  trimtab sim swarm --seconds 60           a minute on all cores\n  \
    trimtab sim swarm --seed 7 --runs 500   the same 500 scenarios every time\n  \
    trimtab sim swarm-7-123.toml --check    what it found, once more\n\n\
    Exit status: 0 nothing found, 1 a law was broken, 2 something cannot be written; Ctrl-C ends it early with 130,\n\
    or with 1 if a law was broken, which is then written as small as it was made until then.";

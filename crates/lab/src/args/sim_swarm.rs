//! Options of `trimtab sim swarm`.

use clap::Args;
use std::path::PathBuf;

/// Search for faults with randomly drawn scenarios.
///
/// Tests policies, kernel models and the simulator; each scenario runs under all checkers. A run
/// has a phase in which CPUs vanish and return, other programs start and end, readings are lost or
/// stale, moves are refused or late and clocks jump, and then a phase without further changes. A
/// scenario that breaks an invariant (docs/simulator.md, "What is checked") is reduced and written
/// to a file. Run number i of a seed is the same on every machine, with any number of jobs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SwarmArgs {
    /// Duration of the search, including the reduction of failing scenarios, in seconds (default 60
    /// without --runs).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub seconds: Option<u64>,
    /// Number of scenarios to run.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub runs: Option<u64>,
    /// Seed of the scenarios (default: from the clock).
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Number of the first scenario of the seed, up to 9223372036854775807.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    #[arg(hide_short_help = true)]
    pub first: u64,
    /// Draw only small machines and short runs.
    #[arg(long)]
    #[arg(hide_short_help = true)]
    pub small: bool,
    /// Number of parallel runs (default: the number of cores).
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Print JSON lines (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Folder for failing scenarios.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

const EXAMPLES: &str = "Examples:\n  trimtab sim swarm --seconds 60           a minute on all cores\n  \
    trimtab sim swarm --seed 7 --runs 500   the same 500 scenarios every time\n  \
    trimtab sim swarm-7-123.toml --check    run a found scenario again\n\n\
    Exit status: 0 no fault found, 1 an invariant was broken, 2 a file cannot be written. Ctrl-C ends the command with 130,\n\
    or with 1 if an invariant was broken; the scenario is then written as far as it was reduced.";
